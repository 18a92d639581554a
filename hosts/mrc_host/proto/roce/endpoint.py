"""The RoCEv2 RC baseline: the endpoint that MRC is compared with, on the same surface as `endpoint.Endpoint`.

One path per queue pair (a fixed port and a fixed UDP source port), in-order delivery only, go-back-N on NAK or
timeout, coalesced ACKs, DCQCN on congestion notification packets. To use more paths, use more queue pairs. Only
RDMA WRITE, with and without immediate. Sources: IBTA RoCEv2; DCQCN as in Zhu et al., SIGCOMM 2015.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from mrc_host.proto.common import CommonEndpoint
from mrc_host.proto.completion import Completion, CompletionKind, CompletionQueue, CompletionStatus
from mrc_host.proto.config import PortsConfig, WireConfig, check_address
from mrc_host.proto.congestion.dcqcn import Dcqcn, DcqcnConfig
from mrc_host.proto.events import ErrorReason, PortChanged, QpError, QpState, QpStateChanged
from mrc_host.proto.limits import check_range
from mrc_host.proto.memory import MemoryRegion, MemoryTable
from mrc_host.proto.ports import Port, PortTable
from mrc_host.proto.qp_document import RoceQpDocument
from mrc_host.proto.roce.codec import Cnp, RoceAck, RoceCodec, RoceData
from mrc_host.proto.roce.flow_control import FlowControl
from mrc_host.proto.roce.qp import NAK_STATUS, SYNDROME_ACK, SYNDROME_RNR, RoceQueuePair
from mrc_host.proto.statistics import RocePortStatistics, RoceQpStatistics, RoceStatistics
from mrc_host.proto.timers import TimerKind, TimerQueue
from mrc_host.proto.transport import Buffer
from mrc_host.proto.wire.fields import Nak
from mrc_host.proto.wire.icrc import wire_length
from mrc_host.proto.wire.packet import WireError
from mrc_host.proto.wire.psn import PSN_MASK
from mrc_host.proto.work import WriteRequest, bytes_of

__all__ = ["DcqcnConfig", "RoceConfig", "RoceEndpoint", "RoceQueuePair"]

_ECT0 = 2
_UNBOUNDED: Final = 1 << 62  # control packets that may wait at a port
# All of `statistics()["endpoint"]`, there from the start.
_COUNTERS = (
    "acks_sent", "cnps_received", "cnps_sent", "ecn_marked", "naks_sent", "not_in_order", "packets_sent",
    "payload_bytes_placed", "retransmissions", "timeouts",
)  # fmt: skip
_REASONS = {
    CompletionStatus.RETRY_EXC_ERR: ErrorReason.RETRY_EXCEEDED,
    CompletionStatus.REM_ACCESS_ERR: ErrorReason.REMOTE_ACCESS,
    CompletionStatus.REM_INV_REQ_ERR: ErrorReason.REMOTE_INVALID_REQUEST,
    CompletionStatus.REM_OP_ERR: ErrorReason.REMOTE_OPERATION,
}


@dataclass(frozen=True, slots=True)
class RoceConfig:
    """The configuration of a RoCE endpoint. `address` is 16 bytes; `line_rate_bps` is of all ports together."""

    address: bytes
    wire: WireConfig = field(default_factory=WireConfig)
    ports: PortsConfig = field(default_factory=PortsConfig)
    dcqcn: DcqcnConfig = field(default_factory=DcqcnConfig)
    line_rate_bps: int = 100_000_000_000
    timeout: int = 14  # local ACK timeout = 1.024 us * 2**timeout
    retry_cnt: int = 7
    ack_every: int = 16  # packets of a message per acknowledgement asked for
    max_inflight_packets: int = 1024
    min_rnr_timer: int = 7  # code of the time that a peer waits when no receive is posted: 0.12 ms (`rnr.py`)
    initial_psn: int | None = None
    selective_repeat: bool = False  # instead of go-back-N
    reorders: bool = False  # early packets are kept without a NAK: for fabrics that reorder and lose nothing
    pause_priority: int = 0  # of data, in priority flow control and credits
    credits: bool = False  # data waits for credits of the switch, after InfiniBand's

    def __post_init__(self) -> None:
        check_address(self.address)
        check_range("roce.line_rate_bps", self.line_rate_bps, 1000, 10**14)
        check_range("roce.timeout", self.timeout, 0, 24)
        check_range("roce.retry_cnt", self.retry_cnt, 0, 7)
        check_range("roce.ack_every", self.ack_every, 1, 1024)
        check_range("roce.max_inflight_packets", self.max_inflight_packets, 1, 1 << 22)
        check_range("roce.pause_priority", self.pause_priority, 0, 7)
        check_range("roce.min_rnr_timer", self.min_rnr_timer, 0, 31)
        if self.initial_psn is not None:
            check_range("initial_psn", self.initial_psn, 0, PSN_MASK)


class _Lane:
    """What a port has beside its control packets: QPs that owe an ACK, QPs that may send, pauses and credits."""

    __slots__ = ("acks", "flow", "ring")

    def __init__(self, flow: FlowControl) -> None:
        self.acks: dict[int, None] = {}
        self.ring: deque[RoceQueuePair] = deque()
        self.flow = flow


class RoceEndpoint(CommonEndpoint):
    """One node. The driver's methods and the verbs are those of `endpoint.Endpoint`; there are no EVs."""

    def __init__(self, config: RoceConfig, rng: random.Random) -> None:
        wire, count = config.wire, config.ports.count
        super().__init__(
            PortTable(count, _UNBOUNDED, 0, config.line_rate_bps), MemoryTable(rng, wire.length_only), deque()
        )
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
            self._drops["qp_state"] += 1
            if qp.closing and isinstance(message, RoceData):
                self._send_close(qp)
        elif isinstance(message, RoceData):
            self._on_data(qp, message, port, now)
        elif isinstance(message, RoceAck):
            self._on_ack(qp, message, now)
        else:
            assert isinstance(message, Cnp)
            self._counters["cnps_received"] += 1
            qp.dcqcn.on_cnp(now)
            self._schedule(qp)

    def datagrams_to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        """Return packets to put on `port` now, together at most `budget_bytes` long; control first."""
        entry, lane = self._ports.ports[port], self._lanes[port]
        out: list[bytes] = []
        if not entry.up:
            return out
        control, ring, flow = entry.control, lane.ring, lane.flow
        while control or self._fill(entry, lane):
            if wire_length(control[0]) > budget_bytes:
                break
            budget_bytes -= wire_length(control[0])
            out.append(control.popleft())
        while ring and not control and now >= flow.paused_until:
            qp = ring[0]
            if not qp.sendable() or max(qp.paced_until, qp.not_before) > now:
                ring.popleft()
                qp.in_ring = False
                self._wake(qp, now)
                self._schedule(qp)
                continue
            size = qp.next_size()
            if size > budget_bytes:
                break
            if not flow.allows(size, now):
                break
            first = qp.deadline is None
            packet = qp.build(now)
            budget_bytes -= wire_length(packet)
            flow.sent(wire_length(packet))
            out.append(packet)
            if first:
                self._schedule(qp)
            ring.rotate(-1)
        entry.sent_packets += len(out)
        entry.sent_bytes += sum(map(wire_length, out))
        return out

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is due next (ns), or None."""
        return self._timers.next_deadline()

    def handle_timer(self, now: int) -> None:
        """Run the timers that are due at `now`. Harmless when none is."""
        self._now = now
        while (due := self._timers.pop_due(now)) is not None:
            kind, owner = due
            owner.on_timer(kind, now)

    def _on_due(self, qp: RoceQueuePair, now: int) -> None:
        qp.dcqcn.on_timer(now)
        if qp.deadline is not None and qp.deadline <= now:
            self._on_timeout(qp, now)
        self._wake(qp, now)
        self._schedule(qp)

    # --- memory, completions, queue pairs ---

    def register_memory(
        self, buffer: bytearray | memoryview, va: int | None = None, *, writable: bool = True
    ) -> MemoryRegion:
        """Register a buffer; `.rkey`, `.va`, `.length` are what a peer needs to write to it."""
        return self._memory.register(buffer, va, writable)

    def create_qp(self, send_cq: CompletionQueue, recv_cq: CompletionQueue | None = None) -> RoceQueuePair:
        """Return a queue pair in RESET, on the next port in turn and a random UDP source port, which it keeps."""
        recv_cq = recv_cq or send_cq
        self._check_queues(send_cq, recv_cq)
        c, rng = self.config, self._rng
        self._next_qpn = self._next_qpn % ((1 << 24) - 1) + 1
        while self._next_qpn in self._qps or self._next_qpn < 3:
            self._next_qpn = self._next_qpn % ((1 << 24) - 1) + 1
        start = rng.getrandbits(24) if c.initial_psn is None else c.initial_psn
        qp = RoceQueuePair(
            self._next_qpn,
            send_cq,
            recv_cq,
            self._codec,
            Dcqcn(c.dcqcn, c.line_rate_bps // c.ports.count),
            mtu=c.wire.mtu,
            start_psn=start,
            port=len(self._qps) % c.ports.count,
            entropy=0xC000 | rng.getrandbits(14) | rng.getrandbits(16) << 16,
            timeout_ns=1024 << c.timeout,
            ack_every=c.ack_every,
            max_inflight=c.max_inflight_packets,
            traffic_class=self._tc_data,
            timed=self._on_due,
            overflowed=self._on_overflow,
            selective=c.selective_repeat,
            reorders=c.reorders,
        )
        self._qps[qp.number] = qp
        self._join_queues(qp, send_cq, recv_cq)
        return qp

    def destroy_qp(self, qp: RoceQueuePair, now: int) -> None:
        """Flush and forget a queue pair."""
        self._to_error(qp, CompletionStatus.WR_FLUSH_ERR, ErrorReason.REQUESTED)
        self._counters["packets_sent"] += qp.sent_packets
        self._counters["retransmissions"] += qp.retransmitted
        del self._qps[qp.number]
        self._leave_queues(qp, qp.send_cq, qp.recv_cq)
        qp.deadline = None  # of one that was closed: its timer must not be armed again
        self._timers.cancel(TimerKind.PAIR, qp)

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

    def fail_qp(self, qp: RoceQueuePair) -> None:
        """Go to ERROR at the user's request: flush all requests and receives."""
        self._to_error(qp, CompletionStatus.WR_FLUSH_ERR, ErrorReason.REQUESTED)

    def local_attributes(self, qp: RoceQueuePair) -> RoceQpDocument:
        """Return what the peer needs, as one JSON-serialisable document. Moves a QP in RESET to INIT."""
        if qp.state is QpState.RESET:
            self._set_state(qp, QpState.INIT, None)
        return {
            "transport": "roce",
            "qpn": qp.number,
            "address": self.config.address.hex(),
            "initial_psn": qp.start_psn & PSN_MASK,
            "mtu": qp.mtu,
        }

    def connect(self, qp: RoceQueuePair, remote: object, now: int) -> None:
        """Go INIT -> RTR -> RTS with the peer's attributes. Raises QpError."""
        if qp.state is not QpState.INIT:
            raise QpError(f"connect needs INIT, queue pair {qp.number} is in {qp.state.name}")
        if not isinstance(remote, dict):
            raise QpError(f"the peer's attributes are {remote!r:.60}, not an object")
        missing = {"qpn", "address", "initial_psn", "mtu"} - remote.keys()
        if missing:
            raise QpError(f"the peer's attributes lack {', '.join(sorted(missing))}")
        if remote.get("transport", "roce") != "roce":
            raise QpError(f"the peer speaks {remote['transport']}, not RoCE")
        if int(remote["mtu"]) != qp.mtu:
            raise QpError(f"the peer's MTU is {remote['mtu']}, ours {qp.mtu}; they must be equal")
        qp.peer_qp = int(remote["qpn"])
        qp.addresses = self.config.address + bytes.fromhex(str(remote["address"]))
        qp.epsn = int(remote["initial_psn"])
        self._set_state(qp, QpState.RTR, None)
        self._set_state(qp, QpState.RTS, None)

    def post_write(
        self,
        qp: RoceQueuePair,
        local: Buffer,
        remote_va: int,
        rkey: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
    ) -> None:
        """Write `local[local_offset:][:length]` to the peer's memory. Raises QpError in a state before RTS."""
        self._post(qp, local, remote_va, rkey, None, wr_id, local_offset, length)

    def post_write_imm(
        self,
        qp: RoceQueuePair,
        local: Buffer,
        remote_va: int,
        rkey: int,
        immediate: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
        solicited: bool = False,
    ) -> None:
        """Do as `post_write`, and deliver a 32-bit immediate to one posted receive of the peer, never solicited."""
        self._post(qp, local, remote_va, rkey, immediate, wr_id, local_offset, length)

    def post_recv(self, qp: RoceQueuePair, wr_id: int, count: int = 1) -> None:
        """Post `count` receives, each for one immediate."""
        if qp.state is QpState.ERROR:
            for _ in range(count):
                self._complete(qp.recv_cq, Completion(wr_id, qp.number, CompletionKind.RECV_IMM, _FLUSH, 0, None))
        else:
            qp.receives.extend([wr_id] * count)

    def _port_told(self, port: int, changed: bool, now: int) -> None:
        """Move queue pairs of a port that went down to another one, and back when it came up."""
        if not changed:
            return
        ports, lane = self._ports.ports, self._lanes[port]
        up = ports[port].up
        lane.flow.link_changed()
        self._events.append(PortChanged(port, up, None))
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

    def _post(
        self,
        qp: RoceQueuePair,
        local: Buffer,
        remote_va: int,
        rkey: int,
        immediate: int | None,
        wr_id: int,
        offset: int,
        length: int | None,
    ) -> None:
        request = WriteRequest(wr_id, bytes_of(local, offset, length), remote_va, rkey, immediate)
        if qp.state is QpState.ERROR:
            self._finish(qp, request, CompletionStatus.WR_FLUSH_ERR)
            return
        if qp.state is not QpState.RTS:
            raise QpError(f"posting needs RTS, queue pair {qp.number} is in {qp.state.name}; connect it first")
        qp.work.post(request, self._now)
        self._wake(qp, self._now)
        if not qp.in_ring:
            self._schedule(qp)

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
                qp.deadline = now + qp.timeout_ns
                self._schedule(qp)
        elif max(qp.paced_until, qp.not_before) <= now:
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
            if qp is not None and qp.state is QpState.RTS:
                entry.control.append(self._answer(qp, qp.epsn - 1, SYNDROME_ACK, qp.msn))
                return True
        return False

    def _answer(self, qp: RoceQueuePair, psn: int, syndrome: int, msn: int) -> bytes:
        self._counters["naks_sent" if syndrome & 0x60 else "acks_sent"] += 1
        return self._codec.encode_acknowledge(
            qp.addresses, qp.entropy, self._tc_control, qp.peer_qp, psn & PSN_MASK, syndrome, msn
        )

    def _on_data(self, qp: RoceQueuePair, data: RoceData, port: int, now: int) -> None:
        # An answer takes the port that its packet came on, or that of the queue pair when it is down (a port that was
        # disabled may still receive).
        port = port if self._ports.ports[port].up else qp.port
        if data.ce:
            self._counters["ecn_marked"] += 1
            if now - qp.cnp_at >= self.config.dcqcn.cnp_interval_ns:
                qp.cnp_at = now
                self._counters["cnps_sent"] += 1
                cnp = self._codec.encode_cnp(qp.addresses, qp.entropy, self._tc_control, qp.peer_qp)
                self._ports.enqueue(port, cnp)
        self._place(qp, data, port)
        while qp.early and qp.state is QpState.RTS and qp.epsn in qp.early:
            at = qp.epsn
            self._place(qp, qp.early.pop(at), port)
            if qp.epsn == at:
                break

    def _place(self, qp: RoceQueuePair, data: RoceData, port: int) -> None:
        """Place a packet that has just come, or that came early and has its turn now."""
        before = qp.epsn
        syndrome, length, immediate = qp.on_data(data, self._memory)
        if qp.epsn == before:
            self._counters["not_in_order"] += 1
        else:
            self._counters["payload_bytes_placed"] += len(data.payload)
        if syndrome == SYNDROME_RNR:
            syndrome |= self.config.min_rnr_timer
        if syndrome == SYNDROME_ACK:
            if self._ports.ports[port].up:
                self._lanes[port].acks[qp.number] = None  # coalesced until the port can send
        elif syndrome is not None:
            self._lanes[port].acks.pop(qp.number, None)
            named = data.psn if qp.selective and syndrome == Nak.SEQUENCE else qp.msn
            self._ports.enqueue(port, self._answer(qp, qp.epsn, syndrome, named))
        if immediate is not None:
            wr_id = qp.receives.popleft()
            done = Completion(
                wr_id,
                qp.number,
                CompletionKind.RECV_IMM,
                CompletionStatus.SUCCESS,
                length or 0,
                immediate.immediate,
            )
            self._complete(qp.recv_cq, done)
        if syndrome == Nak.REMOTE_ACCESS:
            self._to_error(qp, CompletionStatus.WR_FLUSH_ERR, ErrorReason.LOCAL_ACCESS)
        elif syndrome == Nak.INVALID_REQUEST:
            self._to_error(qp, CompletionStatus.WR_FLUSH_ERR, ErrorReason.LOCAL_INVALID_REQUEST)

    def _on_ack(self, qp: RoceQueuePair, message: RoceAck, now: int) -> None:
        done, fatal = qp.on_ack(message, now)
        for request in done:
            self._finish(qp, request, CompletionStatus.SUCCESS)
        if fatal:
            self._to_error(qp, NAK_STATUS[fatal], _REASONS[NAK_STATUS[fatal]])
            return
        self._wake(qp, now)
        self._schedule(qp)

    def _on_timeout(self, qp: RoceQueuePair, now: int) -> None:
        if qp.closing:
            qp.closing -= 1
            if qp.closing:
                self._send_close(qp)
                qp.deadline = now + qp.timeout_ns
            else:
                self.destroy_qp(qp, now)
            return
        qp.retries += 1
        self._counters["timeouts"] += 1
        if qp.retries > self.config.retry_cnt:
            self._to_error(qp, CompletionStatus.RETRY_EXC_ERR, ErrorReason.RETRY_EXCEEDED)
            return
        qp.repair()
        qp.deadline = (
            now + qp.timeout_ns
        )  # of a dead port nothing is sent that could begin it; what is sent puts it off

    def _to_error(self, qp: RoceQueuePair, status: CompletionStatus, reason: ErrorReason) -> None:
        """End the oldest request with `status` and flush the others."""
        if qp.state is QpState.ERROR:
            return
        self._set_state(qp, QpState.ERROR, reason)
        qp.deadline = qp.dcqcn.deadline = None
        for request in qp.work.flush():
            self._finish(qp, request, status)
            status = CompletionStatus.WR_FLUSH_ERR
        while qp.receives:
            flushed = Completion(qp.receives.popleft(), qp.number, CompletionKind.RECV_IMM, _FLUSH, 0, None)
            self._complete(qp.recv_cq, flushed)

    def _finish(self, qp: RoceQueuePair, request: WriteRequest, status: CompletionStatus) -> None:
        self._complete(qp.send_cq, Completion(request.wr_id, qp.number, request.kind, status, request.length, None))

    def _complete(self, cq: CompletionQueue, completion: Completion) -> None:
        cq.deliver(completion, self._events, self._now)

    def _on_overflow(self, qp: RoceQueuePair) -> None:
        self._to_error(qp, CompletionStatus.WR_FLUSH_ERR, ErrorReason.CQ_OVERFLOW)

    def _set_state(self, qp: RoceQueuePair, state: QpState, reason: ErrorReason | None) -> None:
        self._events.append(QpStateChanged(qp.number, qp.state, state, reason))
        qp.state = state


_FLUSH = CompletionStatus.WR_FLUSH_ERR
