"""`mrclab exec`: a command in a host."""

from __future__ import annotations

from typing import Annotated

import typer

from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import the_lab
from mrclab.lab.hosts import inside
from mrclab.lab.records.rundir import RunDir

#: What follows the host is the command's.
CONTEXT = {"ignore_unknown_options": True}


def verb(
    host: Annotated[str, typer.Argument(help="a host such as h3")],
    command: Annotated[list[str], typer.Argument(help="the command to run, with its arguments")],
    lab: Lab = None,
) -> None:
    """Run a command in a host and return its exit code; `h1.p0` is h1's port in the fabric, `h1` in management."""
    inside.exec_in_host(RunDir(the_lab(lab)).read(), command, host=host)
