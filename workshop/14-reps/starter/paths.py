"""The choice of an EV for each packet."""

from __future__ import annotations

from mrc_host.policy import EvSet


class Paths(EvSet):
    """MRC's own rule: go through the active set, and pass over a marked EV once."""

    def answered(self, ev: int, mark: int, now: int) -> None:
        """Learn that a packet with this EV arrived; `mark` is 0 if no switch marked it."""
