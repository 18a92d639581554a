"""The data path codec of RoCEv2's reliable connection: SEND, RDMA WRITE and READ, atomics, their answers, and CNP.

Opcodes and headers are those of IBTA vol. 1 rel. 1.4, chapter 9; `scapy.contrib.roce` reads them alike. Frames are IPv6
packets without Ethernet header, as in `wire/codec.py`. RETH comes in First and Only packets of a write alone, and AETH
in all packets of a READ response but the middle ones.
"""

from __future__ import annotations

from mrc_host.proto.roce.fast import DECODERS, RoceEncoders
from mrc_host.proto.roce.messages import (
    RoceMessage,
)
from mrc_host.proto.wire.fast import ECN_AT, FLAGS_AT, LOW_24, PAD, PAD_AT, PAD_BITS, SE_BITS, TVER, read_head
from mrc_host.proto.wire.fields import NEXT_UDP, Bth, Ipv6, Udp
from mrc_host.proto.wire.framing import sealed
from mrc_host.proto.wire.icrc import with_zeros
from mrc_host.proto.wire.messages import FLAG_SE
from mrc_host.proto.wire.packet import Drop, WireError

_CNP_PAYLOAD = bytes(16)
_BECN = 0x40  # in BTH.resv8a
_RESV8A_BYTE = Ipv6.header.size + Udp.header.size + Bth.header.by_name["resv8a"].bit // 8


class RoceCodec(RoceEncoders):
    """Encodes and decodes RoCEv2; configuration and ICRC cache are those of `Codec`."""

    __slots__ = ()

    def encode_cnp(self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int) -> bytes:
        """Encode a CNP: BECN set, 16 reserved bytes."""
        packet = bytearray(self._encode_cnp(addresses, entropy, traffic_class, dest_qp, _CNP_PAYLOAD))
        packet[_RESV8A_BYTE] = _BECN  # which the ICRC does not cover
        return bytes(packet)

    def decode_roce(self, packet: bytes, missing: int = 0) -> RoceMessage:  # noqa: C901 - the hot path: a branch per header
        """Return the message in an IPv6 packet, of which `missing` bytes may lack as in `Codec.decode`. Raises
        WireError, nothing else.
        """
        total = len(packet) + missing
        if missing and len(packet) < 64:
            packet, missing = with_zeros(packet, missing), 0
        if total < 64:
            raise WireError(Drop.SHORT, f"{total} bytes of IP packet")
        (
            word, length, next_header, addresses, source_port, port, udp_length,
            opcode, bits, p_key, dest_qp, flags_psn,
        ) = read_head(packet, 0)  # fmt: skip
        if word >> 28 != 6:
            raise WireError(Drop.VERSION, f"IP version {word >> 28}")
        if length != total - 40:
            raise WireError(Drop.SHORT if length > total - 40 else Drop.TRAILING, f"{total} bytes of IP packet")
        if next_header != NEXT_UDP:
            raise WireError(Drop.NEXT_HEADER, f"{next_header} where UDP should be")
        if port != self.udp_port:
            raise WireError(Drop.PORT, f"{port} where {self.udp_port} should be")
        if udp_length != length:
            raise WireError(Drop.LENGTH, f"UDP says {udp_length} bytes, {length} arrived")
        if bits and bits & TVER:  # all 0 in most packets
            raise WireError(Drop.TVER, f"{bits & TVER} where 0 should be")
        if self.check_icrc and not sealed(packet, 0, missing):
            raise WireError(Drop.ICRC, "mismatch")
        dest_qp &= LOW_24
        found = DECODERS.get(opcode)
        if found is None:
            raise WireError(Drop.OPCODE, f"opcode {opcode:#04x} is not a RoCE opcode of this endpoint")
        size = found.size
        end = total - 4
        if bits & SE_BITS:
            flags_psn |= FLAG_SE << FLAGS_AT
        if size:
            if size != total or bits & PAD_BITS:
                raise WireError(Drop.LENGTH, f"{total} bytes where {size} should be")
        else:
            if total & 3:
                raise WireError(Drop.LENGTH, f"{total} bytes: the payload is not padded to words")
            if bits:
                end -= bits >> PAD_AT & PAD
        try:
            return found.parse(
                packet, 0, end, missing > 0, opcode, dest_qp, flags_psn, word, source_port, word >> ECN_AT & 3, 0,
                addresses, p_key, udp_length,
            )  # fmt: skip
        except IndexError:
            raise WireError(Drop.LENGTH, f"{total} bytes are too few for opcode {opcode:#04x}") from None
