"""Loss detection by inference from what has arrived: rules (b) and (c) (`mrc-protocol.md §5`).

NACKs (a) and timeouts (d) need no inference and are `recovery.py`'s.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from mrc_host.proto.reliability.rtt import Rtt
from mrc_host.proto.reliability.scoreboard import IN_FLIGHT, Scoreboard, Transmission

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
        if not self.rack or not board.outstanding:
            return lost
        rtt = self.rtt
        windows = rtt.windows
        newest = board.newest_ns
        least = base_rtt_ns if base_rtt_ns > self.patience_ns else self.patience_ns
        late: list[Transmission] = []
        for plane, order in enumerate(board.orders):
            if order:
                window = windows[plane] or rtt.srtt_ns + 4 * rtt.var_ns
                if window < least:
                    window = least
                if order[0].sent_ns < newest - window:
                    board.sent_before(plane, newest - window, late)
        if board.slow:  # packets in the exponential phase are in no order, and no less lost
            whole = rtt.srtt_ns + 4 * rtt.var_ns
            board.move_slow_packets([newest - max(window or whole, least) for window in windows], late)
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
