"""Point-to-point streams of verified messages: permutation, incast with a victim, send/recv, write_bw.

A sender may have `window` messages on the way; the receiver verifies each and returns a zero-length immediate as credit
for its slot. One iteration is one message. Streams are independent of each other: one that is asked to wind down ends
where its sender stands, with a zero-length immediate that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from mrc_host.answers import Measured
from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError, immediate
from mrc_host.workloads.measure import Meter

CREDIT = 1 << 15
END = 1 << 14
#: Data, credits and the end of two streams between a pair of ranks never need more receives than a job posts.
MAX_WINDOW = 128


@dataclass(frozen=True)
class StreamParameters(Parameters):
    """Parameters of all streams."""

    message_bytes: int = 1 << 18
    window: int = 2


S = TypeVar("S", bound=StreamParameters)


class Streams(Workload[S]):
    """Common part; `pairs` says which rank sends to which.

    Parameters: `message_bytes`; `window`, messages of a stream under way at once; `iterations`, messages per stream.
    """

    parameters = StreamParameters

    def __init__(self, rank: int, size: int, params: S, channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        self.bytes = params.message_bytes
        self.window = params.window
        pairs = self.pairs(size, params)
        self.out = dict.fromkeys(_destinations(pairs, rank), 0)
        self.incoming = dict.fromkeys(_sources(pairs, rank), 0)
        self.credited = dict.fromkeys(self.out, 0)
        #: After how many messages each stream ends; winding down lowers it.
        self.out_ends = dict.fromkeys(self.out, self.limit)
        self.in_ends = dict.fromkeys(self.incoming, self.limit)
        self.meters = {peer: Meter(self.bytes) for peer in self.out}
        # A rank's region: the slots of the streams it sends, then those of the streams it receives.
        self._send_from = {peer: index for index, peer in enumerate(self.out)}
        self._land_at = {peer: len(self.out) + index for index, peer in enumerate(self.incoming)}
        self._remote = {peer: len(_destinations(pairs, peer)) + _sources(pairs, peer).index(rank) for peer in self.out}
        # Every rank numbers the streams alike, so that both ends of one know its data.
        self.order = {pair: index for index, pair in enumerate(sorted(pairs))}

    @classmethod
    def pairs(cls, size: int, params: S) -> list[tuple[int, int]]:
        """Return (source, destination) of every stream."""
        raise NotImplementedError

    @classmethod
    def memory_bytes(cls, size: int, params: S) -> int:
        cls.whole_number("message_bytes", params.message_bytes, 1)
        cls.whole_number("window", params.window, 1, MAX_WINDOW)
        pairs = cls.pairs(size, params)
        if not pairs:
            raise WorkloadError(f"workload {cls.name}: no rank of {size} has anything to send; give it more hosts")
        for src, dst in pairs:
            if src == dst or not (0 <= src < size and 0 <= dst < size):
                raise WorkloadError(
                    f"workload {cls.name}: no stream can go from rank {src} to rank {dst} among {size} ranks"
                )
        if len(set(pairs)) < len(pairs):
            raise WorkloadError(f"workload {cls.name}: a stream is named twice; name each once")
        streams = max(len(_destinations(pairs, rank)) + len(_sources(pairs, rank)) for rank in range(size))
        return streams * params.window * params.message_bytes

    @classmethod
    def peers(cls, rank: int, size: int, params: S) -> set[int]:
        pairs = cls.pairs(size, params)
        return {*_destinations(pairs, rank), *_sources(pairs, rank)}

    def _slot(self, stream: int, number: int) -> int:
        return (stream * self.window + number % self.window) * self.bytes

    def _seed(self, source: int, destination: int, number: int) -> int:
        return (self.order[source, destination] << 16) + number + 1

    def begin(self, now: int) -> None:
        for peer in self.out:
            for _ in range(self.window):
                self._send(peer, now)
        self.advance(now)

    def _send(self, peer: int, now: int) -> None:
        number = self.out[peer]
        if number >= self.out_ends[peer] or number - self.credited[peer] >= self.window:
            return
        own = self._slot(self._send_from[peer], number)
        self.write_pattern(own, self.bytes, self._seed(self.rank, peer, number))
        self.out[peer] = number + 1
        self.meters[peer].posted(now)
        self.put(peer, own, self._slot(self._remote[peer], number), self.bytes, imm=immediate(number, 0))

    def put_done(self, peer: int, tag: int, now: int) -> None:
        if tag == 0:
            self.meters[peer].completed(now)
        super().put_done(peer, tag, now)

    def arrived(self, peer: int, imm: int, now: int) -> None:
        if imm & CREDIT:
            self.credited[peer] += 1
            if self.running:
                self._send(peer, now)
        elif imm & END:
            # Its low 16 bits name the end; it cannot be a whole window before or behind what has arrived.
            number = self.incoming[peer]
            self.in_ends[peer] = number + ((imm >> 16) - number & 0xFFFF)
        else:
            number = self.incoming[peer]
            self.incoming[peer] = number + 1
            slot = self._slot(self._land_at[peer], number)
            self.check_pattern(slot, self.bytes, self._seed(peer, self.rank, number))
            self.put(peer, 0, 0, 0, tag=CREDIT, imm=immediate(number, CREDIT))
        if self.running:
            self.advance(now)

    def advance(self, now: int) -> None:
        self.progress.iterations = min([*self.credited.values(), *self.incoming.values()])
        if self.progress.iterations and not self.progress.first_ns:
            self.progress.first_ns = now
        ended = all(self.credited[peer] >= end for peer, end in self.out_ends.items())
        ended = ended and all(self.incoming[peer] >= end for peer, end in self.in_ends.items())
        if ended and not self.outstanding:
            self.finish(now)

    def awaits(self) -> set[int]:
        if not self.running:
            return set()
        behind = {peer for peer, number in self.out.items() if self.credited[peer] < min(number, self.out_ends[peer])}
        return behind | {peer for peer, number in self.incoming.items() if number < self.in_ends[peer]}

    def waits_for(self) -> str:
        return "messages or credits"

    def wind_down(self, now: int) -> int:
        """End each stream that this rank sends with its current message, and notify the receiver."""
        if not self.running:
            return self.progress.iterations
        for peer, number in self.out.items():
            if number < self.out_ends[peer]:
                self.out_ends[peer] = number
                self.put(peer, 0, 0, 0, tag=END, imm=immediate(number, END))
        return self.progress.iterations

    def stop_after(self, iterations: int, now: int) -> None:
        """Do nothing: streams end by `wind_down`, each after its own number of messages."""

    def measured(self) -> Measured:
        """Return every stream that this rank sends, by the receiver's rank."""
        return Measured(streams={str(peer): meter.summary() for peer, meter in self.meters.items()} or None)


def _destinations(pairs: list[tuple[int, int]], rank: int) -> list[int]:
    """Return the ranks to which a rank sends, in order."""
    return sorted(dst for src, dst in pairs if src == rank)


def _sources(pairs: list[tuple[int, int]], rank: int) -> list[int]:
    """Return the ranks from which a rank receives, in order."""
    return sorted(src for src, dst in pairs if dst == rank)


@dataclass(frozen=True)
class PermutationParameters(StreamParameters):
    """Parameters of `Permutation`."""

    shift: int = 1


class Permutation(Streams[PermutationParameters]):
    """Rank r sends to rank r + `shift`."""

    name = "permutation"
    title = "Rank r sends to rank r + `shift`"
    parameters = PermutationParameters

    @classmethod
    def pairs(cls, size: int, params: PermutationParameters) -> list[tuple[int, int]]:
        return [(rank, (rank + params.shift) % size) for rank in range(size)]


@dataclass(frozen=True)
class IncastParameters(StreamParameters):
    """Parameters of `Incast`."""

    target: int = 0
    sources: Sequence[int] | None = None
    victim: Sequence[int] | None = None
    ring: Sequence[int] | None = None


class Incast(Streams[IncastParameters]):
    """Every rank of `sources` sends to `target`; beside it each rank of `ring` sends to the next one there, and the
    victim flow goes from `victim[0]` to `victim[1]`.

    Without `sources` all ranks but the target and those of ring and victim send.
    """

    name = "incast"
    title = "Every rank of `sources` sends to `target`; beside it those of `ring` to the next, and `victim` to another"
    parameters = IncastParameters

    @classmethod
    def complete(cls, params: object) -> IncastParameters:
        full = super().complete(params)
        for key in ("sources", "victim", "ring"):
            ranks = getattr(full, key)
            if ranks is None:
                continue
            if not isinstance(ranks, list | tuple):
                raise WorkloadError(f"workload {cls.name}: {key} must be a list of ranks, not {ranks!r}"[:200])
            for rank in ranks:
                cls.whole_number(f"every rank of {key}", rank)
        if full.victim is not None and len(full.victim) != 2:
            raise WorkloadError(f"workload {cls.name}: victim is a pair [source, destination], not {full.victim!r}")
        return full

    @classmethod
    def pairs(cls, size: int, params: IncastParameters) -> list[tuple[int, int]]:
        target, victim, sources = params.target, params.victim, params.sources
        ring = list(params.ring or ())
        busy = {target, *(victim or ()), *ring}
        chosen = [rank for rank in range(size) if rank not in busy] if sources is None else list(sources)
        beside = list(zip(ring, ring[1:] + ring[:1], strict=True)) + ([(victim[0], victim[1])] if victim else [])
        return [(rank, target) for rank in chosen] + beside


class SendRecv(Streams[StreamParameters]):
    """Neighbours in pairs, both ways: 0 with 1, 2 with 3, and so on."""

    name = "send_recv"
    title = "Neighbours in pairs, both ways: 0 with 1, 2 with 3, and so on"

    @classmethod
    def pairs(cls, size: int, params: StreamParameters) -> list[tuple[int, int]]:
        return [(rank, rank ^ 1) for rank in range(size) if rank ^ 1 < size]


@dataclass(frozen=True)
class WriteBwParameters(StreamParameters):
    """Parameters of `WriteBw`."""

    window: int = 4
    source: int = 0
    target: int = 1


class WriteBw(Streams[WriteBwParameters]):
    """As perftest's ib_write_bw: `source` writes to `target` as fast as it can."""

    name = "write_bw"
    title = "As perftest's ib_write_bw: `source` writes to `target` as fast as it can"
    parameters = WriteBwParameters

    @classmethod
    def pairs(cls, size: int, params: WriteBwParameters) -> list[tuple[int, int]]:
        return [(params.source, params.target)]
