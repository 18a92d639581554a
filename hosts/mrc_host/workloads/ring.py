"""Ring collectives: all-reduce, reduce-scatter and all-gather of float32 vectors, every result verified.

In step s of the reduce-scatter half, rank r sends chunk (r - s) mod N to its successor, which adds it; in the
all-gather half the finished chunks go round. Slots for incoming chunks exist per step and per iteration parity: no rank
can be two iterations ahead of its successor, because the ring's data passes through all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError, fill, immediate, period, split, summed

FLOAT_BYTES = 4


@dataclass(frozen=True)
class RingParameters(Parameters):
    """Parameters of the collectives on a ring."""

    size_bytes: int = 1 << 20


class RingCollective(Workload[RingParameters]):
    """Common part; `halves` says which of reduce and gather a collective consists of.

    Parameters: `size_bytes`, of the vector at each rank, a multiple of 4; `iterations`. Chunks differ by one element
    where it does not go even, and may be empty.

    `salt` makes the data of a ring another than that of other rings.
    """

    parameters = RingParameters
    reduces: ClassVar[bool] = True
    gathers: ClassVar[bool] = True
    salt = 0

    def __init__(self, rank: int, size: int, params: RingParameters, channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        self.total_bytes = params.size_bytes
        self.chunks = split(self.total_bytes // FLOAT_BYTES, size)
        self.chunk_bytes = -(-self.total_bytes // FLOAT_BYTES // size) * FLOAT_BYTES
        self.steps = self.count_steps(size)
        self.next_rank = (rank + 1) % size
        self.vector = self.memory[: self.total_bytes].view(np.float32)
        self.step = 0
        self.ready: set[int] = set()

    @classmethod
    def count_steps(cls, size: int) -> int:
        """Return the steps of one iteration."""
        return (size - 1) * (int(cls.reduces) + int(cls.gathers))

    @classmethod
    def memory_bytes(cls, size: int, params: RingParameters) -> int:
        total = params.size_bytes
        if size < 2:
            raise WorkloadError(f"workload {cls.name} needs at least 2 ranks, not {size}")
        if total <= 0 or total % FLOAT_BYTES:
            raise WorkloadError(
                f"workload {cls.name}: size_bytes must be a positive multiple of {FLOAT_BYTES}, not {total}"
            )
        largest = -(-total // FLOAT_BYTES // size) * FLOAT_BYTES
        return total + 2 * cls.count_steps(size) * largest

    @classmethod
    def peers(cls, rank: int, size: int, params: RingParameters) -> set[int]:
        return {(rank + 1) % size}

    def begin(self, now: int) -> None:
        if self.has_data:
            self._prepare(self.progress.iterations + self.salt)
        self.step = 0
        self._send()
        self.advance(now)

    def _prepare(self, iteration: int) -> None:
        mine = period(self.rank, iteration)
        if self.reduces:
            fill(self.vector, mine)
        else:
            self.vector[:] = 0
            part = self._chunk(self.rank)
            fill(self.vector[part], mine, part.start)

    def _chunk(self, index: int) -> slice:
        return self.chunks[index % self.size]

    def _outgoing(self, step: int) -> int:
        """Return the chunk that this rank sends in a step."""
        if self.reduces and step < self.size - 1:
            return (self.rank - step) % self.size
        gathered = step - (self.size - 1) if self.reduces else step
        return (self.rank + int(self.reduces) - gathered) % self.size

    def _slot(self, step: int) -> int:
        """Return the byte offset, in the receiver's region, of the slot of a step of this iteration.

        A slot is as large as the largest chunk.
        """
        parity = self.progress.iterations & 1
        return self.total_bytes + (parity * self.steps + step) * self.chunk_bytes

    def _send(self) -> None:
        chunk = self._chunk(self._outgoing(self.step))
        self.put(
            self.next_rank,
            chunk.start * FLOAT_BYTES,
            self._slot(self.step),
            (chunk.stop - chunk.start) * FLOAT_BYTES,
            tag=self.step,
            imm=immediate(self.progress.iterations, self.step),
        )

    def arrived(self, peer: int, imm: int, now: int) -> None:
        self.ready.add(imm)
        if self.running:
            self.advance(now)

    def advance(self, now: int) -> None:
        iteration = self.progress.iterations
        while self.step < self.steps and (key := immediate(iteration, self.step)) in self.ready:
            self.ready.remove(key)
            if self.has_data:
                self._merge()
            self.step += 1
            if self.step < self.steps:
                self._send()
        # The next iteration overwrites the vector, which unacknowledged writes may still have to read.
        if self.step == self.steps and not self.outstanding:
            if self.has_data:
                self._verify(iteration + self.salt)
            self.end_iteration(now)

    def _merge(self) -> None:
        """Add the chunk that has arrived in this step to the vector, or put it there."""
        slot = self._slot(self.step)
        # The predecessor sent its chunk of this step, which is one before this rank's.
        into = self._chunk(self._outgoing(self.step) - 1)
        incoming = self.memory[slot : slot + (into.stop - into.start) * FLOAT_BYTES].view(np.float32)
        if self.reduces and self.step < self.size - 1:
            self.vector[into] += incoming
        else:
            self.vector[into] = incoming

    def awaits(self) -> set[int]:
        return {(self.rank - 1) % self.size} if self.running and self.step < self.steps else set()

    def waits_for(self) -> str:
        return super().waits_for() if self._between else f"step {self.step} of iteration {self.progress.iterations}"

    def _verify(self, iteration: int) -> None:
        mine = (self.rank + 1) % self.size
        sums = summed(self.size, iteration) if self.reduces else None
        for index in range(self.size) if self.gathers else [mine]:
            part = self._chunk(index)
            one = period(index, iteration) if sums is None else sums
            self.check_repeating(self.vector[part], one, part.start)


class RingAllReduce(RingCollective):
    """Reduce-scatter, then all-gather."""

    name = "ring_all_reduce"
    title = "Reduce-scatter, then all-gather"


class ReduceScatter(RingCollective):
    """Rank r ends with the sum of chunk r + 1."""

    name = "reduce_scatter"
    title = "Rank r ends with the sum of chunk r + 1"
    gathers = False


class AllGather(RingCollective):
    """Every rank ends with the chunks of all."""

    name = "all_gather"
    title = "Every rank ends with the chunks of all"
    reduces = False
