"""`mrclab figures`: the paper's figures, reproduced and judged."""

from __future__ import annotations

import os
import pathlib
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from mrc_topo.base.interruption import interruptible
from mrclab.cli.progress import study_progress
from mrclab.results import resultdir
from mrclab.results.terminal import Terminal
from mrclab.runs.experiment import ExperimentError
from mrclab.studies.engine import duration
from mrclab.studies.figures import catalogue, produce
from mrclab.studies.figures.model import FigureStatus, JudgedFigure
from mrclab.studies.figures.produce import Plan


def verb(
    names: Annotated[list[str] | None, typer.Argument(help="figure numbers of the paper (default: all)")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="small scale, minutes (the default)")] = False,
    full: Annotated[bool, typer.Option("--full", help="longer runs, more hosts, five seeds: an hour")] = False,
    seeds: Annotated[
        int | None, typer.Option(help="seeds; the verdict is that of medians (default: 1, with --full up to 5)")
    ] = None,
    alternatives: Annotated[
        bool, typer.Option("--alternatives", help="figures that differ also with published policies")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="list the figures and how long each takes")] = False,
    jobs: Annotated[int | None, typer.Option(help="runs in parallel (default: one per core)")] = None,
    output: Annotated[
        pathlib.Path,
        typer.Option("-o", "--output", help="folder for results; runs that it already has are not repeated"),
    ] = resultdir.RESULTS / "figures",
) -> None:
    """Reproduce the figures of the MRC paper in simulated time.

    Exit with 1 if a figure differs from the paper for no known reason, with 3 if a figure could not run.
    """
    if quick and full:
        raise ExperimentError("--quick and --full exclude each other; choose one")
    if jobs is not None and not 1 <= jobs <= 1024:
        raise ExperimentError(f"--jobs is a number of processes from 1 to 1024, not {jobs}")
    if seeds is not None and not 1 <= seeds <= 100:
        raise ExperimentError(f"--seeds is a number of seeds from 1 to 100, not {seeds}")
    plan = Plan("full" if full else "quick", seeds, alternatives)
    chosen = catalogue.chosen(names or [])
    count = jobs or len(os.sched_getaffinity(0))
    if listed:
        _list(plan, count)
        return
    error = Terminal(stderr=True)
    with interruptible(), resultdir.prepared(output, 0.0):
        about = produce.estimate_s(chosen, plan, count)
        error.print(f"{len(chosen)} figures on {count} cores, about {duration(about)} from the beginning", style="dim")
        with study_progress() as show:
            page, done = produce.produce(chosen, plan, output, count, show)
    _show(done, page)
    if any(each.status is FigureStatus.NOT_REPRODUCED for each in done):
        raise SystemExit(1)
    if any(each.status is FigureStatus.COULD_NOT_RUN for each in done):
        raise SystemExit(3)


def _list(plan: Plan, jobs: int) -> None:
    table = Table(title=f"figures, {plan.options}")
    for column in ("figure", "what", "seeds", "runs", "about"):
        table.add_column(column)
    for figure in catalogue.FIGURES.values():
        about = duration(produce.estimate_s([figure], plan, jobs))
        seeds, runs = plan.count(figure), produce.runs(figure, plan)
        table.add_row(figure.name, figure.title, str(seeds), str(runs), about)
    Terminal().print(table)


def _held(judged: JudgedFigure) -> str:
    """Return for how many seeds the headline holds."""
    return f"{judged.held} of {len(judged.seeds)} seeds" if judged.measures else ""


def _show(done: list[JudgedFigure], page: pathlib.Path) -> None:
    console = Terminal()
    table = Table()
    for column in ("figure", "what", "result", "holds for"):
        table.add_column(column)
    colours = {FigureStatus.REPRODUCED: "green", FigureStatus.NOT_REPRODUCED: "red"}
    for each in done:
        colour = colours.get(each.status, "yellow")
        reason = f" {each.reason}" if each.status is FigureStatus.DIFFERS else ""
        table.add_row(
            each.figure.name, each.figure.title, Text.assemble((str(each.status), colour), reason), _held(each)
        )
        for name, other in each.alternatives.items():
            result = Text("reproduced", "green") if other.reproduced else Text("missed", "yellow")
            table.add_row("", f"with {name}", result, _held(other))
    console.print(table)
    for each in done:
        for text in (*each.not_run[:5], *each.failures[:5]):
            console.print(f"{each.figure.name}: {text}", highlight=False)
        for measure in each.measures:
            if not measure.passed:
                text = f"{each.figure.name}: {measure.what}: {measure.shown} (expected {measure.bounds})"
                console.print(text, highlight=False)
        for name, found in each.evidence:
            if not found.passed:
                text = f"{each.figure.name}: {name}: {found.what}: {found.measured} (expected {found.expected})"
                console.print(text, highlight=False)
    console.print(f"page: {page}", highlight=False)
