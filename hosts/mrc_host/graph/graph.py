"""A graph of operations: what each rank computes, sends, receives and takes part in, and what has to be over before.

Ranks that do the same share a `GraphProgram`, so that a step of thousands of GPUs is a few programs. A node's peers and
groups are those of each rank of its program. Times are ns, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrc_topo.base.document import printable
from mrc_topo.base.errors import UsageError

Ints = NDArray[np.int64]

#: Ranks, nodes (over all ranks) and bytes of one operation above these are a mistake.
MAX_RANKS, MAX_NODES, MAX_SIZE, MAX_NS = 1 << 17, 1 << 23, 1 << 44, 1 << 53
#: Nodes that are read from files, and messages of a step that are lowered one by one.
MAX_READ, MAX_MESSAGES = 1 << 20, 1 << 23
#: Units of one rank that compute at the same time.
MAX_UNITS = 256


class CollectiveKind(Enum):
    """Collective operations, by their names in reports.

    The size of one is what each rank puts in: the vector of an all-reduce and of a reduce-scatter, the rank's own part
    of an all-gather and of a gather, all blocks together of an all-to-all. Of a broadcast and a scatter it is what the
    root puts in; the root is the first rank of the group.
    """

    ALL_REDUCE = "all_reduce"
    REDUCE = "reduce"
    ALL_GATHER = "all_gather"
    GATHER = "gather"
    SCATTER = "scatter"
    BROADCAST = "broadcast"
    ALL_TO_ALL = "all_to_all"
    REDUCE_SCATTER = "reduce_scatter"
    BARRIER = "barrier"


@dataclass(frozen=True)
class Node:
    """An operation of every rank of a program.

    `after`: numbers of nodes of the program that have to be over before; `after_start`: that have to have begun.
    `place`: where it is written, for errors.
    """

    after: Sequence[int] = ()
    after_start: Sequence[int] = ()
    place: str = ""


@dataclass(frozen=True)
class Compute(Node):
    """A computation; those of a rank and `unit` run one after another, in the order in which they become ready.

    `counts`: whether it is computation of the model. Others, such as transfers inside a node, take time, but what a
    rank waits for them is exposed communication, under their `label`.
    """

    ns: int = 0
    unit: int = 0
    label: str = "compute"
    counts: bool = True


@dataclass(frozen=True)
class Send(Node):
    """A message to another rank; `peers`: for each rank of the program."""

    peers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    size: int = 0
    tag: int = 0


@dataclass(frozen=True)
class Receive(Node):
    """A message from another rank; the k-th from a peer with a tag takes the k-th that it sends with it."""

    peers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    size: int = 0
    tag: int = 0


@dataclass(frozen=True)
class Collective(Node):
    """A collective operation in the rank's group of the set `groups`; a rank's k-th in a set is the group's k-th."""

    kind: CollectiveKind = CollectiveKind.ALL_REDUCE
    size: int = 0
    groups: str = "world"


@dataclass(frozen=True)
class GraphProgram:
    """What `ranks` do, all of them the same."""

    ranks: Ints
    nodes: Sequence[Node]


@dataclass(frozen=True)
class Graph:
    """Programs of all ranks, and sets of groups by name: rows of ranks, each rank in one row of a set at most; `notes`
    say what of a file is not used."""

    ranks: int
    programs: Sequence[GraphProgram]
    groups: Mapping[str, Ints]
    name: str = ""
    notes: Sequence[str] = ()

    @property
    def nodes(self) -> int:
        """How many operations all ranks have."""
        return sum(len(each.ranks) * len(each.nodes) for each in self.programs)


def one(rank: int) -> Ints:
    """Return an array of one rank, as `GraphProgram.ranks` and `Send.peers` have it."""
    return np.array([rank], np.int64)


class GraphError(UsageError):
    """A trace or a generator's parameters that make no graph; the text names file, place and remedy."""


def at(place: str, text: str) -> GraphError:
    """Return an error at a place of a file; what strangers wrote is made printable."""
    return GraphError(printable(f"{place}: {text}")[:600])


class Op(IntEnum):
    """Kind of an operation of a schedule; JOIN waits for its predecessors, and then for its `work` in ns."""

    COMPUTE = 0
    SEND = 1
    RECEIVE = 2
    JOIN = 3


class Columns:
    """Columns of operations; `finish` makes arrays of them."""

    def __init__(self) -> None:
        self._count = 0
        self._rows: dict[str, list[Ints]] = {name: [] for name in ("kind", "rank", "work", "unit", "counts", "peer")}
        self._tails: list[Ints] = []
        self._heads: list[Ints] = []
        self._pairs: list[tuple[Ints, Ints]] = []
        self._labels: dict[str, int] = {}
        self._spans: list[tuple[int, Ints, Ints]] = []

    def __len__(self) -> int:
        return self._count

    def add(
        self, kind: Op, rank: Ints, work: int | Ints, *, unit: Ints | None = None, peer: Ints | None = None,
        counts: bool = False,
    ) -> Ints:  # fmt: skip
        """Add operations of one kind, one for each rank, in the shape of `rank`; return their numbers."""
        flat = rank.ravel()
        none = np.full(len(flat), -1, np.int64)
        columns = {
            "kind": np.full(len(flat), int(kind), np.int64),
            "rank": flat,
            "work": np.broadcast_to(np.asarray(work, np.int64), rank.shape).ravel(),
            "unit": none if unit is None else unit.ravel(),
            "counts": np.full(len(flat), int(counts), np.int64),
            "peer": none if peer is None else peer.ravel(),
        }
        for name, values in columns.items():
            self._rows[name].append(values)
        made = np.arange(self._count, self._count + len(flat))
        self._count += len(flat)
        return made.reshape(rank.shape)

    def joins(self, rank: Ints, work: int = 0) -> Ints:
        """Add operations that wait for their predecessors."""
        return self.add(Op.JOIN, rank, work)

    def edges(self, before: Ints, after: Ints) -> None:
        """Let each of `after` wait for the one of `before` at its place."""
        self._tails.append(before.ravel())
        self._heads.append(after.ravel())

    def pair(self, sends: Ints, receives: Ints) -> None:
        """Let each receive take the message of the send at its place."""
        self._pairs.append((sends.ravel(), receives.ravel()))
        self.edges(sends, receives)

    def span(self, label: str, begin: Ints, end: Ints) -> None:
        """Name what is between two operations of a rank."""
        number = self._labels.setdefault(label, len(self._labels))
        self._spans.append((number, begin.ravel(), end.ravel()))

    def finish(self, ranks: int, units: int) -> dict[str, Any]:
        """Return the fields of a `Schedule`."""
        made = {name: _joined(rows) for name, rows in self._rows.items()}
        count = self._count
        kind, peer = made["kind"], made["peer"]
        sends = np.flatnonzero(kind == Op.SEND)
        pairs = made["rank"][sends] * max(ranks, 1) + peer[sends]
        flows, flow = np.unique(pairs, return_inverse=True)
        made["unit"][sends] = flow.ravel()
        message, sent = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        order = np.argsort(flow.ravel(), kind="stable")
        first = np.searchsorted(flow.ravel()[order], np.arange(len(flows)))
        message[sends[order]] = np.arange(len(sends)) - first[flow.ravel()[order]]
        for one, other in self._pairs:
            sent[other] = one
            message[other] = message[one]
        tails, heads = _joined(self._tails), _joined(self._heads)
        by_tail = np.argsort(tails, kind="stable")
        return {
            "ranks": ranks,
            "kind": kind.astype(np.uint8),
            "rank": made["rank"].astype(np.int32),
            "work": made["work"].astype(np.float64),
            "unit": made["unit"].astype(np.int32),
            "units": ranks * units,
            "counts": made["counts"].astype(bool),
            "peer": peer.astype(np.int32),
            "message": message.astype(np.int32),
            "sent": sent,
            "first": np.concatenate([[0], np.cumsum(np.bincount(tails, minlength=count))]).astype(np.int64),
            "heads": heads[by_tail],
            "needs": np.bincount(heads, minlength=count).astype(np.int32),
            "flow_src": (flows // max(ranks, 1)).astype(np.int32),
            "flow_dst": (flows % max(ranks, 1)).astype(np.int32),
            "labels": list(self._labels),
            "span_label": np.repeat(
                np.array([row[0] for row in self._spans], np.uint8), [len(row[1]) for row in self._spans]
            ),
            "span_begin": _joined([row[1] for row in self._spans]),
            "span_end": _joined([row[2] for row in self._spans]),
        }


def _joined(rows: list[Ints]) -> Ints:
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)
