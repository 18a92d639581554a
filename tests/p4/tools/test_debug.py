"""`p4lite debug` from scripts: where packets stop, what is printed, and the commands of simple_switch_CLI."""

from __future__ import annotations

import io
import pathlib

import pytest

import p4lite
import p4lite.cli
from p4lite_tools.commands import CommandError, Commands
from p4lite_tools.debugger import Debugger
from support.p4.cases import source
from support.p4.tools import ipv4, router, saved


def session(*commands: str, program: p4lite.Program | None = None) -> list[str]:
    """Return the lines that a session prints, without the commands."""
    lines: list[str] = []
    given = iter(commands)
    debugger = Debugger(program or router(), lambda: next(given, None), lines.append)
    debugger.commands.run("table_add routes forward 10.0.0.0/8 => 00:00:00:00:00:02 2")
    debugger.packets.extend((1, frame) for frame in (ipv4(), ipv4(dst="0b000000"), ipv4()))
    debugger.loop()
    return [part.strip() for line in lines for part in line.splitlines()]


def stops(lines: list[str]) -> list[int]:
    """Return the source lines at which packets stopped."""
    return [int(line.split()[1]) for line in lines if line.startswith("=>")]


def line_of(text: str) -> int:
    """Return the line of the router that has a text."""
    return next(n for n, line in enumerate(saved("router.p4").splitlines(), 1) if text in line)


FORWARD, TTL, ROUTES = line_of("sm.egress_spec = port"), line_of("ttl - 1"), line_of("table routes")
READ, WRITE = line_of("seen.read"), line_of("seen.write")


def test_steps_go_by_line_and_into_actions() -> None:
    lines = session("break routes", "run", *["step"] * 6)
    assert stops(lines) == [ROUTES, *range(FORWARD, FORWARD + 4), READ, WRITE]


def test_next_goes_over_the_action_of_a_table_and_the_operations_of_a_state() -> None:
    assert stops(session("break routes", "run", "next", "next")) == [ROUTES, READ, WRITE]
    lines = session("break start", "run", "next", "next")
    assert stops(lines) == [line_of("state start"), line_of("state parse_ip"), line_of("control RouterIngress")]


@pytest.mark.parametrize(
    ("point", "line", "times"),
    [
        (f"break {TTL}", TTL, 2),
        (f"break router.p4:{TTL - 1}", TTL - 1, 2),
        ("break parse_ip", line_of("state parse_ip"), 3),
        ("break forward", FORWARD, 2),
        ("watch ip.ttl", TTL, 2),
        (f"break {READ}", READ, 3),
    ],
)
def test_breakpoints_stop_every_packet_once(point: str, line: int, times: int) -> None:
    program = p4lite.Program("router.p4", _renamed(), sources={"router.p4": saved("router.p4").splitlines()})
    lines = session(point, *["run"] * 9, program=program)
    assert stops(lines) == [line] * times
    assert stops(session(point, "delete 1", *["run"] * 3, program=program)) == []


def _renamed() -> dict[str, object]:
    """Return the router as compiled from a file."""
    import json

    text = json.dumps(router().bmv2).replace('"program.p4"', '"router.p4"')
    document: dict[str, object] = json.loads(text)
    return document


def test_line_without_code_means_the_next_that_has_some() -> None:
    assert f"Breakpoint 1: line program.p4:{FORWARD}" in session(f"break {FORWARD - 1}")
    assert "error: program.p4 has no code from line 999 on; the last is line 58" in session("break 999")


def test_print_and_set_fields_of_the_source() -> None:
    lines = session(
        "break forward", "run", "print hdr.ip.ttl", "set ip.ttl 7", "print ip", "print", "watch ip.ttl", "run"
    )
    assert "ip.ttl = 0x40" in lines
    assert "ttl = 0x07" in lines
    assert lines.count("ip (valid)") == 2
    assert any(line.endswith("ip.ttl: 0x07 -> 0x06") for line in lines)


def test_tables_and_registers_after_a_packet() -> None:
    lines = session("run", "print seen[1]", "print routes", "register_write seen 1 0x10", "register_read seen 1")
    assert "RouterIngress.seen[1]= 1" in lines
    assert "* hdr.ip.dst          : LPM       0x0a000000/8" in lines
    assert "seen[1]= 16" in lines


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("frobnicate", "there is no command 'frobnicate'; `help` lists them"),
        ("print ip.tl", "there is no field 'ip.tl'"),
        ("break nothing", "there is no line, table, state or action 'nothing'"),
        ("delete 3", "there is no breakpoint 3"),
        ("step 1 2 x", ""),
        ("set ip.ttl", "wrong arguments"),
        ("set ip.ttl 3", "there is no packet"),
        ("packet 00zz", "wrong arguments"),
        ("table_add routes forward 10.0.0.0/8 => 2", "takes to: bit<48>, port: bit<9>, not 1 values"),
        ("table_delete routes 9", "has no entry 9"),
        ("register_read", "arguments are missing; usage: register_read REGISTER [INDEX]"),
        ("mc_node_associate 1 0", "no multicast node 0"),
    ],
)
def test_mistakes_are_told_and_the_session_goes_on(command: str, said: str) -> None:
    lines = session(command, "print seen[1]")
    assert any(said in line for line in lines if line.startswith("error: ")) or not said
    assert any(line.startswith("RouterIngress.seen[1]=") for line in lines)


def test_words_are_completed() -> None:
    debugger = Debugger(router(), lambda: None, print)
    assert debugger.complete("table_a", "table_a") == ["table_add"]
    assert debugger.complete("table_add Rou", "Rou") == ["RouterIngress.routes"]
    assert debugger.complete("table_add RouterIngress.routes RouterIngress.f", "RouterIngress.f") == [
        "RouterIngress.forward"
    ]
    assert debugger.complete("print ip.t", "ip.t") == ["ip.tos", "ip.ttl"]
    assert debugger.complete("break pa", "pa") == ["parse_ip"]


def test_script_from_standard_input(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "router.p4").write_text(saved("router.p4"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO("break routes\nrun\nnonsense\n"))
    assert p4lite.cli.main(["debug", "router.p4", "--packet", ipv4().hex()]) == 1
    assert "(p4) run\nBreakpoint 1: table" in capsys.readouterr().out


def test_commands_for_every_kind_of_object() -> None:
    """Each command once, on a program that has all objects, on both backends."""
    text = source(
        locals="""
            counter(4, CounterType.packets) c; direct_counter(CounterType.packets) dc; meter(2, MeterType.bytes) m;
            action set(bit<8> v) { hdr.h.a = v; dc.count(); } action pick(bit<8> v) { hdr.h.a = v; }
            action_selector(HashAlgorithm.crc16, 64, 14) sel;
            table t { key = { hdr.h.b: ternary; } actions = { set; NoAction; } counters = dc; }
            table u { key = { hdr.h.b: exact; hdr.h.d: selector; } actions = { pick; NoAction; } implementation = sel; }
        """,
        parser_locals="value_set<bit<8>>(4) vs;",
        parser="state start { pkt.extract(hdr.h); transition select(hdr.h.a) { vs: accept; default: accept; } }",
        body="t.apply(); u.apply(); c.count(0); bit<2> x; m.execute_meter(0, x);",
    )
    program = p4lite.compile(text)
    commands = """
        table_add t set 0x10&&&0xf0 => 5 3
        table_set_default t set 7
        table_modify t set 0 9
        table_num_entries t
        table_dump t
        table_dump_entry_from_key t 0x10&&&0xf0 3
        act_prof_create_member sel pick 1
        act_prof_create_member sel pick 2
        act_prof_modify_member sel pick 1 3
        act_prof_create_group sel
        act_prof_add_member_to_group sel 0 0
        act_prof_add_member_to_group sel 1 0
        act_prof_remove_member_from_group sel 0 0
        table_indirect_add u 1 => 0
        table_indirect_add_with_group u 2 => 0
        act_prof_dump sel
        mc_mgrp_create 1
        mc_node_create 5 1 2
        mc_node_associate 1 0
        mc_dump
        mc_node_update 0 3
        mc_dump
        mirroring_add 3 4
        mirroring_get 3
        counter_write c 1 2 3
        counter_read c 1
        counter_read dc 0
        meter_set_rates m 0 0.5:10 1:20
        meter_get_rates m 0
        pvs_add vs 7
        pvs_get vs
        table_delete t 0
        table_reset_default t
    """
    said = []
    for backend in ("compiled", "interpreter"):
        lines: list[str] = []
        with p4lite.Switch(program, backend=backend) as switch:
            runner = Commands(switch.control, switch.replication, lines.append)
            for command in commands.splitlines():
                runner.run(command)
        said.append("\n".join(lines))
    assert said[0] == said[1]
    for part in (
        "Entry has been added with handle 0",
        "* hdr.h.b             : TERNARY   0x10&&&0xf0",
        "Action entry: Ig.set(v=0x09)",
        "Members: [1]",
        "mgrp(1) -> port 1 (rid 5), port 2 (rid 5)",
        "mgrp(1) -> port 3 (rid 5)",
        "session 3: port 4",
        "c[1]= (3 bytes, 2 packets)",
        "0: info rate = 0.5, burst size = 10",
        "0x7",
    ):
        assert part in said[0], part


def test_table_of_priorities_needs_one() -> None:
    program = p4lite.compile(
        source(locals="action a() {} table t { key = { hdr.h.b: ternary; } actions = { a; } }", body="t.apply();")
    )
    with p4lite.Switch(program, backend="interpreter") as switch, pytest.raises(CommandError, match="invalid literal"):
        Commands(switch.control, switch.replication).run("table_add t a 1&&&1 =>")
