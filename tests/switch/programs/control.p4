// Everything that P4Runtime can program on a v1model switch, once each.
#include <core.p4>
#include <v1model.p4>

typedef bit<48> mac_t;
typedef bit<9> port_t;

const port_t CPU_PORT = 255;

@controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    port_t egress_port;
    bit<7> pad;
}

header ethernet_t {
    mac_t dst;
    mac_t src;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> len;
    bit<16> id;
    bit<16> frag;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata_t {
    bit<2> colour;
    bit<2> entry_colour;
}

struct learn_t {
    mac_t src;
    port_t port;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<bit<16>>(4) other_types;
    state start {
        transition select(std.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: parse_ipv4;
            other_types: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(16, CounterType.packets_and_bytes) port_count;
    direct_counter(CounterType.packets_and_bytes) l2_count;
    meter(8, MeterType.packets) port_meter;
    direct_meter<bit<2>>(MeterType.packets) acl_meter;
    register<bit<32>>(8) seen;
    action_selector(HashAlgorithm.crc16, 32w64, 32w16) ecmp;
    action_profile(8) rewrites;

    action drop() {
        mark_to_drop(std);
    }
    action forward(port_t port) {
        std.egress_spec = port;
    }
    action flood(bit<16> group) {
        std.mcast_grp = group;
    }
    action next_hop(mac_t dst, port_t port) {
        hdr.ethernet.dst = dst;
        std.egress_spec = port;
    }
    action set_tos(bit<8> tos) {
        hdr.ipv4.tos = tos;
    }
    action punt(bit<7> reason) {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = std.ingress_port;
        hdr.packet_in.reason = reason;
        std.egress_spec = CPU_PORT;
    }
    action count_seen(bit<32> index) {
        bit<32> last;
        seen.read(last, index);
        seen.write(index, last + 1);
    }
    action learn() {
        digest<learn_t>(1, { hdr.ethernet.src, std.ingress_port });
    }
    action mirror(bit<32> session) {
        clone(CloneType.I2E, session);
    }
    action police() {
        acl_meter.read(meta.entry_colour);
    }

    table smac {
        key = { hdr.ethernet.src: exact; }
        actions = { learn; NoAction; }
        const default_action = learn();
        support_timeout = true;
        size = 8;
    }
    table l2 {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; flood; punt; @defaultonly drop; @tableonly NoAction; }
        default_action = drop();
        counters = l2_count;
        size = 4;
    }
    table routes {
        key = {
            hdr.ipv4.dst: lpm;
            hdr.ipv4.src: selector;
        }
        actions = { next_hop; drop; }
        implementation = ecmp;
    }
    table tos {
        key = { hdr.ipv4.protocol: exact; }
        actions = { set_tos; NoAction; }
        implementation = rewrites;
    }
    table acl {
        key = {
            hdr.ipv4.src: ternary @name("source");
            hdr.ipv4.protocol: range @name("protocol");
            std.ingress_port: optional @name("port");
        }
        actions = { drop; punt; mirror; police; }
        meters = acl_meter;
        size = 32;
    }
    table fixed {
        key = { hdr.ethernet.type: ternary; }
        actions = { forward; NoAction; }
        const entries = {
            0x1234 &&& 0xffff: forward(7);
            0x1200 &&& 0xff00: forward(8);
        }
    }
    table flag {
        actions = { NoAction; drop; }
        default_action = NoAction();
    }

    apply {
        port_count.count((bit<32>) std.ingress_port & 15);
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
            exit;
        }
        port_meter.execute_meter((bit<32>) std.ingress_port & 7, meta.colour);
        count_seen((bit<32>) std.ingress_port & 7);
        smac.apply();
        if (hdr.ipv4.isValid()) {
            routes.apply();
            tos.apply();
            acl.apply();
        } else {
            l2.apply();
            fixed.apply();
        }
        flag.apply();
        if (meta.colour == 2 || meta.entry_colour == 2) {
            drop();
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(P(), Verify(), I(), E(), Update(), D()) main;
