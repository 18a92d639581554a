"""Entropy values: rotation, states, backups."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.shorthand import answered, condemn, one
from mrc_conform.device import Need, PathState, Settings
from mrc_conform.script import NackReason, Script

_EV = Area.EV
#: The number of EVs with which two random ones are hardly ever the same.
_MANY = 256
_ONE_PLANE = Settings(planes=1, tail_probe=False, ev_count=8, ev_active=4, ev_min_active=1, probe_interval_ns=10**12)
_TWO_PLANES = Settings(planes=2, tail_probe=False, ev_count=16, ev_active=8, ev_min_active=1, probe_interval_ns=10**12)


@case(
    "ev-rotation",
    _EV,
    "Packets rotate over all active EVs of a plane.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_rotation(c: Script) -> None:
    active = {entry.value for entry in c.evs(lambda entry: entry.active)}
    turn = [packet.ev for packet in answered(c, len(active))]
    c.check(set(turn) == active, f"{len(set(turn))} of {len(active)} active EVs were used in one turn")


@case(
    "ev-active-half",
    _EV,
    "Only active EVs carry data; the rest are backup.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_active_half(c: Script) -> None:
    active = {entry.value for entry in c.evs(lambda entry: entry.active)}
    c.check(len(active) == c.settings.ev_active, f"{len(active)} EVs are active")
    used = {packet.ev for packet in answered(c, 20)}
    c.check(used <= active, "a backup EV carried data while all active ones are GOOD")


@case("ev-planes-equal", _EV, "All planes are loaded equally.", Basis.NOTES, "§7", Need.POST, settings=_TWO_PLANES)
def ev_planes_equal(c: Script) -> None:
    c.post(64 * c.settings.mtu)
    load = Counter(packet.port for packet in c.drain())
    c.check(abs(load[0] - load[1]) <= 8, f"plane 0 carried {load[0]} packets, plane 1 {load[1]}")


@case(
    "ev-skip-once",
    _EV,
    "An EV whose packet was marked is passed over once, and used again in the turn after that.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_skip_once(c: Script) -> None:
    (marked,) = answered(c, 1, m=1)
    c.expect_ev_state(marked.ev, PathState.SKIP)
    turns = [packet.ev for packet in answered(c, 8, 1)]
    c.check(marked.ev not in turns[:4], "the marked EV carried data in the next turn")
    c.check(marked.ev in turns, "the marked EV did not return")
    c.expect_ev_state(marked.ev, PathState.GOOD)


@case(
    "ev-skip-stays",
    _EV,
    "Signals for an EV in SKIP change nothing.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_skip_stays(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.sack(packet, 0, m=1)
    c.sack(packet, 0, m=1)
    c.expect_ev_state(packet.ev, PathState.SKIP)


@case(
    "ev-all-skip", _EV, "When every EV is in SKIP sending goes on.", Basis.NOTES, "§7", Need.POST, settings=_ONE_PLANE
)
def ev_all_skip(c: Script) -> None:
    packets = answered(c, 12, m=1)
    c.check(len(packets) == 12, "sending stopped")


@case(
    "ev-skip-one-per-packet",
    _EV,
    "One packet brings at most one EV back from SKIP.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_skip_one_per_packet(c: Script) -> None:
    c.post(4 * c.settings.mtu)
    packets = c.drain()
    for packet in packets[:3]:
        c.sack(packet, 3, m=1)
    skipped = len(c.evs(lambda entry: entry.state is PathState.SKIP))
    c.post(8)
    c.expect("WRITE_ONLY")
    left = len(c.evs(lambda entry: entry.state is PathState.SKIP))
    c.check(skipped == 3 and left >= 2, f"of {skipped} EVs in SKIP {left} are left after one packet")


@case(
    "ev-always-skip",
    _EV,
    "ALWAYS_SKIP brings an EV to ASSUMED_BAD, and it carries no more data.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_always_skip(c: Script) -> None:
    bad = condemn(c)
    c.expect_ev_state(bad.ev, PathState.ASSUMED_BAD)
    used = [packet.ev for packet in answered(c, 12, 1)]
    c.check(bad.ev not in used, "the bad EV carries data")


@case(
    "ev-backup-same-plane",
    _EV,
    "A backup EV of the same plane replaces a bad one.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_TWO_PLANES,
)
def ev_backup_same_plane(c: Script) -> None:
    before = {entry.value for entry in c.evs(lambda entry: entry.active)}
    bad = condemn(c)
    fresh = [entry for entry in c.evs(lambda entry: entry.active) if entry.value not in before]
    c.check(len(fresh) == 1, f"{len(fresh)} EVs became active")
    c.check(
        fresh[0].plane == bad.port, f"the bad EV was of plane {bad.port}, its replacement is of plane {fresh[0].plane}"
    )


@case(
    "ev-count-stays",
    _EV,
    "The number of active EVs stays while there are backups.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_count_stays(c: Script) -> None:
    for index in range(3):
        condemn(c, index)
    active = len(c.evs(lambda entry: entry.active))
    c.check(active == c.settings.ev_active, f"{active} EVs are active")


@case(
    "ev-least-active",
    _EV,
    "A demotion never leaves fewer active EVs than ev_min_active; the least bad ones stay in use.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=Settings(planes=1, tail_probe=False, ev_count=6, ev_active=4, ev_min_active=3, probe_interval_ns=10**12),
)
def ev_least_active(c: Script) -> None:
    for index in range(8):
        condemn(c, index)
        active = len(c.evs(lambda entry: entry.active))
        c.check(active >= 3, f"{active} EVs are active")


@case(
    "ev-loss",
    _EV,
    "An inferred loss brings an EV to ASSUMED_BAD.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_loss(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    again = c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)
    c.check(again.ev != packet.ev, "the retransmission travels on the EV that failed")
    c.expect_ev_state(packet.ev, PathState.ASSUMED_BAD)


@case(
    "ev-resource-innocent",
    _EV,
    "A refusal for lack of a resource does not change the EV.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_resource_innocent(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    for reason in (NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER, NackReason.NO_RESOURCE, NackReason.PSN_OOR_WINDOW):
        c.nack(packet, reason)
    c.expect_ev_state(packet.ev, PathState.GOOD)


@case(
    "ev-denied",
    _EV,
    "A DENIED EV carries no data.",
    Basis.OCP,
    "mrc_ctl.h, MRC_CTL_EV_DENIED",
    Need.POST,
    Need.EVS,
    Need.DENY,
    settings=_ONE_PLANE,
)
def ev_denied(c: Script) -> None:
    denied = c.evs(lambda entry: entry.active)[0].value
    c.device.deny(c.dut, denied, True)
    used = {packet.ev for packet in answered(c, 12)}
    c.check(denied not in used, "the denied EV carries data")
    c.expect_ev_state(denied, PathState.DENIED)


@case(
    "ev-denied-stays",
    _EV,
    "Only the controller undoes DENIED: no mark, loss or probe does.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    Need.DENY,
    settings=_ONE_PLANE,
)
def ev_denied_stays(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.device.deny(c.dut, packet.ev, True)
    for mark in (1, 2, 0):
        c.sack(packet, 0, m=mark)
        c.expect_ev_state(packet.ev, PathState.DENIED)


@case(
    "ev-allowed",
    _EV,
    "An EV that the controller allows again is used again.",
    Basis.OCP,
    "mrc_ctl.h",
    Need.POST,
    Need.EVS,
    Need.DENY,
    settings=Settings(planes=1, tail_probe=False, ev_count=4, ev_active=4, ev_min_active=1),
)
def ev_allowed(c: Script) -> None:
    denied = c.evs()[0].value
    c.device.deny(c.dut, denied, True)
    c.device.deny(c.dut, denied, False)
    used = {packet.ev for packet in answered(c, 8)}
    c.check(denied in used, "the allowed EV carries no data")


@case(
    "ev-mark-reserved",
    _EV,
    "m = 3 is reserved: it changes no EV's state.",
    Basis.OURS,
    "§3",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_mark_reserved(c: Script) -> None:
    (packet,) = answered(c, 1, m=3)
    c.expect_ev_state(packet.ev, PathState.GOOD)


@case(
    "ev-foreign",
    _EV,
    "A mark for an EV that is not in the profile changes nothing.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_ONE_PLANE,
)
def ev_foreign(c: Script) -> None:
    before = c.evs()
    c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0, m=2, entropy=0xDEADBEEF)
    c.check([entry.state for entry in c.evs()] == [entry.state for entry in before], "an EV changed its state")


@case(
    "ev-reverse-once",
    _EV,
    "A burst of repetitions changes the EV of the answers once: the first answer on the new one needs its time.",
    Basis.OURS,
    "§6",
    Need.EXACT_TIME,
    settings=replace(_ONE_PLANE, ev_count=_MANY, ev_active=_MANY),
)
def ev_reverse_once(c: Script) -> None:
    packet = c.data(0)
    for _ in range(13):
        c.send(packet)
        c.advance(100)
    turns = [answer.ev for answer in c.drain({"SACK"})]
    c.check(len(turns) == 13, f"{len(turns)} SACKs answer 13 packets")
    c.check(len(set(turns[1:])) == 1, f"the answers to 12 repetitions in 1.2 us have {len(set(turns[1:]))} EVs")
    c.check(turns[0] != turns[1], "the EV of an answer that did not arrive is kept")


@case(
    "ev-reverse-proven",
    _EV,
    "Answers travel on the EV that last carried data without a mark.",
    Basis.OURS,
    "§6",
    Need.POST,
    settings=_ONE_PLANE,
)
def ev_reverse_proven(c: Script) -> None:
    (good,) = answered(c, 1)
    (marked,) = answered(c, 1, 1, m=1)
    c.check(good.ev != marked.ev, "two packets in a row have the same EV")
    c.send(c.data(0))
    c.expect("SACK", ev=good.ev)


@case(
    "ev-reverse-each-plane",
    _EV,
    "A repetition on one plane changes the EV of the answers there, whatever came on another.",
    Basis.OURS,
    "§6",
    Need.EXACT_TIME,
    settings=replace(_TWO_PLANES, ev_count=_MANY, ev_active=_MANY),
)
def ev_reverse_each_plane(c: Script) -> None:
    for port in (0, 1):
        turns = []
        for _ in range(2):
            c.send(c.data(port), port=port)
            turns.append(c.expect("SACK", port=port).ev)
        c.check(turns[0] != turns[1], f"a repetition on plane {port} is answered on the same EV")


@case(
    "ev-reverse-own-transmission",
    _EV,
    "An answer to an earlier transmission, which took another EV, proves nothing of the plane of the present one.",
    Basis.OURS,
    "§6",
    Need.POST,
    Need.EVS,
    settings=replace(_TWO_PLANES, balance_slack=1, linear_cnt=7),
)
def ev_reverse_own_transmission(c: Script) -> None:
    c.post(c.settings.mtu)
    sent = [c.expect("WRITE_ONLY")]
    while len(sent) < 3 or sent[-1].port == sent[-2].port:
        sent.append(c.expect("WRITE_ONLY", within=8 * c.ack_timeout_ns, rtx=1))
    c.sack(sent[-2], 0)
    c.send(c.data(0), port=sent[-1].port)
    found = c.ev(c.expect("SACK", port=sent[-1].port).ev)
    c.check(found.plane == sent[-1].port, f"an answer on plane {sent[-1].port} has an EV of plane {found.plane}")


@case(
    "ev-revived-replaces",
    _EV,
    "A revived EV takes the place of a bad one that only the floor keeps in use.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=Settings(planes=1, tail_probe=False, ev_count=6, ev_active=4, ev_min_active=4),
)
def ev_revived_replaces(c: Script) -> None:
    bad = [condemn(c, index) for index in range(3)]
    c.check(c.ev(bad[2].ev).active, "fewer EVs are active than ev_min_active")
    for _ in range(c.settings.probes_to_revive):
        c.advance(c.settings.probe_interval_ns)
        for probe in c.drain({"PROBE"}):
            if probe.ev == bad[0].ev:
                c.probe_reply(probe, 2)
    c.check(c.ev(bad[0].ev).active, "the revived EV is not active")
    c.check(not c.ev(bad[2].ev).active, "the bad EV is still active")
    used = {packet.ev for packet in answered(c, 8, 3)}
    c.check(bad[2].ev not in used, "the bad EV carries data")


@case(
    "ev-least-bad",
    _EV,
    "Of the bad EVs that the floor keeps in use one that fails again gives way to one that failed less.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=Settings(planes=1, tail_probe=False, ev_count=2, ev_active=1, ev_min_active=1, probe_interval_ns=10**12),
)
def ev_least_bad(c: Script) -> None:
    first = one(c)
    second = c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)
    third = c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)
    fourth = c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)
    c.check(second.ev != first.ev, "the backup was not used")
    c.check(fourth.ev != third.ev, "an EV that failed more often than the other is used again")


@case(
    "ev-rotation-reshuffled",
    _EV,
    "After the configured number of rounds the order in which EVs are used is drawn anew; every EV stays in it.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=replace(_ONE_PLANE, ev_count=16, ev_active=16, rescan_rounds=2),
)
def ev_rotation_reshuffled(c: Script) -> None:
    turns = [[packet.ev for packet in answered(c, 16, 16 * turn)] for turn in range(6)]
    c.check(all(len(set(turn)) == 16 for turn in turns), "an EV was not used in a turn")
    orders = len({tuple(turn) for turn in turns})
    c.check(orders == 3, f"{orders} orders in six turns, with a new one after every second")


@case(
    "ev-replaced",
    _EV,
    "An EV that is replaced carries nothing more; its successor is GOOD and takes its place.",
    Basis.OCP,
    "mrc_ctl.h",
    Need.POST,
    Need.EVS,
    Need.REPLACE,
    settings=_ONE_PLANE,
)
def ev_replaced(c: Script) -> None:
    for index, mark in enumerate((0, 1, 2)):
        old = answered(c, 1, 5 * index, m=mark)[0].ev
        new = old ^ 0x00770000
        c.device.replace_ev(c.dut, old, new)
        c.expect_ev_state(new, PathState.GOOD)
        used = {packet.ev for packet in answered(c, 4, 5 * index + 1)}
        c.check(old not in used, "an EV that was replaced carries data")
        c.check(mark == 2 or new in used, "the successor of an active EV carries no data")
    denied = c.evs()[0].value
    c.device.deny(c.dut, denied, True)
    c.device.replace_ev(c.dut, denied, 0x00990099)
    c.expect_ev_state(0x00990099, PathState.GOOD)
    c.send(c.data(0))
    reverse = c.expect("SACK").ev
    c.device.replace_ev(c.dut, reverse, 0x00880088)
    c.send(c.data(1))
    c.expect("SACK", ev=0x00880088)


@case(
    "ev-denied-here",
    _EV,
    "Denying an EV of a plane leaves the EVs of answers there to the others.",
    Basis.OURS,
    "§7",
    Need.EVS,
    Need.DENY,
    settings=_ONE_PLANE,
)
def ev_denied_here(c: Script) -> None:
    for index in range(6):
        c.send(c.data(index))
        answer = c.expect("SACK")
        c.device.deny(c.dut, answer.ev, True)
    denied = {entry.value for entry in c.evs(lambda entry: entry.state is PathState.DENIED)}
    c.send(c.data(6))
    c.check(len(denied) == 6 and c.expect("SACK").ev not in denied, "an answer travels on a denied EV")


@case(
    "ev-denied-backup",
    _EV,
    "A backup that is denied or bad does not take the place of another EV.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    Need.DENY,
    settings=_ONE_PLANE,
)
def ev_denied_backup(c: Script) -> None:
    backups = [entry.value for entry in c.evs(lambda entry: not entry.active)]
    c.device.deny(c.dut, backups[0], True)
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    c.sack(packet, 0, m=2, entropy=backups[1])
    for index in range(1, 4):
        condemn(c, index)
        active = {entry.value for entry in c.evs(lambda entry: entry.active)}
        c.check(not active & set(backups[:2]), "a backup that is DENIED or ASSUMED_BAD became active")


@case(
    "ev-last-plane",
    _EV,
    "Where the only planes that are left have no EV in use, the least bad one of them is used.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    Need.PORTS,
    settings=replace(_TWO_PLANES, ev_count=4, ev_active=2),
)
def ev_last_plane(c: Script) -> None:
    index = 0
    while len(c.evs(lambda entry: entry.active and entry.plane == 1)) and index < 20:
        packet = one(c)
        c.sack(packet, index, m=2 * packet.port)
        c.ack(index, index + 1)
        index += 1
        c.post(4 * c.settings.mtu)
        for packet in c.drain():
            c.sack(packet, index, m=2 * packet.port)
            index += 1
    c.check(index < 20, "the EVs of plane 1 did not become bad")
    c.device.set_port(0, False)
    c.check(one(c).port == 1, "nothing is sent on the plane whose EVs all look bad")


@case(
    "ev-denied-later",
    _EV,
    "What is denied towards a peer is denied to its later queue pairs, until it was allowed to all that it was denied.",
    Basis.OURS,
    "§7",
    Need.EVS,
    Need.DENY,
    Need.SECOND_QP,
    settings=_ONE_PLANE,
)
def ev_denied_later(c: Script) -> None:
    other = c.second()
    value = c.evs()[0].value
    for denied, pairs, state in (
        (True, (c, other), PathState.DENIED), (False, (c,), PathState.DENIED), (False, (other,), PathState.GOOD),
    ):  # fmt: skip
        for pair in pairs:
            c.device.deny(pair.dut, value, denied)
        c.second().expect_ev_state(value, state)


@case(
    "ev-all-denied",
    _EV,
    "Answers travel though every EV is denied, and data does not.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    Need.DENY,
    settings=_ONE_PLANE,
)
def ev_all_denied(c: Script) -> None:
    for entry in c.evs():
        c.device.deny(c.dut, entry.value, True)
    c.send(c.data(0))
    c.expect("SACK")
    c.post(8)
    c.expect_nothing("WRITE_ONLY", within=2 * c.settings.base_rtt_ns)
    c.device.deny(c.dut, c.evs()[0].value, False)
    c.expect("WRITE_ONLY", ev=c.evs()[0].value)
