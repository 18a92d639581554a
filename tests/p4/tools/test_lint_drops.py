"""What `p4lite lint` says of drops that are taken back, of selects without a default, and of tables applied twice."""

from __future__ import annotations

import pathlib

import pytest

import p4lite
from p4lite.compiler import compile_text, frontend
from p4lite.compiler.diagnostics import CompileError
from p4lite_tools.advice import lint
from p4lite_tools.interpreter import events as ev
from p4lite_tools.trace import Lines, Recorder
from support.p4.source import marked, program

LOCALS = """
action deny() { mark_to_drop(sm); }
action leave() { mark_to_drop(sm); exit; }
action flagged() { mark_to_drop(sm); meta.flag = true; }
action pick(bit<8> n) { meta.a = n; }
action hop(bit<9> q) { sm.egress_spec = q; }
action flood(bit<16> g) { sm.mcast_grp = g; }
table groups { key = { hdr.eth.dst: exact; } actions = { pick; deny; } default_action = deny(); }
table firm { key = { hdr.eth.dst: exact; } actions = { pick; leave; } default_action = leave(); }
table flags { key = { hdr.eth.dst: exact; } actions = { pick; flagged; } default_action = flagged(); }
table misses { key = { hdr.eth.dst: exact; } actions = { pick; @defaultonly deny; } default_action = deny(); }
table hops { key = { meta.b: exact; } actions = { hop; deny; } default_action = deny();
             const entries = { 0: hop(2); } }
table floods { key = { meta.b: exact; } actions = { flood; NoAction; } default_action = NoAction(); }
table marks { key = { meta.b: exact; } actions = { pick; NoAction; } default_action = NoAction(); }
table dropped { key = { meta.flag: exact; } actions = { hop; NoAction; } default_action = NoAction(); }
"""
NESTED = """
control Hop(inout meta_t m, inout standard_metadata_t s) {
    action hop(bit<9> q) { s.egress_spec = q; }
    table hops { key = { m.b: exact; } actions = { hop; NoAction; } default_action = NoAction(); }
    apply { %s }
}
control Deny(inout meta_t m, inout standard_metadata_t s) {
    action deny() { mark_to_drop(s); }
    table groups { key = { m.a: exact; } actions = { deny; NoAction; } default_action = NoAction(); }
    apply { groups.apply(); %s }
}
"""
NEST = "Hop() hop_on; Deny() deny_some; "

TAKEN_BACK = {
    "two tables": "groups.apply(); /*!*/hops.apply();",
    "multicast": "groups.apply(); /*!*/floods.apply();",
    "a statement": "groups.apply(); /*!*/sm.egress_spec = 3;",
    "an action called directly": "if (meta.flag) { deny(); } /*!*/hop(1);",
    "in one branch": "if (meta.flag) { groups.apply(); } /*!*/hops.apply();",
    "in the other branch": "if (meta.flag) { meta.b = 1; } else { deny(); } if (meta.b == 0) { /*!*/hops.apply(); }",
    "under the same condition": "if (meta.flag) { groups.apply(); } if (meta.flag) { /*!*/hops.apply(); }",
    "under conditions that both can hold": "if (meta.b > 1) { groups.apply(); } if (meta.b < 9) { /*!*/hops.apply(); }",
    "after the hit of a table that may drop": "if (groups.apply().hit) { /*!*/hops.apply(); }",
    "in a case of another action": "groups.apply(); switch (marks.apply().action_run) { pick: { /*!*/hop(1); } }",
    "by a return": "if (meta.flag) { groups.apply(); if (meta.b == 1) { return; } } /*!*/hops.apply();",
    "in a loop": "for (bit<8> i in 0 .. 3) { if (i == meta.b) { /*!*/hop(1); } if (meta.flag) { deny(); } }",
}
KEPT = {
    "only after a hit without drops": "if (misses.apply().hit) { hops.apply(); }",
    "only after no miss": "if (!misses.apply().miss) { hops.apply(); }",
    "only after another action": "switch (groups.apply().action_run) { pick: { hops.apply(); } }",
    "by default of a switch": "switch (groups.apply().action_run) { deny: { } default: { hops.apply(); } }",
    "exit": "firm.apply(); hops.apply();",
    "return": "if (meta.flag) { deny(); return; } hops.apply();",
    "the other branch": "if (meta.flag) { deny(); } else { hops.apply(); }",
    "an opposite condition": "if (!hdr.eth.isValid()) { deny(); } if (hdr.eth.isValid()) { hops.apply(); }",
    "conditions that exclude each other": "if (meta.b == 0) { deny(); } if (meta.b > 1) { hops.apply(); }",
    "a flag of the action": "meta.flag = false; flags.apply(); if (!meta.flag) { hops.apply(); }",
    "a field of the other action": "groups.apply(); if (meta.a != 0) { hops.apply(); }",
    "a flag beside the drop": "if (meta.w == 7) { deny(); meta.b = 9; } if (meta.b != 9) { hops.apply(); }",
    "a flag as key": "flags.apply(); dropped.apply();",
    "a test of egress_spec": "groups.apply(); if (sm.egress_spec != 511) { hops.apply(); }",
    "a variable with the result": "bool ok = misses.apply().hit; if (ok) { hops.apply(); }",
    "the drop port": "groups.apply(); sm.egress_spec = 511; sm.mcast_grp = 0;",
    "a drop by default": "deny(); if (meta.flag) { hop(1); }",
    "the drop comes last": "hops.apply(); groups.apply();",
}


def drops(text: str) -> list[tuple[int, int]]:
    """Return the places where a drop is taken back."""
    found = [d for d in lint(frontend.load_text(text, "a.p4")) if "the drop" in d.message]
    return [(d.pos.line, d.pos.col) for d in found]


@pytest.mark.parametrize("name", TAKEN_BACK)
def test_drop_that_is_taken_back_is_named_where_that_happens(name: str) -> None:
    text, place = marked(program(locals=LOCALS, apply=TAKEN_BACK[name]))
    assert drops(text) == [place]


@pytest.mark.parametrize("name", KEPT)
def test_program_that_keeps_its_drops_is_no_fault(name: str) -> None:
    assert drops(program(locals=LOCALS, apply=KEPT[name])) == []


@pytest.mark.parametrize(
    ("hop", "deny", "apply"),
    [
        ("/*!*/hops.apply();", "", "deny_some.apply(meta, sm); hop_on.apply(meta, sm);"),
        ("/*!*/hops.apply();", "return;", "deny_some.apply(meta, sm); hop_on.apply(meta, sm);"),
        ("hops.apply();", "/*!*/s.egress_spec = 1;", "hop_on.apply(meta, sm); deny_some.apply(meta, sm);"),
        ("hops.apply();", "", "if (meta.flag) { deny_some.apply(meta, sm); } /*!*/sm.egress_spec = 1;"),
    ],
)
def test_nested_controls(hop: str, deny: str, apply: str) -> None:
    text, place = marked(program(top=NESTED % (hop, deny), locals=NEST, apply=apply))
    assert drops(text) == [place]


def test_arguments_stand_for_the_parameters_of_nested_controls() -> None:
    top = NESTED % ("if (m.a == 0) { hops.apply(); }", "")
    apply = "if (meta.a == 1) { deny_some.apply(meta, sm); } hop_on.apply(meta, sm);"
    assert drops(program(top=top, locals=NEST, apply=apply)) == []


def test_egress_has_its_own_drops() -> None:
    text = program(locals=LOCALS, apply="groups.apply();")
    empty = "sm) { apply { } }\ncontrol MyCompute"
    assert empty in text
    for apply, count in (
        ("hops.apply();", 0),
        ("groups.apply(); hops.apply();", 1),
        ("groups.apply(); floods.apply();", 0),
    ):
        egress = "sm) {" + LOCALS + "apply { " + apply + " } }\ncontrol MyCompute"
        assert len(drops(text.replace(empty, egress))) == count


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("/*!*/select(meta.a) { 1: accept; 2: reject; }", True),
        ("/*!*/select(meta.flag) { true: accept; }", True),
        ("/*!*/select(meta.a, meta.b) { (1, _): accept; (_, 2): accept; }", True),
        ("/*!*/select(meta.a) { 1: accept; default: accept; }", False),
        ("/*!*/select(meta.a, meta.b) { (1, 2): accept; (_, _): accept; }", False),
        ("/*!*/select(meta.a) { 1: accept; 0 &&& 0: accept; }", False),
        ("/*!*/select(meta.flag) { true: accept; false: reject; }", False),
        ("/*!*/select(meta.a[1:0]) { 0: accept; 1: accept; 2: accept; 3: accept; }", False),
    ],
)
def test_select_without_a_case_for_all_values_is_named_at_the_select(select: str, said: bool) -> None:
    text, place = marked(program(states=f"state start {{\n  transition {select} }}"))
    found = [d for d in lint(frontend.load_text(text, "a.p4")) if "select has no default" in d.message]
    assert [(d.pos.line, d.pos.col) for d in found] == ([place] if said else [])


@pytest.mark.parametrize(
    ("top", "locals", "apply"),
    [
        ("", LOCALS, "hops.apply(); meta.a = 1;\n /*!*/hops.apply();"),
        ("", LOCALS, "if (meta.flag) { hops.apply(); }\n /*!*/hops.apply();"),
        ("", LOCALS, "for (bit<8> i in 0 .. 3) { /*!*/hops.apply(); }"),
        ("", LOCALS, "if (meta.flag) { if (hops.apply().hit) { meta.a = 1; } } else {\n"
                     "switch (/*!*/hops.apply().action_run) { hop: { meta.a = 1; } } }"),
        (NESTED % ("hops.apply();", ""), NEST, "hop_on.apply(meta, sm);\n /*!*/hop_on.apply(meta, sm);"),
    ],
)  # fmt: skip
def test_table_that_cannot_be_applied_twice_is_refused_at_its_second_place(top: str, locals: str, apply: str) -> None:
    text, place = marked(program(top=top, locals=locals, apply=apply))
    with pytest.raises(CompileError, match="applying table") as error:
        compile_text(text, "a.p4")
    (diagnostic,) = error.value.diagnostics
    assert (diagnostic.pos.line, diagnostic.pos.col) == place


def traced(tmp_path: pathlib.Path, text: str) -> list[tuple[ev.Event | None, str]]:
    """Return what a trace says of a packet of zeros."""
    recorder = Recorder()
    (tmp_path / "a.p4").write_text(text)
    with p4lite.Switch(p4lite.compile(tmp_path / "a.p4"), observers=[recorder]) as switch:
        switch.send(1, bytes(20))
    return Lines().told(recorder.take())


def test_trace_says_where_a_drop_is_undone(tmp_path: pathlib.Path) -> None:
    states = "state start { pkt.extract(hdr.eth); transition accept; }"
    [line] = [
        line
        for _, line in traced(tmp_path, program(locals=LOCALS, states=states, apply="groups.apply(); hops.apply();"))
        if "undoes" in line
    ]
    assert line.split(",")[0] == "  standard_metadata.egress_spec: 0x1ff -> 0x002"
    for apply in ("groups.apply();", "hops.apply(); groups.apply();", "sm.egress_spec = 3; hops.apply();"):
        lines = traced(tmp_path, program(locals=LOCALS, states=states, apply=apply))
        assert not [line for _, line in lines if "undoes" in line]
    lines = traced(tmp_path, program(locals=LOCALS, states=states, apply="groups.apply(); flood(3);"))
    assert len([line for _, line in lines if "undoes" in line]) == 1


def test_trace_has_no_match_at_the_select(tmp_path: pathlib.Path) -> None:
    states = "state start {\n  pkt.extract(hdr.eth);\n  transition /*!*/select(hdr.eth.type) { 1: accept; } }"
    text, place = marked(program(states=states))
    assert place is not None
    told = [(event, said) for event, said in traced(tmp_path, text) if event is not None and "oMatch" in said]
    assert len(told) == 3
    assert {event.where.line if event.where is not None else 0 for event, _ in told} == {place[0]}


def test_drop_that_the_compiler_warns_of_is_named_once() -> None:
    text, place = marked(program(apply="if (meta.flag) { mark_to_drop(sm); /*!*/sm.egress_spec = 3; }"))
    found = [(d.pos.line, d.pos.col) for d in lint(frontend.load_text(text, "a.p4"))]
    # An operator's position is that of the dot.
    assert [line for line, _ in found] == [place[0] if place is not None else 0]
