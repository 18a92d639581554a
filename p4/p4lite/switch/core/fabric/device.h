/* Ports on interfaces and tunnels: device.c. */
#ifndef P4LITE_DEVICE_H
#define P4LITE_DEVICE_H

#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#include "switch.h"
#include "tunnel.h"
#include "xdp.h"

#define BATCH 64u

/* Frames that one system call sends. */
struct outgoing {
    int fd;
    uint32_t queued;
    struct device *devices[BATCH];
    struct packet *packets[BATCH];
    struct mmsghdr messages[BATCH];
    struct iovec vectors[BATCH][2];
    uint8_t headers[BATCH][TUNNEL_HEADER]; /* the tunnel's, or struct virtio_net_hdr */
};

struct device {
    struct device *next;
    struct port *port; /* NULL: retired; the structure stays, an epoll event may still name it */
    char name[IFNAMSIZ];
    int rx_fd, index, mtu;
    bool up;
    struct sockaddr_ll address;
    struct xdp *sender; /* NULL: `out` */
    struct outgoing *out; /* a tunnel's own, or that of all interfaces */
    uint8_t *ring;
    uint32_t frame_size, frames, cursor;
    uint32_t queued; /* frames for `sender` */
    struct tunnel *tunnel; /* NULL: an interface */
};

void device_send(struct fabric *f, struct port *q, struct packet *p);
void devices_close(struct fabric *f);
void device_close(struct fabric *f, struct port *q);
bool devices_flush(struct fabric *f);
void device_collect_drops(struct port *q);
bool device_is_up(const struct port *q);
void device_receive(struct fabric *f, struct device *d);
bool device_has_input(const struct device *d);
void device_link_event(struct fabric *f);
int device_loop_fds(struct fabric *f);
void device_loop_close(struct fabric *f);

#endif
