"""Command scripts of BMv2: what is applied, reported and left out, and the commands of the switch itself."""

from __future__ import annotations

import json
import pathlib
from typing import Literal

import pytest

import p4lite
import p4lite.cli
from p4lite.switch.fabric.fabric import Fabric
from p4lite_tools.commands import CommandError, Commands
from p4lite_tools.entries import load_entries
from support.p4.cases import pack, source

ROUTES = source(
    locals="action go(bit<9> q) { sm.egress_spec = q; } register<bit<8>>(4) r; counter(4, CounterType.packets) c;"
    '@name("sel") action_selector(HashAlgorithm.crc16, 16, 8) p;'
    "table t { key = { hdr.h.a: exact; } actions = { go; NoAction; } default_action = NoAction(); }"
    "table w { key = { hdr.h.a: exact; hdr.h.b: selector; } actions = { go; NoAction; } implementation = p; }",
    body="t.apply(); w.apply(); r.write(0, 1); c.count(0);",
)
HASHES = source(
    types="header r_t { bit<32> one; bit<32> other; bit<32> third; }",
    headers="r_t r;",
    body="""
        hdr.r.setValid();
        hash(hdr.r.one, HashAlgorithm.crc16_custom, 32w0, { 32w0x0a000002 }, 64w0x200000000);
        hash(hdr.r.other, HashAlgorithm.crc16_custom, 32w0, { 32w0x0a000001 }, 64w0x200000000);
        hash(hdr.r.third, HashAlgorithm.crc32_custom, 32w0, { 32w0x0a000001 }, 64w0x200000000);
    """,
    emit="pkt.emit(hdr.r);",
)
CRCS = """set_crc16_parameters calc 0x1021 0xffff 0x0 false false
set_crc32_parameters calc_2 0x1edc6f41 0xffffffff 0xffffffff true true
"""


@pytest.fixture(scope="module")
def routes() -> p4lite.Program:
    return p4lite.compile(ROUTES)


def said(program: p4lite.Program, *commands: str) -> list[str]:
    """Return what commands print on an interpreted switch."""
    lines: list[str] = []
    with p4lite.Switch(program, backend="interpreter") as switch:
        runner = Commands(switch.control, switch.replication, lines.append)
        for command in commands:
            runner.run(command)
    return "\n".join(lines).splitlines()


def test_a_line_that_is_no_command_is_reported_and_the_rest_applied(
    tmp_path: pathlib.Path, routes: p4lite.Program, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "s1-commands.txt"
    script.write_text("# first\ntable_add t go 1 => 2\n// those that leave\ntable_add t go 2 => 3\n", encoding="utf-8")
    with p4lite.Switch(routes, backend="interpreter") as switch:
        load_entries(script, switch.control, switch.replication)
        assert switch.control.table_size("Ig.t") == 2
    assert f"{script}:3: " in capsys.readouterr().err
    script.write_text("table_add t go 1 => 2\ntable_add t go 2\ntable_add t go 3 => 3\n", encoding="utf-8")
    with p4lite.Switch(routes, backend="interpreter") as switch, pytest.raises(CommandError, match=r"commands.txt:2: "):
        load_entries(script, switch.control, switch.replication)


def test_a_key_in_a_list_of_one_is_the_value(tmp_path: pathlib.Path, routes: p4lite.Program) -> None:
    """The runtime files of the tutorial `basic_tunnel` have it."""
    entry = {"table": "Ig.t", "match": {"hdr.h.a": [1]}, "action_name": "Ig.go", "action_params": {"q": 2}}
    file = tmp_path / "s1-runtime.json"
    file.write_text(json.dumps({"table_entries": [entry]}), encoding="utf-8")
    with p4lite.Switch(routes, backend="interpreter") as switch:
        load_entries(file, switch.control, switch.replication)
        assert switch.control.table_size("Ig.t") == 1


@pytest.mark.parametrize("backend", ["interpreter", "compiled"])
def test_custom_crcs_follow_their_parameters(backend: Literal["interpreter", "compiled"]) -> None:
    """The values are those that BMv2 gives."""
    program = p4lite.compile(HASHES)
    with p4lite.Switch(program, backend=backend) as switch, p4lite.Switch(program, backend=backend) as other:
        runner = Commands(switch.control, switch.replication)
        before = switch.send(1, pack())
        for command in CRCS.splitlines():
            runner.run(command)
        [(_, data)] = switch.send(1, pack())
        assert data[-12:].hex() == "0000cc29000018c2f32f88a3"
        assert other.send(1, pack()) == before, "each switch has its own"
        for wrong in ("set_crc32_parameters calc 1 1 1 true true", "set_crc16_parameters calc 0x11021 0 0 0 0"):
            with pytest.raises(CommandError):
                runner.run(wrong)


def test_old_names_of_profiles_act_on_the_profile_of_the_table(routes: p4lite.Program) -> None:
    lines = said(
        routes,
        "table_indirect_create_member w go 5",
        "table_indirect_create_member w go 6",
        "table_indirect_create_group w",
        "table_indirect_add_member_to_group w 1 0",
        "table_indirect_modify_member w go 1 7",
        "table_indirect_delete_member w 0",
        "table_dump_member w 1",
        "table_dump_group w 0",
    )
    assert lines[-4:] == ["Dumping member 1", "Action: Ig.go(q=0x007)", "Dumping group 0", "Members: [1]"]
    with pytest.raises(CommandError, match="no action profile"):
        said(routes, "table_indirect_create_group t")


def test_a_lag_gives_each_packet_the_port_that_bmv2_takes(routes: p4lite.Program) -> None:
    lines = said(
        routes,
        "mc_mgrp_create 1",
        "mc_node_create 9 1 2 | 3",
        "mc_node_associate 1 0",
        "mc_set_lag_membership 3 7 5",
        "mc_dump",
    )
    assert lines[-1] == "mgrp(1) -> port 1 (rid 9), port 2 (rid 9), port 7 (rid 9)"  # 255 modulo 2 is the second


def test_reset_state_empties_all_but_mirror_sessions(routes: p4lite.Program) -> None:
    lines = said(
        routes,
        "table_add t go 1 => 2",
        "register_write r 1 7",
        "counter_write c 1 2 3",
        "act_prof_create_member sel go 5",
        "mc_mgrp_create 1",
        "mirroring_add 3 4",
        "reset_state",
        "table_num_entries t",
        "register_read r 1",
        "counter_read c 1",
        "act_prof_dump sel",
        "mc_dump",
        "mirroring_get 3",
    )
    assert lines[-4:] == ["0", "r[1]= 0", "c[1]= (0 bytes, 0 packets)", "session 3: port 4"]


def test_commands_of_queues_and_ports_act_where_there_are_some(routes: p4lite.Program) -> None:
    commands = ("set_queue_depth 1 2", "set_queue_rate 9", "port_remove 2", "show_ports", "switch_info")
    assert sum("without effect" in line for line in said(routes, *commands)) == 3
    lines: list[str] = []
    with Fabric(clock="virtual") as fabric:
        switch = fabric.add_switch(5, name="s5")
        switch.load(routes.native)
        for port in (1, 2):
            switch.add_port(port, name=f"p{port}")
        runner = Commands(switch.instance, switch, lines.append, device=switch, clock=lambda: fabric.now_ns)
        fabric.run_until(5_000_000)
        for command in (*commands, "set_queue_depth 0 1", "get_time_elapsed"):
            runner.run(command)
        with pytest.raises(CommandError, match="no port 2"):
            runner.run("set_queue_depth 1 2")
    shown = [line.split() for line in lines]
    assert ["1", "p1", "UP"] in shown
    assert ["2", "p2", "UP"] not in shown
    assert ["device_id", ":", "5"] in shown
    assert lines[-1] == "5000"
