"""`mrclab scale`: whole clusters, as a fluid at the level of EVs."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from mrc_fluid import cases, kernels, limits, validate
from mrc_fluid import caveat as caveats
from mrc_fluid.calibration import calibrate, large, produce, report
from mrc_fluid.calibration.calibrate import ComparedValue
from mrc_fluid.calibration.calibration_run import CalibrationRun
from mrc_fluid.calibration.produce import ScaleError
from mrc_fluid.caveat import NATURE, caveat
from mrc_fluid.clusterfile import Loaded, builtin_clusters, load_cluster
from mrc_fluid.effective import INTERVALS
from mrc_fluid.schema import MAX_DAYS, YearSpec
from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import interruptible
from mrc_topo.units import Unit, format_rate, format_time, shown
from mrclab.cli.progress import steps, study_progress
from mrclab.results import resultdir
from mrclab.results.terminal import Terminal


def verb(
    cluster: Annotated[str | None, typer.Argument(help="a cluster file, or the name of a built-in cluster")] = None,
    output: Annotated[
        pathlib.Path | None, typer.Option("-o", "--output", help="folder for the report and its tables")
    ] = None,
    validating: Annotated[
        bool, typer.Option("--validate", help="compare the model with published and provable values")
    ] = False,
    calibrating: Annotated[
        bool, typer.Option("--calibrate", help="compare the model with packet simulations of small fabrics (minutes)")
    ] = False,
    nics: Annotated[
        int | None, typer.Option("--nics", help="with --calibrate: on one fabric of this many NICs, such as 512")
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(
            "--days",
            help="days of failures under the job, such as 30, at the rates of the file's `year` or the defaults",
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the built-in clusters")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of tables")] = False,
) -> None:
    """Simulate a whole cluster with its jobs and failures in a fluid model.

    Exit with 1 if a row of --validate is outside its bound.
    """
    if listed:
        for name, path in builtin_clusters().items():
            typer.echo(f"{name}: {load_cluster(path).cluster.description}")
        return
    if (cluster is not None) + validating + calibrating != 1:
        raise ScaleError(
            "name a cluster, or give one of --validate, --calibrate and --list; clusters: "
            + ", ".join(builtin_clusters())
        )
    if nics is not None and not calibrating:
        raise ScaleError("--nics is of --calibrate; give both")
    if days is not None and cluster is None:
        raise ScaleError("--days is of a cluster's run; name a cluster, such as cluster-16k")
    with interruptible():
        if nics is not None:
            _compare(nics, output, as_json)
        elif validating:
            _validate(as_json)
        elif calibrating:
            _calibrate(output, as_json)
        elif cluster is not None:
            _run(with_days(load_cluster(cluster), days), output, as_json)


def with_days(loaded: Loaded, days: float | None) -> Loaded:
    """Return a cluster with this many days of failures, at the rates of its file if it has some; None: as it is.

    Raises:
        ScaleError: there cannot be this many days.
    """
    if days is None:
        return loaded
    given = loaded.cluster.year or YearSpec()
    try:
        year = YearSpec.model_validate({**given.model_dump(), "days": days})
    except ValidationError:
        raise ScaleError(f"--days {days:g}: give more than 0 and at most {MAX_DAYS}") from None
    return replace(loaded, cluster=loaded.cluster.model_copy(update={"year": year}))


def _run(loaded: Loaded, output: pathlib.Path | None, as_json: bool) -> None:
    compiled = produce.load_kernels()
    folder = output or resultdir.default_folder(loaded.cluster.name, "scale")
    with resultdir.prepared(folder, 0.0), steps(lines=True) as tell:

        def show(share: float, text: str) -> None:
            tell(f"{share:.0%} {text}" if text else "")

        made = produce.run(loaded, compiled, show)
        files = produce.write(made, folder)
    if as_json:
        typer.echo(json.dumps(_summary(made, folder), indent=2))
        return
    _show(made)
    typer.echo(f"report: {folder / files[0]}")
    for line in _accuracy(loaded):
        typer.echo(line)


def _accuracy(loaded: Loaded) -> Iterator[str]:
    """Yield what a run says of its accuracy: its own cases, and then the limits that this cluster comes near, which
    were measured apart from it and may be larger."""
    yield NATURE
    yield f"In this run's own case, beside packets ({limits.PAGE}):"
    yield from (f"  {each.text}" for each in cases.own_errors(loaded))
    for quantity, why in cases.not_modelled(loaded).items():
        yield f"  not modelled, so not told: {quantity.value} after the first failure ({why})"
    if near := limits.limits_of(loaded):
        yield (
            "Those comparisons have two tiers, and one element that fails. Cases beyond them were held "
            "against packets one by one, and may be off by more "
            f"({limits.PAGE}). This run comes near:"
        )
        yield from (f"  {each}" for each in near)


def _summary(made: CalibrationRun, folder: pathlib.Path) -> dict[str, object]:
    result, own = made.result, cases.own_errors(made.result.loaded)
    bins = np.array([step.bin for step in result.steps])
    rates = np.array([step.goodput for step in result.steps])
    goodput = cases.told(result.loaded, cases.Modelled.GOODPUT, rates, bins)
    return {
        "cluster": result.loaded.cluster.name,
        "nics": result.loaded.shape.nics,
        "queue_pairs": len(result.flows),
        "goodput_bps": [None if math.isnan(each) else each for each in goodput.tolist()],
        "at_s": [step.bin * result.loaded.cluster.bin / 1e9 for step in result.steps],
        "packets_lost": [step.lost for step in result.steps],
        "probes_lost_per_s": [step.probes for step in result.steps],
        "others": [vars(each) for each in made.others],
        "year": [
            {**vars(each), "lost_h": each.lost_h, "availability": each.availability, "cause": why}
            for each, (_, why) in zip(made.year, report.causes_of(made), strict=True)
        ],
        "effective": [vars(each) for each in made.effective],
        "bills": {design.name: cost.as_dict() for design, cost in made.bills},
        "seconds": made.seconds,
        "folder": str(folder),
        "caveat": cases.accuracy(result.loaded),
        "own_cases": [each.document() for each in own],
        "not_modelled": {each.value: why for each, why in cases.not_modelled(result.loaded).items()},
        "limits": [*(each.text for each in own), *limits.limits_of(result.loaded)],
    }


def _show(made: CalibrationRun) -> None:
    console, result = Terminal(), made.result
    table = Table(title=f"{result.loaded.cluster.name}: {len(result.flows):,} queue pairs", title_justify="left")
    for column in ("at", "goodput", "of first", "data lost", "probes lost/s", "queue pairs that lost", "EVs out",
                   "slowest step"):  # fmt: skip
        table.add_column(column)
    first = result.steps[0].goodput
    unknown = cases.not_modelled(result.loaded)
    for step in result.steps:
        at = f"{step.bin * result.loaded.cluster.bin / 1e9:.3g} s"
        slowest = shown(max(step.jobs), Unit.TIME)
        goodput = [format_rate(step.goodput), shown(step.goodput / first, Unit.SHARE) if first else "-"]
        if step is not result.steps[0]:
            goodput = [report.NOT_MODELLED, "-"] if cases.Modelled.GOODPUT in unknown else goodput
            slowest = report.NOT_MODELLED if cases.Modelled.STEPS in unknown else slowest
        row = (at, *goodput, f"{step.lost:,.0f}", f"{step.probes:,.0f}", f"{step.hit:,}")
        table.add_row(*row, f"{step.evs['bad']:,}", slowest)
    console.print(table)
    console.print(report.fullest(result), highlight=False)
    for each in made.others:
        rates = ", ".join(format_rate(value) for value in (each.before, each.during, each.after))
        text = (
            f"{each.name}: {rates} before, until paths are changed ({format_time(round(each.outage_s * 1e9))}), after"
        )
        console.print(f"{text}; {each.broken:,} of {each.of:,} queue pairs break", highlight=False)
    for outcome, (_, why) in zip(made.year, report.causes_of(made), strict=True):
        text = f"{outcome.name}: {outcome.lost_h:,.1f} h lost, {outcome.interruptions:,} interruptions"
        console.print(f"{text}, availability {outcome.availability:.2%}; {why}", highlight=False)
    if made.effective:
        console.print("effective training time by the interval between checkpoints:")
        for name, rates, interruptions, *shares, best in report.effective_rows(made):
            kept = ", ".join(f"{minutes:g} min {share}" for minutes, share in zip(INTERVALS, shares, strict=True))
            text = f"{name}, failure rates times {rates}, {interruptions} interruptions: {kept}; Daly's: {best}"
            console.print(f"  {text}", highlight=False)
    for design, cost in made.bills:
        text = f"{design.name}: {design.total_switches:,} switches for {cost.switch_usd / 1e6:,.0f} million USD"
        text += f", {design.optics:,} transceivers for {cost.transceiver_usd / 1e6:,.0f}, {cost.kw / 1e3:,.1f} MW"
        console.print(f"{text} (prices are assumptions: mrclab topo plan --costs)", highlight=False)


def _compare(nics: int, output: pathlib.Path | None, as_json: bool) -> None:
    """Hold the model against packets on a fabric of this many NICs; with a folder, also write the file that runs quote
    (`mrc_fluid.cases`)."""
    # What is stored must be the same on every machine: compiled kernels round otherwise, and shares move by 2 %.
    with study_progress() as show:
        made = large.compare(kernels.reference(), nics, show)
    rows = large.rows(made)
    if output is not None:
        with resultdir.prepared(output, 0.0):
            write_whole(output / cases.file_of(nics), made.document())
    if as_json:
        typer.echo(json.dumps([{**vars(row), "error": row.error} for row in rows], indent=2))
        return
    Terminal().print(_compared(rows, f"the model beside packets, {nics} NICs"))


def _compared(rows: Sequence[ComparedValue], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("scenario", "what", "packets", "model", "off by"):
        table.add_column(column, justify="left" if column in ("scenario", "what") else "right")
    before = ""
    for row in rows:
        off = f"{row.error:.1%}" if row.relative else f"{row.error:.3g} {row.unit}"
        numbers = (f"{row.packets:.4g} {row.unit}".strip(), f"{row.model:.4g} {row.unit}".strip())
        table.add_row("" if row.scenario == before else row.scenario, row.what, *numbers, off)
        before = row.scenario
    return table


def _calibrate(output: pathlib.Path | None, as_json: bool) -> None:
    """Make all comparisons; with a folder, also write the file that runs quote (`mrc_fluid.caveat`)."""
    compiled = produce.load_kernels()
    with study_progress() as show:
        made = calibrate.calibrate(compiled, show)
    if output is not None:
        with resultdir.prepared(output, 0.0):
            write_whole(output / caveats.FILE, made.document())
    if as_json:
        typer.echo(made.document(), nl=False)
        return
    Terminal().print(_compared(made.rows, "the model beside packets"))
    typer.echo(
        f"nic_share: {calibrate.in_use():g} in use, {made.nic_share:.3f} measured ({calibrate.LEARNED.name}); all else "
        "follows from windows, queues and rules of the protocol"
    )
    for name, kind, aim in (
        ("goodput", "goodput", calibrate.GOODPUT),
        ("data packets lost", "lost", calibrate.LOST),
    ):
        worst = made.worst(kind)
        typer.echo(f"{name}: off by {worst:.1%} at most; aim: {aim:.0%}{'' if worst <= aim else ', missed'}")


def _validate(as_json: bool) -> None:
    compiled = produce.load_kernels()
    with steps() as tell:
        rows = validate.rows(compiled, tell)
    if as_json:
        typer.echo(json.dumps([{**vars(row), "passed": row.passed} for row in rows], indent=2))
    else:
        title = "the model beside what is published ('the paper') and beside closed forms of its own assumptions"
        table = Table(title=title, title_justify="left")
        for column in ("what", "from", "must be", "is", "within", ""):
            table.add_column(column)
        for row in rows:
            verdict = Text("holds", "green") if row.passed else Text("off", "red")
            numbers = (f"{value:.6g} {row.unit}".strip() for value in (row.expected, row.measured, row.tolerance))
            table.add_row(row.what, row.source, *numbers, verdict)
        Terminal().print(table)
        typer.echo(
            "'own formula' checks that the model computes what it assumes, not that a real cluster does the same."
        )
        typer.echo(caveat())
    if not all(row.passed for row in rows):
        raise SystemExit(1)
