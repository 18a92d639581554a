"""Errors in a group; each names the rank that it is about."""

from __future__ import annotations


class CollectiveError(RuntimeError):
    """An operation failed."""


class RankDeadError(CollectiveError):
    """A rank is gone: its program, its agent or its host. `rank` is its number in the group."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(text)
        self.rank = rank


class RankSilentError(CollectiveError):
    """A rank is alive, but has not done its part in the time that the group allows."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(text)
        self.rank = rank


class MismatchError(CollectiveError):
    """Ranks called different operations, or operations of different sizes."""


class ClosedError(CollectiveError):
    """The group is closed."""
