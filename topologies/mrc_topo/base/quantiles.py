"""Quantiles of a number of values, by nearest rank: those where at least one value lies beyond.

`n` values have the quantile `q` if `n` is at least 1 / (1 - q): P90 from 10, P99 from 100, P99.9 from 1000. Of fewer,
nearest rank would give the maximum under another name. The median is of any number of values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

Value = TypeVar("Value", int, float)

#: What stands in a table for a quantile that its values do not have.
TOO_FEW = "-"


def supported(count: int, share: float) -> bool:
    """Return whether this many values have the quantile `share`."""
    # A share such as 0.9 is not exact, and 10 values have it.
    return count > 0 and (share <= 0.5 or count * (1 - share) >= 1 - 1e-9)


def quantile(values: Sequence[Value], share: float) -> Value | None:
    """Return the smallest value that this share of all values do not exceed (nearest rank); None of too few."""
    return nearest_rank(values, share) if supported(len(values), share) else None


def nearest_rank(values: Sequence[Value], share: float) -> Value:
    """Return the quantile by nearest rank of at least one value, also of fewer than have one."""
    return sorted(values)[rank(len(values), share) - 1]


def rank(count: int, share: float) -> int:
    """Return which value in order of size, from 1, is the quantile by nearest rank."""
    return max(math.ceil(share * count), 1)


def shown(value: float | None, scale: float, digits: int) -> str:
    """Return a quantile for a table, times `scale`."""
    return TOO_FEW if value is None else f"{value * scale:.{digits}f}"
