"""Work requests out of a program's ring, into its queue pairs; nothing in the ring is believed."""

from __future__ import annotations

from typing import Final, TypeVar

from mrc_host.node.programs.completions import deliver, overflow
from mrc_host.node.programs.objects import PostedRequest, QueuePairOf, Region
from mrc_host.node.programs.program import Program
from mrc_host.node.quota import MAX_MESSAGE_BYTES
from mrc_host.proto.events import QpState
from mrc_host.proto.memory import Gather, Piece, ProcessPiece
from mrc_host.proto.transport import Buffer, Pair
from mrc_host.verbs.layout import (
    ELEMENT,
    ELEMENTS_AT,
    INLINE_BYTES,
    MAX_SGE,
    REQUEST,
    RingOpcode,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
)
from mrc_host.verbs.ring import RingCorrupt

P = TypeVar("P", bound=Pair)
_INLINE: Final = int(SendFlags.INLINE)
_SIGNALED: Final = int(SendFlags.SIGNALED)
_WRITE: Final = int(RingOpcode.WRITE)
_WRITE_IMM: Final = int(RingOpcode.WRITE_IMM)
_RECV: Final = int(RingOpcode.RECV)
_NOTIFY: Final = int(RingOpcode.NOTIFY)
_SOLICITED: Final = int(SendFlags.SOLICITED)
_TOP: Final = 1 << 64


class WrongRequestError(Exception):
    """A work request that ends its queue pair, with the status of its completion."""

    def __init__(self, status: WcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def serve(program: Program[P], now: int, budget: int) -> None:
    """Take up to `budget` entries.

    Raises:
        RingCorrupt: the ring's counters, or an entry for what the program does not have.
    """
    ring = program.submissions
    count = min(ring.pending(), budget)
    unpack, buffer, pairs = REQUEST.unpack_from, ring.buffer, program.pairs
    for _ in range(count):
        at = ring.at(ring.head)
        opcode, flags, elements, target, wr_id, address, key, immediate, inline = unpack(buffer, at)
        if opcode == _NOTIFY:
            queue = program.queues.get(target)
            if queue is None:
                raise RingCorrupt(f"a notification of completion queue {target}, which the program does not have")
            queue.arm(wr_id, bool(flags & _SOLICITED))
        else:
            pair = pairs.get(target)
            if pair is None:
                raise RingCorrupt(f"a work request to queue pair {target}, which the program does not have")
            try:
                if opcode == _RECV:
                    _receive(program, pair, wr_id, elements)
                elif opcode in (_WRITE, _WRITE_IMM):
                    source, regions = _source(program, pair, flags, elements, inline, at)
                    _write(program, pair, opcode, flags, wr_id, address, key, immediate, source, regions)
                else:
                    raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, f"no operation {opcode}")
            except WrongRequestError as error:
                _refuse(program, pair, wr_id, opcode == _RECV, error, now)
        ring.head += 1
    ring.release()


def _source(
    program: Program[P], pair: QueuePairOf[P], flags: int, elements: int, inline: int, at: int
) -> tuple[Buffer, tuple[Region, ...]]:
    """Return the bytes of a work request, and the regions that they lie in."""
    buffer = program.submissions.buffer
    if flags & _INLINE:
        if inline > min(pair.max_inline, INLINE_BYTES):
            raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{inline} bytes inline; at most {pair.max_inline}")
        return bytes(buffer[at + ELEMENTS_AT : at + ELEMENTS_AT + inline]), ()
    if elements > min(pair.max_sge, MAX_SGE):
        raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{elements} scatter-gather elements; at most {pair.max_sge}")
    views: list[Piece] = []
    regions: list[Region] = []
    total = 0
    for place in range(at + ELEMENTS_AT, at + ELEMENTS_AT + elements * ELEMENT.size, ELEMENT.size):
        address, length, key = ELEMENT.unpack_from(buffer, place)
        region = program.regions.get(key)
        if region is None or region.domain != pair.domain:
            raise WrongRequestError(WcStatus.LOC_PROT_ERR, f"no memory region with the L_Key {key:#010x}")
        offset = region.region.offset_of(address, length)
        if offset < 0:
            raise WrongRequestError(
                WcStatus.LOC_PROT_ERR, f"{length} bytes at {address:#x} leave the memory region {key:#010x}"
            )
        total += length
        views.append(region.region.piece(offset, length))
        regions.append(region)
    if total > MAX_MESSAGE_BYTES:
        raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{total} bytes; at most {MAX_MESSAGE_BYTES}")
    return views[0] if len(views) == 1 else Gather(views) if views else b"", tuple(regions)


def _write(  # noqa: PLR0913 - the fields of a record of the ring
    program: Program[P],
    pair: QueuePairOf[P],
    opcode: int,
    flags: int,
    wr_id: int,
    address: int,
    key: int,
    immediate: int,
    source: Buffer,
    regions: tuple[Region, ...],
) -> None:
    if len(pair.posted) >= pair.max_send:
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, f"more than {pair.max_send} sends under way")
    state = pair.qp.state
    if state is not QpState.RTS and state is not QpState.ERROR:
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, f"a write in {state.value}")
    if not isinstance(source, Gather | ProcessPiece | bytes | memoryview) or address + len(source) > _TOP:
        raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{address:#x} is too near to the end of the address space")
    pair.posted.append(PostedRequest(wr_id, pair.signal_all or bool(flags & _SIGNALED), regions))
    for region in regions:
        region.uses += 1
    endpoint = program.of.endpoint
    if opcode == _WRITE:
        endpoint.post_write(pair.qp, source, address, key, wr_id)
    else:
        endpoint.post_write_imm(pair.qp, source, address, key, immediate, wr_id, solicited=bool(flags & _SOLICITED))


def _receive(program: Program[P], pair: QueuePairOf[P], wr_id: int, count: int) -> None:
    if pair.receiving + count > pair.max_recv:
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, f"more than {pair.max_recv} receives posted")
    if pair.qp.state is QpState.RESET:
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, "a receive in RESET")
    pair.receiving += count
    program.of.endpoint.post_recv(pair.qp, wr_id, count)


def _refuse(
    program: Program[P], pair: QueuePairOf[P], wr_id: int, receive: bool, error: WrongRequestError, now: int
) -> None:
    """End the queue pair: flush the requests under way, then complete the wrong request with its error."""
    pair.why = pair.why or str(error)
    if pair.qp.state is not QpState.ERROR:
        program.of.fail(pair.qp, now)
    queue = pair.recv if receive else pair.send
    deliver(program, queue, now)
    if receive:
        pair.received += 1
        opcode, ended = WcOpcode.RECV_RDMA_WITH_IMM, pair.received
    else:
        pair.sent += 1
        opcode, ended = WcOpcode.RDMA_WRITE, pair.sent
    if not queue.push(wr_id, error.status, opcode, pair.number, 0, 0, WcFlags.NONE, ended):
        overflow(program, queue, now)
