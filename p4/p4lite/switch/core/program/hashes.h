/* Hash algorithms of BMv2's named calculations, over a byte string. */
#ifndef P4LITE_HASHES_H
#define P4LITE_HASHES_H

#include <stddef.h>
#include <stdint.h>

/* A CRC of 8, 16, 32 or 64 bits in the usual parameters (polynomial without its top bit). */
struct p4_crc {
    uint64_t polynomial, initial, final_xor;
    uint8_t width, data_reflected, remainder_reflected;
    uint8_t ready;
    uint64_t table[256];
};

/* Fills the table of `crc` from its parameters; call before the first use. */
void p4_crc_prepare(struct p4_crc *crc);
uint64_t p4_crc_compute(const struct p4_crc *crc, const uint8_t *data, size_t len);

/* Ones' complement sum, complemented (RFC 1071); an odd last byte is the high half of a word. */
uint64_t p4_hash_csum16(const uint8_t *data, size_t len);
/* A number that is that sum modulo 65535, and 0 only if all bytes are: to be added up, then folded. */
uint64_t p4_sum16(const uint8_t *data, size_t len);

static inline uint64_t p4_sum64(uint64_t x)
{
    return (x >> 32) + (uint32_t)x;
}

static inline uint64_t p4_sum128(unsigned __int128 x)
{
    return p4_sum64((uint64_t)(x >> 64)) + p4_sum64((uint64_t)x);
}

/* The complemented 16-bit sum; each step carries what is above 16 bits around, of the last at most one. */
static inline uint64_t p4_sum16_fold(uint64_t sum)
{
    sum = (sum >> 32) + (uint32_t)sum;
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return ~sum & 0xffff;
}

/* Exclusive or of 16- or 32-bit words, the last one padded with zeros on the right. */
uint64_t p4_hash_xor16(const uint8_t *data, size_t len);
uint64_t p4_hash_xor32(const uint8_t *data, size_t len);
/* The first eight bytes, big-endian. */
uint64_t p4_hash_identity(const uint8_t *data, size_t len);
/* xxHash64 with seed 0. */
uint64_t p4_hash_xxh64(const uint8_t *data, size_t len);

#endif
