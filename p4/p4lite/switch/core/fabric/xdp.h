/* Packet I/O of one interface by AF_XDP instead of AF_PACKET: an XDP program of six instructions redirects all that the
 * interface receives to a socket whose rings and packet memory are shared with the kernel. */
#ifndef P4LITE_XDP_H
#define P4LITE_XDP_H

#include <stdbool.h>
#include <stdint.h>

struct xdp;

/* PF_OK, or the PF_E_XDP_* of the step that failed, with errno. What it opened is closed by the kernel when the process
 * ends in whatever way: program and attachment live as long as file descriptors of it. */
int xdp_open(int index, uint32_t mtu, uint32_t queues, struct xdp **out);
/* The same for sending alone: no program, no rights to load one, any number of queues. */
int xdp_open_sender(int index, uint32_t mtu, struct xdp **out);
void xdp_close(struct xdp *x);
/* Becomes readable when a packet waits. It stays the socket's own. */
int xdp_descriptor(const struct xdp *x);
bool xdp_has_input(const struct xdp *x);
/* The next packet received, NULL: none. It is there until xdp_taken. */
const uint8_t *xdp_take(struct xdp *x, uint32_t *len);
void xdp_taken(struct xdp *x);
/* Another MTU of the interface. False: its longest packets do not fit any more. */
bool xdp_set_mtu(struct xdp *x, uint32_t mtu);
/* Copies a packet to be sent by the next xdp_flush. False: it is no frame of the interface's (too short, longer than its
 * MTU), or earlier ones are still being sent. */
bool xdp_put(struct xdp *x, const uint8_t *data, uint32_t len);
/* False: the kernel has not taken all; the rest goes with the next call. */
bool xdp_flush(struct xdp *x);
/* Packets that the kernel had no room for since the last call. */
uint64_t xdp_lost(struct xdp *x);

#endif
