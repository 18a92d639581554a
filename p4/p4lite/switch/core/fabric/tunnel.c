/* What makes a datagram of a frame, and decides which datagrams are taken. No sockets here: device.c has them. */
#include "tunnel.h"

#include <string.h>

/* -- SipHash-2-4 (Aumasson and Bernstein 2012), a keyed tag of 64 bits for short messages ---------------------------- */

struct siphash {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t v, unsigned n)
{
    return v << n | v >> (64 - n);
}

static void sip_round(struct siphash *s)
{
    s->v0 += s->v1;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static void sip_absorb(struct siphash *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

/* Up to eight bytes, little-endian. */
static uint64_t sip_word(const uint8_t *p, uint32_t bytes)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static void sip_words(struct siphash *s, const uint8_t *data, uint32_t length)
{
    for (uint32_t at = 0; at + 8 <= length; at += 8)
        sip_absorb(s, sip_word(data + at, 8));
}

/* The tag of a header, whose length is a multiple of eight, and a frame. */
static uint64_t tag(const struct tunnel *t, const uint8_t *header, const uint8_t *frame, uint32_t length)
{
    uint64_t k0 = sip_word(t->key, 8), k1 = sip_word(t->key + 8, 8);
    struct siphash s = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
                        k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    _Static_assert((TUNNEL_HEADER - 8) % 8 == 0, "the header's words end with it");
    sip_words(&s, header, TUNNEL_HEADER - 8);
    sip_words(&s, frame, length);
    sip_absorb(&s, sip_word(frame + (length & ~7u), length & 7) | (uint64_t)(TUNNEL_HEADER - 8 + length) << 56);
    s.v2 ^= 0xff;
    for (unsigned i = 0; i < 4; i++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/* -- datagrams ------------------------------------------------------------------------------------------------------ */

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

void tunnel_seal(struct tunnel *t, uint8_t *header, const uint8_t *frame, uint32_t length)
{
    put(header, TUNNEL_MAGIC, 4);
    put(header + 4, t->from, 4);
    put(header + 8, t->epoch, 8);
    put(header + 16, t->next++, 8);
    put(header + 24, tag(t, header, frame, length), 8);
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
