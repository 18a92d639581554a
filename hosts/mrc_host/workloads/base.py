"""Base of workloads: a state machine over one-sided writes, driven by completions and immediates.

A workload sees ranks, not addresses. Every rank registers one memory region of `memory_bytes`; `put` writes from
the own region into a peer's. The same workload runs on the real and on the virtual clock, because time is
handed in and nothing here waits.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from mrc_host.answers import JobProgress, Measured
from mrc_host.workloads.measure import Distribution
from mrc_topo.base.errors import UsageError

STEP_BITS = 16
#: Whole-number parameters above this are a slip of the finger.
MAX_NUMBER = 1 << 40
#: A rank's region above this is one, too.
MAX_MEMORY_BYTES = 1 << 30


class WorkloadError(UsageError):
    """Parameters that make no workload; the text names the parameter and the remedy."""


class Channel(Protocol):
    """The connection of a workload to its peers, offered by the host node."""

    def put(self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int, imm: int | None = None) -> None:
        """Write `length` bytes at `offset` of the own region to `remote_offset` of the peer's.

        With `imm` the peer's workload is notified (`arrived`) when all of it is in place. The own `put_done` follows
        with `tag`. A length of 0 only signals.
        """

    def wake(self, at_ns: int) -> None:
        """Call `woken` of the own workload at this time or soon after it."""


@dataclass(frozen=True)
class Surroundings:
    """Properties of a lab that a workload may depend on: the rate of all links of a host together, the rack (T0) of
    each rank, the lab's seed, and whether packets carry only the length of their payload."""

    host_bps: int
    racks: Sequence[int]
    seed: int
    length_only: bool


@dataclass(frozen=True)
class Parameters:
    """The parameters of a workload; `iterations` bounds its loop. Each workload has a subclass of its own."""

    iterations: int = 1


P = TypeVar("P", bound=Parameters)


class Workload(abc.ABC, Generic[P]):
    """One rank's part of a workload.

    Args:
        rank: which one this is, from 0.
        size: how many ranks there are.
        params: the workload's own parameters, checked by `plan`.
        channel: the way to the peers.
        memory: this rank's registered region, `memory_bytes(size, params)` long; read-only where packets carry only the
            length of their payload. The workload then does the same puts, and computes and verifies nothing.

    A controller ends a running loop in two steps, so that all ranks end with the same iteration however far they are
    apart: `wind_down` at every rank, then `stop_after` the highest answer.
    """

    name: ClassVar[str]
    #: What it is, in one sentence, for lists of workloads.
    title: ClassVar[str]
    #: The class of `P`, with the defaults.
    parameters: ClassVar[type[Parameters]] = Parameters
    #: The names of parameters that are paths of files.
    files: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, rank: int, size: int, params: P, channel: Channel, memory: memoryview) -> None:
        self.rank = rank
        self.size = size
        self.params = params
        self.channel = channel
        self.memory = np.frombuffer(memory, dtype=np.uint8)
        self.has_data = not memory.readonly
        self.limit = params.iterations
        takes_part = bool(self.peers(rank, size, params))
        self.progress = JobProgress(takes_part=takes_part, workload=self.name, rank=rank)
        self.running = False
        self.done = False
        self.outstanding = 0
        self.iteration_times = Distribution()
        self._begun_ns = 0
        self._winding_down = False
        self._between = False
        #: What follows an iteration: the next one, or what a workload has in mind of which this is a part (`run`).
        self.after: Callable[[int], None] = self._next

    @classmethod
    def defaults(cls) -> Mapping[str, int | str | None]:
        """Return the default of each of the workload's own parameters."""
        made = vars(cls.parameters())
        return {name: value for name, value in made.items() if name != "iterations"}

    @classmethod
    def texts(cls) -> set[str]:
        """Return the names of the parameters that are texts."""
        return {each.name for each in fields(cls.parameters) if isinstance(each.default, str)}

    @classmethod
    def placed(cls, params: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return parameters as a user wrote them, with the paths of files seen from a folder: hosts have working
        folders of their own. Raises WorkloadError."""
        return {
            key: str((folder / value).absolute()) if key in cls.files and value else value
            for key, value in params.items()
        }

    @classmethod
    def fitted(cls, params: Mapping[str, Any], lab: Surroundings) -> dict[str, Any]:
        """Return parameters with what the lab gives, where the user gives none."""
        return dict(params)

    @classmethod
    def notes(cls, params: P) -> Sequence[str]:
        """Return what of the files of these parameters a run does not use."""
        return ()

    @classmethod
    def complete(cls, params: object) -> P:
        """Return the parameters of a document, with defaults filled in.

        Raises:
            WorkloadError: an unknown parameter, or one of the wrong type or sign.
        """
        if not isinstance(params, Mapping):
            raise WorkloadError(f"workload {cls.name}: parameters are an object with their names, not {params!r:.60}")
        known = {each.name: each for each in fields(cls.parameters)}
        for key, value in params.items():
            if key not in known:
                full = next((name for name in known if name.startswith(f"{key}_")), None)
                way = f"{full} is a number, {key} needs a unit, unlike {value!r:.60}; " if full else ""
                raise WorkloadError(
                    f"workload {cls.name}: no parameter '{key}'; {way}known: {', '.join(sorted(known))}"
                )
            if isinstance(known[key].default, int):
                cls.whole_number(key, value, 1 if key == "iterations" else 0)
        return cast("P", cls.parameters(**params))

    @classmethod
    def whole_number(cls, key: str, value: object, least: int = 0, most: int = MAX_NUMBER) -> int:
        """Return the value, if it is a whole number in these bounds.

        Raises:
            WorkloadError: it is not; names workload, parameter and bounds.
        """
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            digits = isinstance(value, int) and abs(value) > MAX_NUMBER
            shown = "one with more digits" if digits else repr(value)[:60]
            bound = f"of at least {least}" if digits or most == MAX_NUMBER else f"from {least} to {most}"
            raise WorkloadError(f"workload {cls.name}: {key} must be a whole number {bound}, not {shown}")
        return value

    @classmethod
    def plan(cls, size: int, params: P) -> int:
        """Check all parameters for this number of ranks; return the bytes of the region of each rank.

        Raises:
            WorkloadError: they make no workload, or one that no machine has the memory for.
        """
        needed = cls.memory_bytes(size, params)
        if needed > MAX_MEMORY_BYTES:
            raise WorkloadError(
                f"workload {cls.name}: {needed} bytes of memory at every rank are more than the {MAX_MEMORY_BYTES} "
                "that a rank may have; use smaller messages"
            )
        return needed

    @classmethod
    @abc.abstractmethod
    def memory_bytes(cls, size: int, params: P) -> int:
        """Return the size of the region that each rank registers, bytes."""

    @classmethod
    @abc.abstractmethod
    def peers(cls, rank: int, size: int, params: P) -> set[int]:
        """Return the ranks to which this rank writes: it needs a QP to each. A rank without any takes no part."""

    def start(self, now: int) -> None:
        """Begin the first iteration."""
        self.progress.started_ns = now
        if self.progress.takes_part:
            self._next(now)
        else:
            self.finish(now)

    def _next(self, now: int) -> None:
        """Begin an iteration, finish, or wait for the number of iterations after which to finish."""
        self._between = False
        if self.progress.iterations >= self.limit:
            self.finish(now)
        elif self._winding_down:
            # What arrives now belongs to the next iteration; nothing may act on it yet.
            self._between = True
            self.running = False
        else:
            self.run(now)

    def run(self, now: int) -> None:
        """Begin an iteration; `after` is called when it has ended."""
        self.running = True
        self._begun_ns = now
        self.begin(now)

    @abc.abstractmethod
    def begin(self, now: int) -> None:
        """Begin iteration `self.progress.iterations`."""

    @abc.abstractmethod
    def arrived(self, peer: int, imm: int, now: int) -> None:
        """Handle an immediate of a peer: everything that the peer wrote before is in place."""

    def put_done(self, peer: int, tag: int, now: int) -> None:
        """Handle a `put` that is acknowledged: its source may change."""
        self.outstanding -= 1
        if self.running:
            self.advance(now)

    def woken(self, now: int) -> None:
        """Handle a time that was requested by `Channel.wake`."""
        if self.running:
            self.advance(now)

    @abc.abstractmethod
    def advance(self, now: int) -> None:
        """Advance as far as the arrivals and acknowledgements so far allow."""

    def failed(self, peer: int, reason: str, now: int) -> None:
        """End the workload with an error: a QP died or a put was refused."""
        if not self.done:
            self.progress.failure = f"rank {self.rank} to rank {peer}: {reason}"
            self.finish(now)

    def wind_down(self, now: int) -> int:
        """Begin no further iteration until `stop_after`; return how many have begun, 0 if this rank does not count."""
        if self.done or not self.progress.takes_part:
            return self.progress.iterations
        self._winding_down = True
        return self.progress.iterations + int(self.running)

    def stop_after(self, iterations: int, now: int) -> None:
        """Set the number of iterations: at least as many as any rank has begun (`wind_down`)."""
        self.limit = iterations
        self._winding_down = False
        if self._between:
            self._next(now)

    def end_iteration(self, now: int) -> None:
        """Count the iteration, and begin the next one or finish."""
        self.progress.iterations += 1
        self.progress.first_ns = self.progress.first_ns or now
        self.iteration_times.add(now - self._begun_ns)
        self.running = False
        self.after(now)

    def measured(self) -> Measured:
        """Return the workload's measurements: here the times of its iterations."""
        return Measured(iteration_ns=self.iteration_times.summary())

    def awaits(self) -> set[int]:
        """Return the ranks without whose next message this one cannot go on; those of a running workload only."""
        return set()

    def waits_for(self) -> str:
        """Return what the workload itself waits for, beside its own puts."""
        if self._between:
            return "word after how many iterations to end"
        return f"a message of iteration {self.progress.iterations}"

    def finish(self, now: int) -> None:
        """Finish the workload."""
        self.progress.finished_ns = now
        self.running = False
        self.done = True

    def put(
        self, peer: int, offset: int, remote_offset: int, length: int, *, tag: int = 0, imm: int | None = None
    ) -> None:
        """Do `Channel.put`, and count it."""
        self.progress.bytes_sent += length
        self.outstanding += 1
        self.channel.put(peer, offset, remote_offset, length, tag=tag, imm=imm)

    def write_pattern(self, first: int, nbytes: int, seed: int) -> None:
        """Write a pattern into the own region from byte `first` on, if it holds data."""
        if self.has_data:
            self.memory[first : first + nbytes] = pattern(seed, nbytes)

    def check_pattern(self, first: int, nbytes: int, seed: int) -> None:
        """Compare what arrived at byte `first` of the own region, if it holds data, with the pattern it must be."""
        if self.has_data:
            self.check(self.memory[first : first + nbytes], pattern(seed, nbytes))

    def check(self, got: npt.NDArray[Any], want: npt.NDArray[Any]) -> None:
        """Compare the data that arrived with the expected data, element by element."""
        self._count(got, 0 if _same_bytes(got, want) else int(np.count_nonzero(got != want)))

    def check_repeating(self, got: npt.NDArray[np.float32], one: npt.NDArray[np.float32], first: int = 0) -> None:
        """Check elements from `first` on of a vector that repeats the period `one`."""
        self._count(got, differing(got, one, first))

    def _count(self, got: npt.NDArray[Any], wrong: int) -> None:
        self.progress.mismatches += wrong
        if not wrong:
            self.progress.bytes_verified += got.nbytes


def _same_bytes(got: npt.NDArray[Any], want: npt.NDArray[Any]) -> bool:
    """Return whether two vectors of bytes are equal; False where they are not vectors of bytes.

    Nearly always all is as it must be, which eight bytes at a time show in half the time.
    """
    if got.dtype != np.uint8 or want.dtype != np.uint8 or len(got) != len(want):
        return False
    words = len(got) // 8 * 8
    equal = np.array_equal(got[:words].view(np.uint64), want[:words].view(np.uint64))
    return bool(equal and np.array_equal(got[words:], want[words:]))


def split(count: int, parts: int) -> list[slice]:
    """Split `count` elements into neighbouring parts; where it does not go even, the first ones have one more."""
    small, more = divmod(count, parts)
    edges = [part * small + min(part, more) for part in range(parts + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(edges)]


def immediate(iteration: int, step: int) -> int:
    """Pack an immediate of 32 bits: the iteration modulo 2^16, then the step."""
    return (iteration & 0xFFFF) << STEP_BITS | step


#: Patterns are parts of one sequence; there is one for each of this many seeds.
PATTERNS: Final = 1 << 16
_sequence: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)


def pattern_at(seed: int) -> int:
    """Return where the pattern of a seed begins in `pattern(0, ...)`, from 0 to `PATTERNS` - 1."""
    return seed * 40503 % PATTERNS  # odd, so that no two seeds begin at the same place


def pattern(seed: int, nbytes: int) -> npt.NDArray[np.uint8]:
    """Return a pattern of bytes that differ by seed (modulo 2^16) and by position, so that a misplaced or stale byte
    shows. It is a read-only part of a sequence that all ranks of a process share, since to compute a pattern for each
    message took a tenth of a simulation's time.
    """
    global _sequence  # it grows with the longest pattern
    first = pattern_at(seed)
    if len(_sequence) < nbytes + PATTERNS:
        # The high bytes of multiples of 2^32 divided by the golden ratio: neighbours differ, and no period is short.
        high = np.arange(nbytes + PATTERNS, dtype=np.uint32) * np.uint32(2654435761) >> np.uint32(24)
        _sequence = high.astype(np.uint8)
        _sequence.flags.writeable = False
    return _sequence[first : first + nbytes]


#: A rank's values repeat after this many elements, which makes both inputs and expected sums cheap to write down.
PERIOD = 251


def period(rank: int, iteration: int) -> npt.NDArray[np.float32]:
    """Return one period of a rank's float32 input: small integers, so that a sum over ranks is exact in any order."""
    values = (np.arange(PERIOD, dtype=np.int64) * 7 + rank * 131 + iteration * 17) % PERIOD
    return values.astype(np.float32)


@lru_cache(maxsize=16)
def summed(size: int, iteration: int) -> npt.NDArray[np.float32]:
    """Return one period of the sum over all ranks' inputs; it is read-only, as all ranks of a process share it."""
    made = np.asarray(np.add.reduce([period(rank, iteration) for rank in range(size)]), dtype=np.float32)
    made.flags.writeable = False
    return made


def fill(into: npt.NDArray[np.float32], one: npt.NDArray[np.float32], first: int = 0) -> None:
    """Write elements `first`, `first + 1`... of a vector that repeats the period `one`."""
    one = np.roll(one, -(first % PERIOD))
    whole = len(into) // PERIOD * PERIOD
    # In place: a vector of its own costs the kernel a page for each of its 4 KiB, which takes longer than to write it.
    into[:whole].reshape(-1, PERIOD)[:] = one
    into[whole:] = one[: len(into) - whole]


def differing(got: npt.NDArray[np.float32], one: npt.NDArray[np.float32], first: int = 0) -> int:
    """Return how many elements are not those that `fill` would write."""
    one = np.roll(one, -(first % PERIOD))
    head = got[:PERIOD]
    if np.array_equal(head, one[: len(head)]) and np.array_equal(got[PERIOD:], got[:-PERIOD]):
        return 0
    return int(np.count_nonzero(got != np.resize(one, len(got))))
