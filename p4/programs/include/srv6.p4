/* SRv6: the segment routing header (RFC 8754) and compressed segments, "uSIDs" (RFC 9800).
 *
 * A destination address is a uSID carrier: 32 bits of locator block and six uSIDs of 16 bits. The first 48 bits
 * name the next node on the path. mrc-protocol.md section 9; addressing rule in docs/topology.md.
 */
#ifndef SRV6_P4
#define SRV6_P4

#ifndef LOCATOR_BLOCK
#define LOCATOR_BLOCK 0xfd4d5243
#endif

const bit<8> ROUTING_TYPE_SEGMENTS = 4;

header srh_t {
    bit<8>  next_header;
    bit<8>  length;         // of the whole header, in units of 8 bytes after the first 8
    bit<8>  routing_type;
    bit<8>  segments_left;
    bit<8>  last_entry;
    bit<8>  flags;
    bit<16> tag;
}

header segment_t {
    bit<128> address;
}

#endif
