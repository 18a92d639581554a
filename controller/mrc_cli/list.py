"""`mrclab list`: the labs that are up."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mrc_lab import lifecycle


def verb(as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """List your running labs, with the start time and the user of each."""
    rows = lifecycle.listing()
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        typer.echo("no lab is up")
        return
    table = Table(box=None)
    for column in ("lab", "state", "hosts", "fabric processes", "transport", "since", "runs as", "first process"):
        table.add_column(column, justify="right" if column in ("hosts", "fabric processes") else "left")
    for row in rows:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["since"])) if row["since"] else "-"
        table.add_row(
            row["name"], row["phase"], str(row["hosts"]), str(row["fabric"]), row["transport"], since,
            str(row["user"]), str(row["pid"] or "-"),
        )  # fmt: skip
    Console().print(table)
