"""Around the packet: SRv6 encapsulation with and without SRH, and IPv4 instead of IPv6 (`mrc-protocol.md §2, §7`)."""

from __future__ import annotations

import struct
from typing import Final

from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.fields import NEXT_IPV6, NEXT_ROUTING, Ipv4
from mrc_host.proto.wire.icrc import wire_length
from mrc_host.proto.wire.packet import Drop, WireError

# SRv6 around it: the first word as it is inside, length, next header and hop limit, addresses.
OUTER: Final = struct.Struct("!4sHH16s16s")
SRH: Final = struct.Struct("!BBBBBBH")


def encapsulation_length(packet: bytes, next_header: int) -> int:
    """Return the number of bytes of outer IPv6 header and SRH before the inner IPv6 header."""
    if next_header == NEXT_IPV6:
        return 40
    if next_header == NEXT_ROUTING and packet[42] == 4:  # at least 60 bytes are there
        # What the last entry contradicts is corrupt: the inner header would be looked for in the payload.
        if packet[40] != NEXT_IPV6 or packet[41] != 2 * (packet[44] + 1):
            raise WireError(Drop.NEXT_HEADER, f"{packet[40]} after SRH")
        return 48 + 8 * packet[41]
    raise WireError(Drop.NEXT_HEADER, f"{next_header} where UDP should be")


def outer_header(source: bytes, destination: bytes, segments: tuple[bytes, ...] = ()) -> bytes:
    """Return what goes around a packet, but for the first word and the length (mrc-protocol.md §2, §7).

    `destination` holds the uSIDs. `segments` (16 bytes each) are those that follow it on the path, in travel order; on
    the wire they are in an SRH, the last one first (RFC 8754, reduced form: `destination` itself is not repeated).
    """
    if not segments:
        return OUTER.pack(bytes(4), 0, NEXT_IPV6 << 8 | 64, source, destination)
    count = len(segments)
    srh = SRH.pack(NEXT_IPV6, 2 * count, 4, count, count - 1, 0, 0)
    return b"".join((OUTER.pack(bytes(4), 0, NEXT_ROUTING << 8 | 64, source, destination), srh, *reversed(segments)))


def wrapped(outer: bytes, inner: bytes) -> bytes:
    """Return an IPv6 packet with an `outer_header` around it, which gets its first word and the length that it gives.

    The first word has traffic class and flow label, which are copied.
    """
    return b"".join((inner[:4], (len(outer) - 40 + wire_length(inner)).to_bytes(2, "big"), outer[6:], inner))


def encapsulate(inner: bytes, source: bytes, destination: bytes, segments: tuple[bytes, ...] = ()) -> bytes:
    """Return an IPv6 packet in SRv6, see `outer_header`."""
    return wrapped(outer_header(source, destination, segments), inner)


def to_ipv4(packet: bytes) -> bytes:
    """Convert the encoder's output for 4 + 4 bytes of addresses to an IPv4 packet; only EV[15:0] travels (§2)."""
    header = Ipv4(
        dscp=packet[0] << 2 & 0x3C | packet[1] >> 6,
        ecn=packet[1] >> 4 & 3,
        total_length=len(packet) - 40 + Ipv4.header.size,
        src=int.from_bytes(packet[8:12], "big"),
        dst=int.from_bytes(packet[12:16], "big"),
    )
    ip = full.ipv4_header(header)
    return ip + packet[40:-4] + full.icrc(ip, packet[40:-4])
