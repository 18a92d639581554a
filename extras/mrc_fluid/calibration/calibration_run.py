"""Run of a cluster in memory: its inputs and results."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_fluid.baselines import Baseline
from mrc_fluid.effective import EffectiveTime
from mrc_fluid.run import ClusterResult
from mrc_fluid.year import YearOutcome
from mrc_topo.plan import CostSummary, Design, Plan


@dataclass(frozen=True)
class CalibrationRun:
    """A run with its inputs and results. `plan` is None where the fabric is none that `mrclab topo plan` makes."""

    result: ClusterResult
    others: list[Baseline]
    plan: Plan | None
    year: list[YearOutcome]
    seconds: float
    #: What the designs of the plan cost, if a year was asked for.
    bills: list[tuple[Design, CostSummary]] = field(default_factory=list)
    effective: list[EffectiveTime] = field(default_factory=list)
