"""`mrclab down`: the end of a lab."""

from __future__ import annotations

import typer

from mrclab.cli.common import LabName, the_lab
from mrclab.lab.records import rundir


def verb(lab: LabName = None) -> None:
    """Stop a lab and remove everything that it created."""
    name = the_lab(lab)
    rundir.down(name)
    typer.echo(f"lab {name} is down")
