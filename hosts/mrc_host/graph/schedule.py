"""A graph lowered to what engines run: operations of ranks as columns, messages between them, and who waits for whom.

Both models run the same lowering. Collectives become messages: rings for all-reduce, reduce-scatter and all-gather, all
pairs at once for an all-to-all, a binomial tree for broadcast and reduce, dissemination for a barrier, and messages
from or to the root for scatter and gather. With `phase_ns` rings and all-to-alls are one message per rank instead, of
all of the rank's bytes: for engines that cannot carry each step of each ring of thousands of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mrc_host.graph.collectives import Lowering, lower_collective
from mrc_host.graph.graph import (
    MAX_MESSAGES,
    MAX_NODES,
    MAX_NS,
    MAX_RANKS,
    MAX_SIZE,
    MAX_UNITS,
    Collective,
    CollectiveKind,
    Columns,
    Compute,
    Graph,
    GraphError,
    Ints,
    Node,
    Op,
    Receive,
    Send,
    at,
)

__all__ = ["Op", "Schedule", "lower", "message_count"]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Operations as columns.

    `rank`: whose (-1: of a whole group); `work`: ns of a COMPUTE or JOIN, bytes of a SEND; `unit`: which computation
    unit of all ranks (COMPUTE) or which flow (SEND) carries it, one after another; `counts`: whether it is computation
    of the model; `peer`: of a SEND or RECEIVE; `message`: its number in its flow; `sent`: of a RECEIVE, the SEND.
    Successors of operation i are `heads[first[i]:first[i + 1]]`, `needs` is how many predecessors one has.
    Operations from `span_begin` to `span_end` are one of the graph, called `labels[span_label]`.
    """

    ranks: int
    kind: NDArray[np.uint8]
    rank: NDArray[np.int32]
    work: NDArray[np.float64]
    unit: NDArray[np.int32]
    units: int
    counts: NDArray[np.bool_]
    peer: NDArray[np.int32]
    message: NDArray[np.int32]
    sent: Ints
    first: Ints
    heads: Ints
    needs: NDArray[np.int32]
    flow_src: NDArray[np.int32]
    flow_dst: NDArray[np.int32]
    labels: Sequence[str]
    span_label: NDArray[np.uint8]
    span_begin: Ints
    span_end: Ints

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def sends(self) -> Ints:
        """All messages."""
        return np.flatnonzero(self.kind == Op.SEND)

    def after(self, ops: Ints) -> tuple[Ints, Ints]:
        """Return all edges from these operations: positions in `ops`, and successors."""
        begin = self.first[ops]
        count = self.first[ops + 1] - begin
        origin = np.repeat(np.arange(len(ops)), count)
        offset = np.arange(len(origin)) - np.repeat(np.cumsum(count) - count, count)
        return origin, self.heads[begin[origin] + offset]


def lower(graph: Graph, phase_ns: float | None = None) -> Schedule:
    """Return the schedule of a graph. `phase_ns`: rings and all-to-alls as one message per rank, and this time for each
    of their further steps.

    Raises:
        GraphError: the graph cannot run: a rank is missing, a message or collective has no counterpart, or operations
            wait for each other in a circle.
    """
    _check(graph)
    if phase_ns is None and (count := message_count(graph)) > MAX_MESSAGES:
        raise GraphError(
            f"{graph.name}: {count} messages in a step, {MAX_MESSAGES} at most; use fewer ranks, or mrclab replay, "
            "which takes phases of collectives"
        )
    columns = Columns()
    places: list[tuple[int, int, Ints, Node]] = []
    messages = _Messages()
    joined: dict[str, list[tuple[Ints, Collective, Ints, Ints]]] = {name: [] for name in graph.groups}
    units = 1 + max(
        (node.unit for program in graph.programs for node in program.nodes if isinstance(node, Compute)), default=0
    )
    for program in graph.programs:
        _program(program.ranks, program.nodes, columns, units, messages, joined, places)
    messages.match(columns, places)
    for name, rows in joined.items():
        _collectives(graph, name, rows, columns, phase_ns)
    made = columns.finish(graph.ranks, units)
    schedule = Schedule(**made)
    _acyclic(schedule, places, graph.name)
    return schedule


def _check(graph: Graph) -> None:
    """Check numbers of ranks and nodes, and that each rank has one program and one place in a set of groups."""
    if not 1 <= graph.ranks <= MAX_RANKS:
        raise GraphError(f"{graph.name}: {graph.ranks} ranks; from 1 to {MAX_RANKS} can be run")
    if graph.nodes > MAX_NODES:
        raise GraphError(f"{graph.name}: {graph.nodes} operations, {MAX_NODES} at most; use fewer ranks or steps")
    taken = np.concatenate([each.ranks for each in graph.programs]) if graph.programs else np.zeros(0, np.int64)
    missing = np.setdiff1d(np.arange(graph.ranks), taken)
    if len(missing):
        raise GraphError(
            f"{graph.name}: rank {missing[0]} of {graph.ranks} has no operations; give one file or block each"
        )
    if len(taken) > graph.ranks:
        raise GraphError(f"{graph.name}: a rank is given twice, or is beyond the last, {graph.ranks - 1}")
    for name, rows in graph.groups.items():
        flat = rows.ravel()
        if len(np.unique(flat)) < len(flat) or (len(flat) and not 0 <= flat.min() <= flat.max() < graph.ranks):
            raise GraphError(
                f"{graph.name}: group '{name}': a rank is in it twice, or is not from 0 to {graph.ranks - 1}"
            )


class _Messages:
    """Messages of the graph's own, until senders and receivers are matched."""

    def __init__(self) -> None:
        self.rows: dict[bool, list[tuple[Ints, Ints, Ints, int, int, int]]] = {True: [], False: []}

    def add(self, sends: bool, ops: Ints, own: Ints, node: Send | Receive, number: int) -> None:
        """Add the messages of a node, one for each rank of its program."""
        self.rows[sends].append((ops, own, node.peers, node.tag, node.size, number))

    def _columns(self, sends: bool) -> tuple[Ints, ...]:
        rows = self.rows[sends]
        if not rows:
            return tuple(np.zeros(0, np.int64) for _ in range(6))
        ops, own, peers = (np.concatenate([row[i] for row in rows]) for i in range(3))
        tag, size, number = (np.repeat([row[i] for row in rows], [len(row[0]) for row in rows]) for i in (3, 4, 5))
        src, dst = (own, peers) if sends else (peers, own)
        order = np.lexsort((ops, tag, dst, src))
        return tuple(each[order] for each in (src, dst, tag, ops, size, number))

    def match(self, columns: Columns, places: list[tuple[int, int, Ints, Node]]) -> None:
        """Connect each receive with its send: the k-th of the same ranks and tag.

        Raises:
            GraphError: one has no counterpart, or is too short; names the first.
        """
        sent, got = self._columns(True), self._columns(False)
        keys = [np.stack(each[:3], axis=1) for each in (sent, got)]
        common = min(map(len, keys))
        differ = np.flatnonzero((keys[0][:common] != keys[1][:common]).any(axis=1))
        at_row = int(differ[0]) if len(differ) else common
        if at_row < max(map(len, keys)):
            # The smaller key of the two is the one that the other side lacks.
            here = [tuple(key[at_row]) if at_row < len(key) else None for key in keys]
            of_send = here[1] is None or (here[0] is not None and here[0] < here[1])
            row = sent if of_send else got
            src, dst, tag = (int(each[at_row]) for each in row[:3])
            what = "is sent and not received" if of_send else "is received and not sent"
            text = f"a message from rank {src} to rank {dst} with tag {tag} {what}; each needs its counterpart"
            raise at(places[int(row[5][at_row])][3].place, text)
        short = np.flatnonzero(got[4] < sent[4])
        if len(short):
            which = int(short[0])
            text = (
                f"receives {got[4][which]} bytes, of which rank {got[0][which]} sends {sent[4][which]}; make them equal"
            )
            raise at(places[int(got[5][which])][3].place, text)
        columns.pair(sent[3], got[3])


def _node_checked(node: Node, ranks: Ints) -> None:
    """Check the numbers of a node."""
    if isinstance(node, Compute):
        if not (0 <= node.ns <= MAX_NS and 0 <= node.unit < MAX_UNITS):
            raise at(node.place, f"{node.ns} ns on unit {node.unit}: from 0 to {MAX_NS} ns and units below {MAX_UNITS}")
    elif isinstance(node, Send | Receive | Collective):
        if not 0 <= node.size <= MAX_SIZE:
            raise at(node.place, f"{node.size} bytes: from 0 to {MAX_SIZE} can be sent at a time")
        if isinstance(node, Send | Receive) and (node.peers == ranks).any():
            raise at(node.place, "a rank sends to itself; leave the message out")


def _program(
    ranks: Ints, nodes: Sequence[Node], columns: Columns, units: int, messages: _Messages,
    joined: dict[str, list[tuple[Ints, Collective, Ints, Ints]]], places: list[tuple[int, int, Ints, Node]],
) -> None:  # fmt: skip
    """Add the operations of a program."""
    started = {number for node in nodes for number in node.after_start}
    begins: list[Ints] = []
    ends: list[Ints] = []
    for number, node in enumerate(nodes):
        _node_checked(node, ranks)
        base = len(columns)
        if isinstance(node, Collective):
            if node.groups not in joined:
                raise at(node.place, f"no group '{node.groups}'; known: {', '.join(sorted(joined)) or 'none'}")
            begin, end = columns.joins(ranks), columns.joins(ranks)
            joined[node.groups].append((ranks, node, begin, end))
            columns.span(node.kind.value, begin, end)
        else:
            waits = columns.joins(ranks) if number in started else None
            if isinstance(node, Compute):
                end = columns.add(Op.COMPUTE, ranks, node.ns, unit=ranks * units + node.unit, counts=node.counts)
                if not node.counts:
                    columns.span(node.label, end, end)
            elif isinstance(node, Send | Receive):
                sends = isinstance(node, Send)
                kind = Op.SEND if sends else Op.RECEIVE
                end = columns.add(kind, ranks, node.size if sends else 0, peer=node.peers)
                messages.add(sends, end, ranks, node, len(places))
                if sends:
                    columns.span("send_recv", end, end)
            else:
                raise TypeError(f"no operation: {type(node).__name__}")
            begin = end if waits is None else waits
            if waits is not None:
                columns.edges(waits, end)
        places.append((base, len(columns), ranks, node))
        begins.append(begin)
        ends.append(end)
    for number, node in enumerate(nodes):
        for others, of in ((node.after, ends), (node.after_start, begins)):
            for other in others:
                if not 0 <= other < len(nodes):
                    raise at(node.place, f"waits for operation {other}, which is not there")
                columns.edges(of[other], begins[number])


def _collectives(
    graph: Graph, name: str, rows: Sequence[tuple[Ints, Collective, Ints, Ints]], columns: Columns,
    phase_ns: float | None,
) -> None:  # fmt: skip
    """Lower the collectives of a set of groups, all first ones together, then all second ones, and so on."""
    if not rows:
        return
    count = np.zeros(graph.ranks, np.int64)
    turns: list[list[tuple[Ints, Collective, Ints, Ints]]] = []
    for row in rows:
        mine = count[row[0]]
        count[row[0]] += 1
        for turn in np.unique(mine):
            while len(turns) <= turn:
                turns.append([])
            chosen = mine == turn
            turns[turn].append((row[0][chosen], row[1], row[2][chosen], row[3][chosen]))
    members = graph.groups[name]
    lonely = np.setdiff1d(np.flatnonzero(count), members.ravel())
    if len(lonely):
        raise GraphError(f"{graph.name}: rank {lonely[0]} takes part in '{name}' and is in none of its groups")
    uneven = np.flatnonzero((count[members] != count[members][:, :1]).any(axis=1))
    if len(uneven):
        some = members[uneven[0]]
        most = int(some[np.argmax(count[some])])
        least = int(some[np.argmin(count[some])])
        raise GraphError(
            f"{graph.name}: in group '{name}' rank {most} has {count[most]} collectives, rank {least} "
            f"has {count[least]}; all ranks of a group take part in each"
        )
    kinds = list(CollectiveKind)
    for number, turn in enumerate(turns):
        begin, end = np.full(graph.ranks, -1, np.int64), np.full(graph.ranks, -1, np.int64)
        what, size = np.zeros(graph.ranks, np.int64), np.zeros(graph.ranks, np.int64)
        for ranks, node, first, last in turn:
            begin[ranks], end[ranks] = first, last
            what[ranks], size[ranks] = kinds.index(node.kind), node.size
        here = members[begin[members[:, 0]] >= 0]
        other = np.argwhere((what[here] != what[here][:, :1]) | (size[here] != size[here][:, :1]))
        if len(other):
            rank, root = int(here[tuple(other[0])]), int(here[other[0][0], 0])
            node = next(node for ranks, node, _, _ in turn if rank in ranks)
            text = f"rank {rank} has {node.kind.value} of {node.size} bytes as number {number} in group '{name}', rank "
            raise at(node.place, f"{text}{root} {kinds[what[root]].value} of {size[root]}; they must be the same")
        for kind, nbytes in {(int(what[row[0]]), int(size[row[0]])) for row in here}:
            rows_here = here[(what[here[:, 0]] == kind) & (size[here[:, 0]] == nbytes)]
            part = Lowering(columns, rows_here, begin[rows_here], end[rows_here], nbytes, phase_ns, number)
            lower_collective(part, kinds[kind])


def _acyclic(schedule: Schedule, places: Sequence[tuple[int, int, Ints, Node]], name: str) -> None:
    """Check that everything can run, in any order that dependencies allow.

    Raises:
        GraphError: operations wait for each other; names one of them.
    """
    needs = schedule.needs.copy()
    ready = np.flatnonzero(needs == 0)
    done = 0
    while len(ready):
        done += len(ready)
        _, heads = schedule.after(ready)
        heads, count = np.unique(heads, return_counts=True)
        needs[heads] -= count
        ready = heads[needs[heads] == 0]
    if done < len(schedule):
        stuck = _in_circle(schedule, needs)
        for base, beyond, ranks, node in places:
            if base <= stuck < beyond:
                rank = int(ranks[(stuck - base) % len(ranks)])
                raise at(
                    node.place, f"rank {rank} waits in a circle of dependencies for this operation itself; break it"
                )
        raise GraphError(
            f"{name}: a collective waits in a circle of dependencies for itself; order the operations alike"
        )


def _in_circle(schedule: Schedule, needs: NDArray[np.int32]) -> int:
    """Return an operation of a circle; `needs` is above 0 for what is in one, or behind one."""
    tails = np.repeat(np.arange(len(schedule)), np.diff(schedule.first))
    inside = (needs[tails] > 0) & (needs[schedule.heads] > 0)
    before: dict[int, int] = dict(zip(schedule.heads[inside].tolist(), tails[inside].tolist(), strict=True))
    seen: set[int] = set()
    here = next(iter(before))
    while here not in seen:
        seen.add(here)
        here = before[here]
    return here


def message_count(graph: Graph) -> int:
    """Return about how many messages a graph has without `phase_ns`."""
    total = 0
    for program in graph.programs:
        for node in program.nodes:
            if isinstance(node, Send):
                total += len(program.ranks)
            elif isinstance(node, Collective):
                rows = graph.groups.get(node.groups)
                others = 0 if rows is None else max(rows.shape[1] - 1, 0)
                total += len(program.ranks) * others * (1 + (node.kind is CollectiveKind.ALL_REDUCE))
    return total
