"""`mrclab p4sh`: p4runtime-shell on a switch."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Annotated

import typer

from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab
from mrclab.cli.errors import offer
from mrclab.lab import p4shell


def _install(chosen: bool) -> None:
    if chosen:
        typer.echo(f"{p4shell.WANTED} is installed in {p4shell.install()}")
        raise typer.Exit


def verb(
    switch: Annotated[str, typer.Argument(help="a switch such as p0-t0.1")],
    lab: Lab = None,
    install: Annotated[
        bool,
        typer.Option(
            "--install",
            callback=_install,
            is_eager=True,
            help=f"Install {p4shell.WANTED} in an environment of its own, unless it is there, and exit.",
        ),
    ] = False,
) -> None:
    """Open p4runtime-shell on a switch as its primary controller, to read and change tables."""
    with on_lab(lab) as session:
        device = session.topology.switch(switch).device_id
        address = session.target.address(device)
    try:
        # Higher than the daemon's and than whatever was primary before; the switch remembers the highest it has seen.
        command = p4shell.command(address, device, time.time_ns())
    except p4shell.MissingShellError as error:
        offer(str(error), [sys.executable, "-P", "-m", "mrclab.cli", "p4sh", "--install"])
        raise
    raise SystemExit(subprocess.run(command, check=False).returncode)
