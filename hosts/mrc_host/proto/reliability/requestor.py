"""The requestor: segmentation, sending, acknowledgement (`mrc-protocol.md §4, §5`); `recovery.py` has loss and repair.

`emit` and `on_sack` are the data path. They trade some tidiness for speed: attributes are bound to locals and
the common case (a new packet on a GOOD EV; a SACK for one packet in order) takes no other call than it must.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from mrc_host.proto.completion import Completion, CompletionQueue, CompletionStatus
from mrc_host.proto.congestion.inflight import InflightAccount, nominal_size
from mrc_host.proto.congestion.qpcc import Sender
from mrc_host.proto.events import ErrorReason
from mrc_host.proto.memory import MemoryFault
from mrc_host.proto.paths.association import Association
from mrc_host.proto.paths.ev import EvInput
from mrc_host.proto.paths.probing import Prober
from mrc_host.proto.reliability.recovery import LossDetector, Recovery, Rtt
from mrc_host.proto.reliability.scoreboard import ACKED, IN_FLIGHT, LOST, REPLACED, LossReason, Scoreboard, Transmission
from mrc_host.proto.send_ring import AHEAD, BUDGET, IDLE, PORT, WINDOW
from mrc_host.proto.stats import RequestorCounters
from mrc_host.proto.timers import TimerKind
from mrc_host.proto.wire.fields import Nak
from mrc_host.proto.wire.framing import Buffer
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_RTX, NO_TIMESTAMP, Ack, Sack
from mrc_host.proto.wire.psn import MPR_UNIT, PSN_HALF, PSN_MASK, extend
from mrc_host.proto.work import FIRST, MIDDLE, WorkQueue, WriteRequest

EARLIER: Final = -1  # no RTT sample: an earlier transmission was answered


def rtt_sample(association: Association, rtts: Rtt, sent: Transmission, sack: Sack, stamps: bool, now: int) -> int:
    """Return the RTT sample (ns) of the transmission that triggered a SACK; 0: none; EARLIER: an earlier
    transmission did.

    There is a sample only when it is clear which transmission was answered (`§8`), and the echoed timestamp is its
    own.
    """
    count = sent.count
    if (count > 1) != bool(sack.flags & FLAG_RTX):
        return EARLIER
    if association.evs.universe.values[sent.ev] != sack.entropy:
        return EARLIER
    if count > 2 or sent.state == LOST:
        return 0
    rtt = now - sent.sent_ns
    if stamps:
        hold = (sack.tx_timestamp - (sent.sent_ns >> 7)) & 0xFFFF
        if hold:
            if not association.attributes.peer_service_time or hold << 7 >= rtt:
                return 0
            rtt -= hold << 7
    if rtt <= 0:
        return 0
    rtts.sample(rtt, sent.plane)
    return rtt


def mark_path(association: Association, counters: RequestorCounters, sack: Sack, rtt: int, now: int) -> None:
    """Apply the responder's mark of a path: SKIP_ONCE, ALWAYS_SKIP, or none, for policies that listen to that."""
    evs = association.evs
    ev = evs.universe.index.get(sack.entropy)
    if ev is None:
        return
    mark = sack.m
    if mark == 1:
        counters.skip_once += 1
        evs.apply(ev, EvInput.SKIP_ONCE)
    elif mark == 2:
        evs.apply(ev, EvInput.ALWAYS_SKIP)
    if evs.listens:
        evs.rtt_ns = rtt
        evs.answered(ev, mark, now)


def trace_sack(association: Association, sack: Sack, cack: int, trigger: int, rtt: int, now: int) -> None:
    """Trace a SACK that has been taken, and the window after it."""
    trace = association.context.trace
    if trace is None:
        return
    cc = association.qpcc.cc
    trace(
        now, "sack:received", qpn=association.number, cack=cack & PSN_MASK, ack_psn=max(trigger, 0) & PSN_MASK,
        ev=sack.entropy, m=sack.m,
    )  # fmt: skip
    trace(
        now, "cc:cwnd", peer=association.peer.address.hex(), cwnd=int(cc.cwnd), inflight=cc.inflight, rtt=rtt,
        qdelay=max(cc.rtt_ns - cc.base_rtt_ns, 0), case=getattr(cc.snapshot(), "case", "fixed"),
    )  # fmt: skip


_ASKS_PER_WINDOW: Final = 4  # a SACK is asked for at least so often while a window of bytes leaves
_NAK_REASONS: Final = {
    1: (ErrorReason.REMOTE_INVALID_REQUEST, CompletionStatus.REM_INV_REQ_ERR),
    2: (ErrorReason.REMOTE_ACCESS, CompletionStatus.REM_ACCESS_ERR),
    3: (ErrorReason.REMOTE_OPERATION, CompletionStatus.REM_OP_ERR),
}


class Requestor(Sender):
    """The sending half of a queue pair, from RTS on."""

    __slots__ = (
        "_stamps", "_unasked", "account", "association", "board", "counters", "cq", "detector", "full_size",
        "limit", "lost", "mpr", "mtu", "prober", "recovery", "rtt", "tc_data", "tc_retx", "unacked", "work",
    )  # fmt: skip
    # Machine words, where the core is compiled.
    _unasked: i64
    full_size: i64
    limit: i64
    mpr: i64
    mtu: i64
    tc_data: i64
    tc_retx: i64

    def __init__(self, association: Association, cq: CompletionQueue) -> None:
        super().__init__()
        self.association = association
        self.cq = cq
        self.counters = RequestorCounters()
        self.work = WorkQueue()
        self.unacked = self.work.unacked
        self.rtt = Rtt(association.context.config.ports.count)
        self.prober = Prober(association, self.counters, lambda: self.board.proven())
        self.recovery = Recovery(
            association,
            self.counters,
            self.rtt,
            self.unacked,
            has_data=self.has_data,
            wake=self.wake,
            probe=self.prober.send,
            repeat_last=self.repeat_last,
        )
        self.lost = self.recovery.lost
        self.start(0)

    def start(self, first_psn: int) -> None:
        """Enter RTS with the negotiated attributes of the queue pair."""
        association = self.association
        attributes = association.attributes
        context = association.context
        self.mtu = attributes.mtu
        self._stamps = context.config.wire.timestamps
        self.full_size = nominal_size(self.mtu, 4 if self._stamps else 0)
        planes = context.config.ports.count
        evs = len(self.association.evs.universe.values)
        self.board = Scoreboard(first_psn, 1024 << attributes.timeout, attributes.linear_cnt, planes, evs)
        make = context.config.policies.loss or LossDetector
        self.detector: LossDetector = make(
            self.board, self.rtt, attributes.same_ev_inference, attributes.rack_inference
        )
        self.detector.adaptive = attributes.adaptive_reordering
        self.work.start(first_psn, self.mtu)
        self.mpr = attributes.mpr
        self.limit = first_psn - 1 + MPR_UNIT * self.mpr
        self.tc_data = context.tc_data if attributes.peer_trim_nack else context.tc_no_trim
        self.tc_retx = context.tc_retx if attributes.peer_trim_nack else context.tc_no_trim
        self._unasked = 0  # bytes sent since the last packet that asks for a SACK
        self.rtt.reset()
        if association.connected:
            self.qpcc = association.qpcc
        self.account = InflightAccount(association.qpcc.cc if association.connected else None)
        self.recovery.start(self.board, self.account)

    # --- posting ---

    def has_data(self) -> bool:
        """Return whether there is data to send; a lost packet that has been acknowledged since does not count."""
        lost = self.lost
        while lost and lost[0].state != LOST:
            lost.pop(0)
        return self.work.current is not None or bool(lost)

    def has_outstanding(self) -> bool:
        """Return whether any packet that was sent is not acknowledged."""
        return self.board.outstanding.count > 0

    def wake(self) -> None:
        """Join the send ring, since something may be sent that could not before."""
        if self.waiting:
            if self.lost and self.lost[0].size < self.needs:
                self.needs = self.lost[0].size  # a retransmission goes before the packet that waits
        elif not self.in_ring and (self.work.current is not None or self.lost):
            self.association.context.ring.wake(self)

    def post(self, request: WriteRequest) -> bool:
        """Queue a request with the next number; return False when it exceeds max_wimm."""
        work = self.work
        work.post(request, self.association.context.now)
        if request.is_imm and work.wimm_in_flight > self.association.attributes.max_wimm:
            return False
        self.wake()
        return True

    # --- sending ---

    def emit(self, port: i64, now: i64, room: i64) -> bytes | int:
        """Return the next packet for `port`, at most `room` bytes, or why there is none (`send_ring.IDLE` ...
        `BUDGET`).
        """
        if self.lost:
            return self._retransmit(port, now, room)
        work = self.work
        request = work.current
        if request is None:
            return IDLE
        board = self.board
        psn = board.nxt
        if psn > self.limit:
            return IDLE
        offset = work.offset
        left = request.length - offset
        mtu = self.mtu
        if left > mtu:
            end = offset + mtu
            opcode = MIDDLE if offset else FIRST
            flags = 0
            size = self.full_size
        else:
            end = request.length
            opcode = request.last_opcode if offset else request.only_opcode
            flags = FLAG_ACK_REQ
            size = self.full_size + left + (-left & 3) - mtu
            if request.is_imm:
                size += 4
        shut = self._closed_gate(size, port, now, room)
        if shut:
            return shut
        if now < self.recovery.hold_ns:
            return IDLE
        qpcc = self.qpcc
        cc = qpcc.cc
        unasked = self._unasked + size
        if (
            flags
            or cc.cwnd - cc.inflight - float(size) < float(self.full_size)
            or float(unasked * _ASKS_PER_WINDOW * (qpcc.in_ring + len(qpcc.waiting))) > cc.cwnd
        ):
            # A peer that coalesces SACKs must not hold this one back: the packet closes the window (UET 1.0, 3.6.13.5),
            # or enough of the window has left without a request that waiting for the last one would leave the link
            # idle.
            flags = FLAG_ACK_REQ
            unasked = 0
        evs = self.association.evs
        order = evs.ready[port]
        cursor = evs.cursor[port]
        if cursor < len(order) and not evs.state[order[cursor]]:  # GOOD is 0
            ev = order[cursor]
            evs.cursor[port] = cursor + 1
        else:
            if evs.listens:
                evs.now_ns = now
            ev = evs.choose(port)
            if ev < 0:
                return PORT
        last_on_ev = board.last_on_ev
        sent = Transmission(psn, now, ev, port, size, request, offset, 1, 0, last_on_ev[ev])
        last_on_ev[ev] = sent
        board.outstanding.put(sent)
        board.orders[port].append(sent)
        board.nxt = psn + 1
        self._unasked = unasked
        self.account.send(size)
        carried = qpcc.balance.sent
        carried[port] = carried[port] + size
        self.counters.payload_bytes_sent += end - offset
        if end < request.length:
            work.offset = end
        else:
            work.next_request()
        return self._build_packet(sent, opcode, end, self.tc_data, flags, now)

    def _closed_gate(self, size: i64, port: i64, now: i64, room: i64) -> i64:
        """Return the gate that a packet of nominal `size` does not pass now, 0 when all are open."""
        association = self.association
        qpcc = self.qpcc
        cc = qpcc.cc
        inflight = cc.inflight
        if float(inflight + size) > cc.cwnd and inflight > 0:
            self.needs = size
            return WINDOW
        if size + association.route.outer_bytes > room:
            return BUDGET
        if not association.evs.usable >> port & 1:
            return PORT
        balance = qpcc.balance
        if balance.sent[port] > balance.limit and not balance.retry(port, now):
            timers = association.context.timers
            if not timers.is_armed(TimerKind.BALANCE, qpcc):  # it ends the waiting for the other ports
                timers.arm(TimerKind.BALANCE, qpcc, max(balance.deadline(), now))
            return AHEAD
        return 0

    def _build_packet(self, sent: Transmission, opcode: i64, end: i64, tc: i64, flags: i64, now: i64) -> bytes:
        """Return the packet of a transmission, up to byte `end` of its request, in its encapsulation.

        Arms the timers of recovery unless they are armed.
        """
        self.counters.packets_sent += 1
        if not self.recovery.armed:
            self.recovery.arm(now)
        association = self.association
        context = association.context
        request, psn = sent.request, sent.psn
        offset: int = sent.offset  # no machine word: an address may be none
        value = association.evs.universe.values[sent.ev]
        route = association.route
        payload: Buffer | None = request.whole
        begin = offset
        if payload is None:
            payload, begin = request.view[offset:end], 0  # which reads the memory of a program
        stamp: i64 = NO_TIMESTAMP
        if self._stamps:
            stamp = now >> 7 & 0xFFFF
        packet = context.codec.encode_data(
            association.peer.addresses, value, tc, opcode, association.remote_number, psn & PSN_MASK, flags,
            request.rqmsn, request.msn, stamp, request.va + offset, request.rkey, request.length, payload,
            request.immediate, 1 if request.solicited and end == request.length else 0, begin, end - offset,
            route.outer_of(sent.ev) if route.outer_bytes else b"",
        )  # fmt: skip
        if context.trace is not None:
            context.trace(
                now, "packet:sent", qpn=association.number, psn=psn & PSN_MASK, ev=value, port=sent.plane,
                size=sent.size, tx=sent.count, new=sent.count == 1,
            )  # fmt: skip
        return packet

    def _retransmit(self, port: i64, now: i64, room: i64) -> bytes | int:
        """Retransmit the first lost packet: rtx, its own DSCP, a fresh EV, cwnd and MPR like any packet (`§5.4`)."""
        lost = self.lost
        while lost and lost[0].state != LOST:
            lost.pop(0)  # acknowledged after all
        if not lost:
            return self.emit(port, now, room)
        failed = self.recovery.next_lost(self.limit, now)
        if failed is None:
            return IDLE
        shut = self._closed_gate(failed.size, port, now, room)
        if shut:
            return shut
        evs = self.association.evs
        if evs.listens:
            evs.now_ns = now
        ev = evs.choose(port, failed.ev)
        if ev < 0:
            if evs.active_count() > 1:
                return PORT
            ev = evs.choose(port)  # the only EV there is
            if ev < 0:
                return PORT
        lost.pop(0)
        failed.state = REPLACED
        request, offset = failed.request, failed.offset
        sent = Transmission(
            failed.psn, now, ev, port, failed.size, request, offset, failed.count + 1, failed.failures,
            self.board.last_on_ev[ev],
        )  # fmt: skip
        if failed.since_ns >= 0:
            sent.since_ns = failed.since_ns
        self.board.add(sent)
        self.account.send(sent.size)
        self.qpcc.balance.sent[port] += sent.size
        end = min(offset + self.mtu, request.length)
        packet = self._build_packet(
            sent, request.opcode_at(offset, end), end, self.tc_retx, FLAG_RTX | FLAG_ACK_REQ, now
        )
        if self.recovery.single_packet_mode:
            self.account.drop(sent)
        self.counters.retransmissions += 1
        return packet

    def repeat_last(self, plane: int, ev: int, now: int) -> None:
        """Send the last packet of the oldest request again although it has arrived: its transport ACK is missing.

        The peer takes it for what it is, a sign that its answers are lost, and answers on another reverse EV. A
        duplicate does not count as received, so it is on no account.
        """
        request = self.unacked[0]
        end, offset = request.length, (request.last - request.first) * self.mtu
        size = nominal_size(end - offset, self.full_size - nominal_size(self.mtu, 0))
        again = Transmission(request.last, now, ev, plane, size, request, offset, 2, 0, None)
        opcode = request.opcode_at(offset, end)
        try:
            packet = self._build_packet(again, opcode, end, self.tc_retx, FLAG_RTX | FLAG_ACK_REQ, now)
        except MemoryFault:
            self.association.fail(ErrorReason.LOCAL_MEMORY, now, status=CompletionStatus.LOC_PROT_ERR)
            return
        self.association.context.ports.enqueue(plane, packet)
        self.counters.retransmissions += 1
        self.counters.repeats += 1

    # --- acknowledgement ---

    def on_sack(self, sack: Sack, now: int) -> None:  # noqa: C901 - the hot path: a call less per SACK
        """Handle a SACK: scoreboard, RTT, EV signal, congestion control, loss inference (b) and (c)."""
        board = self.board
        una = board.una
        distance = (sack.cack_psn - una + 1) & PSN_MASK
        if distance >= PSN_HALF:
            distance -= PSN_MASK + 1
        cack = una - 1 + distance
        counters = self.counters
        # A packet that was never sent cannot have arrived.
        if cack >= board.nxt or cack + sack.sack_offset + sack.sack_bitmap.bit_length() > board.nxt:
            counters.bogus_sacks += 1
            return
        counters.sacks_received += 1
        recovery = self.recovery
        recovery.heard_ns = now
        if recovery.single_packet_mode:
            recovery.heard(now)
        trigger = -1
        triggered: Transmission | None = None
        if sack.pr:
            if not self._probe_answered(sack, cack, now):
                return
        else:
            trigger = cack + sack.ack_psn_offset
            if trigger >= board.nxt:
                counters.bogus_sacks += 1
                return
            triggered = board.outstanding.get(trigger)
        acked = board.acknowledge(cack, trigger, cack + sack.sack_offset, sack.sack_bitmap)
        rtt = 0
        if triggered is not None:
            rtt = rtt_sample(self.association, self.rtt, triggered, sack, self._stamps, now)
            if rtt < 0:
                triggered = None
                rtt = 0
        if board.guessed:
            recovery.detect_spurious_loss(acked, trigger, sack, self.detector, now)
        suspects: list[Transmission] | None = None
        if acked:
            board.progress_ns = now
            suspects = self._retire(acked, triggered)

        # The path that the packet took.
        if sack.m or self.association.evs.listens:
            mark_path(self.association, self.counters, sack, rtt, now)
        if not sack.m and triggered is not None:
            self.association.route.prove(sack.entropy, triggered.plane, now, triggered.ev)

        self._control(sack, cack >= una - 1, rtt, triggered, now)
        if acked:
            recovery.progressed()
            recovery.refusals = 0
        self._infer_losses(acked, suspects, now)

        if self.association.context.trace is not None:
            trace_sack(self.association, sack, cack, trigger, rtt, now)
        if not self.in_ring and not self.waiting:
            self.wake()
        qpcc = self.qpcc
        if qpcc.waiting:
            self.association.context.ring.wake_waiting(qpcc)

    def _probe_answered(self, sack: Sack, cack: int, now: int) -> bool:
        """Handle the answer to a probe; False when it revokes an acknowledgement, which ends the queue pair."""
        probe = self.prober.answered(sack, now)
        if probe is not None:
            if cack < probe.proven:
                # The peer lacks packets that it acknowledged. They will not be sent again, so the message cannot end.
                status = CompletionStatus.REM_OP_ERR
                self.association.fail(ErrorReason.CONTRADICTION, now, status=status)
                return False
            self.recovery.silence = 0
            if probe.sent_ns > self.board.newest_ns:
                self.board.newest_ns = probe.sent_ns
        return True

    def _retire(self, acked: list[Transmission], triggered: Transmission | None) -> list[Transmission] | None:
        """Record that these have arrived; return those that they overtook on their EVs (rule (b))."""
        board = self.board
        account = self.account
        suspects: list[Transmission] | None = None
        for sent in acked:
            if not sent.counted:  # the received bytes in the SACK take its bytes off inflight a second time
                account.restore(sent)
            account.acknowledged += sent.size
            if sent.state == LOST:
                self.counters.spurious_losses += 1
                sent.state = ACKED
                continue
            sent.state = ACKED
            if sent.count == 1 or sent is triggered:
                if sent.sent_ns > board.newest_ns:
                    board.newest_ns = sent.sent_ns
                if sent.previous is not None:
                    overtaken = board.overtaken(sent)
                    if overtaken:
                        suspects = suspects + overtaken if suspects else overtaken
                elif board.last_on_ev[sent.ev] is sent:
                    board.last_on_ev[sent.ev] = None
        return suspects

    def _control(self, sack: Sack, covers: bool, rtt: int, triggered: Transmission | None, now: int) -> None:
        """Pass a SACK to congestion control: the bytes newly received, and the responder's state.

        `covers`: its cack_psn is not below what was acknowledged before. The responder's state in a SACK counts only if
        no later SACK has arrived: `rcvd_bytes` and, within one of its units, `cack_psn` never go back. What concerns
        one packet (RTT, mark) holds in any case.
        """
        account = self.account
        newly = account.receive(sack.rcvd_bytes)
        current = newly > 0 or (covers and not account.overtaken(sack.rcvd_bytes))
        whole = rtt == 0 or (triggered is not None and triggered.size >= self.full_size)
        marked = sack.m == 1 or sack.m == 2
        cc = self.qpcc.cc
        if current:
            cc.on_sack(now, newly, rtt, marked, sack.rcv_cwnd_pen, bool(sack.restore_cwnd), whole)
            if sack.mpr and self.association.attributes.dynamic_mpr:
                self.mpr = sack.mpr
        else:
            cc.on_sack(now, newly, rtt, marked, 0, False, whole)
        self.limit = self.board.una - 1 + MPR_UNIT * self.mpr

    def _infer_losses(self, acked: list[Transmission], suspects: list[Transmission] | None, now: int) -> None:
        """Infer losses: `suspects` were overtaken on their EVs (rule (b)), all others are late (rule (c))."""
        board, detector = self.board, self.detector
        lost = detector.infer(acked, suspects, self.qpcc.cc.base_rtt_ns, now)
        if lost is not None:
            for sent in lost:
                if sent.state == IN_FLIGHT:
                    self.counters.packets_inferred += 1
                    overtaken = detector.same_ev and suspects is not None and sent in suspects
                    if not overtaken and sent.count == 1:
                        board.guess(sent)
                    self.recovery.lose(sent, LossReason.SAME_EV if overtaken else LossReason.RACK, now)
        for sent in acked:  # what is no longer in flight leaves the head of its plane's order
            order = board.orders[sent.plane]
            while order.first is not None and order.first.state != IN_FLIGHT:
                order.drop()

    def on_ack(self, ack: Ack, now: int) -> None:
        """Handle a transport ACK, which completes requests in posting order, or a NAK, which ends the queue pair."""
        board = self.board
        psn = extend(ack.psn, board.una - 1)
        if psn >= board.nxt:
            if psn == board.nxt and ack.syndrome == Nak.REMOTE_OPERATION:
                # All packets have arrived, and the next one will be refused, because the peer's user is gone.
                self.counters.acks_received += 1
                self.association.fail(
                    ErrorReason.REMOTE_OPERATION,
                    now,
                    status=CompletionStatus.REM_OP_ERR,
                )
                return
            self.counters.bogus_sacks += 1
            return
        nak = ack.syndrome & 0x60 == 0x60
        if not self.work.fits(psn, ack.msn, nak, board.una):
            self.counters.bogus_acks += 1
            return
        self.counters.acks_received += 1
        self.recovery.heard(now)
        if nak:
            # Its MSN counts the messages that are complete: those before the one that is refused end well.
            while (request := self.work.take_completed_before(psn, ack.msn)) is not None:
                self.counters.requests_completed += 1
                self.complete(request, CompletionStatus.SUCCESS, now)
            reason, status = _NAK_REASONS.get(ack.syndrome & 0x1F, _NAK_REASONS[3])
            self.association.fail(reason, now, status=status)
            return
        if psn >= board.una:
            # The buffer is free from here on, so nothing of it may be sent again.
            for sent in board.acknowledge(psn, -1, psn + 1, 0):
                self._prove(sent)
            self.limit = board.una - 1 + MPR_UNIT * self.mpr
            if not board.outstanding.count:
                board.clear_orders()
            if self.qpcc.waiting:
                self.association.context.ring.wake_waiting(self.qpcc)
        while (request := self.work.take_complete(psn)) is not None:
            self.recovery.progressed()
            self.counters.requests_completed += 1
            self.complete(request, CompletionStatus.SUCCESS, now)
        self.wake()

    def _prove(self, sent: Transmission) -> None:
        """Record that a transport ACK proves the arrival of a packet."""
        self.account.prove(sent)
        if sent.state == LOST:
            self.counters.spurious_losses += 1
        sent.state = ACKED
        if self.board.last_on_ev[sent.ev] is sent:
            self.board.last_on_ev[sent.ev] = None

    def complete(self, request: WriteRequest, status: CompletionStatus, now: int) -> None:
        """Deliver the completion of a request."""
        context, number = self.association.context, self.association.number
        context.complete(self.cq, Completion(request.wr_id, number, request.kind, status, request.length, None))
        if context.trace is not None:
            context.trace(now, "wr:completed", qpn=number, wr_id=request.wr_id, status=status.value)

    # --- the end ---

    def flush(self, status: CompletionStatus, now: int) -> None:
        """Complete every request: the oldest with `status`, the others as flushed.

        As in InfiniBand (IBTA 1.4, 10.8.3), the first completion in error says why the queue pair failed; those that
        follow are flushed.
        """
        for request in self._end():
            self.counters.requests_flushed += 1
            self.complete(request, status, now)
            status = CompletionStatus.WR_FLUSH_ERR
        self._wake_others()

    def discard(self) -> None:
        """Forget every request without a completion, on the way to RESET (IBTA 1.4, 10.3.1)."""
        self.counters.requests_flushed += len(self._end())
        self._wake_others()

    def _end(self) -> list[WriteRequest]:
        """Stop sending and return the requests that have not completed, the oldest first."""
        association = self.association
        ring = association.context.ring
        if association.connected:
            ring.withdraw(self)
        self.prober.clear()
        self.recovery.stop()
        self.account.close()
        for sent in self.board.outstanding.values():
            if sent.state == LOST:
                self.counters.losses_flushed += 1
            sent.state = REPLACED
        self.board.clear()
        return self.work.flush()

    def _wake_others(self) -> None:
        """Give the room in the window to those that wait for it."""
        association = self.association
        if association.connected and association.qpcc.waiting:
            association.context.ring.wake_waiting(association.qpcc)
