"""The chart of a figure's headline: each number with its range over the seeds, our bounds, and the paper's value."""

from __future__ import annotations

import math
import pathlib
import textwrap
from typing import Any

from mrclab.studies.figures import save
from mrclab.studies.figures.draw import BAD, COLOURS, GREY, INK, WIDTH
from mrclab.studies.figures.model import JudgedFigure, Measure

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


def write(folder: pathlib.Path, judged: JudgedFigure) -> list[str]:
    """Write NAME-headline.svg, .png and .pgf; return the files' names. Each row has a scale of its own.

    Raises:
        WriteError: one could not be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    several = len(judged.seeds) > 1
    named = {
        "bounds": "our bounds",
        "range": f"range over {len(judged.seeds)} seeds" if several else "_",
        "passed": "here, within the bounds" if not several else "median here, within the bounds",
        "missed": "here, outside" if not several else "median here, outside",
        "paper": "the paper's value",
    }
    with matplotlib.rc_context(save.STYLE):
        count = len(judged.measures)
        drawn, plot = pyplot.subplots(figsize=(WIDTH, 0.9 + ROW * count), layout="constrained")
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
        return save.save(drawn, folder, f"{judged.figure.name}-headline")
