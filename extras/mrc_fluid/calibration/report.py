"""The report of a cluster's run: one HTML file that opens offline, with a map of the load of all links."""

from __future__ import annotations

import base64
import importlib.resources
import math
import zlib
from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from mrc_fluid import limits
from mrc_fluid.calibration.calibration_run import CalibrationRun
from mrc_fluid.cases import COMPARED, Modelled, not_modelled, own_errors, streaming
from mrc_fluid.causes import cause
from mrc_fluid.caveat import NATURE
from mrc_fluid.effective import INTERVALS, EffectiveTime
from mrc_fluid.fabric import Bools, FabricShape, Floats
from mrc_fluid.run import ClusterResult
from mrc_topo.base import look
from mrc_topo.units import Unit, format_rate, format_time, shown
from mrclab.pages import chart
from mrclab.pages.chart import Axis, Chart, Line, Mark, Series, style
from mrclab.studies.cells import pages

#: Failures that charts mark; what follows them is in the table.
MARKED = 200
#: What stands for a number that is not told (`cases.not_modelled`).
NOT_MODELLED = "not modelled"
#: Of a load of 2 and more in a map; 255 is what is dead.
FULL, DEAD = 200, 255


def render(made: CalibrationRun, series: Mapping[str, Floats]) -> str:
    """Return the report as HTML; `series` is that of the result."""
    result, cluster = made.result, made.result.loaded.cluster
    unknown = not_modelled(result.loaded)
    script = (importlib.resources.files("mrc_fluid.calibration") / "map.js").read_text("utf-8")
    body = pages.fill(
        "scale.html",
        title=f"{cluster.name}: {cluster.description or 'a cluster'}",
        caveat=NATURE,
        own=[each.cells for each in own_errors(result.loaded)],
        compared=COMPARED,
        unknown=unknown,
        streams=streaming(result.loaded),
        page=limits.PAGE,
        limits=limits.note(result.loaded),
        tiles=_tiles(made, series, unknown),
        charts=[chart.html(each) for each in charts_of(made, series, unknown)],
        maps=Markup(_maps(result)),
        active=series["ev_active"][0],
        backup=series["ev_backup"][0],
        jobs=_jobs(made, unknown),
        steps=_steps(made, unknown),
        others=_others(made, unknown),
        worst=_worst(result),
        year=_year(made),
        causes=causes_of(made),
        effective=effective_rows(made),
        intervals=[f"{minutes:g} min" for minutes in INTERVALS],
        days=cluster.year.days if cluster.year else 0,
        bills=_bills(made),
    )
    return chart.page(f"{cluster.name}: a cluster in a flow model", body, code=script)


def marks_of(made: CalibrationRun) -> list[Mark]:
    """Return the failures of a run: one mark for all of a bin, from its begin, until the last of them is repaired."""
    cluster = made.result.loaded.cluster
    end = cluster.duration / 1e9
    failed: dict[int, dict[tuple[str, int | None], float]] = {}
    texts: dict[int, list[str]] = {}
    for each in sorted(made.result.loaded.events, key=lambda event: event.at):
        key, at = (each.name, each.lanes), each.at // cluster.bin * cluster.bin
        if each.by > 0:
            failed.setdefault(at, {})[key] = end
            texts.setdefault(at, []).append(each.what.removeprefix("fails: "))
        else:
            for same in failed.values():
                if same.get(key) == end:
                    same[key] = at / 1e9
    more = {at: f" and {len(found) - 1} more" if len(found) > 1 else "" for at, found in texts.items()}
    return [Mark(at / 1e9, texts[at][0] + more[at], True, max(same.values())) for at, same in failed.items()][:MARKED]


def charts_of(made: CalibrationRun, series: Mapping[str, Floats], unknown: Mapping[Modelled, str]) -> list[Chart]:
    """Return the charts of a run; what is not modelled ends with the first failure."""
    time, cluster = series["time_s"], made.result.loaded.cluster
    marks, seconds = marks_of(made), Axis("time", "s", span=(0.0, cluster.duration / 1e9))
    before = time < min((each.at for each in marks), default=np.inf)

    def lines(curves: Mapping[str, Floats], of: Modelled | None = None) -> list[Series]:
        kept = before if of in unknown else np.ones(len(time), bool)
        found = []
        for number, (name, values) in enumerate(curves.items()):
            y = np.where(kept & np.isfinite(values), values, np.nan)
            # Points are only needed where the curve changes, and at its end.
            at = np.flatnonzero(np.concatenate([[True], (y[1:] != y[:-1]) & ~(np.isnan(y[1:]) & np.isnan(y[:-1]))]))
            # What ends without a value lasts until then.
            at = np.unique([*at, *np.maximum(at[np.isnan(y[at])] - 1, 0), len(time) - 1])
            found.append(Series(name, time[at], y[at], *style(number), Line.STEPS))
        return found

    def about(of: Modelled, text: str) -> str:
        return f"{text} From the first failure on it is {NOT_MODELLED}: {unknown[of]}." if of in unknown else text

    goodput = series["goodput_bps"]
    first = format_rate(float(goodput[0]))
    share = "" if not goodput[0] else shown(float(goodput.min() / goodput[0]), Unit.SHARE)
    fell = f"Goodput was {first} at first" + (
        "" if Modelled.GOODPUT in unknown else f", and {share} of that at the lowest"
    )
    grid = f"In bins of {shown(cluster.bin / 1e9, Unit.TIME)}; a failure is drawn where its bin begins."
    grid += " After a repair entropy values return as reserve, so that links that were away carry less than before."
    worst = series["lost_per_s_worst_nic"]
    packets = (
        f"{sum(step.lost for step in made.result.steps):,.0f} data packets were lost, at most "
        f"{shown(float(worst.max()))} a second at one NIC"
    )
    out, every = series["ev_bad"] + series["ev_denied"], series["ev_active"][0] + series["ev_backup"][0]
    evs = f"At most {float(out.max()):,.0f} of {every:,.0f} entropy values were out of use"
    states = {"assumed bad": series["ev_bad"], "denied": series["ev_denied"]}
    steps = {job.name: series[f"step_s_{job.name}"] for job in cluster.jobs}
    slowest = max((float(each[np.isfinite(each)].max(initial=0.0)) for each in steps.values()), default=0.0)
    took = "Time of a step" if Modelled.STEPS in unknown else f"The slowest step took {shown(slowest, Unit.TIME)}"
    said = "A gap: the job stands still." if any(np.isinf(each).any() for each in steps.values()) else ""
    note = (
        "The worst NIC: only what its data lost when something failed. Below: probes, by which entropy values that are "
        "out of use are tested."
    )
    bad = (
        "Over all queue pairs. Assumed bad: not used until probes succeed; denied: on the denylist, not used any more."
    )
    data = {"mean of all NICs": series["lost_per_s_nic"], "worst NIC": worst}
    probes = lines({"mean of all NICs": series["probes_lost_per_s_nic"]})
    below = Chart("", "", seconds, Axis("probes lost per NIC", "packets/s"), probes, group="run")
    rate, step = Axis("goodput of all NICs", Unit.RATE), Axis("time of a step", Unit.TIME)
    of_goodput, of_steps = lines({"all NICs": goodput}, Modelled.GOODPUT), lines(steps, Modelled.STEPS)
    return [
        Chart(name, title, seconds, axis, found, text, marks, group="run", below=below if name == "lost" else None)
        for name, title, axis, found, text in (
            ("goodput", fell, rate, of_goodput, about(Modelled.GOODPUT, grid)),
            ("lost", packets, Axis("data packets lost per NIC", "packets/s"), lines(data), note),
            ("evs", evs, Axis("entropy values (EVs)"), lines(states), bad),
            ("jobs", took, step, of_steps, about(Modelled.STEPS, said)),
        )
    ]


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


def rate_after(bps: float, unknown: Mapping[Modelled, str]) -> str:
    """Return the goodput after a failure as text, where it is modelled."""
    return NOT_MODELLED if Modelled.GOODPUT in unknown else _rate(bps)


def _tiles(
    made: CalibrationRun, series: Mapping[str, Floats], unknown: Mapping[Modelled, str]
) -> list[tuple[str, str]]:
    result, shape = made.result, made.result.loaded.shape
    goodput = series["goodput_bps"]
    lowest = shown(float(goodput.min() / goodput[0]), Unit.SHARE) if goodput[0] else "-"
    if Modelled.GOODPUT in unknown:
        lowest = NOT_MODELLED
    return [
        (f"{shape.nics:,}", "NICs"),
        *_fabric(shape),
        (f"{len(result.flows):,}", "queue pairs sending"),
        (_rate(goodput[0]), "goodput at first"),
        (lowest, "of that at the lowest"),
        (f"{sum(step.lost for step in result.steps):,.0f}", "data packets lost"),
        (f"{made.seconds:.1f} s", "time that this took to compute"),
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


def _jobs(made: CalibrationRun, unknown: Mapping[Modelled, str]) -> list[list[str]]:
    result = made.result
    rows = []
    for number, job in enumerate(result.loaded.cluster.jobs):
        mine = result.flows.job == number
        rates = result.rates[mine]
        slowest = max(step.jobs[number] for step in result.steps)
        rows.append(
            [
                job.name,
                job.kind.replace("_", " "),
                f"{int(mine.sum()):,}",
                _rate(np.median(rates)),
                _rate(rates.min()),
                f"{np.median(result.cwnd[mine]) / 1024:.0f} KiB",
                shown(result.steps[0].jobs[number], Unit.TIME),
                NOT_MODELLED
                if Modelled.STEPS in unknown
                else "stands still"
                if np.isinf(slowest)
                else shown(slowest, Unit.TIME),
            ]
        )
    return rows


def _steps(made: CalibrationRun, unknown: Mapping[Modelled, str]) -> list[list[str]]:
    cluster = made.result.loaded.cluster
    rows = []
    numbers: dict[int, list[str]] = {}
    for number, each in enumerate(marks_of(made), 1):
        numbers.setdefault(round(each.at * 1e9 / cluster.bin), []).append(str(number))
        numbers.setdefault(round((each.until or 0.0) * 1e9 / cluster.bin), []).append(f"✓{number}")
    for step in made.result.steps:
        happened: dict[str, list[str]] = {}
        for way, _, name in (each.partition(": ") for each in step.what):
            happened.setdefault(way, []).append(name)
        what = "; ".join(
            f"{way}: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
            for way, names in happened.items()
        )
        rows.append(
            [
                " ".join(numbers.get(step.bin, ())),
                f"{step.bin * cluster.bin / 1e9:.3g} s",
                what or ("start" if step.bin == 0 else "probes have succeeded"),
                _rate(step.goodput) if step is made.result.steps[0] else rate_after(step.goodput, unknown),
                f"{step.lost:,.0f}",
                f"{step.probes:,.0f}",
                f"{step.hit:,}",
                format_time(round(step.found_s * 1e9)) if step.found_s else "-",
                f"{step.evs['bad']:,}",
                f"{step.cut:,}",
            ]
        )
    return rows


def _others(made: CalibrationRun, unknown: Mapping[Modelled, str]) -> list[list[str]]:
    if not made.others:
        return []
    result = made.result
    worst = min(result.steps, key=lambda step: step.goodput)
    rates = (result.steps[0].goodput, worst.goodput, worst.goodput)
    found = format_time(round(worst.found_s * 1e9))
    rows = [["MRC", _rate(rates[0]), *(rate_after(each, unknown) for each in rates[1:]), "0", f"{worst.cut:,}", found]]
    for each in made.others:
        rates = (each.before, each.during, each.after)
        still = f"{each.stalled:,} of {each.of:,}"
        rows.append([each.name, *map(_rate, rates), still, f"{each.broken:,}", shown(each.outage_s, Unit.TIME)])
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
