"""`mrclab compare`: a workload by several transports under several conditions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mrc_cli.common import TrustCode, need_namespaces
from mrc_results.check import Check
from mrc_runs import compare as comparing
from mrc_runs.compare import Comparison, Timing, load_comparison
from mrc_runs.interruption import interruptible


def verb(
    name: Annotated[str, typer.Argument(help="name, file or folder of a comparison")] = "mrc-vs-roce",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    trust_code: TrustCode = False,
) -> None:
    """Run one workload over several transports and conditions, and compare the results.

    Exit with 1 if an expectation is not met.
    """
    comparison = load_comparison(name)
    if comparison.clock == "real":
        need_namespaces()
    with interruptible(), Console(stderr=True).status("starting") as status:
        cells = comparing.compare(comparison, lambda text: status.update(text), trust_code=trust_code)
    judged = comparing.judge(comparison, cells)
    ideals = comparing.ideals(comparison)
    if as_json:
        # JSON has no infinity: a run that failed has no time.
        rows = [
            {"variant": variant, "condition": at, "failure": cell.failure, "ideal_seconds": ideals[variant]}
            | {"verified_bytes": cell.verified, "not_valid": cell.doubt}
            | {"seconds": cell.seconds if math.isfinite(cell.seconds) else None}
            for (variant, at), cell in cells.items()
        ]
        checks = [
            {"what": each.what, "wanted": each.expected, "measured": each.measured, "passed": each.passed}
            for each in judged
        ]
        document = {"name": comparison.name, "cells": rows, "checks": checks}
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
    else:
        _show_comparison(comparison, cells, judged, ideals)
    if not all(each.passed for each in judged):
        raise SystemExit(1)


def _show_comparison(
    comparison: Comparison,
    cells: dict[tuple[str, str], Timing],
    judged: Sequence[Check],
    ideals: Mapping[str, float | None],
) -> None:
    console = Console()
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
        mark = "[green]good[/]" if each.passed else "[red]missed[/]"
        table.add_row(each.what, each.expected, each.measured, mark)
    console.print(table)
    for (name, at), cell in cells.items():
        if cell.failure:
            console.print(f"{name}, {at}: {cell.failure}")
        if cell.doubt:
            console.print(f"{name}, {at}: its time is not valid: {cell.doubt}")
