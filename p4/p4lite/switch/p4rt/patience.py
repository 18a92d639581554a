"""Bounds on the server's waiting for its clients, in time and number, which keep one client from taking every thread.

A call that waits for its client occupies a thread. `Waiting` bounds such calls in number and in time; when there are
too many, the one that has waited longest makes room, so that a newcomer is never locked out. `StreamThreads` gives each
stream a thread that goes with it, apart from those of the other calls.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

#: Calls other than streams that are worked on at once.
THREADS = 64
#: The threads that write the answers of Reads, whose duration depends on the clients.
READ_THREADS = 64
MAX_STREAMS = 1024
#: At most this many streams may be open that have not arbitrated, and for this long.
SILENT_STREAMS, SILENT_S = 640, 10.0
#: At most this many calls may be open whose request has not come, and for this long.
UNSENT_CALLS, UNSENT_S = 32, 10.0
#: At most this many Reads may be open whose client takes nothing, and for this long.
UNREAD_CALLS, UNREAD_S = 48, 30.0
#: The limit of simultaneous calls on one connection, announced by HTTP/2; the client queues the rest.
MIN_CALLS_PER_CONNECTION, CALLS_PER_DEVICE = 256, 4


class Waiting:
    """Calls that wait for their client. Another thread may end each of them by a function.

    `most` and `seconds` (of the machine's clock) may be infinite, for a simulation whose only clients are in its own
    process: a busy machine must not change its result.
    """

    def __init__(self, most: float, seconds: float) -> None:
        self.most, self.seconds = most, seconds
        self._lock = threading.Lock()
        self._tokens = itertools.count()
        #: In the order in which they began to wait: (since, how to end it).
        self._calls: dict[int, tuple[float, Callable[[], Any]]] = {}

    def add(self, end: Callable[[], Any]) -> int:
        """Watch a call that begins to wait; return the token for `remove`. May end another call."""
        with self._lock:
            token = next(self._tokens)
            self._calls[token] = (time.monotonic(), end)
            oldest = self._calls.pop(next(iter(self._calls)))[1] if len(self._calls) > self.most else None
        if oldest is not None:
            oldest()
        return token

    def remove(self, token: int) -> None:
        """Stop watching a call."""
        with self._lock:
            self._calls.pop(token, None)

    @contextmanager
    def wait(self, end: Callable[[], Any]) -> Iterator[None]:
        """Watch the call that waits within this context; `end` ends it."""
        token = self.add(end)
        try:
            yield
        finally:
            self.remove(token)

    def expire(self) -> None:
        """End the calls whose time is over."""
        now = time.monotonic()
        with self._lock:
            over = [token for token, (since, _) in self._calls.items() if now - since > self.seconds]
            ends = [self._calls.pop(token)[1] for token in over]
        for end in ends:
            end()

    def __len__(self) -> int:
        return len(self._calls)


class StreamThreads(ThreadPoolExecutor):
    """A thread for each stream, which ends with it. Beyond the limit a few threads refuse the streams."""

    def __init__(self, most: int = MAX_STREAMS + 64) -> None:
        super().__init__(4, thread_name_prefix="p4rt-refuse")
        self._most = most
        self._count = 0
        self._count_lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call in a thread of its own, or beyond the limit in one of the few refusing threads."""
        with self._count_lock:
            full = self._count >= self._most
            self._count += not full
        if full:
            return super().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()

        def run() -> None:
            # gRPC needs the time of the end, not the result.
            try:
                fn(*args, **kwargs)
            finally:
                with self._count_lock:
                    self._count -= 1
                future.set_result(None)

        threading.Thread(target=run, name="p4rt-stream-out", daemon=True).start()
        return future
