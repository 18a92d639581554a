"""A sprayer that takes the EV with the fewest recent marks; ties go to the one that has waited longest."""

from __future__ import annotations

from typing import Any

from mrc_host.policy import EvSet

#: How much of an EV's count is left after each answer without a mark.
FADING = 0.5


class LeastMarked(EvSet):
    """Count marks by EV, and choose the smallest count."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.marks = dict.fromkeys(range(len(self.universe.values)), 0.0)
        self.last_used = dict.fromkeys(self.marks, 0)
        self.turn = 0

    def answered(self, ev: int, mark: int, now: int) -> None:
        """Remember whether a packet on this EV was marked."""
        self.marks[ev] = self.marks[ev] + 1.0 if mark else self.marks[ev] * FADING

    def choose(self, plane: int, avoid: int = -1) -> int:
        """Return the index of the best EV of a plane, -1 if there is none."""
        usable = [ev for ev in self.order[plane] if ev != avoid]
        if not usable:
            return -1
        best = min(usable, key=lambda ev: (self.marks[ev], self.last_used[ev]))
        self.turn += 1
        self.last_used[best] = self.turn
        return best
