"""A graph of operations: a Chakra trace, a GOAL schedule, or a generated step of training (`mrc_host.graph`).

Each rank runs its own operations: computations are time, messages are writes whose data the receiver verifies as it
arrives. Slots for a rank's messages exist once, so a rank begins the next iteration when those to which it sends have
ended theirs, which they tell by a write without data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mrc_host.answers import Measured, TrainingTimes
from mrc_host.graph.graph import GraphError, Op
from mrc_host.graph.schedule import Schedule
from mrc_host.graph.source import Source, hosts_of, load, schedule, source_of
from mrc_host.workloads.base import PATTERNS, Channel, Parameters, Workload, WorkloadError, pattern_at
from mrc_host.workloads.measure import Distribution

#: Of an immediate's 32 bits: whether it tells of an end, the iteration modulo 2^11, and the message's number.
ENDED, ITERATION_SHIFT, ITERATIONS = 1 << 31, 20, 1 << 11
MAX_MESSAGES = 1 << ITERATION_SHIFT
#: A rank remembers the ends of this many iterations, the latest.
ENDS = 1 << 16
#: Long computations are cut into pieces that show progress.
SLICE_NS = 1_000_000_000


@dataclass(frozen=True)
class TraceParameters(Source, Parameters):
    """Parameters of `Trace`: those of `mrc_host.graph.source.Source`, and `iterations`."""


@dataclass(frozen=True)
class RankProgram:
    """A rank's operations by its own numbers: what they are, ns or bytes, the peer's number among hosts, the message's
    number and seed, offset of its data here or there, who follows, and how many things it needs to begin."""

    kind: list[int]
    work: list[int]
    unit: list[int]
    counts: list[bool]
    peer: list[int]
    message: list[int]
    seed: list[int]
    offset: list[int]
    after: list[list[int]]
    needs: list[int]
    #: Operations of the graph: number of the first and the last operation, and label.
    begins: dict[int, list[int]]
    ends: dict[int, list[int]]
    labels: list[str]
    targets: frozenset[int]
    sources: frozenset[int]


class Plan:
    """A graph on hosts: who runs which rank, and where data lands."""

    def __init__(self, made: Schedule, rank_of: list[int]) -> None:
        self.schedule, self.rank_of = made, rank_of
        self.host_of = {rank: host for host, rank in enumerate(rank_of) if rank >= 0}
        sends = np.flatnonzero(made.kind == Op.SEND)
        sizes = made.work[sends].astype(np.int64)
        self.longest = int(sizes.max(initial=0))
        self.patterns = self.longest + PATTERNS
        # The messages that a rank receives lie one after another.
        target = made.peer[sends]
        order = np.argsort(target, kind="stable")
        ends = np.cumsum(sizes[order])
        first = np.searchsorted(target[order], np.arange(made.ranks))
        before = np.concatenate([[0], ends])[first]
        self.offset = np.zeros(len(made), np.int64)
        self.offset[sends[order]] = self.patterns + ends - sizes[order] - before[target[order]]
        received = np.bincount(target, sizes, made.ranks)
        self.memory = self.patterns + int(received.max(initial=0))
        self.most_messages = int(made.message.max(initial=-1)) + 1
        self.targets: dict[int, set[int]] = {}
        self.sources: dict[int, set[int]] = {}
        for src, dst in zip(made.flow_src.tolist(), made.flow_dst.tolist(), strict=True):
            self.targets.setdefault(src, set()).add(self.host_of[dst])
            self.sources.setdefault(dst, set()).add(self.host_of[src])

    def peers(self, host: int) -> set[int]:
        """Return the hosts to which a host writes: data, or that it has ended."""
        rank = self.rank_of[host]
        return self.targets.get(rank, set()) | self.sources.get(rank, set())

    def program(self, host: int) -> RankProgram:
        """Return what a host runs."""
        made, rank = self.schedule, self.rank_of[host]
        ops = np.flatnonzero(made.rank == rank)
        own = {op: number for number, op in enumerate(ops.tolist())}
        kind = made.kind[ops]
        origin, heads = made.after(ops)
        after: list[list[int]] = [[] for _ in own]
        for number, head in zip(origin.tolist(), heads.tolist(), strict=True):
            if head in own:
                after[number].append(own[head])
        # Its data are those of the send, whose slot is at this rank.
        messages = np.where(kind == Op.RECEIVE, made.sent[ops], ops)
        flow = made.unit[messages]
        begins: dict[int, list[int]] = {}
        ends: dict[int, list[int]] = {}
        labels: list[str] = []
        for span in np.flatnonzero(made.rank[made.span_begin] == rank).tolist():
            begins.setdefault(own[int(made.span_begin[span])], []).append(len(labels))
            ends.setdefault(own[int(made.span_end[span])], []).append(len(labels))
            labels.append(made.labels[int(made.span_label[span])])
        peers = [self.host_of.get(peer, -1) for peer in made.peer[ops].tolist()]
        return RankProgram(
            kind.tolist(), np.where(kind == Op.RECEIVE, made.work[messages], made.work[ops]).astype(int).tolist(),
            made.unit[ops].tolist(), made.counts[ops].tolist(), peers, made.message[ops].tolist(),
            (flow * 31 + made.message[ops] + 1).tolist(), self.offset[messages].tolist(), after,
            made.needs[ops].tolist(), begins, ends, labels,
            frozenset(self.targets.get(rank, ())), frozenset(self.sources.get(rank, ())),
        )  # fmt: skip


#: The latest plan; all ranks of a process ask for the same one.
_plans: dict[tuple[TraceParameters, int], Plan] = {}


def _plan(size: int, params: TraceParameters, fresh: bool = False) -> Plan:
    """Return the graph of these parameters on this many hosts; `fresh`: after a look at its file.

    Raises:
        WorkloadError: there is none.
    """
    key = (replace(params, iterations=1), size)
    if fresh or key not in _plans:
        source = source_of(params)
        try:
            made = schedule(source)
            old = _plans.get(key)
            if old is not None and old.schedule is made:
                return old
            rank_of = hosts_of(source, made.ranks, size).tolist()
        except GraphError as error:
            raise WorkloadError(f"workload trace: {error}") from error
        _plans.clear()
        _plans[key] = Plan(made, rank_of)
    return _plans[key]


class Trace(Workload[TraceParameters]):
    """Parameters: see `mrc_host.graph.source.Source`; `iterations`, how often the graph runs."""

    name = "trace"
    title = "A graph of operations: a Chakra trace, a GOAL schedule, or a generated step of training (`mrc_host.graph`)"
    parameters = TraceParameters
    files = frozenset({"file", "groups"})

    def __init__(self, rank: int, size: int, params: TraceParameters, channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        plan = _plan(size, params)
        program = self.program = plan.program(rank)
        self.write_pattern(0, plan.patterns, 0)
        self.computed_ns = 0
        self.exposed = Distribution()
        self.operations = {label: Distribution() for label in program.labels}
        self.ends_ns: deque[int] = deque(maxlen=ENDS)
        self._receives = {
            (program.peer[op], program.message[op]): op for op, kind in enumerate(program.kind) if kind == Op.RECEIVE
        }
        #: Messages of the next iteration that have come, and after how many iterations peers have ended.
        self._early: list[tuple[int, int]] = []
        self._ended = dict.fromkeys(program.targets, 0)
        self._needs: list[int] = []
        self._left = 0
        self._since: dict[int, int] = {}
        #: By unit: the computation under way and its end, and those that wait.
        self._computing: dict[int, tuple[int, int]] = {}
        #: When the rank is woken for each unit; each has one alarm at a time.
        self._alarms: dict[int, int] = {}
        self._waiting: dict[int, deque[int]] = {}
        self._counting = self._busy_since = self._busy_ns = 0
        self._told = self._gated = False
        #: Receives whose message has not come yet.
        self._missing: set[int] = set()

    @classmethod
    def complete(cls, params: object) -> TraceParameters:
        full = super().complete(params)
        for each in fields(TraceParameters):
            value = getattr(full, each.name)
            if isinstance(each.default, str) and not (
                isinstance(value, str) and len(value) <= 4096 and value.isprintable()
            ):
                raise WorkloadError(f"workload {cls.name}: {each.name} must be a text, not {value!r:.60}")
        return full

    @classmethod
    def notes(cls, params: TraceParameters) -> Sequence[str]:
        return load(source_of(params)).notes

    @classmethod
    def plan(cls, size: int, params: TraceParameters) -> int:
        made = _plan(size, params, fresh=True)
        if made.most_messages >= MAX_MESSAGES:
            raise WorkloadError(
                f"workload {cls.name}: {made.most_messages} messages between two ranks, {MAX_MESSAGES - 1} at most"
            )
        try:
            return super().plan(size, params)
        except WorkloadError as error:
            raise WorkloadError(f"{error}; raise bytes_divisor") from None

    @classmethod
    def memory_bytes(cls, size: int, params: TraceParameters) -> int:
        return _plan(size, params).memory

    @classmethod
    def peers(cls, rank: int, size: int, params: TraceParameters) -> set[int]:
        return _plan(size, params).peers(rank)

    # -- an iteration ----------------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        program = self.program
        self._needs = list(program.needs)
        self._left = len(program.kind)
        self._busy_ns = 0
        self._missing = set(self._receives.values())
        self._told = False
        self._gated = True
        self._open(now)

    def _open(self, now: int) -> None:
        """Begin when those to which this rank sends have ended the iteration before."""
        count = self.progress.iterations
        if self._gated and all(ended >= count for ended in self._ended.values()):
            self._gated = False
            ready = [op for op, needs in enumerate(self._needs) if not needs]
            early, self._early = self._early, []
            self._go(ready, now)
            for key in early:
                self._arrive(self._receives[key], now)
            self._end(now)

    def _go(self, ready: list[int], now: int) -> None:
        """Begin operations, and all that follow from those that end at once."""
        program, work = self.program, deque(ready)
        while work:
            op = work.popleft()
            for span in program.begins.get(op, ()):
                self._since[span] = now
            kind = program.kind[op]
            if kind == Op.SEND:
                self._send(op)
            elif kind == Op.COMPUTE and program.work[op]:
                self._compute(op, now)
            else:
                work.extend(self._over(op, now))

    def _over(self, op: int, now: int) -> list[int]:
        """Note the end of an operation; return which can begin."""
        program = self.program
        self._left -= 1
        for span in program.ends.get(op, ()):
            self.operations[program.labels[span]].add(now - self._since.pop(span))
        ready = []
        for head in program.after[op]:
            self._needs[head] -= 1
            if not self._needs[head]:
                ready.append(head)
        return ready

    def _send(self, op: int) -> None:
        program, count = self.program, self.progress.iterations
        imm = count % ITERATIONS << ITERATION_SHIFT | program.message[op]
        own = pattern_at(self._seed(op)) if self.has_data else 0
        self.put(program.peer[op], own, program.offset[op], program.work[op], tag=op, imm=imm)

    def _seed(self, op: int) -> int:
        return self.progress.iterations * 65537 + self.program.seed[op]

    def _compute(self, op: int, now: int) -> None:
        unit = self.program.unit[op]
        if unit in self._computing:
            self._waiting.setdefault(unit, deque()).append(op)
            return
        until = now + self.program.work[op]
        self._computing[unit] = (op, until)
        if self.program.counts[op]:
            if not self._counting:
                self._busy_since = now
            self._counting += 1
        self._set_alarm(unit, until, now)

    def _set_alarm(self, unit: int, until: int, now: int) -> None:
        self._alarms[unit] = min(until, now + SLICE_NS)
        self.channel.wake(self._alarms[unit])

    def _computed(self, unit: int, now: int) -> None:
        """End the computation of a unit, and begin the one that waits for it."""
        op, _ = self._computing.pop(unit)
        if self.program.counts[op]:
            self._counting -= 1
            if not self._counting:
                self._busy_ns += now - self._busy_since
        ready = self._over(op, now)
        if self._waiting.get(unit):
            self._compute(self._waiting[unit].popleft(), now)
        self._go(ready, now)

    def woken(self, now: int) -> None:
        if self.running and not self._gated:
            for unit, (_, until) in sorted(self._computing.items()):
                if until <= now:
                    self._computed(unit, now)
                elif self._alarms[unit] <= now:
                    self._set_alarm(unit, until, now)
            self._end(now)

    def put_done(self, peer: int, tag: int, now: int) -> None:
        self.outstanding -= 1
        if not self.running:
            return
        if tag >= 0:
            self._go(self._over(tag, now), now)
        self._end(now)

    def arrived(self, peer: int, imm: int, now: int) -> None:
        if imm & ENDED:
            self._ended[peer] += 1
            if self.running:
                self._open(now)
            return
        key = (peer, imm & MAX_MESSAGES - 1)
        op = self._receives[key]
        # A sender begins the next iteration when this rank has ended its own, so no other one can be meant.
        count = imm >> ITERATION_SHIFT & ITERATIONS - 1
        own = self.progress.iterations
        seed = self.program.seed[op] + (own + (count - own) % ITERATIONS) * 65537
        self.check_pattern(self.program.offset[op], self.program.work[op], seed)
        if not self.running or self._gated or self._told:
            self._early.append(key)
            return
        self._arrive(op, now)
        self._end(now)

    def _arrive(self, op: int, now: int) -> None:
        self._missing.discard(op)
        self._needs[op] -= 1
        if not self._needs[op]:
            self._go([op], now)

    def _end(self, now: int) -> None:
        """End the iteration when all is over, and tell those that send to this rank, if another one can follow."""
        if self._left or self._gated or not self.running:
            return
        if not self._told:
            self._told = True
            self.ends_ns.append(now)
            self.computed_ns += self._busy_ns
            self.exposed.add(now - self._begun_ns - self._busy_ns)
            if self.progress.iterations + 1 < self.limit:
                for peer in sorted(self.program.sources):
                    self.put(peer, 0, 0, 0, tag=-1, imm=ENDED)
        if not self.outstanding:
            self.end_iteration(now)

    def advance(self, now: int) -> None:
        """Do nothing: each event goes on by itself."""

    # -- reports ---------------------------------------------------------------------------------------------

    def awaits(self) -> set[int]:
        if not self.running:
            return set()
        if self._gated:
            return {peer for peer, ended in self._ended.items() if ended < self.progress.iterations}
        return {self.program.peer[op] for op in self._missing if self._needs[op] == 1}

    def waits_for(self) -> str:
        if self._between:
            return super().waits_for()
        step = f"of iteration {self.progress.iterations}"
        if self._gated:
            return f"the ranks to which it sends to end the iteration before {step}"
        return f"{self._left} operations {step}, {len(self._computing)} of which are computations under way"

    def measured(self) -> Measured:
        """Return the times of iterations as those of training steps, and the times of operations of the graph."""
        told: Mapping[str, Any] = {name: times.summary() for name, times in self.operations.items() if times.count}
        training = TrainingTimes(list(self.ends_ns), self.computed_ns, told, self.exposed.summary())
        return replace(super().measured(), training=training)
