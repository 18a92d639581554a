/* IPv6 (RFC 8200), with the traffic class as DSCP and ECN (RFC 2474, RFC 3168). */
#ifndef IPV6_P4
#define IPV6_P4

const bit<8> NEXT_HEADER_TCP = 6;
const bit<8> NEXT_HEADER_UDP = 17;
const bit<8> NEXT_HEADER_IPV6 = 41;
const bit<8> NEXT_HEADER_ROUTING = 43;

const bit<2> ECN_NOT_ECT = 0;
const bit<2> ECN_CE = 3;

const bit<16> IPV6_BYTES = 40;

header ipv6_t {
    bit<4>   version;
    bit<6>   dscp;
    bit<2>   ecn;
    bit<20>  flow_label;
    bit<16>  payload_length;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> src_addr;
    bit<128> dst_addr;
}

#endif
