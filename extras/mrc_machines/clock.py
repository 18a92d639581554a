"""The monotonic clock of another machine, measured by questions and answers, as NTP does it.

An answer bears the other machine's time; it was read at some moment between question and answer. So the clock is that
much ahead of ours as in the middle, and not further off than half the time that the exchange took. The quickest of the
last exchanges counts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

#: The number of exchanges that are kept, about a minute's.
KEPT = 60


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The offset of another clock: it is `ahead_ns` ahead of ours, within `uncertainty_ns` in either direction."""

    ahead_ns: int
    uncertainty_ns: int
    rtt_ns: int

    @classmethod
    def of(cls, sent_ns: int, theirs_ns: int, received_ns: int) -> ClockOffset:
        """Return the offset from one exchange; `theirs_ns` is the other machine's time, the others are ours."""
        took = received_ns - sent_ns
        return cls(theirs_ns - sent_ns - took // 2, took - took // 2, took)


class Clock:
    """The clock of one machine."""

    def __init__(self) -> None:
        self._readings: deque[ClockOffset] = deque(maxlen=KEPT)
        #: The number of all readings so far.
        self.count = 0

    def add(self, reading: ClockOffset) -> None:
        """Add the reading of an exchange that has just ended."""
        self._readings.append(reading)
        self.count += 1

    @property
    def best(self) -> ClockOffset | None:
        """The reading with the shortest exchange of those that are kept; None if there is none."""
        # Another thread adds readings meanwhile, so this copies them first.
        return min(list(self._readings), key=lambda each: each.rtt_ns, default=None)
