/* What the outside sees of packets: trace lines, pcap-ng files, deliveries of the virtual clock, and
 * notifications to the control plane. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

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

uint32_t crc32_of(const uint8_t *data, uint32_t len)
{
    uint32_t c = UINT32_MAX;
    for (; len >= 8; data += 8, len -= 8) {
        c ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        c = crc_table[7][c & 255] ^ crc_table[6][(c >> 8) & 255] ^ crc_table[5][(c >> 16) & 255] ^
            crc_table[4][c >> 24] ^ crc_table[3][data[4]] ^ crc_table[2][data[5]] ^ crc_table[1][data[6]] ^
            crc_table[0][data[7]];
    }
    while (len--)
        c = crc_table[0][(c ^ *data++) & 255] ^ (c >> 8);
    return ~c;
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

/* "time_ns what device_id port length crc32"; the last is of what is stored. */
void trace_packet(struct fabric *f, const char *what, const struct port *q, const struct packet *p)
{
    unsigned long long now = f->sending_at == PF_NO_TIME ? f->now : f->sending_at;
    int written = fprintf(f->trace, "%llu %s %u %u %u %08x\n", now, what, q->sw->config.device_id, q->number, p->len,
                          crc32_of(p->data, packet_stored(p)));
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
    uint32_t end_of_options;
    uint32_t length_again;
} __attribute__((packed));

struct pcapng_packet {
    uint32_t type, length, interface, time_high, time_low, captured, original;
} __attribute__((packed));

struct pcapng_packet_end {
    uint16_t flags_code, flags_length;
    uint32_t flags, end_of_options, length_again;
} __attribute__((packed));

int pcap_open(struct port *q, const char *path, uint32_t snaplen, bool limited)
{
    pcap_close(q);
    FILE *file = fopen(path, "wbe");
    if (!file)
        return PF_E_SYSTEM;
    q->pcap_snaplen = snaplen ? snaplen : MAX_PACKET;
    struct pcapng_section section = {0x0a0d0d0a, sizeof section, 0x1a2b3c4d, 1, 0, UINT64_MAX, sizeof section};
    struct pcapng_interface interface = {1, sizeof interface, 1, 0, q->pcap_snaplen, 9, 1, 9, 0, sizeof interface};
    if (fwrite(&section, sizeof section, 1, file) != 1 || fwrite(&interface, sizeof interface, 1, file) != 1) {
        fclose(file);
        return PF_E_SYSTEM;
    }
    q->pcap = file;
    q->pcap_limited = limited;
    return PF_OK;
}

void pcap_close(struct port *q)
{
    if (q->pcap)
        fclose(q->pcap);
    q->pcap = NULL;
}

void pcap_packet(struct fabric *f, struct port *q, const struct packet *p, uint32_t outbound)
{
    static const uint8_t zero[4];
    uint32_t stored = packet_head(p); /* what lies behind missing bytes would be at a wrong place */
    uint32_t captured = stored < q->pcap_snaplen ? stored : q->pcap_snaplen, padding = -captured & 3;
    uint64_t time = f->now + f->epoch_ns;
    uint32_t length = (uint32_t)(sizeof(struct pcapng_packet) + sizeof(struct pcapng_packet_end)) + captured + padding;
    struct pcapng_packet head = {6, length, 0, (uint32_t)(time >> 32), (uint32_t)time, captured, p->len};
    struct pcapng_packet_end end = {2, 4, outbound ? 2 : 1, 0, length};
    bool room = !q->pcap_limited || take_room(f, length);
    if (!room || fwrite(&head, sizeof head, 1, q->pcap) != 1 || fwrite(p->data, 1, captured, q->pcap) != captured ||
        fwrite(zero, 1, padding, q->pcap) != padding || fwrite(&end, sizeof end, 1, q->pcap) != 1) {
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
        for (uint32_t i = 0; i < s->ports_size; i++)
            if (s->ports[i] && s->ports[i]->pcap)
                fflush(s->ports[i]->pcap);
}

bool deliver(struct fabric *f, const struct port *q, struct packet *p, uint64_t at)
{
    if (p->missing && p->tail != PF_TAIL_BYTES && !packet_reveal(f, p)) /* truncated: the rest is no check */
        return false;
    uint32_t stored = packet_stored(p);
    if (f->deliveries_taken) { /* delivered between two runs, by a change of state */
        f->ndeliveries = f->delivered_size = 0;
        f->deliveries_taken = false;
    }
    if (f->ndeliveries == f->deliveries_capacity) {
        uint64_t capacity = f->deliveries_capacity ? 2 * f->deliveries_capacity : 1024;
        struct pf_delivery *grown = realloc(f->deliveries, capacity * sizeof *grown);
        if (!grown)
            return false;
        f->deliveries = grown;
        f->deliveries_capacity = capacity;
    }
    if (f->delivered_size + stored > f->delivered_capacity) {
        uint64_t capacity = 2 * (f->delivered_size + stored) + (1 << 20);
        uint8_t *grown = realloc(f->delivered, capacity);
        if (!grown)
            return false;
        f->delivered = grown;
        f->delivered_capacity = capacity;
    }
    struct pf_delivery record = {at, q->sw->config.device_id, q->number, f->delivered_size, p->len,
                                 p->missing};
    memcpy(f->delivered + f->delivered_size, p->data, stored);
    f->delivered_size += stored;
    f->deliveries[f->ndeliveries++] = record;
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
