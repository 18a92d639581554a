/* Packets and their pools, timers, and what the outside sees of packets: traces, captures, deliveries, notifications. */
#include "base.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void pf_lock(struct fabric *f)
{
    p4_lock_control(&f->lock);
}

void pf_unlock(struct fabric *f)
{
    p4_unlock(&f->lock);
}

struct p4_lock *pf_lock_address(struct fabric *f)
{
    return &f->lock;
}

/* -- pools: after warm-up a packet costs no malloc ------------------------------------------------------------------ */

struct slab {
    struct slab *next;
};

struct phv_slab {
    struct phv_slab *next;
};

static const uint32_t class_capacity[BUF_CLASSES] = {512 + BUF_HEADROOM, 2048 + BUF_HEADROOM,
                                                     10240 + BUF_HEADROOM, MAX_PACKET + 4 * BUF_HEADROOM};
static const uint32_t class_batch[BUF_CLASSES] = {64, 64, 16, 4};

/* The limit is on packets inside, not on those that were delivered, however many one run delivers. */
static bool pool_has(const struct fabric *f, size_t bytes)
{
    return f->pool_bytes + bytes <= f->pool_limit + f->delivered_most;
}

static void *slab_new(struct fabric *f, size_t bytes)
{
    if (!pool_has(f, bytes))
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

static size_t buf_stride(uint32_t class)
{
    return (sizeof(struct buf) + class_capacity[class] + 63) & ~(size_t)63;
}

static bool grow_bufs(struct fabric *f, uint32_t class)
{
    size_t stride = buf_stride(class);
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

static bool grow_borrowed(struct fabric *f)
{
    const unsigned count = 64;
    struct borrowed *b = slab_new(f, count * sizeof *b);
    if (!b)
        return false;
    for (unsigned i = 0; i < count; i++) {
        b[i] = (struct borrowed){.next_free = f->free_borrowed, .next_made = f->made_borrowed};
        f->free_borrowed = f->made_borrowed = &b[i];
    }
    return true;
}

/* Lets a packet refer to bytes of `owner`; the caller says which (`middle`, `missing`). */
bool packet_borrow(struct fabric *f, struct packet *p, void *owner)
{
    if (!f->free_borrowed && !grow_borrowed(f))
        return false;
    struct borrowed *b = f->free_borrowed;
    f->free_borrowed = b->next_free;
    b->owner = owner;
    b->refs = 1;
    p->borrowed = b;
    return true;
}

/* The packet no longer refers to what it borrowed. */
static void packet_return(struct fabric *f, struct packet *p)
{
    struct borrowed *b = p->borrowed;
    p->borrowed = NULL;
    if (b && --b->refs == 0) {
        b->next_free = f->returned;
        f->returned = b;
    }
}

uint64_t pf_returned(struct fabric *f, void **owners, uint64_t room, uint32_t all)
{
    LOCKED(f);
    uint64_t count = 0;
    for (struct borrowed *b = all ? f->made_borrowed : NULL; b && count < room; b = b->next_made) {
        if (b->owner)
            owners[count++] = b->owner;
        b->owner = NULL;
    }
    for (struct borrowed *b = f->returned; !all && b && count < room; b = f->returned) {
        owners[count++] = b->owner;
        b->owner = NULL;
        f->returned = b->next_free;
        b->next_free = f->free_borrowed;
        f->free_borrowed = b;
    }
    return count;
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
    p->ended = NULL;
    p->missing = p->tail = 0;
    p->borrowed = NULL;
    p->truncate_to = P4_NO_TRUNCATE;
    p->loops = 0;
    p->timer.pos = NO_POS;
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
    copy->middle = p->middle;
    if ((copy->borrowed = p->borrowed))
        copy->borrowed->refs++;
    copy->ingress_port = p->ingress_port;
    copy->loops = p->loops;
    copy->buf->refs++;
    return copy;
}

void packet_free(struct fabric *f, struct packet *p)
{
    if (p->ended)
        p->ended(f, p);
    packet_return(f, p);
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
static bool packet_replace(struct fabric *f, struct packet *p, uint32_t bytes)
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
    if (!pool_has(s->fabric, stride * count))
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

/* -- packets with missing bytes ------------------------------------------------------------------------------------- */
/* Packets of which the payload is not stored. Where it is borrowed, they are made whole before it is changed. Where only
 * its length is known, so that a simulation need not carry it, they do what packets with these bytes would do, and a check
 * at the end, of what is stored, fails where theirs would. */

/* Flips a bit. A bit that is not stored changes the check instead, each in another way, so that two different ones do not
 * undo each other, and one that is flipped twice is as it was. */
void packet_corrupt(struct packet *p, uint64_t bit)
{
    uint64_t at = bit / 8, gap = packet_head(p), end = gap + p->missing;
    if (at < gap || at >= end) {
        p->data[at < gap ? at : at - p->missing] ^= (uint8_t)(0x80u >> bit % 8);
        return;
    }
    if (p->tail != PF_TAIL_BYTES)
        return; /* truncated */
    uint64_t state = 8 * end - bit; /* headers before it come and go, its distance from the end stays */
    uint64_t flips = random_next(&state) | 1;
    for (uint32_t i = 0; i < PF_TAIL_BYTES; i++)
        p->data[gap + i] ^= (uint8_t)(flips >> 8 * i);
}

void packet_truncate(struct fabric *f, struct packet *p, uint32_t len)
{
    uint32_t gap = packet_head(p);
    p->len = len;
    if (len <= gap) {
        packet_return(f, p);
        p->missing = p->tail = 0;
    } else if (len - gap <= p->missing) {
        p->missing = len - gap;
        p->tail = 0;
    } else {
        p->tail = len - gap - p->missing;
    }
}

/* Stores the missing bytes, zeros where they are nowhere, for what must see whole packets. */
bool packet_reveal(struct fabric *f, struct packet *p)
{
    uint32_t gap = packet_head(p);
    if (!packet_replace(f, p, p->len))
        return false;
    memmove(p->data + gap + p->missing, p->data + gap, p->tail);
    if (p->borrowed)
        memcpy(p->data + gap, p->middle, p->missing);
    else
        memset(p->data + gap, 0, p->missing);
    packet_return(f, p);
    p->missing = p->tail = 0;
    return true;
}

/* -- timers: four-ary heaps ordered by time, ties by when they were planned, so that a run is deterministic --------- */

uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t clock_read(const struct fabric *f)
{
    return clock_ns(CLOCK_MONOTONIC) - f->origin;
}

static inline bool before(const struct heap_entry *a, const struct heap_entry *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    if (a->order.born != b->order.born)
        return a->order.born < b->order.born;
    return a->order.seq < b->order.seq;
}

static void place(struct event_list *l, uint32_t pos, struct heap_entry e)
{
    l->heap[pos] = e;
    e.timer->pos = pos;
}

static void sift_up(struct event_list *l, uint32_t pos, struct heap_entry e)
{
    while (pos > 0) {
        uint32_t parent = (pos - 1) / 4;
        if (!before(&e, &l->heap[parent]))
            break;
        place(l, pos, l->heap[parent]);
        pos = parent;
    }
    place(l, pos, e);
}

static void sift_down(struct event_list *l, uint32_t pos, struct heap_entry e)
{
    for (;;) {
        uint32_t first = pos * 4 + 1, best = pos;
        const struct heap_entry *least = &e;
        for (uint32_t c = first; c < first + 4 && c < l->size; c++)
            if (before(&l->heap[c], least)) {
                least = &l->heap[c];
                best = c;
            }
        if (best == pos)
            break;
        place(l, pos, l->heap[best]);
        pos = best;
    }
    place(l, pos, e);
}

struct order next_order(struct fabric *f)
{
    return (struct order){2 * f->now, ++f->seq};
}

/* Arms or moves a timer. Running out of memory for the event list is the one error that ends the process. */
void timer_arm(struct fabric *f, struct timer *t, uint64_t time, struct order order)
{
    struct event_list *l = t->outbound ? &f->outbox : &f->list;
    struct heap_entry e = {time, order, t};
    t->time = time;
    if (t->pos != NO_POS) {
        if (before(&e, &l->heap[t->pos]))
            sift_up(l, t->pos, e);
        else
            sift_down(l, t->pos, e);
        return;
    }
    if (l->size == l->capacity) {
        uint32_t capacity = l->capacity ? 2 * l->capacity : 256;
        struct heap_entry *grown = realloc(l->heap, capacity * sizeof *grown);
        if (!grown) {
            fputs("p4lite: out of memory for the event list\n", stderr);
            abort();
        }
        l->heap = grown;
        l->capacity = capacity;
    }
    sift_up(l, l->size++, e);
}

void timer_cancel(struct fabric *f, struct timer *t)
{
    struct event_list *l = t->outbound ? &f->outbox : &f->list;
    uint32_t pos = t->pos;
    if (pos == NO_POS)
        return;
    t->pos = NO_POS;
    struct heap_entry last = l->heap[--l->size];
    if (pos == l->size)
        return;
    if (pos > 0 && before(&last, &l->heap[(pos - 1) / 4]))
        sift_up(l, pos, last);
    else
        sift_down(l, pos, last);
}

/* The list that has the next event, NULL when there is none. */
struct event_list *next_events(struct fabric *f)
{
    if (!f->outbox.size)
        return f->list.size ? &f->list : NULL;
    return f->list.size && before(&f->list.heap[0], &f->outbox.heap[0]) ? &f->list : &f->outbox;
}

uint64_t next_time(struct fabric *f)
{
    const struct event_list *l = next_events(f);
    return l ? l->heap[0].time : PF_NO_TIME;
}

/* Serve the port once the event at hand is done (never from within a pipeline: no recursion). */
void port_kick(struct fabric *f, struct port *q)
{
    if (q->kicked || q->timer.pos != NO_POS)
        return;
    q->kicked = true;
    q->next_kicked = NULL;
    if (f->kicked_tail)
        f->kicked_tail->next_kicked = q;
    else
        f->kicked_head = q;
    f->kicked_tail = q;
}

/* -- what the outside sees ------------------------------------------------------------------------------------------ */

static uint32_t crc_table[8][256];

__attribute__((constructor)) static void crc_init(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? UINT32_C(0xedb88320) ^ (c >> 1) : c >> 1;
        crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            crc_table[t][i] = (crc_table[t - 1][i] >> 8) ^ crc_table[0][crc_table[t - 1][i] & 255];
}

static uint32_t crc32_more(uint32_t c, const uint8_t *data, uint32_t len)
{
    for (; len >= 8; data += 8, len -= 8) {
        c ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        c = crc_table[7][c & 255] ^ crc_table[6][(c >> 8) & 255] ^ crc_table[5][(c >> 16) & 255] ^
            crc_table[4][c >> 24] ^ crc_table[3][data[4]] ^ crc_table[2][data[5]] ^ crc_table[1][data[6]] ^
            crc_table[0][data[7]];
    }
    while (len--)
        c = crc_table[0][(c ^ *data++) & 255] ^ (c >> 8);
    return c;
}

uint32_t crc32_of(const uint8_t *data, uint32_t len)
{
    return ~crc32_more(UINT32_MAX, data, len);
}

/* Of the bytes that are somewhere. */
static uint32_t crc32_of_packet(const struct packet *p)
{
    uint32_t head = packet_head(p), c = crc32_more(UINT32_MAX, p->data, head);
    if (p->borrowed)
        c = crc32_more(c, p->middle, p->missing);
    return ~crc32_more(c, p->data + head, p->tail);
}

#define NO_ROOM "the folder of captures and traces is full"

/* Whether limited files may take this number of bytes more. */
static bool take_room(struct fabric *f, uint64_t bytes)
{
    if (bytes > f->files_room)
        return false;
    f->files_room -= bytes;
    return true;
}

/* "time_ns what device_id port length crc32"; the last is of the bytes that are somewhere. */
void trace_packet(struct fabric *f, const char *what, const struct port *q, const struct packet *p)
{
    unsigned long long now = f->sending_at == PF_NO_TIME ? f->now : f->sending_at;
    int written = fprintf(f->trace, "%llu %s %u %u %u %08x\n", now, what, q->sw->config.device_id, q->number, p->len,
                          crc32_of_packet(p));
    if (f->trace_limited && !take_room(f, written < 0 ? UINT64_MAX : (uint64_t)written)) {
        fprintf(stderr, "p4lite: trace: %s; it ends here\n", written < 0 ? strerror(errno) : NO_ROOM);
        fclose(f->trace);
        f->trace = NULL;
    }
}

struct pcapng_section {
    uint32_t type, length, magic;
    uint16_t major, minor;
    uint64_t section_length;
    uint32_t length_again;
} __attribute__((packed));

struct pcapng_interface {
    uint32_t type, length;
    uint16_t link_type, reserved;
    uint32_t snaplen;
    uint16_t tsresol_code, tsresol_length;
    uint32_t tsresol; /* one byte, padded */
    uint16_t name_code, name_length;
} __attribute__((packed));

struct pcapng_interface_end {
    uint32_t end_of_options, length_again;
} __attribute__((packed));

struct pcapng_packet {
    uint32_t type, length, interface, time_high, time_low, captured, original;
} __attribute__((packed));

struct pcapng_packet_end {
    uint16_t flags_code, flags_length;
    uint32_t flags, end_of_options, length_again;
} __attribute__((packed));

static bool put(FILE *file, const void *data, size_t size)
{
    return size == 0 || fwrite(data, size, 1, file) == 1;
}

int pcap_open(struct port *q, const char *path, const char *label, uint32_t snaplen, uint32_t flags)
{
    static const uint8_t zero[4];
    pcap_close(q);
    FILE *file = fopen(path, "wbe");
    if (!file)
        return PF_E_SYSTEM;
    q->pcap_snaplen = snaplen ? snaplen : MAX_PACKET;
    struct pcapng_section section = {0x0a0d0d0a, sizeof section, 0x1a2b3c4d, 1, 0, UINT64_MAX, sizeof section};
    uint16_t named = (uint16_t)strnlen(label, 255), padding = -named & 3;
    uint32_t length = (uint32_t)(sizeof(struct pcapng_interface) + sizeof(struct pcapng_interface_end)) + named + padding;
    struct pcapng_interface interface = {1, length, 1, 0, q->pcap_snaplen, 9, 1, 9, 2, named};
    struct pcapng_interface_end end = {0, length};
    if (!put(file, &section, sizeof section) || !put(file, &interface, sizeof interface) ||
        !put(file, label, named) || !put(file, zero, padding) || !put(file, &end, sizeof end)) {
        fclose(file);
        return PF_E_SYSTEM;
    }
    q->pcap = file;
    q->pcap_flags = flags;
    return PF_OK;
}

void pcap_close(struct port *q)
{
    if (q->pcap)
        fclose(q->pcap);
    q->pcap = NULL;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void pcap_packet(struct fabric *f, struct port *q, const struct packet *p, uint32_t outbound)
{
    static const uint8_t zero[4];
    uint32_t head = packet_head(p), middle = p->borrowed ? p->missing : 0;
    uint32_t known = p->borrowed ? p->len : head; /* what lies behind missing bytes would be at a wrong place */
    uint32_t captured = known < q->pcap_snaplen ? known : q->pcap_snaplen, padding = -captured & 3;
    uint64_t time = f->now + f->epoch_ns;
    uint32_t length = (uint32_t)(sizeof(struct pcapng_packet) + sizeof(struct pcapng_packet_end)) + captured + padding;
    struct pcapng_packet block = {6, length, 0, (uint32_t)(time >> 32), (uint32_t)time, captured, p->len};
    bool leaves = (outbound != 0) != ((q->pcap_flags & PF_CAPTURE_OUTSIDE) != 0);
    struct pcapng_packet_end end = {2, 4, leaves ? 2 : 1, 0, length};
    bool room = !(q->pcap_flags & PF_CAPTURE_LIMITED) || take_room(f, length);
    uint32_t first = least(captured, head), second = least(captured - first, middle), third = captured - first - second;
    if (!room || !put(q->pcap, &block, sizeof block) || !put(q->pcap, p->data, first) || !put(q->pcap, p->middle, second) ||
        !put(q->pcap, p->data + head, third) || !put(q->pcap, zero, padding) || !put(q->pcap, &end, sizeof end)) {
        fprintf(stderr, "p4lite: capture of device %u port %u: %s; it ends here\n", q->sw->config.device_id, q->number,
                room ? strerror(errno) : NO_ROOM);
        pcap_close(q);
    }
    f->captures_dirty = true;
}

void pcap_flush(struct fabric *f)
{
    f->captures_dirty = false;
    for (struct sw *s = f->switches; s; s = s->next)
        EACH_PORT(s, q)
            if (q->pcap)
                fflush(q->pcap);
}

/* Forgets deliveries that the last run has handed out. */
void deliveries_clear(struct fabric *f)
{
    struct packet *p;
    if (!f->deliveries_taken)
        return;
    while ((p = list_pop(&f->delivered)))
        packet_free(f, p);
    f->ndeliveries = f->delivered_bytes = 0;
    f->deliveries_taken = false;
}

/* Notes a packet for the outside and keeps it, unless there is no memory for that. */
bool deliver(struct fabric *f, const struct port *q, struct packet *p, uint64_t at)
{
    if (p->missing && p->tail != PF_TAIL_BYTES && !packet_reveal(f, p)) /* truncated: the rest is no check */
        return false;
    deliveries_clear(f); /* where it is delivered between two runs, by a change of state */
    if (f->ndeliveries == f->deliveries_capacity) {
        uint64_t capacity = f->deliveries_capacity ? 2 * f->deliveries_capacity : 1024;
        struct pf_delivery *grown = realloc(f->deliveries, capacity * sizeof *grown);
        if (!grown)
            return false;
        f->deliveries = grown;
        f->deliveries_capacity = capacity;
    }
    f->deliveries[f->ndeliveries++] = (struct pf_delivery){
        at, q->sw->config.device_id, q->number, p->len, p->missing, p->data, p->borrowed ? p->middle : NULL,
        p->borrowed ? p->borrowed->owner : NULL};
    if (p->ended) {
        p->ended(f, p);
        p->ended = NULL;
    }
    list_push(&f->delivered, p);
    f->delivered_bytes += sizeof *p + buf_stride(p->buf->class) + (p->borrowed ? sizeof *p->borrowed : 0);
    if (f->delivered_bytes > f->delivered_most)
        f->delivered_most = f->delivered_bytes;
    return true;
}

#define NOTIFY_MAX_COUNT 65536u
#define NOTIFY_MAX_BYTES (UINT64_C(64) << 20)

void notify(struct fabric *f, uint32_t kind, uint32_t device_id, uint32_t ident, uint32_t up, const uint8_t *data,
            uint64_t len)
{
    struct notification_node *n = NULL;
    pthread_mutex_lock(&f->notify_mutex);
    if (f->notify_count < NOTIFY_MAX_COUNT && f->notify_bytes + len <= NOTIFY_MAX_BYTES)
        n = calloc(1, sizeof *n + ((len + 7) & ~UINT64_C(7)));
    if (!n) {
        f->notify_lost++;
        pthread_mutex_unlock(&f->notify_mutex);
        return;
    }
    n->head = (struct pf_notification){f->now, kind, device_id, ident, up, len};
    if (len)
        memcpy(n + 1, data, len);
    if (f->notify_tail)
        f->notify_tail->next = n;
    else
        f->notify_head = n;
    f->notify_tail = n;
    f->notify_bytes += len;
    if (f->notify_count++ == 0) {
        uint64_t one = 1;
        if (write(f->notify_fd, &one, sizeof one) < 0)
            f->notify_lost++; /* cannot happen: the counter of the eventfd is 0 here */
    }
    pthread_mutex_unlock(&f->notify_mutex);
}

uint64_t pf_notify_take(struct fabric *f, uint8_t *out, uint64_t cap)
{
    uint64_t used = 0;
    pthread_mutex_lock(&f->notify_mutex);
    while (f->notify_head) {
        struct notification_node *n = f->notify_head;
        uint64_t size = sizeof n->head + ((n->head.length + 7) & ~UINT64_C(7));
        if (used + size > cap)
            break;
        memcpy(out + used, &n->head, sizeof n->head);
        memcpy(out + used + sizeof n->head, n + 1, size - sizeof n->head);
        used += size;
        f->notify_head = n->next;
        if (!f->notify_head)
            f->notify_tail = NULL;
        f->notify_count--;
        f->notify_bytes -= n->head.length;
        free(n);
    }
    uint64_t counter;
    if (f->notify_count == 0 && read(f->notify_fd, &counter, sizeof counter) < 0)
        counter = 0; /* nothing was announced */
    pthread_mutex_unlock(&f->notify_mutex);
    return used;
}

uint64_t pf_notify_lost(struct fabric *f)
{
    pthread_mutex_lock(&f->notify_mutex);
    uint64_t lost = f->notify_lost;
    pthread_mutex_unlock(&f->notify_mutex);
    return lost;
}

int pf_notify_fd(struct fabric *f)
{
    return f->notify_fd;
}
