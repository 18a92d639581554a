"""`mrclab topo plan`: a multi-plane fabric beside the three-tier one of the same NICs."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mrc_control.cli.topo.common import Json, fail
from mrc_topo.plan import Design, PlanError
from mrc_topo.plan import plan as make_plan


def verb(
    radix: Annotated[int, typer.Option(help="ports of a switch, at one plane's speed")] = 512,
    planes: Annotated[int, typer.Option(help="planes, and links of a NIC")] = 8,
    nics: Annotated[int | None, typer.Option(help="NICs; default: as many as two tiers connect")] = None,
    as_json: Json = False,
) -> None:
    """Compute a multi-plane fabric, and the three-tier one of the same NICs, without building either."""
    try:
        result = make_plan(radix, planes, nics)
    except PlanError as error:
        fail(str(error))
    designs = (result.multi_plane, result.three_tier)
    if as_json:
        typer.echo(json.dumps([design.as_dict() for design in designs], indent=2))
        return
    console = Console(width=None)
    console.print(_plan_table(*designs))
    for design in designs:
        if design.note:
            console.print(f"{design.name}: {design.note}")


def _count(values: dict[str, int], key: str) -> str:
    return f"{values[key]:,}" if key in values else "-"


def _share(value: Fraction | None) -> str:
    return "-" if value is None else f"{float(value):.3%}"


def _plan_table(multi: Design, single: Design) -> Table:
    both = (multi, single)
    table = Table("", *(design.name for design in both), title="fabric plan", title_justify="left")
    table.add_row("NICs", *(f"{design.nics:,}" for design in both))
    table.add_row("switch ports", *(f"{design.radix:,}" for design in both))
    for tier in ("T0", "T1", "T2"):
        table.add_row(f"{tier} switches", *(_count(design.switches, tier) for design in both))
    table.add_row("switches", *(f"{design.total_switches:,}" for design in both))
    for kind in ("NIC-T0", "T0-T1", "T1-T2"):
        table.add_row(f"{kind} links", *(_count(design.links, kind) for design in both))
    table.add_row("links", *(f"{design.total_links:,}" for design in both))
    table.add_row("transceivers", *(f"{design.optics:,}" for design in both))
    table.add_row("paths per pair", *(f"{design.paths_per_pair:,}" for design in both))
    table.add_row("switches on a path", *(str(design.max_switch_hops) for design in both))
    for element in ("NIC port", "T0", "T0-T1 link", "T1", "T1-T2 link", "T2"):
        table.add_row(f"capacity lost: {element}", *(_share(design.lost.get(element)) for design in both))
    for element in ("T0-T1 link", "T1"):
        label = f"slowed, planes equally loaded: {element}"
        table.add_row(label, *(_share(design.slowed.get(element)) for design in both))
    return table
