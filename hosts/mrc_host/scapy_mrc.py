"""Scapy layers for MRC, generated from the field table of `proto/wire/fields.py` and bound to UDP port 4791.

`import mrc_host.scapy_mrc`, and Scapy dissects MRC. To build: `IPv6(...)/UDP(sport=ev & 0xffff)/BTH(opcode="SACK")/
SETH(...)/CC_STATE(...)`; BTH.pad, BTH.ts and the ICRC are computed unless given. The padding and the ICRC, last
on the wire, appear as fields of BTH, because they belong to it and the payload comes before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scapy.fields import (
    BitEnumField,
    BitField,
    ConditionalField,
    SignedShortField,
    StrLenField,
    XLEIntField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw, bind_layers

from mrc_host.proto.wire.fields import HEADERS, MRC_LAYOUTS, MRC_UDP_PORT, TRANSPORT, Bth, Field, Header, Tseth
from mrc_host.proto.wire.packet import icrc


class _HexBits(BitField):  # type: ignore[misc]
    """A bit field that is shown in hexadecimal."""

    def i2repr(self, packet: Any, value: Any) -> str:
        return "None" if value is None else hex(value)


def _field(item: Field, default: int | None) -> Any:
    if item.signed:
        assert item.width == 16, f"{item.name}: no signed Scapy field of {item.width} bits"
        return SignedShortField(item.name, default)
    if item.enum is not None:
        return BitEnumField(item.name, default, item.width, {member.value: member.name for member in item.enum})
    return (_HexBits if item.hex else BitField)(item.name, default, item.width)


def _next_layer(packet: Any, payload: bytes) -> Any:
    """Return the class of the layer after `packet`, by the layout of its BTH's opcode."""
    bth = packet
    while not isinstance(bth, BTH):
        bth = bth.underlayer
        if bth is None:
            return Raw
    layout = MRC_LAYOUTS.get(bth.opcode)
    if layout is None:
        return Raw
    names = [header.name for header in layout.headers if header is not Tseth.header or bth.ts]
    mine = type(packet).__name__
    following = names if mine == "BTH" else names[names.index(mine) + 1 :] if mine in names else []
    if following and len(payload) >= HEADERS[following[0]].size:
        return LAYERS[following[0]]
    return Raw


def _layer(header: Header) -> Any:
    body = {
        "name": f"MRC {header.name}",
        "__doc__": f"{header.title} (mrc-protocol.md §3).",
        "fields_desc": [_field(item, item.default) for item in header.fields],
        "guess_payload_class": _next_layer,
        "__module__": __name__,
    }
    return type(header.name, (Packet,), body)


class BTH(Packet):  # type: ignore[misc]
    """Base Transport Header, with the padding and ICRC that end the packet (mrc-protocol.md §2, §3)."""

    name = "MRC BTH"
    trimmed = False
    fields_desc = [
        *(_field(item, None if item.name in ("pad", "ts") else item.default) for item in Bth.header.fields),
        StrLenField("padding", None, length_from=lambda packet: 0 if packet.trimmed else packet.pad),
        ConditionalField(XLEIntField("icrc", None), lambda packet: not packet.trimmed),
    ]

    def pre_dissect(self, data: bytes) -> bytes:
        """Bring the end of the packet to its beginning, where its fields are."""
        udp = self.underlayer
        if len(data) < 16 or (udp is not None and udp.len is not None and udp.len > len(data) + 8):
            self.trimmed = True
            return data
        end = len(data) - 4 - (data[1] >> 4 & 3)
        return data[:12] + data[end:] + data[12:end]

    def post_dissect(self, data: bytes) -> bytes:
        self.raw_packet_cache = None  # its order is not that of the wire
        return data

    def guess_payload_class(self, payload: bytes) -> Any:
        return _next_layer(self, payload)

    def post_build(self, head: bytes, payload: bytes) -> bytes:
        """Pad, and add the ICRC where none was given."""
        bth = bytearray(head[:12])
        padding = self.padding
        if self.pad is None:
            bth[1] |= (-len(payload) & 3) << 4
        if padding is None:
            padding = bytes(bth[1] >> 4 & 3)
        if self.ts is None and self.haslayer(LAYERS["TSETH"]):
            bth[8] |= 0x10
        if self.trimmed:
            return bytes(bth) + payload
        body: bytes = bytes(bth) + payload + padding
        return body + (self._icrc(body) if self.icrc is None else head[-4:])

    def _icrc(self, body: bytes) -> bytes:
        udp = self.underlayer
        ip = None if udp is None else udp.underlayer
        if not isinstance(ip, (IPv6, IP)):
            return bytes(4)
        length = len(body) + 12
        ports = udp.sport.to_bytes(2, "big") + udp.dport.to_bytes(2, "big")
        rest = ports + length.to_bytes(2, "big") + b"\0\0" + body
        # A copy without payload, with what Scapy fills in only later.
        bare = ip.copy()
        bare.remove_payload()
        if isinstance(ip, IPv6):
            bare.plen, bare.nh = length, 17
        else:
            bare.len, bare.proto = 20 + length, 17
        return icrc(bytes(bare), rest)


LAYERS: dict[str, Any] = {header.name: BTH if header is Bth.header else _layer(header) for header in TRANSPORT}
globals().update(LAYERS)  # METH, TSETH, RETH, ...: each under its name
bind_layers(UDP, BTH, dport=MRC_UDP_PORT)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return the layers that `globals().update` adds."""
