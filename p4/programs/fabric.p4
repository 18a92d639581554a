/* The switch of every MRC fabric here: T0 and T1, all routing modes (mrc-protocol.md section 9).
 *
 *   tenant of the source -> own uSID? shift -> static route, or a tenant's table behind the outer header -> (on a T0, for plain IPv6) choose an uplink
 *   -> is this port the tenant's? -> egress port's settings -> control queue, or data queue with ECN, trimming and a limit in bytes.
 *
 * All state that a lab chooses comes in table entries pushed at start; nothing is compiled per lab.
 * Queue occupancy is counted in two register arrays, because on BMv2 ingress and egress are different threads
 * and each may write its own only: `queue_in` counts bytes that went in, `queue_out` is where that count stood when the
 * packet that left last went in. So packets that the traffic manager loses (a watchdog, flow control without headroom)
 * count until the next one behind them leaves, and no longer.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/headers.p4"

#define PORTS 512
#define EV_COUNTERS 4096

/* Why a packet was dropped: index of the counter `drops`. */
const bit<8> DROP_NONE = 0;
const bit<8> DROP_MALFORMED = 1;        // a header was cut short, or a segment list is not ours
const bit<8> DROP_NOT_IPV6 = 2;
const bit<8> DROP_HOP_LIMIT = 3;
const bit<8> DROP_NO_ROUTE = 4;         // unknown uSID or destination
const bit<8> DROP_END_OF_PATH = 5;      // our own uSID was the last one
const bit<8> DROP_NO_UPLINK = 6;        // the EV's hop field names none
const bit<8> DROP_LOOP = 7;             // would go back to where it came from
const bit<8> DROP_QUEUE_FULL = 8;       // the data queue is full and the packet not trimmable
const bit<8> DROP_NO_PORT = 9;          // the route names a port without settings
const bit<8> DROP_TENANT_DENIED = 10;   // from or to a port, or into a table, of another tenant

/* How a T0 picks the uplink of a packet that goes up. */
const bit<8> UPLINK_NONE = 0;
const bit<8> UPLINK_STRUCTURED_EV = 1;
const bit<8> UPLINK_ECMP = 2;
const bit<8> UPLINK_RANDOM = 3;
const bit<8> UPLINK_ROUND_ROBIN = 4;
const bit<8> UPLINK_SHORTEST_OF_TWO = 5;
const bit<8> UPLINK_ADAPTIVE = 6;

#define FLOWS 4096

/* Bytes that entered and left the data queue of each port, modulo 2^32. */
register<bit<32>>(PORTS) queue_in;
register<bit<32>>(PORTS) queue_out;
/* When the data queue of each port last sent a packet, in microseconds. */
register<bit<48>>(PORTS) last_departure;

control FabricVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control FabricComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

/* Bytes that wait in the data queue of a port. */
control Occupancy(in bit<9> port, out bit<32> waiting) {
    bit<32> entered;
    bit<32> left;
    apply {
        queue_in.read(entered, (bit<32>) port);
        queue_out.read(left, (bit<32>) port);
        waiting = entered - left;
        /* Egress may run ahead of ingress for a moment where they are threads. */
        if (waiting[31:31] == 1) {
            waiting = 0;
        }
    }
}

/* Takes an uplink, the `number`th from `start` on, if it exists and fewer bytes wait for it. */
control Candidate(in bit<9> first, in bit<16> count, in bit<16> number, in bit<16> start, inout bit<16> choice,
                  inout bit<32> least) {
    apply {
        if (number < count) {
            bit<16> at = start + number;
            if (at >= count) {
                at = at - count;
            }
            bit<32> waiting;
            Occupancy.apply(first + (bit<9>) at, waiting);
            if (waiting < least) {
                least = waiting;
                choice = at;
            }
        }
    }
}

/* The uplink for which the fewest bytes wait, one of them at random if there are several; of 16 at most. */
control LeastLoaded(in bit<9> first, in bit<16> count, out bit<16> choice) {
    Candidate() candidate;
    apply {
        bit<16> start;
        bit<32> least;
        random(start, 16w0, count - 1);
        choice = start;
        Occupancy.apply(first + (bit<9>) start, least);
        candidate.apply(first, count, 16w1, start, choice, least);
        candidate.apply(first, count, 16w2, start, choice, least);
        candidate.apply(first, count, 16w3, start, choice, least);
        candidate.apply(first, count, 16w4, start, choice, least);
        candidate.apply(first, count, 16w5, start, choice, least);
        candidate.apply(first, count, 16w6, start, choice, least);
        candidate.apply(first, count, 16w7, start, choice, least);
        candidate.apply(first, count, 16w8, start, choice, least);
        candidate.apply(first, count, 16w9, start, choice, least);
        candidate.apply(first, count, 16w10, start, choice, least);
        candidate.apply(first, count, 16w11, start, choice, least);
        candidate.apply(first, count, 16w12, start, choice, least);
        candidate.apply(first, count, 16w13, start, choice, least);
        candidate.apply(first, count, 16w14, start, choice, least);
        candidate.apply(first, count, 16w15, start, choice, least);
    }
}

/* Choice among a T0's uplinks, which are consecutive ports. */
control Uplinks(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(1) next_uplink;
    /* Of adaptive routing: when a flow's last packet came, in microseconds, and which uplink it took. Flows with one
     * hash share it. */
    register<bit<48>>(FLOWS) flow_seen;
    register<bit<16>>(FLOWS) flow_uplink;

    LeastLoaded() least_loaded;

    /* `hop_shift` and `hop_mask` find this switch's hop field in the flow label's part of the EV. */
    action structured_ev(bit<9> first_port, bit<16> count, bit<8> hop_shift, bit<20> hop_mask) {
        meta.uplink_method = UPLINK_STRUCTURED_EV;
        meta.first_uplink = first_port;
        meta.uplinks = count;
        meta.hop_shift = hop_shift;
        meta.hop_mask = hop_mask;
    }
    action ecmp(bit<9> first_port, bit<16> count, bit<32> salt) {
        meta.uplink_method = UPLINK_ECMP;
        meta.first_uplink = first_port;
        meta.uplinks = count;
        meta.hash_salt = salt;
    }
    action spray_random(bit<9> first_port, bit<16> count) {
        meta.uplink_method = UPLINK_RANDOM;
        meta.first_uplink = first_port;
        meta.uplinks = count;
    }
    action spray_round_robin(bit<9> first_port, bit<16> count) {
        meta.uplink_method = UPLINK_ROUND_ROBIN;
        meta.first_uplink = first_port;
        meta.uplinks = count;
    }
    action spray_shortest_of_two(bit<9> first_port, bit<16> count) {
        meta.uplink_method = UPLINK_SHORTEST_OF_TWO;
        meta.first_uplink = first_port;
        meta.uplinks = count;
    }
    /* `silence`: after this time in microseconds without a packet a flow may be given another uplink; 0: every packet. */
    action adaptive(bit<9> first_port, bit<16> count, bit<32> salt, bit<48> silence) {
        meta.uplink_method = UPLINK_ADAPTIVE;
        meta.first_uplink = first_port;
        meta.uplinks = count;
        meta.hash_salt = salt;
        meta.flow_silence = silence;
    }
    action no_uplinks() {
        meta.uplink_method = UPLINK_NONE;
        meta.drop_reason = DROP_NO_UPLINK;
    }
    /* No key: the lab's mode is this table's default action. */
    table uplink_choice {
        actions = {
            structured_ev;
            ecmp;
            spray_random;
            spray_round_robin;
            spray_shortest_of_two;
            adaptive;
            no_uplinks;
        }
        default_action = no_uplinks();
    }

    apply {
        uplink_choice.apply();
        bit<16> choice = 0;
        bit<16> last = meta.uplinks - 1;
        if (meta.uplink_method == UPLINK_STRUCTURED_EV && hdr.bth.isValid()) {
            choice = (bit<16>) ((meta.flow_label >> meta.hop_shift) & meta.hop_mask);
            if (choice > last) {
                meta.drop_reason = DROP_NO_UPLINK;
            }
        } else if (meta.uplink_method == UPLINK_ECMP || meta.uplink_method == UPLINK_STRUCTURED_EV) {
            /* What carries no EV is hashed in structured mode too. */
            hash(choice, HashAlgorithm.crc32, 16w0,
                 { meta.hash_salt, hdr.ipv6.src_addr, hdr.ipv6.dst_addr, (bit<32>) meta.flow_label,
                   meta.src_port, meta.dst_port, hdr.ipv6.next_header },
                 meta.uplinks);
        } else if (meta.uplink_method == UPLINK_RANDOM) {
            random(choice, 16w0, last);
        } else if (meta.uplink_method == UPLINK_ROUND_ROBIN) {
            bit<32> turn;
            next_uplink.read(turn, 0);
            choice = (bit<16>) turn;
            turn = turn + 1;
            if (choice >= last) {
                turn = 0;
            }
            next_uplink.write(0, turn);
        } else if (meta.uplink_method == UPLINK_SHORTEST_OF_TWO) {
            bit<16> other;
            bit<32> waiting;
            bit<32> waiting_other;
            random(choice, 16w0, last);
            random(other, 16w0, last);
            Occupancy.apply(meta.first_uplink + (bit<9>) choice, waiting);
            Occupancy.apply(meta.first_uplink + (bit<9>) other, waiting_other);
            if (waiting_other < waiting) {
                choice = other;
            }
        } else if (meta.uplink_method == UPLINK_ADAPTIVE) {
            bit<32> flow;
            bit<48> seen;
            bit<48> now = standard_metadata.ingress_global_timestamp;
            hash(flow, HashAlgorithm.crc32, 32w0,
                 { meta.hash_salt, hdr.ipv6.src_addr, hdr.ipv6.dst_addr, (bit<32>) meta.flow_label,
                   meta.src_port, meta.dst_port, hdr.ipv6.next_header },
                 32w4096);
            flow_seen.read(seen, flow);
            flow_seen.write(flow, now);
            /* Never seen: 0. */
            if (meta.flow_silence != 0 && seen != 0 && now - seen <= meta.flow_silence) {
                flow_uplink.read(choice, flow);
            } else {
                least_loaded.apply(meta.first_uplink, meta.uplinks, choice);
                flow_uplink.write(flow, choice);
            }
        }
        if (meta.drop_reason == DROP_NONE) {
            standard_metadata.egress_spec = meta.first_uplink + (bit<9>) choice;
            /* Uplinks follow the host ports: what came from above must not go up again. */
            if (standard_metadata.ingress_port >= meta.first_uplink) {
                meta.drop_reason = DROP_LOOP;
            }
        }
    }
}

/* Takes the outer header off. The inner one gets what the fabric has done to the outer: hops, ECN, trimming. */
control Decapsulation(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.asked_segment != meta.segment) {
            meta.drop_reason = DROP_TENANT_DENIED;
        } else if (!hdr.inner_ipv6.isValid() || (hdr.srh.isValid() && hdr.srh.segments_left != 0)) {
            meta.drop_reason = DROP_MALFORMED;
        } else {
            bit<16> outer = IPV6_BYTES;
            if (hdr.srh.isValid()) {
                outer = outer + 8 + ((bit<16>) hdr.srh.length << 3);
            }
            hdr.inner_ipv6.payload_length = hdr.ipv6.payload_length - outer;
            hdr.inner_ipv6.hop_limit = hdr.ipv6.hop_limit;
            hdr.inner_ipv6.dscp = hdr.ipv6.dscp;
            if (hdr.inner_ipv6.ecn != ECN_CE) {
                hdr.inner_ipv6.ecn = hdr.ipv6.ecn;
            }
            meta.decapsulated = 1;
            hdr.ipv6 = hdr.inner_ipv6;
            hdr.inner_ipv6.setInvalid();
            hdr.srh.setInvalid();
            hdr.segments[0].setInvalid();
            hdr.segments[1].setInvalid();
            hdr.segments[2].setInvalid();
            hdr.segments[3].setInvalid();
        }
    }
}

/* Own uSID and segment list, then the static route. Leaves `egress_spec`, `goes_up` or a drop reason. */
control Routing(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action go_up() {
        meta.goes_up = 1;
    }
    action no_route() {
        meta.drop_reason = DROP_NO_ROUTE;
    }
    action end_un() { }
    action in_segment(bit<16> segment) {
        meta.segment = segment;
    }
    action end_dt6(bit<16> segment) {
        meta.asked_segment = segment;
    }

    /* This switch's own 48 bits: locator block and uSID (End with NEXT-C-SID, "uN"). */
    table local_usid {
        key = { hdr.ipv6.dst_addr[127:80]: exact @name("usid_prefix"); }
        actions = { end_un; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    /* The tenant whose addresses the outer source is one of; 0: none. */
    table source_segments {
        key = { hdr.ipv6.src_addr: lpm @name("source"); }
        actions = { in_segment; NoAction; }
        default_action = NoAction();
        size = 1024;
    }
    /* Decapsulation into a tenant's table (End.DT6 with NEXT-C-SID, "uDT6"). Address plans do not overlap, so all tenants'
     * tables are `host_routes`, of which `Isolation` lets through what leads to the tenant's hosts here. */
    table tenant_usids {
        key = { hdr.ipv6.dst_addr[127:80]: exact @name("usid_prefix"); }
        actions = { end_dt6; NoAction; }
        default_action = NoAction();
        size = 1024;
    }
    table usid_routes {
        key = { hdr.ipv6.dst_addr[127:80]: exact @name("usid_prefix"); }
        actions = { forward; no_route; }
        default_action = no_route();
        size = 2048;
    }
    table host_routes {
        key = { hdr.ipv6.dst_addr: lpm @name("destination"); }
        actions = { forward; go_up; no_route; }
        default_action = no_route();
        size = 4096;
    }

    Decapsulation() decapsulation;

    apply {
        bit<1> is_plain = 0;
        source_segments.apply();
        if (hdr.ipv6.dst_addr[127:96] == LOCATOR_BLOCK) {
            if (local_usid.apply().hit) {
                if (hdr.ipv6.dst_addr[79:0] != 0) {
                    hdr.ipv6.dst_addr = hdr.ipv6.dst_addr[127:96] ++ hdr.ipv6.dst_addr[79:0] ++ 16w0;
                } else if (hdr.srh.isValid() && hdr.srh.segments_left != 0) {
                    hdr.srh.segments_left = hdr.srh.segments_left - 1;
                    if (hdr.srh.segments_left == 0 && hdr.segments[0].isValid()) {
                        hdr.ipv6.dst_addr = hdr.segments[0].address;
                    } else if (hdr.srh.segments_left == 1 && hdr.segments[1].isValid()) {
                        hdr.ipv6.dst_addr = hdr.segments[1].address;
                    } else if (hdr.srh.segments_left == 2 && hdr.segments[2].isValid()) {
                        hdr.ipv6.dst_addr = hdr.segments[2].address;
                    } else if (hdr.srh.segments_left == 3 && hdr.segments[3].isValid()) {
                        hdr.ipv6.dst_addr = hdr.segments[3].address;
                    } else {
                        meta.drop_reason = DROP_MALFORMED;
                    }
                } else {
                    meta.drop_reason = DROP_END_OF_PATH;
                }
            }
            if (meta.drop_reason == DROP_NONE) {
                if (tenant_usids.apply().hit) {
                    decapsulation.apply(hdr, meta);
                    is_plain = 1;
                } else {
                    usid_routes.apply();
                }
            }
        } else {
            is_plain = 1;
        }
        if (is_plain == 1 && meta.drop_reason == DROP_NONE) {
            host_routes.apply();
            /* A source route may turn back, as probes do; an address may not. */
            if (meta.drop_reason == DROP_NONE && meta.goes_up == 0
                && standard_metadata.egress_spec == standard_metadata.ingress_port) {
                meta.drop_reason = DROP_LOOP;
            }
        }
    }
}

/* Host ports take packets of their own tenant's sources only, and send only those. Sources do not change on the way, so
 * no packet gets from a tenant to another one's host, whatever uSIDs it has. What was decapsulated leaves through a host
 * port here or not at all, because nobody has checked its inner source. */
control Isolation(inout metadata_t meta, in standard_metadata_t standard_metadata) {
    action only(bit<16> segment) {
        meta.asked_segment = segment;
    }
    table ingress_segments {
        key = { standard_metadata.ingress_port: exact @name("port"); }
        actions = { only; NoAction; }
        default_action = NoAction();
        size = PORTS;
    }
    table egress_segments {
        key = { standard_metadata.egress_spec: exact @name("port"); }
        actions = { only; NoAction; }
        default_action = NoAction();
        size = PORTS;
    }

    apply {
        if (ingress_segments.apply().hit && meta.asked_segment != meta.segment) {
            meta.drop_reason = DROP_TENANT_DENIED;
        } else if (egress_segments.apply().hit) {
            if (meta.asked_segment != meta.segment) {
                meta.drop_reason = DROP_TENANT_DENIED;
            }
        } else if (meta.decapsulated == 1) {
            meta.drop_reason = DROP_TENANT_DENIED;
        }
    }
}

/* Queue, mark, trim or drop: what happens to a packet at its egress port. */
control Queueing(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(PORTS, CounterType.packets_and_bytes) marked;
    counter(PORTS, CounterType.packets_and_bytes) trimmed;
    counter(PORTS, CounterType.packets_and_bytes) queue_drops;

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
        size = 64;
    }

    /* Marking starts at `mark_min` bytes and is certain from `mark_min + mark_range` on; all ones: never.
     * `trim_dscp` tells the last hop from the others. `stall_time`, in microseconds, is longer than a full queue takes
     * to drain. */
    action port_settings(bit<48> src_mac, bit<48> dst_mac, bit<32> mark_min, bit<32> mark_range, bit<1> trims,
                         bit<32> trim_threshold, bit<6> trim_dscp, bit<3> trim_priority,
                         bit<32> queue_limit, bit<32> stall_time) {
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.dst_addr = dst_mac;
        meta.mark_min = mark_min;
        meta.mark_range = mark_range;
        meta.trims = trims;
        meta.trim_threshold = trim_threshold;
        meta.trim_dscp = trim_dscp;
        meta.trim_priority = trim_priority;
        meta.queue_limit = queue_limit;
        meta.stall_time = stall_time;
    }
    action no_port() {
        meta.drop_reason = DROP_NO_PORT;
    }
    table ports {
        key = { standard_metadata.egress_spec: exact @name("port"); }
        actions = { port_settings; no_port; }
        default_action = no_port();
        size = PORTS;
    }

    apply {
        traffic_classes.apply();
        ports.apply();
        if (meta.drop_reason != DROP_NONE) {
            return;
        }
        if (meta.is_control == 1) {
            standard_metadata.priority = meta.priority;
            return;
        }
        bit<32> waiting;
        Occupancy.apply(standard_metadata.egress_spec, waiting);
        if (waiting > meta.trim_threshold || waiting + standard_metadata.packet_length > meta.queue_limit) {
            /* So full, and nothing left for longer than that takes to drain: what waited was lost with its queue, as
             * when a switch is stopped. Without this nothing would pass any more that could set the count right. */
            bit<48> last;
            last_departure.read(last, (bit<32>) standard_metadata.egress_spec);
            if (last + (bit<48>) meta.stall_time < standard_metadata.ingress_global_timestamp) {
                bit<32> left;
                queue_out.read(left, (bit<32>) standard_metadata.egress_spec);
                queue_in.write((bit<32>) standard_metadata.egress_spec, left);
                waiting = 0;
            }
        }
        bit<32> after = waiting + standard_metadata.packet_length;
        if (meta.trims == 1 && meta.is_trimmable == 1 && hdr.reth.isValid()
            && (waiting > meta.trim_threshold || after > meta.queue_limit)) {
            /* Up to and including RETH; the outermost IPv6 header tells the new length, inner ones the old. */
            bit<16> kept = IPV6_BYTES + 8 + 12 + 4 + 16;
            if (hdr.tseth.isValid()) {
                kept = kept + 4;
            }
            if (hdr.inner_ipv6.isValid()) {
                kept = kept + IPV6_BYTES;
            }
            if (hdr.srh.isValid()) {
                kept = kept + 8 + ((bit<16>) hdr.srh.length << 3);
            }
            hdr.ipv6.payload_length = kept - IPV6_BYTES;
            hdr.ipv6.dscp = meta.trim_dscp;
            truncate((bit<32>) kept + 14);
            standard_metadata.priority = meta.trim_priority;
            trimmed.count((bit<32>) standard_metadata.egress_spec);
        } else if (after > meta.queue_limit) {
            meta.drop_reason = DROP_QUEUE_FULL;
            queue_drops.count((bit<32>) standard_metadata.egress_spec);
        } else {
            if (waiting >= meta.mark_min && hdr.ipv6.ecn != ECN_NOT_ECT) {
                bit<32> draw;
                random(draw, 32w1, meta.mark_range);
                if (waiting - meta.mark_min >= draw) {
                    // A packet that an earlier switch has marked is not marked a second time.
                    if (hdr.ipv6.ecn != ECN_CE) {
                        marked.count((bit<32>) standard_metadata.egress_spec);
                    }
                    hdr.ipv6.ecn = ECN_CE;
                }
            }
            bit<32> entered;
            queue_in.read(entered, (bit<32>) standard_metadata.egress_spec);
            entered = entered + standard_metadata.packet_length;
            queue_in.write((bit<32>) standard_metadata.egress_spec, entered);
            meta.queued = 1;
            meta.queued_up_to = entered;
        }
    }
}

control FabricIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(PORTS, CounterType.packets_and_bytes) port_rx;
    counter(16, CounterType.packets) drops;
    /* MRC packets by EV: index is the low 12 bits of hop field XOR source port. */
    counter(EV_COUNTERS, CounterType.packets_and_bytes) ev_packets;

    Routing() routing;
    Uplinks() uplinks;
    Isolation() isolation;
    Queueing() queueing;

    apply {
        port_rx.count((bit<32>) standard_metadata.ingress_port);
        if (standard_metadata.parser_error != error.NoError) {
            meta.drop_reason = DROP_MALFORMED;
        } else if (!hdr.ipv6.isValid()) {
            meta.drop_reason = DROP_NOT_IPV6;
        } else if (hdr.ipv6.hop_limit <= 1) {
            meta.drop_reason = DROP_HOP_LIMIT;
        } else {
            hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            if (hdr.bth.isValid()) {
                ev_packets.count((bit<32>) (meta.flow_label[11:0] ^ meta.src_port[11:0]));
            }
            routing.apply(hdr, meta, standard_metadata);
            if (meta.goes_up == 1 && meta.drop_reason == DROP_NONE) {
                uplinks.apply(hdr, meta, standard_metadata);
            }
            if (meta.drop_reason == DROP_NONE) {
                isolation.apply(meta, standard_metadata);
            }
            if (meta.drop_reason == DROP_NONE) {
                queueing.apply(hdr, meta, standard_metadata);
            }
        }
        if (meta.drop_reason != DROP_NONE) {
            drops.count((bit<32>) meta.drop_reason);
            mark_to_drop(standard_metadata);
        }
    }
}

control FabricEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(PORTS, CounterType.packets_and_bytes) port_tx;

    apply {
        port_tx.count((bit<32>) standard_metadata.egress_port);
        if (meta.queued == 1) {
            bit<32> bytes = meta.queued_up_to;
            if (standard_metadata.deq_qdepth == 0) {
                /* Nothing is left behind this packet: what the traffic manager lost of later ones is forgotten, too. */
                queue_in.read(bytes, (bit<32>) standard_metadata.egress_port);
            }
            queue_out.write((bit<32>) standard_metadata.egress_port, bytes);
            last_departure.write((bit<32>) standard_metadata.egress_port,
                                 standard_metadata.egress_global_timestamp);
        }
    }
}

V1Switch(FabricParser(), FabricVerifyChecksum(), FabricIngress(), FabricEgress(), FabricComputeChecksum(),
         FabricDeparser()) main;
