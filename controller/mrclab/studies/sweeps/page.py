"""The report of a sweep: one HTML file that opens offline, the same bytes for the same rows."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrc_topo.base.files import write_whole
from mrc_topo.units import Unit, digits, named, shown
from mrclab.pages import chart
from mrclab.studies.cells import pages
from mrclab.studies.cells.pages import NORMAL, csv_of, interval, student
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
class Plotted:
    """A plot, or a part of one, with what is in it: points by curve, in the order of x. `apart`: the differences of
    each curve to that of the first value of the compared key, of runs of the same seed. `where`: what the other keys
    are in this part, each of whose values has a part of its own; empty of a plot in one."""

    title: str
    x: str
    y: str
    scale: str
    curves: Mapping[str, Sequence[CurvePoint]]
    apart: Mapping[str, Sequence[CurvePoint]]
    where: str = ""

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


def charts(plan: SweepPlan, rows: Sequence[Row]) -> list[Plotted]:
    """Return all plots of a sweep with their points, in their parts."""
    return [each for plot in plots_of(plan) for each in _parts(plan, plot, rows)]


def _parts(plan: SweepPlan, plot: PlotSpec, rows: Sequence[Row]) -> Iterator[Plotted]:
    x = plot.x or next(iter(plan.keys), _keys(plan)[0])
    by = plot.by if plot.by is not None else [key for key in own_keys(plan) if key != x and key not in plot.where]
    wanted = {key: quantity(value) for key, value in plot.where.items()}
    found: dict[tuple[Scalar, ...], dict[Scalar, list[Row]]] = {}
    for row in rows:
        if all(row[key] == value for key, value in wanted.items()):
            found.setdefault(tuple(row[key] for key in by), {}).setdefault(row[x], []).append(row)
    short, compared = labels_of(plan), _compared(plan, rows)
    place = by.index(compared) if compared is not None and compared in by else None
    parts: dict[tuple[Scalar, ...], list[tuple[Scalar, ...]]] = {}
    for name in found:
        parts.setdefault(name if place is None else (*name[:place], *name[place + 1 :]), []).append(name)
    if place is None or len(parts) > MOST_PARTS:
        parts = {(): list(found)}
    first = None if compared is None else _first(plan, rows, compared)
    for part, names in parts.items():
        alone = len(parts) == 1 or place is None
        keys = by if alone else [by[place or 0]]
        where = "" if alone else label([key for key in by if key != compared], part, short)
        curves, apart = {}, {}
        for name in names:
            spots = found[name]
            xs = list(spots)
            if all(isinstance(each, int | float) for each in xs):
                xs.sort()
            told = label(keys, name if alone else [name[place or 0]], short)
            curves[told] = [_spot(each, spots[each], plot.y, short.get((x, each))) for each in xs]
            if place is not None and name[place] != first:
                apart[told] = _apart(spots, found.get((*name[:place], first, *name[place + 1 :]), {}), plot.y)
        yield Plotted(plot.title, x, plot.y, plot.scale, curves, apart, where)


def _by_seed(rows: Sequence[Row], y: str) -> dict[tuple[Scalar, Scalar], float]:
    """Return the value of a measure by seed and repetition."""
    return {(row.get("seed"), row.get("repetition")): float(value) for row in rows if (value := row.get(y)) is not None}


def _apart(spots: Mapping[Scalar, Sequence[Row]], base: Mapping[Scalar, Sequence[Row]], y: str) -> list[CurvePoint]:
    """Return the differences of a curve to another one, of the same seed, at each x that both have."""
    points = []
    for x in spots:
        one, other = _by_seed(base.get(x, ()), y), _by_seed(spots[x], y)
        mean, half = interval([other[at] - one[at] for at in one if at in other])
        points.append(CurvePoint(x, mean, half, [], 0))
    return points


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
        name, unit, factor = named(key)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        text = "default" if value is None else shown(float(value) * factor, unit) if number else str(value)
        parts.append(text if key in ("case", "variant", "condition") else f"{name} {text}")
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
    def sign(self) -> int | None:
        """Whether it is more, less, or none beyond chance: see `_sign`."""
        return _sign(self.mean, self.half, abs(self.first_mean))

    @property
    def differs(self) -> bool | None:
        """Return whether 0 is outside of the interval; None if there is no interval."""
        return None if self.sign is None else bool(self.sign)

    @property
    def share(self) -> float | None:
        """Return the difference as a share of the first value's mean; None if that is 0."""
        return self.mean / abs(self.first_mean) if self.first_mean else None

    @property
    def effect(self) -> tuple[float, float] | None:
        """Cohen's d of the pairs, and half of its 95 % interval; None of fewer than three pairs, or without spread."""
        if self.pairs < 3 or not self.half:
            return None
        d = self.mean * student(self.pairs - 1) / (self.half * math.sqrt(self.pairs))
        return d, NORMAL * math.sqrt(1 / self.pairs + d * d / (2 * self.pairs))


#: Columns of the file, by the attributes of a difference that they show.
HEADS = {name: name for name in (*PairedDifference.__annotations__, "differs")}
HEADS |= {"mean": "difference", "half": "half_of_95_percent"}


def differences(plan: SweepPlan, rows: Sequence[Row]) -> list[PairedDifference]:
    """Return the differences of all measures, first of those that the sweep's charts show, in the order of rows.

    Cases are compared where there are some, else variants of a comparison, else the values of the first key that are no
    numbers, else those of the first key. A sweep of one seed, and one that changes nothing, has no differences.
    """
    key = _compared(plan, rows)
    if key is None:
        return []
    measures = dict.fromkeys([*(plot.y for plot in plots_of(plan)), *measure.METRICS[plan.base.kind]])
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
        runs |= _by_seed([row], measure)
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
#: Of larger sweeps the page lists those runs only that are not good; sweep.csv has all.
MOST_RUNS = 500
#: A plot has a part for each value of the keys that are not compared, up to this many.
MOST_PARTS = 6
#: With fewer seeds an interval says little.
FEW_SEEDS = 5
STYLE = "tr:target { background: var(--warn-paper) }"


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
    parts = drawn(plan, rows, found)
    runs = {str(row["run"]): row for row in rows}
    all_listed = len(runs) <= MOST_RUNS
    seeds = sweep.seeds if isinstance(sweep.seeds, int) else len(sweep.seeds)
    measures = measure.METRICS[plan.base.kind]
    plotted = dict.fromkeys(each.y for each in made)
    pairs = sorted({each.pairs for each in found})
    listed = _labelled(plan, rows if all_listed else [row for row in rows if row["status"] != RunStatus.GOOD])
    heads = _heads(plan, made)
    return chart.page(
        f"mrclab sweep: {sweep.title}",
        pages.fill(
            "sweep.html",
            sweep=sweep,
            counted=_counted(plan, len(runs), len(rows), seeds),
            few=seeds * sweep.repetitions < FEW_SEEDS,
            bad=sum(row["status"] != RunStatus.GOOD for row in runs.values()),
            missing=len(plan.runs) - len(runs),
            verb="run" if plan.base.kind == "experiment" else "compare",
            plots=[
                (
                    measures[y],
                    _finding(measures[y], next(of for of in made if of.y == y), found),
                    [chart.html(each) for each, of in zip(parts, made, strict=True) if of.y == y],
                    [_told(measures[y], each) for each in found if each.measure == y],
                )
                for y in plotted
            ],
            key=_name(found[0].key) if found else "",
            against=found[0].first if found else "",
            pairs=" to ".join(map(str, dict.fromkeys([*pairs[:1], *pairs[-1:]]))),
            others=[
                [measures[each.measure].name, *_told(measures[each.measure], each)]
                for each in found
                if each.measure not in plotted
            ],
            heads_of_runs=[measures[each].name if each in measures else _name(each) for each in heads],
            all_listed=all_listed,
            listed=[(row, [_cell(key, row[key], measures) for key in heads]) for row in listed],
            short=work.SHORT,
            software=plan.software,
        ),
        STYLE,
    )


def _counted(plan: SweepPlan, runs: int, rows: int, seeds: int) -> str:
    """Return how many runs there are, and why."""
    times, keys = plan.source.sweep.repetitions, [key for key in own_keys(plan) if key in plan.keys]
    points = len(plan.runs) // (seeds * times)
    told = [f"{points} values of {_name(keys[0])}" if len(keys) == 1 and points > 1 else _many(points, "point")]
    told += [_many(seeds, "seed")] + ([_many(times, "repetition")] if times > 1 else [])
    each = f", each of {rows // runs} measurements (every variant under every condition)" if rows > runs else ""
    return f"{' × '.join(told)} = {_many(len(plan.runs), 'run')}{each}"


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _name(key: str) -> str:
    return named(key)[0]


def _cell(key: str, value: Scalar, measures: Mapping[str, measure.Measure]) -> str:
    """Return a value of a column for people."""
    _, unit, factor = named(key)
    if key in measures:
        unit, factor = measures[key].unit, 1.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return str(value) if key in ("seed", "repetition") else shown(value * factor, unit)


def _told(of: measure.Measure, each: PairedDifference) -> list[str]:
    """Return the row of a difference: value, other keys, both means, difference, share, effect, verdict."""
    scale = abs(each.first_mean)
    # Sums of numbers that cancel leave what is no difference.
    mean, within_mean = (0.0 if abs(value) < 1e-9 * scale else value for value in (each.mean, each.half or 0.0))
    half = "" if each.half is None else f" ± {shown(within_mean, of.unit, 3)}"
    share = ""
    if each.share is not None:
        within = "" if each.half is None else f" ± {digits(100 * within_mean / scale, 2)}"
        share = f"{'+' if mean > 0 else ''}{digits(100 * mean / scale, 3)}{within} %"
    effect = "-"
    if each.effect is not None:
        d, beside = each.effect
        # Beyond that it only says that the seeds hardly differ.
        effect = f"{digits(d, 3)} ± {digits(beside, 2)}" if abs(d) <= 10 else "< -10" if d < 0 else "> 10"
    change = f"{'+' if mean > 0 else ''}{shown(mean, of.unit, 3)}{half}"
    means = (shown(value, of.unit) for value in (each.first_mean, each.first_mean + mean))
    return [each.value, each.where, *means, change, share, effect, SIGNS[each.sign]]


def drawn(plan: SweepPlan, rows: Sequence[Row], found: Sequence[PairedDifference]) -> list[chart.Chart]:
    """Return the charts of all plots of a sweep; `found`: the paired differences of the rows."""
    made = charts(plan, rows)
    return [
        described(plan, each, number, found, [other for other in made if other.y == each.y])
        for number, each in enumerate(made)
    ]


def _span(curves: Iterable[Mapping[str, Sequence[CurvePoint]]]) -> tuple[float, float] | None:
    """Return between what all points with their intervals lie; None of none."""
    spots = [(spot.mean, spot.half or 0.0) for each in curves for curve in each.values() for spot in curve]
    ends = [mean + side * half for mean, half in spots if mean is not None for side in (-1, 1)]
    return (min(ends), max(ends)) if ends else None


def described(
    plan: SweepPlan, plotted: Plotted, number: int, found: Sequence[PairedDifference], parts: Sequence[Plotted]
) -> chart.Chart:
    """Return what the chart of a part of a plot shows, on the same axes as the other `parts`."""
    of = measure.METRICS[plan.base.kind][plotted.y]
    name, unit, factor = named(plotted.x)
    places = list(dict.fromkeys(str(spot.x) for curve in plotted.curves.values() for spot in curve))
    x = chart.Axis(name, "", ticks=places)
    if plotted.numeric:
        x = chart.Axis(name, unit, log=plotted.scale == "log")

    colours = {name: chart.style(at) for at, name in enumerate(plotted.curves)}

    def series(curves: Mapping[str, Sequence[CurvePoint]]) -> list[chart.Series]:
        made = []
        for at, (label, curve) in enumerate(curves.items()):
            known = [spot for spot in curve if spot.mean is not None]
            # Beside each other, where an interval would hide another.
            aside = 0.08 * (at - (len(curves) - 1) / 2)
            xs = [
                float(spot.x) * factor if plotted.numeric else places.index(str(spot.x)) + aside  # type: ignore[arg-type]
                for spot in known
            ]
            ys = np.array([spot.mean for spot in known], dtype=float)
            half = np.array([np.nan if spot.half is None else spot.half for spot in known])
            line = chart.Line.POINTS if plotted.numeric else chart.Line.DOTS
            if known:
                made.append(chart.Series(label, xs, ys, *colours[label], line, ys - half, ys + half))
        return made

    below = None
    if found and any(spot.mean is not None for curve in plotted.apart.values() for spot in curve):
        span = _span(each.apart for each in parts)
        axis = chart.Axis(f"difference to {found[0].first}, same seeds", of.unit, span=span)
        below = chart.Chart("", "", x, axis, series(plotted.apart), level=0.0)
    means = [abs(spot.mean or 0.0) for curve in plotted.curves.values() for spot in curve]
    apart = (
        (name, _sign(spot.mean, spot.half, max(means, default=0.0)), None)
        for name, curve in plotted.apart.items() for spot in curve
    )  # fmt: skip
    title = f"{plotted.where}: {_said(apart)}" if plotted.where else _finding(of, plotted, found)
    up = chart.Axis(of.name, of.unit, span=_span(each.curves for each in parts))
    return chart.Chart(f"plot-{number}", plotted.title or title, x, up, series(plotted.curves), below=below)


def _sign(mean: float | None, half: float | None, scale: float = 0.0) -> int | None:
    """Return whether a difference is more (1), less (-1) or within chance (0); None without an interval."""
    if mean is None or half is None:
        return None
    # Sums of numbers that cancel leave what is no difference.
    return int(np.sign(mean)) if abs(mean) > max(half, 1e-9 * scale) else 0


#: Which values a reader wants, where the unit of a measure decides it.
BETTER = {Unit.TIME: "lower", Unit.TIMES: "lower", Unit.RATE: "higher"}
SIGNS = {1: "more", -1: "less", 0: "within chance", None: "one seed"}


def _said(judged: Iterable[tuple[str, int | None, float | None]]) -> str:
    """Return how often each value has more and less than the first one, and by which shares, as a text."""
    values: dict[str, list[tuple[int | None, float | None]]] = {}
    for value, sign, share in judged:
        values.setdefault(value, []).append((sign, share))
    told = []
    for value, own in values.items():
        parts = []
        for sign, word in SIGNS.items():
            shares = sorted(abs(share or 0.0) for each, share in own if each == sign)
            if shares:
                by = " to ".join(dict.fromkeys(f"{digits(100 * each, 3)} %" for each in (shares[0], shares[-1])))
                many = f"{len(shares)} of {len(own)}" if len(shares) < len(own) else f"all {len(own)}"
                parts.append(f"{word} in {many}{f' (by {by})' if sign and shares[-1] else ''}")
        told.append(f"{value}: {', '.join(parts)}")
    return "; ".join(told)


def _finding(of: measure.Measure, plotted: Plotted, found: Sequence[PairedDifference]) -> str:
    """Return what a measure shows over all conditions; without differences between which values it lies."""
    name = f"{of.name[:1].upper()}{of.name[1:]}"
    mine = [each for each in found if each.measure == plotted.y]
    if not mine:
        means = [spot.mean for curve in plotted.curves.values() for spot in curve if spot.mean is not None]
        return (
            f"{name}: {shown(min(means), of.unit, 3)} to {shown(max(means), of.unit, 3)}"
            if means
            else f"{name}: no run has it"
        )
    said = _said((each.value, each.sign, each.share) for each in mine)
    better = f" ({BETTER[of.unit]} is better)" if of.unit in BETTER else ""
    conditions = _many(len({each.where for each in mine}), "combination")
    return f"{name}{better}, against {mine[0].first}, in {conditions} of the other values: {said}"


def _labelled(plan: SweepPlan, rows: Sequence[Row]) -> list[Row]:
    """Return rows with short labels in place of JSON texts, which are in sweep.csv."""
    short = labels_of(plan)
    return [{key: short.get((key, value), value) for key, value in row.items()} for row in rows]


def _heads(plan: SweepPlan, charts: Sequence[Plotted]) -> list[str]:
    """Return the columns of the list of runs."""
    sweep = plan.source.sweep
    # The name of a case describes its settings.
    in_cases = {key for case in sweep.cases for key in case}
    heads = [*(["case"] if sweep.cases else []), *(key for key in plan.keys if key not in in_cases), "seed"]
    heads += ["repetition"] if sweep.repetitions > 1 else []
    heads += ["variant", "condition"] if plan.base.kind == "comparison" else []
    return heads + list(dict.fromkeys(chart.y for chart in charts))
