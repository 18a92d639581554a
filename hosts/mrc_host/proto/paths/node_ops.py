"""Endpoint operations, ERTH and EETH to QP 0x2: port status updates and EV probes (`mrc-protocol.md §7`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from mrc_host.proto.context import EndpointContext
from mrc_host.proto.events import PortChanged, ProbeResult
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.paths.ev_profile import EvUniverse
from mrc_host.proto.paths.peer import Peer
from mrc_host.proto.paths.probing import Nonces
from mrc_host.proto.paths.route import Route, path_to
from mrc_host.proto.timers import Timed, TimerKind
from mrc_host.proto.wire.encap import encapsulate
from mrc_host.proto.wire.fields import EndpointOp
from mrc_host.proto.wire.messages import EndpointRequest, EndpointResponse

_MAX_PENDING: Final = 16384  # probes under way; identifiers have 16 bits


class NodeProbe(NamedTuple):
    """An EV probe not yet answered. `route`: one of our own, for its reverse EV; else `token` is a controller's."""

    addresses: bytes  # ours and the destination's
    route: Route | None
    ev: int
    plane: int
    sent_ns: int
    deadline: int
    token: int | None


class NodeOperations(Timed):
    """Both directions of both operations, for all peers of an endpoint."""

    __slots__ = ("_context", "_next_token", "_nonces", "_peers", "pending")

    def __init__(self, context: EndpointContext, peers: Mapping[bytes, Peer]) -> None:
        """Create it for `peers`: those that exist, by source and destination address of what they send."""
        self._context = context
        self._peers = peers
        self._next_token = 1
        self._nonces = Nonces(context.rng)
        self.pending: dict[int, NodeProbe] = {}

    def _nonce(self) -> int:
        """Return an identifier for a probe that cannot be predicted, and that matches no answer to another request.

        Port status has a counter of its own (`Peer.newer` orders by it); an answer names 16 bits only.
        """
        taken = {peer.status_id & 0xFFFF for peer in self._peers.values() if not peer.status_acked}
        while True:
            nonce = self._nonces.draw()
            if nonce not in self.pending and nonce not in taken:
                return nonce

    def _send_to(self, addresses: bytes, universe: EvUniverse, packet: bytes, ev: int, plane: int) -> None:
        """Send to an address that need not be a peer. Raises ConfigError when the profile has no path to it."""
        path = path_to(universe, ev, addresses)
        if path is not None:
            packet = encapsulate(packet, path.source or addresses[:16], path.destination, path.segments)
        self._context.ports.enqueue(plane, packet)

    # --- EV probes ---

    def probe(
        self, address: bytes, universe: EvUniverse, ev: int, plane: int, now: int, timeout_ns: int, dscp: int | None
    ) -> int:
        """Send an EV probe for a controller, of `universe`'s format; return the token of its `ProbeResult`.

        Raises ConfigError when the profile has no path to the address, or too many probes are under way.
        """
        if not self.may_probe():
            raise ConfigError(f"{len(self.pending)} EV probes are under way; wait for their answers")
        addresses = self._context.config.address + address
        nonce = self._nonce()
        self._send_to(addresses, universe, self._probe_packet(addresses, nonce, ev, now, dscp), ev, plane)
        token = self._next_token
        self._next_token += 1
        self._await(nonce, NodeProbe(addresses, None, ev, plane, now, now + timeout_ns, token))
        return token

    def _probe_packet(self, addresses: bytes, nonce: int, ev: int, now: int, dscp: int | None = None) -> bytes:
        context = self._context
        return context.codec.encode_endpoint_request(
            addresses,
            ev,
            context.tc_control if dscp is None else dscp << 2,
            nonce,
            EndpointOp.EV_PROBE,
            0,
            now >> 7 & 0xFFFF,
        )

    def _await(self, nonce: int, probe: NodeProbe) -> None:
        self._context.counters.ev_probes_sent += 1
        self.pending[nonce] = probe
        self._context.timers.arm_by(TimerKind.NODE_PROBE, self, probe.deadline)

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """Handle probes without an answer: notify the controller, redraw a reverse EV."""
        due: int | None = None
        for request_id, probe in list(self.pending.items()):
            if probe.deadline > now:
                due = probe.deadline if due is None else min(due, probe.deadline)
                continue
            del self.pending[request_id]
            if probe.token is not None:
                address = probe.addresses[16:]
                self._context.events.append(ProbeResult(probe.token, address, probe.ev, probe.plane, None))
        if due is not None:
            self._context.timers.arm(TimerKind.NODE_PROBE, self, due)

    def may_probe(self) -> bool:
        """See `ReverseProber`."""
        return len(self.pending) < _MAX_PENDING

    def probe_route(self, route: Route, ev: int, plane: int, now: int, deadline: int) -> None:
        """See `ReverseProber`."""
        addresses = route.peer.addresses
        nonce = self._nonce()
        route.send(self._probe_packet(addresses, nonce, ev, now), ev, plane)
        self._await(nonce, NodeProbe(addresses, route, ev, plane, now, deadline, None))

    # --- receiving ---

    def on_request(self, peer: Peer, request: EndpointRequest, port: int, now: int) -> int:
        """Answer a request; for a port status that is news, returns the mask of planes that just became unusable."""
        context = self._context
        lost = 0
        plane = peer.control_plane(port)
        route = peer.routes[0]
        if request.op == EndpointOp.PORT_STATUS:
            context.counters.port_status_received += 1
            identifier = peer.newer(request.psn & 0xFFFF)
            if identifier is not None:
                peer.remote_status = identifier
                lost = self.take_status(peer, request.port_status_mask, now)
                plane = peer.control_plane(port)
            else:
                route.suspect_reverse_ev(plane, now)
        elif request.op == EndpointOp.EV_PROBE:
            context.counters.ev_probes_answered += 1
        else:
            context.drop("endpoint_op", port, now)
            return 0
        ev: int = route.reverse[plane].value
        route.send(self._answer(peer.addresses, request, ev), ev, plane)
        return lost

    def on_unknown_peer(self, request: EndpointRequest, universe: EvUniverse, port: int, now: int) -> None:
        """Answer the EV probe of an address that no queue pair is connected to, and keep no state for it.

        Its port status is neither accepted nor answered: it is repeated until a queue pair connects.
        """
        context = self._context
        if request.op != EndpointOp.EV_PROBE:
            context.drop("unknown_peer", port, now)
            return
        addresses = request.addresses[16:] + request.addresses[:16]
        ev = universe.values[context.rng.choice(universe.by_plane[port])]
        try:
            self._send_to(addresses, universe, self._answer(addresses, request, ev), ev, port)
        except ConfigError:
            context.drop("no_path", port, now)
            return
        context.counters.ev_probes_answered += 1

    def _answer(self, addresses: bytes, request: EndpointRequest, ev: int) -> bytes:
        context = self._context
        return context.codec.encode_endpoint_response(
            addresses, ev, context.tc_control, request.psn & 0xFFFF, request.op, request.tx_timestamp
        )

    def take_status(self, peer: Peer, mask: int, now: int) -> int:
        """Record the mask of the peer's ports that are up; return the mask of planes that just became unusable."""
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

    def on_response(self, response: EndpointResponse, port: int, now: int) -> None:
        """Handle an answer: the port status has arrived, or the probed EV works in both directions."""
        context = self._context
        request_id = response.psn & 0xFFFF
        probe = self.pending.get(request_id)
        if (
            probe is not None
            and probe.addresses == response.addresses[16:] + response.addresses[:16]
            and response.tx_timestamp == probe.sent_ns >> 7 & 0xFFFF  # else a late answer to an earlier one
        ):
            del self.pending[request_id]
            route = probe.route
            if route is not None:
                route.prove(probe.ev, probe.plane, now)
            elif probe.token is not None:
                rtt = now - probe.sent_ns
                context.events.append(ProbeResult(probe.token, probe.addresses[16:], probe.ev, probe.plane, rtt, port))
            return
        peer = self._peers.get(response.addresses)
        if peer is None:
            context.drop("unknown_peer", port, now)
        elif peer.status_answered(request_id):
            return
        ours = response.addresses[16:] == context.config.address
        if ours and response.op == EndpointOp.PORT_STATUS and context.ports.overtake(request_id):
            # A status of an earlier instance of this endpoint has reached a host after our document. By its number it
            # may count as newer there: announce the present state with a still newer number. If that host is not a peer
            # yet, connecting corrects it; the present peers must have the new number as well.
            for each in list(self._peers.values()):
                each.announce(now)
