"""Control operations are refused by the compiled switch and by the interpreter in the same words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import p4lite
from p4lite.api.values import Control
from p4lite.switch.errors import ControlError
from p4lite.switch.program.entry import ActionCall, Exact, GroupRef, MemberRef
from support.p4.cases import source

PROGRAM = source(
    locals="""
        action pick(bit<8> v) { hdr.h.a = v; }
        action_profile(2) flat;
        action_selector(HashAlgorithm.crc16, 2, 14) sel;
        table f { key = { hdr.h.b: exact; } actions = { pick; NoAction; } implementation = flat; }
        table s { key = { hdr.h.b: exact; hdr.h.d: selector; } actions = { pick; NoAction; } implementation = sel; }
        table p { key = { hdr.h.b: exact; } actions = { pick; NoAction; } }
        table c { key = { hdr.h.b: exact; } actions = { pick; NoAction; } const entries = { 1: pick(1); } }
    """,
    body="f.apply(); s.apply(); p.apply(); c.apply();",
)
PICK, KEY = ActionCall("Ig.pick", (1,)), (Exact(1),)


def _twice(control: Control, profile: str, member: int | None, times: int = 2) -> None:
    for _ in range(times):
        control.member_add(profile, PICK, member)


@pytest.mark.parametrize(
    "operation",
    [
        lambda c: c.table_add("Ig.none", KEY, PICK),
        lambda c: c.table_add("Ig.c", KEY, PICK),
        lambda c: c.table_clear("Ig.c"),
        lambda c: c.table_add("Ig.f", KEY, GroupRef(0)),
        lambda c: c.table_add("Ig.f", KEY, PICK),
        lambda c: c.table_add("Ig.f", KEY, MemberRef(7)),
        lambda c: c.table_add("Ig.p", KEY, MemberRef(0)),
        lambda c: c.table_add("Ig.s", KEY, GroupRef(3)),
        lambda c: c.table_add("Ig.p", KEY, ActionCall("Ig.pick", ())),
        lambda c: c.table_add("Ig.p", KEY, ActionCall("Ig.pick", (256,))),
        lambda c: c.table_add("Ig.p", KEY, ActionCall("Ig.other", ())),
        lambda c: c.direct_counter_read("Ig.p", None),
        lambda c: c.direct_meter_config("Ig.p", None),
        lambda c: c.member_add("Ig.none", PICK),
        lambda c: c.member_add("Ig.flat", PICK, 2**32),
        lambda c: _twice(c, "Ig.flat", 5),
        lambda c: _twice(c, "Ig.flat", None, 3),
        lambda c: c.group_add("Ig.flat"),
        lambda c: c.group_add("Ig.sel", [4]),
        lambda c: c.group_add("Ig.sel", [c.member_add("Ig.sel", PICK)] * 3, max_size=2),
        lambda c: c.value_set_add("none", 1),
    ],
)
def test_both_switches_refuse_in_the_same_words(operation: Callable[[Control], object]) -> None:
    program, said = p4lite.compile(PROGRAM), []
    for backend in ("compiled", "interpreter"):
        with p4lite.Switch(program, backend=backend) as switch, pytest.raises(ControlError) as refused:
            operation(switch.control)
        said.append((refused.type, str(refused.value)))
    assert said[0] == said[1]
