"""`mrclab topo`: check, show, draw and plan fabrics."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.table import Table

from mrc_topo import addressing, draw, rules
from mrc_topo.base.files import WriteError, write_whole
from mrc_topo.labfile import LabError, load_lab
from mrc_topo.modes import RoutingMode
from mrc_topo.paths import Paths
from mrc_topo.plan import CostError, Costs, CostSummary, Design, PlanError, bill, compared, load_costs
from mrc_topo.plan import plan as make_plan
from mrc_topo.schema import EcnSpec, described
from mrc_topo.tenants import COMMON_NAME
from mrc_topo.topology import Topology
from mrc_topo.units import format_rate, format_size, format_time
from mrclab.cli.common import lab_file
from mrclab.lab import describe
from mrclab.results.terminal import Terminal

app = typer.Typer(help="Check, show, draw and plan fabrics.", no_args_is_help=True, add_completion=False)

LabName = Annotated[str, typer.Argument(help="a lab file, or the name of a built-in lab or of one that is up")]

Json = Annotated[bool, typer.Option("--json", help="print JSON instead of tables")]


def fail(message: str, code: int = 2) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"mrclab topo: error: {line}", err=True)
    raise typer.Exit(code)


def load(lab: str) -> Topology:
    try:
        topology = load_lab(lab_file(lab, "virtual"))
    except LabError as error:
        fail(str(error))
    for text in topology.notes:
        typer.echo(f"mrclab topo: warning: {lab}: {text}", err=True)
    return topology


#: Up to this many hosts every route of every pair is followed.
ALL_PAIRS = 256


@app.command()
def validate(
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


@app.command()
def show(
    lab: LabName,
    as_json: Json = False,
    switch: Annotated[str, typer.Option(help="print the table entries of this switch")] = "",
) -> None:
    """Print hosts, switches, links and settings of a lab, or the table entries of one switch."""
    topology = load(lab)
    if switch:
        if switch not in {each.name for each in topology.switches}:
            some = ", ".join(each.name for each in topology.switches[:3])
            fail(f"{lab}: no switch '{switch}'; they are called {some} and so on")
        entries = rules.switch_entries(topology, topology.switch(switch))
        typer.echo(json.dumps([entry.as_dict() for entry in entries], indent=2))
        return
    if as_json:
        typer.echo(json.dumps(document(topology), indent=2))
        return
    console = Terminal(width=None)
    console.print(_summary(topology))
    console.print(_hosts_table(topology))
    console.print(_switches_table(topology))


def document(topology: Topology) -> dict[str, Any]:
    """Return everything about a lab as plain data."""
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
                **({"tenant": host.segment.name} if lab.tenants else {}),
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
                "marks": None if link.marks is None else asdict(link.marks),
            }
            for link in topology.links.values()
        ],
    }


def _marking(ecn: EcnSpec) -> str:
    low, high = ecn.thresholds(last_hop=False)
    text = f"{described(low)} to {described(high)}"
    if not ecn.last_hop:
        return text
    own = ecn.thresholds(last_hop=True)
    same = own == (low, high)
    return f"{text} (last hop: {'the same' if same else f'{described(own[0])} to {described(own[1])}'})"


def _summary(topology: Topology) -> Table:
    lab = topology.lab
    table = Table(title=f"{lab.name}: {lab.description}", show_header=False, title_justify="left")
    mode = lab.routing.mode.value
    if lab.routing.mode is RoutingMode.SPRAY:
        mode += f" ({lab.routing.spray.value})"
    queue = lab.queues
    ecn = "off" if queue.ecn is None else _marking(queue.ecn)
    trim = "off" if queue.trim is None else f"above {format_size(queue.trim.threshold)}"
    last = lab.hosts - 1
    pairs = Paths(topology)
    rows = [
        ("shape", f"{topology.shape}, {lab.hosts} hosts"),
        ("routing", mode),
        ("host links", f"{format_rate(lab.links.host.rate)}, {format_time(lab.links.host.delay)}"),
        ("fabric links", f"{format_rate(lab.links.fabric.rate)}, {format_time(lab.links.fabric.delay)}"),
        *([("oversubscription", f"{lab.oversubscription:.3g}:1")] if lab.topology is None else []),
        (f"paths {topology.hosts[0].name} to " + topology.hosts[last].name, str(len(pairs.all_paths(0, last)))),
        *_fewest_paths(topology),
        ("base RTT", format_time(pairs.base_rtt_ns(lab.interface_mtu + 14))),
        ("data queue", f"{format_size(queue.limit)}, marks {ecn}, trims {trim}"),
        ("path MTU", f"{lab.path_mtu} B (interfaces {lab.interface_mtu} B)"),
        ("EV profile", f"{lab.ev.size} EVs, {lab.ev.active} active, {lab.ev.mode.value}"),
        ("congestion control", lab.cc.algorithm),
        *(
            (f"tenant {name}", f"{spec.addresses}, decapsulation at {spec.decapsulation.value}")
            for name, spec in lab.tenants.items()
        ),
        ("clock, seed", f"{lab.clock}, {lab.seed}"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _fewest_paths(topology: Topology) -> list[tuple[str, str]]:
    """Return a row about the two hosts of a graph that have the fewest paths, which a failure would part first."""
    if topology.lab.topology is None or len(topology.hosts) < 2:
        return []
    paths = Paths(topology)
    pairs = itertools.combinations(topology.hosts, 2)
    many, one, other = min(
        ((len(paths.all_paths(a.index, b.index)), a, b) for a, b in pairs), key=lambda found: found[0]
    )
    return [("fewest paths", f"{many}, {one.name} to {other.name}")]


def _hosts_table(topology: Topology) -> Table:
    tenants = ["tenant"] if topology.lab.tenants else []
    columns = ["host", *tenants, "address", "T0", "uSID by plane", "link overrides"]
    table = Table(*columns, title="hosts", title_justify="left")
    for host in topology.hosts:
        changed = [port.name for port in host.ports if port.name in topology.lab.overrides]
        usids = " ".join(f"{port.last_usid:04x}" for port in host.ports)
        t0 = str(host.t0) if topology.lab.topology is None else " ".join(port.t0 for port in host.ports)
        own = [host.segment.name or COMMON_NAME] if tenants else []
        table.add_row(host.name, *own, addressing.text(host.address), t0, usids, ", ".join(changed))
    return table


def _switches_table(topology: Topology) -> Table:
    table = Table("switch", "device id", "uSID", "ports", title="switches", title_justify="left")
    for switch in topology.switches:
        ports = " ".join(f"{port}={switch.peer(port).node}" for port in switch.links)
        table.add_row(switch.name, str(switch.device_id), f"{switch.usid:04x}", ports)
    return table


@app.command("draw")
def draw_lab(
    lab: LabName,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="file to write (default: standard output)")
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Graphviz source instead of SVG")] = False,
) -> None:
    """Draw a lab as SVG, or as Graphviz source."""
    topology = load(lab)
    text = draw.to_dot(topology) if dot else draw.to_svg(topology)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_whole(output, text)
    except WriteError as error:
        fail(str(error))
    typer.echo(f"{output}: {len(topology.hosts)} hosts, {len(topology.switches)} switches")


@app.command()
def plan(
    radix: Annotated[int, typer.Option(help="ports of a switch, at the speed of one plane")] = 512,
    planes: Annotated[int, typer.Option(help="planes; each NIC has one link into each")] = 8,
    nics: Annotated[int | None, typer.Option(help="NICs (default: as many as two tiers connect)")] = None,
    compare: Annotated[
        str | None, typer.Option(help="compare designs of several radixes and plane counts, such as '256,512 x 4,8'")
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="file of power and prices; default: topologies/costs/default.yaml")
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
