/* Sending by AF_XDP (xdp.c) at a port on an interface. */
#include <errno.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>

#include "device.h"

/* Frames of other interfaces have no Ethernet header, by which what may be sent is judged. */
static bool is_ethernet(const struct device *d)
{
    struct ifreq request = {0};
    memcpy(request.ifr_name, d->name, sizeof d->name);
    return ioctl(d->tx_fd, SIOCGIFHWADDR, &request) == 0 && request.ifr_hwaddr.sa_family == ARPHRD_ETHER;
}

void device_xdp_sender(struct device *d, int index, int mtu)
{
    if (is_ethernet(d) && xdp_open(index, (uint32_t)mtu, &d->sender) != PF_OK)
        errno = 0; /* there is another way */
}

void device_xdp_mtu(struct device *d, int mtu)
{
    if (!d->sender || xdp_set_mtu(d->sender, (uint32_t)mtu))
        return;
    device_xdp_close(d); /* sendmmsg takes frames of any length */
    d->queued = 0;
}

void device_xdp_close(struct device *d)
{
    if (d->sender)
        xdp_close(d->sender);
    d->sender = NULL;
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
