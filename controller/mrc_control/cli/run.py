"""`mrclab run` and `mrclab demo`."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from mrc_control.cli.common import need_namespaces, the_lab
from mrc_control.cli.control import parse_settings
from mrc_control.lab import lifecycle
from mrc_control.lab.rundir import RunDir, all_runs
from mrc_control.results import analysis, performance
from mrc_control.results.expectation import Expectation
from mrc_control.runs import compare as comparing
from mrc_control.runs import execute
from mrc_control.runs.compare import Cell, Comparison, known_comparisons, load_comparison
from mrc_control.runs.execute import Outcome
from mrc_control.runs.experiment import Experiment, ExperimentError, known_experiments, load_experiment
from mrc_control.runs.interruption import Interrupted, interruptible
from mrc_host.workloads import WORKLOADS
from mrc_topo.document import dotted, explain, printable
from mrc_topo.units import format_rate

Clock = Annotated[str | None, typer.Option(help="real (namespaces) or virtual (simulated time)")]
Folder = Annotated[pathlib.Path | None, typer.Option("-o", "--output", help="folder for result, verdict and report")]


def show(outcome: Outcome) -> None:
    """The verdict as tables."""
    console = Console()
    if outcome.verdict.recoveries:
        table = Table(title="what every failure did")
        for column in ("at", "what", "before", "capacity left", "lowest", "settled", "recovered after"):
            table.add_column(column, justify="left" if column == "what" else "right")
        for each in outcome.verdict.recoveries:
            took = "never" if each.recovery_s is None else f"{each.recovery_s * 1e3:.0f} ms"
            table.add_row(
                f"{each.at_s:.2f} s",
                each.text,
                format_rate(round(each.before_bps)),
                f"{min(each.expected, 9.99):.1%}",
                f"{each.dip:.1%}",
                f"{each.after:.1%}",
                took,
            )
        console.print(table)
    table = Table(title=f"verdict: {outcome.experiment.title}")
    for column in ("check", "expected", "measured", ""):
        table.add_column(column)
    for check in outcome.verdict.checks:
        mark = "[green]good[/]" if check.passed else "[red]missed[/]"
        table.add_row(check.what, check.expected, check.measured, mark)
    console.print(table)
    for measured in performance.tables(outcome.document):
        console.print(measured.text(), markup=False, highlight=False, soft_wrap=True)
    console.print(_sums(outcome))
    counters = outcome.document["program_counters"]
    shown = ", ".join(f"{key} {value}" for key, value in counters.items() if value)
    console.print(f"the P4 program counted: {shown or 'nothing'}")
    if not outcome.verdict.valid:
        for reason in outcome.verdict.reasons:
            console.print(f"[yellow]not valid[/]: {reason}")
    colour = "green" if outcome.verdict.passed else "red"
    console.print(f"[{colour}]{outcome.verdict.status}[/]; report: {outcome.folder / 'report.html'}")


def _sums(outcome: Outcome) -> str:
    """What the hosts counted, in one line."""
    document = outcome.document
    progress = document["progress"].values()
    sums = analysis.totals(document)
    seconds = (document["finished_ns"] - document["started_ns"]) / 1e9
    verified = sum(each["bytes_verified"] for each in progress)
    iterations = [each["iterations"] for each in progress if each["takes_part"]]
    spread = f"{min(iterations, default=0)}" + (f" to {max(iterations)}" if len(set(iterations)) > 1 else "")
    counted = ", ".join(f"{key} {value}" for key, value in sums.items())
    return f"{seconds:.2f} s, iterations {spread}, bytes verified {verified}; the hosts counted: {counted}"


def _clock(clock: str | None) -> str | None:
    if clock not in (None, "real", "virtual"):
        raise ExperimentError(f"clock is real or virtual, not '{clock}'")
    return clock


def _go(experiment: Experiment, clock: str | None, folder: pathlib.Path | None, as_json: bool) -> None:
    if (clock or experiment.clock) == "real":
        need_namespaces()
    console = Console(stderr=True)
    outcome = execute.execute(
        experiment, clock, folder=folder, live=not as_json, progress=lambda text: console.print(text, style="dim")
    )
    if as_json:
        measured = performance.of(outcome.document)
        typer.echo(json.dumps({"folder": str(outcome.folder), **outcome.verdict.document(), "performance": measured}))
    else:
        show(outcome)
    if outcome.signal:
        raise SystemExit(Interrupted(outcome.signal).exit_code)
    raise SystemExit(0 if outcome.verdict.passed else 1)


OPTIONS: dict[tuple[int | str, ...], str] = {
    ("workload", "duration"): "--duration",
    ("workload", "qps_per_peer"): "--qps",
    ("workload", "hosts"): "--hosts",
    ("workload",): "--set",
    ("transport",): "--transport",
    ("lab",): "--lab",
}


def _default_lab(running: bool, clock: str | None) -> str:
    """The lab of a workload that names none: the one that is up, where it can be used."""
    return RunDir(the_lab(None)).read().lab_file if running and clock != "virtual" else "default"


def _from_options(document: dict[str, Any]) -> Experiment:
    """The experiment that a command's options describe.

    Raises:
        ExperimentError: an option that cannot be; names it.
    """
    try:
        return Experiment.model_validate(document)
    except ValidationError as error:
        problems = []
        for each in error.errors():
            path = tuple(each["loc"])
            option = OPTIONS.get(path[:2]) or OPTIONS.get(path[:1]) or dotted(path)
            problems.append(f"{option}: {explain(Experiment, each)}")
        raise ExperimentError("\n".join(problems)) from error


def run(
    name: Annotated[str, typer.Argument(help="an experiment (name or file), or a workload")],
    param: Annotated[
        list[str] | None, typer.Option("--set", help="a parameter of the workload: size_bytes=1048576")
    ] = None,
    lab: Annotated[str | None, typer.Option(help="a lab, for a workload; the one that is up if left out")] = None,
    hosts: Annotated[
        str | None, typer.Option(help="hosts that take part, for a workload: h0,h3; all if left out")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="seconds, for a workload; else its iterations bound it")
    ] = None,
    transport: Annotated[str | None, typer.Option(help="mrc (if left out) or roce, for a workload")] = None,
    qps: Annotated[int | None, typer.Option(help="queue pairs per peer, for a workload; 1 if left out")] = None,
    clock: Clock = None,
    output: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the verdict as JSON")] = False,
) -> None:
    """Run an experiment or a workload; exit code 1 if anything expected was missed."""
    clock = _clock(clock)
    if name in WORKLOADS:
        running = [each.name for each in all_runs()]
        chosen = lab if lab is not None else _default_lab(bool(running), clock)
        workload = {
            "name": name,
            "params": parse_settings(param or []),
            "hosts": None if hosts is None else hosts.split(","),
            "duration": duration,
            "qps_per_peer": 1 if qps is None else qps,
        }
        experiment = _from_options(
            {
                "name": name,
                "title": f"{name} on {printable(pathlib.Path(chosen).stem)[:100]}",
                "lab": chosen,
                "clock": ("real" if running else "virtual") if clock is None else clock,
                "transport": "mrc" if transport is None else transport,
                "workload": workload,
                "expect": Expectation(valid=False),
            }
        )
    else:
        try:
            experiment = load_experiment(name)
        except ExperimentError as error:
            if "no such file" in str(error):
                raise ExperimentError(f"{error}; workloads: {', '.join(sorted(WORKLOADS))}") from error
            raise
        given = {"--set": param, "--lab": lab, "--hosts": hosts, "--duration": duration, "--qps": qps}
        ignored = [option for option, value in {**given, "--transport": transport}.items() if value is not None]
        if ignored:
            raise ExperimentError(
                f"{ignored[0]} is for workloads; '{experiment.name}' is an experiment: change its file"
            )
    _go(experiment, clock, output, as_json)


def demo(clock: Clock = None, output: Folder = None) -> None:
    """The demonstration: a ring all-reduce goes on while a link and a NIC port die and return.

    On the real clock where that is possible, else in simulated time.
    """
    clock = _clock(clock)
    if clock is None:
        problem = lifecycle.problem()
        if problem is not None:
            typer.echo(f"{problem}\nthe demonstration runs in simulated time instead", err=True)
        clock = "real" if problem is None else "virtual"
    try:
        _go(load_experiment("demo"), clock, output, as_json=False)
    except SystemExit:  # the run went to its end, whatever the verdict
        typer.echo(
            "open the report in a browser; next: `mrclab up`, `mrclab run ring_all_reduce --duration 30 &`, then break "
            "a switch: `mrclab fail p0-t1.1 --kind freeze`, `mrclab status`, `mrclab restore`"
        )
        raise


def compare(
    name: Annotated[str, typer.Argument(help="a comparison: its name, file or folder")] = "mrc-vs-roce",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Run a workload by several transports under several conditions; exit code 1 if an expectation was missed."""
    comparison = load_comparison(name)
    if comparison.clock == "real":
        need_namespaces()
    with interruptible(), Console(stderr=True).status("starting") as status:
        cells = comparing.compare(comparison, lambda text: status.update(text))
    judged = comparing.judge(comparison, cells)
    if as_json:
        # JSON has no infinity: a run that failed took no time that could be told.
        rows = [
            {"variant": variant, "condition": at, "failure": cell.failure}
            | {"seconds": cell.seconds if math.isfinite(cell.seconds) else None}
            for (variant, at), cell in cells.items()
        ]
        document = {"name": comparison.name, "cells": rows, "checks": [asdict(each) for each in judged]}
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
    else:
        _show_comparison(comparison, cells, judged)
    if not all(each.passed for each in judged):
        raise SystemExit(1)


def _show_comparison(
    comparison: Comparison, cells: dict[tuple[str, str], Cell], judged: Sequence[comparing.Judged]
) -> None:
    console = Console()
    first = comparison.conditions[0].name
    what = f"{comparison.workload.name}, {comparison.clock} clock: time of one iteration"
    table = Table(title=f"{comparison.title}\n{what}")
    table.add_column("variant")
    for condition in comparison.conditions:
        table.add_column(condition.name, justify="right")
    for variant in comparison.variants:
        row = []
        for condition in comparison.conditions:
            cell, base = cells[variant.name, condition.name], cells[variant.name, first]
            text = "failed" if math.isinf(cell.seconds) else f"{cell.seconds * 1e3:.1f} ms"
            if condition.name != first and not math.isinf(cell.seconds + base.seconds):
                text += f" (x {cell.seconds / base.seconds:.2f})"
            row.append(text)
        table.add_row(variant.name, *row)
    console.print(table)
    table = Table(box=None)
    for column in ("ratio of times", "expected", "measured", ""):
        table.add_column(column)
    for each in judged:
        mark = "[green]good[/]" if each.passed else "[red]missed[/]"
        table.add_row(each.what, each.wanted, each.measured, mark)
    console.print(table)
    for (name, at), cell in cells.items():
        if cell.failure:
            console.print(f"{name}, {at}: {cell.failure}")


def experiments() -> None:
    """List the experiments and comparisons that come with mrclab."""
    table = Table(box=None)
    for column in ("experiment", "what it shows", "lab", "clock"):
        table.add_column(column)
    for name in known_experiments():
        experiment = load_experiment(name)
        table.add_row(name, experiment.title, experiment.lab, experiment.clock)
    for name in known_comparisons():
        comparison = load_comparison(name)
        table.add_row(f"{name} (compare)", comparison.title, pathlib.Path(comparison.lab).stem, comparison.clock)
    Console().print(table)


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    for verb in (run, demo, experiments):
        app.command()(verb)
    app.command()(compare)
