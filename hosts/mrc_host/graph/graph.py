"""A graph of operations: what each rank computes, sends, receives and takes part in, and what has to be over before.

Ranks that do the same share a `GraphProgram`, so that a step of thousands of GPUs is a few programs. A node's peers and
groups are those of each rank of its program. Times are ns, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

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
