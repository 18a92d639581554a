"""The responder of a RoCE queue pair: SEND, WRITE and READ requests and atomics, in the order of their PSNs.

Answers leave in the order of PSNs, too: while a READ response is being sent, acknowledgements of what followed the
READ wait behind it (IBTA vol. 1 rel. 1.4, chapter 9). A READ that comes again is answered again, from the PSN that it
names. Atomic operations that come again are answered from a table of the latest ones; one that is no longer there was
completed long ago, and is ignored.

Where IBTA leaves a choice, or its text is not public, this is our reading, which Soft-RoCE shares: too many READs or
atomics under way, and atomics on an address that is no multiple of 8, are invalid requests.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final, NamedTuple

from mrc_host.proto.completion import Completion, CompletionKind, CompletionQueue, CompletionStatus
from mrc_host.proto.congestion.dcqcn import Dcqcn
from mrc_host.proto.events import ErrorReason, QpState
from mrc_host.proto.memory import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, MemoryFault, MemoryRegion, MemoryTable
from mrc_host.proto.receive import PostedReceive, Scatter, SharedReceives, resolve
from mrc_host.proto.roce import messages as wire
from mrc_host.proto.roce.codec import RoceCodec
from mrc_host.proto.roce.messages import AtomicRequest, ReadRequest, RoceData, RoceRequest
from mrc_host.proto.timers import Timed
from mrc_host.proto.wire.fields import Nak
from mrc_host.proto.wire.psn import PSN_MASK, extend

# AETH syndromes: the two top bits of the lower seven mean ACK, RNR NAK or NAK, the other bits give the kind.
SYNDROME_ACK: Final = 0x1F  # without end-to-end credits
SYNDROME_RNR: Final = 0x20

_NONE, _WRITE, _SEND = range(3)  # what is arriving
_ENDS: Final = frozenset(
    (
        wire.LAST, wire.LAST_IMM, wire.ONLY, wire.ONLY_IMM,
        wire.SEND_LAST, wire.SEND_LAST_IMM, wire.SEND_ONLY, wire.SEND_ONLY_IMM,
    )
)  # fmt: skip
_IMMEDIATES: Final = frozenset((wire.LAST_IMM, wire.ONLY_IMM, wire.SEND_LAST_IMM, wire.SEND_ONLY_IMM))
_STARTS: Final = frozenset((wire.FIRST, wire.ONLY, wire.ONLY_IMM, wire.SEND_FIRST, wire.SEND_ONLY, wire.SEND_ONLY_IMM))
_NUMBER: Final = struct.Struct("=Q")  # atomics work on numbers in the byte order of the machine
_MOST_ANSWERS: Final = 1024  # that wait; honest peers have no more requests under way
_MASK_64: Final = (1 << 64) - 1
_SUCCESS: Final = CompletionStatus.SUCCESS

#: What a packet leads to: the syndrome to answer with or None, and the completion of a receive or None.
Outcome = tuple[int | None, Completion | None]
_NOTHING: Final[Outcome] = (None, None)


class ReadJob:
    """A READ response under way; `psn` is that of its next packet, `again` says that the READ came once more."""

    __slots__ = ("again", "begun", "last", "left", "msn", "offset", "psn", "region")

    def __init__(
        self, psn: int, last: int, region: MemoryRegion | None, offset: int, left: int, msn: int, again: bool
    ) -> None:
        self.psn, self.last = psn, last
        self.region, self.offset, self.left = region, offset, left
        self.msn = msn
        self.again = again
        self.begun = False


class Answer(NamedTuple):
    """An acknowledgement that has its turn among READ responses; `original`: of an atomic operation."""

    psn: int
    syndrome: int
    msn: int
    original: int | None = None


class RoceResponder(Timed):
    """State of one direction, and what both directions share. `RoceQueuePair` adds the requestor."""

    __slots__ = (
        "access",
        "addresses",
        "arriving",
        "asked_reads",
        "cnp_at",
        "codec",
        "dcqcn",
        "domain",
        "doomed",
        "early",
        "entropy",
        "epsn",
        "keeps_early",
        "max_dest_rd_atomic",
        "max_inflight",
        "min_rnr_timer",
        "msn",
        "mtu",
        "nak_sent",
        "number",
        "peer_qp",
        "receive",
        "receives",
        "recv_cq",
        "region",
        "replays",
        "responses",
        "scatter",
        "selective",
        "srq",
        "state",
        "target_left",
        "target_length",
        "target_offset",
        "traffic_class",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - what the endpoint shares with it
        self,
        number: int,
        recv_cq: CompletionQueue,
        codec: RoceCodec,
        dcqcn: Dcqcn,
        *,
        mtu: int,
        entropy: int,
        traffic_class: int,
        max_inflight: int,
        selective: bool,
        reorders: bool,
        domain: int,
        srq: SharedReceives | None,
        min_rnr_timer: int,
        max_dest_rd_atomic: int,
    ) -> None:
        self.number = number
        self.state = QpState.RESET
        self.recv_cq = recv_cq
        self.codec, self.dcqcn = codec, dcqcn
        self.mtu, self.entropy, self.traffic_class = mtu, entropy, traffic_class
        self.max_inflight = max_inflight
        self.selective = selective
        self.keeps_early = selective or reorders
        self.domain = domain
        self.srq = srq
        self.min_rnr_timer = min_rnr_timer
        self.max_dest_rd_atomic = max_dest_rd_atomic
        self.access = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
        self.cnp_at = -(1 << 62)
        self.reset_responder()

    def reset_responder(self) -> None:
        """Forget the peer and all that it has sent."""
        self.addresses = b""
        self.peer_qp = 0
        self.epsn = 0
        self.msn = 0
        self.nak_sent = False
        self.early: dict[int, RoceRequest] = {}  # where it is kept: what came before its turn
        self.arriving = _NONE
        self.region: MemoryRegion | None = None  # of the WRITE that is arriving
        self.target_offset = 0  # of a SEND: bytes that have arrived
        self.target_left = 0  # bytes that a WRITE still lacks
        self.target_length = 0
        self.receive: PostedReceive | None = None  # of the SEND that is arriving
        self.scatter: Scatter | None = None  # its memory
        self.receives: deque[PostedReceive] = deque()
        self.responses: deque[ReadJob | Answer] = deque()  # the first one is a READ response
        self.replays: dict[int, int] = {}  # of the latest atomics by PSN: the numbers before them
        self.doomed: ErrorReason | None = None  # why it ends once the answers that wait have been sent
        self.asked_reads = False  # the peer reads from us, so that the order of answers matters

    # --- requests ---

    def on_request(self, data: RoceRequest, memory: MemoryTable) -> Outcome:
        """Place or execute a packet. READ responses and answers to atomics go to `responses`."""
        psn = extend(data.psn, self.epsn)
        if psn < self.epsn:
            return self._again(data, psn, memory)
        if psn > self.epsn and self.keeps_early:
            if psn - self.epsn < self.max_inflight:
                self.early[psn] = data
                return Nak.SEQUENCE if self.selective else None, None
            return _NOTHING
        if psn > self.epsn:
            if self.nak_sent:
                return _NOTHING
            self.nak_sent = True
            return Nak.SEQUENCE, None
        if isinstance(data, RoceData):
            return self._on_send(data, memory) if data.opcode < wire.FIRST else self._on_write(data, memory)
        if self.arriving:
            return Nak.INVALID_REQUEST, None
        self.asked_reads = True
        return self._on_read(data, psn, memory) if isinstance(data, ReadRequest) else self._on_atomic(data, psn, memory)

    def _find(self, memory: MemoryTable, rkey: int, right: int, va: int, size: int) -> tuple[MemoryRegion, int] | None:
        """Return the region and the offset in it that a peer names; None if the peer has not this right."""
        region = memory.regions.get(rkey)
        if region is None or region.domain != self.domain or not region.access & self.access & right:
            return None
        offset = region.offset_of(va, size)
        return None if offset < 0 else (region, offset)

    def _waiting(self) -> deque[PostedReceive]:
        return self.receives if self.srq is None else self.srq.receives

    def _received(
        self,
        receive: PostedReceive,
        kind: CompletionKind,
        length: int,
        data: RoceData,
        status: CompletionStatus = _SUCCESS,
    ) -> Completion:
        immediate = data.immediate if data.opcode in _IMMEDIATES else None
        return Completion(receive.wr_id, self.number, kind, status, length, immediate, data.solicited)

    def _on_write(self, data: RoceData, memory: MemoryTable) -> Outcome:
        opcode, payload = data.opcode, data.payload
        size = len(payload)
        starts, ends = opcode in _STARTS, opcode in _ENDS
        if self.arriving != (_NONE if starts else _WRITE):
            return Nak.INVALID_REQUEST, None
        region, offset, left = self.region, self.target_offset, self.target_left
        if starts:
            region, offset, left = None, 0, data.dma_length
            if left:
                found = self._find(memory, data.rkey, REMOTE_WRITE, data.va, left)
                if found is None:
                    return Nak.REMOTE_ACCESS, None
                region, offset = found
        if size != left if ends else size != self.mtu or size >= left:
            return Nak.INVALID_REQUEST, None
        immediate = opcode in _IMMEDIATES
        if immediate and not self._waiting():
            self.nak_sent = True  # what follows is out of order until the requestor has gone back
            return SYNDROME_RNR, None
        if size and region is not None and not self.codec.length_only and not region.write(offset, payload):
            return Nak.REMOTE_OPERATION, None
        self.epsn += 1
        self.nak_sent = False
        done: Completion | None = None
        if ends:
            self.msn += 1
            self.region, self.arriving = None, _NONE
            if immediate:
                length = size if starts else self.target_length
                done = self._received(self._waiting().popleft(), CompletionKind.RECV_IMM, length, data)
        else:
            if starts:
                self.target_length = left
                self.arriving = _WRITE
            self.region, self.target_offset, self.target_left = region, offset + size, left - size
        return SYNDROME_ACK if data.ack_req else None, done

    def _on_send(self, data: RoceData, memory: MemoryTable) -> Outcome:
        opcode, payload = data.opcode, data.payload
        size = len(payload)
        starts, ends = opcode in _STARTS, opcode in _ENDS
        if self.arriving != (_NONE if starts else _SEND):
            return Nak.INVALID_REQUEST, None
        if size > self.mtu or (size < self.mtu and not ends) or (ends and not starts and not size):
            return Nak.INVALID_REQUEST, None
        if starts:
            waiting = self._waiting()
            if not waiting:
                self.nak_sent = True
                return SYNDROME_RNR, None
            self.receive = waiting.popleft()
            self.target_offset = 0
            try:
                self.scatter = resolve(
                    self.receive.elements, memory, self.domain if self.srq is None else self.srq.domain
                )
            except MemoryFault:
                return self._spoilt(data, Nak.REMOTE_OPERATION, CompletionStatus.LOC_PROT_ERR)
        assert self.receive is not None
        assert self.scatter is not None
        at = self.target_offset
        if at + size > self.scatter.length:
            return self._spoilt(data, Nak.INVALID_REQUEST, CompletionStatus.LOC_LEN_ERR)
        if size and not self.codec.length_only:
            try:
                self.scatter.write(at, payload)
            except MemoryFault:
                return self._spoilt(data, Nak.REMOTE_OPERATION, CompletionStatus.LOC_PROT_ERR)
        self.epsn += 1
        self.nak_sent = False
        self.target_offset = at + size
        done: Completion | None = None
        if ends:
            self.msn += 1
            done = self._received(self.receive, CompletionKind.RECV, at + size, data)
            self.receive = self.scatter = None
            self.arriving = _NONE
        else:
            self.arriving = _SEND
        return SYNDROME_ACK if data.ack_req else None, done

    def _spoilt(self, data: RoceData, nak: Nak, status: CompletionStatus) -> Outcome:
        """Return the outcome of a SEND whose receive cannot take it."""
        receive, self.receive = self.receive, None
        assert receive is not None
        return nak, self._received(receive, CompletionKind.RECV, 0, data, status)

    def _on_read(self, data: ReadRequest, psn: int, memory: MemoryTable) -> Outcome:
        under_way = sum(isinstance(each, ReadJob) and not each.again for each in self.responses)
        if under_way >= self.max_dest_rd_atomic:
            return Nak.INVALID_REQUEST, None
        job = self._job(data, psn, memory, self.msn + 1, again=False)
        if job is None:
            return Nak.REMOTE_ACCESS, None
        self.epsn = job.last + 1
        self.msn += 1
        self.nak_sent = False
        self.responses.append(job)
        return _NOTHING

    def _job(self, data: ReadRequest, psn: int, memory: MemoryTable, msn: int, *, again: bool) -> ReadJob | None:
        size = data.dma_length
        last = psn + (-(-size // self.mtu) or 1) - 1
        if not size:
            return ReadJob(psn, last, None, 0, 0, msn, again)
        found = self._find(memory, data.rkey, REMOTE_READ, data.va, size)
        return None if found is None else ReadJob(psn, last, *found, size, msn, again)

    def _on_atomic(self, data: AtomicRequest, psn: int, memory: MemoryTable) -> Outcome:
        if data.va & 7 or not self.max_dest_rd_atomic:
            return Nak.INVALID_REQUEST, None
        found = self._find(memory, data.rkey, REMOTE_ATOMIC, data.va, _NUMBER.size)
        if found is None:
            return Nak.REMOTE_ACCESS, None
        original = 0
        if not self.codec.length_only:
            region, offset = found
            try:
                (original,) = _NUMBER.unpack(region.read(offset, _NUMBER.size))
            except MemoryFault:
                return Nak.REMOTE_OPERATION, None
            changed = data.swap_or_add if data.opcode == wire.COMPARE_SWAP else original + data.swap_or_add & _MASK_64
            if (data.opcode == wire.FETCH_ADD or original == data.compare) and not region.write(
                offset, _NUMBER.pack(changed)
            ):
                return Nak.REMOTE_OPERATION, None
        self.epsn += 1
        self.msn += 1
        self.nak_sent = False
        self.replays[psn] = original
        if len(self.replays) > self.max_dest_rd_atomic:
            del self.replays[next(iter(self.replays))]
        self.responses.append(Answer(psn, SYNDROME_ACK, self.msn, original))
        return _NOTHING

    def _again(self, data: RoceRequest, psn: int, memory: MemoryTable) -> Outcome:
        """Handle a request that has been executed: its answer may have been lost."""
        if isinstance(data, RoceData):
            return SYNDROME_ACK, None
        if isinstance(data, AtomicRequest):
            original = self.replays.get(psn)
            if original is not None:
                self._insert(Answer(psn, SYNDROME_ACK, self.msn, original), psn)
            return _NOTHING
        job = self._job(data, psn, memory, self.msn, again=True)
        if job is None:
            return Nak.REMOTE_ACCESS, None
        if job.last < self.epsn and len(self.responses) < _MOST_ANSWERS:
            self._insert(job, job.last)
        return _NOTHING

    def _insert(self, answer: ReadJob | Answer, last: int) -> None:
        """Put an answer in the place of its PSN; it replaces one to the same request."""
        kept = [each for each in self.responses if not (answer.psn <= _last(each) <= last and _repeats(each, answer))]
        at = next((index for index, each in enumerate(kept) if each.psn > answer.psn), len(kept))
        self.responses = deque([*kept[:at], answer, *kept[at:]])

    # --- answers ---

    def defer(self, psn: int, syndrome: int, msn: int) -> None:
        """Let an acknowledgement wait behind the READ responses under way; one ACK stands for those before it."""
        last = self.responses[-1]
        if isinstance(last, Answer) and last.syndrome == syndrome == SYNDROME_ACK and last.original is None:
            self.responses.pop()
        if len(self.responses) < _MOST_ANSWERS:
            self.responses.append(Answer(psn, syndrome, msn))

    def take_answer(self) -> Answer | None:
        """Return the next answer, if it is no READ response; call until there is none."""
        if self.responses and isinstance(self.responses[0], Answer):
            return self.responses.popleft()  # type: ignore[return-value]
        return None

    def build_response(self, memory: MemoryTable) -> bytes:
        """Build the next packet of a READ response.

        Raises:
            MemoryFault: the region is no longer registered, or its memory is gone.
        """
        job = self.responses[0]
        assert isinstance(job, ReadJob)
        payload: bytes | memoryview = b""
        size = min(job.left, self.mtu)
        if job.region is not None:
            if memory.regions.get(job.region.rkey) is not job.region:
                raise MemoryFault(f"the memory region {job.region.rkey:#010x} is no longer registered")
            payload = job.region.read(job.offset, size)
        last = job.psn == job.last
        if job.begun:
            opcode = wire.RESPONSE_LAST if last else wire.RESPONSE_MIDDLE
        else:
            opcode = wire.RESPONSE_ONLY if last else wire.RESPONSE_FIRST
        packet = self.codec.encode_response(
            self.addresses, self.entropy, self.traffic_class, opcode, self.peer_qp, job.psn & PSN_MASK, SYNDROME_ACK,
            job.msn, payload,
        )  # fmt: skip
        job.begun = True
        job.psn += 1
        job.offset += size
        job.left -= size
        if last:
            self.responses.popleft()
        return packet

    def flush_receives(self) -> list[PostedReceive]:
        """Forget and return the receives of this queue pair; those of a shared queue stay there."""
        flushed = [] if self.receive is None else [self.receive]
        flushed.extend(self.receives)
        self.receives.clear()
        self.receive = self.scatter = None
        return flushed


def _last(answer: ReadJob | Answer) -> int:
    return answer.last if isinstance(answer, ReadJob) else answer.psn


def _repeats(each: ReadJob | Answer, answer: ReadJob | Answer) -> bool:
    """Return whether two answers to PSNs of one request are the same one."""
    if isinstance(each, ReadJob) or isinstance(answer, ReadJob):
        return isinstance(each, ReadJob) and isinstance(answer, ReadJob)
    return each.original is not None and answer.original is not None
