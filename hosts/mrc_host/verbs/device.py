"""Devices and contexts: a host's agent, opened by a program."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from mrc_host.access import Access
from mrc_host.verbs import layout, requests
from mrc_host.verbs.connection import AgentConnection, DeviceLostError, VerbsError, device_path, map_file
from mrc_host.verbs.layout import Consumer, EventType, NoRing, Producer
from mrc_host.verbs.requests import DeviceAttributes, PortAttributes
from mrc_topo.base.rpc import Request

_ROOM_WAIT_S: Final = 20e-6
_ROOM_TIMEOUT_S: Final = 30.0
A = TypeVar("A")


class Version(NamedTuple):
    """A version, as `MRC_API_VER`."""

    major: int
    minor: int
    subminor: int


class Versions(NamedTuple):
    """The answer of `query_version`: the version of the interface, and of the provider, which is this package."""

    current: Version
    last_supported: Version
    vendor: Version
    last_supported_vendor: Version


def query_version() -> Versions:
    """Return the versions of the interface."""
    api = Version(*layout.API_VERSION)
    own = Version(layout.VERSION, 0, 0)
    return Versions(api, Version(1, 0, 0), own, own)


@dataclass(frozen=True)
class AsyncEvent:
    """Something that happened outside of any work request; to be acknowledged by `ack`.

    `element`: the number of a queue pair, a completion queue, a shared receive queue, or a port (from 1), by the type.
    Of an EV: its value, its plane and the losses seen on it. `text` gives the reason, where there is one.
    """

    type: EventType
    element: int
    ev: int
    plane: int
    losses: int
    text: str
    context: Context

    def ack(self) -> None:
        """Acknowledge the event, so that the object that it concerns may be destroyed."""
        self.context.ack_async_event(self)


class Context:
    """An open device: the parent of everything else. Use it as a context manager, or call `close`.

    Threads may share it.
    """

    def __init__(self, connection: AgentConnection) -> None:
        self._connection = connection
        try:
            answer, files = _greet(connection)
            if answer.version != layout.VERSION:
                raise VerbsError(errno.EPROTO, f"the agent speaks version {answer.version}, not {layout.VERSION}")
        except BaseException:
            connection.close()
            raise
        submissions, events, self._doorbell, self._event_bell = files
        self.host = answer.host
        self.address = answer.address
        self.transport = answer.transport
        capacity = answer.submissions
        self._submissions = Producer(
            map_file(submissions, layout.ring_bytes(capacity, layout.REQUEST_BYTES)), capacity, layout.REQUEST_BYTES
        )
        capacity = answer.events
        self._events = Consumer(
            map_file(events, layout.ring_bytes(capacity, layout.EVENT_BYTES)), capacity, layout.EVENT_BYTES
        )
        self._lock = threading.RLock()
        self._held = 0  # batches under way: their end rings
        self._posted = False
        self._unacked: dict[tuple[bool, int], int] = {}  # by (of a queue pair, number)
        #: Queue pairs by number; their counters are brought up to date by completions.
        self.queue_pairs: dict[int, Any] = {}
        #: Completion channels and queues: file descriptors and rings go with the context.
        self.channels: list[Any] = []
        self.queues: weakref.WeakSet[Any] = weakref.WeakSet()
        _OPEN.add(self)

    # -- requests --------------------------------------------------------------------------------------------------

    def ask(self, request: Request[A]) -> A:
        """Send the agent a request, after everything posted so far. Raises VerbsError."""
        self._publish()
        return self._connection.ask(request)

    def ask_files(self, request: Request[A]) -> tuple[A, list[int]]:
        """Do as `ask`, and also return the file descriptors that come with the answer."""
        self._publish()
        return self._connection.ask_files(request)

    def query_device(self) -> DeviceAttributes:
        """Return the attributes of the device."""
        return self.ask(requests.QueryDevice())

    def query_port(self, port: int) -> PortAttributes:
        """Return a port, numbered from 1."""
        return self.ask(requests.QueryPort(port))

    def query_gid(self) -> str:
        """Return the IPv6 address of the host on its fabric."""
        return self.address

    # -- submissions -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Wake the agent once, at the end, for everything posted in here; other threads wait."""
        with self._lock:
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
                if not self._held and self._posted:
                    self._ring()

    def _publish(self) -> None:
        """Show the agent the entries that a batch has posted so far: a request that follows must not overtake them.

        The agent takes everything that is in the ring before it serves a request, so no bell is needed.
        """
        with self._lock:
            if self._posted:
                self._submissions.publish()

    def _ring(self) -> None:
        self._posted = False
        self._submissions.publish()
        os.eventfd_write(self._doorbell, 1)

    def place(self) -> int:
        """Return where the next entry goes; under the lock, and followed by `submit`. Waits while the ring is full."""
        ring = self._submissions
        if ring.room():
            return ring.at(ring.tail)
        self._ring()
        deadline = time.monotonic() + _ROOM_TIMEOUT_S
        while not ring.room():
            self.check()
            if time.monotonic() > deadline:
                raise VerbsError(errno.EAGAIN, f"device {self.host}: the agent takes no work requests")
            time.sleep(_ROOM_WAIT_S)
        return ring.at(ring.tail)

    def submit(self) -> None:
        """Submit the entry at `place`, which is complete."""
        self._submissions.tail += 1
        if self._held:
            self._posted = True
        else:
            self._ring()

    def request_notify(self, queue: int, seen: int, solicited_only: bool) -> None:
        """See `CompletionQueue.req_notify`."""
        flags = layout.SendFlags.SOLICITED if solicited_only else 0
        with self._lock:
            at = self.place()
            layout.REQUEST.pack_into(
                self._submissions.buffer, at, layout.RingOpcode.NOTIFY, flags, 0, queue, seen, 0, 0, 0, 0
            )
            self.submit()

    @property
    def lock(self) -> threading.RLock:
        """Return the lock that a thread holds while it posts."""
        return self._lock

    @property
    def entries(self) -> memoryview:
        """The memory of the ring of submissions."""
        return self._submissions.buffer

    # -- events ------------------------------------------------------------------------------------------------------

    @property
    def async_fd(self) -> int:
        """Readable while events wait."""
        return self._event_bell

    @property
    def events_lost(self) -> int:
        """Events for which there was no room, since the beginning."""
        return self._events.words[layout.NOTED]

    def get_async_event(self, timeout: float | None = None) -> AsyncEvent | None:
        """Return the oldest event that has not been taken; None when none comes within `timeout` seconds (None: for
        ever).

        Raises:
            DeviceLostError: the agent is gone.
        """
        if not self.wait(self._event_bell, timeout):
            return None
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event_bell)
        with self._lock:
            ring = self._events
            if not ring.pending():
                return None
            kind, element, ev, plane, losses, text = layout.EVENT.unpack_from(ring.buffer, ring.at(ring.head))
            ring.head += 1
            ring.release()
            said = text.rstrip(b"\0").decode(errors="replace")
            event = AsyncEvent(EventType(kind), element, ev, plane, losses, said, self)
            key = _concerned(event)
            if key is not None:
                self._unacked[key] = self._unacked.get(key, 0) + 1
            return event

    def ack_async_event(self, event: AsyncEvent) -> None:
        """Acknowledge an event."""
        key = _concerned(event)
        if key is None:
            return
        with self._lock:
            left = self._unacked.get(key, 0) - 1
            if left < 0:
                raise VerbsError(errno.EINVAL, "the event has been acknowledged before")
            if left:
                self._unacked[key] = left
            else:
                del self._unacked[key]

    def check_acked(self, queue_pair: bool, number: int) -> None:
        """Raise VerbsError while events of an object are not acknowledged."""
        left = self._unacked.get((queue_pair, number), 0)
        if left:
            what = "queue pair" if queue_pair else "completion queue"
            raise VerbsError(errno.EBUSY, f"{left} events of {what} {number} are not acknowledged; `AsyncEvent.ack`")

    # -- life --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise DeviceLostError when the agent is gone."""
        if self._connection.lost():
            raise DeviceLostError(f"device {self.host}: the agent is gone, or has hung up on this program")

    def wait(self, fd: int, timeout: float | None) -> bool:
        """Wait until a file descriptor of this context is readable; False after `timeout` seconds.

        Raises:
            DeviceLostError: the agent is gone.
        """
        if self._connection.fileno() < 0:
            raise self._connection.closed()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.register(self._connection.fileno(), select.POLLIN)
        ready = dict(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))
        if fd in ready:
            return True
        if ready:
            self.check()
        return False

    def close(self) -> None:
        """Close the device: the agent destroys whatever is left of this context. Later use raises DeviceLostError."""
        if self._doorbell >= 0:
            self._connection.close()
            gone: Any = NoRing(self._connection.closed)
            self._submissions = self._events = gone
            for queue in self.queues:
                queue.forget(gone)
            os.close(self._doorbell)
            os.close(self._event_bell)
            for channel in self.channels:
                channel.close()
            self.channels.clear()
            self._doorbell = self._event_bell = -1

    def after_fork_in_child(self) -> None:
        """Close this copy in a forked child: rings and bells are its parent's, which would find entries that it did not
        post.
        """
        self._lock = threading.RLock()  # a thread that is not here may have held it
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _greet(connection: AgentConnection) -> tuple[requests.Greeting, list[int]]:
    """Say hello, with the file descriptor by which the agent reaches buffers that are registered (`BufferRegion`)."""
    memory = []
    with contextlib.suppress(OSError):  # without /proc only regions that the agent makes can be used
        memory.append(os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC))
    try:
        return connection.ask_files(requests.ProgramHello(layout.VERSION, os.getpid()), memory)
    finally:
        for fd in memory:
            os.close(fd)


_OPEN: Final[weakref.WeakSet[Context]] = weakref.WeakSet()


def _forget_all() -> None:
    for context in list(_OPEN):
        context.after_fork_in_child()


os.register_at_fork(after_in_child=_forget_all)


_OF_QUEUE_PAIRS: Final = (
    EventType.QP_FATAL,
    EventType.QP_LAST_WQE_REACHED,
    EventType.EV_GOOD,
    EventType.EV_ASSUMED_BAD,
    EventType.EV_DENIED,
)


def _concerned(event: AsyncEvent) -> tuple[bool, int] | None:
    if event.type is EventType.CQ_ERR:
        return False, event.element
    if event.type in _OF_QUEUE_PAIRS:
        return True, event.element
    return None


def open_device(name: str | None = None) -> Context:
    """Open the device of the host that this program runs in, or of `name`: a host, or the path of an agent's socket.

    Raises:
        VerbsError: there is none, or it is not this user's.
    """
    return Context(AgentConnection(device_path(name)))


DEFAULT_ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE


class Sge(NamedTuple):
    """A scatter-gather element: `length` bytes at `addr`, in the memory region of `lkey`."""

    addr: int
    length: int
    lkey: int


class RemoteMemory(NamedTuple):
    """The address and key that a peer needs to write to a memory region."""

    addr: int
    rkey: int
    length: int


class ProtectionDomain:
    """Groups objects: queue pairs reach only the memory regions of their own domain."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.number = context.ask(requests.AllocPd()).pd

    def destroy(self) -> None:
        """Destroy the domain. Raises VerbsError while it has queue pairs or regions."""
        self.context.ask(requests.DeallocPd(self.number))


class MemoryRegion:
    """Memory that the device can read and write: `buffer` is a view of its bytes.

    The memory is shared with the agent, so nothing is copied through a socket: `numpy.frombuffer(region.buffer)` and
    `torch.frombuffer(region.buffer, ...)` are the same bytes. It starts zeroed, and lives as long as something
    refers to it, even when the region is destroyed.

    Args:
        domain: its protection domain.
        length: bytes.
        access: REMOTE_WRITE lets peers write into it, REMOTE_READ read it, REMOTE_ATOMIC change numbers in it.
            LOCAL_WRITE lets messages, and READs and atomics of the program itself, put something there.
    """

    def __init__(self, domain: ProtectionDomain, length: int, access: Access = DEFAULT_ACCESS) -> None:
        self.domain = domain
        self.length = length
        self.access = access
        answer, files = domain.context.ask_files(requests.RegMr(domain.number, length, access))
        self.buffer: memoryview = map_file(files[0], length)
        self.addr = answer.addr
        self.lkey = self.rkey = answer.key

    @classmethod
    def over(
        cls, domain: ProtectionDomain, buffer: bytearray | memoryview, access: Access = DEFAULT_ACCESS
    ) -> MemoryRegion:
        """Register memory that the program has, such as a bytearray or the memory of an array, instead of new memory.

        The agent reads and writes it through the kernel, which takes longer than memory that both have mapped. The
        buffer cannot be resized until the region is destroyed.

        Raises:
            VerbsError: the agent cannot reach the memory of this program (EOPNOTSUPP).
            TypeError: the buffer is read-only, or not contiguous.
        """
        made = cls.__new__(cls)
        made.domain = domain
        made.access = access
        made.buffer = memoryview(buffer).cast("B")
        made.length = len(made.buffer)
        address = ctypes.addressof(ctypes.c_char.from_buffer(made.buffer))
        answer = domain.context.ask(requests.RegUserMr(domain.number, address, made.length, access))
        made.addr = answer.addr
        made.lkey = made.rkey = answer.key
        return made

    @property
    def remote(self) -> RemoteMemory:
        """What a peer must know; JSON-serialisable as a list."""
        return RemoteMemory(self.addr, self.rkey, self.length)

    def sge(self, offset: int = 0, length: int | None = None) -> Sge:
        """Return a piece: `length` bytes from `offset`, by default up to the end.

        Raises:
            VerbsError: it leaves the region.
        """
        size = self.length - offset if length is None else length
        if offset < 0 or size < 0 or offset + size > self.length:
            raise VerbsError(errno.EINVAL, f"bytes {offset} to {offset + size} leave a region of {self.length} bytes")
        return Sge(self.addr + offset, size, self.lkey)

    def read(self, length: int, offset: int = 0) -> bytes:
        """Return a copy of some bytes."""
        return bytes(self.buffer[offset : offset + length])

    def write(self, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copy bytes into it."""
        self.buffer[offset : offset + len(data)] = data

    def destroy(self) -> None:
        """Deregister it. Raises VerbsError while work requests under way read from it."""
        self.domain.context.ask(requests.DeregMr(self.lkey))
