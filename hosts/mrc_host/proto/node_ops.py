"""Endpoint operations, ERTH and EETH to QP 0x2: port status updates and EV probes (`mrc-protocol.md §7`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mrc_host.proto.context import Context
from mrc_host.proto.events import PortChanged, ProbeResult
from mrc_host.proto.fields import EndpointOp
from mrc_host.proto.timers import TimerKind

if TYPE_CHECKING:
    from mrc_host.proto.messages import EndpointRequest, EndpointResponse
    from mrc_host.proto.peer import Peer


class NodeProbe(NamedTuple):
    """An EV probe not yet answered; `token` None: one of our own, for a reverse EV."""

    peer: Peer
    ev: int
    plane: int
    sent_ns: int
    deadline: int
    token: int | None


class NodeOperations:
    """Both directions of both operations, for all peers of an endpoint."""

    __slots__ = ("_context", "_next_id", "_next_token", "pending")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._next_id = context.rng.getrandbits(16)
        self._next_token = 1
        self.pending: dict[int, NodeProbe] = {}

    def _new_id(self) -> int:
        self._next_id = (self._next_id + 1) & 0xFFFF
        return self._next_id

    def _request(self, peer: Peer, request_id: int, op: EndpointOp, mask: int, ev: int, plane: int, now: int) -> None:
        packet = self._context.codec.encode_endpoint_request(
            peer.addresses, ev, self._context.tc_control, request_id, op, mask, now >> 7 & 0xFFFF
        )
        peer.send(packet, ev, plane)

    # --- port status ---

    def announce(self, peer: Peer, now: int) -> None:
        """Tell a peer the state of our ports, from now on until it answers."""
        peer.status_acked = False
        peer.status_interval = self._context.config.ports.status_repeat_ns
        peer.status_id = self._new_id()
        self._send_status(peer, now, repeated=False)

    def _send_status(self, peer: Peer, now: int, *, repeated: bool) -> None:
        """One update keeps its id over all repetitions, so that any answer to it ends them."""
        context = self._context
        plane = peer.next_plane()
        if plane >= 0:
            ev = peer.reverse[plane]
            if repeated:
                ev = peer.universe.values[context.rng.choice(peer.universe.by_plane[plane])]
            context.counters.port_status_sent += 1
            self._request(peer, peer.status_id, EndpointOp.PORT_STATUS, context.ports.mask, ev, plane, now)
        context.timers.arm(TimerKind.PORT_STATUS, peer, now + peer.status_interval)

    def on_status_timer(self, peer: Peer, now: int) -> None:
        """Repeat an unanswered update, over another port and on another EV, ever more slowly."""
        if peer.status_acked or not peer.qps:
            return
        longest = self._context.config.ports.status_repeat_max_ns
        peer.status_interval = min(2 * peer.status_interval, longest)
        self._send_status(peer, now, repeated=True)

    # --- EV probes ---

    def probe(self, peer: Peer, ev: int, plane: int, now: int, timeout_ns: int) -> int:
        """An EV probe for a controller; returns the token of its `ProbeResult`."""
        token = self._next_token
        self._next_token += 1
        self._probe(peer, ev, plane, now, timeout_ns, token)
        return token

    def _probe(self, peer: Peer, ev: int, plane: int, now: int, timeout_ns: int, token: int | None) -> None:
        self._context.counters.ev_probes_sent += 1
        request_id = self._new_id()
        self._request(peer, request_id, EndpointOp.EV_PROBE, 0, ev, plane, now)
        self.pending[request_id] = NodeProbe(peer, ev, plane, now, now + timeout_ns, token)
        self._context.timers.arm_by(TimerKind.NODE_PROBE, self, now + timeout_ns)

    def on_probe_timer(self, now: int) -> None:
        """Probes without an answer: a controller is told, a reverse EV is drawn anew."""
        due: int | None = None
        for request_id, probe in list(self.pending.items()):
            if probe.deadline > now:
                due = probe.deadline if due is None else min(due, probe.deadline)
                continue
            del self.pending[request_id]
            if probe.token is not None:
                self._context.events.append(ProbeResult(probe.token, probe.peer.address, probe.ev, probe.plane, None))
        if due is not None:
            self._context.timers.arm(TimerKind.NODE_PROBE, self, due)

    def reverse_interval(self, peer: Peer) -> int:
        """One smoothed RTT, unless the profile says otherwise."""
        return peer.universe.config.reverse_probe_ns or peer.cc.srtt_ns or peer.cc.base_rtt_ns

    def on_inbound(self, peer: Peer, now: int) -> None:
        """A peer became active: start looking for reverse EVs."""
        self._context.timers.arm(TimerKind.REVERSE_PROBE, peer, now + self.reverse_interval(peer))

    def on_reverse_timer(self, peer: Peer, now: int) -> None:
        """One probe on a random EV of the next plane, while data arrives and our own SACKs do not tell."""
        interval = self.reverse_interval(peer)
        if now - peer.inbound_ns > 2 * interval:
            peer.inbound_ns = -1  # idle; the next packet starts it again
            return
        if peer.reverse_ns < now - interval:
            plane = peer.next_plane()
            if plane >= 0:
                ev = peer.universe.values[self._context.rng.choice(peer.universe.by_plane[plane])]
                if not peer.denies(ev):
                    self._probe(peer, ev, plane, now, max(4 * interval, peer.universe.config.probe_timeout_ns), None)
        self._context.timers.arm(TimerKind.REVERSE_PROBE, peer, now + interval)

    # --- receiving ---

    def on_request(self, peer: Peer, request: EndpointRequest, port: int, now: int) -> int:
        """Answer a request; for a port status that is news, returns the mask of planes that just became unusable."""
        context = self._context
        lost = 0
        if request.op == EndpointOp.PORT_STATUS:
            context.counters.port_status_received += 1
            request_id = request.psn & 0xFFFF
            last = peer.last_status_id
            if last is None or 0 < (request_id - last & 0xFFFF) < 0x8000:
                peer.last_status_id = request_id
                lost = self._take_status(peer, request.port_status_mask, now)
        elif request.op == EndpointOp.EV_PROBE:
            context.counters.ev_probes_answered += 1
        else:
            context.drop("endpoint_op", port, now)
            return 0
        plane = peer.control_plane(port)
        ev = peer.reverse[plane]
        packet = context.codec.encode_endpoint_response(
            peer.addresses, ev, context.tc_control, request.psn & 0xFFFF, request.op, request.tx_timestamp
        )
        peer.send(packet, ev, plane)
        return lost

    def _take_status(self, peer: Peer, mask: int, now: int) -> int:
        context = self._context
        mask &= (1 << len(context.ports.ports)) - 1
        changed = mask ^ peer.remote_ports
        peer.remote_ports = mask
        for plane in range(len(context.ports.ports)):
            if changed >> plane & 1:
                up = bool(mask >> plane & 1)
                context.events.append(PortChanged(plane, up, peer.address))
                if context.trace is not None:
                    context.trace(now, "port:state", port=plane, up=up, peer=peer.address.hex())
        return peer.refresh_planes()

    def on_response(self, peer: Peer, response: EndpointResponse, now: int) -> None:
        """An answer: the port status has arrived, or the probed EV works in both directions."""
        request_id = response.psn & 0xFFFF
        probe = self.pending.get(request_id)
        if probe is not None and probe.peer is peer:
            del self.pending[request_id]
            if probe.token is None:
                peer.reverse[probe.plane] = probe.ev
                peer.reverse_ns = now
            else:
                self._context.events.append(
                    ProbeResult(probe.token, peer.address, probe.ev, probe.plane, now - probe.sent_ns)
                )
        elif request_id == peer.status_id and not peer.status_acked:
            peer.status_acked = True
            self._context.timers.cancel(TimerKind.PORT_STATUS, peer)
