"""The suite's folder: tables, a README with which a reviewer repeats it, and a page with plots."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mrc_fluid.cases import MOST_OFF
from mrc_fluid.validation import plots, readme, summary
from mrc_fluid.validation.closed import ClosedForm
from mrc_fluid.validation.differences import Difference, Value
from mrc_fluid.validation.outcome import LEAST_SEEDS, ScenarioOutcome
from mrc_fluid.validation.scenario import Backend, Quantity, Scenario
from mrc_fluid.validation.suite import SuiteResult
from mrc_topo.base.files import write_whole
from mrclab.pages import chart
from mrclab.studies.cells import pages
from mrclab.studies.cells.measure import software
from mrclab.studies.cells.pages import write

PAGE, README = "index.html", "README.md"
STYLE = "tr.unexplained td { background: var(--warn-paper) }"
#: The folder of the plots.
PLOTS = "plots"


class FlowRow(NamedTuple):
    """A flow of a run; times in microseconds."""

    scenario: str
    backend: str
    seed: int
    flow: int
    source: int
    target: int
    bytes: int
    start_us: float
    completion_us: float


class ValueRow(NamedTuple):
    """A quantity of a run."""

    scenario: str
    backend: str
    seed: int
    quantity: str
    value: float


class VariantRow(NamedTuple):
    """A quantity of a run in which a published algorithm stands for MRC's own."""

    variant: str
    part: str
    scenario: str
    seed: int
    quantity: str
    value: float


def write_folder(made: SuiteResult, folder: pathlib.Path, command: str) -> pathlib.Path:
    """Write tables, README and page; return the page.

    Args:
        command: what repeats the suite.

    Raises:
        WriteError: a file could not be written.
    """
    specs = {each.name: each for each in made.plan.scenarios}
    write(folder, "flows", FlowRow, _flows(specs, made.outcomes))
    values = [
        ValueRow(each.scenario, each.backend, each.seed, quantity, value)
        for each in made.outcomes
        for quantity, value in each.values.items()
    ]
    write(folder, "values", ValueRow, values)
    for name, kind, rows in (("differences", Difference, made.differences), ("closed-forms", ClosedForm, made.forms)):
        write(folder, name, kind, rows, readme.COLUMNS[name])
    if made.variant_values:
        write(folder, "variants", VariantRow, _variants(made))
    overview = plots.all_plots(made)
    (folder / PLOTS).mkdir(exist_ok=True)
    for name, text in overview.items():
        write_whole(folder / PLOTS / f"validation-{name}.svg", text)
    document = summary.summary(made, command)
    write_whole(folder / summary.SUMMARY, document.model_dump_json(indent=1) + "\n")
    write_whole(folder / README, readme.text(made, document, command))
    write_whole(folder / PAGE, _page(made, command))
    return folder / PAGE


def _flows(specs: dict[str, Scenario], outcomes: Sequence[ScenarioOutcome]) -> list[FlowRow]:
    return [
        FlowRow(
            outcome.scenario, outcome.backend, outcome.seed, number, flow.source, flow.target, flow.bytes,
            flow.start_ns / 1e3, time,
        )
        for outcome in outcomes
        for number, (flow, time) in enumerate(
            zip(specs[outcome.scenario].flows(outcome.seed), outcome.completion_us, strict=True)
        )
    ]  # fmt: skip


def _variants(made: SuiteResult) -> list[VariantRow]:
    return [
        VariantRow(variant.name, variant.part.name.lower(), outcome.scenario, outcome.seed, quantity, value)
        for variant, outcome in made.variant_outcomes
        for quantity, value in outcome.values.items()
    ]


def _page(made: SuiteResult, command: str) -> str:
    beyond = [each for each in made.differences if each.beyond]
    beyond.sort(key=lambda each: -abs(each.off) / each.bound)
    wrong = {
        (each.scenario, each.backend, each.quantity): note for note, each in enumerate(beyond, 1) if _not_modelled(each)
    }
    few = len(made.plan.seeds) < LEAST_SEEDS
    rows = [
        (scenario, backend, ["-" if each is None else _cell(each, wrong, few) for each in cells])
        for scenario, backend, cells in table(made.plan.scenarios, made.values)
    ]
    body = pages.fill(
        "validate.html",
        command=command,
        seeds=made.plan.seeds,
        few=few,
        htsim=any(each.backend is Backend.HTSIM for each in made.values),
        finding=_finding(made.differences),
        rows=rows,
        quantities=[each.label for each in Quantity],
        differences=[(each, off(each)) for each in beyond],
        within=len(made.differences) - len(beyond),
        unexplained=len(made.unexplained),
        forms=made.forms,
        problems=made.problems,
        overview=[chart.html(each) for each in plots.overview_charts(made, not few)],
        plots=[chart.html(plots.completions(each, made)) for each in made.plan.scenarios],
        software=software(),
    )
    return chart.page("mrclab validate", body, STYLE)


def _not_modelled(each: Difference) -> bool:
    """Return whether a backend is off by so much that its value is no value."""
    return abs(each.off) > (MOST_OFF if each.bound < 1 else 100 * MOST_OFF)


def _cell(value: Value, wrong: Mapping[tuple[str, Backend, Quantity], int], few: bool) -> str:
    note = wrong.get((value.scenario, value.backend, value.quantity))
    if note is not None:
        return f"not modelled [{note}]"
    return shown(replace(value, half=None) if few else value)


def _finding(differences: Sequence[Difference]) -> str:
    """Return what the suite found, in a sentence."""
    if not differences:
        return "Nothing was compared with packets."
    beyond = [each for each in differences if each.beyond]
    wrong = sum(map(_not_modelled, beyond))
    worst = max(differences, key=lambda each: abs(each.off) / each.bound)
    agree = f"{len(differences) - len(beyond)} of {len(differences)} values agree with packets within the bound"
    if not beyond:
        return f"{agree}."
    what = f"{worst.quantity.label.partition(',')[0]} of the {worst.backend.label} in {worst.scenario}"
    said = f"the worst, {what}, is off by {off(worst)}"
    return f"{agree}; {said}. {wrong} are off by more than 15 % and count as not modelled."


def off(each: Difference) -> str:
    """Return a difference as text: relative, or in percentage points."""
    return f"{100 * each.off:+.1f} %" if each.bound < 1 else f"{each.off:+.1f} points"


def table(scenarios: Sequence[Scenario], values: Sequence[Value]) -> list[tuple[Scenario, Backend, list[Value | None]]]:
    """Return a row per scenario and backend, in the order of `Quantity`; None where a backend has no such value."""
    found = {(each.scenario, each.backend, each.quantity): each for each in values}
    rows = []
    for scenario in scenarios:
        for backend in Backend:
            cells = [found.get((scenario.name, backend, quantity)) for quantity in Quantity]
            if any(cells):
                rows.append((scenario, backend, cells))
    return rows


def shown(value: Value) -> str:
    """Return a mean with half of its confidence interval."""
    digits = 3 if value.quantity is Quantity.JAIN else 1
    half = "" if value.half is None else f" ± {value.half:.{digits}f}"
    return f"{value.mean:.{digits}f}{half}"
