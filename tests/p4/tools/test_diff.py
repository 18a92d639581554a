"""`p4lite diff`: equal programs, the first difference and where the traces part, and what is not compared."""

from __future__ import annotations

import pathlib

import pytest

import p4lite
import p4lite.cli
from p4lite_tools.diff import Pair, parting
from p4lite_tools.interpreter import events as ev
from support.p4.tools import ipv4, router, saved


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    for name in ("router.p4", "routes.txt"):
        (tmp_path / name).write_text(saved(name), encoding="utf-8")
    return tmp_path


def changed(old: str, new: str) -> p4lite.Program:
    """Return the router with another text."""
    assert old in saved("router.p4")
    return p4lite.compile(saved("router.p4").replace(old, new))


def test_program_equals_itself_whatever_its_lines() -> None:
    pair = Pair(router(), changed("header ethernet_t", "\n\nheader ethernet_t"))
    assert pair.fill() > 0
    result = pair.compare(pair.packets(200))
    assert (result.difference, result.packets, result.notes) == (None, 200, [])


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("ttl > 1", "ttl > 0", ev.ConditionTested),
        ("0x0800: parse_ip", "0x0800 &&& 0xff00: parse_ip", ev.TransitionTaken),
        ("count + 1", "count + 2", ev.RegisterWritten),
        ("hdr.ip.src, hdr.ip.dst }", "hdr.ip.dst, hdr.ip.dst }", ev.FieldChanged),
        ("default_action = drop()", "default_action = forward(1, 1)", ev.TableApplied),
    ],
)
def test_change_is_found_where_it_was_made(old: str, new: str, where: type[ev.Event]) -> None:
    pair = Pair(router(), changed(old, new))
    pair.fill()
    difference = pair.compare(pair.packets(1500)).difference
    assert difference is not None
    one, other = parting(*difference.events)
    assert type(difference.events[0][one]) is where
    assert type(difference.events[1][other]) is where


def test_command_shows_both_traces_and_its_exit_code_tells(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "other.p4").write_text(saved("router.p4").replace("ttl > 1", "ttl > 0"))
    packet = ["--packet", ipv4(ttl=1).hex(), "--entries", "routes.txt"]
    assert p4lite.cli.main(["diff", "router.p4", "other.p4", *packet]) == 1
    out = capsys.readouterr().out
    assert "packet 1 differs" in out
    assert "router.p4 sends nothing" in out
    assert "other.p4 sends port 2: " in out
    assert out.count("-- here the two part --") == 2
    assert p4lite.cli.main(["diff", "router.p4", "router.p4", *packet]) == 0
    assert "no difference: 1 packets" in capsys.readouterr().out


def test_tables_of_one_program_only_are_named() -> None:
    notes = Pair(router(), changed("routes", "roads")).notes()
    assert notes == ["only program.p4 has table RouterIngress.roads", "only program.p4 has table RouterIngress.routes"]
    (note,) = Pair(router(), changed("hdr.ip.dst: lpm", "hdr.ip.dst: exact")).notes()
    assert note.startswith("table RouterIngress.routes has other keys or actions")
