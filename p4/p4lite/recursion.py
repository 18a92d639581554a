"""Room for functions that follow a program's nesting: the deepest one that the compiler takes needs many frames."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LIMIT = 30_000
"""Python frames for passes over a program: the compiler's MAX_DEPTH levels, each a few frames of a pass."""
DOCUMENT_LIMIT = 10_000
"""Frames for reading and writing JSON: each level takes memory of C's stack, of which threads may have 8 MB."""

_lock = threading.Lock()
_limits: list[int] = []
_before = 0


@contextmanager
def deep_recursion(limit: int = LIMIT) -> Iterator[None]:
    """Raise the recursion limit; it is the process's, and goes back when the last thread is done that has raised it."""
    global _before
    with _lock:
        if not _limits:
            _before = sys.getrecursionlimit()
        _limits.append(limit)
        sys.setrecursionlimit(max(_before, *_limits))
    try:
        yield
    finally:
        with _lock:
            _limits.remove(limit)
            # A caller that is deeper than the old limit has raised it itself.
            with suppress(RecursionError):
                sys.setrecursionlimit(max(_before, *_limits) if _limits else _before)
