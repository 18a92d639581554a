"""Model of a figure: the runs it is made of, what it claims of them, and the tables that come of it."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from mrc_topo.units import format_rate
from mrclab.results.check import Check
from mrclab.studies.cells.measure import Cell, Measured, Rate, Segment

#: The series of what goodput follows, by the paper.
CLAIMED = "capacity left, as in the paper"
Size = Literal["quick", "full"]
Results = Mapping[str, Measured]


class FigureStatus(StrEnum):
    """The outcome of a figure. `COULD_NOT_RUN`: a run left no result, which says nothing about the figure."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs because"
    NOT_REPRODUCED = "not reproduced"
    COULD_NOT_RUN = "could not run"


@dataclass(frozen=True)
class Measure:
    """A number beside the bounds that the headline sets; not a number is outside of all bounds.

    `paper` is the paper's own value in the same unit, where it states one; `differs` says why ours lies outside of the
    bounds, where that is known. `values`: the number with each seed, of which `value` is the median; empty: of one run.
    """

    what: str
    value: float
    low: float
    high: float
    unit: str = ""
    paper: float | None = None
    differs: str = ""
    values: tuple[float, ...] = ()

    def within(self, value: float) -> bool:
        """Return whether a value lies within the bounds."""
        return self.low <= value <= self.high

    @property
    def passed(self) -> bool:
        """Return whether the median lies within the bounds."""
        return self.within(self.value)

    @property
    def each(self) -> tuple[float, ...]:
        """The number with each seed."""
        return self.values or (self.value,)

    @property
    def held(self) -> int:
        """The number of seeds with which it lies within the bounds."""
        return sum(map(self.within, self.each))

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the greatest value over the seeds; NaN where one is none."""
        if any(math.isnan(value) for value in self.each):
            return math.nan, math.nan
        return min(self.each), max(self.each)

    @property
    def bounds(self) -> str:
        """The bounds as they are shown."""
        if self.low == self.high:
            return f"{self.low:.3g} {self.unit}".strip()
        if math.isinf(self.high):
            return f"at least {self.low:.3g} {self.unit}".strip()
        return f"{self.low:.3g} to {self.high:.3g} {self.unit}".strip()

    @property
    def shown(self) -> str:
        """The number as it is shown, with the interval over the seeds."""
        text = f"{self.value:.3g} {self.unit}".strip()
        low, high = self.interval
        return f"{text} [{low:.3g}, {high:.3g}]" if len(self.each) > 1 and low < high else text


def over_seeds(given: Sequence[Sequence[Measure]]) -> list[Measure]:
    """Return the measures of one seed after another as one list, each with its median over the seeds.

    A seed that leaves a measure without a number leaves its median without one. A reason for what lies outside of the
    bounds holds, as the verdict does, if it is that of more than half of the seeds that miss them.
    """
    found = []
    for same in zip(*given, strict=True):
        values = tuple(each.value for each in same)
        median = math.nan if any(map(math.isnan, values)) else statistics.median(values)
        missed = [each.differs for each in same if not each.passed]
        reason, count = Counter(missed).most_common(1)[0] if missed else ("", 0)
        differs = reason if 2 * count > len(missed) else ""
        found.append(replace(same[0], value=median, values=values, differs=differs))
    return found


@dataclass(frozen=True)
class Point:
    """A row of a figure's table. `below`: it belongs to the panel below, whose y is `Axes.below`."""

    cell: str
    series: str
    x: float
    y: float
    below: bool = False


@dataclass(frozen=True)
class Axes:
    """The meaning of the columns x and y of a figure's table, and how they are drawn."""

    x: str
    y: str
    kind: Literal["steps", "lines", "bars"] = "lines"
    log_x: bool = False
    ticks: Sequence[str] = ()
    below: str = ""


@dataclass(frozen=True)
class Line:
    """What 100 % of line rate are: in Mb/s here, and in words here and in the paper (empty: not stated there)."""

    mbps: float
    ours: str
    paper: str = ""


@dataclass(frozen=True)
class Mark:
    """What the headline says about a part of a plot, in the units of its axes.

    `low` and `high`: our bounds; `paper`: the paper's value. They are drawn from `begin` to `end` (on x), or at the bar
    or point of `series` at `begin`.
    """

    begin: float
    end: float
    low: float = math.nan
    high: float = math.nan
    paper: float = math.nan
    series: str = ""


def no_marks(results: Results) -> Iterator[Mark]:
    """Yield nothing: what the headline is about is not on the plot's axes."""
    return iter(())


def always(results: Results) -> str:
    """Return that every seed makes runs of the figure."""
    return ""


def no_line(results: Results) -> Line | None:
    """Return that the plot shows no rate."""
    return None


@dataclass(frozen=True)
class Alternative:
    """Another way to run a figure that misses the paper's headline: a published policy or setting.

    `source`: where it is published; `apply` changes a cell, or returns it as it is where the alternative has no part
    in it.
    """

    name: str
    source: str
    apply: Callable[[Cell], Cell]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    Args:
        name: as the paper counts it.
        paper: the paper's setup.
        ours: what is different here.
        headline: what the paper states, as it is tested.
        cells: its runs, by size.
        judge: the headline's numbers, from the runs' results.
        points: its table.
        differs: the reason why it cannot come out as the paper has it, where that is known.
        without: a run without what the figure is about; with it the headline must fail.
        line: what 100 % are, where y is a share of line rate.
        marks: the paper's values and our bounds in the plot.
        leave_out: why runs with a seed are none of the figure, judged by what was before the failure; empty: they are.
        alternatives: what else was tried, by `--alternatives`.
        many: seeds that `--full` runs at most; fewer where a run takes minutes and the seed decides little.
    """

    name: str
    title: str
    paper: str
    ours: str
    headline: str
    cells: Callable[[Size], Sequence[Cell]]
    judge: Callable[[Results], Sequence[Measure]]
    points: Callable[[Results], Iterator[Point]]
    axes: Axes
    differs: str = ""
    without: Callable[[Cell], Cell] = Cell.healthy
    line: Callable[[Results], Line | None] = no_line
    marks: Callable[[Results], Iterator[Mark]] = no_marks
    leave_out: Callable[[Results], str] = always
    alternatives: Sequence[Alternative] = ()
    many: int = 5


@dataclass(frozen=True)
class Seeded:
    """The runs of a figure with one seed, and what came of those that left a result."""

    seed: int
    cells: Sequence[Cell]
    results: Results

    @property
    def complete(self) -> bool:
        """Return whether every run left a result."""
        return len(self.results) == len(self.cells)


@dataclass(frozen=True)
class JudgedFigure:
    """A figure with its results. `failures`: the errors of runs; `not_run`: why runs left no result.

    `left_out`: why runs with a seed are none of the figure (`Figure.leave_out`). `alternatives`: the same figure with
    each alternative that was run, by name.
    """

    figure: Figure
    runs: Sequence[Seeded]
    measures: Sequence[Measure]
    failures: Sequence[str]
    not_run: Sequence[str] = ()
    left_out: Mapping[int, str] = field(default_factory=dict)
    alternatives: Mapping[str, JudgedFigure] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs."""
        return [each.seed for each in self.runs]

    @property
    def cells(self) -> list[Cell]:
        """All of its runs."""
        return [cell for each in self.runs for cell in each.cells]

    @property
    def complete(self) -> bool:
        """Return whether every run left a result."""
        return bool(self.runs) and all(each.complete for each in self.runs)

    @property
    def evidence(self) -> list[tuple[str, Check]]:
        """What shows that the failures were there, by run."""
        return [
            (f"{name}, seed {runs.seed}", each)
            for runs in self.runs
            for name, result in runs.results.items()
            for each in result.evidence
        ]

    @property
    def held(self) -> int:
        """The number of seeds with which every number of the headline lies within its bounds."""
        if not self.measures:
            return 0
        each = zip(*(map(one.within, one.each) for one in self.measures), strict=True)
        return sum(map(all, each))

    @property
    def valid(self) -> bool:
        """Return whether every run was what it should be: it went through, and its failures happened."""
        wrong = self.failures or self.not_run
        return bool(self.measures) and not wrong and all(each.passed for _, each in self.evidence)

    @property
    def reproduced(self) -> bool:
        """Return whether moreover all numbers lie within their bounds."""
        return self.valid and all(each.passed for each in self.measures)

    @property
    def status(self) -> FigureStatus:
        """What came of it; it differs for a reason only if that is known."""
        if self.not_run or not self.complete:
            return FigureStatus.COULD_NOT_RUN
        if self.reproduced:
            return FigureStatus.REPRODUCED
        return FigureStatus.DIFFERS if self.valid and self.reason else FigureStatus.NOT_REPRODUCED

    @property
    def reason(self) -> str:
        """Why the figure differs from the paper; empty unless a reason is known for every number out of bounds."""
        missed = [each for each in self.measures if not each.passed]
        if self.figure.differs:
            return self.figure.differs
        return "; ".join(dict.fromkeys(each.differs for each in missed)) if all(each.differs for each in missed) else ""


def judged(figure: Figure, runs: Sequence[Seeded], not_run: Sequence[str] = ()) -> JudgedFigure:
    """Hold a figure's headline against its results; what failed in a run is a failure of the figure.

    The verdict is that of the medians over the seeds.

    Args:
        not_run: runs that left no result, and why.
    """
    complete = bool(runs) and all(each.complete for each in runs)
    left_out = {each.seed: why for each in runs if complete and (why := figure.leave_out(each.results))}
    if len(left_out) < len(runs):
        runs = [each for each in runs if each.seed not in left_out]
    wrong = []
    for each in runs:
        may = {cell.name for cell in each.cells if cell.may_fail}
        found = [(name, text) for name, one in each.results.items() if name not in may for text in one.failures]
        wrong += [f"{name}, seed {each.seed}: {text}" for name, text in found]
    measures = over_seeds([figure.judge(each.results) for each in runs]) if complete else []
    return JudgedFigure(figure, runs, measures, wrong, list(not_run), left_out)


def ratio(one: float, other: float) -> float:
    """Divide; NaN, which meets no bound, where there is nothing to compare with."""
    return one / other if other and math.isfinite(one) and math.isfinite(other) else math.nan


def shares(result: Measured) -> list[float]:
    """Return the rate of each stream over the time of all of them together, as a share of a host's capacity.

    So streams that share a link never add up to more than it carries, even when some end before the others.
    """
    streams = [each.stream for each in result.streams]
    if not streams:
        return []
    span_s = (max(each.ended_ns for each in streams) - min(each.began_ns for each in streams)) / 1e9
    return [ratio(8 * each.bytes / result.host_bps, span_s) for each in streams]


def own_rates(result: Measured) -> list[float]:
    """Return the rate of each stream over its own time, as a share of a host's capacity; of streams without a common
    link."""
    return [ratio(each.stream.average_bps, result.host_bps) for each in result.streams]


def mean(values: Sequence[float]) -> float:
    """Return the mean; not a number of none."""
    return sum(values) / len(values) if values else math.nan


def least(values: Sequence[float]) -> float:
    """Return the least value, NaN if there is none."""
    return min(values) if values else math.nan


def most(values: Sequence[float]) -> float:
    """Return the greatest value, NaN if there is none."""
    return max(values) if values else math.nan


#: What all figures of failures have as y.
SHARE = "goodput, % of line rate"
#: A step counts as settled from then on.
SETTLED_S = 0.15


def receivers(results: Results) -> int:
    """Return the number of hosts at which the streams of a run end; the most of any run."""
    return max((len({each.destination for each in result.streams}) for result in results.values()), default=0)


def line_of(hosts: int, result: Measured, paper: str = "") -> Line:
    """Return what the ports of some hosts carry together."""
    each = result.host_bps / 1e6
    ours = format_rate(result.host_bps)
    if hosts > 1:
        ours = f"{hosts} hosts of {ours}, {format_rate(hosts * result.host_bps)} together"
    return Line(hosts * each, ours, paper)


def everything(paper: str = "") -> Callable[[Results], Line | None]:
    """Return a function of a figure's line rate: that of all hosts that receive, together."""

    def line(results: Results) -> Line | None:
        count = receivers(results)
        return line_of(count, next(iter(results.values())), paper) if count else None

    return line


def one_host(paper: str = "") -> Callable[[Results], Line | None]:
    """Return a function of a figure's line rate: that of one host."""
    return lambda results: line_of(1, next(iter(results.values())), paper)


def percent(bps: float, line: Line | None) -> float:
    """Return a rate as a share of line rate, in %; NaN where that is not known."""
    return bps / line.mbps / 1e4 if line is not None else math.nan


def window(rows: list[Rate], begin: float, end: float) -> float:
    """Return the mean of the rates that were measured between two times, bit/s; NaN of none."""
    found = [rate for time, rate in rows if begin <= time < end - 0.05]
    return sum(found) / len(found) if found else math.nan


def before(result: Measured) -> float:
    """Return the goodput of all hosts before the first failure, bit/s; 0 where nothing was measured."""
    first = result.segments[0].at_s if result.segments else math.inf
    rates = [rate for time, rate, _ in result.series if first / 2 <= time < first - 0.05]
    return sum(rates) / len(rates) if rates else 0.0


def goodput(results: Results) -> Iterator[Point]:
    """Yield goodput of all hosts over time, and what the capacity that is left would give, in % of line rate."""
    line = everything()(results)
    for name, result in results.items():
        base = before(result)
        for time, rate, left in result.series:
            yield Point(name, "goodput", time, percent(rate, line))
            if base:
                yield Point(name, CLAIMED, time, percent(base * left, line))


def each_goodput(results: Results) -> Iterator[Point]:
    """Yield goodput of all hosts over time, of each run, in % of line rate."""
    line = everything()(results)
    for name, result in results.items():
        for time, rate, _ in result.series:
            yield Point(name, name, time, percent(rate, line))


def bounds(low: float, high: float, settled: bool = True) -> Callable[[Results], Iterator[Mark]]:
    """Return a function of the bounds of goodput from a step on: shares of what the capacity that is left gives.

    Args:
        settled: from the time on at which a step counts as settled.
    """

    def marks(results: Results) -> Iterator[Mark]:
        line = everything()(results)
        for result in results.values():
            for each in result.segments:
                rate = percent(before(result), line) * each.left
                yield Mark(each.at_s + (SETTLED_S if settled else 0.0), each.until_s, low * rate, high * rate)

    return marks


def bounds_of(result: Measured, line: Line | None, segment: Segment, low: float, high: float) -> Mark:
    """Return bounds that are shares of the goodput before the first failure, during a step."""
    rate = percent(before(result), line)
    return Mark(segment.at_s + SETTLED_S, segment.until_s, low * rate, high * rate)


def _with(policies: Mapping[str, str]) -> Callable[[Cell], Cell]:
    def apply(cell: Cell) -> Cell:
        """Return the cell with the policies; RoCE's endpoints have neither EVs nor NSCC, so it stays as it is."""
        return cell if cell.experiment.transport == "roce" else replace(cell, policies=policies)

    return apply


#: By name: kind, `FILE.py:Class` in `experiments/sweeps/policies`, and where it is published.
PUBLISHED = (
    ("REPS", "ev", "reps.py:Reps", "arXiv 2407.21625"),
    ("bitmap", "ev", "bitmap.py:Bitmap", "uet-htsim, UecMpBitmap"),
    ("oblivious", "ev", "oblivious.py:Oblivious", "uet-htsim, UecMpOblivious"),
    ("flowlet", "ev", "flowlet.py:Flowlet", "Let It Flow, NSDI 2017"),
    ("ECMP", "ev", "ecmp.py:Ecmp", "RFC 2992"),
    ("NSCC of htsim", "congestion", "htsim_nscc.py:HtsimNscc", "uet-htsim, uec.cpp"),
    ("median NSCC", "congestion", "median_nscc.py:MedianNscc", "arXiv 2509.07907"),
)

POLICIES = tuple(Alternative(name, source, _with({kind: file})) for name, kind, file, source in PUBLISHED)
