"""Messages that the data path codec decodes: light objects, one per kind of message (mrc-protocol.md §3).

Attributes have the names of the fields in `fields.py`, by which `mrc_host.generate` fills them; a class may leave out
some.
`addresses` is source and destination, 16 + 16 bytes (4 + 4 on IPv4). `ce` is set when any IP header carries
Congestion Experienced; `dscp` is the outermost header's.
"""

from __future__ import annotations

from builtins import memoryview  # mypyc looks the type of a field up among the names of its module
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from mypy_extensions import i64, mypyc_attr

from mrc_host.proto.wire.fields import MRC_LAYOUTS, Bth, Opcode


def _flag(name: str) -> int:
    """Return the bit of a field in the byte of flags that ends with the PSN."""
    place = Bth.header.by_name
    return 1 << place["psn"].bit - place[name].bit - 1


FLAG_ACK_REQ: Final = _flag("ack_req")
FLAG_RTX: Final = _flag("rtx")
FLAG_TS: Final = _flag("ts")
#: BTH.SE, which is in another byte on the wire; it follows the other flags in a message.
FLAG_SE: Final = 1 << 8
NO_TIMESTAMP: Final = -1


# One of these for every packet: what dataclasses make for __init__ is not compiled. Numbers are machine words, but for
# those of 64 bits without a sign.
@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class Data:
    """One WRITE packet. `trimmed`: 0, or the NackReason to answer with.

    Of a trimmed packet only the fields that survived are set (`tx_timestamp` is NO_TIMESTAMP and the rest 0 when they
    did not), and no ICRC protects them.
    """

    opcode: i64
    dest_qp: i64
    psn: i64
    flags: i64  # FLAG_ACK_REQ | FLAG_RTX | FLAG_TS | FLAG_SE
    entropy: i64
    ce: bool
    dscp: i64
    addresses: bytes
    p_key: i64
    size: i64  # nominal: UDP length + 40, before any trimming
    rqmsn: i64
    msn: i64
    tx_timestamp: i64  # NO_TIMESTAMP without TSETH
    va: int
    rkey: i64
    dma_length: i64
    immediate: i64
    payload: memoryview
    trimmed: i64 = 0

    def __init__(
        self,
        opcode: i64,
        dest_qp: i64,
        psn: i64,
        flags: i64,
        entropy: i64,
        ce: bool,
        dscp: i64,
        addresses: bytes,
        p_key: i64,
        size: i64,
        rqmsn: i64,
        msn: i64,
        tx_timestamp: i64,
        va: int,
        rkey: i64,
        dma_length: i64,
        immediate: i64,
        payload: memoryview,
        trimmed: i64 = 0,
    ) -> None:
        self.opcode = opcode
        self.dest_qp = dest_qp
        self.psn = psn
        self.flags = flags
        self.entropy = entropy
        self.ce = ce
        self.dscp = dscp
        self.addresses = addresses
        self.p_key = p_key
        self.size = size
        self.rqmsn = rqmsn
        self.msn = msn
        self.tx_timestamp = tx_timestamp
        self.va = va
        self.rkey = rkey
        self.dma_length = dma_length
        self.immediate = immediate
        self.payload = payload
        self.trimmed = trimmed


@mypyc_attr(acyclic=True)
@dataclass(slots=True)
class Control:
    """The common fields of every message but `Data`. `packet_entropy` is the EV on which it arrived."""

    opcode: i64
    dest_qp: i64
    psn: i64
    flags: i64
    packet_entropy: i64
    ce: bool
    dscp: i64
    addresses: bytes
    p_key: i64


@mypyc_attr(acyclic=True, free_list_len=1)
@dataclass(slots=True, init=False)
class Sack(Control):
    """RELIABILITY SACK: SETH and CC_STATE. `entropy` is the EV it reports."""

    m: i64
    pr: i64
    ack_psn_offset: i64  # signed; of a probe response the probe id (see probe_id)
    entropy: i64
    spdcid: i64
    dpdcid: i64
    cack_psn: i64
    cc_type: i64
    cc_flags: i64
    mpr: i64
    sack_offset: i64  # signed
    sack_bitmap: int
    tx_timestamp: i64
    ooo_count: i64
    restore_cwnd: i64
    rcv_cwnd_pen: i64
    rcvd_bytes: i64  # units of 256 bytes, modulo 2^24

    def __init__(
        self,
        opcode: i64,
        dest_qp: i64,
        psn: i64,
        flags: i64,
        packet_entropy: i64,
        ce: bool,
        dscp: i64,
        addresses: bytes,
        p_key: i64,
        m: i64,
        pr: i64,
        ack_psn_offset: i64,
        entropy: i64,
        spdcid: i64,
        dpdcid: i64,
        cack_psn: i64,
        cc_type: i64,
        cc_flags: i64,
        mpr: i64,
        sack_offset: i64,
        sack_bitmap: int,
        tx_timestamp: i64,
        ooo_count: i64,
        restore_cwnd: i64,
        rcv_cwnd_pen: i64,
        rcvd_bytes: i64,
    ) -> None:
        self.opcode = opcode
        self.dest_qp = dest_qp
        self.psn = psn
        self.flags = flags
        self.packet_entropy = packet_entropy
        self.ce = ce
        self.dscp = dscp
        self.addresses = addresses
        self.p_key = p_key
        self.m = m
        self.pr = pr
        self.ack_psn_offset = ack_psn_offset
        self.entropy = entropy
        self.spdcid = spdcid
        self.dpdcid = dpdcid
        self.cack_psn = cack_psn
        self.cc_type = cc_type
        self.cc_flags = cc_flags
        self.mpr = mpr
        self.sack_offset = sack_offset
        self.sack_bitmap = sack_bitmap
        self.tx_timestamp = tx_timestamp
        self.ooo_count = ooo_count
        self.restore_cwnd = restore_cwnd
        self.rcv_cwnd_pen = rcv_cwnd_pen
        self.rcvd_bytes = rcvd_bytes

    @property
    def probe_id(self) -> int:
        """The probe answered; meaningful when `pr` is set."""
        return self.ack_psn_offset & 0xFFFF


@mypyc_attr(acyclic=True)
@dataclass(slots=True)
class Nack(Control):
    """RELIABILITY NACK. `entropy` is the EV of the packet refused."""

    nack_reason: int
    vendor_info: int
    entropy: int
    spdcid: int
    dpdcid: int
    nack_psn: int
    cc_type: int
    cc_flags: int
    tx_timestamp: int


@mypyc_attr(acyclic=True)
@dataclass(slots=True)
class Ack(Control):
    """Transport ACKNOWLEDGE."""

    syndrome: int
    msn: int


@mypyc_attr(acyclic=True)
@dataclass(slots=True)
class Probe(Control):
    """RELIABILITY PROBE REQUEST; `size` is nominal, UDP length + 40."""

    vendor_info: int
    probe_id: int
    spdcid: int
    dpdcid: int
    tx_timestamp: int
    size: int = 80


@mypyc_attr(acyclic=True)
@dataclass(slots=True)
class EndpointRequest(Control):
    """ENDPOINT REQUEST: port status update or EV probe; the request id is psn & 0xFFFF."""

    op: int
    vendor_info: int
    port_status_mask: int
    tx_timestamp: int


@mypyc_attr(acyclic=True)
@dataclass(slots=True)
class EndpointResponse(Control):
    """ENDPOINT RESPONSE; the request id is psn & 0xFFFF."""

    op: int
    tx_timestamp: int


Message: TypeAlias = Data | Sack | Nack | Ack | Probe | EndpointRequest | EndpointResponse

#: What each opcode is decoded to.
MESSAGES: Final[Mapping[int, type[Message]]] = {
    **{opcode: Data for opcode, layout in MRC_LAYOUTS.items() if layout.payload},
    Opcode.ACK: Ack,
    Opcode.ENDPOINT_REQUEST: EndpointRequest,
    Opcode.ENDPOINT_RESPONSE: EndpointResponse,
    Opcode.SACK: Sack,
    Opcode.NACK: Nack,
    Opcode.PROBE: Probe,
}
