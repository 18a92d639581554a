"""`mrclab topo validate`: schema, radix, oversubscription, and every route of every path."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from mrc_topo import rules
from mrc_topo.labfile import LabError, load_lab
from mrclab.cli.common import lab_file
from mrclab.lab import describe

#: Up to this many hosts every route of every pair is followed.
ALL_PAIRS = 256


def verb(
    labs: Annotated[list[str], typer.Argument(help="lab files, or names of built-in labs or of labs that are up")],
) -> None:
    """Check lab files: schema, radix, oversubscription, and every route of every path; exit code 2 for a bad file."""
    code = 0
    for lab in labs:
        try:
            topology = load_lab(lab_file(lab, "virtual"))
            # All pairs of a large lab are too many; the tables of a T0 are the same for all of its hosts.
            first = {host.t0: host.index for host in reversed(topology.hosts)}
            paths = rules.check_routes(topology, sorted(first.values()) if len(topology.hosts) > ALL_PAIRS else None)
        except (LabError, rules.WalkError) as error:
            # An invalid lab file is the user's mistake; routes that lead nowhere are a failed check of a valid one.
            code = max(code, 2 if isinstance(error, LabError) else 1)
            for line in str(error).splitlines():
                typer.echo(f"mrclab topo: error: {line}", err=True)
            continue
        entries = sum(len(each) for each in rules.all_entries(topology).values())
        typer.echo(
            f"{lab}: good: {topology.lab.hosts} hosts, {len(topology.switches)} switches, "
            f"{len(topology.links)} links, {entries} table entries, {paths} paths followed"
        )
        told = [describe.warnings(topology, topology.lab.clock, transport) for transport in ("roce", "mrc")]
        for text in dict.fromkeys(itertools.chain(*told)):
            typer.echo(f"mrclab topo: warning: {lab}: {text}", err=True)
    if code:
        raise typer.Exit(code)
