"""`mrclab up`: a lab in namespaces of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from mrc_topo.base.interruption import interruptible
from mrc_topo.labfile import load_lab
from mrclab.cli.common import Compiler, Switch, TrustCode
from mrclab.cli.livepage import Web, check_page, page
from mrclab.cli.progress import steps
from mrclab.lab import describe
from mrclab.lab.machines import connect as reach
from mrclab.lab.machines import lifecycle
from mrclab.lab.records.rundir import RunError
from mrclab.lab.records.shells import VARIABLE

Connect = Annotated[
    str | None,
    typer.Option(
        help=f"for a lab on several machines: what leads to one, with its name for {{ssh}}; else the variable "
        f"{reach.VARIABLE}, else `{reach.DEFAULT}`"
    ),
]


def verb(
    lab: Annotated[str, typer.Argument(help="a lab file, or the name of a built-in lab")] = "default",
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
    if not web:
        bring_up(lab, transport, links, switch, compiler, trust_code, connect)
        return
    # What the page lacks is said before anything is started; its address when there is something to show.
    check_page()
    name = bring_up(lab, transport, links, switch, compiler, trust_code, connect)
    with interruptible() as interruption, page() as made:
        made.watch(name, interruption.check)


def bring_up(
    lab: str,
    transport: str,
    links: str,
    switch: str | None,
    compiler: str | None,
    trust_code: bool,
    connect: str | None = None,
) -> str:
    """Bring the lab up, report that, and return its name."""
    for text in describe.warnings(load_lab(lab), "real", transport):
        typer.echo(f"warning: {lab}: {text}", err=True)
    with steps() as tell:
        name, topology = lifecycle.up(
            lab,
            transport,
            tell,
            links,
            switch,
            compiler,
            trust_code=trust_code,
            connect=connect,
        )
    for text in lifecycle.in_pieces(name, topology):
        typer.echo(f"warning: {lab}: {text}", err=True)
    where = f" on {len(topology.lab.machines)} machines" if topology.lab.machines else ""
    typer.echo(
        f"lab {name} is up{where}: {len(topology.hosts)} hosts, {len(topology.switches)} switches, "
        f"{len(topology.links)} links; try: mrclab run ring_all_reduce"
    )
    typer.echo(f"commands from another shell: export {VARIABLE}={name}")
    return name
