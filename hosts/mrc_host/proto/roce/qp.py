"""A queue pair of the RoCEv2 RC baseline: one path, in order, go-back-N (IBTA RoCEv2) or selective repeat.

Selective repeat is that of IRN (Mittal et al., SIGCOMM 2018): the responder keeps what comes early and answers each
such packet by a NAK that names the expected PSN and its own, here in the place of the MSN; the requestor sends again
what is missing below the highest PSN named, once, and after a timeout all that is not known to have arrived.

PSNs are unbounded integers inside and 24 bits on the wire, as in the MRC core (`wire/psn.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mrc_host.proto.completion import CompletionQueue, CompletionStatus
from mrc_host.proto.congestion.dcqcn import Dcqcn
from mrc_host.proto.events import QpState
from mrc_host.proto.memory import MemoryRegion, MemoryTable
from mrc_host.proto.roce.codec import (
    FIRST,
    LAST,
    LAST_IMM,
    MIDDLE,
    ONLY,
    ONLY_IMM,
    OVERHEAD_BYTES,
    RoceAck,
    RoceCodec,
    RoceData,
)
from mrc_host.proto.roce.rnr import rnr_delay_ns
from mrc_host.proto.timers import Timed, TimerKind
from mrc_host.proto.waiting import Waiting, numbers
from mrc_host.proto.wire.fields import Nak
from mrc_host.proto.wire.icrc import wire_length
from mrc_host.proto.wire.psn import PSN_MASK, extend
from mrc_host.proto.work import WorkQueue, WriteRequest

# AETH syndromes: the two top bits of the lower seven mean ACK, RNR NAK or NAK, the other bits give the kind.
SYNDROME_ACK: Final = 0x1F  # without end-to-end credits
SYNDROME_RNR: Final = 0x20

_ENDS = frozenset((LAST, LAST_IMM, ONLY, ONLY_IMM))
_IMMEDIATES = frozenset((LAST_IMM, ONLY_IMM))
_STARTS = frozenset((FIRST, ONLY, ONLY_IMM))

NAK_STATUS: Final[dict[int, CompletionStatus]] = {
    Nak.INVALID_REQUEST: CompletionStatus.REM_INV_REQ_ERR,
    Nak.REMOTE_ACCESS: CompletionStatus.REM_ACCESS_ERR,
    Nak.REMOTE_OPERATION: CompletionStatus.REM_OP_ERR,
}


class RoceQueuePair(Timed):
    """State of both directions. The endpoint does what needs other parts: completions, timers, sending control."""

    __slots__ = (
        "_overflowed",
        "_timed",
        "ack_every",
        "addresses",
        "asked",
        "closing",
        "cnp_at",
        "codec",
        "dcqcn",
        "deadline",
        "early",
        "entropy",
        "epsn",
        "holes",
        "holes_to",
        "home_port",
        "in_ring",
        "keeps_early",
        "max_inflight",
        "msn",
        "mtu",
        "nak_sent",
        "next_psn",
        "not_before",
        "number",
        "paced_until",
        "peer_qp",
        "port",
        "progress_ns",
        "receives",
        "recv_cq",
        "region",
        "retransmitted",
        "retries",
        "sacked",
        "selective",
        "send_cq",
        "sent_packets",
        "sent_psn",
        "start_psn",
        "state",
        "target_left",
        "target_length",
        "target_offset",
        "timeout_ns",
        "traffic_class",
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
        timeout_ns: int,
        ack_every: int,
        max_inflight: int,
        traffic_class: int,
        timed: Callable[[RoceQueuePair, int], None],
        overflowed: Callable[[RoceQueuePair], None],
        selective: bool = False,
        reorders: bool = False,
    ) -> None:
        """Create a queue pair.

        `timed(qp, now)` is called when its timer is due, `overflowed(qp)` when a queue has lost one of its completions.
        """
        self._timed, self._overflowed = timed, overflowed
        self.number = number
        self.state = QpState.RESET
        self.send_cq, self.recv_cq = send_cq, recv_cq
        self.codec, self.dcqcn = codec, dcqcn
        self.mtu, self.timeout_ns, self.ack_every = mtu, timeout_ns, ack_every
        self.max_inflight, self.traffic_class = max_inflight, traffic_class
        self.port = self.home_port = port
        self.entropy = entropy
        self.addresses = b""
        self.peer_qp = 0
        self.in_ring = False
        # Requestor: una <= next_psn <= sent_psn <= work.end.
        self.start_psn = self.una = self.next_psn = self.sent_psn = start_psn
        self.work = WorkQueue()  # its current request is the one that next_psn belongs to
        self.work.start(start_psn, mtu)
        self.deadline: int | None = None  # local ACK timeout
        self.asked = start_psn  # an acknowledgement was asked for by the packet before this one
        self.retries = 0
        self.progress_ns = 0  # since when the oldest packet on its way is waited for
        self.paced_until = 0
        self.not_before = 0  # after an RNR NAK
        self.selective = selective
        self.keeps_early = selective or reorders
        self.sacked: set[int] = set()  # above una, known to have arrived
        self.holes: deque[int] = deque()  # to be sent again
        self.holes_to = 0  # below this they have been noted
        self.sent_packets = self.retransmitted = 0
        # Responder.
        self.epsn = 0
        self.msn = 0
        self.nak_sent = False
        self.early: dict[int, RoceData] = {}  # where it is kept: what came before its turn
        self.region: MemoryRegion | None = None  # of the message that is arriving
        self.target_offset = 0
        self.target_left = -1  # bytes the current message still lacks; -1: none is arriving
        self.target_length = 0
        self.receives: deque[int] = deque()
        self.cnp_at = -(1 << 62)
        self.closing = 0  # its user is gone: how often the peer is still to be notified

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """See `timed`."""
        self._timed(self, now)

    def overflow(self, now: int) -> None:
        """Handle the overflow of a completion queue of this queue pair."""
        self._overflowed(self)

    # --- requestor ---

    def sendable(self) -> bool:
        """Return whether a packet could be built, pacing aside."""
        if self.state is not QpState.RTS:
            return False
        return bool(self.holes) or (self.next_psn < self.work.end and self.next_psn - self.una < self.max_inflight)

    def next_size(self) -> int:
        """Return an upper bound of the next packet's length."""
        if self.holes:
            return self.mtu + OVERHEAD_BYTES + 3
        request = self.work.current
        assert request is not None
        left = request.length - (self.next_psn - request.first) * self.mtu
        return min(left, self.mtu) + OVERHEAD_BYTES + 3

    def build(self, now: int) -> bytes:
        """Build the next packet in order, or one that is missing; `sendable()` must hold."""
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
        last = psn == request.last
        if index:
            opcode = MIDDLE if not last else LAST_IMM if request.is_imm else LAST
        else:
            opcode = FIRST if not last else ONLY_IMM if request.is_imm else ONLY
        ask = hole or last or index % self.ack_every == self.ack_every - 1 or psn - self.una == self.max_inflight - 1
        start = index * self.mtu
        packet = self.codec.encode_write(
            self.addresses,
            self.entropy,
            self.traffic_class,
            opcode,
            self.peer_qp,
            psn & PSN_MASK,
            ask,
            request.va,
            request.rkey,
            request.length,
            request.immediate,
            request.view[start : start + self.mtu],
        )
        if not hole:
            self.next_psn = psn + 1
            if last:
                work.next_request()
        self.sent_packets += 1
        if psn < self.sent_psn:
            self.retransmitted += 1
        else:
            if psn == self.una:  # nothing else is on its way: the waiting begins
                self.progress_ns = now
            self.sent_psn = psn + 1
        waits = self.una < self.asked
        if ask:
            self.asked = max(self.asked, psn + 1)
        if not waits and (ask or self.deadline is not None):
            self.deadline = now + self.timeout_ns
        rate = self.dcqcn
        if rate.deadline is not None:  # below line rate: pace
            self.paced_until = max(self.paced_until, now) + int(wire_length(packet) * 8e9 / rate.rate)
            rate.on_sent(wire_length(packet))
        return packet

    def acknowledge(self, psn: int, now: int) -> list[WriteRequest]:
        """Note that all PSNs below `psn` have arrived, and return the requests that this completes."""
        done: list[WriteRequest] = []
        if not self.una < psn <= self.sent_psn:
            return done
        self.una = psn
        self.retries = 0
        self.progress_ns = now
        if self.sacked:
            self.sacked = {each for each in self.sacked if each >= psn}
        if self.holes:
            self.holes = deque(each for each in self.holes if each >= psn)
        while (request := self.work.take_complete(psn - 1)) is not None:
            done.append(request)
        if self.next_psn < psn:  # packets that were to be retransmitted have arrived after all
            self.next_psn = psn
            self.work.rewind()
        # The peer answers only when asked: a packet that is paced, or waits its turn among queue pairs, is not late.
        self.deadline = now + self.timeout_ns if self.una < self.asked else None
        return done

    def missing(self, upto: int, again: bool) -> None:
        """Mark the unacknowledged packets below `upto` as missing; `again`: also those that were retransmitted
        already.
        """
        first = self.una if again else max(self.una, self.holes_to)
        if again:
            self.holes.clear()
        self.holes.extend(psn for psn in range(first, upto) if psn not in self.sacked)
        self.holes_to = max(self.holes_to, upto)

    def repair(self) -> None:
        """Retransmit after a timeout without an answer."""
        if self.selective:
            self.missing(self.next_psn, again=True)
        else:
            self.go_back()

    def go_back(self) -> None:
        """Retransmit everything from the oldest unacknowledged packet on."""
        self.holes.clear()
        self.holes_to = 0
        self.next_psn = self.asked = self.una
        self.work.rewind()

    def on_ack(self, message: RoceAck, now: int) -> tuple[list[WriteRequest], int]:
        """Return the requests completed, and the syndrome of a NAK that ends the QP (0: none)."""
        psn = extend(message.psn, self.una)
        kind = message.syndrome & 0x60
        if kind == 0:
            return self.acknowledge(psn + 1, now), 0
        # A peer whose user is gone refuses the next packet, whether or not it has been sent.
        beyond = self.sent_psn + 1 if message.syndrome == Nak.REMOTE_OPERATION else max(self.sent_psn, self.una + 1)
        if not self.una <= psn < beyond:
            return [], 0
        done = self.acknowledge(psn, now)
        if kind == SYNDROME_RNR:
            self.not_before = now + rnr_delay_ns(message.syndrome)
            # A responder that kept this packet early drops it when it refuses it.
            self.sacked.discard(psn)
            self.go_back()
        elif message.syndrome == Nak.SEQUENCE and self.selective:
            arrived = extend(message.msn, self.una)
            if self.una < arrived < self.sent_psn:
                self.sacked.add(arrived)
                self.missing(arrived, again=False)
        elif message.syndrome == Nak.SEQUENCE:
            self.go_back()
        elif message.syndrome in NAK_STATUS:
            return done, message.syndrome
        return done, 0

    def due(self, port_up: bool) -> int | None:
        """Return when `handle_timer` is due for this QP (ns), None: never. `port_up`: its port can send."""
        times = [time for time in (self.deadline, self.dcqcn.deadline) if time is not None]
        if port_up and self.sendable() and not self.in_ring:
            times.append(max(self.paced_until, self.not_before))
        return min(times, default=None)

    # --- responder ---

    def on_data(self, data: RoceData, memory: MemoryTable) -> tuple[int | None, int | None, RoceData | None]:
        """Place a packet. Returns (syndrome to answer with or None, length of a completed message or None, the packet
        whose immediate is due or None)."""
        psn = extend(data.psn, self.epsn)
        if psn < self.epsn:
            return SYNDROME_ACK, None, None
        if psn > self.epsn and self.keeps_early:
            if psn - self.epsn < self.max_inflight:
                self.early[psn] = data
                return Nak.SEQUENCE if self.selective else None, None, None
            return None, None, None
        if psn > self.epsn:
            if self.nak_sent:
                return None, None, None
            self.nak_sent = True
            return Nak.SEQUENCE, None, None
        opcode, payload = data.opcode, data.payload
        size = len(payload)
        starts, ends = opcode in _STARTS, opcode in _ENDS
        if starts != (self.target_left < 0):
            return Nak.INVALID_REQUEST, None, None
        region, offset, left = self.region, self.target_offset, self.target_left
        if starts:
            region, offset, left = memory.regions.get(data.rkey), 0, data.dma_length
            if left:
                offset = -1 if region is None or not region.writable else region.offset_of(data.va, left)
                if offset < 0:
                    return Nak.REMOTE_ACCESS, None, None
        if size != left if ends else size != self.mtu or size >= left:
            return Nak.INVALID_REQUEST, None, None
        immediate = opcode in _IMMEDIATES
        if immediate and not self.receives:
            self.nak_sent = True  # what follows is out of order until the requestor has gone back
            return SYNDROME_RNR, None, None
        if size and region is not None and not self.codec.length_only:
            region.view[offset : offset + size] = payload
        self.epsn += 1
        self.nak_sent = False
        length: int | None = None
        if ends:
            length = size if starts else self.target_length
            self.msn += 1
            self.region, self.target_left = None, -1
        else:
            if starts:
                self.target_length = left
            self.region, self.target_offset, self.target_left = region, offset + size, left - size
        return SYNDROME_ACK if data.ack_req else None, length, data if immediate else None


def waits_for(qp: RoceQueuePair, patience_ns: int) -> Waiting | None:
    """Return the wait of a RoCE queue pair; None if it has nothing to do. Changes no state."""
    if qp.state is not QpState.RTS or not qp.work.unacked:
        return None
    flying = qp.next_psn - qp.una
    wire = qp.una & PSN_MASK
    what = f"ACK of PSN {wire} on {numbers((qp.port,))}" if flying else f"its turn to send PSN {wire}"
    return Waiting(what, qp.progress_ns, wire, 1 + qp.retries, flying, (qp.port,), patience_ns)
