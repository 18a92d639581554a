/* Pools of packets, packet bytes and PHVs: after warm-up a packet costs no malloc. */
#include <stdlib.h>

#include "internal.h"

struct slab {
    struct slab *next;
};

struct phv_slab {
    struct phv_slab *next;
};

static const uint32_t class_capacity[BUF_CLASSES] = {2048 + BUF_HEADROOM, 10240 + BUF_HEADROOM,
                                                     MAX_PACKET + 4 * BUF_HEADROOM};
static const uint32_t class_batch[BUF_CLASSES] = {64, 16, 4};

static void *slab_new(struct fabric *f, size_t bytes)
{
    if (f->pool_bytes + bytes > f->pool_limit)
        return NULL;
    struct slab *s = malloc(sizeof(struct slab) + 64 + bytes);
    if (!s)
        return NULL;
    f->pool_bytes += bytes;
    s->next = f->slabs;
    f->slabs = s;
    return (void *)(((uintptr_t)(s + 1) + 63) & ~(uintptr_t)63);
}

static bool grow_packets(struct fabric *f)
{
    const unsigned count = 64;
    struct packet *p = slab_new(f, count * sizeof *p);
    if (!p)
        return false;
    for (unsigned i = 0; i < count; i++) {
        p[i].next = f->free_packets;
        f->free_packets = &p[i];
    }
    return true;
}

static bool grow_bufs(struct fabric *f, uint32_t class)
{
    size_t stride = (sizeof(struct buf) + class_capacity[class] + 63) & ~(size_t)63;
    uint8_t *mem = slab_new(f, stride * class_batch[class]);
    if (!mem)
        return false;
    for (uint32_t i = 0; i < class_batch[class]; i++) {
        struct buf *b = (struct buf *)(void *)(mem + i * stride);
        b->class = class;
        b->capacity = class_capacity[class];
        b->next_free = f->free_bufs[class];
        f->free_bufs[class] = b;
    }
    return true;
}

static struct buf *buf_new(struct fabric *f, uint32_t bytes)
{
    uint32_t class = 0;
    while (class_capacity[class] < bytes)
        if (++class == BUF_CLASSES)
            return NULL;
    if (!f->free_bufs[class] && !grow_bufs(f, class))
        return NULL;
    struct buf *b = f->free_bufs[class];
    f->free_bufs[class] = b->next_free;
    b->refs = 1;
    return b;
}

static void buf_release(struct fabric *f, struct buf *b)
{
    if (--b->refs == 0) {
        b->next_free = f->free_bufs[b->class];
        f->free_bufs[b->class] = b;
    }
}

static struct packet *packet_alloc(struct fabric *f)
{
    if (!f->free_packets && !grow_packets(f))
        return NULL;
    struct packet *p = f->free_packets;
    f->free_packets = p->next;
    p->next = NULL;
    p->phv = NULL;
    p->dir = NULL;
    p->credit_port = NULL;
    p->missing = p->tail = 0;
    p->truncate_to = P4_NO_TRUNCATE;
    p->loops = 0;
    p->timer.pos = NO_POS;
    p->timer.kind = TIMER_PACKET;
    return p;
}

struct packet *packet_new(struct fabric *f, uint32_t capacity)
{
    struct buf *b = buf_new(f, capacity + BUF_HEADROOM);
    if (!b)
        return NULL;
    struct packet *p = packet_alloc(f);
    if (!p) {
        buf_release(f, b);
        return NULL;
    }
    p->buf = b;
    p->data = b->mem + BUF_HEADROOM;
    p->len = 0;
    return p;
}

struct packet *packet_share(struct fabric *f, const struct packet *p)
{
    struct packet *copy = packet_alloc(f);
    if (!copy)
        return NULL;
    copy->buf = p->buf;
    copy->data = p->data;
    copy->len = p->len;
    copy->missing = p->missing;
    copy->tail = p->tail;
    copy->ingress_port = p->ingress_port;
    copy->loops = p->loops;
    copy->buf->refs++;
    return copy;
}

void packet_free(struct fabric *f, struct packet *p)
{
    if (p->credit_port)
        credits_release(f, p);
    buf_release(f, p->buf);
    p->next = f->free_packets;
    f->free_packets = p;
}

void packet_drop_phv(struct sw *s, struct packet *p)
{
    if (p->phv) {
        phv_put(s, p->phv);
        p->phv = NULL;
    }
}

/* Makes the packet start `headers` bytes before its payload, in bytes that no other packet shares. */
bool packet_make_room(struct fabric *f, struct packet *p, uint32_t payload_offset, uint32_t headers)
{
    uint8_t *payload = p->data + payload_offset;
    uint32_t payload_len = p->len - payload_offset, stored = packet_stored(p) - payload_offset;
    if ((uint64_t)headers + payload_len > MAX_PACKET)
        return false;
    if (p->buf->refs > 1 || (size_t)(payload - p->buf->mem) < headers) {
        struct buf *b = buf_new(f, BUF_HEADROOM + headers + stored);
        if (!b)
            return false;
        memcpy(b->mem + BUF_HEADROOM + headers, payload, stored);
        buf_release(f, p->buf);
        p->buf = b;
        payload = b->mem + BUF_HEADROOM + headers;
    }
    p->data = payload - headers;
    p->len = headers + payload_len;
    return true;
}

/* Puts a copy of the stored bytes into a buffer with room for `bytes`, which no other packet shares. */
bool packet_replace(struct fabric *f, struct packet *p, uint32_t bytes)
{
    struct buf *b = buf_new(f, BUF_HEADROOM + bytes);
    if (!b)
        return false;
    memcpy(b->mem + BUF_HEADROOM, p->data, packet_stored(p));
    buf_release(f, p->buf);
    p->buf = b;
    p->data = b->mem + BUF_HEADROOM;
    return true;
}

void packet_unshare(struct fabric *f, struct packet *p)
{
    if (p->buf->refs > 1)
        packet_replace(f, p, packet_stored(p));
}

static bool grow_phvs(struct sw *s)
{
    const uint32_t count = 16;
    size_t stride = ((size_t)s->program->phv_size + 63) & ~(size_t)63;
    if (s->fabric->pool_bytes + stride * count > s->fabric->pool_limit)
        return false;
    uint32_t wanted = s->phvs_made + count;
    if (wanted > s->phvs_capacity) {
        struct p4_phv **grown = realloc(s->phvs, 2 * wanted * sizeof *grown);
        if (!grown)
            return false;
        s->phvs = grown;
        s->phvs_capacity = 2 * wanted;
    }
    struct phv_slab *slab = malloc(sizeof *slab + 64 + stride * count);
    if (!slab)
        return false;
    slab->next = s->slabs;
    s->slabs = slab;
    uint8_t *mem = (uint8_t *)(((uintptr_t)(slab + 1) + 63) & ~(uintptr_t)63);
    for (uint32_t i = 0; i < count; i++) {
        struct p4_phv *phv = (struct p4_phv *)(void *)(mem + i * stride);
        s->program->phv_init(phv);
        s->phvs[s->phvs_free++] = phv;
    }
    s->phvs_made = wanted;
    s->fabric->pool_bytes += stride * count;
    s->pool_bytes += stride * count;
    return true;
}

struct p4_phv *phv_get(struct sw *s)
{
    if (s->phvs_free == 0 && !grow_phvs(s))
        return NULL;
    return s->phvs[--s->phvs_free];
}

void phv_put(struct sw *s, struct p4_phv *phv)
{
    s->phvs[s->phvs_free++] = phv;
}

void phv_pool_clear(struct sw *s)
{
    while (s->slabs) {
        struct phv_slab *next = s->slabs->next;
        free(s->slabs);
        s->slabs = next;
    }
    s->fabric->pool_bytes -= s->pool_bytes;
    s->pool_bytes = 0;
    free(s->phvs);
    s->phvs = NULL;
    s->phvs_free = s->phvs_made = s->phvs_capacity = 0;
}

void pool_destroy(struct fabric *f)
{
    while (f->slabs) {
        struct slab *next = f->slabs->next;
        free(f->slabs);
        f->slabs = next;
    }
}
