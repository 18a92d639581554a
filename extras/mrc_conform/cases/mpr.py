"""MPR and dynamic MPR."""

from __future__ import annotations

from dataclasses import replace

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need, Settings
from mrc_conform.script import NackReason, Script

_MPR = Area.MPR

_DYNAMIC = Settings(dynamic_mpr=True, mpr=4, mpr_dest=4, window=1 << 30, tail_probe=False)


@case(
    "mpr-dynamic-tells",
    _MPR,
    "With dynamic MPR every SACK carries the responder's present window.",
    Basis.NOTES,
    "§4",
    Need.PRESSURE,
    connected=False,
    settings=_DYNAMIC,
)
def mpr_dynamic_tells(c: Script) -> None:
    c.connect(dynamic_mpr=True)
    c.send(c.data(0))
    c.expect("SACK", mpr=4)
    c.device.set_mpr(c.dut, 9)
    c.send(c.data(1))
    c.expect("SACK", mpr=9)
    c.send("PROBE", probe_id=1)
    c.expect("SACK", pr=1, mpr=9)


@case(
    "mpr-dynamic-window",
    _MPR,
    "A responder that lowered its window refuses what lies beyond it.",
    Basis.NOTES,
    "§4, §6",
    Need.PRESSURE,
    connected=False,
    settings=_DYNAMIC,
)
def mpr_dynamic_window(c: Script) -> None:
    c.connect(dynamic_mpr=True)
    c.device.set_mpr(c.dut, 1)
    c.send(c.data(128, place=0))
    c.expect("NACK", nack_reason=NackReason.PSN_OOR_WINDOW)
    c.device.set_mpr(c.dut, 2)
    c.send(c.data(128, place=0))
    c.expect("SACK", ack_psn_offset=129)


@case(
    "mpr-dynamic-follows",
    _MPR,
    "The requestor follows the window up and down.",
    Basis.NOTES,
    "§4",
    Need.EXACT_TIME,
    Need.POST,
    connected=False,
    settings=_DYNAMIC,
)
def mpr_dynamic_follows(c: Script) -> None:
    c.connect(dynamic_mpr=True, mpr_dest=1)
    c.post(2000 * c.settings.mtu)
    packets = c.drain()
    c.check(len(packets) == 128, f"{len(packets)} packets left in a window of 128")
    c.sack(packets[127], 127, mpr=3)
    more = c.drain()
    c.check(len(more) == 384, f"{len(more)} packets left after the window grew to 384")
    c.sack(more[-1], 511, mpr=1)
    last = c.drain()
    c.check(len(last) == 128, f"{len(last)} packets left after the window shrank to 128")


@case(
    "mpr-static-ignores",
    _MPR,
    "Without dynamic MPR the field of a SACK is not read.",
    Basis.NOTES,
    "§4",
    Need.EXACT_TIME,
    Need.POST,
    connected=False,
    settings=Settings(mpr=64, window=1 << 30, tail_probe=False),
)
def mpr_static_ignores(c: Script) -> None:
    c.connect(mpr_dest=1)
    c.post(2000 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[127], 127, mpr=9)
    more = c.drain()
    c.check(len(more) == 128, f"{len(more)} packets left in a window of 128")


@case(
    "mpr-one-sided",
    _MPR,
    "Dynamic MPR that only one end offers is not used: the field is 0.",
    Basis.NOTES,
    "§4",
    settings=_DYNAMIC,
)
def mpr_one_sided(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", mpr=0)
    c.send("PROBE", probe_id=1)
    c.expect("SACK", pr=1, mpr=0)


@case(
    "mpr-older-sack",
    _MPR,
    "The window of a SACK that was overtaken is not taken over.",
    Basis.OURS,
    "§4",
    Need.EXACT_TIME,
    Need.POST,
    connected=False,
    settings=_DYNAMIC,
)
def mpr_older_sack(c: Script) -> None:
    c.connect(dynamic_mpr=True, mpr_dest=1)
    c.post(2000 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[100], 100, mpr=1)
    c.sack(packets[50], 50, mpr=4, rcvd_bytes=10)
    late = c.drain()
    c.check(len(late) == 101, f"{len(late)} packets left, and 101 were acknowledged in a window of 128")


@case(
    "mpr-ack-moves",
    _MPR,
    "A transport ACK moves the send limit as a SACK does, though every SACK is lost.",
    Basis.NOTES,
    "§4",
    Need.POST,
    settings=Settings(mpr=1, mpr_dest=1, tail_probe=False),
)
def mpr_ack_moves(c: Script) -> None:
    requests = [c.post(100 * c.settings.mtu) for _ in range(4)]
    arrived = 0
    for index, request in enumerate(requests):
        arrived += len(c.drain())
        end = 100 * (index + 1)
        c.check(arrived >= end, f"{arrived} packets left, and a transport ACK of the first {end - 100} opens 128 more")
        c.ack(end - 1, index + 1)
        c.expect_completion(request)


@case(
    "mpr-older-same-cack",
    _MPR,
    "Of two SACKs with the same cack_psn the one with fewer rcvd_bytes is the older: its window is not taken over.",
    Basis.OURS,
    "§8",
    Need.EXACT_TIME,
    Need.POST,
    connected=False,
    settings=replace(_DYNAMIC, rack_inference=False, same_ev_inference=False),
)
def mpr_older_same_cack(c: Script) -> None:
    c.connect(dynamic_mpr=True, mpr_dest=1)
    c.post(2000 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[20], 9, [20], mpr=1)
    c.sack(packets[15], 9, [15], mpr=4, rcvd_bytes=20)
    late = c.drain()
    c.check(len(late) == 10, f"{len(late)} packets left, and 10 were acknowledged in a window of 128")


@case(
    "mpr-shrinks",
    _MPR,
    "A smaller window counts from its SACK on, though a larger one was granted before and not used.",
    Basis.NOTES,
    "§4",
    Need.EXACT_TIME,
    Need.POST,
    connected=False,
    settings=_DYNAMIC,
)
def mpr_shrinks(c: Script) -> None:
    c.connect(dynamic_mpr=True, mpr_dest=4)
    c.post(10 * c.settings.mtu)
    c.sack(c.drain()[-1], 9, mpr=1)
    c.post(600 * c.settings.mtu)
    packets = c.drain()
    c.check(len(packets) == 128, f"{len(packets)} packets left after the window shrank to 128")
    c.ack(9, 1)
    c.expect_nothing("WRITE_MIDDLE")


@case(
    "mpr-shrunk-repeats",
    _MPR,
    "A packet beyond a window that shrank is not repeated before the window reaches it.",
    Basis.NOTES,
    "§5",
    Need.EXACT_TIME,
    Need.POST,
    connected=False,
    settings=replace(_DYNAMIC, rack_inference=False, same_ev_inference=False),
)
def mpr_shrunk_repeats(c: Script) -> None:
    c.connect(dynamic_mpr=True, mpr_dest=2)
    c.post(200 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[0], 0, mpr=1)
    for packet in packets[127:131]:
        c.nack(packet, NackReason.TRIMMED)
    again = sorted(packet["psn"] for packet in c.drain())
    c.check(again == [c.tx(127), c.tx(128)], f"packets {again} were sent again, and the window ends at {c.tx(128)}")
    c.sack(packets[1], 1, mpr=1)
    c.check([packet["psn"] for packet in c.drain()] == [c.tx(129)], "the window moved and its packet was not sent")
