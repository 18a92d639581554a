"""Training: steps of computation and of the communication that a model's parallelism needs, every byte verified.

Ranks form `pipeline` stages of equally many ranks each (stage = rank // ranks per stage); the ranks of a stage are data
parallel, and neighbours among them groups of `experts` ranks. A step is `micro_batches` forwards and backwards in the
order that is known as 1F1B. A third of `compute_us` is forward, the rest backward. Activations and their gradients go
to the neighbouring stages. In a group of experts an all-to-all goes before and after the experts, in both directions.
In the last backward the gradients become ready bucket by bucket, and each bucket is reduced over the stage while the
next one is computed. A step ends with its last bucket.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mrc_host.answers import Measured, TrainingTimes
from mrc_host.graph.generate import order
from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError, immediate, split
from mrc_host.workloads.measure import Distribution
from mrc_host.workloads.ring import FLOAT_BYTES, RingAllReduce, RingParameters


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


MAX_BUCKETS, MAX_MICRO_BATCHES = 48, 1024
#: A rank remembers the ends of this many steps, the latest.
ENDS = 1 << 16
#: Long computations are cut into pieces that show progress.
SLICE_NS = 1_000_000_000
EXCHANGE, FORWARD, BACKWARD = MAX_BUCKETS, MAX_BUCKETS + 1, MAX_BUCKETS + 2


@dataclass(frozen=True)
class Shape:
    """How the ranks are divided, and the layout of a region; all offsets and lengths are in bytes.

    `buckets`: (offset, length of the bucket). `transfers`: the offset of the first of four rows (forward out, forward
    in, backward out, backward in) of one slot per micro batch.
    """

    stages: int
    per_stage: int
    experts: int
    micro_batches: int
    buckets: list[tuple[int, int]]
    exchange: int
    transfers: int
    activation_bytes: int
    total: int

    def stage_of(self, rank: int) -> int:
        """Return which stage a rank belongs to."""
        return rank // self.per_stage

    def team(self, rank: int) -> list[int]:
        """Return the ranks with the same stage."""
        first = self.stage_of(rank) * self.per_stage
        return list(range(first, first + self.per_stage))

    def group(self, rank: int) -> list[int]:
        """Return the ranks with which a rank exchanges data of experts."""
        first = rank // self.experts * self.experts
        return list(range(first, first + self.experts))

    def slot(self, row: int, micro: int) -> int:
        """Return the offset of the transfer of a micro batch."""
        return self.transfers + (row * self.micro_batches + micro) * self.activation_bytes


@dataclass(frozen=True)
class TrainingParameters(Parameters):
    """Parameters of `Training`."""

    compute_us: int = 20_000
    jitter_percent: int = 0
    gradient_bytes: int = 1 << 20
    buckets: int = 4
    pipeline: int = 1
    micro_batches: int = 1
    activation_bytes: int = 1 << 16
    experts: int = 1
    expert_bytes: int = 1 << 14


class Training(Workload[TrainingParameters]):
    """Parameters: `compute_us`, of a step at a rank; `jitter_percent`, up to this much more, drawn for each rank and
    step; `gradient_bytes` of a rank, a multiple of 4, in `buckets`; `pipeline` stages, `micro_batches`,
    `activation_bytes` of each; `experts`, ranks in a group (1: no experts), `expert_bytes`, from each to each other
    in one all-to-all; `iterations`, steps.
    """

    name = "training"
    title = (
        "Training: steps of computation and of the communication that a model's parallelism needs, every byte verified"
    )
    parameters = TrainingParameters

    def __init__(self, rank: int, size: int, params: TrainingParameters, channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        shape = self.shape = self._shape(size, params)
        self.stage = shape.stage_of(rank)
        self.order = order(self.stage, shape.stages, shape.micro_batches)
        self.reductions, self.exchanges, self.transfers = Distribution(), Distribution(), Distribution()
        self.computed_ns = 0
        self.ends_ns: deque[int] = deque(maxlen=ENDS)
        team, group = shape.team(rank), shape.group(rank)
        buckets = enumerate(shape.buckets) if shape.per_stage >= 2 else ()
        self.buckets = [
            WorkloadPart(
                self.put, number, RingAllReduce, RingParameters(1, length), team, rank, memory, offset, self._reduced
            )
            for number, (offset, length) in buckets
        ]
        self.parts = {each.number: each for each in self.buckets}
        for number, bucket in enumerate(self.buckets):
            assert isinstance(bucket.workload, RingAllReduce)
            bucket.workload.salt = 97 * number
            bucket.workload.iteration_times = self.reductions
        self.exchange: WorkloadPart | None = None
        if shape.experts > 1:
            block = AllToAllParameters(block_bytes=params.expert_bytes)
            self.exchange = self.parts[EXCHANGE] = WorkloadPart(
                self.put, EXCHANGE, AllToAll, block, group, rank, memory, shape.exchange, self._exchanged
            )
            self.exchange.workload.iteration_times = self.exchanges
        #: Transfers that have arrived: (forward or backward, step modulo 2^10, micro batch).
        self.received: set[int] = set()
        self._work: Iterator[Callable[[], bool]] | None = None
        self._goes_on: Callable[[], bool] = bool
        self._now = 0
        self._computing = self._exchanging = self._reducing = self._inside = False
        self._expected: int | None = None
        #: Of this step's buckets: how many are computed, and how many are reduced.
        self._ready = self._done = 0

    @classmethod
    def _shape(cls, size: int, params: TrainingParameters) -> Shape:
        cls.whole_number("jitter_percent", params.jitter_percent, 0, 1000)
        buckets = cls.whole_number("buckets", params.buckets, 1, MAX_BUCKETS)
        stages = cls.whole_number("pipeline", params.pipeline, 1)
        micro = cls.whole_number("micro_batches", params.micro_batches, 1, MAX_MICRO_BATCHES)
        experts = cls.whole_number("experts", params.experts, 1)
        activation = cls.whole_number("activation_bytes", params.activation_bytes, 1)
        block = cls.whole_number("expert_bytes", params.expert_bytes, 1)
        gradient = cls.whole_number("gradient_bytes", params.gradient_bytes, FLOAT_BYTES * buckets)
        if gradient % FLOAT_BYTES:
            raise WorkloadError(
                f"workload {cls.name}: gradient_bytes must be a multiple of {FLOAT_BYTES}, not {gradient}"
            )
        if size < 2:
            raise WorkloadError(f"workload {cls.name} needs at least 2 ranks, not {size}")
        if size % stages:
            raise WorkloadError(f"workload {cls.name}: {size} ranks cannot form {stages} pipeline stages of equal size")
        if size // stages % experts:
            raise WorkloadError(
                f"workload {cls.name}: the {size // stages} ranks of a stage cannot form groups of {experts} experts"
            )
        at, rows = 0, []
        for part in split(gradient // FLOAT_BYTES, buckets):
            length = (part.stop - part.start) * FLOAT_BYTES
            rows.append((at, length))
            if size // stages > 1:
                at += RingAllReduce.memory_bytes(size // stages, RingParameters(size_bytes=length))
        exchange = at
        if experts > 1:
            at += AllToAll.memory_bytes(experts, AllToAllParameters(block_bytes=block))
        transfers = at
        if stages > 1:
            at += 4 * micro * activation
        return Shape(stages, size // stages, experts, micro, rows, exchange, transfers, activation, at)

    @classmethod
    def memory_bytes(cls, size: int, params: TrainingParameters) -> int:
        return cls._shape(size, params).total

    @classmethod
    def peers(cls, rank: int, size: int, params: TrainingParameters) -> set[int]:
        shape = cls._shape(size, params)
        team = shape.team(rank)
        found = {team[(team.index(rank) + 1) % len(team)], *shape.group(rank)}
        found |= {each for each in (rank - shape.per_stage, rank + shape.per_stage) if 0 <= each < size}
        return found - {rank}

    # -- events of the channel -----------------------------------------------------------------------------

    def arrived(self, peer: int, imm: int, now: int) -> None:
        part = self.parts.get(part_of(imm))
        if part is None:
            self.received.add(imm)
        else:
            part.arrived(peer, imm, now)
        if self.running:
            self.advance(now)

    def put_done(self, peer: int, tag: int, now: int) -> None:
        number = tag_of(tag)
        part = self.parts.get(number)
        if part is not None:
            part.put_done(peer, tag, now)
        elif number in (FORWARD, BACKWARD):
            self.transfers.add(now - (tag >> 6))
        super().put_done(peer, tag, now)

    def _reduced(self, now: int) -> None:
        self._reducing = False
        self._done += 1
        self._reduce(now)
        self._account(now)

    def _exchanged(self, now: int) -> None:
        self._exchanging = False
        self._account(now)

    def _account(self, now: int) -> None:
        """Account for an iteration of a part that has ended."""
        for part in self.parts.values():
            of_part = part.workload.progress
            self.progress.bytes_verified += of_part.bytes_verified
            self.progress.mismatches += of_part.mismatches
            of_part.bytes_verified = of_part.mismatches = 0
        self.advance(now)

    # -- a step --------------------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        self._ready = self._done = 0
        self._work, self._goes_on = self._step(), lambda: True
        self.advance(now)

    def advance(self, now: int) -> None:
        self._now = now
        if self._inside or self._between or self.done:
            return
        self._inside = True
        try:
            while self._work is not None and self._goes_on():
                following = next(self._work, None)
                if following is None:
                    self._work = None
                else:
                    self._goes_on = following
        finally:
            self._inside = False
        if self._work is None and self._done == len(self.shape.buckets) and not self.outstanding and not self.done:
            self.ends_ns.append(now)
            self.end_iteration(now)

    def _step(self) -> Iterator[Callable[[], bool]]:
        """Run one step of a rank as a generator: it yields the condition that must hold before the step continues."""
        shape = self.shape
        drawn = zlib.crc32(f"{self.rank} {self.progress.iterations}".encode()) / 2**32
        compute_ns = self.params.compute_us * 1000 * (1 + self.params.jitter_percent / 100 * drawn)
        forward_ns = round(compute_ns / 3 / shape.micro_batches)
        backward_ns = round(compute_ns * 2 / 3 / shape.micro_batches)
        last = self.order[-1]
        for forward, micro in self.order:
            # Forward comes from the stage before, backward from the one behind.
            source, target = (self.stage - 1, self.stage + 1) if forward else (self.stage + 1, self.stage - 1)
            if 0 <= source < shape.stages:
                yield from self._receive(forward, micro, source)
            buckets = len(shape.buckets) if (forward, micro) == last else 1
            nanoseconds = forward_ns if forward else backward_ns
            if self.exchange is not None:
                yield from self._compute(nanoseconds // 2 if forward else 0)
                yield from self._exchange()
                yield from self._compute(0 if forward else nanoseconds // 2)
                nanoseconds -= nanoseconds // 2
                if not forward:
                    yield from self._exchange()
            for _ in range(buckets):
                yield from self._compute(nanoseconds // buckets)
                if (forward, micro) == last:
                    self._ready += 1
                    self._reduce(self._now)
            if self.exchange is not None and forward:
                yield from self._exchange()
            if 0 <= target < shape.stages:
                self._send(forward, micro, target)

    def _compute(self, nanoseconds: int) -> Iterator[Callable[[], bool]]:
        until = self._now + nanoseconds
        self.computed_ns += nanoseconds
        self._computing = True
        while self._now < until:
            due = min(until, self._now + SLICE_NS)
            self.channel.wake(due)
            yield lambda due=due: self._now >= due  # type: ignore[misc]
        self._computing = False

    def _exchange(self) -> Iterator[Callable[[], bool]]:
        assert self.exchange is not None
        self._exchanging = True
        self.exchange.workload.run(self._now)
        yield lambda: not self._exchanging

    def _reduce(self, now: int) -> None:
        """Reduce the next bucket that is ready, one after the other as they become so."""
        if not self.buckets:
            self._done = self._ready
        elif not self._reducing and self._done < self._ready:
            self._reducing = True
            self.buckets[self._done].workload.run(now)

    # -- activations and their gradients, from stage to stage ----------------------------------------------

    def _neighbour(self, stage: int) -> int:
        return self.rank + (stage - self.stage) * self.shape.per_stage

    def _seed(self, sender: int, forward: bool, micro: int) -> int:
        count = self.progress.iterations * self.shape.micro_batches + micro
        return (2 * count + int(forward)) * self.size + sender + 1

    def _send(self, forward: bool, micro: int, stage: int) -> None:
        shape, length = self.shape, self.shape.activation_bytes
        row, number = (0, FORWARD) if forward else (2, BACKWARD)
        own = shape.slot(row, micro)
        self.write_pattern(own, length, self._seed(self.rank, forward, micro))
        imm = signed(number, self.progress.iterations, micro)
        there = shape.slot(row + 1, micro)
        self.put(self._neighbour(stage), own, there, length, tag=tagged(number, self._now), imm=imm)

    def _receive(self, forward: bool, micro: int, stage: int) -> Iterator[Callable[[], bool]]:
        imm = signed(FORWARD if forward else BACKWARD, self.progress.iterations, micro)
        self._expected = self._neighbour(stage)
        yield lambda: imm in self.received
        self._expected = None
        self.received.remove(imm)
        slot, length = self.shape.slot(1 if forward else 3, micro), self.shape.activation_bytes
        self.check_pattern(slot, length, self._seed(self._neighbour(stage), forward, micro))

    # -- reports -------------------------------------------------------------------------------------------

    def awaits(self) -> set[int]:
        if not self.running:
            return set()
        found = set() if self._expected is None else {self._expected}
        return found.union(*(part.awaits() for part in self.parts.values()))

    def waits_for(self) -> str:
        if self._between:
            return super().waits_for()
        step = f"of step {self.progress.iterations}"
        if self._expected is not None:
            return f"activations or their gradients {step}"
        if self._exchanging:
            return f"the all-to-all of experts {step}"
        return f"the end of its own computation {step}" if self._computing else f"bucket {self._done} {step}"

    def measured(self) -> Measured:
        """Return the times of steps, and beside them those of reductions of a bucket, of exchanges among experts, and
        of transfers between stages."""
        operations = {"all_reduce": self.reductions, "all_to_all": self.exchanges, "send_recv": self.transfers}
        told = {name: found for name, times in operations.items() if (found := times.summary()) is not None}
        training = TrainingTimes(list(self.ends_ns), self.computed_ns, told)
        return replace(super().measured(), training=training)
