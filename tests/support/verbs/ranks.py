"""Groups of ranks in this process, one on each host of a bed."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from mrc_torch import Collectives, FolderStore, Work
from support.verbs.bed import Bed

T = TypeVar("T")
SECONDS = 120.0


def at_once(count: int, call: Callable[[int], T]) -> list[T]:
    """Call in a thread for each rank."""
    with ThreadPoolExecutor(count) as pool:
        return [each.result(SECONDS) for each in [pool.submit(call, rank) for rank in range(count)]]


@contextlib.contextmanager
def group(made: Bed, folder: pathlib.Path, size: int, **options: Any) -> Iterator[list[Collectives]]:
    """All ranks of a group."""
    ranks = at_once(size, lambda rank: Collectives(FolderStore(folder), rank, size, device=made.path(rank), **options))
    try:
        yield ranks
    finally:
        at_once(size, lambda rank: ranks[rank].close())


def wait(works: Sequence[Work]) -> None:
    """Until all have ended well."""
    for work in works:
        work.wait(SECONDS)
