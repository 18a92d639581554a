"""Balances of a run's books, as its result keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Balance:
    """An identity of a run: how many entries it has, how far apart their bounds are in all, and what is wrong."""

    identity: str
    entries: int
    slack: int
    unbalanced: Sequence[str] = ()


@dataclass(frozen=True)
class Books:
    """The balances of a run, and why some entries were not judged."""

    balances: Sequence[Balance] = ()
    notes: Sequence[str] = ()

    @property
    def balanced(self) -> bool:
        """Return whether no identity is violated."""
        return not any(each.unbalanced for each in self.balances)
