/* What a port on an interface or a tunnel has beside a port's own: device.c, device_xdp.c. */
#ifndef P4LITE_DEVICE_H
#define P4LITE_DEVICE_H

#include <net/if.h>
#include <sys/socket.h>

#include "internal.h"
#include "tunnel.h"
#include "xdp.h"

#define BATCH 64u

struct device {
    struct device *next;
    struct port *port; /* NULL: retired; the structure stays, an epoll event may still name it */
    char name[IFNAMSIZ];
    int rx_fd, tx_fd, index;
    bool up;
    struct xdp *sender; /* NULL: sendmmsg by tx_fd */
    uint8_t *ring;
    uint32_t frame_size, frames, cursor;
    uint32_t queued;
    struct packet *out[BATCH];
    struct mmsghdr messages[BATCH];
    struct iovec vectors[BATCH][2];
    struct tunnel *tunnel; /* NULL: an interface */
    uint8_t (*headers)[TUNNEL_HEADER]; /* of what is queued */
};

void device_xdp_close(struct device *d);
/* Sends by AF_XDP where the kernel can: half the CPU time of sendmmsg. */
void device_xdp_sender(struct device *d, int index, int mtu);
/* The interface has this MTU now. */
void device_xdp_mtu(struct device *d, int mtu);
/* Takes the packet; false: it is dropped. */
bool device_xdp_send(struct fabric *f, struct device *d, struct packet *p);

#endif
