"""Books of a run: what its hosts counted and what its fabric counted, and the identities that both must meet.

`LabCounts` is both books at one moment. `IDENTITIES` is the table of all identities: each yields entries, a number from
one book beside the bounds that follow from the other book or from other counters. The bounds are equal where no packet
was lost or on its way; they differ by the packets whose kind no counter tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mrc_host.answers import HostStatistics, JobProgress, MrcHostStatistics, Sample
from mrc_host.node.samples import LOSSES, condense, requestors, responders
from mrc_host.workloads import WORKLOADS
from mrc_lab.session.base import LabCounts
from mrc_results.balance import Balance, Books
from mrc_results.record import LabEvent
from mrc_topo.topology import Link, Topology
from p4lite.switch.fabric.values import PortStats
from p4lite.switch.targetapi.values import DeviceStats

#: Reasons of drops of packets that a switch has not sent yet; all others are of packets on a link, or at its far end.
_BEFORE_LINK: Final = ("queue_full", "buffer_full", "headroom_full", "pfc_watchdog", "over_buffer")
_FAR_END: Final = "not_running"
#: Differences that are written down for each identity, at most.
_SHOWN: Final = 5


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
    """What identities look at: both books before and after a run, its samples, and what its ranks counted.

    `final`: statistics at the end of the workload, while its queue pairs were there, as the last samples have them.
    `sampled`: by host and column, how much the samples say that a counter has grown. `goodput_bytes`: the integral of
    the run's goodput. `emptied`: switches whose program began again, and with it its counters. `moving`: packets that
    hosts sent or received while the books were read. `lost_at_hosts`: frames that the hosts' rings lost. `veth_links`:
    whether a switch's port counts what its link loses of both directions.
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
        before, after = self.before.hosts[host], self.after.hosts[host]
        assert before is not None
        assert after is not None
        return count(after) - count(before)

    def grown_sum(self, count: Callable[[HostStatistics], int]) -> int:
        """Return how much a count has grown at all hosts."""
        return sum(self.grown(host, count) for host in self.hosts)

    def requests(self, host: str) -> dict[str, int]:
        """Return how much the counters of a host's requestors have grown, and the level of `lost_packets`."""
        return self._growth(host, requestors)

    def responses(self, host: str) -> dict[str, int]:
        """Return how much the counters of a host's responders have grown."""
        return self._growth(host, responders)

    def _growth(self, host: str, count: Callable[[MrcHostStatistics], Mapping[str, int]]) -> dict[str, int]:
        before, after = self.before.hosts[host], self.after.hosts[host]
        assert isinstance(before, MrcHostStatistics)
        assert isinstance(after, MrcHostStatistics)
        first = count(before)
        return {name: value - first.get(name, 0) for name, value in count(after).items()}

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

    def ports(self, node: str, port: int) -> tuple[PortStats, PortStats] | None:
        """Return the statistics of a switch's port before and after; None where one of them is unknown."""
        before, after = self.before.fabric.get(node), self.after.fabric.get(node)
        if before is None or after is None or port not in before.ports or port not in after.ports:
            return None
        return before.ports[port], after.ports[port]

    def unread(self, host: str, port: int) -> int:
        """Return how many more packets a host has not read that arrived at a port of it."""
        return self.after.unread[host][port] - self.before.unread[host][port]


def _kept(before: HostStatistics | None, after: HostStatistics | None) -> bool:
    """Return whether both statistics are there, and of the same life of an agent."""
    if before is None or after is None:
        return False
    if isinstance(before, MrcHostStatistics) and isinstance(after, MrcHostStatistics):
        return before.instance == after.instance
    return all(
        one.received_packets <= other.received_packets for one, other in zip(before.links, after.links, strict=True)
    )


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
        if high is None or any(side.tunnel for side in high):
            continue
        if (host := _host(account, link)) is not None:
            yield from _host_link(account, link, host, high)
        elif (low := account.ports(link.low.node, link.low.port)) is not None:
            ways = _one_way("upwards", low, high, account.moving), _one_way("downwards", high, low, account.moving)
            if account.veth_links:
                left, least, most = (sum(getattr(way, side) for way in ways) for side in ("left", "low", "high"))
                yield Entry(link.name, left, least, most)
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
    gone += _dropped(ports, lambda why: why not in _BEFORE_LINK)
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


def _goodput(account: Account) -> Iterator[Entry]:
    """Yield payload that responders placed = the integral of goodput over the run, from the first to the last bin."""
    ranks = [name for name in account.ranks if name in account.hosts]
    if len(ranks) != len(account.ranks):
        return
    placed = sum(account.grown(host, lambda each: condense(each, 0).delivered_bytes) for host in ranks)
    total = round(account.goodput_bytes)
    yield Entry("all ranks", placed, total - 1, total + 1)


def _puts(account: Account) -> Iterator[Entry]:
    """Yield bytes that ranks put = payload that responders placed, but for puts that have not ended."""
    ranks, progress = [name for name in account.ranks if name in account.hosts], account.progress.values()
    if len(ranks) != len(account.ranks):
        return
    placed = sum(account.grown(host, lambda each: condense(each, 0).delivered_bytes) for host in ranks)
    put = sum(each.bytes_sent for each in progress)
    ended = all(each.requests_posted == each.requests_ended and not each.failure for each in progress)
    yield Entry("all ranks", placed, put if ended else 0, put)


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


def _iterations(account: Account) -> Iterator[Entry]:
    """Yield bytes that ranks put and verified = iterations x the size of an iteration, of ranks that ended together; of
    a stream = messages x their size."""
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


def _times(account: Account) -> Iterator[Entry]:
    """Yield times of each action: asked for <= done, in the order of the record, all within the run; in ns."""
    latest = account.before.t_ns
    for number, happening in enumerate(account.happenings):
        name = f"{happening.action.describe()} ({number})"
        yield Entry(f"{name}, done", happening.done_ns, max(happening.at_ns, latest), account.after.t_ns)
        latest = happening.done_ns


def _samples(account: Account) -> Iterator[Entry]:
    """Yield the growth of a counter in the samples = final minus initial statistics; by host and counter."""
    for host, columns in account.sampled.items():
        if host not in account.hosts:
            continue
        for name, grown in columns.items():
            before, final = account.before.hosts[host], account.final.get(host)
            total = 0 if before is None or final is None else _sampled(final, name) - _sampled(before, name)
            yield Entry(f"{host} {name}", grown, total, total)


def _sampled(statistics: HostStatistics, name: str) -> int:
    sample: Sample = condense(statistics, 0)
    count: int = getattr(sample, name)
    return count


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
    Identity("trims", _trims),
    Identity("marks", _marks),
    Identity("bytes delivered", _goodput),
    Identity("bytes put", _puts),
    Identity("iterations", _iterations),
    Identity("times", _times),
    Identity("samples", _samples),
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
