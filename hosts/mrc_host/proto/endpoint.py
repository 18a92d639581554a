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

import ipaddress
import random
from collections.abc import Container
from typing import Any, Final

from mrc_host.proto.common import CommonEndpoint
from mrc_host.proto.completion import CompletionQueue, CompletionStatus
from mrc_host.proto.config import EndpointConfig, EvConfig, ReliabilityConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.qpcc import Sender
from mrc_host.proto.context import EndpointContext
from mrc_host.proto.events import ErrorReason, PortChanged, QpError, QpState
from mrc_host.proto.faults import Faults
from mrc_host.proto.limits import check_range
from mrc_host.proto.memory import MemoryFault
from mrc_host.proto.negotiation import REQUIRED, check_document, local_document
from mrc_host.proto.path_control import PathControl
from mrc_host.proto.paths.peer import Peer
from mrc_host.proto.qp_document import QpDocument
from mrc_host.proto.reliability.qp import QpInput, QueuePair
from mrc_host.proto.statistics import MrcStatistics, QpReordering
from mrc_host.proto.trace import Tracer
from mrc_host.proto.transport import Buffer
from mrc_host.proto.wire.icrc import wire_length
from mrc_host.proto.wire.messages import Ack, Data, EndpointRequest, EndpointResponse, Message, Nack, Probe, Sack
from mrc_host.proto.wire.packet import WireError
from mrc_host.proto.work import WriteRequest, bytes_of

ENDPOINT_QP: Final = 2  # endpoint operations go to this queue pair number
_MAX_CLOSED: Final = 1024
_RECENT: Final = 16


class Endpoint(PathControl):
    """One node: queue pairs, memory regions, completion queues, ports. See the module's docstring."""

    __slots__ = ("_closed", "_faults", "_recent")

    def __init__(
        self,
        config: EndpointConfig,
        rng: random.Random,
        tracer: Tracer | None = None,
        beside: CommonEndpoint | None = None,
    ) -> None:
        """Create an endpoint; `rng` is its only source of randomness, `tracer` receives the event trace.

        `beside`: an endpoint of the same host, whose ports, memory, completion queues and events it shares.
        """
        context = EndpointContext(config, rng, tracer)
        if beside is not None:
            context.ports, context.memory, context.events = beside.shared()
        super().__init__(config, context, rng)
        self._closed: dict[int, QueuePair] = {}  # of these, those whose users are gone, oldest first
        self._faults = Faults(self.context)
        #: Queue pairs that packets were for, one for each end of a number: most packets are for one of them.
        self._recent: list[QueuePair | None] = [None] * _RECENT

    # --- the driver's five methods ---

    def receive_datagram(self, port: int, packet: bytes, now: int, missing: int = 0) -> None:
        """Take one IPv6 packet (no Ethernet header) that arrived on `port`. Bad input is counted and dropped."""
        context = self.context
        context.now = now
        context.counters.datagrams_received += 1
        message: Message | None = None
        try:
            message = self._decode(port, packet, now, missing)
            if message is not None:
                self._take(message, port, now)
        except Exception as error:  # noqa: BLE001 - no packet may end the endpoint; see `Faults`
            peer = self.peers.get(message.addresses) if message is not None else None
            self._faults.contain("a packet", error, peer, now)

    def _decode(self, port: int, packet: bytes, now: int, missing: int) -> Message | None:
        """Return the message in a packet, None when it is none for us."""
        context = self.context
        try:
            entry = context.ports.ports[port]
            entry.received_packets += 1
            entry.received_bytes += len(packet) + missing
            message = context.codec.decode(packet, missing)
        except WireError as error:
            context.drop(error.reason.value, port, now)
            return None
        if message.p_key != context.codec.p_key:
            context.drop("p_key", port, now)
            return None
        return message

    def _take(self, message: Message, port: int, now: int) -> None:
        """Handle a well-formed message."""
        context = self.context
        number = message.dest_qp
        qp = self._recent[number & _RECENT - 1]
        if qp is None or qp.number != number:
            qp = self._qps.get(number)
            if qp is None:
                self._node_message(message, port, now)
                return
            self._recent[number & _RECENT - 1] = qp
        association = qp.association
        if not association.connected or association.peer.addresses_in != message.addresses:
            context.drop("qp_state" if not association.connected else "wrong_source", port, now)
            return
        kind = type(message)
        if kind is Data:
            if qp.receives():
                route = association.route
                if route.inbound_ns < 0 and route.universe.config.reverse_probes:
                    route.on_inbound(now)
                route.inbound_ns = now
                if route.guessed >> port & 1:
                    route.follow(port, message.entropy)  # type: ignore[union-attr]
                qp.responder.on_data(message, port, now)  # type: ignore[arg-type]
            else:
                context.drop("qp_state", port, now)
                qp.responder.repeat_nak(port)
            return
        if kind is Probe:
            if qp.receives():
                route = association.route
                if route.inbound_ns < 0:  # nothing looks for a reverse EV meanwhile
                    plane = association.peer.control_plane(port)
                    route.on_idle_probe(plane, now, message.packet_entropy)  # type: ignore[union-attr]
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
        message: Message,
        port: int,
        now: int,
    ) -> None:
        """Handle a packet to no queue pair of this endpoint: an endpoint operation, or an unknown one."""
        context = self.context
        if message.dest_qp != ENDPOINT_QP or not isinstance(message, EndpointRequest | EndpointResponse):
            context.drop("unknown_qp", port, now)
            return
        if isinstance(message, EndpointResponse):
            self._node.on_response(message, port, now)
            return
        peer = self.peers.get(message.addresses)
        if peer is not None:
            peer.planes_lost(self._node.on_request(peer, message, port, now), now)
        elif message.addresses[16:] == self.config.address:
            self._node.on_unknown_peer(message, self._universes.of(self.config.ev), port, now)
        else:
            context.drop("unknown_peer", port, now)

    def quiet(self) -> bool:
        """Return whether no port has a control packet and no queue pair is in the ring of those that may send."""
        context = self.context
        if context.ring.senders:
            return False
        return not any(entry.control for entry in context.ports.ports)

    def datagrams_to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        """Return the IPv6 packets to put on `port` now, in order, together at most `budget_bytes` long.

        Control packets come first. A packet that does not fit the rest of the budget waits for the next call. An empty
        list means that nothing may go now: call again after any other call or timer.
        """
        context = self.context
        context.now = now
        entry = context.ports.ports[port]
        if not entry.up:
            return []
        room = budget_bytes
        packets = entry.control
        if packets:
            fit = 0
            for packet in packets:
                size = wire_length(packet) if context.codec.length_only else len(packet)
                if size > room:
                    break
                room -= size
                fit += 1
            if fit == len(packets):
                entry.control = []
            else:
                entry.control = packets[fit:]
                del packets[fit:]
        else:
            packets = []
        if context.ring.senders and not entry.control:
            ring = context.ring
            room = ring.fill(port, now, room, packets)
            while ring.failed is not None:
                sender, error = ring.failed
                ring.failed = None
                self._sender_failed(sender, error)
                room = ring.fill(port, now, room, packets)
        if packets:
            entry.sent_packets += len(packets)
            entry.sent_bytes += budget_bytes - room
            context.counters.datagrams_sent += len(packets)
        return packets

    def _sender_failed(self, sender: Sender, error: Exception) -> None:
        if isinstance(error, MemoryFault):
            for qp in self._qps.values():
                if qp.requestor is sender:
                    qp.fail(ErrorReason.LOCAL_MEMORY, self.context.now, status=CompletionStatus.LOC_PROT_ERR)
            return
        peer = next((peer for peer in self.peers.values() if sender.qpcc in peer.controllers), None)
        self._faults.contain("sending", error, peer, self.context.now)

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is due next (ns), or None."""
        return self.context.timers.next_deadline()

    def handle_timer(self, now: int) -> None:
        """Run the timers that are due at `now`. Harmless when none is."""
        self.context.now = now
        timers = self.context.timers
        while (due := timers.pop_due(now)) is not None:
            kind, owner = due
            try:
                owner.on_timer(kind, now)
            except Exception as error:  # noqa: BLE001 - see `Faults`
                concerned = next((peer for peer in self.peers.values() if peer.owns(owner)), None)
                self._faults.contain(f"timer {kind.name}", error, concerned, now)

    # --- queue pairs ---

    def create_qp(
        self,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        *,
        reliability: ReliabilityConfig | None = None,
        ev: EvConfig | None = None,
        cc: CcConfig | None = None,
        domain: int = 0,
    ) -> QueuePair:
        """Return a queue pair in RESET; profiles not given are those of the endpoint's configuration.

        EV profile (with its encapsulation), CC profile and reliability are the queue pair's own, after `mrc.h`;
        `domain` is the protection domain whose memory its peer may write to.
        Raises `QpError` for a completion queue that has overflowed, ConfigError for an unusable profile.
        """
        recv_cq = recv_cq or send_cq
        self._check_queues(send_cq, recv_cq)
        number = self.context.rng.randrange(16, 1 << 24)
        while number in self._qps or number in self.taken:
            number = self.context.rng.randrange(16, 1 << 24)
        ev_config = ev or self.config.ev
        qp = QueuePair(
            number,
            self.context,
            self._universes.take(ev_config),
            send_cq,
            recv_cq,
            reliability or self.config.reliability,
            ev_config,
            cc or self.config.cc,
        )
        qp.association.domain = domain
        self._qps[number] = qp
        self._join_queues(qp, send_cq, recv_cq)
        return qp

    def numbers(self) -> Container[int]:
        """Return the numbers of all queue pairs, as they come and go."""
        return self._qps

    def set_profiles(self, qp: QueuePair, ev: EvConfig | None = None, cc: CcConfig | None = None) -> None:
        """Give a queue pair in RESET or INIT another EV or CC profile (`mrc.h`: attributes of the way to INIT).

        Raises `QpError` in later states, ConfigError for an unusable profile.
        """
        if qp.state not in (QpState.RESET, QpState.INIT):
            raise QpError(f"queue pair {qp.number} is in {qp.state.value}: profiles change in RESET and INIT only")
        if ev is not None and ev is not qp.ev_config:
            before = qp.evs.universe
            qp.take_universe(self._universes.take(ev), ev)
            self._universes.drop(before)
        if cc is not None:
            qp.cc_config = cc

    def destroy_qp(self, qp: QueuePair, now: int) -> None:
        """Forget a queue pair: its requests and receives end without a completion.

        Packets that still arrive for it are counted as unknown_qp.
        """
        self._own(qp)
        self._leave_queues(qp, qp.requestor.cq, qp.responder.cq)
        self._forget(qp, now)

    def close_qp(self, qp: QueuePair, now: int) -> None:
        """Do as `destroy_qp` for a user who is gone, and notify the peer (`mrc-protocol.md §6`).

        The queue pair stays to repeat the notice, as often and as long as packets are repeated, but no longer than
        `_MAX_CLOSED` others that were closed later.
        """
        self._own(qp)
        if not qp.connected:
            self.destroy_qp(qp, now)
            return
        self.context.now = now
        self._closed[qp.number] = qp
        qp.close(now, self._forget)
        self._leave_queues(qp, qp.requestor.cq, qp.responder.cq)
        if len(self._closed) > _MAX_CLOSED:
            self._forget(next(iter(self._closed.values())), now)

    def _own(self, qp: QueuePair) -> None:
        if qp.number not in self._qps or qp.number in self._closed:
            raise QpError(f"queue pair {qp.number} does not belong to this endpoint")

    def _forget(self, qp: QueuePair, now: int) -> None:
        self._closed.pop(qp.number, None)
        del self._qps[qp.number]
        self._recent = [None] * _RECENT
        qp.reset(now)
        context = self.context
        context.gone_requestors.update(qp.requestor.counters.snapshot())
        context.gone_responders.update(qp.responder.counters.snapshot())
        self._universes.drop(qp.evs.universe)

    def local_attributes(self, qp: QueuePair) -> QpDocument:
        """Return what the peer needs, as one JSON-serialisable document (`mrc-protocol.md §4`).

        Moves a queue pair in RESET to INIT.
        """
        if qp.state is QpState.RESET:
            qp.transit(QpInput.TO_INIT, self.context.now)
        if qp.told_status is None:
            qp.told_status = self.context.ports.status
        return local_document(self.context, qp.number, qp.sq_psn, qp.attributes)

    def connect(self, qp: QueuePair, remote: object, now: int) -> None:
        """Negotiate with the peer's `local_attributes` and go INIT -> RTR -> RTS.

        The document's state of the peer's ports counts if it is newer than the one known: a port status may have
        arrived since. Raises `QpError` when the document lacks a key or contradicts ours (MTU, ports), the EV profile
        has no path to the peer, or the state is wrong.
        """
        self.accept(qp, remote, now)
        self.ready(qp, remote, now)

    def accept(self, qp: QueuePair, remote: object, now: int) -> None:
        """Do the first half of `connect`: INIT -> RTR. The second is `ready`."""
        self.context.now = now
        if qp.state is QpState.RESET:
            qp.transit(QpInput.TO_INIT, now)
        qp.after(QpInput.TO_RTR)
        document, address = check_document(self.context, remote)
        instance = document["instance"]
        known = self.peers.get(address + self.config.address)
        if known is not None and instance in known.former:
            raise QpError(
                f"queue pair {qp.number}: the document is of instance {instance} of {ipaddress.IPv6Address(address)}, "
                f"which has started again since as {known.instance}; connect with a document of that"
            )
        qp.attributes.take_capabilities(document)
        self.modify(qp, QpState.RTR, now, **qp.attributes.for_rtr(document, address))
        peer = qp.peer
        qp.remote_instance = instance
        peer.fail_stale_qps(instance, now)
        if peer.newer_document(instance, document["port_status"]):
            peer.planes_lost(self._node.take_status(peer, document["ports_up"], now), now)

    def ready(self, qp: QueuePair, remote: object, now: int) -> None:
        """Do the second half of `connect`: RTR -> RTS."""
        document, _ = check_document(self.context, remote)
        self.modify(qp, QpState.RTS, now, **qp.attributes.for_rts(document, qp.sq_psn))

    def accept_named(
        self, qp: QueuePair, number: int, address: bytes, rq_psn: int, mtu: int, trims: bool, now: int
    ) -> None:
        """Go INIT -> RTR with what `ibv_modify_qp` says of the peer, instead of its document; `ready_named` follows.

        What only a document tells is taken as follows: our window and our number of immediates hold for both ends, as
        the application has set them; the peer has all ports up until it says otherwise (`mrc-protocol.md §7`); and a
        peer that starts again is noticed by its silence only. `mtu` is bounded by ours. `trims`: the peer answers
        trimmed packets.
        """
        qp.attributes.peer_trim_nack = trims
        # Our document was never given to the peer, so that it must be told of ports that are down.
        qp.told_status = None
        self.modify(
            qp, QpState.RTR, now, remote_number=number, remote_address=address, rq_psn=rq_psn,
            mtu=min(mtu, self.config.wire.mtu), **qp.attributes.arguments(QpState.RTR),
        )  # fmt: skip

    def ready_named(self, qp: QueuePair, now: int) -> None:
        """Go RTR -> RTS after `accept_named`."""
        self.modify(qp, QpState.RTS, now, sq_psn=qp.sq_psn, **qp.attributes.arguments(QpState.RTS))

    def modify(self, qp: QueuePair, state: QpState, now: int, **attributes: Any) -> None:
        """Do one transition, with the attributes that it needs (see `qp.REQUIRED`); ERROR and RESET are always
        possible.

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
            qp.after(QpInput.TO_RTR)
            qp.attributes.mtu = attributes["mtu"]
            qp.attributes.take_arguments(state, attributes)
            address = attributes["remote_address"]
            if address == self.config.address:
                self.context.ports.looping = True
            peer = self.peers.get(address + self.config.address) or Peer(self.context, address, self.peers, self._node)
            qp.enter_rtr(peer, attributes["remote_number"], attributes["rq_psn"], now)
            ports = self.context.ports
            if ports.mask != ports.all if qp.told_status is None else qp.told_status != ports.status:
                # A port changed after our document was written, when this peer was not known yet.
                peer.announce(now)
        else:
            qp.after(QpInput.TO_RTS)
            qp.sq_psn = attributes["sq_psn"]
            qp.attributes.take_arguments(state, attributes)
            qp.enter_rts(now)

    def set_mpr(self, qp: QueuePair, units: int) -> None:
        """Change the responder's window (dynamic MPR; units of 128 PSNs); SACKs carry it from now on. Raises
        QpError.
        """
        if not qp.attributes.dynamic_mpr:
            raise QpError(f"queue pair {qp.number}: dynamic MPR is not enabled at both ends")
        check_range("mpr", units, 1, 255)
        qp.responder.set_mpr(units)

    def post_write(
        self,
        qp: QueuePair,
        local: Buffer,
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
        view = bytes_of(local, local_offset, length)
        qp.post(WriteRequest(wr_id, view, remote_va, rkey, None), self.context.now)

    def post_write_imm(
        self,
        qp: QueuePair,
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
        """Do as `post_write`, and deliver a 32-bit immediate to one posted receive of the peer.

        With `solicited` (BTH.SE) the peer may ask for a notification of it.
        """
        check_range("immediate", immediate, 0, 0xFFFFFFFF)
        view = bytes_of(local, local_offset, length)
        qp.post(WriteRequest(wr_id, view, remote_va, rkey, immediate, solicited), self.context.now)

    def post_recv(self, qp: QueuePair, wr_id: int, count: int = 1) -> None:
        """Post `count` receives, each for one immediate."""
        qp.post_recv(wr_id, count, self.context.now)

    # --- ports ---

    def _port_told(self, port: int, changed: bool, now: int) -> None:
        """Remap at once and notify every peer when a port went down or came up (`mrc-protocol.md §7`)."""
        context = self.context
        context.now = now
        if not changed:
            return
        up = context.ports.ports[port].up
        context.events.append(PortChanged(port, up, None))
        if context.trace is not None:
            context.trace(now, "port:state", port=port, up=up, peer=None)
        for peer in list(self.peers.values()):
            peer.planes_lost(peer.refresh_planes(), now)
            peer.announce(now)
            if up:
                for qp in peer.qps:
                    qp.planes_returned(now)

    # --- observation ---

    def statistics(self) -> MrcStatistics:
        """Return a snapshot: endpoint counters, drops by reason, ports, peers (cc), queue pairs."""
        context = self.context
        context.counters.control_overflow = context.ports.overflow
        return MrcStatistics(
            endpoint=context.counters.snapshot(),
            drops=dict(context.drops),
            ports=[port.snapshot() for port in context.ports.ports],
            peers=[row for peer in self.peers.values() for row in peer.snapshots()],
            qps=[qp.snapshot() for qp in self._qps.values()],
            gone_requestors=dict(context.gone_requestors),
            gone_responders=dict(context.gone_responders),
            instance=context.instance,
        )

    def reordering(self) -> list[QpReordering]:
        """See `TransportEndpoint`."""
        return [qp.reordering() for qp in self._qps.values() if qp.responder.counters.packets_placed]
