"""Programs that p4c compiles wrongly: p4lite does what the specification says (docs/conformance.md lists them)."""

from __future__ import annotations

import pytest

from p4lite.switch.program.entry import ActionCall, Exact, GroupRef, MemberRef
from support.p4.cases import INPUT, pack, run, run_on, switch

STACK = {
    "types": "header e_t { bit<8> v; }",
    "headers": "e_t[2] s; e_t one;",
    "parser": "state start { pkt.extract(hdr.h); pkt.extract(hdr.s.next); pkt.extract(hdr.s.next);"
    " pkt.extract(hdr.one); transition accept; }",
    "emit": "pkt.emit(hdr.s); pkt.emit(hdr.one);",
}


def elements(body: str, top: str = "") -> list[int]:
    """Return the stack's two elements, which arrive as 1 and 2, and the header after them, which arrives as 3."""
    ((_, sent),) = switch(**STACK, top=top, body=body).process(0, pack() + b"\x01\x02\x03")
    return list(sent[-3:])


def test_a_loop_in_an_apply_block_runs_as_often_as_it_says() -> None:
    assert run(body="for (bit<8> i = 0; i < 4; i = i + 1) { hdr.h.a = hdr.h.a + 1; }") == INPUT | {"a": 0x16}


def test_bits_as_an_out_argument_are_written_when_the_action_exits() -> None:
    action = "action leave(out bit<8> x) { x = 7; exit; }"
    assert run(locals=action, body="leave(hdr.h.c[7:0]); hdr.h.a = 1;") == INPUT | {"c": 0x5607}
    outer = f"{action} action outer(inout bit<16> y) {{ leave(y[15:8]); y = 1; }}"
    assert run(locals=outer, body="outer(hdr.h.c); hdr.h.a = 1;") == INPUT | {"c": 0x0778}


def test_the_index_left_of_an_assignment_is_evaluated_before_its_value() -> None:
    step = "bit<8> f(inout bit<8> i) { i = i + 1; return 9; }"
    assert elements("bit<8> i = 0; hdr.s[i].v = f(i);", step) == [9, 2, 3]
    assert elements("bit<8> i = 0; hdr.s[i].v += f(i);", step) == [10, 2, 3]


def test_an_operator_assignment_takes_the_value_before_a_call_changes_it() -> None:
    clear = "bit<8> f(inout bit<8> x) { x = 0; return 1; }"
    assert run(top=clear, body="hdr.h.a |= f(hdr.h.a);") == INPUT | {"a": 0x13}
    assert run(top=clear, body="hdr.h.a += f(hdr.h.a);") == INPUT | {"a": 0x13}


def test_a_header_is_copied_to_and_from_an_element_with_a_computed_index() -> None:
    assert elements("bit<8> i = hdr.h.a - 0x11; hdr.s[i] = hdr.one;") == [1, 3, 3]
    assert elements("bit<8> i = hdr.h.a - 0x11; hdr.one = hdr.s[i];") == [1, 2, 2]
    assert elements("bit<8> i = hdr.h.a - 0x11; hdr.s[i - 1] = hdr.s[i];") == [2, 2, 3]


TWO = {"headers": "h_t o;", "emit": "pkt.emit(hdr.o);", "body": "if (hdr.o.isValid()) { hdr.h.a = 9; }"}


@pytest.mark.parametrize(
    ("key", "case"),
    [("hdr.h.a, hdr.h.b", "(_, 5 &&& 0)"), ("8w3, hdr.h.b", "(3, 0x34)")],
    ids=["a mask of zero matches all", "a constant in the key"],
)
def test_a_case_of_a_select_matches(key: str, case: str) -> None:
    start = f"state start {{ pkt.extract(hdr.h); transition select({key}) {{ {case}: more; default: accept; }} }}"
    parser = f"{start} state more {{ pkt.extract(hdr.o); transition accept; }}"
    ((_, sent),) = switch(**TWO, parser=parser).process(0, pack() + bytes(8))
    assert sent[0] == 9


def test_a_struct_that_a_condition_chooses_is_compared() -> None:
    parts = {"types": "struct in_t { bit<8> n; bool f; }", "meta": "in_t x; in_t y;"}
    body = "meta.x = {hdr.h.a, true}; meta.y = {8w5, false};"
    chosen = "if ((hdr.h.a == 0x12 ? meta.x : meta.y) == meta.x) { hdr.h.b = 7; }"
    assert run(**parts, body=f"{body} {chosen}") == INPUT | {"b": 7}


def test_bits_of_a_signed_number_are_written() -> None:
    assert run(meta="int<16> s;", body="meta.s[7:0] = hdr.h.a; hdr.h.b = meta.s[7:0];") == INPUT | {"b": 0x12}
    action = "action put(out bit<8> v) { v = hdr.h.a; }"
    body = "put(meta.s[8:1]); hdr.h.b = meta.s[8:1];"
    assert run(meta="int<13> s;", locals=action, body=body) == INPUT | {"b": 0x12}


@pytest.mark.parametrize("key", ["hdr.h.b & 1", "1 & hdr.h.b"])
def test_a_member_is_selected_by_a_computed_key(key: str) -> None:
    """BMv2 has masks for keys, but not for a selector's inputs."""
    key = f'hdr.h.a: exact; ({key}): selector @name("k");'
    table = f"table t {{ key = {{ {key} }} actions = {{ put; NoAction; }} implementation = ap; }}"
    parts = f"action put(bit<8> v) {{ hdr.h.a = v; }} action_selector(HashAlgorithm.identity, 16, 16) ap; {table}"
    target = switch(locals=parts, body="t.apply();")
    for number, value in enumerate((5, 6, 7)):
        target.member_add("Ig.ap", ActionCall("Ig.put", (value,)), number)
    target.group_add("Ig.ap", (0, 1, 2), 1)
    target.table_add("Ig.t", (Exact(0x12),), GroupRef(1))
    assert [run_on(target, b=b)["a"] for b in range(4)] == [5, 6, 5, 6]


def test_a_miss_of_a_table_with_an_action_profile_reaches_the_default_of_a_switch() -> None:
    parts = (
        "action put(bit<8> v) { hdr.h.a = v; } action_profile(16) ap;"
        " table t { key = { hdr.h.a: exact; } actions = { put; NoAction; } implementation = ap; }"
    )
    body = "switch (t.apply().action_run) { put: { hdr.h.b = 1; } default: { hdr.h.b = 2; } }"
    target = switch(locals=parts, body=body)
    assert run_on(target)["b"] == 2
    target.member_add("Ig.ap", ActionCall("Ig.put", (7,)), 0)
    target.table_add("Ig.t", (Exact(0x12),), MemberRef(0))
    assert run_on(target) == INPUT | {"a": 7, "b": 1}


def test_a_checksum_covers_its_own_field() -> None:
    update = "update_checksum(true, {hdr.h.c, hdr.h.a, hdr.h.b}, hdr.h.c, HashAlgorithm.csum16);"
    assert run(update=update) == INPUT | {"c": 0xFFFF ^ (0x1234 + 0x5678)}
