"""`mrclab env`: the variables of programs in a host."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import the_lab
from mrclab.lab.hosts import inside
from mrclab.lab.records.rundir import RunDir


def verb(
    host: Annotated[str, typer.Argument(help="a host such as h3")],
    lab: Lab = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Print the variables that `mrclab exec` sets for programs in a host.

    They are assignments for a shell; the paths are those inside the lab.
    """
    variables = inside.environment(RunDir(the_lab(lab)).read(), host)
    if as_json:
        typer.echo(json.dumps(variables, indent=1))
        return
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
