"""Cases of the responder's answers: SACKs."""

from __future__ import annotations

from dataclasses import replace

from mrc_conform.case import Area, Basis, case
from mrc_conform.device import Need, Settings
from mrc_conform.script import Script, pattern
from mrc_conform.wire import Packet

_SACK = Area.SACK
_CE = 3
_COALESCED = Settings(sack_every=4, sack_delay_ns=500_000_000)
_DELAYED = Settings(sack_every=4, sack_delay_ns=50_000)


def _quiet(packet: Packet) -> Packet:
    """Return the packet without its request for an acknowledgement."""
    return packet.with_fields({"bth.ack_req": 0})


@case("sack-every-packet", _SACK, "Without coalescing every packet is answered by a SACK.", Basis.NOTES, "§6")
def sack_every_packet(c: Script) -> None:
    for index, packet in enumerate(c.message(0, 5)):
        c.send(_quiet(packet))
        c.expect("SACK", cack_psn=c.rx(index), ack_psn_offset=0)


@case("sack-cumulative", _SACK, "cack_psn is the last PSN up to which everything has arrived.", Basis.NOTES, "§3")
def sack_cumulative(c: Script) -> None:
    for index, cack in ((0, 0), (2, 0), (3, 0), (1, 3), (4, 4)):
        c.send(c.data(index))
        c.expect("SACK", cack_psn=c.rx(cack))


@case(
    "sack-bitmap", _SACK, "Bit i of the bitmap says that PSN cack_psn + sack_offset + i has arrived.", Basis.NOTES, "§3"
)
def sack_bitmap(c: Script) -> None:
    for index in (0, 2, 5, 6):
        c.send(c.data(index))
    found = c.drain({"SACK"})[-1]
    base = found["cack_psn"] + found["sack_offset"]
    shown = {base + bit - c.kit.psn for bit in range(64) if found["sack_bitmap"] >> bit & 1}
    c.check(shown - {0} == {2, 5, 6}, f"the bitmap shows the packets {sorted(shown)}, and 2, 5 and 6 arrived early")


@case(
    "sack-trigger",
    _SACK,
    "ack_psn_offset names the packet that triggered the SACK, also one below cack_psn.",
    Basis.NOTES,
    "§3",
)
def sack_trigger(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", ack_psn_offset=0)
    c.send(c.data(4))
    c.expect("SACK", cack_psn=c.rx(0), ack_psn_offset=4)
    c.send(c.data(1))
    c.expect("SACK", cack_psn=c.rx(1), ack_psn_offset=0)
    c.send(c.data(0))
    c.expect("SACK", cack_psn=c.rx(1), ack_psn_offset=-1)


@case("sack-echo-ev", _SACK, "A SACK echoes the EV of the packet that triggered it.", Basis.NOTES, "§3")
def sack_echo_ev(c: Script) -> None:
    for index, ev in enumerate((0x12345678, 0x0000FFFF, 0xFFFF0001)):
        c.send(c.data(index), ev=ev)
        c.expect("SACK", entropy=ev)


@case("sack-echo-time", _SACK, "A SACK echoes the timestamp of the packet that triggered it.", Basis.NOTES, "§3")
def sack_echo_time(c: Script) -> None:
    for index, stamp in enumerate((0x0001, 0xFFFF, 0x8000)):
        c.send(c.data(index), tx_timestamp=stamp)
        c.expect("SACK", tx_timestamp=stamp)


@case("sack-echo-rtx", _SACK, "A SACK echoes rtx.", Basis.NOTES, "§3")
def sack_echo_rtx(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", rtx=0)
    c.send(c.data(1), rtx=1)
    c.expect("SACK", rtx=1)


@case("sack-mark-ce", _SACK, "A packet that arrived with CE is answered with m = SKIP_ONCE.", Basis.NOTES, "§3")
def sack_mark_ce(c: Script) -> None:
    c.send(c.data(0), ecn=_CE)
    c.expect("SACK", m=1)


@case("sack-mark-none", _SACK, "A packet without CE is answered with m = NONE.", Basis.NOTES, "§3")
def sack_mark_none(c: Script) -> None:
    for index, ecn in enumerate((0, 1, 2)):
        c.send(c.data(index), ecn=ecn)
        c.expect("SACK", m=0)


@case(
    "sack-always-skip",
    _SACK,
    "After the configured number of marks in a row on one EV, m = ALWAYS_SKIP.",
    Basis.OURS,
    "§3",
    settings=Settings(always_skip_after=3),
)
def sack_always_skip(c: Script) -> None:
    for index, mark in enumerate((1, 1, 2)):
        c.send(c.data(index), ecn=_CE, ev=0x77)
        c.expect("SACK", m=mark)


@case(
    "sack-always-skip-row",
    _SACK,
    "An unmarked packet on the EV begins the count again, and other EVs do not.",
    Basis.OURS,
    "§3",
    settings=Settings(always_skip_after=3),
)
def sack_always_skip_row(c: Script) -> None:
    one, other = 0x77, 0x88
    marks = [(one, _CE, 1), (other, 2, 0), (one, _CE, 1), (one, 2, 0), (one, _CE, 1), (one, _CE, 1), (other, 2, 0)]
    marks.append((one, _CE, 2))
    for index, (ev, ecn, mark) in enumerate(marks):
        c.send(c.data(index), ecn=ecn, ev=ev)
        c.expect("SACK", m=mark)


@case(
    "sack-received-bytes",
    _SACK,
    "rcvd_bytes counts nominal bytes (UDP length + 40) of new packets in units of 256, rounded up.",
    Basis.UET,
    "3.6.13; of MRC §3",
)
def sack_received_bytes(c: Script) -> None:
    total = 0
    for index, length in enumerate((1024, 100, 1, 1024)):
        sent = c.send(c.data(index, payload=pattern(index, length)))
        total += len(sent.raw)
        c.expect("SACK", rcvd_bytes=-(-total // 256))


@case("sack-received-once", _SACK, "rcvd_bytes does not count duplicates.", Basis.UET, "3.6.13; of MRC §3")
def sack_received_once(c: Script) -> None:
    c.send(c.data(0))
    first = c.expect("SACK")["rcvd_bytes"]
    for _ in range(4):
        c.send(c.data(0))
        c.expect("SACK", rcvd_bytes=first)


@case("sack-out-of-order", _SACK, "ooo_count says how many packets arrived beyond cack_psn.", Basis.NOTES, "§3")
def sack_out_of_order(c: Script) -> None:
    for index, beyond in ((2, 1), (4, 2), (1, 3), (0, 1), (3, 0)):
        c.send(c.data(index))
        c.expect("SACK", ooo_count=beyond)


@case(
    "sack-plain-fields",
    _SACK,
    "Without dynamic MPR, pressure or a probe, mpr, penalty, restore_cwnd and pr are 0.",
    Basis.NOTES,
    "§3",
)
def sack_plain_fields(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK", mpr=0, rcv_cwnd_pen=0, restore_cwnd=0, pr=0)


@case(
    "sack-penalty",
    _SACK,
    "The receiver's penalty and restore_cwnd go into every SACK.",
    Basis.UET,
    "3.6.13; of MRC §8",
    Need.PRESSURE,
)
def sack_penalty(c: Script) -> None:
    c.device.set_pressure(100, restore=True)
    c.send(c.data(0))
    c.expect("SACK", rcv_cwnd_pen=100, restore_cwnd=1)
    c.send("PROBE", probe_id=1)
    c.expect("SACK", pr=1, rcv_cwnd_pen=100, restore_cwnd=1)
    c.device.set_pressure(0)
    c.send(c.data(1))
    c.expect("SACK", rcv_cwnd_pen=0, restore_cwnd=0)


@case(
    "sack-wide-trigger",
    _SACK,
    "With more to show than 64 PSNs, the bitmap shows the neighbourhood of the triggering packet.",
    Basis.OURS,
    "§6",
)
def sack_wide_trigger(c: Script) -> None:
    shown = 0
    for index in range(10, 400, 3):
        c.send(_quiet(c.data(index)))
        found = c.expect("SACK", ack_psn_offset=index + 1)
        first = found["sack_offset"]
        shown += int(first <= index + 1 < first + 64 and found["sack_bitmap"] >> (index + 1 - first) & 1)
    c.check(shown >= 90, f"{shown} of 130 SACKs show the packet that triggered them")


@case(
    "sack-wide-cycle",
    _SACK,
    "Successive SACKs cycle over older holes, so that every packet is shown some time.",
    Basis.OURS,
    "§6",
)
def sack_wide_cycle(c: Script) -> None:
    arrived = set(range(5, 300, 2))
    seen: set[int] = set()
    for index in sorted(arrived):
        c.send(_quiet(c.data(index)))
    c.drain({"SACK"})
    for _ in range(40):
        c.send(c.data(299 if 299 in arrived else 5))
        found = c.expect("SACK")
        base = found["sack_offset"] - 1
        seen |= {base + bit for bit in range(64) if found["sack_bitmap"] >> bit & 1}
    c.check(
        seen == arrived, f"{len(arrived - seen)} packets are in none of 40 SACKs, {len(seen - arrived)} wrongly are"
    )


@case(
    "sack-coalesced",
    _SACK,
    "With coalescing one SACK answers several packets.",
    Basis.UET,
    "3.6.13.5",
    settings=_COALESCED,
)
def sack_coalesced(c: Script) -> None:
    packets = [_quiet(packet) for packet in c.message(0, 12)]
    for index in range(8):
        c.send(packets[index])
        if index % 4 == 3:
            c.expect("SACK", cack_psn=c.rx(index))
        else:
            c.expect_nothing("SACK")


@case(
    "sack-coalesced-delay",
    _SACK,
    "A SACK that is held back leaves after the configured delay.",
    Basis.UET,
    "3.6.13.5",
    Need.EXACT_TIME,
    settings=_DELAYED,
)
def sack_coalesced_delay(c: Script) -> None:
    packets = [_quiet(packet) for packet in c.message(0, 12)]
    c.send(packets[0])
    c.advance(20_000)
    c.send(packets[1])
    c.expect("SACK", after=30_000, cack_psn=c.rx(1))
    c.expect_nothing("SACK", within=200_000)


@case(
    "sack-coalesced-request",
    _SACK,
    "A packet that asks for an acknowledgement is answered at once.",
    Basis.UET,
    "3.6.13.5",
    settings=_COALESCED,
)
def sack_coalesced_request(c: Script) -> None:
    packets = c.message(0, 12)
    c.send(packets[0])
    c.expect_nothing("SACK")
    c.send(packets[1], ack_req=1)
    c.expect("SACK", cack_psn=c.rx(1))


@case(
    "sack-coalesced-mark",
    _SACK,
    "A packet with CE is answered at once.",
    Basis.UET,
    "3.6.13.5",
    settings=_COALESCED,
)
def sack_coalesced_mark(c: Script) -> None:
    packets = c.message(0, 12)
    c.send(packets[0], ecn=_CE)
    c.expect("SACK", m=1)


@case(
    "sack-coalesced-last",
    _SACK,
    "The last packet of a message is answered at once.",
    Basis.NOTES,
    "§6",
    settings=_COALESCED,
)
def sack_coalesced_last(c: Script) -> None:
    for packet in c.message(0, 2):
        c.send(_quiet(packet))
    c.expect("SACK", cack_psn=c.rx(1))


@case("sack-coalesced-duplicate", _SACK, "A duplicate is answered at once.", Basis.NOTES, "§6", settings=_COALESCED)
def sack_coalesced_duplicate(c: Script) -> None:
    packets = c.message(0, 12)
    c.send(packets[0])
    c.expect_nothing("SACK")
    c.send(packets[0])
    c.expect("SACK", cack_psn=c.rx(0), ack_psn_offset=0)


@case(
    "sack-delayed-time",
    _SACK,
    "A SACK that was held back does not echo a timestamp from which the sender would take its delay.",
    Basis.OURS,
    "§6",
    Need.EXACT_TIME,
    settings=_DELAYED,
)
def sack_delayed_time(c: Script) -> None:
    c.send(c.message(0, 12)[0])
    c.expect("SACK", after=50_000, tx_timestamp=0)


@case(
    "sack-service-time",
    _SACK,
    "With the service-time capability the echoed timestamp is advanced by the time that the SACK was held.",
    Basis.NOTES,
    "§4",
    Need.EXACT_TIME,
    settings=Settings(sack_every=4, sack_delay_ns=51_200, service_time=True),
)
def sack_service_time(c: Script) -> None:
    c.send(c.message(0, 12)[0], tx_timestamp=0xFF00)
    c.expect("SACK", after=51_200, tx_timestamp=0xFF00 + 400 & 0xFFFF)


@case(
    "sack-wide-probe",
    _SACK,
    "Answers to probes and to duplicates show one hole after another where 64 PSNs do not show all.",
    Basis.OURS,
    "§6",
)
def sack_wide_probe(c: Script) -> None:
    holes = {1, 71, 141, 211}
    for index in range(251):
        if index not in holes:
            c.send(_quiet(c.data(index)))
    c.drain({"SACK", "ACK"})
    for ask in (c.make("PROBE", probe_id=5), _quiet(c.data(0))):
        shown: list[int] = []
        for _ in range(8):
            c.send(ask)
            found = c.expect("SACK", cack_psn=c.rx(0))
            base = found["sack_offset"]
            shown += [base + bit for bit in range(64) if not found["sack_bitmap"] >> bit & 1 and base + bit <= 211]
        c.check({shown.count(hole) for hole in holes} == {2}, f"eight answers show the holes {shown}")


@case(
    "sack-wide-place",
    _SACK,
    "The neighbourhood is 32 PSNs before the packet, moved so that it shows 64 of those that matter.",
    Basis.OURS,
    "§6",
    settings=Settings(hole_cycle=1024),
)
def sack_wide_place(c: Script) -> None:
    c.send(_quiet(c.data(299)))
    c.drain({"SACK"})
    for index, offset in ((2, 1), (100, 69), (33, 2), (290, 237), (269, 237), (240, 209)):
        c.send(_quiet(c.data(index)))
        c.expect("SACK", sack_offset=offset, ack_psn_offset=index + 1)


@case(
    "sack-wide-turn",
    _SACK,
    "Every hole_cycle-th of them shows older holes.",
    Basis.OURS,
    "§6",
    settings=Settings(hole_cycle=3),
)
def sack_wide_turn(c: Script) -> None:
    c.send(_quiet(c.data(299)))
    c.drain({"SACK"})
    offsets = []
    for index in range(200, 209):
        c.send(_quiet(c.data(index)))
        offsets.append(c.expect("SACK")["sack_offset"])
    turns = [position for position, offset in enumerate(offsets) if not 150 < offset < 210]
    c.check(turns == [1, 4, 7] and [offsets[turn] for turn in turns] == [1, 65, 129], f"sack_offset: {offsets}")


@case(
    "sack-always-skip-again",
    _SACK,
    "After ALWAYS_SKIP the marks on that EV are counted from the start.",
    Basis.OURS,
    "§6",
    settings=Settings(always_skip_after=3),
)
def sack_always_skip_again(c: Script) -> None:
    for index, mark in enumerate((1, 1, 2, 1, 1, 2, 1)):
        c.send(c.data(index), ecn=_CE, ev=0x00AA0001)
        c.expect("SACK", m=mark)


@case(
    "sack-coalesced-again",
    _SACK,
    "Each SACK that is held back leaves after the delay, and what went before at once does not count for it.",
    Basis.UET,
    "3.6.13.5",
    Need.EXACT_TIME,
    settings=_DELAYED,
)
def sack_coalesced_again(c: Script) -> None:
    packets = [_quiet(packet) for packet in c.message(0, 12)]
    for index in range(3):
        since = c.now
        c.send(packets[index])
        c.expect("SACK", after=50_000, since=since, cack_psn=c.rx(index))
    c.send(packets[3], ack_req=1)
    c.expect("SACK", cack_psn=c.rx(3))
    c.advance(30_000)
    since = c.now
    c.send(packets[4])
    c.expect("SACK", after=50_000, since=since, cack_psn=c.rx(4))


@case(
    "sack-coalesced-gap",
    _SACK,
    "A packet that completes a message is answered at once, though it is not the last of it.",
    Basis.NOTES,
    "§6",
    settings=_COALESCED,
)
def sack_coalesced_gap(c: Script) -> None:
    packets = [_quiet(packet) for packet in c.message(0, 3)]
    c.send(packets[0])
    c.send(packets[2])
    c.expect("SACK", cack_psn=c.rx(0))
    c.send(packets[1])
    c.expect("SACK", cack_psn=c.rx(2))
    c.expect("ACK", psn=c.rx(2), msn=1)


@case(
    "sack-coalesced-echo",
    _SACK,
    "A SACK that was held back names the newest packet, its EV and its rtx, and has no mark.",
    Basis.OURS,
    "§6",
    Need.EXACT_TIME,
    settings=replace(_DELAYED, always_skip_after=1),
)
def sack_coalesced_echo(c: Script) -> None:
    packets = [_quiet(packet) for packet in c.message(0, 12)]
    c.send(packets[0], rtx=1)
    c.send(packets[2], rtx=1, ev=0x00AB0007)
    c.expect("SACK", after=50_000, entropy=0x00AB0007, rtx=1, ack_psn_offset=2, cack_psn=c.rx(0), m=0)


@case(
    "sack-units-wrap",
    _SACK,
    "ack_psn_offset of a packet far below cack_psn stays within its 16 bits.",
    Basis.OURS,
    "§3",
    settings=Settings(mtu=64),
)
def sack_far_below(c: Script) -> None:
    c.send(c.data(0))
    c.expect("SACK")
    c.send(c.data(-0x9000, place=0))
    c.expect("SACK", ack_psn_offset=-0x8000)


@case(
    "sack-service-time-absent",
    _SACK,
    "A SACK that was held back for a packet without a timestamp echoes 0, with the service-time capability as well.",
    Basis.OURS,
    "§4",
    Need.EXACT_TIME,
    settings=Settings(sack_every=4, sack_delay_ns=51_200, service_time=True, timestamps=False),
)
def sack_service_time_absent(c: Script) -> None:
    c.send(c.message(0, 12)[0])
    c.expect("SACK", after=51_200, tx_timestamp=0)


@case(
    "sack-coalesced-refused",
    _SACK,
    "A packet that ends the queue pair is answered at once.",
    Basis.OURS,
    "§6",
    settings=_COALESCED,
)
def sack_coalesced_refused(c: Script) -> None:
    for index in (0, 1):
        c.send(_quiet(c.data(index, "WRITE_FIRST", msn=1, length=9000)))
    c.expect("SACK", cack_psn=c.rx(1))
