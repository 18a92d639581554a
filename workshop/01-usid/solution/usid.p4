/* Exercise 1: an SRv6 switch with uSIDs ("uN", RFC 9800), for T0 and T1 alike.
 *
 * The hosts put the whole path into the destination address: 32 bits of locator block, then up to six uSIDs of 16 bits,
 * then zeros. The controller has filled two tables:
 *
 *   local_usid    block + this switch's own uSID        -> end_un
 *   usid_routes   block + uSID of the next hop          -> forward(port)
 */
#include <core.p4>
#include <v1model.p4>

const bit<16> ETHERTYPE_IPV6 = 0x86dd;

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header ipv6_t {
    bit<4>   version;
    bit<8>   traffic_class;
    bit<20>  flow_label;
    bit<16>  payload_length;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> src_addr;
    bit<128> dst_addr;      // the carrier: block (32), uSIDs (16 each), zeros
}

struct headers_t {
    ethernet_t ethernet;
    ipv6_t     ipv6;        // the outer header; what is behind it is payload here
}

struct metadata_t {
    bit<48> next_usid;      // the block and the uSID to look up in usid_routes
}

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
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
        transition accept;
    }
}

control SwitchVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action drop() {
        mark_to_drop(standard_metadata);
    }
    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    /* Our own uSID is the first one: take it out. */
    action end_un() {
        hdr.ipv6.dst_addr = hdr.ipv6.dst_addr[127:96] ++ hdr.ipv6.dst_addr[79:0] ++ 16w0;
    }

    table local_usid {
        key = { hdr.ipv6.dst_addr[127:80]: exact @name("usid_prefix"); }
        actions = { end_un; NoAction; }
        default_action = NoAction();
    }
    table usid_routes {
        key = { meta.next_usid: exact @name("usid_prefix"); }
        actions = { forward; drop; }
        default_action = drop();
    }

    apply {
        if (!hdr.ipv6.isValid() || hdr.ipv6.hop_limit <= 1) {
            drop();
            return;
        }
        hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
        local_usid.apply();
        meta.next_usid = hdr.ipv6.dst_addr[127:80];
        usid_routes.apply();
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply { }
}

control SwitchComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv6);
    }
}

V1Switch(SwitchParser(), SwitchVerifyChecksum(), SwitchIngress(), SwitchEgress(), SwitchComputeChecksum(),
         SwitchDeparser()) main;
