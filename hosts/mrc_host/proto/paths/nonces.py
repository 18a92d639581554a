"""Identifiers of 16 bits for probes: they cannot be predicted by a host that has not seen them, and none repeats soon.

A probe that was given up may be answered yet: long queues hold hundreds of them. Numbers drawn one by one would meet
one of those before long, and the late answer would be taken for that of another probe. So the numbers run through all
65536 in an order that is a secret of the endpoint: a Feistel network over a counter.
"""

from __future__ import annotations

import random
from typing import Final

_ROUNDS: Final = 4
COUNT: Final = 1 << 16


class Nonces:
    """Draws each of the 65536 numbers once before any comes again."""

    __slots__ = ("_boxes", "_count", "_rng")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._boxes: list[bytes] = []  # made by the first draw: most queue pairs never probe
        self._count = 0

    def draw(self) -> int:
        """Draw the next number."""
        if not self._boxes:
            self._boxes = [self._rng.randbytes(256) for _ in range(_ROUNDS)]
        left, right = self._count >> 8 & 0xFF, self._count & 0xFF
        self._count += 1
        for box in self._boxes:
            left, right = right, left ^ box[right]
        return left << 8 | right
