"""One table of every header's fields. From it are made the encoders and decoders of the data path
(`mrc_host.generate`), the complete codec (`packet.py`), the Scapy layers, the Wireshark dissector and pictures.

A class is an entry of the table, and an object of it a header with its values.
Source: mrc-protocol.md §2 (encapsulation) and §3 (headers). All fields are big-endian. `bit` counts from the
first bit on the wire, so `bit 0` of BTH is the most significant bit of its opcode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar, dataclass_transform

MRC_UDP_PORT: Final = 4791
NEXT_UDP: Final = 17
NEXT_IPV6: Final = 41
NEXT_ROUTING: Final = 43


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
    """Opcodes of RoCEv2's reliable connection, and the congestion notification packet. Those that invalidate a key
    (0x16, 0x17) are not there."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_IMM = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_IMM = 0x05
    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMM = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    READ_REQUEST = 0x0C
    READ_RESPONSE_FIRST = 0x0D
    READ_RESPONSE_MIDDLE = 0x0E
    READ_RESPONSE_LAST = 0x0F
    READ_RESPONSE_ONLY = 0x10
    ACK = 0x11
    ATOMIC_ACK = 0x12
    COMPARE_SWAP = 0x13
    FETCH_ADD = 0x14
    CNP = 0x81


class SackMark(IntEnum):
    """SETH.m: the responder's report about the path of the packet that it answers."""

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


class Nak(IntEnum):
    """AETH.syndrome of a negative acknowledgement."""

    SEQUENCE = 0x60
    INVALID_REQUEST = 0x61
    REMOTE_ACCESS = 0x62
    REMOTE_OPERATION = 0x63


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
    text: str
    bit: int = 0
    signed: bool = False
    reserved: bool = False
    default: int = 0
    hex: bool = False
    enum: type[IntEnum] | None = None

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


#: Every header by name, in the order in which their classes stand below.
HEADERS: Final[dict[str, Header]] = {}


class PacketHeader:
    """A header of a packet with its values. The class is the table's entry: its body lists the fields in wire order."""

    __slots__ = ()
    header: ClassVar[Header]
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]


def bits(
    width: int,
    text: str,
    *,
    default: int | None = None,
    signed: bool = False,
    hex: bool = False,
    enum: type[IntEnum] | None = None,
) -> Any:
    """Declare a field of `width` bits. Without a default it must be given."""
    return Field("", width, text, signed=signed, default=default or 0, hex=hex, enum=enum), default is None


def reserved(width: int, *, init: Literal[False] = False) -> Any:
    """Declare bits that are sent as 0 and never read; they are no attribute of the object."""
    return Field("", width, "reserved", reserved=True), init


P = TypeVar("P", bound=PacketHeader)


@dataclass_transform(kw_only_default=True, field_specifiers=(bits, reserved))
def header(name: str, title: str) -> Callable[[type[P]], type[P]]:
    """Make a class of fields a dataclass (keywords only) and its `header` the table's entry."""

    def make(cls: type[P]) -> type[P]:
        placed, bit = [], 0
        for key, value in list(vars(cls).items()):
            if not isinstance(value, tuple) or not value or not isinstance(value[0], Field):
                continue
            item, required = replace(value[0], name=key, bit=bit), value[1]
            placed.append(item)
            bit += item.width
            if item.reserved or required:
                delattr(cls, key)
            else:
                setattr(cls, key, item.default)
            if item.reserved:
                del cls.__annotations__[key]
        assert bit % 8 == 0, f"{name}: {bit} bits are no whole number of bytes"
        made = dataclass(slots=True, kw_only=True)(cls)
        made.header = HEADERS[name] = Header(name, title, tuple(placed), bit // 8, {item.name: item for item in placed})
        return made

    return make


@header("IPV6", "Internet Protocol version 6")
class Ipv6(PacketHeader):
    """Addresses are 128-bit integers. `payload_length` and `next_header` are computed when encoding."""

    version: int = bits(4, "IP version", default=6)
    dscp: int = bits(6, "differentiated services code point", default=0)
    ecn: int = bits(2, "congestion notification", default=0, enum=Ecn)
    flow_label: int = bits(20, "flow label; its low 16 bits are EV[31:16]", default=0, hex=True)
    payload_length: int = bits(16, "bytes after this header", default=0)
    next_header: int = bits(8, "17 UDP, 41 IPv6, 43 routing header", default=NEXT_UDP)
    hop_limit: int = bits(8, "hop limit", default=64)
    src: int = bits(128, "source address", default=0, hex=True)
    dst: int = bits(128, "destination address", default=0, hex=True)


@header("IPV4", "Internet Protocol version 4")
class Ipv4(PacketHeader):
    """Addresses are 32-bit integers. Length and checksum are computed when encoding."""

    version: int = bits(4, "IP version", default=4)
    ihl: int = bits(4, "header length in 4-byte words", default=5)
    dscp: int = bits(6, "differentiated services code point", default=0)
    ecn: int = bits(2, "congestion notification", default=0, enum=Ecn)
    total_length: int = bits(16, "bytes of header and payload", default=0)
    identification: int = bits(16, "identification", default=0, hex=True)
    flags: int = bits(3, "fragmentation flags", default=2)
    fragment_offset: int = bits(13, "fragment offset", default=0)
    ttl: int = bits(8, "time to live", default=64)
    protocol: int = bits(8, "17 UDP", default=NEXT_UDP)
    checksum: int = bits(16, "header checksum", default=0, hex=True)
    src: int = bits(32, "source address", default=0, hex=True)
    dst: int = bits(32, "destination address", default=0, hex=True)


@header("SRH", "Segment Routing Header")
class Srh(PacketHeader):
    """RFC 8754; `segments` in wire order, the last segment of the path first."""

    next_header: int = bits(8, "41 IPv6", default=NEXT_IPV6)
    hdr_ext_len: int = bits(8, "length beyond the first 8 bytes, in 8-byte words", default=0)
    routing_type: int = bits(8, "4 segment routing", default=4)
    segments_left: int = bits(8, "segments still to visit", default=0)
    last_entry: int = bits(8, "index of the last segment list entry", default=0)
    flags: int = bits(8, "flags", default=0, hex=True)
    tag: int = bits(16, "tag", default=0, hex=True)
    segments: tuple[int, ...] = ()


@header("UDP", "User Datagram Protocol")
class Udp(PacketHeader):
    src_port: int = bits(16, "source port: EV[15:0]", default=0)
    dst_port: int = bits(16, "destination port", default=MRC_UDP_PORT)
    length: int = bits(16, "bytes of header and payload; of a trimmed packet: before it was cut", default=0)
    checksum: int = bits(16, "checksum, 0 over RoCEv2", default=0, hex=True)


@header("BTH", "Base Transport Header")
class Bth(PacketHeader):
    """`pad` and `ts` are computed when encoding."""

    opcode: int = bits(8, "opcode", hex=True, enum=Opcode)
    se: int = bits(1, "solicited event", default=0)
    migreq: int = bits(1, "migration request", default=0)
    pad: int = bits(2, "bytes of padding before the ICRC", default=0)
    tver: int = bits(4, "transport version, 0", default=0)
    p_key: int = bits(16, "partition key", default=0xFFFF, hex=True)
    resv8a: int = reserved(8)
    dest_qp: int = bits(24, "destination queue pair", hex=True)
    ack_req: int = bits(1, "A: acknowledgement requested", default=0)
    r: int = reserved(1)
    rtx: int = bits(1, "rtx: this is a retransmission (in a SACK: echoed)", default=0)
    ts: int = bits(1, "ts: a TSETH follows", default=0)
    resv4: int = reserved(4)
    psn: int = bits(24, "packet sequence number")


@header("METH", "Message Extended Transport Header")
class Meth(PacketHeader):
    rqmsn: int = bits(16, "number of WriteIMM messages of the requestor")
    msn: int = bits(16, "number of all messages of the requestor")


@header("TSETH", "Timestamp Extended Transport Header")
class Tseth(PacketHeader):
    tx_timestamp: int = bits(16, "transmit time in units of 128 ns, wraps")
    tsr: int = bits(1, "timestamp reset", default=0)
    tseth_reserved: int = reserved(11)
    ftype: int = bits(4, "timestamp format, 1", default=1)


@header("RETH", "RDMA Extended Transport Header")
class Reth(PacketHeader):
    va: int = bits(64, "virtual address of this packet's payload", hex=True)
    rkey: int = bits(32, "remote key", hex=True)
    dma_length: int = bits(32, "length of the whole message in bytes")


@header("IMMDT", "Immediate Data")
class ImmDt(PacketHeader):
    immediate: int = bits(32, "immediate data", hex=True)


@header("AETH", "ACK Extended Transport Header")
class Aeth(PacketHeader):
    syndrome: int = bits(8, "ACK or NAK syndrome", hex=True)
    msn: int = bits(24, "number of messages completed")


@header("SETH", "SACK Extended Transport Header")
class Seth(PacketHeader):
    seth_type: int = reserved(4)
    seth_nxt: int = reserved(5)
    m: int = bits(2, "what to do with this path", enum=SackMark)
    seth_r3: int = reserved(3)
    pr: int = bits(1, "this answers a probe", default=0)
    seth_r1: int = reserved(1)
    ack_psn_offset: int = bits(
        16, "PSN that triggered this SACK, from cack_psn; of a probe response: its id", signed=True
    )
    entropy: int = bits(32, "EV of the packet that triggered this SACK", hex=True)
    spdcid: int = bits(16, "low 16 bits of the source QP", default=0, hex=True)
    dpdcid: int = bits(16, "low 16 bits of the destination QP", default=0, hex=True)
    seth_zero: int = reserved(8)
    cack_psn: int = bits(24, "all PSNs up to this one have arrived")
    cc_type: int = bits(4, "congestion control type, 0 NSCC", default=0)
    cc_flags: int = bits(4, "congestion control flags", default=0, hex=True)
    mpr: int = bits(8, "maximum PSN range in units of 128 (dynamic MPR)", default=0)
    sack_offset: int = bits(16, "first PSN of the bitmap, from cack_psn", signed=True)
    sack_bitmap: int = bits(64, "bit i (least significant first): PSN cack_psn + sack_offset + i arrived", hex=True)


@header("CC_STATE", "Congestion Control State")
class CcState(PacketHeader):
    tx_timestamp: int = bits(16, "timestamp of the triggering packet, echoed")
    cc_r1: int = reserved(1)
    ooo_count: int = bits(15, "packets that arrived beyond cack_psn", default=0)
    restore_cwnd: int = bits(1, "restore the window when the penalty ends", default=0)
    rcv_cwnd_pen: int = bits(7, "receiver's window penalty, in 1/128", default=0)
    rcvd_bytes: int = bits(24, "bytes received in units of 256, wraps", default=0)


@header("NETH", "NACK Extended Transport Header")
class Neth(PacketHeader):
    neth_zero16: int = reserved(16)
    nack_reason: int = bits(8, "reason", hex=True, enum=NackReason)
    vendor_info: int = bits(8, "vendor information", default=0, hex=True)
    entropy: int = bits(32, "EV of the packet refused", hex=True)
    spdcid: int = bits(16, "low 16 bits of the source QP", default=0, hex=True)
    dpdcid: int = bits(16, "low 16 bits of the destination QP", default=0, hex=True)
    neth_zero8a: int = reserved(8)
    nack_psn: int = bits(24, "PSN refused")
    cc_type: int = bits(4, "congestion control type, 2", default=2)
    cc_flags: int = bits(4, "congestion control flags", default=0, hex=True)
    neth_zero8b: int = reserved(8)
    tx_timestamp: int = bits(16, "timestamp of the packet refused, echoed")


@header("PETH", "Probe Extended Transport Header")
class Peth(PacketHeader):
    peth_zero16a: int = reserved(16)
    peth_zero8: int = reserved(8)
    vendor_info: int = bits(8, "vendor information", default=0, hex=True)
    probe_id: int = bits(16, "probe id, echoed by the SACK")
    peth_zero16b: int = reserved(16)
    spdcid: int = bits(16, "low 16 bits of the source QP", default=0, hex=True)
    dpdcid: int = bits(16, "low 16 bits of the destination QP", default=0, hex=True)
    tx_timestamp: int = bits(16, "transmit time in units of 128 ns, wraps")
    tsr: int = bits(1, "timestamp reset", default=0)
    peth_zero11: int = reserved(11)
    ftype: int = bits(4, "timestamp format, 1", default=1)


@header("ERTH", "Endpoint Request Extended Transport Header")
class Erth(PacketHeader):
    erth_type: int = reserved(9)
    erth_reserved: int = reserved(5)
    op: int = bits(2, "endpoint operation", enum=EndpointOp)
    erth_zero8: int = reserved(8)
    vendor_info: int = bits(8, "vendor information", default=0, hex=True)
    port_status_mask: int = bits(32, "one bit per port, 1: up", default=0, hex=True)
    erth_zero32: int = reserved(32)
    tx_timestamp: int = bits(16, "transmit time in units of 128 ns, wraps")
    tsr: int = bits(1, "timestamp reset", default=0)
    erth_zero11: int = reserved(11)
    ftype: int = bits(4, "timestamp format, 1", default=1)


@header("EETH", "Endpoint Response Extended Transport Header")
class Eeth(PacketHeader):
    eeth_zero12: int = reserved(12)
    op: int = bits(2, "endpoint operation", enum=EndpointOp)
    eeth_zero2: int = reserved(2)
    eeth_zero16a: int = reserved(16)
    eeth_zero192: int = reserved(192)
    tx_timestamp: int = bits(16, "timestamp of the request, echoed")
    eeth_zero16b: int = reserved(16)
    eeth_zero32: int = reserved(32)


#: BTH, and what may follow it in MRC.
TRANSPORT: Final = tuple(HEADERS.values())[list(HEADERS).index("BTH") :]


@header("ATOMICETH", "Atomic Extended Transport Header")
class AtomicEth(PacketHeader):
    va: int = bits(64, "virtual address of the number, a multiple of 8", hex=True)
    rkey: int = bits(32, "remote key", hex=True)
    swap_or_add: int = bits(64, "number to swap in, or to add", hex=True)
    compare: int = bits(64, "number to compare with", default=0, hex=True)


@header("ATOMICACKETH", "Atomic ACK Extended Transport Header")
class AtomicAckEth(PacketHeader):
    original: int = bits(64, "the number before the operation", hex=True)


#: What may follow BTH in either transport.
EXTENSIONS: Final = (*TRANSPORT[1:], AtomicEth.header, AtomicAckEth.header)


@dataclass(frozen=True, slots=True)
class Layout:
    """Headers that follow BTH for one opcode. TSETH is there when BTH.ts is set; `payload`: bytes may follow."""

    opcode: IntEnum
    title: str
    parts: tuple[type[PacketHeader], ...]
    payload: bool = False

    @property
    def headers(self) -> tuple[Header, ...]:
        return tuple(part.header for part in self.parts)


MRC_LAYOUTS: Final[Mapping[int, Layout]] = {
    layout.opcode: layout
    for layout in (
        Layout(Opcode.WRITE_FIRST, "WRITE First", (Meth, Tseth, Reth), True),
        Layout(Opcode.WRITE_MIDDLE, "WRITE Middle", (Meth, Tseth, Reth), True),
        Layout(Opcode.WRITE_LAST, "WRITE Last", (Meth, Tseth, Reth), True),
        Layout(Opcode.WRITE_LAST_IMM, "WRITE Last with Immediate", (Meth, Tseth, Reth, ImmDt), True),
        Layout(Opcode.WRITE_ONLY, "WRITE Only", (Meth, Tseth, Reth), True),
        Layout(Opcode.WRITE_ONLY_IMM, "WRITE Only with Immediate", (Meth, Tseth, Reth, ImmDt), True),
        Layout(Opcode.ACK, "ACKNOWLEDGE", (Aeth,)),
        Layout(Opcode.ENDPOINT_REQUEST, "ENDPOINT REQUEST", (Erth,)),
        Layout(Opcode.ENDPOINT_RESPONSE, "ENDPOINT RESPONSE", (Eeth,)),
        Layout(Opcode.SACK, "RELIABILITY SACK", (Seth, CcState)),
        Layout(Opcode.NACK, "RELIABILITY NACK", (Neth,)),
        Layout(Opcode.PROBE, "RELIABILITY PROBE REQUEST", (Peth,)),
    )
}
ROCE_LAYOUTS: Final[Mapping[int, Layout]] = {
    layout.opcode: layout
    for layout in (
        Layout(RoceOpcode.SEND_FIRST, "SEND First", (), True),
        Layout(RoceOpcode.SEND_MIDDLE, "SEND Middle", (), True),
        Layout(RoceOpcode.SEND_LAST, "SEND Last", (), True),
        Layout(RoceOpcode.SEND_LAST_IMM, "SEND Last with Immediate", (ImmDt,), True),
        Layout(RoceOpcode.SEND_ONLY, "SEND Only", (), True),
        Layout(RoceOpcode.SEND_ONLY_IMM, "SEND Only with Immediate", (ImmDt,), True),
        Layout(RoceOpcode.WRITE_FIRST, "RDMA WRITE First", (Reth,), True),
        Layout(RoceOpcode.WRITE_MIDDLE, "RDMA WRITE Middle", (), True),
        Layout(RoceOpcode.WRITE_LAST, "RDMA WRITE Last", (), True),
        Layout(RoceOpcode.WRITE_LAST_IMM, "RDMA WRITE Last with Immediate", (ImmDt,), True),
        Layout(RoceOpcode.WRITE_ONLY, "RDMA WRITE Only", (Reth,), True),
        Layout(RoceOpcode.WRITE_ONLY_IMM, "RDMA WRITE Only with Immediate", (Reth, ImmDt), True),
        Layout(RoceOpcode.READ_REQUEST, "RDMA READ Request", (Reth,)),
        Layout(RoceOpcode.READ_RESPONSE_FIRST, "RDMA READ Response First", (Aeth,), True),
        Layout(RoceOpcode.READ_RESPONSE_MIDDLE, "RDMA READ Response Middle", (), True),
        Layout(RoceOpcode.READ_RESPONSE_LAST, "RDMA READ Response Last", (Aeth,), True),
        Layout(RoceOpcode.READ_RESPONSE_ONLY, "RDMA READ Response Only", (Aeth,), True),
        Layout(RoceOpcode.ACK, "ACKNOWLEDGE", (Aeth,)),
        Layout(RoceOpcode.ATOMIC_ACK, "ATOMIC ACKNOWLEDGE", (Aeth, AtomicAckEth)),
        Layout(RoceOpcode.COMPARE_SWAP, "CmpSwap", (AtomicEth,)),
        Layout(RoceOpcode.FETCH_ADD, "FetchAdd", (AtomicEth,)),
        Layout(RoceOpcode.CNP, "CNP", (), True),
    )
}


@dataclass(slots=True)
class Packet:
    """A whole packet. `outer` and `srh` are the SRv6 encapsulation. The attributes after `bth` follow the opcode's
    layout; of a trimmed packet, those that were cut away are None and `payload` is what is left of it."""

    ip: Ipv6 | Ipv4
    udp: Udp
    bth: Bth
    meth: Meth | None = None
    tseth: Tseth | None = None
    reth: Reth | None = None
    immdt: ImmDt | None = None
    aeth: Aeth | None = None
    seth: Seth | None = None
    cc_state: CcState | None = None
    neth: Neth | None = None
    peth: Peth | None = None
    erth: Erth | None = None
    eeth: Eeth | None = None
    atomiceth: AtomicEth | None = None
    atomicacketh: AtomicAckEth | None = None
    payload: bytes = b""
    outer: Ipv6 | None = None
    srh: Srh | None = None
    trimmed: bool = False

    @property
    def entropy(self) -> int:
        """The EV the packet travels with; on IPv4 its upper half is 0."""
        high = self.ip.flow_label & 0xFFFF if isinstance(self.ip, Ipv6) else 0
        return high << 16 | self.udp.src_port

    @entropy.setter
    def entropy(self, value: int) -> None:
        if isinstance(self.ip, Ipv6):
            self.ip.flow_label = value >> 16
        self.udp.src_port = value & 0xFFFF
