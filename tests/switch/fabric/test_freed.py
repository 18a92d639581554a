"""Objects of the fabric after their end, and numbers that C would cut: errors, and no memory that is freed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from p4lite.switch.fabric import outside as module
from p4lite.switch.fabric.fabric import Fabric, FabricError
from p4lite.switch.fabric.port import Port
from p4lite.switch.fabric.switch import FabricSwitch
from p4lite.switch.fabric.values import CloneSession, LinkSettings, QueueLimits, Replica
from support.switch.hand_program import HandProgram, packet
from support.switch.words import words

NEVER = (1 << 64) - 1


def joined() -> Fabric:
    """Return a fabric of one switch with two ports."""
    fabric = Fabric("virtual", seed=3)
    switch = fabric.add_switch(1)
    switch.load(HandProgram())  # type: ignore[arg-type]
    for number in (1, 2):
        switch.add_port(number)
    return fabric


def port_calls(fabric: Fabric, port: Port) -> list[Callable[[], object]]:
    """Return calls with a port."""
    return [
        lambda: fabric.inject(port, packet()),
        port.stats,
        port.pfc_stats,
        lambda: port.is_up("outgoing"),
        lambda: port.set_up(False),
        lambda: port.set_queue(QueueLimits()),
        lambda: port.set_link(outgoing=LinkSettings(delay_ns=5)),
        lambda: port.generate([packet()], 1, interval_ns=1),
        lambda: port.collect(False),
        lambda: fabric.port_samples([port], 0),
    ]


def switch_calls(switch: FabricSwitch) -> list[Callable[[], object]]:
    """Return calls with a switch."""
    return [
        lambda: switch.add_port(5),
        switch.stats,
        switch.restart,
        lambda: switch.set_state("frozen"),
        lambda: switch.load(HandProgram()),  # type: ignore[arg-type]
        lambda: switch.set_multicast_group(1, [Replica(1)]),
        lambda: switch.set_clone_session(1, CloneSession(port=1)),
        lambda: switch.instance,
    ]


def refused(calls: list[Callable[[], object]]) -> None:
    """Check that each call raises FabricError."""
    for call in calls:
        with pytest.raises(FabricError):
            print(call())


def test_removed_port_is_an_error() -> None:
    with joined() as fabric:
        port = fabric.switch(1).port(2)
        fabric.switch(1).remove_port(2)
        with pytest.raises(FabricError, match="s1-p2: the port was removed, or its fabric is closed"):
            port.stats()
        refused(port_calls(fabric, port))
        fabric.switch(1).add_port(2)
        refused(port_calls(fabric, port))


def test_removed_switch_is_an_error() -> None:
    with joined() as fabric:
        switch = fabric.switch(1)
        port = switch.port(1)
        fabric.remove_switch(1)
        with pytest.raises(FabricError, match="s1: the switch was removed, or its fabric is closed"):
            switch.stats()
        refused(switch_calls(switch) + port_calls(fabric, port))


def test_closed_fabric_is_an_error() -> None:
    fabric = joined()
    switch = fabric.switch(1)
    calls = switch_calls(switch) + port_calls(fabric, switch.port(1))
    fabric.close()
    refused([*calls, lambda: fabric.now_ns, lambda: fabric.run_until(1), fabric.events])
    assert fabric.notifications() == []


@pytest.mark.parametrize("way", ["ferry", "ctypes"])
def test_hosts_at_a_removed_port_are_an_error(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "ctypes":
        monkeypatch.setattr(module, "ferries", lambda: None)
    with joined() as fabric:
        switch = fabric.switch(1)
        both = fabric.outside([(switch.port(number), b"") for number in (1, 2)])
        other = fabric.outside([(switch.port(1), b"")])
        both.transmitters()
        other.transmitters()
        switch.remove_port(2)
        refused(
            [
                both.transmitters,
                lambda: both.transmitter(1),
                lambda: both.send(words(1, 100, 10, 20), [packet()]),
                lambda: both.exchange(words(1, 100, 10, 20), [packet()], 100),
            ]
        )
        assert other.exchange(words(), [], 100) == []


def test_numbers_that_c_would_cut_are_refused() -> None:
    with joined() as fabric:
        switch, port = fabric.switch(1), fabric.switch(1).port(1)
        hosts = fabric.outside([(port, b"")])
        hosts.transmitters()
        for time in (-1, 1 << 63, NEVER, 1 << 65):
            refused(
                [
                    lambda time=time: fabric.run_until(time),  # type: ignore[misc]
                    lambda time=time: fabric.advance(time),  # type: ignore[misc]
                    lambda time=time: fabric.inject(port, packet(), time),  # type: ignore[misc]
                    lambda time=time: port.generate([packet()], 1, interval_ns=time),  # type: ignore[misc]
                    lambda time=time: port.generate([packet()], 1, interval_ns=1, start_ns=time),  # type: ignore[misc]
                ]
            )
        with pytest.raises(FabricError, match="a time is between 0 and"):
            hosts.exchange(words(), [], NEVER)
        refused(
            [
                lambda: port.set_queue(QueueLimits(packets=1 << 64)),
                lambda: port.capture("unused.pcap", 1 << 32),
                lambda: port.set_pfc(0, None, source_mac=-1),
                lambda: fabric.set_files_room(-1),
                lambda: Fabric("virtual", memory_limit_bytes=-1),
                lambda: switch.set_multicast_group((1 << 32) + 1, [Replica(1)]),
                lambda: switch.delete_multicast_group((1 << 32) + 1),
                lambda: switch.set_clone_session((1 << 32) + 1, CloneSession(port=1)),
                lambda: switch.set_clone_session(1, CloneSession(port=-1)),
                lambda: switch.set_clone_session(1, CloneSession(mcast_group=-1)),
                lambda: switch.delete_clone_session(-1),
            ]
        )
        assert (fabric.now_ns, switch.multicast_groups(), switch.clone_sessions()) == (0, {}, {})
