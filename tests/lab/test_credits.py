"""InfiniBand-like labs: link-level credits and adaptive routing under RoCE; what lab files may say of them."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from mrc_topo import rules
from mrc_topo.labfile import LabError, load_lab, parse_lab
from mrclab.lab import describe
from mrclab.lab.session.base import Session
from mrclab.lab.switches.forwarders import ReferencePartMissing, chosen
from mrclab.results import counted
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, Workload
from support.lab.labs import lab_file, session, switches
from support.lab.results import plain

CLOCKS = ["virtual", pytest.param("real", marks=[pytest.mark.lab, pytest.mark.long])]
NO_CC = {"congestion_control": False}
BUFFER = 8192


def run(made: Session, name: str, qps: int = 1, **params: Any) -> dict[str, Any]:
    workload = Workload(name=name, params=params, qps_per_peer=qps)
    result: dict[str, Any] = plain(run_on(made, Experiment(name="credits", title="credits", workload=workload)))
    assert not result["failures"]
    return result


def small(folder: pathlib.Path, **changes: Any) -> str:
    queues = {"limit": "16KiB", "ecn": None, "trim": None, **changes.pop("queues", {})}
    return lab_file(folder, "tiny", queues=queues, roce=NO_CC, **changes)


def drops(made: Session) -> int:
    lost = sum(int(port["drops"]) for port in made.fabric_sample()["ports"].values())
    return lost + made.program_counters()["queue_drops"]


def total(result: dict[str, Any], key: str) -> int:
    return sum(host["endpoint"][key] for host in result["statistics"].values())


@pytest.mark.parametrize("clock", CLOCKS)
def test_roce_loses_nothing_with_credits(clock: str, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    """Three hosts write to one, without any congestion control."""
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    with session(small(tmp_path, queues={"credits": {"buffer": BUFFER}}), clock, "roce") as made:
        result = run(made, "incast", 2, message_bytes=60_000, iterations=4, target=0)
        assert drops(made) == 0
        stalls = counted.credits({}, switches(made))
        made.advance(0.1)
        ports = [port for device in made.fabric.stats().values() for port in device.ports.values()]
    assert sum(each["bytes_verified"] for each in result["progress"].values()) == 3 * 4 * 60_000
    assert total(result, "retransmissions") == 0
    # Switches waited for each other, or hosts for switches.
    waited = sum(port["credit_stall_ns"] for host in result["statistics"].values() for port in host["ports"])
    assert waited > 0
    assert sum(each["0"].stall_ns for each in stalls.values()) > 0
    for port in ports:
        (credits,) = port.credits
        assert credits.max_held_bytes <= credits.buffer_bytes == BUFFER
        assert (credits.held_bytes, credits.credit_bytes) == (0, BUFFER)


def test_without_credits_the_same_load_loses_packets(tmp_path: pathlib.Path) -> None:
    with session(small(tmp_path), "virtual", "roce") as made:
        result = run(made, "incast", 2, message_bytes=60_000, iterations=4, target=0)
        assert drops(made) > 0
    assert total(result, "retransmissions") > 0


def test_mrc_stays_lossy_on_the_same_lab(tmp_path: pathlib.Path) -> None:
    lab = small(tmp_path, queues={"credits": {"buffer": BUFFER}}, routing={"adaptive": {}})
    with session(lab, "virtual", "mrc") as made:
        run(made, "incast", message_bytes=20_000, iterations=2, target=0)
        assert counted.credits({}, switches(made)) == {}
        assert made.topology.lab.queues.credits is None
        assert made.topology.lab.routing.adaptive is None


def test_a_host_that_starts_again_has_its_credits(tmp_path: pathlib.Path) -> None:
    """What an endpoint has used of a port's credits is the switch's to say when the port comes up."""
    with session(small(tmp_path, queues={"credits": {"buffer": BUFFER}}), "virtual", "roce") as made:
        for _ in range(3):
            made.set_carrier("h1", 0, False)
            made.advance(0.01)
            made.set_carrier("h1", 0, True)
            made.advance(0.1)
            result = run(made, "permutation", message_bytes=30_000, iterations=4)
        assert drops(made) == 0
    assert total(result, "timeouts") == 0


# --- adaptive routing ------------------------------------------------------------------------------------------------


def uplinks_used(made: Session) -> list[int]:
    """Bytes that each uplink of the T0s has sent."""
    ports = made.fabric_sample()["ports"]
    first = made.topology.first_uplink
    names = [switch.name for switch in made.topology.switches if "-t0." in switch.name]
    return [ports[f"{name}:{number}"]["tx_bytes"] for name in names for number in range(first, first + 4)]


def spread(tmp_path: pathlib.Path, routing: dict[str, Any], repair: str) -> tuple[list[int], dict[str, Any], float]:
    """One queue pair each of four hosts of a rack to four of another, over one plane with four uplinks."""
    lab = lab_file(
        tmp_path,
        "tiny",
        planes=1,
        t1_per_plane=4,
        hosts=8,
        hosts_per_t0=4,
        queues={"limit": "64KiB", "ecn": None, "trim": None, "credits": {"buffer": "16KiB"}},
        roce={**NO_CC, "repair": repair},
        routing=routing,
    )
    with session(lab, "virtual", "roce") as made:
        result = run(made, "permutation", message_bytes=200_000, iterations=2, shift=4)
        assert drops(made) == 0
        times = [each["finished_ns"] - each["started_ns"] for each in result["progress"].values()]
        return uplinks_used(made), result, max(times) / 1e9


def test_adaptive_routing_spreads(tmp_path: pathlib.Path) -> None:
    hashed, _, slow = spread(tmp_path, {}, "go_back_n")
    assert max(hashed) > 2 * min(hashed)  # two queue pairs or more share an uplink
    flowlets, result, _ = spread(tmp_path, {"adaptive": {"flowlet": "100ms"}}, "go_back_n")
    assert total(result, "not_in_order") == 0  # flows keep their uplink while they send
    assert max(flowlets) <= max(hashed)
    packets, result, fast = spread(tmp_path, {"adaptive": {}}, "reorder")
    assert total(result, "retransmissions") == 0
    assert max(packets) < 1.2 * min(packets)
    assert fast < 0.7 * slow


def test_go_back_n_does_not_go_with_packets_that_overtake(tmp_path: pathlib.Path) -> None:
    _, result, _ = spread(tmp_path, {"adaptive": {}}, "go_back_n")
    assert total(result, "not_in_order") > 0
    assert total(result, "retransmissions") > 0


# --- lab files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("queues: {credits: {buffer: 0}}", "queues.credits.buffer", "greater than or equal to 1"),
        (
            "queues: {credits: {buffer: 4KiB}}",
            "",
            "queues.credits.buffer (4096) has no room for a full packet; give it",
        ),
        ("queues: {credits: {}, pfc: {}}", "queues", "pfc and credits both say when a port may send; leave one"),
        ("queues: {credits: {size: 1}}", "queues.credits", "buffer"),
        (
            "overrides: {'p0-t0.0--p0-t1.0': {queue: {credits: {}}}}",
            "",
            "queues.credits are of all links or of none",
        ),
        ("routing: {mode: spray, adaptive: {}}", "routing", "mode spray has none; use srv6_usid"),
        ("routing: {adaptive: {flowlet: soon}}", "routing.adaptive.flowlet", "soon"),
        ("t1_per_plane: 17\nrouting: {adaptive: {}}", "", "compares 16 uplinks at most, t1_per_plane is 17"),
    ],
)
def test_bad_settings(text: str, place: str, problem: str) -> None:
    with pytest.raises(LabError) as error:
        parse_lab(f"name: x\n{text}\n")
    assert "<lab>" in str(error.value)
    assert place in str(error.value)
    assert problem in str(error.value)


def test_reference_switches_have_no_credits() -> None:
    topology = parse_lab("name: x\nqueues: {credits: {}}").for_transport("roce")
    with pytest.raises(
        ReferencePartMissing, match=r"bmv2 has no link-level credits; leave queues.credits out, or use p4lite"
    ):
        chosen(topology, "bmv2", "p4lite")


def test_what_hosts_and_switches_are_told() -> None:
    topology = parse_lab("name: x\nqueues: {credits: {buffer: 32KiB}}\nroce: {repair: reorder}").for_transport("roce")
    assert topology.lab.queues.trim is None
    roce = describe.host_config(topology, topology.hosts[0], "virtual", "roce").roce()
    assert (roce.credits, roce.reorders, roce.selective_repeat) == (True, True, False)
    assert roce.wire.dscp_no_trim == rules.DSCP_CREDITED
    entries = rules.switch_entries(topology, topology.switches[0])
    classes = [each for each in entries if each.table == rules.TRAFFIC_CLASSES]
    # Switches take a DSCP that they do not know for data, and that of credits is no other class's.
    assert rules.DSCP_CREDITED not in [each.match[0].value for each in classes]
    limits = [each.params["queue_limit"] for each in entries if each.table == rules.PORTS]
    assert set(limits) == {rules.NEVER}
    plain = load_lab("tiny").for_transport("roce")
    assert not describe.host_config(plain, plain.hosts[0], "virtual", "roce").roce().credits
