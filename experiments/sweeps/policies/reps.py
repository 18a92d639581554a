"""REPS: recycled entropies. EVs whose packets arrived without a mark are used again; without such, one is drawn.

Source: Bonato et al., "REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and Failure Mitigation"
(arXiv 2407.21625), as uet-htsim has it (`UecMpReps`): a buffer of eight EVs; each answer without a mark puts one in,
each packet takes the oldest out. After a loss (`freezing`) the buffer is gone through again and again for a while, and
nothing is drawn; then the buffer is emptied, and 16 packets take EVs at random.
"""

from __future__ import annotations

import random
from collections import deque

from mrc_host.policy import EvInput, EvSet, EvUniverse

BUFFER = 8
#: How long nothing is drawn after a loss, ns, as in uet-htsim.
FREEZE_NS = 10_000_000
#: Packets that explore after that.
EXPLORE = 16


class Reps(EvSet):
    """Recycle EVs; each plane has a buffer of its own, since MRC chooses the plane first."""

    def __init__(self, universe: EvUniverse, rng: random.Random, observer: object) -> None:
        super().__init__(universe, rng, observer)  # type: ignore[arg-type]
        planes = len(universe.by_plane)
        self.fresh: list[deque[int]] = [deque(maxlen=BUFFER) for _ in range(planes)]
        self.known: list[deque[int]] = [deque(maxlen=BUFFER) for _ in range(planes)]
        self.frozen_until = 0
        self.exploring = 0

    def answered(self, ev: int, mark: int, now: int) -> None:
        """Keep the EV of a packet that arrived without a mark."""
        if not mark:
            plane = self.universe.planes[ev]
            self.fresh[plane].append(ev)
            if ev not in self.known[plane]:
                self.known[plane].append(ev)

    def choose(self, plane: int, avoid: int = -1) -> int:
        """Return the oldest EV of the buffer, or one drawn from the active set."""
        order = self.order[plane]
        if self.frozen_until and self.now_ns >= self.frozen_until:
            self._thaw()
        buffer = self.fresh[plane]
        if self.exploring:
            self.exploring -= 1
            buffer = deque()
        elif self.frozen_until:
            buffer = self.known[plane]
            buffer.rotate(-1)
            again = next((ev for ev in buffer if ev in order and ev != avoid), -1)
            if again >= 0:
                return again
        while buffer:
            ev = buffer.popleft()
            if ev in order and ev != avoid:
                return ev
        others = [ev for ev in order if ev != avoid]
        return self._rng.choice(others) if others else -1

    def apply(self, ev: int, item: EvInput) -> bool:
        """Freeze after a loss; marks and trims only keep an EV out of the buffer."""
        if item in (EvInput.SKIP_ONCE, EvInput.TRIMMED):
            return False
        if item is EvInput.LOSS and not self.frozen_until and not self.exploring:
            self.frozen_until = self.now_ns + FREEZE_NS
        return super().apply(ev, item)

    def _thaw(self) -> None:
        """Empty the buffers and explore, as what they know may be out of date."""
        self.frozen_until, self.exploring = 0, EXPLORE
        for buffer in (*self.fresh, *self.known):
            buffer.clear()
