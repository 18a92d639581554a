"""`mrclab replay`: a trace or a generated step of training on the fluid model."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated, get_args

import typer

from mrc_fluid import kernels
from mrc_fluid.calibration import produce
from mrc_fluid.caveat import NATURE
from mrc_fluid.clusterfile import builtin_clusters, load_cluster
from mrc_fluid.kernels import Kernels
from mrc_fluid.replays import fluid, page
from mrc_host.graph.generate import MODELS
from mrc_host.graph.graph import GraphError
from mrc_host.graph.source import source_of
from mrc_host.workloads.trace import Trace
from mrc_topo.base.document import printable
from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import interruptible
from mrc_topo.labfile import load_lab
from mrc_topo.units import parse_time_ns
from mrclab.cli.common import lab_file, parse_settings
from mrclab.cli.progress import steps
from mrclab.results import performance, resultdir

RESULT = "replay.json"


def verb(
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="a parameter of the workload `trace`, such as model=gpt3-175b; may be given several times"
        ),
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="a cluster file, or the name of a built-in cluster")] = None,
    lab: Annotated[str | None, typer.Option(help="a lab, whose fabric is taken as a fluid")] = None,
    fail: Annotated[
        list[str] | None,
        typer.Option(
            help="a failure at a time, and its duration, such as p0-t1.3@5ms+20ms; may be given several times"
        ),
    ] = None,
    detail: Annotated[
        str, typer.Option(help="messages, phases (one message per rank and collective), or auto by their number")
    ] = "auto",
    resolution: Annotated[
        str | None, typer.Option(help="events this close together count as one for shares, such as 10us")
    ] = None,
    output: Annotated[
        pathlib.Path | None, typer.Option("-o", "--output", help="folder for report.html and replay.json")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the models that training is generated for")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of tables")] = False,
) -> None:
    """Run a trace or a generated step of training on the fluid model of a cluster, or of a lab's fabric.

    `mrclab run trace` runs the same on packets.
    """
    if listed:
        for name, shape in MODELS.items():
            typer.echo(
                f"{name}: {shape.parameters / 1e9:.1f} billion parameters, {shape.layers} layers; {shape.source}"
            )
        return
    if (cluster is None) == (lab is None):
        raise GraphError(f"name a fabric: --cluster ({', '.join(builtin_clusters())}) or --lab, one of them")
    if detail not in get_args(fluid.Detail):
        raise GraphError(f"--detail {printable(detail)[:40]}; known: {', '.join(get_args(fluid.Detail))}")
    params = Trace.complete(parse_settings(param or [], Trace.texts()))
    bed = (
        fluid.bed_of_cluster(load_cluster(cluster))
        if cluster is not None
        else fluid.bed_of_lab(load_lab(lab_file(lab or "", "virtual")))
    )
    extra = [event for text in fail or [] for event in fluid.event_of(text, bed.loaded)]
    folder = output or resultdir.default_folder(bed.name, "replay")
    with interruptible(), resultdir.prepared(folder, 0.0), steps() as tell:
        made = fluid.run(
            source_of(params), bed, _kernels(), steps=params.iterations, detail=detail,  # type: ignore[arg-type]
            resolution_ns=_resolution(resolution), extra=extra,
            show=lambda share, text: tell(f"{share:.0%} {text}"),
        )  # fmt: skip
        write_whole(folder / RESULT, json.dumps(made.document(), indent=2) + "\n")
        write_whole(folder / produce.REPORT, page.render(made))
    if as_json:
        typer.echo(
            json.dumps(
                {**made.document(), "folder": str(folder), "caveat": page.caveat(made), "notes": page.notes(made)},
                indent=2,
            )
        )
        return
    for table in performance.training_tables(made.summary):
        typer.echo(table.text())
    for note in page.notes(made):
        typer.echo(note)
    typer.echo(page.about(made))
    typer.echo(f"report: {folder / produce.REPORT}")
    typer.echo(NATURE)


def _kernels() -> Kernels:
    """Return the compiled kernels, or those in NumPy without numba: the same results, later."""
    return produce.load_kernels() if kernels.has_numba() else kernels.reference()


def _resolution(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(parse_time_ns(text))
    except ValueError as error:
        raise GraphError(f"--resolution: {error}") from None
