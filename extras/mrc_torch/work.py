"""Operation in progress, as its caller sees it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from mrc_torch.callbacks import CALLBACKS
from mrc_torch.errors import CollectiveError


class Work:
    """An operation in progress: `wait` for it, or ask. Any thread may.

    Args:
        name: of the operation, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        #: The sender, of a receive from any rank.
        self.source: int | None = None
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._then: list[Callable[[Work], None]] = []
        self._after: list[Callable[[Work], None]] = []

    def done(self) -> bool:
        """Return whether it has ended, well or not."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended well.

        Raises:
            CollectiveError: it has not; or it has not ended within `timeout` seconds (None: for ever).
        """
        if not self._done.wait(timeout):
            raise CollectiveError(f"{self.name} has not ended within {timeout:.1f} s")
        if self.error is not None:
            raise self.error

    def when_done(self, call: Callable[[Work], None]) -> None:
        """Call when it has ended: at once, or in a thread for callbacks. The call may wait for other operations."""
        with self._lock:
            if not self._done.is_set():
                self._after.append(call)
                return
        call(self)

    def before_others(self, call: Callable[[Work], None]) -> None:
        """Call it when the work has ended, in the thread that ends it; the call must not wait."""
        with self._lock:
            if not self._done.is_set():
                self._then.append(call)
                return
        call(self)

    def finish(self, error: BaseException | None = None) -> None:
        """End the work. The calls of `before_others` run here, so no lock may be held."""
        with self._lock:
            if self._done.is_set():
                return
            self.error = error
            self._done.set()
            calls, self._then = self._then, []
            later, self._after = self._after, []
        for call in calls:
            call(self)
        for call in later:
            CALLBACKS.submit(functools.partial(call, self))
