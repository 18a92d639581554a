"""`mrclab p4sh`: p4runtime-shell on a switch."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Annotated

import typer

from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab


def verb(
    switch: Annotated[str, typer.Argument(help="a switch such as p0-t0.1")],
    lab: Lab = None,
) -> None:
    """Open p4runtime-shell on a switch as its primary controller, to read and change tables."""
    with on_lab(lab) as session:
        device = session.topology.switch(switch).device_id
        address = session.target.address(device)
    # Higher than the daemon's and than whatever was primary before; the switch remembers the highest it has seen.
    command = [sys.executable, "-P", "-m", "p4runtime_sh", "--grpc-addr", address, "--device-id", str(device)]
    command += ["--election-id", f"0,{time.time_ns()}"]
    raise SystemExit(subprocess.run(command, check=False).returncode)
