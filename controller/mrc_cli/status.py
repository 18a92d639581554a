"""`mrclab status`: the truth from the fabric, and beside it what the hosts see."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mrc_cli.common import LabName, on_lab
from mrc_lab.hosts.hostclient import HostError
from mrc_lab.machines.session import MachineRow, SpreadSession
from mrc_lab.management import clustermapper, localiser
from mrc_lab.records.rundir import all_runs
from mrc_lab.session.real import RealSession
from p4lite.switch.targetapi.values import DeviceStats, SwitchInfo

#: Of the lab's processes those whom nothing asks.
INDIFFERENT = ("lab", "labd")


def verb(
    lab: LabName = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """What is up, what is broken, and what the hosts see of it."""
    if lab is None and not all_runs():
        typer.echo("{}" if as_json else "no lab is up")
        return
    with on_lab(lab) as session:
        document = lab_status(session)
    if as_json:
        typer.echo(json.dumps(document, indent=1))
    else:
        _show(document)


def lab_status(session: RealSession) -> dict[str, Any]:
    """Everything about a running lab as plain data: switches, hosts, what is broken, and what the hosts see."""
    frozen = {each.role: each for each in session.frozen()}
    silent = [role for role in frozen if role not in session.clients and role not in INDIFFERENT]
    if session.state.switch != "p4lite":
        # The wires answer in a switch's place.
        silent = [role for role in silent if role not in {switch.name for switch in session.topology.switches}]
    spread = session if isinstance(session, SpreadSession) else None
    info: dict[int, SwitchInfo]
    stats: dict[int, DeviceStats]
    if silent:  # whoever asks what is frozen waits until it goes on
        info, stats = {}, {}
    elif spread is not None:  # a machine may be lost while it is asked
        info, stats = spread.target.answering()
    else:
        info, stats = session.target.info().switches, session.target.stats()
    # Asked only now: until a machine that does not answer is known to be lost, the questions above have taken as long.
    lost = {} if spread is None else spread.lost()
    gone = {} if spread is None else {host: lost.get(at) for host, at in spread.placement.machine_of.items()}
    dead = {death.role for death in session.state.deaths}
    switches = []
    for ident, switch in info.items():
        ports = switch.ports.values()
        switches.append(
            {
                "name": switch.name,
                "state": "dead" if switch.name in dead else switch.state.value,
                "ports": len(switch.ports),
                "ports_up": sum(port.up_outgoing and port.up_incoming for port in ports),
                "tx_packets": sum(port.tx_packets for port in stats[ident].ports.values()),
                "drops": sum(sum(port.drops.values()) for port in stats[ident].ports.values()),
            }
        )
    told = {row["name"] for row in switches}
    switches += [
        {
            "name": switch.name,
            "state": "lost" if gone.get(switch.name) else "no answer",
            "ports": len(switch.links),
            "ports_up": 0,
            "tx_packets": 0,
            "drops": 0,
        }
        for switch in session.topology.switches
        if gone.get(switch.name) or (spread is not None and not silent and switch.name not in told)
    ]
    hosts: list[dict[str, Any]] = []
    for name, client in session.clients.items():
        if gone.get(name):
            hosts.append({"name": name, "alive": False, "error": gone[name]})
            continue
        row: dict[str, Any] = {"name": name, "alive": name not in frozen}
        if name in frozen:
            hosts.append(row | {"error": frozen[name].text()})
            continue
        try:
            counters = client.request("summary")
            row |= {key: counters[key] for key in ("ports_up", "sent", "received", "retransmitted")}
        except HostError as error:
            row |= {"alive": False, "error": str(error)}
        hosts.append(row)
    return {
        "lab": session.topology.lab.name,
        "switch": session.state.switch,
        "compiler": session.state.compiler,
        "grpc_addresses": list(session.state.switches.values()) or list(session.state.fabric),
        "switches": switches,
        "hosts": hosts,
        "agents": [asdict(each) for each in session.agents()],
        "hosts_alive": sum(host["alive"] for host in hosts),
        "broken": session.failures.broken,
        "unsettled": session.failures.unsettled,
        "denied": sorted(session.denied),
        "health": _health(session, {*frozen, *(host for host, how in gone.items() if how)}),
        "harm": session.harm(),
        "machines": spread.machines() if spread is not None else [],
    }


def _health(session: RealSession, frozen: Collection[str]) -> list[dict[str, str]]:
    """Every element that is broken, or that the hosts take for broken."""
    truth = session.failures.broken
    seen = clustermapper.view_of(
        session.topology,
        {name: host for name, host in session.hosts.items() if name not in frozen},
        localiser.load(session.topology.lab.policies.localiser),
    )
    return [
        {"element": name, "hosts": seen.get(name, "healthy"), "truth": truth.get(name, "healthy")}
        for name in sorted(set(truth) | set(seen))
    ]


def machine_line(machine: MachineRow) -> str:
    """What is known of a machine that carries a part, in a line."""
    where = f" (ssh {machine['ssh']})" if machine["ssh"] else ""
    parts = f"{len(machine['hosts'])} hosts, {len(machine['switches'])} switches"
    if machine["lost"]:
        return f"[red]{machine['lost']}[/]; {parts} are gone with it"
    clock = machine["clock"]
    known = "its clock is not known"
    if clock is not None:
        known = f"its clock is within {(abs(clock['off_ns']) + clock['uncertainty_ns']) / 1e6:.2f} ms of ours"
    ends = machine["tunnels"].values()
    lost, received = (sum(end[key] for end in ends) for key in ("lost", "received"))
    return (
        f"machine [bold]{machine['name']}[/]{where}: {parts}; {len(ends)} tunnels, "
        f"{received} datagrams, {lost} lost; {known}"
    )


def _show(document: dict[str, Any]) -> None:
    console = Console()
    parts = {"switches": document["switch"], "compiler": document["compiler"]}
    other = "".join(f", {what}: {part}" for what, part in parts.items() if part != "p4lite")
    alive = f"{document['hosts_alive']} of {len(document['hosts'])} agents alive"
    console.print(f"lab [bold]{document['lab']}[/]: {alive}{other}")
    table = Table(title="switches")
    for column in ("switch", "state", "ports up", "tx packets", "drops"):
        table.add_column(column, justify="left" if column in ("switch", "state") else "right")
    for switch in document["switches"]:
        ports = f"{switch['ports_up']} of {switch['ports']}"
        table.add_row(switch["name"], switch["state"], ports, str(switch["tx_packets"]), str(switch["drops"]))
    console.print(table)
    table = Table(title="hosts")
    for column in ("host", "ports up", "sent", "received", "retransmitted"):
        table.add_column(column, justify="left" if column == "host" else "right")
    for host in document["hosts"]:
        table.add_row(
            host["name"], *(str(host.get(key, "-")) for key in ("ports_up", "sent", "received", "retransmitted"))
        )
    console.print(table)
    for agent in document["agents"]:
        each = agent["memory_bytes"] / len(agent["hosts"])
        console.print(f"one process carries {', '.join(agent['hosts'])}: {each / 1e6:.0f} MB for each host")
    for machine in document["machines"]:
        console.print(machine_line(machine))
    health = document["health"]
    table = Table(title="links: as the hosts see them, beside the truth")
    for column in ("element", "hosts say", "truth"):
        table.add_column(column)
    for row in health:
        table.add_row(row["element"], row["hosts"], row["truth"])
    console.print(table if health else "all links and switches are healthy, and the hosts see them so")
    for line in document["harm"]:
        console.print(f"[red]{line}[/]")
    if document["unsettled"]:
        names = ", ".join(document["unsettled"])
        console.print(f"in doubt after a change that broke off: {names}; `mrclab restore` puts them right")
    if document["denied"]:
        console.print(f"denied: {', '.join(document['denied'])}; `mrclab allow` gives them back")
