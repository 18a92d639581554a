"""The data path codec of RoCEv2's reliable connection: SEND, RDMA WRITE and READ, atomics, their answers, and CNP.

Opcodes and headers are those of IBTA vol. 1 rel. 1.4, chapter 9; `scapy.contrib.roce` reads them alike. Frames are IPv6
packets without Ethernet header, as in `wire/codec.py`. RETH comes in First and Only packets of a write alone, and AETH
in all packets of a READ response but the middle ones.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

from mrc_host.proto.wire.codec import SMALL, Codec
from mrc_host.proto.wire.compiled import (
    ECN_AT,
    FLAGS_AT,
    HEAD,
    LOW_24,
    PAD,
    PAD_AT,
    PAD_BITS,
    SE_BITS,
    TVER,
    DecoderText,
    decoder,
    encoder,
)  # fmt: skip
from mrc_host.proto.wire.crc import crc32
from mrc_host.proto.wire.fields import NEXT_UDP, ROCE_LAYOUTS, Bth, ImmDt, Ipv6, Reth, RoceOpcode, Udp
from mrc_host.proto.wire.icrc import with_zeros
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_SE
from mrc_host.proto.wire.packet import Drop, WireError, icrc

SEND_FIRST: Final = int(RoceOpcode.SEND_FIRST)
SEND_MIDDLE: Final = int(RoceOpcode.SEND_MIDDLE)
SEND_LAST: Final = int(RoceOpcode.SEND_LAST)
SEND_LAST_IMM: Final = int(RoceOpcode.SEND_LAST_IMM)
SEND_ONLY: Final = int(RoceOpcode.SEND_ONLY)
SEND_ONLY_IMM: Final = int(RoceOpcode.SEND_ONLY_IMM)
FIRST: Final = int(RoceOpcode.WRITE_FIRST)
MIDDLE: Final = int(RoceOpcode.WRITE_MIDDLE)
LAST: Final = int(RoceOpcode.WRITE_LAST)
LAST_IMM: Final = int(RoceOpcode.WRITE_LAST_IMM)
ONLY: Final = int(RoceOpcode.WRITE_ONLY)
ONLY_IMM: Final = int(RoceOpcode.WRITE_ONLY_IMM)
READ_REQUEST: Final = int(RoceOpcode.READ_REQUEST)
RESPONSE_FIRST: Final = int(RoceOpcode.READ_RESPONSE_FIRST)
RESPONSE_MIDDLE: Final = int(RoceOpcode.READ_RESPONSE_MIDDLE)
RESPONSE_LAST: Final = int(RoceOpcode.READ_RESPONSE_LAST)
RESPONSE_ONLY: Final = int(RoceOpcode.READ_RESPONSE_ONLY)
ACKNOWLEDGE: Final = int(RoceOpcode.ACK)
ATOMIC_ACK: Final = int(RoceOpcode.ATOMIC_ACK)
COMPARE_SWAP: Final = int(RoceOpcode.COMPARE_SWAP)
FETCH_ADD: Final = int(RoceOpcode.FETCH_ADD)
CNP: Final = int(RoceOpcode.CNP)

WITH_RETH: Final = frozenset(opcode for opcode, layout in ROCE_LAYOUTS.items() if Reth in layout.parts)
WITH_IMM: Final = frozenset(opcode for opcode, layout in ROCE_LAYOUTS.items() if ImmDt in layout.parts)
OVERHEAD_BYTES: Final = 40 + 8 + 12 + 16 + 4 + 4  # of an Only packet with immediate
_CNP_PAYLOAD = bytes(16)
_BECN = 0x40  # in BTH.resv8a
_RESV8A_BYTE = Ipv6.header.size + Udp.header.size + Bth.header.by_name["resv8a"].bit // 8


@dataclass(slots=True)
class RoceData:
    """A packet of a SEND or RDMA WRITE; `va`, `rkey` and `dma_length` are 0 where there is no RETH."""

    opcode: int
    dest_qp: int
    psn: int
    ack_req: bool
    solicited: bool
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
class ReadRequest:
    """An RDMA READ Request; its responses have the PSNs from its own on."""

    opcode: int
    dest_qp: int
    psn: int
    ce: bool
    addresses: bytes
    p_key: int
    va: int
    rkey: int
    dma_length: int


@dataclass(slots=True)
class AtomicRequest:
    """Compare and swap, or fetch and add."""

    opcode: int
    dest_qp: int
    psn: int
    ce: bool
    addresses: bytes
    p_key: int
    va: int
    rkey: int
    swap_or_add: int
    compare: int


@dataclass(slots=True)
class ReadResponse:
    """A packet of a READ response. Middle ones have no AETH: their syndrome and MSN are 0."""

    opcode: int
    dest_qp: int
    psn: int
    ce: bool
    addresses: bytes
    p_key: int
    syndrome: int
    msn: int
    payload: memoryview


@dataclass(slots=True)
class AtomicAck:
    """The answer to an atomic operation: what the number was before it."""

    opcode: int
    dest_qp: int
    psn: int
    addresses: bytes
    p_key: int
    syndrome: int
    msn: int
    original: int


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


RoceRequest: TypeAlias = RoceData | ReadRequest | AtomicRequest
RoceAnswer: TypeAlias = RoceAck | ReadResponse | AtomicAck
RoceMessage: TypeAlias = RoceRequest | RoceAnswer | Cnp
_KINDS: Final[dict[int, type[RoceMessage]]] = {
    READ_REQUEST: ReadRequest,
    COMPARE_SWAP: AtomicRequest,
    FETCH_ADD: AtomicRequest,
    **dict.fromkeys((RESPONSE_FIRST, RESPONSE_MIDDLE, RESPONSE_LAST, RESPONSE_ONLY), ReadResponse),
    ATOMIC_ACK: AtomicAck,
    ACKNOWLEDGE: RoceAck,
    CNP: Cnp,
}
_DECODERS: Final[dict[int, DecoderText[RoceMessage]]] = {
    opcode: decoder(layout, _KINDS.get(opcode, RoceData)) for opcode, layout in ROCE_LAYOUTS.items()
}


class RoceCodec(Codec):
    """Encodes and decodes RoCEv2; configuration and ICRC cache are those of `Codec`."""

    __slots__ = ()

    @encoder(
        FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM,
        layouts=ROCE_LAYOUTS, flags=f"{FLAG_ACK_REQ} if ack_req else 0",
    )  # fmt: skip
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
        se: int = 0,
    ) -> bytes:
        """Encode one packet of an RDMA WRITE."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(
        SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM,
        layouts=ROCE_LAYOUTS, flags=f"{FLAG_ACK_REQ} if ack_req else 0",
    )  # fmt: skip
    def encode_send(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        ack_req: bool,
        immediate: int,
        payload: memoryview | bytes,
        se: int = 0,
    ) -> bytes:
        """Encode one packet of a SEND."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(READ_REQUEST, layouts=ROCE_LAYOUTS, flags=f"{FLAG_ACK_REQ}")
    def encode_read(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        dest_qp: int,
        psn: int,
        va: int,
        rkey: int,
        dma_length: int,
    ) -> bytes:
        """Encode an RDMA READ Request."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(RESPONSE_FIRST, RESPONSE_MIDDLE, RESPONSE_LAST, RESPONSE_ONLY, layouts=ROCE_LAYOUTS, msn="msn & 0xFFFFFF")
    def encode_response(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        syndrome: int,
        msn: int,
        payload: memoryview | bytes,
    ) -> bytes:
        """Encode one packet of a READ response."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(COMPARE_SWAP, FETCH_ADD, layouts=ROCE_LAYOUTS, flags=f"{FLAG_ACK_REQ}")
    def encode_atomic(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        va: int,
        rkey: int,
        swap_or_add: int,
        compare: int,
    ) -> bytes:
        """Encode an atomic request."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(ATOMIC_ACK, layouts=ROCE_LAYOUTS, msn="msn & 0xFFFFFF")
    def encode_atomic_ack(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        dest_qp: int,
        psn: int,
        syndrome: int,
        msn: int,
        original: int,
    ) -> bytes:
        """Encode the answer to an atomic request."""
        raise NotImplementedError  # see compiled.encoder

    def encode_cnp(self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int) -> bytes:
        """Encode a CNP: BECN set, 16 reserved bytes."""
        packet = bytearray(self._encode_cnp(addresses, entropy, traffic_class, dest_qp, _CNP_PAYLOAD))
        packet[_RESV8A_BYTE] = _BECN  # which the ICRC does not cover
        return bytes(packet)

    @encoder(CNP, layouts=ROCE_LAYOUTS)
    def _encode_cnp(self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, payload: bytes) -> bytes:
        raise NotImplementedError  # see compiled.encoder

    @encoder(ACKNOWLEDGE, layouts=ROCE_LAYOUTS, msn="msn & 0xFFFFFF")
    def encode_acknowledge(
        self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, psn: int, syndrome: int, msn: int
    ) -> bytes:
        """Encode an ACK or NAK."""
        raise NotImplementedError  # see compiled.encoder

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
            word, length, next_header, addresses, source_port, port, udp_length, checksum,
            opcode, bits, p_key, dest_qp, flags_psn,
        ) = HEAD.unpack_from(packet)  # fmt: skip
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
        view = packet if total <= SMALL else memoryview(packet)
        if checksum or dest_qp > LOW_24:  # CNPs, and what the shortcut takes for 0
            if missing:
                if self.check_icrc and not self._holds(packet, addresses, length):
                    raise WireError(Drop.ICRC, "mismatch")
            elif self.check_icrc and icrc(packet[:40], packet[40:-4]) != packet[-4:]:
                raise WireError(Drop.ICRC, "mismatch")
            dest_qp &= LOW_24
        elif self.check_icrc:
            constant = self._constants.get((addresses, length))
            if constant is None:
                constant = self._constant(addresses, length)
            if (crc32(view[40:-4]) ^ constant).to_bytes(4, "little") != packet[-4:]:
                raise WireError(Drop.ICRC, "mismatch")
        found = _DECODERS.get(opcode)
        if found is None:
            raise WireError(Drop.OPCODE, f"opcode {opcode:#04x} is not a RoCE opcode of this endpoint")
        size, parse = found
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
            if missing:
                view = memoryview(with_zeros(packet, missing))
            elif total <= SMALL:
                view = memoryview(packet)
        try:
            return parse(
                view, end, opcode, dest_qp, flags_psn, word, source_port, word >> ECN_AT & 3, 0, addresses, p_key,
                udp_length,
            )  # fmt: skip
        except struct.error:
            raise WireError(Drop.LENGTH, f"{total} bytes are too few for opcode {opcode:#04x}") from None
