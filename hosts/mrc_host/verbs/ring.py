"""The two ends of a ring in shared memory: one producer, one consumer, no lock.

Entries become visible with the counter that is written after them, by one store of 64 bits: a memoryview of format "Q"
copies eight aligned bytes, which compilers make one instruction on x86-64 and on arm64. Where a machine may show stores
or loads in another order (arm64), `ordering.fence` lies between the entries and their counter, at both ends. qemu on
x86-64 shows no such reordering, so that an emulated run cannot prove it.

A consumer must not trust what another process wrote: `Consumer.pending` says when a counter cannot be true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrc_host.ordering import WEAK, fence
from mrc_host.verbs.layout import HEAD, HEAD_BYTES, NOTED, TAIL


class RingCorrupt(Exception):
    """The other end has written an impossible counter."""


class NoRing:
    """A stand-in for a ring that is gone: every use raises the error that `closed` makes, which says why."""

    def __init__(self, closed: Callable[[], Exception]) -> None:
        self._closed = closed

    def __getattr__(self, name: str) -> Any:
        raise self._closed()


class _RingEnd:
    """`buffer` holds the whole ring; `words` its counters."""

    def __init__(self, buffer: memoryview, capacity: int, entry_bytes: int) -> None:
        self.buffer = buffer
        self.words = buffer[:HEAD_BYTES].cast("Q")
        self.capacity = capacity
        self.entry_bytes = entry_bytes
        self._mask = capacity - 1

    def at(self, number: int) -> int:
        """Return where entry `number` lies in the buffer."""
        return HEAD_BYTES + (number & self._mask) * self.entry_bytes


class Producer(_RingEnd):
    """Writes entries at `at(tail)`, counts them, and publishes. `tail` is its own; of the memory it reads HEAD only."""

    def __init__(self, buffer: memoryview, capacity: int, entry_bytes: int) -> None:
        super().__init__(buffer, capacity, entry_bytes)
        self.tail = 0

    def room(self) -> int:
        """Return how many entries fit.

        Raises:
            RingCorrupt: the consumer claims to have read what was not written, or to have given something back.
        """
        used = self.tail - self.words[HEAD]
        if not 0 <= used <= self.capacity:
            raise RingCorrupt(f"{used} of {self.capacity} entries in use")
        if WEAK:  # Acquire: the consumer has read the places that it gave back before they are written to again.
            fence()
        return self.capacity - used

    def publish(self) -> None:
        """Make the entries before `tail` visible."""
        if WEAK:  # Release: the entries are seen before the counter that stands for them.
            fence()
        self.words[TAIL] = self.tail

    def note(self, count: int) -> None:
        """Set the second counter of the producer: of notifications, or of what was lost."""
        if WEAK:  # Release: what is notified of is seen before the notification.
            fence()
        self.words[NOTED] = count


class Consumer(_RingEnd):
    """Reads entries at `at(head)` and gives their places back. `head` is its own; of the memory it reads TAIL only."""

    def __init__(self, buffer: memoryview, capacity: int, entry_bytes: int) -> None:
        super().__init__(buffer, capacity, entry_bytes)
        self.head = 0

    def pending(self) -> int:
        """Return how many entries wait.

        Raises:
            RingCorrupt: more than there are places, or fewer than none.
        """
        count = self.words[TAIL] - self.head
        if not 0 <= count <= self.capacity:
            raise RingCorrupt(f"{count} entries in {self.capacity} places")
        if WEAK:  # Acquire: no entry is read before the counter that says that it is there.
            fence()
        return count

    def noted(self) -> int:
        """Return the second counter of the producer."""
        count = self.words[NOTED]
        if WEAK:  # Acquire: what was published before the notification is seen behind it.
            fence()
        return count

    def release(self) -> None:
        """Give the places before `head` back."""
        if WEAK:  # Release: the entries are read before the producer sees that it may overwrite them.
            fence()
        self.words[HEAD] = self.head
