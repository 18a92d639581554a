"""`mrclab events`: what happened in a recorded run, in the order of time."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated

import typer

from mrc_topo.base.document import printable
from mrc_topo.base.errors import UsageError
from mrc_topo.base.plain import encode
from mrclab.results.reading import RESULT, folder_of, readable, recorded_in


def verb(
    run: Annotated[pathlib.Path, typer.Argument(help="the folder of a run's results")],
    host: Annotated[
        str | None, typer.Option("--host", help="only what this host logged, beside what was done to the lab")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Print what happened in a recorded run, in order of time, with host, peer, plane, path and cause.

    These are the failures, when a host first noticed each and what its probes named, EVs, queue pairs and ports that
    changed their state, and processes that died. Times are milliseconds after the start of the run.
    """
    # With numpy, which other verbs do without.
    from mrclab.results.history import What, history, topology_of
    from mrclab.results.record import RunResult

    folder = recorded_in(folder_of(run))
    result = RunResult.load(folder)
    with readable(folder / RESULT):
        topology = topology_of(result, folder)
        rows = history(result, topology)
    if host is not None:
        known = [each.name for each in topology.hosts]
        if host not in known:
            raise UsageError(f"--host: there is no '{printable(host)[:40]}' in this run; hosts: {', '.join(known)}")
        rows = [each for each in rows if each.host in ("", host) or each.what is What.DETECTED]
    if as_json:
        typer.echo(json.dumps([encode(each) for each in rows], indent=1))
        return
    lines = [("ms", "what", "host", "peer", "plane", "path", "event", "cause")]
    for row in rows:
        path = "" if row.path is None else " ".join(row.path.switches)
        plane = "" if row.plane is None else str(row.plane)
        text = row.text if row.ev is None else f"EV {row.ev}: {row.text}"
        text += "" if row.done_ms is None else f", done at {row.done_ms:.1f}"
        lines.append((f"{row.t_ms:.1f}", row.what.value, row.host, row.peer, plane, path, text, row.cause))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for time, *cells in lines:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths[1:], strict=True))
        typer.echo(printable("  ".join((time.rjust(widths[0]), *padded)).rstrip()))
