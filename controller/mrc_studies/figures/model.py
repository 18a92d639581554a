"""What a figure is: the runs it is made of, what it claims of them, and the tables that come of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from mrc_results.check import Check
from mrc_studies.cells.cell import Cell
from mrc_studies.cells.measured import Measured

Size = Literal["quick", "full"]
Results = Mapping[str, Measured]


class Status(StrEnum):
    """The outcome of a figure. `COULD_NOT_RUN`: a run left no result, which says nothing about the figure."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs because"
    NOT_REPRODUCED = "not reproduced"
    COULD_NOT_RUN = "could not run"


@dataclass(frozen=True)
class Measure:
    """A number beside the bounds that the headline sets; not a number is outside of all bounds.

    `paper` is the paper's own value in the same unit, where it states one; `differs` says why ours lies outside of the
    bounds, where that is known.
    """

    what: str
    value: float
    low: float
    high: float
    unit: str = ""
    paper: float | None = None
    differs: str = ""

    @property
    def passed(self) -> bool:
        """Return whether it lies within them."""
        return self.low <= self.value <= self.high

    @property
    def bounds(self) -> str:
        """The bounds as they are shown."""
        return f"{self.low:.3g} to {self.high:.3g} {self.unit}"

    @property
    def shown(self) -> str:
        """The number as it is shown."""
        return f"{self.value:.4g} {self.unit}"


@dataclass(frozen=True)
class Point:
    """A row of a figure's table."""

    cell: str
    series: str
    x: float
    y: float


@dataclass(frozen=True)
class Axes:
    """The meaning of the columns x and y of a figure's table, and how they are drawn."""

    x: str
    y: str
    kind: Literal["steps", "lines", "bars"] = "lines"
    log_x: bool = False
    ticks: Sequence[str] = ()


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


@dataclass(frozen=True)
class JudgedFigure:
    """A figure with its results. `failures`: the errors of runs; `not_run`: why runs left no result."""

    figure: Figure
    cells: Sequence[Cell]
    results: Results
    measures: Sequence[Measure]
    failures: Sequence[str]
    not_run: Sequence[str] = ()

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs."""
        return sorted({cell.lab.seed for cell in self.cells})

    @property
    def evidence(self) -> list[tuple[str, Check]]:
        """What shows that the failures were there, by run."""
        return [(name, each) for name, result in self.results.items() for each in result.evidence]

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
    def status(self) -> Status:
        """What came of it; it differs for a reason only if that is known."""
        if self.not_run or len(self.results) < len(self.cells):
            return Status.COULD_NOT_RUN
        if self.reproduced:
            return Status.REPRODUCED
        return Status.DIFFERS if self.valid and self.reason else Status.NOT_REPRODUCED

    @property
    def reason(self) -> str:
        """Why the figure differs from the paper; empty unless a reason is known for every number out of bounds."""
        missed = [each for each in self.measures if not each.passed]
        if self.figure.differs:
            return self.figure.differs
        return "; ".join(dict.fromkeys(each.differs for each in missed)) if all(each.differs for each in missed) else ""


def judged(figure: Figure, cells: Sequence[Cell], results: Results, not_run: Sequence[str] = ()) -> JudgedFigure:
    """Hold a figure's headline against its results; what failed in a run is a failure of the figure.

    Args:
        not_run: runs that left no result, and why.
    """
    may = {cell.name for cell in cells if cell.may_fail}
    wrong = [f"{name}: {text}" for name, each in results.items() if name not in may for text in each.failures]
    measures = figure.judge(results) if len(results) == len(cells) else []
    return JudgedFigure(figure, cells, results, measures, wrong, list(not_run))


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


def mean(values: Sequence[float]) -> float:
    """Return the mean; not a number of none."""
    return sum(values) / len(values) if values else math.nan


def least(values: Sequence[float]) -> float:
    """Return the least value, NaN if there is none."""
    return min(values) if values else math.nan


def most(values: Sequence[float]) -> float:
    """Return the greatest value, NaN if there is none."""
    return max(values) if values else math.nan
