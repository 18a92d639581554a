// A varbit, a value set, checksums, an action selector and meters in one program.
#include <core.p4>
#include <v1model.p4>
header base_t { bit<8> a; bit<8> b; bit<16> c; bit<16> sum; }
header var_t { bit<8> n; varbit<64> v; }
struct headers { base_t h; var_t x; var_t y; }
struct meta_t { bit<8> colour; bit<8> old; }
parser P(packet_in pkt, out headers hdr, inout meta_t meta, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) vs;
    state start { pkt.extract(hdr.h); transition select(hdr.h.a) { vs: var; default: accept; } }
    state var {
        pkt.extract(hdr.x, ((bit<32>) pkt.lookahead<bit<8>>()) << 3);
        transition accept;
    }
}
control VC(inout headers hdr, inout meta_t meta) {
    apply { verify_checksum(true, {hdr.h.a, hdr.h.b, hdr.h.c}, hdr.h.sum, HashAlgorithm.csum16); }
}
control Ig(inout headers hdr, inout meta_t meta, inout standard_metadata_t sm) {
    action_selector(HashAlgorithm.crc16, 16, 16) ap;
    direct_meter<bit<8>>(MeterType.packets) dm;
    meter(2, MeterType.bytes) mb;
    action add(bit<8> d) { hdr.h.b = hdr.h.b + d; }
    action read() { meta.old = meta.colour; dm.read(meta.colour); }
    action keep() { meta.old = meta.colour; }
    table ta {
        key = { hdr.h.a: exact; hdr.h.c: selector; }
        actions = { add; NoAction; }
        implementation = ap;
    }
    table tm { key = { hdr.h.a: exact; } actions = { read; keep; NoAction; } meters = dm; }
    apply {
        sm.egress_spec = 2;
        meta.colour = 7;
        tm.apply();
        ta.apply();
        mb.execute_meter((bit<32>) (hdr.h.a & 1), hdr.h.a);
        hdr.h.a = hdr.h.a + 3 * meta.colour + 9 * meta.old + 100 * (bit<8>) sm.checksum_error;
        if (hdr.x.isValid()) {
            hdr.y.setValid();
            hdr.y.n = 1;
            hdr.y.v = hdr.x.v;
            if (hdr.x == hdr.y) { hdr.y.n = 9; }
        }
    }
}
control Eg(inout headers hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control CC(inout headers hdr, inout meta_t meta) {
    apply {
        update_checksum_with_payload(hdr.x.isValid(), {hdr.h.a, hdr.x.n, hdr.x.v, hdr.h.b, 8w0}, hdr.h.c, HashAlgorithm.crc16);
        update_checksum(true, {hdr.h.a, hdr.h.b, hdr.h.c}, hdr.h.sum, HashAlgorithm.csum16);
    }
}
control Dep(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), VC(), Ig(), Eg(), CC(), Dep()) main;
