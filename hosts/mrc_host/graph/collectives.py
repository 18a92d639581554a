"""Collectives as messages, for all groups of a set at once: arrays of shape `[group, member]`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mrc_host.graph.graph import CollectiveKind, Columns, Ints, Op


@dataclass(frozen=True)
class Lowering:
    """A collective of `size` bytes in groups of `members`, between the operations `begin` and `end` of each member;
    it is number `turn` of its set. `phase_ns`: see `schedule.lower`."""

    columns: Columns
    members: Ints
    begin: Ints
    end: Ints
    size: int
    phase_ns: float | None
    turn: int

    @property
    def count(self) -> int:
        """The members of a group."""
        return int(self.members.shape[1])


def split(size: int, parts: int) -> Ints:
    """Split bytes into parts, of which the first ones have one more where it does not go even."""
    small, more = divmod(size, parts)
    return np.array([small + (part < more) for part in range(parts)], np.int64)


def lower_collective(part: Lowering, kind: CollectiveKind) -> None:
    """Add the messages of a collective."""
    if part.count < 2:
        part.columns.edges(part.begin, part.end)
    else:
        _WAYS[kind](part)


def _ring(part: Lowering, steps: int, row: Callable[[int], Ints], total: Ints) -> None:
    """Pass data round: in step s member i sends `row(s)[i]` bytes to the next, after what came in the step before.

    `total`: what each member sends in all steps.
    """
    if part.phase_ns is not None:
        _phase(part, total, 1, steps)
        return
    columns, members = part.columns, part.members
    following, last = np.roll(members, -1, axis=1), part.begin
    sent = part.begin
    for step in range(steps):
        sent = columns.add(Op.SEND, members, np.broadcast_to(row(step), members.shape), peer=following)
        columns.edges(last, sent)
        got = columns.add(Op.RECEIVE, members, 0, peer=np.roll(members, 1, axis=1))
        columns.pair(np.roll(sent, 1, axis=1), got)
        columns.edges(last, got)
        last = got
    columns.edges(last, part.end)
    columns.edges(sent, part.end)


def _phase(part: Lowering, sizes: Ints, shift: int, steps: int) -> None:
    """Send all of a member's bytes as one message; the collective begins and ends at all members together."""
    columns, members = part.columns, part.members
    nowhere = np.full(len(members), -1, np.int64)
    begin = columns.joins(nowhere)
    end = columns.joins(nowhere, round((steps - 1) * (part.phase_ns or 0.0)))
    sent = columns.add(Op.SEND, members, np.broadcast_to(sizes, members.shape), peer=np.roll(members, -shift, axis=1))
    columns.edges(part.begin, np.broadcast_to(begin[:, None], members.shape))
    columns.edges(np.broadcast_to(begin[:, None], members.shape), sent)
    columns.edges(sent, np.broadcast_to(end[:, None], members.shape))
    columns.edges(np.broadcast_to(end[:, None], members.shape), part.end)


def _all_reduce(part: Lowering) -> None:
    """Reduce: member i begins with chunk i. Then gather: it begins with chunk i + 1, which it has reduced."""
    whole, member, half = split(part.size, part.count), np.arange(part.count), part.count - 1

    def row(step: int) -> Ints:
        first, done = (0, step) if step < half else (1, step - half)
        return whole[(member + first - done) % part.count]

    # In each half a member sends all chunks but one.
    total = 2 * part.size - whole[(member + 1) % part.count] - whole[(member + 2) % part.count]
    _ring(part, 2 * half, row, total)


def _reduce_scatter(part: Lowering) -> None:
    whole, member = split(part.size, part.count), np.arange(part.count)
    total = part.size - whole[(member + 1) % part.count]
    _ring(part, part.count - 1, lambda step: whole[(member - step) % part.count], total)


def _all_gather(part: Lowering) -> None:
    own = np.full(part.count, part.size, np.int64)
    _ring(part, part.count - 1, lambda step: own, own * (part.count - 1))


def _all_to_all(part: Lowering) -> None:
    """Send a block to each other member, all at once; beginning behind oneself spreads the load."""
    blocks, count = split(part.size, part.count), part.count
    if part.phase_ns is not None:
        _phase(part, np.full(count, part.size, np.int64) - blocks, 1 + part.turn % (count - 1), 1)
        return
    columns, members, member = part.columns, part.members, np.arange(count)
    for shift in range(1, count):
        sizes = blocks[(member + shift) % count]
        sent = columns.add(
            Op.SEND, members, np.broadcast_to(sizes, members.shape), peer=np.roll(members, -shift, axis=1)
        )
        got = columns.add(Op.RECEIVE, members, 0, peer=np.roll(members, shift, axis=1))
        columns.pair(np.roll(sent, shift, axis=1), got)
        for each in (sent, got):
            columns.edges(part.begin, each)
            columns.edges(each, part.end)


def _pass(part: Lowering, state: list[Ints], source: int, target: int, size: int) -> None:
    """Let one member send to another after what `state` says of both; `state` moves on."""
    columns, members = part.columns, part.members
    sent = columns.add(Op.SEND, members[:, source], size, peer=members[:, target])
    got = columns.add(Op.RECEIVE, members[:, target], 0, peer=members[:, source])
    columns.edges(state[source], sent)
    columns.edges(state[target], got)
    columns.pair(sent, got)
    columns.edges(sent, part.end[:, source])
    state[target] = got


def _rooted(part: Lowering, order: Callable[[list[Ints]], None]) -> None:
    state = [part.begin[:, member] for member in range(part.count)]
    order(state)
    for member, last in enumerate(state):
        part.columns.edges(last, part.end[:, member])


def _rounds(count: int) -> list[int]:
    return [1 << power for power in range((count - 1).bit_length())]


def _broadcast(part: Lowering) -> None:
    def order(state: list[Ints]) -> None:
        for distance in _rounds(part.count):
            for source in range(min(distance, part.count - distance)):
                _pass(part, state, source, source + distance, part.size)

    _rooted(part, order)


def _reduce(part: Lowering) -> None:
    def order(state: list[Ints]) -> None:
        for distance in reversed(_rounds(part.count)):
            for target in range(min(distance, part.count - distance)):
                _pass(part, state, target + distance, target, part.size)

    _rooted(part, order)


def _scatter(part: Lowering) -> None:
    def order(state: list[Ints]) -> None:
        for target, size in list(enumerate(split(part.size, part.count).tolist()))[1:]:
            _pass(part, state, 0, target, size)

    _rooted(part, order)


def _gather(part: Lowering) -> None:
    def order(state: list[Ints]) -> None:
        for source in range(1, part.count):
            _pass(part, state, source, 0, part.size)

    _rooted(part, order)


def _barrier(part: Lowering) -> None:
    """Tell members at distances that double; after the last one each knows of all."""
    columns, members, last = part.columns, part.members, part.begin
    for distance in _rounds(part.count):
        sent = columns.add(Op.SEND, members, 0, peer=np.roll(members, -distance, axis=1))
        got = columns.add(Op.RECEIVE, members, 0, peer=np.roll(members, distance, axis=1))
        columns.edges(last, sent)
        columns.edges(last, got)
        columns.pair(np.roll(sent, distance, axis=1), got)
        columns.edges(sent, part.end)
        last = got
    columns.edges(last, part.end)


_WAYS: dict[CollectiveKind, Callable[[Lowering], None]] = {
    CollectiveKind.ALL_REDUCE: _all_reduce,
    CollectiveKind.REDUCE: _reduce,
    CollectiveKind.ALL_GATHER: _all_gather,
    CollectiveKind.GATHER: _gather,
    CollectiveKind.SCATTER: _scatter,
    CollectiveKind.BROADCAST: _broadcast,
    CollectiveKind.ALL_TO_ALL: _all_to_all,
    CollectiveKind.REDUCE_SCATTER: _reduce_scatter,
    CollectiveKind.BARRIER: _barrier,
}
