"""`mrclab capture`: what crosses a port, for Wireshark."""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import time
from typing import Annotated

import typer

from mrc_topo.base import interruption
from mrc_topo.base.interruption import Interrupted
from mrclab.cli import common, progress
from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab
from mrclab.cli.common import seconds as waited
from mrclab.lab.hosts.inside import check_here
from mrclab.lab.records.capture_tail import CaptureTail, place_of

COPY_INTERVAL_S = 0.2


def verb(
    port: Annotated[str, typer.Argument(help="a host port such as h3:2, or a switch port such as p0-t0.1:3")],
    output: Annotated[pathlib.Path, typer.Option("-o", "--output", help="the pcapng file to write")] = pathlib.Path(
        "capture.pcapng"
    ),
    duration: Annotated[float, common.duration("end after this time, such as 2s or 500ms; 0: at Ctrl-C")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON when the capture has ended")] = False,
    lab: Lab = None,
) -> None:
    """Capture both directions of a port into a pcapng file (Wireshark: load docs/mrc.lua)."""
    seconds = waited("--duration", duration) or 0.0
    with on_lab(lab) as session:
        check_here(session.state)
        place = place_of(session.topology, port)
        with CaptureTail(session.run.folder, output) as following:
            session.target.capture(
                place.device_id, place.number, following.name, label=place.label, outside=place.outside
            )
            progress.warn(f"capturing {port} into {output}{'' if seconds else '; Ctrl-C ends'}")
            try:
                with contextlib.suppress(Interrupted):
                    _wait(seconds, following)
            finally:
                session.target.capture(place.device_id, place.number, None)
    if as_json:
        document = {"port": port, "file": str(output), "bytes": output.stat().st_size}
        typer.echo(json.dumps(document, indent=1))


def _wait(seconds: float, following: CaptureTail) -> None:
    """Copy for this many seconds (0: without end), or until a signal comes: then raise Interrupted."""
    deadline = time.monotonic() + seconds if seconds else math.inf
    while (left := deadline - time.monotonic()) > 0:
        following.copy()
        interruption.sleep(min(left, COPY_INTERVAL_S))
