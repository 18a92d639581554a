"""What a case leaves: its packets as a pcap-ng file for Wireshark with `docs/mrc.lua`."""

from __future__ import annotations

import pathlib
import struct
from typing import Final

from mrc_common.files import write_whole
from mrc_conform.run import CaseResult
from mrc_conform.script import Direction, Line

_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_PACKET: Final = 6
#: LINKTYPE_RAW: an IP packet without a link-layer header.
_RAW: Final = 101
_COMMENT, _FLAGS, _RESOLUTION, _NANOSECONDS = 1, 2, 9, 9
_INBOUND, _OUTBOUND = 1, 2


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) & 3)


def _packet(line: Line) -> bytes:
    body = struct.pack("<IIIII", line.port, line.at_ns >> 32, line.at_ns & 0xFFFFFFFF, len(line.data), len(line.data))
    body += line.data + bytes(-len(line.data) & 3)
    if line.note:
        body += _option(_COMMENT, line.note.encode())
    direction = _OUTBOUND if line.direction is Direction.RECEIVED else _INBOUND
    return _block(_PACKET, body + _option(_FLAGS, struct.pack("<I", direction)) + struct.pack("<HH", 0, 0))


def capture(result: CaseResult) -> bytes:
    """Return the packets of a case as pcap-ng, seen from the device, with an interface for each port."""
    made = _block(_SECTION, struct.pack("<IHHQ", 0x1A2B3C4D, 1, 0, (1 << 64) - 1))
    ports = 1 + max((line.port for line in result.transcript), default=0)
    for _ in range(ports):
        options = _option(_RESOLUTION, bytes((_NANOSECONDS,))) + struct.pack("<HH", 0, 0)
        made += _block(_INTERFACE, struct.pack("<HHI", _RAW, 0, 0) + options)
    return made + b"".join(_packet(line) for line in result.transcript)


def write(result: CaseResult, folder: pathlib.Path) -> pathlib.Path:
    """Write a case's packets to `NAME.pcapng` of a folder. Raises WriteError."""
    path = folder / f"{result.case.name}.pcapng"
    write_whole(path, capture(result))
    return path
