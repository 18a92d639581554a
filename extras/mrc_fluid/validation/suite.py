"""The suite: every scenario, seed and backend, what came out, and where backends differ."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mrc_fluid.kernels import Kernels
from mrc_fluid.validation import closed, fluid, packets, variants
from mrc_fluid.validation.closed import ClosedForm
from mrc_fluid.validation.differences import Difference, Value, differences, values
from mrc_fluid.validation.htsim import Htsim
from mrc_fluid.validation.outcome import ScenarioError, ScenarioOutcome
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import Scenario
from mrc_fluid.validation.scenarios import by_name
from mrc_fluid.validation.variants import Variant, VariantValue
from mrc_topo.base import interruption
from mrc_topo.topology import Topology
from mrclab.studies.cells import store as keeping
from mrclab.studies.cells.measure import Cell, prepare, software
from mrclab.studies.cells.store import CellStore
from mrclab.studies.engine import Progress, Show, Task

#: Files of htsim's input and output.
HTSIM = "htsim"


@dataclass(frozen=True)
class Plan:
    """What is run: scenarios by name, seeds, what endpoints run, htsim if the user has it, and published algorithms on
    scenarios of their own (`variants.SCENARIOS`)."""

    scenarios: Sequence[Scenario]
    seeds: Sequence[int]
    algorithm: Algorithm
    htsim: Htsim | None = None
    variants: Sequence[Variant] = ()


@dataclass
class SuiteResult:
    """All that came out; `problems` are runs that say nothing."""

    plan: Plan
    outcomes: list[ScenarioOutcome] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    forms: list[ClosedForm] = field(default_factory=list)
    variant_outcomes: list[tuple[Variant, ScenarioOutcome]] = field(default_factory=list)
    variant_values: list[VariantValue] = field(default_factory=list)

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
    show: Show = lambda progress: None,
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
            interruption.check()
            cell = packets.cell(scenario, seed, plan.algorithm)
            topologies[scenario.name, seed] = prepare(cell)
            cells[scenario.name, seed] = cell
    tasks = {key: cell.task(programs, cell.name) for key, cell in cells.items()}
    others = list(_variant_tasks(plan, programs))
    # What is a run of both has the scenario's name.
    failed = keeping.run([*(task for *_, task in others), *tasks.values()], store, jobs, show)
    made = SuiteResult(plan)

    def add(scenario: Scenario, seed: int, task: Task[Cell], variant: str = "") -> list[ScenarioOutcome]:
        """Return the outcome of a run; none if it says nothing, which is a problem."""
        result = store.result(task.digest)
        if result is None:
            reason = failed[task.digest].failure if task.digest in failed else "its result could not be read"
            made.problems.append(f"{task.name}: {reason}")
            return []
        try:
            return [packets.outcome(scenario, seed, result)]
        except ScenarioError as error:
            made.problems.append(f"{variant}{error}")
            return []

    for scenario in plan.scenarios:
        own = [each for seed in plan.seeds for each in add(scenario, seed, tasks[scenario.name, seed])]
        made.outcomes += own
        made.forms += closed.forms(scenario, topologies[scenario.name, plan.seeds[0]], own)
    for scenario in plan.scenarios:
        for seed in plan.seeds:
            interruption.check()
            show(Progress(len(tasks), len(tasks), 0, None, f"{scenario.name}, seed {seed}: other backends"))
            key = scenario.name, seed
            try:
                if scenario.fluid:
                    made.outcomes.append(fluid.outcome(scenario, seed, cells[key].lab, topologies[key], kernels))
                if plan.htsim is not None and scenario.htsim:
                    made.outcomes.append(plan.htsim.outcome(scenario, seed, folder / HTSIM))
            except ScenarioError as error:
                made.problems.append(str(error))
    for variant, scenario, seed, task in others:
        made.variant_outcomes += [(variant, each) for each in add(scenario, seed, task, f"{variant.name}: ")]
    made.variant_values = variants.values(made.variant_outcomes)
    made.values = values(made.outcomes)
    last = plan.seeds[-1]
    shares = {each.name: fluid.payload_of(each, last, topologies[each.name, last]) for each in plan.scenarios}
    made.differences = differences(made.values, shares)
    return made


def _variant_tasks(plan: Plan, programs: str) -> Iterator[tuple[Variant, Scenario, int, Task[Cell]]]:
    """Yield the runs of all variants; those of MRC's own algorithms are often runs of the scenarios, too."""
    known = by_name()
    for variant in plan.variants:
        for name in variants.SCENARIOS[variant.part]:
            for seed in plan.seeds:
                cell = packets.cell(known[name], seed, variant.algorithm)
                yield variant, known[name], seed, cell.task(programs, f"{cell.name}, {variant.name}")
