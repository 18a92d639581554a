"""`mrclab trace`: what a switch's program does with the next packets, replayed in the interpreter."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrc_topo.base import interruption
from mrclab.cli import common, progress
from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab
from mrclab.cli.common import seconds as waited
from p4lite.scratch import scratch

if TYPE_CHECKING:
    from mrclab.lab.session.real import RealSession
    from p4lite_tools.entries import Captured

POLL_S = 0.1
MAX_PACKETS = 1000
NOTES = (
    "the packets were captured at the switch's ports, and are replayed in p4lite's interpreter",
    "queues are empty in the replay and its clock stands, so that marks, trimming and drops by queue are not shown",
)


def verb(
    switch: Annotated[str, typer.Argument(help="a switch such as p0-t0.1")],
    packets: Annotated[
        int, typer.Option("-n", "--packets", min=1, max=MAX_PACKETS, help="how many packets to trace")
    ] = 1,
    duration: Annotated[float, common.duration("give up after this time, such as 2s or 500ms")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON: notes, and the events of each packet")] = False,
    lab: Lab = None,
) -> None:
    """Show what a switch's program does with the next packets, by source line: states, tables, changed fields."""
    from mrclab.lab.hosts.inside import check_here
    from p4lite_tools.replay import copy_switch, read_snapshot
    from p4lite_tools.trace import Lines, Recorder, to_json

    limit = waited("--duration", duration) or 0.0
    with on_lab(lab) as session:
        check_here(session.state)
        device = session.topology.switch(switch).device_id
        address = session.target.address(device)
        before = read_snapshot(address, device)
        arrived = _capture(session, switch, packets, limit)
        changed = before.changed(read_snapshot(address, device))
    cut = ["bytes of some packets are not stored, so that their payload ends early here"]
    notes = [
        *NOTES,
        *(cut if any(packet.cut for _, packet in arrived) else []),
        *(f"{what} changed meanwhile: the replay has what was there before" for what in changed),
    ]
    recorder = Recorder()
    events = []
    with copy_switch(before, observers=[recorder]) as copy:
        for port, packet in arrived:
            copy.send(port, packet.data)
            events.append(recorder.take())
    if as_json:
        document = {"switch": switch, "notes": notes, "packets": [to_json(each) for each in events]}
        typer.echo(json.dumps(document, indent=1))
    else:
        lines = Lines(colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
        for note in notes:
            typer.echo(f"note: {note}")
        for each in events:
            typer.echo("\n" + "\n".join(lines.render(each)))
    if len(arrived) < packets:
        progress.warn(f"{len(arrived)} of {packets} packets arrived at {switch} in {limit:g} s")
        raise typer.Exit(1)


def _capture(session: RealSession, switch: str, count: int, limit_s: float) -> list[tuple[int, Captured]]:
    """Return the next packets that arrive at a switch, in order of time, with their ports."""
    ports = list(session.topology.switch(switch).links)
    with scratch("trace") as folder, contextlib.ExitStack() as stack:
        captures = [stack.enter_context(_captured(session, switch, port, folder)) for port in ports]
        deadline = time.monotonic() + limit_s
        while True:
            arrived = [
                (port, packet) for port, capture in zip(ports, captures, strict=True) for packet in _arrived(capture)
            ]
            if len(arrived) >= count or time.monotonic() >= deadline:
                break
            interruption.sleep(POLL_S)
    return sorted(arrived, key=lambda item: item[1].time_ns)[:count]


@contextlib.contextmanager
def _captured(session: RealSession, switch: str, port: int, folder: pathlib.Path) -> Iterator[Any]:
    from mrclab.lab.records.capture_tail import CaptureTail

    device = session.topology.switch(switch).device_id
    with CaptureTail(session.run.folder, folder / f"{port}.pcapng", number=port) as tail:
        session.target.capture(device, port, tail.name)
        try:
            yield tail
        finally:
            session.target.capture(device, port, None)


def _arrived(tail: Any) -> list[Captured]:
    from p4lite_tools.entries import CaptureError, read_capture

    tail.copy()
    try:
        return [packet for packet in read_capture(tail.output, growing=True) if packet.inbound]
    except CaptureError:
        return []  # its head is not there yet
