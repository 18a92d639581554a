"""SIGINT and SIGTERM of a command that has something to finish: noted by handlers, looked at between steps of the work.

A handler never raises. Its exception could come up anywhere: inside of compiled code, which loses it or aborts, or in a
file that is half written. What takes long therefore calls `check` between its steps, and waits by `sleep` and `run`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from types import FrameType
from typing import Any, TypeVar

R = TypeVar("R")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Signals within this time (s) count as one: `timeout` and terminals send theirs to the command and to its group.
SAME_S = 0.5
#: How long (s) a wait lasts until it looks for a signal.
LOOK_S = 0.1
SHOW_CURSOR = b"\x1b[?25h"


class Interrupted(BaseException):
    """The end of a command that a signal asked for; raised by `check` alone."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = signal.Signals(number).name
        super().__init__(f"interrupted by {self.name}")

    @property
    def exit_code(self) -> int:
        """Of a command that ends by this, as shells have it."""
        return 128 + self.number


class Interruption:
    """The state of the signals: `number` is the first that came (0: none)."""

    def __init__(self) -> None:
        self.number = 0
        #: Whether nothing has begun that would have to be finished: the first signal ends the process, then.
        self.idle = False
        #: Whether the second signal does not end the process, which is a user's.
        self.patient = False
        self._at = 0.0
        self._due = False
        self._last_acts: list[Callable[[], object]] = []

    def heard(self, number: int, frame: FrameType | None = None) -> None:
        """Handle a signal: note the first, and end the process at the second."""
        if self.idle:
            self._end_at_once(number)
        elif not self.number:
            self.number, self._at, self._due = number, time.monotonic(), True
        elif time.monotonic() - self._at > SAME_S and not self.patient:
            self._end_at_once(number)

    def _end_at_once(self, number: int) -> None:
        for act in self._last_acts:
            with contextlib.suppress(Exception):
                act()
        if os.isatty(2):  # a table that was being drawn has hidden it
            os.write(2, SHOW_CURSOR)
        os._exit(128 + number)

    def check(self) -> None:
        """Raise Interrupted if a signal has come; once, so that what is done thereafter is not cut off, too."""
        if self._due and threading.current_thread() is threading.main_thread():
            self._due = False
            raise Interrupted(self.number)

    @contextlib.contextmanager
    def at_once(self, act: Callable[[], object]) -> Iterator[None]:
        """Call `act` if a second signal ends the process in this context; it must be quick."""
        self._last_acts.append(act)
        try:
            yield
        finally:
            self._last_acts.remove(act)


#: Of the command that takes signals at the moment.
_current: Interruption | None = None


def check() -> None:
    """Raise Interrupted if a signal has come that `interruptible` took; see `Interruption.check`."""
    if _current is not None:
        _current.check()


@contextlib.contextmanager
def idle() -> Iterator[None]:
    """Let the first signal end the process in this context, as while modules are imported."""
    made = _current or Interruption()
    made.idle = True
    try:
        yield
    finally:
        made.idle = False


def at_once(act: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
    """See `Interruption.at_once`; without `interruptible` nothing is done."""
    return contextlib.nullcontext() if _current is None else _current.at_once(act)


def sleep(seconds: float) -> None:
    """Wait this long, or until a signal comes: then raise Interrupted."""
    end = time.monotonic() + seconds
    while True:
        check()
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, LOOK_S))


def run(
    command: Sequence[str], *, input: str | None = None, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` does, with its output as text; kill it and what it started when a signal comes.

    Raises:
        Interrupted: a signal came.
        TimeoutExpired: it took longer than `timeout` seconds, and was killed.
    """
    pipe = subprocess.PIPE
    end = None if timeout is None else time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        stdin = None
        if input is not None:
            # `communicate` loses the rest of an input when a call times out, as each does that looks at the signals.
            stdin = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            stdin.write(input)
            stdin.seek(0)
        process = stack.enter_context(
            subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, text=True, process_group=0, **options)
        )
        try:
            while True:
                check()
                try:
                    said, errors = process.communicate(timeout=LOOK_S)
                except subprocess.TimeoutExpired:
                    if timeout is None or end is None or time.monotonic() < end:
                        continue
                    raise subprocess.TimeoutExpired(command, timeout) from None
                return subprocess.CompletedProcess(command, process.returncode, said, errors)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def completed(futures: Iterable[Future[R]]) -> Iterator[Future[R]]:
    """Yield futures as they complete; raise Interrupted when a signal comes."""
    left = set(futures)
    while left:
        done, left = wait(left, LOOK_S, FIRST_COMPLETED)
        check()
        yield from done


@contextlib.contextmanager
def interruptible(signals: Sequence[signal.Signals] = SIGNALS) -> Iterator[Interruption]:
    """Take the signals over for as long as the context lasts (only the main thread can handle any).

    Inside of another such context it is the same one.

    Raises:
        Interrupted: a signal came that nothing looked at in the context.
    """
    global _current
    if threading.current_thread() is not threading.main_thread():
        yield Interruption()
        return
    outer = _current
    made = outer or Interruption()
    before = [signal.signal(number, made.heard) for number in signals]
    _current = made
    try:
        yield made
        made.check()
    except Exception:
        # A terminal's signal also ends the commands that this one runs. That they failed is no error, then.
        made.check()
        raise
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
        _current = outer


@contextlib.contextmanager
def between_steps() -> Iterator[None]:
    """Let a signal take effect between the steps of the work in this context, where nothing is half done.

    For scripts: KeyboardInterrupt after Ctrl-C, the end of the process after SIGTERM. A signal that the script handles
    itself is left alone.
    """
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    taken = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    if _current is not None or not taken:
        yield
        return
    try:
        with interruptible(taken) as made:
            made.patient = True
            yield
    except Interrupted as interrupted:
        if interrupted.number == signal.SIGINT:
            raise KeyboardInterrupt from None
        signal.raise_signal(interrupted.number)
