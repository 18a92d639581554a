"""Charts of a report and their curves: inline SVG that is readable without scripts; `report.js` adds values under the
pointer, zoom and curves that can be hidden.

A curve is a path in whole steps of a power of ten, so that the path itself holds the data: nothing is in a page twice,
and a curve of 2 000 points takes 10 to 20 KB.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mrc_host.proto.events import EvState
from mrc_topo.topology import Topology
from mrclab.results import steps
from mrclab.results.record import Numbers, Readings, RunResult
from mrclab.results.recording import TIME

#: The picture, in its own units, and the area of the curves in it.
WIDTH, HEIGHT = 1000, 300
LEFT, TOP, AREA_WIDTH, AREA_HEIGHT = 64, 22, 926, 230
#: Both axes have at least this many steps: finer than can be seen, or distinguished in a table.
STEPS = 20_000
#: Numbers of two events need this much room between them; the later one is left out otherwise.
TAG_WIDTH = 18


@dataclass(frozen=True)
class Curve:
    """A line, or dots: `x` in seconds after the start, `y` in the chart's unit; `colour` and `dash` as CSS and SVG have
    them."""

    name: str
    x: Numbers
    y: Numbers
    colour: str
    dash: str = ""
    dots: bool = False


@dataclass(frozen=True)
class Plot:
    """The contents of a chart; `name` is its id in the page, `title` describes it for readers who cannot see it."""

    name: str
    title: str
    curves: Sequence[Curve]
    unit: str


@dataclass(frozen=True)
class ActionMark:
    """An action on the lab at a time (s); `breaks`: it breaks something, and does not repair it."""

    at_s: float
    text: str
    breaks: bool


def step(largest: float) -> float:
    """Return the power of ten that divides the range from 0 to this into `STEPS` or more."""
    return 10.0 ** math.floor(math.log10(largest / STEPS)) if largest > 0 else 1.0


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers within a range, at most this many."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power: float = 10.0 ** math.floor(math.log10(rough))
    width = next(power * each for each in (1, 2, 5, 10) if power * each >= rough * (1 - 1e-9))
    first = math.ceil(low / width - 1e-9)
    return [number * width for number in range(first, math.floor(high / width + 1e-9) + 1)]


def number(value: float) -> str:
    """Return a number as short as it can be read."""
    return f"{value:.6g}"


def path(x: Numbers, y: Numbers, x_step: float, y_step: float, dots: bool = False) -> str:
    """Return the points as an SVG path in whole steps, each but the first relative to the one before.

    Dots are parts without length, which round ends make visible.
    """
    columns = np.rint(x / x_step).astype(np.int64), np.rint(y / y_step).astype(np.int64)
    points = np.stack(columns, axis=1)
    if not len(points):
        return ""
    first, rest = points[0], np.diff(points, axis=0)
    if dots:
        return f"M{first[0]} {first[1]}z" + "".join(f"m{dx} {dy}z" for dx, dy in rest.tolist())
    moves = "".join(f"{'' if dx < 0 else ' '}{dx}{'' if dy < 0 else ' '}{dy}" for dx, dy in rest.tolist())
    return f"M{first[0]} {first[1]}" + (f"l{moves.lstrip()}" if len(rest) else "")


def chart(plot: Plot, seconds: float, marks: Sequence[ActionMark], tags: bool) -> str:
    """Return a chart over the seconds of a run as HTML.

    Args:
        marks: what was done to the lab; `tags`: with their numbers above the curves; `explained` has their texts.
    """
    curves, unit = plot.curves, plot.unit
    top = max((float(curve.y.max()) for curve in curves if len(curve.y)), default=0.0) * 1.05 or 1.0
    seconds = max(seconds, 1e-9)
    x_step, y_step = step(seconds), step(top)
    across, up = seconds / x_step, top / y_step
    stroke = 'fill="none" vector-effect="non-scaling-stroke"'
    lines = "".join(
        f'<path class="curve" d="{path(curve.x, curve.y, x_step, y_step, curve.dots)}" {stroke} {_pen(curve)}'
        f' style="stroke:{curve.colour}"><title>{html.escape(curve.name)}</title></path>'
        for curve in curves
    )
    happened = "".join(
        f'<path class="{"fails" if mark.breaks else "mends"}" d="M{mark.at_s / x_step:.0f} 0V{up:.0f}" {stroke}>'
        f"<title>{html.escape(f'{mark.at_s:.2f} s: {mark.text}')}</title></path>"
        for mark in marks
    )
    shown = f'viewBox="0 {-up:.0f} {across:.0f} {up:.0f}" preserveAspectRatio="none"'
    text = f"{plot.title}, in {unit}. {_told(curves)}"
    return (
        f'<figure class="chart" id="{plot.name}" data-unit="{html.escape(unit)}"'
        f' data-step="{x_step:.12g} {y_step:.12g}">'
        f"{_legend(curves)}"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0" aria-label="{html.escape(text)}">'
        f'<g class="axes">{_axes(seconds, top)}</g>'
        f'<svg class="area" x="{LEFT}" y="{TOP}" width="{AREA_WIDTH}" height="{AREA_HEIGHT}" {shown}>'
        f'<g transform="scale(1 -1)">{happened}{lines}</g></svg>'
        f'<g class="tags">{_tags(marks, seconds) if tags else ""}</g>'
        f'<text class="unit" x="{LEFT + AREA_WIDTH}" y="{HEIGHT - 6}">seconds after the start; upwards '
        f"{html.escape(unit)}</text></svg>{_values(curves, unit)}</figure>"
    )


def _pen(curve: Curve, width: float = 1.7) -> str:
    if curve.dots:
        return 'stroke-width="7" stroke-linecap="round"'
    return f'stroke-width="{width}"' + (f' stroke-dasharray="{curve.dash}"' if curve.dash else "")


def _axes(seconds: float, top: float) -> str:
    """Return the grid and numbers of the whole run; `report.js` redraws them for a part of it."""
    parts = []
    for value in ticks(0, top, 6):
        y = TOP + AREA_HEIGHT * (1 - value / top)
        parts.append(f'<path d="M{LEFT} {y:.1f}h{AREA_WIDTH}"/><text class="y" x="{LEFT - 6}" y="{y:.1f}">')
        parts.append(f"{number(value)}</text>")
    for value in ticks(0, seconds, 12):
        x = LEFT + AREA_WIDTH * value / seconds
        parts.append(
            f'<path d="M{x:.1f} {TOP}v{AREA_HEIGHT}"/><text class="x" x="{x:.1f}" y="{TOP + AREA_HEIGHT + 14}">'
        )
        parts.append(f"{number(value)}</text>")
    return "".join(parts)


def _tags(marks: Sequence[ActionMark], seconds: float) -> str:
    """Return the numbers above their lines. All are in the page: one without room appears when it has some."""
    parts, last = [], -math.inf
    for order, mark in enumerate(marks, 1):
        x = LEFT + AREA_WIDTH * mark.at_s / seconds
        hidden = "" if x - last >= TAG_WIDTH else " hidden"
        last = x if not hidden else last
        side = "fails" if mark.breaks else "mends"
        parts.append(
            f'<g class="tag {side}{hidden}" data-s="{mark.at_s:.6g}" transform="translate({x:.1f} {TOP - 11})">'
        )
        parts.append(f"<title>{html.escape(f'{mark.at_s:.2f} s: {mark.text}')}</title>")
        parts.append(f'<circle r="8.5"/><text>{order}</text></g>')
    return "".join(parts)


def explained(marks: Sequence[ActionMark]) -> str:
    """Return the texts of the numbers in all charts as HTML; nothing where there are none."""
    items = "".join(
        f'<li class="{"fails" if mark.breaks else "mends"}">{mark.at_s:.2f} s: {html.escape(mark.text)}</li>'
        for mark in marks
    )
    return f'<ol class="marks" aria-label="what was done to the lab">{items}</ol>' if marks else ""


def _legend(curves: Sequence[Curve]) -> str:
    keys = "".join(
        f'<button type="button" class="key" aria-pressed="true"><svg width="26" height="10" aria-hidden="true">'
        f'<path d="{"M13 5z" if curve.dots else "M0 5H26"}" style="stroke:{curve.colour}" {_pen(curve, 3)}/></svg> '
        f"{html.escape(curve.name)}</button>"
        for curve in curves
    )
    tools = '<span class="tools"><button type="button" class="whole" hidden>whole run</button>'
    tools += '<button type="button" class="save">save as SVG</button>'
    tools += '<button type="button" class="save-csv">save as CSV</button></span>'
    return f'<figcaption class="legend">{keys}{tools}</figcaption>'


def _span(curve: Curve) -> tuple[float, float, float]:
    """Return the least, mean and most; 0 for a curve without points."""
    if not len(curve.y):
        return 0.0, 0.0, 0.0
    return float(curve.y.min()), float(curve.y.mean()), float(curve.y.max())


def _told(curves: Sequence[Curve]) -> str:
    said = []
    for curve in curves:
        least, mean, most = _span(curve)
        said.append(f"{curve.name}: {least:.4g} to {most:.4g}, mean {mean:.4g}")
    return "; ".join(said) + "." if said else "Nothing was measured."


def _values(curves: Sequence[Curve], unit: str) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(curve.name)}</td>"
        + "".join(f'<td class="n">{value:.4g}</td>' for value in _span(curve))
        + "</tr>"
        for curve in curves
    )
    head = f"<tr><th>{html.escape(unit)}</th><th>least</th><th>mean</th><th>most</th></tr>"
    return f'<details class="values"><summary>as numbers</summary><table>{head}{rows}</table></details>'


EV_STATES = tuple(each.name for each in EvState)
#: Dashes distinguish the states without their colours.
EV_DASHES = ("", "8 4", "10 3 2 3", "2 3")
#: Series by number: colours of style.css; from the ninth on they are dashed.
COLOURS = 8
DASHES = ("", "8 4", "2 3", "10 3 2 3")
#: Of a curve; more than a screen is wide would only make the file large.
POINTS = 2000
#: Curves in a chart of ports that stand still.
STALLED_PORTS = 16
#: Why a port of a switch stands still, by its counter in the samples: title of the chart, and what it shows.
STALLS = {
    "paused_ns": (
        "Ports paused by priority flow control",
        "How long each port of a switch obeyed pauses of the data's priority.",
    ),
    "credit_stall_ns": (
        "Ports without credits",
        "How long each port of a switch had data to send and no credit of its peer for it.",
    ),
}


@dataclass(frozen=True)
class Stall:
    """A chart of the ports that had to stand still for one reason, with its note."""

    plot: Plot
    note: str


@dataclass(frozen=True)
class RunPlots:
    """The plots of a run's charts; `steps` is None where the workload has no steps."""

    goodput: Plot
    planes: Plot
    evs: Plot
    queues: Plot
    stalls: Sequence[Stall]
    cwnd: Plot
    rtt: Plot
    steps: Plot | None


def plots_of(result: RunResult, topology: Topology, readings: Readings) -> RunPlots:
    """Return what the charts of a run show."""
    edges = readings.edges
    return RunPlots(
        Plot("goodput", "Goodput over time", _goodput(readings), "Mb/s"),
        Plot("planes", "Load of each plane", _planes(result, topology, edges), "Mb/s"),
        Plot("evs", "Entropy values by state", _evs(result, edges), "EVs"),
        Plot("queues", "Queues of each plane", _queues(result, topology), "KiB"),
        stall_plots(result),
        Plot("cwnd", "Window", _means(result, edges, "cwnd", 1 / 1024), "KiB (mean over hosts)"),
        Plot("rtt", "Round-trip time", _means(result, edges, "rtt_ns", 1e-6), "ms (mean over hosts)"),
        _steps(result),
    )


def series(number: int) -> tuple[str, str]:
    """Return the colour and dash of a series by its number: no two of the first 32 look alike."""
    return f"var(--plane-{number % COLOURS})", DASHES[number // COLOURS % len(DASHES)]


def plane_load_bps(result: RunResult, edges: Numbers, planes: int) -> list[Numbers]:
    """Return the load that all hosts send into each plane, bit/s."""
    loads = []
    for plane in range(planes):
        total = np.zeros(len(edges) - 1)
        for host in result.ranks:
            total += 8 * result.rates(host, f"tx_bytes.{plane}", edges)
        loads.append(total)
    return loads


def levels(result: RunResult, hosts: Sequence[str], key: str, name: str, edges: Numbers) -> Numbers:
    """Sum over hosts of a level (not a counter) that samples hold under `key`/`name`, at the bin edges."""
    total = np.zeros(len(edges))
    for host in hosts:
        samples = result.samples_of(host)
        if len(samples) and f"{key}.{name}" in samples.columns:
            times, values = samples.take([TIME, f"{key}.{name}"])
            total += np.interp(edges, (times - result.started_ns) / 1e9, values)
    return total


def stalls(result: RunResult, column: str) -> dict[str, tuple[Numbers, Numbers]]:
    """Return for each port of a switch that had to stand still: times, and the share of the time since the sample
    before.

    `column` is a counter of ns. The port that stood still longest comes first.
    """
    fabric = result.recording.fabric
    names = [name for name in fabric.columns if name.startswith("ports.") and name.endswith(f".{column}")]
    if not names or len(fabric) < 2:
        return {}
    times, *totals = fabric.take([TIME, *names])
    spans = np.maximum(np.diff(times), 1)
    seconds = (times[1:] - result.started_ns) / 1e9
    found = {
        name.removeprefix("ports.").removesuffix(f".{column}"): (seconds, np.diff(total) / spans)
        for name, total in zip(names, totals, strict=True)
        if total[-1] > total[0]
    }
    longest = sorted(found, key=lambda port: (-float((found[port][1] * spans).sum()), port))
    return {port: found[port] for port in longest}


def thinned(x: Numbers, y: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """Return at most `most` points of a curve: both ends, and the lowest and highest of every stretch."""
    if len(x) <= most:
        return x, y
    bounds = np.linspace(0, len(x), (most - 2) // 2 + 1).astype(int)
    kept = {0, len(x) - 1}
    for low, high in itertools.pairwise(bounds):
        kept |= {low + int(np.argmin(y[low:high])), low + int(np.argmax(y[low:high]))}
    index = np.array(sorted(kept))
    return x[index], y[index]


def _line(name: str, x: npt.ArrayLike, y: npt.ArrayLike, colour: str, dash: str = "") -> Curve:
    xs, ys = thinned(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), POINTS)
    return Curve(name, xs, ys, colour, dash)


def _goodput(readings: Readings) -> list[Curve]:
    return [_line("all hosts", readings.edges[:-1], readings.goodput_bps / 1e6, *series(0))]


def _planes(result: RunResult, topology: Topology, edges: Numbers) -> list[Curve]:
    loads = plane_load_bps(result, edges, topology.lab.planes)
    return [_line(f"plane {plane}", edges[:-1], load / 1e6, *series(plane)) for plane, load in enumerate(loads)]


def _hosts_with(result: RunResult, column: str) -> list[str]:
    """Return the hosts whose samples have these columns."""
    return [name for name in result.samples if column in result.samples_of(name).columns]


def _evs(result: RunResult, edges: Numbers) -> list[Curve]:
    curves = []
    hosts = _hosts_with(result, "ev.GOOD")
    for state, dash in zip(EV_STATES, EV_DASHES, strict=True):
        counts = levels(result, hosts, "ev", state, edges)
        curves.append(_line(state, edges, counts, f"var(--ev-{state.lower().replace('_', '-')})", dash))
    return curves


def _queues(result: RunResult, topology: Topology) -> list[Curve]:
    plane_of = {switch.name: switch.plane for switch in topology.switches}
    fabric = result.recording.fabric
    (stamps,) = fabric.take([TIME])
    times = (stamps - result.started_ns) / 1e9
    depths = np.zeros((topology.lab.planes, len(times)))
    columns = {
        number: plane_of[name.removeprefix("ports.").rpartition(":")[0]]
        for name, number in fabric.columns.items()
        if name.endswith(".depth_bytes")
    }
    begin = 0
    for chunk in fabric.chunks():
        for number, plane in columns.items():
            depths[plane, begin : begin + chunk.shape[1]] += chunk[number] / 1024
        begin += chunk.shape[1]
    return [_line(f"plane {plane}", times, depths[plane], *series(plane)) for plane in range(topology.lab.planes)]


def stall_plots(result: RunResult) -> list[Stall]:
    """Return a chart for each reason for which a port that could send had to wait; none where no port had to."""
    found = []
    for column, (title, note) in STALLS.items():
        ports = stalls(result, column)
        if not ports:
            continue
        shown = list(ports.items())[:STALLED_PORTS]
        lines = [
            _line(port, seconds, 100 * share, *series(number)) for number, (port, (seconds, share)) in enumerate(shown)
        ]
        rest = f" Of {len(ports)} ports the {len(shown)} that stood longest." if len(ports) > len(shown) else ""
        found.append(Stall(Plot(column, title, lines, "% of time"), note + rest))
    return found


def _means(result: RunResult, edges: Numbers, key: str, scale: float) -> list[Curve]:
    """Return the mean over hosts of a level of their congestion control."""
    hosts = _hosts_with(result, f"cc.{key}")
    if not hosts:
        return []
    total = levels(result, hosts, "cc", key, edges)
    return [_line(key.removesuffix("_ns"), edges, total * scale / len(hosts), *series(0))]


def _steps(result: RunResult) -> Plot | None:
    """Return how long each step of a training took."""
    rows = steps.steps_of(result)
    if not rows:
        return None
    times = [result.since_start(each.end_ns) for each in rows]
    line = _line("all steps", times, [each.seconds * 1e3 for each in rows], *series(0))
    seen = [index for index, each in enumerate(rows) if each.broken][:POINTS]
    x, y = np.array([times[index] for index in seen]), np.array([rows[index].seconds * 1e3 for index in seen])
    marks = Curve("with something broken", x, y, "var(--down)", dots=True)
    return Plot("steps", "Time of each step", [line, marks], "ms")
