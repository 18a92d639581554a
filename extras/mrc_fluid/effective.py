"""Effective training time: the share of the time in which a job makes progress that it keeps.

It loses the time for writing checkpoints, and, by failures, slower steps, standing still, restarts, and the work since
the latest checkpoint. The shorter the interval between checkpoints, the more is written and the less is repeated; where
interruptions are a Poisson process, the best interval is about `daly_minutes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mrc_fluid.fabric import FabricShape
from mrc_fluid.schema import Cluster, ElementRates, YearSpec
from mrc_fluid.year import YearOutcome, outcomes
from mrc_topo.plan import Plan

#: Minutes between checkpoints, and factors of all failure rates, for which it is calculated.
INTERVALS = (5.0, 15.0, 30.0, 60.0, 180.0)
FACTORS = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class EffectiveTime:
    """The effective training time of a design, as a share, with checkpoints at this interval and failure rates
    that are a multiple of the file's; `best_minutes` is Daly's interval, infinite without an interruption."""

    name: str
    checkpoint_minutes: float
    rates: float
    interruptions: int
    share: float
    best_minutes: float


def effective_times(
    cluster: Cluster, shape: FabricShape, plan: Plan | None, spec: YearSpec,
    intervals: Sequence[float] = INTERVALS, factors: Sequence[float] = FACTORS,
) -> list[EffectiveTime]:  # fmt: skip
    """Return the effective training time of each design, factor and interval, in this order."""
    made = []
    found = [(factor, outcomes(cluster, shape, plan, more_often(spec, factor))) for factor in factors]
    for place in range(len(found[0][1])):
        for factor, each in found:
            outcome = each[place]
            between = outcome.hours * 60 / outcome.interruptions if outcome.interruptions else math.inf
            best = daly_minutes(spec.checkpoint_write_minutes, between)
            for minutes in intervals:
                share = effective_share(outcome, spec, minutes)
                made.append(EffectiveTime(outcome.name, minutes, factor, outcome.interruptions, share, best))
    return made


def effective_share(outcome: YearOutcome, spec: YearSpec, checkpoint_minutes: float) -> float:
    """Return the share of the time that a design makes of it with another interval between checkpoints.

    On average an interruption repeats half of an interval.
    """
    restarts = outcome.interruptions * (spec.restart_minutes + checkpoint_minutes / 2) / 60
    lost = min(outcome.slower_h + outcome.stalled_h + restarts, outcome.hours)
    writing = checkpoint_minutes / (checkpoint_minutes + spec.checkpoint_write_minutes)
    return (1 - lost / outcome.hours) * writing


def daly_minutes(write_minutes: float, between_minutes: float) -> float:
    """Return the interval between checkpoints that loses least: the square root of twice the time of one and the time
    between interruptions (Young 1974, Daly 2006, first order)."""
    return math.sqrt(2 * write_minutes * between_minutes)


def more_often(spec: YearSpec, factor: float) -> YearSpec:
    """Return the same with all failure rates multiplied."""
    rates = {
        name: ElementRates(per_year=value.per_year * factor, hours=value.hours)
        for name, value in spec
        if isinstance(value, ElementRates)
    }
    return spec.model_copy(update=rates)
