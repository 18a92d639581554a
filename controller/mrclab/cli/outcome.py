"""Running an experiment for a command, and its verdict as tables, for all verbs that do."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer
from rich.table import Table
from rich.text import Text

from mrc_topo.base.interruption import Interrupted
from mrclab.cli import progress
from mrclab.cli.common import need_namespaces
from mrclab.cli.progress import Verbosity
from mrclab.lab import payloads
from mrclab.lab.session.counters import is_common
from mrclab.lab.session.fidelity import UNMEASURED
from mrclab.results import capacity, performance, tenants
from mrclab.results.performance import FlowRow
from mrclab.results.record import EXPLAINED, losses_of
from mrclab.results.report import RECOVERY_HEADS, recovery_cells
from mrclab.results.terminal import Terminal
from mrclab.runs import again, execute
from mrclab.runs.again import EarlierRun, RepeatReport
from mrclab.runs.execute import Outcome
from mrclab.runs.experiment import Experiment, ExperimentError
from mrclab.studies.cells.pages import write

#: Differing parts of results that are named; `--json` names all.
DIFFERING = 8

Clock = Annotated[str | None, typer.Option(help="real (network namespaces) or virtual (simulated time)")]


Folder = Annotated[
    pathlib.Path | None, typer.Option("-o", "--output", help="folder for result.json, verdict.json and report.html")
]


def clock_of(clock: str | None) -> str | None:
    if clock not in (None, "real", "virtual"):
        raise ExperimentError(f"clock is real or virtual, not '{clock}'")
    return clock


def run_and_show(
    experiment: Experiment,
    clock: str | None,
    folder: pathlib.Path | None,
    as_json: bool,
    *,
    trust_code: bool = False,
    earlier: EarlierRun | None = None,
    recorded: Experiment | None = None,
) -> NoReturn:
    """Run an experiment and end the command by its verdict; `earlier`: the run of which it is the repetition.

    `recorded`: what the results say was run, if it is not this experiment: one whose lab has a file of its own.

    Raises:
        SystemExit: 0 if everything came out as expected, and an earlier run's results are the same again; else 1.
    """
    if (clock or experiment.clock) == "real":
        need_namespaces()
    console = Terminal(stderr=True)

    def tell(text: str) -> None:
        if progress.chosen() > Verbosity.QUIET:
            console.print(text, style="dim")

    outcome = execute.execute(
        experiment,
        clock,
        folder=folder,
        live=not as_json,
        progress=tell,
        trust_code=trust_code,
        recorded=recorded if earlier is None else earlier.experiment,
    )
    write_flows(outcome)
    repetition = None if earlier is None else again.compared(earlier, outcome.result, outcome.folder)
    if as_json:
        measured = performance.of(outcome.result).document()
        made = {"folder": str(outcome.folder), **outcome.verdict.document(), "performance": measured}
        if told := tenants.figures(outcome.result):
            made["tenants"] = [asdict(each) for each in told]
        if earlier is not None and repetition is not None:
            made["again"] = {"of": str(earlier.folder), "caveats": earlier.caveats, **asdict(repetition)}
        typer.echo(json.dumps(made))
    else:
        show(outcome)
        if earlier is not None and repetition is not None:
            _show_repetition(earlier, repetition)
    if outcome.signal:
        raise SystemExit(Interrupted(outcome.signal).exit_code)
    same = repetition is None or repetition.passed
    raise SystemExit(0 if outcome.verdict.passed and same else 1)


def write_flows(outcome: Outcome) -> None:
    """Write the flows of a run, if it has any, into its folder: flows.csv, and flows.parquet where that can be."""
    for left in outcome.folder.glob("flows.*"):
        left.unlink()
    if flows := performance.of(outcome.result).flows:
        write(outcome.folder, "flows", FlowRow, flows, performance.FLOWS)


def _show_repetition(earlier: EarlierRun, repetition: RepeatReport) -> None:
    """Print what differs from the earlier run."""
    lines = [f"repeated: {earlier.folder}", *(f"note: {each}" for each in earlier.caveats)]
    lines += [f"provenance: {each}" for each in repetition.provenance] or ["provenance: the same"]
    if repetition.results is None:
        lines.append("results: not compared, because no two runs on the real clock are the same")
    elif repetition.results:
        shown, more = repetition.results[:DIFFERING], len(repetition.results) - DIFFERING
        lines.append(f"results: other bytes in {_by_file(shown)}{f'; and {more} more' if more > 0 else ''}")
    else:
        lines.append("results: the same bytes")
    for line in lines:
        typer.echo(line)


def _by_file(parts: Sequence[str]) -> str:
    """Return parts of results (`FILE: PART`, or `FILE`) as text, each file once."""
    found: dict[str, list[str]] = {}
    for each in parts:
        file, _, part = each.partition(": ")
        found.setdefault(file, []).extend([part] if part else [])
    return "; ".join(f"{file}: {', '.join(names)}" if names else file for file, names in found.items())


def show(outcome: Outcome) -> None:
    """Print the verdict as tables."""
    console = Terminal()
    if outcome.verdict.recoveries:
        table = Table(title="what every failure did")
        for column in RECOVERY_HEADS:
            table.add_column(column, justify="left" if column == "what" else "right")
        for each in outcome.verdict.recoveries:
            table.add_row(*recovery_cells(each))
        console.print(table)
    table = Table(title=f"verdict: {outcome.experiment.title}")
    for column in ("check", "expected", "measured", ""):
        table.add_column(column)
    for check in outcome.verdict.checks:
        mark = Text("good", "green") if check.passed else Text("missed", "red")
        table.add_row(check.what, check.expected, check.measured, mark)
    console.print(table)
    for measured in [*tenants.tables(outcome.result), *performance.tables(outcome.result)]:
        console.print(measured.text(), highlight=False, soft_wrap=True)
    console.print(_sums(outcome))
    if (use := capacity.use_of(outcome.result, outcome.topology)) is not None:
        console.print(f"capacity of the hosts' ports: {use.text()}")
    if lost := losses_of(outcome.result):
        console.print(
            f"packets lost: the fabric dropped {lost.dropped} because of failures, the hosts took {lost.taken} for lost"
        )
        console.print(" ".join(EXPLAINED), style="dim")
    counters = outcome.result.program_counters or {}
    # A counter of the user's own program is a question that 0 answers, too.
    shown = ", ".join(f"{key} {value}" for key, value in counters.items() if value or not is_common(key))
    console.print(f"the P4 program counted: {shown or 'nothing'}")
    if paused := _pauses(outcome):
        console.print(paused)
    if stalled := _stalls(outcome):
        console.print(stalled)
    colour = "green" if outcome.verdict.passed else "yellow" if outcome.verdict.timing_only else "red"
    console.print(Text.assemble((outcome.verdict.outcome, colour), f"; report: {outcome.folder / 'report.html'}"))
    # A run that never began has no times.
    if not outcome.verdict.valid and outcome.result.fidelity != UNMEASURED:
        console.print("the machine did not keep up, so times and rates above are not valid:", style="yellow")
        for reason in outcome.verdict.reasons:
            console.print(f"  {reason}")


def _pauses(outcome: Outcome) -> str:
    """Summarise priority flow control in one line; return an empty text if it did nothing."""
    pauses = outcome.result.pauses or {}
    rows = [(each.paused_ns, port, each) for port, classes in pauses.items() for each in classes.values()]
    if not rows:
        return ""
    longest, port, _ = max(rows, key=lambda row: row[0])
    sent, storms, beyond = (
        sum(counts)
        for counts in zip(*((each.pauses_sent, each.storms, each.headroom_drops) for *_, each in rows), strict=True)
    )
    return (
        f"flow control: {sent} pause frames at {len(pauses)} ports, longest at {port} "
        f"({longest / 1e6:.1f} ms); storms {storms}, packets beyond the headroom {beyond}"
    )


def _stalls(outcome: Outcome) -> str:
    """Summarise credit stalls in one line; return an empty text if there were none."""
    credits = outcome.result.credits or {}
    rows = [(each.stall_ns, port) for port, classes in credits.items() for each in classes.values()]
    if not rows:
        return ""
    longest, port = max(rows)
    return f"credits: {len(credits)} ports of switches waited for some, longest {port} ({longest / 1e6:.1f} ms)"


def _sums(outcome: Outcome) -> str:
    """Summarise the hosts' counters in one line."""
    result = outcome.result
    sums, achieved = result.totals(), result.achieved()
    least, most = achieved.least_iterations, achieved.most_iterations
    spread = f"{least} to {most}" if most > least else f"{least}"
    names = {key: key.replace("_", " ") for key in sums} | {"losses": "taken for lost"}
    counted = ", ".join(f"{names[key]} {value}" for key, value in sums.items())
    right = (
        f"bytes {payloads.NOT_VERIFIED}" if result.fidelity.length_only else f"bytes verified {achieved.bytes_verified}"
    )
    return f"{result.seconds:.2f} s, iterations {spread}, {right}; the hosts counted: {counted}"
