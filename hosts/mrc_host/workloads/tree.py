"""Tree all-reduce: partial sums go up a binary tree, the result comes down; every result verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError, fill, immediate, period, summed

UP_LEFT, UP_RIGHT, DOWN = 0, 1, 2
SLOTS = 3


@dataclass(frozen=True)
class TreeParameters(Parameters):
    """Parameters of `TreeAllReduce`."""

    size_bytes: int = 1 << 20


class TreeAllReduce(Workload[TreeParameters]):
    """Rank 0 is the root; rank r's children are 2r+1 and 2r+2.

    Parameters: `size_bytes`, of the vector at each rank, a multiple of 4; `iterations`.
    """

    name = "tree_all_reduce"
    title = "Rank 0 is the root; rank r's children are 2r+1 and 2r+2"
    parameters = TreeParameters

    def __init__(self, rank: int, size: int, params: TreeParameters, channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        self.total_bytes = params.size_bytes
        self.parent = (rank - 1) // 2
        self.children = [child for child in (2 * rank + 1, 2 * rank + 2) if child < size]
        self.vector = self.memory[: self.total_bytes].view(np.float32)
        self.ready: set[int] = set()
        self.summed = 0
        self.sent_up = False
        self.complete_here = False

    @classmethod
    def memory_bytes(cls, size: int, params: TreeParameters) -> int:
        total = params.size_bytes
        if size < 2:
            raise WorkloadError(f"workload {cls.name} needs at least 2 ranks, not {size}")
        if total <= 0 or total % 4:
            raise WorkloadError(f"workload {cls.name}: size_bytes must be a positive multiple of 4, not {total}")
        return total * (1 + 2 * SLOTS)

    @classmethod
    def peers(cls, rank: int, size: int, params: TreeParameters) -> set[int]:
        found = {child for child in (2 * rank + 1, 2 * rank + 2) if child < size}
        return found | ({(rank - 1) // 2} if rank else set())

    def begin(self, now: int) -> None:
        if self.has_data:
            fill(self.vector, period(self.rank, self.progress.iterations))
        self.summed = 0
        self.sent_up = self.complete_here = False
        self.advance(now)

    def arrived(self, peer: int, imm: int, now: int) -> None:
        self.ready.add(imm)
        if self.running:
            self.advance(now)

    def _slot(self, which: int) -> int:
        return self.total_bytes * (1 + (self.progress.iterations & 1) * SLOTS + which)

    def _take(self, which: int) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        key = immediate(self.progress.iterations, which)
        if key not in self.ready:
            return None
        self.ready.remove(key)
        slot = self._slot(which)
        return self.memory[slot : slot + self.total_bytes].view(np.float32)

    def _write(self, peer: int, which: int) -> None:
        imm = immediate(self.progress.iterations, which)
        self.put(peer, 0, self._slot(which), self.total_bytes, tag=which, imm=imm)

    def advance(self, now: int) -> None:
        for which in (UP_LEFT, UP_RIGHT):
            part = self._take(which)
            if part is not None:
                if self.has_data:
                    self.vector += part
                self.summed += 1
        if self.summed == len(self.children) and not self.sent_up:
            self.sent_up = True
            if self.rank:
                self._write(self.parent, UP_LEFT if self.rank % 2 else UP_RIGHT)
            else:
                self._come_down()
        # The result overwrites the partial sum, so that must have been acknowledged.
        if self.rank and self.sent_up and not self.complete_here and not self.outstanding:
            result = self._take(DOWN)
            if result is not None:
                if self.has_data:
                    self.vector[:] = result
                self._come_down()
        if self.complete_here and not self.outstanding:
            if self.has_data:
                self._verify()
            self.end_iteration(now)

    def awaits(self) -> set[int]:
        if not self.running or self.complete_here:
            return set()
        return {self.parent} if self.sent_up else set(self.children)

    def _come_down(self) -> None:
        self.complete_here = True
        for child in self.children:
            self._write(child, DOWN)

    def _verify(self) -> None:
        self.check_repeating(self.vector, summed(self.size, self.progress.iterations))
