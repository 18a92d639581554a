"""A figure's plot: medians and ranges over seeds, the paper's values, our bounds, and what failed when."""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mrc_topo.base.files import write_whole
from mrc_topo.units import Unit
from mrclab.pages import paper
from mrclab.pages.chart import Axis as PageAxis
from mrclab.pages.chart import Chart, Line, Series, style
from mrclab.pages.chart import Mark as PageMark
from mrclab.pages.paper import Format
from mrclab.runs.experiment import ExperimentStep
from mrclab.studies.figures.model import JudgedFigure, Mark
from mrclab.studies.figures.tables import PointRow

FORMATS = (Format.SVG, Format.PNG, Format.PGF)
#: What fails, by the kind of failure (`Action.kind`); without a kind it is down.
VERBS = {
    "": "down",
    "stop": "stops",
    "freeze": "freezes",
    "reboot": "reboots",
    "impair": "impaired",
    "transceiver": "transceiver fails",
    "pause_storm": "pause storm",
}


def events(steps: Sequence[ExperimentStep]) -> Iterator[PageMark]:
    """Yield the failures and repairs of a schedule; what happens at the same time is one mark."""
    by_time: dict[tuple[float, bool, str], list[ExperimentStep]] = {}
    for step in steps:
        by_time.setdefault((step.at, step.restore is not None, step.kind), []).append(step)
    for (at, back, kind), same in by_time.items():
        # Two runs of a figure have the same schedule.
        names = list(dict.fromkeys(step.fail or step.restore or step.flap or "" for step in same))
        what = ", ".join(names) if len(names) <= 2 else f"{len(names)} links"
        loss = same[0].settings.get("loss")
        verb = "back" if back else f"loses {100 * loss:.0f} %" if loss else VERBS.get(kind, kind.replace("_", " "))
        yield PageMark(at, f"{what} {verb}", not back)


@dataclass(frozen=True)
class SeedCurve:
    """A series over all of its points: medians, and the least and the greatest over the seeds."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]


def _curves(rows: Sequence[PointRow], kind: str) -> dict[str, SeedCurve]:
    """Return the curves by what their legend says."""
    found: dict[str, list[PointRow]] = {}
    many = len({row.run for row in rows}) > 1
    for row in rows:
        alone = kind != "steps" or not many or row.series == row.run
        found.setdefault(row.series if alone else f"{row.run}: {row.series}", []).append(row)
    return {
        name: SeedCurve(*zip(*((row.x, row.y, row.least, row.most) for row in own), strict=True))
        for name, own in found.items()
    }


def caption(judged: JudgedFigure) -> str:
    """Return what stands below the plot: what 100 % are, and what the curves are of."""
    line = judged.figure.line(judged.runs[0].results)
    seeds = len(judged.seeds)
    parts = []
    if line is not None:
        paper = f"; the paper: {line.paper}" if line.paper else ""
        parts.append(f"100 % here: {line.ours}{paper}")
    parts.append(f"median and range of {seeds} seeds" if seeds > 1 else "one seed")
    return "\n".join(parts)


def write(folder: pathlib.Path, judged: JudgedFigure, rows: Sequence[PointRow]) -> list[str]:
    """Write NAME.svg, NAME.png and NAME.pgf from the rows of the figure's table; return the files' names.

    Raises:
        WriteError: one could not be written.
    """
    drawn, names = page_chart(judged, rows), []
    for kind in FORMATS:
        names.append(f"{judged.figure.name}.{kind}")
        write_whole(folder / names[-1], paper.printed(drawn, kind, paper.TEXT))
    return names


def page_chart(judged: JudgedFigure, rows: Sequence[PointRow]) -> Chart:
    """Return the figure's plot for its page: medians with the range of the seeds, our bounds and the paper's values."""
    figure, axes, first = judged.figure, judged.figure.axes, judged.runs[0]
    line = {"steps": Line.STEPS, "lines": Line.POINTS, "bars": Line.DOTS}[axes.kind]
    x, y = axes.x, axes.y
    across = PageAxis(x, Unit.SIZE, log=True) if axes.log_x else PageAxis(x, "", ticks=axes.ticks)
    curves = _curves([row for row in rows if row.y_is != axes.below], axes.kind)
    width = 0.84 / max(len(curves), 1)
    places = {name: width * (at + 0.5) - 0.42 if axes.kind == "bars" else 0.0 for at, name in enumerate(curves)}
    series = [
        Series(name, np.array(each.xs) + places[name], each.ys, *style(at), line, each.least, each.most)
        for at, (name, each) in enumerate(curves.items())
    ]
    marks = [(mark, places.get(mark.series, 0.0)) for mark in figure.marks(first.results)]
    most = max((value for each in series for value in each.y), default=1.0)
    series += _of_paper(marks, most)
    schedule = [step for cell in first.cells for step in (cell.experiment.schedule if cell.broken else ())]
    happened = list(dict.fromkeys(events(schedule)))
    below = None
    beneath = _curves([row for row in rows if row.y_is == axes.below], axes.kind)
    if beneath:
        under = [
            Series(name, each.xs, each.ys, *style(at), line, each.least, each.most)
            for at, (name, each) in enumerate(beneath.items())
        ]
        below = Chart("", "", across, PageAxis(axes.below), under)
    about = caption(judged).replace("\n", "; ")
    return Chart(
        f"chart-{figure.name}", _finding(judged), across, PageAxis(y, zero=True), series, about, happened, below
    )


def _finding(judged: JudgedFigure) -> str:
    """Return what a plot shows: two numbers of the headline, first those out of bounds, then those of the plot's y."""
    word = re.split(r"\W", judged.figure.axes.y)[0]
    chosen = sorted(judged.measures, key=lambda each: (each.passed, word not in each.what))[:2]
    told = "; ".join(f"{each.what}: {each.shown} (expected {each.bounds})" for each in chosen)
    return told[:1].upper() + told[1:] or f"{judged.figure.title}: {judged.status.value}"


def _of_paper(marks: Sequence[tuple[Mark, float]], most: float) -> Iterator[Series]:
    """Yield our bounds and the paper's values, as far as there are some; `marks` with their places beside a tick."""
    gap = math.nan
    for name, colour, dash in (("our bounds", "muted", 2), ("the paper's value", "ink", 1)):
        ours = name == "our bounds"
        rows: list[tuple[float, float, float, float]] = []
        for mark, aside in sorted(marks, key=lambda each: each[0].begin + each[1]):
            if math.isnan(mark.low if ours else mark.paper):
                continue
            begin, end = mark.begin + aside, mark.end + aside
            if rows:
                rows.append(((rows[-1][0] + begin) / 2, gap, gap, gap))
            y, high = (gap, min(mark.high, max(most, mark.low))) if ours else (mark.paper, gap)
            rows += [(at, y, mark.low if ours else gap, high) for at in dict.fromkeys((begin, end))]
        if rows:
            x, y_of, low, up = zip(*rows, strict=True)
            yield Series(name, x, y_of, colour, dash, Line.BAND if ours else Line.POINTS, low, up)
