"""The request packets of RoCEv2's reliable connection: their headers, PSNs and path."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.roce_shorthand import USUAL, requests, roce
from mrc_conform.device import Need, Settings
from mrc_conform.script import Script, pattern
from mrc_conform.wire import Transport

_AREA = Area.ROCE
_R = Transport.ROCE


@case(
    "roce-write-only",
    _AREA,
    "A WRITE of one packet is a WRITE Only with RETH.",
    Basis.IBTA,
    "9.4.3",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def write_only(c: Script) -> None:
    c.post(100, at=0x7000)
    c.expect("WRITE_ONLY", va=0x7000, rkey=0xABCD, dma_length=100, payload=pattern(0, 100), ack_req=1)


@case(
    "roce-write-long",
    _AREA,
    "Only the first packet of a longer WRITE has a RETH, with the length of the message.",
    Basis.IBTA,
    "9.4.3",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def write_long(c: Script) -> None:
    c.post(3 * c.settings.mtu)
    c.expect("WRITE_FIRST", psn=c.tx(0), dma_length=3 * c.settings.mtu)
    c.expect("WRITE_MIDDLE", psn=c.tx(1))
    c.expect("WRITE_LAST", psn=c.tx(2), ack_req=1)


@case(
    "roce-write-imm",
    _AREA,
    "The last packet of a WRITE with immediate carries ImmDt.",
    Basis.IBTA,
    "9.4.3",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def write_imm(c: Script) -> None:
    c.post(8, 0xAA)
    c.post(2 * c.settings.mtu, 0xBB)
    c.expect("WRITE_ONLY_IMM", immediate=0xAA)
    c.expect("WRITE_LAST_IMM", immediate=0xBB)


@case(
    "roce-send",
    _AREA,
    "A SEND has neither RETH nor address: First, Middle, Last, or Only.",
    Basis.IBTA,
    "9.4.1",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def send(c: Script) -> None:
    c.device.post_send(c.dut, 1, pattern(0, 3 * c.settings.mtu))
    c.device.post_send(c.dut, 2, pattern(0, 8), 0x77)
    c.expect("SEND_FIRST", psn=c.tx(0))
    c.expect("SEND_MIDDLE", psn=c.tx(1))
    c.expect("SEND_LAST", psn=c.tx(2))
    c.expect("SEND_ONLY_IMM", psn=c.tx(3), immediate=0x77)


@case(
    "roce-read-request",
    _AREA,
    "A READ request has a RETH and no payload, and takes as many PSNs as its response has packets.",
    Basis.IBTA,
    "9.4.4",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def read_request(c: Script) -> None:
    c.device.post_read(c.dut, 1, c.region, 3 * c.settings.mtu, 0x9000, 0x55)
    c.expect("READ_REQUEST", psn=c.tx(0), va=0x9000, rkey=0x55, dma_length=3 * c.settings.mtu)
    c.post(8)
    c.expect("WRITE_ONLY", psn=c.tx(3))


@case(
    "roce-swap-request",
    _AREA,
    "A compare and swap carries both operands.",
    Basis.IBTA,
    "9.4.5",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def swap_request(c: Script) -> None:
    c.device.post_swap(c.dut, 1, c.region, 0x9000, 0x55, compare=7, swap=9)
    c.expect("COMPARE_SWAP", va=0x9000, rkey=0x55, compare=7, swap_or_add=9)


@case(
    "roce-add-request",
    _AREA,
    "A fetch and add carries what is added.",
    Basis.IBTA,
    "9.4.5",
    Need.POST,
    settings=USUAL,
    transport=_R,
)
def add_request(c: Script) -> None:
    c.device.post_add(c.dut, 1, c.region, 0x9000, 0x55, 41)
    c.expect("FETCH_ADD", va=0x9000, rkey=0x55, swap_or_add=41)


@case(
    "roce-one-path",
    _AREA,
    "All packets of a queue pair take one path: one port and one UDP source port.",
    Basis.IBTA,
    "RoCEv2 A17.3",
    Need.POST,
    settings=Settings(planes=2, mtu=1024),
    transport=_R,
)
def one_path(c: Script) -> None:
    c.post(20 * c.settings.mtu)
    packets = requests(c)
    c.check(len(packets) == 20, f"{len(packets)} packets came")
    c.check(len({(packet.port, packet.ev) for packet in packets}) == 1, "the packets took several paths")


@case(
    "roce-ack-requests",
    _AREA,
    "Within a message every `ack_every`th packet asks for an acknowledgement.",
    Basis.OURS,
    "baselines",
    Need.POST,
    settings=roce(ack_every=4),
    transport=_R,
)
def ack_requests(c: Script) -> None:
    c.post(10 * c.settings.mtu)
    asked = [index for index, packet in enumerate(requests(c)) if packet["ack_req"]]
    c.check(asked == [3, 7, 9], f"packets {asked} ask for an acknowledgement")
