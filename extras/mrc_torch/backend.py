"""The backend `mrc` of torch.distributed: its interface on one side, `Collectives` on the other, and nothing between.

Errors: `wait` of a work raises. A future's callback raises, chained behind one whose result is always a value: an
exception that is set on a future of Python's is a value to the C++ of DDP, which ends the process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from mrc_torch import devices
from mrc_torch.callbacks import CALLBACKS
from mrc_torch.collectives import Collectives
from mrc_torch.errors import CollectiveError, RankSilentError
from mrc_torch.memory import array_of
from mrc_torch.numbers import Array, stored
from mrc_torch.silence import ANSWER_S
from mrc_torch.work import Work

NAME: Final = "mrc"
_P = ParamSpec("_P")
_R = TypeVar("_R")
_OPERATIONS: Final = (
    (dist.ReduceOp.SUM, "sum"),
    (dist.ReduceOp.AVG, "avg"),
    (dist.ReduceOp.PRODUCT, "product"),
    (dist.ReduceOp.MIN, "min"),
    (dist.ReduceOp.MAX, "max"),
    (dist.ReduceOp.BAND, "band"),
    (dist.ReduceOp.BOR, "bor"),
    (dist.ReduceOp.BXOR, "bxor"),
)


def _operation(op: Any) -> str:
    for known, name in _OPERATIONS:
        if op == known:
            return name
    raise ValueError(f"mrc has no reduction {op}; known: {', '.join(name for _, name in _OPERATIONS)}")


#: Above all tags that programs use; a number of its own for each monitored barrier.
_MONITORED: Final = 1 << 61


def _recorded(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a method a range of torch's profiler while that runs."""

    def decorated(method: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(method)
        def called(*arguments: _P.args, **options: _P.kwargs) -> _R:
            if not torch.autograd._profiler_enabled():
                return method(*arguments, **options)
            with torch.profiler.record_function(f"{NAME}:{name}"):
                return method(*arguments, **options)

        return called

    return decorated


class _Buffers:
    """Tensors as arrays that share their memory (`memory`).

    A tensor that has gaps, or is stored conjugated or negated, is copied; `back` copies the result back.
    """

    def __init__(self) -> None:
        self._copies: list[tuple[Tensor, Tensor]] = []

    def _dense(self, tensor: Tensor, written: bool) -> Tensor:
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise ValueError(f"mrc moves dense tensors of the CPU, not {tensor.layout} of {tensor.device}")
        tensor = tensor.detach()
        # The memory of a conjugated or negated view holds other values than the view.
        if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            return tensor
        copy = tensor.resolve_conj().resolve_neg().contiguous()
        if written:
            self._copies.append((tensor, copy))
        return copy

    def bytes(self, tensor: Tensor, *, written: bool = False) -> Array:
        """Return a tensor of any type as bytes."""
        return array_of(self._dense(tensor, written).view(-1), np.dtype(np.uint8))

    def numbers(self, tensor: Tensor, *, written: bool = False) -> tuple[Array, str]:
        """Return a tensor as an array of elements, and the name of their type."""
        row = self._dense(tensor, written).view(-1)
        kind = str(row.dtype).removeprefix("torch.")
        return array_of(row, stored(kind)), kind

    def back(self) -> None:
        """Copy results from temporary copies back into their tensors."""
        for tensor, copy in self._copies:
            tensor.copy_(copy)


class MrcWork(dist.Work):  # type: ignore[misc]  # torch is not looked at
    """Ends when all its works have; the first error is its own.

    Args:
        works: of `Collectives`.
        tensors: the result.
        then: done before it ends, if it ends well.
    """

    def __init__(self, works: Sequence[Work], tensors: list[Tensor], then: Callable[[], None]) -> None:
        super().__init__()
        self._works = list(works)
        self._tensors = tensors
        self._then = then
        self._left = len(self._works)
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._future: Future[Any] | None = None
        for work in self._works:
            work.before_others(self._one)
        if not self._works:
            self._end()

    def _one(self, work: Work) -> None:
        with self._lock:
            self._error = self._error or work.error
            self._left -= 1
            last = self._left == 0
        if last:
            self._end()

    def _end(self) -> None:
        if self._error is None:
            try:
                self._then()
            except Exception as error:  # noqa: BLE001 - of copying back; the waiting thread gets it
                self._error = error
        with self._lock:
            self._ended.set()
            future = self._future
        if future is not None:
            # Callbacks of a future run where its result is set, and may wait for what this thread has to do.
            CALLBACKS.submit(functools.partial(future.set_result, None))

    @_recorded("wait")
    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until it has ended well; raise otherwise. A timeout of 0 means for ever, as everywhere in torch."""
        seconds = timeout.total_seconds()
        if not self._ended.wait(seconds if seconds > 0 else None):
            raise RuntimeError(f"{', '.join(work.name for work in self._works)}: not ended within {seconds:g} s")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Return whether it has ended, well or not."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Return whether it has ended well."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error with which it ended."""
        return self._error

    def result(self) -> list[Tensor]:
        """Return the tensors of the result."""
        return self._tensors

    def synchronize(self) -> None:
        """Do as `wait`."""
        self.wait()

    def source_rank(self) -> int:
        """Return which rank sent what a receive from any rank got; -1 for other operations."""
        found = self._works[0].source if self._works else None
        return -1 if found is None else found

    _source_rank = source_rank

    def get_future(self) -> Future[Any]:
        """Return the operation's future; see the module's docstring."""
        with self._lock:
            base = self._future
            if base is None:
                base = self._future = Future()
                if self._ended.is_set():
                    base.set_result(None)
        return base.then(self._value)

    def _value(self, _: Future[Any]) -> list[Tensor]:
        if self._error is not None:
            raise self._error
        return self._tensors


class ProcessGroupMrc(dist.ProcessGroup):  # type: ignore[misc]
    """A group of torch.distributed over `Collectives`.

    A subclass of `ProcessGroup`, which is what torch lets Python derive from (`versions`); a renamed method has both
    names.
    """

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta = timedelta(minutes=30), *, device: str | None = None
    ) -> None:
        super().__init__(rank, size)
        self._rank_here = rank
        self._world = size
        self._name = ""
        self._description = ""
        self._monitored = 0
        self.collectives = Collectives(
            store, rank, size, device=device or devices.of_local_rank(), timeout=timeout.total_seconds()
        )

    # -- identity ------------------------------------------------------------------------------------------------

    def rank(self) -> int:
        """Return this rank's number in the group."""
        return self._rank_here

    def size(self) -> int:
        """Return the number of ranks in the group."""
        return self._world

    getRank = rank  # noqa: N815 - names that the C++ side looks for
    getSize = size  # noqa: N815

    def getBackendName(self) -> str:  # noqa: N802
        """Return `mrc`."""
        return NAME

    name = _get_backend_name = getBackendName

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    setGroupName = _set_group_name  # noqa: N815
    setGroupDesc = _set_group_desc  # noqa: N815

    def getGroupName(self) -> str:  # noqa: N802
        """Return the name under which torch knows it."""
        return self._name

    def getGroupDesc(self) -> str:  # noqa: N802
        """Return the description of the group's purpose."""
        return self._description

    @property
    def group_name(self) -> str:
        """The name under which torch knows it."""
        return self._name

    @property
    def group_desc(self) -> str:
        """What it is for."""
        return self._description

    #: What torch asks a backend whether it can do.
    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False

    def _get_backend(self, device: torch.device | str) -> ProcessGroupMrc:
        """Return the backend of a device: this group is its own, for the CPU."""
        kind = torch.device(device).type
        if kind != "cpu":
            raise RuntimeError(f"the backend mrc is for tensors of the CPU, not of {kind}")
        return self

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: all ranks count their operations from 0."""

    def _get_sequence_number_for_group(self) -> int:
        """Return how many collective operations this rank has called; ranks that are in step have the same number."""
        return self.collectives.group.count

    def _set_default_timeout(self, timeout: timedelta) -> None:
        """Change what operations may take from now on."""
        self.collectives.group.timeout = timeout.total_seconds()

    def shutdown(self) -> None:
        """Leave the group."""
        self.collectives.close()

    def abort(self) -> None:
        """Leave the group; operations under way end with an error."""
        self.collectives.close()

    def __repr__(self) -> str:
        return f"<mrc group {self._name} rank {self._rank_here} of {self._world}>"

    # -- reductions ----------------------------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None, **_: Any) -> MrcWork:
        """Reduce in place, at all ranks."""
        return self.allreduce_coalesced(tensors if isinstance(tensors, list) else [tensors], opts)

    @_recorded("all_reduce")
    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> MrcWork:
        """Reduce in place, at all ranks; tensors of one type are sent as if they were one."""
        op = _operation(getattr(opts, "reduceOp", dist.ReduceOp.SUM) if opts is not None else dist.ReduceOp.SUM)
        buffers = _Buffers()
        by_kind: dict[str, list[Array]] = {}
        for tensor in tensors:
            array, kind = buffers.numbers(tensor, written=True)
            by_kind.setdefault(kind, []).append(array)
        works = [self.collectives.all_reduce_coalesced(arrays, op, kind=kind) for kind, arrays in by_kind.items()]
        return MrcWork(works, tensors, buffers.back)

    @_recorded("reduce")
    def reduce(self, tensors: list[Tensor], opts: Any) -> MrcWork:
        """Reduce in place, at the root."""
        buffers = _Buffers()
        array, kind = buffers.numbers(tensors[0], written=True)
        work = self.collectives.reduce(array, opts.rootRank, _operation(opts.reduceOp), kind=kind)
        return MrcWork([work], tensors, buffers.back)

    @_recorded("reduce_scatter")
    def reduce_scatter(self, output_tensors: list[Tensor], input_tensors: list[list[Tensor]], opts: Any) -> MrcWork:
        """Reduce a list of tensors and scatter the result: tensor r goes to rank r."""
        buffers = _Buffers()
        out, kind = buffers.numbers(output_tensors[0], written=True)
        rows = [buffers.numbers(tensor)[0] for tensor in input_tensors[0]]
        work = self.collectives.reduce_scatter_parts(out, rows, _operation(opts.reduceOp), kind=kind)
        return MrcWork([work], output_tensors, buffers.back)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> MrcWork:
        """Reduce one tensor and scatter the result: part r goes to rank r."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    @_recorded("reduce_scatter")
    def reduce_scatter_single_coalesced(
        self, output_tensors: list[Tensor], input_tensors: list[Tensor], opts: Any = None
    ) -> MrcWork:
        """Reduce and scatter several pairs of one output and one input tensor each."""
        op = _operation(opts.reduceOp if opts is not None else dist.ReduceOp.SUM)
        buffers = _Buffers()
        works = []
        for output, tensor in zip(output_tensors, input_tensors, strict=True):
            out, kind = buffers.numbers(output, written=True)
            works.append(self.collectives.reduce_scatter(out, buffers.numbers(tensor)[0], op, kind=kind))
        return MrcWork(works, output_tensors, buffers.back)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # -- what only moves bytes -----------------------------------------------------------------------------------

    @_recorded("broadcast")
    def broadcast(self, tensors: list[Tensor], opts: Any) -> MrcWork:
        """Broadcast from the root."""
        buffers = _Buffers()
        root = opts.rootRank
        works = [
            self.collectives.broadcast(buffers.bytes(tensor, written=self._rank_here != root), root)
            for tensor in tensors
        ]
        return MrcWork(works, tensors, buffers.back)

    @_recorded("all_gather")
    def allgather(self, output_tensors: list[list[Tensor]], input_tensors: list[Tensor], opts: Any = None) -> MrcWork:
        """Gather into a list of tensors, at all ranks."""
        buffers = _Buffers()
        rows = [buffers.bytes(tensor, written=True) for tensor in output_tensors[0]]
        work = self.collectives.all_gather_parts(rows, buffers.bytes(input_tensors[0]))
        return MrcWork([work], output_tensors[0], buffers.back)

    @_recorded("all_gather")
    def allgather_coalesced(
        self, output_lists: list[list[Tensor]], input_list: list[Tensor], opts: Any = None
    ) -> MrcWork:
        """Gather several tensors at all ranks; `output_lists[r]` has those of rank r."""
        buffers = _Buffers()
        works = [
            self.collectives.all_gather_parts(
                [buffers.bytes(tensors[index], written=True) for tensors in output_lists], buffers.bytes(tensor)
            )
            for index, tensor in enumerate(input_list)
        ]
        return MrcWork(works, [tensor for tensors in output_lists for tensor in tensors], buffers.back)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> MrcWork:
        """Gather into one tensor, at all ranks."""
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    @_recorded("all_gather")
    def all_gather_single_coalesced(
        self, output_lists: list[Tensor], input_list: list[Tensor], opts: Any = None
    ) -> MrcWork:
        """Gather several tensors at all ranks, each into one output tensor."""
        buffers = _Buffers()
        works = [
            self.collectives.all_gather(buffers.bytes(output, written=True), buffers.bytes(tensor))
            for output, tensor in zip(output_lists, input_list, strict=True)
        ]
        return MrcWork(works, output_lists, buffers.back)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @_recorded("gather")
    def gather(self, output_tensors: list[list[Tensor]], input_tensors: list[Tensor], opts: Any) -> MrcWork:
        """Gather into a list of tensors, at the root."""
        buffers = _Buffers()
        rows = None
        if self._rank_here == opts.rootRank:
            rows = [buffers.bytes(tensor, written=True) for tensor in output_tensors[0]]
        work = self.collectives.gather(rows, buffers.bytes(input_tensors[0]), opts.rootRank)
        return MrcWork([work], output_tensors[0] if rows else [], buffers.back)

    @_recorded("scatter")
    def scatter(self, output_tensors: list[Tensor], input_tensors: list[list[Tensor]], opts: Any) -> MrcWork:
        """Scatter a list of tensors from the root."""
        buffers = _Buffers()
        rows = None
        if self._rank_here == opts.rootRank:
            rows = [buffers.bytes(tensor) for tensor in input_tensors[0]]
        work = self.collectives.scatter(buffers.bytes(output_tensors[0], written=True), rows, opts.rootRank)
        return MrcWork([work], output_tensors, buffers.back)

    @_recorded("all_to_all")
    def alltoall(self, output_tensors: list[Tensor], input_tensors: list[Tensor], opts: Any = None) -> MrcWork:
        """Send tensor r of a list to rank r, and receive tensor r of the other list from there."""
        buffers = _Buffers()
        work = self.collectives.all_to_all_parts(
            [buffers.bytes(tensor, written=True) for tensor in output_tensors],
            [buffers.bytes(tensor) for tensor in input_tensors],
        )
        return MrcWork([work], output_tensors, buffers.back)

    @_recorded("all_to_all")
    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any = None,
    ) -> MrcWork:
        """Exchange parts of one tensor, cut along its first dimension: evenly, or by the given sizes."""
        buffers = _Buffers()
        outs = self._cut(buffers.bytes(output, written=True), output, output_split_sizes, "output")
        rows = self._cut(buffers.bytes(input), input, input_split_sizes, "input")
        return MrcWork([self.collectives.all_to_all_parts(outs, rows)], [output], buffers.back)

    alltoall_base = all_to_all_single

    def _cut(self, row: Array, tensor: Tensor, splits: list[int], name: str) -> list[Array]:
        length = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if length % self._world:
                raise ValueError(f"{name}: {length} rows are not divisible by {self._world} ranks; give split sizes")
            splits = [length // self._world] * self._world
        if len(splits) != self._world or sum(splits) != length:
            raise ValueError(f"{name}: split sizes {splits} of {length} rows for {self._world} ranks")
        width = len(row) // length if length else 0
        bounds = [0, *np.cumsum(splits).tolist()]
        return [row[low * width : high * width] for low, high in itertools.pairwise(bounds)]

    @_recorded("barrier")
    def barrier(self, opts: Any = None) -> MrcWork:
        """End when all have called it."""
        return MrcWork([self.collectives.barrier()], [], _nothing)

    @_recorded("monitored_barrier")
    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return when all ranks have called it; otherwise name those that have not.

        Args:
            timeout: for all ranks together; None: the group's.
            wait_all_ranks: name all that are missing, not only the first.

        Raises:
            RankSilentError: at rank 0, with the first rank that is missing. The group ends with that, at all ranks.
        """
        seconds = timeout.total_seconds() if timeout else self.collectives.group.timeout
        self._monitored += 1
        tag, word = _MONITORED + self._monitored, np.zeros(1, np.uint8)
        if self._rank_here:
            self.collectives.send(word, 0, tag)
            # Rank 0 is given the time to say which one is missing.
            self._monitor([0], tag, seconds + ANSWER_S, wait_all_ranks)
            return
        self._monitor(range(1, self._world), tag, seconds, wait_all_ranks)
        for rank in range(1, self._world):
            self.collectives.send(word, rank, tag)

    def _monitor(self, ranks: Iterable[int], tag: int, seconds: float, wait_all_ranks: bool) -> None:
        """Wait for a word of each of these ranks."""
        ends = time.monotonic() + seconds
        works = {rank: self.collectives.receive(np.empty(1, np.uint8), rank, tag) for rank in ranks}
        missing = []
        for rank, work in works.items():
            with contextlib.suppress(CollectiveError):
                work.wait(max(0.0, ends - time.monotonic()))
            if work.error is not None:
                raise work.error
            if not work.done():
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            named = ", ".join(map(str, missing))
            plural = "s" if len(missing) > 1 else ""
            text = f"monitored_barrier: not called within {seconds:g} s by rank{plural} {named}"
            error = RankSilentError(missing[0], text)
            self.collectives.group.give_up(error)
            raise error

    # -- between two ranks ---------------------------------------------------------------------------------------

    @_recorded("send")
    def send(self, tensors: list[Tensor], rank: int, tag: int = 0) -> MrcWork:
        """Send a tensor to a rank."""
        return MrcWork([self.collectives.send(_Buffers().bytes(tensors[0]), rank, tag)], tensors, _nothing)

    @_recorded("receive")
    def recv(self, tensors: list[Tensor], rank: int, tag: int = 0) -> MrcWork:
        """Receive a tensor from a rank."""
        buffers = _Buffers()
        work = self.collectives.receive(buffers.bytes(tensors[0], written=True), rank, tag)
        return MrcWork([work], tensors, buffers.back)

    @_recorded("receive")
    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> MrcWork:
        """Receive from any rank."""
        buffers = _Buffers()
        work = self.collectives.receive(buffers.bytes(tensors[0], written=True), None, tag)
        return MrcWork([work], tensors, buffers.back)


def _nothing() -> None:
    """Do nothing: there is nothing to copy back."""


def create(store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroupMrc:
    """Create the process group; torch calls this for `init_process_group("mrc")` and `new_group`."""
    return ProcessGroupMrc(store, rank, size, timeout)


def register() -> None:
    """Make the backend known to torch."""
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, create, devices=["cpu"])
