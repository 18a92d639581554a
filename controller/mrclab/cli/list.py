"""`mrclab list`: the labs that are up, and what comes with mrclab."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from mrclab.cli.listed import ListedKind
from mrclab.lab import lifecycle
from mrclab.lab.lifecycle import LabRow
from mrclab.results.terminal import Terminal


def verb(
    kinds: Annotated[
        list[ListedKind] | None, typer.Argument(help="what to list (default: all)", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List your running labs, and the labs, experiments, workloads and exercises that come with mrclab."""
    wanted = kinds or list(ListedKind)
    if as_json:
        typer.echo(json.dumps({kind.value: _document(kind) for kind in wanted}, indent=1))
        return
    console = Terminal()
    if ListedKind.RUNNING in wanted:
        _show_running(console, lifecycle.listing())
    if not kinds:
        _show_names(console)
        return
    for kind in kinds:
        if kind is not ListedKind.RUNNING:
            _show(console, kind)


def _document(kind: ListedKind) -> Sequence[Any]:
    if kind is ListedKind.RUNNING:
        return lifecycle.listing()
    from mrclab.cli.available import SECTIONS

    return [each.document() for each in SECTIONS[kind].found()] if kind in SECTIONS else []


def _show_running(console: Terminal, rows: Sequence[LabRow]) -> None:
    if not rows:
        console.print("no lab is up")
        return
    table = Table(box=None, title="running labs", title_justify="left")
    for column in ("lab", "state", "hosts", "fabric processes", "transport", "since", "runs as", "first process"):
        table.add_column(column, justify="right" if column in ("hosts", "fabric processes") else "left")
    for row in rows:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["since"])) if row["since"] else "-"
        table.add_row(
            row["name"], row["phase"], str(row["hosts"]), str(row["fabric"]), row["transport"], since,
            str(row["user"]), str(row["pid"] or "-"),
        )  # fmt: skip
    console.print(table)


def _show_names(console: Terminal) -> None:
    """Print the names of everything that comes with mrclab, a row per kind; `mrclab list KIND` has more of each."""
    from mrclab.cli.available import SECTIONS

    table = Table(box=None, title="\nwhat comes with mrclab (`mrclab list KIND` says more)", title_justify="left")
    for column in ("kind", "names", "use"):
        table.add_column(column)
    for kind, section in SECTIONS.items():
        table.add_row(kind.value, ", ".join(map(str, section.names())), section.use)
    console.print(table)


def _show(console: Terminal, kind: ListedKind) -> None:
    from mrclab.cli.available import SECTIONS

    section = SECTIONS.get(kind)
    if section is None:
        console.print(f"{kind.value}: the extra that has them is not installed")
        return
    rows = section.found()
    table = Table(box=None, title=f"\n{kind.value}: {section.use}", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    columns = list(rows[0].more) if rows else []
    for column in columns:
        table.add_column(column)
    for each in rows:
        table.add_row(each.name, each.title, *(each.more[column] for column in columns))
    console.print(table)
