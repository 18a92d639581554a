/* What makes a datagram of a frame, and decides which datagrams are taken. No sockets here: device.c has them. */
#include "tunnel.h"

#include "siphash.h"

static void put(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> (8 * (bytes - 1 - i)));
}

static uint64_t get(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

static uint64_t tag(const struct tunnel *t, const uint8_t *header, const uint8_t *frame, uint32_t length)
{
    struct siphash s;
    siphash_begin(&s, t->key);
    siphash_add(&s, header, TUNNEL_HEADER - 8);
    siphash_add(&s, frame, length);
    return siphash_end(&s);
}

void tunnel_seal(struct tunnel *t, uint8_t *header, const uint8_t *frame, uint32_t length)
{
    put(header, TUNNEL_MAGIC, 4);
    put(header + 4, t->from, 4);
    put(header + 8, t->epoch, 8);
    put(header + 16, t->next++, 8);
    put(header + 24, tag(t, header, frame, length), 8);
    t->stats.sent++;
}

static bool mark(struct tunnel *t, uint64_t seq)
{
    uint64_t *word = &t->seen[seq % TUNNEL_WINDOW / 64], bit = UINT64_C(1) << (seq % 64);
    bool fresh = !(*word & bit);
    *word |= bit;
    return fresh;
}

/* Whether a number is new; what was skipped counts as lost until it comes. */
static bool number_is_new(struct tunnel *t, uint64_t epoch, uint64_t seq)
{
    if (epoch < t->peer_epoch)
        return false;
    if (epoch > t->peer_epoch) { /* the peer restarted: what it sent before its first packet arrived here does not count as lost */
        t->peer_epoch = epoch;
        t->first = t->expected = seq;
        memset(t->seen, 0, sizeof t->seen);
    }
    if (seq < t->expected) {
        if (seq < t->first || t->expected - seq > TUNNEL_WINDOW || !mark(t, seq))
            return false;
        t->stats.late++;
        if (t->stats.lost) /* else the counters were reset meanwhile */
            t->stats.lost--;
        return true;
    }
    uint64_t skipped = seq - t->expected;
    t->stats.lost += skipped;
    if (skipped >= TUNNEL_WINDOW)
        memset(t->seen, 0, sizeof t->seen);
    else
        for (uint64_t each = t->expected; each < seq; each++)
            t->seen[each % TUNNEL_WINDOW / 64] &= ~(UINT64_C(1) << (each % 64));
    t->seen[seq % TUNNEL_WINDOW / 64] |= UINT64_C(1) << (seq % 64);
    t->expected = seq + 1;
    return true;
}

bool tunnel_take(struct tunnel *t, const uint8_t *datagram, uint32_t length)
{
    if (length < TUNNEL_HEADER || length - TUNNEL_HEADER > TUNNEL_MAX_FRAME || get(datagram, 4) != TUNNEL_MAGIC ||
        get(datagram + 4, 4) != t->to ||
        get(datagram + 24, 8) != tag(t, datagram, datagram + TUNNEL_HEADER, length - TUNNEL_HEADER)) {
        t->stats.refused++;
        return false;
    }
    uint64_t seq = get(datagram + 16, 8);
    if (seq == UINT64_MAX || !number_is_new(t, get(datagram + 8, 8), seq)) {
        t->stats.repeated++;
        return false;
    }
    t->stats.received++;
    return true;
}
