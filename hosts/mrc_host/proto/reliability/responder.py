"""The responder: placement, bitmap, SACKs and NACKs, in-order delivery (`mrc-protocol.md §6`).

Reliability and semantics are separate: the bitmap says what arrived; `_advance` walks the PSNs that are
complete in order and completes messages, which is all that the transport ACK and the immediates depend on.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from mypy_extensions import i64

from mrc_host.proto.completion import Completion, CompletionKind, CompletionQueue, CompletionStatus
from mrc_host.proto.events import ErrorReason
from mrc_host.proto.paths.association import Association
from mrc_host.proto.stats import Reordering, ResponderCounters
from mrc_host.proto.timers import Timed, TimerKind
from mrc_host.proto.wire.fields import NackReason, Nak, Opcode, SackMark
from mrc_host.proto.wire.messages import FLAG_ACK_REQ, FLAG_RTX, FLAG_SE, Data, Probe
from mrc_host.proto.wire.psn import MPR_UNIT, PSN_HALF, PSN_MASK, trailing_ones


class MessageStart(NamedTuple):
    """The first packet of a message of several packets; the last one must agree with it."""

    msn: int
    va: int
    rkey: int
    length: int


class MessageEnd(NamedTuple):
    """The last packet of a message has arrived; the message waits for everything before it."""

    msn: int
    rqmsn: int
    va: int
    rkey: int
    length: int
    size: int  # payload bytes of this packet
    immediate: int | None
    solicited: bool


class RefusedPacket(NamedTuple):
    """A packet that is refused by a transport NAK once everything before it has arrived."""

    psn: int
    syndrome: int
    reason: ErrorReason


class MessageLayout:
    """What all packets of one message must agree on: where PSN 0 would lie, R_Key, and the length in bytes.

    `packets` counts those that have arrived.
    """

    __slots__ = ("base", "length", "msn", "packets", "rkey")

    def __init__(self, msn: int, base: int, rkey: int, length: int) -> None:
        self.msn = msn
        self.base = base
        self.rkey = rkey
        self.length = length
        self.packets = 0


ACK_SYNDROME: Final = 0x1F  # ACK, credits not used

_MAX_CE_RUNS: Final = 4096
_VA_MASK: Final = (1 << 64) - 1
_BITMAP_BITS: Final = 64
_BITMAP_MASK: Final = (1 << _BITMAP_BITS) - 1
_MIDDLE: Final = int(Opcode.WRITE_MIDDLE)  # the opcodes run FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM
_ONLY: Final = int(Opcode.WRITE_ONLY)
_SKIP_ONCE: Final = int(SackMark.SKIP_ONCE)
_ALWAYS_SKIP: Final = int(SackMark.ALWAYS_SKIP)


class Responder(Timed):
    """The receiving half of a queue pair, from RTR on."""

    __slots__ = (
        "_acked_msn",
        "_acked_psn",
        "_ce_runs",
        "_cycle",
        "_cycle_from",
        "_expected_rqmsn",
        "_held",
        "_layout",
        "_layouts",
        "_nak",
        "_refused",
        "_since_sack",
        "_start",
        "association",
        "bits",
        "cack",
        "counters",
        "cq",
        "ends",
        "every",
        "mpr",
        "mtu",
        "ooo",
        "rcvd_bytes",
        "receives",
        "reordering",
        "starts",
        "stashed",
        "trim_nack",
        "window",
    )
    # Machine words, where the core is compiled; not what addresses and shifts of bitmaps are made of.
    every: i64
    mpr: i64
    ooo: i64
    rcvd_bytes: i64
    window: i64
    _since_sack: i64

    def __init__(self, association: Association, cq: CompletionQueue) -> None:
        self.association = association
        self.cq = cq
        self.counters = ResponderCounters()
        self.reordering = Reordering()
        self.receives: deque[int] = deque()
        self.start(0)

    def start(self, first_psn: int) -> None:
        """Enter RTR with the negotiated attributes of the queue pair."""
        attributes = self.association.attributes
        self.mtu = attributes.mtu
        self.every = attributes.sack_every
        self.trim_nack = attributes.trim_nack
        self.mpr = attributes.mpr_dest
        self.window = MPR_UNIT * self.mpr
        self.cack = first_psn - 1
        self.bits = 0  # bit i: PSN cack + 1 + i has arrived
        self.ooo = 0  # how many bits are set
        self.rcvd_bytes = 0  # nominal bytes of new packets
        self.starts: dict[int, MessageStart] = {}  # by PSN, until everything before has arrived
        self.ends: dict[int, MessageEnd] = {}
        self._start: MessageStart | None = None  # of the message under way, in order
        self.stashed = 0  # immediates among them
        self._acked_psn = first_psn - 1
        self._acked_msn = 0
        self._expected_rqmsn = 1
        self._since_sack = 0
        self._held: tuple[int, int, int, int, int, int] | None = None
        self._cycle = 0
        self._cycle_from = 1
        self._ce_runs: dict[int, int] = {}
        self._nak: tuple[int, int] | None = None  # (psn, syndrome) that ended the queue pair
        self._refused: RefusedPacket | None = None  # the lowest PSN that may not be written
        self._layouts: dict[int, MessageLayout] = {}  # by MSN, of messages of several packets
        self._layout: MessageLayout | None = None  # of the newest packet of such a message

    def set_mpr(self, units: int) -> None:
        """Change the window; packets in flight beyond a smaller one will be refused with PSN_OOR_WINDOW."""
        self.mpr = units
        self.window = MPR_UNIT * units

    # --- data ---

    def on_data(self, data: Data, port: int, now: int) -> None:  # noqa: C901, PLR0915 - the hot path: a call less per packet
        """Handle one WRITE packet, whole or trimmed, for a queue pair in RTR or RTS."""
        cack = self.cack
        offset: int = (data.psn - cack - 1) & PSN_MASK
        if offset >= PSN_HALF:
            offset -= PSN_MASK + 1
        psn = cack + 1 + offset
        counters = self.counters
        bits = self.bits
        if offset < 0 or bits >> offset & 1:
            counters.duplicates += 1
            if data.trimmed:
                counters.trimmed_duplicates += 1
            if self.association.context.trace is not None:
                self._trace(data, port, now, "duplicate")
            self.association.route.suspect_reverse_ev(self.association.peer.control_plane(port), now, data.entropy)
            self._sack(psn, data, port, now)
            if data.flags & FLAG_ACK_REQ and psn <= self._acked_psn:
                self._ack(port)
            return
        if data.trimmed or offset >= self.window or self.association.context.refuse:
            self._refuse(data, offset, port, now)
            return
        if self._refused is not None and psn >= self._refused.psn:
            return  # the queue pair ends before this packet's turn

        # What may be written, and where.
        opcode = data.opcode
        payload = data.payload
        size = len(payload)
        if opcode <= _MIDDLE:
            valid = size == self.mtu and size < data.dma_length
        elif opcode >= _ONLY:
            valid = size == data.dma_length and size <= self.mtu
        else:
            valid = 0 < size <= self.mtu and size < data.dma_length
        if valid and opcode < _ONLY:
            # Every packet of a message says where it lies and how long the whole is; they must agree.
            base = data.va - psn * self.mtu
            layout = self._layout
            if layout is None or layout.msn != data.msn:
                layout = self._layouts.get(data.msn)
                if layout is None:
                    layout = self._layouts[data.msn] = MessageLayout(data.msn, base, data.rkey, data.dma_length)
                self._layout = layout
            # Addresses count modulo 2^64, for which a machine word is too small: only where they differ is that asked.
            same = layout.base == base or (layout.base - base) & _VA_MASK == 0
            valid = same and layout.rkey == data.rkey and layout.length == data.dma_length
            layout.packets += 1
        if not valid:
            self._violation(psn, Nak.INVALID_REQUEST, ErrorReason.LOCAL_INVALID_REQUEST, data, port, now)
            return
        if size:
            region = self.association.context.memory.find(data.rkey)
            start = region.offset_of(data.va, size) if region is not None else -1
            if region is None or start < 0 or not region.writable or region.domain != self.association.domain:
                self._violation(psn, Nak.REMOTE_ACCESS, ErrorReason.LOCAL_ACCESS, data, port, now)
                return
            if not self.association.context.codec.length_only:
                if region.memory is None:
                    region.view[start : start + size] = payload
                elif not region.write(start, payload):
                    self._violation(psn, Nak.REMOTE_OPERATION, ErrorReason.LOCAL_MEMORY, data, port, now)
                    return
            counters.payload_bytes_placed += size
        counters.packets_placed += 1
        self.rcvd_bytes += data.size
        if opcode > _MIDDLE:
            immediate = None
            if opcode & 1:  # LAST_IMM and ONLY_IMM
                immediate = data.immediate
                self.stashed += 1
            self.ends[psn] = MessageEnd(
                data.msn, data.rqmsn, data.va, data.rkey, data.dma_length, size, immediate, data.flags & FLAG_SE != 0
            )
        elif opcode < _MIDDLE:
            self.starts[psn] = MessageStart(data.msn, data.va, data.rkey, data.dma_length)

        # The bitmap.
        completed = False
        if offset == 0:
            if bits:
                run = trailing_ones(bits | 1)
                self.bits = bits >> run
                self.ooo -= run - 1
                self.cack = cack + run
                self._late(bits, 0, data.flags, size)
            else:
                self.cack = psn
            if self.ends or self.starts or self._refused is not None:
                completed = self._advance(cack, port, now)
        else:
            self.bits = bits | 1 << offset
            self.ooo += 1
            counters.out_of_order += 1
            self._late(bits, offset, data.flags, size)
            if self.stashed > self.association.attributes.max_wimm_dest:
                self._violation(psn, Nak.REMOTE_OPERATION, ErrorReason.WIMM_LIMIT, data, port, now)
                return
        if self.association.context.trace is not None:
            self._trace(data, port, now, "placed")

        self._since_sack += 1
        due = self._since_sack >= self.every or data.ce or data.flags & FLAG_ACK_REQ or completed or opcode > _MIDDLE
        if due or self._nak is not None:  # a queue pair that this packet ended holds nothing back for later
            self._sack(psn, data, port, now)
        else:
            self._hold(psn, data, port, now)
        if completed:
            self._ack(port)

    def _late(self, bits: int, offset: int, flags: int, size: int) -> None:
        """Count how far below the highest PSN a packet arrived, `offset` above the lowest that had not."""
        distance = bits.bit_length() - 1 - offset
        if distance <= 0:
            return
        if flags & FLAG_RTX:
            self.reordering.again += 1
        else:
            self.reordering.late(distance, size)

    def _refuse(self, data: Data, offset: int, port: int, now: int) -> None:
        """Refuse a packet that is not placed: trimmed, beyond the window, or the node lacks a resource."""
        counters = self.counters
        context = self.association.context
        if data.ce:
            counters.ecn_refused += 1
        if data.trimmed:
            counters.trimmed += 1
            if context.trace is not None:
                context.trace(
                    now, "packet:trimmed", qpn=self.association.number, psn=data.psn, ev=data.entropy, port=port
                )
            if not self.trim_nack:
                return
            reason = data.trimmed
        elif offset >= self.window:
            counters.out_of_window += 1
            reason = int(NackReason.PSN_OOR_WINDOW)
        else:
            counters.refused += 1
            reason = context.refuse
        if not data.trimmed and context.trace is not None:
            self._trace(data, port, now, NackReason(reason).name.lower())
        self._nack(data, reason, port)

    def _violation(self, psn: int, syndrome: int, reason: ErrorReason, data: Data, port: int, now: int) -> None:
        """Refuse a packet that the peer may not send: SACK it (it did arrive), and send a NAK in its turn.

        Everything before it is taken first: the NAK's MSN counts the messages before it, and their requests complete
        with success.
        """
        if self.association.context.trace is not None:
            self._trace(data, port, now, reason.value)
        offset = psn - self.cack - 1
        if offset == 0:
            run = trailing_ones(self.bits | 1)
            self.bits >>= run
            self.ooo -= run - 1
            self.cack += run
        elif offset > 0 and not self.bits >> offset & 1:
            self.bits |= 1 << offset
            self.ooo += 1
        self._sack(psn, data, port, now)
        self._refused = RefusedPacket(psn, syndrome, reason)
        if offset == 0:
            self._advance(psn - 1, port, now)

    def _fail(self, psn: int, syndrome: int, reason: ErrorReason, port: int, now: int) -> None:
        self._nak = (psn, syndrome)
        self.repeat_nak(port)
        self.association.fail(reason, now)

    def refuse(self) -> None:
        """Refuse all later packets: their user is gone. Earlier refusals stay in force."""
        if self._nak is None:
            self._nak = (self.cack + 1, Nak.REMOTE_OPERATION)

    def repeat_nak(self, port: int) -> None:
        """Repeat the NAK that gives the reason for ERROR, to a peer that still sends."""
        if self._nak is None:
            return
        psn, syndrome = self._nak
        self.counters.naks_sent += 1
        self._send_aeth(psn, syndrome, self._acked_msn, port)

    # --- delivery in order ---

    def _advance(self, before: int, port: int, now: int) -> bool:
        """Complete the messages whose end lies in `before+1..cack`; True when there was one."""
        ends, starts = self.ends, self.starts
        counters = self.counters
        completed = False
        for psn in range(before + 1, self.cack + 1):
            if self._refused is not None and psn == self._refused.psn:
                self._fail(psn, self._refused.syndrome, self._refused.reason, port, now)
                return completed
            end = ends.pop(psn, None)
            if end is None:
                start = starts.pop(psn, None) if starts else None
                if start is not None:
                    if self._start is not None or psn != self._acked_psn + 1:
                        self._fail(psn, Nak.INVALID_REQUEST, ErrorReason.LOCAL_INVALID_REQUEST, port, now)
                        return False
                    self._start = start
                continue
            if end.msn != (self._acked_msn + 1) & 0xFFFF or not self._whole(end, psn):
                self._fail(psn, Nak.INVALID_REQUEST, ErrorReason.LOCAL_INVALID_REQUEST, port, now)
                return False
            if end.immediate is not None:
                self.stashed -= 1
                if end.rqmsn != self._expected_rqmsn & 0xFFFF:
                    self._fail(psn, Nak.INVALID_REQUEST, ErrorReason.LOCAL_INVALID_REQUEST, port, now)
                    return False
                if not self.receives:
                    self._fail(psn, Nak.REMOTE_OPERATION, ErrorReason.NO_RECEIVE_POSTED, port, now)
                    return False
                self._expected_rqmsn += 1
                counters.immediates_delivered += 1
                self._complete(self.receives.popleft(), CompletionStatus.SUCCESS, end, now)
            self._start = None
            self._acked_msn += 1
            self._acked_psn = psn
            counters.messages_completed += 1
            completed = True
        return completed

    def _whole(self, end: MessageEnd, psn: int) -> bool:
        """Return whether the packets since the last message are one message, of the length that it claims."""
        start = self._start
        layout = self._layouts.pop(end.msn, None)
        self._layout = None
        before = (psn - self._acked_psn - 1) * self.mtu  # all but the last packet are full
        if start is None:
            return before == 0 and end.size == end.length
        return (
            layout is not None
            and layout.packets == psn - self._acked_psn  # a packet of another MSN among them belongs to no message
            and before + end.size == end.length == start.length
            and end.va == (start.va + before) & _VA_MASK
            and end.rkey == start.rkey
            and end.msn == start.msn
        )

    def _complete(self, wr_id: int, status: CompletionStatus, end: MessageEnd | None, now: int) -> None:
        association = self.association
        length, immediate = (end.length, end.immediate) if end is not None else (0, None)
        completion = Completion(
            wr_id, association.number, CompletionKind.RECV_IMM, status, length, immediate,
            end is not None and end.solicited,
        )  # fmt: skip
        association.context.complete(self.cq, completion)
        if association.context.trace is not None:
            association.context.trace(now, "wr:completed", qpn=association.number, wr_id=wr_id, status=status.value)

    def stop(self) -> None:
        """Cancel the SACK that is held back, so that nothing is answered later."""
        self._held = None
        self.association.context.timers.cancel(TimerKind.SACK_DELAY, self)

    def discard(self) -> list[int]:
        """Forget and return the posted receives without a completion, on the way to RESET (IBTA 1.4, 10.3.1)."""
        receives, self.receives = list(self.receives), deque()
        self.starts.clear()
        self.ends.clear()
        self._layouts.clear()
        self._layout = None
        self.stop()
        return receives

    def flush(self, now: int) -> None:
        """Complete every posted receive as flushed."""
        for wr_id in self.discard():
            self._complete(wr_id, CompletionStatus.WR_FLUSH_ERR, None, now)

    # --- answers ---

    def _mark(self, entropy: int, ce: bool) -> int:
        """Return SETH.m: SKIP_ONCE for CE; ALWAYS_SKIP after `always_skip_after` marks in a row on one EV."""
        runs = self._ce_runs
        if not ce:
            if runs:
                runs.pop(entropy, None)
            return 0
        self.counters.ecn_marked += 1
        after = self.association.attributes.always_skip_after
        if after:
            if len(runs) >= _MAX_CE_RUNS:
                runs.clear()  # no profile has this many EVs: forged
            runs[entropy] = runs.get(entropy, 0) + 1
            if runs[entropy] >= after:
                del runs[entropy]
                return _ALWAYS_SKIP
        return _SKIP_ONCE

    def _hold(self, psn: int, data: Data, port: int, now: int) -> None:
        """Keep the SACK back (sack_every > 1); the newest packet will have triggered it."""
        timers = self.association.context.timers
        if self._held is None:
            timers.arm(TimerKind.SACK_DELAY, self, now + self.association.attributes.sack_delay_ns)
        self._held = (psn, data.entropy, data.tx_timestamp, data.flags, port, now)

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """Send a SACK that has been held back long enough."""
        held = self._held
        if held is None:
            return
        psn, entropy, stamp, flags, port, arrived = held
        if self.association.attributes.service_time and stamp >= 0:
            stamp = (stamp + (now - arrived >> 7)) & 0xFFFF
        elif now - arrived >= 128:
            stamp = -1  # without service time the echo would measure our own delay
        self._send_sack(psn, entropy, stamp, flags, 0, port)

    def _sack(self, psn: int, data: Data, port: i64, now: i64) -> None:
        mark = self._mark(data.entropy, data.ce) if data.ce or self._ce_runs else 0
        self._send_sack(psn, data.entropy, data.tx_timestamp, data.flags, mark, port)

    def _send_sack(self, psn: int, entropy: i64, stamp: i64, flags: i64, mark: i64, port: i64) -> None:
        """Queue a SACK that `psn` triggered: bitmap, echo of EV, timestamp and rtx, receiver state."""
        self._since_sack = 0
        self._held = None
        association = self.association
        context = association.context
        peer = association.peer
        cack = self.cack
        bits = self.bits
        trigger = psn - cack
        offset = 1
        if bits >> _BITMAP_BITS:
            offset = self._choose_offset(trigger, bits)
            bitmap = bits >> (offset - 1) & _BITMAP_MASK
        else:
            bitmap = bits
        attributes = association.attributes
        plane = port if peer.planes >> port & 1 else peer.control_plane(port)
        route = association.route
        reverse = route.reverse[plane]
        # No conditional expressions: their numbers would be objects.
        ooo = self.ooo
        if ooo > 0x7FFF:
            ooo = 0x7FFF
        if stamp < 0:
            stamp = 0
        mpr: i64 = 0
        if attributes.dynamic_mpr:
            mpr = self.mpr
        packet = context.codec.encode_sack(
            peer.addresses,
            reverse.value,
            context.tc_control,
            association.remote_number,
            flags & FLAG_RTX,
            mark,
            0,
            trigger if trigger > -0x8000 else -0x8000,
            entropy,
            association.number & 0xFFFF,
            association.remote_number & 0xFFFF,
            cack & PSN_MASK,
            0,
            0,
            mpr,
            offset,
            bitmap,
            stamp,
            ooo,
            context.restore,
            context.penalty,
            -(-self.rcvd_bytes >> 8) & 0xFFFFFF,
            route.outer_of_control(reverse) if route.outer_bytes else b"",
        )
        context.ports.enqueue(plane, packet)
        self.counters.sacks_sent += 1

    def _choose_offset(self, trigger: int, bits: int) -> int:
        """Return sack_offset when 64 bits cannot show all: around the trigger, and every n-th time older holes in
        turn.
        """
        span = bits.bit_length()
        self._cycle += 1
        if trigger <= 0 or self._cycle >= self.association.attributes.hole_cycle:
            self._cycle = 0
            offset = self._cycle_from
            full = _BITMAP_MASK
            while offset <= span and bits >> (offset - 1) & full == full:
                offset += _BITMAP_BITS  # nothing missing here
            if offset > span:
                offset = 1
            self._cycle_from = offset + _BITMAP_BITS
            return offset
        return min(max(trigger - _BITMAP_BITS // 2, 1), max(span - _BITMAP_BITS + 1, 1))

    def on_probe(self, probe: Probe, port: int, now: int) -> None:
        """Answer a reliability probe: a SACK with pr=1, and the last transport ACK again (it may have been lost)."""
        self.counters.probes_answered += 1
        association = self.association
        context = association.context
        peer = association.peer
        bits = self.bits
        offset = self._choose_offset(0, bits) if bits > _BITMAP_MASK else 1
        plane = peer.control_plane(port)
        reverse: int = association.route.reverse[plane].value
        packet = context.codec.encode_sack(
            peer.addresses,
            reverse,
            context.tc_control,
            association.remote_number,
            0,
            _SKIP_ONCE if probe.ce else 0,
            1,
            probe.probe_id,
            probe.packet_entropy,
            association.number & 0xFFFF,
            association.remote_number & 0xFFFF,
            self.cack & PSN_MASK,
            0,
            0,
            self.mpr if association.attributes.dynamic_mpr else 0,
            offset,
            bits >> (offset - 1) & _BITMAP_MASK,
            probe.tx_timestamp,
            min(self.ooo, 0x7FFF),
            context.restore,
            context.penalty,
            -(-self.rcvd_bytes >> 8) & 0xFFFFFF,
        )
        association.route.send(packet, reverse, plane)
        self.counters.sacks_sent += 1
        if self.counters.messages_completed:
            self._ack(port)

    def _nack(self, data: Data, reason: int, port: int) -> None:
        """Refuse one packet, naming its EV and echoing its timestamp."""
        self.counters.nacks_sent += 1
        association = self.association
        peer = association.peer
        plane = peer.control_plane(port)
        reverse: int = association.route.reverse[plane].value
        packet = association.context.codec.encode_nack(
            peer.addresses,
            reverse,
            association.context.tc_control,
            association.remote_number,
            data.psn,
            reason,
            data.entropy,
            association.number & 0xFFFF,
            association.remote_number & 0xFFFF,
            max(data.tx_timestamp, 0),
        )
        association.route.send(packet, reverse, plane)

    def _ack(self, port: int) -> None:
        """Send the transport ACK of all messages completed so far."""
        self.counters.acks_sent += 1
        self._send_aeth(self._acked_psn, ACK_SYNDROME, self._acked_msn, port)

    def _send_aeth(self, psn: int, syndrome: int, msn: int, port: int) -> None:
        association = self.association
        peer = association.peer
        plane = peer.control_plane(port)
        reverse: int = association.route.reverse[plane].value
        packet = association.context.codec.encode_ack(
            peer.addresses,
            reverse,
            association.context.tc_control,
            association.remote_number,
            psn & PSN_MASK,
            syndrome,
            msn & 0xFFFFFF,
        )
        association.route.send(packet, reverse, plane)

    def _trace(self, data: Data, port: int, now: int, verdict: str) -> None:
        trace = self.association.context.trace
        if trace is not None:
            trace(
                now, "packet:received", qpn=self.association.number, psn=data.psn, ev=data.entropy, port=port,
                ce=data.ce, verdict=verdict,
            )  # fmt: skip
