"""The curves of a report's charts: what the samples of hosts and switches say over the time of a run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mrc_host.proto.events import EvState
from mrc_topo.topology import Topology
from mrclab.results import steps
from mrclab.results.charts import Curve, Plot
from mrclab.results.record import Numbers, Readings, RunResult
from mrclab.results.series import TIME

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
