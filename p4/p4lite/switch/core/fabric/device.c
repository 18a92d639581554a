/* Ports on network interfaces, and tunnels. Reception by a TPACKET_V2 ring (measured here: two thirds of the CPU time of
 * recvmmsg per packet, and no block time-out as V3 has), transmission past the qdisc: by xdp.c, or of all interfaces by one
 * sendmmsg. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/rtnetlink.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "offload.h"

#define RING_BYTES (2u << 20)
#define MIN_FRAMES 256u
#define AHEAD 2u     /* frames; MIN_FRAMES is more */
#define FETCHED 256u /* bytes of a frame: the ring's header and those of a packet */
#define LEAST_PIECE 64u
#define TOGETHER 64u /* sockets that are opened or closed at once */

/* What one datagram is read into; the fabric's lock is held. */
static uint8_t datagram[65536];

int device_loop_fds(struct fabric *f)
{
    f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->netlink_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &f->wake_fd};
    struct epoll_event netlink = {.events = EPOLLIN, .data.ptr = &f->netlink_fd};
    if (f->epoll_fd < 0 || f->wake_fd < 0 || f->netlink_fd < 0 ||
        bind(f->netlink_fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, f->wake_fd, &wake) != 0 ||
        epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, f->netlink_fd, &netlink) != 0)
        return PF_E_SYSTEM;
    return PF_OK;
}

void device_loop_close(struct fabric *f)
{
    int fds[] = {f->epoll_fd, f->wake_fd, f->netlink_fd};
    for (unsigned i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    while (f->devices) {
        struct device *next = f->devices->next;
        if (f->devices->tunnel)
            free(f->devices->out);
        free(f->devices->tunnel);
        free(f->devices);
        f->devices = next;
    }
    while (f->opened) {
        struct device *next = f->opened->next;
        free(f->opened);
        f->opened = next;
    }
    if (f->outgoing) {
        close(f->outgoing->fd);
        free(f->outgoing);
    }
}

/* -- sending by one system call for many frames --------------------------------------------------------------------- */

static void outgoing_flush(struct fabric *f, struct outgoing *o)
{
    uint32_t sent = 0;
    while (sent < o->queued) {
        int done = sendmmsg(o->fd, o->messages + sent, o->queued - sent, MSG_DONTWAIT);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            o->devices[sent]->port->stats.drops[PF_D_DEVICE]++; /* down, full, or longer than its MTU: this one is lost */
            packet_free(f, o->packets[sent++]);
            continue;
        }
        for (uint32_t until = sent + (uint32_t)done; sent < until; sent++) {
            if (o->devices[sent]->tunnel)
                o->devices[sent]->tunnel->stats.sent++;
            packet_free(f, o->packets[sent]);
        }
    }
    o->queued = 0;
}

/* Of a frame longer than a page the kernel puts the first bytes into one piece of memory and the rest into pages: one
 * piece for all takes a third longer. */
static uint16_t first_piece(uint32_t len)
{
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE), first = len % page < LEAST_PIECE ? LEAST_PIECE : len % page;
    return (uint16_t)(len > page ? first : 0);
}

static bool outgoing_put(struct fabric *f, struct device *d, struct packet *p)
{
    struct outgoing *o = d->out;
    if (d->tunnel && p->len > TUNNEL_MAX_FRAME)
        return false;
    uint32_t n = o->queued++;
    struct iovec *parts = o->vectors[n];
    parts[0] = (struct iovec){o->headers[n], d->tunnel ? TUNNEL_HEADER : sizeof(struct virtio_net_hdr)};
    parts[1] = (struct iovec){p->data, p->len};
    struct virtio_net_hdr head = {.hdr_len = first_piece(p->len)};
    if (d->tunnel)
        tunnel_seal(d->tunnel, o->headers[n], p->data, p->len);
    else
        memcpy(o->headers[n], &head, sizeof head);
    o->messages[n].msg_hdr = (struct msghdr){.msg_iov = parts, .msg_iovlen = 2};
    if (!d->tunnel) {
        o->messages[n].msg_hdr.msg_name = &d->address;
        o->messages[n].msg_hdr.msg_namelen = sizeof d->address;
    }
    o->devices[n] = d;
    o->packets[n] = p;
    if (o->queued == BATCH)
        outgoing_flush(f, o);
    return true;
}

/* -- sending by AF_XDP: half the CPU time of sendmmsg --------------------------------------------------------------- */

static void xdp_end(struct device *d)
{
    if (d->sender)
        xdp_close(d->sender);
    d->sender = NULL;
}

/* Frames of other interfaces have no Ethernet header, by which what may be sent is judged. */
static bool is_ethernet(const struct device *d)
{
    struct ifreq request = {0};
    memcpy(request.ifr_name, d->name, sizeof d->name);
    return ioctl(d->rx_fd, SIOCGIFHWADDR, &request) == 0 && request.ifr_hwaddr.sa_family == ARPHRD_ETHER;
}

/* A round sends few frames through an interface. For these a call of its own costs more than AF_XDP spares. */
static void xdp_begin(const struct fabric *f, struct device *d, int index, int mtu)
{
    if (!f->round_ns && is_ethernet(d) && xdp_open(index, (uint32_t)mtu, &d->sender) != PF_OK)
        errno = 0; /* there is another way */
}

static void xdp_mtu(struct device *d, int mtu)
{
    if (!d->sender || xdp_set_mtu(d->sender, (uint32_t)mtu))
        return;
    xdp_end(d); /* sendmmsg takes frames of any length */
    d->queued = 0;
}

static bool xdp_send(struct fabric *f, struct device *d, struct packet *p)
{
    /* what the kernel is given while the interface is down it would send when that comes up again */
    bool sent = d->up && xdp_put(d->sender, p->data, p->len);
    if (sent)
        packet_free(f, p);
    else
        port_drop(f, d->port, p, PF_D_DEVICE);
    return sent;
}

/* -- interfaces and tunnels ----------------------------------------------------------------------------------------- */

static void sockets_close(struct device *d)
{
    xdp_end(d);
    if (d->ring)
        munmap(d->ring, (size_t)d->frame_size * d->frames);
    if (d->rx_fd >= 0)
        close(d->rx_fd);
    d->ring = NULL;
    d->rx_fd = d->index = -1;
}

static int set_option(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof value);
}

/* One frame of the ring holds the interface's MTU; what is longer comes through the socket's own queue. */
static int ring_make(struct device *d, int mtu)
{
    d->frame_size = 2048;
    while (d->frame_size < (uint32_t)mtu + 256 && d->frame_size < 65536)
        d->frame_size *= 2;
    d->frames = RING_BYTES / d->frame_size > MIN_FRAMES ? RING_BYTES / d->frame_size : MIN_FRAMES;
    uint32_t per_block = 65536 / d->frame_size;
    struct tpacket_req request = {65536, d->frames / per_block, d->frame_size, d->frames};
    if (setsockopt(d->rx_fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
        return -1;
    void *ring = mmap(NULL, (size_t)d->frame_size * d->frames, PROT_READ | PROT_WRITE, MAP_SHARED, d->rx_fd, 0);
    if (ring == MAP_FAILED)
        return -1;
    d->ring = ring;
    d->cursor = 0;
    return 0;
}

/* The socket that all interfaces send by where AF_XDP does not. Its messages say through which. */
static struct outgoing *interfaces_out(struct fabric *f)
{
    if (f->outgoing)
        return f->outgoing;
    struct outgoing *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (o->fd < 0 || set_option(o->fd, SOL_PACKET, PACKET_QDISC_BYPASS, 1) != 0 ||
        set_option(o->fd, SOL_PACKET, PACKET_VNET_HDR, 1) != 0) {
        int saved = errno;
        if (o->fd >= 0)
            close(o->fd);
        free(o);
        errno = saved;
        return NULL;
    }
    if (set_option(o->fd, SOL_SOCKET, SO_SNDBUFFORCE, 8 << 20) != 0)
        errno = 0; /* a lower limit of the system is no reason to refuse */
    f->outgoing = o;
    return o;
}

static int packet_open(struct device *d, int index, int mtu)
{
    struct packet_mreq promiscuous = {.mr_ifindex = index, .mr_type = PACKET_MR_PROMISC};
    struct sockaddr_ll all = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = index};
    if (set_option(d->rx_fd, SOL_PACKET, PACKET_VERSION, TPACKET_V2) != 0 ||
        set_option(d->rx_fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) != 0 ||
        set_option(d->rx_fd, SOL_PACKET, PACKET_VNET_HDR, 1) != 0 ||
        set_option(d->rx_fd, SOL_PACKET, PACKET_COPY_THRESH, 1) != 0 ||
        set_option(d->rx_fd, SOL_PACKET, PACKET_AUXDATA, 1) != 0 || ring_make(d, mtu) != 0 ||
        setsockopt(d->rx_fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) != 0)
        return PF_E_SYSTEM;
    /* room for super-frames; a lower limit of the system is no reason to refuse */
    if (set_option(d->rx_fd, SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20) != 0)
        errno = 0;
    return bind(d->rx_fd, (struct sockaddr *)&all, sizeof all) == 0 ? PF_OK : PF_E_SYSTEM;
}

/* What needs nothing of the fabric. */
static int receiver_open(struct device *d)
{
    struct ifreq request = {0};
    memcpy(request.ifr_name, d->name, sizeof d->name);
    d->index = (int)if_nametoindex(d->name);
    d->rx_fd = d->index ? socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (d->index == 0)
        errno = ENODEV;
    if (d->rx_fd < 0 || ioctl(d->rx_fd, SIOCGIFMTU, &request) != 0 || packet_open(d, d->index, request.ifr_mtu) != PF_OK) {
        int saved = errno;
        sockets_close(d);
        errno = saved;
        return PF_E_SYSTEM;
    }
    d->mtu = request.ifr_mtu;
    return PF_OK;
}

static int sockets_open(struct fabric *f, struct device *d)
{
    if (d->rx_fd < 0 && receiver_open(d) != PF_OK)
        return PF_E_SYSTEM;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = d};
    d->out = interfaces_out(f);
    d->address = (struct sockaddr_ll){.sll_family = AF_PACKET, .sll_ifindex = d->index};
    if (!d->out || epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, d->rx_fd, &event) != 0) {
        int saved = errno;
        sockets_close(d);
        errno = saved;
        return PF_E_SYSTEM;
    }
    xdp_begin(f, d, d->index, d->mtu);
    struct ifreq flags = {0};
    memcpy(flags.ifr_name, d->name, sizeof d->name);
    d->up = ioctl(d->rx_fd, SIOCGIFFLAGS, &flags) == 0 && (flags.ifr_flags & IFF_UP) && (flags.ifr_flags & IFF_RUNNING);
    return PF_OK;
}

/* The kernel takes some milliseconds to open and to close a socket with a ring, in which it waits for other processors. It
 * can do that for many sockets at once. */
static void many(void *(*work)(void *), struct device *const *devices, uint32_t count)
{
    pthread_t threads[TOGETHER];
    for (uint32_t from = 0; from < count; from += TOGETHER) {
        uint32_t now = count - from < TOGETHER ? count - from : TOGETHER, begun = 0;
        while (begun < now && pthread_create(&threads[begun], NULL, work, devices[from + begun]) == 0)
            begun++;
        for (uint32_t i = begun; i < now; i++)
            work(devices[from + i]);
        for (uint32_t i = 0; i < begun; i++)
            pthread_join(threads[i], NULL);
    }
}

static void *open_one(void *device)
{
    receiver_open(device); /* the next caller that takes the device tries again, and reports an error */
    return NULL;
}

static void *close_one(void *device)
{
    sockets_close(device);
    return NULL;
}

int pf_open_interfaces(struct fabric *f, const char *const *names, uint32_t count)
{
    if (!f->real)
        return PF_E_CLOCK;
    LOCKED(f);
    struct device **made = calloc(count ? count : 1, sizeof *made);
    uint32_t n = 0;
    for (; made && n < count; n++) {
        if (strlen(names[n]) >= IFNAMSIZ || !(made[n] = calloc(1, sizeof **made)))
            break;
        memcpy(made[n]->name, names[n], strlen(names[n]));
        made[n]->rx_fd = -1;
        made[n]->next = f->opened;
        f->opened = made[n];
    }
    many(open_one, made, n);
    free(made);
    return n == count ? PF_OK : made ? PF_E_RANGE : PF_E_MEMORY;
}

/* A device that `pf_open_interfaces` has made for an interface; NULL: none. */
static struct device *take_opened(struct fabric *f, const char *name)
{
    for (struct device **at = &f->opened; *at; at = &(*at)->next)
        if (strcmp((*at)->name, name) == 0) {
            struct device *d = *at;
            *at = d->next;
            return d;
        }
    return NULL;
}

/* All at once, before the ports go. */
void devices_close(struct fabric *f)
{
    uint32_t count = 0;
    for (struct device *d = f->devices; d; d = d->next)
        count += d->port && !d->tunnel;
    for (struct device *d = f->opened; d; d = d->next)
        count++;
    struct device **open = calloc(count ? count : 1, sizeof *open);
    uint32_t n = 0;
    devices_flush(f);
    for (struct device *d = f->devices; open && d; d = d->next)
        if (d->port && !d->tunnel) {
            d->queued = 0;
            open[n++] = d;
        }
    for (struct device *d = f->opened; open && d; d = d->next)
        open[n++] = d;
    many(close_one, open, n);
    free(open);
}

/* The port has this device from now on. */
static void attach(struct port *q, struct device *d)
{
    struct fabric *f = q->sw->fabric;
    d->port = q;
    d->next = f->devices;
    f->devices = d;
    q->device = d;
    q->peer_kind = PEER_INTERFACE;
}

int pf_port_interface(struct port *q, const char *name)
{
    struct fabric *f = q->sw->fabric;
    size_t length = strlen(name);
    if (!f->real)
        return PF_E_CLOCK;
    if (length == 0 || length >= IFNAMSIZ)
        return PF_E_RANGE;
    LOCKED(f);
    for (struct device *d = f->devices; d; d = d->next)
        if (d->port && strcmp(d->name, name) == 0)
            return PF_E_EXISTS;
    if (q->peer_kind != PEER_EXTERNAL)
        return PF_E_BUSY;
    struct device *d = take_opened(f, name);
    if (!d) {
        d = calloc(1, sizeof *d);
        if (!d)
            return PF_E_MEMORY;
        memcpy(d->name, name, length);
        d->rx_fd = -1;
    }
    int result = sockets_open(f, d);
    if (result == PF_OK)
        attach(q, d);
    else
        free(d);
    return result;
}

int pf_port_tunnel(struct port *q, int socket, const uint8_t *key, uint32_t from, uint32_t to)
{
    struct fabric *f = q->sw->fabric;
    if (!f->real)
        return PF_E_CLOCK;
    if (from == to)
        return PF_E_RANGE;
    LOCKED(f);
    if (q->peer_kind != PEER_EXTERNAL)
        return PF_E_BUSY;
    struct device *d = calloc(1, sizeof *d);
    struct tunnel *t = calloc(1, sizeof *t);
    struct outgoing *o = calloc(1, sizeof *o);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = d};
    int result = d && t && o ? PF_OK : PF_E_MEMORY;
    if (result == PF_OK && epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, socket, &event) != 0)
        result = PF_E_SYSTEM;
    if (result != PF_OK) {
        free(o);
        free(t);
        free(d);
        return result;
    }
    memcpy(t->key, key, sizeof t->key);
    t->from = from;
    t->to = to;
    t->epoch = clock_ns(CLOCK_REALTIME);
    f->tunnels = true;
    d->tunnel = t;
    d->out = o;
    d->rx_fd = o->fd = socket;
    d->up = true;
    d->index = -1;
    attach(q, d);
    return PF_OK;
}

int pf_port_tunnel_stats(struct port *q, struct pf_tunnel_stats *out, uint32_t reset)
{
    LOCKED(q->sw->fabric);
    if (!q->device || !q->device->tunnel)
        return PF_E_MISSING;
    *out = q->device->tunnel->stats;
    if (reset)
        memset(&q->device->tunnel->stats, 0, sizeof q->device->tunnel->stats);
    return PF_OK;
}

static void flush(struct fabric *f, struct device *d)
{
    if (d->out)
        outgoing_flush(f, d->out);
    if (d->queued)
        d->queued = xdp_flush(d->sender) ? 0 : 1;
}

void device_close(struct fabric *f, struct port *q)
{
    struct device *d = q->device;
    if (!d)
        return;
    flush(f, d);
    d->queued = 0;
    sockets_close(d);
    d->port = NULL;
    q->device = NULL;
    q->peer_kind = PEER_EXTERNAL;
}

/* Returns whether something is left that the kernel has not taken. */
bool devices_flush(struct fabric *f)
{
    bool left = false;
    if (f->outgoing)
        outgoing_flush(f, f->outgoing);
    for (struct device *d = f->devices; d; d = d->next)
        if (d->queued || (d->tunnel && d->out->queued)) {
            flush(f, d);
            left |= d->queued != 0;
        }
    return left;
}

void device_send(struct fabric *f, struct port *q, struct packet *p)
{
    struct device *d = q->device;
    if (d && d->sender) {
        if (xdp_send(f, d, p) && ++d->queued == BATCH)
            flush(f, d);
    } else if (!d || d->rx_fd < 0 || !outgoing_put(f, d, p)) {
        port_drop(f, q, p, PF_D_DEVICE);
    }
}

static void take_in(struct fabric *f, struct port *q, struct packet *p)
{
    port_take_in(f, q, p, f->now);
    drain(f);
}

/* Room for a VLAN tag that the kernel took out is left in front of `data`. */
static void insert_vlan(struct packet *p, uint32_t tpid, uint32_t tci)
{
    uint8_t *start = p->data - 4;
    memmove(start, p->data, 12);
    start[12] = (uint8_t)(tpid >> 8);
    start[13] = (uint8_t)tpid;
    start[14] = (uint8_t)(tci >> 8);
    start[15] = (uint8_t)tci;
    p->data = start;
    p->len += 4;
}

struct received {
    struct virtio_net_hdr head;
    bool vlan;
    uint32_t tpid, tci;
};

static void finish(struct fabric *f, struct port *q, struct packet *p, const struct received *r)
{
    if (r->head.gso_type == VIRTIO_NET_HDR_GSO_NONE) {
        if (r->head.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
            offload_checksum(p->data, p->len, r->head.csum_start, r->head.csum_offset);
        if (r->vlan && p->len >= 14)
            insert_vlan(p, r->tpid, r->tci);
        take_in(f, q, p);
        return;
    }
    struct offload_plan plan;
    if (!offload_plan(p->data, p->len, &r->head, &plan)) {
        port_drop(f, q, p, PF_D_DEVICE);
        return;
    }
    for (uint32_t i = 0; i < plan.segments; i++) {
        struct packet *segment = packet_new(f, plan.headers + plan.segment_size);
        if (!segment)
            break;
        segment->len = offload_segment(p->data, &plan, i, segment->data);
        if (r->vlan)
            insert_vlan(segment, r->tpid, r->tci);
        take_in(f, q, segment);
    }
    packet_free(f, p);
}

/* A frame longer than one of the ring: the kernel put all of it into the socket's queue. */
static void receive_long(struct fabric *f, struct device *d)
{
    struct packet *p = packet_new(f, MAX_PACKET);
    if (!p)
        return;
    struct received r = {0};
    union {
        struct cmsghdr align;
        uint8_t bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    } control;
    struct iovec parts[2] = {{&r.head, sizeof r.head}, {p->data, MAX_PACKET}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(d->rx_fd, &message, MSG_DONTWAIT);
    if (got < (ssize_t)sizeof r.head || (message.msg_flags & MSG_TRUNC)) {
        d->port->stats.drops[PF_D_RX_RING]++;
        packet_free(f, p);
        return;
    }
    p->len = (uint32_t)got - (uint32_t)sizeof r.head;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
            struct tpacket_auxdata aux;
            memcpy(&aux, CMSG_DATA(c), sizeof aux);
            r.vlan = aux.tp_status & TP_STATUS_VLAN_VALID;
            r.tci = aux.tp_vlan_tci;
            r.tpid = aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : ETHERTYPE_VLAN;
        }
    finish(f, d->port, p, &r);
}

/* Read at most a batch, so that a peer that floods the tunnel delays no other link. An error comes from the network, for
 * example because the peer does not listen yet; reading it clears it. */
static void tunnel_receive(struct fabric *f, struct device *d)
{
    for (uint32_t n = 0; n < BATCH; n++) {
        ssize_t got = recv(d->rx_fd, datagram, sizeof datagram, MSG_DONTWAIT);
        if (got < 0)
            return;
        if (!tunnel_take(d->tunnel, datagram, (uint32_t)got))
            continue;
        struct packet *p = packet_new(f, (uint32_t)got - TUNNEL_HEADER);
        if (!p) {
            d->port->stats.drops[PF_D_MEMORY]++;
            continue;
        }
        p->len = (uint32_t)got - TUNNEL_HEADER;
        memcpy(p->data, datagram + TUNNEL_HEADER, p->len);
        take_in(f, d->port, p);
    }
}

static struct tpacket2_hdr *frame_at(const struct device *d, uint32_t index)
{
    return (struct tpacket2_hdr *)(void *)(d->ring + (size_t)index * d->frame_size);
}

/* Whether the ring holds a packet, as far as can be told without asking the kernel. */
bool device_has_input(const struct device *d)
{
    return d->port && d->ring && __atomic_load_n(&frame_at(d, d->cursor)->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER;
}

/* The kernel wrote the ring on another CPU: fetch what will be read next while this packet is processed. */
static void fetch_ahead(const struct device *d)
{
    uint32_t index = d->cursor + AHEAD < d->frames ? d->cursor + AHEAD : d->cursor + AHEAD - d->frames;
    const uint8_t *frame = d->ring + (size_t)index * d->frame_size;
    for (unsigned at = 0; at < FETCHED; at += 64)
        __builtin_prefetch(frame + at);
}

void device_receive(struct fabric *f, struct device *d)
{
    if (!d->port || d->rx_fd < 0)
        return;
    if (d->tunnel) {
        tunnel_receive(f, d);
        return;
    }
    uint32_t n = 0;
    for (; n < BATCH; n++) {
        struct tpacket2_hdr *h = frame_at(d, d->cursor);
        const uint8_t *frame = (const uint8_t *)h;
        uint32_t status = __atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE);
        if (!(status & TP_STATUS_USER))
            break;
        fetch_ahead(d);
        struct packet *p = NULL;
        struct received r = {0};
        if (!(status & TP_STATUS_COPY) && h->tp_snaplen == h->tp_len && (p = packet_new(f, h->tp_snaplen))) {
            memcpy(&r.head, frame + h->tp_mac - sizeof r.head, sizeof r.head);
            memcpy(p->data, frame + h->tp_mac, h->tp_snaplen);
            p->len = h->tp_snaplen;
            r.vlan = status & TP_STATUS_VLAN_VALID;
            r.tci = h->tp_vlan_tci;
            r.tpid = status & TP_STATUS_VLAN_TPID_VALID ? h->tp_vlan_tpid : ETHERTYPE_VLAN;
        }
        __atomic_store_n(&h->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        d->cursor = d->cursor + 1 == d->frames ? 0 : d->cursor + 1;
        if (p)
            finish(f, d->port, p, &r);
        else if (status & TP_STATUS_COPY)
            receive_long(f, d);
        else
            d->port->stats.drops[PF_D_RX_RING]++;
    }
    if (n == 0) { /* woken by an error: the interface went down; reading it clears it */
        int error;
        socklen_t size = sizeof error;
        if (getsockopt(d->rx_fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            sockets_close(d);
    }
}

/* What the ring had no room for since the last call. */
void device_collect_drops(struct port *q)
{
    struct tpacket_stats stats;
    socklen_t size = sizeof stats;
    if (q->device && q->device->rx_fd >= 0 &&
        getsockopt(q->device->rx_fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0)
        q->stats.drops[PF_D_RX_RING] += stats.tp_drops;
}

bool device_is_up(const struct port *q)
{
    return !q->device || (q->device->rx_fd >= 0 && q->device->up);
}

static void set_up(struct fabric *f, struct device *d, bool up)
{
    if (d->up == up)
        return;
    d->up = up;
    notify(f, PF_N_PORT_STATUS, d->port->sw->config.device_id, d->port->number, up, NULL, 0);
}

static void link_changed(struct fabric *f, const struct nlmsghdr *m)
{
    const struct ifinfomsg *info = NLMSG_DATA(m);
    const char *name = NULL;
    int mtu = 0, left = (int)IFLA_PAYLOAD(m);
    for (const struct rtattr *a = IFLA_RTA(info); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == IFLA_IFNAME)
            name = RTA_DATA(a);
        else if (a->rta_type == IFLA_MTU)
            memcpy(&mtu, RTA_DATA(a), sizeof mtu);
    for (struct device *d = f->devices; d; d = d->next) {
        if (!d->port)
            continue;
        if (m->nlmsg_type == RTM_DELLINK && d->index == info->ifi_index) {
            flush(f, d);
            d->queued = 0;
            sockets_close(d);
            set_up(f, d, false);
        } else if (m->nlmsg_type == RTM_NEWLINK && name && strcmp(d->name, name) == 0) {
            if (d->index != info->ifi_index) { /* back under its name, perhaps another device */
                flush(f, d);
                d->queued = 0;
                sockets_close(d);
                bool was_up = d->up;
                if (sockets_open(f, d) != PF_OK)
                    continue;
                d->up = was_up;
            } else if (mtu > 0 && d->sender) {
                flush(f, d);
                xdp_mtu(d, mtu);
            }
            set_up(f, d, (info->ifi_flags & IFF_UP) && (info->ifi_flags & IFF_RUNNING));
        }
    }
}

void device_link_event(struct fabric *f)
{
    static _Alignas(struct nlmsghdr) uint8_t buffer[65536];
    ssize_t got;
    while ((got = recv(f->netlink_fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
        unsigned left = (unsigned)got;
        for (const struct nlmsghdr *m = (const void *)buffer; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left))
            if (m->nlmsg_type == RTM_NEWLINK || m->nlmsg_type == RTM_DELLINK)
                link_changed(f, m);
    }
}
