"""The transports of a host, for programs: its own, and the other one from the first queue pair of it on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrc_host.node.programs.pairs import Pairs
from mrc_host.proto.transport import TransportEndpoint
from mrc_host.verbs.requests import Wire


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
