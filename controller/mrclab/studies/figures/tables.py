"""A figure's numbers as tables, by `docs/reference/figure-tables.md`: CSV always, Parquet where pyarrow is."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from mrclab.studies.figures.model import JudgedFigure


class PointRow(NamedTuple):
    """A point of a figure: its run and series, x and y, and the meaning of these.

    `y` is the median over the seeds that have the point, `seeds` of them; `least` and `most` are their extremes.
    """

    figure: str
    run: str
    series: str
    x: float
    x_is: str
    y: float
    y_is: str
    least: float
    most: float
    seeds: int


class CheckRow(NamedTuple):
    """A number or a fact that was judged; `low` and `high` are the bounds of a headline's number.

    `least` and `most`: of a headline's number over the `seeds`, of which `held` are within the bounds.
    """

    figure: str
    kind: str
    run: str
    what: str
    expected: str
    measured: str
    low: float | None
    high: float | None
    least: float | None
    most: float | None
    seeds: int
    held: int
    passed: bool


def points(judged: JudgedFigure) -> list[PointRow]:
    """Return a figure's points; none while a run is missing."""
    if not judged.complete:
        return []
    figure, axes = judged.figure, judged.figure.axes
    found: dict[tuple[str, str, float, bool], list[float]] = {}
    for runs in judged.runs:
        for each in figure.points(runs.results):
            found.setdefault((each.cell, each.series, round(each.x, 6), each.below), []).append(round(each.y, 6))
    return [
        PointRow(
            *(figure.name, cell, series, x, axes.x, round(statistics.median(ys), 6), axes.below if below else axes.y),
            *(min(ys), max(ys), len(ys)),
        )
        for (cell, series, x, below), ys in found.items()
    ]


def checks(judged: JudgedFigure) -> list[CheckRow]:
    """Return all that was judged."""
    name = judged.figure.name
    rows = [
        CheckRow(
            *(name, "evidence", run, each.what, each.expected, each.measured, None, None, None, None),
            *(1, int(each.passed), each.passed),
        )
        for run, each in judged.evidence
    ]
    for each in judged.measures:
        low, high = each.interval
        rows.append(
            CheckRow(
                *(name, "headline", "", each.what, each.bounds, f"{each.value:.6g}", each.low, each.high, low, high),
                *(len(each.each), each.held, each.passed),
            )
        )
    failed = [
        CheckRow(name, "failure", "", text, "none", "", None, None, None, None, 1, 0, False) for text in judged.failures
    ]
    return rows + failed
