"""A queue pair of RoCEv2's reliable connection: one path, in order, go-back-N (IBTA) or selective repeat.

Selective repeat is that of IRN (Mittal et al., SIGCOMM 2018): the responder keeps what comes early and answers each
such packet by a NAK that names the expected PSN and its own, here in the place of the MSN; the requestor sends again
what is missing below the highest PSN named, once, and after a timeout all that is not known to have arrived.

READ and atomic requests complete by their answers alone (IBTA vol. 1 rel. 1.4, chapter 9). Acknowledgements of later
requests may overtake a READ response, since switches send control packets first: they count once the answers before
them have come. A response packet that is missing is asked for again by a READ that begins with its PSN.

PSNs are unbounded integers inside and 24 bits on the wire, as in the MRC core (`wire/psn.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mrc_host.proto.completion import CompletionKind, CompletionQueue, CompletionStatus
from mrc_host.proto.congestion.dcqcn import Dcqcn
from mrc_host.proto.events import QpState
from mrc_host.proto.memory import MemoryFault, MemoryTable, Source
from mrc_host.proto.receive import Scatter, SharedReceives
from mrc_host.proto.roce import messages as wire
from mrc_host.proto.roce.codec import RoceCodec
from mrc_host.proto.roce.messages import OVERHEAD_BYTES, AtomicAck, ReadResponse, RoceAck
from mrc_host.proto.roce.responder import SYNDROME_RNR, ReadJob, RoceResponder
from mrc_host.proto.timers import TimerKind
from mrc_host.proto.waiting import Waiting, numbers
from mrc_host.proto.wire.fields import Nak
from mrc_host.proto.wire.icrc import wire_length
from mrc_host.proto.wire.psn import PSN_MASK, extend

TIMER_MASK: Final = 0x1F
_HUNDREDTHS_MS: Final = (
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
)  # fmt: skip


def rnr_delay_ns(syndrome: int) -> int:
    """Return the time in ns that the timer code of an RNR NAK's syndrome stands for."""
    return _HUNDREDTHS_MS[syndrome & TIMER_MASK] * 10_000


ATOMIC_BYTES: Final = 8
NOTHING: Final = memoryview(b"")
_ANSWERED: Final = (CompletionKind.READ, CompletionKind.COMPARE_SWAP, CompletionKind.FETCH_ADD)


class RoceRequest:
    """One posted request. `first` and `last` are its PSNs.

    `view` is what is sent, `target` where the answer of a READ or atomic operation goes. `answers`: it completes by
    such an answer, which may have come (`answered`) before those of earlier requests. A `fence` waits for all of these.
    """

    __slots__ = (
        "answered", "answers", "compare", "fence", "first", "immediate", "is_imm", "kind", "last", "length", "rkey",
        "solicited", "swap_or_add", "target", "va", "view", "wr_id",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - the fields of a work request
        self,
        kind: CompletionKind,
        wr_id: int,
        length: int,
        *,
        view: Source = NOTHING,
        target: Scatter | None = None,
        va: int = 0,
        rkey: int = 0,
        immediate: int | None = None,
        solicited: bool = False,
        fence: bool = False,
        swap_or_add: int = 0,
        compare: int = 0,
    ) -> None:
        self.kind = kind
        self.wr_id = wr_id
        self.length = length
        self.view = view
        self.target = target
        self.va = va
        self.rkey = rkey
        self.is_imm = immediate is not None
        self.immediate = immediate or 0
        self.solicited = solicited
        self.fence = fence
        self.swap_or_add = swap_or_add
        self.compare = compare
        self.answers = kind in _ANSWERED
        self.answered = False
        self.first = self.last = 0


class RoceWork:
    """The requests of one queue pair in posting order: those to be sent, and those that have not completed.

    `current` is being sent; `unacked` are all that have not completed, the current one among them. `answering` counts
    those of them that complete by an answer, `fences` those with a fence.
    """

    __slots__ = ("_mtu", "_queue", "answering", "current", "end", "fences", "unacked")

    def __init__(self, first_psn: int, mtu: int) -> None:
        """Create an empty queue whose first request has this PSN; `mtu` is that of the path."""
        self.unacked: deque[RoceRequest] = deque()
        self._queue: deque[RoceRequest] = deque()
        self.current: RoceRequest | None = None
        self.end = first_psn  # PSN at which the next request to be posted begins
        self._mtu = mtu
        self.answering = self.fences = 0

    def post(self, request: RoceRequest) -> None:
        """Queue a request with the next number."""
        packets = 1 if request.kind in _ANSWERED[1:] else -(-request.length // self._mtu) or 1
        request.first = self.end
        request.last = request.first + packets - 1
        self.end = request.last + 1
        self.answering += request.answers
        self.fences += request.fence
        self.unacked.append(request)
        if self.current is None:
            self.current = request
        else:
            self._queue.append(request)

    def next_request(self) -> None:
        """Go to the next request, since all of the current one has been sent."""
        self.current = self._queue.popleft() if self._queue else None

    def rewind(self, psn: int) -> None:
        """Go back to the request that has this PSN."""
        self._queue = deque(each for each in self.unacked if each.last >= psn)
        self.next_request()

    def at(self, psn: int) -> RoceRequest | None:
        """Return the request that has this PSN; None if it has completed."""
        for request in self.unacked:
            if request.last >= psn:
                return request if request.first <= psn else None
        return None

    def take_complete(self, psn: int) -> RoceRequest | None:
        """Return the oldest request, if all up to `psn` has been answered and it ends there; call until there is
        none."""
        unacked = self.unacked
        if not unacked or unacked[0].last > psn:
            return None
        request = unacked.popleft()
        self.answering -= request.answers
        self.fences -= request.fence
        return request

    def flush(self) -> list[RoceRequest]:
        """Forget and return all that have not completed."""
        self._queue.clear()
        self.current = None
        self.answering = self.fences = 0
        requests = list(self.unacked)
        self.unacked.clear()
        return requests


NAK_STATUS: Final[dict[int, CompletionStatus]] = {
    Nak.INVALID_REQUEST: CompletionStatus.REM_INV_REQ_ERR,
    Nak.REMOTE_ACCESS: CompletionStatus.REM_ACCESS_ERR,
    Nak.REMOTE_OPERATION: CompletionStatus.REM_OP_ERR,
    SYNDROME_RNR: CompletionStatus.RNR_RETRY_EXC_ERR,
}
RETRY_FOR_EVER: Final = 7  # of rnr_retry
_OPEN: Final = (QpState.RTR, QpState.RTS)
_SENDS: Final = {
    (False, False, False): wire.SEND_MIDDLE, (True, False, False): wire.SEND_FIRST,
    (False, True, False): wire.SEND_LAST, (False, True, True): wire.SEND_LAST_IMM,
    (True, True, False): wire.SEND_ONLY, (True, True, True): wire.SEND_ONLY_IMM,
}  # fmt: skip
_SEND, _READ = CompletionKind.SEND, CompletionKind.READ
_SWAP, _ADD = CompletionKind.COMPARE_SWAP, CompletionKind.FETCH_ADD


class LocalFault(Exception):
    """Memory of a request of ours cannot be reached: it ends the queue pair."""

    def __init__(self, request: RoceRequest) -> None:
        super().__init__(request.wr_id)
        self.request = request


class RoceQueuePair(RoceResponder):
    """State of both directions. The endpoint does what needs other parts: completions, timers, sending control."""

    __slots__ = (
        "_overflowed",
        "_timed",
        "ack_every",
        "acked",
        "asked",
        "closing",
        "deadline",
        "fatal",
        "holes",
        "holes_to",
        "home_port",
        "in_ring",
        "max_rd_atomic",
        "next_psn",
        "not_before",
        "paced_until",
        "port",
        "progress_ns",
        "reads",
        "restarted",
        "retransmitted",
        "retries",
        "retry_cnt",
        "rnr_retry",
        "rnr_tries",
        "sacked",
        "send_cq",
        "sent_packets",
        "sent_psn",
        "start_psn",
        "timeout",
        "timeout_ns",
        "una",
        "work",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - what the endpoint shares with it
        self,
        number: int,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        codec: RoceCodec,
        dcqcn: Dcqcn,
        *,
        mtu: int,
        start_psn: int,
        port: int,
        entropy: int,
        timeout: int,
        ack_every: int,
        max_inflight: int,
        traffic_class: int,
        timed: Callable[[RoceQueuePair, int], None],
        overflowed: Callable[[RoceQueuePair], None],
        selective: bool = False,
        reorders: bool = False,
        domain: int = 0,
        srq: SharedReceives | None = None,
        min_rnr_timer: int = 0,
        retry_cnt: int = 7,
        rnr_retry: int = RETRY_FOR_EVER,
        max_rd_atomic: int = 1,
        max_dest_rd_atomic: int = 1,
    ) -> None:
        """Create a queue pair.

        `timed(qp, now)` is called when its timer is due, `overflowed(qp)` when a queue has lost one of its completions.
        """
        super().__init__(
            number,
            recv_cq,
            codec,
            dcqcn,
            mtu=mtu,
            entropy=entropy,
            traffic_class=traffic_class,
            max_inflight=max_inflight,
            selective=selective,
            reorders=reorders,
            domain=domain,
            srq=srq,
            min_rnr_timer=min_rnr_timer,
            max_dest_rd_atomic=max_dest_rd_atomic,
        )
        self._timed, self._overflowed = timed, overflowed
        self.send_cq = send_cq
        self.timeout = timeout
        self.timeout_ns: int | None = 1024 << timeout  # None: for ever
        self.ack_every = ack_every
        self.retry_cnt, self.rnr_retry, self.max_rd_atomic = retry_cnt, rnr_retry, max_rd_atomic
        self.port = self.home_port = port
        self.in_ring = False
        self.sent_packets = self.retransmitted = 0
        self.closing = 0  # its user is gone: how often the peer is still to be notified
        self.start(start_psn)

    def start(self, start_psn: int) -> None:
        """Begin with this PSN, without requests."""
        # una <= next_psn <= sent_psn <= work.end.
        self.start_psn = self.una = self.next_psn = self.sent_psn = start_psn
        self.acked = start_psn  # the peer has executed all below, whether or not its answers have come
        self.work = RoceWork(start_psn, self.mtu)  # its current request is the one that next_psn belongs to
        self.deadline: int | None = None  # local ACK timeout
        self.asked = start_psn  # an acknowledgement was asked for by the packet before this one
        self.retries = self.rnr_tries = 0
        self.reads = 0  # READs and atomics under way
        self.restarted = -1  # READ responses were asked for again from here on
        self.fatal: tuple[int, int] | None = None  # PSN and syndrome of a NAK, while answers before it are waited for
        self.progress_ns = 0  # since when the oldest packet on its way is waited for
        self.paced_until = 0
        self.not_before = 0  # after an RNR NAK
        self.sacked: set[int] = set()  # above una, known to have arrived
        self.holes: deque[int] = deque()  # to be sent again
        self.holes_to = 0  # below this they have been noted

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """See `timed`."""
        self._timed(self, now)

    def overflow(self, now: int) -> None:
        """Handle the overflow of a completion queue of this queue pair."""
        self._overflowed(self)

    # --- sending ---

    def sendable(self) -> bool:
        """Return whether a packet could be built, pacing aside."""
        if self.responses and self.state in _OPEN:
            return True
        if self.state is not QpState.RTS:
            return False
        if self.holes:
            return True
        if self.next_psn >= self.work.end or self.next_psn - self.una >= self.max_inflight:
            return False
        return not (self.work.answering or self.work.fences) or self._may_begin()

    def _may_begin(self) -> bool:
        """Return whether the next request need not wait for answers to earlier ones."""
        request = self.work.current
        assert request is not None
        if self.next_psn > request.first:  # the rest of what has begun
            return True
        if request.fence and self.reads:
            return False
        return not request.answers or self.reads < self.max_rd_atomic

    def ready_at(self) -> int:
        """Return when the next packet may go (ns)."""
        return self.paced_until if self.responses else max(self.paced_until, self.not_before)

    def next_size(self) -> int:
        """Return an upper bound of the next packet's length."""
        if self.responses:
            job = self.responses[0]
            return min(job.left if isinstance(job, ReadJob) else 0, self.mtu) + OVERHEAD_BYTES + 3
        if self.holes:
            return self.mtu + OVERHEAD_BYTES + 3
        request = self.work.current
        assert request is not None
        left = 0 if request.answers else request.length - (self.next_psn - request.first) * self.mtu
        return min(left, self.mtu) + OVERHEAD_BYTES + 3

    def build(self, now: int, memory: MemoryTable) -> bytes:
        """Build the next packet in order, or one that is missing; `sendable()` must hold.

        Raises:
            MemoryFault: of a READ response.
            LocalFault: of a request.
        """
        packet = self.build_response(memory) if self.responses else self._build_request(now)
        self.sent_packets += 1
        rate = self.dcqcn
        if rate.deadline is not None:  # below line rate: pace
            self.paced_until = max(self.paced_until, now) + int(wire_length(packet) * 8e9 / rate.rate)
            rate.on_sent(wire_length(packet))
        return packet

    def _build_request(self, now: int) -> bytes:
        work = self.work
        hole = bool(self.holes)
        if hole:
            psn = self.holes.popleft()
            request = next(each for each in work.unacked if each.last >= psn)
        else:
            assert work.current is not None
            request = work.current
            psn = self.next_psn
        index = psn - request.first
        last = request.answers or psn == request.last
        upto = request.last + 1 if request.answers else psn + 1
        ask = hole or last or index % self.ack_every == self.ack_every - 1 or psn - self.una == self.max_inflight - 1
        try:
            packet = self._packet(request, psn, index, last, ask)
        except MemoryFault as error:
            raise LocalFault(request) from error
        if not hole:
            self.next_psn = upto
            if last:
                work.next_request()
            if request.answers:
                self._count_reads()
        if psn < self.sent_psn:
            self.retransmitted += 1
        else:
            if psn == self.una:  # nothing else is on its way: the waiting begins
                self.progress_ns = now
            self.sent_psn = upto
        waits = self.una < self.asked
        if ask:
            self.asked = max(self.asked, upto)
        if not waits and (ask or self.deadline is not None):
            self.deadline = self.patience(now)
        return packet

    def _packet(self, request: RoceRequest, psn: int, index: int, last: bool, ask: bool) -> bytes:
        start = index * self.mtu
        wire_psn = psn & PSN_MASK
        if request.kind is _READ:
            return self.codec.encode_read(
                self.addresses, self.entropy, self.traffic_class, self.peer_qp, wire_psn, request.va + start,
                request.rkey, request.length - start,
            )  # fmt: skip
        if request.answers:
            return self.codec.encode_atomic(
                self.addresses, self.entropy, self.traffic_class,
                wire.COMPARE_SWAP if request.kind is _SWAP else wire.FETCH_ADD, self.peer_qp, wire_psn, request.va,
                request.rkey, request.swap_or_add, request.compare,
            )  # fmt: skip
        payload = request.view[start : start + self.mtu]
        solicited = int(last and request.solicited)
        if request.kind is _SEND:
            opcode = _SENDS[not index, last, last and request.is_imm]
            return self.codec.encode_send(
                self.addresses, self.entropy, self.traffic_class, opcode, self.peer_qp, wire_psn, ask,
                request.immediate, payload, solicited,
            )  # fmt: skip
        if index:
            opcode = wire.MIDDLE if not last else wire.LAST_IMM if request.is_imm else wire.LAST
        else:
            opcode = wire.FIRST if not last else wire.ONLY_IMM if request.is_imm else wire.ONLY
        return self.codec.encode_write(
            self.addresses, self.entropy, self.traffic_class, opcode, self.peer_qp, wire_psn, ask, request.va,
            request.rkey, request.length, request.immediate, payload, solicited,
        )  # fmt: skip

    def patience(self, now: int) -> int | None:
        """Return when an answer that is waited for from now on is late; None: never."""
        return None if self.timeout_ns is None else now + self.timeout_ns

    # --- answers ---

    def acknowledge(self, psn: int, now: int) -> list[RoceRequest]:
        """Note that all PSNs below `psn` have been answered, and return the requests that this completes."""
        done: list[RoceRequest] = []
        if not self.una < psn <= self.sent_psn:
            return done
        self.una = psn
        self.retries = self.rnr_tries = 0
        self.progress_ns = now
        if self.sacked:
            self.sacked = {each for each in self.sacked if each >= psn}
        if self.holes:
            self.holes = deque(each for each in self.holes if each >= psn)
        while (request := self.work.take_complete(psn - 1)) is not None:
            done.append(request)
        if self.next_psn < psn:  # packets that were to be retransmitted have arrived after all
            self.next_psn = psn
            self.work.rewind(psn)
        if self.reads:
            self._count_reads()
        # The peer answers only when asked: a packet that is paced, or waits its turn among queue pairs, is not late.
        # What it has executed without an answer having come is late at some time.
        self.deadline = self.patience(now) if self.una < self.asked or self.una < self.acked else None
        return done

    def _count_reads(self) -> None:
        """Count the READs and atomics that have been sent and not answered."""
        self.reads = sum(
            each.answers and not each.answered and each.first < self.next_psn for each in self.work.unacked
        )

    def _executed(self, psn: int, now: int) -> list[RoceRequest]:
        """Note that the peer has executed all below `psn`; what waits for an answer, and all after it, does not
        complete by that."""
        if not self.work.answering:
            return self.acknowledge(psn, now)
        if psn <= self.sent_psn:
            self.acked = max(self.acked, psn)
        upto = self.acked
        for request in self.work.unacked:
            if request.first >= upto:
                break
            if request.answers and not request.answered:
                upto = max(request.first, self.una)
                break
        return self.acknowledge(upto, now)

    def missing(self, upto: int, again: bool) -> None:
        """Mark the unacknowledged packets below `upto` as missing; `again`: also those that were retransmitted
        already.
        """
        first = self.una if again else max(self.una, self.holes_to)
        if again:
            self.holes.clear()
            # It has not been answered: a responder that kept it early may have dropped it for lack of a receive.
            self.sacked.discard(self.una)
        if self.work.answering:
            self.holes.extend(self._unanswered(first, upto, again))
        else:
            self.holes.extend(psn for psn in range(first, upto) if psn not in self.sacked)
        self.holes_to = max(self.holes_to, upto)

    def _unanswered(self, first: int, upto: int, again: bool) -> list[int]:
        """Return the PSNs of packets of requests from `first` up to `upto` that may have been lost; a READ is one
        packet."""
        found: list[int] = []
        for request in self.work.unacked:
            if request.first >= upto:
                break
            if not request.answers:
                psns = range(max(request.first, first, self.acked), min(request.last + 1, upto))
                found += [psn for psn in psns if psn not in self.sacked]
                continue
            psn = max(request.first, self.una)
            if not request.answered and psn >= first and (again or (psn not in self.sacked and psn >= self.acked)):
                found.append(psn)
        return found

    def repair(self) -> None:
        """Retransmit after a timeout without an answer."""
        if self.selective:
            self.missing(self.next_psn, again=True)
        else:
            self.go_back(self.una)

    def go_back(self, psn: int) -> None:
        """Retransmit everything from `psn` on."""
        self.holes.clear()
        self.holes_to = 0
        self.next_psn = self.asked = psn
        self.work.rewind(psn)
        if self.work.answering:
            self._count_reads()

    def on_ack(self, message: RoceAck, now: int) -> tuple[list[RoceRequest], int]:
        """Return the requests completed, and the syndrome of a NAK that ends the QP (0: none)."""
        psn = extend(message.psn, self.una)
        kind = message.syndrome & 0x60
        if kind == 0:
            return self._executed(psn + 1, now), 0
        # A peer whose user is gone refuses the next packet, whether or not it has been sent.
        beyond = self.sent_psn + 1 if message.syndrome == Nak.REMOTE_OPERATION else max(self.sent_psn, self.una + 1)
        if not self.una <= psn < beyond:
            return [], 0
        done = self._executed(psn, now)
        if kind == SYNDROME_RNR:
            if self.rnr_retry != RETRY_FOR_EVER:
                if self.rnr_tries >= self.rnr_retry:
                    return done, self._refused(psn, SYNDROME_RNR)
                self.rnr_tries += 1
            self.not_before = now + rnr_delay_ns(message.syndrome)
            # A responder that kept this packet early drops it when it refuses it.
            self.sacked.discard(psn)
            self.go_back(psn)
        elif message.syndrome == Nak.SEQUENCE and self.selective:
            arrived = extend(message.msn, self.una)
            if self.una < arrived < self.sent_psn:
                self.sacked.add(arrived)
                self.missing(arrived, again=False)
        elif message.syndrome == Nak.SEQUENCE:
            self.go_back(psn)
        elif message.syndrome in NAK_STATUS:
            return done, self._refused(psn, message.syndrome)
        return done, 0

    def _refused(self, psn: int, syndrome: int) -> int:
        """Return the syndrome that ends the queue pair, or 0 while answers to earlier requests are on their way."""
        if psn > self.una:
            self.fatal = psn, syndrome
            return 0
        return syndrome

    def on_response(self, message: ReadResponse | AtomicAck, now: int) -> tuple[list[RoceRequest], int]:
        """Take an answer to a READ or an atomic operation; return as `on_ack` does.

        Raises:
            LocalFault: its bytes cannot be placed.
        """
        psn = extend(message.psn, self.una)
        request = self.work.at(psn) if self.una <= psn < self.sent_psn else None
        if request is None or not request.answers or request.answered:
            return [], 0
        if isinstance(message, AtomicAck):
            if request.kind is _READ:
                return [], 0
            self._place(request, 0, message.original.to_bytes(8, "little" if _LITTLE else "big"))
            request.answered = True
            if self.holes:
                self.holes = deque(each for each in self.holes if each != psn)
            if self.reads:
                self._count_reads()
            return self._concluded(self._executed(psn + 1, now))
        start = (psn - request.first) * self.mtu
        size = min(request.length - start, self.mtu)
        ends = message.opcode in (wire.RESPONSE_LAST, wire.RESPONSE_ONLY)
        if request.kind is not _READ or len(message.payload) != size or ends != (psn == request.last):
            return [], 0  # no answer to this request
        done = self._executed(request.first, now)
        if psn != self.una:  # others before it are missing
            self._ask_again()
            return done, 0
        self._place(request, start, message.payload)
        if ends:
            request.answered = True
            self.acked = max(self.acked, psn + 1)
            done += self._executed(psn + 1, now)
        else:
            done += self.acknowledge(psn + 1, now)
        return self._concluded(done)

    def _concluded(self, done: list[RoceRequest]) -> tuple[list[RoceRequest], int]:
        if self.fatal is not None and self.fatal[0] <= self.una:
            return done, self.fatal[1]
        return done, 0

    def _place(self, request: RoceRequest, at: int, payload: bytes | memoryview) -> None:
        if request.target is None or self.codec.length_only:
            return
        try:
            request.target.write(at, payload)
        except MemoryFault as error:
            raise LocalFault(request) from error

    def _ask_again(self) -> None:
        """Ask again for the answers that have not come, once: until the next one comes, or the timeout."""
        if self.restarted == self.una:
            return
        self.restarted = self.una
        held = set(self.holes)
        for request in self.work.unacked:
            if request.first >= self.next_psn:
                break
            psn = max(request.first, self.una)
            if request.answers and not request.answered and psn not in held:
                self.holes.append(psn)
        self.holes = deque(sorted(self.holes))

    def due(self, port_up: bool) -> int | None:
        """Return when `handle_timer` is due for this QP (ns), None: never. `port_up`: its port can send."""
        times = [time for time in (self.deadline, self.dcqcn.deadline) if time is not None]
        if port_up and self.sendable() and not self.in_ring:
            times.append(self.ready_at())
        return min(times, default=None)


_LITTLE: Final = memoryview(b"\1\0").cast("H")[0] == 1  # the byte order of this machine


def waits_for(qp: RoceQueuePair, patience_ns: int) -> Waiting | None:
    """Return the wait of a RoCE queue pair; None if it has nothing to do. Changes no state."""
    if qp.state is not QpState.RTS or not qp.work.unacked:
        return None
    flying = qp.next_psn - qp.una
    first = qp.una & PSN_MASK
    what = f"ACK of PSN {first} on {numbers((qp.port,))}" if flying else f"its turn to send PSN {first}"
    return Waiting(what, qp.progress_ns, first, 1 + qp.retries, flying, (qp.port,), patience_ns)
