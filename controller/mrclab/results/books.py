"""Books of a run: what its hosts counted and what its fabric counted, and the identities that both must meet.

`LabCounts` is both books at one moment. `IDENTITIES` is the table of all identities: each yields entries, a number from
one book beside the bounds that follow from the other book or from other counters. The bounds are equal where no packet
was lost or on its way; they differ by the packets whose kind no counter tells.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mrc_host.answers import EvEvent, HostStatistics, JobProgress, MrcHostStatistics, Times
from mrc_host.node.samples import LOSSES, condense, requestors, responders
from mrc_host.proto.events import EvState
from mrc_host.workloads import WORKLOADS
from mrc_topo import addressing
from mrc_topo.base.plain import encode
from mrc_topo.topology import Link, Topology
from mrclab.lab.session.base import LabCounts
from mrclab.results.counted import Achieved, grown
from mrclab.results.record import Balance, Books, LabEvent
from mrclab.results.recording import TIME, Events, flat
from p4lite.switch.fabric.values import PortStats
from p4lite.switch.targetapi.values import DeviceStats


@dataclass(frozen=True)
class Entry:
    """A number of one book, and the bounds that the other one gives it; `where`: of what it is."""

    where: str
    left: int
    low: int
    high: int

    @property
    def balanced(self) -> bool:
        """Return whether the number is within its bounds."""
        return self.low <= self.left <= self.high

    def text(self) -> str:
        """Return the entry and its difference in one line."""
        bounds = f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"
        off = self.left - (self.low if self.left < self.low else self.high)
        return f"{self.where}: {self.left}, not {bounds} ({off:+d})"


@dataclass(frozen=True)
class Account:
    """Both books before and after a run, its samples, and what its ranks counted: the facts that identities compare.

    `final`: statistics at the end of the workload, while its queue pairs were there, as the last samples have them.
    `sampled`: by host and column, how much the samples say that a counter has grown. `goodput_bytes`: the integral of
    the run's goodput. `emptied`: switches whose program began again, and with it its counters. `moving`: packets that
    hosts sent or received while the books were read. `lost_at_hosts`: frames that the hosts' rings lost.
    `achieved`: what the run prints of its ranks together. `rows`: by host, the last sample as it is stored.
    `fabric_rows`: the last two samples of the fabric as they are stored, if there are two. `events`: what hosts logged.
    `recovered_ns`: by number of the action, when goodput was back. `veth_links`: whether a switch's port counts what
    its link loses of both directions.
    """

    topology: Topology
    before: LabCounts
    after: LabCounts
    ranks: Sequence[str] = ()
    workload: str = ""
    params: Mapping[str, object] = field(default_factory=dict)
    progress: Mapping[str, JobProgress] = field(default_factory=dict)
    happenings: Sequence[LabEvent] = ()
    final: Mapping[str, HostStatistics | None] = field(default_factory=dict)
    sampled: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    goodput_bytes: float = 0.0
    emptied: frozenset[str] = frozenset()
    moving: int = 0
    lost_at_hosts: int = 0
    veth_links: bool = False
    achieved: Achieved | None = None
    rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fabric_rows: Sequence[Mapping[str, int]] = ()
    events: Events | None = None
    recovered_ns: Mapping[int, int] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        """The hosts whose counters are known before and after, and did not begin again between."""
        return [name for name, found in self.after.hosts.items() if _kept(self.before.hosts.get(name), found)]

    @property
    def whole(self) -> bool:
        """Return whether the counters of all hosts are known."""
        return len(self.hosts) == len(self.topology.hosts)

    def grown(self, host: str, count: Callable[[HostStatistics], int]) -> int:
        """Return how much a count of a host has grown."""
        after = self.after.hosts[host]
        assert after is not None
        return grown(self.before.hosts[host], after, lambda each: {"": count(each)})[""]

    def grown_sum(self, count: Callable[[HostStatistics], int]) -> int:
        """Return how much a count has grown at all hosts."""
        return sum(self.grown(host, count) for host in self.hosts)

    def requests(self, host: str) -> dict[str, int]:
        """Return how much the counters of a host's requestors have grown, and the level of `lost_packets`."""
        return grown(*self._of_mrc(host), requestors)

    def responses(self, host: str) -> dict[str, int]:
        """Return how much the counters of a host's responders have grown."""
        return grown(*self._of_mrc(host), responders)

    def _of_mrc(self, host: str) -> tuple[MrcHostStatistics, MrcHostStatistics]:
        before, after = self.before.hosts[host], self.after.hosts[host]
        assert isinstance(before, MrcHostStatistics)
        assert isinstance(after, MrcHostStatistics)
        return before, after

    def requested(self, *names: str) -> int:
        """Return how much these counters of all requestors of MRC have grown, added up."""
        return sum(self.requests(host).get(name, 0) for host in self.mrc() for name in names)

    def responded(self, *names: str) -> int:
        """Return how much these counters of all responders of MRC have grown, added up."""
        return sum(self.responses(host).get(name, 0) for host in self.mrc() for name in names)

    def mrc(self) -> list[str]:
        """Return the hosts whose transport is MRC alone."""
        return [
            name
            for name in self.hosts
            if isinstance(self.after.hosts[name], MrcHostStatistics)
            and isinstance(self.before.hosts[name], MrcHostStatistics)
        ]

    def ended(self, host: str) -> bool:
        """Return whether a rank did all that it began, without an error."""
        found = self.progress.get(host)
        return found is not None and found.done and not found.failure and found.requests_posted == found.requests_ended

    def until_end(self, host: str) -> tuple[HostStatistics, HostStatistics] | None:
        """Return the statistics of a rank before the run and at the end of its workload; None where one is missing."""
        before, final = self.before.hosts.get(host), self.final.get(host)
        return None if host not in self.hosts or before is None or final is None else (before, final)

    def ports(self, node: str, port: int) -> tuple[PortStats, PortStats] | None:
        """Return the statistics of a switch's port before and after; None where one of them is unknown."""
        before, after = self.before.fabric.get(node), self.after.fabric.get(node)
        if before is None or after is None or port not in before.ports or port not in after.ports:
            return None
        return before.ports[port], after.ports[port]

    def unread(self, host: str, port: int) -> int:
        """Return how many more packets a host has not read that arrived at a port of it."""
        return self.after.unread[host][port] - self.before.unread[host][port]

    def crossing(self, link: str) -> int:
        """Return how many more packets went into a link's tunnel to another machine than came out."""
        return self.after.crossing.get(link, 0) - self.before.crossing.get(link, 0)


def _kept(before: HostStatistics | None, after: HostStatistics | None) -> bool:
    """Return whether both statistics are there, and of the same life of an agent."""
    if before is None or after is None:
        return False
    if isinstance(before, MrcHostStatistics) and isinstance(after, MrcHostStatistics):
        return before.instance == after.instance
    return all(
        one.received_packets <= other.received_packets for one, other in zip(before.links, after.links, strict=True)
    )


_DENIED, _GOOD = EvState.DENIED.name, EvState.GOOD.name


def _placed(statistics: HostStatistics) -> int:
    """Return the payload that a host's responders placed, by their own counters."""
    mrc = responders(statistics) if isinstance(statistics, MrcHostStatistics) else {}
    return mrc.get("payload_bytes_placed", 0) + statistics.endpoint.get("payload_bytes_placed", 0)


def goodput(account: Account) -> Iterator[Entry]:
    """Yield payload that responders placed = the integral of goodput over the run, from the first to the last bin; by
    host, = the payload that is printed of it."""
    ranks = [name for name in account.ranks if name in account.hosts]
    if len(ranks) == len(account.ranks):
        placed = sum(account.grown(host, _placed) for host in ranks)
        total = round(account.goodput_bytes)
        yield Entry("all ranks", placed, total - 1, total + 1)
    for host, columns in account.sampled.items():
        if (both := account.until_end(host)) is not None:
            placed = _placed(both[1]) - _placed(both[0])
            yield Entry(host, columns.get("delivered_bytes", 0), placed, placed)


def puts(account: Account) -> Iterator[Entry]:
    """Yield bytes that ranks put = payload that responders placed, but for puts that have not ended."""
    ranks, progress = [name for name in account.ranks if name in account.hosts], account.progress.values()
    if len(ranks) != len(account.ranks):
        return
    placed = sum(account.grown(host, _placed) for host in ranks)
    put = sum(each.bytes_sent for each in progress)
    yield Entry("all ranks", placed, put if all(map(account.ended, account.progress)) else 0, put)


def payload(account: Account) -> Iterator[Entry]:
    """Yield payload that requestors of MRC sent for the first time = bytes that their rank put; and that others sent to
    a host = what its responders placed, but for what is outstanding or was given up."""
    known = {name: account.until_end(name) for name in account.ranks}
    sent: dict[str, int] = dict.fromkeys((addressing.text(host.address) for host in account.topology.hosts), 0)
    exact, gone = True, 0
    for name, both in known.items():
        if both is None or not isinstance(both[1], MrcHostStatistics) or "payload_bytes_placed" in both[1].endpoint:
            return  # RoCE does not count what it sends
        if account.ended(name):
            put = account.progress[name].bytes_sent
            yield Entry(f"put by {name}", _of_senders(both, "payload_bytes_sent"), put, put)
        before = {qp.qpn: qp for qp in both[0].qps} if isinstance(both[0], MrcHostStatistics) else {}
        for qp in both[1].qps:
            first = before[qp.qpn].requestor["payload_bytes_sent"] if qp.qpn in before else 0
            exact = exact and not qp.outstanding_packets
            if qp.peer in sent:
                sent[qp.peer] += qp.requestor["payload_bytes_sent"] - first
            else:
                gone += qp.requestor["payload_bytes_sent"] - first
        exact = exact and not _of_senders(both, "requests_flushed")
    for host in account.topology.hosts:
        if (both := known.get(host.name)) is not None:
            all_of_it = sent[addressing.text(host.address)]
            placed = _placed(both[1]) - _placed(both[0])
            yield Entry(f"placed at {host.name}", placed, all_of_it if exact else 0, all_of_it + gone)


def losses(account: Account) -> Iterator[Entry]:
    """Yield losses by reason = packets whose timer expired, that a detector of losses named, and that NACKs named; by
    host."""
    for host in account.mrc():
        sent = Counter(account.requests(host))
        pairs = (
            ("timeouts", sent["lost_timeout"], sent["packets_expired"]),
            ("inferred", sent["lost_rack"] + sent["lost_same_ev"], sent["packets_inferred"]),
        )
        for reason, lost, named in pairs:
            yield Entry(f"{host}, {reason}", lost, named, named)
        named = sent["nacks_received"] - sent["bogus_nacks"] - sent["stale_nacks"]
        # A NACK that ends its queue pair has no packet sent again.
        yield Entry(f"{host}, nacks", sent["lost_nack"], named - min(named, sent["requests_flushed"]), named)


#: Bytes that all ranks together put, and verify, in an iteration of a workload of n ranks with these parameters.
VOLUMES: Final[Mapping[str, Callable[[int, Any], tuple[int, int]]]] = {
    "all_to_all": lambda n, given: (n * (n - 1) * given.block_bytes, n * (n - 1) * given.block_bytes),
    "ring_all_reduce": lambda n, given: (2 * (n - 1) * given.size_bytes, n * given.size_bytes),
    "tree_all_reduce": lambda n, given: (2 * (n - 1) * given.size_bytes, n * given.size_bytes),
    "reduce_scatter": lambda n, given: ((n - 1) * given.size_bytes, given.size_bytes),
    "all_gather": lambda n, given: ((n - 1) * given.size_bytes, n * given.size_bytes),
    "broadcast": lambda n, given: ((n - 1) * given.size_bytes, (n - 1) * given.size_bytes),
    "write_lat": lambda n, given: (2 * given.message_bytes, 2 * given.message_bytes),
}


def iterations(account: Account) -> Iterator[Entry]:
    """Yield bytes that ranks put and verified = iterations x the size of an iteration, of ranks that ended together; of
    a stream = messages x their size. The iterations that are printed are those of the ranks."""
    numbers = [each.iterations for each in account.progress.values() if each.takes_part] or [0]
    if account.achieved is not None:
        yield Entry("fewest iterations", account.achieved.least_iterations, min(numbers), min(numbers))
        yield Entry("most iterations", account.achieved.most_iterations, max(numbers), max(numbers))
    for name, each in account.progress.items():
        if each.measured is not None and each.measured.streams is not None and each.done and not each.failure:
            streams = each.measured.streams.values()
            size = sum(stream.messages * stream.message_bytes for stream in streams)
            yield Entry(f"streams of {name}", each.bytes_sent, size, size)
    working = [each for each in account.progress.values() if each.takes_part]
    counts = {each.iterations for each in working}
    if account.workload not in VOLUMES or len(counts) != 1 or any(each.failure or not each.done for each in working):
        return
    params = WORKLOADS[account.workload].complete(account.params)
    (iterations,) = counts
    put, verified = (iterations * size for size in VOLUMES[account.workload](len(account.ranks), params))
    if account.topology.lab.payload == "length":
        verified = 0  # packets have no bytes that could be verified
    yield Entry("bytes put", sum(each.bytes_sent for each in account.progress.values()), put, put)
    yield Entry("bytes verified", sum(each.bytes_verified for each in account.progress.values()), verified, verified)


def times(account: Account) -> Iterator[Entry]:
    """Yield times of each action: asked for <= done <= goodput back, in the order of the record, all within the run, in
    ns; no denied EV is found bad."""
    latest = account.before.t_ns
    for number, happening in enumerate(account.happenings):
        name = f"{happening.action.describe()} ({number})"
        yield Entry(f"{name}, done", happening.done_ns, max(happening.at_ns, latest), account.after.t_ns)
        latest = happening.done_ns
        if number in account.recovered_ns:
            later = [each.done_ns for each in account.happenings[number + 1 :]]
            end = min(later, default=account.after.t_ns)
            yield Entry(f"{name}, recovered", account.recovered_ns[number], happening.done_ns, end)
    if account.events is not None and account.happenings and account.topology.lab.policies.ev is None:
        evs = (event for _, event in account.events.between(-(1 << 63), 1 << 63, "ev") if isinstance(event, EvEvent))
        wrong = sum(event.old == _DENIED and event.new not in (_DENIED, _GOOD) for event in evs)
        yield Entry("denied EVs that are found bad", wrong, 0, 0)


def durations(account: Account) -> Iterator[Entry]:
    """Yield times that a rank measured, of iterations and half round trips: as many as iterations, together no longer
    than the rank ran, the least of them more than 0 and as far from the mean as the deviation allows; in ns."""
    for name, each in account.progress.items():
        if not each.done or each.failure or each.measured is None:
            continue
        ran = each.finished_ns - each.started_ns
        for what, found, halves in (
            ("iteration", each.measured.iteration_ns, 1),
            ("half round trip", each.measured.latency_ns, 2),
        ):
            if found is not None:
                yield Entry(f"{name}, times: {what}", found.count, each.iterations, each.iterations)
                yield from _spread(f"{name}, {what}", found, ran // halves)


def _spread(name: str, times: Times, ran: int) -> Iterator[Entry]:
    count, rounding = times.count, 1 + ran // 10**9
    most = times.stdev * math.sqrt(max(count - 1, 0)) + rounding
    lowest, highest = math.ceil(times.mean - most), math.floor(times.mean + most)
    yield Entry(f"{name}, sum", round(times.mean * count), times.min * count - rounding, ran + rounding)
    yield Entry(f"{name}, least", times.min, max(lowest, 1), min(math.floor(times.mean) + rounding, times.typical))
    yield Entry(f"{name}, most", times.max, max(math.ceil(times.mean) - rounding, times.typical), highest)


def samples(account: Account) -> Iterator[Entry]:
    """Yield the growth of a counter in the samples = final minus initial statistics; the last sample that is stored =
    the final statistics, and of a port, between the sample before and the counters read after the run."""
    for host, columns in account.sampled.items():
        if (both := account.until_end(host)) is None:
            continue
        before, final = (flat(encode(condense(each, 0))) for each in both)
        for name, count in columns.items():
            total = final[name] - before[name]
            yield Entry(f"{host} {name}", count, total, total)
        if (row := account.rows.get(host)) is not None:
            for name in final.keys() - {TIME}:
                yield Entry(f"{host} {name}, last", row.get(name, 0), final[name], final[name])
        lost, expired = (_of_senders(both, *names) for names in (LOSSES, ["packets_expired"]))
        ends = {
            name: both[1].endpoint.get(name, 0) - both[0].endpoint.get(name, 0) for name in ("naks_sent", "timeouts")
        }
        yield Entry(f"{host} losses by reason", columns.get("losses", 0), *[lost + ends["naks_sent"]] * 2)
        yield Entry(f"{host} timers", columns.get("timeouts", 0), *[expired + ends["timeouts"]] * 2)
    yield from _last_of_ports(account)


def _of_senders(both: tuple[HostStatistics, HostStatistics], *names: str) -> int:
    before, final = (requestors(each) if isinstance(each, MrcHostStatistics) else {} for each in both)
    return sum(final.get(name, 0) - before.get(name, 0) for name in names)


def _last_of_ports(account: Account) -> Iterator[Entry]:
    if len(account.fabric_rows) < 2:
        return
    earlier, last = account.fabric_rows
    for node, device in account.after.fabric.items():
        for number, port in device.ports.items():
            counts = {"tx_bytes": port.tx_bytes, "drops": sum(port.drops.values())}
            for name, count in counts.items():
                column = f"ports.{node}:{number}.{name}"
                low = earlier.get(column, 0)
                if column in last and low <= count:  # A counter that falls began again.
                    yield Entry(f"{node}:{number} {name}, last", last[column], low, count)


#: Reasons of drops of packets that a switch has not sent yet; all others are of packets on a link, or at its far end.
_BEFORE_LINK: Final = ("queue_full", "buffer_full", "headroom_full", "pfc_watchdog", "over_buffer")
_FAR_END: Final = "not_running"
#: Differences that are written down for each identity, at most.
_SHOWN: Final = 5


def _dropped(ports: tuple[PortStats, PortStats], reasons: Callable[[str], bool]) -> int:
    before, after = ports
    return sum(count - before.drops.get(why, 0) for why, count in after.drops.items() if reasons(why))


def _on_link(why: str) -> bool:
    return why not in _BEFORE_LINK and why != _FAR_END


def _control(ports: tuple[PortStats, PortStats]) -> int:
    """Return frames of flow control and credits at a port: links carry them, and no counter of packets has them."""
    before, after = ports
    sides = [
        sum(each.pauses_sent + each.resumes_sent + each.pauses_received + each.resumes_received for each in side.pfc)
        + sum(each.updates_sent + each.updates_received for each in side.credits)
        + side.storm_frames
        for side in (before, after)
    ]
    return sides[1] - sides[0]


def _links(account: Account) -> Iterator[Entry]:
    """Yield packets that were put on a link = packets that were taken from it + lost on it + on it now; by link."""
    for link in account.topology.links.values():
        high = account.ports(link.high.node, link.high.port)
        if high is None:
            continue
        if (host := _host(account, link)) is not None:
            yield from _host_link(account, link, host, high)
        elif (low := account.ports(link.low.node, link.low.port)) is not None:
            ways = _one_way("upwards", low, high, account.moving), _one_way("downwards", high, low, account.moving)
            if account.veth_links or link.name in account.after.crossing:
                left, least, most = (sum(getattr(way, side) for way in ways) for side in ("left", "low", "high"))
                lost = account.crossing(link.name)
                yield Entry(link.name, left, least + lost, most + lost)
            else:
                yield from (replace(way, where=f"{link.name}, {way.where}") for way in ways)


def _host(account: Account, link: Link) -> str | None:
    return link.low.node if link.low.node in account.after.hosts else None


def _one_way(name: str, near: tuple[PortStats, PortStats], far: tuple[PortStats, PortStats], moving: int) -> Entry:
    (near_before, near_after), (far_before, far_after) = near, far
    sent = near_after.tx_packets - near_before.tx_packets + near_after.duplicated - near_before.duplicated
    gone = far_after.rx_packets - far_before.rx_packets + _dropped(far, _FAR_END.__eq__) + _dropped(near, _on_link)
    gone += near_after.on_wire - near_before.on_wire
    slack = _control(near) + _control(far) + moving
    return Entry(name, sent, gone - slack, gone + slack)


def _host_link(account: Account, link: Link, host: str, ports: tuple[PortStats, PortStats]) -> Iterator[Entry]:
    if host not in account.hosts:
        return
    port, (before, after) = link.low.port, ports
    sent = account.grown(host, lambda each: each.links[port].sent_packets)
    sent += after.tx_packets - before.tx_packets + after.duplicated - before.duplicated
    gone = account.grown(host, lambda each: each.links[port].received_packets) + account.unread(host, port)
    gone += after.rx_packets - before.rx_packets + after.on_wire - before.on_wire
    gone += _dropped(ports, lambda why: why not in _BEFORE_LINK) + account.crossing(link.name)
    slack = account.moving + account.lost_at_hosts
    yield Entry(link.name, sent, gone - slack - _control(ports), gone + slack + _control(ports))


def _waiting(device: DeviceStats) -> int:
    return device.switch.other_queued + sum(q.depth_packets for port in device.ports.values() for q in port.queues)


def _inside(before: DeviceStats, after: DeviceStats) -> int:
    """Return how many packets have ended in a switch, or wait in it now, but for those that it sent."""
    switch, earlier = after.switch, before.switch
    ended = sum(switch.drops.values()) - sum(earlier.drops.values()) + switch.absorbed - earlier.absorbed
    ended += sum(switch.other_drops.values()) - sum(earlier.other_drops.values())
    for number, port in after.ports.items():
        ended += _dropped((before.ports[number], port), _BEFORE_LINK.__contains__)
    return ended + _waiting(after) - _waiting(before)


def _copies(before: DeviceStats, after: DeviceStats) -> int:
    names = ("ingress_clones", "egress_clones", "replicas", "copies_missed")
    return sum(getattr(after.switch, name) - getattr(before.switch, name) for name in names)


def _devices(account: Account) -> Iterator[tuple[str, DeviceStats, DeviceStats]]:
    for name, after in account.after.fabric.items():
        before = account.before.fabric.get(name)
        if before is not None and before.ports.keys() == after.ports.keys():
            yield name, before, after


def _switches(account: Account) -> Iterator[Entry]:
    """Yield packets that a switch received and copies that it made = those that it sent + dropped + that wait in it."""
    if account.topology.lab.switch != "p4lite":
        return
    for name, before, after in _devices(account):
        came = after.switch.received - before.switch.received + _copies(before, after)
        went = after.switch.transmitted - before.switch.transmitted + _inside(before, after)
        yield Entry(name, came, went - account.moving, went + account.moving)


def _planes(account: Account) -> Iterator[Entry]:
    """Yield packets that hosts sent = those that hosts received + dropped by reason + in flight; by plane, in all."""
    topology = account.topology
    devices = list(_devices(account))
    if not account.whole or len(devices) != len(topology.switches) or topology.lab.switch != "p4lite":
        return
    plane_of = {switch.name: switch.plane for switch in topology.switches}
    rows = []
    for plane in range(topology.lab.planes):
        sent = account.grown_sum(lambda each, at=plane: each.links[at].sent_packets)  # type: ignore[misc]
        gone = account.grown_sum(lambda each, at=plane: each.links[at].received_packets)  # type: ignore[misc]
        gone += sum(account.unread(host, plane) for host in account.hosts)
        gone += sum(account.crossing(link.name) for link in topology.links.values() if link.plane == plane)
        slack = account.moving + account.lost_at_hosts
        for name, before, after in devices:
            if plane_of[name] != plane:
                continue
            sent += _copies(before, after)
            gone += _inside(before, after)
            for number, port in after.ports.items():
                pair = before.ports[number], port
                sent += port.duplicated - pair[0].duplicated
                gone += _dropped(pair, lambda why: why not in _BEFORE_LINK) + port.on_wire - pair[0].on_wire
                slack += _control(pair)
        rows.append(Entry(f"plane {plane}", sent, gone - slack, gone + slack))
        yield rows[-1]
    sums = [sum(values) for values in zip(*((row.left, row.low, row.high) for row in rows), strict=True)]
    yield Entry("all planes", *sums)


def _missing(account: Account) -> tuple[int, int]:
    """Return how many packets, of whatever kind, the fabric or a host may have lost or holds, and duplicated; before
    the run's beginning those in flight come on top of both."""
    lost = copied = 0
    for _, before, after in _devices(account):
        lost += sum(after.switch.drops.values()) - sum(before.switch.drops.values())
        lost += _waiting(after) + _waiting(before)
        for number, port in after.ports.items():
            lost += (
                _dropped((before.ports[number], port), lambda why: True) + port.on_wire + before.ports[number].on_wire
            )
            copied += port.duplicated - before.ports[number].duplicated
    for host in account.hosts:
        lost += account.grown(host, lambda each: sum(each.drops.values()) + each.endpoint.get("control_overflow", 0))
        lost += sum(account.unread(host, port) for port in range(account.topology.lab.planes))
    lost += sum(map(account.crossing, account.after.crossing))
    return lost + account.lost_at_hosts + account.moving, copied + account.moving


def _all_mrc(account: Account) -> bool:
    """Return whether the queue pairs' counters of all hosts are known, and none broke the protocol: what a responder
    refuses as a violation it counts nowhere else."""
    mrc = account.mrc()
    if len(mrc) != len(account.topology.hosts):
        return False
    return not any(account.responses(host).get("naks_sent", 0) for host in mrc)


def _data(account: Account) -> Iterator[Entry]:
    """Yield data packets that requestors sent = those that responders placed, had, refused or got trimmed + lost."""
    if not _all_mrc(account):
        return
    sent = account.requested("packets_sent")
    arrived = account.responded("packets_placed", "duplicates", "trimmed", "out_of_window", "refused")
    lost, copied = _missing(account)
    yield Entry("all hosts", sent, arrived - copied, arrived + lost)


def _once(account: Account) -> Iterator[Entry]:
    """Yield packets that requestors sent for the first time = those that responders placed + those outstanding."""
    if not _all_mrc(account) or account.requested("requests_flushed"):
        return
    first = account.requested("packets_sent") - account.requested("retransmissions")
    placed = account.responded("packets_placed")
    yield Entry("all hosts", first, placed - _outstanding(account.before), placed + _outstanding(account.after))


def _outstanding(reading: LabCounts) -> int:
    found = [each for each in reading.hosts.values() if isinstance(each, MrcHostStatistics)]
    return sum(qp.outstanding_packets for each in found for qp in each.qps)


def _lost(statistics: MrcHostStatistics) -> int:
    return sum(qp.lost_packets for qp in statistics.qps)


def _retransmissions(account: Account) -> Iterator[Entry]:
    """Yield retransmissions = losses by reason + repeated packets, but for losses that were acknowledged, given up, or
    not sent again yet; by host."""
    for host in account.mrc():
        sent = account.requests(host)
        waiting = account.grown(host, lambda each: _lost(each) if isinstance(each, MrcHostStatistics) else 0)
        due = sum(sent.get(reason, 0) for reason in LOSSES) + sent.get("repeats", 0)
        due -= sent.get("spurious_losses", 0) + sent.get("losses_flushed", 0) + waiting
        yield Entry(host, sent.get("retransmissions", 0), due, due)


def _duplicates(account: Account) -> Iterator[Entry]:
    """Yield duplicates at responders = retransmissions of packets that had arrived = all retransmissions - packets
    that were trimmed or lost."""
    if not _all_mrc(account) or account.requested("requests_flushed"):
        return
    again = account.requested("retransmissions")
    refused = account.responded("trimmed", "out_of_window", "refused")
    lost, copied = _missing(account)
    spare = _outstanding(account.after) + _outstanding(account.before)
    duplicates = account.responded("duplicates")
    yield Entry("all hosts", duplicates, again - refused - lost - spare, again - refused + copied + spare)


#: Answers: what responders count that they sent, and requestors that they got.
_ANSWERS: Final = (
    ("acks_sent", ("acks_received", "bogus_acks")),
    ("sacks_sent", ("sacks_received",)),
    ("nacks_sent", ("nacks_received",)),
)


def _answers(account: Account) -> Iterator[Entry]:
    """Yield answers that responders sent = those that requestors received or could not use + those lost; by kind."""
    if not _all_mrc(account):
        return
    lost, copied = _missing(account)
    useless = account.requested("bogus_sacks")
    for name, names in _ANSWERS:
        got = account.requested(*names)
        yield Entry(name, account.responded(name), got - copied, got + lost + useless)


def _program(account: Account, counter: str) -> int | None:
    if account.emptied or counter not in account.after.program:
        return None
    return account.after.program[counter] - account.before.program.get(counter, 0)


def _trims(account: Account) -> Iterator[Entry]:
    """Yield packets that the P4 program trimmed = trimmed headers that arrived + those lost on the way."""
    trimmed = _program(account, "trimmed")
    if trimmed is None or not _all_mrc(account):
        return
    got = account.responded("trimmed", "trimmed_duplicates")
    lost, copied = _missing(account)
    yield Entry("all switches", trimmed, got - copied, got + lost)


def _marks(account: Account) -> Iterator[Entry]:
    """Yield packets that the P4 program marked = marked packets that arrived + those lost on the way."""
    marked = _program(account, "marked")
    if marked is None or not account.whole:
        return
    if len(account.mrc()) == len(account.hosts):
        if not _all_mrc(account):
            return
        got = account.responded("ecn_marked", "ecn_refused")
        probes = account.requested("probes_sent")
    else:
        got = account.grown_sum(lambda each: each.endpoint.get("ecn_marked", 0))
        probes = 0
    lost, copied = _missing(account)
    yield Entry("all switches", marked, got - copied, got + lost + probes)


@dataclass(frozen=True)
class Identity:
    """A row of the table: its name, and the function that yields its entries (whose docstring says what it is)."""

    name: str
    entries: Callable[[Account], Iterable[Entry]]


IDENTITIES: Final = (
    Identity("packets by link", _links),
    Identity("packets by switch", _switches),
    Identity("packets by plane", _planes),
    Identity("data packets", _data),
    Identity("first transmissions", _once),
    Identity("retransmissions", _retransmissions),
    Identity("duplicates", _duplicates),
    Identity("answers", _answers),
    Identity("losses", losses),
    Identity("trims", _trims),
    Identity("marks", _marks),
    Identity("bytes delivered", goodput),
    Identity("bytes put", puts),
    Identity("payload sent", payload),
    Identity("iterations", iterations),
    Identity("durations", durations),
    Identity("times", times),
    Identity("samples", samples),
)


def balance(account: Account) -> Books:
    """Return the balance of each identity that applies to a run."""
    balances = []
    for identity in IDENTITIES:
        entries = list(identity.entries(account))
        wrong = [entry.text() for entry in entries if not entry.balanced]
        if entries:
            slack = sum(entry.high - entry.low for entry in entries)
            more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
            balances.append(Balance(identity.name, len(entries), slack, [*wrong[:_SHOWN], *more]))
    lost = sorted({host.name for host in account.topology.hosts} - set(account.hosts))
    notes = [f"the agent of {', '.join(lost)} was lost or began again, and its counters with it"] if lost else []
    if account.emptied:
        notes.append(f"the program of {', '.join(sorted(account.emptied))} began again, and its counters with it")
    return Books(balances, notes)
