"""The readable wire codec: packets as objects of `fields.py`, packed and unpacked by its table.

Complete rather than fast: IPv6 and IPv4, SRv6 encapsulation with and without SRH, MRC and RoCEv2 opcodes,
trimmed packets. The endpoint's data path uses `codec.py`; this is what vectors, tools and tests read packets with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from mrc_host.proto.wire.crc import crc32
from mrc_host.proto.wire.fields import (
    EXTENSIONS,
    MRC_LAYOUTS,
    MRC_UDP_PORT,
    NEXT_IPV6,
    NEXT_ROUTING,
    NEXT_UDP,
    Bth,
    Dscp,
    Header,
    Ipv4,
    Ipv6,
    Layout,
    Packet,
    PacketHeader,
    Srh,
    Tseth,
    Udp,
)

T = TypeVar("T", bound=PacketHeader)


class Drop(StrEnum):
    """Why a packet is refused before it reaches a QP; counted by the endpoint under this name."""

    SHORT = "short"  # fewer bytes than the headers or the outermost length ask for
    TRAILING = "trailing_bytes"  # more bytes than the outermost length says
    VERSION = "ip_version"
    NEXT_HEADER = "next_header"
    IP_CHECKSUM = "ip_checksum"
    PORT = "udp_port"
    LENGTH = "length"  # inner lengths, padding and opcode contradict each other
    TVER = "transport_version"
    OPCODE = "opcode"
    ICRC = "icrc"
    TRIMMED_CONTROL = "trimmed_control"  # only data may be trimmed


class WireError(Exception):
    """A packet that is not decoded: `reason` says why, the text says where."""

    def __init__(self, reason: Drop, text: str = "") -> None:
        super().__init__(f"{reason.value}: {text}" if text else reason.value)
        self.reason = reason


def pack(header: Header, values: Mapping[str, int]) -> bytes:
    """Return the header's bytes; fields that are not in `values` get their default. Raises ValueError on a bad
    value.
    """
    word = 0
    for item in header.fields:
        value = values.get(item.name, item.default)
        low, high = (-(1 << item.width - 1), item.mask >> 1) if item.signed else (0, item.mask)
        if not low <= value <= high:
            raise ValueError(f"{header.name}.{item.name}: {value} is outside {low}..{high}")
        word = word << item.width | value & item.mask
    unknown = values.keys() - header.by_name.keys()
    if unknown:
        raise ValueError(f"{header.name} has no field {', '.join(sorted(unknown))}")
    return word.to_bytes(header.size, "big")


def unpack(header: Header, data: bytes, offset: int = 0) -> dict[str, int]:
    """Return every field of the header at `offset`, reserved ones too. Raises WireError(SHORT)."""
    if len(data) - offset < header.size:
        missing = header.size - (len(data) - offset)
        raise WireError(Drop.SHORT, f"{header.name} at byte {offset} lacks {missing} bytes")
    word = int.from_bytes(data[offset : offset + header.size], "big")
    values = {}
    for item in header.fields:
        value = word >> header.size * 8 - item.bit - item.width & item.mask
        if item.signed and value >> item.width - 1:
            value -= 1 << item.width
        values[item.name] = value
    return values


def as_bytes(part: PacketHeader) -> bytes:
    """Return a header's bytes without computing any field. Raises ValueError on a bad value."""
    return pack(part.header, {item.name: getattr(part, item.name) for item in part.header.fields if not item.reserved})


def _from_bytes(cls: type[T], data: bytes, offset: int) -> T:
    values = unpack(cls.header, data, offset)
    return cls(**{item.name: values[item.name] for item in cls.header.fields if not item.reserved})


def ipv4_checksum(header: bytes) -> int:
    """Return the ones' complement sum over a header, its checksum field included (0 when that is right)."""
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def icrc(ip_header: bytes, rest: bytes) -> bytes:
    """Return the ICRC (4 bytes, as on the wire) over an IP header and what follows it, from UDP to before the ICRC.

    Variant fields count as ones: traffic class, flow label, hop limit (IPv4: type of service, time to live,
    checksum), UDP checksum, BTH.resv8a; eight bytes of ones stand for the LRH (mrc-protocol.md §2).
    """
    ip, masked = bytearray(ip_header), bytearray(rest)
    if ip[0] >> 4 == 6:
        ip[0] |= 0x0F
        ip[1:4] = b"\xff\xff\xff"
        ip[7] = 0xFF
    else:
        ip[1] = ip[8] = 0xFF
        ip[10:12] = b"\xff\xff"
    masked[6:8] = b"\xff\xff"
    masked[12:13] = b"\xff"
    return crc32(masked, crc32(ip, crc32(b"\xff" * 8))).to_bytes(4, "little")


def layout_of(opcode: int, layouts: Mapping[int, Layout]) -> Layout:
    """Return the headers of an opcode. Raises WireError(OPCODE)."""
    layout = layouts.get(opcode)
    if layout is None:
        raise WireError(Drop.OPCODE, f"{opcode:#04x} is not an opcode of this transport")
    return layout


def encode(packet: Packet, layouts: Mapping[int, Layout] = MRC_LAYOUTS) -> bytes:
    """Return the packet's bytes; lengths, next headers, pad, ts, checksums and ICRC are computed, the rest is taken as
    given.

    Raises ValueError when the packet lacks a header that its opcode needs, has one too many, or a field does not
    fit. A trimmed packet is made by `trim`, not here.
    """
    if packet.trimmed:
        raise ValueError("a trimmed packet is made by trim() from the whole one")
    layout = layouts.get(packet.bth.opcode)
    if layout is None:
        raise ValueError(f"opcode {packet.bth.opcode:#04x} is not an opcode of this transport")
    if packet.payload and not layout.payload:
        raise ValueError(f"{layout.title} carries no payload")
    body = b""
    for part in layout.parts:
        value = getattr(packet, part.header.name.lower())
        if value is not None:
            body += as_bytes(value)
        elif part is not Tseth:
            raise ValueError(f"{layout.title} needs {part.header.name}")
    for header in EXTENSIONS:
        if header not in layout.headers and getattr(packet, header.name.lower(), None) is not None:
            raise ValueError(f"{layout.title} has no {header.name}")
    pad = -len(packet.payload) & 3
    bth = dataclasses.replace(packet.bth, pad=pad, ts=int(packet.tseth is not None))
    body = as_bytes(bth) + body + packet.payload + bytes(pad)
    length = Udp.header.size + len(body) + 4
    body = as_bytes(dataclasses.replace(packet.udp, length=length)) + body
    if isinstance(packet.ip, Ipv6):
        ip = as_bytes(dataclasses.replace(packet.ip, payload_length=length, next_header=NEXT_UDP))
    else:
        ip = ipv4_header(dataclasses.replace(packet.ip, total_length=length + Ipv4.header.size))
    whole = ip + body + icrc(ip, body)
    if packet.outer is None:
        return whole
    srh = b"" if packet.srh is None else _srh_bytes(packet.srh)
    outer = dataclasses.replace(
        packet.outer,
        payload_length=len(srh) + len(whole),
        next_header=NEXT_ROUTING if srh else NEXT_IPV6,
    )
    return as_bytes(outer) + srh + whole


def ipv4_header(ip: Ipv4) -> bytes:
    """Return the header with its checksum computed."""
    blank = as_bytes(dataclasses.replace(ip, checksum=0))
    return as_bytes(dataclasses.replace(ip, checksum=ipv4_checksum(blank)))


def _srh_bytes(srh: Srh) -> bytes:
    full = dataclasses.replace(srh, hdr_ext_len=2 * len(srh.segments), next_header=NEXT_IPV6, routing_type=4)
    return as_bytes(full) + b"".join(segment.to_bytes(16, "big") for segment in srh.segments)


def _decode_srh(data: bytes, offset: int) -> tuple[Srh, int]:
    srh = _from_bytes(Srh, data, offset)
    if srh.routing_type != 4 or srh.hdr_ext_len != 2 * (srh.last_entry + 1):
        raise WireError(Drop.NEXT_HEADER, f"routing header of type {srh.routing_type} at byte {offset}")
    start = offset + Srh.header.size
    end = start + 8 * srh.hdr_ext_len
    if end > len(data):
        raise WireError(Drop.SHORT, f"SRH at byte {offset} lacks {end - len(data)} bytes")
    srh.segments = tuple(int.from_bytes(data[i : i + 16], "big") for i in range(start, end, 16))
    return srh, end


def decode(
    data: bytes,
    layouts: Mapping[int, Layout] = MRC_LAYOUTS,
    *,
    udp_port: int = MRC_UDP_PORT,
    trim_dscps: tuple[int, ...] = (Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP),
) -> Packet:
    """Return the packet in `data`, strictly: every byte accounted for. Raises WireError, nothing else.

    A packet is trimmed when its outermost DSCP says so or its UDP length is longer than what arrived; its ICRC is
    then neither there nor checked.
    """
    outer: Ipv6 | None = None
    srh: Srh | None = None
    ip: Ipv6 | Ipv4
    ip, offset = _decode_ip(data, 0)
    dscp = ip.dscp
    declared = offset + (
        ip.payload_length if isinstance(ip, Ipv6) else ip.total_length - Ipv4.header.size
    )  # what the outermost header says is really there
    if declared > len(data):
        raise WireError(Drop.SHORT, f"the IP header promises {declared} bytes, there are {len(data)}")
    if declared < len(data):
        raise WireError(Drop.TRAILING, f"{len(data) - declared} bytes after the IP packet")
    next_header = ip.next_header if isinstance(ip, Ipv6) else ip.protocol
    if isinstance(ip, Ipv6) and next_header in (NEXT_IPV6, NEXT_ROUTING):
        outer = ip
        if next_header == NEXT_ROUTING:
            srh, offset = _decode_srh(data, offset)
            next_header = srh.next_header
        if next_header != NEXT_IPV6:
            raise WireError(Drop.NEXT_HEADER, f"{next_header} after SRv6 encapsulation")
        start = offset
        ip, offset = _decode_ip(data, start)
        if not isinstance(ip, Ipv6):
            raise WireError(Drop.VERSION, "IPv4 inside SRv6")
        next_header = ip.next_header
    else:
        start = 0
    if next_header != NEXT_UDP:
        raise WireError(Drop.NEXT_HEADER, f"{next_header} where UDP should be")
    udp = _from_bytes(Udp, data, offset)
    if udp.dst_port != udp_port:
        raise WireError(Drop.PORT, f"{udp.dst_port} where {udp_port} should be")
    arrived = len(data) - offset
    if udp.length < arrived or (outer is not None and isinstance(ip, Ipv6) and ip.payload_length != udp.length):
        raise WireError(Drop.LENGTH, f"UDP says {udp.length} bytes, {arrived} arrived")
    trimmed = udp.length > arrived or dscp in trim_dscps
    bth = _from_bytes(Bth, data, offset + Udp.header.size)
    if bth.tver:
        raise WireError(Drop.TVER, f"{bth.tver} where 0 should be")
    layout = layout_of(bth.opcode, layouts)
    if trimmed:
        if not layout.payload:
            raise WireError(Drop.TRIMMED_CONTROL, layout.title)
    else:
        if arrived < Udp.header.size + Bth.header.size + 4:
            raise WireError(Drop.LENGTH, "no room for the ICRC")
        if icrc(data[start:offset], data[offset:-4]) != data[-4:]:
            raise WireError(Drop.ICRC, "mismatch")
    packet = Packet(ip, udp, bth, outer=outer, srh=srh, trimmed=trimmed)
    _decode_body(packet, data, offset + Udp.header.size + Bth.header.size, layout)
    return packet


def _decode_ip(data: bytes, offset: int) -> tuple[Ipv6 | Ipv4, int]:
    if len(data) <= offset:
        raise WireError(Drop.SHORT, f"no IP header at byte {offset}")
    version = data[offset] >> 4
    if version == 6:
        return _from_bytes(Ipv6, data, offset), offset + Ipv6.header.size
    if version != 4:
        raise WireError(Drop.VERSION, f"IP version {version}")
    ip = _from_bytes(Ipv4, data, offset)
    end = offset + Ipv4.header.size
    if ip.ihl != 5 or ip.total_length < Ipv4.header.size or ip.fragment_offset or ip.flags & 1:
        raise WireError(Drop.LENGTH, "IPv4 options or fragment")
    if ipv4_checksum(data[offset:end]):
        raise WireError(Drop.IP_CHECKSUM, "mismatch")
    return ip, end


def _decode_body(packet: Packet, data: bytes, offset: int, layout: Layout) -> None:
    end = len(data) if packet.trimmed else len(data) - 4
    for part in layout.parts:
        if part is Tseth and not packet.bth.ts:
            continue
        header = part.header
        if offset + header.size > end:
            if packet.trimmed:
                return
            raise WireError(Drop.LENGTH, f"{layout.title} lacks {header.name}")
        setattr(packet, header.name.lower(), _from_bytes(part, data, offset))
        offset += header.size
    if packet.trimmed:
        packet.payload = data[offset:]
        return
    if not layout.payload and (offset != end or packet.bth.pad):
        raise WireError(Drop.LENGTH, f"{end - offset} bytes after {layout.title}")
    if end - packet.bth.pad < offset or (end - offset) & 3:
        raise WireError(Drop.LENGTH, f"{end - offset} bytes of payload with padding {packet.bth.pad}")
    packet.payload = data[offset : end - packet.bth.pad]


def trim(data: bytes, *, keep: int, dscp: int) -> bytes:
    """Trim a packet as a switch does: keep at most `keep` bytes of it, counted from the inner IP header.

    The outermost length gives the bytes that are left, and the outermost DSCP shows that it was trimmed; inner headers
    keep both (mrc-protocol.md §9). Raises WireError on what is not an IP packet.
    """
    ip, offset = _decode_ip(data, 0)
    if isinstance(ip, Ipv4):
        cut = data[:keep]
        return ipv4_header(dataclasses.replace(ip, dscp=dscp, total_length=len(cut))) + cut[offset:]
    inner = 0
    if ip.next_header == NEXT_IPV6:
        inner = offset
    elif ip.next_header == NEXT_ROUTING:
        inner = _decode_srh(data, offset)[1]
    cut = data[: inner + keep]
    header = dataclasses.replace(ip, dscp=dscp, payload_length=len(cut) - offset)
    return as_bytes(header) + cut[offset:]
