#include "offload.h"

#include <string.h>

enum { PROTO_HOPOPTS = 0, PROTO_IPIP = 4, PROTO_TCP = 6, PROTO_UDP = 17, PROTO_IPV6 = 41, PROTO_ROUTING = 43, PROTO_DSTOPTS = 60 };

static uint32_t get16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static uint64_t sum_bytes(const uint8_t *at, uint32_t len)
{
    uint64_t sum = 0;
    for (; len >= 2; at += 2, len -= 2)
        sum += get16(at);
    return len ? sum + ((uint64_t)at[0] << 8) : sum;
}

static uint32_t fold(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint32_t)sum;
}

void offload_checksum(uint8_t *frame, uint32_t len, uint32_t start, uint32_t offset)
{
    if (start >= len || offset + 2 > len - start)
        return;
    uint32_t sum = ~fold(sum_bytes(frame + start, len - start)) & 0xffff;
    put16(frame + start + offset, sum ? sum : 0xffff); /* 0 means "none" to UDP and equals 0xffff to TCP */
}

/* Walks from the first IP header to the last one before the transport header at `l4`, and adds `delta` to the
 * length field of each (IPv4: refreshes the header checksum, counts the identification up by `index`).
 * Returns the offset of the last IP header, 0 if the walk does not end at l4. */
static uint32_t walk(uint8_t *frame, uint32_t l3, uint32_t l4, int64_t delta, uint32_t index)
{
    uint32_t at = l3, protocol;
    for (int level = 0; level < 4; level++) {
        uint32_t ip = at;
        if (at + 20 > l4)
            return 0;
        if (frame[at] >> 4 == 4) {
            uint32_t size = (frame[at] & 15u) * 4;
            if (size < 20 || at + size > l4)
                return 0;
            if (delta || index) {
                put16(frame + at + 2, (uint32_t)(get16(frame + at + 2) + delta));
                put16(frame + at + 4, get16(frame + at + 4) + index);
                put16(frame + at + 10, 0);
                put16(frame + at + 10, ~fold(sum_bytes(frame + at, size)));
            }
            protocol = frame[at + 9];
            at += size;
        } else if (frame[at] >> 4 == 6 && at + 40 <= l4) {
            if (delta)
                put16(frame + at + 4, (uint32_t)(get16(frame + at + 4) + delta));
            protocol = frame[at + 6];
            at += 40;
            while ((protocol == PROTO_HOPOPTS || protocol == PROTO_ROUTING || protocol == PROTO_DSTOPTS) && at + 8 <= l4) {
                protocol = frame[at];
                at += (frame[at + 1] + 1u) * 8;
            }
        } else {
            return 0;
        }
        if (at == l4)
            return ip;
        if (protocol != PROTO_IPIP && protocol != PROTO_IPV6)
            return 0;
    }
    return 0;
}

bool offload_plan(const uint8_t *frame, uint32_t len, const struct virtio_net_hdr *head, struct offload_plan *plan)
{
    uint32_t type = head->gso_type & ~(uint32_t)VIRTIO_NET_HDR_GSO_ECN;
    uint32_t l3 = 14, l4 = head->csum_start;
    if (!(head->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || head->gso_size == 0 || l4 + 8 > len)
        return false;
    while (l3 + 4 <= l4 && (get16(frame + l3 - 2) == 0x8100 || get16(frame + l3 - 2) == 0x88a8))
        l3 += 4;
    plan->tcp = type == VIRTIO_NET_HDR_GSO_TCPV4 || type == VIRTIO_NET_HDR_GSO_TCPV6;
    if (!plan->tcp && type != 5 /* VIRTIO_NET_HDR_GSO_UDP_L4 */)
        return false;
    uint32_t size = plan->tcp && l4 + 20 <= len ? (frame[l4 + 12] >> 4) * 4u : 8;
    /* the walk only reads when it has nothing to add */
    if ((plan->tcp && size < 20) || l4 + size >= len || walk((uint8_t *)(uintptr_t)frame, l3, l4, 0, 0) == 0)
        return false;
    plan->l3 = l3;
    plan->l4 = l4;
    plan->headers = l4 + size;
    plan->payload = len - plan->headers;
    plan->segment_size = head->gso_size < plan->payload ? head->gso_size : plan->payload;
    plan->segments = (plan->payload + plan->segment_size - 1) / plan->segment_size;
    return true;
}

uint32_t offload_segment(const uint8_t *frame, const struct offload_plan *plan, uint32_t index, uint8_t *out)
{
    uint32_t start = index * plan->segment_size, last = index + 1 == plan->segments;
    uint32_t data = last ? plan->payload - start : plan->segment_size;
    uint32_t len = plan->headers + data;
    memcpy(out, frame, plan->headers);
    memcpy(out + plan->headers, frame + plan->headers + start, data);
    walk(out, plan->l3, plan->l4, (int64_t)data - plan->payload, index);
    uint8_t *l4 = out + plan->l4;
    uint32_t l4_len = len - plan->l4, field = plan->tcp ? 16 : 6;
    if (plan->tcp) {
        uint32_t sequence = (get16(l4 + 4) << 16 | get16(l4 + 6)) + start;
        put16(l4 + 4, sequence >> 16);
        put16(l4 + 6, sequence & 0xffff);
        if (!last)
            l4[13] &= (uint8_t)~0x09u; /* FIN, PSH */
        if (index)
            l4[13] &= (uint8_t)~0x80u; /* CWR */
    } else {
        put16(l4 + 4, l4_len);
    }
    /* The pseudo header's addresses: of the destination behind a routing header the original sum knows more, so
     * take that sum and correct its length. */
    uint32_t old_len = plan->l4 < plan->headers ? plan->headers + plan->payload - plan->l4 : 0;
    uint64_t pseudo = get16(frame + plan->l4 + field) + (uint64_t)(0xffffu - (old_len & 0xffff)) + (0xffffu - (old_len >> 16)) + l4_len;
    put16(l4 + field, fold(pseudo));
    offload_checksum(out, len, plan->l4, field);
    return len;
}
