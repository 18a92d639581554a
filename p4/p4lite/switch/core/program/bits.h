/* Integers of up to 128 bits and bit fields in packets, for generated code. Bit 0 of a packet is the most
 * significant bit of its first byte. */
#ifndef P4LITE_BITS_H
#define P4LITE_BITS_H

#include <stdint.h>
#include <string.h>

typedef unsigned __int128 u128;
typedef __int128 i128;

#define P4_U128(high, low) (((u128)(high) << 64) | (u128)(low))
#define P4_UNUSED __attribute__((unused))
#define P4_NOINLINE __attribute__((noinline))

static inline void p4_fault(uint64_t *counter)
{
    ++*counter;
}

/* --- big-endian loads and stores of n bytes; n is a constant wherever it matters --- */
static inline uint64_t p4_be16(const uint8_t *d) { uint16_t v; memcpy(&v, d, 2); return __builtin_bswap16(v); }
static inline uint64_t p4_be32(const uint8_t *d) { uint32_t v; memcpy(&v, d, 4); return __builtin_bswap32(v); }
static inline uint64_t p4_be64(const uint8_t *d) { uint64_t v; memcpy(&v, d, 8); return __builtin_bswap64(v); }

static inline __attribute__((always_inline)) uint64_t p4_be(const uint8_t *d, unsigned n)
{
    switch (n) {
    case 1: return d[0];
    case 2: return p4_be16(d);
    case 3: return p4_be16(d) << 8 | d[2];
    case 4: return p4_be32(d);
    case 5: return p4_be32(d) << 8 | d[4];
    case 6: return p4_be32(d) << 16 | p4_be16(d + 4);
    case 7: return p4_be32(d) << 24 | p4_be16(d + 4) << 8 | d[6];
    case 8: return p4_be64(d);
    default: return 0;
    }
}

static inline void p4_wr16(uint8_t *d, uint64_t x) { uint16_t v = __builtin_bswap16((uint16_t)x); memcpy(d, &v, 2); }
static inline void p4_wr32(uint8_t *d, uint64_t x) { uint32_t v = __builtin_bswap32((uint32_t)x); memcpy(d, &v, 4); }
static inline void p4_wr64(uint8_t *d, uint64_t x) { x = __builtin_bswap64(x); memcpy(d, &x, 8); }

static inline __attribute__((always_inline)) void p4_wr(uint8_t *d, unsigned n, uint64_t x)
{
    switch (n) {
    case 1: d[0] = (uint8_t)x; break;
    case 2: p4_wr16(d, x); break;
    case 3: p4_wr16(d, x >> 8); d[2] = (uint8_t)x; break;
    case 4: p4_wr32(d, x); break;
    case 5: p4_wr32(d, x >> 8); d[4] = (uint8_t)x; break;
    case 6: p4_wr32(d, x >> 16); p4_wr16(d + 4, x); break;
    case 7: p4_wr32(d, x >> 24); p4_wr16(d + 4, x >> 8); d[6] = (uint8_t)x; break;
    case 8: p4_wr64(d, x); break;
    default: break;
    }
}

static inline u128 p4_be128(const uint8_t *d) { return P4_U128(p4_be64(d), p4_be64(d + 8)); }
static inline void p4_wr128(uint8_t *d, u128 x) { p4_wr64(d, (uint64_t)(x >> 64)); p4_wr64(d + 8, (uint64_t)x); }

/* `width` bits (up to 128) from bit `offset`. */
static inline u128 p4_get_bits128(const uint8_t *d, uint64_t offset, unsigned width)
{
    u128 v = 0;
    d += offset / 8;
    unsigned skip = offset % 8, have = 0;
    if (skip) {
        unsigned n = 8 - skip;
        unsigned byte = *d++ & (0xffu >> skip);
        if (n >= width)
            return byte >> (n - width);
        v = byte;
        have = n;
    }
    for (; have + 8 <= width; have += 8)
        v = v << 8 | *d++;
    if (have < width)
        v = v << (width - have) | (*d >> (8 - (width - have)));
    return v;
}

static inline uint64_t p4_get_bits64(const uint8_t *d, uint64_t offset, unsigned width)
{
    return (uint64_t)p4_get_bits128(d, offset, width);
}

/* Writes the low `width` bits of x at bit `offset`, leaving the neighbours alone. */
static inline void p4_put_bits128(uint8_t *d, uint64_t offset, unsigned width, u128 x)
{
    while (width > 0) {
        unsigned skip = offset % 8, n = 8 - skip;
        if (n > width)
            n = width;
        unsigned shift = 8 - skip - n;
        uint8_t mask = (uint8_t)(((1u << n) - 1) << shift);
        uint8_t part = (uint8_t)((uint8_t)(x >> (width - n)) << shift);
        d[offset / 8] = (uint8_t)((d[offset / 8] & ~mask) | (part & mask));
        offset += n;
        width -= n;
    }
}

/* Copies `bits` bits between byte strings that do not overlap; neighbours in `to` are left alone. */
static inline void p4_copy_bits(uint8_t *to, uint64_t to_offset, const uint8_t *from, uint64_t from_offset,
                                uint64_t bits)
{
    while (bits > 0) {
        unsigned n = bits < 64 ? (unsigned)bits : 64;
        p4_put_bits128(to, to_offset, n, p4_get_bits64(from, from_offset, n));
        to_offset += n;
        from_offset += n;
        bits -= n;
    }
}

/* Whether two byte strings are the same big-endian number. */
static inline int p4_varbits_equal(const uint8_t *a, uint32_t na, const uint8_t *b, uint32_t nb)
{
    for (; na > nb; a++, na--)
        if (*a)
            return 0;
    for (; nb > na; b++, nb--)
        if (*b)
            return 0;
    return memcmp(a, b, na) == 0;
}

/* --- shifts by run-time amounts: everything is shifted out beyond the width --- */
static inline uint64_t p4_shl64(uint64_t x, uint32_t n) { return n < 64 ? x << n : 0; }
static inline u128 p4_shl128(u128 x, uint32_t n) { return n < 128 ? x << n : 0; }
static inline uint64_t p4_shr64(uint64_t x, uint32_t n) { return n < 64 ? x >> n : 0; }
static inline u128 p4_shr128(u128 x, uint32_t n) { return n < 128 ? x >> n : 0; }
static inline uint64_t p4_sar64(uint64_t x, uint32_t n) { return (uint64_t)((int64_t)x >> (n < 64 ? n : 63)); }
static inline u128 p4_sar128(u128 x, uint32_t n) { return (u128)((i128)x >> (n < 128 ? n : 127)); }

/* Sign extension of the low n bits, 1 <= n < width. */
static inline uint64_t p4_sx64(uint64_t x, unsigned n) { return (uint64_t)((int64_t)(x << (64 - n)) >> (64 - n)); }
static inline u128 p4_sx128(u128 x, unsigned n) { return (u128)((i128)(x << (128 - n)) >> (128 - n)); }

static inline uint64_t p4_uclamp64(uint64_t x, uint64_t lo, uint64_t hi) { return x < lo ? lo : x > hi ? hi : x; }
static inline u128 p4_uclamp128(u128 x, u128 lo, u128 hi) { return x < lo ? lo : x > hi ? hi : x; }
static inline uint64_t p4_sclamp64(uint64_t x, uint64_t lo, uint64_t hi)
{
    return (int64_t)x < (int64_t)lo ? lo : (int64_t)x > (int64_t)hi ? hi : x;
}
static inline u128 p4_sclamp128(u128 x, u128 lo, u128 hi)
{
    return (i128)x < (i128)lo ? lo : (i128)x > (i128)hi ? hi : x;
}

/* Division rounds towards zero; by zero it gives 0 and is counted. Operands are exact, so -2^63 / -1 cannot
 * occur in the narrow forms: the generator widens when the quotient might not fit. */
#define P4_DIVISION(bits, type, stype)                                                                   \
    static inline type p4_udiv##bits(type a, type b, uint64_t *fault)                                    \
    {                                                                                                    \
        return b ? a / b : (p4_fault(fault), (type)0);                                                   \
    }                                                                                                    \
    static inline type p4_umod##bits(type a, type b, uint64_t *fault)                                    \
    {                                                                                                    \
        return b ? a % b : (p4_fault(fault), (type)0);                                                   \
    }                                                                                                    \
    static inline type p4_sdiv##bits(type a, type b, uint64_t *fault)                                    \
    {                                                                                                    \
        if (b == 0)                                                                                      \
            return p4_fault(fault), (type)0;                                                             \
        return (stype)b == -1 ? (type)0 - a : (type)((stype)a / (stype)b);                               \
    }                                                                                                    \
    static inline type p4_smod##bits(type a, type b, uint64_t *fault)                                    \
    {                                                                                                    \
        if (b == 0)                                                                                      \
            return p4_fault(fault), (type)0;                                                             \
        return (stype)b == -1 ? 0 : (type)((stype)a % (stype)b);                                         \
    }
P4_DIVISION(64, uint64_t, int64_t)
P4_DIVISION(128, u128, i128)
#undef P4_DIVISION

/* Whether key and value agree under the mask (NULL: every bit). */
static inline int p4_match_bytes(const uint8_t *key, const uint8_t *value, const uint8_t *mask, unsigned n)
{
    if (mask == NULL)
        return memcmp(key, value, n) == 0;
    for (unsigned i = 0; i < n; i++)
        if ((key[i] ^ value[i]) & mask[i])
            return 0;
    return 1;
}

#endif
