"""A queue pair in RTS with pending work makes progress or fails, and asks its peer no more often than it must."""

from __future__ import annotations

import random

import pytest

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import EndpointConfig, EvConfig, PortsConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.nscc import FixedConfig, NsccConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import ErrorReason, QpState
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.fields import Opcode
from support.proto.net import NetConfig, Stalled
from support.proto.progress import what_is_stuck
from support.proto.story import WIDE, Sent, Story

MTU = 4096
MS = 1_000_000
QUIET = NetConfig(trim_bytes=None, ecn=None)
ONE_PACKET = FixedConfig(fixed_window_bytes=1, base_rtt_ns=8_000)  # a full packet is the least that a window can be
NSCC_FLOOR = NsccConfig(line_rate_bps=1_000_000, base_rtt_ns=8_000)


def story(cc: CcConfig = WIDE, config: NetConfig = QUIET, mtu: int = MTU, **reliability: object) -> Story:
    settings = {"timeout": 8, "linear_cnt": 2, "exp_cnt": 2, **reliability}
    return Story(config, wire=WireConfig(mtu=mtu), cc=cc, reliability=ReliabilityConfig(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("cc", [ONE_PACKET, NSCC_FLOOR])
@pytest.mark.parametrize("peer_dies", [True, False])
def test_bytes_of_a_lost_sack_leave_the_window_with_the_transport_ack(cc: CcConfig, peer_dies: bool) -> None:
    s = story(cc)
    sacks_lost = [1]

    def lost(sent: Sent) -> bool:
        if sent.opcode == Opcode.SACK and sacks_lost:
            sacks_lost.pop()
            return True
        return sent.is_data and sent.psn == 2 and not sent.rtx

    s.lose(lost)
    first = s.bench.post(s.connection, 500)
    s.until(lambda: bool(s.data(1)))
    second = s.bench.post(s.connection, 500)
    third = s.bench.post(s.connection, MTU)
    s.until(lambda: first.completed_at is not None)
    if peer_dies:
        s.net.set_path(False)
    s.bench.run(max_time_ns=100 * MS)

    assert first.status is CompletionStatus.SUCCESS
    if peer_dies:
        assert (second.status, third.status) == (CompletionStatus.RETRY_EXC_ERR, CompletionStatus.WR_FLUSH_ERR)
        assert s.qp.error is ErrorReason.RETRY_EXCEEDED
    else:
        assert (second.status, third.status) == (CompletionStatus.SUCCESS, CompletionStatus.SUCCESS)
        # What a transport ACK proves is not in flight, so nothing waited for the timeout of 262 us.
        assert third.completed_at is not None
        assert third.completed_at < 200_000
    assert s.qp.qpcc.cc.inflight == 0


def test_a_small_retransmission_needs_room_for_itself_only() -> None:
    """The window has room for the small packet that is lost, but not for the full one that waits behind it."""
    s = story(ONE_PACKET)
    s.lose(lambda sent: sent.is_data and sent.psn == 1 and not sent.rtx)
    writes = [s.bench.post(s.connection, size) for size in (500, 500, MTU)]
    s.bench.run(max_time_ns=100 * MS)
    assert {write.status for write in writes} == {CompletionStatus.SUCCESS}


def test_a_full_packet_with_an_immediate_leaves_a_window_of_one_packet() -> None:
    """It is four bytes larger than the window, and leaves as any packet does when nothing is in flight."""
    s = story(ONE_PACKET)
    other = s.bench.connect(s.requestor_host, s.responder_host)
    writes = [s.bench.post(s.connection, 1), s.bench.post(other, MTU, immediate=5)]
    s.bench.run(max_time_ns=100 * MS)
    assert {write.status for write in writes} == {CompletionStatus.SUCCESS}


def test_a_loss_that_is_acknowledged_before_its_repetition_does_not_stop_the_tail_timer() -> None:
    config = {"ev": EvConfig(count=2, active=1), "ports": PortsConfig(count=1), "cc": WIDE}
    ends = [Endpoint(EndpointConfig(bytes(15) + bytes([n]), **config), random.Random(n)) for n in (1, 2)]  # type: ignore[arg-type]
    queues = [each.create_cq() for each in ends]
    qps = [each.create_qp(queue) for each, queue in zip(ends, queues, strict=True)]
    region = ends[1].register_memory(bytearray(64))
    documents = [each.local_attributes(qp) for each, qp in zip(ends, qps, strict=True)]
    for each, qp, document in zip(ends, qps, reversed(documents), strict=True):
        each.connect(qp, document, 0)
    one, other = ends
    one.post_write(qps[0], b"x", region.va, region.rkey, wr_id=7)
    other.receive_datagram(0, one.datagrams_to_send(0, 0, 9_000)[0], 5_000)
    sack, _ = other.datagrams_to_send(0, 5_000, 9_000)  # the transport ACK is lost
    one.set_port_enabled(0, False, 6_000)  # the packet is taken for lost, and waits for a plane
    one.receive_datagram(0, sack, 10_000)
    now = 100 * MS
    while (due := one.next_timer()) is not None and due < now:
        one.handle_timer(due)
    one.handle_timer(now)
    one.set_port_enabled(0, True, now)
    for _ in range(100):
        for source, target in (ends, reversed(ends)):
            source.handle_timer(now)
            for packet in source.datagrams_to_send(0, now, 9_000):
                target.receive_datagram(0, packet, now)
        now += MS
    assert [each.status for each in one.poll(queues[0])] == [CompletionStatus.SUCCESS]


def test_a_missing_transport_ack_ends_in_the_time_of_a_packet_s_retries_in_a_silent_network() -> None:
    """Questions that were answered before the silence are no retries, and do not prolong those that follow."""
    config = {
        "ev": EvConfig(count=2, active=1),
        "ports": PortsConfig(count=1),
        "cc": WIDE,
        "reliability": ReliabilityConfig(timeout=8, linear_cnt=3, exp_cnt=5),
    }
    ends = [Endpoint(EndpointConfig(bytes(15) + bytes([n]), **config), random.Random(n)) for n in (1, 2)]  # type: ignore[arg-type]
    queues = [each.create_cq() for each in ends]
    qps = [each.create_qp(queue) for each, queue in zip(ends, queues, strict=True)]
    region = ends[1].register_memory(bytearray(64))
    documents = [each.local_attributes(qp) for each, qp in zip(ends, qps, strict=True)]
    for each, qp, document in zip(ends, qps, reversed(documents), strict=True):
        each.connect(qp, document, 0)
    one, other = ends
    one.post_write(qps[0], b"x", region.va, region.rkey, wr_id=7)
    now = silent_from = 0
    questions = 0
    while qps[0].state is QpState.RTS:
        for packet in one.datagrams_to_send(0, now, 9_000):
            questions += 1
            if questions <= 8:
                other.receive_datagram(0, packet, now + 5_000)
                silent_from = now
        for packet in other.datagrams_to_send(0, now + 5_000, 9_000):
            if wire.decode(packet).bth.opcode != Opcode.ACK:
                one.receive_datagram(0, packet, now + 10_000)
        now = max(now + 10_000, one.next_timer() or 0)
        one.handle_timer(now)
    assert [each.status for each in one.poll(queues[0])] == [CompletionStatus.RETRY_EXC_ERR]
    patience = qps[0].attributes.patience_ns()
    assert patience is not None
    # It began to wait for the next question before the silence, for the longest timeout at most.
    assert now - silent_from <= patience + (1024 << 8 + 5)


def test_progress_check_finds_a_stuck_queue_pair() -> None:
    s = story(ONE_PACKET)
    s.bench.post(s.connection, 10 * MTU)
    s.until(lambda: bool(s.data(1)))
    core = s.requestor_host.core
    assert what_is_stuck(core) == []
    s.qp.requestor.recovery.stop()  # the timers of what is in flight
    (text,) = what_is_stuck(core)
    assert text == f"queue pair {s.qp.number} in RTS: nothing under a timer, and nothing that it could send"


def test_story_checks_progress_after_every_event() -> None:
    s = story(ONE_PACKET)
    s.bench.post(s.connection, 10 * MTU)
    s.until(lambda: bool(s.data(1)))
    s.qp.requestor.recovery.stop()
    with pytest.raises(Stalled, match="nothing under a timer"):
        s.until(lambda: False, max_time_ns=MS)


@pytest.mark.parametrize("rack", [True, False])
def test_a_packet_in_the_exponential_phase_is_repeated_within_round_trips_of_a_healed_network(rack: bool) -> None:
    s = story(timeout=14, linear_cnt=0, exp_cnt=20, rack_inference=rack)
    s.lose(lambda sent: sent.is_data and sent.psn == 1 and len(s.data(1)) <= 6)
    if rack:
        write = s.bench.post(s.connection, 500)
    else:  # only the timeout finds the loss
        write = s.bench.post(s.connection, 500)
    timeout_ns = 1024 << 14
    # Six transmissions are lost; what finds each loss, rule (c) by a probe or else the timeout, finds the next one,
    # too.
    s.until(lambda: len(s.data(1)) == 6, max_time_ns=2_000 * MS)
    sixth = s.data(1)[-1].time
    probes = len(s.packets(Opcode.PROBE))
    s.until(lambda: write.completed_at is not None, max_time_ns=2_000 * MS)
    assert write.completed_at is not None
    if rack:
        assert write.completed_at - sixth < 0.3 * MS
    else:
        assert write.completed_at - sixth < 33 * timeout_ns
    # Probes that bring nothing new double their interval: their number grows with the logarithm of the time.
    assert len(s.packets(Opcode.PROBE)) - probes <= 20


def test_a_queue_pair_in_error_sends_no_probes_when_its_port_returns() -> None:
    s = Story(
        NetConfig(planes=2, trim_bytes=None, ecn=None),
        wire=WireConfig(mtu=MTU),
        cc=WIDE,
        ports=PortsConfig(count=2),
        reliability=ReliabilityConfig(timeout=8, linear_cnt=2, exp_cnt=2),
    )
    s.net.set_path(False, plane=1)
    write = s.bench.post(s.connection, 100 * MTU)
    s.until(lambda: s.qp.evs.streak and write.completed_at is None)
    s.requestor_host.core.modify(s.qp, QpState.ERROR, s.net.now)
    s.net.set_link(s.requestor_host, 1, False)
    s.net.run(max_time_ns=MS)
    before = len(s.packets(Opcode.PROBE, host=0))
    s.net.set_link(s.requestor_host, 1, True)
    s.net.run(max_time_ns=200 * MS)
    assert len(s.packets(Opcode.PROBE, host=0)) == before


@pytest.mark.parametrize("sack_every", [1, 8, 32, 256])
@pytest.mark.parametrize("flows", [1, 4])
def test_coalesced_sacks_do_not_stall_a_small_window(sack_every: int, flows: int) -> None:
    """The packet that closes the window asks for a SACK (UET 1.0, 3.6.13.5), however many the peer would wait for."""
    config = NetConfig(port_rate_bps=10_000_000_000, path_rate_bps=10_000_000_000, trim_bytes=None, ecn=None)
    rtt_ns = 2 * config.latency_ns + 20_000
    window = FixedConfig(fixed_window_bytes=2 * 10 * rtt_ns // 8, base_rtt_ns=rtt_ns)  # two bandwidth-delay products
    s = story(window, config, timeout=14, sack_every=sack_every, sack_delay_ns=MS)
    connections = [s.connection]
    for _ in range(flows - 1):
        connections.append(s.bench.connect(s.requestor_host, s.responder_host))
    size = 2_000 * MTU // flows
    start = s.net.now
    for connection in connections:
        s.bench.post(connection, size)
    s.bench.run(max_time_ns=1_000 * MS)
    share = flows * size * 8 / (10 * (s.net.now - start))
    assert share > 0.9, f"{share:.2f} of the link's rate"


def test_first_tail_probe_of_a_queue_pair_waits_two_rtts_of_its_destination() -> None:
    """A queue pair without samples of its own knows the RTT that the others to its destination have measured."""
    config = {
        "ev": EvConfig(count=2, active=1),
        "ports": PortsConfig(count=1),
        "cc": WIDE,
        "reliability": ReliabilityConfig(timeout=14),
    }
    ends = [Endpoint(EndpointConfig(bytes(15) + bytes([n]), **config), random.Random(n)) for n in (1, 2)]  # type: ignore[arg-type]
    one, other = ends
    queue = one.create_cq()
    region = other.register_memory(bytearray(64))
    pairs = [(one.create_qp(queue), other.create_qp(other.create_cq())) for _ in range(2)]
    for mine, theirs in pairs:
        documents = one.local_attributes(mine), other.local_attributes(theirs)
        one.connect(mine, documents[1], 0)
        other.connect(theirs, documents[0], 0)
    measured, fresh = (mine for mine, _ in pairs)
    one.post_write(measured, b"x", region.va, region.rkey, wr_id=1)
    for packet in one.datagrams_to_send(0, 0, 9_000):
        other.receive_datagram(0, packet, MS // 2)
    for packet in other.datagrams_to_send(0, MS // 2, 9_000):
        one.receive_datagram(0, packet, MS)
    assert [each.status for each in one.poll(queue)] == [CompletionStatus.SUCCESS]

    one.post_write(fresh, b"y", region.va, region.rkey, wr_id=2)
    assert one.datagrams_to_send(0, 2 * MS, 9_000), "the write leaves, and is lost"
    probed_at = 0
    while not probed_at:
        due = one.next_timer()
        assert due is not None
        one.handle_timer(due)
        if any(wire.decode(packet).bth.opcode == Opcode.PROBE for packet in one.datagrams_to_send(0, due, 9_000)):
            probed_at = due
    assert 4 * MS <= probed_at <= 6 * MS
