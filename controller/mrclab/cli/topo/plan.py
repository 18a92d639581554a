"""`mrclab topo plan`: a multi-plane fabric beside the three-tier one of the same NICs."""

from __future__ import annotations

import json
import pathlib
from fractions import Fraction
from typing import Annotated, Any

import typer
from rich.table import Table

from mrc_topo.plan import CostError, Costs, CostSummary, Design, PlanError, bill, compared, load_costs
from mrc_topo.plan import plan as make_plan
from mrclab.cli.topo.common import Json, fail
from mrclab.results.terminal import Terminal


def verb(
    radix: Annotated[int, typer.Option(help="ports of a switch, at the speed of one plane")] = 512,
    planes: Annotated[int, typer.Option(help="planes; each NIC has one link into each")] = 8,
    nics: Annotated[int | None, typer.Option(help="NICs (default: as many as two tiers connect)")] = None,
    compare: Annotated[
        str | None, typer.Option(help="compare designs of several radixes and plane counts, such as '256,512 x 4,8'")
    ] = None,
    costs: Annotated[
        pathlib.Path | None, typer.Option(help="file of power and prices; default: topologies/costs/default.yaml")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute a multi-plane fabric, and the three-tier one of the same NICs, without building either."""
    try:
        prices = load_costs(costs)
        if compare is not None:
            _compare(compared(compare, nics), prices, as_json)
            return
        result = make_plan(radix, planes, nics)
    except (PlanError, CostError) as error:
        fail(str(error))
    designs = (result.multi_plane, result.three_tier)
    if as_json:
        typer.echo(json.dumps([_data(design, prices) for design in designs], indent=2))
        return
    console = Terminal(width=None)
    console.print(_plan_table(*designs, prices))
    for design in designs:
        if design.note:
            console.print(f"{design.name}: {design.note}")


def _count(values: dict[str, int], key: str) -> str:
    return f"{values[key]:,}" if key in values else "-"


def _share(value: Fraction | None) -> str:
    return "-" if value is None else f"{float(value):.3%}"


def _data(design: Design, prices: Costs) -> dict[str, Any]:
    return {**design.as_dict(), "cost": bill(design, prices).as_dict()}


def _compare(designs: list[Design], prices: Costs, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([_data(design, prices) for design in designs], indent=2))
        return
    title = "fabrics of two tiers; link, port: capacity that one of them takes"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column in ("radix", "planes", "Tb/s", "NICs", "switches", "optics", "MW", "W/NIC", "$/NIC", "link", "port"):
        table.add_column(column, justify="right", no_wrap=True)
    for design in designs:
        cost = bill(design, prices)
        size = f"{design.radix * prices.nic_gbps / design.planes / 1000:g}"
        counts = (f"{each:,}" for each in (design.nics, design.total_switches, design.optics))
        money = (f"{cost.kw / 1e3:.2f}", f"{1e3 * cost.kw / design.nics:.1f}", f"{cost.usd / design.nics:,.0f}")
        lost = (f"{float(design.slowed['T0-T1 link']):.1%}", f"{float(design.lost['NIC port']):.1%}")
        table.add_row(str(design.radix), str(design.planes), size, *counts, *money, *lost)
    Terminal().print(table)


def _cost_rows(bills: tuple[CostSummary, ...], nics: int) -> list[tuple[str, list[str]]]:
    return [
        (
            "power of switches, transceivers, MW",
            [f"{b.switch_kw / 1e3:.2f}, {b.transceiver_kw / 1e3:.2f}" for b in bills],
        ),
        ("power per NIC, W", [f"{1e3 * b.kw / nics:.1f}" for b in bills]),
        ("switches, transceivers, M$", [f"{b.switch_usd / 1e6:.1f}, {b.transceiver_usd / 1e6:.1f}" for b in bills]),
        ("price per NIC, $", [f"{b.usd / nics:,.0f}" for b in bills]),
        ("electricity of a year with cooling, M$", [f"{b.electricity_usd / 1e6:.2f}" for b in bills]),
    ]


def _plan_table(multi: Design, single: Design, prices: Costs) -> Table:
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
    for label, cells in _cost_rows((bill(multi, prices), bill(single, prices)), multi.nics):
        table.add_row(label, *cells)
    return table
