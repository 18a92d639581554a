"""Paired differences between the values of one key of a sweep: is a case better than the first one, on the same seeds?

Two cases may have confidence intervals that overlap, and yet the first may win with every seed: what a seed does to
both is not in the difference of the two. So each run is compared with the run of the same seed and repetition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mrclab.studies.cells.intervals import interval
from mrclab.studies.cells.tables import csv_of
from mrclab.studies.sweeps import curves, store
from mrclab.studies.sweeps.measure import Row, Scalar
from mrclab.studies.sweeps.plan import SweepPlan

FILE = "differences.csv"
HEADS = (
    "measure",
    "where",
    "key",
    "first",
    "value",
    "pairs",
    "first_mean",
    "difference",
    "half_of_95_percent",
    "differs",
)


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

    def cells(self) -> list[Scalar]:
        """Return the row of the file, in the order of `HEADS`."""
        about = [self.measure, self.where, self.key, self.first, self.value]
        return [*about, self.pairs, self.first_mean, self.mean, self.half, self.differs]


def differences(plan: SweepPlan, rows: Sequence[Row]) -> list[PairedDifference]:
    """Return the differences of all measures that the sweep's charts show, in the order of charts and rows.

    Cases are compared where there are some, else variants of a comparison, else the values of the first key that are no
    numbers, else those of the first key. A sweep of one seed, and one that changes nothing, has no differences.
    """
    key = _compared(plan, rows)
    if key is None:
        return []
    measures = dict.fromkeys(plot.y for plot in curves.plots_of(plan))
    first, short = _first(plan, rows, key), curves.labels_of(plan)
    others = [each for each in curves.own_keys(plan) if each != key]
    return [each for measure in measures for each in _of(rows, key, first, others, measure, short)]


def csv(found: Sequence[PairedDifference]) -> str:
    """Return the text of the file `differences.csv`."""
    return csv_of(HEADS, [each.cells() for each in found])


def _compared(plan: SweepPlan, rows: Sequence[Row]) -> str | None:
    keys = [key for key in curves.own_keys(plan) if len({row[key] for row in rows}) > 1]
    names = [key for key in ("case", "variant") if key in keys]
    texts = [key for key in keys if not all(isinstance(row[key], int | float) for row in rows)]
    return next(iter([*names, *texts, *keys]), None)


def _first(plan: SweepPlan, rows: Sequence[Row], key: str) -> Scalar:
    """Return the value of a key with which the others are compared, whether or not its runs are done yet."""
    point = plan.runs[0].point
    if key == "case":
        return point.case
    if key in plan.keys:
        return store.cell(point.values.get(key), store.columns(plan)[key])
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
    `curves.labels_of`."""
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
                where = curves.label(others, group, short)
                one, other = (curves.label([key], [each], short) for each in (first, value))
                yield PairedDifference(measure, where, key, one, other, len(both), first_mean, mean, half)
