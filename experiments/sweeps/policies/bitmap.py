"""Bitmap spraying: each EV has a penalty, and is passed over once for each point of it.

Source: uet-htsim, `UecMpBitmap` (github.com/ultraethernet/uet-htsim, htsim/sim/uec_mp.cpp): a mark costs 1, a trim 4,
and no EV has more than 15. MRC's own rule is this with at most one point. Losses leave to MRC's states.
"""

from __future__ import annotations

import random

from mrc_host.policy import EvInput, EvSet, EvUniverse

PENALTY = {EvInput.SKIP_ONCE: 1, EvInput.TRIMMED: 4}
MOST = 15


class Bitmap(EvSet):
    """Pass over an EV as often as its penalty says."""

    def __init__(self, universe: EvUniverse, rng: random.Random, observer: object) -> None:
        super().__init__(universe, rng, observer)  # type: ignore[arg-type]
        self.penalty = [0] * len(universe.values)

    def choose(self, plane: int, avoid: int = -1) -> int:
        """Return the next EV without a penalty; of those passed over only the first loses a point per packet."""
        order = self.order[plane]
        passed = False
        for _ in range(len(order)):
            self.cursor[plane] = (self.cursor[plane] + 1) % len(order)
            ev = order[self.cursor[plane]]
            if not self.penalty[ev]:
                if ev != avoid:
                    return ev
            elif not passed:
                self.penalty[ev] -= 1
                passed = True
        return next((ev for ev in order if ev != avoid), -1)

    def apply(self, ev: int, item: EvInput) -> bool:
        """Add to the penalty for a mark or a trim; leave all else to the states."""
        if item in PENALTY:
            self.penalty[ev] = min(self.penalty[ev] + PENALTY[item], MOST)
            return False
        return super().apply(ev, item)
