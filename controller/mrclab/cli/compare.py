"""`mrclab compare`: a workload by several transports under several conditions."""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import interruptible
from mrclab.cli.common import TrustCode, duration, need_namespaces
from mrclab.cli.progress import steps
from mrclab.results import resultdir
from mrclab.results.check import Check
from mrclab.results.terminal import Terminal
from mrclab.runs import compare as comparing
from mrclab.runs.compare import Comparison, Timing, load_comparison
from mrclab.studies.cells.pages import csv_of


def verb(
    name: Annotated[str, typer.Argument(help="name, file or folder of a comparison")] = "mrc-vs-roce",
    length: Annotated[
        float | None, duration("time that each run's workload lasts, such as 2s (default: as in the file)")
    ] = None,
    output: Annotated[
        pathlib.Path | None, typer.Option("-o", "--output", help="folder for compare.json and compare.csv")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    trust_code: TrustCode = False,
) -> None:
    """Run one workload over several transports and conditions, and compare the results.

    Exit with 1 if an expectation is not met.
    """
    comparison = load_comparison(name)
    if length is not None:
        comparison = comparing.lasting(comparison, length)
    if comparison.clock == "real":
        need_namespaces()
    with contextlib.ExitStack() as stack:
        stack.enter_context(interruptible())
        if output is not None:
            stack.enter_context(resultdir.prepared(output, 0.0))
        with steps() as tell:
            cells = comparing.compare(comparison, tell, trust_code=trust_code)
        judged = comparing.judge(comparison, cells)
        ideals = comparing.ideals(comparison)
        document = comparing.document(comparison, cells, judged, ideals)
        if output is not None:
            write_whole(output / "compare.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
            write_whole(output / "compare.csv", _table(comparison, cells, ideals))
    if as_json:
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
    else:
        _show_comparison(comparison, cells, judged, ideals)
        if output is not None:
            typer.echo(f"{output / 'compare.json'}, {output / 'compare.csv'}")
    if not all(each.passed for each in judged):
        raise SystemExit(1)


def _table(comparison: Comparison, cells: Mapping[tuple[str, str], Timing], ideals: Mapping[str, float | None]) -> str:
    """Return the times as CSV: a row per variant and condition, times in seconds, empty where a run failed."""
    heads = ("comparison", "variant", "condition", "seconds", "ideal_seconds", "lost", "failure")
    return csv_of(
        heads,
        [
            (
                *(comparison.name, variant, at, cell.seconds if math.isfinite(cell.seconds) else None),
                *(ideals[variant], cell.lost, cell.failure),
            )
            for (variant, at), cell in cells.items()
        ],
    )


def _show_comparison(
    comparison: Comparison,
    cells: dict[tuple[str, str], Timing],
    judged: Sequence[Check],
    ideals: Mapping[str, float | None],
) -> None:
    console = Terminal()
    first = comparison.conditions[0].name
    what = f"{comparison.workload.name}, {comparison.clock} clock: time of one iteration"
    table = Table(title=f"{comparison.title}\n{what}")
    table.add_column("variant")
    known = any(each is not None for each in ideals.values())
    if known:
        table.add_column("ideal", justify="right")
    for condition in comparison.conditions:
        table.add_column(condition.name, justify="right")
    for variant in comparison.variants:
        ideal = ideals[variant.name]
        row = [] if not known else ["" if ideal is None else f"{ideal * 1e3:.1f} ms"]
        for condition in comparison.conditions:
            cell, base = cells[variant.name, condition.name], cells[variant.name, first]
            text = "failed" if math.isinf(cell.seconds) else f"{cell.seconds * 1e3:.1f} ms"
            if condition.name != first and not math.isinf(cell.seconds + base.seconds):
                text += f" (x {cell.seconds / base.seconds:.2f})"
            row.append(text)
        table.add_row(variant.name, *row)
    console.print(table)
    if known:
        console.print("ideal: headers, acknowledgements, hops and delays; no windows, queues, collisions or losses")
    table = Table(box=None)
    for column in ("ratio of times", "expected", "measured", ""):
        table.add_column(column)
    for each in judged:
        mark = Text("good", "green") if each.passed else Text("missed", "red")
        table.add_row(each.what, each.expected, each.measured, mark)
    console.print(table)
    for (name, at), cell in cells.items():
        if cell.failure:
            console.print(f"{name}, {at}: {cell.failure}")
        if cell.doubt:
            console.print(f"{name}, {at}: its time is not valid: {cell.doubt}")
