"""What must hold at one end after every event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mrc_host.proto.completion import CompletionKind, CompletionStatus
from mrc_host.proto.events import QpState
from mrc_host.proto.reliability.scoreboard import IN_FLIGHT
from mrc_host.proto.timers import TimerKind
from mrc_host.proto.wire.fields import Opcode
from support.checker.packets import opcode_of
from support.checker.scenario import MRC
from support.proto.progress import what_is_stuck, what_is_wrong

if TYPE_CHECKING:
    from support.checker.ends import End

_RARELY_NS: Final = 10**9
_SENT: Final = (CompletionKind.WRITE, CompletionKind.WRITE_IMM)


def of_end(end: End) -> str | None:
    """Return what is wrong with an end, None if nothing is."""
    mrc = end.scenario.transport == MRC
    problem = _completions(end) or _memory(end) or _ports(end)
    if problem is None:
        problem = _mrc(end) if mrc else _roce(end)
    return problem


def _completions(end: End) -> str | None:
    """Check that the requests of each queue pair complete at most once, in order, and that only the first error has a
    reason; and receives likewise."""
    for pair, qp in enumerate(end.qps):
        own = [number for number in end.own if end.scenario.requests[number].pair == pair]
        posted = [number for number in end.own[: end.record.posted] if number in own]
        sent = [each for each in end.record.done if each.kind in _SENT and each.number in own]
        if [each.number for each in sent] != posted[: len(sent)] or len(sent) > len(posted):
            return f"requests completed in the order {[each.number for each in sent]}, of {len(posted)} posted"
        failed = [each.status for each in sent if each.status is not CompletionStatus.SUCCESS]
        if failed and sent[-1].status is CompletionStatus.SUCCESS:
            return "a request completed with success after one with an error"
        takes = any(each.pair == pair and each.sender != end.index for each in end.scenario.requests)
        if failed and failed[0] is CompletionStatus.WR_FLUSH_ERR and not takes:  # what it takes may end it, too
            return "the first error is a flush, which does not say why"
        if any(status is not CompletionStatus.WR_FLUSH_ERR for status in failed[1:]):
            return f"errors are {[status.name for status in failed]}: only the first one has a reason"
        receives = [number for number, each in enumerate(end.receive_pairs[: end.record.receives]) if each == pair]
        received = [each for each in end.record.done if each.kind not in _SENT and each.number in receives]
        if [each.number for each in received] != receives[: len(received)]:
            return f"receives completed in the order {[each.number for each in received]}"
        expected = [
            100 + number
            for number, each in enumerate(end.scenario.requests)
            if each.immediate and each.pair == pair and each.sender != end.index
        ]
        immediates = [each.immediate for each in received if each.status is CompletionStatus.SUCCESS]
        if immediates != expected[: len(immediates)]:
            return f"immediates arrived as {immediates}, of {expected}"
        if qp.state is QpState.ERROR and len(sent) != len(posted):
            return f"the queue pair is in ERROR, and {len(sent)} of {len(posted)} requests have completed"
    requests, receives = end.own[: end.record.posted], [*range(end.record.receives)]
    for each in end.record.done:
        if each.number not in (requests if each.kind in _SENT else receives):
            return f"{each.kind.name} {each.number} completed, and was not posted"
    return None


def _memory(end: End) -> str | None:
    """Check that every byte is what was written or still 0, and that a message is there before its immediate."""
    for number, (mine, data) in enumerate(zip(end.targets, end.expected, strict=True)):
        if any(have not in (0, want) for have, want in zip(mine, data, strict=True)):
            return f"message {number} has wrong bytes"
    delivered = {each.immediate for each in end.record.done if each.kind is CompletionKind.RECV_IMM}
    for pair in range(end.scenario.pairs):
        ours = [
            number
            for number, each in enumerate(end.scenario.requests)
            if each.pair == pair and each.sender != end.index
        ]
        last = max((at for at, number in enumerate(ours) if 100 + number in delivered), default=-1)
        for number in ours[: last + 1]:
            if end.targets[number] != end.expected[number]:
                return f"an immediate was delivered before message {number} was complete"
    return None


def _ports(end: End) -> str | None:
    """Check that nothing waits on a port that is down."""
    for port in end.core.port_states():
        if not port.up and port.control:
            return f"{len(port.control)} packets wait on port {port.number}, which is down"
        if not port.up and end.scenario.transport != MRC and end.core._lanes[port.number].acks:
            return f"an ACK waits for port {port.number}, which is down"
    return None


def _mrc(end: End) -> str | None:
    """Check progress, the account of bytes in flight, windows, and silence in ERROR."""
    if wrong := what_is_stuck(end.core) or what_is_wrong(end.core):
        return wrong[0]
    for pair, qp in enumerate(end.qps):
        if problem := _mrc_pair(end, pair, qp):
            return problem
    return None


def _mrc_pair(end: End, pair: int, qp: Any) -> str | None:
    core, requestor, responder = end.core, qp.requestor, qp.responder
    if qp.connected:
        cc = qp.qpcc.cc
        accounts = [other.requestor.account.in_flight for other in end.qps if other.connected and other.qpcc is qp.qpcc]
        if cc.inflight < 0 or min(accounts) < 0:
            return f"{cc.inflight} bytes in flight, {accounts} on the accounts"
        if cc.inflight != sum(accounts):
            return f"{cc.inflight} bytes in flight, but {accounts} on the accounts of all"
        if cc.cwnd < cc.mtu:
            return f"the window of {cc.cwnd} bytes is smaller than a packet of {cc.mtu}"
    board = requestor.board
    if not requestor.unacked and not board.outstanding and requestor.account.in_flight:
        return f"{requestor.account.in_flight} bytes in flight, and nothing is outstanding"
    if not board.una <= board.nxt or board.nxt - 1 > requestor.limit:
        return f"una {board.una}, nxt {board.nxt}, limit {requestor.limit}"
    if requestor.work.wimm_in_flight < 0 or responder.stashed < 0 or responder.ooo != responder.bits.bit_count():
        return (
            f"{requestor.work.wimm_in_flight} immediates in flight, {responder.stashed} waiting, {responder.ooo} early"
        )
    to_us = [each for each in end.scenario.requests if each.pair == pair and each.sender != end.index]
    packets = sum(-(-each.size // requestor.mtu) or 1 for each in to_us)
    if responder.counters.packets_placed > packets:
        return f"{responder.counters.packets_placed} packets placed, of {packets}"
    return _quiet(core, qp) if qp.state is QpState.ERROR else _overdue(qp)


def _overdue(qp: Any) -> str | None:
    """Check that nothing is in flight that loss rule (c) takes for lost (mrc-protocol.md §5)."""
    requestor = qp.requestor
    board, rtt = requestor.board, requestor.rtt
    if not qp.connected or not qp.attributes.rack_inference:
        return None
    for sent in board.outstanding.values():
        window = max(rtt.windows[sent.plane] or rtt.srtt_ns + 4 * rtt.var_ns, qp.qpcc.cc.base_rtt_ns)
        if sent.state == IN_FLIGHT and sent.sent_ns < board.newest_ns - window:
            late = board.newest_ns - sent.sent_ns
            return (
                f"PSN {sent.psn} is in flight, sent {late} ns before the newest packet that arrived; {window} is late"
            )
    return None


def questions(end: End, packets: list[tuple[int, bytes]]) -> str | None:
    """Count the probes since something was acknowledged: their intervals double up to the longest local ACK timeout.

    Only where no EV is probed because it is bad, for such probes cannot be told from the others on the wire.
    """
    qp = end.qps[0]
    if end.scenario.transport != MRC or qp.state is not QpState.RTS or end.scenario.probe_interval_ns < _RARELY_NS:
        return None
    if end.scenario.pairs > 1:
        return None  # probes do not say of which queue pair they are
    board, record = qp.requestor.board, end.record
    mark = (board.una, board.sacked, len(record.done))
    if record.mark != mark:
        record.mark, record.questions = mark, 0
    record.questions += sum(opcode_of(packet) == Opcode.PROBE for _, packet in packets)
    longest = qp.attributes.repeat_ns(end.scenario.budget)
    most = (longest // qp.qpcc.cc.base_rtt_ns).bit_length() + end.scenario.budget + 2
    if record.questions > most:
        return f"{record.questions} probes since anything was acknowledged; {most} would do"
    return None


def _quiet(core: Any, qp: Any) -> str | None:
    """Check that a queue pair in ERROR has no timer, but the one that notifies the peer of the end of its user."""
    for kind, owner in core.context.timers._armed:
        if kind is not TimerKind.CLOSED and qp.owns(owner):
            return f"the queue pair is in ERROR, and its timer {kind.name} is armed"
    return None


def _roce(end: End) -> str | None:
    """Check that pending work goes on, and the order of the sequence numbers."""
    for qp in end.qps:
        if problem := _roce_pair(end.core, qp):
            return problem
    return None


def _roce_pair(core: Any, qp: Any) -> str | None:
    if qp.state is QpState.ERROR:
        if qp.deadline is not None or qp.in_ring:
            return "the queue pair is in ERROR, and would still send"
        return None
    if not qp.una <= qp.next_psn <= qp.sent_psn <= qp.work.end:
        return f"una {qp.una}, next {qp.next_psn}, sent {qp.sent_psn}, end {qp.work.end}"
    if qp.state is QpState.RTS and qp.work.unacked:
        sends = qp.in_ring and core.port_states()[qp.port].up
        if not sends and not core._timers.is_armed(TimerKind.PAIR, qp):
            return f"queue pair {qp.number} in RTS: no timer, and nothing that it could send"
    return None
