/* Exercise 3: the switch of exercise 1 with two queues at each port, and explicit congestion notification. */
#include <core.p4>
#include <v1model.p4>
#include "ethernet.p4"
#include "ipv6.p4"
#include "srv6.p4"
#include "usid.p4"

#define PORTS 64

struct headers_t {
    ethernet_t ethernet;
    ipv6_t     ipv6;        // the outer header, with dscp and ecn; what is behind it is payload here
}

struct metadata_t {
    bit<1>  is_control;
    bit<3>  priority;
    bit<32> mark_min;
    bit<32> mark_range;
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
        transition accept;
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv6);
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
    action data_class() { }
    action control_class(bit<3> priority) {
        meta.is_control = 1;
        meta.priority = priority;
    }
    table traffic_classes {
        key = { hdr.ipv6.dscp: exact @name("dscp"); }
        actions = { data_class; control_class; }
        default_action = data_class();
    }

    /* Of the egress port: marking begins at `mark_min` waiting bytes and is certain `mark_range` bytes later. Of a port
     * that never marks, such as one to a host, `mark_min` is all ones. */
    action port_settings(bit<32> mark_min, bit<32> mark_range, bit<32> queue_limit) {
        meta.mark_min = mark_min;
        meta.mark_range = mark_range;
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
        if (waiting + standard_metadata.packet_length > meta.queue_limit) {
            drop();
            return;
        }
        if (waiting >= meta.mark_min && hdr.ipv6.ecn != ECN_NOT_ECT) {
            bit<32> draw;
            random(draw, 32w1, meta.mark_range);
            if (waiting - meta.mark_min >= draw) {
                hdr.ipv6.ecn = ECN_CE;
            }
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
