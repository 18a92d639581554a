"""Published algorithms beside MRC's own: `experiments/sweeps/policies` on the scenarios that tell them apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mrc_fluid.validation.outcome import ScenarioOutcome, interval_of
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import Quantity
from mrc_topo.shipped import shipped


class Part(StrEnum):
    """Which part of an endpoint a variant replaces; its value is the key of `policies` in a lab file."""

    SPRAYER = "ev"
    CONTROL = "congestion"


#: Where sprayers differ, and where congestion controls do.
SCENARIOS = {
    Part.SPRAYER: ("permutation", "slow-t1", "dead-uplink"),
    Part.CONTROL: ("incast-8", "incast-8-marked", "oversubscribed-4"),
}


@dataclass(frozen=True)
class Variant:
    """An algorithm: its name, and the policy that is it; an empty one is MRC's own."""

    name: str
    part: Part
    policy: str = ""

    @property
    def algorithm(self) -> Algorithm:
        """What endpoints run; the path of the file is absolute, for runs in other processes."""
        folder = shipped("experiments") / "sweeps" / "policies"
        return Algorithm({self.part.value: f"{folder / self.policy}"} if self.policy else {})


VARIANTS = (
    Variant("MRC", Part.SPRAYER),
    Variant("REPS", Part.SPRAYER, "reps.py:Reps"),
    Variant("bitmap", Part.SPRAYER, "bitmap.py:Bitmap"),
    Variant("oblivious", Part.SPRAYER, "oblivious.py:Oblivious"),
    Variant("flowlet", Part.SPRAYER, "flowlet.py:Flowlet"),
    Variant("ECMP", Part.SPRAYER, "ecmp.py:Ecmp"),
    Variant("NSCC", Part.CONTROL),
    Variant("NSCC of htsim", Part.CONTROL, "htsim_nscc.py:HtsimNscc"),
    Variant("median NSCC", Part.CONTROL, "median_nscc.py:MedianNscc"),
)


@dataclass(frozen=True)
class VariantValue:
    """A quantity of a variant: mean over the seeds, smallest, largest, half of the mean's 95 % confidence interval."""

    variant: Variant
    scenario: str
    quantity: Quantity
    mean: float
    low: float
    high: float
    half: float | None
    seeds: int


def values(outcomes: Iterable[tuple[Variant, ScenarioOutcome]]) -> list[VariantValue]:
    """Return means and ranges over the seeds, in the order of the outcomes."""
    groups: dict[tuple[Variant, str, Quantity], list[float]] = {}
    for variant, outcome in outcomes:
        for quantity, value in outcome.values.items():
            groups.setdefault((variant, outcome.scenario, quantity), []).append(value)
    made = []
    for (variant, scenario, quantity), found in groups.items():
        mean, half = interval_of(found)
        made.append(VariantValue(variant, scenario, quantity, mean, min(found), max(found), half, len(found)))
    return made
