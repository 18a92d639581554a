"""The wire codec of the data path (mrc-protocol.md §2, §3).

The endpoint speaks in the light objects of `messages.py` (`Data`, `Sack`, ...). What depends on a header's fields is
in `fast.py`, which `mrc_host.generate` makes from the table. The complete codec is `packet.py`; tests hold one against
the other.

A frame here is an IPv6 (or IPv4) packet without Ethernet header. `addresses` is source and destination, 16 + 16
bytes (4 + 4 on IPv4). `traffic_class` is DSCP << 2 | ECN. `entropy` is the 32-bit EV the packet travels with.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.encap import encapsulation_length
from mrc_host.proto.wire.fast import (
    DECODERS,
    DSCP_AT,
    ECN_AT,
    ENCODERS,
    FLAGS_AT,
    HEAD_BYTES,
    LOW_24,
    PAD,
    PAD_AT,
    PAD_BITS,
    SE_BITS,
    SHORTEST_BYTES,
    TVER,
    Encoders,
    parse_trimmed,
    read_head,
)
from mrc_host.proto.wire.fields import (
    MRC_LAYOUTS,
    MRC_UDP_PORT,
    NEXT_UDP,
    Dscp,
    Ecn,
    Ipv4,
    NackReason,
)
from mrc_host.proto.wire.framing import sealed
from mrc_host.proto.wire.icrc import with_zeros
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_RTX, FLAG_SE, FLAG_TS, MESSAGES, NO_TIMESTAMP, Message
from mrc_host.proto.wire.packet import Drop, WireError
from mrc_host.proto.wire.reading import u8, u16, u32

__all__ = ["ENCODERS", "Codec"]

#: By opcode.
_DECODERS: Final = [DECODERS.get(opcode) for opcode in range(256)]
_WRITES: Final = frozenset(int(opcode) for opcode, layout in MRC_LAYOUTS.items() if layout.payload)


@mypyc_attr(allow_interpreted_subclasses=True)
class Codec(Encoders):
    """Encodes and decodes for one endpoint. It holds its configuration and a bounded cache, no protocol state."""

    __slots__ = ("check_icrc", "dscp_lasthop", "dscp_trimmed")

    def __init__(
        self,
        *,
        udp_port: int = MRC_UDP_PORT,
        p_key: int = 0xFFFF,
        dscp_trimmed: int = Dscp.TRIMMED,
        dscp_lasthop: int = Dscp.TRIMMED_LASTHOP,
        check_icrc: bool = True,
        length_only: bool = False,
    ) -> None:
        super().__init__(udp_port, p_key, length_only)
        self.check_icrc = check_icrc
        self.dscp_trimmed = int(dscp_trimmed)
        self.dscp_lasthop = int(dscp_lasthop)

    def decode(self, packet: bytes, missing: int = 0) -> Message:  # noqa: C901, PLR0915 - the hot path: a branch per header
        """Return the message in an IPv6 or IPv4 packet, SRv6 encapsulation taken off. Raises WireError, nothing
        else.

        Before its ICRC `missing` bytes may not be there (`Sealing.length_only`); its payload is then zeros.
        """
        total = len(packet) + missing
        if missing and len(packet) < SHORTEST_BYTES:
            packet, missing = with_zeros(packet, missing), 0
        if total < HEAD_BYTES or packet[0] >> 4 != 6:
            return self._decode_fully(with_zeros(packet, missing) if missing else packet)
        # Declared for the compiler: machine words.
        word: i64 = u32(packet, 0)
        length: i64 = u16(packet, 4)
        next_header: i64 = u8(packet, 6)
        addresses: bytes
        source_port: i64
        port: i64
        udp_length: i64
        opcode: i64
        bits: i64
        p_key: i64
        dest_qp: i64
        flags_psn: i64
        at: i64 = 0  # where the packet within SRv6 begins
        if length != total - 40:
            raise WireError(Drop.SHORT if length > total - 40 else Drop.TRAILING, f"{total} bytes of IP packet")
        dscp = word >> DSCP_AT & 0x3F
        ecn = word >> ECN_AT & 3
        if next_header != NEXT_UDP:
            at = encapsulation_length(packet, next_header)
            if missing and len(packet) < at + SHORTEST_BYTES:
                packet, missing = with_zeros(packet, missing), 0
            total = len(packet) + missing - at
            if total < HEAD_BYTES or packet[at] >> 4 != 6:
                raise WireError(Drop.SHORT, "inside SRv6")
        (
            word, length, next_header, addresses, source_port, port, udp_length,
            opcode, bits, p_key, dest_qp, flags_psn,
        ) = read_head(packet, at)  # fmt: skip
        if at:
            if next_header != NEXT_UDP:
                raise WireError(Drop.NEXT_HEADER, f"{next_header} where UDP should be")
            if length != udp_length:
                raise WireError(Drop.LENGTH, f"inner IPv6 says {length} bytes, UDP {udp_length}")
            # A switch marks the outermost header; the inner one may come marked from where there was no SRv6 yet.
            if word >> ECN_AT & 3 == 3:
                ecn = 3
        if port != self.udp_port:
            raise WireError(Drop.PORT, f"{port} where {self.udp_port} should be")
        if bits and bits & TVER:  # all 0 in most packets
            raise WireError(Drop.TVER, f"{bits & TVER} where 0 should be")
        trimmed = 0
        if dscp == self.dscp_trimmed:
            trimmed = 1
        elif dscp == self.dscp_lasthop:
            trimmed = 2
        if udp_length != total - 40:
            if udp_length < total - 40:
                raise WireError(Drop.LENGTH, f"UDP says {udp_length} bytes, {total - 40} arrived")
            trimmed = trimmed or 1
        if trimmed:
            if opcode not in _WRITES:
                raise WireError(Drop.TRIMMED_CONTROL if opcode in DECODERS else Drop.OPCODE, f"{opcode:#04x}")
            if missing:
                packet = with_zeros(packet, missing)
            return parse_trimmed(
                packet, at, trimmed, opcode, dest_qp & LOW_24, flags_psn, word, source_port, ecn, dscp,
                addresses, p_key, udp_length,
            )  # fmt: skip
        if total < SHORTEST_BYTES:
            raise WireError(Drop.LENGTH, "no room for the ICRC")
        if self.check_icrc and not sealed(packet, at, missing):
            raise WireError(Drop.ICRC, "mismatch")
        dest_qp &= LOW_24
        found = _DECODERS[opcode]
        if found is None:
            raise WireError(Drop.OPCODE, f"{opcode:#04x} is not an opcode of this transport")
        size = found.size
        end: i64 = at + total - 4
        if size:
            if size != total or bits & PAD_BITS:
                raise WireError(Drop.LENGTH, f"{total} bytes where {size} should be")
        else:
            if total & 3:
                raise WireError(Drop.LENGTH, f"{total} bytes: the payload is not padded to words")
            if bits:
                end -= bits >> PAD_AT & PAD
                if bits & SE_BITS:
                    flags_psn |= FLAG_SE << FLAGS_AT
        try:
            return found.parse(
                packet, at, end, missing > 0, opcode, dest_qp, flags_psn, word, source_port, ecn, dscp, addresses,
                p_key, udp_length,
            )  # fmt: skip
        except (IndexError, struct.error):  # the latter where nothing is compiled
            raise WireError(Drop.LENGTH, f"{total} bytes are too few for opcode {opcode:#04x}") from None

    def _decode_fully(self, packet: bytes) -> Message:
        """Decode IPv4, and whatever else the fast path does not handle, by the complete codec."""
        trims = (self.dscp_trimmed, self.dscp_lasthop)
        whole = full.decode(bytes(packet), udp_port=self.udp_port, trim_dscps=trims)
        ip, bth = whole.ip, whole.bth
        width = 4 if isinstance(ip, Ipv4) else 16
        trimmed = 0
        if whole.trimmed:
            trimmed = int(NackReason.TRIMMED_LASTHOP if ip.dscp == self.dscp_lasthop else NackReason.TRIMMED)
        values: dict[str, Any] = {
            "entropy": whole.entropy,
            "tx_timestamp": NO_TIMESTAMP,
            "trimmed": trimmed,
            "payload": memoryview(b"" if trimmed else whole.payload),
        }
        for part in MRC_LAYOUTS[bth.opcode].parts:
            found = getattr(whole, part.header.name.lower())
            if found is not None:
                values |= {item.name: getattr(found, item.name) for item in part.header.fields if not item.reserved}
        values |= {
            "opcode": bth.opcode,
            "dest_qp": bth.dest_qp,
            "psn": bth.psn,
            "flags": bth.ack_req * FLAG_ACK_REQ
            | bth.rtx * FLAG_RTX
            | bth.ts * FLAG_TS
            | (bth.se * FLAG_SE if bth.opcode in _WRITES and not whole.trimmed else 0),
            "packet_entropy": whole.entropy,
            "ce": ip.ecn == Ecn.CE,
            "dscp": ip.dscp,
            "addresses": ip.src.to_bytes(width, "big") + ip.dst.to_bytes(width, "big"),
            "p_key": bth.p_key,
            "size": whole.udp.length + 40,
        }
        kind = MESSAGES[bth.opcode]
        return kind(**{item.name: values.get(item.name, 0) for item in dataclasses.fields(kind)})
