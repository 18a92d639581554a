"""A connection matrix: flows of any size between any ranks, each from a time of its own; every byte verified.

A flow is one message. Its time is from when it starts until all of it is acknowledged at the requestor, as simulators
of transports define a flow's completion time.
"""

from __future__ import annotations

import abc
import bisect
import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from mrc_host.answers import FlowTimes, Measured
from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError
from mrc_host.workloads.flow_file import flow, read_flows

#: A message that names no flow: all data of an iteration has arrived and is read.
READ = (1 << 32) - 1
MAX_FLOWS = 1 << 20
#: Flows are written to addresses that keep the words of their patterns in place.
ALIGNMENT = 64


@dataclass(frozen=True)
class FlowsParameters(Parameters):
    """Parameters of `ConnectionMatrix`."""

    flows: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow: number in the list, ranks, bytes, start (ns after the iteration begins), offset at either end."""

    number: int
    source: int
    target: int
    bytes: int
    start_ns: int
    offset: int


class Matrix:
    """Flows by rank: those that it sends, by start, and those that come to it; and the bytes of each rank's region."""

    def __init__(self, size: int, flows: Sequence[Flow]) -> None:
        self.out: list[list[Flow]] = [[] for _ in range(size)]
        self.incoming: list[dict[int, Flow]] = [{} for _ in range(size)]
        for each in sorted(flows, key=lambda each: (each.start_ns, each.number)):
            self.out[each.source].append(each)
            self.incoming[each.target][each.number] = each
        self.peers = [
            {each.target for each in out} | {each.source for each in incoming.values()}
            for out, incoming in zip(self.out, self.incoming, strict=True)
        ]
        self.region_bytes = max(each.offset + each.bytes for each in flows)


F = TypeVar("F", bound=Parameters)


class FlowList(Workload[F]):
    """Flows from a list that all ranks have.

    A rank begins the next iteration when its flows are acknowledged, and the targets have read what they sent.
    """

    #: The parameters and ranks asked for last, and their flows: a rank asks for each of its peers, and to compare long
    #: lists costs more than all else.
    _last: ClassVar[tuple[object, int, Matrix] | None] = None

    @classmethod
    @abc.abstractmethod
    def listed(cls, size: int, params: F) -> Matrix:
        """Return the flows of this many ranks. Raises WorkloadError if they do not fit."""

    @classmethod
    def matrix(cls, size: int, params: F) -> Matrix:
        """Return the flows of this many ranks; see `listed`."""
        last = FlowList._last
        if last is None or last[0] is not params or last[1] != size:
            last = FlowList._last = params, size, cls.listed(size, params)
        return last[2]

    @classmethod
    def memory_bytes(cls, size: int, params: F) -> int:
        return cls.matrix(size, params).region_bytes

    @classmethod
    def peers(cls, rank: int, size: int, params: F) -> set[int]:
        return cls.matrix(size, params).peers[rank]

    def __init__(self, rank: int, size: int, params: F, channel: Channel, memory: memoryview) -> None:
        super().__init__(rank, size, params, channel, memory)
        every = self.matrix(size, params)
        self.out, self.incoming = every.out[rank], every.incoming[rank]
        self._out = {each.number: each for each in self.out}
        #: Whose flows come here, and to whom flows go: each tells the others once an iteration that it has read all.
        self._sources = sorted({each.source for each in self.incoming.values()})
        self._targets = sorted({each.target for each in self.out})
        self._started = 0
        self._acknowledged = 0
        self._arrived = 0
        self._read = dict.fromkeys(self._targets, 0)
        self._told = 0
        self.times: list[FlowTimes] = []

    def begin(self, now: int) -> None:
        self._started = self._acknowledged = 0
        for start in sorted({each.start_ns for each in self.out}):
            if start:
                self.channel.wake(now + start)
        self.advance(now)

    def _seed(self, flow: Flow, iteration: int) -> int:
        return (iteration << 16) + flow.number + 1

    def _start(self, flow: Flow) -> None:
        self.write_pattern(flow.offset, flow.bytes, self._seed(flow, self.progress.iterations))
        self.put(flow.target, flow.offset, flow.offset, flow.bytes, tag=flow.number, imm=flow.number)

    def put_done(self, peer: int, tag: int, now: int) -> None:
        if tag != READ:
            flow = self._out[tag]
            self._acknowledged += 1
            began = self._begun_ns + flow.start_ns
            self.times.append(FlowTimes(flow.number, flow.target, flow.bytes, began, now))
        super().put_done(peer, tag, now)

    def arrived(self, peer: int, imm: int, now: int) -> None:
        if imm == READ:
            self._read[peer] += 1
        else:
            flow = self.incoming[imm]
            self.check_pattern(flow.offset, flow.bytes, self._seed(flow, self._arrived // len(self.incoming)))
            self._arrived += 1
            if self.params.iterations > 1 and self._arrived // len(self.incoming) > self._told:
                # Only then may a source overwrite what is here; in a single iteration none does.
                self._told += 1
                for source in self._sources:
                    self.put(source, 0, 0, 0, tag=READ, imm=READ)
        if self.running:
            self.advance(now)

    def _missing(self) -> set[int]:
        """Return the ranks without which the iteration cannot end: whose data or whose answer has not come."""
        done = self.progress.iterations + 1
        unread = {peer for peer, count in self._read.items() if count < done and self.params.iterations > 1}
        short = self._arrived < done * len(self.incoming)
        return unread | (set(self._sources) if short else set())

    def awaits(self) -> set[int]:
        return self._missing() if self.running else set()

    def advance(self, now: int) -> None:
        while self._started < len(self.out) and self._begun_ns + self.out[self._started].start_ns <= now:
            self._started += 1
            self._start(self.out[self._started - 1])
        if self._acknowledged == len(self.out) and not self.outstanding and not self._missing():
            self.end_iteration(now)

    def measured(self) -> Measured:
        """Return the times of the flows that this rank sent, in the order of their ends."""
        return Measured(flows=list(self.times) or None)


class ConnectionMatrix(FlowList[FlowsParameters]):
    """Parameters: `flows`, a list of [source rank, target rank, bytes, start in ns] or a file with them, htsim's (.cm)
    or CSV; `iterations`, how often all of them are repeated. A start may be left out, and is then 0. What a user
    writes may have units (`2MB`, `1ms`).
    """

    name = "flows"
    title = "A connection matrix: flows of any size between any ranks, each from a time of its own; every byte verified"
    parameters = FlowsParameters

    @classmethod
    def texts(cls) -> set[str]:
        return {"flows"}

    @classmethod
    def placed(cls, params: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the parameters with the flows of the file that `flows` names, if it names one (`read_flows`)."""
        flows = params.get("flows")
        if isinstance(flows, str) and not flows.lstrip().startswith("["):
            return {**params, "flows": read_flows(folder / flows)}
        return dict(params)

    @classmethod
    def complete(cls, params: object) -> FlowsParameters:
        full = super().complete(params)
        if isinstance(full.flows, str):
            if not full.flows.lstrip().startswith("["):
                return full  # of an experiment's file, before `placed` has read what it names
            try:
                full = replace(full, flows=json.loads(full.flows))
            except ValueError as error:
                raise WorkloadError(f"workload {cls.name}: flows: {error}; write [[0,13,2000000,0]]") from None
        if not isinstance(full.flows, list | tuple):
            raise WorkloadError(f"workload {cls.name}: flows must be a list of flows, not {full.flows!r:.60}")
        if not 0 < len(full.flows) <= MAX_FLOWS:
            text = "flows is empty; give at least one [source, target, bytes, start_ns]"
            more = f"{len(full.flows)} flows are more than the {MAX_FLOWS} that a run may have; give fewer"
            raise WorkloadError(f"workload {cls.name}: {more if full.flows else text}")
        if any(isinstance(value, str) for row in full.flows if isinstance(row, list | tuple) for value in row):
            rows = enumerate(full.flows)
            full = replace(full, flows=[flow(f"workload {cls.name}: flow {number}", row) for number, row in rows])
        for number, row in enumerate(full.flows):
            where = f"flow {number}"
            if not isinstance(row, list | tuple) or len(row) not in (3, 4):
                raise WorkloadError(
                    f"workload {cls.name}: {where} must be [source, target, bytes] or [source, target, bytes, "
                    f"start_ns], not {row!r:.60}"
                )
            for what, value, least in zip(("source", "target", "bytes", "start_ns"), row, (0, 0, 1, 0), strict=False):
                cls.whole_number(f"{what} of {where}", value, least)
            if row[0] == row[1]:
                raise WorkloadError(f"workload {cls.name}: {where} goes from rank {row[0]} to itself; name two ranks")
        return full

    @classmethod
    def listed(cls, size: int, params: FlowsParameters) -> Matrix:
        if isinstance(params.flows, str):
            raise WorkloadError(f"workload {cls.name}: {params.flows!r:.60} names a file that was not read")
        check_ranks(cls.name, size, params.flows)
        return _matrix(size, _key(params))


def check_ranks(name: str, size: int, flows: Sequence[Sequence[int]]) -> None:
    """Check that there are as many ranks as flows name. Raises WorkloadError."""
    highest = max(max(row[0], row[1]) for row in flows)
    if highest >= size:
        number = next(number for number, row in enumerate(flows) if highest in row[:2])
        raise WorkloadError(
            f"workload {name}: flow {number} names rank {highest}, and there are {size}; use ranks from 0 to "
            f"{size - 1}, or more hosts"
        )


@lru_cache(maxsize=2)
def _matrix(size: int, flows: tuple[tuple[int, ...], ...]) -> Matrix:
    return Matrix(size, placed_flows(size, flows))


def _key(params: FlowsParameters) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, params.flows))


def placed_flows(size: int, flows: tuple[tuple[int, ...], ...]) -> list[Flow]:
    """Return all flows, each at the lowest offset that no flow before it uses at its source or its target."""
    used: list[list[tuple[int, int]]] = [[] for _ in range(size)]
    made = []
    for number, row in enumerate(flows):
        source, target, nbytes = row[:3]
        length = -(-nbytes // ALIGNMENT) * ALIGNMENT
        offset = 0
        for begin, end in heapq.merge(used[source], used[target]):
            if begin >= offset + length:
                break
            offset = max(offset, end)
        for rank in (source, target):
            _take(used[rank], offset, offset + length)
        made.append(Flow(number, source, target, nbytes, row[3] if len(row) == 4 else 0, offset))
    return made


def _take(used: list[tuple[int, int]], begin: int, end: int) -> None:
    """Add a range to sorted ones that do not overlap, and join it with its neighbours."""
    at = bisect.bisect(used, (begin, end))
    if at < len(used) and used[at][0] == end:
        end = used.pop(at)[1]
    if at and used[at - 1][1] == begin:
        at -= 1
        begin = used.pop(at)[0]
    used.insert(at, (begin, end))
