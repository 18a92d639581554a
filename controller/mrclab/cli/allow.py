"""`mrclab allow`: denied elements are used again."""

from __future__ import annotations

from typing import Annotated

import typer

from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab
from mrclab.lab.management import denylist


def verb(
    elements: Annotated[
        list[str] | None, typer.Argument(help="elements to take off the denylist (default: all)")
    ] = None,
    lab: Lab = None,
) -> None:
    """Take elements off the denylist; their EVs are used again."""
    with on_lab(lab) as session:
        changed = denylist.allow(session, elements or None)
        listed = ", ".join(sorted(session.denied)) or "nothing"
    typer.echo(f"denied: {listed}; EVs given back: {changed}")
