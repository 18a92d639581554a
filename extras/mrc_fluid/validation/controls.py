"""Controlled runs: one thing is changed, and a difference that it causes must vanish (`mrclab validate --causes`)."""

from __future__ import annotations

import dataclasses
import pathlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mrc_fluid.kernels import Kernels
from mrc_fluid.validation import suite
from mrc_fluid.validation.differences import Difference
from mrc_fluid.validation.htsim import Algorithms, Htsim
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import MTU, Backend, FlowSpec, Quantity, Scenario, ScenarioFabric
from mrc_fluid.validation.scenarios import INCAST_BYTES, MESSAGE_BYTES, by_name
from mrc_fluid.validation.suite import Plan
from mrc_fluid.validation.variants import VARIANTS
from mrclab.studies.engine import Show

_TIMES = (Quantity.GOODPUT, Quantity.STEADY, Quantity.P50, Quantity.P99)


@dataclass(frozen=True)
class ControlScenario:
    """A scenario of the suite with one thing changed.

    Args:
        change: what is changed.
        of: the scenario without the change.
        quantities: those of which the difference must be within the bound, by backend; headers are corrected for.
        spraying: what htsim runs.
    """

    change: str
    of: str
    scenario: Scenario
    quantities: dict[Backend, Sequence[Quantity]]
    algorithm: Algorithm = dataclasses.field(default_factory=Algorithm)
    spraying: str = Algorithms.spraying


@dataclass(frozen=True)
class ControlledDifference:
    """A quantity of a controlled run: what another backend says beside packets, and whether that was expected."""

    control: ControlScenario
    difference: Difference

    @property
    def as_expected(self) -> bool:
        """Return whether the difference vanished, with headers taken into account."""
        return not self.difference.unexplained


def _with(name: str, of: str, **fabric: object) -> Scenario:
    """Return a scenario under another name, with other settings of its fabric."""
    known = by_name()[of]
    return dataclasses.replace(known, name=name, fabric=dataclasses.replace(known.fabric, **fabric))  # type: ignore[arg-type]


def _far(senders: int) -> Callable[[int], list[FlowSpec]]:
    """Return an incast to host 0 whose senders are all below other T0s."""

    def flows(seed: int) -> list[FlowSpec]:
        chosen = random.Random(f"far/{seed}").sample(range(4, 4 + -(-senders // 4) * 4), senders)
        return [FlowSpec(source, 0, INCAST_BYTES // senders // MTU * MTU) for source in sorted(chosen)]

    return flows


def _long(name: str, of: str, packets: int) -> Scenario:
    """Return a scenario under another name, with flows of this many packets."""
    known = by_name()[of]

    def flows(seed: int) -> list[FlowSpec]:
        return [dataclasses.replace(each, bytes=packets * MTU) for each in known.flows(seed)]

    return dataclasses.replace(known, name=name, flows=flows)


def controls() -> list[ControlScenario]:
    """Return all controlled runs."""
    bitmap = next(each.algorithm for each in VARIANTS if each.name == "bitmap")
    far = dataclasses.replace(_with("incast-8-far", "incast-8-marked"), flows=_far(8))
    lone = Scenario(
        "lone-message", "one message", ScenarioFabric(), lambda seed: [FlowSpec(4, 0, MESSAGE_BYTES)], both_ways=True,
    )  # fmt: skip
    return [
        ControlScenario(
            "no quick adapt", "incast-32-marked", _with("incast-32-no-qa", "incast-32-marked"),
            {Backend.HTSIM: (Quantity.JAIN, *_TIMES)}, Algorithm(cc={"disable_qa": True}),
        ),
        ControlScenario(
            "all senders below other T0s", "incast-8-marked", far,
            {Backend.HTSIM: (Quantity.TRIMMED, Quantity.AGAIN, Quantity.JAIN, *_TIMES)},
        ),
        ControlScenario(
            "bitmap, as in htsim, for MRC's sprayer", "slow-t1", _with("slow-t1-bitmap", "slow-t1"),
            {Backend.HTSIM: _TIMES}, bitmap, spraying="bitmap",
        ),
        ControlScenario(
            "flows of 1500 packets", "slow-t1", _long("slow-t1-1500", "slow-t1", 1500),
            {Backend.FLUID: (Quantity.P50,)},
        ),
        *(
            ControlScenario(
                "a fixed window for all, half of the largest", of, _with(name, of), {Backend.FLUID: _TIMES},
                Algorithm(cc={"algorithm": "fixed", "fixed_window": window}),
            )
            for name, of, window in (
                ("fixed-2", "oversubscribed-2", 88_200),
                ("long-fixed-2", "oversubscribed-2-long", 88_200),
                ("pods-fixed-2", "pods-oversubscribed-2", 132_300),
            )
        ),
        ControlScenario(
            "all EVs are active", "permutation-planes", _with("planes-all-evs", "permutation-planes", all_evs=True),
            {Backend.FLUID: _TIMES},
        ),
        ControlScenario(
            "all EVs are active", "permutation-planes-long",
            _with("long-all-evs", "permutation-planes-long", all_evs=True), {Backend.FLUID: (Quantity.P99,)},
        ),
        ControlScenario(
            "all EVs are active", "pods", _with("pods-all-evs", "pods", all_evs=True), {Backend.FLUID: _TIMES},
        ),
        ControlScenario(
            "all EVs are active", "lossy-uplink", _with("lossy-all-evs", "lossy-uplink", all_evs=True),
            {Backend.FLUID: (Quantity.P50,)},
        ),
        ControlScenario(
            "queues drop and do not trim", "incast-8-marked", _with("incast-8-drops", "incast-8-marked", trims=False),
            {Backend.HTSIM: (Quantity.AGAIN, Quantity.JAIN, *_TIMES)},
        ),
        ControlScenario(
            "a message alone, which shares no link", "on-off", lone, {Backend.FLUID: (Quantity.P50,)},
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
    """Run controls; return what they show, and runs that say nothing.

    Raises:
        WriteError: something could not be written; what was done stays.
    """  # fmt: skip
    shown: list[ControlledDifference] = []
    problems: list[str] = []
    for control in chosen:
        other = None if htsim is None else dataclasses.replace(htsim, algorithms=Algorithms(control.spraying))
        made = suite.run(Plan([control.scenario], seeds, control.algorithm, other), folder, jobs, kernels, show)
        problems += made.problems
        shown += [
            ControlledDifference(control, each)
            for each in made.differences
            if each.quantity in control.quantities.get(each.backend, ())
        ]
    return shown, problems


class ControlRow(NamedTuple):
    """A quantity of a controlled run; means over seeds."""

    scenario: str
    change: str
    backend: str
    quantity: str
    packets: float
    other: float
    off: float
    bound: float
    as_expected: bool


def rows(shown: Sequence[ControlledDifference]) -> list[ControlRow]:
    """Return what controlled runs show as rows of a table."""
    return [
        ControlRow(
            each.control.of, each.control.change, each.difference.backend, each.difference.quantity,
            each.difference.packets, each.difference.other, each.difference.off, each.difference.bound,
            each.as_expected,
        )
        for each in shown
    ]  # fmt: skip
