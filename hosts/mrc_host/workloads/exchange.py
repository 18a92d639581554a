"""All-to-all: every rank has a block for every other; each block verified where it lands."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError, immediate


@dataclass(frozen=True)
class AllToAllParameters(Parameters):
    """Parameters of `AllToAll`."""

    block_bytes: int = 1 << 16


class AllToAll(Workload[AllToAllParameters]):
    """Parameters: `block_bytes`, from each rank to each other; `iterations`.

    A rank that is one iteration ahead writes to slots of the other parity; it cannot be two ahead, because for that it
    needs the blocks of all.
    """

    name = "all_to_all"
    title = "All-to-all: every rank has a block for every other; each block verified where it lands"
    parameters = AllToAllParameters

    def __init__(self, rank: int, size: int, params: AllToAllParameters, channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        self.block_bytes = params.block_bytes
        self.ready: set[tuple[int, int]] = set()

    @classmethod
    def memory_bytes(cls, size: int, params: AllToAllParameters) -> int:
        block = params.block_bytes
        if size < 2:
            raise WorkloadError(f"workload {cls.name} needs at least 2 ranks, not {size}")
        if block <= 0:
            raise WorkloadError(f"workload {cls.name}: block_bytes must be positive, not {block}")
        return 3 * size * block

    @classmethod
    def peers(cls, rank: int, size: int, params: AllToAllParameters) -> set[int]:
        return set(range(size)) - {rank}

    def _seed(self, source: int, destination: int) -> int:
        return (self.progress.iterations * self.size + source) * self.size + destination + 1

    def _slot(self, source: int) -> int:
        return (self.size * (1 + (self.progress.iterations & 1)) + source) * self.block_bytes

    def begin(self, now: int) -> None:
        # Starting behind oneself spreads the load: no two ranks write to the same one first.
        for distance in range(1, self.size):
            peer = (self.rank + distance) % self.size
            own = peer * self.block_bytes
            self.write_pattern(own, self.block_bytes, self._seed(self.rank, peer))
            self.put(
                peer,
                own,
                self._slot(self.rank),
                self.block_bytes,
                tag=peer,
                imm=immediate(self.progress.iterations, self.rank),
            )
        self.advance(now)

    def arrived(self, peer: int, imm: int, now: int) -> None:
        self.ready.add((peer, imm))
        if self.running:
            self.advance(now)

    def _wanted(self) -> set[tuple[int, int]]:
        """Return (peer, immediate) of every put that must arrive before the iteration can end."""
        iteration = self.progress.iterations
        return {(peer, immediate(iteration, peer)) for peer in range(self.size) if peer != self.rank}

    def awaits(self) -> set[int]:
        return {peer for peer, _ in self._wanted() - self.ready} if self.running else set()

    def advance(self, now: int) -> None:
        wanted = self._wanted()
        if self.outstanding or not wanted <= self.ready:
            return
        self.ready -= wanted
        for peer, _imm in wanted:
            self.check_pattern(self._slot(peer), self.block_bytes, self._seed(peer, self.rank))
        self.end_iteration(now)
