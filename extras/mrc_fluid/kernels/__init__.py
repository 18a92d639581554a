"""The inner loops, in two versions that do the same: compiled by numba, and in NumPy for small clusters without it."""

from __future__ import annotations

import importlib.util
import itertools
import os
from pathlib import Path
from typing import Any, Protocol

from mrc_topo.shipped import install


class KernelError(Exception):
    """There is no numba; the text names the remedy."""


class Kernels(Protocol):
    """The kernels that both versions implement.

    Arrays of halves of paths (`fabric`) are `[T0, path]` of one plane, `src` and `dst` the T0s at the two ends; those
    of EVs are `[queue pair, EV]`. A kernel for all planes has the plane in front, and works on the queue pairs from
    `begin` to `end`.
    """

    def draw(
        self, first: Any, first_words: Any, second: Any, second_words: Any, t1s: int, uplinks: int, far: Any,
        even: bool, hop: Any, begin: int, end: int,
    ) -> None:  # fmt: skip
        """Fill `hop[plane, qp]`: universe by the generator of `first` (`even`: each T1, and each uplink of a T1, as
        often as any other), order by that of `second`. `far[qp]`: EVs have an uplink, too."""

    def spread(
        self, hop: Any, active: Any, src: Any, dst: Any, value: Any, lowest: float, weight_up: Any, weight_dn: Any,
        up: Any, dn: Any,
    ) -> None:  # fmt: skip
        """Add `value[qp]` to the halves of its active EVs' paths, in proportion to the weights of EVs: each has that of
        its two halves multiplied, or `lowest` where that is more. An EV across a half without a weight has none.
        """

    def least(
        self, hop: Any, active: Any, src: Any, dst: Any, wanted: Any, weight_up: Any, weight_dn: Any, up: Any, dn: Any,
        out: Any,
    ) -> None:  # fmt: skip
        """Lower `out[qp]` of wanted queue pairs to the least value of `up` and `dn` on paths that carry them."""

    def living(self, hop: Any, active: Any, src: Any, dst: Any, dead_up: Any, dead_dn: Any, out: Any) -> None:
        """Set `out[qp]` to the number of active EVs that cross nothing dead."""

    def weigh(
        self, hop: Any, active: Any, src: Any, dst: Any, lowest: float, weight_up: Any, weight_dn: Any, up: Any,
        dn: Any, add: bool, out: Any,
    ) -> None:  # fmt: skip
        """Set `out[qp]` to the sum over its active EVs of weight (see `spread`) times what the two halves of the EV's
        path have: the product of their values, or with `add` the sum.
        """

    def take_out(
        self, hop: Any, state: Any, active: Any, backup: Any, src: Any, dst: Any, dead_up: Any, dead_dn: Any,
        used: Any, floor: int, to: int, hits: Any, begin: int, end: int,
    ) -> None:  # fmt: skip
        """See `evs.take_out`."""

    def bring_back(
        self, hop: Any, state: Any, active: Any, backup: Any, src: Any, dst: Any, dead_up: Any, dead_dn: Any,
        target: int, was: int, count: Any, begin: int, end: int,
    ) -> None:  # fmt: skip
        """See `evs.bring_back`."""


def has_numba() -> bool:
    """Return whether the compiled version can be had."""
    return importlib.util.find_spec("numba") is not None


def compiled(cache: Path | None = None) -> Kernels:
    """Return the compiled kernels, kept in `cache` if that is given: what is in it is loaded and run, so no other user
    may be able to write to it (`p4lite.files.make_private`).

    Raises:
        KernelError: numba is not installed.
    """
    if not has_numba():
        raise KernelError(f"numba is not installed; {install('scale')}")
    import numba

    if cache is not None:
        # Before the kernels are imported: numba looks at it when they are declared.
        numba.config.CACHE_DIR = str(cache)
    from mrc_fluid.kernels import loops

    return loops


def reference() -> Kernels:
    """Return the kernels in NumPy."""
    from mrc_fluid.kernels import plain

    return plain


def workers() -> int:
    """Return the number of threads that work at a time: one per core."""
    return len(os.sched_getaffinity(0))


def spans(count: int, parts: int = 16) -> list[tuple[int, int]]:
    """Split the numbers up to `count` into ranges of about the same size."""
    edges = [count * number // parts for number in range(parts + 1)]
    return [(begin, end) for begin, end in itertools.pairwise(edges) if begin < end]
