"""Hosts in Python around switches of the hand-written program, in virtual time: each sends at its link's rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from p4lite.switch.fabric.fabric import Fabric, FabricSwitch, LinkSettings, Port
from p4lite.switch.fabric.values import QueueLimits
from support.switch.hand_program import HandProgram

BYTE_NS = 1000
MBPS_8 = LinkSettings(rate_bps=8 * 10**6, delay_ns=5000)  # one byte per µs
FOREVER = 1 << 60
MAC_CONTROL = b"\x88\x08"


class Player(Protocol):
    """A host at a port: when it wants to send next, and what it does then and with what arrives."""

    port: Port

    def next_ns(self) -> int:
        """FOREVER: not before something arrives."""

    def send(self, fabric: Fabric, at_ns: int) -> None:
        """One packet."""

    def take(self, frame: bytes, time_ns: int) -> None:
        """Take what arrives."""


def play(fabric: Fabric, hosts: Sequence[Player], end_ns: int) -> None:
    """Let the hosts send until `end_ns`."""
    by_port = {(host.port.device_id, host.port.number): host for host in hosts}
    while True:
        host = min(hosts, key=lambda each: each.next_ns())
        due = max(host.next_ns(), 0)
        arrived = fabric.advance(min(due, end_ns))
        for time_ns, device_id, port, frame in arrived:
            by_port[device_id, port].take(frame, time_ns)
        if arrived:
            continue
        if due >= end_ns:
            return
        host.send(fabric, due)


def switch_of(fabric: Fabric, ident: int, ports: dict[int, LinkSettings]) -> FabricSwitch:
    """Return a switch with two priorities, and queues without limits."""
    switch = fabric.add_switch(ident, priority_queues=2)
    switch.load(HandProgram())  # type: ignore[arg-type]
    for number, link in ports.items():
        switch.add_port(number, to_host=link, to_switch=link).set_queue(QueueLimits(packets=0))
    return switch


def drops(fabric: Fabric, *reasons: str) -> int:
    """Packets lost at ports, for these reasons or any."""
    ports = [port.stats() for switch in fabric.switches.values() for port in switch.ports.values()]
    return sum(n for port in ports for why, n in port.drops.items() if not reasons or why in reasons)
