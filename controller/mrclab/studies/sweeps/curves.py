"""Curves of a sweep: means of its rows with confidence intervals over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mrclab.studies.cells.intervals import interval
from mrclab.studies.sweeps import design, measure, store
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
    kinds = store.columns(plan)
    found: dict[tuple[str, Scalar], str] = {}
    for key in plan.keys:
        given = [run.point.values[key] for run in plan.runs if run.point.values.get(key) is not None]
        values = {store.cell(value, kinds[key]): value for value in given}
        if any(isinstance(value, dict | list) for value in values.values()):
            texts = design.labels(list(values.values()))
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
    known = ((row[y], str(row["run"])[: store.SHORT]) for row in rows)
    runs = [(float(value), run) for value, run in known if value is not None]
    mean, half = interval([value for value, _ in runs])
    return CurvePoint(x if label is None else label, mean, half, runs, len(rows) - len(runs))
