"""Warnings: reads before a write, and traps of simple_switch (p4-target.md); and silence where all is well."""

from __future__ import annotations

import re

import pytest

from support.p4.source import errors, program, warnings

DROP = "action drop() { mark_to_drop(sm); } action go(bit<9> p) { sm.egress_spec = p; } "

WARNED = {
    "uninitialised": (program(apply="bit<8> x; meta.a = x;"), "'x' may be read before it is written"),
    "one branch only": (program(apply="bit<8> x; if (meta.flag) { x = 1; } meta.a = x;"), "'x' may be read"),
    "one case only": (program(apply="bit<8> x; switch (meta.a) { 1: { x = 1; } } meta.b = x;"), "'x' may be read"),
    "loop body": (program(apply="bit<8> x; for (bit<8> i in 1 .. 2) { x = i; } meta.a = x;"), "'x' may be read"),
    "out parameter": (program(top="bit<8> f(out bit<8> o) { bit<8> r = o; o = 1; return r; }"), "'o' may be read"),
    "never written": (program(locals="bit<8> x; action a() { meta.a = x; }"), "'x' is read but never written"),
    "read of an invalid header": (program(apply="eth_t e; meta.w = e.type;"), "e is not valid here: the value read"),
    "write to an invalid header": (program(apply="hdr.eth.setInvalid(); hdr.eth.type = 1;"), "the write is lost"),
    "drop taken back": (
        program(apply="mark_to_drop(sm); sm.egress_spec = 3;"),
        "writing egress_spec after mark_to_drop",
    ),
    "drop taken back by multicast": (program(apply="mark_to_drop(sm); sm.mcast_grp = 3;"), "writing mcast_grp after"),
    "drop by an action": (program(locals=DROP, apply="drop(); sm.egress_spec = 1;"), "writing egress_spec after"),
    "verify": (
        program(states="state start { verify(meta.a == 0, error.NoMatch); transition accept; }"),
        "drops nothing",
    ),
    "egress_spec in egress": (
        program().replace(
            "control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { }",
            "control MyEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) "
            "{ apply { meta.w = (bit<16>)sm.egress_spec; }",
        ),
        "egress_spec reads 0 in egress",
    ),
    "number too big": (program(apply="meta.a = 300;"), "value 300 does not fit in bit<8>: becomes 44"),
    "literal too big": (program(apply="meta.a = 8w300;"), "8w300 does not fit in bit<8>: becomes 44"),
    "negative": (program(apply="meta.a = -1;"), "negative value -1 for bit<8>: becomes 255"),
    "shift of everything": (program(apply="meta.a = meta.b >> 8;"), "shift of bit<8> by 8 leaves nothing"),
    "deprecated": (program(apply="clone3(CloneType.I2E, 5, {meta.a});"), "'clone3' is deprecated: Please use"),
    "unknown property": (
        program(locals="table t { actions = { } sise = 3; }"),
        "unknown table property 'sise'.*'size'",
    ),
    "empty range": (
        program(states="state start { transition select(meta.a) { 9 .. 3: accept; _: accept; } }"),
        "empty range",
    ),
}

QUIET = {
    "written on all ways": "bit<8> x; if (meta.flag) { x = 1; } else { x = 2; } meta.a = x;",
    "written or left": "bit<8> x; if (meta.flag) { x = 1; } else { return; } meta.a = x;",
    "written by a call": "bit<32> x; random(x, 0, 9); meta.w = (bit<16>)x;",
    "all cases": "bit<8> x; switch (meta.a) { 1: { x = 1; } default: { x = 2; } } meta.b = x;",
    "valid again": "hdr.eth.setInvalid(); hdr.eth.setValid(); hdr.eth.type = 1;",
    "assigned header": "eth_t e; e = hdr.eth; meta.w = e.type;",
    "asked first": "hdr.eth.setInvalid(); if (hdr.eth.isValid()) { meta.w = hdr.eth.type; }",
    "asked first in a condition": "eth_t e; if (e.isValid() && e.type == 1) { meta.a = 1; }",
    "dropped at the end": "sm.egress_spec = 1; mark_to_drop(sm);",
    "dropped on the other way": "if (meta.flag) { mark_to_drop(sm); } else { sm.egress_spec = 1; }",
}


@pytest.mark.parametrize("name", WARNED)
def test_faulty_program_gives_exactly_its_warning(name: str) -> None:
    text, message = WARNED[name]
    assert errors(text) == []
    assert any(re.search(message, w) for w in warnings(text)), warnings(text)
    assert len(warnings(text)) == 1


@pytest.mark.parametrize("name", QUIET)
def test_program_without_a_fault_gives_no_warning(name: str) -> None:
    assert warnings(program(apply=QUIET[name])) == []
