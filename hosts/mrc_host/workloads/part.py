"""A workload as a part of a larger one: it sees ranks of a group, and memory and immediates of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError, immediate

#: Of an immediate's 32 bits: which part, its iteration modulo 2^10, and 16 bits that are the part's own.
PART_SHIFT, ITERATION_SHIFT = 26, 16
MAX_PARTS = 1 << (32 - PART_SHIFT)
ITERATIONS = 1 << (PART_SHIFT - ITERATION_SHIFT)
_OWN_BITS = (1 << ITERATION_SHIFT) - 1


class WorkloadPart(Channel):
    """One part: a workload of class `kind` among `ranks` of the whole, in `memory` from `base` on (at every rank).

    Args:
        put: `Workload.put` of the whole.
        number: tells the parts of a whole apart, below `MAX_PARTS`.
        ended: called when an iteration of the part has ended.

    Raises:
        WorkloadError: a number that no immediate can carry.
    """

    def __init__(
        self,
        put: Callable[..., None],
        number: int,
        kind: type[Workload[Any]],
        params: Parameters,
        ranks: Sequence[int],
        rank: int,
        memory: memoryview,
        base: int,
        ended: Callable[[int], None],
    ) -> None:
        if not 0 <= number < MAX_PARTS:
            raise WorkloadError(f"a workload has {MAX_PARTS} parts at most, numbered from 0; there is no part {number}")
        self.number = number
        self.ranks = list(ranks)
        self._put = put
        self._base = base
        length = kind.memory_bytes(len(ranks), params)
        self.workload = kind(self.ranks.index(rank), len(ranks), params, self, memory[base : base + length])
        self.workload.after = ended

    def put(self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int, imm: int | None = None) -> None:
        """See `Channel`."""
        if imm is not None:
            imm = signed(self.number, imm >> ITERATION_SHIFT, imm & _OWN_BITS)
        first, there = self._base + offset, self._base + remote_offset
        self._put(self.ranks[peer], first, there, length, tag=tagged(self.number, tag), imm=imm)

    def wake(self, at_ns: int) -> None:
        """See `Channel`; a part has no time of its own."""
        raise NotImplementedError("a part of a workload asks the whole for alarms")

    def arrived(self, peer: int, imm: int, now: int) -> None:
        """Handle an immediate of this part; `peer` is its number in the whole workload.

        An immediate carries the low bits of its iteration, which is the one nearest to this rank's own.
        """
        own = self.workload.progress.iterations
        ahead = ((imm >> ITERATION_SHIFT) - own + ITERATIONS // 2) % ITERATIONS - ITERATIONS // 2
        self.workload.arrived(self.ranks.index(peer), immediate(own + ahead, imm & _OWN_BITS), now)

    def put_done(self, peer: int, tag: int, now: int) -> None:
        """See `Workload.put_done`."""
        self.workload.put_done(self.ranks.index(peer), tag >> 6, now)

    def awaits(self) -> set[int]:
        """See `Workload.awaits`."""
        return {self.ranks[each] for each in self.workload.awaits()}


def signed(number: int, iteration: int, own: int) -> int:
    """Return the immediate of a part."""
    return number << PART_SHIFT | iteration % ITERATIONS << ITERATION_SHIFT | own


def part_of(imm: int) -> int:
    """Return the part that an immediate belongs to."""
    return imm >> PART_SHIFT


def tagged(number: int, tag: int) -> int:
    """Return the tag of a part's put."""
    return tag << 6 | number


def tag_of(tag: int) -> int:
    """Return the part that a put belongs to, by its tag."""
    return tag & MAX_PARTS - 1
