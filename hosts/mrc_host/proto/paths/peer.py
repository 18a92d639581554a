"""One destination: what is known of its ports, and the queue pairs to it (`mrc-protocol.md §6-§8`).

Of the peer: its ports, which planes are usable, the port status it was told. Of the pair (peer, EV profile): a
`Route`, with encapsulation and reverse EVs. Of the pair (peer, CC profile): a `Qpcc`, with window and plane balance.
A peer exists while a queue pair is connected to it.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from typing import Final

from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.qpcc import Qpcc
from mrc_host.proto.context import EndpointContext
from mrc_host.proto.paths.ev_profile import EvUniverse
from mrc_host.proto.paths.member import Member
from mrc_host.proto.paths.route import ReverseProber, Route
from mrc_host.proto.statistics import PeerStatistics
from mrc_host.proto.timers import Timed, TimerKind
from mrc_host.proto.wire.fields import EndpointOp

_FORMER: Final = 16  # ended instances of a peer that are remembered
_ID_MASK: Final = 0xFFFF
_ID_HALF: Final = 0x8000


class Peer(Timed):
    """See the module's docstring."""

    __slots__ = (
        "_peers",
        "_prober",
        "_turn",
        "addresses",
        "addresses_in",
        "context",
        "controllers",
        "former",
        "instance",
        "planes",
        "qps",
        "remote_ports",
        "remote_status",
        "routes",
        "status_acked",
        "status_id",
        "status_interval",
        "text",
    )

    def __init__(
        self, context: EndpointContext, address: bytes, peers: dict[bytes, Peer], prober: ReverseProber
    ) -> None:
        """Create a peer. `peers`: those that exist, by source and destination address of what they send. `prober`: see
        `Route`.
        """
        config = context.config
        self.context = context
        self._peers = peers
        self._prober = prober
        self.addresses = config.address + address
        self.addresses_in = address + config.address
        self.text = str(ipaddress.IPv6Address(address))
        self.qps: list[Member] = []
        self.routes: list[Route] = []
        self.controllers: list[Qpcc] = []
        self.remote_ports = (1 << config.ports.count) - 1
        self.remote_status: int | None = None  # identifier of the newest status known, all its bits
        self.instance: int | None = None  # of the peer's endpoint: one that restarts has another
        self.former: deque[int] = deque(maxlen=_FORMER)  # instances before that
        self.planes = context.ports.mask & self.remote_ports
        self.status_id = context.ports.status  # the one that we sent last
        self.status_acked = True
        self.status_interval = config.ports.status_repeat_ns
        self._turn = 0

    @property
    def address(self) -> bytes:
        """The peer's IPv6 address."""
        return self.addresses[16:]

    # --- queue pairs that take part ---

    def route_for(self, universe: EvUniverse) -> Route:
        """Return the route of an EV profile, made if need be. Raises ConfigError when there is no way to the peer."""
        for route in self.routes:
            if route.universe is universe:
                return route
        return Route(self, universe, self._prober)

    def qpcc_for(self, config: CcConfig) -> Qpcc:
        """Return the congestion context of a CC profile, made if need be."""
        for qpcc in self.controllers:
            if qpcc.config == config:
                return qpcc
        whole = self.context.config
        ports = whole.ports
        slack, patience = ports.balance_slack_packets, ports.balance_patience_ns
        return Qpcc(config, whole.wire.mtu, ports.count, slack, patience, whole.policies.congestion)

    def attach(self, qp: Member, route: Route) -> None:
        """Add a queue pair that connects, with its own EV profile (`route`) and CC profile (`qp.qpcc`)."""
        qpcc = qp.qpcc
        if qpcc not in self.controllers:
            self.controllers.append(qpcc)
        if route not in self.routes:
            self.routes.append(route)
        self.qps.append(qp)
        route.qps.append(qp)
        qpcc.senders.append(qp.requestor)
        self._peers[self.addresses_in] = self
        self.refresh_planes()

    def detach(self, qp: Member, route: Route) -> None:
        """Remove a queue pair; what only it used goes with it, and the peer with the last one."""
        timers = self.context.timers
        qpcc = qp.qpcc
        self.qps.remove(qp)
        route.qps.remove(qp)
        qpcc.senders.remove(qp.requestor)
        if not route.qps:
            self.routes.remove(route)
            timers.cancel_owner(route)
        if qpcc.senders:
            self._refresh(qpcc)
        else:
            self.controllers.remove(qpcc)
            timers.cancel_owner(qpcc)
        if not self.qps:
            timers.cancel(TimerKind.PORT_STATUS, self)
            self._peers.pop(self.addresses_in, None)

    def denies(self, value: int) -> bool:
        """Return whether a controller has denied an EV towards this peer."""
        denied = self.context.denied
        return bool(denied) and value in self.context.denied_towards(self.address)

    # --- ports and planes ---

    def newer(self, request_id: int) -> int | None:
        """Return the whole identifier of a port status that the wire names by 16 bits; None when it is not news."""
        known = self.remote_status
        if known is None:
            return request_id
        ahead = request_id - known & _ID_MASK
        return known + ahead if 0 < ahead < _ID_HALF else None

    def newer_document(self, instance: int, status: int) -> bool:
        """Record a document about the peer's ports; return False when it is not newer than the latest status."""
        known = self.remote_status
        if known is not None and instance == self.instance and status <= known:
            return False
        fresh = self.instance is None
        if self.instance not in (None, instance):
            self.former.append(self.instance)
        self.instance = instance
        if known is not None and fresh:
            # A status came before any document: only its 16 bits are known.
            ahead = known - status & _ID_MASK
            if ahead < _ID_HALF:
                self.remote_status = status + ahead
                return False
        self.remote_status = status
        return True

    def announce(self, now: int) -> None:
        """Send the peer the state of our ports, repeatedly until it answers."""
        self.status_acked = False
        self.status_interval = self.context.config.ports.status_repeat_ns
        self.status_id = self.context.ports.status
        self._send_status(now, repeated=False)

    def _send_status(self, now: int, *, repeated: bool) -> None:
        """Send a port status; its id stays the same over all repetitions, so that any answer to it ends them."""
        context = self.context
        plane = self.next_plane()
        if plane >= 0:
            route = self.routes[0]
            ev = route.any_ev(plane) if repeated else route.reverse[plane].value
            context.counters.port_status_sent += 1
            packet = context.codec.encode_endpoint_request(
                self.addresses, ev, context.tc_control, self.status_id & _ID_MASK, EndpointOp.PORT_STATUS,
                context.ports.mask, now >> 7 & 0xFFFF,
            )  # fmt: skip
            route.send(packet, ev, plane)
        context.timers.arm(TimerKind.PORT_STATUS, self, now + self.status_interval)

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """Repeat an unanswered port status, over another port and on another EV, ever more slowly."""
        if self.status_acked or not self.qps:
            return
        longest = self.context.config.ports.status_repeat_max_ns
        self.status_interval = min(2 * self.status_interval, longest)
        self._send_status(now, repeated=True)

    def status_answered(self, request_id: int) -> bool:
        """Take an answer to a port status (`request_id`: its 16 bits); False when it does not answer the last one."""
        if self.status_acked or request_id != self.status_id & _ID_MASK:
            return False
        self.status_acked = True
        self.context.timers.cancel(TimerKind.PORT_STATUS, self)
        return True

    def fail_stale_qps(self, instance: int, now: int) -> None:
        """Fail queue pairs to an earlier instance of the peer, whose endpoint is `instance` now, and free what they
        hold.

        Otherwise they would retry for their whole retry time, and their packets would keep the window from the new
        ones.
        """
        for qp in list(self.qps):
            qp.peer_restarted(instance, now)

    def control_plane(self, arrival: int) -> int:
        """Return the plane for a control packet: the one that the packet it answers came on, while that is usable."""
        if self.planes >> arrival & 1:
            return arrival
        plane = self.next_plane()
        return arrival if plane < 0 else plane

    def next_plane(self) -> int:
        """Return the next usable plane in turn; any of ours when the peer has announced none; -1 when none is up."""
        mask = self.planes or self.context.ports.mask
        count = len(self.context.ports.ports)
        for step in range(1, count + 1):
            plane = (self._turn + step) % count
            if mask >> plane & 1:
                self._turn = plane
                return plane
        return -1

    def refresh_planes(self) -> int:
        """Recompute which planes are usable; return the mask of those that ceased to be."""
        before = self.planes
        ours, theirs = self.context.ports.mask, self.remote_ports
        self.planes = ours & theirs
        for qp in self.qps:
            qp.evs.set_usable(qp.evs.usable_planes(ours, theirs))
        for qpcc in self.controllers:
            self._refresh(qpcc)
        for qp in self.qps:
            qp.planes_changed()
        return before & ~self.planes

    def _refresh(self, qpcc: Qpcc) -> None:
        """Update which planes take part: usable planes on which some queue pair has an EV."""
        carry = 0
        for qp in self.qps:
            if qp.qpcc is qpcc:
                carry |= qp.evs.usable & qp.evs.planes()
        qpcc.balance.set_mask(carry)

    def planes_lost(self, planes: int, now: int) -> None:
        """Handle planes that became unusable: retransmit what is in flight there; wake senders that may continue."""
        if planes:
            for qp in list(self.qps):
                qp.planes_lost(planes, now)

    def owns(self, timed: Timed) -> bool:
        """Return whether a timer belongs to the peer or its state: then a fault of the timer is the peer's."""
        if timed is self or timed in self.routes or timed in self.controllers:
            return True
        return any(qp.owns(timed) for qp in self.qps)

    def snapshots(self) -> list[PeerStatistics]:
        """Return the state, one for each congestion context."""
        planes = [bool(self.planes >> plane & 1) for plane in range(len(self.context.ports.ports))]
        return [qpcc.snapshot(self.text, planes) for qpcc in self.controllers]
