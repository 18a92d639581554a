"""Account of a run: what the identities of its books look at, and the entries that they yield."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mrc_host.answers import HostStatistics, JobProgress, MrcHostStatistics
from mrc_host.node.samples import requestors, responders
from mrc_topo.topology import Topology
from mrclab.lab.session.base import LabCounts
from mrclab.results.counted import Achieved, grown
from mrclab.results.record import LabEvent
from mrclab.results.recording import Events
from p4lite.switch.fabric.values import PortStats


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


def _kept(before: HostStatistics | None, after: HostStatistics | None) -> bool:
    """Return whether both statistics are there, and of the same life of an agent."""
    if before is None or after is None:
        return False
    if isinstance(before, MrcHostStatistics) and isinstance(after, MrcHostStatistics):
        return before.instance == after.instance
    return all(
        one.received_packets <= other.received_packets for one, other in zip(before.links, after.links, strict=True)
    )
