"""Shared resources of a program and its agent, and the transports of a host for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mrc_host.node.programs.pairs import Pairs
from mrc_host.proto.memory import ProcessMemory
from mrc_host.proto.transport import TransportEndpoint
from mrc_host.verbs.requests import Wire


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


class Wires:
    """See the module's docstring.

    Args:
        first: the host's own transport, which has completion queues and memory for both.
        other: makes the other one.
        driven: returns what the host drives at the time: one endpoint, or both.
    """

    def __init__(
        self, first: Pairs[Any], other: Callable[[], Pairs[Any]], driven: Callable[[], TransportEndpoint]
    ) -> None:
        self.first = first
        self.driven = driven
        self._other = other
        self._pairs = {first.transport: first}

    def of(self, wire: Wire | None) -> Pairs[Any]:
        """Return the queue pairs of a transport; None: of the host's own."""
        if wire is None:
            return self.first
        if wire.value not in self._pairs:
            self._pairs[wire.value] = self._other()
        return self._pairs[wire.value]
