"""Plots for print, by matplotlib: one style sheet, the colours of `style.css`, and charts as `chart.js` draws them.

The same bytes for the same numbers, with the same matplotlib: PNG, SVG, PDF, and PGF, whose texts TeX sets.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from mrc_topo.base import look
from mrc_topo.units import digits
from mrclab.pages import chart as charts
from mrclab.pages.chart import Chart, Line

#: The style sheet of all plots. Text in SVG is shapes, so that it looks the same everywhere; ids repeat.
STYLE: dict[str, object] = {
    "svg.hashsalt": "mrclab",
    "svg.fonttype": "path",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}
#: In PGF text is set by the document's own fonts.
PGF: dict[str, object] = {"pgf.rcfonts": False, "pgf.texsystem": "pdflatex"}
#: Widths in inches: a column of a paper of two, and all of its text.
COLUMN, TEXT = 3.4, 7.0
#: Marks that a plot names.
NAMED = 16
#: Series also differ by line and marker, for print in grey. Dots would make PGF of megabytes, which stalls TeX.
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.5, 1.2)), (0, (4, 1.5, 1, 1.5)), (0, (8, 2, 1, 2, 1, 2)))
MARKERS = "os^DvP*X"


class Format(StrEnum):
    """A format of a plot's file."""

    PDF = "pdf"
    PGF = "pgf"
    PNG = "png"
    SVG = "svg"


#: What is written into a file beside the plot: no time, no version.
_METADATA: dict[Format, dict[str, str | None]] = {
    Format.PDF: {"CreationDate": None, "Creator": None, "Producer": None},
    Format.PNG: {"Software": None},
    Format.SVG: {"Date": None, "Creator": "mrclab"},
}


@cache
def ink(name: str) -> str:
    """Return a colour of `style.css` by its name, as it is on white paper."""
    found = re.search(rf"--{name}: (#\w+)", look.part(look.STYLE))
    assert found, name
    return found[1]


@contextlib.contextmanager
def drawing(settings: Mapping[str, object] = MappingProxyType({}), **size: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a figure of matplotlib and its axes, and close it; `settings` are added, `size` is for `subplots`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({**STYLE, **settings}):
        drawn, axes = pyplot.subplots(layout="constrained", **size)
        try:
            yield drawn, axes
        finally:
            pyplot.close(drawn)


@contextlib.contextmanager
def _without_tex() -> Iterator[None]:
    """Measure texts for PGF with matplotlib's own fonts, where the backend would start TeX, which few machines have.

    The sizes only decide where lines of a text break apart; the document's TeX aligns each line by itself.
    """
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.backends.backend_pgf import RendererPgf

    measured = RendererAgg(1, 1, 72)

    def size(self: Any, text: str, prop: Any, ismath: Any) -> Any:
        return measured.get_text_width_height_descent(text, prop, ismath)

    tex = RendererPgf.get_text_width_height_descent
    RendererPgf.get_text_width_height_descent = size
    try:
        yield
    finally:
        RendererPgf.get_text_width_height_descent = tex


def _for_tex(text: str) -> str:
    """Return PGF with underscores that TeX prints: they are in texts alone, and the backend leaves them as they are."""
    lines = text.split("\n")
    return "\n".join(line if line.startswith("%") else line.replace("_", "\\_") for line in lines)


def file_of(drawn: Any, kind: Format, settings: Mapping[str, object] = MappingProxyType({})) -> bytes:
    """Return the file of a figure of matplotlib; `settings` are added to `STYLE`."""
    import matplotlib

    if kind is Format.PGF:
        drawn.set_layout_engine("none")  # the layout of the other formats stays
        with matplotlib.rc_context({**STYLE, **PGF}), _without_tex():
            text = io.StringIO()
            drawn.savefig(text, format="pgf")
            return _for_tex(text.getvalue()).encode()
    sink = io.BytesIO()
    with matplotlib.rc_context({**STYLE, **settings}):
        drawn.savefig(sink, format=kind.value, dpi=150, metadata=_METADATA[kind])
    return sink.getvalue()


def inline(drawn: Any) -> str:
    """Return a figure of matplotlib as SVG to stand in a page, whose fonts it uses."""
    text = file_of(drawn, Format.SVG, {"svg.fonttype": "none"}).decode()
    return re.sub(r"\n\s*", "\n", text[text.index("<svg") :])


def printed(chart: Chart, kind: Format, width: float = COLUMN) -> bytes:
    """Return a chart for print: the same names, units, marks and confidence as in a page."""
    panels = chart.panels
    heights = [0.62 * COLUMN, *(0.4 * COLUMN for _ in panels[1:])]
    size: dict[str, Any] = {"nrows": len(panels), "sharex": True, "height_ratios": heights, "squeeze": False}
    with drawing(figsize=(width, sum(heights) + 0.5), **size) as (drawn, axes):
        for panel, (plot,) in zip(panels, axes, strict=True):
            _panel(plot, panel, chart)
        across = charts.titled(chart.x, charts.scale(chart.x, [each.x for each in chart.series])[1])
        names = ", ".join(f"{number} {each.text}" for number, each in enumerate(chart.marks[:NAMED], 1))
        axes[-1][0].set_xlabel("\n".join([across, *textwrap.wrap(names, int(14 * width))]))
        drawn.suptitle("\n".join(textwrap.wrap(chart.title, int(13 * width))), fontsize=8, fontweight="bold")
        if len(chart.series) > 1:
            handles = axes[0][0].get_legend_handles_labels()
            drawn.legend(*handles, loc="outside lower center", ncols=max(int(width / 1.6), 1), fontsize=7)
        return file_of(drawn, kind)


def _panel(plot: Any, panel: Chart, whole: Chart) -> None:
    across, _ = charts.scale(whole.x, [each.x for each in whole.series])
    up, symbol = charts.scale(panel.y, [each.y for each in panel.series])
    lows: list[float] = []
    highs: list[float] = []
    names = [each.name for each in whole.series]
    for each in panel.series:
        x, y = np.asarray(each.x) / across, np.asarray(each.y) / up
        colour, marker = ink(each.colour), MARKERS[names.index(each.name) % len(MARKERS) if each.name in names else 0]
        low, high = y, y
        if each.low is not None and each.high is not None:
            low, high = (
                np.where(np.isnan(side), y, side) for side in (np.asarray(each.low) / up, np.asarray(each.high) / up)
            )
            if whole.x.ticks:
                plot.vlines(x, low, high, color=colour, linewidth=1.2)
            else:
                named = {"label": each.name} if each.line is Line.BAND else {}
                plot.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0, **named)
        lows, highs = [*lows, *low[np.isfinite(low)]], [*highs, *high[np.isfinite(high)]]
        style: dict[str, Any] = {"color": colour, "linestyle": DASHES[each.dash], "linewidth": 1.1, "label": each.name}
        if each.line is Line.STEPS:
            plot.step(x, y, where="post", **style)
        elif each.line is Line.DOTS:
            plot.plot(x, y, marker, markersize=3.5, color=colour, label=each.name)
        elif each.line is not Line.BAND:
            plot.plot(x, y, marker=marker if each.line is Line.POINTS else None, markersize=3.5, **style)
    span = [each / up for each in panel.y.span or ()]
    begin, end = charts.bounds(min([*lows, *span], default=0.0), max([*highs, *span], default=1.0), panel.y.zero)
    plot.set_ylim(begin, end)
    starts = f" (from {digits(begin, 3)})" if begin > 0 else ""
    plot.set_ylabel("\n".join(textwrap.wrap(charts.titled(panel.y, symbol) + starts, 26)))
    if panel.level is not None:
        plot.axhline(panel.level / up, color=ink("ink"), linewidth=0.8)
    last = -np.inf
    for number, mark in enumerate(panel.marks, 1):
        colour = ink("bad" if mark.breaks else "good")
        at = mark.at / across
        if mark.until is not None:
            plot.axvspan(at, mark.until / across, color=colour, alpha=0.06, linewidth=0)
        plot.axvline(at, color=colour, linewidth=0.8, linestyle=(0, (4, 2)))
        if at - last > 0.03 * (plot.get_xlim()[1] - plot.get_xlim()[0]):
            plot.annotate(
                *(str(number), (at, 1.0), (0, 2), ("data", "axes fraction"), "offset points"),
                ha="center", color=colour, annotation_clip=False,
            )  # fmt: skip
            last = at
    if whole.x.ticks:
        plot.set_xticks(range(len(whole.x.ticks)), ["\n".join(textwrap.wrap(each, 12)) for each in whole.x.ticks])
        plot.set_xlim(-0.5, len(whole.x.ticks) - 0.5)
    elif whole.x.log:
        plot.set_xscale("log", base=2)
        places = sorted({float(x) for each in whole.series for x in each.x})
        if len(places) <= charts.LOG_TICKS:
            plot.set_xticks(places, [charts.place_text(whole.x, each) for each in places])
            plot.minorticks_off()
