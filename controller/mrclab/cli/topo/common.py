"""Parts that the verbs of `mrclab topo` share."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from mrc_topo.labfile import LabError, load_lab
from mrc_topo.topology import Topology
from mrclab.cli.common import lab_file

LabName = Annotated[str, typer.Argument(help="a lab file, or the name of a built-in lab or of one that is up")]

Json = Annotated[bool, typer.Option("--json", help="print JSON instead of tables")]


def fail(message: str, code: int = 2) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"mrclab topo: error: {line}", err=True)
    raise typer.Exit(code)


def load(lab: str) -> Topology:
    try:
        topology = load_lab(lab_file(lab, "virtual"))
    except LabError as error:
        fail(str(error))
    for text in topology.notes:
        typer.echo(f"mrclab topo: warning: {lab}: {text}", err=True)
    return topology
