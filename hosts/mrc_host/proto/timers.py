"""Every timer of the protocol core in one enumeration, and the queue they wait in.

Timers are rarely touched on the data path: a handler that fires early looks at the state and rearms itself.
"""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import Final

from mypy_extensions import mypyc_attr

_SWEEP_FACTOR: Final = 4
_SWEEP_FLOOR: Final = 256


class TimerKind(IntEnum):
    """What a timer is for. Its owner is the part that acts when it is due: a queue pair's recovery, prober, responder
    or itself; a peer, one of its routes or QPCCs; or the endpoint's node operations."""

    RETRANSMIT = 0  # QP: the local ACK timeout of the packet that has waited longest
    TAIL = 1  # QP: silence while something is unacknowledged: ask by a reliability probe
    BACKOFF = 2  # QP: the peer lacked a resource or the window shrank: pause before sending again
    EV_PROBE = 3  # QP: probe ASSUMED_BAD EVs, expire unanswered probes
    SACK_DELAY = 4  # QP: a SACK held back by sack_every must not wait for ever
    REVERSE_PROBE = 5  # route: look for a good reverse EV while the peer sends and we do not
    PORT_STATUS = 6  # peer: repeat a port status update until it is answered
    NODE_PROBE = 7  # endpoint: an EV probe that a controller asked for was not answered
    BALANCE = 8  # QPCC: a plane without room has kept the others waiting long enough
    OUTAGE = 9  # QP: no plane to send on, for as long as a silent network would be borne
    CLOSED = 10  # QP: its user is gone: tell the peer once more, and in the end forget it
    PAIR = 11  # QP of RoCE: its acknowledgement is late, its rate is due to rise, or its pace lets it send again
    RESUME = 12  # port of RoCE: the pause that the switch asked for is over


@mypyc_attr(allow_interpreted_subclasses=True)
class Timed:
    """An owner of timers: its method is called when one of them is due.

    This is a class and not a protocol: `on_timer` is called directly where both sides are compiled.
    """

    __slots__ = ()

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """Do what the timer of this kind was armed for; it is no longer pending. `now` is in ns."""
        raise NotImplementedError


class TimerQueue:
    """At most one pending deadline per (kind, owner); a heap with lazy deletion, swept when most of it is dead.

    The heap holds serial numbers only, so that a cancelled timer does not keep its owner alive until its deadline.
    """

    __slots__ = ("_armed", "_first", "_heap", "_known", "_live", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []  # (deadline, serial)
        self._live: dict[int, tuple[TimerKind, Timed]] = {}  # by serial
        self._armed: dict[tuple[TimerKind, Timed], tuple[int, int]] = {}  # (deadline, serial)
        self._serial = 0
        # The earliest deadline, while it is known: it is asked for far more often than a timer changes.
        self._first: int | None = None
        self._known = True

    def arm(self, kind: TimerKind, owner: Timed, deadline: int) -> None:
        """Set the deadline (ns), replacing one that was set before."""
        key = (kind, owner)
        live = self._live
        self._known = False
        before = self._armed.get(key)
        if before is not None:
            del live[before[1]]
        self._serial += 1
        entry = (deadline, self._serial)
        self._armed[key] = entry
        live[self._serial] = key
        heap = self._heap
        heapq.heappush(heap, entry)
        if len(heap) > _SWEEP_FACTOR * len(live) + _SWEEP_FLOOR:
            self._heap = [entry for entry in heap if entry[1] in live]
            heapq.heapify(self._heap)

    def arm_by(self, kind: TimerKind, owner: Timed, deadline: int) -> None:
        """Make sure that the timer fires at `deadline` (ns) or before."""
        armed = self._armed.get((kind, owner))
        if armed is None or armed[0] > deadline:
            self.arm(kind, owner, deadline)

    def is_armed(self, kind: TimerKind, owner: Timed) -> bool:
        """Return whether the timer is pending."""
        return (kind, owner) in self._armed

    def cancel(self, kind: TimerKind, owner: Timed) -> None:
        """Forget the timer if it is pending."""
        armed = self._armed.pop((kind, owner), None)
        if armed is not None:
            self._known = False
            del self._live[armed[1]]

    def cancel_owner(self, owner: Timed) -> None:
        """Forget every timer of one owner."""
        for kind in TimerKind:
            self.cancel(kind, owner)

    def next_deadline(self) -> int | None:
        """Return the earliest pending deadline, or None."""
        if not self._known:
            heap, live = self._heap, self._live
            while heap and heap[0][1] not in live:
                heapq.heappop(heap)
            self._first = heap[0][0] if heap else None
            self._known = True
        return self._first

    def pop_due(self, now: int) -> tuple[TimerKind, Timed] | None:
        """Remove and return the earliest timer that is due at `now`, or None."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        self._known = False
        _, serial = heapq.heappop(self._heap)
        key = self._live.pop(serial)
        del self._armed[key]
        return key
