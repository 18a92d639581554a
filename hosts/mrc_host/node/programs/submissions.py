"""Work requests out of a program's ring, into its queue pairs; nothing in the ring is believed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from mrc_host.access import Access
from mrc_host.node.programs.completions import deliver, overflow
from mrc_host.node.programs.objects import PostedRequest, QueuePairOf, Region
from mrc_host.node.programs.pairs import Work
from mrc_host.node.programs.program import Program
from mrc_host.node.stacks import MAX_MESSAGE_BYTES
from mrc_host.proto.events import QpError, QpState
from mrc_host.proto.memory import Gather, MemoryRegion, Piece
from mrc_host.proto.receive import Element, PostedReceive, Scatter
from mrc_host.proto.roce.qp import ATOMIC_BYTES
from mrc_host.proto.transport import Buffer, Pair
from mrc_host.verbs.layout import (
    ATOMIC,
    ATOMIC_AT,
    ELEMENT,
    ELEMENTS_AT,
    INLINE_BYTES,
    MAX_SGE,
    REQUEST,
    RingCorrupt,
    RingOpcode,
    SendFlags,
    WcOpcode,
    WcStatus,
)

P = TypeVar("P", bound=Pair)
_INLINE: Final = int(SendFlags.INLINE)
_SIGNALED: Final = int(SendFlags.SIGNALED)
_FENCE: Final = int(SendFlags.FENCE)
_ATOMICS: Final = (int(RingOpcode.COMPARE_SWAP), int(RingOpcode.FETCH_ADD))
_ANSWERED: Final = (int(RingOpcode.READ), *_ATOMICS)
#: What sends, with what its completion says.
_SENDS: Final = {
    int(RingOpcode.WRITE): WcOpcode.RDMA_WRITE,
    int(RingOpcode.WRITE_IMM): WcOpcode.RDMA_WRITE,
    int(RingOpcode.SEND): WcOpcode.SEND,
    int(RingOpcode.SEND_IMM): WcOpcode.SEND,
    int(RingOpcode.READ): WcOpcode.RDMA_READ,
    int(RingOpcode.COMPARE_SWAP): WcOpcode.COMP_SWAP,
    int(RingOpcode.FETCH_ADD): WcOpcode.FETCH_ADD,
}
_RECV_INTO: Final = int(RingOpcode.RECV_INTO)
_SRQ_RECV: Final = int(RingOpcode.SRQ_RECV)
_RECV: Final = int(RingOpcode.RECV)
_NOTIFY: Final = int(RingOpcode.NOTIFY)
_SOLICITED: Final = int(SendFlags.SOLICITED)
_TOP: Final = 1 << 64
_NO_OPERANDS: Final = (0, 0)


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
        elif opcode == _SRQ_RECV:
            _shared_receive(program, target, wr_id, elements, at)
        else:
            pair = pairs.get(target)
            if pair is None:
                raise RingCorrupt(f"a work request to queue pair {target}, which the program does not have")
            try:
                if opcode == _RECV:
                    _receive(pair, wr_id, elements, ())
                elif opcode == _RECV_INTO:
                    _receive(pair, wr_id, 1, _elements(program, pair, elements, at))
                elif opcode in _SENDS:
                    local: Buffer | Scatter
                    if opcode in _ANSWERED:
                        local, regions = _target(program, pair, opcode, elements, at)
                    else:
                        local, regions = _source(program, pair, flags, elements, inline, at)
                    operands = ATOMIC.unpack_from(buffer, at + ATOMIC_AT) if opcode in _ATOMICS else _NO_OPERANDS
                    work = Work(
                        opcode, wr_id, local, address, key, immediate, bool(flags & _SOLICITED), bool(flags & _FENCE),
                        operands,
                    )  # fmt: skip
                    _send(pair, flags, work, regions)
                else:
                    raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, f"no operation {opcode}")
            except WrongRequestError as error:
                _refuse(program, pair, wr_id, opcode, error, now)
        ring.head += 1
    ring.release()


def _places(program: Program[P], pair: QueuePairOf[P], count: int, at: int) -> Iterator[tuple[Region, int, int]]:
    """Yield region, offset in it and length of each scatter-gather element of a work request.

    Raises:
        WrongRequestError: there are too many, or one lies outside the regions of the protection domain.
    """
    if count > min(pair.max_sge, MAX_SGE):
        raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{count} scatter-gather elements; at most {pair.max_sge}")
    buffer, first = program.submissions.buffer, at + ELEMENTS_AT
    for place in range(first, first + count * ELEMENT.size, ELEMENT.size):
        address, length, key = ELEMENT.unpack_from(buffer, place)
        region = program.regions.get(key)
        if region is None or region.domain != pair.domain:
            raise WrongRequestError(WcStatus.LOC_PROT_ERR, f"no memory region with the L_Key {key:#010x}")
        offset = region.region.offset_of(address, length)
        if offset < 0:
            raise WrongRequestError(
                WcStatus.LOC_PROT_ERR, f"{length} bytes at {address:#x} leave the memory region {key:#010x}"
            )
        yield region, offset, length


def _source(
    program: Program[P], pair: QueuePairOf[P], flags: int, elements: int, inline: int, at: int
) -> tuple[Buffer, tuple[Region, ...]]:
    """Return the bytes of a work request, and the regions that they lie in."""
    buffer = program.submissions.buffer
    if flags & _INLINE:
        if inline > min(pair.max_inline, INLINE_BYTES):
            raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{inline} bytes inline; at most {pair.max_inline}")
        return bytes(buffer[at + ELEMENTS_AT : at + ELEMENTS_AT + inline]), ()
    views: list[Piece] = []
    regions: list[Region] = []
    total = 0
    for region, offset, length in _places(program, pair, elements, at):
        total += length
        views.append(region.region.piece(offset, length))
        regions.append(region)
    if total > MAX_MESSAGE_BYTES:
        raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{total} bytes; at most {MAX_MESSAGE_BYTES}")
    return views[0] if len(views) == 1 else Gather(views) if views else b"", tuple(regions)


def _target(
    program: Program[P], pair: QueuePairOf[P], opcode: int, count: int, at: int
) -> tuple[Scatter, tuple[Region, ...]]:
    """Return where the answer of a READ or atomic operation goes, and the regions that it lies in."""
    pieces: list[tuple[MemoryRegion, int, int]] = []
    regions: list[Region] = []
    for region, offset, length in _places(program, pair, count, at):
        if Access.LOCAL_WRITE not in region.access:
            raise WrongRequestError(
                WcStatus.LOC_PROT_ERR, f"the memory region {region.region.rkey:#010x} lacks LOCAL_WRITE"
            )
        pieces.append((region.region, offset, length))
        regions.append(region)
    target = Scatter(pieces)
    if opcode in _ATOMICS and target.length != ATOMIC_BYTES:
        raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{target.length} bytes for the 8 of an atomic operation")
    if target.length > MAX_MESSAGE_BYTES:
        raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{target.length} bytes; at most {MAX_MESSAGE_BYTES}")
    return target, tuple(regions)


def _elements(program: Program[P], pair: QueuePairOf[P], count: int, at: int) -> tuple[Element, ...]:
    """Return the elements of a receive; they are looked up when a message takes it."""
    if count > min(pair.max_recv_sge, MAX_SGE):
        raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{count} elements of a receive; at most {pair.max_recv_sge}")
    return _read_elements(program, count, at)


def _read_elements(program: Program[P], count: int, at: int) -> tuple[Element, ...]:
    buffer, first = program.submissions.buffer, at + ELEMENTS_AT
    return tuple(Element(*ELEMENT.unpack_from(buffer, first + index * ELEMENT.size)) for index in range(count))


def _send(pair: QueuePairOf[P], flags: int, work: Work, regions: tuple[Region, ...]) -> None:
    if len(pair.posted) >= pair.max_send:
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, f"more than {pair.max_send} sends under way")
    state = pair.qp.state
    if state is not QpState.RTS and state is not QpState.ERROR:
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, f"a send in {state.value}")
    local = work.local
    size = local.length if isinstance(local, Scatter | MemoryRegion) else len(local)
    if work.address + size > _TOP:
        raise WrongRequestError(WcStatus.LOC_LEN_ERR, f"{work.address:#x} is too near to the end of the address space")
    pair.posted.append(PostedRequest(work.wr_id, pair.signal_all or bool(flags & _SIGNALED), regions))
    for region in regions:
        region.uses += 1
    try:
        pair.of.post(pair.qp, work)
    except QpError as error:
        pair.posted.pop()
        for region in regions:
            region.uses -= 1
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, str(error)) from None


def _receive(pair: QueuePairOf[P], wr_id: int, count: int, elements: tuple[Element, ...]) -> None:
    if pair.receiving + count > pair.max_recv:
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, f"more than {pair.max_recv} receives posted")
    if pair.qp.state is QpState.RESET:
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, "a receive in RESET")
    if pair.srq is not None:
        raise WrongRequestError(WcStatus.LOC_QP_OP_ERR, "a receive of a queue pair with a shared receive queue")
    pair.receiving += count
    pair.of.receive(pair.qp, wr_id, count, elements)


def _shared_receive(program: Program[P], number: int, wr_id: int, count: int, at: int) -> None:
    """Post to a shared receive queue. There is no queue pair that could end for what is wrong with it."""
    queue = program.shared.get(number)
    if queue is None:
        raise RingCorrupt(f"a receive of shared receive queue {number}, which the program does not have")
    if count > min(queue.max_sge, MAX_SGE):
        raise RingCorrupt(f"{count} elements of a receive of shared receive queue {number}; at most {queue.max_sge}")
    if len(queue.inner.receives) >= queue.max_wr:
        raise RingCorrupt(f"more than {queue.max_wr} receives in shared receive queue {number}")
    queue.inner.receives.append(PostedReceive(wr_id, _read_elements(program, count, at)))


def _refuse(
    program: Program[P], pair: QueuePairOf[P], wr_id: int, operation: int, error: WrongRequestError, now: int
) -> None:
    """End the queue pair: flush the requests under way, then complete the wrong request with its error."""
    pair.why = pair.why or str(error)
    if pair.qp.state is not QpState.ERROR:
        pair.of.fail(pair.qp, now)
    receive = operation in (_RECV, _RECV_INTO)
    queue = pair.recv if receive else pair.send
    deliver(program, queue, now)
    if receive:
        opcode = WcOpcode.RECV if operation == _RECV_INTO else WcOpcode.RECV_RDMA_WITH_IMM
        ended = pair.received = pair.received + 1
    else:
        opcode = _SENDS.get(operation, WcOpcode.RDMA_WRITE)
        ended = pair.sent = pair.sent + 1
    if not queue.push(wr_id, error.status, opcode, pair.number, 0, 0, 0, ended):
        overflow(program, queue, now)
