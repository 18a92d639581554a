// Multicast, clones, resubmission and recirculation, each with what it keeps of the metadata.
#include <core.p4>
#include <v1model.p4>
header base_t { bit<8> kind; bit<8> a; bit<8> b; bit<8> seen; }
struct headers { base_t h; }
struct meta_t {
    @field_list(1, 2) bit<8> hops;
    @field_list(1) bit<8> one;
    @field_list(2) bit<8> two;
    bit<8> none;
}
parser P(packet_in pkt, out headers hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control VC(inout headers hdr, inout meta_t meta) { apply { } }
control Ig(inout headers hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 2;
        if (meta.hops == 0) {
            meta.hops = 1;
            meta.one = hdr.h.a;
            meta.two = hdr.h.b;
            meta.none = 77;
            hdr.h.a = hdr.h.a + 1;
            if (hdr.h.kind == 1) { sm.mcast_grp = 1; }
            if (hdr.h.kind == 2) { clone_preserving_field_list(CloneType.I2E, 1, 1); }
            if (hdr.h.kind == 3) { resubmit_preserving_field_list(2); }
            if (hdr.h.kind == 6) { clone(CloneType.I2E, 2); mark_to_drop(sm); }
        }
    }
}
control Eg(inout headers hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        hdr.h.seen = hdr.h.seen + (bit<8>) sm.instance_type;
        if (sm.instance_type == 5) { hdr.h.seen = hdr.h.seen + 10 * (bit<8>) sm.egress_rid; }
        hdr.h.a = hdr.h.a ^ meta.one;
        hdr.h.b = hdr.h.b + meta.two + meta.none;
        if (hdr.h.kind == 4 && meta.hops == 1) { meta.hops = 2; recirculate_preserving_field_list(1); }
        if (hdr.h.kind == 5 && meta.hops == 1) { meta.hops = 2; clone_preserving_field_list(CloneType.E2E, 2, 2); }
    }
}
control CC(inout headers hdr, inout meta_t meta) { apply { } }
control Dep(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), VC(), Ig(), Eg(), CC(), Dep()) main;
