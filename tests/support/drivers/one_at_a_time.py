"""The virtual clock as plainly as can be, the model of `mrc_host.drivers.virtual`.

The fabric goes on to the next thing that concerns a node, and receives each packet at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mrc_host.drivers.surface import FOREVER, RING_PACKETS, NodeInterface
from p4lite.switch.fabric.fabric import Fabric, Port
from support.switch.words import words


class OneAtATime:
    """As `VirtualDriver`, over the fabric's `advance`, and `send` for each packet."""

    def __init__(
        self,
        fabric: Fabric,
        cables: Sequence[tuple[Port, bytes]],
        nodes: Mapping[str, NodeInterface],
        places: Mapping[str, Sequence[int]],
        mtu_bytes: int,
    ) -> None:
        self.fabric = fabric
        self.cables = list(cables)
        self.outside = fabric.outside(cables)
        self.nodes = dict(nodes)
        self.places = places
        self.mtu_bytes = mtu_bytes
        self.where = {
            (cables[place][0].device_id, cables[place][0].number): (name, index)
            for name, own in places.items()
            for index, place in enumerate(own)
        }
        self.free_ns = [0] * len(self.cables)
        self.due = dict.fromkeys(self.nodes, FOREVER)
        self.held: dict[str, list[tuple[int, bytes]] | None] = {}
        self.now = fabric.now_ns

    def touch(self, name: str) -> None:
        """See `VirtualDriver`."""
        self.pump(name, self.now)

    def hold(self, name: str, *, dead: bool = False) -> None:
        """See `VirtualDriver`."""
        self.held[name] = None if dead else self.held.get(name, [])
        self.due[name] = FOREVER

    def release(self, name: str, node: NodeInterface | None = None) -> None:
        """See `VirtualDriver`."""
        waiting = self.held.pop(name, None) or []
        if node is not None:
            self.nodes[name], waiting = node, []
        for index, packet in waiting:
            self.nodes[name].receive(index, packet, self.now)
        self.nodes[name].handle_timer(self.now)
        self.pump(name, self.now)

    def run_until(self, end_ns: int) -> None:
        """See `VirtualDriver`."""
        for name in self.nodes:
            self.pump(name, self.now)
        while True:
            wake = min(self.due.values())
            if wake <= self.fabric.now_ns and wake < end_ns:
                self.wake_up()
                continue
            limit = min(wake, end_ns)
            arrivals = self.fabric.advance(max(limit, self.fabric.now_ns))
            for time_ns, device, port, frame in arrivals:
                while min(self.due.values()) < time_ns:
                    self.wake_up()
                name, index = self.where[device, port]
                self.now = max(self.now, time_ns)
                packet = frame[len(self.cables[self.places[name][index]][1]) :]
                if name in self.held:
                    waiting = self.held[name]
                    if waiting is not None and len(waiting) < RING_PACKETS:
                        waiting.append((index, packet))
                    continue
                self.nodes[name].receive(index, packet, time_ns)
                self.pump(name, time_ns)
            if not arrivals and limit >= end_ns:
                break
        self.now = max(self.now, end_ns)

    def wake_up(self) -> None:
        """Wake the first node that is due; of those at one instant the first in order."""
        wake = min(self.due.values())
        name = next(name for name, due in self.due.items() if due == wake)
        self.due[name] = FOREVER
        self.now = max(self.now, wake)
        timer = self.nodes[name].next_timer()
        if timer <= self.now:
            self.nodes[name].handle_timer(self.now)
        self.pump(name, self.now)

    def pump(self, name: str, now: int) -> None:
        """Let a node send."""
        if name in self.held:
            return
        node = self.nodes[name]
        node.settle(now)
        wakes = []
        for index, place in enumerate(self.places[name]):
            while self.free_ns[place] <= now:
                packets = node.to_send(index, now, self.mtu_bytes)
                if not packets:
                    break
                for packet in packets:
                    self.send(place, packet, now)
            if self.free_ns[place] > now:
                wakes.append(self.free_ns[place])
        wakes.append(max(node.next_timer(), now))
        self.due[name] = min(wakes)

    def send(self, place: int, packet: bytes, now: int) -> None:
        """Put a packet on a host's link, and note when that is free, unless the host's queue is full."""
        port, header = self.cables[place]
        before = port.stats().drops["host_queue_full"]
        self.outside.send(words(place, len(header) + len(packet), now, 0), [header, packet])
        if port.stats().drops["host_queue_full"] == before:
            self.free_ns[place] = max(self.free_ns[place], self.outside.transmitter(place)[3])
