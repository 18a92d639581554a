"""Cases of the responder's placement of bytes, and of messages that contradict themselves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need, PairState
from mrc_conform.script import Nak, Script, pattern

_PSN = Area.PSN
_PLACE = Area.PLACEMENT


@case("place-in-order", _PLACE, "Packets are placed where their own RETH says.", Basis.NOTES, "§6", Need.MEMORY)
def place_in_order(c: Script) -> None:
    for packet in c.message(0, 4, last=100):
        c.send(packet)
    c.expect_memory(0, b"".join(pattern(n, 1024) for n in range(3)) + pattern(3, 100))


@case(
    "place-early",
    _PLACE,
    "A packet is placed on arrival, though packets before it are missing.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
)
def place_early(c: Script) -> None:
    packets = c.message(0, 3)
    c.send(packets[2])
    c.expect_memory(2 * c.settings.mtu, packets[2].payload)
    c.expect_nothing("ACK")


@case(
    "place-reverse",
    _PLACE,
    "A message whose packets arrive in reverse order is complete once, at the last of them.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
)
def place_reverse(c: Script) -> None:
    packets = c.message(0, 40)
    for packet in reversed(packets[1:]):
        c.send(packet)
    c.expect_nothing("ACK")
    c.send(packets[0])
    c.expect("ACK", psn=c.rx(39), msn=1)
    c.expect_nothing("ACK")
    c.expect_memory(0, b"".join(packet.payload for packet in packets))


@case("duplicate-not-placed", _PLACE, "A duplicate is not placed again.", Basis.NOTES, "§6", Need.MEMORY)
def duplicate_not_placed(c: Script) -> None:
    c.send(c.data(0))
    c.send(c.data(0, payload=b"\xff" * c.settings.mtu))
    c.expect_memory(0, pattern(0, c.settings.mtu))


@case(
    "duplicate-early-not-placed",
    _PLACE,
    "A duplicate of a packet that arrived early is not placed again.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
)
def duplicate_early_not_placed(c: Script) -> None:
    c.send(c.data(3))
    c.expect("SACK", ooo_count=1)
    c.send(c.data(3, payload=b"\xff" * c.settings.mtu))
    c.expect("SACK", ooo_count=1, sack_bitmap=0b1000)
    c.expect_memory(3 * c.settings.mtu, pattern(3, c.settings.mtu))


@case(
    "duplicate-acknowledged",
    _PLACE,
    "A duplicate is acknowledged again, with the transport ACK that it asks for.",
    Basis.NOTES,
    "§6",
)
def duplicate_acknowledged(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK")
    c.expect("ACK")
    c.send(c.data(0), rtx=1)
    c.expect("SACK", cack_psn=c.rx(0), rtx=1)
    c.expect("ACK", psn=c.rx(0), msn=1)


@case(
    "duplicate-completes-once",
    _PLACE,
    "A duplicate of a whole message completes nothing a second time.",
    Basis.IBTA,
    "9.7.5.1.2",
    Need.POST,
)
def duplicate_completes_once(c: Script) -> None:
    for wr_id in (71, 72):
        c.device.post_recv(c.dut, wr_id)
    for packet in c.message(0, 2, immediate=5, rqmsn=1):
        c.send(packet)
    c.expect_completion(71, immediate=5)
    for packet in c.message(0, 2, immediate=5, rqmsn=1):
        c.send(packet, rtx=1)
    c.expect_no_completion()


@case(
    "overlap-last-wins",
    _PLACE,
    "Of two messages to the same place the bytes of the packet that arrived last stay.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
)
def overlap_last_wins(c: Script) -> None:
    c.send(c.data(1, payload=b"\x22" * 64, place=0))
    c.send(c.data(0, payload=b"\x11" * 64, place=32))
    c.expect_memory(0, b"\x22" * 32 + b"\x11" * 64)


@case("place-odd", _PLACE, "Any address and length is placed exactly.", Basis.IBTA, "9.3.3", Need.MEMORY)
def place_odd(c: Script) -> None:
    c.send(c.data(0, payload=b"\x77" * 13, place=5))
    c.expect_memory(0, bytes(5) + b"\x77" * 13 + bytes(8))


@case(
    "place-nothing",
    _PLACE,
    "A WRITE of no bytes completes and changes no memory, whatever its R_Key.",
    Basis.IBTA,
    "9.7.4.1.6",
    Need.MEMORY,
)
def place_nothing(c: Script) -> None:
    c.send(c.data(0, payload=b"", rkey=0xDEAD, va=0))
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect("ACK", syndrome=0x1F, msn=1)
    c.expect_memory(0, bytes(64))


@case("place-edge", _PLACE, "A WRITE that ends at the last byte of a region is taken.", Basis.IBTA, "10.6", Need.MEMORY)
def place_edge(c: Script) -> None:
    place = c.region.length - 64
    c.send(c.data(0, payload=b"\x99" * 64, place=place))
    c.expect("ACK", syndrome=0x1F)
    c.expect_memory(place, b"\x99" * 64)


def _invalid(name: str, rule: str, change: dict[str, int], which: int) -> None:
    """Make a case of a message of three packets, of which one contradicts the others."""

    @case(name, _PLACE, rule, Basis.IBTA, "9.7.4.1, C9-88; of MRC §6", Need.STATES)
    def refused(c: Script) -> None:
        for index, packet in enumerate(c.message(0, 3)):
            c.send(packet.with_fields(change) if index == which else packet)
        c.expect("ACK", syndrome=Nak.INVALID_REQUEST)
        c.expect_state(PairState.ERROR)


_invalid("message-length-differs", "All packets of a message have one DMA length; otherwise it is an invalid request.",
         {"reth.dma_length": 5000}, 1)  # fmt: skip
_invalid(
    "message-msn-differs",
    "All packets of a message have one MSN; otherwise it is an invalid request.",
    {"meth.msn": 2},
    1,
)


@case(
    "message-address-jumps",
    _PLACE,
    "The addresses of a message follow each other; otherwise it is an invalid request.",
    Basis.IBTA,
    "9.7.4.1; of MRC §6",
    Need.STATES,
)
def message_address_jumps(c: Script) -> None:
    packets = c.message(0, 3)
    packets[1] = packets[1].with_fields({"reth.va": packets[1]["va"] + 4096})
    for packet in packets:
        c.send(packet)
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST)
    c.expect_state(PairState.ERROR)


@case(
    "message-middle-short",
    _PLACE,
    "A First or Middle packet of less than one MTU is an invalid request.",
    Basis.IBTA,
    "9.7.4.1.6",
)
def message_middle_short(c: Script) -> None:
    packets = c.message(0, 3)
    packets[1].payload = packets[1].payload[:-4]
    for packet in packets:
        c.send(packet)
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, psn=c.rx(1))


@case("message-too-long", _PLACE, "A packet of more than one MTU is an invalid request.", Basis.IBTA, "9.7.4.1.6")
def message_too_long(c: Script) -> None:
    c.send(c.data(0, payload=pattern(0, c.settings.mtu + 4)))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, psn=c.rx(0))


@case(
    "message-no-first",
    _PLACE,
    "A message that begins with WRITE Middle is an invalid request.",
    Basis.IBTA,
    "9.7.4.1.2",
)
def message_no_first(c: Script) -> None:
    packets = c.message(0, 3)
    c.send(c.data(0, "WRITE_MIDDLE", msn=1, length=3 * c.settings.mtu))
    for packet in packets[1:]:
        c.send(packet)
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST)


@case("message-two-firsts", _PLACE, "A WRITE First within a message is an invalid request.", Basis.IBTA, "9.7.4.1.2")
def message_two_firsts(c: Script) -> None:
    packets = c.message(0, 3)
    c.send(packets[0])
    c.send(c.data(1, "WRITE_FIRST", msn=1, length=3 * c.settings.mtu))
    c.send(packets[2])
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST)


@case("message-only-inside", _PLACE, "A WRITE Only within a message is an invalid request.", Basis.IBTA, "9.7.4.1.2")
def message_only_inside(c: Script) -> None:
    packets = c.message(0, 3)
    c.send(packets[0])
    c.send(c.data(1, msn=2))
    c.send(packets[2])
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST)


@case(
    "message-msn-skipped", _PLACE, "A message whose MSN is not the next one is an invalid request.", Basis.NOTES, "§6"
)
def message_msn_skipped(c: Script) -> None:
    c.send(c.data(0, msn=1))
    c.expect("ACK", syndrome=0x1F)
    c.send(c.data(1, msn=3))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, psn=c.rx(1), msn=1)


@case(
    "only-length-differs",
    _PLACE,
    "A WRITE Only whose payload is not as long as its DMA length is an invalid request.",
    Basis.IBTA,
    "9.7.4.1.6",
)
def only_length_differs(c: Script) -> None:
    c.send(c.data(0, length=c.settings.mtu + 1))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST)


_HEAD = ("WRITE_FIRST", 1024)
_SHAPES = {
    "first-whole": ("A WRITE First that has the whole message", (("WRITE_FIRST", 1024, 1024, 0),)),
    "first-short": ("A WRITE First of less than one MTU", (("WRITE_FIRST", 512, 2048, 0),)),
    "last-whole": ("A WRITE Last that has the whole message", (("WRITE_LAST", 512, 512, 0),)),
    "last-empty": ("A WRITE Last without payload", (("WRITE_FIRST", 1024, 1024 + 8, 0), ("WRITE_LAST", 0, 1032, 1024))),
    "last-short": ("A message that ends before its length", ((*_HEAD, 3000, 0), ("WRITE_LAST", 8, 3000, 1024))),
    "last-long": ("A message that goes beyond its length", ((*_HEAD, 1030, 0), ("WRITE_LAST", 8, 1030, 1024))),
    "last-alone": ("A WRITE Last without a First", (("WRITE_LAST", 8, 1032, 1024),)),
    "middle-last": ("A message of Middle and Last", (("WRITE_MIDDLE", 1024, 1032, 0), ("WRITE_LAST", 8, 1032, 1024))),
    "middle-first": ("A WRITE First after a Middle", (("WRITE_MIDDLE", 1024, 9000, 0), (*_HEAD, 9000, 1024))),
}  # fmt: skip


def _shape(c: Script, packets: Sequence[tuple[str, int, int, int]]) -> None:
    for index, (opcode, size, length, place) in enumerate(packets):
        c.send(c.data(index, opcode, msn=1, payload=pattern(index, size), length=length, place=place))
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, msn=0)
    c.expect_nothing("ACK")


for _name, (_what, _packets) in _SHAPES.items():
    case(f"message-{_name}", _PLACE, f"{_what} is an invalid request.", Basis.IBTA, "9.7.4.1")(
        partial(_shape, packets=_packets)
    )


@case(
    "message-stranger-inside",
    _PLACE,
    "A Middle packet of another MSN is no part of the message around it, which is an invalid request.",
    Basis.OURS,
    "§6",
)
def message_stranger_inside(c: Script) -> None:
    packets = c.message(0, 3)
    packets[1] = packets[1].with_fields({"meth.msn": 2})
    for packet in packets:
        c.send(packet)
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, msn=0)


@case(
    "message-key-differs",
    _PLACE,
    "All packets of a message have one R_Key; otherwise it is an invalid request, though the other key is good.",
    Basis.IBTA,
    "9.7.4.1",
    Need.MEMORY,
)
def message_key_differs(c: Script) -> None:
    other = c.device.region(1 << 20)
    packets = c.message(0, 3)
    c.send(packets[0])
    c.send(packets[1], rkey=other.rkey)
    c.send(packets[2])
    c.expect("ACK", syndrome=Nak.INVALID_REQUEST, msn=0)
