"""Reliability probes and EV probes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.shorthand import answered, condemn
from mrc_conform.device import Need, PairState, PathState, Settings
from mrc_conform.script import NackReason, Script
from mrc_conform.wire import Packet

_PROBE = Area.PROBE
_REVIVAL = Settings(planes=1, tail_probe=False, ev_count=8, ev_active=4, ev_min_active=1)
_EV_PROBE = 1
_REVERSE = Settings(reverse_probes=True, ev_count=64, ev_active=32)


@case(
    "probe-answered",
    _PROBE,
    "A reliability probe is answered by a SACK with pr=1 that echoes its id, EV and timestamp.",
    Basis.NOTES,
    "§7",
)
def probe_answered(c: Script) -> None:
    c.send("PROBE", probe_id=0x1A2B, ev=0x00AA00BB, tx_timestamp=0x7777)
    c.expect("SACK", pr=1, ack_psn_offset=0x1A2B, entropy=0x00AA00BB, tx_timestamp=0x7777, dest_qp=c.kit.number)


@case("probe-refreshes", _PROBE, "The answer to a probe has the receiver's present state.", Basis.NOTES, "§7")
def probe_refreshes(c: Script) -> None:
    for index in (0, 3):
        c.send(c.data(index))
    c.drain({"SACK", "ACK"})
    c.send("PROBE", probe_id=1)
    c.expect("SACK", pr=1, cack_psn=c.rx(0), sack_offset=1, sack_bitmap=0b100, ooo_count=1, rcvd_bytes=9)


@case("probe-marked", _PROBE, "A probe that arrived with CE is answered with m = SKIP_ONCE.", Basis.NOTES, "§7")
def probe_marked(c: Script) -> None:
    c.send("PROBE", probe_id=1, ecn=3)
    c.expect("SACK", pr=1, m=1)
    c.send("PROBE", probe_id=2, ecn=2)
    c.expect("SACK", pr=1, m=0)


@case("probe-no-psn", _PROBE, "A probe consumes no PSN.", Basis.NOTES, "§3", Need.POST, settings=Settings(window=4000))
def probe_no_psn(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    probe = c.expect("PROBE", within=c.ack_timeout_ns)
    c.probe_reply(probe, 0)
    c.sack(packet, 0)
    c.ack(0, 1)
    c.post(8)
    c.expect("WRITE_ONLY", psn=c.tx(1))


@case(
    "probe-tail",
    _PROBE,
    "A requestor that hears nothing probes before its timeout.",
    Basis.UET,
    "3.5 (probe on silence); of MRC §5",
    Need.POST,
    Need.EXACT_TIME,
)
def probe_tail(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    probe = c.expect("PROBE", within=c.ack_timeout_ns)
    c.check(
        probe.at_ns - packet.at_ns <= 4 * c.settings.base_rtt_ns, "the probe came later than after four round trips"
    )


@case(
    "probe-tail-after-idle",
    _PROBE,
    "The same holds for what is posted soon after a time in which nothing was outstanding.",
    Basis.UET,
    "3.5 (probe on silence); of MRC §5",
    Need.POST,
    Need.EXACT_TIME,
)
def probe_tail_after_idle(c: Script) -> None:
    wr = c.post(8)
    c.sack(c.expect("WRITE_ONLY"), 0)
    c.ack(0, 1)
    c.expect_completion(wr)
    c.advance(4 * c.settings.base_rtt_ns)
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    probe = c.expect("PROBE", within=c.ack_timeout_ns)
    c.check(
        probe.at_ns - packet.at_ns <= 4 * c.settings.base_rtt_ns, "the probe came later than after four round trips"
    )


@case(
    "probe-tail-backs-off",
    _PROBE,
    "The interval of probes doubles while nothing more is acknowledged.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
)
def probe_tail_backs_off(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY")
    times = [c.expect("PROBE", within=c.ack_timeout_ns).at_ns for _ in range(4)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    c.check(all(later >= 2 * earlier - 1000 for earlier, later in pairwise(gaps)), f"intervals {gaps} ns")


@case(
    "probe-tail-answered-backs-off",
    _PROBE,
    "Probes back off also when they are answered and nothing more is acknowledged.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(timeout=16, rack_inference=False, probe_interval_ns=10**12),
)
def probe_tail_answered_backs_off(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY")
    times = []
    for _ in range(5):
        probe = c.expect("PROBE", within=c.ack_timeout_ns)
        times.append(probe.at_ns)
        c.probe_reply(probe, -1)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    c.check(gaps[-1] >= 7 * gaps[0], f"intervals {gaps} ns")


@case(
    "probe-tail-acknowledges", _PROBE, "The answer to a probe acknowledges what it shows.", Basis.NOTES, "§7", Need.POST
)
def probe_tail_acknowledges(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY")
    c.probe_reply(c.expect("PROBE", within=c.ack_timeout_ns), 0)
    c.ack(0, 1)
    c.expect_nothing("WRITE_ONLY", within=4 * c.ack_timeout_ns)


@case(
    "probe-bad-evs",
    _PROBE,
    "An ASSUMED_BAD EV is probed on its own path.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_REVIVAL,
)
def probe_bad_evs(c: Script) -> None:
    bad = condemn(c)
    c.expect("PROBE", within=3 * c.settings.probe_interval_ns, ev=bad.ev, port=bad.port)


@case(
    "probe-interval",
    _PROBE,
    "A bad EV is probed once in each probe interval.",
    Basis.OCP,
    "mrc_ctl.h, probe interval",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=_REVIVAL,
)
def probe_interval(c: Script) -> None:
    bad = condemn(c)
    c.expect("PROBE", within=3 * c.settings.probe_interval_ns)
    c.advance(20 * c.settings.probe_interval_ns)
    count = sum(packet.ev == bad.ev for packet in c.drain({"PROBE"}))
    c.check(5 <= count <= 21, f"{count} probes in 20 intervals")


@case(
    "probe-revives",
    _PROBE,
    "An EV is GOOD again after the configured number of answers in a row, and not before.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_REVIVAL,
)
def probe_revives(c: Script) -> None:
    bad = condemn(c)
    for state in (PathState.ASSUMED_BAD, PathState.GOOD):
        c.probe_reply(c.expect("PROBE", within=3 * c.settings.probe_interval_ns, ev=bad.ev), 0)
        c.expect_ev_state(bad.ev, state)


@case(
    "probe-revives-to-backup",
    _PROBE,
    "A revived EV joins the backup set.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_REVIVAL,
)
def probe_revives_to_backup(c: Script) -> None:
    bad = condemn(c)
    for _ in range(2):
        c.probe_reply(c.expect("PROBE", within=3 * c.settings.probe_interval_ns), 0)
    c.check(not c.ev(bad.ev).active, "the revived EV is active, though its replacement works")


@case(
    "probe-revives-marked",
    _PROBE,
    "A probe that is answered with SKIP_ONCE brings a bad EV to SKIP.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_REVIVAL,
)
def probe_revives_marked(c: Script) -> None:
    bad = condemn(c)
    c.probe_reply(c.expect("PROBE", within=3 * c.settings.probe_interval_ns), 0, m=1)
    c.expect_ev_state(bad.ev, PathState.SKIP)


@case(
    "probe-row-broken",
    _PROBE,
    "An unanswered probe begins the row of answers again.",
    Basis.OURS,
    "§7",
    Need.EXACT_TIME,
    Need.POST,
    Need.EVS,
    settings=_REVIVAL,
)
def probe_row_broken(c: Script) -> None:
    bad = condemn(c)
    c.probe_reply(c.expect("PROBE", within=3 * c.settings.probe_interval_ns), 0)
    c.expect("PROBE", within=3 * c.settings.probe_interval_ns)
    c.advance(c.settings.probe_timeout_ns + 2 * c.settings.probe_interval_ns)
    probes = c.drain({"PROBE"})
    c.probe_reply(probes[-1], 0)
    c.expect_ev_state(bad.ev, PathState.ASSUMED_BAD)


@case(
    "probe-wrong-id",
    _PROBE,
    "An answer with another id is the answer to no probe.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_REVIVAL,
)
def probe_wrong_id(c: Script) -> None:
    bad = condemn(c)
    for _ in range(3):
        probe = c.expect("PROBE", within=3 * c.settings.probe_interval_ns + c.settings.probe_timeout_ns)
        c.probe_reply(probe, 0, ack_psn_offset=(probe["probe_id"] ^ 0x55) & 0x7FFF)
    c.expect_ev_state(bad.ev, PathState.ASSUMED_BAD)


@case(
    "probe-wrong-echo",
    _PROBE,
    "An answer must echo EV and timestamp of its probe.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    settings=_REVIVAL,
)
def probe_wrong_echo(c: Script) -> None:
    bad = condemn(c)
    for turn in range(4):
        probe = c.expect("PROBE", within=3 * c.settings.probe_interval_ns + c.settings.probe_timeout_ns)
        if turn % 2:
            c.probe_reply(probe, 0, entropy=probe.ev ^ 1)
        else:
            c.probe_reply(probe, 0, tx_timestamp=probe["tx_timestamp"] ^ 1)
    c.expect_ev_state(bad.ev, PathState.ASSUMED_BAD)


@case(
    "probe-ids-differ",
    _PROBE,
    "Probe ids do not repeat in a row of probes.",
    Basis.OURS,
    "§7",
    Need.EXACT_TIME,
    Need.POST,
    Need.EVS,
    settings=_REVIVAL,
)
def probe_ids_differ(c: Script) -> None:
    condemn(c)
    c.advance(60 * c.settings.probe_interval_ns)
    ids = [packet["probe_id"] for packet in c.drain({"PROBE"})]
    c.check(len(set(ids)) == len(ids) > 10, f"{len(set(ids))} ids in {len(ids)} probes")
    steps = {(later - earlier) & 0xFFFF for earlier, later in pairwise(ids)}
    c.check(len(steps) > 2, "ids follow each other by a constant step, so an attacker can foresee them")


@case(
    "probe-error-ends",
    _PROBE,
    "A queue pair in ERROR does not probe.",
    Basis.NOTES,
    "§4",
    Need.POST,
    Need.EVS,
    Need.STATES,
    settings=_REVIVAL,
)
def probe_error_ends(c: Script) -> None:
    condemn(c)
    c.device.modify(c.dut, PairState.ERROR)
    c.drain({"PROBE"})
    c.expect_nothing("PROBE", within=20 * c.settings.probe_interval_ns)


@case(
    "ev-probe-answered",
    _PROBE,
    "An EV probe to QP 2 is answered by an ENDPOINT RESPONSE with its request id and timestamp.",
    Basis.NOTES,
    "§7",
)
def ev_probe_answered(c: Script) -> None:
    c.send("ENDPOINT_REQUEST", op=_EV_PROBE, psn=0x3C4D, tx_timestamp=0x1212)
    c.expect("ENDPOINT_RESPONSE", op=_EV_PROBE, psn=0x3C4D, tx_timestamp=0x1212, dest_qp=2, dscp=46, ecn=0)


@case(
    "ev-probe-stranger",
    _PROBE,
    "An EV probe has node scope: it is answered without a queue pair.",
    Basis.NOTES,
    "§7",
    connected=False,
)
def ev_probe_stranger(c: Script) -> None:
    c.create()
    c.send("ENDPOINT_REQUEST", op=_EV_PROBE, psn=0x99)
    c.expect("ENDPOINT_RESPONSE", op=_EV_PROBE, psn=0x99)


@case(
    "endpoint-op-to-qp",
    _PROBE,
    "An endpoint operation to another queue pair than 2 is not answered.",
    Basis.NOTES,
    "§3",
)
def endpoint_op_to_qp(c: Script) -> None:
    c.send("ENDPOINT_REQUEST", op=_EV_PROBE, psn=0x3C4D, dest_qp=c.dut.number)
    c.expect_nothing("ENDPOINT_RESPONSE")


@case("endpoint-op-unknown", _PROBE, "An endpoint operation that does not exist is not answered.", Basis.OURS, "§3")
def endpoint_op_unknown(c: Script) -> None:
    for op in (2, 3):
        c.send("ENDPOINT_REQUEST", op=op, psn=0x3C4D)
    c.expect_nothing("ENDPOINT_RESPONSE")


@case(
    "probe-after-outage",
    _PROBE,
    "EVs that failed before the peer's port was down for long are probed when it is up again.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=Settings(tail_probe=False),
)
def probe_after_outage(c: Script) -> None:
    bad = condemn(c)
    mask = (1 << c.settings.planes) - 1
    c.send("ENDPOINT_REQUEST", op=0, psn=8, port_status_mask=mask & ~(1 << bad.port), port=1 - bad.port)
    c.advance(20 * c.settings.probe_interval_ns)
    c.drain({"PROBE"})
    c.send("ENDPOINT_REQUEST", op=0, psn=9, port_status_mask=mask, port=1 - bad.port)
    for _ in range(c.settings.probes_to_revive):
        c.probe_reply(c.expect("PROBE", within=3 * c.settings.probe_interval_ns, ev=bad.ev), 0)
    c.expect_ev_state(bad.ev, PathState.GOOD)


@case(
    "probe-timeout-plane-down",
    _PROBE,
    "A probe that is not answered on a plane that went down says nothing of its EV.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
)
def probe_timeout_plane_down(c: Script) -> None:
    c.post(8)
    c.expect("WRITE_ONLY")
    probe = c.expect("PROBE", within=c.ack_timeout_ns)
    c.send("ENDPOINT_REQUEST", op=0, psn=8, port_status_mask=0b11 & ~(1 << probe.port), port=1 - probe.port)
    again = c.drain()
    c.ack(0, 1)
    c.check(all(packet.port != probe.port for packet in again), "a packet left on the plane that is down")
    c.advance(3 * c.settings.probe_timeout_ns)
    c.expect_ev_state(probe.ev, PathState.GOOD)


@case(
    "probe-after-nack",
    _PROBE,
    "A NACK begins the intervals of probes afresh: the peer answers.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
)
def probe_after_nack(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    first, _, third, last = (c.expect("PROBE", within=c.ack_timeout_ns).at_ns for _ in range(4))
    c.nack(packet, NackReason.TRIMMED_LASTHOP)
    c.expect("WRITE_ONLY", rtx=1)
    # The interval under way ends first.
    c.expect("PROBE", within=2 * (last - third) + 2 * (first - packet.at_ns))


@case(
    "probe-tail-unanswered",
    _PROBE,
    "A probe at the tail that is not answered in time brings its EV to ASSUMED_BAD, though no EV was bad before.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=Settings(planes=1, timeout=20, ev_min_active=1, probe_interval_ns=400_000, probe_timeout_ns=600_000),
)
def probe_tail_unanswered(c: Script) -> None:
    c.post(8)
    packet = c.expect("WRITE_ONLY")
    probe = c.expect("PROBE", within=c.ack_timeout_ns)
    c.advance(probe.at_ns + 600_000 - c.now - 1)
    c.expect_ev_state(probe.ev, PathState.GOOD)
    c.advance(206_000)
    c.expect_ev_state(probe.ev, PathState.ASSUMED_BAD)
    c.expect_ev_state(packet.ev, PathState.GOOD)


@case(
    "probe-late-answer",
    _PROBE,
    "The late answer to a probe shows how long to wait: the next one may take twice as long.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=replace(_REVIVAL, probe_timeout_ns=500_000),
)
def probe_late_answer(c: Script) -> None:
    bad = condemn(c)
    interval = c.settings.probe_interval_ns
    probe = c.expect("PROBE", within=3 * interval, ev=bad.ev)
    c.advance(5 * interval // 2)
    c.drain({"PROBE"})
    c.probe_reply(probe, 0)
    c.expect("PROBE", within=12 * interval, ev=bad.ev)
    c.expect_nothing("PROBE", within=49 * interval // 10)


@case(
    "probe-burst",
    _PROBE,
    "At most probe_burst probes leave at once, and all bad EVs have their turn.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=replace(_REVIVAL, ev_count=16, ev_active=4, probe_burst=3, probes_to_revive=9),
)
def probe_burst(c: Script) -> None:
    bad = {condemn(c, index).ev for index in range(8)}
    found = []
    for _ in range(3):
        c.advance(c.settings.probe_interval_ns)
        probes = c.drain({"PROBE"})
        found.append([probe.ev for probe in probes])
        for probe in probes:
            c.probe_reply(probe, 7)
    c.check([len(turn) for turn in found] == [3, 3, 3], f"in each interval {[len(turn) for turn in found]} probes left")
    c.check({ev for turn in found for ev in turn} == bad, "a bad EV was not probed")


@case(
    "probe-burst-window",
    _PROBE,
    "A burst of probes is an eighth of the window at most.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=replace(_REVIVAL, ev_count=16, window=1300, probe_timeout_ns=10**11),
)
def probe_burst_window(c: Script) -> None:
    for index in range(6):
        condemn(c, index)
    c.advance(c.settings.probe_interval_ns)
    found = len(c.drain({"PROBE"}))
    c.check(found == 2, f"{found} probes of 80 bytes left at once beside a window of 1300")


@case(
    "probe-turns",
    _PROBE,
    "Probes at the tail take the planes in turn.",
    Basis.OURS,
    "§5",
    Need.EXACT_TIME,
    Need.POST,
    settings=Settings(planes=4, ev_count=32, timeout=16),
)
def probe_turns(c: Script) -> None:
    c.post(8)
    ports = {c.expect("PROBE", within=c.ack_timeout_ns).port for _ in range(4)}
    c.check(len(ports) == 4, f"four probes took the planes {sorted(ports)}")


@case(
    "probe-dates",
    _PROBE,
    "The answer to a probe shows that what left long before it and has not arrived is lost.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
)
def probe_dates(c: Script) -> None:
    c.post(2 * c.settings.mtu)
    packets = c.drain()
    probe = c.expect("PROBE", within=c.ack_timeout_ns)
    c.advance(c.settings.base_rtt_ns)
    c.probe_reply(probe, 0)
    c.expect("WRITE_LAST", psn=packets[1]["psn"], rtx=1)


@case(
    "probe-carries-window",
    _PROBE,
    "The answer to a probe carries the responder's present window and state, though no byte is new.",
    Basis.NOTES,
    "§4, §7",
    Need.POST,
    Need.EXACT_TIME,
    connected=False,
    settings=Settings(dynamic_mpr=True, mpr=1, window=1 << 30, rack_inference=False, same_ev_inference=False),
)
def probe_carries_window(c: Script) -> None:
    c.connect(dynamic_mpr=True)
    c.post(400 * c.settings.mtu)
    packets = c.drain()
    c.sack(packets[0], 0, mpr=1)
    c.probe_reply(c.expect("PROBE", within=c.ack_timeout_ns), 0, mpr=2)
    found = len(c.drain({"WRITE_MIDDLE"}))
    c.check(found == 129, f"{found} packets left after the window moved by one and grew by 128")


# --- the other end's EVs ---


def _inbound(c: Script, count: int) -> list[Packet]:
    """Send packets, one in each base RTT; return the EV probes of the device."""
    found = []
    for _ in range(count):
        c.send(c.data(len(c.transcript), place=0))
        c.advance(c.settings.base_rtt_ns)
        found += [each for each in c.drain({"ENDPOINT_REQUEST"}) if each["op"] == _EV_PROBE]
    c.drain({"SACK", "ACK"})
    return found


@case(
    "reverse-probes",
    _PROBE,
    "While data arrives and none leaves, EVs for the answers are probed in each round trip, on the planes in turn.",
    Basis.OURS,
    "§6",
    Need.EXACT_TIME,
    settings=_REVERSE,
)
def reverse_probes(c: Script) -> None:
    found = _inbound(c, 9)
    c.check(8 <= len(found) <= 9, f"{len(found)} EV probes in 9 round trips")
    c.check({each.port for each in found} == {0, 1}, "only one plane was probed")
    c.check(len({each["psn"] for each in found}) == len(found), "a request id came twice")
    c.advance(3 * c.settings.base_rtt_ns)
    c.drain({"ENDPOINT_REQUEST"})
    c.expect_nothing("ENDPOINT_REQUEST", within=20 * c.settings.base_rtt_ns)
    c.check(len(_inbound(c, 4)) >= 3, "no EV is probed when data arrives again")


@case(
    "reverse-probes-proven",
    _PROBE,
    "While the device's own data proves EVs, it does not probe for them.",
    Basis.OURS,
    "§6",
    Need.POST,
    Need.EXACT_TIME,
    settings=_REVERSE,
)
def reverse_probes_proven(c: Script) -> None:
    found = 0
    for index in range(8):
        answered(c, 1, index)
        found += len(_inbound(c, 1))
    c.check(found <= 1, f"{found} EV probes left although data proves EVs")


@case(
    "reverse-probe-answered",
    _PROBE,
    "An answer with the time of its probe, and no other, makes its EV that of the answers on its plane.",
    Basis.OURS,
    "§6",
    Need.EXACT_TIME,
    settings=_REVERSE,
)
def reverse_probe_answered(c: Script) -> None:
    used = []
    for wrong in (0x4000, 0):
        probe = _inbound(c, 3)[-1]
        answer = {"op": _EV_PROBE, "psn": probe["psn"], "tx_timestamp": probe["tx_timestamp"] ^ wrong}
        c.send("ENDPOINT_RESPONSE", port=probe.port, **answer)
        c.send(c.data(len(c.transcript), place=0), port=probe.port)
        used.append((c.expect("SACK", port=probe.port).ev == probe.ev, probe.ev))
    c.check(not used[0][0], "an answer with another time was taken for that to the probe")
    c.check(used[1][0], "the EV that proved good is not used")


@case(
    "reverse-follows",
    _PROBE,
    "Until an EV has proved good, answers take the path on which the first packet came.",
    Basis.OURS,
    "§6",
    Need.EVS,
    settings=_REVERSE,
)
def reverse_follows(c: Script) -> None:
    for port in (0, 1):
        entry = [entry for entry in c.evs() if entry.plane == port][3]
        c.send(c.data(port), ev=entry.value & 0xFFFF0000 | 0x1234, port=port)
        c.expect("SACK", port=port, ev=entry.value)
        c.send(c.data(port + 2), ev=0x00FF0001, port=port)
        c.expect("SACK", port=port, ev=entry.value)


@case(
    "reverse-mirrors",
    _PROBE,
    "The first new EV after a repetition is one of the path on which it came, the next one is any.",
    Basis.OURS,
    "§6",
    Need.EVS,
    Need.EXACT_TIME,
    settings=_REVERSE,
)
def reverse_mirrors(c: Script) -> None:
    c.send(c.data(0))
    c.drain({"SACK", "ACK"})
    values = [entry.value for entry in c.evs(lambda entry: entry.plane == 0)]
    found = []
    for value in values[:6]:
        c.send(c.data(0), ev=value)
        found.append(c.expect("SACK").ev == value)
        c.advance(2 * c.settings.base_rtt_ns)
    c.check(found[::2] == [True] * 3, f"answers on the path of the repetition: {found}")
    c.check(sum(found[1::2]) < 3, f"answers on the path of the repetition: {found}")


@case(
    "reverse-kept-for-proof",
    _PROBE,
    "A repetition does not change an EV of answers that proved good within two round trips for each plane.",
    Basis.OURS,
    "§6",
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(_REVERSE, ev_count=2048, reverse_probes=False, tail_probe=False),
)
def reverse_kept_for_proof(c: Script) -> None:
    rtt = c.settings.base_rtt_ns
    packet = answered(c, 1)[0]
    c.advance(3 * rtt)
    for wait, kept in ((0, True), (rtt, False)):
        c.advance(wait)
        c.send(c.data(0), port=packet.port)
        c.drain({"SACK", "ACK"})
        c.send(c.data(0), port=packet.port)
        found = c.expect("SACK", port=packet.port).ev
        c.check((found == packet.ev) == kept, f"after {3 + wait // rtt} round trips the EV is kept: {not kept}")


@case(
    "reverse-idle-probe",
    _PROBE,
    "A probe that comes while nothing else does changes the EV of answers that has not proved good.",
    Basis.OURS,
    "§6",
    Need.EXACT_TIME,
    settings=replace(_REVERSE, planes=1, reverse_probes=False),
)
def reverse_idle_probe(c: Script) -> None:
    found = set()
    for number in range(6):
        c.send("PROBE", probe_id=number)
        found.add(c.expect("SACK", pr=1).ev)
        c.advance(2 * c.settings.base_rtt_ns)
    c.check(len(found) >= 4, f"six probes were answered on {len(found)} EVs")


@case(
    "reverse-status",
    _PROBE,
    "A port status that comes again is answered on another EV.",
    Basis.OURS,
    "§7",
    Need.EXACT_TIME,
    settings=replace(_REVERSE, planes=1, reverse_probes=False),
)
def reverse_status(c: Script) -> None:
    found = []
    for _ in range(4):
        c.send("ENDPOINT_REQUEST", op=0, psn=4, port_status_mask=1)
        found.append(c.expect("ENDPOINT_RESPONSE", psn=4).ev)
        c.advance(2 * c.settings.base_rtt_ns)
    c.check(len(set(found)) >= 3, f"four statuses with one number were answered on {len(set(found))} EVs")


def _marked(c: Script, mark: int, state: PathState) -> None:
    c.post(8)
    c.expect("WRITE_ONLY")
    probe = c.expect("PROBE", within=c.ack_timeout_ns)
    c.probe_reply(probe, 0, m=mark)
    c.expect_ev_state(probe.ev, state)
    c.ack(0, 1)
    if state is PathState.ASSUMED_BAD:
        for later in (0, 2, 0):
            again = c.expect("PROBE", within=3 * c.settings.probe_interval_ns, ev=probe.ev)
            c.probe_reply(again, 0, m=later)
    c.expect_ev_state(probe.ev, state)


for _name, _rule, _mark, _state in (
    ("none", "The answer to a probe at the tail without a mark leaves its EV GOOD.", 0, PathState.GOOD),
    ("once", "A mark in the answer to a probe at the tail concerns its EV.", 1, PathState.SKIP),
    ("always", "ALWAYS_SKIP in the answer to a probe makes its EV bad, and breaks a row of good answers.", 2,
     PathState.ASSUMED_BAD),
):  # fmt: skip
    case(
        f"probe-tail-mark-{_name}", _PROBE, _rule, Basis.OURS, "§7", Need.EXACT_TIME, Need.POST, Need.EVS,
        settings=Settings(planes=1, timeout=14),
    )(partial(_marked, mark=_mark, state=_state))  # fmt: skip


@case(
    "probe-tail-not-while-answered",
    _PROBE,
    "While packets are answered in each round trip, nothing is probed.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.EXACT_TIME,
    settings=Settings(planes=1),
)
def probe_tail_not_while_answered(c: Script) -> None:
    for index in range(12):
        c.post(8)
        packet = c.expect("WRITE_ONLY")
        c.advance(c.settings.base_rtt_ns)
        c.sack(packet, index)
        c.ack(index, index + 1)
    c.expect_nothing("PROBE")


@case(
    "probe-answer-twice",
    _PROBE,
    "An answer to a probe counts once, in time and late.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EVS,
    Need.EXACT_TIME,
    settings=replace(_REVIVAL, probes_to_revive=3, probe_timeout_ns=500_000),
)
def probe_answer_twice(c: Script) -> None:
    bad = condemn(c)
    for wait in (0, 5 * c.settings.probe_interval_ns // 2):
        probe = c.expect("PROBE", within=12 * c.settings.probe_interval_ns, ev=bad.ev)
        c.advance(wait)
        c.drain({"PROBE"})
        for _ in range(4):
            c.probe_reply(probe, 0)
        c.expect_ev_state(bad.ev, PathState.ASSUMED_BAD)


@case(
    "probe-revives-to-active",
    _PROBE,
    "A revived EV is used again at once where its plane has fewer EVs in use than it should.",
    Basis.NOTES,
    "§7",
    Need.POST,
    Need.EVS,
    settings=replace(_REVIVAL, ev_count=4),
)
def probe_revives_to_active(c: Script) -> None:
    bad = condemn(c)
    c.check(not c.ev(bad.ev).active, "the bad EV is in use")
    for _ in range(2):
        c.probe_reply(c.expect("PROBE", within=3 * c.settings.probe_interval_ns, ev=bad.ev), 0)
    used = {packet.ev for packet in answered(c, 8, 1)}
    c.check(bad.ev in used and len(used) == 4, f"{len(used)} of 4 EVs carry data")
