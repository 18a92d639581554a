"""The suite: every scenario, seed and backend, what came out, and where backends differ."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
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
from mrclab.studies.cells import workers
from mrclab.studies.cells.measure import Cell, prepare, software
from mrclab.studies.cells.workers import CellProgress, CellStore, CellTask

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
    show: Callable[[CellProgress], None] = lambda each: None,
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
    digests = {key: cell.digest(programs) for key, cell in cells.items()}
    tasks = {digests[key]: CellTask(digests[key], cell.name, cell) for key, cell in cells.items()}
    others = _variant_cells(plan)
    for variant, _, _, cell in others:
        digest = cell.digest(programs)
        tasks.setdefault(digest, CellTask(digest, f"{cell.name}, {variant.name}", cell))
    failed = workers.run(list(tasks.values()), store, jobs, show)
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
            interruption.check()
            show(CellProgress(len(tasks), len(tasks), None, f"{scenario.name}, seed {seed}: other backends"))
            key = scenario.name, seed
            try:
                if scenario.fluid:
                    made.outcomes.append(fluid.outcome(scenario, seed, cells[key].lab, topologies[key], kernels))
                if plan.htsim is not None and scenario.htsim:
                    made.outcomes.append(plan.htsim.outcome(scenario, seed, folder / HTSIM))
            except ScenarioError as error:
                made.problems.append(str(error))
    _add_variants(made, others, programs, store, failed)
    made.values = values(made.outcomes)
    made.differences = differences(made.values, shares)
    return made


def _add_variants(
    made: SuiteResult,
    cells: Sequence[tuple[Variant, Scenario, int, Cell]],
    programs: str,
    store: CellStore,
    failed: Mapping[str, str],
) -> None:
    """Add what the variants' runs say, or why they say nothing."""
    for variant, scenario, seed, cell in cells:
        digest = cell.digest(programs)
        kept = store.get(digest)
        if kept is None:
            reason = failed.get(digest, "its result could not be read")
            made.problems.append(f"{cell.name}, {variant.name}: {reason}")
            continue
        try:
            made.variant_outcomes.append((variant, packets.outcome(scenario, seed, kept.result)))
        except ScenarioError as error:
            made.problems.append(f"{variant.name}: {error}")
    made.variant_values = variants.values(made.variant_outcomes)


def _variant_cells(plan: Plan) -> list[tuple[Variant, Scenario, int, Cell]]:
    """Return the runs of all variants; those of MRC's own algorithms are often runs of the scenarios, too."""
    known = by_name()
    return [
        (variant, known[name], seed, packets.cell(known[name], seed, variant.algorithm))
        for variant in plan.variants
        for name in variants.SCENARIOS[variant.part]
        for seed in plan.seeds
    ]
