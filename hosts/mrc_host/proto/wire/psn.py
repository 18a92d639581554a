"""Serial numbers: 24-bit PSNs and 16-bit MSNs on the wire, unbounded integers inside (`mrc-protocol.md §4`).

The core counts PSNs without wrapping and converts at its edges, so that comparisons inside are plain ones.
"""

from __future__ import annotations

from typing import Final

PSN_BITS: Final = 24
PSN_MASK: Final = (1 << PSN_BITS) - 1
PSN_HALF: Final = 1 << (PSN_BITS - 1)
MPR_UNIT: Final = 128  # PSNs per unit of mpr


def extend(wire: int, near: int) -> int:
    """Return the unbounded PSN congruent to `wire` that is nearest to `near` (half-range 2^23)."""
    distance = (wire - near) & PSN_MASK
    if distance >= PSN_HALF:
        distance -= PSN_MASK + 1
    return near + distance


def trailing_ones(bits: int) -> int:
    """Return how many of the least significant bits are set without a gap."""
    return ((bits + 1) & ~bits).bit_length() - 1
