"""The virtual clock: many nodes on one simulated fabric, in one process, deterministic.

The fabric is handed in as an object with `advance`, `inject` and `now_ns` (the embedded switch's Python API has
them); nothing here knows switches.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from mrc_host.drivers.surface import RING_PACKETS, Drivable

FOREVER = 1 << 62

Port = TypeVar("Port", contravariant=True)


class VirtualFabric(Protocol[Port]):
    """The part of the fabric that hosts need."""

    @property
    def now_ns(self) -> int:
        """The fabric's time."""

    def advance(self, limit_ns: int) -> list[tuple[int, int, int, bytes]]:
        """Runs until something is delivered or the limit is reached: (time, device, port, frame)."""

    def inject(self, port: Port, frame: bytes, at_ns: int | None = None) -> int:
        """Sends a frame into a port; returns when its link is free again, -1 when it was dropped."""


P = TypeVar("P")


class NodePort(Generic[P]):
    """One NIC port of a node and the fabric's port that it is cabled to."""

    __slots__ = ("fabric_port", "free_ns", "header", "key")

    def __init__(self, fabric_port: P, key: tuple[int, int], header: bytes) -> None:
        self.fabric_port = fabric_port
        self.key = key
        self.header = header
        self.free_ns = 0


class VirtualDriver(Generic[P]):
    """Drives nodes over a fabric on the virtual clock.

    Args:
        fabric: where their packets go.
        nodes: by name.
        ports: for each node, its ports in order.
        mtu_bytes: the largest packet.
    """

    def __init__(
        self,
        fabric: VirtualFabric[P],
        nodes: Mapping[str, Drivable],
        ports: Mapping[str, list[NodePort[P]]],
        mtu_bytes: int,
    ) -> None:
        self.fabric = fabric
        self.nodes = dict(nodes)
        self.ports = {name: list(own) for name, own in ports.items()}
        self.mtu_bytes = mtu_bytes
        self._where = {port.key: (name, index) for name, own in self.ports.items() for index, port in enumerate(own)}
        self._order = {name: number for number, name in enumerate(self.nodes)}
        self._names = list(self.nodes)
        self._wakes: list[tuple[int, int]] = []
        self._due: list[int] = [FOREVER] * len(self._names)
        #: Nodes that do not run, with what has arrived for them: (port, packet); None: nobody will ever read it.
        self._held: dict[str, list[tuple[int, bytes]] | None] = {}
        self.now = fabric.now_ns

    def touch(self, name: str) -> None:
        """Lets a node that was commanded from outside act at the present time."""
        self._pump(name, self.now)

    def hold(self, name: str, *, dead: bool = False) -> None:
        """Stops a node, as SIGSTOP stops an agent: what arrives waits, up to a ring; of a dead one it is lost."""
        self._held[name] = None if dead else self._held.get(name, [])
        self._due[self._order[name]] = FOREVER

    def release(self, name: str, node: Drivable | None = None) -> None:
        """Lets a node run again: with what has arrived meanwhile, or another in its place, which begins anew."""
        waiting = self._held.pop(name, None) or []
        if node is not None:
            self.nodes[name], waiting = node, []
        for index, packet in waiting:
            self.nodes[name].receive(index, packet, self.now)
        self.nodes[name].handle_timer(self.now)
        self._pump(name, self.now)

    def run_until(self, end_ns: int) -> None:
        """Runs everything due up to and including `end_ns`."""
        for name in self._names:
            self._pump(name, self.now)
        while True:
            wake = self._next_wake()
            # The fabric may have run a little ahead of the last packet it delivered; a host's reaction in between
            # still reaches it in time, because its link's delay is longer than that.
            if wake <= min(self.fabric.now_ns, end_ns):
                self._wake_up(wake)
                continue
            limit = min(wake, end_ns)
            arrivals = self.fabric.advance(max(limit, self.fabric.now_ns))
            for time_ns, device, port, frame in arrivals:
                while (wake := self._next_wake()) < time_ns:
                    self._wake_up(wake)
                self._arrive(time_ns, device, port, frame)
            if not arrivals and limit >= end_ns:
                break
        self.now = max(self.now, end_ns)

    def _next_wake(self) -> int:
        """When the next node wants to be woken, FOREVER if none does."""
        wakes, due = self._wakes, self._due
        while wakes and wakes[0][0] != due[wakes[0][1]]:
            heapq.heappop(wakes)
        return wakes[0][0] if wakes else FOREVER

    def _wake_up(self, wake: int) -> None:
        number = self._wakes[0][1]
        self._due[number] = FOREVER
        self.now = max(self.now, wake)
        name = self._names[number]
        node = self.nodes[name]
        timer = node.next_timer()
        if timer is not None and timer <= self.now:
            node.handle_timer(self.now)
        self._pump(name, self.now)

    def _arrive(self, time_ns: int, device: int, port: int, frame: bytes) -> None:
        place = self._where.get((device, port))
        if place is None:
            return
        name, index = place
        self.now = max(self.now, time_ns)
        if name in self._held:
            waiting = self._held[name]
            if waiting is not None and len(waiting) < RING_PACKETS:
                waiting.append((index, frame[14:]))
            return
        self.nodes[name].receive(index, frame[14:], time_ns)
        self._pump(name, time_ns)

    def _pump(self, name: str, now: int) -> None:
        if name in self._held:
            return
        node, inject = self.nodes[name], self.fabric.inject
        node.settle(now)
        wake = FOREVER
        for index, port in enumerate(self.ports[name]):
            while port.free_ns <= now:
                # One packet at a time: the next one is chosen when the link is free, as a NIC would.
                packets = node.to_send(index, now, self.mtu_bytes)
                if not packets:
                    break
                for packet in packets:
                    free = inject(port.fabric_port, port.header + packet, now)
                    if free > port.free_ns:
                        port.free_ns = free
            if port.free_ns > now:
                wake = min(wake, port.free_ns)
        timer = node.next_timer()
        if timer is not None:
            wake = min(wake, max(timer, now))
        number = self._order[name]
        if wake != self._due[number]:
            self._due[number] = wake
            if wake < FOREVER:
                heapq.heappush(self._wakes, (wake, number))
