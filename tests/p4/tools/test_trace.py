"""`p4lite trace`: what it prints about a packet, which files it reads, and which mistakes it refuses."""

from __future__ import annotations

import json
import pathlib
import struct
from typing import Any

import pytest

import p4lite
import p4lite.cli
from p4lite_tools.entries import CaptureError, read_capture
from p4lite_tools.interpreter import events as ev
from p4lite_tools.trace import Lines, Recorder
from support.p4.tools import FORWARD, ipv4, router, saved


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    for name in ("router.p4", "routes.txt"):
        (tmp_path / name).write_text(saved(name), encoding="utf-8")
    return tmp_path


def test_events_of_a_routed_packet_in_order() -> None:
    recorder = Recorder()
    with p4lite.Switch(router(), observers=[recorder]) as switch:
        switch.tables["routes"]["10.0.0.0/8"] = FORWARD
        switch.send(1, ipv4())
    events = recorder.take()
    names = [e.name for e in events if not isinstance(e, ev.StatementStarted | ev.ValidityChanged)]
    assert names == [
        "packet_started",
        *("state_entered", "extracted", "transition_taken") * 2,
        "pipeline_entered",
        "condition_tested",
        "table_applied",
        *["field_changed"] * 4,
        "table_applied",
        "register_read",
        "register_written",
        "pipeline_entered",
        "checksum_tested",
        "field_changed",
        "deparsed",
        "sent",
    ]
    lines = saved("router.p4").splitlines()
    changed = {e.field: lines[e.where.line - 1].strip() for e in events if isinstance(e, ev.FieldChanged)}
    assert changed["ip.ttl"] == "hdr.ip.ttl = hdr.ip.ttl - 1;"
    assert changed["eth.dst"] == "hdr.eth.dst = to;"
    (applied,) = [e for e in events if isinstance(e, ev.TableApplied) and not e.hidden]
    assert (applied.keys, applied.hit, applied.entry) == ((ev.NamedValue("hdr.ip.dst", 0x0A000002, 32),), True, 0)
    assert applied.arguments == (ev.NamedValue("to", 2, 48), ev.NamedValue("port", 2, 9))


def test_an_action_that_is_called_without_a_table_is_shown_at_the_line_of_the_call() -> None:
    recorder = Recorder()
    with p4lite.Switch(router(), observers=[recorder]) as switch:
        switch.send(1, bytes(14))
    events = recorder.take()
    lines = saved("router.p4").splitlines()
    [(event, _)] = [(event, line) for event, line in Lines().told(events) if line == "call RouterIngress.drop()"]
    assert event is not None
    assert event.where is not None
    assert lines[event.where.line - 1].strip() == "drop();"


@pytest.mark.parametrize(
    ("action", "of_program"),
    [("MyIngress.drop", True), ("drop", True), ("MyIngress.set2", True), ("act", False), ("act_0", False),
     ("router29", False), ("loop7", False)],
)  # fmt: skip
def test_names_of_actions_that_compilers_make(action: str, of_program: bool) -> None:
    assert ev.is_of_program(action) is of_program


def test_trace_in_json_and_from_a_capture(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = [ipv4(), ipv4(ttl=1)]
    body = b"".join(struct.pack("<4I", 0, 0, len(f), len(f)) + f for f in frames)
    (folder / "in.pcap").write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + body)
    assert p4lite.cli.main(["trace", "router.p4", "--packet", "in.pcap", "--entries", "routes.txt", "--json"]) == 0
    one, other = json.loads(capsys.readouterr().out)
    assert [e["event"] for e in (one[-1], other[-1])] == ["sent", "dropped"]
    assert one[0] == {"event": "packet_started", "where": None, "port": 1, "data": frames[0].hex(), "instance_type": 0}
    applied = next(e for e in one if e["event"] == "table_applied")
    assert applied["where"]["file"].endswith("router.p4")
    assert applied["keys"] == [{"name": "hdr.ip.dst", "value": 0x0A000002, "width": 32}]


def test_entries_of_the_tutorials(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry: dict[str, Any] = {
        "table": "RouterIngress.routes",
        "match": {"hdr.ip.dst": ["10.0.0.2", 32]},
        "action_name": "RouterIngress.forward",
        "action_params": {"to": "08:00:00:00:01:11", "port": 7},
    }
    default = {"table": "RouterIngress.routes", "default_action": True, "action_name": "RouterIngress.drop"}
    document: dict[str, Any] = {"target": "bmv2", "table_entries": [default, entry]}
    (folder / "s1-runtime.json").write_text(json.dumps(document))
    assert p4lite.cli.main(["trace", "router.p4", "--entries", "s1-runtime.json", "--packet", ipv4().hex()]) == 0
    assert "out at port 7: 080000000111" in capsys.readouterr().out
    entry["action_params"] = {"to": "08:00:00:00:01:11", "prt": 7}
    (folder / "s1-runtime.json").write_text(json.dumps(document))
    assert p4lite.cli.main(["trace", "router.p4", "--entries", "s1-runtime.json"]) == 2
    assert "s1-runtime.json: table_entries[1]: table 'RouterIngress.routes'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--packet", "xyz"], "--packet xyz: neither a capture file nor"),
        (["--packet", "routes.txt"], "routes.txt: not a capture"),
        (
            ["--entries", "wrong.txt"],
            "wrong.txt:2: table_add: table 'RouterIngress.routes', key 'hdr.ip.dst': '10.0.0' is",
        ),
        (["--entries", "none.txt"], "none.txt: cannot read"),
    ],
)
def test_mistakes_are_refused_with_their_place(
    arguments: list[str], said: str, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "wrong.txt").write_text("# comment\ntable_add routes forward 10.0.0/8 => 1 2\n")
    assert p4lite.cli.main(["trace", "router.p4", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_colours_are_escapes_around_the_same_text() -> None:
    recorder = Recorder()
    with p4lite.Switch(router(), observers=[recorder]) as switch:
        switch.send(1, ipv4())
    events = recorder.take()
    plain, coloured = Lines().render(events), Lines(colour=True).render(events)
    assert any("\033[" in line for line in coloured)
    for code in ("0", "1", "2", "31", "32", "33", "35", "36", "1;34", "1;31"):
        coloured = [line.replace(f"\033[{code}m", "") for line in coloured]
    assert coloured == plain


def test_capture_that_is_cut_off_is_refused(folder: pathlib.Path) -> None:
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    interface = struct.pack("<IIHHI", 1, 32, 1, 0, 0) + struct.pack("<HHBxxxHH", 9, 1, 9, 0, 0) + struct.pack("<I", 32)
    packet = struct.pack("<IIIIIII", 6, 36, 0, 0, 2_000, 4, 9) + b"abcd" + struct.pack("<I", 36)
    (folder / "x.pcapng").write_bytes(section + interface + packet)
    (captured,) = read_capture(folder / "x.pcapng")
    assert (captured.data, captured.time_ns, captured.cut) == (b"abcd", 2_000, True)
    (folder / "x.pcapng").write_bytes(section + interface + packet[:-8])
    with pytest.raises(CaptureError, match="cut off"):
        read_capture(folder / "x.pcapng")
    # While it grows, the rest is still to come.
    assert read_capture(folder / "x.pcapng", growing=True) == []
    (folder / "x.pcapng").write_bytes(section + interface + packet + packet[:-8])
    assert read_capture(folder / "x.pcapng", growing=True) == [captured]
