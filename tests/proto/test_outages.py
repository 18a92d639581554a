"""Queue pairs without a plane, or whose peer is silent, end in time and hold up no other (`mrc-protocol.md §4`)."""

from __future__ import annotations

import pytest

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import (
    ReliabilityConfig,
)
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.nscc import FixedConfig
from mrc_host.proto.events import ErrorReason, EvState, QpState
from support.proto.peers import MS, MTU, bench

# --- nowhere to send ---


def test_all_ports_down_ends_as_a_silent_network_does() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    first = b.post(connection, 200 * MTU)
    b.net.run(lambda: connection.qp.requestor.counters.packets_sent > 50, max_time_ns=10 * MS)
    died = b.net.now
    for port in range(2):
        b.net.set_link(one, port, False)
    second = b.post(connection, MTU)
    b.run(max_time_ns=1_000 * MS)
    assert (first.status, second.status) == (CompletionStatus.RETRY_EXC_ERR, CompletionStatus.WR_FLUSH_ERR)
    assert connection.qp.error is ErrorReason.RETRY_EXCEEDED
    timeout = 1024 << 8
    patience = 3 * timeout + 2 * timeout + 4 * timeout  # three fixed ones, two doubled
    assert first.completed_at is not None
    assert first.completed_at - died == patience


def test_writes_succeed_after_an_outage_shorter_than_the_retries() -> None:
    b = bench(2)
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    b.post(connection, 200 * MTU)
    b.net.run(lambda: connection.qp.requestor.counters.packets_sent > 50, max_time_ns=10 * MS)
    for port in range(2):
        b.net.set_link(one, port, False)
    b.net.run(max_time_ns=8 * (1024 << 8))
    b.net.set_link(one, 1, True)
    b.run(max_time_ns=1_000 * MS)
    assert b.statuses() == {"SUCCESS": 1}


def test_writes_posted_during_an_outage_end_within_a_bound() -> None:
    b = bench(1)
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    b.net.set_link(one, 0, False)
    b.net.run(max_time_ns=500 * MS)
    assert connection.qp.state is QpState.RTS  # nothing to send, nothing to fail
    write = b.post(connection, MTU)
    b.run(max_time_ns=1_000 * MS)
    assert write.status is CompletionStatus.RETRY_EXC_ERR


def test_an_outage_lasts_from_its_own_begin_whatever_changes_meanwhile() -> None:
    b = bench(1)
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    patience = 9 * (1024 << 8)
    b.net.set_link(one, 0, False)
    write = b.post(connection, MTU)
    b.net.run(max_time_ns=patience // 2)
    for up in (True, False):
        b.net.set_link(one, 0, up)
    died = b.net.now
    for row in one.core.query_evs(connection.qp)[:3]:
        b.net.run(max_time_ns=patience // 4)
        one.core.set_ev_state(connection.qp, row.ev, EvState.DENIED, b.net.now)
    b.run(max_time_ns=1_000 * MS)
    assert write.completed_at is not None
    assert write.completed_at - died == patience


def test_every_port_of_the_peer_down_and_every_ev_denied_are_bounded_too() -> None:
    b = bench(1)
    one, two = b.add_host(), b.add_host()
    connections = [b.connect(one, two) for _ in range(2)]
    for row in one.core.query_evs(connections[0].qp):
        one.core.set_ev_state(connections[0].qp, row.ev, EvState.DENIED, b.net.now)
    write = b.post(connections[0], MTU)
    codec = one.core.context.codec
    status = codec.encode_endpoint_request(two.address + one.address, 5, 184, 0, 0, 0, 7)
    known = one.core.peers[two.address + one.address].remote_status
    two.core.context.ports.status += 1  # as if it had sent this status itself; it would put a stranger's right
    status = codec.encode_endpoint_request(two.address + one.address, 5, 184, known + 1 & 0xFFFF, 0, 0, 7)
    other = b.post(connections[1], MTU)
    one.core.receive_datagram(0, status, b.net.now)
    b.run(max_time_ns=1_000 * MS)
    assert {write.status, other.status} == {CompletionStatus.RETRY_EXC_ERR}


def test_unlimited_retries_wait_without_limit() -> None:
    b = bench(1, reliability=ReliabilityConfig(timeout=8, exp_cnt=25))
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    b.net.set_link(one, 0, False)
    b.post(connection, MTU)
    b.net.run(max_time_ns=60_000 * MS)
    assert connection.qp.state is QpState.RTS
    b.net.set_link(one, 0, True)
    b.run()
    assert b.statuses() == {"SUCCESS": 1}


FIXED_ONE_PACKET = FixedConfig(fixed_window_bytes=1_200, base_rtt_ns=8_000)


@pytest.mark.parametrize("cc", [None, FIXED_ONE_PACKET], ids=["nscc", "one packet"])
@pytest.mark.parametrize("dead", [1, 4])
def test_queue_pairs_whose_other_end_is_gone_leave_the_window_to_the_others(dead: int, cc: CcConfig | None) -> None:
    """A peer destroyed its ends without a word: ours repeat for their whole retry time, half a second here."""
    b = bench(2, reliability=ReliabilityConfig(timeout=10), **({} if cc is None else {"cc": cc}))
    one, two = b.add_host(), b.add_host()
    live = b.connect(one, two)
    gone = [b.connect(one, two) for _ in range(dead)]
    for connection in gone:
        two.core.destroy_qp(connection.peer, 0)
        b.post(connection, 1_000_000)
    b.net.run(max_time_ns=2 * MS)  # their first timeouts
    began, writes = b.net.now, [b.post(live, 20_000) for _ in range(10)]
    b.net.run(lambda: all(write.status for write in writes), max_time_ns=10_000 * MS)
    assert b.net.now - began < 10 * MS
    assert {connection.qp.state for connection in gone} == {QpState.RTS}
    # They end by themselves, each having repeated its oldest packet only.
    b.run()
    assert {connection.qp.error for connection in gone} == {ErrorReason.RETRY_EXCEEDED}
    assert all(connection.qp.requestor.counters.retransmissions <= 15 for connection in gone)
    assert all(row.cc.inflight == 0 for row in one.core.statistics().peers)


def test_transfer_resumes_at_once_after_an_outage() -> None:
    b = bench(2, reliability=ReliabilityConfig(timeout=10))
    one, two = b.add_host(), b.add_host()
    connection = b.connect(one, two)
    write = b.post(connection, 500_000)
    b.net.run(max_time_ns=MS // 100)
    b.net.set_path(False)
    b.net.run(max_time_ns=5 * MS)
    requestor = connection.qp.requestor
    assert requestor.recovery.single_packet_mode
    assert requestor.account.in_flight == 0
    before = requestor.counters.retransmissions
    b.net.run(max_time_ns=25 * MS)
    assert requestor.counters.retransmissions - before <= 8
    b.net.set_path(True)
    b.run()
    assert write.status is CompletionStatus.SUCCESS
    assert requestor.account.in_flight == 0
    # The next answer, to a retry or a tail probe, frees all the rest.
    assert b.net.now < 150 * MS
