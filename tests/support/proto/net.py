"""A simulated network for sans-IO endpoints: hosts with P ports, P planes of K paths, one virtual clock.

    host NIC port (rate) -> path k of plane p (queue, ECN, trimming, impairments, latency) -> host port (queue) -> host

A path queue belongs to a source *group* (the T0 switch of the sender): hosts of one group share it, which is where
flows meet; a host port queue belongs to the receiver, which is where incast meets. Both serve control packets
first. Queues are computed, not simulated slot by slot: a queue is the time until which its link is busy.

Everything is deterministic by the seed. The clock jumps to the next event; a run is bounded in virtual time and in
events. The endpoint is anything with the five methods of `mrc_host.proto.endpoint.Endpoint`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Protocol

from support.proto.progress import what_is_stuck, what_is_wrong

GIGABIT = 1_000_000_000
TRIMMABLE = frozenset((4, 8))
DSCP_TRIMMED, DSCP_LASTHOP = 12, 16
CONTROL = frozenset((DSCP_TRIMMED, DSCP_LASTHOP, 46))
TRIM_KEEP = 84  # IPv6, UDP, BTH, METH, TSETH, RETH


class Core(Protocol):
    """What the network drives."""

    def receive_datagram(self, port: int, packet: bytes, now: int) -> None: ...
    def quiet(self) -> bool: ...

    def datagrams_to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]: ...
    def next_timer(self) -> int | None: ...
    def handle_timer(self, now: int) -> None: ...
    def next_event(self) -> Any: ...
    def set_port_state(self, port: int, up: bool, now: int) -> None: ...


class Stalled(AssertionError):
    """The run reached its bound of virtual time or events before its condition came true."""


@dataclass(frozen=True)
class Impairment:
    """What a path does to packets at random; all are probabilities per packet except `reorder_ns`."""

    loss: float = 0.0
    burst_enter: float = 0.0  # of entering the state in which every packet is lost
    burst_leave: float = 0.2
    reorder: float = 0.0
    reorder_ns: int = 20_000  # a reordered packet is late by up to this
    duplicate: float = 0.0
    corrupt: float = 0.0

    @property
    def active(self) -> bool:
        return any((self.loss, self.burst_enter, self.reorder, self.duplicate, self.corrupt))


@dataclass(frozen=True)
class NetConfig:
    """Shape and rates. `ecn` (kmin, kmax) and `trim_bytes` are thresholds of path queues, None: never.

    `select`: how a path is chosen: "hash" of the EV and addresses, "structured" (EV modulo K), "srv6" (the second
    uSID of the outer destination, modulo K).
    """

    planes: int = 1
    paths: int = 4
    port_rate_bps: int = 100_000_000_000
    path_rate_bps: int = 100_000_000_000
    latency_ns: int = 3_000  # one way
    queue_bytes: int = 400_000
    ecn: tuple[int, int] | None = (40_000, 160_000)
    trim_bytes: int | None = 200_000
    port_queue_bytes: int = 400_000
    port_trim_bytes: int | None = 200_000
    port_ecn: tuple[int, int] | None = None  # of the ports to hosts, which MRC leaves unmarked
    select: str = "hash"
    nic_queue_bytes: int = 10_000  # what a NIC port takes from the endpoint ahead of its wire
    impairment: Impairment = Impairment()


@dataclass(slots=True)
class Queue:
    """A link with a data and a control queue in front of it, as the times until which each keeps it busy."""

    rate_bps: int
    limit_bytes: int
    trim_bytes: int | None
    dscp: int  # of what is trimmed here
    ecn: tuple[int, int] | None = None
    busy: int = 0
    control_busy: int = 0
    up: bool = True
    sent: int = 0
    sent_bytes: int = 0
    dropped: int = 0
    trimmed: int = 0
    marked: int = 0
    peak_bytes: int = 0


@dataclass(slots=True)
class Path(Queue):
    """Path `index` of `plane` from the hosts of `group`. `latency_ns` and `impairment` may be changed at any time."""

    group: int = 0
    plane: int = 0
    index: int = 0
    latency_ns: int = 0
    impairment: Impairment = field(default_factory=Impairment)
    impaired: bool = False
    bursting: bool = False
    lost: int = 0

    def impair(self, **changes: Any) -> None:
        """Set impairments, the others to zero."""
        self.impairment = Impairment(**changes)
        self.impaired = self.impairment.active
        self.bursting = False


@dataclass(slots=True)
class Host:
    """A node of the network. `nic_busy[p]`: until when port p's wire is taken; `ports[p]`: the queue towards it."""

    index: int
    group: int
    core: Any  # a `Core`: an endpoint of either transport, whose own methods tests call
    address: bytes
    nic_busy: list[int]
    ports: list[Queue]
    link_up: list[bool]
    polled: list[int]
    timer_at: int | None = None
    dirty: bool = True
    received: int = 0
    received_bytes: list[int] = field(default_factory=list)
    on_event: Callable[[Any], None] | None = None


# What a rule says of a packet: None (let it be), "drop", "trim", "mark", or nanoseconds of extra delay.
Rule = Callable[["Net", Host, int, int, bytes], "str | int | None"]
Watcher = Callable[[int, str, Host, int, int, bytes], None]


class Net:
    """Hosts, paths and the clock. `now` is virtual time in ns."""

    def __init__(self, config: NetConfig, seed: int) -> None:
        self.config = config
        self.rng = random.Random(seed)
        self.now = 0
        self.hosts: list[Host] = []
        self.events = 0
        self.packets = 0
        self.delivered = 0
        self.rules: list[Rule] = []
        self.watchers: list[Watcher] = []
        self._paths: dict[tuple[int, int], list[Path]] = {}
        self._by_address: dict[bytes, Host] = {}
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._dirty: list[Host] = []
        self._choices: dict[tuple[bytes, bytes], int] = {}

    # --- construction ---

    def add(self, address: bytes, core: Core, group: int | None = None) -> Host:
        """Return a host; by default it is alone under its T0 (its own group)."""
        c, index = self.config, len(self.hosts)
        group = index if group is None else group
        ports = [
            Queue(c.port_rate_bps, c.port_queue_bytes, c.port_trim_bytes, DSCP_LASTHOP, c.port_ecn)
            for _ in range(c.planes)
        ]
        zeros = [0] * c.planes
        host = Host(index, group, core, address, zeros[:], ports, [True] * c.planes, [-1] * c.planes)
        host.received_bytes = zeros[:]
        self.hosts.append(host)
        self._by_address[address] = host
        for plane in range(c.planes):
            self._paths.setdefault((group, plane), self._new_paths(group, plane))
        self._dirty.append(host)
        return host

    def _new_paths(self, group: int, plane: int) -> list[Path]:
        c = self.config
        made = []
        for index in range(c.paths):
            path = Path(c.path_rate_bps, c.queue_bytes, c.trim_bytes, DSCP_TRIMMED, c.ecn)
            path.group, path.plane, path.index = group, plane, index
            path.latency_ns, path.impairment = c.latency_ns, c.impairment
            path.impaired = c.impairment.active
            made.append(path)
        return made

    def paths(self, *, group: int | None = None, plane: int | None = None, index: int | None = None) -> Iterator[Path]:
        """All paths that match."""
        for (g, p), row in self._paths.items():
            if group in (None, g) and plane in (None, p):
                yield from row if index is None else (row[index],)

    # --- time ---

    def at(self, time: int, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action(*arguments)` at a virtual time."""
        self._sequence += 1
        heappush(self._heap, (max(time, self.now), self._sequence, action, arguments))

    def touch(self, host: Host) -> None:
        """Something was asked of the host's endpoint: see what it wants to send."""
        if not host.dirty:
            host.dirty = True
            self._dirty.append(host)

    def run(
        self,
        until: Callable[[], bool] | None = None,
        *,
        max_time_ns: int,
        max_events: int = 50_000_000,
    ) -> bool:
        """Run until the condition holds (True), or nothing is left to happen before `max_time_ns` (False).

        Without a condition runs up to `max_time_ns`. With one, raises Stalled at either bound.
        """
        heap = self._heap
        end = self.now + max_time_ns
        while True:
            while self._dirty:
                host = self._dirty.pop()
                host.dirty = False
                self._pump(host)
            if until is not None and until():
                return True
            if not heap or heap[0][0] > end:
                if until is None:
                    self.now = end
                    return False
                left = "nothing is left to happen" if not heap else f"{max_time_ns / 1e9:g} s of virtual time are over"
                raise Stalled(f"{left} at {self.now / 1e6:.3f} ms after {self.events} events")
            time = heap[0][0]
            self.now = time
            while heap and heap[0][0] == time:
                _, _, action, arguments = heappop(heap)
                action(*arguments)
                self.events += 1
            if self.events > max_events:
                raise Stalled(f"{self.events} events at {self.now / 1e6:.3f} ms")

    def _pump(self, host: Host) -> None:
        """Take what the endpoint wants to send now, its events and its next timer."""
        core, now = host.core, self.now
        rate, room = self.config.port_rate_bps, self.config.nic_queue_bytes
        for port, busy in enumerate(host.nic_busy):
            budget = room if busy <= now else room - (busy - now) * rate // 8_000_000_000
            if budget < room // 2:
                continue  # polled again when half of it has drained
            quiet = core.quiet()
            packets = core.datagrams_to_send(port, now, budget)
            assert not (quiet and packets), "quiet, and yet it sends"
            if not packets:
                continue
            busy = max(busy, now)
            for packet in packets:
                busy += len(packet) * 8_000_000_000 // rate
                self._leave(host, port, packet, busy)
            host.nic_busy[port] = busy
            again = max(busy - room * 4_000_000_000 // rate, now + 1)
            if again > host.polled[port]:
                host.polled[port] = again
                self.at(again, self.touch, host)
        event = core.next_event()
        while event is not None:
            if host.on_event is not None:
                host.on_event(event)
            event = core.next_event()
        timer = core.next_timer()
        if timer is not None and (host.timer_at is None or timer < host.timer_at):
            host.timer_at = timer = max(timer, now)
            self.at(timer, self._timer, host, timer)
        if self.events % 64 == 0 and (wrong := what_is_wrong(core)):
            raise AssertionError(f"{wrong[0]} at {now / 1e6:.3f} ms after {self.events} events")
        if stuck := what_is_stuck(core):
            raise Stalled(f"{stuck[0]} at {now / 1e6:.3f} ms after {self.events} events")

    def _timer(self, host: Host, time: int) -> None:
        if host.timer_at == time:
            host.timer_at = None
        due = host.core.next_timer()
        if due is not None and due <= self.now:
            host.core.handle_timer(self.now)
        self.touch(host)

    # --- the way of a packet ---

    def choose(self, packet: bytes, group: int, plane: int) -> Path:
        """Return the path of `plane` that a packet takes."""
        row = self._paths[group, plane]
        select = self.config.select
        if select == "srv6" and packet[6] != 17:
            return row[int.from_bytes(packet[30:32], "big") % len(row)]  # behind locator (4) and T0 (2)
        base = inner_offset(packet)
        if select == "structured":
            return row[int.from_bytes(packet[base + 40 : base + 42], "big") % len(row)]
        key = (packet[base + 2 : base + 4] + packet[base + 40 : base + 42], packet[base + 8 : base + 40])
        index = self._choices.get(key)
        if index is None:
            mixed = (int.from_bytes(key[0], "big") * 0x9E3779B97F4A7C15 + int.from_bytes(key[1][-3:], "big")) >> 13
            mixed = mixed * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
            index = self._choices[key] = (mixed >> 29) % len(row)
        return row[index]

    def _leave(self, host: Host, port: int, packet: bytes, time: int) -> None:
        """Let a packet leave the NIC at `time`, and take its path."""
        self.packets += 1
        if not host.link_up[port]:
            return
        path = self.choose(packet, host.group, port)
        for watcher in self.watchers:
            watcher(time, "sent", host, port, path.index, packet)
        verdict: str | int | None = None
        for rule in self.rules:
            verdict = rule(self, host, port, path.index, packet)
            if verdict is not None:
                break
        if not path.up or verdict == "drop":
            path.lost += 1
            return
        extra = verdict if isinstance(verdict, int) else 0
        copies = 1
        if path.impaired:
            fate = self._impair(path, packet)
            if fate is None:
                path.lost += 1
                return
            packet, late, copies = fate
            extra += late
        passed = self._through(path, packet, time, verdict)
        if passed is None:
            return
        packet, departure = passed
        for _ in range(copies):
            self.at(departure + path.latency_ns + extra, self._arrive, host, port, packet)

    def _impair(self, path: Path, packet: bytes) -> tuple[bytes, int, int] | None:
        what, draw = path.impairment, self.rng.random
        if what.burst_enter:
            if path.bursting:
                path.bursting = draw() >= what.burst_leave
            elif draw() < what.burst_enter:
                path.bursting = True
            if path.bursting:
                return None
        if what.loss and draw() < what.loss:
            return None
        if what.corrupt and draw() < what.corrupt:
            packet = flip_bits(packet, self.rng)
        late = self.rng.randrange(what.reorder_ns) if what.reorder and draw() < what.reorder else 0
        copies = 2 if what.duplicate and draw() < what.duplicate else 1
        return packet, late, copies

    def _through(self, queue: Queue, packet: bytes, time: int, verdict: object) -> tuple[bytes, int] | None:
        """Return the packet as it leaves the queue, and when; None: dropped."""
        size = len(packet)
        dscp = packet[0] << 2 & 0x3C | packet[1] >> 6
        rate = queue.rate_bps
        if dscp not in CONTROL:
            waiting = (queue.busy - time) * rate // 8_000_000_000 if queue.busy > time else 0
            if waiting > queue.peak_bytes:
                queue.peak_bytes = waiting
            full = queue.trim_bytes is not None and waiting > queue.trim_bytes
            if (full or verdict == "trim") and dscp in TRIMMABLE:
                packet = trim(packet, queue.dscp)
                size = len(packet)
                queue.trimmed += 1
            elif waiting + size > queue.limit_bytes:
                queue.dropped += 1
                return None
            else:
                if verdict == "mark" or (queue.ecn is not None and waiting > queue.ecn[0] and packet[1] & 0x30):
                    low, high = queue.ecn or (0, 0)
                    if verdict == "mark" or waiting >= high or self.rng.random() < (waiting - low) / (high - low):
                        packet = packet[:1] + bytes((packet[1] | 0x30,)) + packet[2:]
                        queue.marked += 1
                queue.busy = max(queue.busy, time) + size * 8_000_000_000 // rate
                queue.sent += 1
                queue.sent_bytes += size
                return packet, queue.busy
        spent = size * 8_000_000_000 // rate
        queue.control_busy = max(queue.control_busy, time) + spent
        if queue.busy > time:
            queue.busy += spent
        if queue.control_busy - time > queue.limit_bytes * 8_000_000_000 // rate:
            queue.dropped += 1
            return None
        return packet, queue.control_busy

    def _arrive(self, source: Host, port: int, packet: bytes) -> None:
        """At the receiver's T0: into the queue of its port."""
        base = inner_offset(packet)
        host = self._by_address.get(packet[base + 24 : base + 40])
        if host is None:  # a corrupted address
            return
        passed = self._through(host.ports[port], packet, self.now, None)
        if passed is not None:
            self.at(passed[1], self._deliver, host, port, passed[0])

    def _deliver(self, host: Host, port: int, packet: bytes) -> None:
        if not host.link_up[port]:
            return
        for watcher in self.watchers:
            watcher(self.now, "received", host, port, -1, packet)
        self.delivered += 1
        host.received += 1
        host.received_bytes[port] += len(packet)
        host.core.receive_datagram(port, packet, self.now)
        if not host.dirty:
            host.dirty = True
            self._dirty.append(host)

    # --- failures ---

    def set_path(
        self, up: bool, *, group: int | None = None, plane: int | None = None, index: int | None = None
    ) -> None:
        """Links in the fabric go down or come up without notification."""
        for path in self.paths(group=group, plane=plane, index=index):
            path.up = up

    def set_link(self, host: Host, port: int, up: bool, *, notice: bool = True) -> None:
        """Take the link of a NIC port down or up; with `notice` its endpoint sees the carrier change."""
        host.link_up[port] = up
        if notice:
            host.core.set_port_state(port, up, self.now)
        self.touch(host)

    def set_plane(self, plane: int, up: bool) -> None:
        """All T0 switches of a plane: every host loses that port's carrier."""
        for host in self.hosts:
            self.set_link(host, plane, up)

    def flap(self, action: Callable[..., None], start: int, length: int, *arguments: Any, **keywords: Any) -> None:
        """Schedule `action(..., False)` at `start` and `action(..., True)` `length` ns later."""
        for time, up in ((start, False), (start + length, True)):
            self.at(time, lambda up=up: action(*arguments, up=up, **keywords))


def inner_offset(packet: bytes) -> int:
    """Where the inner IPv6 header begins."""
    if packet[6] == 17:
        return 0
    if packet[6] == 41:
        return 40
    return 48 + 8 * packet[41] if packet[6] == 43 and len(packet) > 41 else 0


def trim(packet: bytes, dscp: int) -> bytes:
    """Return what a switch leaves of a trimmed packet (mrc-protocol.md §9)."""
    keep = inner_offset(packet) + TRIM_KEEP
    first = packet[0] & 0xF0 | dscp >> 2
    second = packet[1] & 0x3F | dscp << 6 & 0xC0
    length = min(keep, len(packet)) - 40
    return bytes((first, second)) + packet[2:4] + length.to_bytes(2, "big") + packet[6:keep]


def flip_bits(packet: bytes, rng: random.Random) -> bytes:
    """Return the packet with one to three bits flipped."""
    bad = bytearray(packet)
    for _ in range(rng.randint(1, 3)):
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
    return bytes(bad)


def address_of(index: int) -> bytes:
    """Return the IPv6 address of host `index`: 2001:db8::index+1."""
    return b"\x20\x01\x0d\xb8" + bytes(10) + (index + 1).to_bytes(2, "big")


def psn_of(packet: bytes) -> int:
    """BTH.PSN of a packet."""
    base = inner_offset(packet) + 57
    return int.from_bytes(packet[base : base + 3], "big")


def opcode_of(packet: bytes) -> int:
    """BTH.opcode of a packet."""
    return packet[inner_offset(packet) + 48]


def drop_psns(psns: Sequence[int], times: int = 1) -> Rule:
    """Return a rule that loses the first `times` data packets with each of these PSNs."""
    left = dict.fromkeys(psns, times)

    def rule(net: Net, host: Host, plane: int, index: int, packet: bytes) -> str | None:
        if opcode_of(packet) <= 0xCB and left.get(psn_of(packet), 0) > 0:
            left[psn_of(packet)] -= 1
            return "drop"
        return None

    return rule
