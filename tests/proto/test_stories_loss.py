"""Stories of loss and repair, step by step (`mrc-protocol.md §4-§6`)."""

from __future__ import annotations

import itertools

import pytest

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.events import ErrorReason, EvChanged, EvState, QpState, QpStateChanged
from mrc_host.proto.wire.fields import NackReason, Opcode, Packet, SackMark
from support.proto.net import Host, Net, NetConfig, drop_psns, opcode_of, psn_of
from support.proto.story import WIDE, Story, shown

MTU = 1024
QUIET = NetConfig(trim_bytes=None, ecn=None)
TIMEOUT_NS = 1024 << 10


def story(config: NetConfig = QUIET, **changes: object) -> Story:
    settings: dict[str, object] = {"wire": WireConfig(mtu=MTU), "cc": WIDE}
    reliability = {"timeout": 10}
    for name, value in changes.items():
        if name in ReliabilityConfig.__slots__:
            reliability[name] = value  # type: ignore[assignment]
        else:
            settings[name] = value
    settings["reliability"] = ReliabilityConfig(**reliability)  # type: ignore[arg-type]
    return Story(config, **settings)  # type: ignore[arg-type]


def test_sacks_repair_the_loss_of_psn_5_and_8_of_the_example() -> None:
    s = story()
    s.net.rules.append(drop_psns([5, 8]))
    write = s.bench.post(s.connection, 10 * MTU)

    # PSNs 1 to 10 leave once each; the responder answers the eight that arrive.
    s.until(lambda: len(s.sacks()) == 8)
    assert [p.psn for p in s.data()] == list(range(1, 11))
    said = [
        (x.packet.seth.cack_psn, x.packet.seth.cack_psn + x.packet.seth.ack_psn_offset, shown(x)) for x in s.sacks()
    ]
    assert said == [
        (1, 1, set()),
        (2, 2, set()),
        (3, 3, set()),
        (4, 4, set()),
        (4, 6, {6}),
        (4, 7, {6, 7}),
        (4, 9, {6, 7, 9}),
        (4, 10, {6, 7, 9, 10}),
    ]
    assert all(x.packet.seth.m == SackMark.NONE and not x.rtx for x in s.sacks())

    # Nothing later is acknowledged, so the requestor asks after two RTTs; the answer says nothing new, and 5 and 8
    # are now older than the probe by more than an RTT: rule (c).
    s.until(lambda: write.completed_at is not None)
    (probe,) = s.packets(Opcode.PROBE)
    (answer,) = [x for x in s.packets(Opcode.SACK) if x.packet.seth.pr]
    assert answer.packet.seth.ack_psn_offset & 0xFFFF == probe.packet.peth.probe_id
    assert answer.packet.seth.entropy == probe.ev
    assert shown(answer) == {6, 7, 9, 10}
    assert s.counters.lost_rack == s.counters.packets_inferred == 2

    # Each goes once more: rtx, its own DSCP, a fresh EV; the SACK echoes rtx, and cack jumps over what was there.
    for psn, cack in ((5, 7), (8, 10)):
        first, again = s.data(psn)
        assert (first.rtx, first.dscp, again.rtx, again.dscp) == (False, 4, True, 8)
        assert again.ev != first.ev
        assert again.time > answer.time
        (echo,) = [x for x in s.sacks() if x.packet.seth.entropy == again.ev and x.rtx]
        assert echo.packet.seth.cack_psn == cack
    assert len(s.data()) == 12
    assert write.status is CompletionStatus.SUCCESS
    s.bench.settle(5_000_000)
    assert not s.board.outstanding


def test_later_packets_find_the_loss_without_a_probe() -> None:
    s = story()
    s.net.rules.append(drop_psns([5]))
    write = s.bench.post(s.connection, 400 * MTU)
    s.until(lambda: write.completed_at is not None)
    first, again = s.data(5)
    # Rule (b) or (c): well before the timeout, and no earlier than an RTT.
    assert 6_000 < again.time - first.time < TIMEOUT_NS / 10
    assert s.counters.lost_rack + s.counters.lost_same_ev == s.counters.packets_inferred == 1
    assert not s.packets(Opcode.PROBE) or s.packets(Opcode.PROBE)[0].time > again.time
    assert len(s.data()) == 401


def test_trim_nack_causes_one_retransmission_on_another_ev() -> None:
    s = story()
    left = [7]

    def trim_once(net: Net, host: Host, port: int, index: int, packet: bytes) -> str | None:
        if left and opcode_of(packet) <= 0xCB and psn_of(packet) == left[0]:
            left.clear()
            return "trim"
        return None

    s.net.rules.append(trim_once)
    write = s.bench.post(s.connection, 12 * MTU)
    s.until(lambda: bool(s.packets(Opcode.NACK)))

    # The responder places nothing and names packet, path and timestamp.
    (nack,) = s.packets(Opcode.NACK)
    (first,) = s.data(7)
    neth = nack.packet.neth
    assert neth is not None
    assert first.packet.tseth is not None
    assert (neth.nack_psn, neth.nack_reason) == (7, NackReason.TRIMMED)
    assert (neth.entropy, neth.tx_timestamp) == (first.ev, first.packet.tseth.tx_timestamp)
    assert nack.dscp == 46

    # The requestor sends it once more, at once, elsewhere; the EV is passed over once: SKIP.
    s.until(lambda: s.counters.nacks_received == 1)
    assert s.state_of(first.ev) is EvState.SKIP
    s.until(lambda: write.completed_at is not None)
    first, again = s.data(7)
    assert again.rtx
    assert again.dscp == 8
    assert again.ev != first.ev
    assert s.counters.lost_nack == s.counters.retransmissions == 1
    assert not s.events(EvChanged)  # the path is not taken for bad
    s.bench.settle(1_000_000)
    assert len(s.data()) == 13


def test_trimmed_at_the_last_hop_blames_no_path() -> None:
    s = story(NetConfig(trim_bytes=None, ecn=None, port_trim_bytes=-1))  # every data packet is trimmed at the host port
    s.bench.post(s.connection, MTU)
    s.until(lambda: s.counters.nacks_received == 3)
    assert {n.packet.neth.nack_reason for n in s.packets(Opcode.NACK)} == {NackReason.TRIMMED_LASTHOP}
    assert {s.state_of(p.ev) for p in s.data()} == {EvState.GOOD}


def test_without_the_trim_capability_trims_are_ignored() -> None:
    s = story(trim_nack=False)
    assert s.qp.requestor.tc_data >> 2 == 0  # the requestor asks for no trimming either
    s.net.rules.append(lambda net, host, port, index, packet: "trim" if opcode_of(packet) <= 0xCB else None)
    write = s.bench.post(s.connection, MTU)
    s.net.rules.insert(0, lambda net, host, port, index, packet: None)
    s.until(lambda: write.completed_at is not None)  # DSCP_NO_TRIM: the network cannot trim it
    assert not s.packets(Opcode.NACK)


@pytest.mark.parametrize("tail_probe", [True, False])
def test_loss_of_the_last_packet_is_found_by_probe_or_timeout(tail_probe: bool) -> None:
    s = story(tail_probe=tail_probe)
    s.net.rules.append(drop_psns([3]))
    write = s.bench.post(s.connection, 3 * MTU)
    s.until(lambda: write.completed_at is not None)
    first, again = s.data(3)
    assert again.rtx
    if tail_probe:  # found by a probe, long before the timeout
        assert again.time - first.time < TIMEOUT_NS / 10
        assert s.counters.lost_rack == 1
    else:  # rule (d), exactly at the local ACK timeout of that packet
        assert abs(again.time - first.time - TIMEOUT_NS) < 2_000
        assert s.counters.lost_timeout == s.counters.packets_expired == 1
        assert not s.packets(Opcode.PROBE)
    assert write.status is CompletionStatus.SUCCESS


def test_write_survives_the_loss_of_all_sacks_and_acks_for_a_while() -> None:
    s = story()
    dark = 3_000_000
    s.lose(lambda p: p.host == 1 and p.time < dark)
    write = s.bench.post(s.connection, 20 * MTU)
    s.until(lambda: write.completed_at is not None)
    # Every byte had been placed in the first microseconds; all that came later were duplicates.
    responder = s.connection.peer.responder.counters
    assert responder.packets_placed == 20
    assert responder.duplicates == s.counters.retransmissions > 0
    assert dark < write.completed_at < 4 * dark  # type: ignore[operator]
    assert write.status is CompletionStatus.SUCCESS
    s.bench.settle(2_000_000)
    assert s.qp.qpcc.cc.inflight <= 0 or s.qp.qpcc.cc.inflight < 256


def test_a_lost_transport_ack_is_asked_for() -> None:
    s = story()
    s.lose(lambda p: p.opcode == Opcode.ACK and p.time < 10_000)
    write = s.bench.post(s.connection, 2 * MTU)
    s.until(lambda: write.completed_at is not None)
    # Both packets are SACKed: nothing is sent again, a probe brings the ACK once more.
    assert len(s.data()) == 2
    assert len(s.packets(Opcode.ACK)) == 2
    assert len(s.packets(Opcode.PROBE)) == 1


def test_losses_are_repaired_across_the_psn_wrap() -> None:
    s = story(initial_psn=0xFFFFF0)
    s.net.rules.append(drop_psns([0xFFFFFF, 0, 5]))
    writes = [s.bench.post(s.connection, 20 * MTU) for _ in range(3)]
    s.until(lambda: s.bench.outstanding == 0)
    assert {w.status for w in writes} == {CompletionStatus.SUCCESS}
    fresh = [p.psn for p in s.data() if not p.rtx]
    assert fresh == [(0xFFFFF0 + i) % (1 << 24) for i in range(60)]
    assert sorted(p.psn for p in s.data() if p.rtx) == [0, 5, 0xFFFFFF]


def test_messages_complete_across_the_wrap_of_msn_and_rqmsn() -> None:
    s = story()
    requestor, responder = s.qp.requestor, s.connection.peer.responder
    requestor.work.msn = responder._acked_msn = 0xFFFD  # as after 65533 messages
    requestor.work.rqmsn, responder._expected_rqmsn = 0xFFFE, 0xFFFF
    for number in range(6):
        s.bench.post(s.connection, 10, immediate=number)
    s.until(lambda: s.bench.outstanding == 0)
    assert s.connection.immediates == list(range(6))
    meths = [p.packet.meth for p in s.data()]
    assert [m.msn for m in meths] == [0xFFFE, 0xFFFF, 0, 1, 2, 3]
    assert [m.rqmsn for m in meths] == [0xFFFF, 0, 1, 2, 3, 4]


def test_write_imm_out_of_order_is_stashed() -> None:
    s = story()
    # The first message's only packet is late by 50 us; three more with immediates overtake it.
    s.net.rules.append(lambda n, h, p, i, packet: 50_000 if psn_of(packet) == 1 and opcode_of(packet) <= 0xCB else None)
    for number in range(4):
        s.bench.post(s.connection, 100, immediate=100 + number)
    responder = s.connection.peer.responder
    s.until(lambda: responder.counters.packets_placed == 3)
    assert s.connection.immediates == []
    assert responder.stashed == 3
    assert not s.packets(Opcode.ACK)
    s.until(lambda: s.bench.outstanding == 0)
    assert s.connection.immediates == [100, 101, 102, 103]
    assert responder.stashed == 0
    # One cumulative transport ACK is enough for what became complete at once.
    (ack, *_) = s.packets(Opcode.ACK)
    assert (ack.psn, ack.packet.aeth.msn) == (4, 4)


def test_exhausted_retry_budget_ends_in_error_and_flush() -> None:
    s = story(linear_cnt=2, exp_cnt=2, tail_probe=False)
    s.lose(lambda p: p.host == 0)
    first, second = s.bench.post(s.connection, MTU), s.bench.post(s.connection, MTU)
    s.connection.source.core.post_recv(s.qp, 9)
    s.until(lambda: s.bench.outstanding == 0)
    # Two linear retries after T each, then two that double it; the fifth failure is over the budget of 4.
    times = [p.time for p in s.data(1)]
    gaps = [round((b - a) / TIMEOUT_NS, 2) for a, b in itertools.pairwise(times)]
    assert gaps == [1.0, 1.0, 1.0, 2.0]
    assert len(times) == 5
    assert len({p.ev for p in s.data(1)}) >= 2
    failed = s.net.now - times[-1]
    assert failed == pytest.approx(4 * TIMEOUT_NS, rel=0.01)
    # The request that ran out of retries says so, the others are flushed; so is everything posted later.
    assert (first.status, second.status) == (CompletionStatus.RETRY_EXC_ERR, CompletionStatus.WR_FLUSH_ERR)
    assert s.qp.state is QpState.ERROR
    (*_, (_, changed)) = s.events(QpStateChanged)
    assert (changed.new, changed.reason) == (QpState.ERROR, ErrorReason.RETRY_EXCEEDED)
    assert changed.reason.value == "retry counter exceeded"
    late = s.bench.post(s.connection, MTU)
    s.until(lambda: s.bench.outstanding == 0)
    assert late.status is CompletionStatus.WR_FLUSH_ERR
    assert s.connection.source.core.next_timer() is None
    assert s.qp.qpcc.cc.inflight == 0


def test_a_packet_has_its_own_timeout_beside_one_in_its_exponential_retries() -> None:
    s = story(linear_cnt=0, exp_cnt=4, tail_probe=False, rack_inference=False, same_ev_inference=False)
    s.net.rules += [drop_psns([1], times=3), drop_psns([5], times=1)]
    # The first is repeated after T and 3 T, and due after 7 T; the fifth is sent after 4.4 T.
    for tenths in (5, 10, 20, 9, 4, 0):
        s.bench.post(s.connection, MTU)
        s.bench.settle(TIMEOUT_NS * tenths // 10)
    s.until(lambda: s.bench.outstanding == 0)
    for psn, waits in ((1, [1, 2, 4]), (5, [1])):
        times = [p.time for p in s.data(psn)]
        assert [round((b - a) / TIMEOUT_NS, 2) for a, b in itertools.pairwise(times)] == waits


def test_exp_cnt_25_retries_without_limit() -> None:
    s = story(timeout=4, linear_cnt=0, exp_cnt=25, tail_probe=False)
    s.lose(lambda p: p.is_data and p.time < 3_000_000_000)
    write = s.bench.post(s.connection, MTU)
    s.until(lambda: write.completed_at is not None, max_time_ns=20_000_000_000)
    assert write.status is CompletionStatus.SUCCESS


def test_retransmissions_never_use_the_ev_that_failed() -> None:
    s = story(NetConfig(planes=2, trim_bytes=None, ecn=None))
    s.net.rules.append(drop_psns(range(1, 200, 3), times=2))
    write = s.bench.post(s.connection, 200 * MTU)
    s.until(lambda: write.completed_at is not None)
    for psn in range(1, 201):
        tries = [p.ev for p in s.data(psn)]
        assert all(a != b for a, b in itertools.pairwise(tries))


def test_rtt_only_from_unambiguous_acknowledgements() -> None:
    s = story()
    # The original is not lost but very late: its answer must not be taken for that of the retransmission.
    s.net.rules.append(
        lambda n, h, p, i, packet: 300_000 if psn_of(packet) == 2 and n.now < 20_000 and h.index == 0 else None
    )
    s.bench.post(s.connection, 3 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    s.bench.settle(1_000_000)
    assert s.counters.retransmissions == 1
    assert s.connection.peer.responder.counters.duplicates == 1
    assert s.qp.requestor.rtt.srtt_ns < 12_000


def test_duplicates_are_acknowledged_and_not_placed() -> None:
    s = story()
    for path in s.net.paths(group=0):
        path.impair(duplicate=1.0)
    write = s.bench.post(s.connection, 30 * MTU)
    s.until(lambda: write.completed_at is not None)
    s.bench.settle(1_000_000)
    responder = s.connection.peer.responder.counters
    assert (responder.packets_placed, responder.duplicates) == (30, 30)
    assert responder.sacks_sent >= 60


def test_zero_length_write_takes_one_psn_and_no_memory() -> None:
    s = story()
    core = s.connection.source.core
    core.post_write(s.qp, b"", 0xDEAD, 0xBEEF, 77)  # R_Key and address mean nothing without bytes
    s.net.touch(s.connection.source)
    cq = s.connection.cq
    seen: list[object] = []
    s.connection.source.on_event = lambda event: seen.extend(core.poll(cq))
    s.until(lambda: bool(seen))
    assert seen[0].status is CompletionStatus.SUCCESS  # type: ignore[attr-defined]
    (packet,) = s.data()
    assert packet.opcode == Opcode.WRITE_ONLY
    assert packet.packet.payload == b""


def test_message_is_cut_into_first_middle_and_last_packets() -> None:
    s = story()
    s.bench.post(s.connection, 3 * MTU + 5, immediate=0xCAFE)
    s.until(lambda: s.bench.outstanding == 0)
    packets: list[Packet] = [p.packet for p in s.data()]
    assert [p.bth.opcode for p in packets] == [
        Opcode.WRITE_FIRST,
        Opcode.WRITE_MIDDLE,
        Opcode.WRITE_MIDDLE,
        Opcode.WRITE_LAST_IMM,
    ]
    base = packets[0].reth.va
    assert [p.reth.va - base for p in packets] == [0, MTU, 2 * MTU, 3 * MTU]
    assert {p.reth.dma_length for p in packets} == {3 * MTU + 5}
    assert {(p.meth.msn, p.meth.rqmsn) for p in packets} == {(1, 1)}
    assert [len(p.payload) for p in packets] == [MTU, MTU, MTU, 5]
    assert packets[-1].bth.pad == 3
    assert packets[-1].immdt is not None
    assert packets[-1].immdt.immediate == 0xCAFE


def test_sacks_shown_older_holes_too_when_the_window_is_wide() -> None:
    s = story(NetConfig(trim_bytes=None, ecn=None), ports=PortsConfig(count=1))
    s.net.rules.append(drop_psns([10, 200], times=1))
    write = s.bench.post(s.connection, 600 * MTU)
    s.until(lambda: write.completed_at is not None)
    wide = [x for x in s.sacks() if x.packet.cc_state.ooo_count > 64 and x.packet.seth.cack_psn == 9]
    assert len(wide) > 8
    near = [
        x for x in wide if x.packet.seth.sack_offset <= x.packet.seth.ack_psn_offset < x.packet.seth.sack_offset + 64
    ]
    old = [x for x in wide if x.packet.seth.sack_offset == 1]
    assert len(near) >= len(wide) // 2  # most show the neighbourhood of their trigger
    assert old  # some show the oldest hole
    for x in wide:  # and none claims what has not arrived
        assert not {10, 200} & shown(x) or x.time > min(p.time for p in s.data() if p.rtx)
