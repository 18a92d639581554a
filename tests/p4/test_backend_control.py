"""Statements, calls and tables: what they do in BMv2 JSON, against their meaning in the language."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from p4lite.compiler import compile_text as compile_program_text
from p4lite.compiler.diagnostics import CompileError
from support.p4.cases import INPUT, run, run_on, source, switch
from support.p4.source import marked

A, B, C, D = (INPUT[name] for name in "abcd")


@dataclass(frozen=True)
class Case:
    """A program for the frame and the fields that must differ from the input afterwards."""

    name: str
    changes: dict[str, int]
    body: str = ""
    locals: str = ""
    top: str = ""
    more: dict[str, str] = field(default_factory=dict)

    def result(self) -> dict[str, int]:
        return run(body=self.body, locals=self.locals, top=self.top, **self.more)


STATEMENTS = [
    Case("if else", {"a": 2}, "if (hdr.h.b == 0) { hdr.h.a = 1; } else { hdr.h.a = 2; }"),
    Case(
        "else if",
        {"a": 3},
        "if (hdr.h.b == 0) hdr.h.a = 1; else if (hdr.h.b == 1) hdr.h.a = 2; else hdr.h.a = 3;",
    ),
    Case("nothing to do", {}, "if (hdr.h.b == 0) { } ;;"),
    Case(
        "switch on a value",
        {"a": 7},
        "switch (hdr.h.b) { 1: { hdr.h.a = 1; } 0x33: 0x34: { hdr.h.a = 7; } default: { hdr.h.a = 9; } }",
    ),
    Case(
        "an enum with values against a number",
        {"a": 1, "b": 2},
        "if (hdr.h.b == 0 || K.two == 2 && (K) hdr.h.b != 0) hdr.h.a = 1; K k = K.two; if (2 == k) hdr.h.b = 2;",
        top="enum bit<8> K { one = 1, two = 2 }",
    ),
    Case("switch default", {"a": 9}, "switch (hdr.h.c) { 1: { hdr.h.a = 1; } default: { hdr.h.a = 9; } }"),
    Case("switch without match", {}, "switch (hdr.h.c) { 1: { hdr.h.a = 1; } }"),
    Case("return", {"a": 1}, "hdr.h.a = 1; if (hdr.h.b != 0) return; hdr.h.a = 2;"),
    Case("exit", {"a": 1}, "hdr.h.a = 1; if (hdr.h.b != 0) { exit; } hdr.h.a = 2;"),
    Case(
        "block scope",
        {"a": 5, "b": 3},
        "bit<8> x = 3; { bit<8> x = 5; hdr.h.a = x; } hdr.h.b = x;",
    ),
    Case("uninitialised is 0", {"a": 0}, "bit<8> x; hdr.h.a = x;"),
    Case("for", {"a": 0 + 1 + 2 + 3}, "hdr.h.a = 0; for (bit<8> i = 0; i < 4; i = i + 1) { hdr.h.a = hdr.h.a + i; }"),
    Case(
        "push_front in a for",
        {"a": 0x12},
        "for (bit<8> i = 0; i < 2; i = i + 1) { hdr.st.push_front(1); }",
        more={"headers": "h_t[3] st;"},
    ),
    Case("for downwards", {"a": 6}, "hdr.h.a = 0; for (bit<8> i = 3; i > 0; i -= 1) hdr.h.a += i;"),
    Case("for until its bound on the left", {"a": 5}, "hdr.h.a = 0; for (bit<8> i = 3; 1 < i; i -= 1) hdr.h.a += i;"),
    Case(
        "for with break and continue",
        {"a": 0 + 1 + 3},
        "hdr.h.a = 0; for (bit<8> i = 0; i < 9; i += 1) { if (i == 2) continue; if (i == 4) break; hdr.h.a += i; }",
    ),
    Case("for in a range", {"a": 2 + 3 + 4}, "hdr.h.a = 0; for (bit<8> i in 2..4) { hdr.h.a = hdr.h.a + i; }"),
    Case(
        "for indexes a slice",
        {"d": 0x0F0F},
        "hdr.h.d = 0; for (bit<8> i in 0..3) { if (i[0:0] == 0) hdr.h.d[15:0] = hdr.h.d[15:0] | (16w0xf << (i * 4)); }",
    ),
    Case(
        "loop of run-time length in an action",
        {"a": 0, "b": 10},
        "loop();",
        "action loop() { hdr.h.a = 4; hdr.h.b = 0; for (bit<8> i = 0; hdr.h.a > 0; i = i + 1) "
        "{ hdr.h.b = hdr.h.b + hdr.h.a; hdr.h.a = hdr.h.a - 1; } }",
    ),
    Case(
        "loop of run-time length in a control",
        {"a": 0, "b": 10},
        "hdr.h.a = 4; hdr.h.b = 0; for (; hdr.h.a > 0; hdr.h.a = hdr.h.a - 1) { hdr.h.b = hdr.h.b + hdr.h.a; }",
    ),
    Case(
        "a loop that changes its variable",
        {"a": 4},
        "hdr.h.a = 0; for (bit<8> i = 0; i < 8; i = i + 1) { i = i + 1; hdr.h.a = hdr.h.a + 1; }",
    ),
    Case(
        "exit in a loop of run-time length",
        {"a": 2, "b": B},
        "for (; ; hdr.h.a = hdr.h.a - 1) { if (hdr.h.a == 2) { exit; } } hdr.h.b = 0;".replace("; ;", "; true;"),
    ),
    Case(
        "range of run-time length in an action",
        {"a": 10, "b": 4},
        "loop();",
        "action loop() { hdr.h.a = 0; hdr.h.b = 4; for (bit<8> i in 1..hdr.h.b) { hdr.h.a = hdr.h.a + i; } }",
    ),
]

CALLS = [
    Case("action", {"a": 5}, "act();", "action act() { hdr.h.a = 5; }"),
    Case(
        "action with return", {"a": 1}, "act();", "action act() { hdr.h.a = 1; if (hdr.h.b != 0) return; hdr.h.a = 2; }"
    ),
    Case(
        "action with exit ends all",
        {"a": 1},
        "act(); hdr.h.a = 3;",
        "action act() { hdr.h.a = 1; exit; }",
    ),
    Case(
        "action calls action",
        {"a": 6},
        "outer(2);",
        "action inner(bit<8> x, bit<8> y) { hdr.h.a = x + y; } action outer(bit<8> x) { inner(x, x + 2); }",
    ),
    Case(
        "directed parameters of an action",
        {"a": 7, "b": A, "c": C + 1},
        "bit<8> o; act(hdr.h.a, o, hdr.h.c); hdr.h.b = o; hdr.h.a = 7;",
        "action act(in bit<8> i, out bit<8> o, inout bit<16> io) { o = i; io = io + 1; }",
    ),
    Case(
        "copy-out after the body",
        {"a": 2},
        "act(hdr.h.a);",
        "action act(inout bit<8> x) { x = 2; hdr.h.a = 9; }",
    ),
    Case(
        "copy-in before the body",
        {"a": 9, "b": A},
        "act(hdr.h.a);",
        "action act(in bit<8> x) { hdr.h.a = 9; hdr.h.b = x; }",
    ),
    Case(
        "copy-out in order of parameters",
        {"a": 2},
        "act(hdr.h.a, hdr.h.a);",
        "action act(out bit<8> x, out bit<8> y) { y = 2; x = 1; }",
    ),
    Case(
        "copy-out when exit ends the call",
        {"a": 3},
        "act(hdr.h.a); hdr.h.b = 1;",
        "action act(inout bit<8> x) { x = 3; hdr.h.a = 1; exit; }",
    ),
    Case(
        "copy-out of all calls when exit ends them",
        {"a": 5},
        "outer(hdr.h.a); hdr.h.b = 1;",
        "action inner(inout bit<8> y) { y = 5; hdr.h.a = 1; exit; } action outer(inout bit<8> x) { x = 2; inner(x); }",
    ),
    Case(
        "copy-out of a slice",
        {"c": 0x5578},
        "act(hdr.h.c[11:8]);",
        "action act(inout bit<4> x) { x = x - 1; }",
    ),
    Case(
        "function",
        {"a": B + 1},
        "hdr.h.a = f(hdr.h.b);",
        top="bit<8> f(in bit<8> x) { return x + 1; }",
    ),
    Case(
        "function with several returns",
        {"a": 1, "b": 3},
        "hdr.h.a = f(0); hdr.h.b = f(9);",
        top="bit<8> f(in bit<8> x) { if (x == 0) return 1; if (x == 1) { return 2; } return 3; }",
    ),
    Case(
        "function changes its argument",
        {"a": A + 1, "b": A + 2},
        "hdr.h.b = f(hdr.h.a);",
        top="bit<8> f(inout bit<8> x) { x = x + 1; return x + 1; }",
    ),
    Case(
        "generic function",
        {"a": B, "b": A, "c": C},
        "swap<bit<8>>(hdr.h.a, hdr.h.b); swap<bit<16>>(hdr.h.c, hdr.h.c);",
        top="void swap<T>(inout T x, inout T y) { T z = x; x = y; y = z; }",
    ),
    Case(
        "operands from left to right",
        {"a": A + 1, "b": (A + 1) * 16 + A + 1 & 0xFF},
        "hdr.h.b = f(hdr.h.a) * 16 + hdr.h.a;",
        top="bit<8> f(inout bit<8> x) { x = x + 1; return x; }",
    ),
    Case(
        "earlier operand keeps its value",
        {"a": A + 1, "b": A + (A + 1) & 0xFF},
        "hdr.h.b = hdr.h.a + f(hdr.h.a);",
        top="bit<8> f(inout bit<8> x) { x = x + 1; return x; }",
    ),
    Case(
        "inout takes its value before later arguments",
        {"a": A + 3},
        "add(hdr.h.a, f(hdr.h.a));",
        "action add(inout bit<8> x, in bit<8> y) { x = x + y; }",
        top="bit<8> f(inout bit<8> x) { x = 99; return 3; }",
    ),
    Case(
        "the right side of && is not evaluated",
        {"b": 1},
        "if (hdr.h.b == 0 && f(hdr.h.a)) { hdr.h.b = 9; } else { hdr.h.b = 1; }",
        top="bool f(inout bit<8> x) { x = 0; return true; }",
    ),
    Case(
        "the right side of || is not evaluated",
        {"b": 9},
        "if (hdr.h.b != 0 || f(hdr.h.a)) { hdr.h.b = 9; } else { hdr.h.b = 1; }",
        top="bool f(inout bit<8> x) { x = 0; return true; }",
    ),
    Case(
        "only one side of ?: is evaluated",
        {"b": 5},
        "hdr.h.b = hdr.h.b != 0 ? 8w5 : f(hdr.h.a);",
        top="bit<8> f(inout bit<8> x) { x = 0; return 7; }",
    ),
    Case(
        "index is evaluated before the right side",
        {"a": 1, "b": 0},
        "bit<8>[2] s = {7, 9}; hdr.h.a = 0; s[0] = f(hdr.h.a); hdr.h.b = s[0] - 1;",
        top="bit<8> f(inout bit<8> x) { x = x + 1; return x; }",
    ),
]

CONTROLS = [
    Case(
        "sub-control",
        {"a": A + 1, "c": 4},
        "bit<16> n; sub.apply(hdr.h.a, n); hdr.h.c = n;",
        "Sub() sub;",
        "control Sub(inout bit<8> x, out bit<16> y) { apply { x = x + 1; y = 4; } }",
    ),
    Case(
        "constructor argument",
        {"a": A + 3, "b": B + 40},
        "three.apply(hdr.h.a); forty.apply(hdr.h.b);",
        "Add(3) three; Add(40) forty;",
        "control Add(inout bit<8> x)(bit<8> n) { apply { x = x + n; } }",
    ),
    Case(
        "one instance applied twice",
        {"a": A + 3, "b": B + 3},
        "three.apply(hdr.h.a); three.apply(hdr.h.b);",
        "Add(3) three;",
        "control Add(inout bit<8> x)(bit<8> n) { apply { x = x + n; } }",
    ),
    Case(
        "apply on the type",
        {"a": A + 1},
        "Inc.apply(hdr.h.a);",
        top="control Inc(inout bit<8> x) { apply { x = x + 1; } }",
    ),
    Case(
        "return in a sub-control",
        {"a": A + 1, "b": 1},
        "Inc.apply(hdr.h.a); hdr.h.b = 1;",
        top="control Inc(inout bit<8> x) { apply { x = x + 1; if (x != 0) return; x = 0; } }",
    ),
    Case(
        "exit in a sub-control copies out",
        {"a": A + 1},
        "bool t = true; if (t) { Inc.apply(hdr.h.a); } hdr.h.b = 1;",
        top="control Inc(inout bit<8> x) { apply { x = x + 1; exit; } }",
    ),
    Case(
        "headers passed through",
        {"a": 9},
        "Sub.apply(hdr, sm);",
        top="control Sub(inout headers h, inout standard_metadata_t s) { apply { h.h.a = 9; s.egress_spec = 2; } }",
    ),
    Case(
        "a control as constructor argument",
        {"a": (A * 2 + 1) & 0xFF},
        "twice.apply(hdr.h.a);",
        "Inc() inc; Twice(inc) twice;",
        "control Any(inout bit<8> x); control Inc(inout bit<8> x) { apply { x = x + 1; } } "
        "control Twice(inout bit<8> x)(Any c) { apply { x = x << 1; c.apply(x); } }",
    ),
    Case(
        "locals of a sub-control start anew",
        {"a": 1, "b": 1},
        "once.apply(hdr.h.a); once.apply(hdr.h.b);",
        "Once() once;",
        "control Once(out bit<8> x) { bit<8> n = 0; apply { n = n + 1; x = n; } }",
    ),
]

HEADERS = [
    Case(
        "set valid and invalid",
        {"a": 1, "b": 0},
        "h_t x; x.setInvalid(); if (!x.isValid()) hdr.h.a = 1; x.setValid(); x.b = 0; if (x.isValid()) hdr.h.b = x.b;",
    ),
    Case(
        "header copy keeps validity",
        {"a": 2},
        "h_t x; h_t y; x.setInvalid(); y = hdr.h; y = x; if (!y.isValid()) hdr.h.a = 2;",
    ),
    Case(
        "stack with run-time index",
        {"a": 3, "b": 9, "c": 2},
        "meta.i = 1; hdr.s[0].setValid(); hdr.s[1].setValid(); hdr.s[1].v = 3; hdr.h.a = hdr.s[meta.i].v; "
        "hdr.s[meta.i].v = 9; hdr.h.b = hdr.s[1].v; hdr.h.c = 0; if (hdr.s[meta.i].isValid()) hdr.h.c = 2; "
        "hdr.s[0].setInvalid(); hdr.s[1].setInvalid();",
        more={"types": "header e_t { bit<8> v; }", "headers": "e_t[4] s;", "meta": "bit<2> i;"},
    ),
    Case(
        "run-time index beyond the stack",
        {"a": 0},
        "hdr.s[0].setValid(); hdr.s[0].v = 5; hdr.s[hdr.h.b].v = 7; hdr.h.a = hdr.s[hdr.h.b].v; hdr.s[0].setInvalid();",
        more={"types": "header e_t { bit<8> v; }", "headers": "e_t[2] s;"},
    ),
    Case(
        "push and pop",
        {"a": 1, "b": 7, "c": 1},
        "hdr.s[0].setValid(); hdr.s[0].v = 7; hdr.s.push_front(1); if (!hdr.s[0].isValid()) hdr.h.a = 1; "
        "hdr.h.b = hdr.s[1].v; hdr.s.pop_front(2); hdr.h.c = 0; if (!hdr.s[1].isValid()) hdr.h.c = 1;",
        more={"types": "header e_t { bit<8> v; }", "headers": "e_t[2] s;"},
    ),
    Case(
        "stack copy and comparison",
        {"a": 1, "b": 6},
        "e_t[2] t; hdr.s[1].setValid(); hdr.s[1].v = 6; t = hdr.s; if (t == hdr.s) hdr.h.a = 1; hdr.h.b = t[1].v; "
        "hdr.s[1].setInvalid();",
        more={"types": "header e_t { bit<8> v; }", "headers": "e_t[2] s;"},
    ),
    Case(
        "union keeps one member",
        {"a": 1, "b": 5},
        "hdr.u.x.setValid(); hdr.u.y.setValid(); hdr.u.y.v = 5; if (!hdr.u.x.isValid() && hdr.u.isValid()) hdr.h.a = 1;"
        " hdr.h.b = hdr.u.y.v; hdr.u.y.setInvalid();",
        more={
            "types": "header x_t { bit<8> v; } header y_t { bit<8> v; } header_union u_t { x_t x; y_t y; }",
            "headers": "u_t u;",
        },
    ),
    Case(
        "invalid header expression",
        {"a": 4},
        "h_t x = hdr.h; x = (h_t){#}; if (!x.isValid()) hdr.h.a = 4;",
    ),
]

ALL = STATEMENTS + CALLS + CONTROLS + HEADERS


@pytest.mark.parametrize("case", ALL, ids=[c.name for c in ALL])
def test_control_block_computes_the_expected_fields(case: Case) -> None:
    assert case.result() == INPUT | case.changes


# --- tables ----------------------------------------------------------------------------------------------------

ACTIONS = "action set(bit<8> v) { hdr.h.a = v; } action other() { hdr.h.b = 1; } action drop() { mark_to_drop(sm); }"


def table(key: str, rest: str = "", actions: str = "set; other; drop; NoAction;") -> str:
    return f"{ACTIONS} table t {{ key = {{ {key} }} actions = {{ {actions} }} {rest} }}"


def test_exact_and_default() -> None:
    sw = switch(locals=table("hdr.h.b: exact;", "default_action = set(7);"), body="t.apply();")
    sw.add("Ig.t", [(B, 0)], "set", [99])
    assert run_on(sw) == INPUT | {"a": 99}
    assert run_on(sw, b=1) == INPUT | {"a": 7, "b": 1}
    sw.set_default("Ig.t", "other", [])
    assert run_on(sw, b=2) == INPUT | {"b": 1}


def test_lpm_prefers_the_longest_prefix() -> None:
    sw = switch(locals=table("hdr.h.d: lpm;"), body="t.apply();")
    sw.add("Ig.t", [(0x9A000000, 8)], "set", [1])
    sw.add("Ig.t", [(0x9ABC0000, 16)], "set", [2])
    sw.add("Ig.t", [(0, 0)], "set", [3])
    assert run_on(sw)["a"] == 2
    assert run_on(sw, d=0x9A000001)["a"] == 1
    assert run_on(sw, d=0)["a"] == 3


def test_ternary_range_and_optional_entries() -> None:
    entries = """const entries = {
        (0x34, 0x5000 &&& 0xf000, 0x9abcdef0) : set(1);
        (0x34, _, 0 .. 0xffff) : set(2);
        (_, 0x1234, _) : set(3);
    }"""
    key = "hdr.h.b: optional; hdr.h.c: ternary; hdr.h.d: range;"
    sw = switch(locals=table(key, entries + " default_action = set(9);"), body="t.apply();")
    assert run_on(sw)["a"] == 1
    assert run_on(sw, c=0x6000, d=5)["a"] == 2
    assert run_on(sw, b=0, c=0x1234)["a"] == 3
    assert run_on(sw, b=0)["a"] == 9


def test_entry_priorities() -> None:
    rest = "size = 16; entries = { priority = 10: _ : set(1); priority = 20: 0x34 &&& 0xff : set(2); }"
    sw = switch(locals=table("hdr.h.b: ternary;", rest), body="t.apply();")
    assert sw.tables["Ig.t"]["max_size"] == 16  # More can be added.
    assert run_on(sw)["a"] == 2
    assert run_on(sw, b=0)["a"] == 1


def test_annotated_priorities_are_those_of_the_switch() -> None:
    """As p4c has it: the lowest number wins."""
    rest = "const entries = { _ : set(1) @priority(3); 0x34 &&& 0xff : set(2) @priority(2); }"
    sw = switch(locals=table("hdr.h.b: ternary;", rest), body="t.apply();")
    assert run_on(sw)["a"] == 2
    assert [e["priority"] for e in sw.tables["Ig.t"]["entries"]] == [3, 2]


def test_smallest_priority_wins_when_asked() -> None:
    rest = (
        "largest_priority_wins = false; entries = { priority = 20: 0x34 &&& 0xff : set(2); priority = 10: _ : set(1); }"
    )
    sw = switch(locals=table("hdr.h.b: ternary;", rest), body="t.apply();")
    assert run_on(sw)["a"] == 1


def test_computed_and_masked_keys() -> None:
    both = switch(locals=table('(hdr.h.c + 1) & 0xf: exact @name("low");'), body="t.apply();")
    both.add("Ig.t", [((C + 1) & 0xF, 0)], "set", [5])
    assert [run_on(both, c=c)["a"] for c in (C, C ^ 0x10, C ^ 1)] == [5, 5, A]
    key = 'hdr.h.c + 1: exact @name("sum"); hdr.h.b & 0xf0: ternary; hdr.h.d[15:8]: exact; hdr.h.isValid(): exact;'
    sw = switch(locals=table(key), body="t.apply();")
    sw.add("Ig.t", [(C + 1, 0), (0x30, 0xFF), (0xDE, 0), (1, 0)], "set", [5])
    assert run_on(sw)["a"] == 5
    assert run_on(sw, b=0x44)["a"] == A
    names = [k["name"] for k in sw.tables["Ig.t"]["key"]]
    assert names == ["sum", "hdr.h.b & 0xf0", "hdr.h.d[15:8]", "hdr.h.$valid$"]


def test_a_widened_key_has_the_width_of_the_cast() -> None:
    key = '(bit<16>)hdr.h.b: exact @name("wide"); (bit<4>)hdr.h.c: exact @name("narrow");'
    sw = switch(locals=table(key), body="t.apply();")
    fields = [key.width for key in sw.program.tables["Ig.t"].key]
    assert fields == [16, 4]
    sw.add("Ig.t", [(B, 0), (C & 15, 0)], "set", [5])
    assert run_on(sw)["a"] == 5
    assert run_on(sw, c=C + 1)["a"] == A


@pytest.mark.parametrize(
    ("condition", "hit", "miss"),
    [
        ("t.apply().hit", 1, 2),
        ("t.apply().miss", 2, 1),
        ("!t.apply().hit", 2, 1),
        ("t.apply().hit && hdr.h.b == 0x34", 1, 2),
    ],
)
def test_hit_and_miss(condition: str, hit: int, miss: int) -> None:
    body = f"if ({condition}) {{ hdr.h.c = 1; }} else {{ hdr.h.c = 2; }}"
    sw = switch(locals=table("hdr.h.d: exact;"), body=body)
    sw.add("Ig.t", [(D, 0)], "other", [])
    assert run_on(sw, b=B)["c"] == (hit if "b ==" not in condition else miss)
    assert run_on(sw, d=0)["c"] == miss


def test_switch_on_action_run() -> None:
    body = """switch (t.apply().action_run) {
        set: { hdr.h.c = 1; }
        other: drop: { hdr.h.c = 2; sm.egress_spec = 2; }
        default: { hdr.h.c = 3; }
    } hdr.h.d = 0;"""
    sw = switch(locals=table("hdr.h.b: exact;", "default_action = NoAction();"), body=body)
    for value, action, data, want in (
        (1, "set", [4], 1),
        (2, "other", [], 2),
        (3, "drop", [], 2),
        (4, "NoAction", [], 3),
    ):
        sw.add("Ig.t", [(value, 0)], action, data)
        out = run_on(sw, b=value)
        assert (out["c"], out["d"]) == (want, 0)
    assert run_on(sw, b=9)["c"] == 3


def test_a_table_applied_in_two_branches() -> None:
    body = "if (hdr.h.c == 0) { t.apply(); hdr.h.c = 1; } else { t.apply(); hdr.h.c = 2; } hdr.h.d = 0;"
    sw = switch(locals=table("hdr.h.b: exact;", "default_action = set(7);"), body=body)
    assert run_on(sw) == {"a": 7, "b": B, "c": 2, "d": 0}
    assert run_on(sw, c=0) == {"a": 7, "b": B, "c": 1, "d": 0}


def test_a_table_applied_in_two_branches_has_the_cases_of_each() -> None:
    first = "switch (t.apply().action_run) { set: { hdr.h.d = 1; } default: { hdr.h.d = 2; } }"
    second = "switch (t.apply().action_run) { other: { hdr.h.d = 3; } default: { hdr.h.d = 4; } }"
    body = f"if (hdr.h.c == 0) {{ {first} }} else {{ {second} }}"
    sw = switch(locals=table("hdr.h.b: exact;", "default_action = other();"), body=body)
    sw.add("Ig.t", [(B, 0)], "set", [4])
    assert [run_on(sw, b=b, c=c)["d"] for b in (B, 9) for c in (0, 1)] == [1, 4, 2, 3]


def test_actions_with_directed_arguments_in_a_table() -> None:
    text = """
        action put(in bit<8> x, out bit<8> y, bit<8> z) { y = x + z; }
        table t { key = { hdr.h.b: exact; } actions = { put(hdr.h.a, hdr.h.b); NoAction; } }
    """
    sw = switch(locals=text, body="t.apply();")
    sw.add("Ig.t", [(B, 0)], "put", [5])
    assert run_on(sw) == INPUT | {"b": A + 5}


def test_signed_and_boolean_action_data() -> None:
    text = """
        action put(int<8> x, bool y) { if (x < 0 && y) { hdr.h.c = (bit<16>)(int<16>)x; } }
        table t { key = { hdr.h.b: exact; } actions = { put; NoAction; } }
    """
    sw = switch(locals=text, body="t.apply();")
    sw.add("Ig.t", [(B, 0)], "put", [0xFE, 1])
    assert run_on(sw)["c"] == 0xFFFE


def test_exit_in_a_table_action_of_a_copied_control() -> None:
    """The control is applied twice, so its parameter is copied: exit must copy it back first."""
    top = """control Sub(inout bit<8> x) {
        action leave() { x = 9; exit; }
        table t { actions = { leave; } default_action = leave(); }
        apply { t.apply(); x = 1; }
    }"""
    sw = switch(
        top=top,
        locals="Sub() sub;",
        body="if (hdr.h.b == 0) { sub.apply(hdr.h.a); } else { sub.apply(hdr.h.c[7:0]); } hdr.h.d = 0;",
    )
    assert run_on(sw) == INPUT | {"c": 0x5609}
    assert run_on(sw, b=0) == INPUT | {"a": 9, "b": 0}


def test_sub_control_tables_have_qualified_names() -> None:
    top = f"""control Sub(inout headers hdr, inout standard_metadata_t sm) {{
        {table("hdr.h.b: exact;")} apply {{ t.apply(); }}
    }}"""
    sw = switch(top=top, locals='Sub() one; @name("second") Sub() two;', body="one.apply(hdr, sm); two.apply(hdr, sm);")
    assert {"Ig.one.t", "Ig.second.t"} <= set(sw.tables)
    sw.add("Ig.one.t", [(B, 0)], "set", [1])
    sw.add("Ig.second.t", [(B, 0)], "other", [])
    assert run_on(sw) == INPUT | {"a": 1, "b": 1}


DUPLICATES = {
    "exact": ("exact", "1: set(3); 2: set(4); /*!*/1: set(4);"),
    "lpm": ("lpm", "0x10 &&& 0xf0: set(3); /*!*/0x1f &&& 0xf0: set(4);"),
    "lpm of all": ("lpm", "_: set(3); /*!*/0 &&& 0: set(4);"),
    "ternary": ("ternary", "priority = 3: 0x10 &&& 0xf0: set(3); priority = 3: /*!*/0x1f &&& 0xf0: set(4);"),
    "range": ("range", "priority = 3: 3..5: set(3); priority = 3: /*!*/3..5: set(4);"),
}


@pytest.mark.parametrize("name", DUPLICATES)
def test_an_entry_that_is_there_twice_is_refused(name: str) -> None:
    """BMv2 refuses to load such a program ("Duplicate entries in table initializer", P4Objects.cpp)."""
    kind, entries = DUPLICATES[name]
    table = f"table t {{ key = {{ hdr.h.a: {kind}; }} actions = {{ set; }} entries = {{ {entries} }} }}"
    text, place = marked(source(locals="action set(bit<8> v) { hdr.h.b = v; } " + table, body="t.apply();"))
    with pytest.raises(CompileError) as caught:
        compile_program_text(text, "case.p4")
    (found,) = [d for d in caught.value.diagnostics if d.severity == "error"]
    assert (found.pos.line, found.pos.col) == place
    assert re.match(r"the entry at case.p4:\d+:\d+ of table 't' has the same key and priority", found.message)


def test_entries_of_one_key_and_two_priorities_are_no_duplicates() -> None:
    entries = "const entries = { 0x12 &&& 0xff: set(3); 0x12 &&& 0xff: set(4); }"
    table = f"table t {{ key = {{ hdr.h.a: ternary; }} actions = {{ set; }} {entries} }}"
    assert run(locals="action set(bit<8> v) { hdr.h.b = v; } " + table, body="t.apply();")["b"] == 3
