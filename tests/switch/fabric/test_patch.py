"""Wires through a switch: ports that are patched together, without any program."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4lite.switch.fabric.fabric import Fabric, FabricError, FabricSwitch, LinkSettings
from p4lite.switch.fabric.values import QueueLimits, SwitchState
from p4lite.switch.listen import ServerError
from p4lite.switch.server import FabricServer
from support.pcapng import blocks
from support.switch.hand_program import HandProgram, Op, packet

ENHANCED_PACKET = 6


def patched(ports: int = 4) -> tuple[Fabric, FabricSwitch]:
    """Ports 1-2 and 3-4 are wires."""
    fabric = Fabric("virtual", seed=3)
    switch = fabric.add_switch(1, priority_queues=8)
    for number in range(1, ports + 1):
        switch.add_port(number)
    switch.patch(1, 2)
    switch.patch(4, 3)
    return fabric, switch


def test_bytes_go_through_unchanged_both_ways_and_nowhere_else(tmp_path: Path) -> None:
    fabric, switch = patched()
    switch.port(2).capture(tmp_path / "p2.pcapng")
    for number, frame in ((1, b"\x01" * 60), (2, b"anything at all"), (3, bytes(9000)), (4, b"\xff")):
        fabric.inject(switch.port(number), frame, 0)
    out = {port: frame for _, _, port, frame in fabric.run_until(10)}
    assert out == {2: b"\x01" * 60, 1: b"anything at all", 4: bytes(9000), 3: b"\xff"}
    stats = {number: port.stats() for number, port in switch.ports.items()}
    assert [(each.rx_packets, each.tx_packets, sum(each.drops.values())) for each in stats.values()] == [(1, 1, 0)] * 4
    assert switch.stats().received == 4
    assert switch.stats().transmitted == 4
    switch.port(2).capture(None)
    assert len([kind for kind, _ in blocks((tmp_path / "p2.pcapng").read_bytes()) if kind == ENHANCED_PACKET]) == 2


def test_a_wire_has_the_links_rate_queue_and_impairments() -> None:
    fabric, switch = patched()
    switch.port(2).set_link(outgoing=LinkSettings(rate_bps=8 * 10**6, delay_ns=500))
    switch.port(2).set_queue(QueueLimits(packets=0, bytes=350))
    for _ in range(5):
        fabric.inject(switch.port(1), bytes(100), 0)
    # One is sent as it comes; of the others as many wait as there is room for.
    assert [at for at, *_ in fabric.run_until(10**6)] == [100_500, 200_500, 300_500, 400_500]
    stats = switch.port(2).stats()
    assert stats.drops["queue_full"] == 1
    assert stats.queues[0].max_bytes == 300
    switch.port(2).set_up(False, "outgoing")
    switch.port(4).set_link(outgoing=LinkSettings(blackhole=True))
    for number in (1, 2, 3):
        fabric.inject(switch.port(number), bytes(100), 2 * 10**6)
    assert [port for _, _, port, _ in fabric.run_until(3 * 10**6)] == [1]
    assert switch.port(2).stats().drops["link_down"] == 1
    assert switch.port(4).stats().drops["blackhole"] == 1


@pytest.mark.parametrize("state", [SwitchState.FROZEN, SwitchState.STOPPED])
def test_a_switch_that_does_not_run_carries_no_wire(state: SwitchState) -> None:
    fabric, switch = patched()
    switch.port(2).set_link(outgoing=LinkSettings(rate_bps=8 * 10**6))
    for _ in range(3):
        fabric.inject(switch.port(1), bytes(100), 0)
    assert len(fabric.run_until(150_000)) == 1
    switch.set_state(state)
    fabric.inject(switch.port(1), bytes(100), 200_000)
    fabric.run_until(10**6)
    assert switch.port(1).stats().drops["not_running"] == 1
    switch.set_state(SwitchState.RUNNING)
    # Frozen it keeps what waits, stopped it has lost it.
    waited = 1 if state is SwitchState.FROZEN else 0
    assert len(fabric.run_until(2 * 10**6)) == waited
    fabric.inject(switch.port(1), bytes(100), 2 * 10**6)
    assert len(fabric.run_until(3 * 10**6)) == 1


def test_a_program_does_not_see_what_is_patched_and_has_the_other_ports() -> None:
    fabric, switch = patched(6)
    switch.load(HandProgram())  # type: ignore[arg-type]
    fabric.inject(switch.port(5), packet(Op.FORWARD, 6, size=100), 0)
    fabric.inject(switch.port(1), packet(Op.FORWARD, 6, size=100), 0)
    assert sorted(port for _, _, port, _ in fabric.run_until(10)) == [2, 6]
    assert switch.stats().ingress == 1


def test_a_wire_ends_with_either_port() -> None:
    fabric, switch = patched()
    switch.port(2).set_link(outgoing=LinkSettings(rate_bps=8000))
    for _ in range(3):
        fabric.inject(switch.port(1), bytes(100), 0)
    switch.remove_port(1)
    fabric.run_until(10)
    switch.add_port(1)
    fabric.inject(switch.port(2), bytes(100), 10)
    fabric.inject(switch.port(1), bytes(100), 10)
    fabric.run_until(20)
    assert switch.stats().drops["no_program"] == 2
    switch.patch(1, 2)
    fabric.inject(switch.port(2), bytes(100), 20)
    assert [port for _, _, port, _ in fabric.run_until(30)] == [1]


def test_what_cannot_be_patched_is_refused() -> None:
    _, switch = patched(5)
    with pytest.raises(FabricError, match="s1: patch 5 - 1: a port is patched already"):
        switch.patch(5, 1)
    with pytest.raises(FabricError, match="a port cannot be patched to itself"):
        switch.patch(5, 5)
    with pytest.raises(FabricError, match="no port 9"):
        switch.patch(5, 9)


def test_patches_in_a_fabrics_description() -> None:
    ports = [{"port": number} for number in (1, 2)]
    description = {"clock": "virtual", "switches": [{"device_id": 1, "ports": ports, "patches": [[1, 2]]}]}
    server = FabricServer.from_description(description)
    fabric = server.fabric
    fabric.inject(fabric.switch(1).port(1), b"through", 0)
    assert [frame for *_, frame in fabric.run_until(1)] == [b"through"]
    server.stop()
    description["switches"] = [{"device_id": 1, "ports": ports, "patches": [[1]]}]
    with pytest.raises(ServerError, match=r"switches\[0\]\.patches\[0\]: expected \[port, port\]"):
        FabricServer.from_description(description)
    description["switches"] = [{"device_id": 1, "ports": ports, "patches": [[1, 3]]}]
    with pytest.raises(ServerError, match=r"switches\[0\]: s1: no port 3"):
        FabricServer.from_description(description)
