"""PSNs and windows."""

from __future__ import annotations

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need, Settings
from mrc_conform.script import NackReason, Script, pattern

_PSN = Area.PSN
_ONE_UNIT = Settings(mpr_dest=1, mpr=1)
_WIDE = Settings(window=1 << 30, mpr=1, exp_cnt=0, linear_cnt=7)
_TOP = 0xFFFFFF


@case(
    "psn-wrap-receive",
    _PSN,
    "PSNs are compared modulo 2^24: reception goes on across the wrap.",
    Basis.IBTA,
    "9.7.2",
    Need.MEMORY,
    connected=False,
)
def psn_wrap_receive(c: Script) -> None:
    c.connect(psn=_TOP - 1)
    for index in range(5):
        c.send(c.data(index))
        c.expect("SACK", cack_psn=c.rx(index), ack_psn_offset=0, ooo_count=0)
        c.expect("ACK", psn=c.rx(index), msn=index + 1)
    c.expect_memory(0, b"".join(pattern(index, c.settings.mtu) for index in range(5)))


@case(
    "psn-wrap-out-of-order",
    _PSN,
    "A packet beyond the wrap may arrive before those below it.",
    Basis.IBTA,
    "9.7.2",
    connected=False,
)
def psn_wrap_out_of_order(c: Script) -> None:
    c.connect(psn=_TOP - 1)
    c.send(c.data(3))
    c.expect("SACK", cack_psn=c.rx(-1), sack_offset=1, sack_bitmap=0b1000, ack_psn_offset=4)
    for index in (1, 0, 2):
        c.send(c.data(index))
        c.expect("SACK", cack_psn=c.rx({1: -1, 0: 1, 2: 3}[index]))


@case(
    "psn-wrap-duplicate",
    _PSN,
    "A packet from below the wrap is a duplicate after it.",
    Basis.IBTA,
    "9.7.2",
    Need.MEMORY,
    connected=False,
)
def psn_wrap_duplicate(c: Script) -> None:
    c.connect(psn=_TOP)
    for index in range(3):
        c.send(c.data(index))
        c.expect("SACK")
    c.send(c.data(0, payload=b"\x55" * 64, place=0))
    c.expect("SACK", cack_psn=c.rx(2), ack_psn_offset=-2)
    c.expect_memory(0, pattern(0, c.settings.mtu))


@case(
    "psn-wrap-send",
    _PSN,
    "The requestor numbers its packets across the wrap, and acknowledgements cover it.",
    Basis.IBTA,
    "9.7.2",
    Need.POST,
    settings=Settings(first_psn=_TOP - 1),
)
def psn_wrap_send(c: Script) -> None:
    wr = c.post(4 * c.settings.mtu)
    packets = c.drain()
    c.check([packet["psn"] for packet in packets] == [_TOP - 1, _TOP, 0, 1], "PSNs do not go 0xfffffe, 0xffffff, 0, 1")
    c.sack(packets[3], 3)
    c.ack(3, 1)
    c.expect_completion(wr)
    c.expect_nothing("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", within=3 * c.ack_timeout_ns)


@case(
    "psn-wrap-cumulative",
    _PSN,
    "A cumulative acknowledgement across the wrap covers the packets on both sides of it.",
    Basis.IBTA,
    "9.7.2",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(first_psn=_TOP - 1, tail_probe=False, rack_inference=False, same_ev_inference=False),
)
def psn_wrap_cumulative(c: Script) -> None:
    c.post(4 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[2], 2)
    c.advance(c.ack_timeout_ns)
    again = [packet["psn"] for packet in c.drain()]
    c.check(again == [1], f"packets {again} were sent again, and only PSN 1 was missing")


@case(
    "psn-wrap-bitmap",
    _PSN,
    "A SACK's bitmap across the wrap names the right packets.",
    Basis.NOTES,
    "§3",
    Need.POST,
    settings=Settings(first_psn=_TOP - 1),
)
def psn_wrap_bitmap(c: Script) -> None:
    c.post(4 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[3], 0, [2, 3])
    again = c.expect("WRITE_MIDDLE", within=2 * c.ack_timeout_ns)
    c.check(again["psn"] == _TOP, f"packet {again['psn']:#x} was sent again, and 0xffffff was missing")
    c.expect_nothing("WRITE_FIRST", "WRITE_LAST")


@case("window-last", _PSN, "The last PSN of the window is accepted.", Basis.NOTES, "§6", settings=_ONE_UNIT)
def window_last(c: Script) -> None:
    c.send(c.data(127, place=0))
    c.expect("SACK", ack_psn_offset=128)


@case(
    "window-beyond",
    _PSN,
    "A PSN beyond cack_psn + 128 mpr is refused with PSN_OOR_WINDOW, and not placed.",
    Basis.NOTES,
    "§6",
    Need.MEMORY,
    settings=_ONE_UNIT,
)
def window_beyond(c: Script) -> None:
    packet = c.data(128, place=0)
    c.send(packet)
    c.expect("NACK", nack_reason=NackReason.PSN_OOR_WINDOW, nack_psn=c.rx(128), entropy=packet.ev)
    c.expect_nothing("SACK")
    c.expect_memory(0, bytes(64))


@case("window-moves", _PSN, "The window moves with cack_psn.", Basis.NOTES, "§6", settings=_ONE_UNIT)
def window_moves(c: Script) -> None:
    c.send(c.data(128, place=0))
    c.expect("NACK")
    c.send(c.data(0))
    c.expect("SACK", cack_psn=c.rx(0))
    c.send(c.data(128, place=0))
    c.expect("SACK", ack_psn_offset=128)


@case(
    "psn-half-range-ahead",
    _PSN,
    "A PSN less than half the range ahead is beyond the window, not a duplicate.",
    Basis.NOTES,
    "§4",
)
def psn_half_range_ahead(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK")
    c.send(c.data(0x7FFFFE, place=0))
    c.expect("NACK", nack_reason=NackReason.PSN_OOR_WINDOW)


@case("psn-half-range-behind", _PSN, "A PSN half the range ahead is behind: a duplicate.", Basis.NOTES, "§4")
def psn_half_range_behind(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK")
    c.send(c.data(0x800003, place=0))
    c.expect("SACK", cack_psn=c.rx(0))
    c.expect_nothing("NACK")


@case(
    "requestor-window",
    _PSN,
    "The requestor never sends a PSN greater than cack_psn + 128 mpr.",
    Basis.NOTES,
    "§4",
    Need.EXACT_TIME,
    Need.POST,
    settings=_WIDE,
)
def requestor_window(c: Script) -> None:
    c.post(300 * c.settings.mtu)
    packets = c.drain()
    c.check(len(packets) == 128, f"{len(packets)} packets left, and the window has 128")
    c.sack(packets[9], 9)
    more = c.drain()
    c.check(len(more) == 10, f"{len(more)} packets left after 10 were acknowledged")


@case(
    "requestor-window-peer",
    _PSN,
    "The peer's smaller window counts.",
    Basis.NOTES,
    "§4",
    Need.EXACT_TIME,
    Need.POST,
    connected=False,
    settings=Settings(window=1 << 30, mpr=64),
)
def requestor_window_peer(c: Script) -> None:
    c.connect(mpr_dest=2)
    c.post(400 * c.settings.mtu)
    packets = c.drain()
    c.check(len(packets) == 256, f"{len(packets)} packets left, and the peer's window has 256")
