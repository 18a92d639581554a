/* AF_XDP (Documentation/networking/af_xdp.rst of Linux) by system calls alone, in copy mode, which every interface has. */
#include "xdp.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric.h"

#define TX_FRAMES 512u
#define VLAN_TAG 4u
#define LINK_HEADER (14u + VLAN_TAG)
#define SEND_BUFFER (8 << 20)

/* One of the two rings in use. Our index runs ahead of what the other side has been told. */
struct ring {
    uint32_t *producer, *consumer;
    void *entries;
    uint32_t mine;
    void *mapped;
    size_t mapped_size;
};

struct xdp {
    int socket;
    uint8_t *frames;
    uint32_t frame_size, longest; /* bytes; longest: what may be sent, without a VLAN tag */
    struct ring send, done;
    uint64_t free[TX_FRAMES]; /* addresses that the kernel does not send from */
    uint32_t free_count;
};

static uint32_t seen(const uint32_t *index)
{
    return __atomic_load_n(index, __ATOMIC_ACQUIRE);
}

static void tell(uint32_t *index, uint32_t value)
{
    __atomic_store_n(index, value, __ATOMIC_RELEASE);
}

static int ring_new(const struct xdp *x, struct ring *r, uint32_t size, uint64_t page,
                    const struct xdp_ring_offset *at, size_t entry)
{
    r->mapped_size = at->desc + size * entry;
    void *mapped = mmap(NULL, r->mapped_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, x->socket, (off_t)page);
    if (mapped == MAP_FAILED)
        return -1;
    r->mapped = mapped;
    r->producer = (uint32_t *)(void *)((uint8_t *)mapped + at->producer);
    r->consumer = (uint32_t *)(void *)((uint8_t *)mapped + at->consumer);
    r->entries = (uint8_t *)mapped + at->desc;
    return 0;
}

/* A socket that only sends has a ring of frames to be filled, too, which stays empty. */
static int ring_sizes(const struct xdp *x)
{
    const struct { int option; uint32_t size; } rings[] = {
        {XDP_UMEM_FILL_RING, 2}, {XDP_UMEM_COMPLETION_RING, TX_FRAMES}, {XDP_TX_RING, TX_FRAMES}};
    for (unsigned i = 0; i < 3; i++)
        if (setsockopt(x->socket, SOL_XDP, rings[i].option, &rings[i].size, sizeof rings[i].size) != 0)
            return -1;
    return 0;
}

static size_t memory_size(const struct xdp *x)
{
    return (size_t)TX_FRAMES * x->frame_size;
}

static int memory_new(struct xdp *x)
{
    size_t size = memory_size(x);
    void *frames = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (frames == MAP_FAILED)
        return -1;
    x->frames = frames;
    struct xdp_umem_reg memory = {.addr = (uint64_t)(uintptr_t)frames, .len = size, .chunk_size = x->frame_size};
    struct xdp_mmap_offsets at;
    socklen_t length = sizeof at;
    if (setsockopt(x->socket, SOL_XDP, XDP_UMEM_REG, &memory, sizeof memory) != 0 || ring_sizes(x) != 0 ||
        getsockopt(x->socket, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length) != 0)
        return -1;
    if (length != sizeof at) { /* a kernel before 5.4, whose rings have no flags */
        errno = ENOPROTOOPT;
        return -1;
    }
    for (uint32_t i = 0; i < TX_FRAMES; i++)
        x->free[x->free_count++] = (uint64_t)i * x->frame_size;
    if (ring_new(x, &x->done, TX_FRAMES, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, sizeof(uint64_t)) != 0)
        return -1;
    return ring_new(x, &x->send, TX_FRAMES, XDP_PGOFF_TX_RING, &at.tx, sizeof(struct xdp_desc));
}

void xdp_close(struct xdp *x)
{
    struct ring *rings[] = {&x->send, &x->done};
    if (x->socket >= 0)
        close(x->socket);
    for (unsigned i = 0; i < 2; i++)
        if (rings[i]->mapped)
            munmap(rings[i]->mapped, rings[i]->mapped_size);
    if (x->frames)
        munmap(x->frames, memory_size(x));
    free(x);
}

bool xdp_set_mtu(struct xdp *x, uint32_t mtu)
{
    x->longest = mtu + LINK_HEADER - VLAN_TAG;
    return mtu + LINK_HEADER <= x->frame_size;
}

int xdp_open(int index, uint32_t mtu, struct xdp **out)
{
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE), frame = 2048;
    while (frame < mtu + LINK_HEADER)
        frame *= 2;
    if (frame > page)
        return PF_E_RANGE;
    struct xdp *x = calloc(1, sizeof *x);
    if (!x)
        return PF_E_MEMORY;
    int buffer = SEND_BUFFER;
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY, .sxdp_ifindex = (uint32_t)index};
    x->frame_size = frame;
    xdp_set_mtu(x, mtu);
    x->socket = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (x->socket >= 0 && setsockopt(x->socket, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer) != 0)
        errno = 0; /* a lower limit of the system is no reason to refuse */
    if (x->socket < 0 || memory_new(x) != 0 || bind(x->socket, (struct sockaddr *)&address, sizeof address) != 0) {
        int saved = errno;
        xdp_close(x);
        errno = saved;
        return PF_E_SYSTEM;
    }
    *out = x;
    return PF_OK;
}

static void reclaim(struct xdp *x)
{
    const uint64_t *entries = x->done.entries;
    uint32_t until = seen(x->done.producer);
    for (; x->done.mine != until; x->done.mine++)
        x->free[x->free_count++] = entries[x->done.mine & (TX_FRAMES - 1)];
    tell(x->done.consumer, until);
}

/* As AF_PACKET does: a header at least, and a VLAN tag beyond the MTU. */
static bool may_be_sent(const struct xdp *x, const uint8_t *data, uint32_t len)
{
    if (len < LINK_HEADER - VLAN_TAG || len > x->frame_size)
        return false;
    bool tagged = data[12] == 0x81 && data[13] == 0x00;
    return len <= x->longest + (tagged ? VLAN_TAG : 0);
}

bool xdp_put(struct xdp *x, const uint8_t *data, uint32_t len)
{
    if (!may_be_sent(x, data, len))
        return false;
    if (!x->free_count)
        reclaim(x);
    if (!x->free_count) {
        xdp_flush(x);
        reclaim(x);
    }
    if (!x->free_count)
        return false;
    uint64_t address = x->free[--x->free_count];
    memcpy(x->frames + address, data, len);
    struct xdp_desc *entries = x->send.entries;
    entries[x->send.mine++ & (TX_FRAMES - 1)] = (struct xdp_desc){.addr = address, .len = len};
    return true;
}

/* The kernel sends some tens of packets a call. */
bool xdp_flush(struct xdp *x)
{
    tell(x->send.producer, x->send.mine);
    uint32_t before, now = seen(x->send.consumer);
    do {
        before = now;
        if (sendto(x->socket, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN && errno != EINTR && errno != EBUSY)
            break;
        now = seen(x->send.consumer);
    } while (now != x->send.mine && now != before);
    reclaim(x);
    return now == x->send.mine;
}
