"""Stories of the responder's say: access, windows, pressure, immediates, fairness, teardown, bad input."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from mrc_host.proto.completion import CompletionKind, CompletionStatus
from mrc_host.proto.config import PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.nscc import Case, Nscc, NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import ErrorReason, QpError, QpState, QpStateChanged
from mrc_host.proto.paths.ev import EvInput
from mrc_host.proto.reliability.recovery import NACK_FATES, NackAction
from mrc_host.proto.wire import fields
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.fields import NackReason, Opcode
from mrc_host.proto.wire.messages import Nack
from mrc_topo.base.plain import encode
from support.proto.net import NetConfig, opcode_of, psn_of
from support.proto.story import WIDE, Story
from support.proto.workload import Bench

MTU = 1024
QUIET = NetConfig(trim_bytes=None, ecn=None)


def story(config: NetConfig = QUIET, cc: CcConfig = WIDE, **reliability: object) -> Story:
    settings = {"timeout": 10} | reliability
    return Story(config, wire=WireConfig(mtu=MTU), cc=cc, reliability=ReliabilityConfig(**settings))  # type: ignore[arg-type]


def collect(s: Story) -> list[object]:
    """Completions of both ends as they come (instead of the bench's own bookkeeping)."""
    seen: list[object] = []
    s.requestor_host.on_event = lambda e: seen.extend(s.connection.source.core.poll(s.connection.cq))
    s.responder_host.on_event = lambda e: seen.extend(s.connection.target.core.poll(s.connection.peer_cq))
    return seen


def errors(s: Story) -> dict[int, ErrorReason | None]:
    return {host: qp.error for host, qp in ((0, s.qp), (1, s.connection.peer))}


@pytest.mark.parametrize("how", ["key", "bounds", "read_only", "deregistered"])
def test_remote_access_violation_ends_both_queue_pairs(how: str) -> None:
    s = story()
    seen = collect(s)
    a, b = s.connection.source.core, s.connection.target.core
    memory = bytearray(4 * MTU)
    region = b.register_memory(memory, writable=how != "read_only")
    va, rkey = region.va, region.rkey
    if how == "key":
        rkey ^= 1
    elif how == "bounds":
        va += MTU + 1  # the last packet leaves the region by one byte
    elif how == "deregistered":
        b.deregister_memory(region)
    b.post_recv(s.connection.peer, 50, 2)
    a.post_write(s.qp, bytes(3 * MTU), va, rkey, 1)
    a.post_write(s.qp, bytes(10), region.va, region.rkey, 2)
    s.net.touch(s.requestor_host)
    s.until(lambda: s.qp.state is QpState.ERROR)

    # The packet is SACKed (it did arrive) and refused by a transport NAK; both ends go to ERROR.
    nak = s.packets(Opcode.ACK, host=1)[0].packet
    assert nak.aeth is not None
    assert nak.aeth.syndrome == 0x62
    assert nak.bth.psn == (3 if how == "bounds" else 1)
    assert [x for x in s.sacks() if x.packet.seth.ack_psn_offset + x.packet.seth.cack_psn == nak.bth.psn]
    assert errors(s) == {0: ErrorReason.REMOTE_ACCESS, 1: ErrorReason.LOCAL_ACCESS}
    # Nothing outside the region was touched; everything outstanding completes, at both ends.
    assert memory == bytes(4 * MTU)
    got = {(c.wr_id, c.status, c.kind) for c in seen}  # type: ignore[attr-defined]
    assert got == {
        (1, CompletionStatus.REM_ACCESS_ERR, CompletionKind.WRITE),
        (2, CompletionStatus.WR_FLUSH_ERR, CompletionKind.WRITE),
        (50, CompletionStatus.WR_FLUSH_ERR, CompletionKind.RECV_IMM),
    }
    assert len(seen) == 4


def test_lost_nak_is_repeated() -> None:
    s = story()
    collect(s)
    s.lose(lambda p: p.opcode == Opcode.ACK and p.time < 30_000)
    s.connection.source.core.post_write(s.qp, b"x", 0, 0, 1)
    s.net.touch(s.requestor_host)
    s.until(lambda: s.qp.state is QpState.ERROR)
    assert s.qp.error is ErrorReason.REMOTE_ACCESS
    assert s.connection.peer.responder.counters.naks_sent >= 2


def test_immediate_without_a_posted_receive_ends_both_queue_pairs() -> None:
    s = story()
    seen = collect(s)
    region = s.connection.target.core.register_memory(bytearray(10))
    s.connection.source.core.post_write_imm(s.qp, b"abc", region.va, region.rkey, 1, 7)
    s.net.touch(s.requestor_host)
    s.until(lambda: bool(seen))
    assert errors(s) == {0: ErrorReason.REMOTE_OPERATION, 1: ErrorReason.NO_RECEIVE_POSTED}
    assert [(c.wr_id, c.status) for c in seen] == [(7, CompletionStatus.REM_OP_ERR)]  # type: ignore[attr-defined]


def test_more_write_imm_than_max_wimm_is_an_error_of_the_application() -> None:
    s = story(max_wimm=3)
    seen = collect(s)
    region = s.connection.target.core.register_memory(bytearray(10))
    s.connection.target.core.post_recv(s.connection.peer, 1, 10)
    for wr_id in range(4):
        s.connection.source.core.post_write_imm(s.qp, b"abc", region.va, region.rkey, 1, wr_id)
    assert s.qp.error is ErrorReason.WIMM_LIMIT
    s.net.touch(s.requestor_host)
    s.until(lambda: len(seen) == 4)
    # The first completion in error says why (IBTA 1.4, 10.8.3).
    assert [c.status for c in seen] == [CompletionStatus.LOC_QP_OP_ERR] + [CompletionStatus.WR_FLUSH_ERR] * 3  # type: ignore[attr-defined]


def test_responder_refuses_more_early_immediates_than_it_stashes() -> None:
    s = story(max_wimm_dest=2)
    collect(s)
    s.qp.attributes.max_wimm = 100  # a requestor that does not keep to what was negotiated
    s.net.rules.append(lambda n, h, p, i, packet: 90_000 if psn_of(packet) == 1 and opcode_of(packet) < 0xCC else None)
    region = s.connection.target.core.register_memory(bytearray(10))
    s.connection.target.core.post_recv(s.connection.peer, 1, 10)
    for wr_id in range(5):
        s.connection.source.core.post_write_imm(s.qp, b"abc", region.va, region.rkey, 1, wr_id)
    s.net.touch(s.requestor_host)
    s.until(lambda: s.qp.state is QpState.ERROR)
    assert errors(s) == {0: ErrorReason.REMOTE_OPERATION, 1: ErrorReason.WIMM_LIMIT}


def test_dynamic_mpr_shrinks_and_grows() -> None:
    s = story(dynamic_mpr=True, mpr=8, mpr_dest=8)
    s.net.rules.append(
        lambda n, h, p, i, packet: 25_000 if h.index == 0 and n.now < 90_000 and psn_of(packet) == 1 else None
    )
    write = s.bench.post(s.connection, 3_000 * MTU)
    # PSN 1 is late, so the window is full: nothing beyond cack_psn + 128 * 8 leaves.
    s.until(lambda: len(s.data()) >= 200)
    s.connection.target.core.set_mpr(s.connection.peer, 1)
    s.until(lambda: s.counters.nacks_received > 0)
    # What was in flight beyond the smaller window is refused, and sent again later, inside it.
    refused = s.packets(Opcode.NACK)
    assert {n.packet.neth.nack_reason for n in refused} == {NackReason.PSN_OOR_WINDOW}
    s.until(lambda: s.qp.requestor.mpr == 1)
    learnt = s.net.now
    mark = len(s.data())
    s.until(lambda: len(s.data()) > mark + 500)
    for p in s.data()[mark:]:
        cacks = [x.packet.seth.cack_psn for x in s.sacks() if x.time < p.time]
        if p.time > learnt + 2_000:  # packets already with the NIC left by the old rule
            assert p.psn <= max(cacks) + 128
    assert {x.packet.seth.mpr for x in s.sacks()} == {8, 1}
    # And it grows again.
    s.connection.target.core.set_mpr(s.connection.peer, 8)
    s.until(lambda: s.qp.requestor.mpr == 8)
    s.until(lambda: write.completed_at is not None)
    assert write.status is CompletionStatus.SUCCESS


def late_sacks(until: int, late: int) -> object:
    """Return a rule: SACKs that leave before `until` are `late`; those after it overtake them."""
    return lambda n, h, p, i, packet: late if h.index == 1 and n.now < until and opcode_of(packet) == 0xDC else None


def test_an_overtaken_sack_does_not_set_the_window() -> None:
    s = story(dynamic_mpr=True, mpr=64, mpr_dest=64)
    s.net.rules.append(late_sacks(8_000, 40_000))  # type: ignore[arg-type]
    s.net.at(8_000, lambda: s.connection.target.core.set_mpr(s.connection.peer, 1))
    s.bench.post(s.connection, 3_000 * MTU)
    s.until(lambda: s.qp.requestor.mpr == 1)
    assert s.net.now < 40_000
    while s.net.now < 100_000:
        s.net.run(max_time_ns=1_000)
        assert s.qp.requestor.mpr == 1
    assert {x.packet.seth.mpr for x in s.sacks()} == {64, 1}


def test_an_overtaken_sack_does_not_bring_the_penalty_back() -> None:
    s = story(cc=NsccConfig(line_rate_bps=100_000_000_000, base_rtt_ns=8_000))
    s.net.rules.append(late_sacks(8_000, 40_000))  # type: ignore[arg-type]
    s.connection.target.core.set_receive_pressure(100)
    s.net.at(8_000, lambda: s.connection.target.core.set_receive_pressure(0))
    s.bench.post(s.connection, 3_000 * MTU)
    s.until(lambda: s.net.now > 47_000)
    assert {x.packet.cc_state.rcv_cwnd_pen for x in s.sacks()} == {0, 100}
    assert s.qp.qpcc.cc.snapshot().case != Case.PENALTY.value
    assert s.qp.qpcc.cc.cwnd > 50_000


def test_always_skip_is_congestion_too() -> None:
    """ALWAYS_SKIP stands for CE here: NSCC must not take it for a quiet path."""
    heard: list[bool] = []

    class Watched(Nscc):
        def on_sack(self, now: int, newly: int, rtt: int, ce: bool, *rest: Any) -> None:
            heard.append(ce)
            super().on_sack(now, newly, rtt, ce, *rest)

    class WatchedConfig(CcConfig):
        def controller(self, mtu: int) -> Nscc:
            return Watched(NsccConfig(line_rate_bps=self.line_rate_bps, base_rtt_ns=self.base_rtt_ns), mtu)

    # Every packet that waits is marked; the paths are too slow for the port.
    config = NetConfig(trim_bytes=None, ecn=(0, 1), path_rate_bps=10_000_000_000)
    s = story(config, WatchedConfig(line_rate_bps=100_000_000_000, base_rtt_ns=8_000), always_skip_after=1)
    s.bench.post(s.connection, 300 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    marks = Counter(x.packet.seth.m for x in s.sacks())
    assert marks[1] == 0
    assert marks[2] > 10
    assert heard.count(True) == marks[2]


def test_mpr_bounds_what_is_in_flight() -> None:
    s = story(mpr=1)
    s.net.rules.append(
        lambda n, h, p, i, packet: 60_000 if h.index == 0 and psn_of(packet) == 1 and n.now < 1_000 else None
    )
    s.bench.post(s.connection, 500 * MTU)
    s.until(lambda: len(s.data()) == 128)
    assert (s.board.una, s.qp.requestor.limit) == (1, 128)  # PSN 1 is missing
    s.until(lambda: len(s.data()) > 300)
    for p in s.data():
        assert p.psn <= max((x.packet.seth.cack_psn for x in s.sacks() if x.time < p.time), default=0) + 128
    s.until(lambda: s.bench.outstanding == 0)
    assert {x.packet.seth.mpr for x in s.sacks()} == {0}  # not dynamic: the field is 0


def test_dynamic_mpr_needs_both_ends() -> None:
    s = story()
    with pytest.raises(QpError, match="dynamic MPR"):
        s.connection.target.core.set_mpr(s.connection.peer, 1)


def test_receiver_pressure_shrinks_the_window_and_gives_it_back() -> None:
    cc = NsccConfig(line_rate_bps=100_000_000_000, base_rtt_ns=8_000)
    s = story(cc=cc)
    s.bench.post(s.connection, 4_000 * MTU)
    s.until(lambda: len(s.data()) > 300)
    window = s.qp.qpcc.cc.cwnd
    s.connection.target.core.set_receive_pressure(100, restore=True)
    s.until(lambda: s.qp.qpcc.cc.cwnd <= s.qp.qpcc.cc.mtu)
    assert {x.packet.cc_state.rcv_cwnd_pen for x in s.sacks()} == {0, 100}
    s.connection.target.core.set_receive_pressure(0, restore=True)
    s.until(lambda: s.qp.qpcc.cc.cwnd >= 0.9 * window)
    s.until(lambda: s.bench.outstanding == 0)


@pytest.mark.parametrize(
    "reason",
    [NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER, NackReason.NO_RESOURCE],
)
def test_resource_nacks_pause_the_sender_and_blame_no_path(reason: NackReason) -> None:
    s = story()
    target = s.connection.target.core
    target.set_receive_pressure(0, refuse=reason)
    write = s.bench.post(s.connection, 4 * MTU)
    s.until(lambda: s.counters.nacks_received >= 6)
    assert {n.packet.neth.nack_reason for n in s.packets(Opcode.NACK)} == {reason}
    tries = [p.time for p in s.data(1)]
    assert tries[-1] - tries[-2] > 6_000  # it waits before it tries again
    target.set_receive_pressure(0)
    s.until(lambda: write.completed_at is not None)
    assert write.status is CompletionStatus.SUCCESS
    assert set(s.qp.evs.state) == {0}


@pytest.mark.parametrize(
    "reason", [NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER, NackReason.NO_RESOURCE, NackReason.PSN_OOR_WINDOW]
)
def test_endless_refusals_exhaust_the_retry_budget(reason: NackReason) -> None:
    s = story(linear_cnt=3, exp_cnt=2)
    seen = collect(s)
    if reason is NackReason.PSN_OOR_WINDOW:
        s.connection.peer.responder.window = 0  # it never opens
    else:
        s.connection.target.core.set_receive_pressure(0, refuse=reason)
    s.bench.post(s.connection, 4 * MTU)
    s.until(lambda: s.qp.state is QpState.ERROR)
    assert s.qp.error is ErrorReason.RETRY_EXCEEDED
    assert {n.packet.neth.nack_reason for n in s.packets(Opcode.NACK)} == {reason}
    assert max(Counter(p.psn for p in s.data()).values()) == 1 + 3 + 2
    assert [c.status for c in seen] == [CompletionStatus.RETRY_EXC_ERR]  # type: ignore[attr-defined]
    assert set(s.qp.evs.state) == {0}


def test_an_unexpected_event_at_the_responder_is_fatal() -> None:
    s = story()
    seen = collect(s)
    s.connection.target.core.set_receive_pressure(0, refuse=NackReason.UNEXP_EVENT)
    for _ in range(2):
        s.bench.post(s.connection, 4 * MTU)
    s.until(lambda: s.qp.state is QpState.ERROR)
    assert s.qp.error is ErrorReason.REMOTE_OPERATION
    assert s.counters.nacks_received == 1  # it is not tried again
    assert not any(p.rtx for p in s.data())
    assert [c.status for c in seen] == [CompletionStatus.REM_OP_ERR, CompletionStatus.WR_FLUSH_ERR]  # type: ignore[attr-defined]
    assert set(s.qp.evs.state) == {0}


def test_an_unexpected_event_of_a_packet_that_has_arrived_is_stale() -> None:
    s = story()
    write = s.bench.post(s.connection, 4 * MTU)
    s.until(lambda: write.completed_at is not None)
    nack = Nack(int(Opcode.NACK), s.qp.number, 2, 0, 0, False, 46, b"", 0xFFFF, 0x19, 0, 0, 0, 0, 2, 2, 0, 0)
    s.qp.requestor.recovery.on_nack(nack, s.net.now)
    assert (s.qp.state, s.counters.stale_nacks) == (QpState.RTS, 1)


def test_every_nack_reason_has_the_action_of_the_specification() -> None:
    """The table of mrc-protocol.md §5, written out a second time."""
    assert {NackReason(reason): fate for reason, (_, fate) in NACK_FATES.items()} == {
        NackReason.TRIMMED: NackAction.CONGESTED,
        NackReason.TRIMMED_LASTHOP: NackAction.CONGESTED,
        NackReason.NO_BITMAP: NackAction.REFUSED,
        NackReason.NO_PKT_BUFFER: NackAction.REFUSED,
        NackReason.NO_RESOURCE: NackAction.REFUSED,
        NackReason.PSN_OOR_WINDOW: NackAction.REFUSED,
        NackReason.UNEXP_EVENT: NackAction.FATAL,
    }
    assert [reason for reason, (verdict, _) in NACK_FATES.items() if verdict is EvInput.TRIMMED] == [NackReason.TRIMMED]


def test_coalesced_sacks_do_not_distort_the_rtt() -> None:
    s = story(sack_every=8, sack_delay_ns=5_000, service_time=True)
    s.bench.post(s.connection, 800 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    counters = s.connection.peer.responder.counters
    assert counters.packets_placed == 800
    assert 100 <= counters.sacks_sent < 140
    # A SACK that was held back is echoed with the hold time taken out: the RTT stays what the network makes it.
    slow = story(sack_every=64, sack_delay_ns=5_000, service_time=True)
    slow.lose(lambda p: p.psn == 4 and not p.rtx and p.is_data)  # the last one would trigger a SACK at once
    slow.bench.post(slow.connection, 4 * MTU)
    slow.until(lambda: bool(slow.sacks()))
    slow.net.run(max_time_ns=5_000)
    (held,) = slow.sacks()
    assert held.packet.seth.ack_psn_offset == 0
    assert held.time > 8_000
    assert slow.qp.requestor.rtt.srtt_ns < 7_000


def test_64_queue_pairs_share_a_port_fairly() -> None:
    bench = Bench(QUIET, 5, wire=WireConfig(mtu=MTU), reliability=ReliabilityConfig(timeout=12))
    a, b = bench.add_host(), bench.add_host()
    connections = [bench.connect(a, b) for _ in range(64)]
    for connection in connections:
        bench.post(connection, 200 * MTU)
    bench.net.run(lambda: bench.net.packets > 8_000, max_time_ns=10**9)
    sent = [c.qp.requestor.counters.packets_sent for c in connections]
    assert max(sent) - min(sent) <= 2
    bench.run()
    assert bench.statuses() == {"SUCCESS": 64}
    times = [w.completed_at for w in bench.writes if w.completed_at is not None]
    assert max(times) < 1.1 * min(times)


def test_a_queue_pair_that_joins_late_gets_its_share() -> None:
    bench = Bench(QUIET, 5, wire=WireConfig(mtu=MTU))
    a, b = bench.add_host(), bench.add_host()
    first, second = bench.connect(a, b), bench.connect(a, b)
    bench.post(first, 4_000 * MTU)
    bench.net.run(lambda: bench.net.packets > 1_000, max_time_ns=10**9)
    late = bench.post(second, 200 * MTU)
    before = first.qp.requestor.counters.packets_sent
    bench.net.run(lambda: late.completed_at is not None, max_time_ns=10**9)
    assert first.qp.requestor.counters.packets_sent - before == pytest.approx(
        200, rel=0.5
    )  # and an RTT for the last answer


def test_destroyed_queue_pair_completes_nothing_and_is_unknown() -> None:
    s = story()
    seen = collect(s)
    a, b = s.connection.source.core, s.connection.target.core
    region = b.register_memory(bytearray(100 * MTU))
    a.post_write(s.qp, bytes(100 * MTU), region.va, region.rkey, 1)
    b.post_recv(s.connection.peer, 2)
    s.net.touch(s.requestor_host)
    s.until(lambda: len(s.data()) > 20)
    requestor = s.qp.requestor
    a.destroy_qp(s.qp, s.net.now)
    b.destroy_qp(s.connection.peer, s.net.now)
    s.net.run(max_time_ns=1_000_000)
    # Books need to know that its packets will never be acknowledged.
    assert requestor.counters.requests_flushed == 1
    assert seen == []
    assert b.statistics().drops["unknown_qp"] > 0
    assert s.qp.qpcc.cc.inflight == 0
    assert a.statistics().peers == []
    assert a.statistics().qps == []
    assert a.next_timer() is None
    with pytest.raises(QpError, match="does not belong"):
        a.destroy_qp(s.qp, s.net.now)


def test_completion_queue_overflow_is_fatal_and_reported() -> None:
    s = story()
    a = s.connection.source.core
    cq = a.create_cq(depth=1)
    qp = a.create_qp(cq)
    a.connect(qp, a.local_attributes(a.create_qp(cq)), 0)  # to itself: it never gets an answer
    region = a.register_memory(bytearray(10))
    for wr_id in range(3):
        a.post_write(qp, b"", region.va, region.rkey, wr_id)
    a.modify(qp, QpState.ERROR, 0)
    assert cq.overflowed
    assert len(cq.entries) == 1


def header(s: Story, **changes: int) -> fields.Packet:
    """Return a WRITE Only to the responder's queue pair, as its requestor would send it."""
    region = s.connection.target.core.register_memory(bytearray(8))
    source, target = s.requestor_host.address, s.responder_host.address
    made = fields.Packet(
        fields.Ipv6(dscp=4, ecn=2, src=int.from_bytes(source, "big"), dst=int.from_bytes(target, "big")),
        fields.Udp(src_port=7),
        fields.Bth(opcode=Opcode.WRITE_ONLY, dest_qp=s.connection.peer.number, psn=1),
        fields.Meth(rqmsn=1, msn=1),
        reth=fields.Reth(va=region.va, rkey=region.rkey, dma_length=8),
        payload=bytes(8),
    )
    for name, value in changes.items():
        part, _, attribute = name.partition("__")
        setattr(getattr(made, part), attribute, value)
    return made


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("udp_port", {"udp__dst_port": 53}),
        ("p_key", {"bth__p_key": 1}),
        ("unknown_qp", {"bth__dest_qp": 5}),
        ("unknown_qp", {"bth__dest_qp": 2}),
        ("wrong_source", {"ip__src": 9}),
        ("transport_version", {"bth__tver": 3}),
    ],
)
def test_bad_input_is_counted_by_reason(reason: str, change: dict[str, int]) -> None:
    s = story()
    core = s.connection.target.core
    core.receive_datagram(0, wire.encode(header(s, **change)), 0)
    assert core.statistics().drops == {reason: 1}
    assert core.datagrams_to_send(0, 0, 10_000) == []


def test_bytes_that_are_no_packet_are_counted() -> None:
    s = story()
    core: Endpoint = s.connection.target.core
    good = wire.encode(header(s))
    rng = random.Random(1)
    for length in range(len(good)):
        core.receive_datagram(0, good[:length], 0)
    for _ in range(300):
        core.receive_datagram(0, rng.randbytes(rng.randrange(120)), 0)
    bad = bytearray(good)
    bad[-1] ^= 1
    core.receive_datagram(0, bytes(bad), 0)
    drops = Counter(core.statistics().drops)
    assert sum(drops.values()) == len(good) + 301
    assert drops["icrc"] == 1
    core.receive_datagram(0, good, 0)  # and the good one still works
    assert s.connection.peer.responder.counters.packets_placed == 1


@pytest.mark.parametrize("change", [{"reth__dma_length": 9}, {"bth__opcode": Opcode.WRITE_FIRST}])
def test_contradictory_data_is_an_invalid_request(change: dict[str, int]) -> None:
    s = story()
    s.connection.target.core.receive_datagram(0, wire.encode(header(s, **change)), 0)
    assert s.connection.peer.error is ErrorReason.LOCAL_INVALID_REQUEST
    s.net.touch(s.responder_host)
    s.until(lambda: s.qp.state is QpState.ERROR if s.board.nxt > 1 else s.net.now > 5_000 or s.net.delivered > 0)


def test_message_numbers_that_do_not_follow_are_an_invalid_request() -> None:
    s = story()
    s.connection.target.core.receive_datagram(0, wire.encode(header(s, meth__msn=2)), 0)
    assert s.connection.peer.error is ErrorReason.LOCAL_INVALID_REQUEST


def test_documents_are_json_and_checked() -> None:
    s = story()
    core = s.connection.source.core
    qp = core.create_qp(s.connection.cq)
    document = core.local_attributes(qp)
    assert json.loads(json.dumps(document)) == document
    assert qp.state is QpState.INIT
    for change, message in (
        ({"format": "x"}, "format is 'x'"),
        ({"qpn": "7"}, "qpn is '7'"),
        ({"psn": 1 << 24}, "psn is 16777216"),
        ({"address": "nowhere"}, "address"),
        ({"ports": 3}, "ports is 3, ours is 1"),
        ({"p_key": 5}, "p_key is 5"),
        ({"dynamic_mpr": 1}, "dynamic_mpr is 1"),
    ):
        with pytest.raises(QpError, match=message):
            core.connect(qp, document | change, 0)
    assert qp.state is QpState.INIT
    core.connect(qp, document | {"mtu": 512, "mpr_dest": 3, "max_wimm_dest": 7}, 0)
    assert (qp.attributes.mtu, qp.attributes.mpr, qp.attributes.max_wimm) == (512, 3, 7)


def test_statistics_are_json() -> None:
    s = story()
    s.bench.post(s.connection, 10 * MTU)
    s.until(lambda: s.bench.outstanding == 0)
    snapshot = json.loads(json.dumps(encode(s.connection.source.core.statistics())))
    assert snapshot["qps"][0]["requestor"]["packets_sent"] == 10
    assert snapshot["peers"][0]["scheduling"] == "IDLE"
    assert [e.new.name for _, e in s.events(QpStateChanged)] == ["INIT", "RTR", "RTS"]
    assert snapshot["ports"][0]["sent_packets"] >= 10


def test_destination_goes_through_its_scheduling_states() -> None:
    s = story(
        cc=NsccConfig(line_rate_bps=100_000_000_000, base_rtt_ns=8_000, max_wnd_bytes=20_000),
    )
    peer = s.qp.qpcc
    assert peer.scheduling.name == "IDLE"
    s.bench.post(s.connection, 1_000 * MTU)
    assert peer.scheduling.name == "READY"
    s.until(lambda: peer.cc.inflight + peer.cc.mtu > peer.cc.cwnd)
    assert peer.scheduling.name == "ACTIVE"
    s.until(lambda: len(s.data()) == 1_000)
    assert peer.scheduling.name == "PENDING"
    s.until(lambda: s.bench.outstanding == 0)
    assert peer.scheduling.name == "IDLE"


def test_ports_count_must_fit_the_profile() -> None:
    assert PortsConfig(count=8).count == 8
    with pytest.raises(ValueError, match=r"ports.count is 33; allowed: 1 to 32"):
        PortsConfig(count=33)


def test_requests_of_strangers_are_answered_and_fill_no_memory() -> None:
    core = story().connection.target.core  # one peer is known
    codec, mine = core.context.codec, core.config.address
    for number in range(10):
        ends = bytes(14) + number.to_bytes(2, "big") + mine
        core.receive_datagram(0, codec.encode_endpoint_request(ends, 5, 184, number, 1, 0, 7), 0)
    answers = [wire.decode(raw) for raw in core.datagrams_to_send(0, 0, 10_000)]
    assert [a.bth.psn for a in answers] == list(range(10))
    assert {a.bth.opcode for a in answers} == {Opcode.ENDPOINT_RESPONSE}
    assert {a.eeth.tx_timestamp for a in answers if a.eeth is not None} == {7}
    assert len(core.peers) == 1
    assert core.statistics().drops == {}
