"""Verdict on a run: expectations and evidence of failures, what was measured, and whether that is good."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mrc_host.answers import PortEvent
from mrc_topo.paths import Paths
from mrc_topo.topology import Link, Switch, Topology
from mrclab.lab import describe, payloads
from mrclab.lab.faults.action import Action
from mrclab.results import analysis, performance, steps, tenants
from mrclab.results.analysis import Recovery
from mrclab.results.check import Check, Verdict
from mrclab.results.expectation import Evidence, Expectation, StepExpectation, StreamExpectation
from mrclab.results.history import peers_of
from mrclab.results.record import BIN_S, Books, Readings, RunResult
from mrclab.results.recording import TIME, Series


def recovery_bound_s(topology: Topology, clock: str, extra_s: float = 0.0) -> float:
    """Return the bound of a recovery, s: 10 base RTTs, one local ACK timeout, and the width of a bin of the
    measurement.
    """
    rtt = describe.base_rtt_ns(topology, clock)
    return (10 * rtt + describe.ack_timeout_ns(topology)) / 1e9 + BIN_S + extra_s


def checks_of(
    result: RunResult,
    topology: Topology,
    expect: Expectation,
    readings: Readings,
    recoveries: Sequence[Recovery],
    found: Sequence[Check],
) -> list[Check]:
    """Return the checks of a run.

    Args:
        found: those of the failures' evidence.
    """
    checks: list[Check] = []
    _failures(result.failures if expect.denied is None else tenants.failures(result, topology), checks)
    checks += found
    if expect.verified:
        _verified(result, checks)
    errors = result.achieved().qp_errors
    checks.append(Check("queue pairs in error", f"at most {expect.qp_errors}", str(errors), errors <= expect.qp_errors))
    judged = [each for each in recoveries if each.breaks]
    if expect.recovery is not None:
        bound = recovery_bound_s(topology, result.clock, expect.recovery)
        checks += [_recovered(each, bound) for each in recoveries] or [_nothing("recovery")]
    if expect.min_share is not None:
        checks += [_settled(each, expect.min_share) for each in judged] or [_nothing("settled goodput")]
    if expect.max_dip is not None:
        checks += [_dip(each, expect.max_dip) for each in judged] or [_nothing("dip")]
    _goodput(goodput_share(result, topology, readings), expect, checks)
    _counts(result, expect, readings.totals, checks)
    if expect.plane_spread is not None:
        _planes(result, topology, expect.plane_spread, checks)
    for stream in expect.streams:
        _streams(result, topology, stream, checks)
    checks += [check for each in expect.steps for check in _steps(result, each)]
    if expect.localised is not None:
        _localised(result, checks)
    if expect.denied is not None:
        checks += tenants.denials(result, topology, expect.denied)
    if result.books is not None:
        checks.append(_books(result.books))
    fidelity = result.fidelity
    if expect.valid and not fidelity.valid:
        checks.append(Check("the machine kept up", "yes", "; ".join(fidelity.reasons[:2]), False, timed=True))
    return checks


def _nothing(what: str) -> Check:
    """Return a failed check: an expectation that no part of the run can meet or miss counts as missed."""
    return Check(what, "something to judge by", "no failure with enough time around it", False)


def _counts(result: RunResult, expect: Expectation, totals: Mapping[str, int], checks: list[Check]) -> None:
    """Check trims, marks and timeouts; that there were none counts only where the hosts did count."""
    silent = [name for name in result.ranks if len(result.samples_of(name)) < 2]
    wanted: list[tuple[str, str, bool]] = []
    for key, some in (("trims", expect.trims), ("marks", expect.marks)):
        if some is not None:
            wanted.append((key, "some" if some else "none", bool(totals[key]) is some))
    if expect.timeouts is not None:
        wanted.append(("timeouts", f"at most {expect.timeouts}", totals["timeouts"] <= expect.timeouts))
    if expect.spurious is not None:
        share = totals["spurious_retransmissions"] / max(totals["packets"], 1)
        wanted.append(
            ("spurious_retransmissions", f"at most {expect.spurious:.2%} of the packets", share <= expect.spurious)
        )
    for key, text, passed in wanted:
        measured = f"no samples of {', '.join(silent)}" if silent else str(totals[key])
        if key == "spurious_retransmissions" and not silent:
            measured += f" of {totals['packets']}"
        checks.append(Check(key.replace("_", " "), text, measured, passed and not silent, timed=key == "timeouts"))


def _books(books: Books) -> Check:
    wrong = [f"{each.identity}: {text}" for each in books.balances for text in each.unbalanced]
    entries = sum(each.entries for each in books.balances)
    text = "; ".join(wrong[:2]) + ("; ..." if len(wrong) > 2 else "")
    return Check(
        "the books balance", f"all {len(books.balances)} identities", text or f"{entries} entries do", not wrong
    )


def _failures(failures: Sequence[str], checks: list[Check]) -> None:
    text = "; ".join(failures[:3]) + ("; ..." if len(failures) > 3 else "")
    checks.append(Check("no rank or agent failed", "none", text or "none", not failures))


def _verified(result: RunResult, checks: list[Check]) -> None:
    achieved = result.achieved()
    wrong, good, least = achieved.mismatches, achieved.bytes_verified, achieved.least_iterations
    if result.fidelity.length_only:
        checks.append(Check("payload of packets", "length", payloads.NOT_VERIFIED, wrong == good == 0))
    else:
        text = f"{good / 1e6:.1f} MB right, {wrong} values wrong"
        checks.append(Check("bytes verified", "all right, some at least", text, wrong == 0 and good > 0))
    done = all(each.done and not each.failure for each in result.progress.values())
    checks.append(Check("iterations of every rank", "at least 1, all done", str(least), done and least >= 1))


def _recovered(recovery: Recovery, bound: float) -> Check:
    passed = recovery.recovery_s is not None and recovery.recovery_s <= bound
    return Check(
        f"back to {analysis.RECOVERED:.0%} of {min(recovery.expected, 1.0):.1%} after {recovery.text}",
        f"within {bound * 1e3:.0f} ms",
        recovery.took,
        passed,
        timed=True,
    )


def _settled(recovery: Recovery, share: float) -> Check:
    wanted = share * min(recovery.expected, 1.0)
    return Check(
        f"goodput settled after {recovery.text}",
        f"at least {wanted:.1%}",
        f"{recovery.after:.1%}",
        recovery.after >= wanted,
        timed=True,
    )


def _dip(recovery: Recovery, dip: float) -> Check:
    lowest = (1 - dip) * min(recovery.expected, 1.0)
    what = f"lowest after {recovery.text}"
    return Check(what, f"at least {1 - dip:.1%} of what was left", recovery.lowest, recovery.dip >= lowest, timed=True)


def goodput_share(result: RunResult, topology: Topology, readings: Readings) -> float:
    """Return the mean goodput of the run as a share of what the receiving ranks' links could carry."""
    return readings.mean_bps / (topology.lab.host_rate_bps * len(result.ranks))


def _goodput(share: float, expect: Expectation, checks: list[Check]) -> None:
    """Add the checks of the mean goodput, a `share` of what the links could carry."""
    if expect.goodput_share is not None:
        text = f"at least {expect.goodput_share:.0%} of link capacity"
        checks.append(Check("goodput", text, f"{share:.1%}", share >= expect.goodput_share, timed=True))
    if expect.max_goodput_share is not None:
        text = f"at most {expect.max_goodput_share:.0%} of link capacity"
        checks.append(Check("goodput", text, f"{share:.1%}", share <= expect.max_goodput_share, timed=True))


def _planes(result: RunResult, topology: Topology, most: float, checks: list[Check]) -> None:
    loads = [0] * topology.lab.planes
    for host in result.samples:
        grown = result.samples_of(host).growth([f"tx_bytes.{plane}" for plane in range(len(loads))])
        loads = [load + more for load, more in zip(loads, grown.values(), strict=True)]
    mean = sum(loads) / len(loads)
    spread = (max(loads) - min(loads)) / mean if mean else math.inf
    text = f"at most {most:.1%} of the mean"
    checks.append(Check("spread of the planes' load", text, f"{spread:.1%}", spread <= most, timed=True))


def _streams(result: RunResult, topology: Topology, wanted: StreamExpectation, checks: list[Check]) -> None:
    rates = performance.stream_rates(result, wanted.source, wanted.destination)
    what = f"streams from {wanted.source or 'any'} to {wanted.destination or 'any'}"
    if not rates:
        checks.append(Check(what, "some", "none", False))
        return
    capacity = topology.lab.host_rate_bps
    for bound, name in ((wanted.at_least, "at least"), (wanted.at_most, "at most")):
        if bound is None:
            continue
        pick = min if name == "at least" else max
        worst = pick(rates, key=lambda each: rates[each])
        share = rates[worst] / capacity
        passed = share >= bound if name == "at least" else share <= bound
        text = f"each {name} {bound:.1%} of a host's capacity"
        checks.append(Check(what, text, f"{share:.1%} ({worst})", passed, timed=True))
    if wanted.jain is not None:
        index = performance.jain(list(rates.values()))
        text = f"Jain's index of {len(rates)} rates at least {wanted.jain:g}"
        checks.append(Check(what, text, f"{index:.3f}", len(rates) > 1 and index >= wanted.jain, timed=True))


WHICH = {"all": "all steps", "broken": "steps with something broken", "whole": "steps with nothing broken"}


def _steps(result: RunResult, wanted: StepExpectation) -> list[Check]:
    what = f"{wanted.of} of {WHICH[wanted.during]}"
    seconds = [each.seconds for each in steps.chosen(steps.steps_of(result), wanted.during)]
    if not seconds:
        return [Check(what, "some", "none", False)]
    measured = steps.statistic(seconds, wanted.of)
    checks = []
    for name, bound in (("at least", wanted.at_least), ("at most", wanted.at_most)):
        if bound is not None:
            passed = measured >= bound if name == "at least" else measured <= bound
            text = f"{name} {bound * 1e3:g} ms"
            checks.append(Check(what, text, f"{measured * 1e3:.1f} ms ({len(seconds)} steps)", passed, timed=True))
    return checks


def _localised(result: RunResult, checks: list[Check]) -> None:
    if not result.happenings:
        checks.append(_nothing("hosts name what is broken"))
    for happening in result.happenings:
        wanted, named = happening.broken, happening.localised
        past = result.past_findings(happening)
        text = ", ".join(f"{each} (probes of before)" if each in past else each for each in named) or "nothing"
        what = f"hosts name what is broken after {happening.action.describe()}"
        checks.append(Check(what, ", ".join(wanted) or "nothing", text, named == wanted))


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


def judge(
    result: RunResult, topology: Topology, expect: Expectation, claims: Sequence[Evidence | None] = ()
) -> Verdict:
    """Judge a run's result; `claims`: the evidence of each happening."""
    readings = result.readings()
    found = list(findings(result, topology, claims))
    recoveries = analysis.recoveries(result, readings)
    made = checks_of(result, topology, expect, readings, recoveries, found)
    fidelity = result.fidelity
    return Verdict(
        made,
        recoveries,
        fidelity.valid,
        list(fidelity.reasons),
        result.deaths,
        result.interrupted,
        payloads.NOT_VERIFIED if result.fidelity.length_only else "",
    )
