"""Frames for switch tests, built from bytes: independent of the codecs that hosts use."""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass

from mrc_topo.paths import Srv6Path

ETHERNET = bytes.fromhex("02000000000102000000000286dd")


@dataclass(frozen=True)
class Frame:
    """An Ethernet frame around an IPv6 packet, with an outer IPv6 header or without."""

    inner: bytes
    outer: bytes = b""

    def encapsulated(self, route: Srv6Path) -> Frame:
        """SRv6 around it; traffic class and flow label are copied, an SRH holds the segments."""
        srh = b""
        if route.segments:
            count = len(route.segments)
            srh = bytes([41, 2 * count, 4, count, count - 1, 0, 0, 0]) + b"".join(reversed(route.segments))
        head = self.inner[:4] + struct.pack("!HBB", len(srh) + len(self.inner), 43 if srh else 41, 64)
        return dataclasses.replace(self, outer=head + route.source + route.destination + srh)

    def __bytes__(self) -> bytes:
        return ETHERNET + self.outer + self.inner


@dataclass(frozen=True)
class Seen:
    """What a received frame says: of the outermost header, and of the inner packet."""

    dscp: int
    ecn: int
    payload_length: int
    hop_limit: int
    destination: bytes
    inner: bytes
    length: int

    @property
    def psn(self) -> int:
        return int.from_bytes(self.inner[40 + 8 + 9 : 40 + 8 + 12], "big")

    @property
    def udp_length(self) -> int:
        return int.from_bytes(self.inner[44:46], "big")


def read(frame: bytes) -> Seen:
    """Take a received frame apart."""
    assert frame[12:14] == b"\x86\xdd"
    packet = frame[14:]
    word, length, next_header, hops = struct.unpack_from("!IHBB", packet)
    assert word >> 28 == 6
    inner = packet
    if next_header == 41:
        inner = packet[40:]
    elif next_header == 43:
        inner = packet[48 + 8 * packet[41] :]
    return Seen(word >> 22 & 63, word >> 20 & 3, length, hops, packet[24:40], inner, len(frame))


def mrc_write(
    src: bytes, dst: bytes, ev: int, *, payload: int = 256, dscp: int = 4, ecn: int = 2, psn: int = 0, hops: int = 64
) -> Frame:
    """Return a WRITE Only packet with TSETH and an EV; payload and ICRC are filler."""
    body = b"".join(
        (
            struct.pack("!BBHIBBH", 0xCA, 0x40, 0xFFFF, 0x11, 0x90, psn >> 16, psn & 0xFFFF),
            struct.pack("!HH", 0, 1),
            struct.pack("!HH", 0, 1),
            struct.pack("!QII", 0x1000, 0xABCD, payload),
            b"\x5a" * payload,
            b"\x1c" * 4,
        )
    )
    udp = struct.pack("!HHHH", ev & 0xFFFF, 4791, 8 + len(body), 0)
    word = 6 << 28 | dscp << 22 | ecn << 20 | ev >> 16
    return Frame(struct.pack("!IHBB", word, 8 + len(body), 17, hops) + src + dst + udp + body)


def other_packet(src: bytes, dst: bytes, next_header: int, payload: bytes, *, flow_label: int = 0) -> Frame:
    """Any other IPv6 packet, such as an ICMPv6 echo request."""
    word = 6 << 28 | flow_label
    return Frame(struct.pack("!IHBB", word, len(payload), next_header, 64) + src + dst + payload)
