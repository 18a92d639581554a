"""`mrclab perf` by torch.distributed: the same sizes and columns, measured by a rank in each host."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from mrc_torch.training.job import START_S, TURN_S
from mrc_torch.training.ranks import RankEvent, Ranks, need, shared_folder
from mrclab.lab.session.real import RealSession
from mrclab.runs.perf import COLLECTIVES, FLOAT_BYTES, Row

#: The command line finds these by the entry point `mrclab.perf`.
__all__ = ["measure", "need"]

#: Of one collective operation, and of each of its bytes: labs are slow, and share a machine.
PATIENCE_S = 60.0
SLOWEST_BPS = 8e5
#: Seconds between the reports of a rank that it goes on.
WORD_S = 5.0


def measure(
    session: RealSession, name: str, todo: Sequence[int], iterations: int, names: Sequence[str], backend: str
) -> Iterator[Row]:
    """Yield rows of all sizes; stops behind one that failed. `backend` is one of `ranks.BACKENDS`."""
    ranks = len(names)
    divisor = FLOAT_BYTES * (ranks if COLLECTIVES[name].divided else 1)
    counts = {size: size // divisor for size in todo}
    patience = PATIENCE_S + max(todo) * 8 / SLOWEST_BPS
    settings = {
        "job": "perf", "collective": name, "sizes": list(counts.items()), "iterations": iterations,
        "timeout_s": patience, "word_s": WORD_S,
    }  # fmt: skip
    with shared_folder(session.state) as folder:
        group = Ranks(session, names, backend, folder / "store", settings)
        try:
            yield from _rows(group, counts, patience)
        finally:
            group.end()


def _rows(group: Ranks, counts: dict[int, int], patience: float) -> Iterator[Row]:
    """Yield a row when all ranks have reported theirs: the slowest rank's time, and all wrong elements.

    `patience`: seconds of an operation.
    """
    ranks, left = len(group.names), list(counts)
    heard: dict[RankEvent, int] = {}
    told: dict[int, list[tuple[float, int]]] = {}
    deadline = time.monotonic() + START_S
    while left:
        failure = "" if time.monotonic() < deadline else "no word of any rank any more"
        for rank, said in group.events(TURN_S):
            word = said.event
            deadline = time.monotonic() + max(START_S if word is RankEvent.READY else 0.0, 2 * patience)
            if word in (RankEvent.ERROR, RankEvent.GONE):
                failure = failure or f"rank {rank} ({group.names[rank]}): {said.text}"
            elif word is RankEvent.SIZE:
                told.setdefault(said.size, []).append((said.seconds, said.wrong))
            else:
                heard[word] = heard.get(word, 0) + 1
                if word in (RankEvent.READY, RankEvent.CONNECTED) and heard[word] == ranks:
                    group.tell_all()
        while left and len(told.get(left[0], ())) == ranks:
            size = left.pop(0)
            found = told[size]
            yield Row(size, counts[size], max(each[0] for each in found), sum(each[1] for each in found))
        if failure and left:
            yield Row(left[0], counts[left[0]], math.inf, 0, failure)
            return
