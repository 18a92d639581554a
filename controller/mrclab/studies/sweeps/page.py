"""The report of a sweep: one HTML file that opens offline, the same bytes for the same rows.

Each dot of its charts leads to the run that it is of, with its seed."""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Sequence

from markupsafe import Markup

from mrc_topo.base.files import write_whole
from mrclab.studies.cells import pages
from mrclab.studies.sweeps import curves, differences, store
from mrclab.studies.sweeps.curves import Chart
from mrclab.studies.sweeps.differences import PairedDifference
from mrclab.studies.sweeps.measure import Row, RunStatus
from mrclab.studies.sweeps.plan import SweepPlan

PAGE = "index.html"
#: Of larger sweeps the page lists those runs only that are not good, and draws means alone; sweep.csv has all.
MOST_RUNS = 2000
SIZE = (7.0, 3.6)

STYLE = """
svg { width: 100%; max-width: 46rem; height: auto } table, code { font-size: 13px }
tr:target { background: var(--warn-paper) }
"""
#: Of the look's series (Okabe and Ito's), with dashes and marks from the ninth on.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8a5a00", "#4b4bb8", "#7f7f7f")
DASHES, MARKS = ("-", "--", ":", "-."), "osv^D*Px"


def write(folder: pathlib.Path, plan: SweepPlan, rows: Sequence[Row]) -> pathlib.Path:
    """Write the page from the dataset's rows, and the file of paired differences if there are any.

    Raises:
        WriteError: one could not be written.
    """
    found = differences.differences(plan, rows)
    if found:
        write_whole(folder / differences.FILE, differences.csv(found))
    write_whole(folder / PAGE, render(plan, rows, found))
    return folder / PAGE


def render(plan: SweepPlan, rows: Sequence[Row], found: Sequence[PairedDifference]) -> str:
    """Return the page; `found`: the paired differences of the rows."""
    sweep = plan.source.sweep
    made = curves.charts(plan, rows)
    runs = {str(row["run"]): row for row in rows}
    all_listed = len(runs) <= MOST_RUNS
    seeds = f"seeds 1 to {sweep.seeds}" if isinstance(sweep.seeds, int) else f"seeds {', '.join(map(str, sweep.seeds))}"
    repeated = f", {sweep.repetitions} repetitions" if sweep.repetitions > 1 else ""
    draw = _svg if importlib.util.find_spec("matplotlib") is not None else lambda *_: ""
    return pages.render(
        "sweep.html",
        f"mrclab sweep: {sweep.title}",
        STYLE,
        sweep=sweep,
        counts=f"{len(runs)} runs, {seeds}{repeated}",
        bad=sum(row["status"] != RunStatus.GOOD for row in runs.values()),
        missing=len(plan.runs) - len(runs),
        verb="run" if plan.base.kind == "experiment" else "compare",
        charts=[(chart, Markup(draw(number, chart, all_listed))) for number, chart in enumerate(made)],
        differences=found,
        heads=_heads(plan, made),
        all_listed=all_listed,
        listed=_labelled(plan, rows if all_listed else [row for row in rows if row["status"] != RunStatus.GOOD]),
        short=store.SHORT,
        software=plan.software,
    )


def _labelled(plan: SweepPlan, rows: Sequence[Row]) -> list[Row]:
    """Return rows with short labels in place of JSON texts, which are in sweep.csv."""
    short = curves.labels_of(plan)
    return [{key: short.get((key, value), value) for key, value in row.items()} for row in rows]


def _heads(plan: SweepPlan, charts: Sequence[Chart]) -> list[str]:
    """Return the columns of the list of runs."""
    sweep = plan.source.sweep
    # The name of a case describes its settings.
    in_cases = {key for case in sweep.cases for key in case}
    heads = [*(["case"] if sweep.cases else []), *(key for key in plan.keys if key not in in_cases), "seed"]
    heads += ["repetition"] if sweep.repetitions > 1 else []
    heads += ["variant", "condition"] if plan.base.kind == "comparison" else []
    return heads + list(dict.fromkeys(chart.y for chart in charts))


def _svg(number: int, chart: Chart, dots: bool) -> str:
    """Return a chart as SVG to stand in a page; the same bytes for the same numbers, with the same matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = {"svg.hashsalt": f"mrclab-{number}", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        drawn, plot = pyplot.subplots(figsize=SIZE, layout="constrained")
        places: dict[str, float] = {}
        for at, (name, curve) in enumerate(chart.curves.items()):
            known = [spot for spot in curve if spot.mean is not None]
            xs = [spot.number or 0.0 for spot in known]
            if not chart.numeric:
                # Beside each other, where an interval would hide another.
                aside = 0.08 * (at - (len(chart.curves) - 1) / 2)
                xs = [places.setdefault(str(spot.x), float(len(places))) + aside for spot in known]
            style = {
                "color": COLOURS[at % 8],
                "linestyle": DASHES[at // 8 % 4],
                "marker": MARKS[at % 8],
                "linewidth": 1.2,
            }
            halves = [spot.half or 0.0 for spot in known]
            means = [spot.mean for spot in known]
            bars = plot.errorbar(xs, means, yerr=halves, label=name, markersize=3, capsize=3, **style)
            if dots:
                points = [(x, value, run) for x, spot in zip(xs, known, strict=True) for value, run in spot.runs]
                if points:
                    where_x, where_y, runs = zip(*points, strict=True)
                    spots = plot.scatter(where_x, where_y, s=6, alpha=0.5, color=bars.lines[0].get_color())
                    spots.set_urls([f"#{run}" for run in runs])
        if not chart.numeric:
            plot.set_xticks(range(len(places)), list(places))
        elif chart.scale == "log":
            plot.set_xscale("log", base=2)
            ticks = sorted({spot.number or 0.0 for curve in chart.curves.values() for spot in curve})
            if len(ticks) <= 12:
                plot.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                plot.minorticks_off()
        if all(spot.mean is None or spot.mean >= 0 for curve in chart.curves.values() for spot in curve):
            plot.set_ylim(bottom=0)
        plot.set_xlabel(chart.x)
        plot.set_ylabel(chart.y)
        plot.grid(alpha=0.3)
        if any(chart.curves):
            plot.legend(fontsize=8)
        text = pages.svg_of(drawn)
        pyplot.close(drawn)
    return text
