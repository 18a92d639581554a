"""The invariant of progress: a queue pair in RTS with pending work has a packet in flight under a timer, or can send.

It looks at the inside of an endpoint, and shares nothing with what wakes senders or arms timers there.
"""

from __future__ import annotations

from typing import Any

from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import QpState
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.reliability.scoreboard import IN_FLIGHT
from mrc_host.proto.timers import TimerKind, TimerQueue


def what_is_wrong(core: Any) -> list[str]:
    """Return a sentence for every MRC queue pair of `core` whose state contradicts itself."""
    found: list[str | None] = []
    for qp in core._qps.values() if isinstance(core, Endpoint) else ():
        found.append(qp.association.evs.problem())
        if qp.state is QpState.RTS:
            board = qp.requestor.board
            found.append(board.problem() or qp.requestor.account.problem(board.outstanding.values()))
    return [problem for problem in found if problem is not None]


def what_is_stuck(core: Any) -> list[str]:
    """Return a sentence for every MRC queue pair of `core` that waits for nothing that can happen."""
    if not isinstance(core, Endpoint):
        return []
    timers = core.context.timers
    return [
        f"queue pair {qp.number} in RTS: nothing under a timer, and nothing that it could send"
        for qp in core._qps.values()
        if qp.state is QpState.RTS and qp.requestor.unacked and not _can_go_on(qp, timers)
    ]


def _can_go_on(qp: QueuePair, timers: TimerQueue) -> bool:
    requestor = qp.requestor
    if _under_a_timer(qp, timers):
        return True
    if requestor.in_ring or timers.is_armed(TimerKind.BACKOFF, requestor.recovery):
        return True
    board = requestor.board
    if not board.outstanding and (not requestor.has_data() or board.nxt > requestor.limit):
        # Only the transport ACK is missing, or the SACK that moves the window: the tail timer asks for it.
        return timers.is_armed(TimerKind.TAIL, requestor.recovery)
    if not qp.open_planes:
        return qp.attributes.patience_ns() is None or timers.is_armed(TimerKind.OUTAGE, qp)
    if requestor.waiting:  # another queue pair has packets in flight behind the same window, or its turn to send
        others = [other for other in qp.peer.qps if isinstance(other, QueuePair) and other.qpcc is qp.qpcc]
        return any(_under_a_timer(other, timers) or other.requestor.in_ring for other in others)
    return False


def _under_a_timer(qp: QueuePair, timers: TimerQueue) -> bool:
    flying = any(sent.state == IN_FLIGHT for sent in qp.requestor.board.outstanding.values())
    return flying and timers.is_armed(TimerKind.RETRANSMIT, qp.requestor.recovery)
