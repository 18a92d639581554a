"""The HTML report of a run: one self-contained file with the verdict, interactive plots and the lab's picture."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import plotly.io
from plotly.offline import get_plotlyjs

from mrc_control.lab import describe
from mrc_control.results import analysis, performance, steps
from mrc_control.results.series import TIME
from mrc_control.results.verdict import Verdict
from mrc_topo import draw
from mrc_topo.topology import Topology
from mrc_topo.units import format_rate, format_time

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: .6rem 0; } td, th { padding: .25rem .8rem .25rem 0; text-align: left;
border-bottom: 1px solid #ddd; vertical-align: top; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: #0a7a3d; font-weight: 600; } .bad { color: #b3261e; font-weight: 600; }
.note { color: #555; } .plot { height: 330px; } svg { max-width: 100%; height: auto; }
.warn { background: #fff3cd; padding: .5rem .8rem; border-radius: 4px; }
"""
PALETTE = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#65a30d")
EV_COLOURS = {"GOOD": "#059669", "SKIP": "#d97706", "ASSUMED_BAD": "#dc2626", "DENIED": "#525252"}

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
#: Above so many, what was done to the fabric is lines without words.
LABELLED = 60


def render(document: Mapping[str, Any], topology: Topology, verdict: Verdict, title: str) -> str:
    """The report of a run's result (`record.RunResult.document`) as HTML."""
    edges = analysis.grid(document)
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        _summary(document, topology, verdict),
        "<h2>Verdict</h2>",
        _checks(verdict),
        "<h2>What every failure did</h2>" if verdict.recoveries else "",
        _recoveries(verdict) if verdict.recoveries else "",
        *_performance(document),
        *_steps(document),
        "<h2>Goodput over time</h2>",
        "<p class=note>Payload placed in memory at all responders. Dashed: what was done to the fabric.</p>",
        _plot("goodput", _goodput(document, edges), document, "Mb/s"),
        "<h2>Load of each plane</h2>",
        "<p class=note>What all hosts send into a plane. MRC loads planes equally while all ports are up.</p>",
        _plot("planes", _planes(document, topology, edges), document, "Mb/s"),
        "<h2>Entropy values by state</h2>",
        "<p class=note>Over all queue pairs. GOOD: in use or in reserve; SKIP: rested once after a mark or trim;"
        " ASSUMED_BAD: out until probes succeed.</p>",
        _plot("evs", _evs(document, edges), document, "EVs"),
        "<h2>Queues</h2>",
        "<p class=note>Bytes that wait in the data queues of a plane's switches: the sum over its ports.</p>",
        _plot("queues", _queues(document, topology), document, "KiB"),
        *_stalls(document),
        "<h2>Window and round-trip time</h2>",
        _plot("cwnd", _levels(document, edges, "cwnd", 1 / 1024), document, "KiB (mean over hosts)"),
        _plot("rtt", _levels(document, edges, "rtt_ns", 1e-6), document, "ms (mean over hosts)"),
        "<h2>Hosts</h2>",
        _hosts(document),
        "<h2>The lab</h2>",
        draw.to_svg(topology),
        "<h2>Fidelity</h2>",
        _fidelity(document),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>{body}</body></html>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already."""
    top = "".join(f"<th>{each}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def _mark(passed: bool) -> str:
    return "<span class=good>good</span>" if passed else "<span class=bad>missed</span>"


def _summary(document: Mapping[str, Any], topology: Topology, verdict: Verdict) -> str:
    lab = topology.lab
    totals = analysis.totals(document)
    seconds = (document["finished_ns"] - document["started_ns"]) / 1e9
    edges = analysis.grid(document)
    mean = float(analysis.goodput_bps(document, edges).mean())
    simulated = " (simulated time)" if document["clock"] == "virtual" else ""
    word = f"<span class={'good' if verdict.passed else 'bad'}>{verdict.status}</span>"
    rows = [
        ["verdict", word],
        ["lab", f"{html.escape(lab.name)}: {lab.planes} planes, {lab.t0_per_plane} T0 and {lab.t1_per_plane} T1 each, "
                f"{lab.hosts} hosts, {format_rate(lab.links.host.rate)} per port, {lab.routing.mode.value}"],
        ["workload", html.escape(f"{document['workload']} {document['params']} on {len(document['ranks'])} hosts")],
        ["clock", f"{document['clock']}{simulated}, {seconds:.1f} s, seed {document['seed']}"],
        ["base RTT, ACK timeout", f"{format_time(describe.base_rtt_ns(topology, document['clock']))}, "
                                  f"{format_time(describe.ack_timeout_ns(topology))}"],
        ["mean goodput", format_rate(round(mean))],
        ["retransmissions, trims, marks, timeouts",
         ", ".join(str(totals[key]) for key in ("retransmissions", "trims", "marks", "timeouts"))],
    ]  # fmt: skip
    warning = ""
    if not verdict.valid:
        reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in verdict.reasons)
        warning = f"<div class=warn>The machine did not keep up; the figures are not valid:<ul>{reasons}</ul></div>"
    return warning + _table(["", ""], rows)


def _checks(verdict: Verdict) -> str:
    rows = [
        [html.escape(check.what), html.escape(check.expected), html.escape(check.measured), _mark(check.passed)]
        for check in verdict.checks
    ]
    return _table(["check", "expected", "measured", ""], rows)


def _performance(document: Mapping[str, Any]) -> list[str]:
    """What the workload measured, a table each under a head."""
    parts = []
    for table in performance.tables(document):
        parts.append(f"<h2>{html.escape(table.title.capitalize())}</h2>")
        parts.append(_table(table.heads, [[html.escape(cell) for cell in row] for row in table.rows]))
    return parts


def _steps(document: Mapping[str, Any]) -> list[str]:
    """How long each step of a training took; none of another workload."""
    rows = steps.steps_of(document)
    if not rows:
        return []
    times = [(each.end_ns - document["started_ns"]) / 1e9 for each in rows]
    line = _line("all steps", times, [each.seconds * 1e3 for each in rows], PALETTE[0])
    seen = [index for index, each in enumerate(rows) if each.broken][:POINTS]
    marks = {
        "type": "scatter", "name": "with something broken", "mode": "markers",
        "marker": {"color": PALETTE[3], "size": 6},
        "x": [round(times[index], 4) for index in seen], "y": [round(rows[index].seconds * 1e3, 4) for index in seen],
    }  # fmt: skip
    note = "<p class=note>From the end of a step at the last rank to that of the next one.</p>"
    return ["<h2>Time of each step</h2>", note, _plot("steps", [line, marks], document, "ms")]


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
    return _table(head, rows)


def figure(traces: Sequence[Any], document: Mapping[str, Any], unit: str) -> dict[str, Any]:
    """A plot over the seconds of a run, as Plotly takes it: written down and not made by Plotly's classes, whose checks
    of every value cost more than all the rest of a report."""
    lines, words = _marks(document)
    layout = {
        "shapes": lines,
        "annotations": words,
        "margin": {"l": 60, "r": 20, "t": 10, "b": 40},
        "xaxis": {"title": {"text": "s"}},
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        "template": _template(),
        "legend": {"orientation": "h", "y": 1.08},
        "hovermode": "x unified",
    }
    return {"data": list(traces), "layout": layout}


@cache
def _template() -> dict[str, Any]:
    """Colours and lines of all plots."""
    found: dict[str, Any] = plotly.io.templates["plotly_white"].to_plotly_json()
    return found


def _plot(name: str, traces: Sequence[Any], document: Mapping[str, Any], unit: str) -> str:
    made = figure(traces, document, unit)
    given = ", ".join(_script(each) for each in (name, made["data"], made["layout"], {"responsive": True}))
    return (
        f'<div id="{name}" class="plotly-graph-div" style="height:330px; width:100%;"></div>'
        f"<script>Plotly.newPlot({given});</script>"
    )


def _script(value: Any) -> str:
    """JSON that can stand in a script of a page, whatever texts are in it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("/", "\\u002f")


def _marks(document: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What was done to the fabric: lines across the plot at its times, and the words at them."""
    lines, words = [], []
    happenings = document["happenings"]
    for happening in happenings:
        at = (happening["done_ns"] - document["started_ns"]) / 1e9
        colour = "#b3261e" if happening["action"]["verb"] == "fail" else "#0a7a3d"
        stroke = {"dash": "dash", "width": 1, "color": colour}
        lines.append({"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "y domain", "line": stroke})
        text = {"text": happening["action"]["text"], "textangle": -90, "font": {"size": 10}, "showarrow": False}
        words.append({"x": at, "y": 1, "yref": "y domain", "xanchor": "left", "yanchor": "top", **text})
    return lines, words if len(happenings) <= LABELLED else []


def _line(name: str, x: Any, y: Any, colour: str, **more: Any) -> Any:
    x, y = analysis.thinned(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), POINTS)
    points = {"x": x.round(4).tolist(), "y": y.round(4).tolist()}
    line = {"color": colour, "width": 1.6}
    return {"type": "scatter", "name": name, "mode": "lines", "line": line, **points, **more}


def _goodput(document: Mapping[str, Any], edges: analysis.Curve) -> list[Any]:
    return [_line("all hosts", edges[:-1], analysis.goodput_bps(document, edges) / 1e6, PALETTE[0])]


def _planes(document: Mapping[str, Any], topology: Topology, edges: analysis.Curve) -> list[Any]:
    loads = analysis.plane_load_bps(document, edges, topology.lab.planes)
    return [
        _line(f"plane {plane}", edges[:-1], load / 1e6, PALETTE[plane % len(PALETTE)])
        for plane, load in enumerate(loads)
    ]


def _hosts_with(document: Mapping[str, Any], column: str) -> list[str]:
    """Hosts that have samples of this."""
    return [name for name in document["samples"] if column in analysis.samples_of(document, name).columns]


def _evs(document: Mapping[str, Any], edges: analysis.Curve) -> list[Any]:
    traces = []
    hosts = _hosts_with(document, "ev.GOOD")
    for state, colour in EV_COLOURS.items():
        counts = analysis.levels(document, hosts, "ev", state, edges)
        traces.append(_line(state, edges, counts, colour))
    return traces


def _queues(document: Mapping[str, Any], topology: Topology) -> list[Any]:
    plane_of = {switch.name: switch.plane for switch in topology.switches}
    fabric = analysis.fabric_of(document)
    (stamps,) = fabric.take([TIME])
    times = (stamps - document["started_ns"]) / 1e9
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
        _line(f"plane {plane}", times, depths[plane], PALETTE[plane % len(PALETTE)])
        for plane in range(topology.lab.planes)
    ]


def _stalls(document: Mapping[str, Any]) -> list[str]:
    """A chart for each reason for which a port that could send had to wait; none where no port had to."""
    parts = []
    for column, (head, note) in STALLS.items():
        ports = analysis.stalls(document, column)
        if not ports:
            continue
        shown = list(ports.items())[:STALLED_PORTS]
        lines = [
            _line(port, seconds, 100 * share, PALETTE[number % len(PALETTE)])
            for number, (port, (seconds, share)) in enumerate(shown)
        ]
        rest = f" Of {len(ports)} ports the {len(shown)} that stood longest." if len(ports) > len(shown) else ""
        parts += [f"<h2>{head}</h2>", f"<p class=note>{note}{rest}</p>", _plot(column, lines, document, "% of time")]
    return parts


def _levels(document: Mapping[str, Any], edges: analysis.Curve, key: str, scale: float) -> list[Any]:
    hosts = _hosts_with(document, f"cc.{key}")
    if not hosts:
        return []
    total = analysis.levels(document, hosts, "cc", key, edges)
    return [_line(key.removesuffix("_ns"), edges, total * scale / len(hosts), PALETTE[4])]


def _hosts(document: Mapping[str, Any]) -> str:
    rows = []
    for name in document["ranks"]:
        progress = document["progress"].get(name)
        samples = analysis.samples_of(document, name)
        if progress is None or not len(samples):
            rows.append([html.escape(name), "<span class=bad>no word</span>", "", "", "", ""])
            continue
        last = samples.last
        rows.append(
            [
                html.escape(name),
                str(progress["iterations"]),
                f"{progress['bytes_verified'] / 1e6:.1f} MB",
                f"{last['packets']}",
                f"{last['retransmissions']}",
                html.escape(progress["failure"]) or "-",
            ]
        )
    return _table(["host", "iterations", "verified", "packets sent", "retransmitted", "failure"], rows)


def _fidelity(document: Mapping[str, Any]) -> str:
    fidelity = document["fidelity"]
    if fidelity.get("simulated"):
        text = "Simulated time: the fabric's and the hosts' clocks wait for the machine, so nothing can be late."
        return f"<p>{text} {_software([fidelity])}</p>"
    rows = []
    fabric = fidelity.get("fabric", {})
    if fabric:
        loop = fabric["loop"]
        share = f"{fabric['cpu_share']:.0%}"
        rows.append(["fabric", *(f"{loop[key] / 1e6:.3f}" for key in ("p50_ns", "p99_ns", "max_ns")), share, ""])
    for name, host in fidelity.get("hosts", {}).items():
        lag = [f"{host['loop_lag'][key] / 1e6:.3f}" for key in ("p50_ns", "p99_ns", "max_ns")]
        others = [each for each in host.get("process", ()) if each != name]
        share = f"{host['cpu_share']:.0%}{', with ' * bool(others)}{', '.join(others)}"
        rows.append([html.escape(name), *lag, html.escape(share), str(host["rx_ring_drops"])])
    head = ["part", "loop late p50, ms", "p99, ms", "max, ms", "its process's CPU, cores", "frames lost by the host"]
    return f"{_table(head, rows)}<p>{_software(fidelity.get('hosts', {}).values())}</p>"


def _software(measured: Iterable[Mapping[str, Any]]) -> str:
    """How the protocol core ran in these processes."""
    found = {tuple(sorted(each["software"].items())) for each in measured if "software" in each}
    return "; ".join(f"Protocol core {dict(each)['core']}, CRC by {dict(each)['crc']}" for each in sorted(found))
