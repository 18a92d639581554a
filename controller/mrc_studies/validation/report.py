"""The suite's folder: tables, a README with which a reviewer repeats it, and a page with plots."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from mrc_common.files import write_whole
from mrc_studies.cells import pages
from mrc_studies.cells.measure import software
from mrc_studies.cells.tables import Kind, has_parquet, write
from mrc_studies.validation.differences import Difference, Value
from mrc_studies.validation.outcome import Outcome
from mrc_studies.validation.scenario import Backend, Quantity, Scenario
from mrc_studies.validation.suite import SuiteResult

PAGE, README = "index.html", "README.md"
STYLE = """
svg { width: 100%; max-width: 34rem; height: auto } td.n { text-align: right } .plots { display: flex; flex-wrap: wrap }
.plots figure { margin: 0 1rem 1rem 0; flex: 1 1 24rem } tr.unexplained td { background: var(--warn-paper) }
"""
COLOURS = {Backend.PACKETS: "#0072b2", Backend.FLUID: "#e69f00", Backend.HTSIM: "#009e73"}
DASHES = {Backend.PACKETS: "-", Backend.FLUID: "--", Backend.HTSIM: ":"}


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


class DifferenceRow(NamedTuple):
    """A quantity of another backend beside packets; means over seeds."""

    scenario: str
    backend: str
    quantity: str
    packets: float
    other: float
    off: float
    bound: float
    beyond: bool
    cause: str


class FormRow(NamedTuple):
    """A closed form beside packets."""

    scenario: str
    what: str
    bound: str
    expected: float
    measured: float
    tolerance: float
    holds: bool


KINDS = (
    dict.fromkeys(("seed", "flow", "source", "target", "bytes"), Kind.WHOLE)
    | dict.fromkeys(
        ("start_us", "completion_us", "value", "packets", "other", "off", "expected", "measured", "tolerance"),
        Kind.NUMBER,
    )
    | dict.fromkeys(("beyond", "holds"), Kind.TRUTH)
)
#: The tables: what a row is of, and what the columns are.
TABLES = {
    "flows": (
        "flow of a run",
        "scenario, backend, seed, number, source and target (hosts), bytes, start and completion time (us)",
    ),
    "values": ("quantity of a run", "scenario, backend, seed, quantity with its unit, value"),
    "differences": (
        "quantity of another backend",
        "means over seeds of packets and the other, `off` (relative; percentage points for shares of packets), the "
        "bound, whether it is beyond it, and the cause",
    ),
    "closed-forms": (
        "closed form",
        "what, how it bounds (`equal`, `at most`), expected, measured, relative tolerance, whether it holds",
    ),
}
#: In both tables a bound is of another kind.
NUMBER_BOUND = KINDS | {"bound": Kind.NUMBER}


def write_folder(made: SuiteResult, folder: pathlib.Path, command: str) -> pathlib.Path:
    """Write tables, README and page; return the page.

    Args:
        command: what repeats the suite.

    Raises:
        WriteError: a file could not be written.
    """
    specs = {each.name: each for each in made.plan.scenarios}
    write(folder, "flows", FlowRow, _flows(specs, made.outcomes), KINDS)
    values = [
        ValueRow(each.scenario, each.backend, each.seed, quantity, value)
        for each in made.outcomes
        for quantity, value in each.values.items()
    ]
    write(folder, "values", ValueRow, values, KINDS)
    rows = [
        DifferenceRow(
            each.scenario, each.backend, each.quantity, each.packets, each.other, each.off, each.bound, each.beyond,
            each.cause,
        )
        for each in made.differences
    ]  # fmt: skip
    write(folder, "differences", DifferenceRow, rows, NUMBER_BOUND)
    forms = [
        FormRow(each.scenario, each.what, each.bound, each.expected, each.measured, each.tolerance, each.holds)
        for each in made.forms
    ]
    write(folder, "closed-forms", FormRow, forms, KINDS)
    write_whole(folder / README, _readme(made, command))
    write_whole(folder / PAGE, _page(made, command))
    return folder / PAGE


def _flows(specs: dict[str, Scenario], outcomes: Sequence[Outcome]) -> list[FlowRow]:
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


def _readme(made: SuiteResult, command: str) -> str:
    kind = "Parquet and CSV" if has_parquet() else "CSV (pyarrow is not installed, so there is no Parquet)"
    seeds = ", ".join(map(str, made.plan.seeds))
    text = "\n".join(f"| `{name}` | {what} | {columns} |" for name, (what, columns) in TABLES.items())
    return f"""# Validation of mrclab: {len(made.plan.scenarios)} scenarios, seeds {seeds}

Made by mrclab {importlib.metadata.version("mrclab")}, sources `{software()[:16]}`, with

    {command}

Runs that this folder already has in `runs` are not repeated; in an empty folder all are. Packets are simulated with the
endpoints and P4 switches of mrclab, in simulated time; the fluid model is that of `mrclab scale`. uet-htsim is not part
of mrclab: build `htsim_uec` from its sources and name it with `--htsim`. Its input and output are in `htsim`.

Tables ({kind}):

| file | a row per | columns |
|---|---|---|
{text}

Beyond the bound and without a cause: {len(made.unexplained)} of {len(made.differences)} differences.
"""


def _page(made: SuiteResult, command: str) -> str:
    plots = []
    if importlib.util.find_spec("matplotlib") is not None:
        plots = [(each, Markup(_svg(each, made.outcomes))) for each in made.plan.scenarios]
    return pages.render(
        "validate.html",
        "mrclab validate",
        STYLE,
        command=command,
        seeds=made.plan.seeds,
        rows=[
            (scenario, backend, ["" if each is None else shown(each) for each in cells])
            for scenario, backend, cells in table(made.plan.scenarios, made.values)
        ],
        quantities=list(Quantity),
        differences=[(each, off(each)) for each in made.differences if each.beyond],
        within=sum(not each.beyond for each in made.differences),
        unexplained=len(made.unexplained),
        forms=made.forms,
        problems=made.problems,
        plots=plots,
        software=software(),
    )


def off(each: Difference) -> str:
    """Return a difference as text: relative, or in percentage points."""
    return f"{each.off:+.1%}" if each.bound < 1 else f"{each.off:+.1f} points"


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


def _svg(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    """Return the distribution of completion times over all seeds as SVG; the same bytes for the same numbers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = {"svg.hashsalt": f"mrclab-{scenario.name}", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        drawn, plot = pyplot.subplots(figsize=(4.6, 2.6), layout="constrained")
        for backend in Backend:
            own = [each for each in outcomes if each.scenario == scenario.name and each.backend is backend]
            times = sorted(time for each in own for time in each.completion_us)
            if times:
                shares = [(number + 1) / len(times) for number in range(len(times))]
                style = {"color": COLOURS[backend], "linestyle": DASHES[backend], "label": backend.value}
                plot.step([times[0], *times], [0.0, *shares], where="post", **style)
        plot.set_xlabel("flow completion time, us")
        plot.set_ylabel("share of flows")
        plot.set_xlim(left=0)
        plot.grid(alpha=0.3)
        if plot.lines:
            plot.legend(fontsize=8)
        text = pages.svg_of(drawn)
        pyplot.close(drawn)
    return text
