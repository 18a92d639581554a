"""Evidence of a case: its packets as a pcap-ng file for Wireshark with `docs/mrc.lua`."""

from __future__ import annotations

import pathlib

from mrc_conform.run import CaseResult
from mrc_conform.script import Direction, Line
from mrc_topo.base import pcapng
from mrc_topo.base.files import write_whole
from mrc_topo.base.pcapng import LinkType, Record, Way


def _record(line: Line) -> Record:
    way = Way.OUTBOUND if line.direction is Direction.RECEIVED else Way.INBOUND
    return Record(line.port, line.at_ns, way, line.data, len(line.data), line.note)


def capture(result: CaseResult) -> bytes:
    """Return the packets of a case as pcap-ng, seen from the device, with an interface for each port."""
    ports = 1 + max((line.port for line in result.transcript), default=0)
    return pcapng.capture([""] * ports, LinkType.RAW, map(_record, result.transcript))


def write(result: CaseResult, folder: pathlib.Path) -> pathlib.Path:
    """Write a case's packets to `NAME.pcapng` of a folder. Raises WriteError."""
    path = folder / f"{result.case.name}.pcapng"
    write_whole(path, capture(result))
    return path
