"""Packets that arrive at a switch, replayed step by step in the interpreter."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mrc_topo.base import interruption
from mrclab.lab.hosts.inside import check_here
from mrclab.lab.session.real import RealSession
from p4lite.scratch import scratch

if TYPE_CHECKING:
    from p4lite_tools.entries import Captured
    from p4lite_tools.interpreter.events import Event

POLL_S = 0.1
NOTES = (
    "the packets were captured at the switch's ports, and are replayed in p4lite's interpreter",
    "queues are empty in the replay and its clock stands, so that marks, trimming and drops by queue are not shown",
)


@dataclass(frozen=True)
class Trace:
    """Events of each packet in a switch's program, in order, and notes on what the replay does not show."""

    packets: list[list[Event]]
    notes: list[str]


def trace(session: RealSession, switch: str, count: int, limit_s: float) -> Trace:
    """Return what a switch does with the next `count` packets; fewer if they do not arrive in `limit_s`.

    Raises:
        LabError: the lab is not of this machine.
        UnknownElement: the lab has no such switch.
    """
    from p4lite_tools.replay import copy_switch, read_snapshot
    from p4lite_tools.trace import Recorder

    check_here(session.state)
    device = session.topology.switch(switch).device_id
    address = session.target.address(device)
    before = read_snapshot(address, device)
    arrived = _capture(session, switch, count, limit_s)
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
    return Trace(events, notes)


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
