"""What each queue pair has of its own: profiles, denials, attributes, completion queues (`mrc-protocol.md §7, §8`)."""

from __future__ import annotations

from typing import Any

import pytest

from mrc_host.proto.config import (
    EvConfig,
    EvFormat,
    EvMode,
    ReliabilityConfig,
    Srv6Path,
)
from mrc_host.proto.congestion.nscc import FixedConfig, NsccConfig
from mrc_host.proto.events import ErrorReason, EvState, QpError, QpState
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.fields import Opcode
from support.proto.peers import MS, MTU, bench, lone

FIXED_10K = FixedConfig(fixed_window_bytes=10_000, base_rtt_ns=8_000)


# --- per queue pair: CC profile, EV profile, encapsulation ---


def test_each_queue_pair_runs_by_its_own_cc_profile() -> None:
    b = bench(cc=NsccConfig(line_rate_bps=400_000_000_000, base_rtt_ns=12_000))
    one, two = b.add_host(), b.add_host()
    wide = b.connect(one, two)
    narrow = b.connect(one, two, cc=FIXED_10K)
    third = b.connect(one, two, cc=FixedConfig(fixed_window_bytes=10_000, base_rtt_ns=8_000))
    b.post(wide, 1_000 * MTU)
    b.post(narrow, 100 * MTU)
    assert narrow.qp.qpcc.cc.cwnd == 10_000
    assert wide.qp.qpcc.cc.cwnd > 100_000
    assert third.qp.qpcc is narrow.qp.qpcc  # equal profiles are one controller
    most = 0

    def look() -> bool:
        nonlocal most
        most = max(most, narrow.qp.qpcc.cc.inflight)
        return b.outstanding == 0

    b.net.run(look, max_time_ns=100 * MS)
    assert 0 < most <= 10_000
    assert [row.cc.cwnd for row in one.core.statistics().peers][1] == 10_000


def srv6(ev: int, destination: bytes) -> Srv6Path:
    return Srv6Path(bytes((0x5F,)) + bytes(3) + (ev & 0xFFFF).to_bytes(2, "big") + bytes(10))


def srv6_profile(planes: int, **changes: Any) -> EvConfig:
    return EvConfig(fmt=EvFormat.SRV6_USID128, count=8 * planes, active=4 * planes, ev_min_active=1,
                    **({"resolver": srv6} | changes))  # fmt: skip


@pytest.mark.parametrize("srv6_first", [False, True])
def test_each_queue_pair_is_encapsulated_by_its_own_ev_profile(srv6_first: bool) -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    sent: dict[int, set[bool]] = {}

    def watch(time: int, what: str, host: Any, port: int, path: int, packet: bytes) -> None:
        if what == "sent":
            sent.setdefault(wire.decode(packet).bth.dest_qp, set()).add(packet[6] == 41)

    b.net.watchers.append(watch)
    profiles: list[dict[str, Any]] = [{}, {"ev": srv6_profile(2)}]
    connections = [b.connect(one, two, **profile) for profile in (profiles[::-1] if srv6_first else profiles)]
    plain, wrapped = connections[::-1] if srv6_first else connections
    for connection in connections:
        b.post(connection, 20 * MTU)
    b.run()
    for connection, expected in ((plain, False), (wrapped, True)):
        assert sent[connection.peer.number] == {expected}  # data
        assert sent[connection.qp.number] == {expected}  # SACKs and ACKs


def test_a_probe_to_an_address_decides_nothing_for_a_later_queue_pair() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    one.core.probe_ev(two.address, 5, 0, 0)
    assert one.core.peers == {}
    connection = b.connect(one, two, ev=srv6_profile(2))
    assert connection.qp.route.outer_bytes == 40
    b.post(connection, 4 * MTU)
    b.run()
    assert b.statuses() == {"SUCCESS": 1}


def test_a_profile_without_a_path_to_the_peer_is_refused() -> None:
    def nowhere(ev: int, destination: bytes) -> Srv6Path:
        raise KeyError(ev)

    b = bench(2)
    one, two = b.add_host(), b.add_host()
    with pytest.raises(QpError, match=r"queue pair \d+: EV [0-9a-f]{8} of the profile has no path to"):
        b.connect(one, two, ev=srv6_profile(2, resolver=nowhere))
    assert one.core.peers == {}


def test_sack_delay_and_hole_cycle_are_the_queue_pairs_own() -> None:
    b = bench(1)
    one, two = b.add_host(), b.add_host()
    slow = ReliabilityConfig(timeout=12, sack_every=100, sack_delay_ns=300_000, hole_cycle=9)
    connection = b.connect(one, two, reliability=slow)
    times: list[int] = []
    b.net.watchers.append(
        lambda time, what, host, port, path, packet: (
            times.append(time)
            if what == "sent" and host is two and wire.decode(packet).bth.opcode == Opcode.SACK
            else None
        )
    )
    assert connection.peer.responder.association.attributes.hole_cycle == 9
    codec, ends = two.core.context.codec, one.address + two.address
    region = two.core.register_memory(bytearray(4096))
    data = codec.encode_data(
        ends, 5, 18, Opcode.WRITE_FIRST, connection.peer.number, connection.qp.sq_psn, 0, 0, 1, 5, region.va,
        region.rkey, 2 * MTU, bytes(MTU), 0,
    )  # fmt: skip
    two.core.receive_datagram(0, data, 0)
    b.net.touch(two)
    b.net.run(max_time_ns=MS)
    assert len(times) == 1
    assert times[0] >= 300_000


# --- DENIED, RESET, completion queues ---


def states(core: Any, qp: Any) -> dict[int, str]:
    return {row.ev: row.state.name for row in core.query_evs(qp)}


def test_what_a_controller_denied_stays_denied_for_later_queue_pairs() -> None:
    values = ((1, 2, 3, 4),)
    ev = EvConfig(mode=EvMode.EXPLICIT, values=values, count=4, active=2, ev_min_active=1)
    b = bench(1, ev=ev)
    one, two, three = (b.add_host() for _ in range(3))
    first = b.connect(one, two)
    core = one.core
    core.set_ev_state(first.qp, 3, EvState.DENIED, 0)
    core.destroy_qp(first.qp, 0)
    later = b.connect(one, two)
    elsewhere = b.connect(one, three)
    assert states(core, later.qp)[3] == "DENIED"
    assert states(core, elsewhere.qp)[3] == "GOOD"
    # Denied before it is connected, or towards everybody.
    early = core.create_qp(core.create_cq())
    core.set_ev_state(early, 2, EvState.DENIED, 0)
    core.connect(early, three.core.local_attributes(three.core.create_qp(three.core.create_cq())), 0)
    assert states(core, b.connect(one, three).qp)[2] == "DENIED"
    assert core.deny_evs([4], True, 0) == 4
    assert states(core, b.connect(one, two).qp)[4] == "DENIED"
    # Only the controller undoes it.
    core.set_ev_state(later.qp, 3, EvState.GOOD, 0)
    core.deny_evs([4], False, 0)
    fresh = states(core, b.connect(one, two).qp)
    assert (fresh[3], fresh[4]) == ("GOOD", "GOOD")
    assert core.context.denied.keys() == {three.address}


def test_a_denial_holds_until_all_queue_pairs_that_it_was_made_for_undid_it() -> None:
    ev = EvConfig(mode=EvMode.EXPLICIT, values=((1, 2, 3, 4),), count=4, active=2, ev_min_active=1)
    b = bench(1, ev=ev)
    one, two = b.add_host(), b.add_host()
    core = one.core
    makers = [b.connect(one, two).qp for _ in range(2)]
    for qp in makers:
        core.set_ev_state(qp, 3, EvState.DENIED, 0)
    core.set_ev_state(core.create_qp(core.create_cq()), 3, EvState.GOOD, 0)  # of no peer
    core.set_ev_state(makers[1], 3, EvState.GOOD, 0)
    later = b.connect(one, two).qp
    assert states(core, makers[1])[3] == "GOOD"
    assert states(core, later)[3] == "DENIED"
    core.set_ev_state(makers[0], 3, EvState.GOOD, 0)  # what it inherited holds for the later one alone
    assert core.context.denied == {}
    # A command for all queue pairs undoes the denials that single ones made, too.
    for undo, arguments in (core.deny_evs, ([3], False, 0)), (core.set_denials, ({}, 0)):
        core.set_ev_state(makers[0], 3, EvState.DENIED, 0)
        undo(*arguments)
        core.set_ev_state(makers[1], 3, EvState.DENIED, 0)
        core.set_ev_state(makers[1], 3, EvState.GOOD, 0)
        assert core.context.denied == {}


def test_reset_takes_a_new_psn_and_gives_back_what_was_negotiated() -> None:
    b = bench(1, initial_psn=77, reliability=ReliabilityConfig(timeout=8, mpr=64, dynamic_mpr=True))
    one, two = b.add_host(), b.add_host()
    b.endpoint["reliability"] = ReliabilityConfig(timeout=8, mpr_dest=2)
    narrow = b.add_host()
    connection = b.connect(one, narrow)
    qp = connection.qp
    assert qp.sq_psn == 77
    assert (qp.attributes.mpr, qp.attributes.dynamic_mpr) == (2, False)
    one.core.modify(qp, QpState.RESET, 0)
    assert qp.sq_psn != 77
    document = one.core.local_attributes(qp)
    assert document["psn"] == qp.sq_psn
    assert document["dynamic_mpr"]
    peer = two.core.create_qp(two.core.create_cq())
    two.core.connect(peer, document, 0)
    one.core.connect(qp, two.core.local_attributes(peer), 0)
    assert (qp.attributes.mpr, qp.attributes.dynamic_mpr) == (64, True)


def test_an_overflow_ends_every_queue_pair_of_the_queue() -> None:
    b = bench(1)
    one, two = b.add_host(), b.add_host()
    core = one.core
    cq, other = core.create_cq(2), core.create_cq()
    mine = [core.create_qp(cq), core.create_qp(other, cq), core.create_qp(other)]
    theirs = [two.core.create_qp(two.core.create_cq()) for _ in mine]
    for qp, peer in zip(mine, theirs, strict=True):
        document = core.local_attributes(qp)
        core.connect(qp, two.core.local_attributes(peer), 0)
        two.core.connect(peer, document, 0)
    region = two.core.register_memory(bytearray(64))
    for number in range(4):
        core.post_write(mine[0], bytes(8), region.va, region.rkey, number)
    one.on_event = two.on_event = None
    b.net.touch(one)
    b.net.run(max_time_ns=MS)
    assert [qp.error for qp in mine] == [ErrorReason.CQ_OVERFLOW, ErrorReason.CQ_OVERFLOW, None]
    assert (len(cq.entries), cq.lost) == (2, 2)
    with pytest.raises(QpError, match=r"completion queue 1 has overflowed; create another one"):
        core.create_qp(other, cq)
    with pytest.raises(QpError, match="in use by 2"):
        core.destroy_cq(cq)
    for qp in mine:
        core.destroy_qp(qp, 0)
    core.destroy_cq(cq)
    with pytest.raises(QpError, match="does not belong"):
        core.destroy_cq(cq)


def test_a_verb_that_is_refused_changes_nothing() -> None:
    core = lone()
    qp = core.create_qp(core.create_cq())
    before = (qp.attributes.mtu, qp.attributes.mpr_dest, qp.attributes.max_wimm_dest)
    with pytest.raises(QpError, match="is in RESET"):
        core.modify(qp, QpState.RTR, 0, remote_number=1, remote_address=bytes(16), rq_psn=1, mtu=64,
                    max_wimm_dest=1, mpr_dest=1)  # fmt: skip
    assert (qp.attributes.mtu, qp.attributes.mpr_dest, qp.attributes.max_wimm_dest) == before
