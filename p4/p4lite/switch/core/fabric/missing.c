/* Packets of which the payload is not stored, so that a simulation need not carry it: only its length. They do what
 * packets with these bytes would do, and a check at the end, of what is stored, fails where theirs would. */
#include "internal.h"

/* Flips a bit. A bit that is not stored changes the check instead, each in another way, so that two different ones do not
 * undo each other, and one that is flipped twice is as it was. */
void packet_corrupt(struct packet *p, uint64_t bit)
{
    uint64_t at = bit / 8, gap = packet_head(p), end = gap + p->missing;
    if (at < gap || at >= end) {
        p->data[at < gap ? at : at - p->missing] ^= (uint8_t)(0x80u >> bit % 8);
        return;
    }
    if (p->tail != PF_TAIL_BYTES)
        return; /* truncated */
    uint64_t state = 8 * end - bit; /* headers before it come and go, its distance from the end stays */
    uint64_t flips = random_next(&state) | 1;
    for (uint32_t i = 0; i < PF_TAIL_BYTES; i++)
        p->data[gap + i] ^= (uint8_t)(flips >> 8 * i);
}

void packet_truncate(struct packet *p, uint32_t len)
{
    uint32_t gap = packet_head(p);
    p->len = len;
    if (len <= gap) {
        p->missing = p->tail = 0;
    } else if (len - gap <= p->missing) {
        p->missing = len - gap;
        p->tail = 0;
    } else {
        p->tail = len - gap - p->missing;
    }
}

/* Puts zeros where bytes are missing, for what must see whole packets. */
bool packet_reveal(struct fabric *f, struct packet *p)
{
    uint32_t gap = packet_head(p);
    if (!packet_replace(f, p, p->len))
        return false;
    memmove(p->data + gap + p->missing, p->data + gap, p->tail);
    memset(p->data + gap, 0, p->missing);
    p->missing = p->tail = 0;
    return true;
}
