"""Encoders and decoders of MRC's data path, made from the table of headers by `make codec`."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from types import FunctionType
from typing import Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.proto.wire.encap import to_ipv4
from mrc_host.proto.wire.framing import Buffer, packet
from mrc_host.proto.wire.icrc import Sealing
from mrc_host.proto.wire.messages import Ack, Data, EndpointRequest, EndpointResponse, Message, Nack, Probe, Sack
from mrc_host.proto.wire.packet import Drop, WireError
from mrc_host.proto.wire.reading import i16, part, u8, u16, u32, u64

LENGTH: Final = Drop.LENGTH
HEAD_BYTES: Final = 60
SHORTEST_BYTES: Final = 64
ECN_AT: Final = 20
DSCP_AT: Final = 22
PAD_AT: Final = 4
PAD: Final = 3
PAD_BITS: Final = 48
TVER: Final = 15
LOW_24: Final = 16777215
SE_BITS: Final = 128
FLAGS_AT: Final = 24
ENCODE_DATA_FORM_1: Final = b'!IHH32sHHH2xBBHIIHHHHQIII'
ENCODE_DATA_FORM_2: Final = b'!IHH32sHHH2xBBHIIHHHHQII'
ENCODE_DATA_FORM_3: Final = b'!IHH32sHHH2xBBHIIHHQIII'
ENCODE_DATA_FORM_4: Final = b'!IHH32sHHH2xBBHIIHHQII'
ENCODE_SACK_FORM_1: Final = b'!II32sHHHIHIIHhIHH1xIBhQHHI'
ENCODE_NACK_FORM_1: Final = b'!II32sHHHIHII2xBBIHH1xI1xH'
ENCODE_ACK_FORM_1: Final = b'!II32sHHHIHIII'
ENCODE_PROBE_FORM_1: Final = b'!II32sHHHIHII3xBH2xHHHH'
ENCODE_ENDPOINT_REQUEST_FORM_1: Final = b'!II32sHHHIHIIH1xBI4xHH'
ENCODE_ENDPOINT_RESPONSE_FORM_1: Final = b'!II32sHHHIHIIH26xH6x'
HEAD_FORM: Final = Struct('!IHB1x32sHHH2xBBHII')
DECODE_FORM_1: Final = Struct('!HHH2xQII')
DECODE_FORM_2: Final = Struct('!HHQII')
DECODE_FORM_3: Final = Struct('!HHH2xQIII')
DECODE_FORM_4: Final = Struct('!HHQIII')
DECODE_FORM_5: Final = Struct('!HhIHH1xIBhQHHI')
DECODE_FORM_6: Final = Struct('!2xBBIHH1xI1xH')
DECODE_FORM_7: Final = Struct('!3xBH2xHHH2x')
COMPILED: Final = not isinstance(u64, FunctionType)


class Decoder:
    """The decoder of one opcode: `size` of the whole packet, 0 with a payload; `parse` makes the message."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Message:
        """Return the message behind the head, whose values are given.

        The IPv6 packet begins at `at`; its payload ends at `end`, and is not there if `absent`. Raises WireError, or
        IndexError when the packet is too short.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Encoders(Sealing):
    """A method for each kind of packet; see `signatures.Signatures`."""

    __slots__ = ()

    def encode_data(
        self, addresses: bytes, entropy: int, traffic_class: int, opcode: int, dest_qp: int, psn: int, flags: int,
        rqmsn: int, msn: int, tx_timestamp: int, va: int, rkey: int, dma_length: int, payload: Buffer,
        immediate: int = 0, se: int = 0, begin: int = 0, size: int = -1, outer: bytes = b''
    ) -> bytes:
        """Encode one WRITE packet. TSETH is present unless `tx_timestamp` is NO_TIMESTAMP; FLAG_TS is set to match."""
        if size < 0:
            size = len(payload) - begin
        udp_length = size + (-size & 3) + 44
        if tx_timestamp >= 0:
            udp_length += 4
            if opcode in (201, 203):
                udp_length += 4
                whole = packet(
                    ENCODE_DATA_FORM_1, outer, payload, begin, size, self.length_only,
                    0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                    self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                    (flags | 16) << 24 | psn, rqmsn, msn, tx_timestamp, 0x1, va, rkey, dma_length, immediate
                )
            else:
                whole = packet(
                    ENCODE_DATA_FORM_2, outer, payload, begin, size, self.length_only,
                    0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                    self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                    (flags | 16) << 24 | psn, rqmsn, msn, tx_timestamp, 0x1, va, rkey, dma_length
                )
        else:
            if opcode in (201, 203):
                udp_length += 4
                whole = packet(
                    ENCODE_DATA_FORM_3, outer, payload, begin, size, self.length_only,
                    0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                    self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                    (flags & -17) << 24 | psn, rqmsn, msn, va, rkey, dma_length, immediate
                )
            else:
                whole = packet(
                    ENCODE_DATA_FORM_4, outer, payload, begin, size, self.length_only,
                    0x60000000 | traffic_class << 20 | (entropy >> 16), udp_length, 0x1140, addresses, entropy & 0xFFFF,
                    self.udp_port, udp_length, opcode, se << 7 | (-size & 3) << 4, self.p_key, dest_qp,
                    (flags & -17) << 24 | psn, rqmsn, msn, va, rkey, dma_length
                )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_sack(
        self, addresses: bytes, packet_entropy: int, traffic_class: int, dest_qp: int, flags: int, m: int, pr: int,
        ack_psn_offset: int, entropy: int, spdcid: int, dpdcid: int, cack_psn: int, cc_type: int, cc_flags: int,
        mpr: int, sack_offset: int, sack_bitmap: int, tx_timestamp: int, ooo_count: int, restore_cwnd: int,
        rcv_cwnd_pen: int, rcvd_bytes: int, outer: bytes = b''
    ) -> bytes:
        """Encode a SACK. BTH.PSN is `cack_psn`. With `pr` the probe id goes where `ack_psn_offset` is."""
        whole = packet(
            ENCODE_SACK_FORM_1, outer, None, 0, 0, False, 0x60000000 | traffic_class << 20 | (packet_entropy >> 16),
            0x3c1140, addresses, packet_entropy & 0xFFFF, self.udp_port, 0x3c, 0xdc00, self.p_key, dest_qp,
            flags << 24 | cack_psn, m << 5 | pr << 1,
            ack_psn_offset if ack_psn_offset <= 0x7FFF or not pr else ack_psn_offset - 0x10000, entropy, spdcid, dpdcid,
            cack_psn << 8 | cc_type << 4 | cc_flags, mpr, sack_offset, sack_bitmap, tx_timestamp, ooo_count,
            restore_cwnd << 31 | rcv_cwnd_pen << 24 | rcvd_bytes
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_nack(
        self, addresses: bytes, packet_entropy: int, traffic_class: int, dest_qp: int, nack_psn: int, nack_reason: int,
        entropy: int, spdcid: int, dpdcid: int, tx_timestamp: int, *, flags: int = 0, vendor_info: int = 0,
        cc_type: int = 2, cc_flags: int = 0, outer: bytes = b''
    ) -> bytes:
        """Encode a NACK. BTH.PSN is `nack_psn`."""
        whole = packet(
            ENCODE_NACK_FORM_1, outer, None, 0, 0, False, 0x60000000 | traffic_class << 20 | (packet_entropy >> 16),
            0x2c1140, addresses, packet_entropy & 0xFFFF, self.udp_port, 0x2c, 0xdd00, self.p_key, dest_qp,
            flags << 24 | nack_psn, nack_reason, vendor_info, entropy, spdcid, dpdcid,
            nack_psn << 8 | cc_type << 4 | cc_flags, max(tx_timestamp, 0)
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_ack(
        self, addresses: bytes, packet_entropy: int, traffic_class: int, dest_qp: int, psn: int, syndrome: int,
        msn: int, outer: bytes = b''
    ) -> bytes:
        """Encode a transport ACK or NAK of everything up to `psn`."""
        whole = packet(
            ENCODE_ACK_FORM_1, outer, None, 0, 0, False, 0x60000000 | traffic_class << 20 | (packet_entropy >> 16),
            0x1c1140, addresses, packet_entropy & 0xFFFF, self.udp_port, 0x1c, 0xd100, self.p_key, dest_qp, psn,
            syndrome << 24 | msn
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_probe(
        self, addresses: bytes, packet_entropy: int, traffic_class: int, dest_qp: int, probe_id: int, spdcid: int,
        dpdcid: int, tx_timestamp: int, *, psn: int = 0, vendor_info: int = 0, outer: bytes = b''
    ) -> bytes:
        """Encode a RELIABILITY PROBE REQUEST; it consumes no PSN."""
        whole = packet(
            ENCODE_PROBE_FORM_1, outer, None, 0, 0, False, 0x60000000 | traffic_class << 20 | (packet_entropy >> 16),
            0x281140, addresses, packet_entropy & 0xFFFF, self.udp_port, 0x28, 0xde00, self.p_key, dest_qp, psn,
            vendor_info, probe_id, spdcid, dpdcid, tx_timestamp, 0x1
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_endpoint_request(
        self, addresses: bytes, packet_entropy: int, traffic_class: int, request_id: int, op: int,
        port_status_mask: int, tx_timestamp: int, *, dest_qp: int = 2, vendor_info: int = 0, outer: bytes = b''
    ) -> bytes:
        """Encode a port status update (op 0) or EV probe (op 1)."""
        whole = packet(
            ENCODE_ENDPOINT_REQUEST_FORM_1, outer, None, 0, 0, False,
            0x60000000 | traffic_class << 20 | (packet_entropy >> 16), 0x281140, addresses, packet_entropy & 0xFFFF,
            self.udp_port, 0x28, 0xd800, self.p_key, dest_qp, request_id, op, vendor_info, port_status_mask,
            tx_timestamp, 0x1
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)

    def encode_endpoint_response(
        self, addresses: bytes, packet_entropy: int, traffic_class: int, request_id: int, op: int, tx_timestamp: int, *,
        dest_qp: int = 2, outer: bytes = b''
    ) -> bytes:
        """Answer the request whose id it echoes."""
        whole = packet(
            ENCODE_ENDPOINT_RESPONSE_FORM_1, outer, None, 0, 0, False,
            0x60000000 | traffic_class << 20 | (packet_entropy >> 16), 0x3c1140, addresses, packet_entropy & 0xFFFF,
            self.udp_port, 0x3c, 0xd900, self.p_key, dest_qp, request_id, op << 2, tx_timestamp
        )
        return whole if len(addresses) == 32 else to_ipv4(whole)


def parse_trimmed(
    packet: bytes, at: i64, trimmed: int, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64, source_port: i64,
    ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
) -> Data:
    """Return the message of a packet that a switch trimmed, with the headers that survived."""
    total = len(packet)
    at += 60
    rqmsn = 0
    msn = 0
    tx_timestamp = -1
    va = 0
    rkey = 0
    dma_length = 0
    if total >= at + 4:
        rqmsn = u16(packet, at)
        msn = u16(packet, at + 2)
        at += 4
    if flags_psn & 0x10000000 and total >= at + 4:
        tx_timestamp = u16(packet, at)
        at += 4
    if total >= at + 16:
        va = u64(packet, at)
        rkey = u32(packet, at + 8)
        dma_length = u32(packet, at + 12)
        at += 16
    return Data(
        opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
        addresses, p_key, udp_length + 40, rqmsn, msn, tx_timestamp, va, rkey, dma_length, 0, memoryview(b""), trimmed
    )


def read_head(packet: bytes, at: i64) -> tuple[i64, i64, i64, bytes, i64, i64, i64, i64, i64, i64, i64, i64]:
    """Return the words of the IPv6, UDP and BTH headers that begin at a place; all of them are there."""
    if not COMPILED:
        return HEAD_FORM.unpack_from(packet, at)
    return (
        u32(packet, at),  # version, traffic_class, flow_label
        u16(packet, at + 4),  # payload_length
        u8(packet, at + 6),  # next_header
        packet[at + 8:at + 40],  # addresses
        u16(packet, at + 40),  # src_port
        u16(packet, at + 42),  # dst_port
        u16(packet, at + 44),  # length
        u8(packet, at + 48),  # opcode
        u8(packet, at + 49),  # se, migreq, pad, tver
        u16(packet, at + 50),  # p_key
        u32(packet, at + 52),  # resv8a, dest_qp
        u32(packet, at + 56),  # flags, psn
    )


class _DecoderC6(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Data:
        if flags_psn & 0x10000000:
            if end < at + 84:
                raise WireError(LENGTH, "no room for the headers")
            if COMPILED:
                rqmsn = u16(packet, at + 60)
                msn = u16(packet, at + 62)
                tx_timestamp = u16(packet, at + 64)
                va = u64(packet, at + 68)
                rkey = u32(packet, at + 76)
                dma_length = u32(packet, at + 80)
            else:
                rqmsn, msn, tx_timestamp, va, rkey, dma_length = DECODE_FORM_1.unpack_from(packet, at + 60)
            return Data(
                opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3,
                dscp, addresses, p_key, udp_length + 40, rqmsn, msn, tx_timestamp, va, rkey, dma_length, 0,
                part(packet, at + 84, end, absent)
            )
        if end < at + 80:
            raise WireError(LENGTH, "no room for the headers")
        if COMPILED:
            rqmsn = u16(packet, at + 60)
            msn = u16(packet, at + 62)
            va = u64(packet, at + 64)
            rkey = u32(packet, at + 72)
            dma_length = u32(packet, at + 76)
        else:
            rqmsn, msn, va, rkey, dma_length = DECODE_FORM_2.unpack_from(packet, at + 60)
        return Data(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, udp_length + 40, rqmsn, msn, -1, va, rkey, dma_length, 0,
            part(packet, at + 80, end, absent)
        )


class _DecoderC7(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Data:
        if flags_psn & 0x10000000:
            if end < at + 84:
                raise WireError(LENGTH, "no room for the headers")
            if COMPILED:
                rqmsn = u16(packet, at + 60)
                msn = u16(packet, at + 62)
                tx_timestamp = u16(packet, at + 64)
                va = u64(packet, at + 68)
                rkey = u32(packet, at + 76)
                dma_length = u32(packet, at + 80)
            else:
                rqmsn, msn, tx_timestamp, va, rkey, dma_length = DECODE_FORM_1.unpack_from(packet, at + 60)
            return Data(
                opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3,
                dscp, addresses, p_key, udp_length + 40, rqmsn, msn, tx_timestamp, va, rkey, dma_length, 0,
                part(packet, at + 84, end, absent)
            )
        if end < at + 80:
            raise WireError(LENGTH, "no room for the headers")
        if COMPILED:
            rqmsn = u16(packet, at + 60)
            msn = u16(packet, at + 62)
            va = u64(packet, at + 64)
            rkey = u32(packet, at + 72)
            dma_length = u32(packet, at + 76)
        else:
            rqmsn, msn, va, rkey, dma_length = DECODE_FORM_2.unpack_from(packet, at + 60)
        return Data(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, udp_length + 40, rqmsn, msn, -1, va, rkey, dma_length, 0,
            part(packet, at + 80, end, absent)
        )


class _DecoderC8(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Data:
        if flags_psn & 0x10000000:
            if end < at + 84:
                raise WireError(LENGTH, "no room for the headers")
            if COMPILED:
                rqmsn = u16(packet, at + 60)
                msn = u16(packet, at + 62)
                tx_timestamp = u16(packet, at + 64)
                va = u64(packet, at + 68)
                rkey = u32(packet, at + 76)
                dma_length = u32(packet, at + 80)
            else:
                rqmsn, msn, tx_timestamp, va, rkey, dma_length = DECODE_FORM_1.unpack_from(packet, at + 60)
            return Data(
                opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3,
                dscp, addresses, p_key, udp_length + 40, rqmsn, msn, tx_timestamp, va, rkey, dma_length, 0,
                part(packet, at + 84, end, absent)
            )
        if end < at + 80:
            raise WireError(LENGTH, "no room for the headers")
        if COMPILED:
            rqmsn = u16(packet, at + 60)
            msn = u16(packet, at + 62)
            va = u64(packet, at + 64)
            rkey = u32(packet, at + 72)
            dma_length = u32(packet, at + 76)
        else:
            rqmsn, msn, va, rkey, dma_length = DECODE_FORM_2.unpack_from(packet, at + 60)
        return Data(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, udp_length + 40, rqmsn, msn, -1, va, rkey, dma_length, 0,
            part(packet, at + 80, end, absent)
        )


class _DecoderC9(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Data:
        if flags_psn & 0x10000000:
            if end < at + 88:
                raise WireError(LENGTH, "no room for the headers")
            if COMPILED:
                rqmsn = u16(packet, at + 60)
                msn = u16(packet, at + 62)
                tx_timestamp = u16(packet, at + 64)
                va = u64(packet, at + 68)
                rkey = u32(packet, at + 76)
                dma_length = u32(packet, at + 80)
                immediate = u32(packet, at + 84)
            else:
                rqmsn, msn, tx_timestamp, va, rkey, dma_length, immediate = DECODE_FORM_3.unpack_from(packet, at + 60)
            return Data(
                opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3,
                dscp, addresses, p_key, udp_length + 40, rqmsn, msn, tx_timestamp, va, rkey, dma_length, immediate,
                part(packet, at + 88, end, absent)
            )
        if end < at + 84:
            raise WireError(LENGTH, "no room for the headers")
        if COMPILED:
            rqmsn = u16(packet, at + 60)
            msn = u16(packet, at + 62)
            va = u64(packet, at + 64)
            rkey = u32(packet, at + 72)
            dma_length = u32(packet, at + 76)
            immediate = u32(packet, at + 80)
        else:
            rqmsn, msn, va, rkey, dma_length, immediate = DECODE_FORM_4.unpack_from(packet, at + 60)
        return Data(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, udp_length + 40, rqmsn, msn, -1, va, rkey, dma_length, immediate,
            part(packet, at + 84, end, absent)
        )


class _DecoderCA(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Data:
        if flags_psn & 0x10000000:
            if end < at + 84:
                raise WireError(LENGTH, "no room for the headers")
            if COMPILED:
                rqmsn = u16(packet, at + 60)
                msn = u16(packet, at + 62)
                tx_timestamp = u16(packet, at + 64)
                va = u64(packet, at + 68)
                rkey = u32(packet, at + 76)
                dma_length = u32(packet, at + 80)
            else:
                rqmsn, msn, tx_timestamp, va, rkey, dma_length = DECODE_FORM_1.unpack_from(packet, at + 60)
            return Data(
                opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3,
                dscp, addresses, p_key, udp_length + 40, rqmsn, msn, tx_timestamp, va, rkey, dma_length, 0,
                part(packet, at + 84, end, absent)
            )
        if end < at + 80:
            raise WireError(LENGTH, "no room for the headers")
        if COMPILED:
            rqmsn = u16(packet, at + 60)
            msn = u16(packet, at + 62)
            va = u64(packet, at + 64)
            rkey = u32(packet, at + 72)
            dma_length = u32(packet, at + 76)
        else:
            rqmsn, msn, va, rkey, dma_length = DECODE_FORM_2.unpack_from(packet, at + 60)
        return Data(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, udp_length + 40, rqmsn, msn, -1, va, rkey, dma_length, 0,
            part(packet, at + 80, end, absent)
        )


class _DecoderCB(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Data:
        if flags_psn & 0x10000000:
            if end < at + 88:
                raise WireError(LENGTH, "no room for the headers")
            if COMPILED:
                rqmsn = u16(packet, at + 60)
                msn = u16(packet, at + 62)
                tx_timestamp = u16(packet, at + 64)
                va = u64(packet, at + 68)
                rkey = u32(packet, at + 76)
                dma_length = u32(packet, at + 80)
                immediate = u32(packet, at + 84)
            else:
                rqmsn, msn, tx_timestamp, va, rkey, dma_length, immediate = DECODE_FORM_3.unpack_from(packet, at + 60)
            return Data(
                opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3,
                dscp, addresses, p_key, udp_length + 40, rqmsn, msn, tx_timestamp, va, rkey, dma_length, immediate,
                part(packet, at + 88, end, absent)
            )
        if end < at + 84:
            raise WireError(LENGTH, "no room for the headers")
        if COMPILED:
            rqmsn = u16(packet, at + 60)
            msn = u16(packet, at + 62)
            va = u64(packet, at + 64)
            rkey = u32(packet, at + 72)
            dma_length = u32(packet, at + 76)
            immediate = u32(packet, at + 80)
        else:
            rqmsn, msn, va, rkey, dma_length, immediate = DECODE_FORM_4.unpack_from(packet, at + 60)
        return Data(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, udp_length + 40, rqmsn, msn, -1, va, rkey, dma_length, immediate,
            part(packet, at + 84, end, absent)
        )


class _DecoderD1(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Ack:
        syndrome_to_msn = u32(packet, at + 60)
        return Ack(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, syndrome_to_msn >> 24, syndrome_to_msn & 0xffffff
        )


class _DecoderD8(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> EndpointRequest:
        erth_type_to_op = u16(packet, at + 60)
        vendor_info = u8(packet, at + 63)
        port_status_mask = u32(packet, at + 64)
        tx_timestamp = u16(packet, at + 72)
        return EndpointRequest(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, erth_type_to_op & 0x3, vendor_info, port_status_mask, tx_timestamp
        )


class _DecoderD9(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> EndpointResponse:
        eeth_zero12_to_eeth_zero2 = u16(packet, at + 60)
        tx_timestamp = u16(packet, at + 88)
        return EndpointResponse(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, eeth_zero12_to_eeth_zero2 >> 2 & 0x3, tx_timestamp
        )


class _DecoderDC(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Sack:
        if COMPILED:
            seth_type_to_seth_r1 = u16(packet, at + 60)
            ack_psn_offset = i16(packet, at + 62)
            entropy = u32(packet, at + 64)
            spdcid = u16(packet, at + 68)
            dpdcid = u16(packet, at + 70)
            cack_psn_to_cc_flags = u32(packet, at + 73)
            mpr = u8(packet, at + 77)
            sack_offset = i16(packet, at + 78)
            sack_bitmap = u64(packet, at + 80)
            tx_timestamp = u16(packet, at + 88)
            cc_r1_to_ooo_count = u16(packet, at + 90)
            restore_cwnd_to_rcvd_bytes = u32(packet, at + 92)
        else:
            seth_type_to_seth_r1, ack_psn_offset, entropy, spdcid, dpdcid, cack_psn_to_cc_flags, mpr, sack_offset, sack_bitmap, tx_timestamp, cc_r1_to_ooo_count, restore_cwnd_to_rcvd_bytes = DECODE_FORM_5.unpack_from(
                packet, at + 60
            )
        return Sack(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, seth_type_to_seth_r1 >> 5 & 0x3, seth_type_to_seth_r1 >> 1 & 0x1, ack_psn_offset, entropy,
            spdcid, dpdcid, cack_psn_to_cc_flags >> 8, cack_psn_to_cc_flags >> 4 & 0xf, cack_psn_to_cc_flags & 0xf, mpr,
            sack_offset, sack_bitmap, tx_timestamp, cc_r1_to_ooo_count & 0x7fff, restore_cwnd_to_rcvd_bytes >> 31,
            restore_cwnd_to_rcvd_bytes >> 24 & 0x7f, restore_cwnd_to_rcvd_bytes & 0xffffff
        )


class _DecoderDD(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Nack:
        if COMPILED:
            nack_reason = u8(packet, at + 62)
            vendor_info = u8(packet, at + 63)
            entropy = u32(packet, at + 64)
            spdcid = u16(packet, at + 68)
            dpdcid = u16(packet, at + 70)
            nack_psn_to_cc_flags = u32(packet, at + 73)
            tx_timestamp = u16(packet, at + 78)
        else:
            nack_reason, vendor_info, entropy, spdcid, dpdcid, nack_psn_to_cc_flags, tx_timestamp = DECODE_FORM_6.unpack_from(
                packet, at + 60
            )
        return Nack(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, nack_reason, vendor_info, entropy, spdcid, dpdcid, nack_psn_to_cc_flags >> 8,
            nack_psn_to_cc_flags >> 4 & 0xf, nack_psn_to_cc_flags & 0xf, tx_timestamp
        )


class _DecoderDE(Decoder):
    __slots__ = ()

    def parse(
        self, packet: bytes, at: i64, end: i64, absent: bool, opcode: i64, dest_qp: i64, flags_psn: i64, word: i64,
        source_port: i64, ecn: i64, dscp: i64, addresses: bytes, p_key: i64, udp_length: i64
    ) -> Probe:
        if COMPILED:
            vendor_info = u8(packet, at + 63)
            probe_id = u16(packet, at + 64)
            spdcid = u16(packet, at + 68)
            dpdcid = u16(packet, at + 70)
            tx_timestamp = u16(packet, at + 72)
        else:
            vendor_info, probe_id, spdcid, dpdcid, tx_timestamp = DECODE_FORM_7.unpack_from(packet, at + 60)
        return Probe(
            opcode, dest_qp, flags_psn & 0xffffff, flags_psn >> 24, (word & 0xFFFF) << 16 | source_port, ecn == 3, dscp,
            addresses, p_key, vendor_info, probe_id, spdcid, dpdcid, tx_timestamp, udp_length + 40
        )


DECODERS: Final[dict[int, Decoder]] = {
    0xc6: _DecoderC6(0),  # WRITE First
    0xc7: _DecoderC7(0),  # WRITE Middle
    0xc8: _DecoderC8(0),  # WRITE Last
    0xc9: _DecoderC9(0),  # WRITE Last with Immediate
    0xca: _DecoderCA(0),  # WRITE Only
    0xcb: _DecoderCB(0),  # WRITE Only with Immediate
    0xd1: _DecoderD1(68),  # ACKNOWLEDGE
    0xd8: _DecoderD8(80),  # ENDPOINT REQUEST
    0xd9: _DecoderD9(100),  # ENDPOINT RESPONSE
    0xdc: _DecoderDC(100),  # RELIABILITY SACK
    0xdd: _DecoderDD(84),  # RELIABILITY NACK
    0xde: _DecoderDE(80),  # RELIABILITY PROBE REQUEST
}
ENCODERS: Final[dict[int, Callable[..., bytes]]] = {
    0xc6: Encoders.encode_data,
    0xc7: Encoders.encode_data,
    0xc8: Encoders.encode_data,
    0xc9: Encoders.encode_data,
    0xca: Encoders.encode_data,
    0xcb: Encoders.encode_data,
    0xdc: Encoders.encode_sack,
    0xdd: Encoders.encode_nack,
    0xd1: Encoders.encode_ack,
    0xde: Encoders.encode_probe,
    0xd8: Encoders.encode_endpoint_request,
    0xd9: Encoders.encode_endpoint_response,
}
