"""Fields, parameters and keys of type bit<0>, which p4c compiles: no bits of a packet, and always 0."""

from __future__ import annotations

from p4lite import compiler
from p4lite.switch.runtime.loader import load_program
from p4lite_tools.stf.engine import run_stf
from p4lite_tools.stf.parse import parse_stf

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<0> first; bit<8> a; bit<0> inner; bit<8> b; int<8> c; }
struct headers { h_t h; }
struct meta_t {}
parser P(packet_in p, out headers hdr, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta_t m) { apply {} }
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t s) {
    action set(bit<0> none, bit<8> v) { hdr.h.inner = none; hdr.h.b = v; }
    table t {
        key = { hdr.h.inner: exact; hdr.h.a: exact; }
        actions = { set; }
        const entries = { (0, 7): set(0, 9); }
    }
    apply {
        hdr.h.inner = 1;
        t.apply();
        hdr.h.c = (int<8>) (bit<8>) hdr.h.first + 5;
        s.egress_spec = 2;
    }
}
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers hdr, inout meta_t m) { apply {} }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def test_fields_without_bits() -> None:
    program = load_program(compiler.compile_text(PROGRAM).bmv2)
    statements = parse_stf("packet 1 07010299\nexpect 2 07090599\npacket 1 080102\nexpect 2 080105")
    result = run_stf(program, statements)
    assert result.passed, result.failures
