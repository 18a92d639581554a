"""One table of every header's fields: the codec, the Scapy layers and the Wireshark dissector derive from it.

Source: mrc-protocol.md §2 (encapsulation) and §3 (headers). All fields are big-endian. `bit` counts from the
first bit on the wire, so `bit 0` of BTH is the most significant bit of its opcode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

MRC_UDP_PORT: Final = 4791


class Opcode(IntEnum):
    """The twelve MRC opcodes; the top three bits are 110 (mrc-protocol.md §3)."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    ACK = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    PROBE = 0xDE


class RoceOpcode(IntEnum):
    """RoCEv2 RC opcodes of the baseline: RDMA WRITE, ACKNOWLEDGE, and the congestion notification packet."""

    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMM = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    ACK = 0x11
    CNP = 0x81


class SackMark(IntEnum):
    """SETH.m: what the responder says about the path of the packet it answers."""

    NONE = 0
    SKIP_ONCE = 1
    ALWAYS_SKIP = 2
    RESERVED = 3


class NackReason(IntEnum):
    """NETH.nack_reason."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class EndpointOp(IntEnum):
    """ERTH.op and EETH.op."""

    PORT_STATUS = 0
    EV_PROBE = 1


class Ecn(IntEnum):
    """The two low bits of the IP traffic class (RFC 3168)."""

    NOT_ECT = 0
    ECT1 = 1
    ECT0 = 2
    CE = 3


class Dscp(IntEnum):
    """Default DSCP of each class (mrc-protocol.md §2); a deployment may configure others."""

    NO_TRIM = 0
    TRIMMABLE = 4
    TRIMMABLE_RETX = 8
    TRIMMED = 12
    TRIMMED_LASTHOP = 16
    CONTROL = 46


@dataclass(frozen=True, slots=True)
class Field:
    """One field, `bit` bits into its header. A `reserved` field is sent as `default` and never read."""

    name: str
    width: int
    bit: int = 0
    signed: bool = False
    reserved: bool = False
    default: int = 0
    hex: bool = False
    enum: type[IntEnum] | None = None
    text: str = ""

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1


@dataclass(frozen=True, slots=True)
class Header:
    """A fixed-size header. `fields` cover all `size` bytes, in order, without gaps."""

    name: str
    title: str
    fields: tuple[Field, ...]
    size: int
    by_name: Mapping[str, Field] = field(compare=False, repr=False)


def _header(name: str, title: str, *fields: Field) -> Header:
    placed, bit = [], 0
    for item in fields:
        placed.append(
            Field(
                item.name,
                item.width,
                bit,
                item.signed,
                item.reserved,
                item.default,
                item.hex,
                item.enum,
                item.text,
            )
        )
        bit += item.width
    assert bit % 8 == 0, f"{name}: {bit} bits are no whole number of bytes"
    return Header(name, title, tuple(placed), bit // 8, {item.name: item for item in placed})


def _f(
    name: str,
    width: int,
    text: str,
    *,
    signed: bool = False,
    default: int = 0,
    hex: bool = False,
    enum: type[IntEnum] | None = None,
) -> Field:
    return Field(name, width, signed=signed, default=default, hex=hex, enum=enum, text=text)


def _r(name: str, width: int, default: int = 0) -> Field:
    return Field(name, width, reserved=True, default=default, text="reserved")


IPV6 = _header(
    "IPV6",
    "Internet Protocol version 6",
    _f("version", 4, "IP version", default=6),
    _f("dscp", 6, "differentiated services code point"),
    _f("ecn", 2, "congestion notification", enum=Ecn),
    _f("flow_label", 20, "flow label; its low 16 bits are EV[31:16]", hex=True),
    _f("payload_length", 16, "bytes after this header"),
    _f("next_header", 8, "17 UDP, 41 IPv6, 43 routing header", default=17),
    _f("hop_limit", 8, "hop limit", default=64),
    _f("src", 128, "source address", hex=True),
    _f("dst", 128, "destination address", hex=True),
)
IPV4 = _header(
    "IPV4",
    "Internet Protocol version 4",
    _f("version", 4, "IP version", default=4),
    _f("ihl", 4, "header length in 4-byte words", default=5),
    _f("dscp", 6, "differentiated services code point"),
    _f("ecn", 2, "congestion notification", enum=Ecn),
    _f("total_length", 16, "bytes of header and payload"),
    _f("identification", 16, "identification", hex=True),
    _f("flags", 3, "fragmentation flags", default=2),
    _f("fragment_offset", 13, "fragment offset"),
    _f("ttl", 8, "time to live", default=64),
    _f("protocol", 8, "17 UDP", default=17),
    _f("checksum", 16, "header checksum", hex=True),
    _f("src", 32, "source address", hex=True),
    _f("dst", 32, "destination address", hex=True),
)
SRH = _header(
    "SRH",
    "Segment Routing Header",
    _f("next_header", 8, "41 IPv6", default=41),
    _f("hdr_ext_len", 8, "length beyond the first 8 bytes, in 8-byte words"),
    _f("routing_type", 8, "4 segment routing", default=4),
    _f("segments_left", 8, "segments still to visit"),
    _f("last_entry", 8, "index of the last segment list entry"),
    _f("flags", 8, "flags", hex=True),
    _f("tag", 16, "tag", hex=True),
)
UDP = _header(
    "UDP",
    "User Datagram Protocol",
    _f("src_port", 16, "source port: EV[15:0]"),
    _f("dst_port", 16, "destination port", default=MRC_UDP_PORT),
    _f("length", 16, "bytes of header and payload; of a trimmed packet: before it was cut"),
    _f("checksum", 16, "checksum, 0 over RoCEv2", hex=True),
)
BTH = _header(
    "BTH",
    "Base Transport Header",
    _f("opcode", 8, "opcode", hex=True, enum=Opcode),
    _f("se", 1, "solicited event"),
    _f("migreq", 1, "migration request"),
    _f("pad", 2, "bytes of padding before the ICRC"),
    _f("tver", 4, "transport version, 0"),
    _f("p_key", 16, "partition key", default=0xFFFF, hex=True),
    _r("resv8a", 8),
    _f("dest_qp", 24, "destination queue pair", hex=True),
    _f("ack_req", 1, "A: acknowledgement requested"),
    _r("r", 1),
    _f("rtx", 1, "rtx: this is a retransmission (in a SACK: echoed)"),
    _f("ts", 1, "ts: a TSETH follows"),
    _r("resv4", 4),
    _f("psn", 24, "packet sequence number"),
)
METH = _header(
    "METH",
    "Message Extended Transport Header",
    _f("rqmsn", 16, "number of WriteIMM messages of the requestor"),
    _f("msn", 16, "number of all messages of the requestor"),
)
TSETH = _header(
    "TSETH",
    "Timestamp Extended Transport Header",
    _f("tx_timestamp", 16, "transmit time in units of 128 ns, wraps"),
    _f("tsr", 1, "timestamp reset"),
    _r("tseth_reserved", 11),
    _f("ftype", 4, "timestamp format, 1", default=1),
)
RETH = _header(
    "RETH",
    "RDMA Extended Transport Header",
    _f("va", 64, "virtual address of this packet's payload", hex=True),
    _f("rkey", 32, "remote key", hex=True),
    _f("dma_length", 32, "length of the whole message in bytes"),
)
IMMDT = _header("IMMDT", "Immediate Data", _f("immediate", 32, "immediate data", hex=True))
AETH = _header(
    "AETH",
    "ACK Extended Transport Header",
    _f("syndrome", 8, "ACK or NAK syndrome", hex=True),
    _f("msn", 24, "number of messages completed"),
)
SETH = _header(
    "SETH",
    "SACK Extended Transport Header",
    _r("seth_type", 4),
    _r("seth_nxt", 5),
    _f("m", 2, "what to do with this path", enum=SackMark),
    _r("seth_r3", 3),
    _f("pr", 1, "this answers a probe"),
    _r("seth_r1", 1),
    _f(
        "ack_psn_offset",
        16,
        "PSN that triggered this SACK, from cack_psn; of a probe response: its id",
        signed=True,
    ),
    _f("entropy", 32, "EV of the packet that triggered this SACK", hex=True),
    _f("spdcid", 16, "low 16 bits of the source QP", hex=True),
    _f("dpdcid", 16, "low 16 bits of the destination QP", hex=True),
    _r("seth_zero", 8),
    _f("cack_psn", 24, "all PSNs up to this one have arrived"),
    _f("cc_type", 4, "congestion control type, 0 NSCC"),
    _f("cc_flags", 4, "congestion control flags", hex=True),
    _f("mpr", 8, "maximum PSN range in units of 128 (dynamic MPR)"),
    _f("sack_offset", 16, "first PSN of the bitmap, from cack_psn", signed=True),
    _f("sack_bitmap", 64, "bit i (least significant first): PSN cack_psn + sack_offset + i arrived", hex=True),
)
CC_STATE = _header(
    "CC_STATE",
    "Congestion Control State",
    _f("tx_timestamp", 16, "timestamp of the triggering packet, echoed"),
    _r("cc_r1", 1),
    _f("ooo_count", 15, "packets that arrived beyond cack_psn"),
    _f("restore_cwnd", 1, "restore the window when the penalty ends"),
    _f("rcv_cwnd_pen", 7, "receiver's window penalty, in 1/128"),
    _f("rcvd_bytes", 24, "bytes received in units of 256, wraps"),
)
NETH = _header(
    "NETH",
    "NACK Extended Transport Header",
    _r("neth_zero16", 16),
    _f("nack_reason", 8, "reason", hex=True, enum=NackReason),
    _f("vendor_info", 8, "vendor information", hex=True),
    _f("entropy", 32, "EV of the packet refused", hex=True),
    _f("spdcid", 16, "low 16 bits of the source QP", hex=True),
    _f("dpdcid", 16, "low 16 bits of the destination QP", hex=True),
    _r("neth_zero8a", 8),
    _f("nack_psn", 24, "PSN refused"),
    _f("cc_type", 4, "congestion control type, 2", default=2),
    _f("cc_flags", 4, "congestion control flags", hex=True),
    _r("neth_zero8b", 8),
    _f("tx_timestamp", 16, "timestamp of the packet refused, echoed"),
)
PETH = _header(
    "PETH",
    "Probe Extended Transport Header",
    _r("peth_zero16a", 16),
    _r("peth_zero8", 8),
    _f("vendor_info", 8, "vendor information", hex=True),
    _f("probe_id", 16, "probe id, echoed by the SACK"),
    _r("peth_zero16b", 16),
    _f("spdcid", 16, "low 16 bits of the source QP", hex=True),
    _f("dpdcid", 16, "low 16 bits of the destination QP", hex=True),
    _f("tx_timestamp", 16, "transmit time in units of 128 ns, wraps"),
    _f("tsr", 1, "timestamp reset"),
    _r("peth_zero11", 11),
    _f("ftype", 4, "timestamp format, 1", default=1),
)
ERTH = _header(
    "ERTH",
    "Endpoint Request Extended Transport Header",
    _r("erth_type", 9),
    _r("erth_reserved", 5),
    _f("op", 2, "endpoint operation", enum=EndpointOp),
    _r("erth_zero8", 8),
    _f("vendor_info", 8, "vendor information", hex=True),
    _f("port_status_mask", 32, "one bit per port, 1: up", hex=True),
    _r("erth_zero32", 32),
    _f("tx_timestamp", 16, "transmit time in units of 128 ns, wraps"),
    _f("tsr", 1, "timestamp reset"),
    _r("erth_zero11", 11),
    _f("ftype", 4, "timestamp format, 1", default=1),
)
EETH = _header(
    "EETH",
    "Endpoint Response Extended Transport Header",
    _r("eeth_zero12", 12),
    _f("op", 2, "endpoint operation", enum=EndpointOp),
    _r("eeth_zero2", 2),
    _r("eeth_zero16a", 16),
    _r("eeth_zero192", 192),
    _f("tx_timestamp", 16, "timestamp of the request, echoed"),
    _r("eeth_zero16b", 16),
    _r("eeth_zero32", 32),
)

HEADERS: Final[Mapping[str, Header]] = {
    header.name: header
    for header in (
        IPV6, IPV4, SRH, UDP, BTH, METH, TSETH, RETH, IMMDT, AETH, SETH, CC_STATE, NETH, PETH, ERTH, EETH,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """What follows BTH for one opcode. TSETH is there when BTH.ts is set; `payload`: bytes may follow."""

    opcode: IntEnum
    title: str
    headers: tuple[Header, ...]
    payload: bool = False


MRC_LAYOUTS: Final[Mapping[int, Layout]] = {
    layout.opcode: layout
    for layout in (
        Layout(Opcode.WRITE_FIRST, "WRITE First", (METH, TSETH, RETH), True),
        Layout(Opcode.WRITE_MIDDLE, "WRITE Middle", (METH, TSETH, RETH), True),
        Layout(Opcode.WRITE_LAST, "WRITE Last", (METH, TSETH, RETH), True),
        Layout(Opcode.WRITE_LAST_IMM, "WRITE Last with Immediate", (METH, TSETH, RETH, IMMDT), True),
        Layout(Opcode.WRITE_ONLY, "WRITE Only", (METH, TSETH, RETH), True),
        Layout(Opcode.WRITE_ONLY_IMM, "WRITE Only with Immediate", (METH, TSETH, RETH, IMMDT), True),
        Layout(Opcode.ACK, "ACKNOWLEDGE", (AETH,)),
        Layout(Opcode.ENDPOINT_REQUEST, "ENDPOINT REQUEST", (ERTH,)),
        Layout(Opcode.ENDPOINT_RESPONSE, "ENDPOINT RESPONSE", (EETH,)),
        Layout(Opcode.SACK, "RELIABILITY SACK", (SETH, CC_STATE)),
        Layout(Opcode.NACK, "RELIABILITY NACK", (NETH,)),
        Layout(Opcode.PROBE, "RELIABILITY PROBE REQUEST", (PETH,)),
    )
}
ROCE_LAYOUTS: Final[Mapping[int, Layout]] = {
    layout.opcode: layout
    for layout in (
        Layout(RoceOpcode.WRITE_FIRST, "RDMA WRITE First", (RETH,), True),
        Layout(RoceOpcode.WRITE_MIDDLE, "RDMA WRITE Middle", (), True),
        Layout(RoceOpcode.WRITE_LAST, "RDMA WRITE Last", (), True),
        Layout(RoceOpcode.WRITE_LAST_IMM, "RDMA WRITE Last with Immediate", (IMMDT,), True),
        Layout(RoceOpcode.WRITE_ONLY, "RDMA WRITE Only", (RETH,), True),
        Layout(RoceOpcode.WRITE_ONLY_IMM, "RDMA WRITE Only with Immediate", (RETH, IMMDT), True),
        Layout(RoceOpcode.ACK, "ACKNOWLEDGE", (AETH,)),
        Layout(RoceOpcode.CNP, "CNP", (), True),
    )
}
