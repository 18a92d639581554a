"""The HTML report of a run: one self-contained file with the verdict, charts, what every failure did, and the lab."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from mrc_common import look
from mrc_host.answers import LagSummary, Software
from mrc_host.proto.events import EvState
from mrc_lab import describe
from mrc_lab.session.fidelity import MachineFidelity
from mrc_results import analysis, charts, moments, performance, steps, summary
from mrc_results.charts import Curve, Mark
from mrc_results.check import Check
from mrc_results.record import RunResult
from mrc_results.series import TIME
from mrc_results.verdict import Verdict
from mrc_topo import draw
from mrc_topo.topology import Topology
from mrc_topo.units import format_rate, format_time
from p4lite.switch.fabric.values import Lag

EV_STATES = tuple(each.name for each in EvState)
#: So that states are told apart without their colours.
EV_DASHES = ("", "8 4", "10 3 2 3", "2 3")

#: Of a curve; more than a screen is wide would only make the file large.
POINTS = 2000
#: Why a port of a switch stands still, by its counter in the samples.
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
#: Curves in such a chart.
STALLED_PORTS = 16
#: Above this many, what was done to the fabric is drawn as lines without words.
LABELLED = 60


def render(result: RunResult, topology: Topology, verdict: Verdict, title: str) -> str:
    """Return the report of a run's result as HTML."""
    edges = analysis.grid(result)
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        _doubt(verdict),
        summary.render(result, topology, verdict),
        "NAVIGATION",
        "<h2>The run</h2>",
        _summary(result, topology, verdict),
        "<h2>Verdict</h2>",
        _checks(verdict),
        "<h2>What every failure did</h2>" if verdict.recoveries else "",
        _recoveries(verdict) if verdict.recoveries else "",
        *_moments(result, topology, verdict),
        *_performance(result),
        *_steps(result),
        "<h2>Goodput over time</h2>",
        "<p class=note>Payload placed in memory at all responders. Dashed: what was done to the fabric. In every chart:"
        " values under the pointer or with the arrow keys; drag to see a part of the time, double click or Escape for"
        " all of it; a click on a name hides its curve.</p>",
        _plot("goodput", "Goodput over time", _goodput(result, edges), result, "Mb/s"),
        "<h2>Load of each plane</h2>",
        "<p class=note>What all hosts send into a plane. MRC loads planes equally while all ports are up.</p>",
        _plot("planes", "Load of each plane", _planes(result, topology, edges), result, "Mb/s"),
        "<h2>Entropy values by state</h2>",
        "<p class=note>Over all queue pairs. GOOD: in use or in reserve; SKIP: rested once after a mark or trim;"
        " ASSUMED_BAD: out until probes succeed.</p>",
        _plot("evs", "Entropy values by state", _evs(result, edges), result, "EVs"),
        "<h2>Queues</h2>",
        "<p class=note>Bytes that wait in the data queues of a plane's switches: the sum over its ports.</p>",
        _plot("queues", "Queues of each plane", _queues(result, topology), result, "KiB"),
        *_stalls(result),
        "<h2>Window and round-trip time</h2>",
        _plot("cwnd", "Window", _levels(result, edges, "cwnd", 1 / 1024), result, "KiB (mean over hosts)"),
        _plot("rtt", "Round-trip time", _levels(result, edges, "rtt_ns", 1e-6), result, "ms (mean over hosts)"),
        "<h2>Hosts</h2>",
        _hosts(result),
        "<h2>The lab</h2>",
        f'<div id="lab" class="scroll">{draw.to_svg(topology)}</div>',
        "<h2>Fidelity</h2>",
        _fidelity(result),
    ]
    return look.page(title, _navigated(parts), ("report.css",), ("report.js",))


def _navigated(parts: Sequence[str]) -> str:
    """Return the parts, each head with an anchor, and links to them where `NAVIGATION` stands."""
    links: list[str] = []
    made = []
    for part in parts:
        if part.startswith("<h2>"):
            text = part.removeprefix("<h2>").removesuffix("</h2>")
            links.append(f'<a href="#part-{len(links)}">{text}</a>')
            part = f'<h2 id="part-{len(links) - 1}">{text}</h2>'
        made.append(part)
    return "\n".join(f"<nav>{' '.join(links)}</nav>" if part == "NAVIGATION" else part for part in made)


def _mark(check: Check, verdict: Verdict) -> str:
    if check.passed:
        return "<span class=good>good</span>"
    doubtful = check.timed and not verdict.valid
    return "<span class=doubt>not valid</span>" if doubtful else "<span class=bad>missed</span>"


def _summary(result: RunResult, topology: Topology, verdict: Verdict) -> str:
    lab = topology.lab
    totals = analysis.totals(result)
    edges = analysis.grid(result)
    mean = float(analysis.goodput_bps(result, edges).mean())
    simulated = " (simulated time)" if result.clock == "virtual" else ""
    colour = "good" if verdict.passed else "doubt" if verdict.timing_only else "bad"
    word = f"<span class={colour}>{verdict.outcome}</span>"
    rows = [
        ["verdict", word],
        ["mean goodput", format_rate(round(mean))],
        ["lab", f"{html.escape(lab.name)}: {lab.planes} planes, {lab.t0_per_plane} T0 and {lab.t1_per_plane} T1 each, "
                f"{lab.hosts} hosts, {format_rate(lab.links.host.rate)} per port, {lab.routing.mode.value}"],
        ["workload", html.escape(f"{result.workload} {result.params} on {len(result.ranks)} hosts")],
        ["clock", f"{result.clock}{simulated}, {result.seconds:.1f} s, seed {result.seed}"],
        ["base RTT, ACK timeout", f"{format_time(describe.base_rtt_ns(topology, result.clock))}, "
                                  f"{format_time(describe.ack_timeout_ns(topology))}"],
        ["retransmissions, of them spurious", f"{totals['retransmissions']}, {totals['spurious_retransmissions']}"],
        ["trims, marks, timeouts", ", ".join(str(totals[key]) for key in ("trims", "marks", "timeouts"))],
    ]  # fmt: skip
    return look.table(["", ""], rows)


def _doubt(verdict: Verdict) -> str:
    """Above all else: that the figures are not to be trusted."""
    if verdict.valid:
        return ""
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in verdict.reasons)
    return f"<div class=warn>The machine did not keep up; the figures are not valid:<ul>{reasons}</ul></div>"


def _checks(verdict: Verdict) -> str:
    rows = [
        [html.escape(check.what), html.escape(check.expected), html.escape(check.measured), _mark(check, verdict)]
        for check in verdict.checks
    ]
    return look.table(["check", "expected", "measured", ""], rows)


def _performance(result: RunResult) -> list[str]:
    """Return what the workload measured, a table each under a head."""
    parts = []
    for table in performance.tables(result):
        parts.append(f"<h2>{html.escape(table.title.capitalize())}</h2>")
        parts.append(look.table(table.heads, [[html.escape(cell) for cell in row] for row in table.rows]))
    return parts


def _steps(result: RunResult) -> list[str]:
    """How long each step of a training took; none of another workload."""
    rows = steps.steps_of(result)
    if not rows:
        return []
    times = [(each.end_ns - result.started_ns) / 1e9 for each in rows]
    line = _line("all steps", times, [each.seconds * 1e3 for each in rows], *charts.series(0))
    seen = [index for index, each in enumerate(rows) if each.broken][:POINTS]
    x, y = np.array([times[index] for index in seen]), np.array([rows[index].seconds * 1e3 for index in seen])
    marks = Curve("with something broken", x, y, "var(--down)", dots=True)
    note = "<p class=note>From the end of a step at the last rank to that of the next one.</p>"
    return ["<h2>Time of each step</h2>", note, _plot("steps", "Time of each step", [line, marks], result, "ms")]


def _recoveries(verdict: Verdict) -> str:
    rows = []
    for each in verdict.recoveries:
        took = "never" if each.recovery_s is None else f"{each.recovery_s * 1e3:.0f} ms"
        rows.append(
            [
                f"{each.at_s:.2f} s",
                html.escape(each.text),
                format_rate(round(each.before_bps)),
                f"{min(each.expected, 9.99):.1%}",
                f"{each.dip:.1%}",
                f"{each.after:.1%}",
                took,
            ]
        )
    head = ["at", "what", "goodput before", "capacity left", "lowest", "settled at", "back to 95 % of that after"]
    return look.table(head, rows)


def _moments(result: RunResult, topology: Topology, verdict: Verdict) -> list[str]:
    """Return an animation of each failure."""
    chosen = moments.chosen(result, verdict.recoveries, len(topology.links))
    if not chosen:
        return []
    made = summary.broken(result)
    some = f" Of {made} failures the {len(chosen)} that cost most." if made > len(chosen) else ""
    return [
        "<h2>The moment of each failure</h2>",
        f"<p class=note>Links by the load of their busier direction, half a second before to two seconds after.{some}"
        " Without scripts, the table above and the charts below say the same.</p>",
        _scale(),
        *(_moment(each) for each in chosen),
        look.data("moments-data", moments.frames(result, topology, chosen)),
    ]


def _scale() -> str:
    """Return what the looks of links mean."""
    bounds = [0, *(round(100 * level) for level in moments.LEVELS), 100]
    parts = [
        f'<span><i style="border-color:var(--load-{level})"></i>{low} to {high} %</span>'
        for level, (low, high) in enumerate(itertools.pairwise(bounds))
    ]
    for word in ("down", "impaired"):
        parts.append(f'<span><i style="border-top-style:dashed;border-color:var(--{word})"></i>{word}</span>')
    return f'<p class="scale">{"".join(parts)}</p>'


def _moment(moment: moments.Moment) -> str:
    each = moment.recovery
    told = "Too close to another change for goodput to be compared."
    if each is not None:
        back = "did not come back" if each.recovery_s is None else f"was back after {each.recovery_s * 1e3:.0f} ms"
        told = (
            f"Goodput was {format_rate(round(each.before_bps))}; {min(each.expected, 1.0):.1%} of the capacity was"
            f" left. It fell to {each.dip:.1%} of before at the lowest, and {back}."
        )
    text = html.escape(f"{moment.at_s:.2f} s: {moment.text}")
    return (
        f'<section class="moment card"><h3>{text}</h3><p>{told}</p><div class="picture"></div>'
        '<div class="controls" hidden><button type="button">play</button><input type="range" min="0" value="0"'
        f' aria-label="time around the failure at {text}"><output class="now"></output></div></section>'
    )


def _plot(name: str, title: str, curves: Sequence[Curve], result: RunResult, unit: str) -> str:
    seconds = result.seconds
    marks = _marks(result)
    return charts.chart(name, title, curves, unit, seconds, marks, len(marks) <= LABELLED)


def _marks(result: RunResult) -> list[Mark]:
    """Return what was done to the fabric."""
    return [Mark(result.since_start(each.done_ns), each.action.describe(), each.fails) for each in result.happenings]


def _line(name: str, x: npt.ArrayLike, y: npt.ArrayLike, colour: str, dash: str = "") -> Curve:
    xs, ys = analysis.thinned(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), POINTS)
    return Curve(name, xs, ys, colour, dash)


def _goodput(result: RunResult, edges: analysis.Curve) -> list[Curve]:
    return [_line("all hosts", edges[:-1], analysis.goodput_bps(result, edges) / 1e6, *charts.series(0))]


def _planes(result: RunResult, topology: Topology, edges: analysis.Curve) -> list[Curve]:
    loads = analysis.plane_load_bps(result, edges, topology.lab.planes)
    return [_line(f"plane {plane}", edges[:-1], load / 1e6, *charts.series(plane)) for plane, load in enumerate(loads)]


def _hosts_with(result: RunResult, column: str) -> list[str]:
    """Hosts that have samples of this."""
    return [name for name in result.samples if column in result.samples_of(name).columns]


def _evs(result: RunResult, edges: analysis.Curve) -> list[Curve]:
    traces = []
    hosts = _hosts_with(result, "ev.GOOD")
    for state, dash in zip(EV_STATES, EV_DASHES, strict=True):
        counts = analysis.levels(result, hosts, "ev", state, edges)
        traces.append(_line(state, edges, counts, f"var(--ev-{state.lower().replace('_', '-')})", dash))
    return traces


def _queues(result: RunResult, topology: Topology) -> list[Curve]:
    plane_of = {switch.name: switch.plane for switch in topology.switches}
    fabric = result.fabric
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
    return [
        _line(f"plane {plane}", times, depths[plane], *charts.series(plane)) for plane in range(topology.lab.planes)
    ]


def _stalls(result: RunResult) -> list[str]:
    """Return a chart for each reason for which a port that could send had to wait; none where no port had to."""
    parts = []
    for column, (head, note) in STALLS.items():
        ports = analysis.stalls(result, column)
        if not ports:
            continue
        shown = list(ports.items())[:STALLED_PORTS]
        lines = [
            _line(port, seconds, 100 * share, *charts.series(number))
            for number, (port, (seconds, share)) in enumerate(shown)
        ]
        rest = f" Of {len(ports)} ports the {len(shown)} that stood longest." if len(ports) > len(shown) else ""
        parts += [
            f"<h2>{head}</h2>",
            f"<p class=note>{note}{rest}</p>",
            _plot(column, head, lines, result, "% of time"),
        ]
    return parts


def _levels(result: RunResult, edges: analysis.Curve, key: str, scale: float) -> list[Curve]:
    hosts = _hosts_with(result, f"cc.{key}")
    if not hosts:
        return []
    total = analysis.levels(result, hosts, "cc", key, edges)
    return [_line(key.removesuffix("_ns"), edges, total * scale / len(hosts), *charts.series(0))]


def _hosts(result: RunResult) -> str:
    rows = []
    for name in result.ranks:
        progress = result.progress.get(name)
        samples = result.samples_of(name)
        if progress is None or not len(samples):
            rows.append([html.escape(name), "<span class=bad>no word</span>", "", "", "", ""])
            continue
        last = samples.last
        rows.append(
            [
                html.escape(name),
                str(progress.iterations),
                f"{progress.bytes_verified / 1e6:.1f} MB",
                f"{last['packets']}",
                f"{last['retransmissions']}",
                html.escape(progress.failure) or "-",
            ]
        )
    return look.table(["host", "iterations", "verified", "packets sent", "retransmitted", "failure"], rows)


def _fidelity(result: RunResult) -> str:
    fidelity = result.fidelity
    if fidelity.simulated:
        text = "Simulated time: the fabric's and the hosts' clocks wait for the machine, so nothing can be late."
        return f"<p>{text} {_software([fidelity.software])}</p>"
    rows = []
    fabrics = {f"fabric on {name}": row.fabric for name, row in fidelity.machines.items() if row.fabric is not None}
    if not fabrics and fidelity.fabric is not None:
        fabrics["fabric"] = fidelity.fabric
    for name, fabric in fabrics.items():
        rows.append([html.escape(name), *_lag(fabric.loop), f"{fabric.cpu_share:.0%}", ""])
    for name, host in fidelity.hosts.items():
        others = [each for each in host.process if each != name]
        share = f"{host.cpu_share:.0%}{', with ' * bool(others)}{', '.join(others)}"
        rows.append([html.escape(name), *_lag(host.loop_lag), html.escape(share), str(host.rx_ring_drops)])
    head = ["part", "loop late p50, ms", "p99, ms", "max, ms", "its process's CPU, cores", "frames lost by the host"]
    software = _software(host.software for host in fidelity.hosts.values())
    return f"{look.table(head, rows)}{_machines(fidelity.machines)}<p>{software}</p>"


def _lag(lag: LagSummary | Lag) -> list[str]:
    return [f"{each / 1e6:.3f}" for each in (lag.p50_ns, lag.p99_ns, lag.max_ns)]


def _machines(machines: Mapping[str, MachineFidelity]) -> str:
    """Of a lab on several machines, their clocks and what went between them."""
    rows = []
    counted = attrgetter("sent", "received", "lost", "late", "refused", "repeated")
    for name, row in machines.items():
        clock = row.clock
        known = ["-", "-"] if clock is None else [f"{ns / 1e6:.3f}" for ns in (clock.off_ns, clock.uncertainty_ns)]
        sums = map(sum, zip(*map(counted, row.tunnels.values()), strict=True)) if row.tunnels else [0] * 6
        rows.append([html.escape(name), *known, str(len(row.tunnels)), *map(str, sums)])
    head = ["machine", "clock ahead, ms", "known within, ms", "tunnels", "datagrams sent", "received", "lost", "late"]
    return look.table([*head, "refused", "repeated"], rows) if rows else ""


def _software(measured: Iterable[Software | None]) -> str:
    """How the protocol core ran in these processes."""
    found = {(each.core, each.crc) for each in measured if each is not None}
    return "; ".join(f"Protocol core {core}, CRC by {crc}" for core, crc in sorted(found))
