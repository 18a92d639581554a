"""Opcodes and header bits of what the device sends."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need, Settings
from mrc_conform.script import Script, pattern

_AREA = Area.OPCODES
_DSCP_CONTROL = 46
_DATA = ("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_ONLY")
_ECT0 = 2


@case("write-only", _AREA, "A message that fits one packet is a WRITE Only.", Basis.NOTES, "§3", Need.POST)
def write_only(c: Script) -> None:
    c.post(100)
    c.expect("WRITE_ONLY", payload=pattern(0, 100), dma_length=100)
    c.expect_nothing(*_DATA)


@case("write-one-mtu", _AREA, "A message of exactly one MTU is a WRITE Only.", Basis.IBTA, "9.7.3", Need.POST)
def write_one_mtu(c: Script) -> None:
    c.post(c.settings.mtu)
    c.expect("WRITE_ONLY", payload=pattern(0, c.settings.mtu))
    c.expect_nothing(*_DATA)


@case("write-zero", _AREA, "A message of no bytes is one packet without payload.", Basis.IBTA, "9.7.3", Need.POST)
def write_zero(c: Script) -> None:
    c.post(0)
    c.expect("WRITE_ONLY", payload=b"", dma_length=0, pad=0)


@case(
    "write-two",
    _AREA,
    "A longer message begins with WRITE First and ends with WRITE Last.",
    Basis.NOTES,
    "§3",
    Need.POST,
)
def write_two(c: Script) -> None:
    c.post(c.settings.mtu + 1)
    c.expect("WRITE_FIRST", psn=c.tx(0))
    c.expect("WRITE_LAST", psn=c.tx(1))
    c.expect_nothing(*_DATA)


@case("write-middle", _AREA, "Between First and Last every packet is a WRITE Middle.", Basis.NOTES, "§3", Need.POST)
def write_middle(c: Script) -> None:
    c.post(4 * c.settings.mtu)
    c.expect("WRITE_FIRST", psn=c.tx(0))
    c.expect("WRITE_MIDDLE", psn=c.tx(1))
    c.expect("WRITE_MIDDLE", psn=c.tx(2))
    c.expect("WRITE_LAST", psn=c.tx(3))


@case(
    "write-full-packets", _AREA, "All packets of a message but the last carry one MTU.", Basis.IBTA, "9.7.3", Need.POST
)
def write_full_packets(c: Script) -> None:
    mtu = c.settings.mtu
    c.post(2 * mtu + 5)
    whole = pattern(0, 2 * mtu + 5)
    c.expect("WRITE_FIRST", payload=whole[:mtu])
    c.expect("WRITE_MIDDLE", payload=whole[mtu : 2 * mtu])
    c.expect("WRITE_LAST", payload=whole[2 * mtu :], pad=3)


@case(
    "imm-only",
    _AREA,
    "A WriteIMM of one packet carries ImmDt in a WRITE Only with Immediate.",
    Basis.NOTES,
    "§3",
    Need.POST,
)
def imm_only(c: Script) -> None:
    c.post(8, 0xA1B2C3D4)
    c.expect("WRITE_ONLY_IMM", immediate=0xA1B2C3D4)


@case("imm-last", _AREA, "Only the last packet of a longer WriteIMM has the immediate.", Basis.NOTES, "§3", Need.POST)
def imm_last(c: Script) -> None:
    c.post(3 * c.settings.mtu, 0x01020304)
    c.expect("WRITE_FIRST")
    c.expect("WRITE_MIDDLE")
    c.expect("WRITE_LAST_IMM", immediate=0x01020304)


@case(
    "reth-everywhere",
    _AREA,
    "Every data packet has a RETH whose address is that of its own payload.",
    Basis.NOTES,
    "§3",
    Need.POST,
)
def reth_everywhere(c: Script) -> None:
    mtu = c.settings.mtu
    c.post(3 * mtu, at=0x7000_0000_0000)
    for index, opcode in enumerate(("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST")):
        c.expect(opcode, va=0x7000_0000_0000 + index * mtu, rkey=0xABCD, dma_length=3 * mtu)


@case("msn-counts", _AREA, "METH.msn numbers every message, from 1.", Basis.NOTES, "§3", Need.POST)
def msn_counts(c: Script) -> None:
    c.post(8)
    c.post(c.settings.mtu + 1)
    c.post(8, 5)
    c.expect("WRITE_ONLY", msn=1)
    c.expect("WRITE_FIRST", msn=2)
    c.expect("WRITE_LAST", msn=2)
    c.expect("WRITE_ONLY_IMM", msn=3)


@case(
    "rqmsn-counts",
    _AREA,
    "METH.rqmsn numbers WriteIMM messages only, in every packet of the message.",
    Basis.NOTES,
    "§3",
    Need.POST,
)
def rqmsn_counts(c: Script) -> None:
    c.post(8, 1)
    c.post(8)
    c.post(c.settings.mtu + 1, 2)
    c.expect("WRITE_ONLY_IMM", rqmsn=1)
    c.expect("WRITE_ONLY", msn=2)
    c.expect("WRITE_FIRST", rqmsn=2)
    c.expect("WRITE_LAST_IMM", rqmsn=2)


@case("psn-consecutive", _AREA, "Packets are numbered one by one across messages.", Basis.IBTA, "9.7.2", Need.POST)
def psn_consecutive(c: Script) -> None:
    c.post(3 * c.settings.mtu)
    c.post(8)
    for index, opcode in enumerate(("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_ONLY")):
        c.expect(opcode, psn=c.tx(index))


@case(
    "solicited",
    _AREA,
    "BTH.SE is set in the last packet of a solicited WriteIMM, and in no other.",
    Basis.IBTA,
    "9.2.3",
    Need.POST,
)
def solicited(c: Script) -> None:
    c.post(2 * c.settings.mtu, 9, solicited=True)
    c.post(8, 9)
    c.expect("WRITE_FIRST", se=0)
    c.expect("WRITE_LAST_IMM", se=1)
    c.expect("WRITE_ONLY_IMM", se=0)


@case(
    "ack-request-last", _AREA, "The last packet of a message asks for an acknowledgement.", Basis.NOTES, "§5", Need.POST
)
def ack_request_last(c: Script) -> None:
    c.post(2 * c.settings.mtu)
    c.expect("WRITE_FIRST", ack_req=0)
    c.expect("WRITE_LAST", ack_req=1)


@case(
    "ack-request-window",
    _AREA,
    "A packet after which less than one MTU of the window is left asks for a SACK.",
    Basis.UET,
    "3.6.13.5",
    Need.POST,
    settings=Settings(planes=1, window=11_200),
)
def ack_request_window(c: Script) -> None:
    c.post(20 * c.settings.mtu)
    found = c.drain()
    c.check(len(found) == 10, f"{len(found)} packets fill a window of ten")
    c.check(found[-1]["ack_req"] == 1, "the packet that closes the window does not ask for a SACK")


@case(
    "pad-count",
    _AREA,
    "The payload is padded to four bytes with zeros, and BTH.pad says by how many.",
    Basis.IBTA,
    "9.2.4",
    Need.POST,
)
def pad_count(c: Script) -> None:
    for length in (1, 2, 3, 4, 5):
        c.post(length)
        c.expect("WRITE_ONLY", pad=-length % 4, payload=pattern(0, length))


@case(
    "p-key",
    _AREA,
    "Packets carry the partition key of the queue pair.",
    Basis.IBTA,
    "9.2.5",
    Need.POST,
    settings=Settings(p_key=0x8123),
)
def p_key(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY", p_key=0x8123)


@case("dest-qp", _AREA, "Data and answers go to the peer's queue pair number.", Basis.IBTA, "9.2.6", Need.POST)
def dest_qp(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY", dest_qp=c.kit.number)
    c.send(c.data(0))
    c.expect("SACK", dest_qp=c.kit.number)
    c.expect("ACK", dest_qp=c.kit.number)


@case("tver", _AREA, "The transport version is 0 in every packet.", Basis.IBTA, "9.2.2", Need.POST)
def tver(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY", tver=0, migreq=0)
    c.send(c.data(0))
    c.expect("SACK", tver=0, migreq=0)


@case("first-send-not-rtx", _AREA, "A first transmission has rtx 0.", Basis.NOTES, "§3", Need.POST)
def first_send(c: Script) -> None:
    c.post(2 * c.settings.mtu)
    c.expect("WRITE_FIRST", rtx=0)
    c.expect("WRITE_LAST", rtx=0)


@case("tseth", _AREA, "Data with ts=1 has a TSETH with format 1.", Basis.NOTES, "§3", Need.POST)
def tseth(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY", ts=1, ftype=1, tsr=0)


@case(
    "tseth-time",
    _AREA,
    "TSETH has the time of transmission in units of 128 ns.",
    Basis.NOTES,
    "§3",
    Need.POST,
    Need.EXACT_TIME,
)
def tseth_time(c: Script) -> None:
    for _ in range(3):
        c.post(8)
        c.expect("WRITE_ONLY", tx_timestamp=c.stamp)
        c.advance(1_000)


@case(
    "tseth-off",
    _AREA,
    "Without timestamps data has ts=0 and no TSETH.",
    Basis.NOTES,
    "§3",
    Need.POST,
    settings=Settings(timestamps=False),
)
def tseth_off(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY", ts=0)
    c.check(packet.find("tx_timestamp") is None, "there is a TSETH although ts is 0")


@case("data-class", _AREA, "Data is sent ECT(0), in class DSCP_TRIMMABLE.", Basis.NOTES, "§2", Need.POST)
def data_class(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY", dscp=4, ecn=_ECT0)


@case(
    "data-class-no-trim",
    _AREA,
    "Data that a fabric does not trim is sent in class DSCP_NO_TRIM.",
    Basis.NOTES,
    "§2",
    Need.POST,
    settings=Settings(fabric_trims=False),
)
def data_class_no_trim(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY", dscp=0, ecn=_ECT0)


@case(
    "data-class-no-nack",
    _AREA,
    "Data to a peer without the trim-NACK capability is sent in class DSCP_NO_TRIM.",
    Basis.NOTES,
    "§2, §4",
    Need.POST,
    connected=False,
)
def data_class_no_nack(c: Script) -> None:
    c.connect(trim_nack=False)
    c.post(8)
    c.expect("WRITE_ONLY", dscp=0)


@case(
    "retransmission-class",
    _AREA,
    "A retransmission has rtx 1 and class DSCP_TRIMMABLE_RETX.",
    Basis.NOTES,
    "§5.4",
    Need.POST,
)
def retransmission_class(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY")
    c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1, dscp=8, ecn=_ECT0)


@case(
    "control-class",
    _AREA,
    "SACKs, NACKs and transport ACKs are sent not-ECT, in class DSCP_CONTROL.",
    Basis.NOTES,
    "§2",
)
def control_class(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", dscp=_DSCP_CONTROL, ecn=0)
    c.expect("ACK", dscp=_DSCP_CONTROL, ecn=0)
    c.send(c.data(40_000))
    c.expect("NACK", dscp=_DSCP_CONTROL, ecn=0)


@case(
    "probe-class",
    _AREA,
    "A reliability probe is sent in the data's class, so that it waits in the same queues.",
    Basis.NOTES,
    "§2",
    Need.POST,
)
def probe_class(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY")
    c.expect("PROBE", within=c.ack_timeout_ns, dscp=4)


@case(
    "pair-ids",
    _AREA,
    "spdcid and dpdcid are the low 16 bits of source and destination queue pair.",
    Basis.OURS,
    "§3",
    connected=False,
)
def pair_ids(c: Script) -> None:
    c.connect(number=0xAB4B17)
    c.send(c.data(0))
    c.expect("SACK", spdcid=c.dut.number & 0xFFFF, dpdcid=0x4B17)


@case(
    "ev-travels",
    _AREA,
    "A data packet travels with an EV of the profile, of the plane of its port.",
    Basis.NOTES,
    "§2, §7",
    Need.POST,
    Need.EVS,
)
def ev_travels(c: Script) -> None:
    c.post(8 * c.settings.mtu)
    planes = {entry.value: entry.plane for entry in c.evs()}
    for packet in c.drain():
        c.check(
            planes.get(packet.ev) == packet.port, f"EV {packet.ev:08x} on port {packet.port} is not one of that plane"
        )


@case("answers-use-the-port", _AREA, "Answers leave by the port on which the packet came.", Basis.OURS, "§6")
def answers_use_the_port(c: Script) -> None:
    for port in range(c.settings.planes):
        c.send(c.data(port), port=port)
        c.expect("SACK", port=port)
        c.expect("ACK", port=port)


@case("sack-is-numbered", _AREA, "BTH.psn of a SACK is its cack_psn, and cc_type is 0.", Basis.NOTES, "§3")
def sack_is_numbered(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", psn=c.rx(0), cack_psn=c.rx(0), cc_type=0)


@case("nack-is-numbered", _AREA, "BTH.psn of a NACK is its nack_psn, and cc_type is 2.", Basis.NOTES, "§3")
def nack_is_numbered(c: Script) -> None:
    c.send(c.data(20_000))
    c.expect("NACK", psn=c.rx(20_000), nack_psn=c.rx(20_000), cc_type=2)


@case(
    "write-mtu-of-peer",
    _AREA,
    "Packets are no longer than the smaller MTU of both ends.",
    Basis.IBTA,
    "9.7.3",
    Need.POST,
    connected=False,
)
def write_mtu_of_peer(c: Script) -> None:
    c.connect(mtu=256)
    c.post(1000)
    sizes = [len(packet.payload) for packet in c.drain()]
    c.check(sizes == [256, 256, 256, 232], f"packets of {sizes} bytes left")
