"""The MRC endpoint: a sans-IO protocol core with five methods towards its driver, and verbs towards its user.

Driver: `receive_datagram`, `datagrams_to_send`, `next_timer`, `handle_timer`, `next_event`. The driver
owns sockets and clock; it hands in `now` (integer ns, never going backwards) and the room of each port,
and adds the Ethernet header. Port p is in plane p. After any call the driver asks every port for
datagrams and re-reads `next_timer`.

A loop without I/O, two endpoints on one virtual clock:

    for port in range(planes):
        for packet in a.datagrams_to_send(port, now, budget_bytes=9000):
            b.receive_datagram(port, packet, now + 5_000)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from mrc_host.proto.completion import Completion, CompletionQueue
from mrc_host.proto.config import CcConfig, EndpointConfig, EvConfig, ReliabilityConfig, check_range
from mrc_host.proto.context import Context
from mrc_host.proto.ev import STATES, EvInput
from mrc_host.proto.ev_profile import EvUniverse
from mrc_host.proto.events import ErrorReason, Event, EvState, PortChanged, QpState
from mrc_host.proto.fields import NackReason
from mrc_host.proto.memory import MemoryRegion
from mrc_host.proto.messages import Ack, Data, EndpointRequest, EndpointResponse, Nack, Probe, Sack
from mrc_host.proto.node_ops import NodeOperations
from mrc_host.proto.packet import WireError
from mrc_host.proto.peer import Peer
from mrc_host.proto.qp import (
    RECEIVE_STATES,
    REQUIRED,
    QpError,
    QpInput,
    QueuePair,
    check_document,
    local_document,
)
from mrc_host.proto.requestor import AHEAD, BUDGET, PORT, WINDOW, WriteRequest
from mrc_host.proto.timers import TimerKind
from mrc_host.proto.trace import Tracer

ENDPOINT_QP = 2  # endpoint operations go to this queue pair number
# Requests of strangers are answered too; forged addresses must not fill the memory.
_MAX_PEERS = 65536
_REFUSALS = (
    NackReason.NO_BITMAP,
    NackReason.NO_PKT_BUFFER,
    NackReason.NO_RESOURCE,
    NackReason.UNEXP_EVENT,
)


class Endpoint:
    """One node: queue pairs, memory regions, completion queues, ports. See the module's docstring."""

    __slots__ = ("_cqs", "_node", "_peers", "_qps", "_universes", "config", "context")

    def __init__(self, config: EndpointConfig, rng: random.Random, tracer: Tracer | None = None) -> None:
        """`rng` is the only source of randomness; `tracer` receives the event trace."""
        self.config = config
        self.context = Context(config, rng, tracer)
        self._node = NodeOperations(self.context)
        self._qps: dict[int, QueuePair] = {}
        self._peers: dict[bytes, Peer] = {}  # by source and destination address of what they send
        self._cqs: dict[int, CompletionQueue] = {}
        self._universes: dict[int, EvUniverse] = {}  # by identity of the profile

    # --- the driver's five methods ---

    def receive_datagram(self, port: int, packet: bytes, now: int) -> None:
        """Take one IPv6 packet (no Ethernet header) that arrived on `port`. Bad input is counted and dropped."""
        context = self.context
        context.now = now
        context.counters.datagrams_received += 1
        try:
            entry = context.ports.ports[port]
            entry.received_packets += 1
            entry.received_bytes += len(packet)
            message = context.codec.decode(packet)
        except WireError as error:
            context.drop(error.reason.value, port, now)
            return
        if message.p_key != self.config.wire.p_key:
            context.drop("p_key", port, now)
            return
        qp = self._qps.get(message.dest_qp)
        if qp is None:
            self._node_message(message, port, now)
            return
        if not qp.connected or qp.peer.addresses_in != message.addresses:
            context.drop("qp_state" if not qp.connected else "wrong_source", port, now)
            return
        kind = type(message)
        if kind is Data:
            if qp.state in RECEIVE_STATES:
                peer = qp.peer
                if peer.inbound_ns < 0 and peer.universe.config.reverse_probes:
                    self._node.on_inbound(peer, now)
                peer.inbound_ns = now
                qp.responder.on_data(message, port, now)  # type: ignore[arg-type]
            else:
                context.drop("qp_state", port, now)
                qp.responder.repeat_nak(port)
            return
        if kind is Probe:
            if qp.state in RECEIVE_STATES:
                qp.responder.on_probe(message, port, now)  # type: ignore[arg-type]
            else:
                context.drop("qp_state", port, now)
                qp.responder.repeat_nak(port)
            return
        if qp.state is not QpState.RTS:
            context.drop("qp_state", port, now)
        elif kind is Sack:
            qp.requestor.on_sack(message, now)  # type: ignore[arg-type]
        elif kind is Ack:
            qp.requestor.on_ack(message, now)  # type: ignore[arg-type]
        elif kind is Nack:
            qp.requestor.recovery.on_nack(message, now)  # type: ignore[arg-type]
        else:
            context.drop("endpoint_op_to_qp", port, now)

    def _node_message(
        self,
        message: Data | Sack | Nack | Ack | Probe | EndpointRequest | EndpointResponse,
        port: int,
        now: int,
    ) -> None:
        """A packet to no queue pair of ours: an endpoint operation, or nothing we know."""
        context = self.context
        if message.dest_qp != ENDPOINT_QP or not isinstance(message, EndpointRequest | EndpointResponse):
            context.drop("unknown_qp", port, now)
            return
        peer = self._peers.get(message.addresses)
        if peer is None:
            if message.addresses[16:] != self.config.address or isinstance(message, EndpointResponse):
                context.drop("unknown_peer", port, now)
                return
            if len(self._peers) >= _MAX_PEERS:
                context.drop("peer_limit", port, now)
                return
            peer = self._peer(message.addresses[:16], self._universe(self.config.ev), self.config.cc)
        if isinstance(message, EndpointRequest):
            self._planes_lost(peer, self._node.on_request(peer, message, port, now), now)
        else:
            self._node.on_response(peer, message, now)

    def datagrams_to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        """IPv6 packets to put on `port` now, in order, together at most `budget_bytes` long.

        Control packets come first. A packet that does not fit the rest of the budget waits for the next
        call. An empty list means that nothing may go now: call again after any other call or timer.
        """
        context = self.context
        context.now = now
        entry = context.ports.ports[port]
        packets: list[bytes] = []
        if not entry.up:
            return packets
        room = budget_bytes
        control = entry.control
        while control and len(control[0]) <= room:
            packet = control.popleft()
            room -= len(packet)
            packets.append(packet)
        ring = context.ring
        if ring and not control:
            stuck = 0  # requestors seen in a row that have nothing for this port
            blocked: list[Peer] = []  # window closed, or this port has run ahead of the others
            held = 0  # their requestors in the ring
            while stuck + held < len(ring):
                requestor = ring[0]
                peer = requestor.qp.peer
                if blocked and peer in blocked:
                    ring.rotate(-1)
                    continue
                sent = requestor.emit(port, now, room)
                if isinstance(sent, bytes):
                    packets.append(sent)
                    room -= len(sent)
                    ring.rotate(-1)
                    stuck = 0
                elif sent == PORT:
                    ring.rotate(-1)
                    stuck += 1
                elif sent == AHEAD:
                    blocked.append(peer)
                    held += peer.in_ring
                    stuck = 0
                elif sent == BUDGET:
                    break
                else:
                    ring.popleft()
                    requestor.in_ring = False
                    peer.in_ring -= 1
                    if sent == WINDOW:
                        requestor.waiting = True
                        peer.waiting.append(requestor)
                        blocked.append(peer)
                        held += peer.in_ring
                        stuck = 0
        if packets:
            entry.sent_packets += len(packets)
            entry.sent_bytes += budget_bytes - room
            context.counters.datagrams_sent += len(packets)
        return packets

    def next_timer(self) -> int | None:
        """When `handle_timer` wants to be called (ns), or None."""
        return self.context.timers.next_deadline()

    def handle_timer(self, now: int) -> None:
        """Do what is due at `now`. Harmless when nothing is."""
        self.context.now = now
        timers = self.context.timers
        while (due := timers.pop_due(now)) is not None:
            kind, owner = due
            if isinstance(owner, QueuePair):
                self._qp_timer(kind, owner, now)
            elif isinstance(owner, Peer):
                if kind is TimerKind.PORT_STATUS:
                    self._node.on_status_timer(owner, now)
                elif kind is TimerKind.REVERSE_PROBE:
                    self._node.on_reverse_timer(owner, now)
                else:
                    owner.balance.forgive(now)
            else:
                self._node.on_probe_timer(now)

    def _qp_timer(self, kind: TimerKind, qp: QueuePair, now: int) -> None:
        if kind is TimerKind.RETRANSMIT:
            qp.requestor.recovery.on_timeout(now)
        elif kind is TimerKind.TAIL:
            qp.requestor.recovery.on_tail(now)
        elif kind is TimerKind.BACKOFF:
            qp.requestor.recovery.on_backoff()
        elif kind is TimerKind.EV_PROBE:
            qp.prober.on_timer(now)
        else:
            qp.responder.on_sack_delay(now)

    def next_event(self) -> Event | None:
        """The oldest event not yet taken, or None."""
        events = self.context.events
        return events.popleft() if events else None

    # --- memory and completions ---

    def register_memory(
        self, buffer: bytearray | memoryview, va: int | None = None, *, writable: bool = True
    ) -> MemoryRegion:
        """Register a buffer; `.rkey`, `.va`, `.length` are what a peer needs to write to it."""
        return self.context.memory.register(buffer, va, writable)

    def deregister_memory(self, region: MemoryRegion) -> None:
        """Forget a region; later writes to it are refused. Raises KeyError when it is not registered."""
        self.context.memory.deregister(region.rkey)

    def create_cq(self, depth: int = 65536) -> CompletionQueue:
        """A completion queue; an overflow moves the queue pairs that use it to ERROR."""
        check_range("completion queue depth", depth, 1, 1 << 24)
        cq = CompletionQueue(len(self._cqs) + 1, depth)
        self._cqs[cq.number] = cq
        return cq

    def poll(self, cq: CompletionQueue, limit: int = 64) -> list[Completion]:
        """Take up to `limit` completions, oldest first."""
        return cq.poll(limit)

    # --- queue pairs ---

    def _universe(self, config: EvConfig) -> EvUniverse:
        """The universe of a profile, made at its first use; it keeps the profile alive, so that the id stays unique."""
        universe = self._universes.get(id(config))
        if universe is None:
            universe = EvUniverse(config, self.config.ports.count, self.context.rng)
            self._universes[id(config)] = universe
        return universe

    def _peer(self, address: bytes, universe: EvUniverse, cc: CcConfig) -> Peer:
        key = address + self.config.address
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = Peer(self.context, address, universe, cc)
        return peer

    def create_qp(
        self,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        *,
        reliability: ReliabilityConfig | None = None,
        ev: EvConfig | None = None,
        cc: CcConfig | None = None,
    ) -> QueuePair:
        """A queue pair in RESET; profiles not given are those of the endpoint's configuration."""
        number = self.context.rng.randrange(16, 1 << 24)
        while number in self._qps:
            number = self.context.rng.randrange(16, 1 << 24)
        ev_config = ev or self.config.ev
        qp = QueuePair(
            number,
            self.context,
            self._universe(ev_config),
            send_cq,
            recv_cq or send_cq,
            reliability or self.config.reliability,
            ev_config,
            cc or self.config.cc,
        )
        self._qps[number] = qp
        return qp

    def destroy_qp(self, qp: QueuePair, now: int) -> None:
        """Flush and forget a queue pair; packets that still arrive for it are counted as unknown_qp."""
        if self._qps.pop(qp.number, None) is None:
            raise QpError(f"queue pair {qp.number} does not belong to this endpoint")
        qp.reset(now)

    def local_attributes(self, qp: QueuePair) -> dict[str, Any]:
        """What the peer must know, as one JSON-serialisable document (`mrc-protocol.md §4`).

        Moves a queue pair in RESET to INIT.
        """
        if qp.state is QpState.RESET:
            qp.transit(QpInput.TO_INIT, self.context.now)
        return local_document(qp)

    def connect(self, qp: QueuePair, remote: Mapping[str, Any], now: int) -> None:
        """Negotiate with the peer's `local_attributes` and go INIT -> RTR -> RTS.

        Raises `QpError` when the document lacks a key, contradicts ours (MTU, ports) or the state is wrong.
        """
        if qp.state is QpState.RESET:
            qp.transit(QpInput.TO_INIT, now)
        address = check_document(qp, remote)
        attributes = qp.attributes
        attributes.peer_trim_nack = remote["trim_nack"]
        attributes.peer_service_time = remote["service_time"]
        attributes.dynamic_mpr = attributes.dynamic_mpr and remote["dynamic_mpr"]
        self.modify(
            qp,
            QpState.RTR,
            now,
            remote_number=remote["qpn"],
            remote_address=address,
            rq_psn=remote["psn"],
            mtu=min(attributes.mtu, remote["mtu"]),
            max_wimm_dest=attributes.max_wimm_dest,
            mpr_dest=attributes.mpr_dest,
        )
        peer = qp.peer
        peer.last_status_id = None  # a peer that starts again numbers its updates anew
        peer.remote_ports = remote["ports_up"]
        self._planes_lost(peer, peer.refresh_planes(), now)
        self.modify(
            qp,
            QpState.RTS,
            now,
            sq_psn=qp.sq_psn,
            max_wimm=min(attributes.max_wimm, remote["max_wimm_dest"]),
            mpr=min(attributes.mpr, remote["mpr_dest"]),
            timeout=attributes.timeout,
            linear_cnt=attributes.linear_cnt,
            exp_cnt=attributes.exp_cnt,
        )

    def modify(self, qp: QueuePair, state: QpState, now: int, **attributes: Any) -> None:
        """One transition at a time, with the attributes it needs (see `qp.REQUIRED`); ERROR and RESET always.

        Raises `QpError` for a transition that the state table does not have or a missing attribute.
        """
        self.context.now = now
        needed = REQUIRED.get(state, ())
        if set(attributes) != set(needed):
            raise QpError(
                f"modify to {state.value} takes {', '.join(needed) or 'no attributes'}, got {sorted(attributes)}"
            )
        if state is QpState.ERROR:
            qp.fail(ErrorReason.REQUESTED, now)
        elif state is QpState.RESET:
            qp.reset(now)
        elif state is QpState.INIT:
            qp.transit(QpInput.TO_INIT, now)
        elif state is QpState.RTR:
            qp.attributes.mtu = attributes["mtu"]
            qp.attributes.max_wimm_dest = attributes["max_wimm_dest"]
            qp.attributes.mpr_dest = attributes["mpr_dest"]
            peer = self._peer(attributes["remote_address"], qp.evs.universe, qp.cc_config)
            peer.adopt(qp.evs.universe, qp.cc_config)
            qp.enter_rtr(peer, attributes["remote_number"], attributes["rq_psn"], now)
        else:
            for name in needed:
                setattr(qp if name == "sq_psn" else qp.attributes, name, attributes[name])
            qp.enter_rts(now)

    def set_mpr(self, qp: QueuePair, units: int) -> None:
        """Dynamic MPR: change the responder's window (units of 128 PSNs); SACKs carry it from now on."""
        if not qp.attributes.dynamic_mpr:
            raise QpError(f"queue pair {qp.number}: dynamic MPR is not enabled at both ends")
        check_range("mpr", units, 1, 255)
        qp.responder.set_mpr(units)

    def post_write(
        self,
        qp: QueuePair,
        local: bytes | bytearray | memoryview | MemoryRegion,
        remote_va: int,
        rkey: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
    ) -> None:
        """Write `local[local_offset:][:length]` to the peer's memory; the buffer is the QP's until completion.

        Raises `QpError` in a state before RTS; in ERROR the request completes with a flush error.
        """
        view = _slice(local, local_offset, length)
        qp.post(WriteRequest(wr_id, view, remote_va, rkey, None), self.context.now)

    def post_write_imm(
        self,
        qp: QueuePair,
        local: bytes | bytearray | memoryview | MemoryRegion,
        remote_va: int,
        rkey: int,
        immediate: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
    ) -> None:
        """Like `post_write`, and delivers a 32-bit immediate to one posted receive of the peer."""
        check_range("immediate", immediate, 0, 0xFFFFFFFF)
        view = _slice(local, local_offset, length)
        qp.post(WriteRequest(wr_id, view, remote_va, rkey, immediate), self.context.now)

    def post_recv(self, qp: QueuePair, wr_id: int, count: int = 1) -> None:
        """Post `count` receives, each for one immediate."""
        qp.post_recv(wr_id, count, self.context.now)

    # --- ports, EVs, receiver pressure ---

    def set_port_state(self, port: int, up: bool, now: int) -> None:
        """The link of a port went down or came up: remap at once and tell every peer (`mrc-protocol.md §7`)."""
        context = self.context
        context.now = now
        if not context.ports.set_state(port, up):
            return
        context.events.append(PortChanged(port, up, None))
        if context.trace is not None:
            context.trace(now, "port:state", port=port, up=up, peer=None)
        for peer in self._peers.values():
            self._planes_lost(peer, peer.refresh_planes(), now)
            if peer.qps:
                self._node.announce(peer, now)
            if up:
                self._probe_plane(peer, now)

    def _planes_lost(self, peer: Peer, lost: int, now: int) -> None:
        """Planes towards a peer became unusable: send again what is in flight there; wake whoever may go on."""
        for qp in list(peer.qps):
            if qp.state is not QpState.RTS:
                continue
            for plane in range(self.config.ports.count):
                if lost >> plane & 1:
                    qp.requestor.recovery.on_plane_down(plane, now)

    def _probe_plane(self, peer: Peer, now: int) -> None:
        """A plane came back: do not wait for the interval to probe its ASSUMED_BAD EVs."""
        for qp in peer.qps:
            if qp.evs.streak:
                qp.prober.schedule(now, soon=True)

    def query_evs(self, qp: QueuePair) -> list[dict[str, Any]]:
        """One dict per EV: ev, plane, state, active, losses."""
        evs = qp.evs
        active = {ev for order in evs.order for ev in order}
        return [
            {
                "ev": value,
                "plane": evs.universe.planes[ev],
                "state": STATES[evs.state[ev]].name,
                "active": ev in active,
                "losses": evs.losses.get(ev, 0),
            }
            for ev, value in enumerate(evs.universe.values)
        ]

    def set_ev_state(self, qp: QueuePair, ev: int, state: EvState, now: int) -> None:
        """The controller's word: DENIED, or anything else to undo it. Raises KeyError for an unknown EV."""
        self.context.now = now
        qp.evs.apply(qp.evs.universe.index[ev], EvInput.DENY if state is EvState.DENIED else EvInput.ALLOW)

    def replace_ev(self, qp: QueuePair, old: int, new: int, now: int) -> None:
        """Replace a value of the QP's profile by another one of the same plane, for all QPs that use the profile.

        Raises KeyError when the profile lacks `old`, ConfigError when it has `new`.
        """
        self.context.now = now
        universe = qp.evs.universe
        index = universe.replace(old, new)
        for other in self._qps.values():
            if other.evs.universe is universe:
                other.evs.reset(index)
        for peer in self._peers.values():
            if peer.universe is universe:
                peer.paths.pop(old, None)
                peer.reverse = [new if value == old else value for value in peer.reverse]

    def probe_ev(self, peer: bytes, ev: int, plane: int, now: int, timeout_ns: int | None = None) -> int:
        """Send an EV probe (ERTH op 1) to `peer`; the token comes back in a `ProbeResult` event."""
        self.context.now = now
        check_range("plane", plane, 0, self.config.ports.count - 1)
        entry = self._peer(peer, self._universe(self.config.ev), self.config.cc)
        timeout = self.config.ev.probe_timeout_ns if timeout_ns is None else timeout_ns
        return self._node.probe(entry, ev, plane, now, timeout)

    def set_receive_pressure(self, penalty: int, *, restore: bool = False, refuse: NackReason | None = None) -> None:
        """Responder flow control (`mrc-protocol.md §8`): `penalty` (0..127) goes into every SACK;
        with `refuse` new data is answered by that NACK (NO_BITMAP, NO_PKT_BUFFER, NO_RESOURCE, UNEXP_EVENT)."""
        check_range("penalty", penalty, 0, 127)
        if refuse is not None and refuse not in _REFUSALS:
            raise ValueError(f"refuse is {refuse.name}; allowed: {', '.join(reason.name for reason in _REFUSALS)}")
        self.context.penalty = penalty
        self.context.restore = int(restore)
        self.context.refuse = 0 if refuse is None else int(refuse)

    # --- observation ---

    def statistics(self) -> dict[str, Any]:
        """A JSON-serialisable snapshot: endpoint counters, drops by reason, ports, peers (cc), queue pairs."""
        context = self.context
        context.counters.control_overflow = context.ports.overflow
        return {
            "endpoint": context.counters.snapshot(),
            "drops": dict(context.drops),
            "ports": [
                {
                    "port": port.number,
                    "up": port.up,
                    "sent_packets": port.sent_packets,
                    "sent_bytes": port.sent_bytes,
                    "received_packets": port.received_packets,
                    "received_bytes": port.received_bytes,
                }
                for port in context.ports.ports
            ],
            "peers": [peer.snapshot() for peer in self._peers.values()],
            "qps": [qp.snapshot() for qp in self._qps.values()],
        }


def _slice(local: bytes | bytearray | memoryview | MemoryRegion, offset: int, length: int | None) -> memoryview:
    """The bytes of a work request. Raises ValueError when they leave the buffer."""
    view = local.view if isinstance(local, MemoryRegion) else memoryview(local).cast("B")
    size = len(view) - offset if length is None else length
    if offset < 0 or size < 0 or offset + size > len(view):
        raise ValueError(f"bytes {offset}..{offset + size} leave the local buffer of {len(view)} bytes")
    if size >= 1 << 32:
        raise ValueError(f"{size} bytes are more than one request can carry (2^32 - 1)")
    return view[offset : offset + size]
