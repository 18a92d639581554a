"""A reader of pcap-ng files, as far as the switch writes them."""

from __future__ import annotations

import struct

ENHANCED_PACKET = 6


def blocks(data: bytes) -> list[tuple[int, bytes]]:
    """Return the blocks of a file as (type, body)."""
    found, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        assert struct.unpack_from("<I", data, at + length - 4) == (length,)
        found.append((kind, data[at + 8 : at + length - 4]))
        at += length
    return found


def packets(data: bytes) -> list[bytes]:
    """Return the packets of a file."""
    bodies = [body for kind, body in blocks(data) if kind == ENHANCED_PACKET]
    return [body[20 : 20 + struct.unpack_from("<I", body, 12)[0]] for body in bodies]
