"""The report of a sweep: one HTML file that opens offline, the same bytes for the same rows.

Each dot of its charts leads to the run that it is of, with its seed.
"""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mrc_topo.base.files import write_whole
from mrclab.studies.cells import pages
from mrclab.studies.cells.pages import csv_of, interval
from mrclab.studies.engine import RunStatus
from mrclab.studies.sweeps import measure, spec, work
from mrclab.studies.sweeps.measure import Row, Scalar
from mrclab.studies.sweeps.plan import SweepPlan
from mrclab.studies.sweeps.spec import PlotSpec, nearest, quantity


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve: the mean of `n` runs, and half of the width of its 95 % confidence interval (None: of
    one run there is none). `bad`: runs that have no such number. `runs`: value and digest of each that has."""

    x: Scalar
    mean: float | None
    half: float | None
    runs: Sequence[tuple[float, str]]
    bad: int

    @property
    def number(self) -> float | None:
        """The value of x; None if that is not a number."""
        return float(self.x) if isinstance(self.x, int | float) and not isinstance(self.x, bool) else None


@dataclass(frozen=True)
class Chart:
    """A plot with what is in it: points by curve, in the order of x."""

    title: str
    x: str
    y: str
    scale: str
    curves: Mapping[str, Sequence[CurvePoint]]

    @property
    def numeric(self) -> bool:
        """Return whether x is a number at all points."""
        every = [spot.number for curve in self.curves.values() for spot in curve]
        return bool(every) and None not in every


def check(plan: SweepPlan) -> None:
    """Check that the sweep's plots name values that exist.

    Raises:
        ExperimentError: a measure or a key is unknown; names file, line and the nearest.
    """
    source = plan.source
    measures = measure.METRICS[plan.base.kind]
    keys = _keys(plan)
    for number, plot in enumerate(source.sweep.plots):
        place = ("plots", number)
        if plot.y not in measures:
            raise source.problem((*place, "y"), f"no measure '{plot.y[:60]}'; {nearest(plot.y, measures)}")
        named = [("x", plot.x)] if plot.x is not None else []
        named += [("by", key) for key in plot.by or ()] + [("where", key) for key in plot.where]
        for part, key in named:
            if key not in keys:
                raise source.problem((*place, part), f"'{key[:60]}' is not a key of this sweep; {nearest(key, keys)}")


def _keys(plan: SweepPlan) -> list[str]:
    """Return the keys that distinguish rows, apart from seeds; where nothing but seeds does, the only point."""
    cases = ["case"] if plan.source.sweep.cases else []
    return [*plan.keys, *cases, *(["variant", "condition"] if plan.base.kind == "comparison" else [])] or ["point"]


def own_keys(plan: SweepPlan) -> list[str]:
    """Return the keys that distinguish rows, without those that only cases change: a case's name says what they are."""
    grid = set(plan.source.sweep.grid) | set(plan.source.sweep.hypercube.keys if plan.source.sweep.hypercube else ())
    return [key for key in _keys(plan) if key in grid or key in ("case", "variant", "condition")]


def plots_of(plan: SweepPlan) -> list[PlotSpec]:
    """Return those of the file; without any, goodput or times over the key that has most values."""
    if plan.source.sweep.plots:
        return list(plan.source.sweep.plots)
    most = max(_keys(plan), key=lambda key: len({str(run.point.values.get(key)) for run in plan.runs}))
    return [PlotSpec(y="seconds" if plan.base.kind == "comparison" else "goodput_share", x=most)]


def charts(plan: SweepPlan, rows: Sequence[Row]) -> list[Chart]:
    """Return all plots of a sweep with their points."""
    return [_chart(plan, plot, rows) for plot in plots_of(plan)]


def _chart(plan: SweepPlan, plot: PlotSpec, rows: Sequence[Row]) -> Chart:
    x = plot.x or next(iter(plan.keys), _keys(plan)[0])
    by = plot.by if plot.by is not None else [key for key in own_keys(plan) if key != x and key not in plot.where]
    wanted = {key: quantity(value) for key, value in plot.where.items()}
    found: dict[tuple[Scalar, ...], dict[Scalar, list[Row]]] = {}
    for row in rows:
        if all(row[key] == value for key, value in wanted.items()):
            found.setdefault(tuple(row[key] for key in by), {}).setdefault(row[x], []).append(row)
    curves, short = {}, labels_of(plan)
    for name, spots in found.items():
        xs = list(spots)
        if all(isinstance(each, int | float) for each in xs):
            xs.sort()
        curves[label(by, name, short)] = [_spot(each, spots[each], plot.y, short.get((x, each))) for each in xs]
    title = plot.title or f"{measure.METRICS[plan.base.kind][plot.y]}"
    return Chart(title, x, plot.y, plot.scale, curves)


def labels_of(plan: SweepPlan) -> dict[tuple[str, Scalar], str]:
    """Return a short label for each value that is a list or a mapping, by key and by the value's cell in the rows."""
    kinds = work.columns(plan)
    found: dict[tuple[str, Scalar], str] = {}
    for key in plan.keys:
        given = [run.point.values[key] for run in plan.runs if run.point.values.get(key) is not None]
        values = {work.cell(value, kinds[key]): value for value in given}
        if any(isinstance(value, dict | list) for value in values.values()):
            texts = spec.labels(list(values.values()))
            found |= {(key, cell): text for cell, text in zip(values, texts, strict=True)}
    return found


def label(by: Sequence[str], values: Sequence[Scalar], short: Mapping[tuple[str, Scalar], str]) -> str:
    """Return the values of some keys in words; `short` as of `labels_of`."""
    parts = []
    for key, value in zip(by, values, strict=True):
        if (text := short.get((key, value))) is not None:
            parts.append(text)
            continue
        text = "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        parts.append(text if key in ("case", "variant", "condition") else f"{key.rpartition('.')[2]}={text}")
    return ", ".join(parts)


def _spot(x: Scalar, rows: Sequence[Row], y: str, label: str | None) -> CurvePoint:
    known = ((row[y], str(row["run"])[: work.SHORT]) for row in rows)
    runs = [(float(value), run) for value, run in known if value is not None]
    mean, half = interval([value for value, _ in runs])
    return CurvePoint(x if label is None else label, mean, half, runs, len(rows) - len(runs))


FILE = "differences.csv"


@dataclass(frozen=True)
class PairedDifference:
    """The mean of a measure at one value of a key, minus that at the key's first value, over runs of the same seed.

    `where` says what the other keys are; `first_mean` is over the same `pairs`. `half` is half of the width of the 95 %
    confidence interval of `mean` by Student's t; None of a single pair.
    """

    measure: str
    where: str
    key: str
    first: str
    value: str
    pairs: int
    first_mean: float
    mean: float
    half: float | None

    @property
    def differs(self) -> bool | None:
        """Return whether 0 is outside of the interval; None if there is no interval."""
        return None if self.half is None else abs(self.mean) > self.half

    @property
    def share(self) -> float | None:
        """Return the difference as a share of the first value's mean; None if that is 0."""
        return self.mean / abs(self.first_mean) if self.first_mean else None


#: Columns of the file, by the attributes of a difference that they show.
HEADS = {name: name for name in (*PairedDifference.__annotations__, "differs")}
HEADS |= {"mean": "difference", "half": "half_of_95_percent"}


def differences(plan: SweepPlan, rows: Sequence[Row]) -> list[PairedDifference]:
    """Return the differences of all measures that the sweep's charts show, in the order of charts and rows.

    Cases are compared where there are some, else variants of a comparison, else the values of the first key that are no
    numbers, else those of the first key. A sweep of one seed, and one that changes nothing, has no differences.
    """
    key = _compared(plan, rows)
    if key is None:
        return []
    measures = dict.fromkeys(plot.y for plot in plots_of(plan))
    first, short = _first(plan, rows, key), labels_of(plan)
    others = [each for each in own_keys(plan) if each != key]
    return [each for measure in measures for each in _of(rows, key, first, others, measure, short)]


def csv(found: Sequence[PairedDifference]) -> str:
    """Return the text of the file `differences.csv`."""
    return csv_of(HEADS.values(), [[getattr(each, name) for name in HEADS] for each in found])


def _compared(plan: SweepPlan, rows: Sequence[Row]) -> str | None:
    keys = [key for key in own_keys(plan) if len({row[key] for row in rows}) > 1]
    names = [key for key in ("case", "variant") if key in keys]
    texts = [key for key in keys if not all(isinstance(row[key], int | float) for row in rows)]
    return next(iter([*names, *texts, *keys]), None)


def _first(plan: SweepPlan, rows: Sequence[Row], key: str) -> Scalar:
    """Return the value of a key with which the others are compared, whether or not its runs are done yet."""
    point = plan.runs[0].point
    if key == "case":
        return point.case
    if key in plan.keys:
        return work.cell(point.values.get(key), work.columns(plan)[key])
    return rows[0][key]


def _of(
    rows: Sequence[Row],
    key: str,
    first: Scalar,
    others: Sequence[str],
    measure: str,
    short: Mapping[tuple[str, Scalar], str],
) -> Iterator[PairedDifference]:
    """Yield the differences of one measure; `others`: the keys beside the compared one, `short` as of
    `labels_of`."""
    groups: dict[tuple[Scalar, ...], dict[Scalar, dict[tuple[Scalar, Scalar], float]]] = {}
    for row in rows:
        runs = groups.setdefault(tuple(row[each] for each in others), {}).setdefault(row[key], {})
        if (value := row[measure]) is not None:
            runs[row["seed"], row["repetition"]] = float(value)
    for group, values in groups.items():
        against = values.pop(first, {})
        for value, runs in values.items():
            both = [at for at in against if at in runs]
            mean, half = interval([runs[at] - against[at] for at in both])
            first_mean, _ = interval([against[at] for at in both])
            if mean is not None and first_mean is not None:
                where = label(others, group, short)
                one, other = (label([key], [each], short) for each in (first, value))
                yield PairedDifference(measure, where, key, one, other, len(both), first_mean, mean, half)


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
    found = differences(plan, rows)
    if found:
        write_whole(folder / FILE, csv(found))
    write_whole(folder / PAGE, render(plan, rows, found))
    return folder / PAGE


def render(plan: SweepPlan, rows: Sequence[Row], found: Sequence[PairedDifference]) -> str:
    """Return the page; `found`: the paired differences of the rows."""
    sweep = plan.source.sweep
    made = charts(plan, rows)
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
        short=work.SHORT,
        software=plan.software,
    )


def _labelled(plan: SweepPlan, rows: Sequence[Row]) -> list[Row]:
    """Return rows with short labels in place of JSON texts, which are in sweep.csv."""
    short = labels_of(plan)
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
    with pages.drawing(str(number), figsize=SIZE) as (drawn, plot):
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
        return pages.svg_of(drawn)
