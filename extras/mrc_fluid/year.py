"""A year of failures under one large job: hours lost with MRC on planes, and with RoCE on three tiers of one plane.

Failures of each element are a Poisson process, repairs take a fixed time; both are drawn for every element of the
cluster's fabric (`fabric`), for RoCE of the plan's one of three tiers (`mrc_topo.plan`) if the cluster has two. The job
works in step: it is as fast as its slowest NIC, in the part of its time in which it communicates. Failures of one kind
at one place add up; the slowest place counts.

MRC: a dead T0-T1 link takes its share of a plane from a T0, a T1, a T2 or a T1-T2 link from a pod, and a port or a T0
its plane (planes are loaded equally, so the slowest sets the pace). RoCE: as much of the only plane; each failure
stands still until routing has gone around it, and a NIC whose only port, or whose T0, is away for longer than its
retries ends the job, which goes back to its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mrc_fluid.fabric import Bools, FabricShape, Floats, Ints
from mrc_fluid.schema import Cluster, ElementRates, RoceSpec, YearSpec
from mrc_topo.plan import Design, Plan

HOUR_S = 3600.0


@dataclass(frozen=True)
class YearOutcome:
    """The outcome of one design: hours lost by slower steps, by standing still, and by going back after an
    interruption.

    `slow_by`: the class of elements that alone would lose most by slower steps ("": none does), `slow_by_h`: hours that
    it would lose, `slow_for_h`: hours in which at least one of them is away.
    """

    name: str
    failures: int
    interruptions: int
    slower_h: float
    stalled_h: float
    restarts_h: float
    hours: float
    slow_by: str = ""
    slow_by_h: float = 0.0
    slow_for_h: float = 0.0

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


#: Begin, end, and the share that is lost meanwhile.
_Levels = tuple[Floats, Floats, Floats]


@dataclass(frozen=True)
class _Sizes:
    """The numbers of elements of a fabric by class (`Fabric`), and for those of its tiers how many share what they
    carry: as many links of a T0, uplinks of a pod, T1s of a pod, T2s of a plane."""

    counts: dict[str, int]
    sharing: dict[str, int]

    @classmethod
    def of_shape(cls, shape: FabricShape) -> _Sizes:
        """Return those of a cluster's fabric."""
        planes = shape.planes
        counts = {"links": shape.links, "upper_links": shape.upper_links}
        counts |= {"ports": planes * shape.nics, "t0s": planes * shape.t0s, "t1s": planes * shape.all_t1s}
        counts["t2s"] = planes * shape.t2s
        sharing = {"links": shape.t1s, "upper_links": shape.pod_uplinks, "t1s": shape.t1s, "t2s": shape.t2s}
        return cls(counts, sharing)

    @classmethod
    def of_design(cls, design: Design) -> _Sizes:
        """Return those of a fabric that `mrclab topo plan` makes."""
        names = {"links": "T0-T1", "upper_links": "T1-T2", "ports": "NIC-T0"}
        counts = {kind: design.links[name] for kind, name in names.items()}
        counts |= {kind: design.switches[kind[:2].upper()] for kind in ("t0s", "t1s", "t2s")}
        lost = {"links": "T0-T1 link", "upper_links": "T1-T2 link", "t1s": "T1", "t2s": "T2"}
        return cls(counts, {kind: round(1 / design.lost[name]) for kind, name in lost.items()})

    def levels(self, kind: str, failures: _Intervals) -> _Levels:
        """Return what failures of a class take from those that share."""
        sharing = max(self.sharing[kind], 1)
        return _levels(failures, lambda element: element // sharing, 1 / sharing)


def outcomes(cluster: Cluster, shape: FabricShape, plan: Plan | None, spec: YearSpec) -> list[YearOutcome]:
    """Run MRC on the cluster's fabric, and RoCE on three tiers of one plane, through the same kind of year.

    RoCE has the fabric of the cluster if it is one of these, and otherwise that of the plan, if there is one.
    """
    made = [_mrc(cluster, shape, spec)]
    if shape.uplinks and shape.planes == 1:
        made.append(_roce(cluster, _Sizes.of_shape(shape), spec))
    elif plan is not None:
        made.append(_roce(cluster, _Sizes.of_design(plan.three_tier), spec))
    return made


def _mrc(cluster: Cluster, shape: FabricShape, spec: YearSpec) -> YearOutcome:
    rng = np.random.default_rng([cluster.seed, 3])
    hours, planes, sizes = spec.days * 24, shape.planes, _Sizes.of_shape(shape)

    def drawn(kind: str, *rates: ElementRates) -> _Intervals:
        return _joined([_draw(rng, each, sizes.counts[kind], hours) for each in rates])

    links, ports = drawn("links", spec.flaps, spec.links), drawn("ports", spec.port_flaps, spec.ports)
    t0s, t1s = drawn("t0s", spec.t0s), drawn("t1s", spec.t1s)
    tiers = {"links": links, "t1s": t1s}
    if shape.uplinks:
        tiers |= {"upper_links": drawn("upper_links", spec.flaps, spec.links), "t2s": drawn("t2s", spec.t1s)}
    # Numbers as `Fabric.name` has them: links by plane, T0, T1; ports by NIC, plane; switches by plane.
    slow = {kind: sizes.levels(kind, failures) for kind, failures in tiers.items()}
    slow["ports"] = _levels(ports, lambda e: e // planes, 1 / planes)
    slow["t0s"] = _levels(t0s, lambda e: e % shape.t0s, 1 / planes)
    ended = _all_of(slow)
    off = ended[2] >= 1 - 1e-9  # all planes of a NIC: the job ends, and goes on without it
    interruptions = _interruptions(ended[0][off], spec)
    slow = {kind: _where(levels, levels[2] < 1 - 1e-9) for kind, levels in slow.items()}
    slower = _integral(_all_of(slow), hours, spec.communication)
    failures = sum(len(each.element) for each in (ports, t0s, *tiers.values()))
    restarts = interruptions * _restart_h(spec)
    name = f"MRC, {planes} planes" if not shape.uplinks else f"MRC, three tiers of {planes} plane{'s' * (planes > 1)}"
    why = _slowest(slow, hours, spec.communication)
    return YearOutcome(name, failures, interruptions, slower, 0.0, restarts, hours, *why)


def _roce(cluster: Cluster, sizes: _Sizes, spec: YearSpec) -> YearOutcome:
    rng = np.random.default_rng([cluster.seed, 4])
    hours, counts = spec.days * 24, sizes.counts
    fabric_links = counts["links"] + counts["upper_links"]
    flaps, broken = (_draw(rng, rates, fabric_links, hours) for rates in (spec.flaps, spec.links))
    ports = [_draw(rng, rates, counts["ports"], hours) for rates in (spec.port_flaps, spec.ports)]
    t0s = _draw(rng, spec.t0s, counts["t0s"], hours)
    switches = _draw(rng, spec.t1s, counts["t1s"] + counts["t2s"], hours)
    # A port or a T0 that is away ends the job, if for longer than queue pairs repeat.
    ending = [each for each in (*ports, t0s) if _ends(each, cluster.roce)]
    begin = np.concatenate([each.begin for each in ending]) if ending else np.zeros(0)
    interruptions = _interruptions(begin, spec)
    stalls = len(flaps.begin) + len(broken.begin) + len(switches.begin)
    links, upper = _split(_joined([flaps, broken]), counts["links"])
    t1s, t2s = _split(switches, counts["t1s"])
    tiers = {"links": links, "upper_links": upper, "t1s": t1s, "t2s": t2s}
    slow = {kind: _below_all(sizes.levels(kind, failures)) for kind, failures in tiers.items()}
    slower = _integral(_all_of(slow), hours, spec.communication)
    stalled = _covered_with(
        np.concatenate([flaps.begin, broken.begin, switches.begin]), cluster.roce.ecmp / 1e9 / HOUR_S, hours
    )
    failures = stalls + sum(len(each.element) for each in (*ports, t0s))
    return YearOutcome("RoCE, one plane, three tiers", failures, interruptions, slower, stalled,
                   interruptions * _restart_h(spec), hours, *_slowest(slow, hours, spec.communication))  # fmt: skip


def _draw(rng: np.random.Generator, rates: ElementRates, count: int, hours: float) -> _Intervals:
    number = int(rng.poisson(rates.per_year * count * hours / (365 * 24)))
    begin = np.sort(rng.uniform(0, hours, number))
    return _Intervals(rng.integers(0, max(count, 1), number), begin, np.minimum(begin + rates.hours, hours))


def _joined(parts: list[_Intervals]) -> _Intervals:
    return _Intervals(
        *(np.concatenate([getattr(each, name) for each in parts]) for name in ("element", "begin", "end"))
    )


def _split(failures: _Intervals, count: int) -> tuple[_Intervals, _Intervals]:
    """Return the failures of the first `count` elements, and those of the others, numbered from 0."""
    first = failures.element < count
    element, begin, end = failures.element, failures.begin, failures.end
    return (
        _Intervals(element[first], begin[first], end[first]),
        _Intervals(element[~first] - count, begin[~first], end[~first]),
    )


def _levels(failures: _Intervals, place: Callable[[Ints], Ints], share: float) -> _Levels:
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


def _interruptions(begin: Floats, spec: YearSpec) -> int:
    """Return how often a job is interrupted that these failures end: not again while it is restarting."""
    return _merged(begin, begin + spec.restart_minutes / 60)


def _where(levels: _Levels, which: Bools) -> _Levels:
    return levels[0][which], levels[1][which], levels[2][which]


def _below_all(levels: _Levels) -> _Levels:
    """Return losses that leave something: a job without any path stands still, which is counted elsewhere."""
    return levels[0], levels[1], np.minimum(levels[2], 1 - 1e-6)


def _all_of(slow: Mapping[str, _Levels]) -> _Levels:
    """Return the intervals of all classes together."""
    begin, end, lost = (np.concatenate([levels[part] for levels in slow.values()]) for part in range(3))
    return begin, end, lost


def _slowest(slow: Mapping[str, _Levels], hours: float, communication: float) -> tuple[str, float, float]:
    """Return the class of elements that alone would lose most hours, these hours, and those in which one is away."""
    alone = {kind: _integral(levels, hours, communication) for kind, levels in slow.items()}
    most = max(alone, key=lambda kind: alone[kind])
    if alone[most] <= 0:
        return "", 0.0, 0.0
    return most, alone[most], _covered(slow[most][0], slow[most][1])


def _integral(levels: _Levels, hours: float, communication: float) -> float:
    """Return the hours lost: at any time the largest loss counts, in the part of a step that communicates."""
    begin, end, lost = levels
    total, sizes = 0.0, np.unique(np.round(lost, 9))
    above = [_covered(begin[lost >= size - 1e-9], end[lost >= size - 1e-9]) for size in sizes]
    for number, size in enumerate(sizes):
        inside = above[number] - (above[number + 1] if number + 1 < len(sizes) else 0.0)
        slower = (1 - communication) + communication / (1 - size)
        total += inside * (1 - 1 / slower)
    return min(total, hours)


def _ends(failures: _Intervals, spec: RoceSpec) -> bool:
    return bool(len(failures.begin)) and float(np.max(failures.end - failures.begin)) * HOUR_S > spec.retry / 1e9


def _restart_h(spec: YearSpec) -> float:
    """Return the hours that an interruption costs: starting again, and on average half of the time between two
    checkpoints.
    """
    return (spec.restart_minutes + spec.checkpoint_minutes / 2) / 60
