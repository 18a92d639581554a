"""What the C libraries say of themselves is what Python builds, and a list that forgets something is refused."""

from __future__ import annotations

import ctypes
from dataclasses import fields
from pathlib import Path

import pytest

from p4lite.switch.errors import BuildError
from p4lite.switch.fabric.core import library
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.fabric.port import c_settings
from p4lite.switch.fabric.values import BurstLoss, LinkSettings, NotificationKind, PortStats, SwitchState, SwitchStats
from p4lite.switch.native.build import build
from p4lite.switch.native.description import Description, read_description
from p4lite.switch.runtime.abi import open_program
from p4lite.switch.runtime.loader import load_program
from support.switch.bmv2_json import Doc

SOURCE = """
#include "describe.h"
struct inner { uint16_t a, b; };
struct outer { uint32_t n; double d; struct inner rows[2]; uint8_t bytes[3]; void *p; };
static const struct p4_described rows[] = { ROWS };
static const struct p4_description description = {rows, sizeof rows / sizeof rows[0]};
__attribute__((visibility("default"))) const struct p4_description *describe(void);
const struct p4_description *describe(void) { return &description; }
"""
INNER = ["P4_STRUCT(inner)", "P4_FIELD(inner, a)", "P4_FIELD(inner, b)"]
OUTER = [
    "P4_STRUCT(outer)",
    "P4_FIELD(outer, n)",
    "P4_FIELD(outer, d)",
    "P4_NESTED(outer, rows, inner)",
    "P4_ARRAY(outer, bytes)",
    "P4_FIELD(outer, p)",
]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path))


def described(rows: list[str], more: str = "") -> Description:
    text = more + SOURCE.replace("ROWS", ", ".join(rows))
    return read_description(ctypes.CDLL(str(build("described", generated={"described.c": text}))), "describe")


def test_structures_are_laid_out_as_in_c() -> None:
    about = described([*INNER, *OUTER])
    outer = about.structures["outer"]
    assert [field[0] for field in outer._fields_] == ["n", "d", "rows", "bytes", "p"]
    assert [getattr(outer, name).offset for name in ("n", "d", "rows", "bytes", "p")] == [0, 8, 16, 24, 32]
    made = outer(n=7, d=0.5)
    made.rows[1].b = 9
    assert bytes(made)[22:24] == (9).to_bytes(2, "little")
    assert about.record("inner").unpack(b"\x01\0\x02\0") == (1, 2)


@pytest.mark.parametrize("forgotten", OUTER[1:])
def test_a_forgotten_field_is_refused(forgotten: str) -> None:
    with pytest.raises(BuildError, match=r"struct outer: something (before '\w+'|at its end) is not described"):
        described([*INNER, *[row for row in OUTER if row != forgotten]])


def test_a_field_described_as_something_else_is_refused() -> None:
    wrong = [row.replace("P4_ARRAY(outer, bytes)", "P4_FIELD(outer, bytes)") for row in OUTER]
    with pytest.raises(BuildError, match="struct outer: the field 'bytes' of 3 bytes is described as 1 'P'"):
        described([*INNER, *wrong])
    with pytest.raises(BuildError, match="struct outer: 'inner', the type of 'rows', is not described before it"):
        described(OUTER)


def test_names_of_an_enumeration() -> None:
    enum = "enum e { E_ONE, E_TWO, E_THREE };\n"
    rows = [f"P4_CONSTANT(e, E_, {name})" for name in ("TWO", "ONE", "THREE")]
    assert described([*INNER, *rows], enum).names("e") == ("one", "two", "three")
    with pytest.raises(BuildError, match="enum e does not describe itself from 0 on"):
        described([*INNER, *rows[:1], *rows[2:]], enum).names("e")


def test_a_record_with_holes_is_refused() -> None:
    rows = ["P4_STRUCT(hole)", "P4_FIELD(hole, a)", "P4_FIELD(hole, b)"]
    about = described([*INNER, *rows], "struct hole { unsigned char a; long b; };\n")
    with pytest.raises(BuildError, match="struct hole has holes"):
        about.record("hole")


def test_python_names_what_the_core_counts() -> None:
    _, about = library()
    for name in about.names("pf_port_drop"):
        assert name in str(PortStats.__doc__), name
    for name in about.names("pf_switch_drop"):
        assert name in str(SwitchStats.__doc__), name
    assert set(about.enums["pf_state"]) == {state.value for state in SwitchState}
    kinds = {kind.value for kind in NotificationKind}
    assert {*about.names("pf_notification_kind"), "idle_timeout"} == kinds


def test_each_setting_of_a_link_is_a_field_of_the_core() -> None:
    """ctypes takes unknown names without a word, so a setting that C lacks would do nothing."""
    settings = LinkSettings(burst_loss=BurstLoss(0.5, 0.25))
    with Fabric("virtual") as fabric:
        made = c_settings(fabric._core, settings)
    names = {field[0] for field in type(made)._fields_}
    assert not vars(made)
    assert (made.ge_to_bad, made.ge_to_good, made.ge_loss_bad) == (0.5, 0.25, 1.0)
    assert {each.name for each in fields(settings)} - {"burst_loss"} == {n for n in names if not n.startswith("ge_")}


def test_a_program_describes_itself() -> None:
    program = load_program(Doc().json())
    opened = open_program(program.build())
    head = opened.about.structures["p4_program"].from_address(opened.pointer)
    assert ctypes.string_at(head.name) == b"program"
    assert len(head.fields) == len(opened.about.names("p4_field_id"))
