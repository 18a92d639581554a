"""Cases of packets whose bits, lengths or checks are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need
from mrc_conform.script import NackReason, Nak, Script, pattern
from mrc_conform.wire import Damage, Packet, encode

_AREA = Area.INTEGRITY
_BTH_AT = 48  # IPv6 and UDP


def _still_works(c: Script) -> None:
    """Check that the queue pair takes its next packet as if nothing had happened."""
    c.expect_nothing()
    c.send(c.data(0))
    c.expect("SACK", cack_psn=c.rx(0))


def _refused(name: str, rule: str, basis: Basis, clause: str, damage: Damage) -> None:
    """Make a case of a damaged packet that a device must drop without an answer."""

    @case(name, _AREA, rule, basis, clause)
    def dropped(c: Script) -> None:
        c.send(c.data(0), damage)
        _still_works(c)


_refused("icrc-wrong", "A packet with a wrong ICRC is dropped.", Basis.IBTA, "9.2.8, RoCEv2 A17", Damage(icrc=True))
_refused(
    "cut-short", "A packet of fewer bytes than its IP length says is dropped.", Basis.RFC, "RFC 8200, 3", Damage(cut=1)
)
_refused("cut-in-bth", "A packet that ends within BTH is dropped.", Basis.IBTA, "9.2", Damage(keep=8))
_refused("cut-in-reth", "A whole packet that ends within RETH is dropped.", Basis.IBTA, "9.6.1", Damage(keep=24))
_refused("trailing-bytes", "Bytes after the UDP datagram make a packet malformed.", Basis.OURS, "§3", Damage(tail=4))
_refused(
    "udp-too-short",
    "A UDP length below the bytes that are there makes a packet malformed.",
    Basis.OURS,
    "§3",
    Damage(udp_length=80),
)
_refused("opcode-unknown", "An opcode that MRC does not have is dropped.", Basis.NOTES, "§3", Damage(code=0xC0))
_refused("opcode-roce", "An opcode of RoCE is dropped by an MRC queue pair.", Basis.NOTES, "§1, §3", Damage(code=0x0A))
_refused("opcode-read", "An RDMA READ request is dropped: MRC has WRITE only.", Basis.NOTES, "§1", Damage(code=0x0C))
_refused("ip-version", "A packet of another IP version is dropped.", Basis.RFC, "RFC 8200, 3", Damage(version=5))
_refused("next-header", "A packet that is not UDP is dropped.", Basis.RFC, "RFC 8200, 3", Damage(next_header=6))
_refused("udp-port", "A packet to another UDP port is not MRC.", Basis.IBTA, "RoCEv2 A17.3", Damage(udp_port=4792))


@case("tver-unknown", _AREA, "A packet of another transport version is dropped.", Basis.IBTA, "9.2.2")
def tver_unknown(c: Script) -> None:
    c.send(c.data(0), tver=1)
    _still_works(c)


@case("p-key-wrong", _AREA, "A packet with another partition key is dropped.", Basis.IBTA, "9.2.5, 9.6.1.1")
def p_key_wrong(c: Script) -> None:
    c.send(c.data(0), p_key=0x7FFE)
    _still_works(c)


@case("qp-unknown", _AREA, "A packet to a queue pair that does not exist is dropped.", Basis.IBTA, "9.6.1.1")
def qp_unknown(c: Script) -> None:
    c.send(c.data(0), dest_qp=c.dut.number ^ 1)
    _still_works(c)


@case("source-unknown", _AREA, "A packet from another address than the peer's is dropped.", Basis.IBTA, "9.6.1.5")
def source_unknown(c: Script) -> None:
    packet = c.data(0)
    packet.source = packet.source[:-1] + bytes((packet.source[-1] ^ 0x40,))
    c.send(packet)
    _still_works(c)


@case("control-with-payload", _AREA, "A transport ACK with bytes after AETH is dropped.", Basis.OURS, "§3", Need.POST)
def control_with_payload(c: Script) -> None:
    wr = c.post(8)
    c.expect("WRITE_ONLY")
    c.send(c.make("ACK", psn=c.tx(0), msn=1, syndrome=0x1F), Damage(extra=4))
    c.expect_no_completion()
    c.ack(0, 1)
    c.expect_completion(wr)


@case("sack-too-short", _AREA, "A SACK that ends within CC_STATE is dropped.", Basis.IBTA, "9.2", Need.POST)
def sack_too_short(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.send(c.make("SACK", psn=c.tx(0), cack_psn=c.tx(0), entropy=packet.ev, sack_offset=1), Damage(keep=44))
    c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)


@case(
    "pad-beyond-length",
    _AREA,
    "A WRITE whose payload without its padding is not as long as its DMA length is an invalid request.",
    Basis.IBTA,
    "9.7.4.1.6",
)
def pad_beyond_length(c: Script) -> None:
    c.send(c.data(0, payload=pattern(0, 64)), Damage(pad=3))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, psn=c.rx(0))


@case("padding-is-not-data", _AREA, "Bytes of padding are not placed.", Basis.IBTA, "9.2.4", Need.MEMORY)
def padding_is_not_data(c: Script) -> None:
    c.send(c.data(1, payload=b"\xee" * 8, place=0))
    c.expect("SACK")
    for length in (1, 2, 3):
        c.send(c.data(1 + length, payload=bytes(range(1, 1 + length)), place=0))
        c.expect("SACK")
        c.expect_memory(0, bytes(range(1, 1 + length)) + b"\xee" * (8 - length))


def _raw_change(name: str, rule: str, basis: Basis, clause: str, change: Callable[[bytearray], None]) -> None:
    """Make a case of a change that the ICRC does not cover: the packet is taken."""

    @case(name, _AREA, rule, basis, clause, Need.MEMORY)
    def taken(c: Script) -> None:
        packet = c.data(0)
        raw = bytearray(encode(packet))
        change(raw)
        c.send_raw(bytes(raw))
        c.expect("SACK", cack_psn=c.rx(0))
        c.expect_memory(0, packet.payload)


def _hop_limit(raw: bytearray) -> None:
    raw[7] = 3


def _flow_label(raw: bytearray) -> None:
    raw[2] ^= 0x5A


def _checksum(raw: bytearray) -> None:
    raw[46:48] = b"\x12\x34"


def _resv8a(raw: bytearray) -> None:
    raw[_BTH_AT + 4] = 0xC0


_raw_change("icrc-hop-limit", "The ICRC does not cover the hop limit.", Basis.IBTA, "RoCEv2 A17.3.3", _hop_limit)
_raw_change("icrc-flow-label", "The ICRC does not cover the flow label.", Basis.IBTA, "RoCEv2 A17.3.3", _flow_label)
_raw_change("icrc-udp-checksum", "The ICRC does not cover the UDP checksum.", Basis.IBTA, "RoCEv2 A17.3.3", _checksum)
_raw_change("icrc-resv8a", "The ICRC does not cover BTH's reserved byte.", Basis.IBTA, "RoCEv2 A17.3.3", _resv8a)


@case(
    "icrc-traffic-class",
    _AREA,
    "The ICRC does not cover the traffic class, which switches change.",
    Basis.IBTA,
    "RoCEv2 A17.3.3",
)
def icrc_traffic_class(c: Script) -> None:
    c.send(c.data(0), ecn=3, dscp=8)
    c.expect("SACK", cack_psn=c.rx(0))


@case(
    "icrc-covers-payload", _AREA, "One wrong bit of the payload is found by the ICRC.", Basis.IBTA, "9.2.8", Need.MEMORY
)
def icrc_covers_payload(c: Script) -> None:
    packet = c.data(0)
    for at in (100, 300, len(encode(packet)) - 5):
        raw = bytearray(encode(packet))
        raw[at] ^= 0x10
        c.send_raw(bytes(raw))
    c.expect_nothing()
    c.expect_memory(0, bytes(len(packet.payload)))


@case(
    "icrc-covers-addresses",
    _AREA,
    "One wrong bit of the destination's IP address is found by the ICRC.",
    Basis.IBTA,
    "RoCEv2 A17.3.3",
)
def icrc_covers_addresses(c: Script) -> None:
    raw = bytearray(encode(c.data(0)))
    raw[23] ^= 1
    c.send_raw(bytes(raw))
    _still_works(c)


@case("icrc-covers-lengths", _AREA, "The ICRC covers BTH: another PSN is found.", Basis.IBTA, "9.2.8")
def icrc_covers_lengths(c: Script) -> None:
    raw = bytearray(encode(c.data(0)))
    raw[_BTH_AT + 11] ^= 2
    c.send_raw(bytes(raw))
    _still_works(c)


def _reserved(name: str, opcode: str, fields: tuple[str, ...]) -> None:
    """Make a case of reserved bits that are set in a packet that the kit sends as responder."""

    @case(name, _AREA, f"Reserved bits of a {opcode} are not read.", Basis.IBTA, "2.4, 9.2", Need.POST)
    def ignored(c: Script) -> None:
        wr = c.post(8)
        packet = c.expect("WRITE_ONLY")
        bits = dict.fromkeys(fields, 1)
        if opcode == "SACK":
            c.sack(packet, 0, **bits)
            c.ack(0, 1)
        else:
            c.send("ACK", psn=c.tx(0), msn=1, syndrome=0x1F, **bits)
        c.expect_completion(wr)
        c.expect_nothing("WRITE_ONLY", within=3 * c.ack_timeout_ns)


_reserved("reserved-sack", "SACK", ("seth_type", "seth_nxt", "seth_r3", "seth_r1", "seth_zero", "cc_r1"))
_reserved("reserved-bth", "ACK", ("resv4", "r"))


@case("reserved-data", _AREA, "Reserved bits of a WRITE are not read.", Basis.IBTA, "2.4, 9.2", Need.MEMORY)
def reserved_data(c: Script) -> None:
    packet = c.data(0)
    c.send(packet, resv4=0xF, r=1, tseth_reserved=0x7FF)
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect_memory(0, packet.payload)


@case("reserved-nack", _AREA, "Reserved bits of a NACK are not read.", Basis.IBTA, "2.4, 9.2", Need.POST)
def reserved_nack(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.nack(packet, NackReason.TRIMMED, neth_zero16=0xFFFF, neth_zero8a=1, neth_zero8b=0xFF, vendor_info=0x77)
    c.expect("WRITE_ONLY", rtx=1)


@case("reserved-probe", _AREA, "Reserved bits of a probe are not read.", Basis.IBTA, "2.4, 9.2")
def reserved_probe(c: Script) -> None:
    c.send("PROBE", probe_id=0x1234, peth_zero16a=9, peth_zero8=1, peth_zero16b=7, peth_zero11=3, vendor_info=0x42)
    c.expect("SACK", pr=1, ack_psn_offset=0x1234)


@case(
    "tseth-absent",
    _AREA,
    "A WRITE without TSETH is taken; its SACK echoes the timestamp 0.",
    Basis.NOTES,
    "§3",
    Need.MEMORY,
)
def tseth_absent(c: Script) -> None:
    packet = c.data(0)
    bare = c.make("WRITE_ONLY", stamped=False).with_fields(
        {name: value for name, value in packet.fields.items() if not name.startswith("tseth") and name != "bth.ts"}
    )
    bare.payload = packet.payload
    c.send(bare)
    c.expect("SACK", cack_psn=c.rx(0), tx_timestamp=0)
    c.expect_memory(0, packet.payload)


def _srv6(packet: Packet, segments: int) -> bytes:
    """Return the packet in SRv6 encapsulation, with a routing header of `segments` segments."""
    inner = encode(packet)
    srh = b""
    if segments:
        srh = bytes((41, 2 * segments, 4, 0, segments - 1, 0, 0, 0)) + packet.destination * segments
    length = len(srh) + len(inner)
    outer = inner[:4] + length.to_bytes(2, "big") + bytes((43 if srh else 41, 63)) + packet.source + packet.destination
    return outer + srh + inner


@case(
    "srv6-outer",
    _AREA,
    "A packet that still has its outer IPv6 header is taken.",
    Basis.RFC,
    "RFC 8986, 4",
    Need.MEMORY,
)
def srv6_outer(c: Script) -> None:
    packet = c.data(0)
    c.send_raw(_srv6(packet, 0))
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect_memory(0, packet.payload)


@case(
    "srv6-srh",
    _AREA,
    "A packet that still has outer header and routing header is taken.",
    Basis.RFC,
    "RFC 8754, 4",
    Need.MEMORY,
)
def srv6_srh(c: Script) -> None:
    packet = c.data(0)
    c.send_raw(_srv6(packet, 2))
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect_memory(0, packet.payload)


@case(
    "srh-contradicts",
    _AREA,
    "A routing header whose last entry contradicts its length is dropped.",
    Basis.RFC,
    "RFC 8754, 2",
)
def srh_contradicts(c: Script) -> None:
    raw = bytearray(_srv6(c.data(0), 2))
    raw[44] = 7
    c.send_raw(bytes(raw))
    _still_works(c)


@case(
    "srv6-marks",
    _AREA,
    "CE in the outer or in the inner header of an encapsulated packet is a mark.",
    Basis.RFC,
    "RFC 6040, 4.2",
)
def srv6_marks(c: Script) -> None:
    for index, (inner, outer) in enumerate(((2, 2), (3, 2), (2, 3), (3, 3))):
        raw = bytearray(_srv6(replace(c.data(index), ecn=inner), 0))
        raw[1] = raw[1] & 0xCF | outer << 4
        c.send_raw(bytes(raw))
        c.expect("SACK", cack_psn=c.rx(index), m=int(3 in (inner, outer)))
