/* Sending through one interface by AF_XDP: the ring and the memory of packets are shared with the kernel. It takes no XDP
 * program, no rights to load one, and any number of queues. */
#ifndef P4LITE_XDP_H
#define P4LITE_XDP_H

#include <stdbool.h>
#include <stdint.h>

struct xdp;

/* PF_OK, PF_E_MEMORY, PF_E_RANGE (packets do not fit into a page) or PF_E_SYSTEM (errno says why). */
int xdp_open(int index, uint32_t mtu, struct xdp **out);
void xdp_close(struct xdp *x);
/* Another MTU of the interface. False: its longest packets do not fit any more. */
bool xdp_set_mtu(struct xdp *x, uint32_t mtu);
/* Copies a packet to be sent by the next xdp_flush. False: it is no frame of the interface's (too short, longer than its
 * MTU), or earlier ones are still being sent. */
bool xdp_put(struct xdp *x, const uint8_t *data, uint32_t len);
/* False: the kernel has not taken all; the rest goes with the next call. */
bool xdp_flush(struct xdp *x);

#endif
