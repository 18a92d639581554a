/* CRC-32 of IEEE 802.3, as zlib's crc32. */
#ifndef MRC_CRC32_H
#define MRC_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Return the CRC of `data` behind what has the CRC `before`. */
uint32_t mrc_crc32(uint32_t before, const uint8_t *data, size_t length);

#endif
