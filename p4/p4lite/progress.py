"""Says on standard error what a command is at when it takes long.

A command wraps its work in `shown`; the compiler and the builder call `step` as they go on. Without `shown`, as in a
library, nothing is printed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AFTER_S = 2.0
"""Seconds of silence."""


class _ShownLine:
    def __init__(self, name: str, after: float):
        self.name = name
        self.after = after
        self.began = time.monotonic()
        self.what = "starting"
        self.lock = threading.Lock()
        self.timer = threading.Timer(after, self.show)
        self.timer.daemon = True
        self.timer.start()

    def show(self) -> None:
        with self.lock:
            seconds = time.monotonic() - self.began
            print(f"{self.name}: {self.what} ({seconds:.0f} s)", file=sys.stderr, flush=True)

    def step(self, what: str) -> None:
        self.what = what
        if time.monotonic() - self.began > self.after:
            self.show()


_current: _ShownLine | None = None
_look: Callable[[], object] = bool


def look_by(check: Callable[[], object]) -> None:
    """Call `check` while the C compiler works; it may raise, as when the command shall end."""
    global _look
    _look = check


def look() -> None:
    """See `look_by`."""
    _look()


@contextmanager
def shown(name: str, after: float | None = None) -> Iterator[None]:
    """Report the work within the context, once after `after` seconds (`AFTER_S`) and from then on at every step."""
    global _current
    if _current is not None:
        yield
        return
    _current = _ShownLine(name, AFTER_S if after is None else after)
    try:
        yield
    finally:
        _current.timer.cancel()
        _current = None


def step(what: str) -> None:
    """Show that the command is now at the step `what`."""
    if _current is not None:
        _current.step(what)


def notice(text: str) -> None:
    """Report something about the work that a waiting user should know."""
    if _current is not None:
        print(f"{_current.name}: {text}", file=sys.stderr, flush=True)
