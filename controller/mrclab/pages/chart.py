"""A chart: its description, typed, and its place in a page, where `chart.js` draws it with uPlot.

The description says what a reader must know: a title that is a finding, axes with names and units, failures with their
time, confidence, and a second panel for differences. `paper.py` draws the same description for print.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from mrc_topo.base import look
from mrc_topo.units import Unit, digits, shown

Numbers = npt.NDArray[np.float64]
Values = Numbers | Sequence[float]

HERE = pathlib.Path(__file__).parent
#: uPlot, as `make web-assets` fetches it for the live view.
VENDOR = HERE.parent / "web" / "static" / "vendor"
#: Series by number: colours of style.css; from the ninth on they are dashed.
COLOURS = 8
DASHES = 4
#: Of a series; more than a screen is wide would only make the file large.
POINTS = 2000
#: Numbers in a page have this many digits: finer than can be seen.
DIGITS = 5
MOST_PLACES = 300
#: A logarithmic axis names its places up to this many.
LOG_TICKS = 12
#: Tables of values list single points up to this many.
LISTED = 60


class Line(Enum):
    """The way in which a series is drawn: a line through its points, steps that last until the next, points, or only
    the band between `low` and `high`."""

    CURVE = "curve"
    STEPS = "steps"
    POINTS = "points"
    DOTS = "dots"
    BAND = "band"


@dataclass(frozen=True)
class Series:
    """A curve: values of `y` in the unit of the chart's axis at `x`; NaN where there is none.

    `low` and `high`: its confidence. `colour` is a name of style.css, and `dash` one of `DASHES` kinds.
    """

    name: str
    x: Values
    y: Values
    colour: str
    dash: int = 0
    line: Line = Line.CURVE
    low: Values | None = None
    high: Values | None = None


@dataclass(frozen=True)
class Axis:
    """An axis: its name, and the unit of its values: one of `Unit` in full (bit/s, s, bytes, a share), or a word.

    `ticks`: names of the places 0, 1, ... where x is no number. `zero`: it begins at 0 in any case. `span`: what it
    holds in any case, x nothing else; None: its values.
    """

    title: str
    unit: Unit | str = Unit.COUNT
    ticks: Sequence[str] = ()
    log: bool = False
    zero: bool = False
    span: tuple[float, float] | None = None


@dataclass(frozen=True)
class Mark:
    """A failure from a time on, until it was repaired, or an action of a moment (`until` is None)."""

    at: float
    text: str
    breaks: bool = True
    until: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart. `title` is what it shows, as a finding; `below` is a second panel over the same x; `level` is a line
    across, such as 0 of differences. Charts of a `group` are zoomed together."""

    name: str
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    about: str = ""
    marks: Sequence[Mark] = ()
    below: Chart | None = None
    level: float | None = None
    group: str = ""

    @property
    def panels(self) -> list[Chart]:
        """The chart, and what is below it."""
        return [self, *(self.below.panels if self.below else [])]


def style(number: int) -> tuple[str, int]:
    """Return colour and dash of a series by its number: no two of the first 32 look alike."""
    return f"plane-{number % COLOURS}", number // COLOURS % DASHES


def scale(axis: Axis, values: Sequence[Values]) -> tuple[float, str]:
    """Return what values of an axis are divided by, and the symbol of their unit then."""
    if isinstance(axis.unit, str):
        return 1.0, axis.unit
    if axis.log:  # each of its ticks is written with its own unit
        return 1.0, ""
    every = map(_numbers, [*values, axis.span or ()])
    finite = [float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in every]
    return axis.unit.scale(max(finite, default=0.0))


def bounds(low: float, high: float, zero: bool) -> tuple[float, float]:
    """Return where an axis begins and ends: at 0, or where the differences can be seen (`chart.js` does the same)."""
    if not high > low:
        low, high = (0.0, low * 1.1) if low > 0 else (low * 1.1, 0.0) if low < 0 else (0.0, 1.0)
    least = 0.0 if low >= 0 and (zero or high - low > 0.4 * high) else low - 0.1 * (high - low)
    return max(least, 0.0) if low >= 0 else least, high + 0.06 * (high - least)


def place_text(axis: Axis, place: float) -> str:
    """Return a place on the x axis as text: its name, or the number, on a logarithmic axis with its unit."""
    if axis.ticks:
        return axis.ticks[round(place)]
    return shown(place, axis.unit) if axis.log and isinstance(axis.unit, Unit) else digits(place)


def titled(axis: Axis, symbol: str) -> str:
    """Return the name of an axis with its unit."""
    return f"{axis.title}, {symbol}" if symbol else axis.title


def _numbers(values: Values) -> Numbers:
    return np.asarray(values, dtype=np.float64)


def _short(values: Numbers) -> list[float | int | None]:
    """Return numbers of JSON with `DIGITS` digits of the largest; None for what is no finite number."""
    finite = values[np.isfinite(values)]
    most = float(np.abs(finite).max(initial=0.0))
    places = DIGITS - 1 - (int(np.floor(np.log10(most))) if most else 0)
    # More places than a float has would make numpy's power of ten infinite.
    rounded = np.round(values, min(max(places, 0), MOST_PLACES)).tolist()
    return [None if not np.isfinite(each) else int(each) if each == int(each) else each for each in rounded]


def _spread(x: Numbers) -> Any:
    """Return the places of points: first, step and number where the distances are equal."""
    if len(x) > 2 and np.allclose(np.diff(x), x[1] - x[0], rtol=1e-6, atol=0):
        return {"from": round(float(x[0]), 9), "step": float(f"{(x[-1] - x[0]) / (len(x) - 1):.9g}"), "n": len(x)}
    return [float(f"{each:.7g}") for each in x]


def panel(chart: Chart, group: str) -> dict[str, Any]:
    """Return what `chart.js` draws of a panel, in the units of its axes."""
    across, x_symbol = scale(chart.x, [each.x for each in chart.series])
    up, y_symbol = scale(chart.y, [each.y for each in chart.series])
    made: dict[str, Any] = {
        "x": {"title": chart.x.title, "unit": x_symbol, "log": chart.x.log, "ticks": list(chart.x.ticks) or None},
        "y": {"title": chart.y.title, "unit": y_symbol, "zero": chart.y.zero},
        "series": [],
    }
    if chart.x.log:
        places = sorted({float(x) for each in chart.series for x in _numbers(each.x) / across})
        if len(places) <= LOG_TICKS:
            made["x"] |= {"at": places, "names": [place_text(chart.x, each) for each in places]}
    for key, axis, factor in (("x", chart.x, across), ("y", chart.y, up)):
        if axis.span is not None:
            made[key]["span"] = [each / factor for each in axis.span]
    if group:
        made["group"] = group
    if chart.level is not None:
        made["level"] = chart.level / up
    if chart.marks:
        made["marks"] = [
            {"at": each.at / across, "text": each.text, "breaks": each.breaks}
            | ({} if each.until is None else {"until": each.until / across})
            for each in chart.marks
        ]
    for each in chart.series:
        part: dict[str, Any] = {"name": each.name, "colour": each.colour, "x": _spread(_numbers(each.x) / across)}
        part["y"] = _short(_numbers(each.y) / up)
        if each.dash:
            part["dash"] = each.dash
        if each.line is not Line.CURVE:
            part[each.line.value] = True
        if each.low is not None and each.high is not None:
            part |= {"low": _short(_numbers(each.low) / up), "high": _short(_numbers(each.high) / up)}
        made["series"].append(part)
    return made


def html(chart: Chart) -> Markup:
    """Return the place of a chart in a page: title, legend, table of values, and the data for `chart.js`."""
    titles = []
    for each in chart.panels:
        symbols = scale(each.x, [one.x for one in each.series])[1], scale(each.y, [one.y for one in each.series])[1]
        titles.append((titled(each.x, symbols[0]), titled(each.y, symbols[1])))
    keys: dict[str, Series] = {}
    for one in (series for each in chart.panels for series in each.series):
        keys.setdefault(one.name, one)
    heads, rows = table(chart)
    group = chart.group
    specs = {"panels": [panel(each, group or (chart.name if chart.below else "")) for each in chart.panels]}
    told = f"{chart.title}. {titles[0][1]}, by {titles[0][0]}. All values are in the table below the chart."
    lacking = "" if library() else "The chart is not drawn: uPlot is missing here (make web-assets)."
    given = {"chart": chart, "titles": titles, "keys": keys, "told": told, "heads": heads, "rows": rows}
    return Markup(look.fill(HERE, "chart.html", **given, data=look.data("", specs), lacking=lacking))


def table(chart: Chart) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of the values: all points, or of many the least, mean and most."""
    across, x_symbol = scale(chart.x, [each.x for each in chart.series])
    few = max((len(each.x) for each in chart.series), default=0) <= LISTED
    rows, titles = [], []
    for panel_of in chart.panels:
        up, symbol = scale(panel_of.y, [one.y for one in panel_of.series])
        titles.append(titled(panel_of.y, symbol))
        for one in panel_of.series:
            label = one.name if panel_of is chart else f"{one.name}: {titles[-1]}"
            x, y = _numbers(one.x) / across, _numbers(one.y) / up
            if few:
                half = [0.0] * len(y)
                if one.low is not None and one.high is not None:
                    half = ((_numbers(one.high) - _numbers(one.low)) / 2 / up).tolist()
                within = [f" ± {digits(each, 2)}" if each > 0 else "" for each in half]
                values = [digits(value) for value in y.tolist()]
                rows += [[label, place_text(chart.x, at), a + b] for at, a, b in zip(x, values, within, strict=True)]
            else:
                known = y[np.isfinite(y)] if np.isfinite(y).any() else np.zeros(1)
                rows.append([label, *(digits(float(value)) for value in (known.min(), known.mean(), known.max()))])
    heads = ["curve", titled(chart.x, x_symbol), titles[0]] if few else [titles[0], "least", "mean", "most"]
    return heads, rows


@cache
def library() -> str:
    """Return uPlot, whose licence allows that it is a part of pages; empty where it is missing."""
    path = VENDOR / "uplot.min.js"
    if not path.is_file():
        return ""
    # Its first comment has an address, which an offline page need not have.
    return path.read_text(encoding="utf-8").replace("https://", "", 1)


def page(title: str, body: str, rules: str = "", code: str = "") -> str:
    """Return a page with charts that opens offline; `rules` and `code` are CSS and a script of this page alone."""
    uplot = VENDOR / "uplot.css"
    sheets = [uplot.read_text(encoding="utf-8")] if uplot.is_file() else []
    sheets += [(HERE / "chart.css").read_text(encoding="utf-8"), rules]
    scripts = [library(), code] if library() else [code]
    drawing = [(HERE / "chart.js").read_text(encoding="utf-8")] if library() else []
    return look.page(title, body, "\n".join(sheets), scripts, drawing)
