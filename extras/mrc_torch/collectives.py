"""Collective operations between programs on hosts, over the verbs: NumPy arrays, no torch.

    group = Collectives(FolderStore("/run/lab/job"), rank, size)
    group.all_reduce(array).wait()

Every operation returns a `Work` at once and is carried out in the order of the calls, which must be the same at all
ranks; messages between two ranks (`send`, `receive`) are matched by tag and wait for nothing else. An array must have
no gaps, and is the operation's until its work has ended. `kind` is the type of its elements, by default that of the
array; "bfloat16" is an array of uint16.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

from mrc_torch import algorithms
from mrc_torch.algorithms import SMALL_BYTES, bytes_of, even, into
from mrc_torch.group import Group, Steps
from mrc_torch.numbers import AVERAGE, SUM, Array, Reduce, divide, reduction, stored
from mrc_torch.stores import Store
from mrc_torch.work import Work

Algorithm = Literal["auto", "ring", "tree"]
ALGORITHMS: Final = ("auto", "ring", "tree")


def _flat(array: Array, kind: str | None = None, *, written: bool = False) -> Array:
    """Return an array as a row of elements, without a copy."""
    if not array.flags.c_contiguous:
        raise ValueError("the array has gaps (it is not C-contiguous); pass numpy.ascontiguousarray of it")
    if written and not array.flags.writeable:
        raise ValueError("the array is read-only, and the operation writes to it")
    if kind is not None and array.dtype != stored(kind):
        raise ValueError(f"an array of {array.dtype} holds no {kind}; that needs {stored(kind)}")
    return array.reshape(-1)


class Collectives:
    """See the module's docstring.

    Args:
        store: where the ranks meet (`FolderStore`, or a store of torch's); its keys are this group's alone.
        rank: this one's number, from 0.
        size: how many ranks there are.
        device: a host's name or the path of its agent's socket; None: `MRC_DEVICE`, which `mrclab exec` sets.
        timeout: seconds that an operation may take, and that a rank may take to come.

    Raises:
        CollectiveError: not all ranks came.
        VerbsError: there is no device, or it refuses something.
    """

    def __init__(
        self, store: Store, rank: int, size: int, *, device: str | None = None, timeout: float = 1800.0
    ) -> None:
        self.group = Group(store, rank, size, device=device, timeout=timeout)
        self.rank = rank
        self.size = size

    def close(self) -> None:
        """Leave the group. Sends of this rank are waited for; other operations under way end with ClosedError."""
        self.group.close()

    def __enter__(self) -> Collectives:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def error(self) -> BaseException | None:
        """What ended the group, if something has."""
        return self.group.error

    # -- all to all --------------------------------------------------------------------------------------------

    def all_reduce(
        self, array: Array, op: str = SUM, *, kind: str | None = None, algorithm: Algorithm = "auto"
    ) -> Work:
        """Reduce in place, with the same bits at all ranks.

        `auto` takes the tree up to 16 KiB a rank, and the ring above.
        """
        return self.all_reduce_coalesced([array], op, kind=kind, algorithm=algorithm)

    def all_reduce_coalesced(
        self, arrays: Sequence[Array], op: str = SUM, *, kind: str | None = None, algorithm: Algorithm = "auto"
    ) -> Work:
        """Reduce several arrays of one type as if they were one."""
        if not arrays:
            raise ValueError("all_reduce of no array")
        if algorithm not in ALGORITHMS:
            raise ValueError(f"no algorithm '{algorithm}'; known: {', '.join(ALGORITHMS)}")
        kind = kind or arrays[0].dtype.name
        rows = [_flat(array, kind, written=True) for array in arrays]
        reduce = self._reduction(op, kind)

        def steps(number: int) -> Steps:
            whole = rows[0] if len(rows) == 1 else np.concatenate(rows)
            small = whole.nbytes <= SMALL_BYTES * self.size
            if self.size > 1:
                if algorithm == "tree" or (algorithm == "auto" and small):
                    yield from algorithms.tree_all_reduce(self.group, number, whole, reduce)
                else:
                    yield from algorithms.ring_all_reduce(self.group, number, whole, reduce)
            if op == AVERAGE:
                divide(whole, self.size, kind)
            if len(rows) > 1:
                at = 0
                for row in rows:
                    row[:] = whole[at : at + len(row)]
                    at += len(row)

        return self.group.run("all_reduce", steps)

    def broadcast(self, array: Array, root: int = 0) -> Work:
        """Send the root's array to all ranks."""
        self._rank(root)
        row = _flat(array, written=self.rank != root)
        return self._run("broadcast", lambda number: algorithms.tree_broadcast(self.group, number, row, root))

    def all_gather(self, output: Array, array: Array) -> Work:
        """Gather the arrays of all ranks, of one size, one after the other."""
        counts = [array.size] * self.size
        return self.all_gather_parts(_split(_flat(output, written=True), counts, "output"), array)

    def all_gather_parts(self, outputs: Sequence[Array], array: Array) -> Work:
        """Gather the array of each rank into an array of its size; the sizes may differ."""
        own = _flat(array)
        rows = [_flat(output, written=True) for output in outputs]
        self._one_each(rows, "outputs")
        _same(rows[self.rank], own, "output", self.rank)

        def steps(number: int) -> Steps:
            rows[self.rank][:] = own
            if max(row.nbytes for row in rows) <= SMALL_BYTES:
                yield from self._direct(number, lambda _: bytes_of(own), lambda peer: bytes_of(rows[peer]))
            elif self.size > 1:
                bounds = [0, *np.cumsum([len(row) for row in rows]).tolist()]
                whole = np.empty(bounds[-1], own.dtype)
                whole[bounds[self.rank] : bounds[self.rank + 1]] = own
                yield from algorithms.ring_all_gather(self.group, number, whole, bounds)
                for rank, row in enumerate(rows):
                    row[:] = whole[bounds[rank] : bounds[rank + 1]]

        return self.group.run("all_gather", steps)

    def reduce_scatter(self, output: Array, array: Array, op: str = SUM, *, kind: str | None = None) -> Work:
        """Reduce the ranks' arrays, cut the result into equal parts, and make part r the output of rank r."""
        parts = _split(_flat(array), [output.size] * self.size, "input")
        return self.reduce_scatter_parts(output, parts, op, kind=kind)

    def reduce_scatter_parts(
        self, output: Array, arrays: Sequence[Array], op: str = SUM, *, kind: str | None = None
    ) -> Work:
        """Reduce the ranks' arrays number r to the output of rank r; sizes may differ by number."""
        kind = kind or output.dtype.name
        rows = [_flat(array, kind) for array in arrays]
        out = _flat(output, kind, written=True)
        self._one_each(rows, "inputs")
        _same(rows[self.rank], out, "input", self.rank)
        reduce = self._reduction(op, kind)

        def steps(number: int) -> Steps:
            bounds = [0, *np.cumsum([len(row) for row in rows]).tolist()]
            whole = np.concatenate(rows)
            if self.size > 1:
                yield from algorithms.ring_reduce_scatter(self.group, number, whole, bounds, reduce)
            out[:] = whole[bounds[self.rank] : bounds[self.rank + 1]]
            if op == AVERAGE:
                divide(out, self.size, kind)

        return self.group.run("reduce_scatter", steps)

    def all_to_all(self, output: Array, array: Array) -> Work:
        """Cut the array into equal parts; send part r to rank r, and receive part r of the output from there."""
        for row, name in ((output, "output"), (array, "input")):
            if row.size % self.size:
                raise ValueError(f"{row.size} elements of the {name} are not divisible by {self.size} ranks")
        bounds_out, bounds_in = even(output.size, self.size), even(array.size, self.size)
        out, own = _flat(output, written=True), _flat(array)
        return self.all_to_all_parts(
            [out[low:high] for low, high in itertools.pairwise(bounds_out)],
            [own[low:high] for low, high in itertools.pairwise(bounds_in)],
        )

    def all_to_all_parts(self, outputs: Sequence[Array], arrays: Sequence[Array]) -> Work:
        """Send array r to rank r, and receive output r from there."""
        rows = [_flat(array) for array in arrays]
        outs = [_flat(output, written=True) for output in outputs]
        self._one_each(rows, "inputs")
        self._one_each(outs, "outputs")
        _same(outs[self.rank], rows[self.rank], "output", self.rank)

        def steps(number: int) -> Steps:
            outs[self.rank][:] = rows[self.rank]
            yield from self._direct(number, lambda peer: bytes_of(rows[peer]), lambda peer: bytes_of(outs[peer]))

        return self.group.run("all_to_all", steps)

    def barrier(self) -> Work:
        """End when all ranks have called it."""
        return self._run("barrier", lambda number: algorithms.barrier(self.group, number))

    # -- to and from one rank ------------------------------------------------------------------------------------

    def reduce(self, array: Array, root: int = 0, op: str = SUM, *, kind: str | None = None) -> Work:
        """Reduce to the root's array; the other arrays stay as they are."""
        self._rank(root)
        kind = kind or array.dtype.name
        row = _flat(array, kind, written=self.rank == root)
        reduce = self._reduction(op, kind)

        def steps(number: int) -> Steps:
            used = row if self.rank == root else row.copy()
            yield from algorithms.tree_reduce(self.group, number, used, root, reduce)
            if op == AVERAGE and self.rank == root:
                divide(row, self.size, kind)

        return self.group.run("reduce", steps)

    def gather(self, outputs: Sequence[Array] | None, array: Array, root: int = 0) -> Work:
        """Gather the array of each rank at the root; `outputs` is None elsewhere."""
        self._rank(root)
        own = _flat(array)
        rows = [_flat(output, written=True) for output in self._at_root(outputs, root, "outputs")]
        if rows:
            _same(rows[root], own, "output", root)

        def steps(number: int) -> Steps:
            if self.rank == root:
                rows[root][:] = own
            yield from self._direct(
                number,
                lambda peer: bytes_of(own) if peer == root else None,
                lambda peer: bytes_of(rows[peer]) if self.rank == root else None,
            )

        return self.group.run("gather", steps)

    def scatter(self, output: Array, arrays: Sequence[Array] | None, root: int = 0) -> Work:
        """Give each rank its array of the root's; `arrays` is None elsewhere."""
        self._rank(root)
        out = _flat(output, written=True)
        rows = [_flat(array) for array in self._at_root(arrays, root, "inputs")]
        if rows:
            _same(rows[root], out, "input", root)

        def steps(number: int) -> Steps:
            if self.rank == root:
                out[:] = rows[root]
            yield from self._direct(
                number,
                lambda peer: bytes_of(rows[peer]) if self.rank == root else None,
                lambda peer: bytes_of(out) if peer == root else None,
            )

        return self.group.run("scatter", steps)

    def send(self, array: Array, rank: int, tag: int = 0) -> Work:
        """Send an array to a rank. It has ended when the array may change, not when it has arrived."""
        return self.group.message(f"send to rank {rank}", rank, tag, bytes_of(_flat(array)))

    def receive(self, array: Array, rank: int | None = None, tag: int = 0) -> Work:
        """Receive an array of that size from a rank, or (None) from any rank: `Work.source`."""
        where = into(bytes_of(_flat(array, written=True)))
        return self.group.message(f"receive from {'any rank' if rank is None else f'rank {rank}'}", rank, tag, where)

    # -- common parts --------------------------------------------------------------------------------------------

    def _run(self, name: str, steps: Callable[[int], Steps]) -> Work:
        return self.group.run(name, steps if self.size > 1 else lambda _: empty_iterator())

    def _direct(
        self,
        number: int,
        outgoing: Callable[[int], memoryview | None],
        incoming: Callable[[int], memoryview | None],
    ) -> Steps:
        return algorithms.direct(self.group, number, outgoing, incoming)

    def _reduction(self, op: str, kind: str) -> Reduce:
        made = reduction(op, kind)
        if op == AVERAGE and kind == "bool":
            raise ValueError("an average of bool is not defined")
        return made

    def _rank(self, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {rank} of a group of {self.size}; ranks count from 0")

    def _one_each(self, rows: Sequence[Array], name: str) -> None:
        if len(rows) != self.size:
            raise ValueError(f"{len(rows)} {name} for {self.size} ranks; one for each")

    def _at_root(self, arrays: Sequence[Array] | None, root: int, name: str) -> Sequence[Array]:
        if self.rank != root:
            if arrays:
                raise ValueError(f"{name} are given at rank {root}, the root, and only there")
            return []
        if arrays is None:
            raise ValueError(f"rank {root} is the root and gives no {name}")
        self._one_each(arrays, name)
        return arrays


def empty_iterator() -> Steps:
    """Return the steps of an operation in a group of one rank: there are none."""
    yield from ()


def _split(row: Array, counts: list[int], name: str) -> list[Array]:
    if len(row) != sum(counts):
        raise ValueError(f"the {name} has {len(row)} elements; {len(counts)} ranks need {sum(counts)}")
    bounds = [0, *np.cumsum(counts).tolist()]
    return [row[low:high] for low, high in itertools.pairwise(bounds)]


def _same(one: Array, other: Array, name: str, rank: int) -> None:
    if one.dtype != other.dtype or len(one) != len(other):
        raise ValueError(
            f"the {name} of rank {rank} has {len(one)} elements of {one.dtype}; needed: {len(other)} of {other.dtype}"
        )
