/* Exercise 4: the switch of exercise 1 with two queues at each port, and trimming. */
#include <core.p4>
#include <v1model.p4>
#include "ethernet.p4"
#include "ipv6.p4"
#include "srv6.p4"
#include "usid.p4"
#include "udp.p4"
#include "rocev2.p4"
#include "mrc.p4"

#define PORTS 64

struct headers_t {
    ethernet_t ethernet;
    ipv6_t     ipv6;        // the outer header
    ipv6_t     inner_ipv6;
    udp_t      udp;
    bth_t      bth;
    meth_t     meth;        // from here on: of writes only
    tseth_t    tseth;       // only if bth.timestamp is set
    reth_t     reth;
}

struct metadata_t {
    bit<1>  is_control;
    bit<3>  priority;
    bit<1>  is_trimmable;
    bit<32> trim_threshold;
    bit<6>  trim_dscp;
    bit<3>  trim_priority;
    bit<32> queue_limit;
    bit<32> queued_bytes;   // what this packet adds to its data queue, taken off again in egress
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
        transition select(hdr.ipv6.next_header) {
            NEXT_HEADER_IPV6: parse_inner_ipv6;
            default: accept;
        }
    }
    state parse_inner_ipv6 {
        packet.extract(hdr.inner_ipv6);
        transition select(hdr.inner_ipv6.next_header) {
            NEXT_HEADER_UDP: parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            ROCEV2_PORT: parse_bth;
            default: accept;
        }
    }
    state parse_bth {
        packet.extract(hdr.bth);
        transition select(hdr.bth.opcode, hdr.bth.timestamp) {
            (OPCODE_WRITE_FIRST .. OPCODE_WRITE_ONLY_IMM, 0): parse_write;
            (OPCODE_WRITE_FIRST .. OPCODE_WRITE_ONLY_IMM, 1): parse_write_with_timestamp;
            default: accept;
        }
    }
    state parse_write {
        packet.extract(hdr.meth);
        transition parse_reth;
    }
    state parse_write_with_timestamp {
        packet.extract(hdr.meth);
        packet.extract(hdr.tseth);
        transition parse_reth;
    }
    state parse_reth {
        packet.extract(hdr.reth);
        transition accept;
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.inner_ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
        packet.emit(hdr.meth);
        packet.emit(hdr.tseth);
        packet.emit(hdr.reth);
    }
}

/* Bytes that went into and out of the data queue of each port, modulo 2^32: the difference waits. */
register<bit<32>>(PORTS) queue_in;
register<bit<32>>(PORTS) queue_out;

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
    action end_un() {
        hdr.ipv6.dst_addr = WITHOUT_FIRST_USID(hdr.ipv6.dst_addr);
    }
    table local_usid {
        key = { hdr.ipv6.dst_addr[127:80]: exact @name("usid_prefix"); }
        actions = { end_un; NoAction; }
        default_action = NoAction();
    }
    table usid_routes {
        key = { hdr.ipv6.dst_addr[127:80]: exact @name("usid_prefix"); }
        actions = { forward; drop; }
        default_action = drop();
    }

    /* By DSCP: data goes into queue 0, control into queue 7, which is served first. */
    action data_class(bit<1> trimmable) {
        meta.is_trimmable = trimmable;
    }
    action control_class(bit<3> priority) {
        meta.is_control = 1;
        meta.priority = priority;
    }
    table traffic_classes {
        key = { hdr.ipv6.dscp: exact @name("dscp"); }
        actions = { data_class; control_class; }
        default_action = data_class(0);
    }

    /* Of the egress port: a packet that finds more than `trim_threshold` bytes waiting is trimmed. Its DSCP is then
     * `trim_dscp` (another one on the last hop), its queue `trim_priority`. */
    action port_settings(bit<32> trim_threshold, bit<6> trim_dscp, bit<3> trim_priority, bit<32> queue_limit) {
        meta.trim_threshold = trim_threshold;
        meta.trim_dscp = trim_dscp;
        meta.trim_priority = trim_priority;
        meta.queue_limit = queue_limit;
    }
    table ports {
        key = { standard_metadata.egress_spec: exact @name("port"); }
        actions = { port_settings; drop; }
        default_action = drop();
    }

    apply {
        if (!hdr.ipv6.isValid() || hdr.ipv6.hop_limit <= 1) {
            drop();
            return;
        }
        hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
        local_usid.apply();
        if (!usid_routes.apply().hit) {
            return;
        }
        traffic_classes.apply();
        ports.apply();
        if (meta.is_control == 1) {
            standard_metadata.priority = meta.priority;
            return;
        }
        bit<32> entered;
        bit<32> left;
        queue_in.read(entered, (bit<32>) standard_metadata.egress_spec);
        queue_out.read(left, (bit<32>) standard_metadata.egress_spec);
        bit<32> waiting = entered - left;
        /* TODO: if more than meta.trim_threshold bytes wait, and the packet is trimmable (meta.is_trimmable) and a write
         * (hdr.reth.isValid()), cut it behind its RETH instead of queueing all of it: see the README for the four things
         * to do. `truncate(n)` sends the first n bytes of the packet; the Ethernet header has 14. */
        if (waiting + standard_metadata.packet_length > meta.queue_limit) {
            drop();
            return;
        }
        queue_in.write((bit<32>) standard_metadata.egress_spec, entered + standard_metadata.packet_length);
        meta.queued_bytes = standard_metadata.packet_length;
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        /* Runs when the packet leaves the queue. */
        if (meta.queued_bytes != 0) {
            bit<32> left;
            queue_out.read(left, (bit<32>) standard_metadata.egress_port);
            queue_out.write((bit<32>) standard_metadata.egress_port, left + meta.queued_bytes);
        }
    }
}

control SwitchComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

V1Switch(SwitchParser(), SwitchVerifyChecksum(), SwitchIngress(), SwitchEgress(), SwitchComputeChecksum(),
         SwitchDeparser()) main;
