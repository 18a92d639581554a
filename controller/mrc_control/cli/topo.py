"""`mrclab topo`: check, show, draw and plan fabrics."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from mrc_topo import LabError, Paths, Topology, addressing, draw, load_lab, rules, walk
from mrc_topo.modes import RoutingMode
from mrc_topo.plan import Design, PlanError
from mrc_topo.plan import plan as make_plan
from mrc_topo.units import format_rate, format_size, format_time
from p4lite.files import WriteError, write_whole

app = typer.Typer(help="Check, show, draw and plan fabrics.", no_args_is_help=True)
Lab = Annotated[str, typer.Argument(help="a lab file, or the name of a lab that comes with mrclab")]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of tables")]


def _fail(message: str, code: int = 2) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"mrclab topo: error: {line}", err=True)
    raise typer.Exit(code)


def _load(lab: str) -> Topology:
    try:
        return load_lab(lab)
    except LabError as error:
        _fail(str(error))


@app.command()
def validate(labs: Annotated[list[str], typer.Argument(help="lab files or names of labs")]) -> None:
    """Check lab files: schema, radix, oversubscription, and every route of every path."""
    failed = False
    for lab in labs:
        try:
            topology = load_lab(lab)
            paths = walk.check_routes(topology)
        except (LabError, walk.WalkError) as error:
            failed = True
            for line in str(error).splitlines():
                typer.echo(f"mrclab topo: error: {line}", err=True)
            continue
        entries = sum(len(each) for each in rules.all_entries(topology).values())
        typer.echo(
            f"{lab}: good: {topology.lab.hosts} hosts, {len(topology.switches)} switches, "
            f"{len(topology.links)} links, {entries} table entries, {paths} paths followed"
        )
    if failed:
        raise typer.Exit(1)


def describe(topology: Topology) -> dict[str, Any]:
    """Everything about a lab as plain data."""
    lab = topology.lab
    return {
        "lab": lab.model_dump(mode="json"),
        "oversubscription": lab.oversubscription,
        "interface_mtu": lab.interface_mtu,
        "base_rtt_ns": Paths(topology).base_rtt_ns(lab.interface_mtu + 14),
        "hosts": [
            {
                "name": host.name,
                "address": addressing.text(host.address),
                "ports": [
                    {
                        "name": port.name,
                        "interface": port.interface,
                        "mac": addressing.mac_text(port.mac),
                        "gateway_mac": addressing.mac_text(port.gateway_mac),
                        "address": addressing.text(port.address),
                        "usid": f"{port.usid:04x}",
                        "switch": port.t0,
                        "switch_port": port.t0_port,
                    }
                    for port in host.ports
                ],
            }
            for host in topology.hosts
        ],
        "switches": [
            {
                "name": switch.name,
                "device_id": switch.device_id,
                "plane": switch.plane,
                "tier": switch.tier.name,
                "usid": f"{switch.usid:04x}",
                "ports": {port: link.name for port, link in switch.links.items()},
            }
            for switch in topology.switches
        ],
        "links": [
            {
                "name": link.name,
                "plane": link.plane,
                "ends": [[link.low.node, link.low.port], [link.high.node, link.high.port]],
                "rate_bps": link.spec.rate,
                "delay_ns": link.spec.delay,
                "loss": link.loss,
                "corrupt": link.corrupt,
                "queue": link.queue.model_dump(mode="json"),
            }
            for link in topology.links.values()
        ],
    }


@app.command()
def show(
    lab: Lab,
    as_json: Json = False,
    switch: Annotated[str, typer.Option(help="print the table entries of this switch")] = "",
) -> None:
    """Print hosts, switches, links and settings of a lab, or the table entries of one switch."""
    topology = _load(lab)
    if switch:
        if switch not in {each.name for each in topology.switches}:
            _fail(f"{lab}: no switch '{switch}'; they are called p0-t0.0, p0-t1.0 and so on")
        entries = rules.switch_entries(topology, topology.switch(switch))
        typer.echo(json.dumps([entry.as_dict() for entry in entries], indent=2))
        return
    if as_json:
        typer.echo(json.dumps(describe(topology), indent=2))
        return
    console = Console(width=None)
    console.print(_summary(topology))
    console.print(_hosts_table(topology))
    console.print(_switches_table(topology))


def _summary(topology: Topology) -> Table:
    lab = topology.lab
    table = Table(title=f"{lab.name}: {lab.description}", show_header=False, title_justify="left")
    mode = lab.routing.mode.value
    if lab.routing.mode is RoutingMode.SPRAY:
        mode += f" ({lab.routing.spray.value})"
    queue = lab.queues
    ecn = "off" if queue.ecn is None else f"{format_size(queue.ecn.kmin)} to {format_size(queue.ecn.kmax)}"
    trim = "off" if queue.trim is None else f"above {format_size(queue.trim.threshold)}"
    last = lab.hosts - 1
    pairs = Paths(topology)
    rows = [
        ("shape", f"{lab.planes} planes of {lab.t0_per_plane} T0 and {lab.t1_per_plane} T1, {lab.hosts} hosts"),
        ("routing", mode),
        ("host links", f"{format_rate(lab.links.host.rate)}, {format_time(lab.links.host.delay)}"),
        ("fabric links", f"{format_rate(lab.links.fabric.rate)}, {format_time(lab.links.fabric.delay)}"),
        ("oversubscription", f"{lab.oversubscription:.3g}:1"),
        ("paths h0 to " + topology.hosts[last].name, str(len(pairs.all_paths(0, last)))),
        ("base RTT", format_time(pairs.base_rtt_ns(lab.interface_mtu + 14))),
        ("data queue", f"{format_size(queue.limit)}, marks {ecn}, trims {trim}"),
        ("path MTU", f"{lab.path_mtu} B (interfaces {lab.interface_mtu} B)"),
        ("EV profile", f"{lab.ev.size} EVs, {lab.ev.active} active, {lab.ev.mode.value}"),
        ("congestion control", lab.cc.algorithm),
        ("clock, seed", f"{lab.clock}, {lab.seed}"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _hosts_table(topology: Topology) -> Table:
    table = Table("host", "address", "T0", "uSID by plane", "link overrides", title="hosts", title_justify="left")
    for host in topology.hosts:
        changed = [port.name for port in host.ports if port.name in topology.lab.overrides]
        usids = " ".join(f"{port.usid:04x}" for port in host.ports)
        table.add_row(host.name, addressing.text(host.address), str(host.t0), usids, ", ".join(changed))
    return table


def _switches_table(topology: Topology) -> Table:
    table = Table("switch", "device id", "uSID", "ports", title="switches", title_justify="left")
    for switch in topology.switches:
        ports = " ".join(f"{port}={switch.peer(port).node}" for port in switch.links)
        table.add_row(switch.name, str(switch.device_id), f"{switch.usid:04x}", ports)
    return table


@app.command(name="draw")
def draw_command(
    lab: Lab,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="file; default: standard output")] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Graphviz source instead of SVG")] = False,
) -> None:
    """Draw a lab as SVG, or as Graphviz source."""
    topology = _load(lab)
    text = draw.to_dot(topology) if dot else draw.to_svg(topology)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_whole(output, text)
    except WriteError as error:
        _fail(str(error))
    typer.echo(f"{output}: {len(topology.hosts)} hosts, {len(topology.switches)} switches")


@app.command(name="plan")
def plan_command(
    radix: Annotated[int, typer.Option(help="ports of a switch, at one plane's speed")] = 512,
    planes: Annotated[int, typer.Option(help="planes, and links of a NIC")] = 8,
    nics: Annotated[int | None, typer.Option(help="NICs; default: as many as two tiers connect")] = None,
    as_json: Json = False,
) -> None:
    """Compute a multi-plane fabric, and the three-tier one of the same NICs, without building either."""
    try:
        result = make_plan(radix, planes, nics)
    except PlanError as error:
        _fail(str(error))
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
