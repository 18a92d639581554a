/* Ports whose interface is driven by AF_XDP (xdp.c). */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>

#include "device.h"

/* An interface that has no such thing as channels has one queue. */
static uint32_t receive_queues(const struct device *d)
{
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    struct ifreq request = {0};
    memcpy(request.ifr_name, d->name, sizeof d->name);
    request.ifr_data = (void *)&channels;
    if (ioctl(d->tx_fd, SIOCETHTOOL, &request) != 0)
        return 1;
    return channels.rx_count + channels.combined_count;
}

int device_xdp_open(struct device *d, int index, int mtu)
{
    int result = xdp_open(index, (uint32_t)mtu, receive_queues(d), &d->xdp);
    if (result == PF_OK) {
        d->rx_fd = xdp_descriptor(d->xdp);
        d->sender = d->xdp;
    }
    return result;
}

/* Frames of other interfaces have no Ethernet header, by which what may be sent is judged. */
static bool is_ethernet(const struct device *d)
{
    struct ifreq request = {0};
    memcpy(request.ifr_name, d->name, sizeof d->name);
    return ioctl(d->tx_fd, SIOCGIFHWADDR, &request) == 0 && request.ifr_hwaddr.sa_family == ARPHRD_ETHER;
}

void device_xdp_sender(struct device *d, int index, int mtu)
{
    if (is_ethernet(d) && xdp_open_sender(index, (uint32_t)mtu, &d->sender) != PF_OK)
        errno = 0; /* there is another way */
}

void device_xdp_mtu(struct device *d, int mtu)
{
    if (!d->sender || xdp_set_mtu(d->sender, (uint32_t)mtu) || d->xdp)
        return;
    device_xdp_close(d); /* sendmmsg takes frames of any length */
    d->queued = 0;
}

void device_xdp_close(struct device *d)
{
    if (d->sender && d->sender != d->xdp)
        xdp_close(d->sender);
    if (d->xdp) {
        xdp_close(d->xdp);
        d->rx_fd = -1; /* it was the socket's */
    }
    d->xdp = d->sender = NULL;
}

uint32_t device_xdp_receive(struct fabric *f, struct device *d)
{
    uint32_t n = 0, len;
    const uint8_t *frame;
    for (; n < BATCH && d->xdp && (frame = xdp_take(d->xdp, &len)); n++) {
        struct packet *p = packet_new(f, len);
        if (p) {
            memcpy(p->data, frame, len);
            p->len = len;
        } else {
            d->port->stats.drops[PF_D_MEMORY]++;
        }
        xdp_taken(d->xdp);
        if (p)
            device_take_in(f, d->port, p);
    }
    return n;
}

bool device_xdp_send(struct fabric *f, struct device *d, struct packet *p)
{
    /* what the kernel is given while the interface is down it would send when that comes up again */
    bool sent = d->up && xdp_put(d->sender, p->data, p->len);
    if (sent)
        packet_free(f, p);
    else
        port_drop(f, d->port, p, PF_D_DEVICE);
    return sent;
}
