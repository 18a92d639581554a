"""How many messages and packets a run will have: its workload on pipes instead of packets.

The workload's own state machines run, so every workload is covered. A message takes its size on the wire at the rates
of the sender's ports, of its T0's links up, of the other T0's links down and of the receiver's ports, and the delay of
the path. Failures of the schedule take their links' rates away. Losses, marks and the time of hosts are left out, and
windows and queues are one factor, `USABLE`. After `MOST_MESSAGES` or `MOST_BYTES` the rest is extrapolated.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from mrc_host.workloads import WORKLOADS, Workload
from mrc_lab.faults.action import Action
from mrc_lab.faults.effects import DOWN, UP, Way, together
from mrc_lab.faults.kinds import effects_of, resolved
from mrc_runs.ideal import Costs, costs
from mrc_runs.runner import POLL_S
from mrc_runs.workload import WorkloadSpec
from mrc_topo import addressing
from mrc_topo.graph_topology import GraphTopology
from mrc_topo.topology import Topology

#: Messages, and bytes of payload, after which a replay ends.
MOST_MESSAGES, MOST_BYTES = 24_000, 3 << 30
#: The share of a replay that is its beginning, from which nothing is extrapolated.
WARM_UP = 1 / 3
#: The share of a link's rate that a workload gets, by transport: windows and queues leave some of it unused, and what
#: RoCE's queue pairs lose by sharing a path.
USABLE = {"mrc": 0.96, "roce": 0.7}
#: A pipe without any link: it carries so little that a run waits for the end of the failure.
NOTHING_BPS = 1.0
#: Iterations of a workload that time bounds.
ENDLESS = 1 << 30


@dataclass(frozen=True)
class Traffic:
    """What a run carries.

    Attributes:
        seconds: of the lab's clock, from the first iteration to the last.
        messages: writes of the workload, those without data included.
        payload_bytes: of all messages.
        packets: data packets, a message without data counting as one.
        hops: switches that all data packets pass, added up.
        iterations: of the first rank that takes part.
        extrapolated: the share of `seconds` that was not replayed.
    """

    seconds: float
    messages: float
    payload_bytes: float
    packets: float
    hops: float
    iterations: float
    extrapolated: float


class Pipe:
    """Something that carries bytes one after another at a rate."""

    __slots__ = ("free_ns", "rate_bps")

    def __init__(self, rate_bps: float) -> None:
        self.rate_bps = rate_bps
        self.free_ns = 0.0

    def carry(self, begin_ns: float, nbytes: float) -> float:
        """Return when the last of these bytes has passed, if they come from `begin_ns` on."""
        begin = max(begin_ns, self.free_ns)
        self.free_ns = begin + nbytes * 8e9 / self.rate_bps
        return self.free_ns


@dataclass
class Count:
    """What has been carried up to a moment."""

    now_ns: float = 0.0
    messages: int = 0
    payload_bytes: int = 0
    packets: int = 0
    hops: int = 0
    iterations: int = 0

    def copy(self) -> Count:
        """Return the counts as they are now."""
        return Count(**vars(self))


@dataclass(frozen=True)
class Route:
    """The way of a message: its pipes, the delay of its links in ns, and how much longer than in a pipe its last packet
    takes, and how long an acknowledgement, in ns per byte; `hops` are switches."""

    pipes: Sequence[Pipe]
    delay_ns: float
    packet_ns: float
    ack_ns: float
    hops: int


class Network:
    """The pipes of a lab, each as fast as its links together."""

    def __init__(self, topology: Topology, transport: str, qps_per_peer: int) -> None:
        self.topology = topology
        self.transport, self.qps_per_peer = transport, qps_per_peer
        self.costs: Callable[[int], Costs] = lru_cache(maxsize=None)(self._costs)
        self.share = USABLE[transport] * self.costs(topology.lab.path_mtu).ports / topology.lab.planes
        self.route: Callable[[int, int], Route] = lru_cache(maxsize=None)(self._route)
        self._pipes: dict[tuple[str, int], tuple[Pipe, tuple[Way, ...]]] = {}
        self._broken: list[Action] = []
        self._rates: Mapping[Way, float] = {}

    def _costs(self, nbytes: int) -> Costs:
        return costs(self.topology, self.transport, self.qps_per_peer, max(nbytes, 1))

    def act(self, action: Action) -> None:
        """Fail or restore something: from now on pipes have the rates of what is left."""
        action = resolved(self.topology, action)
        if action.verb == "fail":
            self._broken.append(action)
        else:
            gone = [each for each in self._broken if each.target == action.target and action.kind in ("", each.kind)]
            self._broken = [each for each in self._broken if each not in gone]
        effects = together(effects_of(self.topology, each) for each in self._broken)
        self._rates = effects.rates(self.topology)
        for pipe, ways in self._pipes.values():
            pipe.rate_bps = self._rate(ways)

    def _rate(self, ways: Sequence[Way]) -> float:
        total = sum(self._rates.get(way, self.topology.links[way[0]].spec.rate) for way in ways)
        return max(total * self.share, NOTHING_BPS)

    def _pipe(self, what: str, index: int, direction: Literal["up", "down"]) -> Pipe:
        """Return the pipe of a host's ports, or of the links between a T0 and all T1s, in one direction."""
        key = (what + direction, index)
        if key not in self._pipes:
            ways = self._ways(what, index, direction)
            self._pipes[key] = (Pipe(self._rate(ways)), ways)
        return self._pipes[key][0]

    def _ways(self, what: str, index: int, direction: Literal["up", "down"]) -> tuple[Way, ...]:
        lab = self.topology.lab
        if what == "host":
            return tuple((port.name, direction) for port in self.topology.hosts[index].ports)
        if not isinstance(self.topology, GraphTopology):
            planes, t1s = range(lab.planes), range(lab.t1_per_plane)
            return tuple((addressing.fabric_link_name(plane, index, t1), direction) for plane in planes for t1 in t1s)
        # Of a graph: the links of all T0s at which the hosts of this one have ports.
        away, towards = (UP, DOWN) if direction == UP else (DOWN, UP)
        return tuple(
            (link.name, away if link.low.node == name else towards)
            for name in sorted({port.t0 for host in self.topology.hosts_of(index) for port in host.ports})
            for link in self.topology.switch(name).links.values()
            if not link.is_host_link
        )

    def _route(self, src: int, dst: int) -> Route:
        topology, lab = self.topology, self.topology.lab
        first, last = topology.t0_of(src), topology.t0_of(dst)
        inside = first == last
        between = () if inside else (self._pipe("t0", first, UP), self._pipe("t0", last, DOWN))
        trunks = len(topology.path(src, dst, 0, 0).switches) - 1
        delay = 2 * lab.links.host.delay + trunks * lab.links.fabric.delay
        host = 8e9 / lab.links.host.rate
        beyond = host + trunks * 8e9 / lab.links.fabric.rate
        # A packet leaves by one port, and a pipe is all of them.
        alone = host * (1 - 1 / self.costs(lab.path_mtu).ports)
        pipes = (self._pipe("host", src, UP), *between, self._pipe("host", dst, DOWN))
        return Route(pipes, delay, beyond + alone, beyond + host, trunks + 1)


class _Channel:
    """The connection of one rank, as `mrc_host.workloads.base.Channel`."""

    def __init__(self, replay: Replay, rank: int) -> None:
        self.replay, self.rank = replay, rank

    def put(self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int, imm: int | None = None) -> None:
        self.replay.put(self.rank, peer, length, tag, imm)

    def wake(self, at_ns: int) -> None:
        self.replay.at(at_ns, self.replay.ranks[self.rank].woken)


@dataclass
class Replay:
    """A workload's ranks on a network of pipes.

    Args:
        hosts: numbers of the hosts, by rank.
        params: the workload's parameters.
    """

    network: Network
    kind: type[Workload[Any]]
    params: Mapping[str, Any]
    hosts: Sequence[int]
    count: Count = field(default_factory=Count)

    def __post_init__(self) -> None:
        size = len(self.hosts)
        checked = self.kind.complete(self.params)
        # One region serves all ranks: what is in it does not matter here, and counts as mismatches at most.
        memory = memoryview(bytearray(self.kind.plan(size, checked)))
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = itertools.count()
        self.marks: list[Count] = []
        self.ranks = [self.kind(rank, size, checked, _Channel(self, rank), memory) for rank in range(size)]
        self._lead = next(rank for rank in self.ranks if rank.progress.takes_part)

    def at(self, when_ns: float, what: Callable[..., None], *arguments: Any) -> None:
        """Have something called at a time; the time is its last argument."""
        heapq.heappush(self._events, (max(when_ns, self.count.now_ns), next(self._number), what, arguments))

    def put(self, rank: int, peer: int, length: int, tag: int, imm: int | None) -> None:
        """Carry a message, and tell both ends when it is there."""
        network, count = self.network, self.count
        route = network.route(self.hosts[rank], self.hosts[peer])
        cost = network.costs(length)
        when = count.now_ns
        for pipe in route.pipes:
            # A pipe begins with the first bytes of the one before, and cannot end before it.
            when = max(pipe.carry(count.now_ns, cost.data_bytes), when)
        arrived = when + route.delay_ns + min(cost.frame_bytes, cost.data_bytes) * route.packet_ns
        # Acknowledgements take their share of the way back.
        back = network.route(self.hosts[peer], self.hosts[rank])
        for pipe in back.pipes:
            pipe.carry(count.now_ns, cost.acks * cost.ack_bytes)
        if imm is not None:
            self.at(arrived, self.ranks[peer].arrived, rank, imm)
        self.at(arrived + back.delay_ns + cost.ack_bytes * back.ack_ns, self.ranks[rank].put_done, peer, tag)
        packets = max(math.ceil(length / network.topology.lab.path_mtu), 1)
        count.messages += 1
        count.payload_bytes += length
        count.packets += packets
        count.hops += packets * route.hops

    def run(self, until_ns: float) -> bool:
        """Run up to a time; return whether the workload went on that long, which it does not when it ends or when too
        much has been carried."""
        count, events = self.count, self._events
        while events:
            if events[0][0] > until_ns:
                count.now_ns = until_ns
                return True
            if self.full:
                return False
            when, _, what, arguments = heapq.heappop(events)
            count.now_ns = when
            what(*arguments, round(when))
            if self._lead.progress.iterations != count.iterations:
                count.iterations = self._lead.progress.iterations
                self.marks.append(count.copy())
        return False

    @property
    def full(self) -> bool:
        """Whether as much has been carried as a replay may."""
        return self.count.messages >= MOST_MESSAGES or self.count.payload_bytes >= MOST_BYTES

    @property
    def done(self) -> bool:
        """Whether all ranks have ended."""
        return all(rank.done for rank in self.ranks)

    def stop(self) -> None:
        """Let all ranks stop after the same iteration, as `mrc_runs.workload.stop_together` does."""
        now = round(self.count.now_ns)
        last = max(rank.wind_down(now) for rank in self.ranks)
        for rank in self.ranks:
            rank.stop_after(last, now)


def expected(
    topology: Topology, spec: WorkloadSpec, transport: str, schedule: Sequence[tuple[float, Action]] = ()
) -> Traffic:
    """Return the traffic of a workload on a lab, with actions at times in seconds."""
    names = spec.hosts or [host.name for host in topology.hosts]
    params = dict(spec.params)
    if spec.duration_s is not None:
        params.setdefault("iterations", ENDLESS)
    wanted = int(params.get("iterations", 1))
    lasts_ns = (spec.limit_s if spec.duration_s is None else _until_asked(spec.duration_s)) * 1e9
    network = Network(topology, transport, spec.qps_per_peer)
    replay = Replay(network, WORKLOADS[spec.workload], params, [topology.host(name).index for name in names])
    for at, action in schedule:
        replay.at(at * 1e9, lambda action, now: network.act(action), action)
    with np.errstate(all="ignore"):
        marks = _replay(replay, lasts_ns)
    if not replay.full or replay.done:
        return _traffic(marks[-1], marks[-1], 0.0)
    return _extrapolated(marks, wanted, lasts_ns)


def _until_asked(seconds: float) -> float:
    """Return when a workload is asked to stop: at the end of the turn in which its time is up."""
    return math.ceil(round(seconds / POLL_S, 6)) * POLL_S


def _replay(replay: Replay, lasts_ns: float) -> list[Count]:
    """Run a replay to its end; return its counts at the end of each iteration of its first rank, and at the end."""
    for rank in replay.ranks:
        rank.start(0)
    if replay.run(lasts_ns):
        replay.stop()
        replay.run(math.inf)
    return [*replay.marks, replay.count.copy()]


def _extrapolated(marks: Sequence[Count], wanted: int, lasts_ns: float) -> Traffic:
    """Continue the counts of a replay that ended early, as they grew in whole iterations behind its first part."""
    last = marks[-1]
    whole = [each for each in marks[:-1] if each.messages >= WARM_UP * last.messages]
    first = marks[0] if len(marks) > 2 else Count()
    if len(whole) > 1:
        first, last = whole[0], whole[-1]
    span = max(last.now_ns - first.now_ns, 1.0)
    per_iteration = span / max(last.iterations - first.iterations, 1)
    ratio = max(lasts_ns - last.now_ns, 0.0) / span
    if last.iterations > first.iterations:
        # What has begun when time is up is brought to its end.
        more = min(math.ceil(ratio * span / per_iteration), wanted - last.iterations)
        ratio = more * per_iteration / span
    return _traffic(first, last, ratio)


def _traffic(first: Count, last: Count, ratio: float) -> Traffic:
    """Return the counts of `last`, and `ratio` times what came between `first` and it."""

    def grown(name: str) -> float:
        return float(getattr(last, name) + ratio * (getattr(last, name) - getattr(first, name)))

    seconds = grown("now_ns") / 1e9
    share = 1 - last.now_ns / 1e9 / seconds if seconds else 0.0
    return Traffic(
        seconds,
        messages=grown("messages"),
        payload_bytes=grown("payload_bytes"),
        packets=grown("packets"),
        hops=grown("hops"),
        iterations=grown("iterations"),
        extrapolated=share,
    )
