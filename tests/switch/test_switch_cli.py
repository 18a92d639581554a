"""`p4lite switch` and the fabric server: starting, stopping, and one clear line for each wrong input."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from p4lite.messages import p4runtime_pb2
from p4lite.switch.fabric.values import LinkSettings
from p4lite.switch.targetapi.client import TargetClient
from support.namespaces import Hosts
from support.switch.p4rt import INSERT, PROGRAMS, Controller, code_of, control_config
from support.switch.process import P4LITE, SwitchProcess

SERVER = [sys.executable, "-m", "p4lite.switch.server"]


def refusal(*command: str, code: int, environment: dict[str, str] | None = None) -> str:
    """Return the one line with which a command refuses, and its exit code."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(environment or {})}
    )
    assert (done.returncode, done.stdout) == (code, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr


def write_json(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly_on_signals(number: int) -> None:
    with SwitchProcess("--no-p4") as switch, Controller(switch.address, device_id=0) as controller:
        assert switch.address.startswith("unix:")
        assert controller.arbitrate().status.code == 0
        assert switch.stop(number) == 0
        assert controller.stream_end() in ("UNAVAILABLE", "CANCELLED")


def test_a_p4_program_is_compiled_and_becomes_the_pipeline() -> None:
    program = str(PROGRAMS / "control.p4")
    with SwitchProcess(program, "--device-id", "3", "--", "--cpu-port", "255") as switch:
        with Controller(switch.address, device_id=3) as controller:
            controller.arbitrate()
            controller.info = control_config().p4info
            assert len(controller.read(controller.entry("fixed"))) == 2
        with TargetClient(switch.address) as target:
            info = target.info().switches[3]
            assert (info.program, info.cpu_port, info.priority_queues) == ("control", 255, 1)
        assert switch.stop() == 0


def test_a_json_program_waits_for_its_p4info(tmp_path: Path) -> None:
    program = tmp_path / "program.json"
    program.write_bytes(control_config().p4_device_config)
    with SwitchProcess(str(program)) as switch, Controller(switch.address, device_id=0) as controller:
        assert code_of(lambda: controller.read()) == "FAILED_PRECONDITION"
    (tmp_path / "p4info.txtpb").write_text(str(control_config().p4info), encoding="utf-8")
    arguments = (str(program), "--p4info", str(tmp_path / "p4info.txtpb"))
    with SwitchProcess(*arguments) as switch, Controller(switch.address, device_id=0) as controller:
        assert code_of(lambda: controller.read()) == "OK"


def test_wrong_usage() -> None:
    for arguments, text in (
        ([], "give a program or --no-p4"),
        (["x.json", "--no-p4"], "give a program or --no-p4"),
        (["--no-p4", "-i", "veth0"], "-i veth0: expected PORT@INTERFACE"),
        (["--no-p4", "-i", "1@lo", "-i", "1@eth9"], "port 1 is used twice"),
        (["--no-p4", "-i", "1@lo", "-i", "2@lo"], "interface lo is used twice"),
        (["--no-p4", "--device-id", "x"], "--device-id"),
        (["--no-p4", "--p4info", "x"], "--p4info belongs to a JSON program"),
    ):
        assert text in refusal(*P4LITE, "switch", *arguments, code=2)


def test_programs_that_are_none(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.json")
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\x00\xff\xfe")
    other = write_json(tmp_path / "other.json", {"a": 1})
    listed = write_json(tmp_path / "list.json", [1])
    bad_p4 = tmp_path / "bad.p4"
    bad_p4.write_text("control {", encoding="utf-8")
    for program in (missing, str(binary), other, listed, str(bad_p4), str(tmp_path / "missing.p4")):
        assert program in refusal(*P4LITE, "switch", program, code=1)


def test_addresses_and_interfaces_that_cannot_be_had(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = refusal(*P4LITE, "switch", "--no-p4", "--grpc-server-addr", address, code=1)
        assert (
            text == f"p4lite switch: error: {address}: cannot listen: Address already in use; choose another address\n"
        )
    assert "203.0.113.9:1" in refusal(*P4LITE, "switch", "--no-p4", "--grpc-server-addr", "203.0.113.9:1", code=1)
    assert "nope-if0" in refusal(*P4LITE, "switch", "--no-p4", "-i", "1@nope-if0", code=1)
    for option in ("--cpu-port=70000", "--priority-queues=0", "--drop-port=-1"):
        assert option.split("=")[1] in refusal(*P4LITE, "switch", "--no-p4", option, code=1)


def test_a_missing_c_compiler(tmp_path: Path) -> None:
    environment = {"CC": "no-such-compiler", "MRCLAB_CACHE": str(tmp_path)}
    text = refusal(*P4LITE, "switch", "--no-p4", code=1, environment=environment)
    assert "no-such-compiler" in text
    assert "install gcc" in text


@pytest.mark.netns
def test_hosts_ping_through_a_switch_process_that_a_controller_programs(tmp_path: Path) -> None:
    """Two namespaces, ARP flooded and IPv4 routed by one-shot entries; packets counted, copied to the CPU, captured."""
    pb = p4runtime_pb2
    with Hosts("cli") as hosts:
        ports = [item for k in (1, 2) for item in ("-i", f"{k}@{hosts.port(k)}")]
        program = str(PROGRAMS / "control.p4")
        arguments = (program, "--device-id", "1", "--cpu-port", "255", *ports, "--pcap", str(tmp_path))
        with SwitchProcess(*arguments) as switch, Controller(switch.address) as controller:
            controller.arbitrate()
            controller.info = control_config().p4info
            group, session = pb.Entity(), pb.Entity()
            flood = group.packet_replication_engine_entry.multicast_group_entry
            flood.multicast_group_id = 1
            copies = session.packet_replication_engine_entry.clone_session_entry
            copies.session_id = 5
            copies.replicas.add(port=b"\xff", instance=1)
            updates = [(INSERT, group), (INSERT, session)]
            updates.append((INSERT, controller.entry("l2", {"hdr.ethernet.dst": b"\xff" * 6}, "flood", [b"\1"])))
            for k in (1, 2):
                flood.replicas.add(port=bytes([k]), instance=1)
                mac = bytes.fromhex(f"12000000000{k}")
                updates.append((INSERT, controller.entry("l2", {"hdr.ethernet.dst": mac}, "forward", [bytes([k])])))
                route = controller.entry("routes", {"hdr.ipv4.dst": (bytes([10, 9, 0, k]), 32)})
                actions = route.table_entry.action.action_profile_action_set.action_profile_actions
                actions.add(action=controller.action("next_hop", [mac, bytes([k])]), weight=1)
                updates.append((INSERT, route))
            controller.write(*updates)
            assert " 3 received" in hosts.on(1, "ping", "-c", "3", "-i", "0.1", "-W", "2", "10.9.0.2")
            controller.write((INSERT, controller.entry("acl", {"port": b"\1"}, "mirror", [b"\5"], priority=1)))
            assert " 1 received" in hosts.on(1, "ping", "-c", "1", "-W", "2", "10.9.0.2")
            assert b"\x0a\x09\0\2" in controller.hear("packet").packet.payload
            cell = pb.Entity()
            cell.counter_entry.counter_id = controller.ident("counters", "port_count")
            cell.counter_entry.index.index = 1
            (found,) = controller.read(cell)
            assert found.counter_entry.data.packet_count >= 4
            with TargetClient(switch.address) as target:
                target.set_port_up(1, 2, False)
                assert " 0 received" in hosts.on(1, "ping", "-c", "1", "-W", "1", "10.9.0.2", check=False)
                target.set_port_up(1, 2, True)
                assert " 1 received" in hosts.on(1, "ping", "-c", "1", "-W", "2", "10.9.0.2")
                assert target.stats()[1].ports[1].rx_packets >= 5
            assert switch.stop() == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["s1-1.pcapng", "s1-2.pcapng"]
        assert all(path.stat().st_size > 500 for path in tmp_path.iterdir())


# --- fabric descriptions ------------------------------------------------------------------------------------


def description() -> dict[str, Any]:
    """Two switches with one program, joined by a cable."""
    ports = [{"port": 1}, {"port": 2, "queue": {"packets": 10}, "buffer": {"bytes": 9000}}]
    return {
        "seed": 7,
        "switches": [
            {"device_id": 1, "name": "t0", "program": str(PROGRAMS / "control.p4"), "cpu_port": 255, "ports": ports},
            {"device_id": 2, "program": str(PROGRAMS / "control.p4"), "ports": [{"port": 1, "queues": {"0": {}}}]},
        ],
        "links": [{"a": [1, 2], "b": [2, 1], "settings": {"rate_bps": 10**9}, "back": {"delay_ns": 5000}}],
    }


def test_fabric_process_serves_the_described_switches(tmp_path: Path) -> None:
    path = write_json(tmp_path / "fabric.json", description())
    with SwitchProcess("--fabric", path, command=SERVER) as server:
        with TargetClient(server.address) as target:
            info = target.info()
            assert [switch.name for switch in info.switches.values()] == ["t0", "s2"]
            port = info.switches[1].ports[2]
            assert (port.peer, port.outgoing, port.incoming) == (
                (2, 1),
                LinkSettings(rate_bps=10**9),
                LinkSettings(delay_ns=5000),
            )
        with Controller(server.address, device_id=2) as controller:
            assert controller.arbitrate().status.code == 0
            assert code_of(lambda: controller.read()) == "OK"
        assert server.stop() == 0


def test_with_wait_a_process_begins_at_a_line_and_ends_without_one(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.json")
    agent = [sys.executable, "-m", "mrc_host.agent", "--wait", missing, str(tmp_path / "h0.sock")]
    for command in ([*SERVER, "--wait", "--fabric", missing], agent):
        for line, code in (("", 1), ("\n", 2)):
            done = subprocess.run(command, input=line, capture_output=True, text=True, timeout=120, check=False)
            assert (done.returncode, missing in done.stderr) == (code, bool(line)), done


def test_wrong_descriptions_name_the_place(tmp_path: Path) -> None:
    def broken(change: Any) -> dict[str, Any]:
        made = description()
        for switch in made["switches"]:
            del switch["program"]
        change(made)
        return made

    cases = [
        ([], "fabric: expected an object"),
        ({"swiches": []}, "fabric: no such key 'swiches'"),
        (broken(lambda d: d["switches"][0].pop("device_id")), "switches[0]: needs 'device_id'"),
        (broken(lambda d: d["switches"][1].update(device_id=1)), "switches[1]: s1: device_id 1 is in use"),
        (broken(lambda d: d["switches"][0].update(program="none.p4")), "switches[0]"),
        (broken(lambda d: d["switches"][0]["ports"].append({"port": 1})), "switches[0]: t0: port 1 is in use"),
        (
            broken(lambda d: d["switches"][0]["ports"][0].update(queue=5)),
            "switches[0].ports[0].queue: expected an object",
        ),
        (broken(lambda d: d["links"][0].update(a=[9, 9])), "links[0]: no switch with device_id 9"),
        (broken(lambda d: d["links"][0].update(a=5)), "links[0].a: expected [device_id, port]"),
        (
            broken(lambda d: d["links"][0]["settings"].update(loss=2)),
            "links[0].settings.loss: expected a number from 0 to 1",
        ),
        (broken(lambda d: d.update(clock="virtual")), "real clock only"),
    ]
    for number, (value, text) in enumerate(cases):
        path = write_json(tmp_path / f"{number}.json", value)
        done = subprocess.run([*SERVER, "--fabric", path], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in (1, 2)
        assert text in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    assert "cannot read" in refusal(*SERVER, "--fabric", str(tmp_path / "none.json"), code=2)
