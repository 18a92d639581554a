"""Finds the rank that blocks an operation.

The rank that an operation waits for need not be the cause: in a ring it may itself wait for another one. So a rank
whose operation is late asks each rank along the chain which rank it waits for (`ControlWord.WHOM` and
`ControlWord.WAITS`), until one waits for no other rank, or does not answer. Answers come from the group's own thread,
also while the program computes. A stopped program does not answer, though its host acknowledges what is written to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mrc_torch.errors import CollectiveError, RankSilentError
from mrc_torch.work import Work

#: Seconds in which a program answers, also on a busy machine.
ANSWER_S: Final = 5.0


class PeerQuery:
    """What a rank has learned about an operation that is late.

    Args:
        work: of the operation.
        rank: this one's number.
        first: the rank that the operation waits for here.
        ask: sends the question to a rank.
        now: seconds on the group's clock.
    """

    def __init__(self, work: Work, rank: int, first: int, ask: Callable[[int], None], now: float) -> None:
        self.work = work
        self._rank = rank
        self._chain = [first]
        self._ask = ask
        self._asked = now
        self._idle = False
        self._circle = False
        ask(first)

    def answered(self, rank: int, awaited: int, now: float) -> None:
        """Take note that a rank waits for another one (or, with its own number, for none)."""
        if rank != self._chain[-1] or self._idle or self._circle:
            return
        if awaited == rank:
            self._idle = True
        elif awaited == self._rank or awaited in self._chain:
            self._circle = True
        else:
            self._chain.append(awaited)
            self._asked = now
            self._ask(awaited)

    def verdict(self, late: str, host: Callable[[int], str], now: float) -> CollectiveError | None:
        """Return the error that names the cause, or None while an answer may still come.

        Args:
            late: how the error's text begins.
            host: names a rank's host.
            now: seconds on the group's clock.
        """
        last = self._chain[-1]
        if self._circle:
            ranks = ", ".join(map(str, sorted({self._rank, *self._chain})))
            return CollectiveError(
                f"{late}: ranks {ranks} wait for each other; they call different operations, or the network is too "
                "slow for this timeout"
            )
        if not self._idle and now - self._asked < ANSWER_S:
            return None
        why = (
            "lives and does not do its part"
            if self._idle
            else "does not answer, and its host does: its program is stopped, or has no CPU time"
        )
        way = "".join(f", which waits for rank {rank}" for rank in self._chain[1:])
        through = f" (this rank waits for rank {self._chain[0]}{way})" if way else ""
        return RankSilentError(last, f"{late}: rank {last} (host {host(last)}) {why}{through}")
