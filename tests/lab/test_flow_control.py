"""Priority flow control in a lab: RoCE on a lossless fabric, MRC beside it on a lossy one."""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

import pytest

from mrc_host.drivers import frames
from mrc_host.node.host import HostNode
from mrc_host.proto.congestion.dcqcn import PROFILES, profile
from mrc_topo import rules
from mrc_topo.base.plain import encode
from mrc_topo.labfile import LabError, load_lab, parse_lab
from mrclab.lab import describe
from mrclab.lab.session.base import Session
from mrclab.results import counted
from mrclab.results.record import RunResult
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, Workload
from support.lab.labs import lab_file, session, switches
from support.lab.results import plain

CLOCKS = ["virtual", pytest.param("real", marks=[pytest.mark.lab, pytest.mark.long])]
SENT = 3 * 4 * 60_000


def incast(made: Session) -> dict[str, Any]:
    """Three hosts write to one."""
    workload = Workload(name="incast", params={"message_bytes": 60_000, "iterations": 4, "target": 0}, qps_per_peer=2)
    result: dict[str, Any] = plain(run_on(made, Experiment(name="pfc", title="pfc", workload=workload)))
    assert not result["failures"]
    assert sum(each["bytes_verified"] for each in result["progress"].values()) == SENT
    return result


def small(folder: pathlib.Path, **queues: Any) -> str:
    return lab_file(folder, "tiny", queues={"limit": "16KiB", "ecn": None, "trim": None, **queues})


def drops(made: Session) -> int:
    return sum(int(port["drops"]) for port in made.fabric_sample()["ports"].values())


@pytest.mark.parametrize("clock", CLOCKS)
def test_roce_loses_nothing_with_flow_control(clock: str, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    with session(small(tmp_path, pfc={"xoff": "8KiB"}), clock, "roce") as made:
        result = incast(made)
        assert drops(made) == made.program_counters()["queue_drops"] == 0
        pauses = counted.pauses({}, switches(made))
    hosts = result["statistics"].values()
    assert sum(host["endpoint"]["retransmissions"] for host in hosts) == 0
    # Switches pause hosts, and these count it; the frames of both sides tell of each other.
    received = sum(port["pauses_received"] for host in hosts for port in host["ports"])
    assert sum(each["0"].pauses_sent for each in pauses.values()) >= received > 0
    stored = json.loads(json.dumps({**result, "pauses": encode(pauses)}, default=str))
    assert RunResult.parse(stored).pauses == pauses
    assert sum(port["paused_ns"] for host in hosts for port in host["ports"]) > 0


def test_roce_without_flow_control_loses_packets_there(tmp_path: pathlib.Path) -> None:
    with session(small(tmp_path), "virtual", "roce") as made:
        result = incast(made)
        assert drops(made) + made.program_counters()["queue_drops"] > 0
        assert counted.pauses({}, switches(made)) == {}
    assert sum(host["endpoint"]["retransmissions"] for host in result["statistics"].values()) > 0


def test_mrc_stays_lossy_on_the_same_lab(tmp_path: pathlib.Path) -> None:
    with session(small(tmp_path, pfc={"xoff": "8KiB"}), "virtual", "mrc") as made:
        incast(made)
        assert counted.pauses({}, switches(made)) == {}
        assert made.topology.lab.queues.pfc is None


def test_what_a_transport_finds() -> None:
    topology = parse_lab("name: x\nqueues: {pfc: {xoff: 64KiB}}")
    roce, mrc = topology.for_transport("roce"), topology.for_transport("mrc")
    assert mrc.lab.queues == parse_lab("name: x").lab.queues
    assert roce.lab.queues.trim is None
    assert load_lab("tiny").for_transport("mrc") is not None
    for found, marks in ((roce, True), (mrc, False)):
        entries = [
            entry
            for switch in found.switches
            for entry in rules.switch_entries(found, switch)
            if entry.table == rules.PORTS
        ]
        host_ports = [entry.params for entry in entries if entry.match[0].value == 1][:4]
        assert all((each["mark_min"] < rules.NEVER) is marks for each in host_ports)
        assert all((each["queue_limit"] == rules.NEVER) is marks for each in host_ports)


def test_a_plain_lab_is_the_same_for_mrc() -> None:
    topology = load_lab("tiny")
    assert topology.for_transport("mrc") is topology


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{xoff: 8KiB, xon: 9KiB}", "xon (9216) must not be above xoff (8192)"),
        ("{xoff: 0}", "greater than or equal to 1"),
        ("{priorities: [8]}", "less than or equal to 7"),
        ("{priorities: []}", "at least 1"),
        ("{quanta: 65536}", "less than or equal to 65535"),
        ("{watchdog: {detection: 0s}}", "greater than or equal to 1"),
    ],
)
def test_bad_settings(text: str, problem: str) -> None:
    with pytest.raises(LabError) as error:
        parse_lab(f"name: x\nqueues:\n  pfc: {text}\n")
    assert "<lab>:3" in str(error.value)
    assert "queues.pfc" in str(error.value)


def test_too_little_headroom_is_warned_of_with_the_number_needed() -> None:
    text = "name: x\nqueues: {pfc: {headroom: %s}}\nlinks: {host: {rate: 20Mbps, delay: 1ms}}"
    topology = parse_lab(text % "4KiB")
    (host, fabric) = sorted(describe.warnings(topology, "virtual", "roce"), key=lambda each: "h0:0" not in each)
    frame = topology.lab.interface_mtu + 14
    assert f"(4096 bytes) is too small for h0:0 and 31 more links, which need {3 * frame + 60 + 5000} bytes" in host
    assert f"{3 * frame + 60 + 500} bytes" in fabric
    assert describe.warnings(topology, "virtual", "mrc") == []
    assert describe.warnings(parse_lab(text % (3 * frame + 60 + 5000)), "virtual", "roce") == []


def test_hosts_are_handed_mac_control_and_mrc_ignores_it() -> None:
    assert b"\x88\x08" in frames.IP_TYPES
    topology = load_lab("tiny")
    config = describe.host_config(topology, topology.hosts[0], "virtual")
    node = HostNode(config, random.Random(1))
    node.datapath.receive(0, bytes.fromhex("010100010064").ljust(46, b"\0"), 10)
    assert node.faults == 0
    assert not any(node.endpoint.statistics().drops.values())


def test_the_labs_dcqcn_is_its_profile_at_the_rate_of_a_host_link() -> None:
    for name, timer_us in (("paper", 55), ("nvidia", 300), ("hpcc", 900)):
        topology = parse_lab(f"name: x\nroce: {{dcqcn: {name}, congestion_control: false}}")
        dcqcn = describe.host_config(topology, topology.hosts[0], "virtual", "roce").roce().dcqcn
        assert dcqcn == profile(name, topology.lab.links.host.rate, enabled=False)
        meant, _ = PROFILES[name]
        assert dcqcn.rate_interval_ns == timer_us * 1000 * meant // topology.lab.links.host.rate
    topology = parse_lab("name: x\nroce: {repair: selective_repeat}")
    assert describe.host_config(topology, topology.hosts[0], "virtual", "roce").roce().selective_repeat
    with pytest.raises(LabError, match="'paper', 'nvidia' or 'hpcc'"):
        parse_lab("name: x\nroce: {dcqcn: fast}")
