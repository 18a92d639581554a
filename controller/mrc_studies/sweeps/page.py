"""The report of a sweep: one HTML file that opens offline, the same bytes for the same rows.

Each dot of its charts leads to the run that it is of, with its seed."""

from __future__ import annotations

import html
import importlib.util
import io
import pathlib
import re
from collections.abc import Sequence

from mrc_common import look
from mrc_common.files import write_whole
from mrc_studies.sweeps import curves, store
from mrc_studies.sweeps.curves import Chart
from mrc_studies.sweeps.measure import Row, Status
from mrc_studies.sweeps.plan import SweepPlan

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
    """Writes the page from the dataset's rows.

    Raises:
        WriteError: it could not be written.
    """
    write_whole(folder / PAGE, render(plan, rows))
    return folder / PAGE


def render(plan: SweepPlan, rows: Sequence[Row]) -> str:
    """The page."""
    sweep = plan.source.sweep
    made = curves.charts(plan, rows)
    runs = {str(row["run"]): row for row in rows}
    bad = [row for row in runs.values() if row["status"] != Status.GOOD]
    all_listed = len(runs) <= MOST_RUNS
    parts = [_chart(number, chart, all_listed) for number, chart in enumerate(made)]
    seeds = f"seeds 1 to {sweep.seeds}" if isinstance(sweep.seeds, int) else f"seeds {', '.join(map(str, sweep.seeds))}"
    missing = len(plan.runs) - len(runs)
    counts = f"{len(runs)} runs, {seeds}" + (f", {sweep.repetitions} repetitions" if sweep.repetitions > 1 else "")
    told = f'<p class="bad">{missing} runs are not done yet.</p>' if missing else ""
    listed = rows if all_listed else [row for row in rows if row["status"] != Status.GOOD]
    head = "The runs" if all_listed else "The runs that are not good (sweep.csv has all)"
    verb = "run" if plan.base.kind == "experiment" else "compare"
    body = (
        f"<h1>{_text(sweep.title)}</h1>\n<p>{_text(counts)}; {len(bad)} of them not good. Means over seeds with their "
        "95 % confidence intervals (Student's t); a dot is one run and leads to it. A run by itself, in this folder: "
        f"<code>mrclab sweep repeat . RUN</code>, with <code>-o DIR</code> its files for <code>mrclab {verb}</code>."
        f"</p>{told}\n{''.join(parts)}<h2>{head}</h2>\n{_runs(plan, listed, made)}"
        f"<p>Sources of mrclab: <code>{_text(plan.software[:16])}</code></p>\n"
    )
    return look.page(f"mrclab sweep: {sweep.title}", body, rules=STYLE)


def _text(value: object) -> str:
    return html.escape(_number(value) if isinstance(value, float) else str(value))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if abs(value) < 1e6 else f"{value:.5g}"


def _chart(number: int, chart: Chart, dots: bool) -> str:
    rows = "".join(
        f"<tr><td>{_text(name)}</td><td class=n>{_text('default' if spot.x is None else spot.x)}</td>"
        f"<td class=n>{_number(spot.mean)}</td>"
        f"<td class=n>{'' if spot.half is None else '± ' + _number(spot.half)}</td><td class=n>{len(spot.runs)}</td>"
        f"<td class=n>{spot.bad or ''}</td></tr>"
        for name, curve in chart.curves.items()
        for spot in curve
    )
    picture = _svg(number, chart, dots) if _can_draw() else "<p>There is no picture: matplotlib is not installed.</p>"
    return (
        f"<h2>{_text(chart.title)}</h2>\n{picture}\n<details><summary>its numbers</summary>"
        f"<table><tr><th></th><th>{_text(chart.x)}</th><th>mean {_text(chart.y)}</th><th>95 %</th><th>runs</th>"
        f"<th>without</th></tr>{rows}</table></details>\n"
    )


def _runs(plan: SweepPlan, rows: Sequence[Row], charts: Sequence[Chart]) -> str:
    shown = [*plan.keys]
    cases = ["case"] if plan.source.sweep.cases else []
    # What a case sets is told by its name.
    in_cases = {key for case in plan.source.sweep.cases for key in case}
    heads = [*cases, *(key for key in shown if key not in in_cases), "seed"]
    heads += ["repetition"] if plan.source.sweep.repetitions > 1 else []
    heads += ["variant", "condition"] if plan.base.kind == "comparison" else []
    heads += list(dict.fromkeys(chart.y for chart in charts))
    lines = []
    before = ""
    for row in rows:
        run = str(row["run"])[: store.SHORT]
        anchor = f' id="{run}"' if run != before else ""
        before = run
        cells = "".join(f"<td>{'' if row[head] is None else _text(row[head])}</td>" for head in heads)
        state = _text(row["status"])
        if row["status"] != Status.GOOD:
            state = f"<span class=bad>{state}: {_text(row['failure'])}</span> (logs/{_text(row['run'])}.log)"
        lines.append(f"<tr{anchor}><td><code>{run}</code></td>{cells}<td>{state}</td></tr>\n")
    names = "".join(f"<th>{_text(head)}</th>" for head in heads)
    return f"<table><tr><th>run</th>{names}<th>result</th></tr>\n{''.join(lines)}</table>\n"


def _can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _svg(number: int, chart: Chart, dots: bool) -> str:
    """A chart as SVG to stand in a page; the same bytes for the same numbers, with the same matplotlib."""
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
        sink = io.BytesIO()
        drawn.savefig(sink, format="svg", metadata={"Date": None, "Creator": "mrclab"})
        pyplot.close(drawn)
    text = sink.getvalue().decode()
    return re.sub(r"\n\s*", "\n", text[text.index("<svg") :])
