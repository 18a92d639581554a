"""Charts of a run, as descriptions: what was measured over the seconds of a run, and what each chart shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mrc_host.proto.events import EvState
from mrc_topo.topology import Topology
from mrc_topo.units import Unit, shown
from mrclab.pages.chart import POINTS, Axis, Chart, Line, Mark, Numbers, Series, style
from mrclab.results import steps
from mrclab.results.analysis import Recovery
from mrclab.results.record import Readings, RunResult
from mrclab.results.recording import TIME

#: The charts of a run are zoomed together.
GROUP = "run"
ABOUT_PLANES = "What all hosts send into a plane. MRC loads planes equally while all ports are up."
ABOUT_EVS = (
    "Over all queue pairs; all others are good: in use or in reserve. Skipped once: after a mark or a trim; "
    "assumed bad: out until probes succeed; denied: by the denylist."
)

#: States in which EVs are not in use: the name for people, and a dash that distinguishes them without colours.
EV_STATES = {EvState.SKIP: ("skipped once", 1), EvState.ASSUMED_BAD: ("assumed bad", 0), EvState.DENIED: ("denied", 2)}
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
class RunCharts:
    """The charts of a run: what it cost, and why."""

    cost: Sequence[Chart]
    why: Sequence[Chart]

    @property
    def all(self) -> Sequence[Chart]:
        """All of them."""
        return [*self.cost, *self.why]


def charts_of(
    result: RunResult, topology: Topology, readings: Readings, recoveries: Sequence[Recovery], marks: Sequence[Mark]
) -> RunCharts:
    """Return the charts of a run."""

    edges = readings.edges
    seconds = Axis("time after the start", "s", span=(0.0, float(edges[-1])))

    def chart(name: str, title: str, about: str, axis: Axis, series: Sequence[Series]) -> Chart:
        return Chart(name, title, seconds, axis, series, about, marks, group=GROUP)

    goodput = [_line("all hosts", edges[:-1], readings.goodput_bps, *style(0), line=Line.STEPS)]
    planes, evs, queues = _planes(result, topology, edges), _evs(result, edges), _queues(result, topology)
    total = sum(float(result.levels(list(result.samples), "ev", each.name, edges[:1])[0]) for each in EvState)
    about = "Payload placed in memory at all responders, in bins of 100 ms."
    cost = [chart("goodput", _fell(readings, recoveries), about, Axis("goodput", Unit.RATE), goodput)]
    if (times := _steps(result)) is not None:
        slowest = f"The slowest step took {shown(_most(times), Unit.TIME)}"
        about = "From the end of a step at the last rank to that of the next one."
        cost.append(chart("steps", slowest, about, Axis("time of a step", Unit.TIME), times))
    means = [float(np.mean(each.y)) for each in planes]
    carried = f"Each plane carried {_from_to(means, Unit.RATE)} on average"
    load = chart("planes", carried, ABOUT_PLANES, Axis("load", Unit.RATE), planes)
    waited = f"At most {shown(_most(queues), Unit.SIZE)} waited in the switches of a plane"
    about = "Bytes in the data queues of a plane's switches: the sum over its ports."
    why = [
        replace(load, below=_apart(planes, seconds)),
        chart("evs", _out_of_use(evs, total), ABOUT_EVS, Axis("entropy values (EVs)"), evs),
        chart("queues", waited, about, Axis("queued", Unit.SIZE), queues),
    ]
    still = Axis("time that a port stood still", Unit.SHARE)
    why += [chart(name, title, note, still, series) for name, title, note, series in stall_series(result)]
    for name, key, factor, title, unit in (
        ("cwnd", "cwnd", 1.0, "window", Unit.SIZE),
        ("rtt", "rtt_ns", 1e-9, "round-trip time", Unit.TIME),
    ):
        for series in _means(result, edges, key, factor, title):
            y = np.asarray(series.y)
            y = y[y > 0]  # before the first packet there is none
            told = f"The mean {title} was {_from_to([float(y.min()), float(y.max())] if len(y) else [], unit)}"
            why.append(chart(name, told, "", Axis(f"{title}, mean over hosts", unit, zero=True), [series]))
    return RunCharts(cost, why)


def _apart(planes: Sequence[Series], seconds: Axis) -> Chart | None:
    """Return by how much the load of each plane differs from that of the mean plane, whose curves lie on each other."""
    if len(planes) < 2:
        return None
    mean = np.mean([np.asarray(each.y) for each in planes], axis=0)
    series = [replace(each, y=np.asarray(each.y) - mean) for each in planes]
    return Chart("", "", seconds, Axis("load minus that of the mean plane", Unit.RATE), series, level=0.0, group=GROUP)


def _fell(readings: Readings, recoveries: Sequence[Recovery]) -> str:
    """Return what failures did to the goodput, as the title of its chart."""
    broke = [each for each in recoveries if each.breaks]
    mean = f"Goodput was {shown(readings.mean_bps, Unit.RATE)} on average"
    if not broke:
        return mean
    worst = min(broke, key=lambda each: each.low)
    return f"{mean}, and at the lowest {shown(worst.low, Unit.SHARE, 3)} of what the rest could carry ({worst.text})"


def _from_to(values: Sequence[float], unit: Unit) -> str:
    low, high = (shown(each, unit, 3) for each in (min(values, default=0.0), max(values, default=0.0)))
    return low if low == high else f"{low} to {high}"


def _most(series: Sequence[Series]) -> float:
    return max((float(np.max(np.asarray(each.y), initial=0.0)) for each in series), default=0.0)


def _out_of_use(evs: Sequence[Series], total: float) -> str:
    out = np.asarray(evs[1].y) + np.asarray(evs[2].y) if evs else np.zeros(1)
    return (
        f"At most {shown(round(float(out.max(initial=0.0))))} of {shown(round(total))} entropy values were out of use"
    )


def plane_load_bps(result: RunResult, edges: Numbers, planes: int) -> list[Numbers]:
    """Return the load that all hosts send into each plane, bit/s."""
    loads = []
    for plane in range(planes):
        total = np.zeros(len(edges) - 1)
        for host in result.ranks:
            total += 8 * result.rates(host, f"tx_bytes.{plane}", edges)
        loads.append(total)
    return loads


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


def _line(name: str, x: npt.ArrayLike, y: npt.ArrayLike, colour: str, dash: int = 0, line: Line = Line.CURVE) -> Series:
    xs, ys = thinned(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), POINTS)
    return Series(name, xs, ys, colour, dash, line)


def _planes(result: RunResult, topology: Topology, edges: Numbers) -> list[Series]:
    loads = plane_load_bps(result, edges, topology.lab.planes)
    return [_line(f"plane {plane}", edges[:-1], load, *style(plane)) for plane, load in enumerate(loads)]


def _hosts_with(result: RunResult, column: str) -> list[str]:
    """Return the hosts whose samples have these columns."""
    return [name for name in result.samples if column in result.samples_of(name).columns]


def _evs(result: RunResult, edges: Numbers) -> list[Series]:
    hosts = _hosts_with(result, "ev.GOOD")
    if not hosts:
        return []
    return [
        _line(
            name,
            edges,
            result.levels(hosts, "ev", state.name, edges),
            f"ev-{state.name.lower().replace('_', '-')}",
            dash,
        )
        for state, (name, dash) in EV_STATES.items()
    ]


def _queues(result: RunResult, topology: Topology) -> list[Series]:
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
            depths[plane, begin : begin + chunk.shape[1]] += chunk[number]
        begin += chunk.shape[1]
    return [_line(f"plane {plane}", times, depths[plane], *style(plane)) for plane in range(topology.lab.planes)]


def stall_series(result: RunResult) -> list[tuple[str, str, str, list[Series]]]:
    """Return for each reason for which a port that could send had to wait: name, title and note of a chart, and its
    series; none where no port had to.
    """
    found = []
    for column, (title, note) in STALLS.items():
        ports = stalls(result, column)
        if not ports:
            continue
        shown_ports = list(ports.items())[:STALLED_PORTS]
        lines = [
            _line(port, seconds, share, *style(number)) for number, (port, (seconds, share)) in enumerate(shown_ports)
        ]
        rest = f" Of {len(ports)} ports the {len(lines)} that stood longest." if len(ports) > len(lines) else ""
        found.append((column, f"{title}: {shown_ports[0][0]} longest", note + rest, lines))
    return found


def _means(result: RunResult, edges: Numbers, key: str, factor: float, name: str) -> list[Series]:
    """Return the mean over hosts of a level of their congestion control."""
    hosts = _hosts_with(result, f"cc.{key}")
    if not hosts:
        return []
    return [_line(name, edges, result.levels(hosts, "cc", key, edges) * factor / len(hosts), *style(0))]


def _steps(result: RunResult) -> list[Series] | None:
    """Return how long each step of a training took."""
    rows = steps.steps_of(result)
    if not rows:
        return None
    times = [result.since_start(each.end_ns) for each in rows]
    line = _line("all steps", times, [each.seconds for each in rows], *style(0))
    seen = [index for index, each in enumerate(rows) if each.broken][:POINTS]
    if not seen:
        return [line]
    dots = Series(
        "with something broken", [times[at] for at in seen], [rows[at].seconds for at in seen], "down", line=Line.DOTS
    )
    return [line, dots]
