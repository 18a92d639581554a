"""The data path codec of the RoCEv2 RC baseline: RDMA WRITE, ACKNOWLEDGE and CNP (mrc-protocol.md §2; IBTA RoCEv2).

Frames are IPv6 packets without Ethernet header, as in `wire/codec.py`. RETH comes in First and Only packets alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias
from zlib import crc32

from mrc_host.proto.wire.codec import ACK, HEAD, IMM, RETH, Codec
from mrc_host.proto.wire.fields import RoceOpcode
from mrc_host.proto.wire.messages import FLAG_ACK_REQ
from mrc_host.proto.wire.packet import NEXT_UDP, Drop, WireError, icrc

FIRST: Final = int(RoceOpcode.WRITE_FIRST)
MIDDLE: Final = int(RoceOpcode.WRITE_MIDDLE)
LAST: Final = int(RoceOpcode.WRITE_LAST)
LAST_IMM: Final = int(RoceOpcode.WRITE_LAST_IMM)
ONLY: Final = int(RoceOpcode.WRITE_ONLY)
ONLY_IMM: Final = int(RoceOpcode.WRITE_ONLY_IMM)
ACKNOWLEDGE: Final = int(RoceOpcode.ACK)
CNP: Final = int(RoceOpcode.CNP)

WITH_RETH: Final = frozenset((FIRST, ONLY, ONLY_IMM))
WITH_IMM: Final = frozenset((LAST_IMM, ONLY_IMM))
OVERHEAD_BYTES: Final = 40 + 8 + 12 + 16 + 4 + 4  # of an Only packet with immediate
_PADS = (b"", b"\0", b"\0\0", b"\0\0\0")
_CNP_PAYLOAD = bytes(16)
_BECN = 0x40


@dataclass(slots=True)
class RoceData:
    """One RDMA WRITE packet; `va`, `rkey` and `dma_length` are 0 where there is no RETH."""

    opcode: int
    dest_qp: int
    psn: int
    ack_req: bool
    entropy: int
    ce: bool
    addresses: bytes
    p_key: int
    va: int
    rkey: int
    dma_length: int
    immediate: int
    payload: memoryview


@dataclass(slots=True)
class RoceAck:
    """ACK or NAK: AETH's syndrome and MSN."""

    opcode: int
    dest_qp: int
    psn: int
    addresses: bytes
    p_key: int
    syndrome: int
    msn: int


@dataclass(slots=True)
class Cnp:
    """Congestion notification: the responder saw CE on packets of this QP."""

    opcode: int
    dest_qp: int
    addresses: bytes
    p_key: int


RoceMessage: TypeAlias = RoceData | RoceAck | Cnp


class RoceCodec(Codec):
    """Encodes and decodes RoCEv2; configuration and ICRC cache are those of `Codec`."""

    __slots__ = ()

    def encode_write(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        ack_req: bool,
        va: int,
        rkey: int,
        dma_length: int,
        immediate: int,
        payload: memoryview | bytes,
    ) -> bytes:
        """One packet of an RDMA WRITE."""
        size = len(payload)
        pad = -size & 3
        with_reth, with_imm = opcode in WITH_RETH, opcode in WITH_IMM
        length = size + pad + 24 + (16 if with_reth else 0) + (4 if with_imm else 0)
        head = HEAD.pack(
            0x60000000 | traffic_class << 20 | entropy >> 16,
            length,
            NEXT_UDP << 8 | 64,
            addresses,
            entropy & 0xFFFF,
            self.udp_port,
            length,
            0,
            opcode,
            pad << 4,
            self.p_key,
            dest_qp,
            (FLAG_ACK_REQ if ack_req else 0) << 24 | psn,
        )
        if with_reth:
            head += RETH.pack(va, rkey, dma_length)
        if with_imm:
            head += IMM.pack(immediate)
        constant = self._constants.get((addresses, length))
        if constant is None:
            constant = self._constant(addresses, length)
        crc = crc32(payload, crc32(head[40:]))
        if pad:
            crc = crc32(_PADS[pad], crc)
        return b"".join((head, payload, _PADS[pad], (crc ^ constant).to_bytes(4, "little")))

    def encode_cnp(self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int) -> bytes:
        """A CNP: BECN set, 16 reserved bytes."""
        head = self._head(addresses, entropy, traffic_class, CNP, dest_qp, 0, 0, 40)
        packet = bytearray(self._finish(addresses, head + _CNP_PAYLOAD))
        packet[52] = _BECN  # in resv8a, which the ICRC does not cover
        return bytes(packet)

    def encode_acknowledge(
        self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, psn: int, syndrome: int, msn: int
    ) -> bytes:
        """ACK or NAK."""
        head = self._head(addresses, entropy, traffic_class, ACKNOWLEDGE, dest_qp, psn, 0, 28)
        return self._finish(addresses, head + ACK.pack(syndrome << 24 | msn & 0xFFFFFF))

    def decode_roce(self, packet: bytes) -> RoceMessage:
        """The message in an IPv6 packet. Raises WireError, nothing else."""
        total = len(packet)
        if total < 64:
            raise WireError(Drop.SHORT, f"{total} bytes of IP packet")
        (
            word, length, nh_hops, addresses, source_port, port, udp_length, checksum,
            opcode, bits, p_key, dest_qp, flags_psn,
        ) = HEAD.unpack_from(packet)  # fmt: skip
        if word >> 28 != 6:
            raise WireError(Drop.VERSION, f"IP version {word >> 28}")
        if length != total - 40:
            raise WireError(Drop.SHORT if length > total - 40 else Drop.TRAILING, f"{total} bytes of IP packet")
        if nh_hops >> 8 != NEXT_UDP:
            raise WireError(Drop.NEXT_HEADER, f"{nh_hops >> 8} where UDP should be")
        if port != self.udp_port:
            raise WireError(Drop.PORT, f"{port} where {self.udp_port} should be")
        if udp_length != length:
            raise WireError(Drop.LENGTH, f"UDP says {udp_length} bytes, {length} arrived")
        if bits & 0x0F:
            raise WireError(Drop.TVER, f"{bits & 0x0F} where 0 should be")
        view = memoryview(packet)
        if checksum or dest_qp >> 24:  # CNPs, and what the shortcut takes for 0
            if self.check_icrc and icrc(packet[:40], packet[40:-4]) != packet[-4:]:
                raise WireError(Drop.ICRC, "mismatch")
            dest_qp &= 0xFFFFFF
        elif self.check_icrc:
            constant = self._constants.get((addresses, length))
            if constant is None:
                constant = self._constant(addresses, length)
            if crc32(view[40:-4]) ^ constant != int.from_bytes(packet[-4:], "little"):
                raise WireError(Drop.ICRC, "mismatch")
        if opcode == ACKNOWLEDGE:
            if total != 68 or bits & 0x30:
                raise WireError(Drop.LENGTH, f"{total} bytes where 68 should be")
            (aeth,) = ACK.unpack_from(packet, 60)
            return RoceAck(opcode, dest_qp, flags_psn & 0xFFFFFF, addresses, p_key, aeth >> 24, aeth & 0xFFFFFF)
        if opcode == CNP:
            return Cnp(opcode, dest_qp, addresses, p_key)
        if not FIRST <= opcode <= ONLY_IMM:
            raise WireError(Drop.OPCODE, f"{opcode:#04x} is none of ours")
        start, va, rkey, dma_length, immediate = 60, 0, 0, 0, 0
        end = total - 4 - (bits >> 4 & 3)
        need = start + (16 if opcode in WITH_RETH else 0) + (4 if opcode in WITH_IMM else 0)
        if end < need or total & 3:
            raise WireError(Drop.LENGTH, f"{total} bytes for opcode {opcode:#04x} with padding {bits >> 4 & 3}")
        if opcode in WITH_RETH:
            va, rkey, dma_length = RETH.unpack_from(packet, start)
            start += 16
        if opcode in WITH_IMM:
            (immediate,) = IMM.unpack_from(packet, start)
            start += 4
        return RoceData(
            opcode, dest_qp, flags_psn & 0xFFFFFF, bool(flags_psn >> 31), (word & 0xFFFF) << 16 | source_port,
            (word >> 20 & 3) == 3, addresses, p_key, va, rkey, dma_length, immediate, view[start:end],
        )  # fmt: skip
