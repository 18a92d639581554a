"""Controlled runs: a cause is taken away, and the difference must vanish (`mrclab validate --causes`)."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mrc_fluid.kernels import Kernels
from mrc_fluid.validation import suite
from mrc_fluid.validation.causes import Change
from mrc_fluid.validation.differences import Difference
from mrc_fluid.validation.htsim import Algorithms, Htsim
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import MTU, Backend, FlowSpec, Quantity, Scenario
from mrc_fluid.validation.scenarios import by_name, on_off, permutation
from mrc_fluid.validation.suite import Plan
from mrc_fluid.validation.variants import VARIANTS
from mrclab.studies.engine import Show


@dataclass(frozen=True)
class ControlScenario:
    """A scenario of the suite with one thing changed.

    Args:
        change: what is changed.
        of: the scenario without the change.
        quantities: those of which the difference must vanish, by backend; headers are corrected for.
        spraying: what htsim runs.
    """

    change: Change
    of: str
    scenario: Scenario
    quantities: dict[Backend, Sequence[Quantity]]
    algorithm: Algorithm = dataclasses.field(default_factory=Algorithm)
    spraying: str = Algorithms.spraying


@dataclass(frozen=True)
class ControlledDifference:
    """A quantity of a scenario: what another backend says beside packets, before and after the change."""

    control: ControlScenario
    before: Difference
    after: Difference

    @property
    def as_expected(self) -> bool:
        """Return whether there was a difference, and at most half of it is left, within the bound."""
        left = _apart(self.after)
        return self.before.beyond and left <= self.after.bound and left <= _apart(self.before) / 2


def _apart(each: Difference) -> float:
    """Return how far backends are apart, with or without headers taken into account, whichever is less."""
    return min(abs(each.off), abs(each.corrected))


def _with(of: str, **fabric: object) -> Scenario:
    """Return a scenario with other settings of its fabric. It has the same name, from which EVs are drawn."""
    known = by_name()[of]
    return dataclasses.replace(known, fabric=dataclasses.replace(known.fabric, **fabric))  # type: ignore[arg-type]


def _three_times(of: str) -> Scenario:
    """Return a scenario with flows three times as long."""
    known = by_name()[of]

    def flows(seed: int) -> list[FlowSpec]:
        return [dataclasses.replace(each, bytes=3 * each.bytes) for each in known.flows(seed)]

    return dataclasses.replace(known, flows=flows)


def controls() -> list[ControlScenario]:
    """Return all controlled runs; each cause has one at least."""
    bitmap = next(each.algorithm for each in VARIANTS if each.name == "bitmap")
    fixed = Algorithm(cc={"algorithm": "fixed", "fixed_window": 5 * MTU})
    two = dataclasses.replace(_with("oversubscribed-4", t1s=2, per_t0=8), flows=permutation(32, group=8))
    few = dataclasses.replace(by_name()["on-off"], flows=on_off(16, load=0.05))
    late = (Quantity.GOODPUT, Quantity.P99)
    shares = (Quantity.P50, Quantity.JAIN)
    sent = (Quantity.TRIMMED, Quantity.AGAIN)
    htsim, fluid = Backend.HTSIM, Backend.FLUID
    return [
        ControlScenario(
            Change.LAST_HOP, "incast-8", _with("incast-8", last_hop_marks=True),
            {htsim: (*sent, *shares)},
        ),
        ControlScenario(
            Change.LAST_HOP, "on-off", _with("on-off", last_hop_marks=True),
            {htsim: (Quantity.P99,)},
        ),
        ControlScenario(
            Change.BITMAP_EVEN, "slow-t1", _with("slow-t1", all_evs=True),
            {htsim: (Quantity.P50, *late)}, bitmap, spraying="bitmap",
        ),
        ControlScenario(
            Change.BITMAP, "oversubscribed-2-long", by_name()["oversubscribed-2-long"], {htsim: sent},
            bitmap, spraying="bitmap",
        ),
        ControlScenario(Change.FIXED, "incast-8", by_name()["incast-8"], {fluid: shares}, fixed),
        ControlScenario(
            Change.NEAR_FIXED, "mixed-rtt", _with("mixed-rtt", far_ns=0), {fluid: shares}, fixed,
        ),
        ControlScenario(Change.FEW_MESSAGES, "on-off", few, {fluid: (Quantity.P50,)}),
        ControlScenario(Change.TWO_UPLINKS, "oversubscribed-4", two, {fluid: late}),
        ControlScenario(Change.THREE_TIMES, "slow-plane", _three_times("slow-plane"), {fluid: late}),
        ControlScenario(
            Change.ALL_EVS, "slow-t1-long", _with("slow-t1-long", all_evs=True),
            {fluid: (Quantity.P99,)},
        ),
    ]  # fmt: skip


def run(
    chosen: Sequence[ControlScenario],
    seeds: Sequence[int],
    htsim: Htsim | None,
    folder: pathlib.Path,
    jobs: int,
    kernels: Kernels,
    show: Show,
) -> tuple[list[ControlledDifference], list[str]]:
    """Run controls and the scenarios that they change; return what they show, and runs that say nothing.

    Raises:
        WriteError: something could not be written; what was done stays.
    """  # fmt: skip
    before = suite.run(
        Plan([by_name()[name] for name in dict.fromkeys(each.of for each in chosen)], seeds, Algorithm(), htsim),
        folder, jobs, kernels, show,
    )  # fmt: skip
    was = {(each.scenario, each.backend, each.quantity): each for each in before.differences}
    shown: list[ControlledDifference] = []
    problems = list(before.problems)
    for control in chosen:
        other = None if htsim is None else dataclasses.replace(htsim, algorithms=Algorithms(control.spraying))
        made = suite.run(Plan([control.scenario], seeds, control.algorithm, other), folder, jobs, kernels, show)
        problems += made.problems
        shown += [
            ControlledDifference(control, was[control.of, each.backend, each.quantity], each)
            for each in made.differences
            if each.quantity in control.quantities.get(each.backend, ())
        ]
    return shown, problems


class ControlRow(NamedTuple):
    """A quantity of a scenario without and with the change; means over seeds."""

    scenario: str
    change: str
    backend: str
    quantity: str
    before: float
    packets: float
    other: float
    after: float
    corrected: float
    bound: float
    as_expected: bool


def rows(shown: Sequence[ControlledDifference]) -> list[ControlRow]:
    """Return what controlled runs show as rows of a table."""
    return [
        ControlRow(
            each.control.of, each.control.change, each.after.backend, each.after.quantity, each.before.off,
            each.after.packets, each.after.other, each.after.off, each.after.corrected, each.after.bound,
            each.as_expected,
        )
        for each in shown
    ]  # fmt: skip
