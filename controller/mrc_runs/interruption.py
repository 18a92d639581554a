"""SIGINT and SIGTERM of a command that has something to finish: an interrupted run still has its verdict."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Raised where a signal found the command, or where `Interruption.check` was called after it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = signal.Signals(number).name
        super().__init__(f"interrupted by {self.name}")

    @property
    def exit_code(self) -> int:
        """Of a command that ends by this, as shells have it."""
        return 128 + self.number


class Interruption:
    """The state of the signals: `number` is the first that came (0: none).

    A signal is raised at once; while `patient`, the first is only recorded, and `check` raises it at a better moment.
    """

    def __init__(self) -> None:
        self.number = 0
        self.patient = False

    def heard(self, number: int, frame: FrameType | None = None) -> None:
        """Handle the signal."""
        first = not self.number
        self.number = self.number or number
        if not (first and self.patient):
            raise Interrupted(number)

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.number:
            raise Interrupted(self.number)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals to the end of the context: for work that cannot be undone when it is half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = [signal.signal(number, lambda number, frame: waiting.append(number)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
        for each in dict.fromkeys(waiting):
            signal.raise_signal(each)


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Take the signals over for as long as the context lasts (only the main thread can handle any)."""
    made = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield made
        return
    before = [signal.signal(number, made.heard) for number in SIGNALS]
    try:
        yield made
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
