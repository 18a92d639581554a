"""Shared resources of a program and its agent: memory and bells, as the agent's process makes them."""

from __future__ import annotations

from typing import Protocol

from mrc_host.proto.memory import ProcessMemory


class Memory(Protocol):
    """Memory that the agent and a program share. The program maps it by `fd`; it can neither shrink nor grow."""

    buffer: memoryview
    fd: int

    def close(self) -> None:
        """Let go of it; what still refers to `buffer` keeps the bytes."""


class WakeupCounter(Protocol):
    """A counter that the program can wait for by a file descriptor."""

    fd: int

    def ring(self, count: int) -> None:
        """Add to the counter; never blocks."""

    def close(self) -> None:
        """Let go of it."""


class Resources(Protocol):
    """Makes shared memory and wakeup counters. `process`: the program's own memory, if it lets the agent reach it."""

    process: ProcessMemory | None

    def memory(self, nbytes: int) -> Memory:
        """Allocate zeroed memory.

        Raises:
            OSError: there is none.
        """

    def bell(self) -> WakeupCounter:
        """Return a bell, from which the program takes one at a time.

        Raises:
            OSError: there is none.
        """

    def doorbell(self) -> WakeupCounter:
        """Return what the program rings: the agent takes all at once.

        Raises:
            OSError: there is none.
        """
