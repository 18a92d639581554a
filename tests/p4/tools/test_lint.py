"""`p4lite lint`: what it says, and silence about programs without fault."""

from __future__ import annotations

import pathlib

import pytest

import p4lite.cli
from p4lite.compiler import frontend
from p4lite_tools.advice import lint
from support.p4.tools import saved

#: The condition that the router's table depends on; its key is in line 38, the condition in line 43.
GUARD = "hdr.ip.isValid() && hdr.ip.ttl > 1"
ROOT = pathlib.Path(__file__).parents[3]


def said(text: str) -> list[str]:
    """Return what is said of a program."""
    return [f"{d.pos.line}: {d.message}" for d in lint(frontend.load_text(text, "a.p4"))]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    state parse_ip {",
            "    state lost { transition accept; }\n    state parse_ip {",
            "leads to state 'lost'",
        ),
        ("routes.apply();", "", "table 'routes' is never applied"),
        ("        default_action = drop();\n", "", "table 'routes' has no default_action: a miss does nothing"),
        (
            "    table routes",
            "    action spare() { }\n    table routes",
            "action 'spare' is in no table and never called",
        ),
        ("bit<32> count;", "bit<32> count; bit<8> x; hdr.ip.tos = x;", "'x' may be read before it is written"),
        (GUARD, "hdr.ip.ttl > 1", "43: hdr.ip is not valid on every path of the parser, and is read without"),
        (GUARD, "hdr.ip.ttl > 1 && hdr.ip.isValid()", "43: hdr.ip is not valid on every path"),
        (GUARD, "hdr.ip.isValid() || hdr.eth.src == 1", "38: hdr.ip is not valid on every path"),
        (GUARD, "hdr.eth.src == 1", "38: hdr.ip is not valid on every path"),
    ],
)
def test_what_is_said_of_the_router(old: str, new: str, message: str) -> None:
    router = saved("router.p4")
    assert said(router) == []
    assert old in router
    (line,) = said(router.replace(old, new))
    assert message in line


@pytest.mark.parametrize(
    "condition",
    [
        "hdr.eth.type == 0x0800",
        "!(!hdr.ip.isValid() || hdr.ip.ttl == 0)",
        "hdr.ip.isValid() ? hdr.ip.ttl > 1 : false",
        "(hdr.eth.src == 1 || hdr.ip.isValid()) && hdr.ip.isValid()",
    ],
)
def test_header_that_is_tested_in_another_way_is_no_fault(condition: str) -> None:
    assert said(saved("router.p4").replace(GUARD, condition)) == []


def test_table_after_a_return_for_invalid_headers_is_no_fault() -> None:
    guard = "if (!hdr.ip.isValid()) { drop(); return; }\n            if (hdr.ip.ttl > 1) {"
    assert said(saved("router.p4").replace(f"if ({GUARD}) {{", guard)) == []


def test_states_that_lead_to_each_other_only_are_not_reached() -> None:
    lost = "state a { transition b; } state b { transition a; }\n    state parse_ip {"
    assert len(said(saved("router.p4").replace("state parse_ip {", lost, 1))) == 2


@pytest.mark.parametrize("program", sorted(ROOT.glob("p4/programs/*.p4")), ids=lambda path: path.name)
def test_the_programs_of_the_labs_are_without_fault(program: pathlib.Path) -> None:
    assert lint(frontend.load(program)) == []


def test_command(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "router.p4").write_text(saved("router.p4"), encoding="utf-8")
    assert p4lite.cli.main(["lint", "router.p4"]) == 0
    (tmp_path / "router.p4").write_text(saved("router.p4").replace("routes.apply();", ""), encoding="utf-8")
    assert p4lite.cli.main(["lint", "router.p4"]) == 1
    assert "router.p4:37:11: warning: table 'routes' is never applied" in capsys.readouterr().out
    (tmp_path / "router.p4").write_text("nonsense", encoding="utf-8")
    assert p4lite.cli.main(["lint", "router.p4"]) == 2
