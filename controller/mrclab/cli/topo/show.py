"""`mrclab topo show`: hosts, switches, links and settings of a lab, or the table entries of a switch."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from mrc_topo import addressing, rules
from mrc_topo.modes import RoutingMode
from mrc_topo.paths import Paths
from mrc_topo.schema import EcnSpec, described
from mrc_topo.tenants import COMMON_NAME
from mrc_topo.topology import Topology
from mrc_topo.units import format_rate, format_size, format_time
from mrclab.cli.topo.common import Json, fail, load
from mrclab.cli.topo.common import LabName as Lab
from mrclab.results.terminal import Terminal


def verb(
    lab: Lab,
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
        typer.echo(json.dumps(describe(topology), indent=2))
        return
    console = Terminal(width=None)
    console.print(_summary(topology))
    console.print(_hosts_table(topology))
    console.print(_switches_table(topology))


def describe(topology: Topology) -> dict[str, Any]:
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
