/* Frames as a host's stack hands them to a virtual interface: checksums left to the "hardware", and TCP or
 * UDP super-frames to be cut. The switch sees what would be on a wire. */
#ifndef P4LITE_OFFLOAD_H
#define P4LITE_OFFLOAD_H

#include <linux/virtio_net.h>
#include <stdbool.h>
#include <stdint.h>

/* Fills in a checksum that the sender left partial. Offsets beyond the frame: nothing is done. */
void offload_checksum(uint8_t *frame, uint32_t len, uint32_t start, uint32_t offset);

struct offload_plan {
    uint32_t l3, l4, headers; /* offsets into the frame; `headers` bytes precede the data to be cut */
    uint32_t payload, segment_size, segments;
    bool tcp;
};

/* False: not a super-frame that can be cut (the caller drops it). */
bool offload_plan(const uint8_t *frame, uint32_t len, const struct virtio_net_hdr *head, struct offload_plan *plan);
/* Writes segment `index` (headers + at most segment_size bytes) to out and returns its length. */
uint32_t offload_segment(const uint8_t *frame, const struct offload_plan *plan, uint32_t index, uint8_t *out);

#endif
