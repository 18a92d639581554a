"""A figure's plot: medians and ranges over seeds, the paper's values, our bounds, and what failed when."""

from __future__ import annotations

import math
import pathlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mrc_topo.base.files import write_whole
from mrc_topo.units import Unit
from mrclab.pages import paper
from mrclab.pages.chart import Axis as PageAxis
from mrclab.pages.chart import Chart, Line, Series, style
from mrclab.pages.chart import Mark as PageMark
from mrclab.pages.paper import COLOURS, DASHES, HATCHES, MARKERS, Format, ink
from mrclab.runs.experiment import ExperimentStep
from mrclab.studies.figures.model import CLAIMED, Axes, Event, JudgedFigure, Mark, Measure
from mrclab.studies.figures.tables import PointRow

WIDTH, HEIGHT, BELOW = 7.2, 3.3, 1.2
INK, GREY, BAD, GOOD = map(ink, ("ink", "muted", "bad", "good"))
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


def events(steps: Sequence[ExperimentStep]) -> Iterator[Event]:
    """Yield the failures and repairs of a schedule; what happens at the same time is one event."""
    by_time: dict[tuple[float, bool, str], list[ExperimentStep]] = {}
    for step in steps:
        by_time.setdefault((step.at, step.restore is not None, step.kind), []).append(step)
    for (at, back, kind), same in by_time.items():
        # Two runs of a figure have the same schedule.
        names = list(dict.fromkeys(step.fail or step.restore or step.flap or "" for step in same))
        what = ", ".join(names) if len(names) <= 2 else f"{len(names)} links"
        loss = same[0].settings.get("loss")
        verb = "back" if back else f"loses {100 * loss:.0f} %" if loss else VERBS.get(kind, kind.replace("_", " "))
        yield Event(at, f"{what} {verb}", "restore" if back else "fail")


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


def _steps(plot: Any, curves: Mapping[str, SeedCurve]) -> None:
    number = 0
    for name, curve in curves.items():
        if name.endswith(CLAIMED):
            plot.step(curve.xs, curve.ys, where="post", label=name, linewidth=1.1, color=INK, linestyle=(0, (2, 2)))
            continue
        colour = COLOURS[number % len(COLOURS)]
        dash = DASHES[number % len(DASHES)]
        plot.fill_between(curve.xs, curve.least, curve.most, step="post", color=colour, alpha=0.25, linewidth=0)
        plot.step(curve.xs, curve.ys, where="post", label=name, linewidth=1.4, color=colour, linestyle=dash)
        number += 1


def _lines(plot: Any, curves: Mapping[str, SeedCurve]) -> None:
    for number, (name, curve) in enumerate(curves.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        plot.fill_between(curve.xs, curve.least, curve.most, color=colour, alpha=0.2, linewidth=0)
        marker = MARKERS[number % len(MARKERS)]
        plot.plot(curve.xs, curve.ys, color=colour, linestyle=dash, marker=marker, markersize=4, label=name)


def _bars(plot: Any, curves: Mapping[str, SeedCurve]) -> dict[str, tuple[float, float]]:
    """Draw bars side by side; return where those of each series lie, beside their tick, and their width."""
    width = 0.84 / len(curves)
    places = {}
    for number, (name, curve) in enumerate(curves.items()):
        offset = width * (number + 0.5) - 0.42
        places[name] = (offset, width)
        beyond = [
            [max(y - low, 0.0) for y, low in zip(curve.ys, curve.least, strict=True)],
            [max(high - y, 0.0) for y, high in zip(curve.ys, curve.most, strict=True)],
        ]
        plot.bar(
            [x + offset for x in curve.xs],
            curve.ys,
            width=width * 0.94,
            label=name,
            color=COLOURS[number % len(COLOURS)],
            hatch=HATCHES[number % len(HATCHES)],
            edgecolor="white",
            linewidth=0,
            yerr=beyond if any(map(any, beyond)) else None,
            error_kw={"elinewidth": 1, "capsize": 2, "ecolor": INK},
        )
    return places


def _marks(plot: Any, marks: Sequence[Mark], places: Mapping[str, tuple[float, float]], top: float) -> None:
    """Draw our bounds and the paper's values."""
    band, paper = "our bounds", "the paper's value"
    for each in marks:
        begin, end = each.begin, each.end
        if each.series in places:
            offset, width = places[each.series]
            begin, end = each.begin + offset - width / 2, each.begin + offset + width / 2
        if not math.isnan(each.low):
            high = min(each.high, top)
            bar = each.series in places
            plot.fill_between(
                [begin, end],
                each.low,
                high,
                facecolor="none" if bar else "0.5",
                edgecolor=INK if bar else "none",
                linestyle=":",
                linewidth=1.1 if bar else 0,
                alpha=None if bar else 0.22,
                label=band,
                zorder=3 if bar else 0.5,
            )
            band = "_"
        if not math.isnan(each.paper):
            plot.hlines(each.paper, begin, end, color="white", linewidth=4, zorder=4)
            plot.hlines(each.paper, begin, end, color=INK, linewidth=2, zorder=5, label=paper)
            paper = "_"


def _name_events(plot: Any, found: Sequence[Event]) -> None:
    """Draw a line at each event and its name above the plot, where no curve is."""
    for each in found:
        colour = BAD if each.kind == "fail" else GOOD
        plot.axvline(each.at_s, color=colour, linewidth=0.9, linestyle="-" if each.kind == "fail" else "--", zorder=1)
        plot.annotate(
            each.what.replace("--", "\N{EN DASH}"),
            (each.at_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            rotation=28,
            rotation_mode="anchor",
            fontsize=6.5,
            color=colour,
            annotation_clip=False,
        )


def _below(
    plot: Any, axes: Axes, rows: Sequence[PointRow], found: Sequence[Event], above: Mapping[str, SeedCurve]
) -> None:
    """Draw the panel below, with what happened to EVs."""
    curves = _curves(rows, axes.kind)
    # A series that the panel above has, too, is in the legend already.
    shown = {name if name not in above else f"_{name}": curve for name, curve in curves.items()}
    (_steps if axes.kind == "steps" else _lines)(plot, shown)
    top = max((max(curve.most) for curve in curves.values()), default=1.0) or 1.0
    names: dict[str, list[float]] = {}
    for each in found:
        names.setdefault(each.what, []).append(each.at_s)
    for number, (name, times) in enumerate(names.items()):
        height = top * (1.25 + 0.25 * number)
        plot.plot(
            times, [height] * len(times), "v^"[number % 2], markersize=4, color=(BAD, GOOD)[number % 2], label=name
        )
    plot.set_ylim(0, top * (1.25 + 0.25 * len(names)))
    plot.set_ylabel(axes.below)


def _save(drawn: Any, folder: pathlib.Path, name: str) -> list[str]:
    made = []
    for kind in FORMATS:
        write_whole(folder / f"{name}.{kind}", paper.file_of(drawn, kind))
        made.append(f"{name}.{kind}")
    return made


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
    figure, axes, first = judged.figure, judged.figure.axes, judged.runs[0]
    above = [row for row in rows if row.y_is != axes.below]
    beneath = [row for row in rows if row.y_is == axes.below]
    heights = [HEIGHT, BELOW] if beneath else [HEIGHT]
    size: dict[str, Any] = {"nrows": len(heights), "sharex": True, "height_ratios": heights, "squeeze": False}
    with paper.drawing(figsize=(WIDTH, sum(heights) + 1.0), **size) as (drawn, panels):
        plot, lower = panels[0][0], panels[-1][0]
        curves = _curves(above, axes.kind)
        places: Mapping[str, tuple[float, float]] = {}
        if axes.kind == "steps":
            _steps(plot, curves)
        elif axes.kind == "bars":
            places = _bars(plot, curves)
        else:
            _lines(plot, curves)
        marks = list(figure.marks(first.results))
        values = [most for curve in curves.values() for most in curve.most]
        values += [value for each in marks for value in (each.paper, each.low, each.high) if math.isfinite(value)]
        top = 1.06 * max(values, default=1.0) or 1.0
        _marks(plot, marks, places, top)
        schedule = [step for cell in first.cells for step in (cell.experiment.schedule if cell.broken else ())]
        named = list(dict.fromkeys(events(schedule)))
        _name_events(plot, named)
        _axes(plot, lower, axes, curves, top)
        if axes.kind == "steps":
            lasts = [cell.experiment.workload.duration for cell in first.cells]
            ends = [max(curve.xs) for curve in curves.values()]
            # What streams do once they are asked to end is not the figure's.
            plot.set_xlim(0, min(max(ends), max(each or math.inf for each in lasts)))
        line = figure.line(first.results)
        if line is not None:
            factor = line.mbps / 100
            right = plot.secondary_yaxis("right", functions=(lambda y: y * factor, lambda y: y / factor))
            right.set_ylabel("Mb/s here")
        if beneath:
            _below(lower, axes, beneath, list(figure.events(first.results)), curves)
            for each in named:
                lower.axvline(each.at_s, color=BAD if each.kind == "fail" else GOOD, linewidth=0.9, zorder=1)
        lower.annotate(
            caption(judged),
            (0.5, 0),
            xycoords="axes fraction",
            xytext=(0, -34 if axes.x else -24),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7,
            color=GREY,
            annotation_clip=False,
        )
        drawn.suptitle(f"{figure.name}: {figure.title}", fontsize=10, fontweight="bold", color=INK)
        drawn.legend(loc="outside lower center", fontsize=7.5, ncols=3, frameon=False)
        return _save(drawn, folder, figure.name)


def _axes(plot: Any, lower: Any, axes: Axes, curves: Mapping[str, SeedCurve], top: float) -> None:
    """Set scales, ticks and the names of axes."""
    if axes.ticks:
        plot.set_xticks(range(len(axes.ticks)), axes.ticks)
    if axes.log_x:
        plot.set_xscale("log", base=2)
        sizes = sorted({x for curve in curves.values() for x in curve.xs})
        plot.set_xticks(sizes, [f"{x / 1024:g} KiB" for x in sizes])
        plot.minorticks_off()
    plot.set_ylim(0, top)
    lower.set_xlabel(axes.x)
    plot.set_ylabel(axes.y)
    if axes.kind == "bars":
        plot.grid(False, axis="x")


ROW = 0.34


def _scale(measure: Measure) -> tuple[float, float]:
    """Return the ends of a row's own scale: our bounds, the paper's value and our values lie well within it."""
    values = [measure.low, measure.high, *measure.each, *([] if measure.paper is None else [measure.paper])]
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if math.isinf(measure.high):
        high += 0.35 * (high - low or abs(high) or 1.0)
    room = 0.12 * (high - low or abs(high) or 1.0)
    return low - room, high + room


def _row(plot: Any, row: int, measure: Measure, named: dict[str, str]) -> None:
    begin, end = _scale(measure)

    def place(value: float) -> float:
        return min(max((value - begin) / (end - begin), 0.0), 1.0)

    left, right = place(measure.low), place(measure.high)
    point = left == right
    plot.barh(
        *(row, max(right - left, 0.008)),
        left=left - (0.004 if point else 0),
        height=0.62,
        color="0.82",
        label=named.pop("bounds", "_"),
        zorder=1,
    )
    if not math.isnan(measure.value):
        colour = COLOURS[0] if measure.passed else BAD
        low, high = measure.interval
        plot.hlines(row, place(low), place(high), color=colour, linewidth=2.2, label=named.pop("range", "_"), zorder=2)
        kind = "passed" if measure.passed else "missed"
        marker = "o" if measure.passed else "X"
        plot.plot(
            *([place(measure.value)], [row], marker),
            color=colour,
            markersize=6,
            label=named.pop(kind, "_"),
            zorder=4,
        )
    if measure.paper is not None:
        plot.plot(
            [place(measure.paper)], [row], "|", color=INK, markersize=15, mew=2, label=named.pop("paper", "_"), zorder=3
        )


def write_headline(folder: pathlib.Path, judged: JudgedFigure) -> list[str]:
    """Write NAME-headline.svg, .png and .pgf; return the files' names. Each row has a scale of its own.

    Raises:
        WriteError: one could not be written.
    """
    several = len(judged.seeds) > 1
    named = {
        "bounds": "our bounds",
        "range": f"range over {len(judged.seeds)} seeds" if several else "_",
        "passed": "here, within the bounds" if not several else "median here, within the bounds",
        "missed": "here, outside" if not several else "median here, outside",
        "paper": "the paper's value",
    }
    count = len(judged.measures)
    with paper.drawing({"axes.grid": False}, figsize=(WIDTH, 0.9 + ROW * count)) as (drawn, plot):
        for row, measure in enumerate(judged.measures):
            _row(plot, row, measure, named)
        texts = ["\n".join(textwrap.wrap(each.what, 44)) for each in judged.measures]
        plot.set_yticks(range(count), texts, fontsize=7)
        values = plot.secondary_yaxis("right")
        held = [f", {each.held} of {len(each.each)}" if several else "" for each in judged.measures]
        values.set_yticks(
            range(count),
            [f"{each.shown} ({each.bounds}){of}" for each, of in zip(judged.measures, held, strict=True)],
            fontsize=7,
        )
        plot.set_ylim(count - 0.5, -0.5)
        plot.set_xlim(0, 1)
        plot.set_xticks([])
        for axis in (plot, values):
            axis.tick_params(length=0)
        for side in plot.spines.values():
            side.set_visible(False)
        for row in range(1, count):
            plot.axhline(row - 0.5, color="0.9", linewidth=0.6)
        values.spines["right"].set_visible(False)
        drawn.suptitle(
            f"{judged.figure.name}: {judged.status.value.split(' because')[0]}",
            fontsize=10,
            fontweight="bold",
            color=INK,
        )
        drawn.legend(loc="outside lower center", fontsize=7.5, ncols=4, frameon=False, labelcolor=GREY)
        return _save(drawn, folder, f"{judged.figure.name}-headline")


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
    happened = [PageMark(each.at_s, each.what, each.kind == "fail") for each in dict.fromkeys(events(schedule))]
    below = None
    beneath = _curves([row for row in rows if row.y_is == axes.below], axes.kind)
    if beneath:
        under = [
            Series(name, each.xs, each.ys, *style(at), line, each.least, each.most)
            for at, (name, each) in enumerate(beneath.items())
        ]
        below = Chart("", "", across, PageAxis(axes.below), under)
    about = caption(judged).replace("\n", "; ")
    title = f"{judged.status.value.partition(' because')[0].capitalize()}: {figure.headline}"
    return Chart(f"chart-{figure.name}", title, across, PageAxis(y, zero=True), series, about, happened, below)


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
            yield Series(name, x, y_of, colour, dash, Line.CURVE if ours else Line.POINTS, low, up)
