"""The endpoint of RoCEv2's reliable connection, which MRC is compared with, on the same surface as `endpoint.Endpoint`.

One path per queue pair (a fixed port and a fixed UDP source port), in-order delivery only, go-back-N on NAK or
timeout, coalesced ACKs, DCQCN on congestion notification packets. To use more paths, use more queue pairs. SEND, RDMA
WRITE and READ, and atomics. Sources: IBTA vol. 1 rel. 1.4, chapter 9, and RoCEv2; Soft-RoCE (rxe in Linux) as a second
implementation; DCQCN as in Zhu et al., SIGCOMM 2015.
"""

from __future__ import annotations

import dataclasses
import random
import zlib
from collections import Counter, deque
from typing import Final

from mrc_host.proto.common import CommonEndpoint
from mrc_host.proto.completion import CompletionQueue, CompletionStatus
from mrc_host.proto.congestion.dcqcn import DcqcnConfig
from mrc_host.proto.events import ErrorReason, PortChanged, QpState
from mrc_host.proto.memory import MemoryFault, MemoryTable
from mrc_host.proto.ports import Port, PortTable
from mrc_host.proto.roce.codec import RoceCodec
from mrc_host.proto.roce.config import RoceConfig
from mrc_host.proto.roce.messages import (
    AtomicAck,
    AtomicRequest,
    Cnp,
    ReadRequest,
    ReadResponse,
    RoceAck,
    RoceData,
    RoceMessage,
    RoceRequest,
)
from mrc_host.proto.roce.pairs import FLUSHED, REASONS, RocePairsEndpoint
from mrc_host.proto.roce.qp import LocalFault, RoceQueuePair
from mrc_host.proto.roce.responder import SYNDROME_ACK, SYNDROME_RNR
from mrc_host.proto.statistics import RocePortStatistics, RoceQpStatistics, RoceStatistics
from mrc_host.proto.timers import Timed, TimerKind, TimerQueue
from mrc_host.proto.wire.fields import Nak
from mrc_host.proto.wire.icrc import wire_length
from mrc_host.proto.wire.packet import WireError
from mrc_host.proto.wire.psn import PSN_MASK

_QUANTUM_BITS: Final = 512
_HALF, _WHOLE = 1 << 31, 1 << 32


def _blocks(length: int) -> int:
    """Return the credits, in units of 64 bytes, that a packet with its Ethernet header takes."""
    return (length + 14 + 63) // 64


class FlowControl(Timed):
    """Pauses and credits of one port. They concern the priority of data only.

    Data waits until `paused_until` (ns; 0: not paused), and with credits until it fits: blocks used are at most the
    limit, which is unknown (None) until the switch has sent it.
    """

    __slots__ = (
        "_credits", "_limit", "_paused_since", "_priority", "_rate_bps", "_stalled_since", "_timers", "_used",
        "paused_ns", "paused_until", "pauses", "stall_ns",
    )  # fmt: skip

    def __init__(self, timers: TimerQueue, priority: int, rate_bps: int, *, credits: bool) -> None:
        """Create the flow control of a port; `rate_bps`: the port's, by which pauses are measured; `credits`: data
        waits for them.
        """
        self._timers = timers
        self._priority = priority
        self._rate_bps = rate_bps
        self._credits = credits
        self.pauses = self.paused_until = self.paused_ns = self._paused_since = 0
        self._limit: int | None = None
        self._used = self.stall_ns = 0
        self._stalled_since: int | None = None

    def on_frame(self, frame: bytes, now: int) -> None:
        """Handle a MAC control frame without Ethernet header.

        Updates of credits (`p4lite/switch/core/fabric/flow.c` has their form) are obeyed where the configuration
        says so.
        """
        if frame[:2] == b"\x01\xc0":
            self._take_credits(frame)
        elif len(frame) >= 20 and frame[:2] == b"\x01\x01" and frame[3] >> self._priority & 1:
            at = 4 + 2 * self._priority
            self._pause(frame[at] << 8 | frame[at + 1], now)

    def _pause(self, quanta: int, now: int) -> None:
        self._timers.cancel(TimerKind.RESUME, self)
        self.on_timer(TimerKind.RESUME, now)
        if quanta:
            self.pauses += 1
            self._paused_since = now
            self.paused_until = now + quanta * _QUANTUM_BITS * 1_000_000_000 // self._rate_bps
            self._timers.arm(TimerKind.RESUME, self, self.paused_until)

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """End the pause, if there is one."""
        if self.paused_until:
            self.paused_ns += min(now, self.paused_until) - self._paused_since
            self.paused_until = 0

    def _take_credits(self, frame: bytes) -> None:
        crc = int.from_bytes(frame[68:72], "big")
        if not self._credits or len(frame) < 72 or not frame[3] >> self._priority & 1 or zlib.crc32(frame[:68]) != crc:
            return
        at = 4 + 4 * self._priority
        told = int.from_bytes(frame[at : at + 4], "big")
        if self._limit is None:
            # The switch has this much of the port, from all senders; nothing is in flight.
            self._used = int.from_bytes(frame[at + 32 : at + 36], "big")
            self._limit = self._used
        # Modulo 2^32; an update that a later one has overtaken is ignored.
        ahead = (told - self._limit + _HALF) % _WHOLE - _HALF
        if ahead > 0:
            self._limit += ahead

    def link_changed(self) -> None:
        """Forget the credits: the switch counts them from the start again."""
        self._limit = None

    def allows(self, length: int, now: int) -> bool:
        """Return whether there are credits for an IP packet of that length; counts the time in which there are none."""
        if not self._credits:
            return True
        if self._limit is None or self._used + _blocks(length) > self._limit:
            if self._stalled_since is None:
                self._stalled_since = now
            return False
        if self._stalled_since is not None:
            self.stall_ns += now - self._stalled_since
            self._stalled_since = None
        return True

    def sent(self, length: int) -> None:
        """Use the credits of an IP packet of that length."""
        if self._credits:
            self._used += _blocks(length)


__all__ = ["DcqcnConfig", "RoceConfig", "RoceEndpoint", "RoceQueuePair"]

_ECT0 = 2
_UNBOUNDED: Final = 1 << 62  # control packets that may wait at a port
# All of `statistics()["endpoint"]`, there from the start.
_COUNTERS = (
    "acks_sent", "cnps_received", "cnps_sent", "ecn_marked", "naks_sent", "not_in_order", "packets_sent",
    "payload_bytes_placed", "retransmissions", "timeouts",
)  # fmt: skip
#: Why a responder ends its queue pair by the NAK that it answers with, unless a receive of its own is to blame.
_GUILT: Final = {
    Nak.REMOTE_ACCESS: ErrorReason.LOCAL_ACCESS,
    Nak.INVALID_REQUEST: ErrorReason.LOCAL_INVALID_REQUEST,
    Nak.REMOTE_OPERATION: ErrorReason.LOCAL_MEMORY,
}


class _Lane:
    """What a port has beside its control packets: QPs that owe an ACK, QPs that may send, pauses and credits."""

    __slots__ = ("acks", "flow", "ring")

    def __init__(self, flow: FlowControl) -> None:
        self.acks: dict[int, None] = {}
        self.ring: deque[RoceQueuePair] = deque()
        self.flow = flow


class RoceEndpoint(RocePairsEndpoint):
    """One node. The driver's methods and the verbs are those of `endpoint.Endpoint`; there are no EVs."""

    def __init__(self, config: RoceConfig, rng: random.Random, beside: CommonEndpoint | None = None) -> None:
        """Create an endpoint; `rng` is its only source of randomness.

        `beside`: an endpoint of the same host, whose ports, memory, completion queues and events it shares.
        """
        wire, count = config.wire, config.ports.count
        if beside is None:
            super().__init__(
                PortTable(count, _UNBOUNDED, 0, config.line_rate_bps), MemoryTable(rng, wire.length_only), deque()
            )
        else:
            super().__init__(*beside.shared())
        self.config = config
        self._rng = rng
        self._codec = RoceCodec(
            udp_port=wire.udp_port, p_key=wire.p_key, check_icrc=wire.check_icrc, length_only=wire.length_only
        )
        self._tc_data = wire.dscp_no_trim << 2 | _ECT0
        self._tc_control = wire.dscp_control << 2
        self._timers = TimerQueue()
        rate, priority = config.line_rate_bps // count, config.pause_priority
        self._lanes = [_Lane(FlowControl(self._timers, priority, rate, credits=config.credits)) for _ in range(count)]
        self._qps: dict[int, RoceQueuePair] = {}
        self._now = 0  # of the last call that said so
        self._drops: Counter[str] = Counter()
        self._counters: Counter[str] = Counter(dict.fromkeys(_COUNTERS, 0))
        self._next_qpn = rng.randrange(3, 1 << 23)

    # --- the driver's five methods, and one for MAC control ---

    def mac_control(self, port: int, frame: bytes, now: int) -> None:
        """Handle a MAC control frame without Ethernet header, as a NIC does (see `FlowControl`)."""
        self._lanes[port].flow.on_frame(frame, now)

    def receive_datagram(self, port: int, packet: bytes, now: int, missing: int = 0) -> None:
        """Take one IPv6 packet that arrived on `port`. Bad input is counted and dropped."""
        self._now = now
        entry = self._ports.ports[port]
        entry.received_packets += 1
        entry.received_bytes += len(packet) + missing
        try:
            message = self._codec.decode_roce(packet, missing)
        except WireError as problem:
            self._drops[problem.reason.value] += 1
            return
        qp = self._qps.get(message.dest_qp)
        if qp is None:
            self._drops["unknown_qp"] += 1
        elif message.p_key != self._codec.p_key:
            self._drops["p_key"] += 1
        elif message.addresses[:16] != qp.addresses[16:]:
            self._drops["wrong_peer"] += 1
        elif qp.state is not QpState.RTS:
            self._not_ready(qp, message, port, now)
        elif isinstance(message, RoceData | ReadRequest | AtomicRequest):
            self._on_request(qp, message, port, now)
        elif isinstance(message, RoceAck):
            self._on_ack(qp, message, now)
        elif isinstance(message, ReadResponse | AtomicAck):
            self._on_response(qp, message, port, now)
        else:
            assert isinstance(message, Cnp)
            self._counters["cnps_received"] += 1
            qp.dcqcn.on_cnp(now)
            self._schedule(qp)

    def _not_ready(self, qp: RoceQueuePair, message: RoceMessage, port: int, now: int) -> None:
        """Handle a packet to a queue pair that is not in RTS."""
        request = isinstance(message, RoceData | ReadRequest | AtomicRequest)
        if request and qp.state is QpState.RTR:
            self._on_request(qp, message, port, now)  # type: ignore[arg-type]
            return
        self._drops["qp_state"] += 1
        if qp.closing and request:
            self._send_close(qp)

    def idle(self) -> bool:
        """Return whether no port has anything to send."""
        return not any(lane.ring or lane.acks for lane in self._lanes) and not any(
            port.control for port in self._ports.ports
        )

    def datagrams_to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        """Return packets to put on `port` now, together at most `budget_bytes` long; control first."""
        entry, lane = self._ports.ports[port], self._lanes[port]
        out: list[bytes] = []
        if not entry.up:
            return out
        while True:
            budget_bytes = self._send_control(entry, lane, budget_bytes, out)
            if entry.control or not lane.ring:
                break
            budget_bytes = self._send_data(lane, port, now, budget_bytes, out)
            if not entry.control:  # answers behind a READ response
                break
        entry.sent_packets += len(out)
        entry.sent_bytes += sum(map(wire_length, out))
        return out

    def _send_control(self, entry: Port, lane: _Lane, room: int, out: list[bytes]) -> int:
        """Append control packets, and return the room that is left."""
        control = entry.control
        while control or self._fill(entry, lane):
            size = wire_length(control[0])
            if size > room:
                break
            room -= size
            out.append(control.pop(0))
        return room

    def _send_data(self, lane: _Lane, port: int, now: int, room: int, out: list[bytes]) -> int:
        """Append data in turn until control packets are due, and return the room that is left."""
        ports = self._ports
        control, ring, flow = ports.ports[port].control, lane.ring, lane.flow
        while ring and not control and now >= flow.paused_until:
            qp = ring[0]
            if not qp.sendable() or qp.ready_at() > now:
                ring.popleft()
                qp.in_ring = False
                self._wake(qp, now)
                self._schedule(qp)
                continue
            size = qp.next_size()
            on_link = not ports.looping or qp.addresses[:16] != qp.addresses[16:]
            if size > room or (on_link and not flow.allows(size, now)):
                break
            first = qp.deadline is None
            packet = self._build(qp, now)
            if packet is None:
                continue
            room -= wire_length(packet)
            if on_link:
                flow.sent(wire_length(packet))
            out.append(packet)
            if first:
                self._schedule(qp)
            if qp.responses:
                self._answers(qp, port)
            ring.rotate(-1)
        return room

    def _build(self, qp: RoceQueuePair, now: int) -> bytes | None:
        """Return the next packet of the first queue pair in the ring; None when its memory is gone, which ends it."""
        try:
            return qp.build(now, self._memory)
        except MemoryFault:
            job = qp.responses[0]
            self._ports.enqueue(qp.port, self._answer(qp, job.psn, Nak.REMOTE_OPERATION, qp.msn))
            self._to_error(qp, FLUSHED, ErrorReason.LOCAL_MEMORY)
        except LocalFault as error:
            self._to_error(qp, CompletionStatus.LOC_PROT_ERR, ErrorReason.LOCAL_MEMORY, error.request)
        return None

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is due next (ns), or None."""
        return self._timers.next_deadline()

    def handle_timer(self, now: int) -> None:
        """Run the timers that are due at `now`. Harmless when none is."""
        self._now = now
        while (due := self._timers.pop_due(now)) is not None:
            kind, owner = due
            owner.on_timer(kind, now)

    def _due(self, qp: RoceQueuePair, now: int) -> None:
        qp.dcqcn.on_timer(now)
        if qp.deadline is not None and qp.deadline <= now:
            self._on_timeout(qp, now)
        self._wake(qp, now)
        self._schedule(qp)

    # --- queue pairs ---

    def _silence(self, qp: RoceQueuePair) -> None:
        self._leave_ring(qp)
        for lane in self._lanes:
            lane.acks.pop(qp.number, None)
        qp.deadline = qp.dcqcn.deadline = None
        self._timers.cancel(TimerKind.PAIR, qp)

    def _forget(self, qp: RoceQueuePair) -> None:
        self._counters["packets_sent"] += qp.sent_packets
        self._counters["retransmissions"] += qp.retransmitted

    def close_qp(self, qp: RoceQueuePair, now: int) -> None:
        """Destroy a queue pair whose user is gone: notify the peer at once and as often as packets are repeated."""
        if qp.state is not QpState.RTS:
            self.destroy_qp(qp, now)
            return
        self.fail_qp(qp)
        self._leave_queues(qp, qp.send_cq, qp.recv_cq)  # nothing completes any more, and they may go
        qp.send_cq = qp.recv_cq = CompletionQueue(0, 1)
        self._join_queues(qp, qp.send_cq, qp.recv_cq)
        qp.closing = self.config.retry_cnt + 2
        qp.deadline = now
        self._schedule(qp)

    def _send_close(self, qp: RoceQueuePair) -> None:
        self._ports.enqueue(qp.port, self._answer(qp, qp.epsn, Nak.REMOTE_OPERATION, qp.msn))

    def _port_told(self, port: int, changed: bool, now: int) -> None:
        """Move queue pairs of a port that went down to another one, and back when it came up."""
        if changed:
            self._events.append(PortChanged(port, self._ports.ports[port].up, None))
            self.follow_port(port, now)

    def follow_port(self, port: int, now: int) -> None:
        """Do what a port that went down or came up means for queue pairs, without an event."""
        ports, lane = self._ports.ports, self._lanes[port]
        up = ports[port].up
        lane.flow.link_changed()
        if not up:
            lane.acks.clear()
            for qp in lane.ring:
                qp.in_ring = False
            lane.ring.clear()
        working = [other.number for other in ports if other.up]
        for qp in self._qps.values():
            chosen = qp.port
            if up and (qp.home_port == port or not ports[qp.port].up):
                chosen = port
            elif not up and qp.port == port and working:
                chosen = working[qp.number % len(working)]
            if chosen != qp.port:
                self._leave_ring(qp)
                qp.port = chosen
            self._wake(qp, now)

    def statistics(self) -> RoceStatistics:
        """Return a snapshot: endpoint counters, drops by reason, ports, queue pairs."""
        counters = dict(self._counters)  # of queue pairs that are gone; the others' follow
        counters["packets_sent"] += sum(qp.sent_packets for qp in self._qps.values())
        counters["retransmissions"] += sum(qp.retransmitted for qp in self._qps.values())
        return RoceStatistics(
            transport="roce",
            endpoint=counters,
            drops=dict(self._drops),
            ports=[
                RocePortStatistics(
                    **dataclasses.asdict(entry.snapshot()),
                    pauses_received=lane.flow.pauses,
                    paused_ns=lane.flow.paused_ns,
                    credit_stall_ns=lane.flow.stall_ns,
                )
                for entry, lane in zip(self._ports.ports, self._lanes, strict=True)
            ],
            qps=[
                RoceQpStatistics(
                    qpn=qp.number,
                    state=qp.state.name,
                    port=qp.port,
                    entropy=qp.entropy,
                    rate_bps=int(qp.dcqcn.rate),
                    packets_sent=qp.sent_packets,
                    retransmissions=qp.retransmitted,
                    outstanding=len(qp.work.unacked),
                )
                for qp in self._qps.values()
            ],
        )

    # --- inside ---

    def _leave_ring(self, qp: RoceQueuePair) -> None:
        if qp.in_ring:
            qp.in_ring = False
            self._lanes[qp.port].ring.remove(qp)

    def _wake(self, qp: RoceQueuePair, now: int) -> None:
        """Put a queue pair into the send ring of its port, if it has something to send and may.

        While its port is down, and with it all others, its retries end it as in a silent network.
        """
        if qp.in_ring or not qp.sendable():
            return
        if not self._ports.ports[qp.port].up:
            if qp.deadline is None:
                qp.deadline = qp.patience(now)
                self._schedule(qp)
        elif qp.ready_at() <= now:
            qp.in_ring = True
            self._lanes[qp.port].ring.append(qp)

    def _schedule(self, qp: RoceQueuePair) -> None:
        due = qp.due(self._ports.ports[qp.port].up)
        if due is not None:
            self._timers.arm_by(TimerKind.PAIR, qp, due)

    def _fill(self, entry: Port, lane: _Lane) -> bool:
        """Make a packet of the oldest ACK owed; False when none is."""
        while lane.acks:
            number = next(iter(lane.acks))
            del lane.acks[number]
            qp = self._qps.get(number)
            if qp is not None and qp.state in (QpState.RTS, QpState.RTR):
                entry.control.append(self._answer(qp, qp.epsn - 1, SYNDROME_ACK, qp.msn))
                return True
        return False

    def _answer(self, qp: RoceQueuePair, psn: int, syndrome: int, msn: int) -> bytes:
        self._counters["naks_sent" if syndrome & 0x60 else "acks_sent"] += 1
        return self._codec.encode_acknowledge(
            qp.addresses, qp.entropy, self._tc_control, qp.peer_qp, psn & PSN_MASK, syndrome, msn
        )

    def _marked(self, qp: RoceQueuePair, port: int, now: int) -> None:
        """Answer a packet with a congestion mark by a CNP, unless one has been sent a short while ago."""
        self._counters["ecn_marked"] += 1
        if now - qp.cnp_at >= self.config.dcqcn.cnp_interval_ns:
            qp.cnp_at = now
            self._counters["cnps_sent"] += 1
            cnp = self._codec.encode_cnp(qp.addresses, qp.entropy, self._tc_control, qp.peer_qp)
            self._ports.enqueue(port, cnp)

    def _on_request(self, qp: RoceQueuePair, data: RoceRequest, port: int, now: int) -> None:
        # An answer takes the port that its packet came on, or that of the queue pair when it is down (a port that was
        # disabled may still receive).
        port = port if self._ports.ports[port].up else qp.port
        if data.ce:
            self._marked(qp, port, now)
        self._execute(qp, data, port, now)
        while qp.early and qp.state is not QpState.ERROR and qp.epsn in qp.early:
            at = qp.epsn
            self._execute(qp, qp.early.pop(at), port, now)
            if qp.epsn == at:
                break

    def _execute(self, qp: RoceQueuePair, data: RoceRequest, port: int, now: int) -> None:
        """Execute a packet that has just come, or that came early and has its turn now."""
        if qp.doomed is not None:
            return
        before = qp.epsn
        waiting = bool(qp.responses)
        syndrome, done = qp.on_request(data, self._memory)
        if qp.epsn == before:
            self._counters["not_in_order"] += 1
        elif isinstance(data, RoceData):
            self._counters["payload_bytes_placed"] += len(data.payload)
        if qp.asked_reads:
            port = qp.port  # that of READ responses, with which acknowledgements are in order
        if qp.responses and not waiting:
            self._silence_acks(qp)  # the answer stands for them, and the next one would acknowledge it
        if syndrome is not None:
            self._reply(qp, data, syndrome, waiting, port)
        if done is not None:
            self._complete(qp.recv_cq, done)
        if qp.srq is not None:
            self._taken_from(qp.srq)
        if syndrome is not None and syndrome in _GUILT:
            guilt = REASONS.get(done.status) if done is not None else None
            qp.doomed = guilt or _GUILT[syndrome]  # type: ignore[index]
            if not waiting:
                self._to_error(qp, FLUSHED, qp.doomed)
        elif qp.responses:
            self._answers(qp, port)
            self._wake(qp, now)
            self._schedule(qp)

    def _reply(self, qp: RoceQueuePair, data: RoceRequest, syndrome: int, waiting: bool, port: int) -> None:
        """Answer a packet; `waiting`: behind READ responses."""
        if syndrome == SYNDROME_RNR:
            syndrome |= qp.min_rnr_timer
        named = data.psn if qp.selective and syndrome == Nak.SEQUENCE else qp.msn
        if waiting:
            qp.defer(qp.epsn - 1 if syndrome == SYNDROME_ACK else qp.epsn, syndrome, named)
        elif syndrome == SYNDROME_ACK:
            if self._ports.ports[port].up:
                self._lanes[port].acks[qp.number] = None  # coalesced until the port can send
        else:
            self._lanes[port].acks.pop(qp.number, None)
            self._ports.enqueue(port, self._answer(qp, qp.epsn, syndrome, named))

    def _silence_acks(self, qp: RoceQueuePair) -> None:
        for lane in self._lanes:
            lane.acks.pop(qp.number, None)

    def _answers(self, qp: RoceQueuePair, port: int) -> None:
        """Send the answers that no READ response precedes. A NAK that ends the queue pair is the last of them."""
        while (answer := qp.take_answer()) is not None:
            if answer.original is None:
                packet = self._answer(qp, answer.psn, answer.syndrome, answer.msn)
            else:
                self._counters["acks_sent"] += 1
                packet = self._codec.encode_atomic_ack(
                    qp.addresses, qp.entropy, self._tc_control, qp.peer_qp, answer.psn & PSN_MASK, answer.syndrome,
                    answer.msn, answer.original,
                )  # fmt: skip
            self._ports.enqueue(port, packet)
        if qp.doomed is not None and not qp.responses:
            self._to_error(qp, FLUSHED, qp.doomed)

    def _on_ack(self, qp: RoceQueuePair, message: RoceAck, now: int) -> None:
        done, fatal = qp.on_ack(message, now)
        for request in done:
            self._finish(qp, request, CompletionStatus.SUCCESS)
        if fatal:
            self._refused(qp, fatal)
            return
        self._wake(qp, now)
        self._schedule(qp)

    def _on_response(self, qp: RoceQueuePair, message: ReadResponse | AtomicAck, port: int, now: int) -> None:
        if isinstance(message, ReadResponse) and message.ce:
            self._marked(qp, port if self._ports.ports[port].up else qp.port, now)
        before = qp.una
        try:
            done, fatal = qp.on_response(message, now)
        except LocalFault as error:
            self._to_error(qp, CompletionStatus.LOC_PROT_ERR, ErrorReason.LOCAL_MEMORY, error.request)
            return
        if qp.una == before:
            self._counters["not_in_order"] += 1
        elif isinstance(message, ReadResponse):
            self._counters["payload_bytes_placed"] += len(message.payload)
        for request in done:
            self._finish(qp, request, CompletionStatus.SUCCESS)
        if fatal:
            self._refused(qp, fatal)
            return
        self._wake(qp, now)
        self._schedule(qp)

    def _on_timeout(self, qp: RoceQueuePair, now: int) -> None:
        if qp.closing:
            qp.closing -= 1
            if qp.closing:
                self._send_close(qp)
                qp.deadline = now + (qp.timeout_ns or self._default_timeout_ns)
            else:
                self.destroy_qp(qp, now)
            return
        qp.retries += 1
        self._counters["timeouts"] += 1
        if qp.retries > qp.retry_cnt:
            self._to_error(qp, CompletionStatus.RETRY_EXC_ERR, ErrorReason.RETRY_EXCEEDED)
            return
        qp.repair()
        # Of a dead port nothing is sent that could begin it; what is sent puts it off.
        qp.deadline = qp.patience(now)

    @property
    def _default_timeout_ns(self) -> int:
        return 1024 << self.config.timeout
