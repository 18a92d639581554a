"""The suite: every scenario, seed and backend, what came out, and where backends differ."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mrc_scale.kernels import Kernels
from mrc_studies.cells import workers
from mrc_studies.cells.cell import Cell
from mrc_studies.cells.measure import prepare, software
from mrc_studies.cells.workers import CellStore, Progress, Task
from mrc_studies.validation import closed, fluid, packets
from mrc_studies.validation.closed import ClosedForm
from mrc_studies.validation.differences import Difference, Value, differences, values
from mrc_studies.validation.htsim import Htsim
from mrc_studies.validation.outcome import Outcome, ScenarioError
from mrc_studies.validation.packets import Algorithm
from mrc_studies.validation.scenario import Scenario
from mrc_topo.topology import Topology

#: Files of htsim's input and output.
HTSIM = "htsim"


@dataclass(frozen=True)
class Plan:
    """What is run: scenarios by name, seeds, what endpoints run, and htsim if the user has it."""

    scenarios: Sequence[Scenario]
    seeds: Sequence[int]
    algorithm: Algorithm
    htsim: Htsim | None = None


@dataclass
class SuiteResult:
    """All that came out; `problems` are runs that say nothing."""

    plan: Plan
    outcomes: list[Outcome] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    forms: list[ClosedForm] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Difference]:
        """Differences beyond the bound without a cause."""
        return [each for each in self.differences if each.unexplained]

    @property
    def passed(self) -> bool:
        """Return whether every run says something and every closed form holds."""
        return not self.problems and all(each.holds for each in self.forms)


def run(
    plan: Plan,
    folder: pathlib.Path,
    jobs: int,
    kernels: Kernels,
    show: Callable[[Progress], None] = lambda each: None,
) -> SuiteResult:
    """Run the suite; what the folder already has of packets is not repeated.

    Raises:
        WriteError: something could not be written; what was done stays.
        LabError, ExperimentError: a scenario's lab cannot be; nothing was started.
    """
    store, programs = CellStore(folder), software()
    cells: dict[tuple[str, int], Cell] = {}
    topologies: dict[tuple[str, int], Topology] = {}
    for scenario in plan.scenarios:
        for seed in plan.seeds:
            cell = packets.cell(scenario, seed, plan.algorithm)
            topologies[scenario.name, seed] = prepare(cell)
            cells[scenario.name, seed] = cell
    digests = {key: cell.digest(programs) for key, cell in cells.items()}
    tasks = [Task(digests[key], cell.name, cell) for key, cell in cells.items()]
    failed = workers.run(tasks, store, jobs, show)
    made = SuiteResult(plan)
    shares = {}
    for scenario in plan.scenarios:
        own = []
        for seed in plan.seeds:
            key = scenario.name, seed
            kept = store.get(digests[key])
            if kept is None:
                made.problems.append(f"{cells[key].name}: {failed.get(digests[key], 'its result could not be read')}")
                continue
            shares[scenario.name] = fluid.payload_of(scenario, seed, topologies[key])
            try:
                own.append(packets.outcome(scenario, seed, kept.result))
            except ScenarioError as error:
                made.problems.append(str(error))
        made.outcomes += own
        first = topologies[scenario.name, plan.seeds[0]]
        made.forms += closed.forms(scenario, first, own)
    for scenario in plan.scenarios:
        for seed in plan.seeds:
            show(Progress(len(tasks), len(tasks), None, f"{scenario.name}, seed {seed}: other backends"))
            key = scenario.name, seed
            try:
                if scenario.fluid:
                    made.outcomes.append(fluid.outcome(scenario, seed, cells[key].lab, topologies[key], kernels))
                if plan.htsim is not None and scenario.htsim:
                    made.outcomes.append(plan.htsim.outcome(scenario, seed, folder / HTSIM))
            except ScenarioError as error:
                made.problems.append(str(error))
    made.values = values(made.outcomes)
    made.differences = differences(made.values, shares)
    return made
