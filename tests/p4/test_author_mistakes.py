"""Common mistakes of P4 authors: what is said of each, as docs/reference/p4-errors.md has it, and where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.p4.source import errors, marked, program

PAGE = Path(__file__).parents[2] / "docs/reference/p4-errors.md"

_ACTIONS = "action set(bit<8> v) { meta.a = v; } "

#: By the number of the row in the page; the mark is where the error must point.
MISTAKES = {
    1: program(apply="meta./*!*/c = 1;"),
    2: program(apply="meta.a = /*!*/mata.b;"),
    3: program(apply="meta.a = /*!*/meta.w;"),
    4: program(apply="meta.a = /*!*/meta.a + meta.w;"),
    5: program(apply="meta.a = /*!*/meta.a + meta.s;"),
    6: program(apply="if (/*!*/meta.a) { meta.b = 1; }"),
    7: program(apply="if (meta.a /*!*/= 1) { meta.b = 1; }"),
    8: program(top="bit<8> f(in bit<8> x) { /*!*/x = 1; return x; }"),
    9: program(apply="meta.a = 1 /*!*/meta.b = 2;"),
    10: program(apply="meta.a = (meta.b + 1/*!*/;"),
    11: program(locals=_ACTIONS, apply="/*!*/set();"),
    12: program(locals=_ACTIONS + "table t { actions = { NoAction; } default_action = /*!*/set(1); }"),
    13: program(locals="table t { actions = { /*!*/set; } }"),
    14: program(locals="table /*!*/t { key = { meta.a: exact; } }"),
    15: program(locals="table t { key = { meta.a: /*!*/exakt; } actions = { NoAction; } }"),
    16: program(states="state start { pkt.extract(/*!*/meta); transition accept; }"),
    17: program(apply="/*!*/verify(meta.a == 1, error.NoMatch);"),
    18: program(states="state begin { transition accept; }").replace("MyParser(packet_in", "/*!*/MyParser(packet_in"),
    19: program(states="state start { transition /*!*/parse_ip; } state parse_ipv4 { transition accept; }"),
    20: program(locals="bit<8> x = 0; bit<16> /*!*/x = 1;"),
    21: program(top="header h_t { bit<8> a; bit<8> /*!*/a; }"),
    22: program(top="header h_t { /*!*/h_t x; }"),
    23: program(top="header h_t { tuple<bit<8>> /*!*/x; }"),
    24: program(apply="int /*!*/x = 3;"),
    25: program(apply="meta.a = /*!*/meta.a / 0;"),
    26: program(apply="meta.a = /*!*/meta.a[8:1];"),
    27: program(apply="meta.a[3:0] = /*!*/meta.b[0:3];"),
    28: program(locals="const bit<8> K = /*!*/meta.a;"),
    29: program(locals='table t { actions = { NoAction; } size = /*!*/"many"; }'),
    30: program(locals="table /*!*/t { actions = { NoAction; } const entries = { 1: NoAction(); } }"),
    31: program(top="enum E { A, B }", apply="if (E.A == E./*!*/C) { }"),
    32: program(
        locals=_ACTIONS + "table t { actions = { NoAction; } }", apply="switch (t.apply().action_run) { /*!*/set: { } }"
    ),
    33: program(top="bit<8> /*!*/f(in bit<8> x) { if (x == 1) { return 2; } }"),
    34: program(locals="action a(bit<8> v, in bit<8> /*!*/w) { meta.a = v + w; }"),
    35: program(apply="register<bit<8>>(4) /*!*/r;"),
    36: program(locals="/*!*/register(4) r;"),
    37: program(locals="register<bit<8>>(4) r;", apply="r./*!*/get(meta.a, 0);"),
    38: program(apply="hdr.eth.isValid/*!*/;"),
    39: program(locals="register<bit<8>>(4) r;", apply="r.read(/*!*/meta.w, 0);"),
    40: program(package="/*!*/V1Switch(MyParser(), MyVerify(), MyIngress()) main;"),
    41: program(apply="meta.w = /*!*/1 ++ meta.a;"),
    42: program(apply="if (/*!*/hdr.eth == meta.a) { }"),
    43: program(states="state start { transition select(meta.a) { /*!*/16w1: accept; } }"),
    44: program(
        locals="action a(bit<8> v,\n         bit<8> w) {\n    meta.a = v;\n}",
        apply="    if (meta.a == 1) /*!*/{\n        meta.b = 1;",
    ),
    45: program(apply="if (hdr.eth.isValid() /*!*/and meta.flag) { }"),
    46: program(apply="if (meta.a == 1) { } elif /*!*/{ meta.b = 1; }"),
    47: program(apply="/*!*/uint8_t x = 0;"),
    48: program(apply="meta.a/*!*/++;"),
    49: program(apply="if (hdr.eth./*!*/isValid) { }"),
    50: program(locals="table t { actions = { NoAction; } }", apply="if (t.apply()./*!*/hit()) { }"),
    51: program(locals="/*!*/register<bit<8>>(4) r;").replace("#include <v1model.p4>\n", ""),
    52: program(locals="action /*!*/out(bit<9> p) { sm.egress_spec = p; }"),
    53: program(top="header h_t { bit<8> /*!*/action; }"),
    54: program(apply="if (hdr.eth.dst == /*!*/10.0.0.1) { }"),
    55: program(
        locals="table t { key = { hdr.eth.src: lpm; } actions = { NoAction; } "
        "const entries = { /*!*/10.0.0.0/8: NoAction(); } }"
    ),
    56: program(apply="hdr.eth.dst = /*!*/00:11:22:33:44:55;"),
    57: program(apply='if (/*!*/meta.a == "1") { }'),
    58: program(apply='hdr.eth.dst = /*!*/"00:11:22:33:44:55";'),
    59: program(apply="if (/*!*/hdr.eth.isValid() == 1) { }"),
    60: program(locals="register<bit<8>>(4) r;", apply="meta.a = /*!*/r.read(0);"),
    61: program(apply="meta.a = /*!*/random(0, 9);"),
    62: program(locals="register<bit<8>>(4) r;", apply="meta.a = /*!*/r[0];"),
    63: program(locals="table t { key = { meta.a: /*!*/longest; } actions = { NoAction; } }"),
    64: program(locals="table t { key = { meta.a: /*!*/wildcard; } actions = { NoAction; } }"),
    65: program(locals="table t { key = { meta.a/*!*/; } actions = { NoAction; } }"),
    66: program(locals=_ACTIONS + "table t { actions = { set/*!*/, NoAction } }"),
    67: program(locals="table t { key/*!*/: { meta.a: exact; } actions = { NoAction; } }"),
    68: program(apply="/*!*/drop();"),
    69: program(apply="/*!*/egress_spec = 1;"),
    70: program(apply="/*!*/standard_metadata.egress_spec = 1;"),
    71: program(apply="if (/*!*/hdr.eth) { }"),
    72: program(apply="if (hdr.eth./*!*/valid()) { }"),
    73: program(apply="if (hdr.eth == /*!*/null) { }"),
    74: program(apply="meta.flag = /*!*/True;"),
    75: program(apply="while (meta.a > 1) /*!*/{ meta.a = meta.a - 1; }"),
    76: program(apply="bit(8) x = /*!*/5;"),
    77: program(apply="/*!*/bit8 x = 5;"),
    78: program(states="state start { pkt.extract(hdr.eth); accept/*!*/; }"),
    79: program(states="state start { transition select(meta.a) { 1 /*!*/=> accept; } }"),
    80: program(top="header h_t {\n    bit<8> x;\n}\n/*!*/}"),
    81: program(apply="    if (meta.flag)\n        meta.a = 1;\n        meta.b = 2;\n    /*!*/}"),
}


def said(number: int) -> str:
    """Return what the page says that p4lite says."""
    row = re.search(rf"^\| {number} \|.*\| `(.*)` \|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert row is not None, f"{PAGE} has no row {number}"
    return row[1].replace("\\|", "|")


@pytest.mark.parametrize("number", MISTAKES)
def test_message_is_the_one_of_the_page_and_points_at_the_mistake(number: int) -> None:
    text, place = marked(MISTAKES[number])
    first = errors(text)[0]
    assert first.message == said(number)
    assert (first.pos.line, first.pos.col) == place


def test_page_has_no_other_rows() -> None:
    rows = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert [int(row) for row in rows] == list(MISTAKES)
