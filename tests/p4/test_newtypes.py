"""`type`s (language specification §7.6, §8.25): numbers become one where p4c takes them; all else wants a cast."""

from __future__ import annotations

import pytest

from p4lite.compiler import compile_text, frontend
from p4lite.compiler.diagnostics import CompileError
from support.p4.cases import INPUT, run, run_on, source, switch
from support.p4.cases import compile_text as compiled

TYPES = """
    type bit<8> vrf_t; type vrf_t inner_t; type bit<10> wide_t; type int<8> signed_t; type bool flag_t;
    struct s_t { vrf_t v; bit<8> w; } header g_t { vrf_t v; }
    const vrf_t ZERO = 0; const vrf_t SEVEN = 7;
    const s_t BOTH = { 3, 4 }; const s_t NAMED = { w = 6, v = 5 };
"""
TOP = """
    bit<8> plain(in vrf_t v) { return (bit<8>)v; }
    bit<8> given(in vrf_t v = 9) { return (bit<8>)v; }
    vrf_t made(in bool b) { if (b) { return 11; } return 12; }
    T same<T>(in T x, in T y) { return y; }
"""


@pytest.mark.parametrize(
    ("body", "a"),
    [
        ("hdr.h.a = (bit<8>)SEVEN;", 7),
        ("vrf_t v = 5; hdr.h.a = (bit<8>)v;", 5),
        ("vrf_t v; v = 5; hdr.h.a = (bit<8>)v;", 5),
        ("inner_t v = 5; hdr.h.a = (bit<8>)(vrf_t)v;", 5),
        ("signed_t v = -2; hdr.h.a = (bit<8>)(int<8>)v;", 254),
        ("vrf_t v = 3 + 4 * 2; hdr.h.a = (bit<8>)v;", 11),
        ("vrf_t v = hdr.h.b == 0 ? 1 : 2; hdr.h.a = (bit<8>)v;", 2),
        ("vrf_t v = SEVEN; v = hdr.h.b == 0 ? v : 2; hdr.h.a = (bit<8>)v;", 2),
        ("hdr.h.a = plain(3);", 3),
        ("hdr.h.a = plain(v = 3);", 3),
        ("hdr.h.a = given();", 9),
        ("hdr.h.a = (bit<8>)made(true);", 11),
        ("hdr.h.a = (bit<8>)same(SEVEN, 4);", 4),
        ("hdr.h.a = (bit<8>)same<vrf_t>(1, 4);", 4),
        ("s_t s = { 3, 4 }; hdr.h.a = (bit<8>)s.v;", 3),
        ("s_t s; s = { w = 3, v = 4 }; hdr.h.a = (bit<8>)s.v;", 4),
        ("hdr.h.a = (bit<8>)BOTH.v + (bit<8>)NAMED.v;", 8),
        ("s_t s = { SEVEN, 1 }; if (s == { 7, 1 }) { hdr.h.a = 1; }", 1),
        ("tuple<vrf_t, bit<8>> t = { 2, 3 }; hdr.h.a = (bit<8>)t[0];", 2),
        ("switch (SEVEN) { 6: { hdr.h.a = 0; } 7: { hdr.h.a = 1; } }", 1),
        ("vrf_t v = (vrf_t)hdr.h.b; switch (v) { 0x34: { hdr.h.a = 1; } }", 1),
        ("g_t g = { 5 }; hdr.h.a = (bit<8>)g.v;", 5),
        ("set(4);", 4),
    ],
)
def test_a_number_becomes_one(body: str, a: int) -> None:
    locals_ = "action set(vrf_t v) { hdr.h.a = (bit<8>)v; }"
    assert run(types=TYPES, top=TOP, locals=locals_, body=body) == INPUT | {"a": a}


def test_in_tables_registers_parsers_and_constructors() -> None:
    parts = {
        "types": TYPES,
        "top": "control C(inout headers hdr)(vrf_t v, int n) { apply { vrf_t w = n; "
        "hdr.h.b = (bit<8>)v + (bit<8>)w; } }",
        "meta": "vrf_t v;",
        "parser": """state start { pkt.extract(hdr.h); meta.v = 1; vrf_t s = (vrf_t)hdr.h.a; transition select(s) {
            2: accept; 0x10 &&& 0xf0: more; 5..9: more; default: accept; } }
            state more { meta.v = 4; transition accept; }""",
        "locals": """register<vrf_t>(4) r; C(3, 4) c;
            action set(vrf_t v, inner_t w) { hdr.h.c = 8w0 ++ (bit<8>)v; }
            table t { key = { meta.v: exact; } actions = { set; @defaultonly NoAction; }
                const entries = { 1: set(8, 9); 4: set(SEVEN, 1); } const default_action = NoAction; }
            table u { key = { meta.v: ternary; } actions = { set; } const default_action = set(v = 1, w = 2);
                const entries = { 4 &&& 4: set(3, 3); } }""",
        "body": "t.apply(); c.apply(hdr); r.write(1, 3); vrf_t x; r.read(x, 1); hdr.h.d = 24w0 ++ (bit<8>)x;",
    }
    target = switch(**parts)
    assert run_on(target, a=0x12) == INPUT | {"a": 0x12, "b": 7, "c": 7, "d": 3}
    assert run_on(target, a=6) == INPUT | {"a": 6, "b": 7, "c": 7, "d": 3}
    assert run_on(target, a=2) == INPUT | {"a": 2, "b": 7, "c": 8, "d": 3}


def test_one_warning_for_each_type() -> None:
    text = source(types=TYPES, body="vrf_t v = 1; v = 2; v = (vrf_t)3; hdr.h.a = (bit<8>)v; wide_t w = 4; w = w;")
    warnings = [str(d) for d in compile_text(text, "case.p4").warnings]
    found = [w for w in warnings if "becomes a" in w]
    assert len(found) == 2
    assert "a number becomes a vrf_t, as p4c does it; the specification (§7.6) wants (vrf_t) before it" in found[0]
    assert "const vrf_t ZERO = 0;" in found[0]


def test_with_casts_there_is_no_warning() -> None:
    text = source(types="type bit<8> vrf_t; const vrf_t ZERO = (vrf_t)0;", body="vrf_t v = ZERO; if (v == ZERO) { }")
    assert compile_text(text, "case.p4").warnings == []


@pytest.mark.parametrize(
    ("cast", "told"),
    [
        ("(bit<16>)SEVEN", True),
        ("(bit<16>)(bit<8>)SEVEN", False),
        ("(bit<16>)(bit<8>)(vrf_t)8w5", False),
        ("(bit<16>)(bit<8>)(vrf_t)16w5", True),
        ("(bit<16>)(bit<8>)(vrf_t)5", False),
        ("(bit<16>)(bit<8>)(vrf_t)(vrf_t)5", False),
        ("(bit<16>)(bit<8>)(inner_t)5", True),
    ],
)
def test_a_cast_goes_by_way_of_the_original_type(cast: str, told: bool) -> None:
    """`inner_t` is made from `vrf_t`, not from `bit<8>`."""
    text = source(types=TYPES, body=f"hdr.h.c = {cast};")
    found = [d.message for d in compile_text(text, "case.p4").warnings if "by way of" in d.message]
    assert bool(found) is told
    value = 7 if "SEVEN" in cast else 5
    assert run(types=TYPES, body=f"hdr.h.c = {cast};") == INPUT | {"c": value}


def test_a_number_that_does_not_fit_is_told() -> None:
    program = frontend.load_text(source(types="type bit<4> n_t; const n_t k = 17;"), "case.p4")
    assert any("value 17 does not fit in bit<4>: becomes 1" in str(d) for d in program.diagnostics)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("vrf_t v = hdr.h.a;", "cannot convert bit<8> to vrf_t; cast with (vrf_t)"),
        ("vrf_t v = 8w1;", "cannot convert bit<8> to vrf_t; cast with (vrf_t)"),
        ("hdr.h.a = SEVEN;", "cannot convert vrf_t to bit<8>; cast with (bit<8>)"),
        ("if (SEVEN == 7) { }", "operands of == have types vrf_t and int; cast the number with (vrf_t)"),
        ("if (7 != SEVEN) { }", "operands of != have types int and vrf_t; cast the number with (vrf_t)"),
        ("if (SEVEN < 7) { }", "operator < is not defined on vrf_t and int"),
        ("vrf_t v = SEVEN; v = v + 1;", "operator + is not defined on vrf_t and int"),
        ("vrf_t v = SEVEN; v += 1;", "operator + is not defined on vrf_t and int"),
        ("flag_t f = 1;", "cannot convert int to flag_t"),
        ("vrf_t v = SEVEN; inner_t w = v;", "cannot convert vrf_t to inner_t"),
    ],
)
def test_what_wants_a_cast(body: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        frontend.load_text(source(types=TYPES, body=body), "case.p4")
    assert message in str(caught.value)


def test_the_p4info_has_the_type() -> None:
    text = source(
        types='@p4runtime_translation("", string) type bit<10> vrf_t; const vrf_t DEFAULT = 0;',
        locals="action set(vrf_t v) { } table t { key = { hdr.h.a: exact; } actions = { set; } "
        "const default_action = set(0); }",
        body="t.apply();",
    )
    assert 'name: "vrf_t"' in compile_text(text, "case.p4").p4info
    assert compiled(text)["pipelines"][0]["tables"]
