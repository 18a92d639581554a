"""The requestor: segmentation, sending, acknowledgement, loss and retransmission (`mrc-protocol.md §4, §5`).

`emit` and `on_sack` are the data path. They trade some tidiness for speed: attributes are bound to locals and
the common case (a new packet on a GOOD EV; a SACK for one packet in order) takes no other call than it must.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mrc_host.proto.completion import Completion, CompletionKind, CompletionQueue, CompletionStatus
from mrc_host.proto.congestion.inflight import InflightAccount, nominal_size
from mrc_host.proto.events import ErrorReason
from mrc_host.proto.paths.ev import EvInput
from mrc_host.proto.reliability.recovery import Recovery
from mrc_host.proto.reliability.scoreboard import ACKED, IN_FLIGHT, LOST, REPLACED, LossReason, Scoreboard, Transmission
from mrc_host.proto.stats import RequestorCounters
from mrc_host.proto.timers import TimerKind
from mrc_host.proto.wire.fields import Opcode
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_RTX, NO_TIMESTAMP, Ack, Sack
from mrc_host.proto.wire.psn import MPR_UNIT, PSN_HALF, PSN_MASK, extend

if TYPE_CHECKING:
    from mrc_host.proto.reliability.qp import QueuePair

# What `emit` returns when it sends nothing.
IDLE: Final = 0  # nothing that may go before a SACK, a post or a timer
WINDOW: Final = 1  # the congestion window is closed
PORT: Final = 2  # not on this port now; perhaps on another one
AHEAD: Final = 3  # this port has carried more to the peer than the others: let them catch up
BUDGET: Final = 4  # the packet does not fit the port's room

_MAX_TAIL_DOUBLINGS: Final = 20
_SMALL_WINDOW_PACKETS: Final = 8
_NAK_REASONS: Final = {
    1: (ErrorReason.REMOTE_INVALID_REQUEST, CompletionStatus.REM_INV_REQ_ERR),
    2: (ErrorReason.REMOTE_ACCESS, CompletionStatus.REM_ACCESS_ERR),
    3: (ErrorReason.REMOTE_OPERATION, CompletionStatus.REM_OP_ERR),
}
_FIRST = int(Opcode.WRITE_FIRST)
_MIDDLE = int(Opcode.WRITE_MIDDLE)


class WriteRequest:
    """One posted WRITE or WriteIMM. `first` and `last` are its PSNs."""

    __slots__ = (
        "first", "immediate", "is_imm", "last", "last_opcode", "length", "msn", "only_opcode", "posted_ns", "rkey",
        "rqmsn", "va", "view", "wr_id",
    )  # fmt: skip

    def __init__(self, wr_id: int, view: memoryview, va: int, rkey: int, immediate: int | None) -> None:
        self.wr_id = wr_id
        self.view = view
        self.length = len(view)
        self.va = va
        self.rkey = rkey
        self.is_imm = immediate is not None
        self.immediate = immediate or 0
        self.last_opcode = int(Opcode.WRITE_LAST_IMM if self.is_imm else Opcode.WRITE_LAST)
        self.only_opcode = int(Opcode.WRITE_ONLY_IMM if self.is_imm else Opcode.WRITE_ONLY)
        self.first = self.last = self.msn = self.rqmsn = 0
        self.posted_ns = 0

    @property
    def kind(self) -> CompletionKind:
        """What its completion says."""
        return CompletionKind.WRITE_IMM if self.is_imm else CompletionKind.WRITE


class Requestor:
    """The sending half of a queue pair, from RTS on."""

    __slots__ = (
        "_current",
        "_next_psn",
        "_offset",
        "_queue",
        "_small_window",
        "_stamps",
        "account",
        "board",
        "counters",
        "cq",
        "full_size",
        "in_ring",
        "limit",
        "lost",
        "mpr",
        "msn",
        "mtu",
        "qp",
        "recovery",
        "rqmsn",
        "rttvar_ns",
        "srtt_ns",
        "tc_data",
        "tc_retx",
        "unacked",
        "waiting",
        "wimm_in_flight",
    )

    def __init__(self, qp: QueuePair, cq: CompletionQueue) -> None:
        self.qp = qp
        self.cq = cq
        self.counters = RequestorCounters()
        self.unacked: deque[WriteRequest] = deque()
        self._queue: deque[WriteRequest] = deque()
        self._current: WriteRequest | None = None
        self._offset = 0
        self.recovery = Recovery(self)
        self.lost = self.recovery.lost
        self.in_ring = False
        self.waiting = False
        self.start(0)

    def start(self, first_psn: int) -> None:
        """Enter RTS with the negotiated attributes of the queue pair."""
        qp = self.qp
        attributes = qp.attributes
        context = qp.context
        self.mtu = attributes.mtu
        self._stamps = context.config.wire.timestamps
        self.full_size = nominal_size(self.mtu, 4 if self._stamps else 0)
        self._small_window = _SMALL_WINDOW_PACKETS * self.full_size
        self.board = Scoreboard(first_psn, 1024 << attributes.timeout, attributes.linear_cnt)
        self._next_psn = first_psn  # of the next request to be posted
        self.mpr = attributes.mpr
        self.limit = first_psn - 1 + MPR_UNIT * self.mpr
        self.tc_data = context.tc_data if attributes.peer_trim_nack else context.tc_no_trim
        self.tc_retx = context.tc_retx if attributes.peer_trim_nack else context.tc_no_trim
        self.msn = 0
        self.rqmsn = 0
        self.wimm_in_flight = 0
        self.srtt_ns = 0
        self.rttvar_ns = 0
        self.account = InflightAccount(qp.qpcc.cc if qp.connected else None)
        self.recovery.start(attributes)

    # --- posting ---

    def has_data(self) -> bool:
        """Whether something waits to be sent."""
        return self._current is not None or bool(self.lost)

    def post(self, request: WriteRequest) -> bool:
        """Number a request and queue it; False when it exceeds max_wimm."""
        packets = -(-request.length // self.mtu) or 1
        self.msn += 1
        if request.is_imm:
            self.rqmsn += 1
            self.wimm_in_flight += 1
        request.msn = self.msn & 0xFFFF
        request.rqmsn = self.rqmsn & 0xFFFF
        request.posted_ns = self.qp.context.now
        request.first = self._next_psn
        request.last = request.first + packets - 1
        self._next_psn = request.last + 1
        self.unacked.append(request)
        if self._current is None:
            self._current = request
            self._offset = 0
        else:
            self._queue.append(request)
        if request.is_imm and self.wimm_in_flight > self.qp.attributes.max_wimm:
            return False
        if not self.waiting:
            self.qp.context.wake(self)
        return True

    # --- sending ---

    def emit(self, port: int, now: int, room: int) -> bytes | int:
        """The next packet for `port`, at most `room` bytes, or why there is none (IDLE ... BUDGET)."""
        if self.lost:
            return self._emit_lost(port, now, room)
        request = self._current
        if request is None:
            return IDLE
        board = self.board
        psn = board.nxt
        if psn > self.limit:
            return IDLE
        offset = self._offset
        left = request.length - offset
        mtu = self.mtu
        if left > mtu:
            end = offset + mtu
            opcode = _MIDDLE if offset else _FIRST
            flags = 0
            size = self.full_size
        else:
            end = request.length
            opcode = request.last_opcode if offset else request.only_opcode
            flags = FLAG_ACK_REQ
            size = self.full_size + left + (-left & 3) - mtu
            if request.is_imm:
                size += 4
        qp = self.qp
        peer = qp.peer
        route = qp.route
        cc = qp.qpcc.cc
        inflight = cc.inflight
        cwnd = cc.cwnd
        if inflight + size > cwnd and inflight > 0:
            return WINDOW
        if size + route.outer_bytes > room:
            return BUDGET
        if not peer.planes >> port & 1:
            return PORT
        balance = qp.qpcc.balance
        sent_bytes = balance.sent
        if sent_bytes[port] > balance.limit and not balance.retry(port, now):
            return self._unbalanced(now)
        if now < self.recovery.hold_ns:
            return IDLE
        if cwnd < self._small_window:
            flags = FLAG_ACK_REQ  # a peer that coalesces SACKs must not hold this one back
        evs = qp.evs
        order = evs.order[port]
        cursor = evs.cursor[port]
        if cursor < len(order) and not evs.state[order[cursor]]:  # GOOD is 0
            ev = order[cursor]
            evs.cursor[port] = cursor + 1
        else:
            ev = evs.choose(port)
            if ev < 0:
                return PORT
        value = evs.universe.values[ev]
        packet = qp.context.codec.encode_data(
            peer.addresses, value, self.tc_data, opcode, qp.remote_number, psn & PSN_MASK, flags,
            request.rqmsn, request.msn, now >> 7 & 0xFFFF if self._stamps else NO_TIMESTAMP,
            request.va + offset, request.rkey, request.length, request.view[offset:end], request.immediate,
        )  # fmt: skip
        if route.outer_bytes:
            packet = route.wrap(packet, value)
        last_on_ev = board.last_on_ev
        sent = Transmission(psn, now, ev, port, size, request, offset, 1, 0, last_on_ev.get(ev))
        last_on_ev[ev] = sent
        board.outstanding[psn] = sent
        board.order.append(sent)
        board.nxt = psn + 1
        self.account.send(size)
        sent_bytes[port] += size
        counters = self.counters
        counters.packets_sent += 1
        counters.payload_bytes_sent += end - offset
        if end < request.length:
            self._offset = end
        else:
            self._current = self._queue.popleft() if self._queue else None
            self._offset = 0
        if not self.recovery.armed:
            self.recovery.arm(now)
        trace = qp.context.trace
        if trace is not None:
            trace(
                now, "packet:sent", qpn=qp.number, psn=psn & PSN_MASK, ev=value, port=port, size=size, tx=1, new=True
            )  # fmt: skip
        return packet

    def _unbalanced(self, now: int) -> int:
        """This port is ahead of the others: a timer ends the waiting."""
        qpcc = self.qp.qpcc
        timers = self.qp.context.timers
        if not timers.is_armed(TimerKind.BALANCE, qpcc):
            timers.arm(TimerKind.BALANCE, qpcc, max(qpcc.balance.deadline(), now))
        return AHEAD

    def _emit_lost(self, port: int, now: int, room: int) -> bytes | int:
        """A retransmission: rtx, its own DSCP, a fresh EV, cwnd and MPR like any packet (`§5.4`)."""
        lost = self.lost
        while lost and lost[0].state != LOST:
            lost.popleft()  # acknowledged after all
        if not lost:
            return self.emit(port, now, room)
        failed = self.recovery.next_lost(now)
        if failed is None:
            return IDLE
        qp = self.qp
        peer = qp.peer
        route = qp.route
        cc = qp.qpcc.cc
        size = failed.size
        if cc.inflight + size > cc.cwnd and cc.inflight > 0:
            return WINDOW
        if size + route.outer_bytes > room:
            return BUDGET
        if not peer.planes >> port & 1:
            return PORT
        balance = qp.qpcc.balance
        if balance.sent[port] > balance.limit and not balance.retry(port, now):
            return self._unbalanced(now)
        evs = qp.evs
        ev = evs.choose(port, failed.ev)
        if ev < 0:
            if evs.active_count() > 1:
                return PORT
            ev = evs.choose(port)  # the only EV there is
            if ev < 0:
                return PORT
        lost.popleft()
        request = failed.request
        offset = failed.offset
        value = evs.universe.values[ev]
        psn = failed.psn
        packet = self._packet_again(request, offset, psn, value, now)
        failed.state = REPLACED
        count = failed.count + 1
        sent = Transmission(
            psn, now, ev, port, size, request, offset, count, failed.failures, self.board.last_on_ev.get(ev)
        )
        self.board.add(sent)
        self.account.send(size)
        if self.recovery.alone:
            self.uncount(sent)
        balance.sent[port] += size
        self.counters.packets_sent += 1
        self.counters.retransmissions += 1
        self.recovery.arm(now)
        trace = qp.context.trace
        if trace is not None:
            trace(
                now, "packet:sent", qpn=qp.number, psn=psn & PSN_MASK, ev=value, port=port, size=size, tx=count,
                new=False,
            )  # fmt: skip
        return packet

    def _packet_again(self, request: WriteRequest, offset: int, psn: int, value: int, now: int) -> bytes:
        """A retransmission on an EV (its value), in its encapsulation."""
        qp = self.qp
        end = min(offset + self.mtu, request.length)
        if end < request.length:
            opcode = _MIDDLE if offset else _FIRST
        else:
            opcode = request.last_opcode if offset else request.only_opcode
        packet = qp.context.codec.encode_data(
            qp.peer.addresses, value, self.tc_retx, opcode, qp.remote_number, psn & PSN_MASK,
            FLAG_RTX | FLAG_ACK_REQ, request.rqmsn, request.msn,
            now >> 7 & 0xFFFF if self._stamps else NO_TIMESTAMP, request.va + offset, request.rkey,
            request.length, request.view[offset:end], request.immediate,
        )  # fmt: skip
        return qp.route.wrap(packet, value) if qp.route.outer_bytes else packet

    def repeat_last(self, plane: int, ev: int, now: int) -> None:
        """Send the last packet of the oldest request again although it has arrived: its transport ACK is missing.

        The peer takes it for what it is, a sign that its answers are lost, and answers on another reverse EV. A
        duplicate does not count as received, so it is on no account.
        """
        qp = self.qp
        request = self.unacked[0]
        value = qp.evs.universe.values[ev]
        offset = (request.last - request.first) * self.mtu
        packet = self._packet_again(request, offset, request.last, value, now)
        qp.context.ports.enqueue(plane, packet)
        self.counters.packets_sent += 1
        self.counters.retransmissions += 1
        trace = qp.context.trace
        if trace is not None:
            size = nominal_size(request.length - offset, self.full_size - nominal_size(self.mtu, 0))
            trace(
                now, "packet:sent", qpn=qp.number, psn=request.last & PSN_MASK, ev=value, port=plane, size=size, tx=2,
                new=False,
            )  # fmt: skip

    # --- acknowledgement ---

    def on_sack(self, sack: Sack, now: int) -> None:
        """A SACK: scoreboard, RTT, EV signal, congestion control, loss inference (b) and (c)."""
        board = self.board
        una = board.una
        distance = (sack.cack_psn - una + 1) & PSN_MASK
        if distance >= PSN_HALF:
            distance -= PSN_MASK + 1
        cack = una - 1 + distance
        counters = self.counters
        # What was never sent cannot have arrived.
        if cack >= board.nxt or cack + sack.sack_offset + sack.sack_bitmap.bit_length() > board.nxt:
            counters.bogus_sacks += 1
            return
        counters.sacks_received += 1
        self.recovery.heard_ns = now
        if self.recovery.alone:
            self.recovery.heard(now)
        qp = self.qp
        mark = sack.m
        trigger = -1
        triggered: Transmission | None = None
        if sack.pr:
            probe = qp.prober.answered(sack, now)
            if probe is not None:
                if cack < probe.proven:
                    # What was acknowledged is not there: it will not be sent again, so this can never end well.
                    status = CompletionStatus.REM_OP_ERR
                    qp.fail(ErrorReason.CONTRADICTION, now, failed_psn=cack + 1, status=status)
                    return
                self.recovery.silence = 0
                if probe.sent_ns > board.newest_ns:
                    board.newest_ns = probe.sent_ns
        else:
            trigger = cack + sack.ack_psn_offset
            if trigger >= board.nxt:
                counters.bogus_sacks += 1
                return
            triggered = board.outstanding.get(trigger)
        acked = board.acknowledge(cack, trigger, cack + sack.sack_offset, sack.sack_bitmap)
        if acked:
            board.progress_ns = now

        # RTT: only when it is clear which transmission was answered.
        rtt = 0
        if triggered is not None:
            count = triggered.count
            if (count > 1) != bool(sack.flags & FLAG_RTX) or (qp.evs.universe.values[triggered.ev] != sack.entropy):
                triggered = None  # an earlier transmission
            elif count <= 2 and triggered.state == IN_FLIGHT:
                rtt = self._rtt_of(triggered, sack.tx_timestamp, now)
        qpcc = qp.qpcc
        cc = qpcc.cc
        suspects: list[Transmission] | None = None
        for sent in acked:
            if sent.state == LOST:
                self._arrived_after_all(sent)
                continue
            if not sent.counted:
                self.count(sent)
            sent.state = ACKED
            if sent.count == 1 or sent is triggered:
                if sent.sent_ns > board.newest_ns:
                    board.newest_ns = sent.sent_ns
                if sent.previous is not None:
                    overtaken = board.overtaken(sent)
                    if overtaken:
                        suspects = suspects + overtaken if suspects else overtaken
                elif board.last_on_ev.get(sent.ev) is sent:
                    del board.last_on_ev[sent.ev]

        # The path that the packet took.
        if mark:
            self._mark_ev(sack.entropy, mark)
        elif triggered is not None:
            qp.route.prove(sack.entropy, triggered.plane, now)

        # Congestion control: bytes newly received, per queue pair, modulo 2^24 units.
        # What a SACK says of the responder's state counts only if no later one has been heard: `rcvd_bytes` and, within
        # one of its units, `cack_psn` never go back. What it says of one packet (RTT, mark) holds in any case.
        penalty, restore = sack.rcv_cwnd_pen, bool(sack.restore_cwnd)
        older = self.account.overtaken(sack.rcvd_bytes)
        newly = self.account.receive(sack.rcvd_bytes)
        current = newly > 0 or (not older and cack >= una - 1)
        if not current:
            penalty = 0
            restore = False
        whole = rtt == 0 or (triggered is not None and triggered.size >= self.full_size)
        cc.on_sack(now, newly, rtt, mark == 1 or mark == 2, penalty, restore, whole)
        attributes = qp.attributes
        if current and attributes.dynamic_mpr and sack.mpr:
            self.mpr = sack.mpr
        self.limit = board.una - 1 + MPR_UNIT * self.mpr
        if acked:
            self.recovery.silence = 0
            self.recovery.refusals = 0

        if suspects is not None and attributes.same_ev_inference:
            for sent in suspects:
                if sent.state == IN_FLIGHT:
                    self.recovery.lose(sent, LossReason.SAME_EV, now)
        order = board.order
        if not board.outstanding:
            order.clear()
        elif order:
            head = order[0]
            if head.state != IN_FLIGHT:
                order.popleft()
            if attributes.rack_inference:
                window = self.srtt_ns + 4 * self.rttvar_ns
                if window < cc.base_rtt_ns:
                    window = cc.base_rtt_ns
                threshold = board.newest_ns - window
                if head.sent_ns < threshold or board.slow:
                    for sent in board.sent_before(threshold):
                        if sent.state == IN_FLIGHT:
                            self.recovery.lose(sent, LossReason.RACK, now)

        trace = qp.context.trace
        if trace is not None:
            trace(
                now, "sack:received", qpn=qp.number, cack=cack & PSN_MASK, ack_psn=max(trigger, 0) & PSN_MASK,
                ev=sack.entropy, m=mark,
            )  # fmt: skip
            trace(
                now, "cc:cwnd", peer=qp.peer.address.hex(), cwnd=int(cc.cwnd), inflight=cc.inflight, rtt=rtt,
                qdelay=max(cc.rtt_ns - cc.base_rtt_ns, 0), case=str(cc.snapshot().get("case", "fixed")),
            )  # fmt: skip
        if not self.in_ring and not self.waiting and (self._current is not None or self.lost):
            qp.context.wake(self)
        if qpcc.waiting:
            qpcc.wake_waiting()

    def _arrived_after_all(self, sent: Transmission) -> None:
        """Taken for lost by mistake."""
        self.counters.spurious_losses += 1
        self.count(sent)
        sent.state = ACKED

    def uncount(self, sent: Transmission) -> None:
        """Take a packet's bytes off the account unless they are."""
        if sent.counted:
            sent.counted = False
            self.account.lose(sent.size)

    def count(self, sent: Transmission) -> None:
        """A packet that was off the account has arrived: the peer's count of bytes has it, or will."""
        sent.counted = True
        self.account.revive(sent.size)

    def _rtt_of(self, sent: Transmission, echoed: int, now: int) -> int:
        """RTT sample of a transmission, 0 when the echoed timestamp is not that of this transmission."""
        rtt = now - sent.sent_ns
        if self._stamps:
            hold = (echoed - (sent.sent_ns >> 7)) & 0xFFFF
            if hold:
                if not self.qp.attributes.peer_service_time or hold << 7 >= rtt:
                    return 0
                rtt -= hold << 7
        if rtt <= 0:
            return 0
        if self.srtt_ns:
            error = rtt - self.srtt_ns
            self.srtt_ns += error >> 3
            self.rttvar_ns += (abs(error) - self.rttvar_ns) >> 2
        else:
            self.srtt_ns = rtt
            self.rttvar_ns = rtt >> 1
        return rtt

    def _mark_ev(self, entropy: int, mark: int) -> None:
        """The responder's word on a path: SKIP_ONCE or ALWAYS_SKIP."""
        evs = self.qp.evs
        ev = evs.universe.index.get(entropy)
        if ev is None:
            return
        if mark == 1:
            self.counters.skip_once += 1
            evs.apply(ev, EvInput.SKIP_ONCE)
        elif mark == 2:
            evs.apply(ev, EvInput.ALWAYS_SKIP)

    def on_ack(self, ack: Ack, now: int) -> None:
        """A transport ACK completes requests in posting order; a NAK ends the queue pair."""
        board = self.board
        psn = extend(ack.psn, board.una - 1)
        if psn >= board.nxt:
            self.counters.bogus_sacks += 1
            return
        if not self._fits(ack, psn):
            self.counters.bogus_acks += 1
            return
        self.counters.acks_received += 1
        self.recovery.heard(now)
        if ack.syndrome & 0x60 == 0x60:
            reason, status = _NAK_REASONS.get(ack.syndrome & 0x1F, _NAK_REASONS[3])
            self.qp.fail(reason, now, failed_psn=psn, status=status)
            return
        if psn >= board.una:
            # The buffer is free from here on, so nothing of it may be sent again.
            for sent in board.acknowledge(psn, -1, psn + 1, 0):
                self._retire(sent)
            self.limit = board.una - 1 + MPR_UNIT * self.mpr
            if not board.outstanding:
                self._settle()
        unacked = self.unacked
        while unacked and unacked[0].last <= psn:
            request = unacked.popleft()
            self.recovery.silence = 0
            self.counters.requests_completed += 1
            if request.is_imm:
                self.wimm_in_flight -= 1
            self.complete(request, CompletionStatus.SUCCESS, now)
        if not self.in_ring and not self.waiting and self.has_data():
            self.qp.context.wake(self)

    def _fits(self, ack: Ack, psn: int) -> bool:
        """Whether a transport answer can be true: the MSN of an ACK counts the messages up to its PSN, and a NAK is of
        a message that is not complete."""
        unacked = self.unacked
        if ack.syndrome & 0x60 == 0x60:
            return bool(unacked) and psn >= unacked[0].first
        complete = (unacked[0].msn if unacked else self.msn + 1) - 1
        if not unacked or psn < unacked[0].last:
            return psn < self.board.una or ack.msn & 0xFFFF == complete & 0xFFFF
        for request in unacked:
            if request.last > psn:
                break
            complete = request.msn
        return ack.msn & 0xFFFF == complete & 0xFFFF

    def _retire(self, sent: Transmission) -> None:
        """A packet whose arrival a transport ACK proves; the bytes come off inflight with the next SACK."""
        if sent.state == LOST:
            self._arrived_after_all(sent)
        if not sent.counted:
            self.count(sent)
        sent.state = ACKED
        if self.board.last_on_ev.get(sent.ev) is sent:
            del self.board.last_on_ev[sent.ev]

    def _settle(self) -> None:
        """Everything sent has arrived: what lost SACKs would have taken off inflight is known without them."""
        self.account.settle()
        if self.qp.qpcc.waiting:
            self.qp.qpcc.wake_waiting()

    def complete(self, request: WriteRequest, status: CompletionStatus, now: int) -> None:
        """Deliver the completion of a request."""
        qp = self.qp
        qp.context.complete(self.cq, Completion(request.wr_id, qp.number, request.kind, status, request.length, None))
        if qp.context.trace is not None:
            qp.context.trace(now, "wr:completed", qpn=qp.number, wr_id=request.wr_id, status=status.value)

    # --- the end ---

    def flush(self, failed_psn: int | None, status: CompletionStatus, now: int) -> None:
        """Complete every request: the one that holds `failed_psn` with `status`, the others as flushed."""
        qpcc = self.qp.qpcc if self.qp.connected else None
        if qpcc is not None:
            self.qp.context.unwake(self)
            if self.waiting:
                self.waiting = False
                qpcc.waiting.remove(self)
        self.account.close()
        for sent in self.board.outstanding.values():
            sent.state = REPLACED
        self.board.clear()
        self.lost.clear()
        self._queue.clear()
        self._current = None
        requests, self.unacked = list(self.unacked), deque()
        self.wimm_in_flight = 0
        for request in requests:
            failed = failed_psn is not None and request.first <= failed_psn <= request.last
            self.counters.requests_flushed += 1
            self.complete(request, status if failed else CompletionStatus.WR_FLUSH_ERR, now)
        if qpcc is not None and qpcc.waiting:
            qpcc.wake_waiting()
