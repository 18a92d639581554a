"""The queue pair: its state table, attributes, and the requestor and responder it holds (`mrc-protocol.md §4`)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from mrc_host.proto.completion import CompletionQueue, CompletionStatus
from mrc_host.proto.config import EvConfig, ReliabilityConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.qpcc import Qpcc
from mrc_host.proto.context import EndpointContext
from mrc_host.proto.events import ErrorReason, EvChanged, EvState, QpError, QpState, QpStateChanged
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.negotiation import NegotiatedAttributes
from mrc_host.proto.paths.association import Association
from mrc_host.proto.paths.ev import NAMES, STATES, EvInput, EvSet
from mrc_host.proto.paths.ev_profile import EvUniverse
from mrc_host.proto.paths.peer import Peer
from mrc_host.proto.paths.probing import Prober
from mrc_host.proto.paths.route import Route
from mrc_host.proto.reliability.requestor import Requestor
from mrc_host.proto.reliability.responder import Responder
from mrc_host.proto.statistics import QpReordering, QpStatistics
from mrc_host.proto.timers import Timed, TimerKind
from mrc_host.proto.work import WriteRequest


class QpInput(Enum):
    """What changes the state of a queue pair."""

    TO_INIT = "modify to INIT"
    TO_RTR = "modify to RTR"
    TO_RTS = "modify to RTS"
    TO_RESET = "modify to RESET"
    TO_ERROR = "modify to ERROR"
    FATAL = "fatal error"


_S = QpState
# (state, input) -> state; what is not listed is refused.
TRANSITIONS: Final[dict[tuple[QpState, QpInput], QpState]] = {
    (_S.RESET, QpInput.TO_INIT): _S.INIT,
    (_S.INIT, QpInput.TO_RTR): _S.RTR,
    (_S.RTR, QpInput.TO_RTS): _S.RTS,
    **{(state, QpInput.TO_ERROR): _S.ERROR for state in _S},
    **{(state, QpInput.TO_RESET): _S.RESET for state in _S},
    **{(state, QpInput.FATAL): _S.ERROR for state in (_S.RTR, _S.RTS, _S.ERROR)},
}
_INPUT_FOR: Final = {
    _S.INIT: QpInput.TO_INIT,
    _S.RTR: QpInput.TO_RTR,
    _S.RTS: QpInput.TO_RTS,
    _S.RESET: QpInput.TO_RESET,
    _S.ERROR: QpInput.TO_ERROR,
}
_FAREWELLS: Final = 8  # with doubled pauses, at most
POST_RECV_STATES: Final = frozenset({_S.INIT, _S.RTR, _S.RTS})


class QueuePair(Timed):
    """A queue pair. Users hold it as a handle: `number`, `state`, `error`; everything else goes through `Endpoint`.

    `association` is what its two halves share; it is a `Member` of the peer that it is connected to.
    """

    __slots__ = (
        "_gone", "association", "cc_config", "context", "denied", "error", "farewells", "number", "open_planes",
        "reliability", "remote_instance", "requestor", "responder", "sq_psn", "state", "told_status",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        context: EndpointContext,
        universe: EvUniverse,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        reliability: ReliabilityConfig,
        ev_config: EvConfig,
        cc_config: CcConfig,
    ) -> None:
        self.number = number
        self.context = context
        self.state = QpState.RESET
        self.error: ErrorReason | None = None
        self.remote_instance: int | None = None  # which life of the peer's endpoint the document was of
        self.cc_config = cc_config
        initial = context.config.initial_psn
        self.sq_psn = context.rng.getrandbits(24) if initial is None else initial
        self.told_status: int | None = None  # the port status that our document had first
        self.open_planes = 0  # usable planes on which we have an EV
        self.denied: set[int] = set()  # EVs that a controller denied for this queue pair itself
        self.farewells = 0  # how often the peer has been notified that our user is gone
        self._gone: Callable[[QueuePair, int], None] | None = None  # to be called after the last farewell
        self.reliability = reliability
        attributes = NegotiatedAttributes(reliability, context.config.wire.mtu)
        evs: EvSet = (context.config.policies.ev or EvSet)(universe, context.rng, self._on_ev)
        self.association = Association(number, context, attributes, evs, ev_config, self.fail)
        self.requestor = Requestor(self.association, send_cq)
        self.responder = Responder(self.association, recv_cq)

    @property
    def connected(self) -> bool:
        """Return whether it has a peer: from RTR on, until RESET."""
        return self.association.connected

    @property
    def peer(self) -> Peer:
        """Whom it is connected to."""
        return self.association.peer

    @property
    def route(self) -> Route:
        """How its packets travel there."""
        return self.association.route

    @property
    def qpcc(self) -> Qpcc:
        """The congestion context that it shares."""
        return self.association.qpcc

    @property
    def evs(self) -> EvSet:
        """Its EVs."""
        return self.association.evs

    @property
    def ev_config(self) -> EvConfig:
        """Its EV profile."""
        return self.association.ev_config

    @property
    def attributes(self) -> NegotiatedAttributes:
        """What was negotiated, or is offered."""
        return self.association.attributes

    @property
    def prober(self) -> Prober:
        """Its reliability probes."""
        return self.requestor.prober

    # --- state ---

    def receives(self) -> bool:
        """Return whether it takes data: it is in RTR or RTS."""
        return self.state is QpState.RTS or self.state is QpState.RTR

    def transit(self, item: QpInput, now: int, reason: ErrorReason | None = None) -> None:
        """Change the state by the table. Raises QpError for a transition that it does not have."""
        old = self.state
        new = self.after(item)
        if new is old and new in (_S.ERROR, _S.RESET):
            return
        self.state = new
        self.error = reason if new is _S.ERROR else None
        self.context.events.append(QpStateChanged(self.number, old, new, self.error))
        if self.context.trace is not None:
            text = self.error.value if self.error is not None else None
            self.context.trace(now, "qp:state", qpn=self.number, old=old.value, new=new.value, reason=text)

    def after(self, item: QpInput) -> QpState:
        """Return the state that an input leads to. Raises QpError for a transition that the table does not have."""
        new = TRANSITIONS.get((self.state, item))
        if new is None:
            old = self.state
            allowed = ", ".join(sorted(other.value for state, other in TRANSITIONS if state is old))
            raise QpError(f"queue pair {self.number} is in {old.value}: '{item.value}' is refused; allowed: {allowed}")
        return new

    def take_universe(self, universe: EvUniverse, ev_config: EvConfig) -> None:
        """Use another EV profile, before there is a peer."""
        self.association.evs = (self.context.config.policies.ev or EvSet)(universe, self.context.rng, self._on_ev)
        self.association.ev_config = ev_config
        self.requestor.start(self.sq_psn)  # its scoreboard has a place for each EV

    def enter_rtr(self, peer: Peer, remote_number: int, rq_psn: int, now: int) -> None:
        """Go INIT -> RTR: the responder runs. Raises QpError when our EV profile has no way to the peer."""
        self.after(QpInput.TO_RTR)
        try:
            route = peer.route_for(self.evs.universe)
        except ConfigError as error:
            raise QpError(f"queue pair {self.number}: {error}") from None
        self.transit(QpInput.TO_RTR, now)
        association = self.association
        association.peer = peer
        association.route = route
        association.qpcc = peer.qpcc_for(self.cc_config)
        peer.attach(self, route)
        association.connected = True
        association.remote_number = remote_number
        self.responder.start(rq_psn)
        self._take_denials()
        peer.refresh_planes()

    def _take_denials(self) -> None:
        """Apply the denials of a controller towards the peer to this queue pair, and the other way round (`§7`)."""
        evs = self.evs
        context = self.context
        mine = {value for value in evs.universe.values if evs.denies(value)}
        if mine:
            context.denied.setdefault(self.peer.address, set()).update(mine)
        for value in context.denied_towards(self.peer.address):
            ev = evs.universe.index.get(value)
            if ev is not None:
                evs.apply(ev, EvInput.DENY)

    def enter_rts(self, now: int) -> None:
        """Go RTR -> RTS: the requestor runs."""
        self.transit(QpInput.TO_RTS, now)
        self.requestor.start(self.sq_psn)

    def fail(
        self,
        reason: ErrorReason,
        now: int,
        *,
        status: CompletionStatus = CompletionStatus.WR_FLUSH_ERR,
    ) -> None:
        """Go to ERROR: every request and receive completes, the oldest request with `status` (`§4`)."""
        if self.state is QpState.ERROR:
            return
        self.transit(QpInput.FATAL if self.receives() else QpInput.TO_ERROR, now, reason)
        self._stop()
        self.requestor.flush(status, now)
        self.responder.flush(now)

    def overflow(self, now: int) -> None:
        """Handle the overflow of a completion queue of this queue pair."""
        self.fail(ErrorReason.CQ_OVERFLOW, now)

    def reset(self, now: int) -> None:
        """Go to RESET from any state: forget the peer and the work requests, which do not complete."""
        if self.state is QpState.RESET:
            return
        self.transit(QpInput.TO_RESET, now)
        self._stop()
        self.requestor.discard()
        self.responder.discard()
        self.leave_peer()
        # Delayed packets of this connection must not fit the next one, and its negotiated attributes are void.
        self.sq_psn = self.context.rng.getrandbits(24)
        self.association.attributes = NegotiatedAttributes(self.reliability, self.context.config.wire.mtu)
        self.told_status = None
        self.remote_instance = None
        self.requestor.start(self.sq_psn)
        self.responder.start(0)

    def close(self, now: int, gone: Callable[[QueuePair, int], None]) -> None:
        """Go to ERROR because the user is gone: notify the peer, and answer it so from now on (`§6`).

        `gone(qp, now)` is called when the peer has been notified for the last time.
        """
        self._gone = gone
        self.fail(ErrorReason.REQUESTED, now)
        self.responder.refuse()
        self.repeat_close(now)

    def repeat_close(self, now: int) -> bool:
        """Notify the peer once more; False when it has been notified as often as a packet is repeated."""
        attributes = self.attributes
        if self.farewells > attributes.linear_cnt + min(attributes.exp_cnt, _FAREWELLS):
            return False
        plane = self.peer.next_plane()
        if plane >= 0:
            self.responder.repeat_nak(plane)
        self.context.timers.arm(TimerKind.CLOSED, self, now + attributes.repeat_ns(self.farewells))
        self.farewells += 1
        return True

    def leave_peer(self) -> None:
        """Take part no longer in what queue pairs to one peer share."""
        association = self.association
        if association.connected:
            association.connected = False
            self.open_planes = 0
            association.peer.detach(self, association.route)

    def abandon(self, now: int) -> None:
        """Do the minimum of `fail`, for a queue pair whose own state is damaged."""
        context = self.context
        if self.state is not QpState.ERROR:
            context.events.append(QpStateChanged(self.number, self.state, QpState.ERROR, ErrorReason.INTERNAL))
        self.state = QpState.ERROR
        self.error = ErrorReason.INTERNAL
        context.timers.cancel_owner(self)
        self.requestor.recovery.stop()
        self.prober.clear()
        self.responder.stop()
        if self.connected:
            context.ring.withdraw(self.requestor)

    # --- calls of the peer to its members ---

    def owns(self, timed: Timed) -> bool:
        """See `Member`."""
        return timed is self or timed is self.requestor.recovery or timed is self.prober or timed is self.responder

    def planes_lost(self, planes: int, now: int) -> None:
        """See `Member`."""
        if self.state is QpState.RTS:
            planes &= ~self.evs.usable
            for plane in range(planes.bit_length()):
                if planes >> plane & 1:
                    self.requestor.recovery.on_plane_down(plane, now)

    def planes_returned(self, now: int) -> None:
        """See `Member`."""
        if self.evs.streak and self.state is QpState.RTS:
            self.prober.schedule(now, soon=True)

    def peer_restarted(self, instance: int, now: int) -> None:
        """See `Member`."""
        if self.remote_instance not in (None, instance):
            self.fail(ErrorReason.PEER_RESTARTED, now, status=CompletionStatus.RETRY_EXC_ERR)

    # --- nowhere to send ---

    def planes_changed(self) -> None:
        """Bound the wait for a plane by a timer (`§4`): without a plane to send on, nothing is outstanding that could
        time out.
        """
        timers = self.context.timers
        self.open_planes = self.evs.usable & self.evs.planes()
        if self.open_planes:
            timers.cancel(TimerKind.OUTAGE, self)
        elif self.state is QpState.RTS and self.requestor.unacked and not timers.is_armed(TimerKind.OUTAGE, self):
            patience = self.attributes.patience_ns()
            if patience is not None:
                timers.arm(TimerKind.OUTAGE, self, self.context.now + patience)

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """Handle the end of the patience without a plane, or notify the peer once more that the user is gone."""
        if kind is not TimerKind.CLOSED:
            self.on_outage(now)
        elif not self.repeat_close(now) and self._gone is not None:
            self._gone(self, now)

    def on_outage(self, now: int) -> None:
        """Fail if no plane has come back in the time that the retries of a packet would have taken."""
        if not self.open_planes and self.requestor.unacked:
            self.fail(
                ErrorReason.RETRY_EXCEEDED,
                now,
                status=CompletionStatus.RETRY_EXC_ERR,
            )

    def snapshot(self) -> QpStatistics:
        """Return the state and counters."""
        evs = self.evs
        board = self.requestor.board
        return QpStatistics(
            qpn=self.number,
            state=self.state.value,
            error=self.error.value if self.error is not None else None,
            peer=self.peer.text if self.connected else None,
            outstanding_packets=len(board.outstanding),
            lost_packets=board.lost(),
            unacked_requests=len(self.requestor.unacked),
            srtt_ns=self.requestor.rtt.srtt_ns,
            ev_states={name: evs.state.count(value) for value, name in enumerate(NAMES)},
            ev_active=[len(order) for order in evs.order],
            requestor=self.requestor.counters.snapshot(),
            responder=self.responder.counters.snapshot(),
        )

    def reordering(self) -> QpReordering:
        """Return how far packets arrived out of order."""
        peer = self.peer.text if self.connected else None
        placed, found = self.responder.counters.packets_placed, self.responder.reordering
        return QpReordering(self.number, peer, placed, list(found.packets), list(found.bytes), found.again)

    def _stop(self) -> None:
        self.context.timers.cancel_owner(self)

    # --- work requests ---

    def post(self, request: WriteRequest, now: int) -> None:
        """Queue a request in RTS; in ERROR it is flushed. Raises QpError in other states."""
        if self.state is QpState.RTS:
            if not self.requestor.post(request):
                self.fail(
                    ErrorReason.WIMM_LIMIT,
                    now,
                    status=CompletionStatus.LOC_QP_OP_ERR,
                )
            elif not self.open_planes:
                self.planes_changed()
        elif self.state is QpState.ERROR:
            self.requestor.counters.requests_flushed += 1
            self.requestor.complete(request, CompletionStatus.WR_FLUSH_ERR, now)
        else:
            raise QpError(f"queue pair {self.number} is in {self.state.value}: posting writes needs RTS")

    def post_recv(self, wr_id: int, count: int, now: int) -> None:
        """Queue receives; in ERROR they are flushed. Raises QpError in RESET."""
        if self.state is QpState.RESET:
            raise QpError(f"queue pair {self.number} is in RESET: posting receives needs INIT or later")
        self.responder.receives.extend([wr_id] * count)
        if self.state is QpState.ERROR:
            self.responder.flush(now)

    # --- EVs ---

    def _on_ev(self, ev: int, old: int, new: int, item: EvInput, losses: int) -> None:
        """Handle an EV that changed its state: trace, event for a controller, probing, balance."""
        before, after = STATES[old], STATES[new]
        universe = self.evs.universe
        value, plane = universe.values[ev], universe.planes[ev]
        context = self.context
        if context.trace is not None:
            context.trace(
                context.now, "ev:state", qpn=self.number, ev=value, plane=plane, old=before.name, new=after.name,
                cause=item.value,
            )  # fmt: skip
        lasting = (EvState.ASSUMED_BAD, EvState.DENIED)
        if before not in lasting and after not in lasting:
            return
        context.events.append(EvChanged(self.number, value, plane, before, after, item.value, losses))
        if not self.connected:
            return
        if after is EvState.ASSUMED_BAD:
            self.prober.schedule(context.now)
        route = self.route
        if after is EvState.DENIED and route.reverse[plane].value == value:
            route.reverse[plane].take(route.any_ev(plane))
        if self.qpcc.balance.mask >> plane & 1 != (len(self.evs.order[plane]) > 0):
            self.peer.refresh_planes()
        else:
            self.planes_changed()
