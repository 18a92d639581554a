"""The wire codec of the data path: one struct pack or unpack per packet (mrc-protocol.md §2, §3).

The endpoint speaks in the light objects below (`Data`, `Sack`, ...). The readable, complete codec, one dataclass
per header, generated from the field table, is `packet.py`; tests hold the two against each other and the table.

A frame here is an IPv6 (or IPv4) packet without Ethernet header. `addresses` is source and destination, 16 + 16
bytes (4 + 4 on IPv4). `traffic_class` is DSCP << 2 | ECN. `entropy` is the 32-bit EV the packet travels with.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias
from zlib import crc32

from mrc_host.proto.fields import MRC_LAYOUTS, MRC_UDP_PORT, Dscp, Opcode

FLAG_ACK_REQ: Final = 0x80
FLAG_RTX: Final = 0x20
FLAG_TS: Final = 0x10
NO_TIMESTAMP: Final = -1

Buffer: TypeAlias = bytes | bytearray | memoryview


class Drop(StrEnum):
    """Why a packet is refused before it reaches a QP; counted by the endpoint under this name."""

    SHORT = "short"  # fewer bytes than the headers or the outermost length ask for
    TRAILING = "trailing_bytes"  # more bytes than the outermost length says
    VERSION = "ip_version"
    NEXT_HEADER = "next_header"
    PORT = "udp_port"
    LENGTH = "length"  # inner lengths, padding and opcode contradict each other
    TVER = "transport_version"
    OPCODE = "opcode"
    ICRC = "icrc"
    TRIMMED_CONTROL = "trimmed_control"  # only data may be trimmed


class WireError(Exception):
    """A packet that is not decoded: `reason` says why, the text says where."""

    def __init__(self, reason: Drop, text: str = "") -> None:
        super().__init__(f"{reason.value}: {text}" if text else reason.value)
        self.reason = reason


@dataclass(slots=True)
class Data:
    """One WRITE packet. `trimmed`: 0, or the NackReason to answer with; then only what survived the cut is set
    (`tx_timestamp` is NO_TIMESTAMP and the rest 0 when it did not), and no ICRC has vouched for any of it."""

    opcode: int
    dest_qp: int
    psn: int
    flags: int  # FLAG_ACK_REQ | FLAG_RTX | FLAG_TS
    entropy: int
    ce: bool
    dscp: int
    addresses: bytes
    p_key: int
    size: int  # nominal: UDP length + 40, before any trimming
    rqmsn: int
    msn: int
    tx_timestamp: int  # NO_TIMESTAMP without TSETH
    va: int
    rkey: int
    dma_length: int
    immediate: int
    payload: memoryview
    trimmed: int = 0


@dataclass(slots=True)
class Sack:
    """RELIABILITY SACK: SETH and CC_STATE. `packet_entropy` is the EV it came on, `entropy` the one it reports."""

    opcode: int
    dest_qp: int
    psn: int
    flags: int
    packet_entropy: int
    ce: bool
    dscp: int
    addresses: bytes
    p_key: int
    m: int
    pr: int
    ack_psn_offset: int  # signed; of a probe response the probe id (see probe_id)
    entropy: int
    spdcid: int
    dpdcid: int
    cack_psn: int
    cc_type: int
    cc_flags: int
    mpr: int
    sack_offset: int  # signed
    sack_bitmap: int
    tx_timestamp: int
    ooo_count: int
    restore_cwnd: int
    rcv_cwnd_pen: int
    rcvd_bytes: int  # units of 256 bytes, modulo 2^24

    @property
    def probe_id(self) -> int:
        """The probe answered; meaningful when `pr` is set."""
        return self.ack_psn_offset & 0xFFFF


@dataclass(slots=True)
class Nack:
    """RELIABILITY NACK. `packet_entropy` is the EV it came on, `entropy` that of the packet refused."""

    opcode: int
    dest_qp: int
    psn: int
    flags: int
    packet_entropy: int
    ce: bool
    dscp: int
    addresses: bytes
    p_key: int
    nack_reason: int
    vendor_info: int
    entropy: int
    spdcid: int
    dpdcid: int
    nack_psn: int
    cc_type: int
    cc_flags: int
    tx_timestamp: int


@dataclass(slots=True)
class Ack:
    """Transport ACKNOWLEDGE."""

    opcode: int
    dest_qp: int
    psn: int
    flags: int
    packet_entropy: int
    ce: bool
    dscp: int
    addresses: bytes
    p_key: int
    syndrome: int
    msn: int


@dataclass(slots=True)
class Probe:
    """RELIABILITY PROBE REQUEST; `size` is nominal, UDP length + 40."""

    opcode: int
    dest_qp: int
    psn: int
    flags: int
    packet_entropy: int
    ce: bool
    dscp: int
    addresses: bytes
    p_key: int
    vendor_info: int
    probe_id: int
    spdcid: int
    dpdcid: int
    tx_timestamp: int
    size: int = 80


@dataclass(slots=True)
class EndpointRequest:
    """ENDPOINT REQUEST: port status update or EV probe; the request id is psn & 0xFFFF."""

    opcode: int
    dest_qp: int
    psn: int
    flags: int
    packet_entropy: int
    ce: bool
    dscp: int
    addresses: bytes
    p_key: int
    op: int
    vendor_info: int
    port_status_mask: int
    tx_timestamp: int


@dataclass(slots=True)
class EndpointResponse:
    """ENDPOINT RESPONSE; the request id is psn & 0xFFFF."""

    opcode: int
    dest_qp: int
    psn: int
    flags: int
    packet_entropy: int
    ce: bool
    dscp: int
    addresses: bytes
    p_key: int
    op: int
    tx_timestamp: int


Message: TypeAlias = Data | Sack | Nack | Ack | Probe | EndpointRequest | EndpointResponse

# IPv6 (version/class/label, length, next header and hop limit, addresses), UDP, BTH (word: flags and PSN).
_HEAD_FORMAT = "!IHH32sHHHHBBHII"
HEAD: Final = struct.Struct(_HEAD_FORMAT)
# Extension headers. METH | TSETH (as one word) | RETH | ImmDt.
DATA: Final = struct.Struct("!HHQII")
DATA_TS: Final = struct.Struct("!HHIQII")
IMM: Final = struct.Struct("!I")
SACK: Final = struct.Struct("!HhIHHIBBhQHHI")
NACK: Final = struct.Struct("!HBBIHHIBBH")
ACK: Final = struct.Struct("!I")
PROBE: Final = struct.Struct("!HBBHHHHI")
REQUEST: Final = struct.Struct("!HBBIII")
RESPONSE: Final = struct.Struct("!HH24xHHI")
# The same as one struct with the head: what encoding uses.
_HEAD_DATA: Final = struct.Struct(_HEAD_FORMAT + "HHQII")
_HEAD_DATA_TS: Final = struct.Struct(_HEAD_FORMAT + "HHIQII")
_HEAD_SACK: Final = struct.Struct(_HEAD_FORMAT + "HhIHHIBBhQHHI")
_HEAD_LENGTH = 60
_NEXT_UDP_HOP_64 = 17 << 8 | 64
_PADS = (b"", b"\0", b"\0\0", b"\0\0\0")
_IMM_OPCODES = (Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM)
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

    __slots__ = ("_constants", "dscp_lasthop", "dscp_trimmed", "p_key", "udp_port")

    def __init__(
        self,
        *,
        udp_port: int = MRC_UDP_PORT,
        p_key: int = 0xFFFF,
        dscp_trimmed: int = Dscp.TRIMMED,
        dscp_lasthop: int = Dscp.TRIMMED_LASTHOP,
    ) -> None:
        self.udp_port = udp_port
        self.p_key = p_key
        self.dscp_trimmed = int(dscp_trimmed)
        self.dscp_lasthop = int(dscp_lasthop)
        self._constants: dict[tuple[bytes, int], int] = {}

    def _constant(self, addresses: bytes, udp_length: int) -> int:
        if len(self._constants) >= _MAX_CONSTANTS:
            self._constants.clear()
        value = self._constants[addresses, udp_length] = icrc_constant(addresses, udp_length)
        return value

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
        size = len(payload)
        pad = -size & 3
        udp_length = size + pad + 48
        if opcode in _IMM_OPCODES:
            udp_length += 4
        if tx_timestamp >= 0:
            udp_length += 4
            head = _HEAD_DATA_TS.pack(
                0x60000000 | traffic_class << 20 | entropy >> 16,
                udp_length,
                _NEXT_UDP_HOP_64,
                addresses,
                entropy & 0xFFFF,
                self.udp_port,
                udp_length,
                0,
                opcode,
                pad << 4,
                self.p_key,
                dest_qp,
                (flags | FLAG_TS) << 24 | psn,
                rqmsn,
                msn,
                tx_timestamp << 16 | 1,
                va,
                rkey,
                dma_length,
            )
        else:
            head = _HEAD_DATA.pack(
                0x60000000 | traffic_class << 20 | entropy >> 16,
                udp_length,
                _NEXT_UDP_HOP_64,
                addresses,
                entropy & 0xFFFF,
                self.udp_port,
                udp_length,
                0,
                opcode,
                pad << 4,
                self.p_key,
                dest_qp,
                (flags & ~FLAG_TS) << 24 | psn,
                rqmsn,
                msn,
                va,
                rkey,
                dma_length,
            )
        if opcode in _IMM_OPCODES:
            head += IMM.pack(immediate)
        constant = self._constants.get((addresses, udp_length))
        if constant is None:
            constant = self._constant(addresses, udp_length)
        crc = crc32(payload, crc32(head[40:]))
        if pad:
            crc = crc32(_PADS[pad], crc)
            return b"".join((head, payload, _PADS[pad], (crc ^ constant).to_bytes(4, "little")))
        return b"".join((head, payload, (crc ^ constant).to_bytes(4, "little")))

    def _finish(self, addresses: bytes, head: bytes) -> bytes:
        length = len(head) - 36  # UDP length: without the IPv6 header, with the ICRC
        constant = self._constants.get((addresses, length))
        if constant is None:
            constant = self._constant(addresses, length)
        return head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")

    def _head(
        self,
        addresses: bytes,
        entropy: int,
        traffic_class: int,
        opcode: int,
        dest_qp: int,
        psn: int,
        flags: int,
        udp_length: int,
    ) -> bytes:
        return HEAD.pack(
            0x60000000 | traffic_class << 20 | entropy >> 16,
            udp_length,
            _NEXT_UDP_HOP_64,
            addresses,
            entropy & 0xFFFF,
            self.udp_port,
            udp_length,
            0,
            opcode,
            0,
            self.p_key,
            dest_qp,
            flags << 24 | psn,
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
        if pr and ack_psn_offset > 0x7FFF:
            ack_psn_offset -= 0x10000
        head = _HEAD_SACK.pack(
            0x60000000 | traffic_class << 20 | packet_entropy >> 16,
            60,
            _NEXT_UDP_HOP_64,
            addresses,
            packet_entropy & 0xFFFF,
            self.udp_port,
            60,
            0,
            Opcode.SACK,
            0,
            self.p_key,
            dest_qp,
            flags << 24 | cack_psn,
            m << 5 | pr << 1,
            ack_psn_offset,
            entropy,
            spdcid,
            dpdcid,
            cack_psn,
            cc_type << 4 | cc_flags,
            mpr,
            sack_offset,
            sack_bitmap,
            tx_timestamp,
            ooo_count,
            restore_cwnd << 31 | rcv_cwnd_pen << 24 | rcvd_bytes,
        )
        constant = self._constants.get((addresses, 60))
        if constant is None:
            constant = self._constant(addresses, 60)
        return head + (crc32(head[40:]) ^ constant).to_bytes(4, "little")

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
        head = self._head(addresses, packet_entropy, traffic_class, Opcode.NACK, dest_qp, nack_psn, flags, 44)
        body = NACK.pack(
            0,
            nack_reason,
            vendor_info,
            entropy,
            spdcid,
            dpdcid,
            nack_psn,
            cc_type << 4 | cc_flags,
            0,
            max(tx_timestamp, 0),
        )
        return self._finish(addresses, head + body)

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
        head = self._head(addresses, packet_entropy, traffic_class, Opcode.ACK, dest_qp, psn, 0, 28)
        return self._finish(addresses, head + ACK.pack(syndrome << 24 | msn))

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
        head = self._head(addresses, packet_entropy, traffic_class, Opcode.PROBE, dest_qp, psn, 0, 40)
        body = PROBE.pack(0, 0, vendor_info, probe_id, 0, spdcid, dpdcid, tx_timestamp << 16 | 1)
        return self._finish(addresses, head + body)

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
        head = self._head(
            addresses, packet_entropy, traffic_class, Opcode.ENDPOINT_REQUEST, dest_qp, request_id, 0, 40
        )
        body = REQUEST.pack(op, 0, vendor_info, port_status_mask, 0, tx_timestamp << 16 | 1)
        return self._finish(addresses, head + body)

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
        head = self._head(
            addresses, packet_entropy, traffic_class, Opcode.ENDPOINT_RESPONSE, dest_qp, request_id, 0, 60
        )
        return self._finish(addresses, head + RESPONSE.pack(op << 2, 0, tx_timestamp, 0, 0))

    def decode(self, packet: bytes) -> Message:
        """The message in an IPv6 or IPv4 packet, SRv6 encapsulation taken off. Raises WireError, nothing else."""
        raise NotImplementedError
