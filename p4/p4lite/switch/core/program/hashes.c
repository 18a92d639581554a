#include "hashes.h"

#include "bits.h"

static uint64_t reflect(uint64_t value, unsigned bits)
{
    uint64_t out = 0;
    for (unsigned i = 0; i < bits; i++)
        out |= (value >> i & 1) << (bits - 1 - i);
    return out;
}

static uint64_t width_mask(unsigned width)
{
    return width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
}

/* When data and remainder are both reflected the whole computation runs mirrored, least significant bit first. */
void p4_crc_prepare(struct p4_crc *crc)
{
    uint64_t mask = width_mask(crc->width);
    int mirrored = crc->data_reflected && crc->remainder_reflected;
    uint64_t polynomial = mirrored ? reflect(crc->polynomial, crc->width) : crc->polynomial;
    uint64_t top = UINT64_C(1) << (crc->width - 1);
    for (unsigned i = 0; i < 256; i++) {
        uint64_t r = mirrored ? i : (uint64_t)i << (crc->width - 8);
        for (int bit = 0; bit < 8; bit++) {
            if (mirrored)
                r = r & 1 ? r >> 1 ^ polynomial : r >> 1;
            else
                r = r & top ? r << 1 ^ polynomial : r << 1;
        }
        crc->table[i] = r & mask;
    }
    crc->ready = 1;
}

uint64_t p4_crc_compute(const struct p4_crc *crc, const uint8_t *data, size_t len)
{
    uint64_t mask = width_mask(crc->width);
    uint64_t r = crc->initial & mask;
    if (crc->data_reflected && crc->remainder_reflected) {
        r = reflect(r, crc->width);
        for (size_t i = 0; i < len; i++)
            r = crc->table[(r ^ data[i]) & 0xff] ^ r >> 8;
        return (r ^ crc->final_xor) & mask;
    }
    unsigned shift = crc->width - 8u;
    for (size_t i = 0; i < len; i++) {
        uint64_t byte = crc->data_reflected ? reflect(data[i], 8) : data[i];
        r = (crc->table[(r >> shift ^ byte) & 0xff] ^ r << 8) & mask;
    }
    if (crc->remainder_reflected)
        r = reflect(r, crc->width);
    return (r ^ crc->final_xor) & mask;
}

uint64_t p4_sum16(const uint8_t *data, size_t len)
{
    uint64_t sum = 0;
    for (; len >= 4; data += 4, len -= 4)
        sum += p4_be32(data);
    if (len >= 2) {
        sum += p4_be16(data);
        data += 2;
        len -= 2;
    }
    if (len)
        sum += (uint64_t)data[0] << 8;
    return sum;
}

uint64_t p4_hash_csum16(const uint8_t *data, size_t len)
{
    return p4_sum16_fold(p4_sum16(data, len));
}

uint64_t p4_hash_xor16(const uint8_t *data, size_t len)
{
    uint64_t x = 0;
    for (; len >= 2; data += 2, len -= 2)
        x ^= p4_be16(data);
    return len ? x ^ (uint64_t)data[0] << 8 : x;
}

uint64_t p4_hash_xor32(const uint8_t *data, size_t len)
{
    uint64_t x = 0;
    for (; len >= 4; data += 4, len -= 4)
        x ^= p4_be32(data);
    for (size_t i = 0; i < len; i++)
        x ^= (uint64_t)data[i] << (24 - 8 * i);
    return x;
}

uint64_t p4_hash_identity(const uint8_t *data, size_t len)
{
    uint64_t x = 0;
    for (size_t i = 0; i < len && i < 8; i++)
        x = x << 8 | data[i];
    return x;
}

#define PRIME1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME3 UINT64_C(0x165667B19E3779F9)
#define PRIME4 UINT64_C(0x85EBCA77C2B2AE63)
#define PRIME5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t rotate(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static uint64_t le64(const uint8_t *d)
{
    return __builtin_bswap64(p4_be64(d));
}

static uint64_t xx_round(uint64_t acc, uint64_t input)
{
    return rotate(acc + input * PRIME2, 31) * PRIME1;
}

uint64_t p4_hash_xxh64(const uint8_t *data, size_t len)
{
    uint64_t h;
    size_t total = len;
    if (len >= 32) {
        uint64_t v[4] = {PRIME1 + PRIME2, PRIME2, 0, 0 - PRIME1};
        for (; len >= 32; len -= 32)
            for (int i = 0; i < 4; i++, data += 8)
                v[i] = xx_round(v[i], le64(data));
        h = rotate(v[0], 1) + rotate(v[1], 7) + rotate(v[2], 12) + rotate(v[3], 18);
        for (int i = 0; i < 4; i++)
            h = (h ^ xx_round(0, v[i])) * PRIME1 + PRIME4;
    } else {
        h = PRIME5;
    }
    h += total;
    for (; len >= 8; data += 8, len -= 8)
        h = rotate(h ^ xx_round(0, le64(data)), 27) * PRIME1 + PRIME4;
    if (len >= 4) {
        h = rotate(h ^ (uint64_t)__builtin_bswap32((uint32_t)p4_be32(data)) * PRIME1, 23) * PRIME2 + PRIME3;
        data += 4;
        len -= 4;
    }
    for (; len; data++, len--)
        h = rotate(h ^ *data * PRIME5, 11) * PRIME1;
    h = (h ^ h >> 33) * PRIME2;
    h = (h ^ h >> 29) * PRIME3;
    return h ^ h >> 32;
}
