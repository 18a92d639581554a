"""The report of a cluster's run: one HTML file that opens offline, with a map of the load of all links."""

from __future__ import annotations

import base64
import html
import importlib.resources
import math
import zlib
from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from mrc_fluid import limits
from mrc_fluid.calibration.calibration_run import CalibrationRun
from mrc_fluid.cases import own_errors
from mrc_fluid.causes import cause
from mrc_fluid.caveat import NATURE
from mrc_fluid.effective import INTERVALS, EffectiveTime
from mrc_fluid.fabric import Bools, FabricShape, Floats
from mrc_fluid.run import ClusterResult
from mrc_topo.base import look
from mrc_topo.units import format_rate, format_time
from mrclab.studies.cells import pages

COLOURS = ("--plane-0", "--plane-1", "--plane-2", "--plane-3", "--plane-4", "--plane-5", "--plane-6", "--plane-7")
#: Of a curve; more than a screen is wide would only make the file large.
POINTS = 1500
#: Of a load of 2 and more in a map; 255 is what is dead.
FULL, DEAD = 200, 255
WIDTH, HEIGHT, LEFT, TOP = 900, 230, 70, 12


def render(made: CalibrationRun, series: Mapping[str, Floats]) -> str:
    """Return the report as HTML; `series` is that of the result."""
    result, cluster = made.result, made.result.loaded.cluster
    time = series["time_s"]
    states = {name: series[f"ev_{name}"] for name in ("active", "backup", "bad", "denied")}
    steps = {job.name: series[f"step_s_{job.name}"] * 1e3 for job in cluster.jobs}
    lost = {"data, mean": series["lost_per_s_nic"], "data, worst NIC": series["lost_per_s_worst_nic"]}
    lost["probes, mean"] = series["probes_lost_per_s_nic"]
    charts = {
        "goodput": _chart(time, {"all NICs": series["goodput_bps"] / 1e12}, "Tb/s"),
        "lost": _chart(time, lost, "1/s"),
        "evs": _chart(time, {key: states[key] for key in ("bad", "denied")}, "EVs"),
        "jobs": _chart(time, steps, "ms"),
    }
    script = (importlib.resources.files("mrc_fluid.calibration") / "map.js").read_text("utf-8")
    return pages.fill(
        "scale.html",
        title=f"{cluster.name}: {cluster.description or 'a cluster'}",
        style=Markup(look.part(look.STYLE)),
        script=Markup(script),
        caveat=NATURE,
        own=[each.text for each in own_errors(result.loaded)],
        page=limits.PAGE,
        limits=limits.note(result.loaded),
        tiles=_tiles(made, series),
        charts={name: Markup(chart) for name, chart in charts.items()},
        maps=Markup(_maps(result)),
        active=states["active"][0],
        backup=states["backup"][0],
        jobs=_jobs(made),
        steps=_steps(made),
        others=_others(made),
        worst=_worst(result),
        year=_year(made),
        causes=causes_of(made),
        effective=effective_rows(made),
        intervals=[f"{minutes:g} min" for minutes in INTERVALS],
        days=cluster.year.days if cluster.year else 0,
        bills=_bills(made),
    )


def _worst(result: ClusterResult) -> str:
    """Return when most was broken."""
    return f"{result.worst_bin * result.loaded.cluster.bin / 1e9:.3g} s"


def fullest(result: ClusterResult) -> str:
    """Return which T0-T1 link carries most, at first and when most is broken."""
    shape, told = result.loaded.shape, []
    for when, loads in (("at first", result.first), (f"with most broken, at {_worst(result)}", result.worst)):
        value = np.maximum(loads.up, loads.dn).reshape(shape.planes, shape.t0s, -1)
        plane, t0, own = (int(each) for each in np.unravel_index(int(value.argmax()), value.shape))
        if not value.max():
            return "no stream crosses a link between switches"
        t1 = t0 // (shape.t0_per_pod or shape.t0s) * value.shape[2] + own
        told.append(f"p{plane}-t0.{t0}--p{plane}-t1.{t1}, {value.max():.0%} {when}")
    return f"fullest T0-T1 link: {'; '.join(told)}"


def _rate(bps: float) -> str:
    return format_rate(float(bps))


def _tiles(made: CalibrationRun, series: Mapping[str, Floats]) -> list[tuple[str, str]]:
    result, shape = made.result, made.result.loaded.shape
    goodput = series["goodput_bps"]
    return [
        (f"{shape.nics:,}", "NICs"),
        *_fabric(shape),
        (f"{len(result.flows):,}", "queue pairs sending"),
        (_rate(goodput[0]), "goodput at first"),
        (f"{goodput.min() / goodput[0]:.2%}" if goodput[0] else "-", "lowest, of that"),
        (f"{sum(step.lost for step in result.steps):,.0f}", "data packets lost"),
        (f"{made.seconds:.1f} s", "computed in"),
    ]


def _fabric(shape: FabricShape) -> list[tuple[str, str]]:
    if not shape.uplinks:
        sizes = (f"{shape.planes} × {shape.t0s} × {shape.t1s}", "planes, T0s and T1s of each")
        return [sizes, (f"{shape.links:,}", "T0-T1 links")]
    sizes = (f"{shape.planes} × {shape.t0s} × {shape.all_t1s} × {shape.t2s}", "planes, T0s, T1s and T2s of each")
    return [
        sizes,
        (f"{shape.pods}", "pods"),
        (f"{shape.links:,}", "T0-T1 links"),
        (f"{shape.upper_links:,}", "T1-T2 links"),
    ]


def _jobs(made: CalibrationRun) -> list[list[str]]:
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
                _rate(np.median(rates)),
                _rate(rates.min()),
                f"{np.median(result.cwnd[mine]) / 1024:.0f} KiB",
                f"{result.steps[0].jobs[number] * 1e3:.3f} ms",
                "stands still" if np.isinf(slowest) else f"{slowest * 1e3:.3f} ms",
            ]
        )
    return rows


def _steps(made: CalibrationRun) -> list[list[str]]:
    cluster = made.result.loaded.cluster
    rows = []
    for step in made.result.steps:
        what = "; ".join(step.what[:4]) + (f"; and {len(step.what) - 4} more" if len(step.what) > 4 else "")
        rows.append(
            [
                f"{step.bin * cluster.bin / 1e9:.3g} s",
                what or ("start" if step.bin == 0 else "probes have succeeded"),
                _rate(step.goodput),
                f"{step.lost:,.0f}",
                f"{step.probes:,.0f}",
                f"{step.hit:,}",
                format_time(round(step.found_s * 1e9)) if step.found_s else "-",
                f"{step.evs['bad']:,}",
                f"{step.cut:,}",
            ]
        )
    return rows


def _others(made: CalibrationRun) -> list[list[str]]:
    if not made.others:
        return []
    result = made.result
    worst = min(result.steps, key=lambda step: step.goodput)
    rates = (result.steps[0].goodput, worst.goodput, worst.goodput)
    found = format_time(round(worst.found_s * 1e9))
    rows = [["MRC", *map(_rate, rates), "0", f"{worst.cut:,}", found]]
    for each in made.others:
        rates = (each.before, each.during, each.after)
        still = f"{each.stalled:,} of {each.of:,}"
        rows.append([each.name, *map(_rate, rates), still, f"{each.broken:,}", f"{each.outage_s:g} s"])
    return rows


def _year(made: CalibrationRun) -> list[list[str]]:
    return [
        [
            each.name,
            *(f"{count:,}" for count in (each.failures, each.interruptions)),
            *(f"{hours:.1f}" for hours in (each.slower_h, each.stalled_h, each.restarts_h, each.lost_h)),
            f"{each.availability:.3%}",
        ]
        for each in made.year
    ]


def causes_of(made: CalibrationRun) -> list[tuple[str, str]]:
    """Return the name of each design and why it loses what it loses in the file's year."""
    cluster = made.result.loaded.cluster
    if cluster.year is None:
        return []
    return [(each.name, cause(each, cluster, cluster.year)) for each in made.year]


def effective_rows(made: CalibrationRun) -> list[list[str]]:
    """Return a row per design and failure rates: interruptions, the share for each interval, the best interval."""
    groups: dict[tuple[str, float], list[EffectiveTime]] = {}
    for each in made.effective:
        groups.setdefault((each.name, each.rates), []).append(each)
    return [
        [
            name,
            f"{rates:g}",
            f"{row[0].interruptions:,}",
            *(f"{each.share:.2%}" for each in row),
            f"{row[0].best_minutes:.0f} min" if math.isfinite(row[0].best_minutes) else "none is needed",
        ]
        for (name, rates), row in groups.items()
    ]


def _bills(made: CalibrationRun) -> list[list[str]]:
    return [
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


def _chart(x: Floats, curves: Mapping[str, Floats], unit: str) -> str:
    """Return the steps over time as SVG."""
    finite = [np.asarray(y, float)[np.isfinite(y)] for y in curves.values()]
    top = max((float(y.max(initial=0.0)) for y in finite), default=0.0) * 1.08 or 1.0
    span = float(x[-1] + (x[1] - x[0] if len(x) > 1 else 1.0))
    right, bottom = WIDTH - 10, HEIGHT - 26

    def place(t: float, value: float) -> str:
        return f"{LEFT + (right - LEFT) * t / span:.1f},{bottom - (bottom - TOP) * value / top:.1f}"

    lines = []
    for number, (name, values) in enumerate(curves.items()):
        y = np.nan_to_num(np.asarray(values, float), posinf=top, nan=0.0)
        # Points are only needed where the curve changes.
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
            f'<text x="{LEFT - 6}" y="{down + 4:.1f}" text-anchor="end" fill="var(--muted)">{value:,.6g}</text>'
        )
    for t in _round_numbers(span):
        # The last one would stand over the edge.
        across = min(LEFT + (right - LEFT) * t / span, right - 12)
        ticks.append(
            f'<text x="{across:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="var(--muted)">{t:.4g} s</text>'
        )
    unit_text = f'<text x="{right}" y="{TOP + 4}" text-anchor="end" fill="var(--muted)">{html.escape(unit)}</text>'
    label = html.escape(f"{', '.join(curves)} in {unit} over time")
    box = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
    return f"{box}{''.join(ticks)}{unit_text}{''.join(lines)}</svg>"


def _round_numbers(top: float) -> list[float]:
    """Return about four numbers from 0 to `top`: multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(top / 4))
    step = next(each * power for each in (1, 2, 5, 10) if top / (each * power) <= 5)
    return [number * step for number in range(math.floor(top / step + 1e-9) + 1)]


def _maps(result: ClusterResult) -> str:
    """Return the loads of all links, a byte each, of which the script draws one plane at a time."""
    shape = result.loaded.shape
    maps = []
    for name, loads, dead in (
        ("at first", result.first, None),
        (f"with most broken, {_worst(result)}", result.worst, (result.dead_links, result.dead_upper)),
    ):
        tiers = [_bytes(loads.up, loads.dn, None if dead is None else dead[0])]
        if shape.uplinks:
            tiers.append(_bytes(loads.upper_up, loads.upper_dn, None if dead is None else dead[1]))
        maps.append({"name": name, "data": tiers})
    sizes = {"planes": shape.planes, "t0s": shape.t0s, "t1s": shape.t1s, "podT0s": shape.t0_per_pod or shape.t0s}
    sizes |= {"pods": shape.pods, "uplinks": shape.uplinks, "parallel": shape.parallel}
    return look.data("maps", {**sizes, "maps": maps})


def _bytes(up: Floats, down: Floats, dead: Bools | None) -> str:
    """Return the fuller direction of each link, packed."""
    value = np.clip(np.maximum(up, down) * (FULL / 2), 0, FULL).astype(np.uint8)
    if dead is not None:
        value[dead] = DEAD
    return base64.b64encode(zlib.compress(value.tobytes(), 6)).decode()
