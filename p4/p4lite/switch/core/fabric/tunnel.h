/* A link's way to another machine: frames in UDP datagrams, numbered and with a keyed tag. */
#ifndef PF_TUNNEL_H
#define PF_TUNNEL_H

#include <stdbool.h>

#include "fabric.h"

/* Before the frame, big-endian: magic (4), the sending end's number (4), epoch (8), sequence number (8), tag (8).
 * The tag is SipHash-2-4 of all else, the frame included. */
#define TUNNEL_HEADER 32u
#define TUNNEL_MAGIC UINT32_C(0x4d524354)
/* Of IPv4's 65 535 bytes: IP, UDP and our header less. */
#define TUNNEL_MAX_FRAME (65535u - 20u - 8u - TUNNEL_HEADER)
/* Sequence numbers that may come late, each once. */
#define TUNNEL_WINDOW 1024u

struct tunnel {
    uint8_t key[16];
    uint32_t from, to; /* the numbers of the two ends: ours, and the one whose datagrams we take */
    uint64_t epoch, next;
    /* Of the peer: its latest beginning, the first number that came since, the number after the highest. */
    uint64_t peer_epoch, first, expected;
    uint64_t seen[TUNNEL_WINDOW / 64];
    struct pf_tunnel_stats stats;
};

void tunnel_seal(struct tunnel *t, uint8_t *header, const uint8_t *frame, uint32_t length);
/* Whether a datagram is the peer's, whole, and new; counts it either way. The frame follows its header. */
bool tunnel_take(struct tunnel *t, const uint8_t *datagram, uint32_t length);

#endif
