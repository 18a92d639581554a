/* SipHash-2-4 (Aumasson and Bernstein 2012) of two parts, as one message: a keyed tag of 64 bits for short messages. */
#ifndef PF_SIPHASH_H
#define PF_SIPHASH_H

#include <stdint.h>
#include <string.h>

static inline uint64_t sip_word(const uint8_t *p)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static inline uint64_t sip_rotate(uint64_t v, unsigned n)
{
    return v << n | v >> (64 - n);
}

struct siphash {
    uint64_t v0, v1, v2, v3, length;
    uint8_t rest[8];
};

static inline void sip_round(struct siphash *s)
{
    s->v0 += s->v1;
    s->v1 = sip_rotate(s->v1, 13) ^ s->v0;
    s->v0 = sip_rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = sip_rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = sip_rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = sip_rotate(s->v1, 17) ^ s->v2;
    s->v2 = sip_rotate(s->v2, 32);
}

static inline void sip_absorb(struct siphash *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

/* `key` has 16 bytes. */
static inline void siphash_begin(struct siphash *s, const uint8_t *key)
{
    uint64_t k0 = sip_word(key), k1 = sip_word(key + 8);
    *s = (struct siphash){.v0 = k0 ^ UINT64_C(0x736f6d6570736575),
                          .v1 = k1 ^ UINT64_C(0x646f72616e646f6d),
                          .v2 = k0 ^ UINT64_C(0x6c7967656e657261),
                          .v3 = k1 ^ UINT64_C(0x7465646279746573)};
}

static inline void siphash_add(struct siphash *s, const uint8_t *data, uint32_t length)
{
    uint32_t at = 0;
    while (at < length && (s->length & 7)) {
        s->rest[s->length++ & 7] = data[at++];
        if (!(s->length & 7))
            sip_absorb(s, sip_word(s->rest));
    }
    for (; length - at >= 8; at += 8, s->length += 8)
        sip_absorb(s, sip_word(data + at));
    while (at < length)
        s->rest[s->length++ & 7] = data[at++];
}

static inline uint64_t siphash_end(struct siphash *s)
{
    uint8_t last[8] = {0};
    memcpy(last, s->rest, s->length & 7);
    last[7] = (uint8_t)s->length;
    sip_absorb(s, sip_word(last));
    s->v2 ^= 0xff;
    for (unsigned i = 0; i < 4; i++)
        sip_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
