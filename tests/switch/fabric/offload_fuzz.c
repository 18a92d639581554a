/* Random frames with random offload headers: `offload_fuzz COUNT` prints how many could be cut. Frames lie in memory of
 * exactly their size, so that the address sanitizer sees every byte read or written beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload.h"

static uint64_t state = 1;

static uint32_t any(uint32_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 20) % limit;
}

/* Headers that make sense, so that a good part of the frames can be cut: IPv4 or IPv6 in up to two levels. */
static uint32_t sensible(uint8_t *frame, uint32_t len, bool tcp)
{
    uint32_t at = 14;
    bool six = any(2);
    memcpy(frame + 12, six ? "\x86\xdd" : "\x08\x00", 2);
    for (uint32_t levels = 1 + any(2); levels; levels--) {
        bool next_six = any(2);
        uint8_t protocol = levels > 1 ? (next_six ? 41 : 4) : (tcp ? 6 : 17);
        uint32_t size = six ? 40 : 20;
        if (at + size + 20 > len)
            return 0;
        memset(frame + at, 0, size);
        frame[at] = six ? 0x60 : 0x45;
        frame[at + (six ? 6 : 9)] = protocol;
        uint32_t length = six ? len - at - 40 : len - at;
        frame[at + (six ? 4 : 2)] = (uint8_t)(length >> 8);
        frame[at + (six ? 5 : 3)] = (uint8_t)length;
        at += size;
        six = next_six;
    }
    frame[at + 12] = tcp ? (uint8_t)(0x50 + any(3) * 16) : frame[at + 12];
    return at;
}

static uint32_t sum(const uint8_t *at, uint32_t len)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < len; i++)
        total += i % 2 ? at[i] : (uint32_t)at[i] << 8;
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    return total;
}

int main(int argc, char **argv)
{
    unsigned long count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0, cut = 0;
    for (unsigned long n = 0; n < count; n++) {
        uint32_t len = 1 + any(n % 64 ? 400 : 3000);
        uint8_t *frame = malloc(len);
        if (!frame)
            return 2;
        for (uint32_t i = 0; i < len; i++)
            frame[i] = (uint8_t)any(256);
        bool tcp = any(2);
        uint32_t l4 = len > 120 && any(4) ? sensible(frame, len, tcp) : 0;
        struct virtio_net_hdr head = {
            .flags = (uint8_t)(l4 ? 1 : any(4)),
            .gso_type = (uint8_t)(l4 ? (tcp ? 1 + 3 * any(2) : 5) : any(8)),
            .gso_size = (uint16_t)(1 + any(500)),
            .csum_start = (uint16_t)(l4 ? l4 : any(len + 8)),
            .csum_offset = (uint16_t)any(30),
        };
        struct offload_plan plan;
        if (!offload_plan(frame, len, &head, &plan)) {
            offload_checksum(frame, len, head.csum_start, head.csum_offset);
            free(frame);
            continue;
        }
        uint32_t field = plan.l4 + (plan.tcp ? 16 : 6), total = 0;
        cut++;
        for (uint32_t i = 0; i < plan.segments; i++) {
            uint32_t expected = plan.headers + (i + 1 < plan.segments ? plan.segment_size : plan.payload - total);
            uint8_t *out = malloc(expected);
            if (!out)
                return 2;
            uint32_t got = offload_segment(frame, &plan, i, out);
            total += got - plan.headers;
            /* the sum over the segment is the negated pseudo header: the original's with the new length */
            uint32_t old = len - plan.l4, now = got - plan.l4;
            uint32_t pseudo = (frame[field] << 8 | frame[field + 1]) + (0xffffu - old) + now;
            uint32_t whole = sum(out + plan.l4, got - plan.l4) + pseudo;
            whole = (whole & 0xffff) + (whole >> 16);
            whole = (whole & 0xffff) + (whole >> 16);
            if (got != expected || memcmp(out + plan.headers, frame + plan.headers + i * plan.segment_size, got - plan.headers) ||
                (whole != 0xffff && whole != 0)) {
                printf("frame %lu segment %u: %u bytes, expected %u; sum %x\n", n, i, got, expected, whole);
                return 1;
            }
            free(out);
        }
        if (total != plan.payload) {
            printf("frame %lu: %u of %u bytes\n", n, total, plan.payload);
            return 1;
        }
        free(frame);
    }
    printf("%lu frames cut\n", cut);
    return 0;
}
