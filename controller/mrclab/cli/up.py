"""`mrclab up`: a lab in namespaces of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from mrc_topo.base.interruption import interruptible
from mrclab.cli.common import Compiler, Custom, Switch, Topo, TrustCode, lab_or_custom
from mrclab.cli.livepage import Web, check_page, page
from mrclab.cli.progress import steps
from mrclab.lab import describe, lifecycle
from mrclab.lab.records.rundir import VARIABLE, RunError
from mrclab.lab.requested import LabRequest
from mrclab.lab.spread import machines_of

Connect = Annotated[
    str | None,
    typer.Option(
        help="for a lab on several machines: what leads to one, with its name for {ssh} (default: $MRCLAB_CONNECT, "
        "otherwise ssh)"
    ),
]


def verb(
    lab: Annotated[
        str | None, typer.Argument(help="a lab file, or the name of a built-in lab (default: default)")
    ] = None,
    custom: Custom = None,
    topo: Topo = None,
    transport: Annotated[str, typer.Option(help="mrc, or roce for the single-path baseline (default: mrc)")] = "mrc",
    links: Annotated[
        str, typer.Option(help="memory: one process for all switches; veth: one process per switch")
    ] = "memory",
    switch: Switch = None,
    compiler: Compiler = None,
    trust_code: TrustCode = False,
    connect: Connect = None,
    web: Web = False,
) -> None:
    """Start a lab on the real clock: namespaces, switches, tables and host agents.

    With --web the command serves the live view until Ctrl-C; the lab stays up.
    """
    if transport not in ("mrc", "roce"):
        raise RunError(f"transport is mrc or roce, not '{transport}'")
    if links not in ("memory", "veth"):
        raise RunError(f"links is memory or veth, not '{links}'")
    if web:
        # What the page lacks is said before anything is started; its address when there is something to show.
        check_page()
    with lab_or_custom(lab, custom, topo) as file:
        chosen = file or "default"
        wanted = LabRequest.of(chosen, transport, switch=switch, compiler=compiler, trust_code=trust_code, clock="real")
        name = _up(replace(wanted, links=links, connect=connect))
    if web:
        with interruptible() as interruption, page() as made:
            made.watch(name, interruption.check)


def _up(wanted: LabRequest) -> str:
    """Bring a lab up, report that, and return its name."""
    for text in describe.warnings(wanted.topology, "real", wanted.transport):
        typer.echo(f"warning: {wanted.lab}: {text}", err=True)
    with steps() as tell:
        name, topology = lifecycle.up(wanted, tell)
    where = ""
    if topology.lab.machines:
        where = f" on {len(topology.lab.machines)} machines"
        for text in machines_of(name).warnings(topology):
            typer.echo(f"warning: {wanted.lab}: {text}", err=True)
    typer.echo(
        f"lab {name} is up{where}: {len(topology.hosts)} hosts, {len(topology.switches)} switches, "
        f"{len(topology.links)} links; try: mrclab run ring_all_reduce"
    )
    typer.echo(f"commands from another shell: export {VARIABLE}={name}")
    return name
