"""`mrclab trace`: what a switch's program does with the next packets, replayed in the interpreter."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from mrclab.cli import common, progress
from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab
from mrclab.cli.common import seconds as waited

MAX_PACKETS = 1000


def verb(
    switch: Annotated[str, typer.Argument(help="a switch such as p0-t0.1")],
    packets: Annotated[
        int, typer.Option("-n", "--packets", min=1, max=MAX_PACKETS, help="how many packets to trace")
    ] = 1,
    duration: Annotated[float, common.duration("give up after this time, such as 2s or 500ms")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON: notes, and the events of each packet")] = False,
    lab: Lab = None,
) -> None:
    """Show what a switch's program does with the next packets, by source line: states, tables, changed fields."""
    from mrclab.lab.replayed import trace
    from p4lite_tools.trace import Lines, to_json

    limit = waited("--duration", duration) or 0.0
    with on_lab(lab) as session:
        traced = trace(session, switch, packets, limit)
    notes, events = traced.notes, traced.packets
    if as_json:
        document = {"switch": switch, "notes": notes, "packets": [to_json(each) for each in events]}
        typer.echo(json.dumps(document, indent=1))
    else:
        lines = Lines(colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
        for note in notes:
            typer.echo(f"note: {note}")
        for each in events:
            typer.echo("\n" + "\n".join(lines.render(each)))
    if len(events) < packets:
        progress.warn(f"{len(events)} of {packets} packets arrived at {switch} in {limit:g} s")
        raise typer.Exit(1)
