/* All headers of a packet, what the switch remembers of it, and the parser.
 *
 * Ethernet | IPv6 [SRH] [IPv6] | UDP | BTH | METH [TSETH] RETH: `ipv6` is always the outermost header.
 */
#ifndef HEADERS_P4
#define HEADERS_P4

#include "ethernet.p4"
#include "ipv6.p4"
#include "srv6.p4"
#include "udp.p4"
#include "rocev2.p4"
#include "mrc.p4"

/* Segments that a segment routing header may hold here; a longer one is malformed. */
#define MAX_SEGMENTS 4

error { BadSegmentList }

struct headers_t {
    ethernet_t              ethernet;
    ipv6_t                  ipv6;
    srh_t                   srh;
    segment_t[MAX_SEGMENTS] segments;
    ipv6_t                  inner_ipv6;
    udp_t                   udp;
    bth_t                   bth;
    meth_t                  meth;
    tseth_t                 tseth;
    reth_t                  reth;
}

struct metadata_t {
    bit<8>  drop_reason;
    /* The tenant of the source, and the one of whose port or table it is asked. */
    bit<16> segment;
    bit<16> asked_segment;
    bit<1>  decapsulated;
    /* What ECMP hashes, and the EV (mrc-protocol.md section 2): flow label and source port. */
    bit<20> flow_label;
    bit<16> src_port;
    bit<16> dst_port;
    /* Traffic class. */
    bit<1>  is_control;
    bit<1>  is_trimmable;
    bit<3>  priority;
    /* Going up. */
    bit<1>  goes_up;
    bit<8>  uplink_method;
    bit<9>  first_uplink;
    bit<16> uplinks;
    bit<32> hash_salt;
    bit<48> flow_silence;
    bit<8>  hop_shift;
    bit<20> hop_mask;
    /* The egress port. */
    bit<32> mark_min;
    bit<32> mark_range;
    bit<1>  trims;
    bit<32> trim_threshold;
    bit<6>  trim_dscp;
    bit<3>  trim_priority;
    bit<32> queue_limit;
    bit<32> stall_time;
    /* The data queue; control packets are not counted. */
    bit<1>  queued;             // counted in `queue_in`
    bit<32> queued_up_to;       // which then stood there
}

parser FabricParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        meta.flow_label = hdr.ipv6.flow_label;
        transition select(hdr.ipv6.next_header) {
            NEXT_HEADER_UDP: parse_udp;
            NEXT_HEADER_TCP: parse_tcp_ports;
            NEXT_HEADER_IPV6: parse_inner_ipv6;
            NEXT_HEADER_ROUTING: parse_srh;
            default: accept;
        }
    }
    state parse_srh {
        packet.extract(hdr.srh);
        verify(hdr.srh.routing_type == ROUTING_TYPE_SEGMENTS, error.BadSegmentList);
        transition select(hdr.srh.length) {
            0: after_srh;
            2: parse_last_segment;
            4: parse_two_segments;
            6: parse_three_segments;
            8: parse_four_segments;
            default: reject_srh;
        }
    }
    state parse_four_segments {
        packet.extract(hdr.segments.next);
        transition parse_three_segments;
    }
    state parse_three_segments {
        packet.extract(hdr.segments.next);
        transition parse_two_segments;
    }
    state parse_two_segments {
        packet.extract(hdr.segments.next);
        transition parse_last_segment;
    }
    state parse_last_segment {
        packet.extract(hdr.segments.next);
        transition after_srh;
    }
    state reject_srh {
        verify(false, error.BadSegmentList);
        transition accept;
    }
    state after_srh {
        transition select(hdr.srh.next_header) {
            NEXT_HEADER_IPV6: parse_inner_ipv6;
            default: accept;
        }
    }
    state parse_inner_ipv6 {
        packet.extract(hdr.inner_ipv6);
        meta.flow_label = hdr.inner_ipv6.flow_label;
        transition select(hdr.inner_ipv6.next_header) {
            NEXT_HEADER_UDP: parse_udp;
            default: accept;
        }
    }
    state parse_tcp_ports {
        bit<32> ports = packet.lookahead<bit<32>>();
        meta.src_port = ports[31:16];
        meta.dst_port = ports[15:0];
        transition accept;
    }
    state parse_udp {
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port) {
            ROCEV2_PORT: parse_bth;
            default: accept;
        }
    }
    state parse_bth {
        packet.extract(hdr.bth);
        transition select(hdr.bth.opcode, hdr.bth.timestamp) {
            (OPCODE_WRITE_FIRST .. OPCODE_WRITE_ONLY_IMM, 0): parse_meth;
            (OPCODE_WRITE_FIRST .. OPCODE_WRITE_ONLY_IMM, 1): parse_meth_tseth;
            default: accept;
        }
    }
    state parse_meth {
        packet.extract(hdr.meth);
        transition parse_reth;
    }
    state parse_meth_tseth {
        packet.extract(hdr.meth);
        packet.extract(hdr.tseth);
        transition parse_reth;
    }
    state parse_reth {
        packet.extract(hdr.reth);
        transition accept;
    }
}

control FabricDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.srh);
        packet.emit(hdr.segments);
        packet.emit(hdr.inner_ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
        packet.emit(hdr.meth);
        packet.emit(hdr.tseth);
        packet.emit(hdr.reth);
    }
}

#endif
