"""Encoders and decoders of RoCEv2's reliable connection, made from the table of headers by `make codec`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.proto.roce.messages import (
    AtomicAck, AtomicRequest, Cnp, ReadRequest, ReadResponse, RoceAck, RoceData, RoceMessage
)
from mrc_host.proto.wire.codec import Codec
from mrc_host.proto.wire.encap import to_ipv4
from mrc_host.proto.wire.icrc import crc32
from mrc_host.proto.wire.packet import Drop, WireError
from mrc_host.proto.wire.reading import u32, u64

Buffer = bytes | bytearray | memoryview
PADS: Final = (b'', b'\x00', b'\x00\x00', b'\x00\x00\x00')
LENGTH: Final = Drop.LENGTH
ENCODE_WRITE_PACK_1: Final = struct.Struct("!IHH32sHHH2xBBHII").pack
ENCODE_WRITE_PACK_2: Final = struct.Struct("!QII").pack
ENCODE_WRITE_PACK_3: Final = struct.Struct("!I").pack
ENCODE_SEND_PACK_1: Final = struct.Struct("!IHH32sHHH2xBBHII").pack
ENCODE_SEND_PACK_2: Final = struct.Struct("!I").pack
ENCODE_READ_PACK_1: Final = struct.Struct("!II32sHHHIHIIQII").pack
ENCODE_RESPONSE_PACK_1: Final = struct.Struct("!IHH32sHHH2xBBHII").pack
ENCODE_RESPONSE_PACK_2: Final = struct.Struct("!I").pack
ENCODE_ATOMIC_PACK_1: Final = struct.Struct("!II32sHHIB1xHIIQIQQ").pack
ENCODE_ATOMIC_ACK_PACK_1: Final = struct.Struct("!II32sHHHIHIIIQ").pack
ENCODE_CNP_PACK_1: Final = struct.Struct("!IHH32sHHH2xHHI4x").pack
ENCODE_ACKNOWLEDGE_PACK_1: Final = struct.Struct("!II32sHHHIHIII").pack


class RoceDecoder:
    """The decoder of one opcode: `size` of the whole packet, 0 with a payload; `parse` makes the message."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceMessage:
        """Return the message behind the head, whose values are given.

        `view` is what the payload is part of, `end` where that ends. Raises WireError, or IndexError when the packet is
        too short.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class RoceEncoders(Codec):
    """A method for each kind of packet; see `signatures.RoceSignatures`."""

    __slots__ = ()

    def encode_write(
        self, addresses: bytes, entropy: int, traffic_class: int, opcode: int, dest_qp: int, psn: int, ack_req: bool,
        va: int, rkey: int, dma_length: int, immediate: int, payload: Buffer, se: int = 0
    ) -> bytes:
        """Encode one packet of an RDMA WRITE."""
        size = len(payload)
        pad = -size & 3
        udp_length = size + pad + 24
        if opcode in (6, 10, 11):
            udp_length += 16
        if opcode in (9, 11):
            udp_length += 4
        head = ENCODE_WRITE_PACK_1(
            0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
            self.udp_port, udp_length, opcode, se << 7 | pad << 4, self.p_key, dest_qp,
            (128 if ack_req else 0) << 24 | psn
        )
        if opcode in (6, 10, 11):
            head += ENCODE_WRITE_PACK_2(va, rkey, dma_length)
        if opcode in (9, 11):
            head += ENCODE_WRITE_PACK_3(immediate)
        constant = self._constants.get((addresses, udp_length))
        if constant is None:
            constant = self._constant(addresses, udp_length)
        if self.length_only:
            return head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")
        crc = crc32(payload, crc32(head[40:]))
        if pad:
            crc = crc32(PADS[pad], crc)
        packet = b"".join((head, payload, PADS[pad], (crc ^ constant).to_bytes(4, "little")))
        return packet if len(addresses) == 32 else to_ipv4(packet)

    def encode_send(
        self, addresses: bytes, entropy: int, traffic_class: int, opcode: int, dest_qp: int, psn: int, ack_req: bool,
        immediate: int, payload: Buffer, se: int = 0
    ) -> bytes:
        """Encode one packet of a SEND."""
        size = len(payload)
        pad = -size & 3
        udp_length = size + pad + 24
        if opcode in (3, 5):
            udp_length += 4
        head = ENCODE_SEND_PACK_1(
            0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
            self.udp_port, udp_length, opcode, se << 7 | pad << 4, self.p_key, dest_qp,
            (128 if ack_req else 0) << 24 | psn
        )
        if opcode in (3, 5):
            head += ENCODE_SEND_PACK_2(immediate)
        constant = self._constants.get((addresses, udp_length))
        if constant is None:
            constant = self._constant(addresses, udp_length)
        if self.length_only:
            return head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")
        crc = crc32(payload, crc32(head[40:]))
        if pad:
            crc = crc32(PADS[pad], crc)
        packet = b"".join((head, payload, PADS[pad], (crc ^ constant).to_bytes(4, "little")))
        return packet if len(addresses) == 32 else to_ipv4(packet)

    def encode_read(
        self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, psn: int, va: int, rkey: int,
        dma_length: int
    ) -> bytes:
        """Encode an RDMA READ Request."""
        head = ENCODE_READ_PACK_1(
            0x60000000 | traffic_class << 20 | (entropy >> 16), 0x281140, addresses, entropy & 0xFFFF, self.udp_port,
            0x28, 0xc00, self.p_key, dest_qp, (128) << 24 | psn, va, rkey, dma_length
        )
        constant = self._constants.get((addresses, 40))
        if constant is None:
            constant = self._constant(addresses, 40)
        packet = head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")
        return packet if len(addresses) == 32 else to_ipv4(packet)

    def encode_response(
        self, addresses: bytes, entropy: int, traffic_class: int, opcode: int, dest_qp: int, psn: int, syndrome: int,
        msn: int, payload: Buffer
    ) -> bytes:
        """Encode one packet of a READ response."""
        size = len(payload)
        pad = -size & 3
        udp_length = size + pad + 24
        if opcode in (13, 15, 16):
            udp_length += 4
        head = ENCODE_RESPONSE_PACK_1(
            0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
            self.udp_port, udp_length, opcode, pad << 4, self.p_key, dest_qp, psn
        )
        if opcode in (13, 15, 16):
            head += ENCODE_RESPONSE_PACK_2(syndrome << 24 | (msn & 0xFFFFFF))
        constant = self._constants.get((addresses, udp_length))
        if constant is None:
            constant = self._constant(addresses, udp_length)
        if self.length_only:
            return head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")
        crc = crc32(payload, crc32(head[40:]))
        if pad:
            crc = crc32(PADS[pad], crc)
        packet = b"".join((head, payload, PADS[pad], (crc ^ constant).to_bytes(4, "little")))
        return packet if len(addresses) == 32 else to_ipv4(packet)

    def encode_atomic(
        self, addresses: bytes, entropy: int, traffic_class: int, opcode: int, dest_qp: int, psn: int, va: int,
        rkey: int, swap_or_add: int, compare: int
    ) -> bytes:
        """Encode an atomic request."""
        head = ENCODE_ATOMIC_PACK_1(
            0x60000000 | traffic_class << 20 | (entropy >> 16), 0x341140, addresses, entropy & 0xFFFF, self.udp_port,
            0x340000, opcode, self.p_key, dest_qp, (128) << 24 | psn, va, rkey, swap_or_add, compare
        )
        constant = self._constants.get((addresses, 52))
        if constant is None:
            constant = self._constant(addresses, 52)
        packet = head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")
        return packet if len(addresses) == 32 else to_ipv4(packet)

    def encode_atomic_ack(
        self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, psn: int, syndrome: int, msn: int,
        original: int
    ) -> bytes:
        """Encode the answer to an atomic request."""
        head = ENCODE_ATOMIC_ACK_PACK_1(
            0x60000000 | traffic_class << 20 | (entropy >> 16), 0x241140, addresses, entropy & 0xFFFF, self.udp_port,
            0x24, 0x1200, self.p_key, dest_qp, psn, syndrome << 24 | (msn & 0xFFFFFF), original
        )
        constant = self._constants.get((addresses, 36))
        if constant is None:
            constant = self._constant(addresses, 36)
        packet = head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")
        return packet if len(addresses) == 32 else to_ipv4(packet)

    def _encode_cnp(self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, payload: Buffer) -> bytes:
        """Encode a CNP, but for BECN."""
        size = len(payload)
        pad = -size & 3
        udp_length = size + pad + 24
        head = ENCODE_CNP_PACK_1(
            0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
            self.udp_port, udp_length, 0x8100 | pad << 4, self.p_key, dest_qp
        )
        constant = self._constants.get((addresses, udp_length))
        if constant is None:
            constant = self._constant(addresses, udp_length)
        if self.length_only:
            return head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")
        crc = crc32(payload, crc32(head[40:]))
        if pad:
            crc = crc32(PADS[pad], crc)
        packet = b"".join((head, payload, PADS[pad], (crc ^ constant).to_bytes(4, "little")))
        return packet if len(addresses) == 32 else to_ipv4(packet)

    def encode_acknowledge(
        self, addresses: bytes, entropy: int, traffic_class: int, dest_qp: int, psn: int, syndrome: int, msn: int
    ) -> bytes:
        """Encode an ACK or NAK."""
        head = ENCODE_ACKNOWLEDGE_PACK_1(
            0x60000000 | traffic_class << 20 | (entropy >> 16), 0x1c1140, addresses, entropy & 0xFFFF, self.udp_port,
            0x1c, 0x1100, self.p_key, dest_qp, psn, syndrome << 24 | (msn & 0xFFFFFF)
        )
        constant = self._constants.get((addresses, 28))
        if constant is None:
            constant = self._constant(addresses, 28)
        packet = head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")
        return packet if len(addresses) == 32 else to_ipv4(packet)


class _Decoder00(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0, view[60:end]
        )


class _Decoder01(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0, view[60:end]
        )


class _Decoder02(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0, view[60:end]
        )


class _Decoder03(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 64:
            raise WireError(LENGTH, "no room for the headers")
        immediate = u32(packet, 60)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, immediate, view[64:end]
        )


class _Decoder04(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0, view[60:end]
        )


class _Decoder05(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 64:
            raise WireError(LENGTH, "no room for the headers")
        immediate = u32(packet, 60)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, immediate, view[64:end]
        )


class _Decoder06(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 76:
            raise WireError(LENGTH, "no room for the headers")
        va = u64(packet, 60)
        rkey = u32(packet, 68)
        dma_length = u32(packet, 72)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, va, rkey, dma_length, 0, view[76:end]
        )


class _Decoder07(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0, view[60:end]
        )


class _Decoder08(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 60:
            raise WireError(LENGTH, "no room for the headers")
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, 0, view[60:end]
        )


class _Decoder09(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 64:
            raise WireError(LENGTH, "no room for the headers")
        immediate = u32(packet, 60)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, 0, 0, 0, immediate, view[64:end]
        )


class _Decoder0A(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 76:
            raise WireError(LENGTH, "no room for the headers")
        va = u64(packet, 60)
        rkey = u32(packet, 68)
        dma_length = u32(packet, 72)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, va, rkey, dma_length, 0, view[76:end]
        )


class _Decoder0B(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceData:
        if end < 80:
            raise WireError(LENGTH, "no room for the headers")
        va = u64(packet, 60)
        rkey = u32(packet, 68)
        dma_length = u32(packet, 72)
        immediate = u32(packet, 76)
        return RoceData(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn & 0x80000000 != 0, flags_psn & 0x100000000 != 0,
            (word & 0xFFFF) << 16 | source_port, ecn == 3, addresses, p_key, va, rkey, dma_length, immediate,
            view[80:end]
        )


class _Decoder0C(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadRequest:
        va = u64(packet, 60)
        rkey = u32(packet, 68)
        dma_length = u32(packet, 72)
        return ReadRequest(opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, va, rkey, dma_length)


class _Decoder0D(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadResponse:
        if end < 64:
            raise WireError(LENGTH, "no room for the headers")
        syndrome_to_msn = u32(packet, 60)
        return ReadResponse(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, syndrome_to_msn >> 24,
            syndrome_to_msn & 0xffffff, view[64:end]
        )


class _Decoder0E(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadResponse:
        if end < 60:
            raise WireError(LENGTH, "no room for the headers")
        return ReadResponse(opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, 0, 0, view[60:end])


class _Decoder0F(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadResponse:
        if end < 64:
            raise WireError(LENGTH, "no room for the headers")
        syndrome_to_msn = u32(packet, 60)
        return ReadResponse(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, syndrome_to_msn >> 24,
            syndrome_to_msn & 0xffffff, view[64:end]
        )


class _Decoder10(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> ReadResponse:
        if end < 64:
            raise WireError(LENGTH, "no room for the headers")
        syndrome_to_msn = u32(packet, 60)
        return ReadResponse(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, syndrome_to_msn >> 24,
            syndrome_to_msn & 0xffffff, view[64:end]
        )


class _Decoder11(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> RoceAck:
        syndrome_to_msn = u32(packet, 60)
        return RoceAck(
            opcode, dest_qp, flags_psn & 0xffffff, addresses, p_key, syndrome_to_msn >> 24, syndrome_to_msn & 0xffffff
        )


class _Decoder12(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> AtomicAck:
        syndrome_to_msn = u32(packet, 60)
        original = u64(packet, 64)
        return AtomicAck(
            opcode, dest_qp, flags_psn & 0xffffff, addresses, p_key, syndrome_to_msn >> 24, syndrome_to_msn & 0xffffff,
            original
        )


class _Decoder13(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> AtomicRequest:
        va = u64(packet, 60)
        rkey = u32(packet, 68)
        swap_or_add = u64(packet, 72)
        compare = u64(packet, 80)
        return AtomicRequest(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, va, rkey, swap_or_add, compare
        )


class _Decoder14(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> AtomicRequest:
        va = u64(packet, 60)
        rkey = u32(packet, 68)
        swap_or_add = u64(packet, 72)
        compare = u64(packet, 80)
        return AtomicRequest(
            opcode, dest_qp, flags_psn & 0xffffff, ecn == 3, addresses, p_key, va, rkey, swap_or_add, compare
        )


class _Decoder81(RoceDecoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, view: Any, end: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Cnp:
        if end < 60:
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
