"""Compare a run of the suite with the values of a folder: what a reviewer does with published numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mrc_fluid.validation.differences import POINTS_BOUND, RELATIVE_BOUND
from mrc_fluid.validation.outcome import ScenarioOutcome, interval_of
from mrc_fluid.validation.scenario import RELATIVE, Backend, Quantity
from mrc_fluid.validation.summary import SuiteSummary

#: Simulated time repeats itself on every machine; sums of the fluid may differ in their last digits.
SAME = 1e-6


class ComparisonBasis(StrEnum):
    """How values are compared."""

    RUNS = "run by run, because the sources are the same: they must be equal"
    MEANS = (
        "means over the seeds, because the sources differ: within 5 % (shares of packets: one point) or the interval"
    )


@dataclass(frozen=True)
class FolderValue:
    """A value of the folder beside that of this run; `seed` is None for a mean. `allowed` is absolute."""

    scenario: str
    backend: Backend
    quantity: Quantity
    seed: int | None
    theirs: float
    ours: float
    allowed: float

    @property
    def agrees(self) -> bool:
        """Return whether they differ by no more than is allowed."""
        return abs(self.ours - self.theirs) <= self.allowed


def basis(summary: SuiteSummary, sources: str) -> ComparisonBasis:
    """Return how a summary is compared with runs by programs that have this digest."""
    return ComparisonBasis.RUNS if summary.software.sources == sources else ComparisonBasis.MEANS


def compare(summary: SuiteSummary, outcomes: Sequence[ScenarioOutcome], how: ComparisonBasis) -> list[FolderValue]:
    """Return every value that both have.

    Args:
        outcomes: of runs that were made now; their scenarios and seeds are a part of the summary's.
        how: run by run, or by means over the same seeds.
    """
    theirs = {
        (each.scenario, each.backend, each.seed, quantity): value
        for each in summary.runs
        for quantity, value in each.values.items()
    }
    pairs: dict[tuple[str, Backend, Quantity], list[tuple[int, float, float]]] = {}
    for outcome in outcomes:
        for quantity, value in outcome.values.items():
            known = theirs.get((outcome.scenario, outcome.backend, outcome.seed, quantity))
            if known is not None:
                row = (outcome.seed, known, value)
                pairs.setdefault((outcome.scenario, outcome.backend, quantity), []).append(row)
    made = []
    for (scenario, backend, quantity), rows in pairs.items():
        if how is ComparisonBasis.RUNS:
            for seed, known, value in rows:
                allowed = SAME * max(abs(known), 1.0)
                made.append(FolderValue(scenario, backend, quantity, seed, known, value, allowed))
            continue
        mean, half = interval_of([known for _, known, _ in rows])
        ours = math.fsum(value for *_, value in rows) / len(rows)
        bound = RELATIVE_BOUND * abs(mean) if quantity in RELATIVE else POINTS_BOUND
        made.append(FolderValue(scenario, backend, quantity, None, mean, ours, max(bound, half or 0.0)))
    return made


def missing(
    summary: SuiteSummary, outcomes: Sequence[ScenarioOutcome], scenarios: Sequence[str], seeds: Sequence[int]
) -> list[str]:
    """Return a line for each run that the folder has and this run has not, for a backend that was run."""
    ran = {(each.scenario, each.backend, each.seed) for each in outcomes}
    backends = {each.backend for each in outcomes}
    return [
        f"{each.scenario}, {each.backend.value}, seed {each.seed}: the folder has it, this run has not"
        for each in summary.runs
        if each.scenario in scenarios
        and each.seed in seeds
        and each.backend in backends
        and (each.scenario, each.backend, each.seed) not in ran
    ]
