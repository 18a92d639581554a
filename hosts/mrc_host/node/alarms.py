"""Times at which workloads want to be called, as they have them for what they compute."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class TimedCalls:
    """Calls in the order of their times, and of being set where these are equal. `due`: the time of the first."""

    def __init__(self) -> None:
        self.due: int | None = None
        self._waiting: list[tuple[int, int, Callable[[int], None]]] = []
        self._numbers = itertools.count()

    def set(self, at_ns: int, call: Callable[[int], None]) -> None:
        """Schedule `call(now)` for `at_ns` or soon after."""
        heapq.heappush(self._waiting, (at_ns, next(self._numbers), call))
        self.due = self._waiting[0][0]

    def ring(self, now: int) -> None:
        """Make the calls that are due. One that raises is not made again; the others follow with the next `ring`."""
        while self._waiting and self._waiting[0][0] <= now:
            _, _, call = heapq.heappop(self._waiting)
            self.due = self._waiting[0][0] if self._waiting else None
            call(now)
