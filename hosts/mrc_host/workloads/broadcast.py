"""Broadcast: the root's bytes go from rank to rank in pieces, so that all links are at work; verified everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError, immediate

MAX_PIECES = 1 << 15
END = MAX_PIECES


@dataclass(frozen=True)
class BroadcastParameters(Parameters):
    """Parameters of `Broadcast`."""

    size_bytes: int = 1 << 20
    root: int = 0
    piece_bytes: int = 1 << 16


class Broadcast(Workload[BroadcastParameters]):
    """Parameters: `size_bytes`; `root`; `piece_bytes`, which a rank forwards at once; `iterations`.

    The last rank of the chain notifies the root when it has everything: no rank can be two iterations ahead of it.
    """

    name = "broadcast"
    title = (
        "Broadcast: the root's bytes go from rank to rank in pieces, so that all links are at work; verified everywhere"
    )
    parameters = BroadcastParameters

    def __init__(self, rank: int, size: int, params: BroadcastParameters, channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        self.total_bytes = params.size_bytes
        self.piece_bytes = params.piece_bytes
        self.pieces = -(-self.total_bytes // self.piece_bytes)
        self.place = (rank - params.root) % size
        self.next_rank = (rank + 1) % size
        self.previous = (rank - 1) % size
        self.ready: set[int] = set()
        self.passed = 0
        self.told = False

    @classmethod
    def memory_bytes(cls, size: int, params: BroadcastParameters) -> int:
        if size < 2:
            raise WorkloadError(f"workload {cls.name} needs at least 2 ranks, not {size}")
        total = cls.whole_number("size_bytes", params.size_bytes, 1)
        piece = cls.whole_number("piece_bytes", params.piece_bytes, 1)
        cls.whole_number("root", params.root, 0, size - 1)
        if -(-total // piece) > MAX_PIECES:
            raise WorkloadError(f"workload {cls.name}: more than {MAX_PIECES} pieces; use larger piece_bytes")
        return 2 * total

    @classmethod
    def peers(cls, rank: int, size: int, params: BroadcastParameters) -> set[int]:
        return {(rank + 1) % size}

    def _half(self) -> int:
        return (self.progress.iterations & 1) * self.total_bytes

    def begin(self, now: int) -> None:
        self.passed = 0
        self.told = False
        if not self.place:
            self.write_pattern(self._half(), self.total_bytes, self.progress.iterations + 1)
            while self.passed < self.pieces:
                self._pass_on()
        self.advance(now)

    def _pass_on(self) -> None:
        first = self.passed * self.piece_bytes
        length = min(self.piece_bytes, self.total_bytes - first)
        at = self._half() + first
        if self.place < self.size - 1:
            imm = immediate(self.progress.iterations, self.passed)
            self.put(self.next_rank, at, at, length, tag=self.passed, imm=imm)
        self.passed += 1

    def arrived(self, peer: int, imm: int, now: int) -> None:
        self.ready.add(imm)
        if self.running:
            self.advance(now)

    def advance(self, now: int) -> None:
        iteration = self.progress.iterations
        while self.passed < self.pieces and (key := immediate(iteration, self.passed)) in self.ready:
            self.ready.remove(key)
            self._pass_on()
        if self.passed < self.pieces:
            return
        if self.place == self.size - 1 and not self.told:
            self.told = True
            self.put(self.next_rank, 0, 0, 0, tag=END, imm=immediate(iteration, END))
        if self.outstanding:
            return
        if not self.place:
            if immediate(iteration, END) not in self.ready:
                return
            self.ready.remove(immediate(iteration, END))
        else:
            self.check_pattern(self._half(), self.total_bytes, iteration + 1)
        self.end_iteration(now)

    def awaits(self) -> set[int]:
        if not self.running or (self.place and self.passed == self.pieces):
            return set()
        return {self.previous}
