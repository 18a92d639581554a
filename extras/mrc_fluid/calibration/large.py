"""The model held against packets on fabrics of hundreds of NICs: a permutation of small messages, and what fails in it.

A NIC has two ports of 50 Gb/s, a T0 has as many uplinks as NICs, and each NIC sends 1 MiB to one below another T0.
Queues and marks are those of `mrclab validate`.
"""

from __future__ import annotations

import json
import pathlib
import random
from collections.abc import Sequence

from mrc_fluid.calibration.calibrate import ComparedValue
from mrc_fluid.cases import FailureCase
from mrc_fluid.kernels import Kernels, workers
from mrc_fluid.validation import suite
from mrc_fluid.validation.outcome import ScenarioError, ScenarioOutcome
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import MTU, Backend, Failure, FlowSpec, Quantity, Scenario, ScenarioFabric
from mrc_fluid.validation.suite import Plan
from mrc_topo.base.errors import UsageError
from mrc_topo.schema import MAX_HOSTS
from mrclab.studies.engine import Show
from p4lite.scratch import scratch

#: NICs below a T0, and T1s of a plane.
PER_T0, PLANES = 16, 2
FLOW_PACKETS = 256
FLOW_BYTES = FLOW_PACKETS * MTU
#: When what fails does so: flows have been at their full rate for a while.
AT_NS = 20_000
UPLINK = "p0-t0.0--p0-t1.0"
#: The share of packets that a grey link loses.
GREY_LOSS = 0.01
#: What is compared, and in which unit; of each its kind of value, and its key in `document`.
COMPARED = (Quantity.GOODPUT, Quantity.P50, Quantity.P99)
KEYS = {"goodput": "goodput", "FCT P50": "p50", "FCT P99": "p99"}


def scenarios(nics: int) -> list[Scenario]:
    """Return what is run at this number of NICs.

    Raises:
        UsageError: there is no such fabric, or packets would take too long on it.
    """
    if nics % PER_T0 or not 2 * PER_T0 <= nics <= MAX_HOSTS // 2:
        raise UsageError(f"--nics {nics}: use a multiple of {PER_T0} from {2 * PER_T0} to {MAX_HOSTS // 2}")
    t0s = nics // PER_T0

    def flows(seed: int) -> list[FlowSpec]:
        rng = random.Random(f"large/{seed}")
        made = []
        for slot in range(PER_T0):
            # Slot by slot to another T0, so that each NIC gets one flow.
            shift = rng.randrange(1, t0s)
            made += [FlowSpec(t0 * PER_T0 + slot, (t0 + shift) % t0s * PER_T0 + slot, FLOW_BYTES) for t0 in range(t0s)]
        return sorted(made, key=lambda flow: flow.source)

    def scenario(
        name: str, case: FailureCase, *failures: Failure, slow: bool = False, t1s: int = PER_T0
    ) -> Scenario:
        fabric = ScenarioFabric(t0s=t0s, per_t0=PER_T0, t1s=t1s, planes=PLANES, slow_plane=slow)
        return Scenario(name, case.value.title, fabric, flows, failures, both_ways=True)

    return [
        scenario("large-whole", FailureCase.WHOLE),
        scenario("large-t1", FailureCase.DEAD_T1, Failure("p0-t1.0", AT_NS, of_t1=True)),
        scenario("large-cut", FailureCase.CUT_LINK, Failure(UPLINK, AT_NS)),
        scenario("large-grey", FailureCase.GREY_LINK, Failure(UPLINK, AT_NS, loss=GREY_LOSS)),
        scenario("large-slow", FailureCase.SLOW_PLANE, slow=True),
        scenario("large-2to1", FailureCase.OVERSUBSCRIBED, t1s=PER_T0 // 2),
    ]


def compare(kernels: Kernels, nics: int, seed: int = 1, show: Show = lambda progress: None) -> list[ComparedValue]:
    """Return the numbers of packets and model, scenario by scenario."""
    chosen = scenarios(nics)
    made = []
    for scenario, (seen, model) in zip(chosen, both(chosen, seed, kernels, show), strict=True):
        for what in COMPARED:
            name, unit = str(what).split(", ")
            kind = "goodput" if what is Quantity.GOODPUT else name
            made.append(ComparedValue(scenario.title, name, seen.values[what], model.values[what], unit, kind))
    return made


def document(nics: int, rows: Sequence[ComparedValue]) -> str:
    """Return the JSON that runs quote (`mrc_fluid.cases`): of each case packets and model, by what was compared."""
    cases: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        cases.setdefault(row.scenario, {})[KEYS[row.kind]] = [
            float(f"{value:.6g}") for value in (row.packets, row.model)
        ]
    return json.dumps({"nics": nics, "planes": PLANES, "packets": FLOW_PACKETS, "cases": cases}, indent=1) + "\n"


def both(
    chosen: Sequence[Scenario], seed: int, kernels: Kernels, show: Show = lambda progress: None
) -> list[tuple[ScenarioOutcome, ScenarioOutcome]]:
    """Return the outcomes of packets and of the model for each scenario; packets are run on all cores.

    Raises:
        ScenarioError: a run says nothing.
    """
    with scratch("large") as folder:
        made = suite.run(Plan(chosen, [seed], Algorithm()), pathlib.Path(folder), workers(), kernels, show)
    if made.problems:
        raise ScenarioError(made.problems[0])
    found = {(each.scenario, each.backend): each for each in made.outcomes}
    return [(found[each.name, Backend.PACKETS], found[each.name, Backend.FLUID]) for each in chosen]
