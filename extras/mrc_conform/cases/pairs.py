"""Several queue pairs of one peer, which share window, EVs and planes; and queue pairs that are used again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from mrc_conform.case import Area, Basis, case
from mrc_conform.cases.shorthand import answered
from mrc_conform.device import Control, Need, PathState, Settings
from mrc_conform.script import NackReason, Nak, Script
from mrc_conform.wire import Packet

_CC = Area.CONGESTION
_STATE = Area.STATE
_WINDOW = 20_000
_SHARED = Settings(planes=1, window=_WINDOW, tail_probe=False, rack_inference=False, same_ev_inference=False)
_QUIET = Settings(tail_probe=False, probe_interval_ns=10**12)


def _fill(c: Script) -> list[Packet]:
    """Have the queue pair fill the window that it shares; return its packets."""
    for _ in range(30):
        c.post(c.settings.mtu)
    packets = c.drain()
    c.check(len(packets) == _WINDOW // packets[0].size, f"{len(packets)} packets left in a window of {_WINDOW}")
    return packets


def _waiting(c: Script, *others: Script) -> None:
    """Have the other queue pairs post one packet each, which must wait for the window."""
    for other in others:
        other.post(c.settings.mtu)
        other.expect_nothing("WRITE_ONLY")


def _shared(c: Script, free: Callable[[Script, list[Packet]], object]) -> None:
    other = c.second()
    packets = _fill(c)
    _waiting(c, other)
    free(c, packets)
    other.expect("WRITE_ONLY")


def _dies(c: Script, packets: list[Packet]) -> None:
    c.nack(packets[0], NackReason.UNEXP_EVENT)


_FREES: Mapping[str, tuple[str, Callable[[Script, list[Packet]], object]]] = {
    "sack": ("an acknowledgement", lambda c, packets: c.sack(packets[2], 2)),
    "ack": ("a transport ACK", lambda c, packets: c.ack(2, 3)),
    "nack": ("a refusal", lambda c, packets: [c.nack(each, NackReason.NO_RESOURCE) for each in packets[:3]]),
    "timeout": ("a timeout", lambda c, packets: c.advance(c.ack_timeout_ns)),
    "reset": ("RESET", lambda c, packets: c.reset()),
    "error": ("an error", _dies),
}
for _name, (_what, _free) in _FREES.items():
    case(
        f"shared-window-{_name}",
        _CC,
        f"The room that {_what} of one queue pair leaves wakes another to the same peer that waits for the window.",
        Basis.OURS,
        "§8",
        Need.SECOND_QP,
        Need.POST,
        Need.STATES,
        Need.EXACT_TIME,
        settings=_SHARED,
    )(partial(_shared, free=_free))


@case(
    "shared-window-one",
    _CC,
    "Queue pairs to one peer share one window.",
    Basis.NOTES,
    "§8",
    Need.SECOND_QP,
    Need.POST,
    settings=_SHARED,
)
def shared_window_one(c: Script) -> None:
    other = c.second()
    c.post(6 * c.settings.mtu)
    other.post(400 * c.settings.mtu)
    first, second = c.drain(), other.drain()
    size = sum(packet.size for packet in first + second)
    c.check(_WINDOW - first[0].size < size <= _WINDOW, f"{size} bytes of two queue pairs are in flight")
    c.sack(first[-1], 5)
    more = other.drain()
    c.check(len(more) in (6, 7), f"{len(more)} packets left after 6 of the other queue pair were acknowledged")


@case(
    "shared-window-turns",
    _CC,
    "Queue pairs that have data send in turn.",
    Basis.OURS,
    "§8",
    Need.SECOND_QP,
    Need.POST,
    Need.EXACT_TIME,
    settings=_SHARED,
)
def shared_window_turns(c: Script) -> None:
    other = c.second()
    packets = _fill(c)
    other.post(400 * c.settings.mtu)
    for index in range(8):
        c.sack(packets[index], index)
    mine, theirs = len(c.drain()), len(other.drain())
    c.check(abs(mine - theirs) <= 2, f"of the room one queue pair took {mine} packets, the other {theirs}")


@case(
    "shared-window-vain",
    _CC,
    "A queue pair that is woken for the window and may not send leaves the room to the next that waits.",
    Basis.OURS,
    "§8",
    Need.SECOND_QP,
    Need.POST,
    Need.EXACT_TIME,
    settings=_SHARED,
)
def shared_window_vain(c: Script) -> None:
    paused, other = c.second(), c.second()
    paused.post(c.settings.mtu)
    refused = paused.expect("WRITE_ONLY")
    c.post(16 * c.settings.mtu)
    c.drain()
    _waiting(c, paused, other)
    paused.nack(refused, NackReason.NO_RESOURCE)
    other.expect("WRITE_ONLY")
    paused.expect_nothing("WRITE_ONLY")


@case(
    "shared-window-silent",
    _CC,
    "A queue pair whose other end is silent holds none of the window that live ones to the same peer share.",
    Basis.OURS,
    "§4",
    Need.SECOND_QP,
    Need.POST,
    Need.EXACT_TIME,
    settings=_SHARED,
)
def shared_window_silent(c: Script) -> None:
    _fill(c)
    c.expect("WRITE_ONLY", within=2 * c.ack_timeout_ns, rtx=1)
    _fill(c.second())


def _equal_planes(c: Script, packets: int = 48) -> None:
    c.post(packets * c.settings.mtu)
    load = Counter(packet.port for packet in c.drain())
    c.check(abs(load[0] - load[1]) <= 8, f"plane 0 carried {load[0]} packets, plane 1 {load[1]}")


def _deny_plane(c: Script, plane: int) -> None:
    """Deny all EVs of a plane."""
    for entry in c.evs(lambda entry: entry.plane == plane):
        c.device.deny(c.dut, entry.value, True)


@case(
    "shared-planes",
    _CC,
    "A plane that no queue pair uses any more is not waited for.",
    Basis.OURS,
    "§7",
    Need.SECOND_QP,
    Need.POST,
    Need.DENY,
    Need.EVS,
    Need.STATES,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def shared_planes(c: Script) -> None:
    other = c.second()
    _deny_plane(c, 1)
    other.reset()
    c.post(48 * c.settings.mtu)
    load = Counter(packet.port for packet in c.drain())
    c.check(load == {0: 48}, f"packets of a queue pair that has EVs on plane 0 alone, by plane: {dict(load)}")


@case(
    "shared-planes-both",
    _CC,
    "The load of a plane is that of all queue pairs to the peer.",
    Basis.OURS,
    "§7",
    Need.SECOND_QP,
    Need.POST,
    Need.DENY,
    Need.EVS,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def shared_planes_both(c: Script) -> None:
    other = c.second()
    _deny_plane(c, 1)
    c.post(400 * c.settings.mtu)
    other.post(20 * c.settings.mtu)
    load = Counter(packet.port for packet in other.drain())
    c.check(load[1] >= 3 * load[0], f"a queue pair beside one on plane 0 sent by plane: {dict(load)}")


@case(
    "planes-return-level",
    _CC,
    "A plane that returns starts level with the others; it does not catch up.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.PORTS,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def planes_return_level(c: Script) -> None:
    for port in (0, 1):
        c.device.set_port(port, False)
        c.post(100 * c.settings.mtu)
        c.drain()
        c.device.set_port(port, True)
        _equal_planes(c)


@case(
    "planes-wait",
    _CC,
    "A plane may be ahead of one that takes nothing by its slack, and after the patience goes on without it.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.STALL,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def planes_wait(c: Script) -> None:
    c.device.stall_port(0, True)
    c.post(200 * c.settings.mtu)
    found = len(c.drain())
    c.check(found == c.settings.balance_slack + 1, f"plane 1 ran ahead by {found} packets")
    c.advance(c.settings.balance_patience_ns - 1)
    c.check(not c.drain(), "plane 1 did not wait for the other")
    c.advance(1)
    found = len(c.drain())
    c.check(c.settings.balance_slack <= found <= c.settings.balance_slack + 1, f"{found} packets left after the wait")
    for _ in range(4):
        c.advance(c.settings.balance_patience_ns)
    c.check(c.drain() != [], "plane 1 waits for ever")


# --- used again ---


def _again(
    c: Script, before: Mapping[str, object], after: Mapping[str, object], check: Callable[[Script], None]
) -> None:
    c.connect(**before)
    c.reconnect(**after)
    check(c)


def _takes(c: Script, packets: int) -> None:
    c.post(2 * packets * c.settings.mtu)
    found = len(c.drain())
    c.check(found == packets, f"{found} packets left, and {packets} fit the window")


def _carries(c: Script, **fields: int) -> None:
    c.post(c.settings.mtu)
    c.expect("WRITE_ONLY", **fields)


def _immediates(c: Script) -> None:
    for value in range(3):
        c.post(8, value)
    found = len(c.drain())
    c.check(found == 3, f"{found} of 3 WriteIMM left")


_AGAIN: Mapping[str, tuple[str, Mapping[str, object], Mapping[str, object], Callable[[Script], None]]] = {
    "window": ("the window", {"mpr_dest": 1}, {"mpr_dest": 2}, partial(_takes, packets=256)),
    "immediates": ("the limit of WriteIMM", {"max_wimm_dest": 1}, {"max_wimm_dest": 4}, _immediates),
    "mtu": ("the MTU", {"mtu": 256}, {"mtu": 1024}, partial(_carries, size=1112)),
    "trim": ("the class of data", {"trim_nack": False}, {"trim_nack": True}, partial(_carries, dscp=4)),
    "number": ("the queue pair number", {"number": 0x77}, {"number": 0x4B17}, partial(_carries, dest_qp=0x4B17)),
}
for _name, (_what, _before, _after, _check) in _AGAIN.items():
    case(
        f"again-{_name}",
        _STATE,
        f"After RESET {_what} is that of the new peer and of the own configuration, not what was negotiated before.",
        Basis.OURS,
        "§4",
        Need.POST,
        Need.STATES,
        Need.EXACT_TIME,
        connected=False,
        settings=Settings(window=1 << 30, tail_probe=False),
    )(partial(_again, before=_before, after=_after, check=_check))


@case(
    "again-dynamic-mpr",
    _STATE,
    "After RESET the offer of dynamic MPR counts again, though the peer before had none.",
    Basis.OURS,
    "§4",
    Need.STATES,
    Need.EXACT_TIME,
    connected=False,
    settings=Settings(dynamic_mpr=True, mpr_dest=4),
)
def again_dynamic_mpr(c: Script) -> None:
    c.connect(dynamic_mpr=False)
    c.reconnect(dynamic_mpr=True)
    c.send(c.data(0))
    c.expect("SACK", mpr=4)


@case(
    "again-numbers",
    _STATE,
    "After RESET a queue pair numbers its messages from 1 and expects the first message of the peer.",
    Basis.IBTA,
    "10.3.1",
    Need.POST,
    Need.STATES,
    settings=_QUIET,
)
def again_numbers(c: Script) -> None:
    for _ in range(2):
        c.device.post_recv(c.dut, 500)
        c.post(8, 5)
        c.expect("WRITE_ONLY_IMM", msn=1, rqmsn=1, rtx=0)
        for packet in c.message(0, 1, immediate=9, rqmsn=1):
            c.send(packet)
        c.send(c.data(2, msn=3))
        c.expect("SACK", cack_psn=c.rx(0), ooo_count=0, sack_bitmap=0, rcvd_bytes=5)
        c.expect("ACK", msn=1, syndrome=0x1F)
        c.expect("SACK", cack_psn=c.rx(0), ooo_count=1, rcvd_bytes=9)
        c.expect_completion(500, immediate=9)
        c.reconnect(psn=0x9000)


@case(
    "again-held-sack",
    _STATE,
    "After RESET no SACK leaves that was held back before.",
    Basis.IBTA,
    "10.3.1",
    Need.STATES,
    settings=Settings(sack_every=8),
)
def again_held_sack(c: Script) -> None:
    c.send(c.data(0, "WRITE_FIRST", length=9000))
    c.reconnect()
    c.expect_nothing("SACK", within=4 * c.settings.sack_delay_ns)


@case(
    "again-flight",
    _STATE,
    "After RESET nothing of the old connection is in flight, lost, paused or probed.",
    Basis.IBTA,
    "10.3.1",
    Need.POST,
    Need.STATES,
    Need.EXACT_TIME,
    settings=Settings(planes=1, window=_WINDOW),
)
def again_flight(c: Script) -> None:
    packets = _fill(c)
    c.nack(packets[0], NackReason.NO_RESOURCE)
    c.sack(packets[5], -1, [5])
    c.advance(c.ack_timeout_ns // 2)
    c.reconnect()
    fresh = _fill(c)
    c.check(not any(packet["rtx"] for packet in fresh), "a packet of the new connection is a retransmission")
    c.expect_nothing("WRITE_ONLY", within=c.ack_timeout_ns - 1)


@case(
    "again-evs",
    _STATE,
    "RESET does not forgive an EV.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.STATES,
    Need.EVS,
    settings=_QUIET,
)
def again_evs(c: Script) -> None:
    bad = answered(c, 1, m=2)[0]
    c.reconnect()
    c.expect_ev_state(bad.ev, PathState.ASSUMED_BAD)


# --- another peer ---

_OTHER = bytes.fromhex("fd00 00c0 0000 0000 0000 0000 0000 0033")


@case(
    "peers-windows",
    _CC,
    "Queue pairs to different peers have windows of their own.",
    Basis.NOTES,
    "§8",
    Need.SECOND_PEER,
    Need.POST,
    settings=_SHARED,
)
def peers_windows(c: Script) -> None:
    other = c.second(address=_OTHER)
    for pair in (c, other):
        _fill(pair)


@case(
    "peers-ports",
    _CC,
    "The port status of one peer says nothing of another's ports.",
    Basis.NOTES,
    "§7",
    Need.SECOND_PEER,
    Need.POST,
    settings=_QUIET,
)
def peers_ports(c: Script) -> None:
    other = c.second(address=_OTHER)
    c.send("ENDPOINT_REQUEST", op=0, psn=1, port_status_mask=0b10, port=1)
    for pair, planes in ((c, {1}), (other, {0, 1})):
        pair.post(32 * c.settings.mtu)
        used = {packet.port for packet in pair.drain()}
        c.check(used == planes, f"data went to the planes {sorted(used)}, expected {sorted(planes)}")


@case(
    "peers-told",
    _CC,
    "A port that goes down is announced to every peer, and each must answer for itself.",
    Basis.NOTES,
    "§7",
    Need.SECOND_PEER,
    Need.PORTS,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def peers_told(c: Script) -> None:
    other = c.second(address=_OTHER)
    c.device.set_port(0, False)
    told = c.drain({"ENDPOINT_REQUEST"})
    c.check(len(told) == 2 and len({each.destination for each in told}) == 2, f"{len(told)} statuses left")
    other.send("ENDPOINT_RESPONSE", op=0, psn=told[0]["psn"], tx_timestamp=told[0]["tx_timestamp"], port=1)
    again = c.drain({"ENDPOINT_REQUEST"}, within=c.settings.status_repeat_ns)
    c.check([each.destination for each in again] == [c.kit.address], "the peer that did not answer is not told again")


@case(
    "peers-denials",
    _CC,
    "What is denied towards one peer is not denied towards another.",
    Basis.OURS,
    "§7",
    Need.SECOND_PEER,
    Need.EVS,
    Need.DENY,
    settings=_QUIET,
)
def peers_denials(c: Script) -> None:
    value = c.evs()[0].value
    c.device.deny(c.dut, value, True)
    c.second().expect_ev_state(value, PathState.DENIED)
    c.second(address=_OTHER).expect_ev_state(value, PathState.GOOD)


@case(
    "shared-reverse",
    _CC,
    "An EV that data of one queue pair proved good carries the answers of all to that peer, and of none to another.",
    Basis.OURS,
    "§6",
    Need.SECOND_QP,
    Need.SECOND_PEER,
    Need.POST,
    settings=replace(_QUIET, planes=1, ev_count=2048),
)
def shared_reverse(c: Script) -> None:
    pairs = [c.second(), c.second(address=_OTHER)]
    packet = answered(c, 1)[0]
    for pair, same in zip(pairs, (True, False), strict=True):
        pair.send(pair.data(0))
        c.check((pair.expect("SACK").ev == packet.ev) == same, f"answers share their EV: {not same}")


@case(
    "shared-evs",
    _CC,
    "Each queue pair has its own states of EVs.",
    Basis.NOTES,
    "§7",
    Need.SECOND_QP,
    Need.POST,
    Need.EVS,
    settings=_QUIET,
)
def shared_evs(c: Script) -> None:
    other = c.second()
    bad = answered(c, 1, m=2)[0]
    c.expect_ev_state(bad.ev, PathState.ASSUMED_BAD)
    other.expect_ev_state(bad.ev, PathState.GOOD)


@case(
    "shared-control",
    _CC,
    "What one queue pair learns of congestion bounds all to the same peer.",
    Basis.NOTES,
    "§8",
    Need.SECOND_QP,
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(
        _SHARED, control=Control.NSCC, base_rtt_ns=20_000, nscc={"initial_cwnd_bytes": 20_000, "disable_qa": True}
    ),
)
def shared_control(c: Script) -> None:
    other = c.second()
    packets = _fill(c)
    for packet in packets[:8]:
        c.nack(packet, NackReason.TRIMMED_LASTHOP)
    c.check(len(c.drain()) <= 1, "the window did not shrink by what was trimmed")
    last = packets[-1]
    c.sack(last, len(packets) - 1, tx_timestamp=last["tx_timestamp"] ^ 0x4000)
    other.post(40 * c.settings.mtu)
    found = len(c.drain()) + len(other.drain())
    c.check(9 <= found <= 11, f"{found} packets left after a window of 17 had shrunk by 8")


@case(
    "again-receives",
    _STATE,
    "RESET takes back the receives that were posted.",
    Basis.IBTA,
    "10.3.1",
    Need.POST,
    Need.STATES,
    settings=_QUIET,
)
def again_receives(c: Script) -> None:
    c.device.post_recv(c.dut, 500)
    c.reconnect(psn=0x9000)
    c.send(c.message(0, 1, immediate=9, rqmsn=1)[0])
    c.expect("ACK", syndrome=Nak.REMOTE_OPERATION)


@case(
    "again-pause",
    _STATE,
    "Round trips to the peer before RESET do not say how long to pause for the next one.",
    Basis.OURS,
    "§5",
    Need.POST,
    Need.STATES,
    Need.EXACT_TIME,
    settings=_QUIET,
)
def again_pause(c: Script) -> None:
    rtt = c.settings.base_rtt_ns
    c.post(c.settings.mtu)
    packet = c.expect("WRITE_ONLY")
    c.advance(8 * rtt)
    c.sack(packet, 0)
    c.reconnect()
    c.post(c.settings.mtu)
    packet = c.expect("WRITE_ONLY")
    since = c.now
    c.nack(packet, NackReason.NO_RESOURCE)
    c.expect("WRITE_ONLY", after=rtt, since=since)


@case(
    "planes-repetitions",
    _CC,
    "Retransmissions load the planes equally, too.",
    Basis.OURS,
    "§7",
    Need.POST,
    Need.EXACT_TIME,
    settings=replace(_QUIET, rack_inference=False, same_ev_inference=False),
)
def planes_repetitions(c: Script) -> None:
    c.post(40 * c.settings.mtu)
    load: Counter[int] = Counter()
    for packet in c.drain():
        c.nack(packet, NackReason.TRIMMED_LASTHOP)
        load.update(again.port for again in c.drain())
    c.check(load.total() == 40 and abs(load[0] - load[1]) <= 8, f"packets were sent again by plane: {dict(load)}")
