"""Encoders and decoders of RoCEv2's reliable connection, made from the table of headers by `make codec`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.proto.roce.messages import (
    AtomicAck, AtomicRequest, Cnp, ReadRequest, ReadResponse, RoceAck, RoceData, RoceMessage
)
from mrc_host.proto.wire.codec import Codec
from mrc_host.proto.wire.encap import to_ipv4
from mrc_host.proto.wire.framing import Buffer, packet
from mrc_host.proto.wire.packet import Drop, WireError
from mrc_host.proto.wire.reading import part, u32, u64

LENGTH: Final = Drop.LENGTH
ENCODE_WRITE_FORM_1: Final = b'!IHH32sHHH2xBBHIIQIII'
ENCODE_WRITE_FORM_2: Final = b'!IHH32sHHH2xBBHIIQII'
ENCODE_WRITE_FORM_3: Final = b'!IHH32sHHH2xBBHIII'
ENCODE_WRITE_FORM_4: Final = b'!IHH32sHHH2xBBHII'
ENCODE_SEND_FORM_1: Final = b'!IHH32sHHH2xBBHIII'
ENCODE_SEND_FORM_2: Final = b'!IHH32sHHH2xBBHII'
ENCODE_READ_FORM_1: Final = b'!II32sHHHIHIIQII'
ENCODE_RESPONSE_FORM_1: Final = b'!IHH32sHHH2xBBHIII'
ENCODE_RESPONSE_FORM_2: Final = b'!IHH32sHHH2xBBHII'
ENCODE_ATOMIC_FORM_1: Final = b'!II32sHHIB1xHIIQIQQ'
ENCODE_ATOMIC_ACK_FORM_1: Final = b'!II32sHHHIHIIIQ'
ENCODE_CNP_FORM_1: Final = b'!IHH32sHHH2xHHI4x'
ENCODE_ACKNOWLEDGE_FORM_1: Final = b'!II32sHHHIHIII'


class RoceDecoder:
    """The decoder of one opcode: `size` of the whole packet, 0 with a payload; `parse` makes the message."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceMessage:
        """Return the message behind the head, whose values are given.

        The IPv6 packet begins at `at`; its payload ends at `end`, and is not there if `absent`. Raises WireError, or
        IndexError when the packet is too short.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class RoceEncoders(Codec):
    """A method for each kind of packet; see `signatures.RoceSignatures`."""

    __slots__ = ()

    def encode_write(
        self, addresses: bytes, entropy: int, traffic_class: int, opcode: int, dest_qp: int, psn: int, ack_req: bool,
        va: int, rkey: int, dma_length: int, immediate: int, payload: Buffer, se: int = 0, begin: int = 0,
        size: int = -1, outer: bytes = b''
    ) -> bytes:
        """Encode one packet of an RDMA WRITE."""
        if size < 0:
            size = len(payload) - begin
        udp_length = size + (-size & 3) + 24
        if opcode in (6, 10, 11):
            udp_length += 16
            if opcode in (9, 11):
                udp_length += 4
                whole = packet(
                    ENCODE_WRITE_FORM_1, outer, payload, begin, size, self.length_only,
                    0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                    self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                    (128 if ack_req else 0) << 24 | psn, va, rkey, dma_length, immediate
                )
            else:
                whole = packet(
                    ENCODE_WRITE_FORM_2, outer, payload, begin, size, self.length_only,
                    0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                    self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                    (128 if ack_req else 0) << 24 | psn, va, rkey, dma_length
                )
        else:
            if opcode in (9, 11):
                udp_length += 4
                whole = packet(
                    ENCODE_WRITE_FORM_3, outer, payload, begin, size, self.length_only,
                    0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                    self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                    (128 if ack_req else 0) << 24 | psn, immediate
                )
            else:
                whole = packet(
                    ENCODE_WRITE_FORM_4, outer, payload, begin, size, self.length_only,
                    0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                    self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                    (128 if ack_req else 0) << 24 | psn
                )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_send(
        self, addresses: bytes, entropy: int, traffic_class: int, opcode: int, dest_qp: int, psn: int, ack_req: bool,
        immediate: int, payload: Buffer, se: int = 0, begin: int = 0, size: int = -1, outer: bytes = b''
    ) -> bytes:
        """Encode one packet of a SEND."""
        if size < 0:
            size = len(payload) - begin
        udp_length = size + (-size & 3) + 24
        if opcode in (3, 5):
            udp_length += 4
            whole = packet(
                ENCODE_SEND_FORM_1, outer, payload, begin, size, self.length_only,
                0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                (128 if ack_req else 0) << 24 | psn, immediate
            )
        else:
            whole = packet(
                ENCODE_SEND_FORM_2, outer, payload, begin, size, self.length_only,
                0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                (128 if ack_req else 0) << 24 | psn
            )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_read(
        self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, psn: int, va: int, rkey: int,
        dma_length: int, outer: bytes = b''
    ) -> bytes:
        """Encode an RDMA READ Request."""
        whole = packet(
            ENCODE_READ_FORM_1, outer, None, 0, 0, False, 0x60000000 | traffic_class << 20 | (entropy >> 16), 0x281140,
            addresses, entropy & 0xFFFF, self.udp_port, 0x28, 0xc00, self.p_key, dest_qp, (128) << 24 | psn, va, rkey,
            dma_length
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_response(
        self, addresses: bytes, entropy: int, traffic_class: int, opcode: int, dest_qp: int, psn: int, syndrome: int,
        msn: int, payload: Buffer, begin: int = 0, size: int = -1, outer: bytes = b''
    ) -> bytes:
        """Encode one packet of a READ response."""
        if size < 0:
            size = len(payload) - begin
        udp_length = size + (-size & 3) + 24
        if opcode in (13, 15, 16):
            udp_length += 4
            whole = packet(
                ENCODE_RESPONSE_FORM_1, outer, payload, begin, size, self.length_only,
                0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                self.udp_port, udp_length, opcode, (-size & 3) << 4, self.p_key, dest_qp, psn,
                syndrome << 24 | (msn & 0xFFFFFF)
            )
        else:
            whole = packet(
                ENCODE_RESPONSE_FORM_2, outer, payload, begin, size, self.length_only,
                0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                self.udp_port, udp_length, opcode, (-size & 3) << 4, self.p_key, dest_qp, psn
            )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_atomic(
        self, addresses: bytes, entropy: int, traffic_class: int, opcode: int, dest_qp: int, psn: int, va: int,
        rkey: int, swap_or_add: int, compare: int, outer: bytes = b''
    ) -> bytes:
        """Encode an atomic request."""
        whole = packet(
            ENCODE_ATOMIC_FORM_1, outer, None, 0, 0, False, 0x60000000 | traffic_class << 20 | (entropy >> 16),
            0x341140, addresses, entropy & 0xFFFF, self.udp_port, 0x340000, opcode, self.p_key, dest_qp,
            (128) << 24 | psn, va, rkey, swap_or_add, compare
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_atomic_ack(
        self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, psn: int, syndrome: int, msn: int,
        original: int, outer: bytes = b''
    ) -> bytes:
        """Encode the answer to an atomic request."""
        whole = packet(
            ENCODE_ATOMIC_ACK_FORM_1, outer, None, 0, 0, False, 0x60000000 | traffic_class << 20 | (entropy >> 16),
            0x241140, addresses, entropy & 0xFFFF, self.udp_port, 0x24, 0x1200, self.p_key, dest_qp, psn,
            syndrome << 24 | (msn & 0xFFFFFF), original
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def _encode_cnp(
        self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, payload: Buffer, begin: int = 0,
        size: int = -1, outer: bytes = b''
    ) -> bytes:
        """Encode a CNP, but for BECN."""
        if size < 0:
            size = len(payload) - begin
        udp_length = size + (-size & 3) + 24
        whole = packet(
            ENCODE_CNP_FORM_1, outer, payload, begin, size, self.length_only,
            0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
            self.udp_port, udp_length, 0x8100 | (-size & 3) << 4, self.p_key, dest_qp
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_acknowledge(
        self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, psn: int, syndrome: int, msn: int,
        outer: bytes = b''
    ) -> bytes:
        """Encode an ACK or NAK."""
        whole = packet(
            ENCODE_ACKNOWLEDGE_FORM_1, outer, None, 0, 0, False, 0x60000000 | traffic_class << 20 | (entropy >> 16),
            0x1c1140, addresses, entropy & 0xFFFF, self.udp_port, 0x1c, 0x1100, self.p_key, dest_qp, psn,
            syndrome << 24 | (msn & 0xFFFFFF)
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)


class _Decoder00(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0,
            part(packet, at + 60, end, absent)
        )


class _Decoder01(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0,
            part(packet, at + 60, end, absent)
        )


class _Decoder02(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0,
            part(packet, at + 60, end, absent)
        )


class _Decoder03(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 64:
            raise WireError(LENGTH, "no room for the headers")
        immediate = u32(packet, at + 60)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, immediate,
            part(packet, at + 64, end, absent)
        )


class _Decoder04(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0,
            part(packet, at + 60, end, absent)
        )


class _Decoder05(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 64:
            raise WireError(LENGTH, "no room for the headers")
        immediate = u32(packet, at + 60)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, immediate,
            part(packet, at + 64, end, absent)
        )


class _Decoder06(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 76:
            raise WireError(LENGTH, "no room for the headers")
        va = u64(packet, at + 60)
        rkey = u32(packet, at + 68)
        dma_length = u32(packet, at + 72)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, va, rkey, dma_length, 0,
            part(packet, at + 76, end, absent)
        )


class _Decoder07(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0,
            part(packet, at + 60, end, absent)
        )


class _Decoder08(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0,
            part(packet, at + 60, end, absent)
        )


class _Decoder09(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 64:
            raise WireError(LENGTH, "no room for the headers")
        immediate = u32(packet, at + 60)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, immediate,
            part(packet, at + 64, end, absent)
        )


class _Decoder0A(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 76:
            raise WireError(LENGTH, "no room for the headers")
        va = u64(packet, at + 60)
        rkey = u32(packet, at + 68)
        dma_length = u32(packet, at + 72)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, va, rkey, dma_length, 0,
            part(packet, at + 76, end, absent)
        )


class _Decoder0B(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < at + 80:
            raise WireError(LENGTH, "no room for the headers")
        va = u64(packet, at + 60)
        rkey = u32(packet, at + 68)
        dma_length = u32(packet, at + 72)
        immediate = u32(packet, at + 76)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, va, rkey, dma_length, immediate,
            part(packet, at + 80, end, absent)
        )


class _Decoder0C(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadRequest:
        va = u64(packet, at + 60)
        rkey = u32(packet, at + 68)
        dma_length = u32(packet, at + 72)
        return ReadRequest(opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, va, rkey, dma_length)


class _Decoder0D(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadResponse:
        if end < at + 64:
            raise WireError(LENGTH, "no room for the headers")
        syndrome_to_msn = u32(packet, at + 60)
        return ReadResponse(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, syndrome_to_msn >> 24,
            syndrome_to_msn & 0xffffff, part(packet, at + 64, end, absent)
        )


class _Decoder0E(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadResponse:
        if end < at + 60:
            raise WireError(LENGTH, "no room for the headers")
        return ReadResponse(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, 0, 0, part(packet, at + 60, end, absent)
        )


class _Decoder0F(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadResponse:
        if end < at + 64:
            raise WireError(LENGTH, "no room for the headers")
        syndrome_to_msn = u32(packet, at + 60)
        return ReadResponse(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, syndrome_to_msn >> 24,
            syndrome_to_msn & 0xffffff, part(packet, at + 64, end, absent)
        )


class _Decoder10(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadResponse:
        if end < at + 64:
            raise WireError(LENGTH, "no room for the headers")
        syndrome_to_msn = u32(packet, at + 60)
        return ReadResponse(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, syndrome_to_msn >> 24,
            syndrome_to_msn & 0xffffff, part(packet, at + 64, end, absent)
        )


class _Decoder11(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceAck:
        syndrome_to_msn = u32(packet, at + 60)
        return RoceAck(
            opcode, dest_qp, flags_psn & 0xffffff, addresses, p_key, syndrome_to_msn >> 24, syndrome_to_msn & 0xffffff
        )


class _Decoder12(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> AtomicAck:
        syndrome_to_msn = u32(packet, at + 60)
        original = u64(packet, at + 64)
        return AtomicAck(
            opcode, dest_qp, flags_psn & 0xffffff, addresses, p_key, syndrome_to_msn >> 24, syndrome_to_msn & 0xffffff,
            original
        )


class _Decoder13(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> AtomicRequest:
        va = u64(packet, at + 60)
        rkey = u32(packet, at + 68)
        swap_or_add = u64(packet, at + 72)
        compare = u64(packet, at + 80)
        return AtomicRequest(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, va, rkey, swap_or_add, compare
        )


class _Decoder14(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> AtomicRequest:
        va = u64(packet, at + 60)
        rkey = u32(packet, at + 68)
        swap_or_add = u64(packet, at + 72)
        compare = u64(packet, at + 80)
        return AtomicRequest(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, va, rkey, swap_or_add, compare
        )


class _Decoder81(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Cnp:
        if end < at + 60:
            raise WireError(LENGTH, "no room for the headers")
        return Cnp(opcode, dest_qp, addresses, p_key)


DECODERS: Final[dict[int, RoceDecoder]] = {
    0x0: _Decoder00(0),  # SEND First
    0x1: _Decoder01(0),  # SEND Middle
    0x2: _Decoder02(0),  # SEND Last
    0x3: _Decoder03(0),  # SEND Last with Immediate
    0x4: _Decoder04(0),  # SEND Only
    0x5: _Decoder05(0),  # SEND Only with Immediate
    0x6: _Decoder06(0),  # RDMA WRITE First
    0x7: _Decoder07(0),  # RDMA WRITE Middle
    0x8: _Decoder08(0),  # RDMA WRITE Last
    0x9: _Decoder09(0),  # RDMA WRITE Last with Immediate
    0xa: _Decoder0A(0),  # RDMA WRITE Only
    0xb: _Decoder0B(0),  # RDMA WRITE Only with Immediate
    0xc: _Decoder0C(80),  # RDMA READ Request
    0xd: _Decoder0D(0),  # RDMA READ Response First
    0xe: _Decoder0E(0),  # RDMA READ Response Middle
    0xf: _Decoder0F(0),  # RDMA READ Response Last
    0x10: _Decoder10(0),  # RDMA READ Response Only
    0x11: _Decoder11(68),  # ACKNOWLEDGE
    0x12: _Decoder12(76),  # ATOMIC ACKNOWLEDGE
    0x13: _Decoder13(92),  # CmpSwap
    0x14: _Decoder14(92),  # FetchAdd
    0x81: _Decoder81(0),  # CNP
}
ENCODERS: Final[dict[int, Callable[..., bytes]]] = {
    0x6: RoceEncoders.encode_write,
    0x7: RoceEncoders.encode_write,
    0x8: RoceEncoders.encode_write,
    0x9: RoceEncoders.encode_write,
    0xa: RoceEncoders.encode_write,
    0xb: RoceEncoders.encode_write,
    0x0: RoceEncoders.encode_send,
    0x1: RoceEncoders.encode_send,
    0x2: RoceEncoders.encode_send,
    0x3: RoceEncoders.encode_send,
    0x4: RoceEncoders.encode_send,
    0x5: RoceEncoders.encode_send,
    0xc: RoceEncoders.encode_read,
    0xd: RoceEncoders.encode_response,
    0xe: RoceEncoders.encode_response,
    0xf: RoceEncoders.encode_response,
    0x10: RoceEncoders.encode_response,
    0x13: RoceEncoders.encode_atomic,
    0x14: RoceEncoders.encode_atomic,
    0x12: RoceEncoders.encode_atomic_ack,
    0x81: RoceEncoders._encode_cnp,
    0x11: RoceEncoders.encode_acknowledge,
}
