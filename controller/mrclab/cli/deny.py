"""`mrclab deny`: no queue pair sends across an element."""

from __future__ import annotations

from typing import Annotated

import typer

from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab
from mrclab.lab.management import denylist


def verb(
    elements: Annotated[
        list[str] | None,
        typer.Argument(help="links, host ports or switches (default: what the hosts' probes find dead)"),
    ] = None,
    lab: Lab = None,
) -> None:
    """Put elements on the denylist: no queue pair sends across them until `allow`."""
    with on_lab(lab) as session:
        names = elements or denylist.dead_now(session)
        changed = denylist.deny(session, names) if names else 0
        listed = ", ".join(sorted(session.denied)) or "nothing"
    if not names:
        typer.echo("the hosts' probes find nothing dead")
    typer.echo(f"denied: {listed}; EVs taken out of use: {changed}")
