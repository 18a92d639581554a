"""What the data path codec decodes: light objects, one per kind of message (mrc-protocol.md §3).

`addresses` is source and destination, 16 + 16 bytes (4 + 4 on IPv4). `ce` is set when any IP header carries
Congestion Experienced; `dscp` is the outermost header's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

FLAG_ACK_REQ: Final = 0x80
FLAG_RTX: Final = 0x20
FLAG_TS: Final = 0x10
NO_TIMESTAMP: Final = -1


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
