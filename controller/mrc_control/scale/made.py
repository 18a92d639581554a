"""What a run of a cluster leaves in memory."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_scale.baselines import Baseline
from mrc_scale.run import Result
from mrc_scale.year import Outcome
from mrc_topo.plan import Plan


@dataclass(frozen=True)
class Made:
    """A run with all that belongs to it. `plan` is None where the fabric is none that `mrclab topo plan` makes."""

    result: Result
    others: list[Baseline]
    plan: Plan | None
    year: list[Outcome]
    seconds: float
