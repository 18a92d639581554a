"""A figure's numbers as tables: CSV always, Parquet where pyarrow is. `docs/figures.md` has the schema."""

from __future__ import annotations

from typing import NamedTuple

from mrc_studies.cells.tables import Kind
from mrc_studies.figures.model import JudgedFigure


class PointRow(NamedTuple):
    """A point of a figure: its run and series, x and y, and the meaning of these."""

    figure: str
    run: str
    series: str
    x: float
    x_is: str
    y: float
    y_is: str


class CheckRow(NamedTuple):
    """A number or a fact that was judged; `low` and `high` are the bounds of a headline's number."""

    figure: str
    kind: str
    run: str
    what: str
    expected: str
    measured: str
    low: float | None
    high: float | None
    passed: bool


NUMBERS = dict.fromkeys(("x", "y", "low", "high"), Kind.NUMBER) | {"passed": Kind.TRUTH}


def points(judged: JudgedFigure) -> list[PointRow]:
    """Return a figure's points; none while a run is missing."""
    if len(judged.results) < len(judged.cells):
        return []
    figure, axes = judged.figure, judged.figure.axes
    return [
        PointRow(figure.name, each.cell, each.series, round(each.x, 6), axes.x, round(each.y, 6), axes.y)
        for each in figure.points(judged.results)
    ]


def checks(judged: JudgedFigure) -> list[CheckRow]:
    """Return all that was judged."""
    name = judged.figure.name
    rows = [
        CheckRow(name, "evidence", run, each.what, each.expected, each.measured, None, None, each.passed)
        for run, each in judged.evidence
    ]
    for each in judged.measures:
        expected = f"{each.low:.3g} to {each.high:.3g}"
        measured = f"{each.value:.6g}"
        rows.append(CheckRow(name, "headline", "", each.what, expected, measured, each.low, each.high, each.passed))
    return rows + [CheckRow(name, "failure", "", text, "none", "", None, None, False) for text in judged.failures]
