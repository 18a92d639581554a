"""Evidence that a failure happened: what a run must show of each failure, beside what it must withstand.

Goodput that stays says nothing about a failure that was never there. So every step that breaks something states what
shows it, measured from the failure until its target is restored (or the run ends).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mrc_host.answers import PortEvent
from mrc_topo.paths import Paths
from mrc_topo.topology import Link, Switch, Topology
from mrclab.lab.faults.action import Action
from mrclab.results import analysis
from mrclab.results.check import Check
from mrclab.results.expectation import Evidence
from mrclab.results.history import peers_of
from mrclab.results.record import BIN_S, RunResult
from mrclab.results.series import TIME, Series

#: What the failed element's ports carried before is measured over this time at most.
BEFORE_NS = 1_000_000_000


def findings(result: RunResult, topology: Topology, claims: Sequence[Evidence | None]) -> Iterator[Check]:
    """Yield a check for each piece of evidence of the run's failures.

    Args:
        claims: the evidence of each happening of the schedule, in order; None where nothing is broken.
    """
    happenings = result.happenings
    scheduled = [number for number, each in enumerate(happenings) if not each.clicked]
    for place, claim in enumerate(claims):
        if claim is None:
            continue
        if place >= len(scheduled):
            yield Check(f"evidence of failure {place + 1}", "that it is made", "never made", False)
            continue
        number = scheduled[place]
        found = _Found(result, topology, number)
        for key, wanted in claim.model_dump(exclude_none=True).items():
            what = f"evidence of {happenings[number].action.describe()}: {LABELS[key]}"
            value = getattr(found, key)()
            if key in ("carried", "goodput"):
                shown = "nothing before" if value is None else f"{value:.1%} of before"
                passed = value is not None and value <= wanted
                yield Check(what, f"at most {wanted:.1%} of before", shown, passed, timed=True)
            else:
                yield Check(what, f"at least {wanted:g}", f"{value:g}", value >= wanted)


def counted(result: RunResult, topology: Topology, number: int) -> dict[str, float]:
    """Return the counts of one event that breaks something: the keys of `Evidence` that say "at least"."""
    found = _Found(result, topology, number)
    return {key: getattr(found, key)() for key in LABELS if key not in ("carried", "goodput")}


LABELS = {
    "dropped": "packets the fabric dropped there",
    "carried": "bytes it carried",
    "evs_lost": "EVs across it taken for bad",
    "losses": "packets the hosts took for lost",
    "ports_down": "hosts that know of a dead port",
    "goodput": "goodput",
    "pause_frames": "pause frames of a stuck NIC",
    "paused": "seconds that it was paused, or had no credits",
}


def _sums(series: Series, columns: Sequence[str], times_ns: Sequence[int]) -> list[int | None]:
    """Return the sum of some columns in the last row at or before each time; None where there is no row yet."""
    known = [each for each in columns if each in series.columns]
    stamps, *counters = series.take([TIME, *known], min(times_ns), max(times_ns))
    totals = np.sum(counters, axis=0) if counters else np.zeros(len(stamps), np.int64)
    rows = np.searchsorted(stamps, times_ns, side="right") - 1
    return [None if row < 0 else int(totals[row]) for row in rows]


class _Found:
    """One failure of a run: its element, its time, and the counters at that time."""

    def __init__(self, result: RunResult, topology: Topology, number: int) -> None:
        self.result, self.recording = result, result.recording
        self.topology = topology
        happenings = result.happenings
        happening = happenings[number]
        self.element = topology.element(happening.action.target)
        later = (each.at_ns for each in happenings[number + 1 :] if self._ends(each.action, happening.action))
        self.begin = happening.at_ns
        self.end = max(next(later, result.finished_ns), self.begin)
        before = [result.started_ns, *(each.done_ns for each in happenings[:number])]
        self.start = max(before[-1], self.begin - BEFORE_NS)

    def _ends(self, action: Action, failure: Action) -> bool:
        """Return whether an action restores this failure: a restore without a kind restores all of a target's."""
        if action.verb != "restore" or self.topology.element(action.target).name != self.element.name:
            return False
        kinds = action.kind, failure.kind
        return "" in kinds or kinds[0] == kinds[1]

    def _switch_ports(self) -> list[str]:
        """Return `SWITCH:PORT` of every port of the element."""
        if isinstance(self.element, Switch):
            return [f"{self.element.name}:{port}" for port in self.element.links]
        assert isinstance(self.element, Link)
        names = {switch.name for switch in self.topology.switches}
        ends = (self.element.low, self.element.high)
        return [f"{end.node}:{end.port}" for end in ends if end.node in names]

    def _counted(self, key: str, begin: int, end: int) -> int:
        """Increase of a counter over the element's ports, between the last samples at or before both times."""
        columns = [f"ports.{port}.{key}" for port in self._switch_ports()]
        first, last = _sums(self.recording.fabric, columns, (begin, end))
        return 0 if last is None else last - (first or 0)

    def dropped(self) -> int:
        return self._counted("lost", self.begin, self.end)

    def pause_frames(self) -> int:
        return self._counted("storm_frames", self.begin, self.end)

    def paused(self) -> float:
        stopped = (self._counted(key, self.begin, self.end) for key in ("paused_ns", "credit_stall_ns"))
        return sum(stopped) / 1e9

    def carried(self) -> float | None:
        before = self._counted("tx_bytes", self.start, self.begin) / max(self.begin - self.start, 1)
        now = self._counted("tx_bytes", self.begin, self.end) / max(self.end - self.begin, 1)
        return now / before if before and self.end > self.begin else None

    def losses(self) -> float:
        total = 0.0
        for samples in self.recording.samples.values():
            first, last = _sums(samples, ["losses"], (self.begin, self.end))
            if first is not None and last is not None:
                total += last - first
        return total

    def evs_lost(self) -> int:
        topology, paths = self.topology, Paths(self.topology)
        peers = peers_of(self.result, topology)
        found = set()
        for host, event in self.recording.events.bad_evs(self.begin, self.end):
            peer = peers.get((host, event.qpn))
            if peer is not None and paths.may_cross(
                self.element, topology.host(host).index, topology.host(peer).index, event.ev
            ):
                found.add((host, event.qpn, event.ev))
        return len(found)

    def ports_down(self) -> int:
        links = self.element.links.values() if isinstance(self.element, Switch) else [self.element]
        dead = {
            (host.name, plane)
            for host in self.topology.hosts
            for plane, port in enumerate(host.ports)
            if any(link.name == port.name for link in links)
        }
        names = {host.address.hex(): host.name for host in self.topology.hosts}
        return len(
            {
                host
                for host, event in self.recording.events.between(self.begin, self.end, "port")
                if isinstance(event, PortEvent)
                and not event.up
                and (names.get(event.peer, host) if event.peer else host, event.port) in dead
            }
        )

    def goodput(self) -> float | None:
        start = self.result.started_ns
        times = [(each - start) / 1e9 for each in (self.start, self.begin, self.end)]
        edges = self.result.grid()
        # All of a long run for each of many failures would take longer than the run.
        edges = edges[(edges >= times[0] - 2 * BIN_S) & (edges <= times[2] + 2 * BIN_S)]
        if len(edges) < 2:
            return None
        series = self.result.goodput_bps(edges)
        before = analysis.window_mean(series, edges, times[0], times[1])
        # Samples are up to two bins late; a window without a whole bin has no mean.
        inside = (edges[:-1] >= times[1] - 1e-9) & (edges[1:] <= times[2] + 1e-9)
        return float(series[inside].mean()) / before if before and inside.any() else None
