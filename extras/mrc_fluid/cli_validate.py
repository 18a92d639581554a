"""`mrclab validate`: a fixed suite by packets, as a fluid, and by uet-htsim; where they differ, and why."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import pathlib
import re
import shlex
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from mrc_fluid import kernels
from mrc_fluid.calibration import produce
from mrc_fluid.kernels import Kernels
from mrc_fluid.validation import check, controls, report, suite, summary
from mrc_fluid.validation.htsim import Htsim
from mrc_fluid.validation.packets import Algorithm
from mrc_fluid.validation.scenario import Quantity, Scenario
from mrc_fluid.validation.scenarios import SCENARIOS, by_name
from mrc_fluid.validation.suite import Plan, SuiteResult
from mrc_fluid.validation.variants import VARIANTS
from mrc_topo.base.document import POLICY_CLASS, printable
from mrc_topo.base.errors import UsageError
from mrc_topo.base.interruption import interruptible
from mrc_topo.labfile import policy_class
from mrclab.cli.progress import study_progress
from mrclab.lab.policies import HOST_KINDS
from mrclab.results import resultdir
from mrclab.results.terminal import Terminal
from mrclab.studies.cells import pages
from p4lite.scratch import scratch

#: More seeds than this are a mistake.
MAX_SEEDS = 1000
#: Heads of columns on a terminal.
HEADS = {
    Quantity.GOODPUT: "Gb/s",
    Quantity.STEADY: "steady Gb/s",
    Quantity.P50: "P50 us",
    Quantity.P99: "P99 us",
    Quantity.JAIN: "Jain",
    Quantity.TRIMMED: "trim %",
    Quantity.MARKED: "mark %",
    Quantity.AGAIN: "again %",
}


class ValidateError(UsageError):
    """A choice that cannot be; the text says what is possible."""


def verb(
    names: Annotated[list[str] | None, typer.Argument(help="scenarios (default: all)")] = None,
    seeds: Annotated[int, typer.Option(help="run each scenario with seeds 1 to this")] = 5,
    htsim: Annotated[
        pathlib.Path | None, typer.Option(help="path of htsim_uec: also run what uet-htsim can, and compare")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", help="KIND=module:Class: your congestion, ev or loss policy instead of ours"),
    ] = None,
    algorithms: Annotated[
        bool,
        typer.Option("--algorithms", help="also run published sprayers and congestion controls, where they differ"),
    ] = False,
    checked: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--check", metavar="FOLDER", help="run again what this folder has (the scenarios and seeds given), compare"
        ),
    ] = None,
    causes: Annotated[
        bool,
        typer.Option("--causes", help="take causes away instead, one at a time: do the differences vanish?"),
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="list the scenarios")] = False,
    jobs: Annotated[int | None, typer.Option(help="runs in parallel (default: one per core)")] = None,
    output: Annotated[
        pathlib.Path,
        typer.Option("-o", "--output", help="folder for results; runs that it already has are not repeated"),
    ] = resultdir.RESULTS / "validate",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of tables")] = False,
) -> None:
    """Compare packets with a fluid model, closed forms and uet-htsim on a fixed suite.

    Exit with 1 if a run fails, a closed form does not hold, with --check if a value differs from the folder's, and with
    --causes if a difference does not vanish.
    Differences without a known cause are listed.
    """
    if listed:
        for each in SCENARIOS:
            typer.echo(f"{each.name}: {each.title}")
        return
    plan = Plan(
        _chosen(names or []),
        range(1, _whole("--seeds", seeds, MAX_SEEDS) + 1),
        Algorithm(policies=_policies(policy or [])),
        None if htsim is None else Htsim.found(htsim),
        VARIANTS if algorithms else (),
    )
    count = len(os.sched_getaffinity(0)) if jobs is None else _whole("--jobs", jobs, 1024)
    if checked is not None:
        _check(checked, plan, names or [], count, as_json=as_json)
        return
    if causes:
        _causes(plan, output, count, as_json=as_json)
        return
    options = ["--seeds", str(seeds), *(["--htsim", str(htsim)] if htsim is not None else [])]
    options += ["--algorithms"] if algorithms else []
    options += [part for given in policy or [] for part in ("--policy", given)]
    command = shlex.join(["mrclab", "validate", *(names or []), *options, "-o", "FOLDER"])
    with interruptible(), resultdir.prepared(output, 0.0), study_progress() as show:
        made = suite.run(plan, output, count, _kernels(), show)
        page = report.write_folder(made, output, command)
    if as_json:
        typer.echo(json.dumps(_document(made, page), indent=1))
    else:
        _show(made)
        typer.echo(f"report: {page}")
    if not made.passed:
        raise SystemExit(1)


def _check(folder: pathlib.Path, plan: Plan, names: list[str], jobs: int, *, as_json: bool) -> None:
    """Run scenarios and seeds of a folder again, in a folder of their own, and exit with 1 if a value differs."""
    theirs = summary.read(folder)
    unknown = [name for name in names if name not in theirs.scenarios]
    if unknown:
        raise ValidateError(f"{folder} has no scenario '{unknown[0]}'; it has {', '.join(theirs.scenarios)}"[:400])
    if plan.algorithm.policies:
        raise ValidateError("--policy: a folder is checked with the policies that it was made with; leave it out")
    known = by_name()
    gone = [name for name in theirs.scenarios if name not in known]
    chosen = names or [name for name in theirs.scenarios if name in known]
    seeds = [seed for seed in plan.seeds if seed in theirs.seeds]
    if not chosen or not seeds:
        raise ValidateError(f"{folder} has no scenario and seed of this suite; its seeds are {theirs.seeds[:20]}")
    again = dataclasses.replace(
        plan, scenarios=[known[name] for name in dict.fromkeys(chosen)], seeds=seeds,
        algorithm=Algorithm(policies=theirs.policies), variants=(),
    )  # fmt: skip
    with interruptible(), scratch("check") as folder_of_rerun, study_progress() as show:
        made = suite.run(again, folder_of_rerun, jobs, _kernels(), show)
    how = check.basis(theirs, summary.current().sources)
    compared = check.compare(theirs, made.outcomes, how)
    lines = [*made.problems, *check.missing(theirs, made.outcomes, chosen, seeds)]
    lines += [f"{name}: this suite has no such scenario" for name in gone if not names]
    bad = [each for each in compared if not each.agrees]
    if as_json:
        rows = [asdict(each) | {"agrees": each.agrees} for each in compared]
        document = {"passed": not (bad or lines), "compared_as": how.value, "values": rows, "problems": lines}
        typer.echo(json.dumps(document, indent=1))
    else:
        typer.echo(f"compared {how.value}")
        for each in bad:
            seed = "" if each.seed is None else f", seed {each.seed}"
            typer.echo(
                f"{each.scenario}, {each.backend.value}{seed}: {each.quantity.value}: {each.ours:.6g}, the folder has "
                f"{each.theirs:.6g}, allowed are {each.allowed:.2g}"
            )
        for line in lines:
            typer.echo(line)
        typer.echo(f"{len(compared) - len(bad)} of {len(compared)} values agree")
    if bad or lines or not compared:
        raise SystemExit(1)


def _causes(plan: Plan, output: pathlib.Path, jobs: int, *, as_json: bool) -> None:
    """Run the controlled runs, write their table, and exit with 1 if a difference is not as expected."""
    with interruptible(), resultdir.prepared(output, 0.0), study_progress() as show:
        made, problems = controls.run(controls.controls(), plan.seeds, plan.htsim, output, jobs, _kernels(), show)
        pages.write(output, "controls", controls.ControlRow, controls.rows(made))
    if as_json:
        rows = [each._asdict() for each in controls.rows(made)]
        typer.echo(json.dumps({"controls": rows, "problems": problems}, indent=1))
    else:
        for each in made:
            verdict = "as expected" if each.as_expected else "NOT as expected"
            now = f"{report.off(each.after)}, beside headers {100 * each.after.corrected:+.1f} %"
            typer.echo(
                f"{each.control.of}, {each.control.change.value}: {each.after.backend.value} "
                f"{each.after.quantity.value} {report.off(each.before)}, then "
                f"{report.off(each.after) if each.after.corrected == each.after.off else now}: {verdict}"
            )
        for problem in problems:
            typer.echo(problem)
    if problems or not all(each.as_expected for each in made):
        raise SystemExit(1)


def _chosen(names: list[str]) -> list[Scenario]:
    known = by_name()
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValidateError(f"no scenario '{printable(name[:60])}'{hint} (mrclab validate --list)")
    return [known[name] for name in dict.fromkeys(names)] or list(SCENARIOS)


def _whole(option: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise ValidateError(f"{option} is a number from 1 to {most}, not {value}")
    return value


def _policies(given: list[str]) -> dict[str, str]:
    """Return policies by kind, with the path of each file from the root on, as runs in other processes need it."""
    made = {}
    for text in given:
        kind, _, value = text.partition("=")
        if kind not in HOST_KINDS or not re.search(POLICY_CLASS, value):
            raise ValidateError(
                f"--policy {text[:80]}: write KIND=module:Class, KIND=FILE.py:Class or KIND=@NAME, with KIND one of "
                "congestion, ev and loss"
            )
        made[kind] = policy_class(value, pathlib.Path.cwd())
        if not (file := pathlib.Path(made[kind].rpartition(":")[0])).is_file():
            raise ValidateError(f"--policy {text[:80]}: {file}: no such file")
    return made


def _kernels() -> Kernels:
    """Return the compiled kernels, or those in NumPy without numba: fabrics of the suite are small."""
    return produce.load_kernels() if kernels.has_numba() else kernels.reference()


def _document(made: SuiteResult, page: pathlib.Path) -> dict[str, object]:
    return {
        "passed": made.passed,
        "values": [asdict(each) for each in made.values],
        "differences": [asdict(each) | {"unexplained": each.unexplained} for each in made.differences],
        "closed_forms": [asdict(each) | {"holds": each.holds} for each in made.forms],
        "problems": made.problems,
        "report": str(page),
    }


def _show(made: SuiteResult) -> None:
    console = Terminal()
    title = f"means over {len(made.plan.seeds)} seeds (the report has confidence intervals); shares are of packets"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("scenario", no_wrap=True)
    table.add_column("by", no_wrap=True)
    for quantity in Quantity:
        table.add_column(HEADS[quantity], justify="right")
    before = ""
    for scenario, backend, cells in report.table(made.plan.scenarios, made.values):
        means = ["" if each is None else f"{each.mean:.4g}" for each in cells]
        table.add_row("" if scenario.name == before else scenario.name, backend.value, *means)
        before = scenario.name
    console.print(table)
    causes: dict[str, list[str]] = {}
    for each in made.differences:
        if each.beyond:
            text = f"{each.scenario}, {each.backend.value}: {each.quantity.value} {report.off(each)}"
            causes.setdefault(each.cause, []).append(text)
    for cause, texts in sorted(causes.items(), key=lambda row: not row[0]):
        console.print(cause or "unexplained", style="bold", highlight=False)
        for text in texts:
            console.print(f"  {text}", highlight=False)
    held = sum(each.holds for each in made.forms)
    console.print(f"closed forms: {held} of {len(made.forms)} hold", highlight=False)
    for form in made.forms:
        if not form.holds:
            text = f"{form.scenario}: {form.what}: {form.measured:.5g}, must be {form.bound.value} {form.expected:.5g}"
            console.print(f"  {text}", style="red", highlight=False)
    for problem in made.problems:
        console.print(problem, style="red", highlight=False)
    within = sum(not each.beyond for each in made.differences)
    console.print(
        f"differences: {within} of {len(made.differences)} within the bound, {len(made.unexplained)} unexplained",
        highlight=False,
    )
