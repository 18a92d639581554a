"""`mrclab sweep`: many runs of one experiment or comparison; and their report."""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
from typing import Annotated, Any

import typer
import yaml
from rich.table import Table
from typer.core import TyperGroup

from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import Interrupted, interruptible
from mrclab.cli.common import need_namespaces
from mrclab.cli.progress import steps, study_progress
from mrclab.pages import paper
from mrclab.pages.paper import Format
from mrclab.results import resultdir
from mrclab.results.terminal import Terminal
from mrclab.runs.experiment import ExperimentError
from mrclab.studies.cells.pages import has_parquet
from mrclab.studies.engine import DocumentStore, RunStatus
from mrclab.studies.sweeps import cluster, measure, page, spec, work
from mrclab.studies.sweeps import plan as planning
from mrclab.studies.sweeps.page import PairedDifference
from mrclab.studies.sweeps.plan import SweepPlan
from mrclab.studies.sweeps.spec import known_sweeps, load_sweep
from mrclab.studies.sweeps.sweep import Sweep, SweepResult

DEFAULT = "run"
#: Rows of differences that the terminal shows; the report has all.
MOST_DIFFERENCES = 24
#: Lines of progress where there is no terminal: not more often than this, s.
PAUSE_S = 5.0


class _RunsByDefault(TyperGroup):
    """`mrclab sweep FILE` is `mrclab sweep run FILE`."""

    default_verb = DEFAULT

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` where no verb is."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [DEFAULT, *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_RunsByDefault,
    help="Run one experiment over many settings and seeds, and draw the results.",
    no_args_is_help=True,
    add_completion=False,
)

Folder = Annotated[pathlib.Path, typer.Argument(help="folder of a sweep's results")]


@app.command(DEFAULT)
def run(
    name: Annotated[str, typer.Argument(help="name or file of a sweep")],
    output: Annotated[
        pathlib.Path | None,
        typer.Option("-o", "--output", help="folder for results; runs that it already has are not repeated"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="processes on this machine (default: one per core; 0: this one, runs in sequence)"),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="address of a running Dask scheduler, such as tls://HOST:8786")
    ] = None,
    cluster_file: Annotated[
        pathlib.Path | None, typer.Option("--cluster", help="a file that describes a Dask cluster to start")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="repeat the runs that failed")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="check all points and count the runs, without running them")
    ] = False,
) -> None:
    """Do the runs of a sweep that are not done yet; exit code 1 if one is not good, and that is not allowed."""
    _check_options(workers, scheduler, cluster_file)
    error = Terminal(file=sys.stderr)  # this one, whatever a run prints to meanwhile
    with interruptible():
        with steps("reading the sweep") as tell:
            sweep = Sweep(name, progress=tell)
        if check:
            points = len(sweep) // sweep.plan.source.sweep.seed_count
            typer.echo(f"{sweep.name}: {len(sweep)} runs, {points} points and repetitions")
            return
        if sweep.real:
            need_namespaces()
        folder = output or resultdir.RESULTS / sweep.name
        try:
            with study_progress(PAUSE_S) as show:
                found = sweep.run(
                    folder, workers=workers, dask=_dask(scheduler, cluster_file), again=again, progress=show
                )
        except Interrupted as interrupted:
            kept = f"{sweep.done(folder)} of {len(sweep)} runs are kept, the same command goes on"
            text = f"mrclab: {interrupted}: {kept}"
            error.print(text, highlight=False, soft_wrap=True)
            raise
    _show(found, folder)
    _show_differences(found.differences)
    if not found.passed:
        raise SystemExit(1)


def _check_options(workers: int | None, scheduler: str | None, cluster_file: pathlib.Path | None) -> None:
    if workers is not None and not 0 <= workers <= 1024:
        raise ExperimentError(f"--workers is a number of processes from 0 to 1024, not {workers}")
    given = {"--workers": workers, "--scheduler": scheduler, "--cluster": cluster_file}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise ExperimentError(f"{' and '.join(named)} exclude each other; choose one")
    if cluster_file is not None:
        cluster.load_cluster(cluster_file)


def _dask(scheduler: str | None, cluster_file: pathlib.Path | None) -> contextlib.AbstractContextManager[Any] | None:
    """Return the client of Dask that the options ask for; None: the runs are done on this machine."""
    if scheduler is not None:
        return cluster.at_scheduler(scheduler)
    return None if cluster_file is None else cluster.from_file(cluster_file)


def _show(found: SweepResult, folder: pathlib.Path) -> None:
    console = Terminal()
    bad = found.bad
    for each, answer in bad[:20]:
        text = f"{each.digest[: work.SHORT]} {answer.status}: {answer.failure} ({each.point.text()}, seed {each.seed})"
        console.print(text, highlight=False, soft_wrap=True)
        log = folder / work.LOGS / f"{each.digest}.log"
        line = f"  log: {log}; again: mrclab sweep repeat {folder} {each.digest[: work.SHORT]}"
        console.print(line, highlight=False, soft_wrap=True)
    if len(bad) > 20:
        console.print(f"and {len(bad) - 20} more that are not good; the report lists them")
    parts = f"; dataset: {folder / work.DATASET}" if has_parquet() else "; sweep.csv only: pyarrow is not installed"
    text = f"{len(found.plan.runs)} runs, {len(bad)} not good; report: {found.report}{parts}"
    console.print(text, highlight=False, soft_wrap=True)


def _four_digits(value: float) -> str:
    """Return a number rounded to four digits, without an exponent where it has thousands."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if 1000 <= abs(rounded) < 1e15 else f"{rounded:g}"


def _show_differences(found: list[PairedDifference]) -> None:
    """Print the paired differences, at most `MOST_DIFFERENCES` of them."""
    if not any(each.half is not None for each in found):
        return
    key, first = found[0].key, found[0].first
    table = Table(box=None, title=f"against {key} {first}, on the same seeds (95 % confidence)", title_justify="left")
    for column in (key, "with", "measure", "difference", ""):
        table.add_column(column, overflow="fold")
    for each in found[:MOST_DIFFERENCES]:
        half = "" if each.half is None else f" ± {_four_digits(each.half)}"
        share = "" if each.share is None else f" ({each.share:+.1%})"
        said = "" if each.differs is None else "differs" if each.differs else "within chance"
        change = ("+" if each.mean > 0 else "") + _four_digits(each.mean)
        table.add_row(each.value, each.where, each.measure, f"{change}{half}{share}", said)
    console = Terminal()
    console.print(table)
    if len(found) > MOST_DIFFERENCES:
        console.print(f"and {len(found) - MOST_DIFFERENCES} more, in the report and in {page.FILE}")


@app.command()
def report(folder: Folder) -> None:
    """Draw what a sweep's folder has by now: curves with confidence intervals, every run with its seed."""
    made = work.load_plan(folder)
    rows = list(work.rows(made, work.answers(folder, made)))
    place = page.write(folder, made, rows)
    done = len({row["run"] for row in rows})
    typer.echo(f"{place}: {done} of {len(made.runs)} runs")


@app.command()
def plot(
    folder: Folder,
    kind: Annotated[Format, typer.Option("--format", help="of the files")] = Format.PDF,
    wide: Annotated[bool, typer.Option("--wide", help="as wide as a page's text, not as one of two columns")] = False,
    output: Annotated[
        pathlib.Path | None, typer.Option("-o", "--output", help="folder of the files (default: the sweep's)")
    ] = None,
) -> None:
    """Draw the plots of a sweep for print: PDF, PGF for LaTeX, SVG or PNG, as wide as a column."""
    made = work.load_plan(folder)
    rows = list(work.rows(made, work.answers(folder, made)))
    for each in page.drawn(made, rows, page.differences(made, rows)):
        place = (output or folder) / f"{each.name}.{kind}"
        write_whole(place, paper.printed(each, kind, paper.TEXT if wide else paper.COLUMN))
        typer.echo(str(place))


@app.command()
def repeat(
    folder: Folder,
    digest: Annotated[str, typer.Argument(metavar="RUN", help="a run, by the beginning of its digest")],
    output: Annotated[
        pathlib.Path | None,
        typer.Option(
            "-o", "--output", help="write the run's lab and experiment files to this folder instead of running it"
        ),
    ] = None,
) -> None:
    """Do one run of a sweep again and print its numbers; exit code 1 if they are not those that are kept."""
    made = work.load_plan(folder)
    chosen = made.find(digest)
    if output is not None:
        _write_files(made, chosen, output)
        return
    task = made.task(chosen)
    if wrong := measure.environment_difference(task):
        raise ExperimentError(f"{folder}: this is not what made the run: {wrong}")
    with interruptible():
        answer = measure.perform(task)
    before = DocumentStore(folder, measure.RunAnswer).get(chosen.digest)
    same = before is None or before.same(answer)
    about = {"run": chosen.digest, "seed": chosen.seed, **chosen.point.values, "kept": before is not None, "same": same}
    shown = {"status": answer.status, "failure": answer.failure, "rows": answer.rows}
    typer.echo(json.dumps({**about, **shown}, indent=1))
    if answer.log:
        typer.echo(answer.log, err=True)
    if not same or answer.status not in (RunStatus.GOOD, RunStatus.FAILED):
        raise SystemExit(1)


def _write_files(made: SweepPlan, chosen: planning.SweepRun, output: pathlib.Path) -> None:
    lab, content = made.documents(chosen)
    name = "experiment.yaml" if made.base.kind == "experiment" else "compare.yaml"
    with resultdir.prepared(output, 0.0):
        content = {**content, "lab": str((output / "lab.yaml").absolute())}
        write_whole(output / "lab.yaml", yaml.safe_dump(lab, sort_keys=False))
        write_whole(output / name, yaml.safe_dump(content, sort_keys=False))
    typer.echo(f"mrclab {'run' if name == 'experiment.yaml' else 'compare'} {output / name}")


@app.command("list")
def list_sweeps() -> None:
    """List the sweeps that come with mrclab."""
    table = Table(box=None)
    for column in ("sweep", "what it asks", "runs"):
        table.add_column(column)
    for name in known_sweeps():
        source = load_sweep(name)
        table.add_row(name, source.sweep.title, str(spec.count(source)))
    Terminal().print(table)
