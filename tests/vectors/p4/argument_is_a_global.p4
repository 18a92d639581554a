// Seed 2040, reduced: an argument is a global that the action writes before it reads its parameter.
#include <core.p4>
#include <v1model.p4>
enum E { A, B, C }
enum bit<8> SE { ONE = 1, TWO = 2, BIG = 200 }
struct inner_t { bit<9> n; bool f; E e; }
header base_t { bit<8> a; bit<8> b; bit<16> c; int<8> i; bit<32> d; bit<64> l; bit<65> x; int<33> y; bit<6> z; SE k; }
struct headers { base_t h; }
struct meta_t {  }
parser P(packet_in pkt, out headers hdr, inout meta_t meta, inout standard_metadata_t sm) { state start {
pkt.extract(hdr.h);
transition select(8w0, hdr.h.z[2:0]) { default: accept; } } }
control Ig(inout headers hdr, inout meta_t meta, inout standard_metadata_t sm) {
inner_t st = {n = 3, f = true, e = E.B};
action act1(out bool act1_0, in bit<16> act1_1, bit<16> act1_d0, bool act1_d1) { act1_0 = true;
hdr.h.c = 16w0;
hdr.h.c = act1_1; }
table t1 { key = {  }
actions = { act1(st.f, hdr.h.c); }
default_action = act1(st.f, hdr.h.c, 16w32768, false); }
apply { sm.egress_spec = 2;
if (t1.apply().miss) {  } else {  } } }
control Eg(inout headers hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control VC(inout headers hdr, inout meta_t meta) { apply { } } control CC(inout headers hdr, inout meta_t meta) { apply { } }
control Dep(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr); } } V1Switch(P(), VC(), Ig(), Eg(), CC(), Dep()) main;
