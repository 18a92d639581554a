"""Packets as a pcap-ng file, with nanoseconds, directions and comments, for Wireshark with `docs/mrc.lua`."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

ENHANCED_PACKET: Final = 6
_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_COMMENT, _FLAGS, _NAME, _RESOLUTION = 1, 2, 2, 9
_NANOSECONDS: Final = 9
_END: Final = struct.pack("<HH", 0, 0)


class LinkType(IntEnum):
    """What a packet begins with: an Ethernet header, or an IP header (LINKTYPE_RAW)."""

    ETHERNET = 1
    RAW = 101


class Way(IntEnum):
    """Which way a packet went, as the flags of its block have it."""

    INBOUND = 1
    OUTBOUND = 2


@dataclass(frozen=True, slots=True)
class Record:
    """A packet at an interface, by its index. `data` may be cut; `length` is the length on the wire (bytes)."""

    interface: int
    t_ns: int
    way: Way
    data: bytes
    length: int
    comment: str = ""


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) & 3)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def capture(interfaces: Iterable[str], link: LinkType, records: Iterable[Record]) -> bytes:
    """Return the file's content; `interfaces` are their names, empty for one without a name."""
    made = [_block(_SECTION, struct.pack("<IHHQ", 0x1A2B3C4D, 1, 0, (1 << 64) - 1))]
    for name in interfaces:
        options = (_option(_NAME, name.encode()) if name else b"") + _option(_RESOLUTION, bytes((_NANOSECONDS,)))
        made.append(_block(_INTERFACE, struct.pack("<HHI", link, 0, 0) + options + _END))
    for each in records:
        head = (each.interface, each.t_ns >> 32, each.t_ns & 0xFFFFFFFF, len(each.data), each.length)
        comment = _option(_COMMENT, each.comment.encode()) if each.comment else b""
        flags = _option(_FLAGS, struct.pack("<I", each.way))
        made.append(_block(ENHANCED_PACKET, struct.pack("<IIIII", *head) + _padded(each.data) + comment + flags + _END))
    return b"".join(made)
