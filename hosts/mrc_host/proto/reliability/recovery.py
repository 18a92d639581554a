"""Loss and repair of one requestor: NACKs, timeouts, budget, silence at the tail (`mrc-protocol.md §4, §5`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from mypy_extensions import i64, mypyc_attr

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.congestion.inflight import InflightAccount
from mrc_host.proto.events import ErrorReason
from mrc_host.proto.paths.association import Association
from mrc_host.proto.paths.ev import EvInput
from mrc_host.proto.reliability.scoreboard import IN_FLIGHT, LOST, LossReason, Scoreboard, Transmission
from mrc_host.proto.stats import RequestorCounters
from mrc_host.proto.timers import Timed, TimerKind
from mrc_host.proto.wire.fields import NackReason
from mrc_host.proto.wire.messages import FLAG_RTX, Nack, Sack
from mrc_host.proto.wire.psn import PSN_MASK, extend
from mrc_host.proto.work import WriteRequest


class PlaneRtt:
    """The RTT of one plane: smoothed, its variation, and `srtt + 4 rttvar`; all 0 until the first sample."""

    __slots__ = ("srtt_ns", "var_ns", "window_ns")
    srtt_ns: i64
    var_ns: i64
    window_ns: i64

    def __init__(self) -> None:
        self.srtt_ns = self.var_ns = self.window_ns = 0


class Rtt:
    """`srtt_ns` and `var_ns` are of all planes together, `least_ns` is the smallest sample; all 0 until the first one.

    Planes may differ in rate and delay, so that only the RTT of its own plane says when a packet is late.
    """

    __slots__ = ("least_ns", "planes", "srtt_ns", "var_ns")

    def __init__(self, planes: int) -> None:
        self.srtt_ns = self.var_ns = self.least_ns = 0
        self.planes = [PlaneRtt() for _ in range(planes)]

    @property
    def windows(self) -> list[int]:
        """`window_ns` by plane."""
        return [plane.window_ns for plane in self.planes]

    def reset(self) -> None:
        """Forget all samples."""
        self.srtt_ns = self.var_ns = self.least_ns = 0
        self.planes = [PlaneRtt() for _ in range(len(self.planes))]

    def sample(self, rtt: i64, plane: i64) -> None:
        """Add an unambiguous sample of a packet that arrived in time."""
        if self.srtt_ns:
            if rtt < self.least_ns:
                self.least_ns = rtt
            error = rtt - self.srtt_ns
            self.srtt_ns += error >> 3
            self.var_ns += ((error if error >= 0 else -error) - self.var_ns) >> 2
        else:
            self.srtt_ns = self.least_ns = rtt
            self.var_ns = rtt >> 1
        self.sample_plane(rtt, plane)

    def sample_plane(self, rtt: i64, plane: i64) -> None:
        """Add a sample to its plane only.

        These are also samples of packets that were inferred lost and arrived after all: without them the estimate of a
        plane that became slower would never follow, because each of its packets would be inferred lost first.
        """
        own = self.planes[plane]
        if own.srtt_ns:
            error = rtt - own.srtt_ns
            own.srtt_ns += error >> 3
            own.var_ns += ((error if error >= 0 else -error) - own.var_ns) >> 2
        else:
            own.srtt_ns = rtt
            own.var_ns = rtt >> 1
        own.window_ns = own.srtt_ns + 4 * own.var_ns


_PERSISTS: Final = 16


# A user's may be plain Python (`mrc_host.policy`).
@mypyc_attr(allow_interpreted_subclasses=True)
class LossDetector:
    """The detector of one queue pair, and the base class of others. `infer` is called for every SACK.

    `board` has what is in flight, `rtt` the smoothed round-trip time and its variation (ns). `same_ev` and `rack` say
    which of the two rules are in force (`reliability.same_ev_inference`, `reliability.rack_inference`). `adaptive`
    (`reliability.adaptive_reordering`): `arrived_late` is called, and rule (c) waits at least `patience_ns`.
    """

    __slots__ = ("_recoveries", "_recovery_ns", "adaptive", "board", "patience_ns", "rack", "rtt", "same_ev")

    def __init__(self, board: Scoreboard, rtt: Rtt, same_ev: bool, rack: bool) -> None:
        self.board = board
        self.rtt = rtt
        self.same_ev = same_ev
        self.rack = rack
        self.adaptive = False
        self.patience_ns = 0
        self._recoveries = 0
        self._recovery_ns = 0

    def arrived_late(self, behind_ns: int, now: int) -> None:
        """Handle a packet that rule (c) took for lost and that has arrived as first sent: so long before the newest
        packet that had arrived by then.

        Rule (c) then waits as long, and an eighth, until it has found losses in 16 round trips without another such
        packet (as RFC 8985, 6.2 persists; there the window grows by quarters of an RTT, up to one).
        """
        self._recoveries = _PERSISTS
        self.patience_ns = max(self.patience_ns, behind_ns + (behind_ns >> 3))

    def _lost_despite_wait(self, now: int) -> None:
        """Count a loss that rule (c) found although it waited longer: at most once per RTT it speaks against
        waiting.
        """
        if now - self._recovery_ns < self.rtt.srtt_ns:
            return
        self._recovery_ns = now
        self._recoveries -= 1
        if self._recoveries <= 0:
            self.patience_ns = 0

    def infer(
        self, acked: list[Transmission], overtaken: list[Transmission] | None, base_rtt_ns: int, now: int
    ) -> list[Transmission] | None:
        """Return the packets in flight that must be lost; None or an empty list: none.

        `acked`: what this SACK acknowledges for the first time. `overtaken`: what was sent before one of them on the
        same EV and has not arrived; None: nothing. Here these are lost by rule (b), for one EV is one FIFO path. By
        rule (c) a packet is lost that was sent more than `srtt + 4 rttvar` of its plane (of all planes, until that has
        a sample) before the newest packet that arrived, but at least a base RTT and `patience_ns`.
        """
        lost = overtaken if self.same_ev else None
        board = self.board
        if not self.rack or not board.outstanding.count:
            return lost
        rtt = self.rtt
        planes = rtt.planes
        newest = board.newest_ns
        least = base_rtt_ns if base_rtt_ns > self.patience_ns else self.patience_ns
        late: list[Transmission] = []
        for plane, order in enumerate(board.orders):
            first = order.first
            if first is not None:
                window = planes[plane].window_ns
                if not window:
                    window = rtt.srtt_ns + 4 * rtt.var_ns
                if window < least:
                    window = least
                if first.sent_ns < newest - window:
                    board.sent_before(plane, newest - window, late)
        if board.slow:  # packets in the exponential phase are in no order, and no less lost
            whole = rtt.srtt_ns + 4 * rtt.var_ns
            board.move_slow_packets([newest - max(each.window_ns or whole, least) for each in planes], late)
        if late:
            if self.patience_ns:
                self._lost_despite_wait(now)
            lost = late if lost is None else lost + late
        return lost

    def in_flight(self) -> list[Transmission]:
        """Return the packets that were sent and are neither acknowledged nor inferred lost, by PSN of the first
        transmission.
        """
        return [sent for sent in self.board.outstanding.values() if sent.state == IN_FLIGHT]


class NackAction(Enum):
    """What a NACK means for the packet that it names (`§5`)."""

    CONGESTED = "sent again; congestion control hears of it"
    REFUSED = "sent again after a pause; no EV is blamed"
    FATAL = "not sent again: remote operation error"


# (input to the EV's state, action for the packet). A reason that is not here, from a later version of the protocol, is
# a refusal: the retry budget bounds it.
NACK_FATES: Final[dict[int, tuple[EvInput, NackAction]]] = {
    NackReason.TRIMMED: (EvInput.TRIMMED, NackAction.CONGESTED),
    NackReason.TRIMMED_LASTHOP: (EvInput.NOT_TO_BLAME, NackAction.CONGESTED),
    NackReason.NO_BITMAP: (EvInput.NOT_TO_BLAME, NackAction.REFUSED),
    NackReason.NO_PKT_BUFFER: (EvInput.NOT_TO_BLAME, NackAction.REFUSED),
    NackReason.NO_RESOURCE: (EvInput.NOT_TO_BLAME, NackAction.REFUSED),
    NackReason.PSN_OOR_WINDOW: (EvInput.NOT_TO_BLAME, NackAction.REFUSED),
    NackReason.UNEXP_EVENT: (EvInput.NOT_TO_BLAME, NackAction.FATAL),
}
_UNKNOWN: Final = (EvInput.NOT_TO_BLAME, NackAction.REFUSED)
_MAX_TAIL_DOUBLINGS: Final = 20
_FOR_EVER: Final = 25  # exp_cnt
_NEVER: Final = 1 << 62
_NO_BUDGET: Final = 1 << 30
_AFRESH: Final = -1  # the next transmission begins a new local ACK timeout


class SendProbe(Protocol):
    """Sends a reliability probe on an EV (`probing.Prober.send`)."""

    def __call__(self, ev: int, now: int, revival: bool) -> None: ...


class Recovery(Timed):
    """Finds lost packets and queues their retransmissions in `lost`. `hold_ns`: nothing is sent before that time.

    `single_packet_mode`: a timeout expired and no answer has arrived since the packet was sent. Then only the oldest
    packet is retransmitted, at each timeout, and it does not count as in flight: a queue pair whose other end is gone
    must not hold the window that it shares with live queue pairs to the same peer. Any answer ends this mode.
    """

    __slots__ = (
        "_account", "_board", "_counters", "_has_data", "_probe", "_progress", "_repeat_last", "_rto_armed", "_rtt",
        "_tail_armed", "_unacked", "_wake", "armed", "association", "budget", "fruitless", "heard_ns",
        "hold_ns", "lost", "refusals", "silence", "single_packet_mode",
    )  # fmt: skip

    def __init__(
        self,
        association: Association,
        counters: RequestorCounters,
        rtt: Rtt,
        unacked: deque[WriteRequest],
        *,
        has_data: Callable[[], bool],
        wake: Callable[[], None],
        probe: SendProbe,
        repeat_last: Callable[[int, int, int], None],
    ) -> None:
        """Create the recovery of a requestor.

        `unacked`: requests without a transport ACK. `has_data()`: whether something waits to be sent. `wake()`: called
        when it may be sent. `probe` asks the peer what it has; `repeat_last(plane, ev, now)` does so by sending a
        packet again.
        """
        self.association = association
        self._counters = counters
        self._rtt = rtt
        self._unacked = unacked
        self._has_data = has_data
        self._wake = wake
        self._probe = probe
        self._repeat_last = repeat_last
        self.lost: list[Transmission] = []

    def start(self, board: Scoreboard, account: InflightAccount) -> None:
        """Restart with the negotiated retry budget."""
        self._board = board
        self._account = account
        attributes = self.association.attributes
        self.budget = attributes.linear_cnt + attributes.exp_cnt if attributes.exp_cnt < _FOR_EVER else _NO_BUDGET
        self._rto_armed = False
        self._tail_armed = False
        self.armed = False  # both of them
        self._progress = -1
        self.silence = 0  # questions at the tail in a row that were not answered
        self.fruitless = 0  # questions at the tail in a row after which nothing more was acknowledged
        self.hold_ns = 0
        self.refusals = 0  # resource NACKs in a row
        self.heard_ns = -1  # when the peer last answered anything
        self.single_packet_mode = False
        self.lost.clear()

    def arm(self, now: int) -> None:
        """Arm the timeout and the tail timer unless they are due before."""
        timers = self.association.context.timers
        if self._board.outstanding.count:
            self._rto_armed = True
            timers.arm_by(TimerKind.RETRANSMIT, self, now + self._board.timeout_ns)
        if not self._tail_armed:
            self._arm_tail(now)
        self.armed = self._rto_armed

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """Handle the timer of the three that is due."""
        if kind is TimerKind.RETRANSMIT:
            self.on_timeout(now)
        elif kind is TimerKind.TAIL:
            self.on_tail(now)
        else:
            self._wake()  # the pause is over

    # --- silence ---

    def heard(self, now: int) -> None:
        """Record that the peer's queue pair answers."""
        self.heard_ns = now
        if self.single_packet_mode:
            self.single_packet_mode = False
            self.hold_ns = 0
            self._wake()

    def progressed(self) -> None:
        """Record that a packet was acknowledged, or named by a NACK: the tail probes start from their first
        interval.
        """
        self.silence = 0
        self.fruitless = 0

    def next_lost(self, limit: int, now: int) -> Transmission | None:
        """Return the packet up to PSN `limit` to repeat now, None when none may be. It stays in `lost`, as the
        first.
        """
        lost = self.lost
        if self.single_packet_mode:
            oldest = self._board.oldest()
            if oldest is None or oldest.state != LOST:
                return None
            lost.remove(oldest)
            lost.insert(0, oldest)
            return oldest
        if now < self.hold_ns:
            return None
        for place, sent in enumerate(lost):
            if sent.state == LOST and sent.psn <= limit:
                if place:
                    lost[:] = lost[place:] + lost[:place]
                return sent
        return None

    # --- loss ---

    def on_nack(self, nack: Nack, now: int) -> None:
        """Handle a NACK (rule (a)); `NACK_FATES` gives the consequences for the packet and its path."""
        counters = self._counters
        counters.nacks_received += 1
        association = self.association
        evs = association.evs
        board = self._board
        reason = nack.nack_reason
        trace = association.context.trace
        if trace is not None:
            trace(now, "nack:received", qpn=association.number, psn=nack.nack_psn, ev=nack.entropy, reason=reason)
        ev = evs.universe.index.get(nack.entropy, -1)
        psn = extend(nack.nack_psn, board.una)
        if psn >= board.nxt:
            counters.bogus_nacks += 1  # never sent: nothing to repeat, and no path to blame
            return
        self.heard(now)
        sent = board.outstanding.get(psn)
        verdict, fate = NACK_FATES.get(reason, _UNKNOWN)
        if ev >= 0:
            evs.apply(ev, verdict)
        if fate is NackAction.FATAL and sent is not None:  # whichever transmission of it that was
            association.fail(ErrorReason.REMOTE_OPERATION, now, status=CompletionStatus.REM_OP_ERR)
            return
        if sent is None or sent.state != IN_FLIGHT or sent.ev != ev:
            counters.stale_nacks += 1
            return
        self.progressed()
        self._account.drop(sent)
        if fate is NackAction.CONGESTED:
            association.qpcc.cc.on_trim(now, sent.size)
        else:
            self._back_off(now)
        self.lose(sent, LossReason.NACK, now, congested=fate is NackAction.CONGESTED)
        self._wake_waiting()

    def _back_off(self, now: int) -> None:
        """Pause after the peer lacked a resource or its window shrank, longer each time in a row."""
        if now < self.hold_ns:
            return
        pause = max(self._rtt.srtt_ns, self.association.qpcc.cc.base_rtt_ns) << min(self.refusals, 10)
        self.refusals += 1
        self.hold_ns = now + pause
        self.association.context.timers.arm(TimerKind.BACKOFF, self, self.hold_ns)

    def lose(self, sent: Transmission, reason: LossReason, now: int, congested: bool = False) -> None:
        """Mark a packet in flight as lost: blame the path, queue the packet again, count it against the budget.

        `congested`: a switch trimmed it.
        """
        association = self.association
        sent.state = LOST
        counted = sent.counted  # a NACK's packet left the account before the controller handled it
        self._account.drop(sent)
        counters = self._counters
        cc = association.qpcc.cc
        if reason is LossReason.NACK:
            counters.lost_nack += 1
        elif reason is LossReason.PORT_DOWN:
            counters.lost_port_down += 1
        else:
            if reason is LossReason.RACK:
                counters.lost_rack += 1
            elif reason is LossReason.SAME_EV:
                counters.lost_same_ev += 1
            else:
                counters.lost_timeout += 1
            if counted:
                cc.on_loss(now, sent.size)
            if association.evs.usable >> sent.plane & 1:
                association.evs.apply(sent.ev, EvInput.LOSS)
        trace = association.context.trace
        if trace is not None:
            value = association.evs.universe.values[sent.ev]
            trace(
                now, "packet:lost", qpn=association.number, psn=sent.psn & PSN_MASK, ev=value, reason=reason.value,
                tx=sent.count,
            )  # fmt: skip
        if self._costs_budget(sent, reason, congested, now):
            sent.failures += 1
            sent.since_ns = _AFRESH
            if sent.failures > self.budget:
                association.fail(
                    ErrorReason.RETRY_EXCEEDED,
                    now,
                    status=CompletionStatus.RETRY_EXC_ERR,
                )
                return
        # The oldest goes first: it holds up completions, and on a dead path only its budget must run out, not that of
        # every packet.
        if self.lost and sent.psn < self.lost[0].psn:
            self.lost.insert(0, sent)
        else:
            self.lost.append(sent)
        self._wake()

    def _costs_budget(self, sent: Transmission, reason: LossReason, congested: bool, now: int) -> bool:
        """Return whether a loss counts against the retry budget of its packet (`§4`).

        Timeouts and refusals do. A loss that is inferred, or a trim, costs at most one retry in each local ACK timeout:
        both may repeat a packet in every round trip, and the budget is meant to last for as long as in a silent
        network. An incast may trim the same packet more often than the budget allows, while its queue pair works.
        """
        if reason is LossReason.TIMEOUT or (reason is LossReason.NACK and not congested):
            return True
        return reason is not LossReason.PORT_DOWN and now - sent.since_ns >= self._board.timeout_of(sent)

    def detect_spurious_loss(
        self, acked: list[Transmission], trigger: int, sack: Sack, detector: LossDetector, now: int
    ) -> None:
        """Handle packets that rule (c) inferred lost and whose first transmission has arrived.

        Their EV works, and their plane is slower than assumed: both are corrected. `trigger` is the PSN of the packet
        that triggered the SACK (-1: none).
        """
        board = self._board
        guessed = board.guessed
        evs = self.association.evs
        # A packet that is answered without the mark of a retransmission arrived as it was sent first.
        late: list[int] = []
        if trigger in guessed and not sack.flags & FLAG_RTX:
            late.append(trigger)
            sent_ns, plane, ev = guessed[trigger]
            if evs.universe.values[ev] == sack.entropy:
                self._rtt.sample_plane(now - sent_ns, plane)
        for sent in acked:
            if sent.psn in guessed and sent.psn != trigger:
                # Not sent again yet, or known before it could be there again and the answer back.
                soon = sent.state == IN_FLIGHT and sent.count == 2 and now - sent.sent_ns < self._rtt.least_ns
                if soon or (sent.state == LOST and sent.count == 1):
                    late.append(sent.psn)
        for psn in late:
            self._counters.late_arrivals += 1
            sent_ns, _, ev = guessed.pop(psn)
            evs.probe_answered(ev, 0)  # its packet arrived, which says of the path what a probe would
            if detector.adaptive:
                detector.arrived_late(max(board.newest_ns - sent_ns, 0), now)

    def on_plane_down(self, plane: int, now: int) -> None:
        """Retransmit at once, on other planes, all packets in flight on a plane that is down."""
        for sent in self._board.on_plane(plane):
            self.lose(sent, LossReason.PORT_DOWN, now)
        self._wake_waiting()

    def on_timeout(self, now: int) -> None:
        """Handle the local ACK timeout of some packet (rule (d))."""
        self._rto_armed = self.armed = False
        expired, due = self._board.timed_out(now)
        for sent in expired:
            if sent.state == IN_FLIGHT:
                self._counters.packets_expired += 1
                if self.heard_ns < sent.sent_ns:
                    self.single_packet_mode = True
                    self.hold_ns = _NEVER
                self.lose(sent, LossReason.TIMEOUT, now)
        if due is not None and self._board.outstanding.count:
            self._rto_armed = True
            # What is sent from now on may be due sooner than a packet in its exponential retries.
            self.armed = self._tail_armed and due <= now + self._board.timeout_ns
            self.association.context.timers.arm(TimerKind.RETRANSMIT, self, due)
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        qpcc = self.association.qpcc
        if qpcc.waiting:
            self.association.context.ring.wake_waiting(qpcc)

    def stop(self) -> None:
        """Cancel all timers and forget the lost packets, so that nothing is sent again."""
        timers = self.association.context.timers
        for kind in (TimerKind.RETRANSMIT, TimerKind.TAIL, TimerKind.BACKOFF):
            timers.cancel(kind, self)
        self.lost.clear()

    # --- the tail: silence while something is unacknowledged ---

    def _tail_interval(self) -> int:
        """Return the time in ns from one question at the tail to the next.

        It starts at two smoothed RTTs, of this queue pair or of all those to its destination, whichever is longer: a
        queue pair without samples of its own would otherwise add probes to the queue that the others wait in. It
        doubles with every question after which nothing more was acknowledged, answered or not: otherwise a packet that
        only its timeout repeats would cause a probe in each RTT until then. It is never longer than a packet that was
        sent as often would wait for its answer. When only the transport ACK is missing, the unanswered questions are
        its retries and the others are not, so that a silent network ends the queue pair in the time in which the
        retries of a packet would (`NegotiatedAttributes.patience_ns`).
        """
        cc = self.association.qpcc.cc
        rtt = max(self._rtt.srtt_ns + 2 * self._rtt.var_ns, cc.srtt_ns, cc.base_rtt_ns)
        board = self._board
        longest = self.association.attributes.repeat_ns(self.fruitless if board.outstanding.count else self.silence)
        return max(rtt, min(2 * rtt << min(self.fruitless, _MAX_TAIL_DOUBLINGS), longest))

    def on_tail(self, now: int) -> None:
        """Probe the peer when no answer has arrived for a while (also for a lost transport ACK)."""
        self._tail_armed = self.armed = False
        board = self._board
        if not self._unacked or (self._has_data() and not board.outstanding.count and board.una == board.nxt):
            return  # nothing is unanswered; what waits is sent when it may
        association = self.association
        attributes = association.attributes
        counters = self._counters
        progress = counters.sacks_received + counters.packets_sent + counters.acks_received
        if progress != self._progress:
            self._progress = progress
            self._arm_tail(now)
            return
        everything_sacked = not board.outstanding.count
        if attributes.tail_probe or everything_sacked:
            plane = association.peer.next_plane()
            ev = association.evs.choose(plane) if plane >= 0 else -1
            if ev >= 0:
                # A probe is always new to the peer. Only a duplicate shows the peer that its answers are lost.
                if everything_sacked and self.fruitless & 1 and self._unacked[0].last < board.nxt:
                    self._repeat_last(plane, ev, now)
                    self._progress += 1
                else:
                    self._probe(ev, now, revival=False)
        self.silence += 1
        self.fruitless += 1
        if everything_sacked and self.silence > self.budget:
            association.fail(
                ErrorReason.RETRY_EXCEEDED,
                now,
                status=CompletionStatus.RETRY_EXC_ERR,
            )
            return
        self._arm_tail(now)

    def _arm_tail(self, now: int) -> None:
        self._tail_armed = True
        association = self.association
        association.context.timers.arm(TimerKind.TAIL, self, now + self._tail_interval())
