"""A year of failures under one large job: hours lost with MRC on planes, and with RoCE on three tiers of one plane.

Failures of each element are a Poisson process, repairs take a fixed time; both are drawn for every element of the plan
(`mrc_topo.plan`). The job works in step: it is as fast as its slowest NIC, in the part of its time in which it
communicates. Failures of one kind at one place add up; the slowest place counts.

MRC: a dead T0-T1 link or T1 takes its share of a plane from a T0, a port or a T0 its plane (planes are loaded equally,
so the slowest sets the pace). RoCE: as much of the only plane; each failure stands still until routing has gone around
it, and a NIC whose only port, or whose T0, is away for longer than its retries ends the job, which goes back to its
last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mrc_scale.fabric import FabricShape, Floats, Ints
from mrc_scale.schema import Cluster, ElementRates, RoceSpec, YearSpec
from mrc_topo.plan import Plan

HOUR_S = 3600.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of one design: hours lost by slower steps, by standing still, and by going back after an
    interruption.
    """

    name: str
    failures: int
    interruptions: int
    slower_h: float
    stalled_h: float
    restarts_h: float
    hours: float

    @property
    def lost_h(self) -> float:
        """All hours lost; the job cannot lose more than there are."""
        return min(self.slower_h + self.stalled_h + self.restarts_h, self.hours)

    @property
    def availability(self) -> float:
        """Share of the time in which the job made progress."""
        return 1 - self.lost_h / self.hours


@dataclass(frozen=True)
class _Intervals:
    """Times of failures of a class, hours: element number, begin, end."""

    element: Ints
    begin: Floats
    end: Floats


def outcomes(cluster: Cluster, shape: FabricShape, plan: Plan, spec: YearSpec) -> list[Outcome]:
    """Run MRC on planes and RoCE on three tiers through the same kind of year."""
    return [_mrc(cluster, shape, spec), _roce(cluster, plan, spec)]


def _mrc(cluster: Cluster, shape: FabricShape, spec: YearSpec) -> Outcome:
    rng = np.random.default_rng([cluster.seed, 3])
    hours = spec.days * 24
    planes, t1s = shape.planes, shape.t1s

    def drawn(kind: str, rates: ElementRates, count: int) -> _Intervals:
        return _draw(rng, rates, count, hours)

    links = [drawn("links", rates, shape.links) for rates in (spec.flaps, spec.links)]
    ports = [drawn("ports", rates, shape.nics * planes) for rates in (spec.port_flaps, spec.ports)]
    t0s = drawn("t0s", spec.t0s, planes * shape.t0s)
    t1s_down = drawn("t1s", spec.t1s, planes * t1s)
    # Numbers as `Fabric.name` has them: links by plane, T0, T1; ports by NIC, plane; switches by plane.
    slow = [
        _levels(_joined(links), lambda e: e // t1s, 1 / t1s),
        _levels(_joined(ports), lambda e: e // planes, 1 / planes),
        _levels(t0s, lambda e: e % shape.t0s, 1 / planes),
        _levels(t1s_down, lambda e: e // t1s, 1 / t1s),
    ]
    begin, end, lost = (np.concatenate([part[i] for part in slow]) for i in range(3))
    off = lost >= 1 - 1e-9  # all planes of a NIC: the job ends
    interruptions = _merged(begin[off], end[off])
    slower = _integral(begin, end, np.minimum(lost, 1 - 1e-6), hours, spec.communication)
    failures = sum(len(each.element) for each in (*links, *ports, t0s, t1s_down))
    restarts = interruptions * _restart_h(spec)
    return Outcome(f"MRC, {planes} planes", failures, interruptions, slower, 0.0, restarts, hours)


def _roce(cluster: Cluster, plan: Plan, spec: YearSpec) -> Outcome:
    rng = np.random.default_rng([cluster.seed, 4])
    hours, design = spec.days * 24, plan.three_tier
    half = design.radix // 2
    fabric_links = design.links["T0-T1"] + design.links["T1-T2"]
    flaps, broken = (_draw(rng, rates, fabric_links, hours) for rates in (spec.flaps, spec.links))
    ports = [_draw(rng, rates, design.links["NIC-T0"], hours) for rates in (spec.port_flaps, spec.ports)]
    t0s = _draw(rng, spec.t0s, design.switches["T0"], hours)
    upper = _draw(rng, spec.t1s, design.switches["T1"] + design.switches.get("T2", 0), hours)
    # A port or a T0 that is away ends the job, if for longer than queue pairs repeat.
    ending = [each for each in (*ports, t0s) if _ends(each, cluster.roce)]
    begin = np.concatenate([each.begin for each in ending]) if ending else np.zeros(0)
    # A job that is restarting is not interrupted again.
    away = np.full(len(begin), spec.restart_minutes / 60)
    interruptions = _merged(begin, begin + away)
    stalls = len(flaps.begin) + len(broken.begin) + len(upper.begin)
    slow = [
        _levels(_joined([flaps, broken]), lambda e: e // half, 1 / half),
        _levels(upper, lambda e: e * 0, 1 / max(design.switches["T1"], 1)),
    ]
    parts = [np.concatenate([part[i] for part in slow]) for i in range(3)]
    slower = _integral(parts[0], parts[1], np.minimum(parts[2], 1 - 1e-6), hours, spec.communication)
    stalled = _covered_with(
        np.concatenate([flaps.begin, broken.begin, upper.begin]), cluster.roce.ecmp / 1e9 / HOUR_S, hours
    )
    failures = stalls + sum(len(each.element) for each in (*ports, t0s))
    return Outcome("RoCE, one plane, three tiers", failures, interruptions, slower, stalled,
                   interruptions * _restart_h(spec), hours)  # fmt: skip


def _draw(rng: np.random.Generator, rates: ElementRates, count: int, hours: float) -> _Intervals:
    number = int(rng.poisson(rates.per_year * count * hours / (365 * 24)))
    begin = np.sort(rng.uniform(0, hours, number))
    return _Intervals(rng.integers(0, max(count, 1), number), begin, np.minimum(begin + rates.hours, hours))


def _joined(parts: list[_Intervals]) -> _Intervals:
    return _Intervals(
        *(np.concatenate([getattr(each, name) for each in parts]) for name in ("element", "begin", "end"))
    )


def _levels(failures: _Intervals, place: Callable[[Ints], Ints], share: float) -> tuple[Floats, Floats, Floats]:
    """Return the intervals in which a place has lost something, and how much: simultaneous failures at one place add
    up.
    """
    where = np.concatenate([place(failures.element)] * 2)
    time = np.concatenate([failures.begin, failures.end])
    by = np.repeat([1, -1], len(failures.begin))
    order = np.lexsort((by, time, where))
    where, time, depth = where[order], time[order], np.cumsum(by[order])
    same = where[:-1] == where[1:]
    keep = same & (depth[:-1] > 0) & (time[1:] > time[:-1])
    return time[:-1][keep], time[1:][keep], np.minimum(depth[:-1][keep] * share, 1.0)


def _covered(begin: Floats, end: Floats) -> float:
    """Return the length of the union of intervals."""
    if not len(begin):
        return 0.0
    order = np.argsort(begin)
    begin, end = begin[order], end[order]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(end)[:-1]])
    return float(np.maximum(0.0, end - np.maximum(begin, before)).sum())


def _covered_with(begin: Floats, length: float, hours: float) -> float:
    return _covered(begin, np.minimum(begin + length, hours))


def _merged(begin: Floats, end: Floats) -> int:
    """Return the number of intervals after those that overlap are merged."""
    if not len(begin):
        return 0
    order = np.argsort(begin)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(end[order])[:-1]])
    return int(np.count_nonzero(begin[order] > before))


def _integral(begin: Floats, end: Floats, lost: Floats, hours: float, communication: float) -> float:
    """Return the hours lost: at any time the largest loss counts, in the part of a step that communicates."""
    total, levels = 0.0, np.unique(np.round(lost, 9))
    above = [_covered(begin[lost >= level - 1e-9], end[lost >= level - 1e-9]) for level in levels]
    for number, level in enumerate(levels):
        inside = above[number] - (above[number + 1] if number + 1 < len(levels) else 0.0)
        slower = (1 - communication) + communication / (1 - level)
        total += inside * (1 - 1 / slower)
    return min(total, hours)


def _ends(failures: _Intervals, spec: RoceSpec) -> bool:
    return bool(len(failures.begin)) and float(np.max(failures.end - failures.begin)) * HOUR_S > spec.retry / 1e9


def _restart_h(spec: YearSpec) -> float:
    """Return the hours that an interruption costs: starting again, and on average half of the time between two
    checkpoints.
    """
    return (spec.restart_minutes + spec.checkpoint_minutes / 2) / 60
