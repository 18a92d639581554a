"""Point-to-point streams of verified messages: permutation, incast with a victim, send/recv, write_bw.

A sender may have `window` messages on the way; the receiver verifies each and returns a zero-length immediate as credit
for its slot. One iteration is one message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mrc_host.workloads.base import Channel, Workload, WorkloadError, immediate, pattern

CREDIT = 1 << 15


class Streams(Workload):
    """Common part; `pairs` says which rank sends to which.

    Parameters: `message_bytes`; `window`, messages of a stream under way at once; `iterations`, messages per stream.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"message_bytes": 1 << 18, "window": 2}

    def __init__(self, rank: int, size: int, params: Mapping[str, Any], channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        self.bytes = int(self.params["message_bytes"])
        self.window = int(self.params["window"])
        pairs = self.pairs(size, self.params)
        self.out = {dst: 0 for src, dst in pairs if src == rank}
        self.credited = dict.fromkeys(self.out, 0)
        self.incoming = {src: 0 for src, dst in pairs if dst == rank}
        # Every rank numbers the streams alike, so both ends know a stream's slots.
        self.order = {pair: index for index, pair in enumerate(sorted(pairs))}

    @classmethod
    def pairs(cls, size: int, params: Mapping[str, Any]) -> list[tuple[int, int]]:
        """(source, destination) of every stream."""
        raise NotImplementedError

    @classmethod
    def memory_bytes(cls, size: int, params: Mapping[str, Any]) -> int:
        full = cls.complete(params)
        for key in ("message_bytes", "window"):
            if int(full[key]) < 1:
                raise WorkloadError(f"workload {cls.name}: {key} must be at least 1, not {full[key]}")
        pairs = cls.pairs(size, full)
        for src, dst in pairs:
            if src == dst or not (0 <= src < size and 0 <= dst < size):
                raise WorkloadError(
                    f"workload {cls.name}: no stream can go from rank {src} to rank {dst} among {size} ranks"
                )
        return 2 * len(pairs) * int(full["window"]) * int(full["message_bytes"])

    @classmethod
    def peers(cls, rank: int, size: int, params: Mapping[str, Any]) -> set[int]:
        pairs = cls.pairs(size, cls.complete(params))
        return {dst for src, dst in pairs if src == rank} | {src for src, dst in pairs if dst == rank}

    def _slot(self, source: int, destination: int, number: int, *, receiving: bool) -> int:
        stream = self.order[source, destination]
        half = len(self.order) * self.window if receiving else 0
        return (half + stream * self.window + number % self.window) * self.bytes

    def _seed(self, source: int, destination: int, number: int) -> int:
        return (self.order[source, destination] << 16) + number + 1

    def begin(self, now: int) -> None:
        for peer in self.out:
            for _ in range(self.window):
                self._send(peer)
        self.advance(now)

    def _send(self, peer: int) -> None:
        number = self.out[peer]
        if number >= self.limit or number - self.credited[peer] >= self.window:
            return
        own = self._slot(self.rank, peer, number, receiving=False)
        self.memory[own : own + self.bytes] = pattern(self._seed(self.rank, peer, number), self.bytes)
        remote = self._slot(self.rank, peer, number, receiving=True)
        self.out[peer] = number + 1
        self.put(peer, own, remote, self.bytes, tag=number & 0xFFFF, imm=immediate(number, 0))

    def arrived(self, peer: int, imm: int, now: int) -> None:
        if imm & CREDIT:
            self.credited[peer] += 1
            if self.running:
                self._send(peer)
        else:
            number = self.incoming[peer]
            self.incoming[peer] = number + 1
            slot = self._slot(peer, self.rank, number, receiving=True)
            want = pattern(self._seed(peer, self.rank, number), self.bytes)
            self.check(self.memory[slot : slot + self.bytes], want)
            self.put(peer, 0, 0, 0, tag=CREDIT, imm=immediate(number, CREDIT))
        if self.running:
            self.advance(now)

    def advance(self, now: int) -> None:
        flows = [*self.credited.values(), *self.incoming.values()]
        reached = min(flows, default=self.limit)
        while self.progress.iterations < min(reached, self.limit):
            self.progress.iterations += 1
            self.progress.iteration_ns.append(now)
        if reached >= self.limit and not self.outstanding:
            self.progress.iterations = self.limit
            self.finish(now)


class Permutation(Streams):
    """Rank r sends to rank r + `shift`."""

    name = "permutation"
    defaults: ClassVar[Mapping[str, Any]] = {**Streams.defaults, "shift": 1}

    @classmethod
    def pairs(cls, size: int, params: Mapping[str, Any]) -> list[tuple[int, int]]:
        return [(rank, (rank + int(params["shift"])) % size) for rank in range(size)]


class Incast(Streams):
    """Every rank of `sources` sends to `target`; the victim flow goes from `victim[0]` to `victim[1]`.

    Without `sources` all ranks but the target and the victim's ends send; without `victim` there is none.
    """

    name = "incast"
    defaults: ClassVar[Mapping[str, Any]] = {**Streams.defaults, "target": 0, "sources": None, "victim": None}

    @classmethod
    def pairs(cls, size: int, params: Mapping[str, Any]) -> list[tuple[int, int]]:
        target, victim = int(params["target"]), params["victim"]
        if victim is not None and len(victim) != 2:
            raise WorkloadError(f"workload {cls.name}: victim is a pair [source, destination], not {victim!r}")
        busy = {target, *(victim or ())}
        sources = params["sources"]
        chosen = [rank for rank in range(size) if rank not in busy] if sources is None else list(sources)
        return [(int(rank), target) for rank in chosen] + ([(victim[0], victim[1])] if victim else [])


class SendRecv(Streams):
    """Neighbours in pairs, both ways: 0 with 1, 2 with 3, and so on."""

    name = "send_recv"

    @classmethod
    def pairs(cls, size: int, params: Mapping[str, Any]) -> list[tuple[int, int]]:
        return [(rank, rank ^ 1) for rank in range(size) if rank ^ 1 < size]


class WriteBw(Streams):
    """As perftest's ib_write_bw: `source` writes to `target` as fast as it can."""

    name = "write_bw"
    defaults: ClassVar[Mapping[str, Any]] = {**Streams.defaults, "window": 4, "source": 0, "target": 1}

    @classmethod
    def pairs(cls, size: int, params: Mapping[str, Any]) -> list[tuple[int, int]]:
        return [(int(params["source"]), int(params["target"]))]
