"""The choice of an EV for each packet: recycled entropies (REPS, arXiv 2407.21625), without its freezing."""

from __future__ import annotations

import random
from collections import deque

from mrc_host.policy import EvInput, EvSet, EvUniverse


class Paths(EvSet):
    """Use EVs again whose packets arrived without a mark, the oldest first."""

    def __init__(self, universe: EvUniverse, rng: random.Random, observer: object) -> None:
        super().__init__(universe, rng, observer)
        self.recycled: list[deque[int]] = [deque(maxlen=8) for _ in universe.by_plane]

    def answered(self, ev: int, mark: int, now: int) -> None:
        """Learn that a packet with this EV arrived; `mark` is 0 if no switch marked it."""
        if not mark:
            self.recycled[self.universe.planes[ev]].append(ev)

    def choose(self, plane: int, avoid: int = -1) -> int:
        """Return the oldest recycled EV, or one of the active set."""
        while self.recycled[plane]:
            ev = self.recycled[plane].popleft()
            if ev in self.order[plane] and ev != avoid:
                return ev
        return super().choose(plane, avoid)

    def apply(self, ev: int, item: EvInput) -> bool:
        """Ignore marks and trims here; they only keep an EV out of the queue."""
        if item in (EvInput.SKIP_ONCE, EvInput.TRIMMED):
            return False
        return super().apply(ev, item)
