"""The report of a cluster's run: one HTML file that opens offline, with a map of the load of all links."""

from __future__ import annotations

import base64
import html
import importlib.resources
import json
import math
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from mrc_common import look
from mrc_scale.caveat import caveat
from mrc_scale.fabric import Floats
from mrc_scale.run import ClusterResult
from mrc_studies.calibration.made import Made
from mrc_topo.units import format_rate, format_time

COLOURS = ("--plane-0", "--plane-1", "--plane-2", "--plane-3", "--plane-4", "--plane-5", "--plane-6", "--plane-7")
#: Of a curve; more than a screen is wide would only make the file large.
POINTS = 1500
#: Of a load of 2 and more in a map; 255 is what is dead.
FULL, DEAD = 200, 255
WIDTH, HEIGHT, LEFT, TOP = 900, 230, 70, 12


def render(made: Made, series: Mapping[str, Floats]) -> str:
    """The report as HTML; `series` is that of the result."""
    result, cluster = made.result, made.result.loaded.cluster
    title = f"{cluster.name}: {cluster.description or 'a cluster'}"
    time = series["time_s"]
    states = {name: series[f"ev_{name}"] for name in ("active", "backup", "bad", "denied")}
    jobs = {job.name: series[f"step_s_{job.name}"] * 1e3 for job in cluster.jobs}
    lost = {"mean": series["lost_per_s_nic"], "worst NIC": series["lost_per_s_worst_nic"]}
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="warn">{html.escape(caveat())}</p>',
        _tiles(made, series),
        "<h2>Goodput</h2>",
        _chart(time, {"all NICs": series["goodput_bps"] / 1e12}, "Tb/s"),
        "<h2>Packets lost per second and NIC</h2>",
        "<p class=note>Data and probes. The worst NIC: only what its data lost when something failed.</p>",
        _chart(time, lost, "1/s"),
        "<h2>Load of links between T0 and T1</h2>",
        "<p class=note>Each point is a link: a column per T1, a row per T0; the fuller of its two directions.</p>",
        _maps(result),
        "<h2>Entropy values by state</h2>",
        _chart(time, {key: states[key] for key in ("bad", "denied")}, "EVs"),
        f"<p class=note>{states['active'][0]:,} active and {states['backup'][0]:,} in reserve at first.</p>",
        "<h2>Step times of jobs</h2>",
        _chart(time, jobs, "ms"),
        _jobs(made),
        "<h2>What happened</h2>",
        _steps(made),
        *_others(made),
        *_year(made),
    ]
    style = look.part("style.css")
    script = (importlib.resources.files("mrc_studies.calibration") / "map.js").read_text("utf-8")
    more = "body{max-width:76rem;margin:1.5rem auto;padding:0 1rem} svg{max-width:100%} svg text{font:11px system-ui} "
    more += "td:first-child{white-space:nowrap}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}{more}</style></head><body>{''.join(parts)}<script>{script}</script></body></html>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are text."""
    top = "".join(f"<th>{html.escape(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{top}</tr>{body}</table></div>"


def _tiles(made: Made, series: Mapping[str, Floats]) -> str:
    result, shape = made.result, made.result.loaded.shape
    goodput = series["goodput_bps"]
    tiles = [
        (f"{shape.nics:,}", "NICs"),
        (f"{shape.planes} × {shape.t0s} × {shape.t1s}", "planes, T0s and T1s of each"),
        (f"{shape.links:,}", "T0-T1 links"),
        (f"{len(result.flows):,}", "queue pairs sending"),
        (format_rate(round(float(goodput[0]))), "goodput at first"),
        (f"{goodput.min() / goodput[0]:.2%}" if goodput[0] else "-", "lowest, of that"),
        (f"{sum(step.lost for step in result.steps):,.0f}", "data packets lost"),
        (f"{made.seconds:.1f} s", "computed in"),
    ]
    inside = "".join(
        f"<div class=tile><b>{html.escape(b)}</b><span>{html.escape(text)}</span></div>" for b, text in tiles
    )
    return f"<div class=tiles>{inside}</div>"


def _jobs(made: Made) -> str:
    result = made.result
    rows = []
    for number, job in enumerate(result.loaded.cluster.jobs):
        mine = result.flows.job == number
        rates = result.rates[mine]
        slowest = max(step.jobs[number] for step in result.steps)
        rows.append(
            [
                job.name,
                job.kind,
                f"{int(mine.sum()):,}",
                format_rate(round(float(np.median(rates)))),
                format_rate(round(float(rates.min()))),
                f"{np.median(result.cwnd[mine]) / 1024:.0f} KiB",
                f"{result.steps[0].jobs[number] * 1e3:.3f} ms",
                "stands still" if np.isinf(slowest) else f"{slowest * 1e3:.3f} ms",
            ]
        )
    head = ["job", "kind", "queue pairs", "rate, median", "slowest", "window, median", "step at first", "slowest step"]
    return _table(head, rows)


def _steps(made: Made) -> str:
    cluster = made.result.loaded.cluster
    rows = []
    for step in made.result.steps:
        what = "; ".join(step.what[:4]) + (f"; and {len(step.what) - 4} more" if len(step.what) > 4 else "")
        rows.append(
            [
                f"{step.bin * cluster.bin / 1e9:.3g} s",
                what or ("start" if step.bin == 0 else "probes have succeeded"),
                format_rate(round(step.goodput)),
                f"{step.lost:,.0f}",
                f"{step.hit:,}",
                format_time(round(step.found_s * 1e9)) if step.found_s else "-",
                f"{step.evs['bad']:,}",
                f"{step.cut:,}",
            ]
        )
    head = ["at", "what", "goodput", "packets lost", "queue pairs that lost", "found after", "EVs out", "QPs cut off"]
    return _table(head, rows)


def _others(made: Made) -> list[str]:
    if not made.others:
        return []
    result = made.result
    worst = min(result.steps, key=lambda step: step.goodput)
    first = result.steps[0].goodput
    rows = [["MRC", format_rate(round(first)), format_rate(round(worst.goodput)), format_rate(round(worst.goodput)),
             "0", f"{worst.cut:,}", format_time(round(worst.found_s * 1e9))]]  # fmt: skip
    for each in made.others:
        rates = (format_rate(round(value)) for value in (each.before, each.during, each.after))
        rows.append([each.name, *rates, f"{each.stalled:,} of {each.of:,}", f"{each.broken:,}", f"{each.outage_s:g} s"])
    head = ["", "before", "until paths are changed", "after that", "QPs standing still", "QPs that break", "for"]
    at = f"{result.worst_bin * result.loaded.cluster.bin / 1e9:.3g} s"
    note = "A queue pair that breaks ends its job, if it is one of RoCE. The others' times are the file's (roce)."
    return [f"<h2>Others on the same failures, at {at}</h2>", _table(head, rows), f"<p class=note>{note}</p>"]


def _year(made: Made) -> list[str]:
    if not made.year:
        return []
    rows = [
        [
            each.name,
            f"{each.failures:,}",
            f"{each.interruptions:,}",
            f"{each.slower_h:.1f}",
            f"{each.stalled_h:.1f}",
            f"{each.restarts_h:.1f}",
            f"{each.lost_h:.1f}",
            f"{each.availability:.3%}",
        ]
        for each in made.year
    ]
    spec = made.result.loaded.cluster.year
    head = ["", "failures", "interruptions", "hours lost: slower", "standing still", "restarts", "all", "availability"]
    days = spec.days if spec else 0
    return [f"<h2>{days:g} days of failures</h2>", _table(head, rows), *_bills(made)]


def _bills(made: Made) -> list[str]:
    rows = [
        [
            design.name,
            f"{design.total_switches:,}",
            f"{design.optics:,}",
            f"{cost.switch_usd / 1e6:,.1f}",
            f"{cost.transceiver_usd / 1e6:,.1f}",
            f"{cost.kw / 1e3:,.2f}",
            f"{cost.electricity_usd / 1e6:,.1f}",
        ]
        for design, cost in made.bills
    ]
    head = ["", "switches", "transceivers", "switches, million USD", "transceivers", "power, MW", "electricity a year"]
    note = "As mrclab topo plan reckons it; inputs with sources: topologies/costs/default.yaml. Prices are assumptions."
    return [_table(head, rows), f"<p class=note>{note}</p>"] if rows else []


def _chart(x: Floats, curves: Mapping[str, Floats], unit: str) -> str:
    """Steps over time as SVG."""
    finite = [np.asarray(y, float)[np.isfinite(y)] for y in curves.values()]
    top = max((float(y.max(initial=0.0)) for y in finite), default=0.0) * 1.08 or 1.0
    span = float(x[-1] + (x[1] - x[0] if len(x) > 1 else 1.0))
    right, bottom = WIDTH - 10, HEIGHT - 26

    def place(t: float, value: float) -> str:
        return f"{LEFT + (right - LEFT) * t / span:.1f},{bottom - (bottom - TOP) * value / top:.1f}"

    lines = []
    for number, (name, values) in enumerate(curves.items()):
        y = np.nan_to_num(np.asarray(values, float), posinf=top, nan=0.0)
        # Only where something changes: what is between stays.
        keep = np.flatnonzero(np.concatenate([[True], y[1:] != y[:-1]]))
        if len(keep) > POINTS:
            keep = keep[np.linspace(0, len(keep) - 1, POINTS).astype(int)]
        points = []
        for place_of, at in enumerate(keep):
            until = float(x[keep[place_of + 1]]) if place_of + 1 < len(keep) else span
            points += [place(float(x[at]), y[at]), place(until, y[at])]
        colour = COLOURS[number % len(COLOURS)]
        lines.append(
            f'<polyline fill="none" stroke="var({colour})" stroke-width="1.6" points="{" ".join(points)}">'
            f"<title>{html.escape(name)}</title></polyline>"
            f'<text x="{LEFT + 8 + 150 * number}" y="{TOP + 4}" fill="var({colour})">{html.escape(name)}</text>'
        )
    ticks = []
    for value in _round_numbers(top):
        down = bottom - (bottom - TOP) * value / top
        ticks.append(f'<line x1="{LEFT}" x2="{right}" y1="{down:.1f}" y2="{down:.1f}" stroke="var(--line)"/>')
        ticks.append(
            f'<text x="{LEFT - 6}" y="{down + 4:.1f}" text-anchor="end" fill="var(--muted)">{value:.4g}</text>'
        )
    for t in _round_numbers(span):
        across = LEFT + (right - LEFT) * t / span
        ticks.append(
            f'<text x="{across:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="var(--muted)">{t:.4g} s</text>'
        )
    unit_text = f'<text x="4" y="{TOP + 4}" fill="var(--muted)">{html.escape(unit)}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(ticks)}{unit_text}{"".join(lines)}</svg>'


def _round_numbers(top: float) -> list[float]:
    """About four from 0 to `top`: multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(top / 4))
    step = next(each * power for each in (1, 2, 5, 10) if top / (each * power) <= 5)
    return [number * step for number in range(math.floor(top / step + 1e-9) + 1)]


def _maps(result: ClusterResult) -> str:
    """Loads of all links in a byte each, of which the script draws one plane at a time."""
    planes, t0s, t1s = result.dead_links.shape
    at = f"{result.worst_bin * result.loaded.cluster.bin / 1e9:.3g} s"
    maps = []
    for name, loads, dead in (
        ("at first", result.first, None),
        (f"with most broken, {at}", result.worst, result.dead_links),
    ):
        value = np.clip(np.maximum(loads.up, loads.dn) * (FULL / 2), 0, FULL).astype(np.uint8)
        if dead is not None:
            value[dead] = DEAD
        packed = base64.b64encode(zlib.compress(value.tobytes(), 6)).decode()
        maps.append({"name": name, "data": packed})
    text = json.dumps({"planes": planes, "t0s": t0s, "t1s": t1s, "maps": maps}).replace("<", "\\u003c")
    return (
        '<p><label>when <select id="when"></select></label> <label>plane <select id="plane"></select></label> '
        '<span id="told" class="note figure"></span></p>'
        '<canvas id="map" style="width:100%;max-width:72rem;image-rendering:pixelated;border:1px solid var(--line)">'
        "</canvas>"
        f'<p class="note">Load of the rate: 0 % light, 100 % dark; what is dead: orange.</p>'
        f'<script type="application/json" id="maps">{text}</script>'
    )
