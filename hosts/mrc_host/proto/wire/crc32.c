/* CRC-32 of IEEE 802.3: eight bytes at a time by tables, 64 by carry-less products, or 256 by four such products in one
 * instruction, where the processor has them (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", Intel, 2009).
 */
#include "crc32.h"

#include <string.h>

static uint32_t table[8][256];

__attribute__((constructor)) static void fill(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int later = 1; later < 8; later++)
            table[later][byte] = table[later - 1][byte] >> 8 ^ table[0][table[later - 1][byte] & 0xFF];
}

/* The same without the inversions at both ends. */
static uint32_t by_tables(uint32_t crc, const uint8_t *data, size_t length)
{
    for (; length >= 8; data += 8, length -= 8) {
        uint32_t low = crc ^ ((uint32_t)data[3] << 24 | (uint32_t)data[2] << 16 | (uint32_t)data[1] << 8 | data[0]);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^ table[4][low >> 24] ^
              table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    }
    while (length--)
        crc = table[0][(crc ^ *data++) & 0xFF] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Remainders of powers of x, bit-reflected. Each pair moves a register over the number of bits in its name. */
static const uint64_t over_2048[2] = {0x11542778a, 0x1322d1430};
static const uint64_t over_512[2] = {0x154442bd4, 0x1c6e41596};
static const uint64_t over_128[2] = {0x1751997d0, 0x0ccaa009e};
static const uint64_t over_64[2] = {0x163cd6124, 0};
static const uint64_t barrett[2] = {0x1db710641, 0x1f7011641};

__attribute__((target("pclmul,sse4.1"))) static inline __m128i load(const void *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

__attribute__((target("pclmul,sse4.1"))) static inline __m128i fold(__m128i register_, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(register_, by, 0x00);
    return _mm_xor_si128(_mm_xor_si128(low, _mm_clmulepi64_si128(register_, by, 0x11)), next);
}

/* `length` is at least 64, and a multiple of 16. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t by_products(uint32_t crc, const uint8_t *data, size_t length)
{
    __m128i lane[4], by = load(over_512), low_32 = _mm_setr_epi32(~0, 0, ~0, 0);
    for (int i = 0; i < 4; i++)
        lane[i] = load(data + 16 * i);
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    for (data += 64, length -= 64; length >= 64; data += 64, length -= 64)
        for (int i = 0; i < 4; i++)
            lane[i] = fold(lane[i], by, load(data + 16 * i));
    by = load(over_128);
    __m128i whole = lane[0];
    for (int i = 1; i < 4; i++)
        whole = fold(whole, by, lane[i]);
    for (; length; data += 16, length -= 16)
        whole = fold(whole, by, load(data));
    whole = _mm_xor_si128(_mm_srli_si128(whole, 8), _mm_clmulepi64_si128(whole, by, 0x10));
    whole = _mm_xor_si128(_mm_srli_si128(whole, 4),
                          _mm_clmulepi64_si128(_mm_and_si128(whole, low_32), load(over_64), 0x00));
    by = load(barrett);
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(whole, low_32), by, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), by, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(whole, quotient), 1);
}

#define WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))
#define WIDE_LEAST 256

WIDE static inline __m512i wide_fold(__m512i register_, __m512i by, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(register_, by, 0x00);
    return _mm512_xor_si512(_mm512_xor_si512(low, _mm512_clmulepi64_epi128(register_, by, 0x11)), next);
}

/* `length` is at least WIDE_LEAST, and a multiple of 16. */
WIDE static uint32_t by_wide_products(uint32_t crc, const uint8_t *data, size_t length)
{
    __m512i lane[4], by = _mm512_broadcast_i32x4(load(over_2048));
    for (int i = 0; i < 4; i++)
        lane[i] = _mm512_loadu_si512(data + 64 * i);
    lane[0] = _mm512_xor_si512(lane[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (data += 256, length -= 256; length >= 256; data += 256, length -= 256)
        for (int i = 0; i < 4; i++)
            lane[i] = wide_fold(lane[i], by, _mm512_loadu_si512(data + 64 * i));
    by = _mm512_broadcast_i32x4(load(over_512));
    __m512i whole = lane[0];
    for (int i = 1; i < 4; i++)
        whole = wide_fold(whole, by, lane[i]);
    for (; length >= 64; data += 64, length -= 64)
        whole = wide_fold(whole, by, _mm512_loadu_si512(data));
    uint8_t rest[128];
    _mm512_storeu_si512(rest, whole);
    memcpy(rest + 64, data, length);
    return by_products(0, rest, 64 + length);
}

/* 0: there are no products; 1: one at a time; 2: four. */
static int products(void)
{
    static int known = -1;
    if (known < 0) {
        int one = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
        int four = one && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
        known = one + four;
    }
    return known;
}
#endif

uint32_t mrc_crc32(uint32_t before, const uint8_t *data, size_t length)
{
    uint32_t crc = ~before;
#if defined(__x86_64__) && defined(__GNUC__)
    int ways = length >= 64 ? products() : 0;
    if (ways) {
        size_t most = length & ~(size_t)15;
        crc = ways == 2 && most >= WIDE_LEAST ? by_wide_products(crc, data, most) : by_products(crc, data, most);
        data += most;
        length -= most;
    }
#endif
    return ~by_tables(crc, data, length);
}
