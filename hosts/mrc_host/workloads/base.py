"""What a workload is: a state machine over one-sided writes, driven by completions and immediates.

A workload sees ranks, not addresses. Every rank registers one memory region of `memory_bytes`; `put` writes from
the own region into a peer's. The same workload runs on the real and on the virtual clock, because time is
handed in and nothing here waits.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

STEP_BITS = 16


class WorkloadError(Exception):
    """Parameters that make no workload; the text names the parameter and the remedy."""


class Channel(Protocol):
    """The way from a workload to its peers, offered by the host node."""

    def put(self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int, imm: int | None = None) -> None:
        """Writes `length` bytes at `offset` of the own region to `remote_offset` of the peer's.

        With `imm` the peer's workload is told (`arrived`) when all of it is in place. The own `put_done` follows
        with `tag`. A length of 0 only signals.
        """


@dataclass
class Progress:
    """What a rank has done so far; plain data for status, reports and verdicts."""

    iterations: int = 0
    bytes_sent: int = 0
    bytes_verified: int = 0
    mismatches: int = 0
    started_ns: int = 0
    finished_ns: int = 0
    iteration_ns: list[int] = field(default_factory=list)
    failure: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


class Workload(abc.ABC):
    """One rank's part of a workload.

    Args:
        rank, size: this rank and how many there are.
        params: the workload's own parameters (each class documents its own); `iterations` bounds the loop.
        channel: the way to the peers.
        memory: this rank's registered region, `memory_bytes(size, params)` long.
    """

    name: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, rank: int, size: int, params: Mapping[str, Any], channel: Channel, memory: memoryview) -> None:
        self.rank = rank
        self.size = size
        self.params = self.complete(params)
        self.channel = channel
        self.memory = np.frombuffer(memory, dtype=np.uint8)
        self.limit = int(self.params["iterations"])
        self.progress = Progress()
        self.running = False
        self.done = False
        self.outstanding = 0

    @classmethod
    def complete(cls, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters with defaults filled in.

        Raises:
            WorkloadError: an unknown parameter, or one of the wrong type or sign.
        """
        known: dict[str, Any] = {"iterations": 1, **cls.defaults}
        for key, value in params.items():
            if key not in known:
                raise WorkloadError(f"workload {cls.name}: no parameter '{key}'; known: {', '.join(sorted(known))}")
            default = known[key]
            if isinstance(default, int) and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise WorkloadError(f"workload {cls.name}: {key} must be a whole number of at least 0, not {value!r}")
        return {**known, **params}

    @classmethod
    @abc.abstractmethod
    def memory_bytes(cls, size: int, params: Mapping[str, Any]) -> int:
        """Bytes of the region that each rank registers."""

    @classmethod
    @abc.abstractmethod
    def peers(cls, rank: int, size: int, params: Mapping[str, Any]) -> set[int]:
        """The ranks to which this rank writes: it needs a QP to each."""

    def start(self, now: int) -> None:
        """Begins the first iteration."""
        self.progress.started_ns = now
        self.running = True
        if self.limit == 0:
            self.finish(now)
        else:
            self.begin(now)

    @abc.abstractmethod
    def begin(self, now: int) -> None:
        """Begins iteration `self.progress.iterations`."""

    @abc.abstractmethod
    def arrived(self, peer: int, imm: int, now: int) -> None:
        """An immediate of a peer: everything it wrote before is in place."""

    def put_done(self, peer: int, tag: int, now: int) -> None:
        """A `put` is acknowledged: its source may change."""
        self.outstanding -= 1
        if self.running:
            self.advance(now)

    @abc.abstractmethod
    def advance(self, now: int) -> None:
        """Goes as far as what has arrived and been acknowledged allows."""

    def failed(self, peer: int, reason: str, now: int) -> None:
        """A QP died or a put was refused: the workload ends here, and says why."""
        if not self.done:
            self.progress.failure = f"rank {self.rank} to rank {peer}: {reason}"
            self.finish(now)

    def stop_after(self, iterations: int) -> None:
        """Lowers or raises the number of iterations; a controller ends a running loop on all ranks with it."""
        self.limit = max(iterations, self.progress.iterations + (0 if self.done else 1))

    def end_iteration(self, now: int) -> None:
        """Counts the iteration and begins the next one, or finishes."""
        self.progress.iterations += 1
        self.progress.iteration_ns.append(now)
        if self.progress.iterations >= self.limit:
            self.finish(now)
        else:
            self.begin(now)

    def finish(self, now: int) -> None:
        """The last word of a workload."""
        self.progress.finished_ns = now
        self.running = False
        self.done = True

    def put(
        self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int = 0, imm: int | None = None
    ) -> None:
        """`Channel.put`, counted."""
        self.progress.bytes_sent += length
        self.outstanding += 1
        self.channel.put(peer, offset, remote_offset, length, tag=tag, imm=imm)

    def check(self, got: npt.NDArray[Any], want: npt.NDArray[Any]) -> None:
        """Compares what arrived with what must have arrived, element by element."""
        wrong = int(np.count_nonzero(got != want))
        self.progress.mismatches += wrong
        if not wrong:
            self.progress.bytes_verified += got.nbytes


def immediate(iteration: int, step: int) -> int:
    """32 bits: iteration modulo 2^16, then the step."""
    return (iteration & 0xFFFF) << STEP_BITS | step


_ramps: dict[int, npt.NDArray[np.uint32]] = {}


def pattern(seed: int, nbytes: int) -> npt.NDArray[np.uint8]:
    """Bytes that differ by seed and by position, so that a misplaced or stale byte shows."""
    ramp = _ramps.get(nbytes)
    if ramp is None:
        ramp = _ramps[nbytes] = np.arange(nbytes, dtype=np.uint32) * np.uint32(2654435761)
    mixed = (ramp + np.uint32(seed * 40503 & 0xFFFFFFFF)) >> np.uint32(24)
    return mixed.astype(np.uint8)


#: A rank's values repeat after so many elements, which makes both inputs and expected sums cheap to write down.
PERIOD = 251


def period(rank: int, iteration: int) -> npt.NDArray[np.float32]:
    """One period of a rank's float32 input: small whole numbers, so that a sum over ranks is exact in any order."""
    values = (np.arange(PERIOD, dtype=np.int64) * 7 + rank * 131 + iteration * 17) % PERIOD
    return values.astype(np.float32)


def repeat(one: npt.NDArray[np.float32], first: int, count: int) -> npt.NDArray[np.float32]:
    """Elements `first` to `first + count` of a vector that repeats `one`."""
    return np.resize(np.roll(one, -(first % PERIOD)), count)


def vector(rank: int, iteration: int, count: int) -> npt.NDArray[np.float32]:
    """A rank's input."""
    return repeat(period(rank, iteration), 0, count)


def total(size: int, iteration: int, first: int, count: int) -> npt.NDArray[np.float32]:
    """The sum over all ranks' inputs, from element `first` on."""
    return repeat(np.add.reduce([period(rank, iteration) for rank in range(size)]), first, count)
