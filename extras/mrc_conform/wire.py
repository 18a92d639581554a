"""Packets by the machine-readable description of the wire format, `wire.yaml` (`mrc-protocol.md §2, §3`).

Complete and strict rather than fast. Nothing of the endpoint's codec is used here, so that each can show errors of the
other.
"""

from __future__ import annotations

import functools
import importlib.resources
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import yaml

from mrc_topo.base.errors import MrclabError

IPV6_BYTES: Final = 40
UDP_BYTES: Final = 8
ICRC_BYTES: Final = 4
#: The queue pair number that endpoint operations are sent to.
ENDPOINT_QP: Final = 2
NEXT_UDP: Final = 17
_NEXT_IPV6: Final = 41
_NEXT_ROUTING: Final = 43


class FormatError(MrclabError):
    """A packet that is not well-formed, or a field that a packet does not have; the text says where."""


@dataclass(frozen=True, slots=True)
class FieldFormat:
    """One field of a header, `offset` bits from its start. `value`: what is sent unless something else is said."""

    name: str
    bits: int
    offset: int
    signed: bool = False
    reserved: bool = False
    value: int = 0


@dataclass(frozen=True, slots=True)
class HeaderFormat:
    """One header; its fields cover `size` bytes."""

    name: str
    size: int
    fields: tuple[FieldFormat, ...]


@dataclass(frozen=True, slots=True)
class OpcodeFormat:
    """Headers that follow BTH for one opcode. `optional`: the headers that are there only when BTH.ts is set."""

    name: str
    code: int
    headers: tuple[HeaderFormat, ...]
    optional: frozenset[str]
    payload: bool


@dataclass(frozen=True)
class WireFormat:
    """The whole description."""

    udp_port: int
    dscp: Mapping[str, int]
    headers: Mapping[str, HeaderFormat]
    opcodes: Mapping[str, OpcodeFormat]

    def by_code(self, code: int) -> OpcodeFormat | None:
        """Return the opcode with this number, None where there is none."""
        return next((each for each in self.opcodes.values() if each.code == code), None)


def text() -> str:
    """Return the description as it is published."""
    return (importlib.resources.files("mrc_conform") / "wire.yaml").read_text(encoding="utf-8")


def _header(name: str, items: list[Any]) -> HeaderFormat:
    fields: list[FieldFormat] = []
    offset = 0
    for item in items:
        label, bits, *rest = item
        fields.append(FieldFormat(label, bits, offset, **(rest[0] if rest else {})))
        offset += bits
    if offset % 8:
        raise FormatError(f"wire.yaml: header {name} has {offset} bits, which is no whole number of bytes")
    return HeaderFormat(name, offset // 8, tuple(fields))


@functools.cache
def wire_format() -> WireFormat:
    """Return the description, read once."""
    document = yaml.safe_load(text())
    headers = {name: _header(name, items) for name, items in document["headers"].items()}
    opcodes: dict[str, OpcodeFormat] = {}
    for name, entry in document["opcodes"].items():
        parts = [part.rstrip("?") for part in entry["headers"]]
        opcodes[name] = OpcodeFormat(
            name,
            entry["code"],
            tuple(headers[part] for part in parts),
            frozenset(part.rstrip("?") for part in entry["headers"] if part.endswith("?")),
            entry.get("payload", False),
        )
    return WireFormat(document["ip"]["udp_port"], document["ip"]["dscp"], headers, opcodes)


@dataclass(slots=True)
class Packet:
    """One packet. `fields` has every field by its dissector's name (`bth.psn`); `packet["psn"]` finds it, too.

    `ev`: the entropy value that it travels with; `size`: its nominal size, UDP length + 40 (bytes). `at_ns` and `port`
    say when and where it was sent or received. `raw`: its bytes.
    """

    opcode: str
    fields: dict[str, int]
    payload: bytes = b""
    source: bytes = bytes(16)
    destination: bytes = bytes(16)
    ev: int = 0
    dscp: int = 0
    ecn: int = 0
    trimmed: bool = False
    encapsulated: bool = False
    size: int = 0
    at_ns: int = 0
    port: int = 0
    raw: bytes = field(default=b"", repr=False)

    def __getitem__(self, name: str) -> int:
        """Return a field by its full name or its last part. Raises FormatError for a name that it does not have."""
        found = self.find(name)
        if found is None:
            raise FormatError(f"{self.opcode} has no field {name}; it has {', '.join(self.fields)}")
        return self.fields[found]

    def find(self, name: str) -> str | None:
        """Return the full name of a field, None when the packet has none of that name."""
        if name in self.fields:
            return name
        return next((full for full in self.fields if full.rpartition(".")[2] == name), None)

    def with_fields(self, changes: Mapping[str, int]) -> Packet:
        """Return a copy with other values. Raises FormatError for an unknown name."""
        fields = dict(self.fields)
        for name, value in changes.items():
            full = self.find(name)
            if full is None:
                raise FormatError(f"{self.opcode} has no field {name}; it has {', '.join(fields)}")
            fields[full] = value
        return replace(self, fields=fields, raw=b"")


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong on purpose with a packet that is sent; nothing is computed from it.

    `icrc`: the ICRC is inverted. `cut`: bytes that are missing at the end, although the lengths count them. `tail`:
    bytes that follow. `udp_length`, `ip_length`, `code`, `version`, `udp_port`, `next_header`, `pad`: the value there
    instead. `trim_to`: bytes of the UDP datagram that a switch kept; the DSCP is the packet's. `keep`: bytes from BTH
    on that are there, with lengths and ICRC that fit. `extra`: bytes before the ICRC that do not belong there.
    """

    icrc: bool = False
    cut: int = 0
    tail: int = 0
    udp_length: int | None = None
    ip_length: int | None = None
    code: int | None = None
    version: int | None = None
    udp_port: int | None = None
    next_header: int | None = None
    trim_to: int | None = None
    pad: int | None = None
    keep: int | None = None
    extra: int = 0


_WHOLE: Final = Damage()


def _parts(layout: OpcodeFormat, *, stamped: bool) -> Iterator[HeaderFormat]:
    yield wire_format().headers["BTH"]
    for header in layout.headers:
        if header.name not in layout.optional or stamped:
            yield header


def blank(opcode: str, *, stamped: bool = False) -> Packet:
    """Return a packet with the description's values in every field. Raises FormatError for an unknown opcode."""
    layout = wire_format().opcodes.get(opcode)
    if layout is None:
        raise FormatError(f"there is no opcode {opcode}; there are {', '.join(wire_format().opcodes)}")
    fields = {
        f"{header.name.lower()}.{item.name}": item.value
        for header in _parts(layout, stamped=stamped)
        for item in header.fields
    }
    fields["bth.opcode"] = layout.code
    fields["bth.ts"] = int(stamped and bool(layout.optional))
    return Packet(opcode, fields)


def _pack(header: HeaderFormat, fields: Mapping[str, int]) -> bytes:
    word = 0
    for item in header.fields:
        value = fields[f"{header.name.lower()}.{item.name}"]
        low, high = (-(1 << item.bits - 1), (1 << item.bits - 1) - 1) if item.signed else (0, (1 << item.bits) - 1)
        if not low <= value <= high:
            raise FormatError(f"{header.name.lower()}.{item.name} is {value}, outside {low}..{high}")
        word = word << item.bits | value & (1 << item.bits) - 1
    return word.to_bytes(header.size, "big")


def _unpack(header: HeaderFormat, data: bytes, fields: dict[str, int]) -> None:
    word = int.from_bytes(data, "big")
    for item in header.fields:
        value = word >> header.size * 8 - item.offset - item.bits & (1 << item.bits) - 1
        if item.signed and value >> item.bits - 1:
            value -= 1 << item.bits
        fields[f"{header.name.lower()}.{item.name}"] = value


def icrc(ip: bytes, rest: bytes) -> bytes:
    """Return the ICRC over an IPv6 header and everything from UDP to before the ICRC, as it is on the wire."""
    masked_ip = bytearray(ip)
    masked_ip[0] = ip[0] | 0x0F  # traffic class and flow label
    masked_ip[1:4] = b"\xff\xff\xff"
    masked_ip[7] = 0xFF  # hop limit
    masked = bytearray(rest)
    masked[6:8] = b"\xff\xff"  # UDP checksum
    masked[UDP_BYTES + 4] = 0xFF  # BTH.resv8a
    return zlib.crc32(bytes(8 * b"\xff") + masked_ip + masked).to_bytes(4, "little")


def encode(packet: Packet, damage: Damage = _WHOLE, udp_port: int | None = None) -> bytes:
    """Return the IPv6 packet with its lengths, padding and ICRC; `udp_port` None: the usual one.

    Raises:
        FormatError: a field that does not fit.
    """
    layout = wire_format().opcodes[packet.opcode]
    pad = -len(packet.payload) % 4
    fields = dict(packet.fields)
    fields["bth.pad"] = pad if damage.pad is None else damage.pad
    if damage.code is not None:
        fields["bth.opcode"] = damage.code
    stamped = bool(fields["bth.ts"])
    body = b"".join(_pack(header, fields) for header in _parts(layout, stamped=stamped))
    body += packet.payload + bytes(pad)
    body = body[: len(body) if damage.keep is None else damage.keep] + bytes(damage.extra)
    length = UDP_BYTES + len(body) + ICRC_BYTES
    usual = wire_format().udp_port if udp_port is None else udp_port
    port = usual if damage.udp_port is None else damage.udp_port
    said = length if damage.udp_length is None else damage.udp_length
    udp = (packet.ev & 0xFFFF).to_bytes(2, "big") + port.to_bytes(2, "big") + said.to_bytes(2, "big") + bytes(2)
    version = 6 if damage.version is None else damage.version
    next_header = NEXT_UDP if damage.next_header is None else damage.next_header
    first = version << 28 | packet.dscp << 22 | packet.ecn << 20 | packet.ev >> 16
    ip_length = length + damage.tail if damage.ip_length is None else damage.ip_length
    ip = first.to_bytes(4, "big") + length.to_bytes(2, "big") + bytes((next_header, 64))
    ip += packet.source + packet.destination
    check = icrc(ip, udp + body)
    if damage.icrc:
        check = bytes(each ^ 0xFF for each in check)
    whole = udp + body + check + bytes(damage.tail)
    if damage.trim_to is not None:
        whole = whole[: damage.trim_to]
        ip_length = len(whole)
    ip = ip[:4] + ip_length.to_bytes(2, "big") + ip[6:]
    return (ip + whole)[: len(ip) + len(whole) - damage.cut]


def _inner(data: bytes) -> tuple[bytes, bool]:
    """Return the packet inside SRv6 encapsulation, and whether there was one."""
    if len(data) < IPV6_BYTES or data[0] >> 4 != 6:
        raise FormatError("no IPv6 header at byte 0")
    following, at = data[6], IPV6_BYTES
    if following == _NEXT_ROUTING:
        if len(data) < at + 8:
            raise FormatError("the routing header ends early")
        following, at = data[at], at + 8 + 8 * data[at + 1]
    if following == _NEXT_IPV6:
        return data[at:], True
    return data, False


def decode(data: bytes, udp_port: int | None = None, check_icrc: bool = True) -> Packet:
    """Return the packet in these bytes, which must be well-formed in every bit that has a meaning.

    `check_icrc` False: a wrong ICRC is let pass, to see what else is wrong.

    Raises:
        FormatError: lengths that contradict each other, a wrong ICRC, an unknown opcode, reserved bits that are set.
    """
    outer_dscp = (data[0] << 4 & 0xF0 | data[1] >> 4) >> 2 if len(data) > 1 else 0
    if len(data) >= IPV6_BYTES and int.from_bytes(data[4:6], "big") != len(data) - IPV6_BYTES:
        raise FormatError(f"the outermost IP header says {int.from_bytes(data[4:6], 'big')} bytes of {len(data)}")
    whole, encapsulated = _inner(data)
    if len(whole) < IPV6_BYTES + UDP_BYTES or whole[0] >> 4 != 6 or whole[6] != NEXT_UDP:
        raise FormatError("no IPv6 and UDP header where they should be")
    word = int.from_bytes(whole[:4], "big")
    udp = whole[IPV6_BYTES : IPV6_BYTES + UDP_BYTES]
    length = int.from_bytes(udp[4:6], "big")
    arrived = len(whole) - IPV6_BYTES
    said = int.from_bytes(whole[4:6], "big")
    dscp = word >> 22 & 0x3F
    marks = wire_format().dscp
    trimmed = length > arrived or outer_dscp in (marks["trimmed"], marks["trimmed_lasthop"])
    if length < arrived or (not trimmed and said != arrived):
        raise FormatError(f"IP says {said} bytes and UDP {length}; {arrived} are there")
    port = wire_format().udp_port if udp_port is None else udp_port
    if int.from_bytes(udp[2:4], "big") != port:
        raise FormatError(f"UDP port {int.from_bytes(udp[2:4], 'big')}, expected {port}")
    if check_icrc and not trimmed and icrc(whole[:IPV6_BYTES], whole[IPV6_BYTES:-4]) != whole[-4:]:
        raise FormatError("the ICRC is wrong")
    fields, payload, layout = _body(whole, trimmed)
    packet = Packet(
        layout.name,
        fields,
        payload,
        whole[8:24],
        whole[24:40],
        (word & 0xFFFF) << 16 | int.from_bytes(udp[:2], "big"),
        dscp,
        word >> 20 & 3,
        trimmed,
        encapsulated,
        length + IPV6_BYTES,
        raw=data,
    )
    if word >> 16 & 0xF:
        raise FormatError(f"the top four bits of the flow label are {word >> 16 & 0xF:#x}, expected 0")
    return packet


def _body(whole: bytes, trimmed: bool) -> tuple[dict[str, int], bytes, OpcodeFormat]:
    """Return the fields and the payload of a packet from BTH on."""
    at, end = IPV6_BYTES + UDP_BYTES, len(whole) - (0 if trimmed else ICRC_BYTES)
    bth = wire_format().headers["BTH"]
    if end - at < bth.size:
        raise FormatError(f"{end - at} bytes where BTH's {bth.size} should be")
    layout = wire_format().by_code(whole[at])
    if layout is None:
        raise FormatError(f"opcode {whole[at]:#04x} is not one of MRC")
    fields: dict[str, int] = {}
    for header in _parts(layout, stamped=bool(whole[at + 8] & 0x10)):
        if end - at < header.size:
            if trimmed:
                return fields, b"", layout
            raise FormatError(f"{layout.name} ends within {header.name}")
        _unpack(header, whole[at : at + header.size], fields)
        at += header.size
        for item in header.fields:
            name = f"{header.name.lower()}.{item.name}"
            if item.reserved and fields[name]:
                raise FormatError(f"reserved field {name} is {fields[name]:#x}, expected 0x0")
    pad = fields["bth.pad"]
    if trimmed:
        return fields, whole[at:end], layout
    if (end - at) % 4 or pad > end - at or (not layout.payload and end != at):
        raise FormatError(f"{layout.name} has {end - at} bytes after its headers, {pad} of them padding")
    if any(whole[end - pad : end]):
        raise FormatError("the padding is not zero")
    return fields, whole[at : end - pad], layout
