"""The virtual clock: many nodes on one simulated fabric, in one process, deterministic.

The fabric is handed in as an object that takes what the nodes send and gives what arrives at them, many packets at once
(`Fabric.outside` of the embedded switch's Python API makes one); nothing here knows switches.

Nodes act at instants: packets that arrive, links that become free, timers. All that lies before a time up to which the
fabric can tell what arrives is done before the fabric goes on, and what the nodes sent meanwhile goes to it in one
call. Each node does its part in order of time, and one node after the other: nodes concern each other only by packets,
which the fabric orders by when they were sent, and what a node needs stays in the processor's caches meanwhile. The
fabric is never further ahead than the shortest host link is long, so every packet still reaches it in time; and it
tells what arrives as much earlier.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

from mypy_extensions import i64

from mrc_host.drivers.surface import FOREVER, RING_PACKETS, NodeInterface
from mrc_host.proto.wire.framing import append_words
from mrc_host.proto.wire.icrc import wire_length

DROPPED: Final = -1  # in the place of when the link is free
NS_BITS: Final = 8_000_000_000  # bits of a byte times ns of a second
_MOST: Final = (1 << 62) - 1  # of a machine word, with room for a sum


#: Time, place, packet, and how many bytes are missing before its ICRC.
Arrival: TypeAlias = tuple[int, int, bytes, int]
# The same in this module. A tuple of known types would be taken apart and made again wherever it is passed on.
_Arrival: TypeAlias = tuple[Any, ...]


class VirtualFabric(Protocol):
    """The part of the fabric that hosts need. Places are indices of ports."""

    headers: list[bytes]
    now_ns: int
    #: What arrives at hosts up to then has been among the arrivals; not before `now_ns`.
    known_ns: int
    #: Packets since `transmitters` whose link became free at another time than said.
    surprises: int

    def lookahead_ns(self) -> int:
        """Return how long after a host's packet no switch sees it, as `transmitters` last found it."""

    def transmitters(self) -> list[tuple[int, int, int, int, int]]:
        """Return for each place: rate, overhead of a packet, queue (bytes), when its link is free, rest of a ns."""

    def transmitter(self, place: int) -> tuple[int, int, int, int, int]:
        """Return the entry of `transmitters` for one place."""

    def send(self, words: bytearray, parts: list[bytes]) -> None:
        """Take packets: (place, length, at, free) each, of 64 bits in the machine's order, and their bytes.

        The length's upper 32 bits are how many bytes are missing before the ICRC.
        """

    def exchange(self, words: bytearray, parts: list[bytes], limit_ns: int, foresee_ns: int) -> list[Arrival]:
        """Do `send`, then run until something is delivered or the limit is reached.

        Returns each delivery, in order, including those that are certain to follow up to
        `foresee_ns`.
        """


class _Port:
    """One NIC port of a node and its link, as the fabric has it."""

    __slots__ = ("free_ns", "header", "link_ns", "number", "overhead", "place", "queue", "rate", "rest")

    # Machine words, declared for the compiler.
    free_ns: i64
    link_ns: i64
    overhead: i64
    place: i64
    queue: i64
    rate: i64
    rest: i64

    def __init__(self, number: int, place: int, header: bytes) -> None:
        self.number = number
        self.place = place
        self.header = header
        self.free_ns = 0  # when the node may choose the next packet
        self.rate = 0
        self.overhead = 0
        self.queue = 0
        self.link_ns = 0
        self.rest = 0


class _ScheduledNode:
    """A node and its ports.

    `due`: when it is to be woken; `queued`: the same, as the driver's heap has it; `timer`: the earliest time at which
    its own timer can be due; `inbox`: what arrives next.
    """

    __slots__ = ("due", "held", "inbox", "node", "number", "ports", "queued", "runs", "timer", "unread")

    due: i64
    queued: i64
    timer: i64

    def __init__(self, number: int, node: NodeInterface, ports: list[_Port]) -> None:
        self.number = number
        self.node = node
        self.ports = ports
        self.due = FOREVER
        self.queued = FOREVER
        self.timer = FOREVER
        self.inbox: list[_Arrival] = []
        self.runs = True
        #: What has arrived for a node that does not run: (port, packet, missing); None: it will never be read.
        self.held: list[tuple[int, bytes, int]] | None = None
        #: By port, packets that arrived while it did not run and that it has not read.
        self.unread = [0] * len(ports)


class VirtualDriver:
    """Drives nodes over a fabric on the virtual clock.

    Args:
        fabric: where their packets go.
        nodes: by name.
        places: for each node, the places of its ports in the fabric, in order.
        mtu_bytes: the largest packet.
        length_only: nodes send packets without their payload, whose headers give the length with it.
    """

    def __init__(
        self,
        fabric: VirtualFabric,
        nodes: Mapping[str, NodeInterface],
        places: Mapping[str, Sequence[int]],
        mtu_bytes: int,
        length_only: bool = False,
    ) -> None:
        self.fabric = fabric
        self.length_only = length_only
        self.mtu_bytes = mtu_bytes
        headers = fabric.headers
        self._header_bytes = len(headers[0]) if headers else 0
        self._seats: list[_ScheduledNode] = []
        self._by_name: dict[str, _ScheduledNode] = {}
        #: By place: whose port, and which.
        self._seat_at: list[_ScheduledNode | None] = [None] * len(headers)
        self._number_at: list[int] = [0] * len(headers)
        for number, (name, node) in enumerate(nodes.items()):
            ports = [_Port(index, place, headers[place]) for index, place in enumerate(places[name])]
            seat = _ScheduledNode(number, node, ports)
            self._seats.append(seat)
            self._by_name[name] = seat
            for port in ports:
                self._seat_at[port.place] = seat
                self._number_at[port.place] = port.number
        #: Wakes as (time << _shift | number), stale ones among them.
        self._wakes: list[int] = []
        self._shift = max(len(self._seats) - 1, 1).bit_length()
        #: What nodes have sent and the fabric has not received yet (see `VirtualFabric.send`).
        self._words = bytearray()
        self._parts: list[bytes] = []
        self._ahead = 0
        self.now = fabric.now_ns

    def touch(self, name: str) -> None:
        """Let a node that was commanded from outside act at the present time."""
        seat = self._by_name[name]
        for port in seat.ports:  # all links of a large lab are too many for each command
            found = self.fabric.transmitter(port.place)
            port.rate, port.overhead, port.queue, port.link_ns, port.rest = found
        self._pump(seat, self.now)
        self._schedule(seat)
        self._tell()

    def hold(self, name: str, *, dead: bool = False) -> None:
        """Stop a node, as SIGSTOP stops an agent: what arrives waits, up to a ring; of a dead one it is lost."""
        seat = self._by_name[name]
        if dead:
            seat.held = None
        elif seat.runs:
            seat.held = []
        seat.runs = False
        seat.due = FOREVER
        self._schedule(seat)

    def release(self, name: str, node: NodeInterface | None = None) -> None:
        """Let a node run again with what has arrived meanwhile, or another in its place, which starts without state."""
        self._enter()
        seat = self._by_name[name]
        waiting = seat.held or []
        seat.runs, seat.held = True, None
        if node is not None:
            seat.node, waiting = node, []
        for index, packet, missing in waiting:
            seat.unread[index] -= 1
            seat.node.receive(index, packet, self.now, missing)
        seat.node.handle_timer(self.now)
        self._pump(seat, self.now)
        self._schedule(seat)
        self._tell()

    def unread(self, name: str) -> list[int]:
        """Return by port how many packets arrived at a node that it has not read: it was held, or killed."""
        return list(self._by_name[name].unread)

    def run_until(self, end_ns: int) -> None:
        """Run everything due before `end_ns`, and what arrives until then; a node that wants to be woken at that very
        instant is so by the next call."""
        self._enter()
        for seat in self._seats:
            self._pump(seat, self.now)
            self._schedule(seat)
        self._go(end_ns)
        self.now = max(self.now, end_ns)

    def _react_all(self, arrivals: list[_Arrival], known_ns: int, end_ns: int) -> None:
        """Let the nodes do what is due up to `known_ns` and before `end_ns`.

        `arrivals` are all that arrives until `known_ns`.
        """
        until = min(known_ns, end_ns)
        if until > self.now:
            self.now = until
        limit = min(known_ns + 1, end_ns)
        concerned: list[_ScheduledNode] = []
        seat_at = self._seat_at
        for arrival in arrivals:
            place: i64 = arrival[1]
            owner = seat_at[place] if place >= 0 else None
            if owner is None:
                continue
            if not owner.inbox:
                concerned.append(owner)
            owner.inbox.append(arrival)
        mask = (1 << self._shift) - 1
        while self._next_wake() < limit:
            seat = self._seats[heapq.heappop(self._wakes) & mask]
            seat.queued = FOREVER
            if not seat.inbox:
                concerned.append(seat)
        for seat in concerned:
            self._react(seat, limit)

    def _take_sent(self) -> tuple[bytearray, list[bytes]]:
        """Return what nodes have sent and the fabric has not received yet, and forget it (see `VirtualFabric.send`)."""
        words, parts = self._words, self._parts
        self._words, self._parts = bytearray(), []
        return words, parts

    def _go(self, end_ns: int) -> None:
        """Advance the nodes and the fabric in turn until `end_ns`."""
        fabric = self.fabric
        while True:
            wake = self._next_wake()
            due = wake < end_ns
            if due and wake <= fabric.known_ns:
                self._react_all([], fabric.known_ns, end_ns)
                continue
            # No packet that a node sends when it wakes up reaches a switch before this.
            limit = max(min(wake + self._ahead, end_ns), fabric.now_ns)
            words, parts = self._take_sent()
            arrivals = cast("list[_Arrival]", fabric.exchange(words, parts, limit, end_ns))
            if fabric.surprises:
                self._enter()  # another caller has changed a link meanwhile
            self._react_all(arrivals, fabric.known_ns, end_ns)
            if not (arrivals or due) and limit >= end_ns:
                break

    def _react(self, seat: _ScheduledNode, limit_ns: int) -> None:
        """Deliver what is in a node's inbox, each packet after the wake-ups that are due before it; then wake the node
        as often as it is due before the limit.
        """
        inbox = seat.inbox
        if inbox:
            seat.inbox = []
            number_at = self._number_at
            for arrival in inbox:
                time_ns: i64 = arrival[0]
                while seat.due < time_ns:
                    self._wake_up(seat)
                place: i64 = arrival[1]
                self._arrive(seat, time_ns, number_at[place], arrival[2], arrival[3])
        while seat.due < limit_ns:
            self._wake_up(seat)
        self._schedule(seat)

    def _enter(self) -> None:
        """Update when links become free, which other callers may have changed since the last call."""
        fabric = self.fabric
        found = fabric.transmitters()
        self._ahead = max(fabric.lookahead_ns() - 1, 0)
        for seat in self._seats:
            for port in seat.ports:
                port.rate, port.overhead, port.queue, port.link_ns, port.rest = found[port.place]

    def _tell(self) -> None:
        """Hand the packets that were sent to the fabric before it is changed in any other way."""
        if self._words:
            words, parts = self._take_sent()
            self.fabric.send(words, parts)

    def _next_wake(self) -> int:
        """Return when the next node is to be woken (ns), FOREVER if there is none."""
        wakes, seats, shift = self._wakes, self._seats, self._shift
        mask = (1 << shift) - 1
        while wakes:
            first = wakes[0]
            wake = first >> shift
            if seats[first & mask].queued == wake:
                return wake
            heapq.heappop(wakes)
        return FOREVER

    def _schedule(self, seat: _ScheduledNode) -> None:
        """Put a node into the heap by when it is due."""
        due = seat.due
        if due != seat.queued:
            seat.queued = due
            if due < FOREVER:
                heapq.heappush(self._wakes, due << self._shift | seat.number)

    def _wake_up(self, seat: _ScheduledNode) -> None:
        now = seat.due
        seat.due = FOREVER
        if seat.timer <= now:
            seat.node.handle_timer(now)
        self._pump(seat, now)

    def _arrive(self, seat: _ScheduledNode, time_ns: int, index: int, packet: bytes, missing: int) -> None:
        if not seat.runs:
            seat.unread[index] += 1
            waiting = seat.held
            if waiting is not None and len(waiting) < RING_PACKETS:
                waiting.append((index, packet, missing))
            return
        seat.node.receive(index, packet, time_ns, missing)
        self._pump(seat, time_ns)

    def _pump(self, seat: _ScheduledNode, now: int) -> None:
        """Let a node send what it can now, and set when it is due next."""
        if not seat.runs:
            return
        node = seat.node
        node.settle(now)
        wake = FOREVER
        quiet = node.quiet()
        for port in seat.ports:
            while port.free_ns <= now and not quiet:
                # One packet at a time: the next one is chosen when the link is free, as a NIC would.
                packets = node.to_send(port.number, now, self.mtu_bytes)
                if not packets:
                    break
                for packet in packets:
                    self._send(port, packet, now)
            if now < port.free_ns < wake:
                wake = port.free_ns
        timer = node.next_timer()
        seat.timer = timer
        if timer < wake:
            wake = timer if timer > now else now
        seat.due = wake

    def _send(self, port: _Port, packet: bytes, now: int) -> None:
        """Note a packet for the fabric, and when its link has carried it."""
        length: i64 = len(packet) + self._header_bytes
        told = length
        if self.length_only:
            missing: i64 = wire_length(packet) - len(packet)
            length += missing
            told = length | missing << 32
        rate = port.rate
        at: i64 = now
        free = port.link_ns
        if free < at:
            free = at
        behind = free - at
        if rate and port.queue and (behind > _MOST // rate or behind * rate // NS_BITS + length > port.queue):
            append_words(self._words, port.place, told, at, DROPPED)
        else:
            if rate:
                scaled = (length + port.overhead) * NS_BITS + port.rest
                free += scaled // rate
                port.rest = scaled % rate
            port.link_ns = free
            if free > port.free_ns:
                port.free_ns = free
            append_words(self._words, port.place, told, at, free)
        self._parts.append(port.header)
        self._parts.append(packet)
