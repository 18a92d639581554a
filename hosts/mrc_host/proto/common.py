"""Common part of the endpoints of both transports: ports, memory regions, completion queues and events."""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from mypy_extensions import mypyc_attr

from mrc_host.proto.completion import Completion, CompletionQueue, CqUser
from mrc_host.proto.events import Event, QpError
from mrc_host.proto.limits import check_range
from mrc_host.proto.memory import MemoryRegion, MemoryTable, ProcessMemory
from mrc_host.proto.ports import Port, PortTable
from mrc_host.proto.transport import TransportEndpoint


@mypyc_attr(allow_interpreted_subclasses=True)
class CommonEndpoint(TransportEndpoint):
    """See the module's docstring. `_port_changed` and the rest of `TransportEndpoint` are each transport's own."""

    __slots__ = ("_cqs", "_events", "_memory", "_next_cq", "_ports", "taken")

    def __init__(self, ports: PortTable, memory: MemoryTable, events: deque[Event]) -> None:
        """Create an endpoint whose parts append their events to `events`, oldest first."""
        self._ports = ports
        self._memory = memory
        self._events = events
        self._cqs: dict[int, CompletionQueue] = {}
        self._next_cq = 1
        #: Numbers that queue pairs of another endpoint of the same host have.
        self.taken: Container[int] = ()

    def shared(self) -> tuple[PortTable, MemoryTable, deque[Event]]:
        """Return what another endpoint of the same host shares with this one; completion queues are made here."""
        return self._ports, self._memory, self._events

    def next_event(self) -> Event | None:
        """Return the oldest event not yet taken, or None."""
        events = self._events
        return events.popleft() if events else None

    # --- ports ---

    def set_port_state(self, port: int, up: bool, now: int) -> None:
        """Handle the link of a port that went down or came up (`mrc-protocol.md §7`)."""
        self._port_told(port, self._ports.set_state(port, carrier=up), now)

    def set_port_enabled(self, port: int, enabled: bool, now: int) -> None:
        """Enable or disable a port: it is up while it is enabled and has a link (`mrc-protocol.md §10`)."""
        self._port_told(port, self._ports.set_state(port, enabled=enabled), now)

    def _port_told(self, port: int, changed: bool, now: int) -> None:
        """Handle a report about a port; `changed`: it went down or came up by that."""
        raise NotImplementedError

    def ports_up(self) -> list[bool]:
        """Return which ports are up: enabled, with a link."""
        return [port.up for port in self._ports.ports]

    def port_states(self) -> list[Port]:
        """Return the ports: of each whether it has a link, is enabled, and so is up."""
        return self._ports.ports

    # --- memory and completions ---

    def register_memory(
        self,
        buffer: bytearray | memoryview,
        va: int | None = None,
        *,
        writable: bool = True,
        domain: int = 0,
        access: int | None = None,
    ) -> MemoryRegion:
        """Register a buffer; `.rkey`, `.va`, `.length` are what a peer needs to write to it.

        Only queue pairs of the same protection domain reach it. `access` has the rights (`Access`); without it,
        peers may write where `writable` says so, and nothing else.
        """
        return self._memory.register(buffer, va, writable, domain, access)

    def register_process_memory(
        self,
        memory: ProcessMemory,
        address: int,
        length: int,
        va: int,
        *,
        access: int,
        domain: int,
        rkey: int | None = None,
    ) -> MemoryRegion:
        """Register `length` bytes of a program at its `address`, which peers address from `va` on.

        With `rkey` the region takes the place of the one with that key. Memory that is gone when it is used ends the
        queue pair that uses it. Raises ValueError for a wrong range.
        """
        return self._memory.register_process(memory, address, length, va, access, domain, rkey)

    def deregister_memory(self, region: MemoryRegion) -> None:
        """Forget a region; later writes to it are refused. Raises KeyError when it is not registered."""
        self._memory.deregister(region.rkey)

    def create_cq(self, depth: int = 65536) -> CompletionQueue:
        """Return a completion queue; an overflow moves the queue pairs that use it to ERROR."""
        check_range("completion queue depth", depth, 1, 1 << 24)
        cq = CompletionQueue(self._next_cq, depth)
        self._next_cq += 1
        self._cqs[cq.number] = cq
        return cq

    def destroy_cq(self, cq: CompletionQueue) -> None:
        """Forget a completion queue. Raises QpError while a queue pair uses it."""
        if cq.users:
            raise QpError(f"completion queue {cq.number} is in use by {len(cq.users)} queue pairs; destroy them first")
        if self._cqs.pop(cq.number, None) is None:
            raise QpError(f"completion queue {cq.number} does not belong to this endpoint")

    def poll(self, cq: CompletionQueue, limit: int = 64) -> list[Completion]:
        """Take up to `limit` completions, oldest first."""
        return cq.poll(limit)

    def _check_queues(self, send_cq: CompletionQueue, recv_cq: CompletionQueue) -> None:
        """Raise QpError for a completion queue that has overflowed: it can no longer be relied on."""
        for cq in (send_cq, recv_cq):
            if cq.overflowed:
                raise QpError(f"completion queue {cq.number} has overflowed; create another one")

    def _join_queues(self, qp: CqUser, send_cq: CompletionQueue, recv_cq: CompletionQueue) -> None:
        """Note that a queue pair completes into these queues."""
        for cq in {send_cq, recv_cq}:
            cq.users.append(qp)

    def _leave_queues(self, qp: CqUser, send_cq: CompletionQueue, recv_cq: CompletionQueue) -> None:
        """Note that a queue pair completes into these queues no more."""
        for cq in {send_cq, recv_cq}:
            cq.users.remove(qp)
