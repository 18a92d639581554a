"""The wire codec of the data path: one struct pack or unpack per packet (mrc-protocol.md §2, §3).

The endpoint speaks in the light objects of `messages.py` (`Data`, `Sack`, ...). What depends on a header's fields is
made from the table by `compiled.py`. The readable, complete codec is `packet.py`; tests hold one against the other.

A frame here is an IPv6 (or IPv4) packet without Ethernet header. `addresses` is source and destination, 16 + 16
bytes (4 + 4 on IPv4). `traffic_class` is DSCP << 2 | ECN. `entropy` is the 32-bit EV the packet travels with.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from mrc_host.proto.wire import packet as full
from mrc_host.proto.wire.compiled import (
    DSCP_AT,
    ECN_AT,
    HEAD,
    HEAD_BYTES,
    LOW_24,
    PAD,
    PAD_AT,
    PAD_BITS,
    SHORTEST_BYTES,
    TVER,
    Decoder,
    decoder,
    encoder,
    trimmed_decoder,
)  # fmt: skip
from mrc_host.proto.wire.crc import crc32
from mrc_host.proto.wire.encap import encapsulation_length
from mrc_host.proto.wire.fields import (
    MRC_LAYOUTS,
    MRC_UDP_PORT,
    NEXT_UDP,
    Dscp,
    Ecn,
    Ipv4,
    NackReason,
    Opcode,
)
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_RTX, FLAG_TS, MESSAGES, NO_TIMESTAMP, Data, Message
from mrc_host.proto.wire.packet import Drop, WireError

Buffer: TypeAlias = bytes | bytearray | memoryview

SMALL: Final = 128  # up to here a copy is cheaper than a view

_WRITES = tuple(opcode for opcode, layout in MRC_LAYOUTS.items() if layout.payload)
_DECODERS: Final[dict[int, Decoder[Message]]] = {
    opcode: decoder(layout, MESSAGES[opcode]) for opcode, layout in MRC_LAYOUTS.items()
}
_PARSE_TRIMMED: Final = trimmed_decoder((MRC_LAYOUTS[opcode] for opcode in _WRITES), Data)
# The constants are at most a few hundred per peer; more means forged addresses, so start again.
_MAX_CONSTANTS = 8192


def icrc_constant(addresses: bytes, udp_length: int) -> int:
    """What turns a plain CRC into the ICRC for these addresses and this UDP length.

    The ICRC is the CRC-32 of eight bytes of ones, the IP header and UDP and BTH with their variant fields as
    ones, and the rest. CRC is linear, so with UDP checksum and BTH.resv8a sent as 0 it equals the plain
    CRC-32 from the UDP header on, XOR a value that depends only on the invariant IP fields and the length.
    """
    ip_version_6 = b"\x6f\xff\xff\xff" + udp_length.to_bytes(2, "big") + b"\x11\xff" + addresses
    covered = udp_length - 4
    ones = bytearray(covered)
    ones[6:8] = b"\xff\xff"  # UDP checksum
    ones[12] = 0xFF  # BTH.resv8a
    return crc32(ones, crc32(b"\xff" * 8 + ip_version_6)) ^ crc32(bytes(covered))


class Codec:
    """Encodes and decodes for one endpoint. It holds its configuration and a bounded cache, no protocol state."""

    __slots__ = ("_constants", "check_icrc", "dscp_lasthop", "dscp_trimmed", "p_key", "udp_port")

    def __init__(
        self,
        *,
        udp_port: int = MRC_UDP_PORT,
        p_key: int = 0xFFFF,
        dscp_trimmed: int = Dscp.TRIMMED,
        dscp_lasthop: int = Dscp.TRIMMED_LASTHOP,
        check_icrc: bool = True,
    ) -> None:
        self.udp_port = udp_port
        self.p_key = p_key
        self.check_icrc = check_icrc
        self.dscp_trimmed = int(dscp_trimmed)
        self.dscp_lasthop = int(dscp_lasthop)
        self._constants: dict[tuple[bytes, int], int] = {}

    def _constant(self, addresses: bytes, udp_length: int) -> int:
        if len(self._constants) >= _MAX_CONSTANTS:
            self._constants.clear()
        value = self._constants[addresses, udp_length] = icrc_constant(addresses, udp_length)
        return value

    @encoder(*_WRITES)
    def encode_data(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        flags: int,
        rqmsn: int,
        msn: int,
        tx_timestamp: int,
        va: int,
        rkey: int,
        dma_length: int,
        payload: Buffer,
        immediate: int = 0,
    ) -> bytes:
        """One WRITE packet. TSETH is present unless `tx_timestamp` is NO_TIMESTAMP; FLAG_TS is set to match."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(
        Opcode.SACK,
        psn="cack_psn",
        ack_psn_offset="ack_psn_offset if ack_psn_offset <= 0x7FFF or not pr else ack_psn_offset - 0x10000",
    )
    def encode_sack(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        dest_qp: int,
        flags: int,
        m: int,
        pr: int,
        ack_psn_offset: int,
        entropy: int,
        spdcid: int,
        dpdcid: int,
        cack_psn: int,
        cc_type: int,
        cc_flags: int,
        mpr: int,
        sack_offset: int,
        sack_bitmap: int,
        tx_timestamp: int,
        ooo_count: int,
        restore_cwnd: int,
        rcv_cwnd_pen: int,
        rcvd_bytes: int,
    ) -> bytes:
        """BTH.PSN is `cack_psn`. With `pr` the probe id goes where `ack_psn_offset` is."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(Opcode.NACK, psn="nack_psn", tx_timestamp="max(tx_timestamp, 0)")
    def encode_nack(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        dest_qp: int,
        nack_psn: int,
        nack_reason: int,
        entropy: int,
        spdcid: int,
        dpdcid: int,
        tx_timestamp: int,
        *,
        flags: int = 0,
        vendor_info: int = 0,
        cc_type: int = 2,
        cc_flags: int = 0,
    ) -> bytes:
        """BTH.PSN is `nack_psn`."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(Opcode.ACK)
    def encode_ack(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        dest_qp: int,
        psn: int,
        syndrome: int,
        msn: int,
    ) -> bytes:
        """Transport ACK or NAK of everything up to `psn`."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(Opcode.PROBE)
    def encode_probe(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        dest_qp: int,
        probe_id: int,
        spdcid: int,
        dpdcid: int,
        tx_timestamp: int,
        *,
        psn: int = 0,
        vendor_info: int = 0,
    ) -> bytes:
        """RELIABILITY PROBE REQUEST; it consumes no PSN."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(Opcode.ENDPOINT_REQUEST, psn="request_id")
    def encode_endpoint_request(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        request_id: int,
        op: int,
        port_status_mask: int,
        tx_timestamp: int,
        *,
        dest_qp: int = 2,
        vendor_info: int = 0,
    ) -> bytes:
        """Port status update (op 0) or EV probe (op 1)."""
        raise NotImplementedError  # see compiled.encoder

    @encoder(Opcode.ENDPOINT_RESPONSE, psn="request_id")
    def encode_endpoint_response(
        self,
        addresses: bytes,
        packet_entropy: int,
        traffic_class: int,
        request_id: int,
        op: int,
        tx_timestamp: int,
        *,
        dest_qp: int = 2,
    ) -> bytes:
        """Answers the request whose id it echoes."""
        raise NotImplementedError  # see compiled.encoder

    def decode(self, packet: bytes) -> Message:
        """The message in an IPv6 or IPv4 packet, SRv6 encapsulation taken off. Raises WireError, nothing else."""
        total = len(packet)
        if total < HEAD_BYTES or packet[0] >> 4 != 6:
            return self._decode_fully(packet)
        (
            word, length, next_header, addresses, source_port, port, udp_length, checksum,
            opcode, bits, p_key, dest_qp, flags_psn,
        ) = HEAD.unpack_from(packet)  # fmt: skip
        if length != total - 40:
            raise WireError(Drop.SHORT if length > total - 40 else Drop.TRAILING, f"{total} bytes of IP packet")
        dscp = word >> DSCP_AT & 0x3F
        ecn = word >> ECN_AT & 3
        if next_header != NEXT_UDP:
            packet = packet[encapsulation_length(packet, next_header) :]
            total = len(packet)
            if total < HEAD_BYTES or packet[0] >> 4 != 6:
                raise WireError(Drop.SHORT, "inside SRv6")
            (
                word, length, next_header, addresses, source_port, port, udp_length, checksum,
                opcode, bits, p_key, dest_qp, flags_psn,
            ) = HEAD.unpack_from(packet)  # fmt: skip
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
                raise WireError(Drop.TRIMMED_CONTROL if opcode in _DECODERS else Drop.OPCODE, f"{opcode:#04x}")
            return _PARSE_TRIMMED(
                packet, trimmed, opcode, dest_qp & LOW_24, flags_psn, word, source_port, ecn, dscp,
                addresses, p_key, udp_length,
            )  # fmt: skip
        if total < SHORTEST_BYTES:
            raise WireError(Drop.LENGTH, "no room for the ICRC")
        view = packet if total <= SMALL else memoryview(packet)
        if checksum or dest_qp > LOW_24:  # fields that the shortcut takes for 0
            dest_qp &= LOW_24
            if self.check_icrc and full.icrc(packet[:40], packet[40:-4]) != packet[-4:]:
                raise WireError(Drop.ICRC, "mismatch")
        elif self.check_icrc:
            constant = self._constants.get((addresses, udp_length))
            if constant is None:
                constant = self._constant(addresses, udp_length)
            if crc32(view[40:-4]) ^ constant != int.from_bytes(packet[-4:], "little"):
                raise WireError(Drop.ICRC, "mismatch")
        found = _DECODERS.get(opcode)
        if found is None:
            raise WireError(Drop.OPCODE, f"{opcode:#04x} is none of ours")
        size, parse = found
        end = total - 4
        if size:
            if size != total or bits & PAD_BITS:
                raise WireError(Drop.LENGTH, f"{total} bytes where {size} should be")
        else:
            if total & 3:
                raise WireError(Drop.LENGTH, f"{total} bytes: the payload is not padded to words")
            if bits:
                end -= bits >> PAD_AT & PAD
            if total <= SMALL:
                view = memoryview(packet)
        try:
            return parse(
                view, end, opcode, dest_qp, flags_psn, word, source_port, ecn, dscp, addresses, p_key,
                udp_length,
            )  # fmt: skip
        except struct.error:
            raise WireError(Drop.LENGTH, f"{total} bytes are too few for opcode {opcode:#04x}") from None

    def _decode_fully(self, packet: bytes) -> Message:
        """IPv4, and whatever is too odd for the fast path, by the complete codec."""
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
            "flags": bth.ack_req * FLAG_ACK_REQ | bth.rtx * FLAG_RTX | bth.ts * FLAG_TS,
            "packet_entropy": whole.entropy,
            "ce": ip.ecn == Ecn.CE,
            "dscp": ip.dscp,
            "addresses": ip.src.to_bytes(width, "big") + ip.dst.to_bytes(width, "big"),
            "p_key": bth.p_key,
            "size": whole.udp.length + 40,
        }
        kind = MESSAGES[bth.opcode]
        return kind(**{item.name: values.get(item.name, 0) for item in dataclasses.fields(kind)})


#: The methods of `Codec` that encode each opcode.
ENCODERS: Final[dict[int, Callable[..., bytes]]] = {
    opcode: method for method in vars(Codec).values() for opcode in getattr(method, "opcodes", ())
}
