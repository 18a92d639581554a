"""Threads that run callbacks, apart from those that carry operations out.

A callback may take any time, and may wait for another operation or its future. Callbacks are started in order, one at a
time; while one has run for longer than `PATIENCE_S`, the next is started beside it by another thread.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Final

#: Seconds after which a callback that still runs no longer holds up those behind it.
PATIENCE_S: Final = 0.05
#: Seconds after which a thread without work ends.
LINGER_S: Final = 5.0


class Callbacks:
    """See the module's docstring. Any thread may use it; no lock may be held that a callback needs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[Callable[[], object]] = deque()
        self._waiting = 0  # threads that have no callback
        self._running = 0
        self._started = 0.0  # when the last callback began

    def forget(self) -> None:
        """Begin again in a forked child: threads and callbacks are the parent's."""
        self._changed = threading.Condition()
        self._queue = deque()
        self._waiting = self._running = 0

    def submit(self, call: Callable[[], object]) -> None:
        """Run a callback soon, in another thread."""
        with self._changed:
            self._queue.append(call)
            self._find_thread()

    def drain(self, timeout: float) -> bool:
        """Wait until no callback is left, for at most `timeout` seconds; whether none is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._running, timeout)

    def _find_thread(self) -> None:
        """Wake a thread that waits for the queue, or start one; the lock is held."""
        if self._waiting:
            self._changed.notify_all()
            return
        self._waiting += 1
        threading.Thread(target=self._work, name="mrc callbacks", daemon=True).start()

    def _take(self) -> Callable[[], object] | None:
        """Return the next callback, when it is its turn; None after `LINGER_S` without one. The lock is held."""
        ends = time.monotonic() + LINGER_S
        while True:
            now = time.monotonic()
            turn = self._started + PATIENCE_S
            if self._queue and (not self._running or now >= turn):
                return self._queue.popleft()
            if not self._queue and now >= ends:
                return None
            self._changed.wait((turn if self._queue else ends) - now)

    def _work(self) -> None:
        while True:
            with self._changed:
                call = self._take()
                self._waiting -= 1
                if call is None:
                    return
                self._running += 1
                self._started = time.monotonic()
                if self._queue:
                    self._find_thread()
            try:
                call()
            except Exception:  # noqa: BLE001 - of a user's callback, which has no caller to raise to
                traceback.print_exc()
            with self._changed:
                self._running -= 1
                self._waiting += 1
                self._changed.notify_all()


#: Of this process.
CALLBACKS: Final = Callbacks()
os.register_at_fork(after_in_child=CALLBACKS.forget)
