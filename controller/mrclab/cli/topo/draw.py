"""`mrclab topo draw`: a lab as SVG, or as Graphviz source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mrc_topo import draw
from mrc_topo.base.files import WriteError, write_whole
from mrclab.cli.topo.common import LabName as Lab
from mrclab.cli.topo.common import fail, load


def verb(
    lab: Lab,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="file to write (default: standard output)")
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Graphviz source instead of SVG")] = False,
) -> None:
    """Draw a lab as SVG, or as Graphviz source."""
    topology = load(lab)
    text = draw.to_dot(topology) if dot else draw.to_svg(topology)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_whole(output, text)
    except WriteError as error:
        fail(str(error))
    typer.echo(f"{output}: {len(topology.hosts)} hosts, {len(topology.switches)} switches")
