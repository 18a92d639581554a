"""The user of a queue pair is gone: its peer is told, however much is lost, and nothing is kept for long."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from mrc_host.proto import endpoint as endpoints
from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import EndpointConfig, EvConfig, PortsConfig, ReliabilityConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import ErrorReason, QpError, QpState
from mrc_host.proto.roce.endpoint import RoceConfig, RoceEndpoint
from mrc_host.proto.wire.fields import Opcode
from support.proto.net import NetConfig
from support.proto.story import WIDE, Story
from support.proto.workload import pair

MTU = 4096
MS = 1_000_000
RELIABILITY = ReliabilityConfig(timeout=4, linear_cnt=3, exp_cnt=3)  # retries last for 0.3 ms


def story(**endpoint: Any) -> Story:
    return Story(cc=WIDE, reliability=endpoint.pop("reliability", RELIABILITY), **endpoint)


def completions(s: Story) -> list[Any]:
    seen: list[Any] = []
    s.requestor_host.on_event = lambda e: seen.extend(s.connection.source.core.poll(s.connection.cq))
    return seen


def close(s: Story) -> None:
    """End the responder's program."""
    s.connection.target.core.close_qp(s.connection.peer, s.net.now)
    s.net.touch(s.responder_host)


def test_peer_that_only_waits_is_notified_of_the_close() -> None:
    s = story()
    seen = completions(s)
    a = s.connection.source.core
    region = s.connection.target.core.register_memory(bytearray(MTU))
    a.post_write(s.qp, bytes(MTU), region.va, region.rkey, 1)
    a.post_recv(s.qp, 2, 2)
    s.net.touch(s.requestor_host)
    s.until(lambda: bool(seen))
    s.net.run(max_time_ns=s.net.now + MS)
    close(s)
    s.until(lambda: s.qp.state is QpState.ERROR)
    assert s.qp.error is ErrorReason.REMOTE_OPERATION
    assert [(each.wr_id, each.status) for each in seen] == [
        (1, CompletionStatus.SUCCESS),
        (2, CompletionStatus.WR_FLUSH_ERR),
        (2, CompletionStatus.WR_FLUSH_ERR),
    ]


@pytest.mark.parametrize("sent", [0, 5, 60])
def test_work_in_progress_ends_with_an_error_at_once(sent: int) -> None:
    s = story(reliability=dataclasses.replace(RELIABILITY, timeout=20))
    seen = completions(s)
    region = s.connection.target.core.register_memory(bytearray(100 * MTU))
    for wr_id in (1, 2):
        s.connection.source.core.post_write(s.qp, bytes(50 * MTU), region.va, region.rkey, wr_id)
    s.net.touch(s.requestor_host)
    s.until(lambda: len(s.data()) >= sent)
    close(s)
    s.until(lambda: s.qp.state is QpState.ERROR, max_time_ns=s.net.now + MS)
    assert s.qp.error is ErrorReason.REMOTE_OPERATION
    failed = [each.status for each in seen if each.status is not CompletionStatus.SUCCESS]
    assert failed.count(CompletionStatus.REM_OP_ERR) == 1
    assert len(seen) == 2


def test_write_with_a_lost_acknowledgement_ends_with_an_error_on_close() -> None:
    s = story(reliability=dataclasses.replace(RELIABILITY, timeout=20))
    seen = completions(s)
    region = s.connection.target.core.register_memory(bytearray(MTU))
    s.lose(lambda p: p.opcode == Opcode.ACK and not (p.packet.aeth is not None and p.packet.aeth.syndrome == 0x63))
    s.connection.source.core.post_write(s.qp, bytes(MTU), region.va, region.rkey, 1)
    s.net.touch(s.requestor_host)
    s.until(lambda: bool(s.packets(Opcode.ACK, host=1)))
    close(s)
    s.until(lambda: bool(seen), max_time_ns=s.net.now + MS)
    assert [each.status for each in seen] == [CompletionStatus.REM_OP_ERR]


def test_lost_close_notice_is_repeated() -> None:
    s = story()
    lost: list[int] = []
    s.lose(lambda p: p.host == 1 and p.opcode == Opcode.ACK and len(lost) < 6 and lost.append(p.time) is None)
    close(s)
    s.until(lambda: s.qp.state is QpState.ERROR)
    assert s.qp.error is ErrorReason.REMOTE_OPERATION
    assert len(lost) == 6


def test_peer_that_sends_gets_the_close_notice_again() -> None:
    """All that was said by itself is lost; data is answered."""
    s = story()
    completions(s)
    silent = [True]
    s.lose(lambda p: p.host == 1 and silent[0])
    close(s)
    core = s.connection.target.core
    s.net.run(lambda: s.connection.peer.farewells == 6, max_time_ns=10 * MS)
    silent[0] = False
    region = core.register_memory(bytearray(MTU))
    before = s.connection.peer.responder.counters.naks_sent
    s.connection.source.core.post_write(s.qp, bytes(MTU), region.va, region.rkey, 1)
    s.net.touch(s.requestor_host)
    s.until(lambda: s.qp.state is QpState.ERROR)
    assert s.qp.error is ErrorReason.REMOTE_OPERATION
    assert s.connection.peer.responder.counters.naks_sent > before


def test_closed_queue_pair_is_kept_no_longer_than_retries_last() -> None:
    s = story()
    core, qp = s.connection.target.core, s.connection.peer
    close(s)
    core.destroy_cq(s.connection.peer_cq)
    assert [each.state for each in core.statistics().qps] == ["ERROR"]
    for call in (core.destroy_qp, core.close_qp):
        with pytest.raises(QpError, match="does not belong"):
            call(qp, s.net.now)
    said = qp.attributes.patience_ns()
    assert said is not None
    s.net.run(max_time_ns=said + MS)
    assert core.statistics().qps == []
    assert core.statistics().peers == []
    assert core.next_timer() is None
    assert len(s.packets(Opcode.ACK, host=1)) == 1 + RELIABILITY.linear_cnt + RELIABILITY.exp_cnt


def test_peer_that_would_be_retried_for_ever_is_notified_of_the_close_eight_times_more() -> None:
    s = story(reliability=dataclasses.replace(RELIABILITY, exp_cnt=25))
    s.lose(lambda p: p.host == 1)
    close(s)
    s.net.run(max_time_ns=100 * MS)
    assert s.connection.target.core.statistics().qps == []
    assert len(s.packets(Opcode.ACK, host=1)) == 1 + RELIABILITY.linear_cnt + 8


@pytest.mark.parametrize("roce", [False, True])
def test_a_queue_pair_that_is_destroyed_completes_nothing_more(roce: bool) -> None:
    """Another one may fill the completion queue, and would end with it."""
    address = bytes(15) + b"\x01"
    core: Any = RoceEndpoint(RoceConfig(address), random.Random(1)) if roce else Endpoint(
        EndpointConfig(address=address), random.Random(1)
    )  # fmt: skip
    cq = core.create_cq(1)
    qp, other = core.create_qp(cq), core.create_qp(cq)
    core.connect(qp, core.local_attributes(qp), 0)  # to itself
    core.post_write(qp, b"four", 0, 0, 1)
    core.post_recv(qp, 2, 2)
    core.datagrams_to_send(0, 0, 9000)
    core.destroy_qp(qp, 0)
    assert core.poll(cq) == []
    assert core.next_timer() is None
    assert [row.qpn for row in core.statistics().qps] == [other.number]
    assert not cq.overflowed


def test_close_without_a_peer_destroys_the_queue_pair() -> None:
    core = Endpoint(
        EndpointConfig(address=bytes(15) + b"\x01", ports=PortsConfig(count=2), ev=EvConfig(count=32, active=16)),
        random.Random(1),
    )
    qp = core.create_qp(core.create_cq())
    core.local_attributes(qp)
    core.close_qp(qp, 0)
    assert core.statistics().qps == []
    assert core.next_timer() is None


def test_number_of_closed_queue_pairs_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Endpoint(
        EndpointConfig(address=bytes(15) + b"\x01", ports=PortsConfig(count=2), ev=EvConfig(count=4, active=2)),
        random.Random(1),
    )
    cq = core.create_cq()
    made = []
    for number in range(endpoints._MAX_CLOSED + 5):
        qp = core.create_qp(cq)
        document = core.local_attributes(qp) | {"address": f"fd00::{number % 7 + 2:x}", "qpn": 99}
        core.connect(qp, document | {"instance": number % 7}, 0)
        core.close_qp(qp, 0)
        made.append(qp.number)
    assert [each.qpn for each in core.statistics().qps] == made[5:]


@pytest.mark.parametrize("syndrome", [0x60, 0x61, 0x62, 0x1F])
def test_no_other_ack_is_taken_for_a_packet_never_sent(syndrome: int) -> None:
    s = story()
    a = s.connection.source
    codec, ends = a.core.context.codec, s.connection.target.address + a.address
    for psn, said in ((s.board.nxt, syndrome), (s.board.nxt + 1, 0x63)):
        a.core.receive_datagram(0, codec.encode_ack(ends, 5, 184, s.qp.number, psn, said, 0), 0)
    assert s.counters.bogus_sacks == 2
    assert s.qp.state is QpState.RTS


# --- RoCE ---


def roce(config: EndpointConfig, rng: random.Random) -> RoceEndpoint:
    return RoceEndpoint(
        RoceConfig(
            config.address,
            config.wire,
            config.ports,
            line_rate_bps=config.cc.line_rate_bps,
            timeout=8,
            initial_psn=100,
        ),
        rng,
    )


@pytest.mark.parametrize("sent", [0, 20])
@pytest.mark.parametrize("lost", [0, 3])
def test_roce_peer_is_notified_of_the_close(sent: int, lost: int) -> None:
    bench, connection = pair(NetConfig(), 1, factory=roce)
    connection.source.core.post_recv(connection.qp, 5)
    if sent:
        bench.post(connection, sent * 4096)
        bench.run(max_time_ns=MS)
    gone: list[int] = []

    def lose(net: Any, host: Any, port: int, index: int, packet: bytes) -> str | None:
        if host.index == 1 and len(gone) < lost:
            gone.append(1)
            return "drop"
        return None

    bench.net.rules.append(lose)
    core, host = connection.target.core, bench.net.hosts[1]
    core.close_qp(connection.peer, bench.net.now)
    core.destroy_cq(connection.peer_cq)
    bench.net.touch(host)
    bench.net.run(lambda: connection.qp.state is QpState.ERROR, max_time_ns=bench.net.now + 10 * MS)
    assert connection.qp.state is QpState.ERROR
    assert len(gone) == lost
    bench.net.run(max_time_ns=bench.net.now + 100 * MS)
    assert core.statistics().qps == []
    assert core.next_timer() is None
