/* AF_XDP (Documentation/networking/af_xdp.rst of Linux) by system calls alone, in copy mode, which every interface has. */
#include "xdp.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fabric.h"

#define RX_FRAMES 1024u
#define TX_FRAMES 512u
#define KERNEL_HEADROOM 256u /* XDP_PACKET_HEADROOM, of each frame that is received */
#define VLAN_TAG 4u
#define LINK_HEADER (14u + VLAN_TAG)
#define SEND_BUFFER (8 << 20)

/* One of the four rings. Our index runs ahead of what the other side has been told. */
struct ring {
    uint32_t *producer, *consumer;
    void *entries;
    uint32_t mine;
    void *mapped;
    size_t mapped_size;
};

struct xdp {
    int socket, map, program, link;
    uint32_t receivers; /* frames that receive: RX_FRAMES or 0; those behind them send */
    uint8_t *frames;
    uint32_t frame_size, longest; /* bytes; longest: what may be sent, without a VLAN tag */
    struct ring receive, fill, send, done;
    uint64_t free[TX_FRAMES]; /* addresses that the kernel does not send from */
    uint32_t free_count;
    uint64_t lost;
};

static uint32_t seen(const uint32_t *index)
{
    return __atomic_load_n(index, __ATOMIC_ACQUIRE);
}

static void tell(uint32_t *index, uint32_t value)
{
    __atomic_store_n(index, value, __ATOMIC_RELEASE);
}

static int bpf(enum bpf_cmd command, union bpf_attr *attributes)
{
    return (int)syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

/* The socket of queue 0, by number of queue: what bpf_redirect_map looks up. */
static int map_new(void)
{
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.map_type = BPF_MAP_TYPE_XSKMAP;
    attributes.key_size = attributes.value_size = sizeof(uint32_t);
    attributes.max_entries = 1;
    return bpf(BPF_MAP_CREATE, &attributes);
}

static int map_set(int map, int socket)
{
    uint32_t key = 0, value = (uint32_t)socket;
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.map_fd = (uint32_t)map;
    attributes.key = (uint64_t)(uintptr_t)&key;
    attributes.value = (uint64_t)(uintptr_t)&value;
    return bpf(BPF_MAP_UPDATE_ELEM, &attributes);
}

/* return bpf_redirect_map(&map, context->rx_queue_index, XDP_PASS) */
static int program_new(int map)
{
    const struct bpf_insn code[] = {
        {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_1,
         .off = offsetof(struct xdp_md, rx_queue_index)},
        {.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map},
        {0},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
        {.code = BPF_JMP | BPF_EXIT},
    };
    static const char license[] = "Apache-2.0";
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.prog_type = BPF_PROG_TYPE_XDP;
    attributes.insns = (uint64_t)(uintptr_t)code;
    attributes.insn_cnt = sizeof code / sizeof code[0];
    attributes.license = (uint64_t)(uintptr_t)license;
    memcpy(attributes.prog_name, "p4lite", sizeof "p4lite");
    return bpf(BPF_PROG_LOAD, &attributes);
}

static int link_new(int program, int index, uint32_t mode)
{
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.link_create.prog_fd = (uint32_t)program;
    attributes.link_create.target_ifindex = (uint32_t)index;
    attributes.link_create.attach_type = BPF_XDP;
    attributes.link_create.flags = mode;
    return bpf(BPF_LINK_CREATE, &attributes);
}

/* In the driver if it can, else in the kernel's general receive path. */
static int attach(int program, int index)
{
    int link = link_new(program, index, XDP_FLAGS_DRV_MODE);
    return link >= 0 || errno == EBUSY || errno == EPERM ? link : link_new(program, index, XDP_FLAGS_SKB_MODE);
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
    const struct { int option; uint32_t size; } rings[] = {{XDP_UMEM_FILL_RING, x->receivers ? RX_FRAMES : 2},
                                                           {XDP_UMEM_COMPLETION_RING, TX_FRAMES},
                                                           {XDP_TX_RING, TX_FRAMES},
                                                           {XDP_RX_RING, RX_FRAMES}};
    for (unsigned i = 0; i < (x->receivers ? 4 : 3); i++)
        if (setsockopt(x->socket, SOL_XDP, rings[i].option, &rings[i].size, sizeof rings[i].size) != 0)
            return -1;
    return 0;
}

static size_t memory_size(const struct xdp *x)
{
    return (size_t)(x->receivers + TX_FRAMES) * x->frame_size;
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
    if (ring_new(x, &x->done, TX_FRAMES, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, sizeof(uint64_t)) != 0 ||
        ring_new(x, &x->send, TX_FRAMES, XDP_PGOFF_TX_RING, &at.tx, sizeof(struct xdp_desc)) != 0)
        return -1;
    for (uint32_t i = 0; i < TX_FRAMES; i++)
        x->free[x->free_count++] = (uint64_t)(x->receivers + i) * x->frame_size;
    if (!x->receivers)
        return 0;
    if (ring_new(x, &x->fill, RX_FRAMES, XDP_UMEM_PGOFF_FILL_RING, &at.fr, sizeof(uint64_t)) != 0 ||
        ring_new(x, &x->receive, RX_FRAMES, XDP_PGOFF_RX_RING, &at.rx, sizeof(struct xdp_desc)) != 0)
        return -1;
    for (uint32_t i = 0; i < RX_FRAMES; i++)
        ((uint64_t *)x->fill.entries)[i] = (uint64_t)i * x->frame_size;
    x->fill.mine = RX_FRAMES;
    tell(x->fill.producer, x->fill.mine);
    return 0;
}

void xdp_close(struct xdp *x)
{
    struct ring *rings[] = {&x->receive, &x->fill, &x->send, &x->done};
    int descriptors[] = {x->link, x->program, x->map, x->socket};
    for (unsigned i = 0; i < 4; i++) /* the attachment first */
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    for (unsigned i = 0; i < 4; i++)
        if (rings[i]->mapped)
            munmap(rings[i]->mapped, rings[i]->mapped_size);
    if (x->frames)
        munmap(x->frames, memory_size(x));
    free(x);
}

static int steps(struct xdp *x, int index)
{
    int buffer = SEND_BUFFER;
    struct sockaddr_xdp address = {.sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY, .sxdp_ifindex = (uint32_t)index};
    if ((x->socket = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0)) < 0)
        return PF_E_XDP_SOCKET;
    if (setsockopt(x->socket, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer) != 0)
        errno = 0; /* a lower limit of the system is no reason to refuse */
    if (memory_new(x) != 0)
        return PF_E_XDP_MEMORY;
    if (x->receivers && ((x->map = map_new()) < 0 || (x->program = program_new(x->map)) < 0))
        return PF_E_XDP_PROGRAM;
    if (bind(x->socket, (struct sockaddr *)&address, sizeof address) != 0)
        return PF_E_XDP_BIND;
    if (!x->receivers)
        return PF_OK;
    if (map_set(x->map, x->socket) != 0)
        return PF_E_XDP_PROGRAM;
    if ((x->link = attach(x->program, index)) < 0)
        return PF_E_XDP_ATTACH;
    return PF_OK;
}

/* The kernel keeps the first bytes of a frame that receives for itself. */
static uint32_t frame_for(uint32_t mtu, uint32_t headroom, uint32_t page)
{
    uint32_t size = 2048;
    while (size < 2 * page && size - headroom < mtu + LINK_HEADER)
        size *= 2;
    return size;
}

bool xdp_set_mtu(struct xdp *x, uint32_t mtu)
{
    x->longest = mtu + LINK_HEADER - VLAN_TAG;
    return mtu + LINK_HEADER <= x->frame_size;
}

static int open_with(int index, uint32_t mtu, uint32_t frame_size, uint32_t receivers, struct xdp **out)
{
    struct xdp *x = calloc(1, sizeof *x);
    if (!x)
        return PF_E_MEMORY;
    x->socket = x->map = x->program = x->link = -1;
    x->frame_size = frame_size;
    x->receivers = receivers;
    xdp_set_mtu(x, mtu);
    int result = steps(x, index);
    if (result != PF_OK) {
        int saved = errno;
        xdp_close(x);
        errno = saved;
        return result;
    }
    *out = x;
    return PF_OK;
}

int xdp_open(int index, uint32_t mtu, uint32_t queues, struct xdp **out)
{
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE), frame = frame_for(mtu, KERNEL_HEADROOM, page);
    if (frame > page)
        return PF_E_XDP_MTU;
    if (queues > 1)
        return PF_E_XDP_QUEUES;
    return open_with(index, mtu, frame, RX_FRAMES, out);
}

int xdp_open_sender(int index, uint32_t mtu, struct xdp **out)
{
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE), frame = frame_for(mtu, 0, page);
    return frame > page ? PF_E_XDP_MTU : open_with(index, mtu, frame, 0, out);
}

int xdp_descriptor(const struct xdp *x)
{
    return x->socket;
}

bool xdp_has_input(const struct xdp *x)
{
    return seen(x->receive.producer) != x->receive.mine;
}

const uint8_t *xdp_take(struct xdp *x, uint32_t *len)
{
    if (!xdp_has_input(x))
        return NULL;
    const struct xdp_desc *entries = x->receive.entries;
    struct xdp_desc d = entries[x->receive.mine & (RX_FRAMES - 1)];
    *len = d.len;
    return x->frames + d.addr;
}

/* There are as many frames as places in the ring for those to be filled. */
void xdp_taken(struct xdp *x)
{
    const struct xdp_desc *entries = x->receive.entries;
    uint64_t address = entries[x->receive.mine & (RX_FRAMES - 1)].addr;
    ((uint64_t *)x->fill.entries)[x->fill.mine & (RX_FRAMES - 1)] = address - address % x->frame_size;
    tell(x->fill.producer, ++x->fill.mine);
    tell(x->receive.consumer, ++x->receive.mine);
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

uint64_t xdp_lost(struct xdp *x)
{
    struct xdp_statistics s = {0};
    socklen_t length = sizeof s;
    if (getsockopt(x->socket, SOL_XDP, XDP_STATISTICS, &s, &length) != 0)
        return 0;
    uint64_t lost = s.rx_dropped + s.rx_ring_full, more = lost - x->lost;
    x->lost = lost;
    return more;
}
