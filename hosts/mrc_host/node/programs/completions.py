"""Completions of the endpoint, into the rings of the program that posted what completed."""

from __future__ import annotations

from typing import Final, TypeVar

from mrc_host.node.programs.program import Program
from mrc_host.node.programs.queues import Queue
from mrc_host.proto.completion import Completion, CompletionKind, CompletionStatus
from mrc_host.proto.transport import Pair
from mrc_host.verbs.layout import EventType, WcFlags, WcOpcode, WcStatus

P = TypeVar("P", bound=Pair)
_BATCH: Final = 64
_STATUS: Final = {status: WcStatus[status.name] for status in CompletionStatus}
_SUCCESS: Final = CompletionStatus.SUCCESS
_WITH_IMM: Final = int(WcFlags.WITH_IMM)
_SOLICITED: Final = int(WcFlags.SOLICITED)
_RECEIVES: Final = {
    CompletionKind.RECV: WcOpcode.RECV,
    CompletionKind.RECV_IMM: WcOpcode.RECV_RDMA_WITH_IMM,
}
_SENDS: Final = {
    CompletionKind.WRITE: WcOpcode.RDMA_WRITE,
    CompletionKind.WRITE_IMM: WcOpcode.RDMA_WRITE,
    CompletionKind.SEND: WcOpcode.SEND,
    CompletionKind.READ: WcOpcode.RDMA_READ,
    CompletionKind.COMPARE_SWAP: WcOpcode.COMP_SWAP,
    CompletionKind.FETCH_ADD: WcOpcode.FETCH_ADD,
}


def deliver(program: Program[P], queue: Queue, now: int) -> None:
    """Move all completions from the endpoint's queue to the program's ring.

    Raises:
        RingCorrupt: the program has spoilt the ring.
    """
    while completions := queue.inner.poll(_BATCH):
        for completion in completions:
            if not _take(program, queue, completion):
                overflow(program, queue, now)


def _take(program: Program[P], queue: Queue, completion: Completion) -> bool:
    """Deliver one completion; return False when the ring has no room."""
    pair = program.pairs.get(completion.qpn)
    if pair is None:
        return True  # of a queue pair that is gone
    status = _STATUS[completion.status]
    received = _RECEIVES.get(completion.kind)
    if received is not None:
        flags = 0
        if completion.status is _SUCCESS:
            flags = 0 if completion.immediate is None else _WITH_IMM
            if completion.solicited:
                flags |= _SOLICITED
        if pair.srq is not None:
            ended = pair.srq.inner.ended = pair.srq.inner.ended + 1
        else:
            pair.receiving -= 1
            ended = pair.received = pair.received + 1
        return queue.push(
            completion.wr_id, status, received, completion.qpn, completion.byte_len, completion.immediate or 0, flags,
            ended,
        )  # fmt: skip
    posted = pair.posted.popleft()
    pair.sent += 1
    for region in posted.regions:
        region.uses -= 1
    if completion.status is _SUCCESS and not posted.signaled:
        return True
    return queue.push(
        posted.wr_id, status, _SENDS[completion.kind], completion.qpn, completion.byte_len, 0, 0, pair.sent
    )


def overflow(program: Program[P], queue: Queue, now: int) -> None:
    """Record that a completion was lost: users of the queue can no longer rely on it."""
    if queue.overflowed:
        return
    queue.overflowed = True
    for user in list(queue.users):
        user.why = user.why or f"completion queue {queue.number} has overflowed"
        user.of.fail(user.qp, now)
    program.tell(EventType.CQ_ERR, queue.number, text=f"more than {queue.ring.capacity} completions waited")
