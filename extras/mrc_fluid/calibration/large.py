"""The model held against packets on fabrics of hundreds of NICs: a permutation of small messages, and what fails in it.

A NIC has two ports of 50 Gb/s, a T0 has as many uplinks as NICs, and each NIC sends 1 MiB to one below another T0.
Queues and marks are those of `mrclab validate`.
"""

from __future__ import annotations

import hashlib
import pathlib
import random
from collections.abc import Sequence

from mrc_fluid import sources
from mrc_fluid.calibration.calibrate import ComparedValue
from mrc_fluid.cases import CaseValues, Comparison, FailureCase, comparisons
from mrc_fluid.kernels import Kernels, workers
from mrc_fluid.validation import fluid, packets, suite
from mrc_fluid.validation.outcome import ScenarioError, ScenarioOutcome
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import MTU, Backend, Failure, FlowSpec, Quantity, Scenario, ScenarioFabric
from mrc_fluid.validation.suite import Plan
from mrc_topo.base.errors import UsageError
from mrc_topo.schema import MAX_HOSTS
from mrclab.studies.cells import store as keeping
from mrclab.studies.cells.measure import prepare, software
from mrclab.studies.cells.store import CellStore
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
#: What is compared, by its name in files.
QUANTITIES = {"goodput": Quantity.GOODPUT, "p50": Quantity.P50, "p99": Quantity.P99}
#: Of packets; a case with fewer has the first of them.
SEEDS = (1, 2, 3, 4, 5)


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

    def scenario(name: str, case: FailureCase, *failures: Failure, slow: bool = False, t1s: int = PER_T0) -> Scenario:
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


def settings(nics: int) -> str:
    """Return the digest of the labs, flows and failures that packets are run with: results of other ones are none."""
    found = hashlib.sha256()
    for scenario in scenarios(nics):
        cell = packets.cell(scenario, SEEDS[0], Algorithm())
        found.update(cell.lab.model_dump_json().encode() + cell.experiment.model_dump_json().encode())
    return found.hexdigest()[:16]


def compare(kernels: Kernels, nics: int, show: Show = lambda progress: None) -> Comparison:
    """Return packets and model, case by case and seed by seed; packets are those that are stored, if there are any of
    these labs."""
    chosen, asked = scenarios(nics), settings(nics)
    stored = next((each for each in comparisons() if each.nics == nics and each.settings == asked), None)
    seen = _packets(chosen, show) if stored is None else {case: each.packets for case, each in stored.cases.items()}
    cases = {}
    for scenario in chosen:
        by_seed = [model(scenario, seed, kernels) for seed in SEEDS[: len(seen[scenario.title]["goodput"])]]
        of_model = {name: [each[name] for each in by_seed] for name in QUANTITIES}
        cases[scenario.title] = CaseValues(seen[scenario.title], of_model)
    return Comparison(nics, PLANES, FLOW_PACKETS, asked, sources.digest(sources.FLOWS), cases)


def model(scenario: Scenario, seed: int, kernels: Kernels) -> dict[str, float]:
    """Return what the model says of a scenario with one seed."""
    cell = packets.cell(scenario, seed, Algorithm())
    return _of(fluid.outcome(scenario, seed, cell.lab, prepare(cell), kernels))


def _packets(chosen: Sequence[Scenario], show: Show) -> dict[str, dict[str, list[float]]]:
    """Run packets with all seeds on all cores.

    Raises:
        ScenarioError: a run says nothing.
    """
    every = [(scenario, seed) for scenario in chosen for seed in SEEDS]
    programs = software()
    found: dict[str, dict[str, list[float]]] = {each.title: {name: [] for name in QUANTITIES} for each in chosen}
    with scratch("large") as folder:
        store = CellStore(pathlib.Path(folder))
        cells = [packets.cell(scenario, seed, Algorithm()) for scenario, seed in every]
        tasks = [cell.task(programs, cell.name) for cell in cells]
        failed = keeping.run(tasks, store, workers(), show)
        for (scenario, seed), task in zip(every, tasks, strict=True):
            result = store.result(task.digest)
            if result is None:
                raise ScenarioError(f"{task.name}: {failed[task.digest].failure}")
            for name, value in _of(packets.outcome(scenario, seed, result)).items():
                found[scenario.title][name].append(value)
    return found


def _of(outcome: ScenarioOutcome) -> dict[str, float]:
    """Return the compared quantities of an outcome, as they are stored."""
    return {name: float(f"{outcome.values[quantity]:.6g}") for name, quantity in QUANTITIES.items()}


def rows(made: Comparison) -> list[ComparedValue]:
    """Return the means over seeds as rows of a table."""
    return [
        ComparedValue(case, str(quantity).split(", ")[0], values.mean(name), values.mean(name, of_model=True),
                      str(quantity).split(", ")[1], name)
        for case, values in made.cases.items() for name, quantity in QUANTITIES.items()
    ]  # fmt: skip


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
