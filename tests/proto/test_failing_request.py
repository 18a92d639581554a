"""The request that fails is the first one in error, and what came before it completes (`mrc-protocol.md §4, §6`)."""

from __future__ import annotations

import pytest

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import ReliabilityConfig, WireConfig
from mrc_host.proto.events import ErrorReason, QpState
from mrc_host.proto.roce.qp import rnr_delay_ns
from mrc_host.proto.wire.messages import FLAG_ACK_REQ
from mrc_host.proto.work import WorkQueue, WriteRequest
from support.proto.net import NetConfig, opcode_of, psn_of
from support.proto.story import WIDE, Story

MTU = 1024
MS = 1_000_000
SUCCESS, FLUSHED = CompletionStatus.SUCCESS, CompletionStatus.WR_FLUSH_ERR


def story() -> Story:
    reliability = ReliabilityConfig(timeout=8, linear_cnt=2, exp_cnt=2)
    quiet = NetConfig(trim_bytes=None, ecn=None)
    return Story(quiet, wire=WireConfig(mtu=MTU), cc=WIDE, reliability=reliability)


@pytest.mark.parametrize("lost", [(), (1,), (2, 3)], ids=["all-arrive", "first-lost", "middle-and-last-lost"])
def test_requests_before_a_refused_one_complete(lost: tuple[int, ...]) -> None:
    """The NAK waits until everything before the refused packet has arrived, and its MSN counts those messages."""
    s = story()
    s.lose(lambda sent: sent.is_data and sent.psn in lost and not sent.rtx)
    writes = [s.bench.post(s.connection, 3 * MTU) for _ in range(4)]
    s.responder_host.core.deregister_memory(writes[1].region)
    s.bench.run(max_time_ns=100 * MS)
    assert [write.status for write in writes] == [SUCCESS, CompletionStatus.REM_ACCESS_ERR, FLUSHED, FLUSHED]
    assert s.connection.peer.error is ErrorReason.LOCAL_ACCESS
    s.bench.settle(MS)  # what came after the refused packet was not placed


def test_the_oldest_request_carries_the_reason_when_a_later_packet_runs_out_of_retries() -> None:
    s = story()
    s.lose(lambda sent: (sent.is_data and sent.psn == 3) or (sent.host == 1 and sent.opcode == 0xD1))
    writes = [s.bench.post(s.connection, MTU) for _ in range(4)]
    s.bench.run(max_time_ns=1_000 * MS)
    assert [write.status for write in writes] == [CompletionStatus.RETRY_EXC_ERR, FLUSHED, FLUSHED, FLUSHED]


def test_reset_forgets_requests_without_completions() -> None:
    s = story()
    s.net.set_path(False)
    write = s.bench.post(s.connection, MTU)
    s.until(lambda: bool(s.data(1)))
    s.requestor_host.core.modify(s.qp, QpState.RESET, s.net.now)
    s.net.run(max_time_ns=10 * MS)
    assert write.status is None
    assert s.qp.state is QpState.RESET


@pytest.mark.parametrize("change", ["va", "length", "msn", "rkey"])
def test_a_middle_packet_must_agree_with_its_message(change: str) -> None:
    s = story()
    write = s.bench.post(s.connection, 3 * MTU)
    region, other = write.region, s.responder_host.core.register_memory(bytearray(8 * MTU))
    s.lose(lambda sent: sent.host == 0)
    s.until(lambda: len(s.data()) == 3)
    core, qp = s.requestor_host.core, s.qp
    codec = core.context.codec
    for psn, opcode, offset in ((1, 0xC6, 0), (2, 0xC7, MTU), (3, 0xC8, 2 * MTU)):
        values = {"va": region.va + offset, "length": 3 * MTU, "msn": 1, "rkey": region.rkey}
        if psn == 2:
            values[change] = {"va": region.va, "length": 4 * MTU, "msn": 7, "rkey": other.rkey}[change]
            if change == "rkey":
                values["va"] = other.va
        packet = codec.encode_data(
            qp.peer.addresses, qp.evs.universe.values[0], 0x12, opcode, qp.association.remote_number, psn, FLAG_ACK_REQ,
            0, values["msn"], 0, values["va"], values["rkey"], values["length"], bytes(MTU), 0, 0,
        )  # fmt: skip
        s.responder_host.core.receive_datagram(0, packet, s.net.now)
    assert s.connection.peer.error is ErrorReason.LOCAL_INVALID_REQUEST


@pytest.mark.parametrize(("code", "ms"), [(0, 655.36), (1, 0.01), (7, 0.12), (14, 1.28), (31, 491.52)])
def test_rnr_timer_codes_are_those_of_infiniband(code: int, ms: float) -> None:
    assert rnr_delay_ns(0x20 | code) == round(ms * MS)


def test_the_packet_that_ends_a_queue_pair_has_no_sack_held_back() -> None:
    reliability = ReliabilityConfig(sack_every=32, sack_delay_ns=50_000, timeout=14)
    s = Story(NetConfig(trim_bytes=None, ecn=None), wire=WireConfig(mtu=MTU), cc=WIDE, reliability=reliability)
    # The first packet comes last and completes the message, for whose immediate no receive is posted.
    s.net.rules.append(lambda n, h, p, i, packet: 30_000 if psn_of(packet) == 1 and opcode_of(packet) < 0xCC else None)
    s.bench.post(s.connection, 3 * MTU, immediate=5)
    s.connection.peer.responder.receives.clear()
    s.until(lambda: s.connection.peer.state is QpState.ERROR)
    assert s.connection.peer.error is ErrorReason.NO_RECEIVE_POSTED
    before = len(s.sacks())
    s.net.run(max_time_ns=MS)
    assert len(s.sacks()) - before <= 1  # that of the packet itself, at once
    assert all(sack.time < s.net.now - MS + 10_000 for sack in s.sacks())


def test_answers_count_messages_across_the_wrap_of_their_numbers() -> None:
    work, later = (WorkQueue() for _ in range(2))
    for queue, msn in ((work, 0xFFFE), (later, 0xFFFF)):
        queue.start(100, MTU)
        queue.msn = msn
        for wr_id in range(3):
            queue.post(WriteRequest(wr_id, memoryview(bytes(2 * MTU)), 0, 0, None), 0)
    for psn, msn in ((101, 0xFFFF), (102, 0xFFFF), (103, 0), (105, 1)):
        assert work.fits(psn, msn, False, 100)
    assert not work.fits(103, 0xFFFF, False, 100)
    assert later.fits(100, 0xFFFF, False, 100)
    done = []
    while (request := work.take_completed_before(104, 0)) is not None:
        done.append(request.wr_id)
    assert done == [0, 1]
