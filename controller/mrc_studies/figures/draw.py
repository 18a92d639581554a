"""A figure's plot as PNG and SVG, the same bytes for the same numbers."""

from __future__ import annotations

import io
import math
import pathlib
from collections.abc import Sequence
from typing import Any

from mrc_common.files import write_whole
from mrc_studies.figures.model import JudgedFigure, Measure
from mrc_studies.figures.tables import PointRow

SIZE = (7.0, 3.4)
GREY = "0.6"


def _beside(plot: Any, measures: Sequence[Measure]) -> None:
    """Draw what the paper states, our bounds and our values, a row for each."""
    for row, each in enumerate(measures):
        assert each.paper is not None
        most = max(each.value, each.paper) * 1.2 if math.isinf(each.high) else each.high
        plot.barh(
            row, most - each.low, left=each.low, height=0.5, color="0.88", label="our bounds" if not row else None
        )
        plot.plot([each.paper], [row], "k|", markersize=14, label="paper" if not row else None)
        plot.plot([each.value], [row], "o", color="tab:blue", label="here" if not row else None)
    plot.set_yticks(range(len(measures)), [each.what for each in measures], fontsize=7)
    plot.invert_yaxis()
    plot.set_xlim(left=0)
    plot.legend(fontsize=7, loc="lower right")


def write(folder: pathlib.Path, judged: JudgedFigure, rows: Sequence[PointRow]) -> list[str]:
    """Write NAME.svg and NAME.png from the rows of the figure's table; return the files' names.

    Raises:
        WriteError: one could not be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = judged.figure, judged.figure.axes
    with matplotlib.rc_context({"svg.hashsalt": "mrclab", "svg.fonttype": "path", "font.size": 9}):
        stated = [each for each in judged.measures if each.paper is not None and math.isfinite(each.value)]
        if stated:
            size = (SIZE[0], SIZE[1] + 0.5 + 0.3 * len(stated))
            drawn, (plot, beside) = pyplot.subplots(
                2, figsize=size, layout="constrained", height_ratios=(SIZE[1], 0.4 + 0.3 * len(stated))
            )
            _beside(beside, stated)
        else:
            drawn, plot = pyplot.subplots(figsize=SIZE, layout="constrained")
        lines: dict[str, list[tuple[float, float]]] = {}
        cells = {row.run for row in rows}
        for row in rows:
            label = row.series if len(cells) == 1 or axes.kind != "steps" else f"{row.run}: {row.series}"
            lines.setdefault(label, []).append((row.x, row.y))
        for number, (label, points) in enumerate(lines.items()):
            xs, ys = zip(*points, strict=True)
            if axes.kind == "steps":
                aside = label.endswith("what is left")
                color, style = (GREY, "--") if aside else (None, None)
                plot.step(xs, ys, where="post", label=label, linewidth=1.2, color=color, linestyle=style)
            elif axes.kind == "bars":
                width = 0.8 / len(lines)
                places = [x - 0.4 + width * (number + 0.5) for x in xs]
                plot.bar(places, ys, width=width, label=label)
            else:
                plot.plot(xs, ys, marker="o", markersize=3, label=label)
        for result in judged.results.values() if axes.kind == "steps" else ():
            for each in result.segments:
                plot.axvline(each.at_s, color=GREY if each.mends else "tab:red", linewidth=0.5)
        if axes.ticks:
            plot.set_xticks(range(len(axes.ticks)), axes.ticks)
        if axes.log_x:
            plot.set_xscale("log", base=2)
        plot.set_ylim(bottom=0)
        plot.set_xlabel(axes.x)
        plot.set_ylabel(axes.y)
        plot.grid(alpha=0.3)
        if lines:
            plot.legend(fontsize=8)
        made = []
        for kind, metadata in (("svg", {"Date": None, "Creator": "mrclab"}), ("png", {"Software": None})):
            sink = io.BytesIO()
            drawn.savefig(sink, format=kind, dpi=150, metadata=metadata)
            write_whole(folder / f"{figure.name}.{kind}", sink.getvalue())
            made.append(f"{figure.name}.{kind}")
        pyplot.close(drawn)
    return made
