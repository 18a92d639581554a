"""The report of a training job by one backend or by several, side by side: a table, and one HTML page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrc_topo.base import quantiles
from mrc_topo.units import Unit, shown
from mrc_torch.training.summary import JobSummary
from mrclab.pages import chart
from mrclab.pages.chart import Axis, Chart, Line, Mark, Series, style
from mrclab.results.steps import TimeSummary
from mrclab.studies.cells import pages


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _times(found: TimeSummary | None) -> str:
    if not found:
        return "-"
    shown = " / ".join(quantiles.shown(each, 1e3, 1) for each in found.values())
    return f"{shown} ms ({found.count})"


def table(documents: Sequence[JobSummary]) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows as text: a label in the first column, then one column for each backend."""
    rows: list[list[str]] = []

    def add(what: str, cells: Sequence[str]) -> None:
        if any(cell not in ("", "-") for cell in cells):
            rows.append([what, *cells])

    add("ended", [each.status for each in documents])
    add("steps", [str(each.reached) for each in documents])
    add("time", [f"{each.seconds:.1f} s" for each in documents])
    add("loss, first and last", [_losses(each) for each in documents])
    add("right on held-out data", ["-" if each.accuracy is None else f"{each.accuracy:.1%}" for each in documents])
    add("speed", [f"{each.per_second:.0f} {each.unit}/s" for each in documents])
    head = "mean / P50 / P99 / max (number)"
    add(f"step: {head}", [_times(each.times.get("all")) for each in documents])
    add("step with something broken", [_times(each.times.get("broken")) for each in documents])
    add("step with nothing broken", [_times(each.times.get("whole")) for each in documents])
    add("all_reduce of a bucket", [_times(each.operations.get("all_reduce")) for each in documents])
    add("died or stalled", [_ended(each) for each in documents])
    add("steps repeated", [str(sum(one.repeated or 0 for one in each.restarts)) for each in documents])
    add("cost of restarts", [_cost(each) for each in documents])
    return ["", *(f"{each.backend}" for each in documents)], rows


def _losses(document: JobSummary) -> str:
    losses = document.loss
    return f"{losses[0][1]:.4f}, {losses[-1][1]:.4f}" if losses else "-"


def _ended(document: JobSummary) -> str:
    told = [f"{each.ended} at step {each.step}" for each in document.restarts]
    return ", ".join(told) or "never"


def _cost(document: JobSummary) -> str:
    restarts = document.restarts
    if any(each.seconds is None for each in restarts):
        known = sum(each.seconds or 0.0 for each in restarts)
        return f"{known:.1f} s and more" if known else "never as far again"
    return f"{sum(each.seconds or 0.0 for each in restarts):.1f} s"


def text(documents: Sequence[JobSummary]) -> str:
    """Return the table for a terminal."""
    heads, rows = table(documents)
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines
    )


def render(documents: Sequence[JobSummary], title: str) -> str:
    """Return the page."""
    heads, rows = table(documents)
    drawn = [chart.html(each) for each in _charts(documents)]
    body = pages.fill("training.html", title=title, heads=heads, rows=rows, jobs=documents, charts=drawn)
    return chart.page(title, body)


def _charts(documents: Sequence[JobSummary]) -> list[Chart]:
    """Return the charts: loss and time of each step, a curve for each backend."""
    loss, times = [], []
    for number, document in enumerate(documents):
        colour, dash = style(number)
        steps = document.steps
        ends = np.array([each.begin_s + each.seconds for each in steps])
        known = dict(document.loss)
        loss.append(Series(document.backend, ends, [known.get(each.number, np.nan) for each in steps], colour, dash))
        times.append(Series(document.backend, ends, [each.seconds for each in steps], colour, dash))
        seen = [(end, each.seconds) for end, each in zip(ends, steps, strict=True) if each.broken]
        if seen:
            x, y = zip(*seen, strict=True)
            times.append(Series(f"{document.backend}, something broken", x, y, "down", line=Line.DOTS))
    # Backends run one after the other; the schedule of each begins with its first step.
    marks = [Mark(each.at_s, each.text, each.breaks) for each in documents[0].happenings]
    seconds = Axis("time after the first step began", "s")
    ended = ", ".join(f"{each.backend} {each.loss[-1][1]:.3g}" for each in documents if each.loss)
    slowest = max((each.seconds for document in documents for each in document.steps), default=0.0)
    about = "A gap: the job was dead, and was started again."
    lost, took = f"The loss at the end: {ended or 'none'}", f"The slowest step took {shown(slowest, Unit.TIME)}"
    step = Axis("time of a step", Unit.TIME)
    return [
        Chart("loss", lost, seconds, Axis("loss"), loss, about, marks, group="job"),
        Chart("steps", took, seconds, step, times, about, marks, group="job"),
    ]
