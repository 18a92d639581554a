"""`mrclab up`, `down`, `list`, `status`, `cleanup`."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mrc_control.cli.common import on_lab, the_lab
from mrc_control.cli.status import lab_status
from mrc_control.lab import lifecycle
from mrc_control.lab.rundir import RunError, all_runs

LabName = Annotated[str | None, typer.Argument(help="the lab's name; the only one that is up if left out")]


def up(
    lab: Annotated[str, typer.Argument(help="a lab file, or the name of a lab that comes with mrclab")] = "default",
    transport: Annotated[str, typer.Option(help="mrc, or roce for the single-path baseline")] = "mrc",
    links: Annotated[str, typer.Option(help="memory: one process for all switches; veth: one process each")] = "memory",
) -> None:
    """Bring a lab up on the real clock: namespaces, switches, tables, host agents."""
    if transport not in ("mrc", "roce"):
        raise RunError(f"transport is mrc or roce, not '{transport}'")
    if links not in ("memory", "veth"):
        raise RunError(f"links is memory or veth, not '{links}'")
    console = Console(stderr=True)
    with console.status("starting") as status:
        name, topology = lifecycle.up(lab, transport, lambda text: status.update(text), links)
    typer.echo(
        f"lab {name} is up: {len(topology.hosts)} hosts, {len(topology.switches)} switches, "
        f"{len(topology.links)} links; try: mrclab run ring_all_reduce"
    )


def down(lab: LabName = None) -> None:
    """End a lab and remove everything it made."""
    name = the_lab(lab)
    lifecycle.down(name)
    typer.echo(f"lab {name} is down")


def cleanup() -> None:
    """Remove what labs left that were killed."""
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        typer.echo(text)

    removed = lifecycle.cleanup(hear)
    for name, ended in removed.items():
        typer.echo(f"lab {name}: removed{': ' if ended else ''}{', '.join(ended)}")
    if not removed and not any("is ending" in each for each in heard):
        typer.echo("nothing to clean up")


def list_labs(as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Your labs: what is up, since when, as which user it runs."""
    rows = lifecycle.listing()
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        typer.echo("no lab is up")
        return
    table = Table(box=None)
    for column in ("lab", "state", "hosts", "fabric processes", "transport", "since", "runs as", "first process"):
        table.add_column(column, justify="right" if column in ("hosts", "fabric processes") else "left")
    for row in rows:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["since"])) if row["since"] else "-"
        table.add_row(
            row["name"], row["phase"], str(row["hosts"]), str(row["fabric"]), row["transport"], since,
            str(row["user"]), str(row["pid"] or "-"),
        )  # fmt: skip
    Console().print(table)


def status(
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


def _show(document: dict[str, Any]) -> None:
    console = Console()
    console.print(f"lab [bold]{document['lab']}[/]: {document['hosts_alive']} of {len(document['hosts'])} agents alive")
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


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    for verb in (up, down, status, cleanup):
        app.command()(verb)
    app.command("list")(list_labs)
