"""The algorithms of collective operations, as generators that yield the transfers they wait for.

All ranks of a group get the same bits: each element is reduced in one order, at one place, and copied from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from mrc_torch.group import Group, Steps
from mrc_torch.link import Receive, Sink
from mrc_torch.numbers import Array, Reduce

#: Parts in which a tree hands a large message on.
PART_BYTES: Final = 1 << 18
#: Up to this many bytes per rank, latency counts more than the number of bytes sent.
SMALL_BYTES: Final = 1 << 14


def bytes_of(array: Array) -> memoryview:
    """Return the bytes of an array without gaps."""
    row: Any = array.reshape(-1).view(np.uint8)
    return memoryview(row)


def into(view: memoryview) -> tuple[int, Sink]:
    """Return the place that a message is copied to."""

    def sink(offset: int, payload: memoryview) -> None:
        view[offset : offset + len(payload)] = payload

    return len(view), sink


def onto(array: Array, reduce: Reduce) -> tuple[int, Sink]:
    """Return the place that a message is reduced into."""
    width = array.itemsize

    def sink(offset: int, payload: memoryview) -> None:
        block = np.frombuffer(payload, array.dtype)
        at = offset // width
        reduce(array[at : at + len(block)], block)

    return array.nbytes, sink


def even(length: int, parts: int) -> list[int]:
    """Return where `parts` parts of a length begin, and where the last one ends."""
    return [length * part // parts for part in range(parts + 1)]


def barrier(group: Group, number: int) -> Steps:
    """Synchronise all ranks by dissemination: after step k each rank has heard of 2^(k+1) ranks."""
    distance, step = 1, 0
    nothing = memoryview(bytearray())
    while distance < group.size:
        got = group.receive(number, step, (group.rank - distance) % group.size, *into(nothing))
        yield [got, group.send(number, step, (group.rank + distance) % group.size, nothing)]
        distance, step = 2 * distance, step + 1


def ring_reduce_scatter(group: Group, number: int, array: Array, bounds: Sequence[int], reduce: Reduce) -> Steps:
    """Leave the reduction of part r of the array in rank r; the other parts are used up."""
    size, rank = group.size, group.rank
    after, before = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        out, new = (rank - step - 1) % size, (rank - step - 2) % size
        got = group.receive(number, step, before, *onto(array[bounds[new] : bounds[new + 1]], reduce))
        yield [got, group.send(number, step, after, bytes_of(array[bounds[out] : bounds[out + 1]]))]


def ring_all_gather(group: Group, number: int, array: Array, bounds: Sequence[int], first: int = 0) -> Steps:
    """Send part r of the array, which rank r has, to all ranks; `first` is the number of the first step."""
    size, rank = group.size, group.rank
    after, before = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        out, new = (rank - step) % size, (rank - step - 1) % size
        got = group.receive(number, first + step, before, *into(bytes_of(array[bounds[new] : bounds[new + 1]])))
        yield [got, group.send(number, first + step, after, bytes_of(array[bounds[out] : bounds[out + 1]]))]


def ring_all_reduce(group: Group, number: int, array: Array, reduce: Reduce) -> Steps:
    """Reduce-scatter, then all-gather: each rank sends the array twice, less two parts."""
    bounds = even(len(array), group.size)
    yield from ring_reduce_scatter(group, number, array, bounds, reduce)
    yield from ring_all_gather(group, number, array, bounds, group.size)


def _children(group: Group, root: int) -> tuple[int | None, list[int]]:
    """Return the parent and children in a binomial tree, the children with the largest subtrees first."""
    size, relative = group.size, (group.rank - root) % group.size
    bit = 1
    while bit < size and not relative & bit:
        bit *= 2
    parent = None if relative == 0 else (relative - bit + root) % size
    children = []
    bit //= 2
    while bit:
        if relative + bit < size:
            children.append((relative + bit + root) % size)
        bit //= 2
    return parent, children


def tree_broadcast(group: Group, number: int, array: Array, root: int, first: int = 0) -> Steps:
    """Send the root's array down a binomial tree, part by part."""
    parent, children = _children(group, root)
    view = bytes_of(array)
    parts = [view[at : at + PART_BYTES] for at in range(0, len(view), PART_BYTES)] or [view]
    coming: list[Receive] = []
    if parent is not None:
        coming = [group.receive(number, first, parent, *into(part)) for part in parts]
    going = []
    for index, part in enumerate(parts):
        if coming:
            yield [coming[index]]
        going += [group.send(number, first, child, part) for child in children]
    yield going


def tree_reduce(group: Group, number: int, array: Array, root: int, reduce: Reduce) -> Steps:
    """Reduce up a binomial tree: the root's array becomes the reduction, the other arrays are overwritten."""
    parent, children = _children(group, root)
    for child in reversed(children):
        yield [group.receive(number, 0, child, *onto(array, reduce))]
    if parent is not None:
        yield [group.send(number, 0, parent, bytes_of(array))]


def tree_all_reduce(group: Group, number: int, array: Array, reduce: Reduce) -> Steps:
    """Reduce to rank 0, and broadcast from there."""
    yield from tree_reduce(group, number, array, 0, reduce)
    yield from tree_broadcast(group, number, array, 0, 1)


def direct(
    group: Group,
    number: int,
    outgoing: Callable[[int], memoryview | None],
    incoming: Callable[[int], memoryview | None],
) -> Steps:
    """Plan one message from each rank to each other rank.

    `outgoing` returns the part that is sent to a rank, `incoming` the part that is received from it; None: no message.
    """
    size, rank = group.size, group.rank
    transfers = []
    for distance in range(1, size):
        peer = (rank - distance) % size
        view = incoming(peer)
        if view is not None:
            transfers.append(group.receive(number, 0, peer, *into(view)))
    sends = []
    for distance in range(1, size):
        peer = (rank + distance) % size
        view = outgoing(peer)
        if view is not None:
            sends.append(group.send(number, 0, peer, view))
    yield [*transfers, *sends]
