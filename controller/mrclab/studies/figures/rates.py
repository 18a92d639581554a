"""Rates over time as shares of line rate, what the capacity that is left allows, and our bounds around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from mrc_topo.units import format_rate
from mrclab.studies.cells.measured import Measured, Rate, Segment
from mrclab.studies.figures.model import CLAIMED, Line, Mark, Point, Results

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
