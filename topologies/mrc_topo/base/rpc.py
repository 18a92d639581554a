"""Control sockets: requests and answers over a unix stream socket, each one JSON object in a line.

A request is `{"verb": ..., arguments}`; its class derives from `Request`, which names the verb and the class of the
answer. An answer is `{"ok": true, ...}` or `{"ok": false, "errno": ..., "code": ..., "error": ...}`. Both are checked
where they are received (`mrc_topo.base.plain`). A new verb is one class and one handler that `Verbs.add` takes.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import pathlib
import queue
import selectors
import signal
import socket
import threading
import time
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from mrc_topo.base import interruption
from mrc_topo.base.errors import ErrorCode, MrclabError, code_of
from mrc_topo.base.plain import DecodeError, decode, encode

MAX_LINE_BYTES: Final = 64 << 20
TIMEOUT_S: Final = 30.0
SOCKET_MODE: Final = 0o600
#: A client that accepts no byte of an answer for this time is dropped.
SEND_S: Final = 5.0
_RECV_BYTES: Final = 1 << 16
_RETRY_S: Final = 0.02

A_co = TypeVar("A_co", covariant=True)
A = TypeVar("A")
#: A function that carries out a verb with its arguments at a time (ns); it returns an answer, or raises RefusedError.
Arguments = Mapping[str, object]
CarryOut = Callable[[str, Arguments, int], object]


class RefusedError(MrclabError):
    """A request that is not carried out: the reason as text, as errno (`number`) and as code."""

    def __init__(self, text: str, number: int = errno.EINVAL, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.number = number
        self.code = code or code_of(number)


class UnreachableError(MrclabError):
    """A missing answer: nothing listens, the connection has ended (`GONE`), or the time is over (`SILENT`)."""

    def __init__(self, text: str, number: int | None, code: ErrorCode = ErrorCode.GONE) -> None:
        super().__init__(text)
        self.number = number or errno.ENODEV
        self.code = code


@dataclass(frozen=True)
class Done:
    """The answer of a request that returns no data."""


class Request(Generic[A_co]):
    """Base of requests, which are frozen dataclasses: `class Ask(Request[Answer], verb="ask")`."""

    verb: ClassVar[str]
    answer: ClassVar[Any]

    def __init_subclass__(cls, verb: str) -> None:
        super().__init_subclass__()
        cls.verb = verb
        (base,) = (each for each in getattr(cls, "__orig_bases__") if typing.get_origin(each) is Request)  # noqa: B009
        (cls.answer,) = typing.get_args(base)


R = TypeVar("R", bound=Request[Any])


class Verbs:
    """The verbs of a server: the class of each request, and the handler that carries it out at a time (ns)."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[type[Request[Any]], Callable[[Any, int], object]]] = {}

    def add(self, kind: type[R], handler: Callable[[R, int], object]) -> None:
        """Add a verb; the handler returns an instance of the request's answer class."""
        self._known[kind.verb] = (kind, handler)

    def clear(self) -> None:
        """Remove all verbs, because their handlers refer to the object that has them."""
        self._known.clear()

    def names(self) -> list[str]:
        """Return the verbs in alphabetical order."""
        return sorted(self._known)

    def parse(self, verb: object, arguments: Arguments) -> tuple[Request[Any], Callable[[Any, int], object]]:
        """Return the request that a verb and its arguments make, and its handler.

        Raises:
            RefusedError: the verb is unknown, or an argument is unknown, missing or of another type.
        """
        if not isinstance(verb, str) or verb not in self._known:
            raise RefusedError(f"no verb '{verb}'; known: {', '.join(self.names()) or 'none'}")
        kind, handler = self._known[verb]
        try:
            return decode(kind, arguments), handler
        except DecodeError as error:
            raise RefusedError(f"{verb}: {error}") from error

    def __call__(self, verb: object, arguments: Arguments, now: int) -> object:
        """Carry out a verb and return its answer.

        Raises:
            RefusedError: as `parse`, or an error of the handler.
        """
        request, handler = self.parse(verb, arguments)
        return handler(request, now)


class LineBuffer:
    """Splits bytes that arrive in pieces into whole lines."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self.limit = limit
        self._bytes = bytearray()

    def feed(self, data: bytes) -> bool:
        """Add bytes that arrived; return False if a line is longer than the limit."""
        self._bytes += data
        return len(self._bytes) <= self.limit

    def take(self) -> bytes | None:
        """Return the oldest whole line without its end, if there is one."""
        end = self._bytes.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 1]
        return line

    def __bool__(self) -> bool:
        return bool(self._bytes)


class Client:
    """A connection to a control socket, opened with the first request. An exchange that is cut off closes the
    connection, so that no answer is left for the next request."""

    def __init__(self, path: pathlib.Path, timeout_s: float = TIMEOUT_S) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._lines = LineBuffer()
        #: Whether a request was sent whose answer nothing has received.
        self._begun = False

    @property
    def connected(self) -> bool:
        """Return whether there is a connection, as far as is known."""
        return self._socket is not None

    def connect(self, wait_s: float = 0.0, check: Callable[[], object] = bool) -> None:
        """Connect, and wait for the server to appear; call `check` meanwhile, which raises if waiting is in vain.

        Raises:
            UnreachableError: the server does not appear.
        """
        deadline = time.monotonic() + wait_s
        while True:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                made.connect(str(self.path))
            except OSError as error:
                made.close()
                if time.monotonic() >= deadline:
                    raise UnreachableError(error.strerror or str(error), error.errno) from error
                check()
                interruption.sleep(_RETRY_S)
            else:
                self._socket = made
                return

    def ask(self, request: Request[A]) -> A:
        """Return the answer to a request.

        Raises:
            RefusedError: the server refuses the request.
            UnreachableError: there is no answer.
            DecodeError: the answer does not have the request's answer class.
        """
        answer: A = decode(request.answer, self.call(request.verb, encode(request)), f"answer to {request.verb}")
        return answer

    def call(self, verb: str, arguments: Arguments) -> Any:
        """Return the answer to a verb as plain JSON values; see `ask`."""
        self._send(verb, arguments)
        return self._receive()

    def begin(self, request: Request[A]) -> None:
        """Send a request whose answer `end` returns, so that several servers can answer at the same time.

        Raises:
            UnreachableError: the server is gone.
        """
        self._send(request.verb, encode(request))
        self._begun = True

    def end(self, request: Request[A]) -> A:
        """Return the answer to the request of `begin`; see `ask`."""
        self._begun = False
        answer: A = decode(request.answer, self._receive(), f"answer to {request.verb}")
        return answer

    def _send(self, verb: str, arguments: Arguments) -> None:
        if self._begun:  # an answer that nothing took must not be that of the next request
            self.close()
        if self._socket is None:
            self.connect()
        made = self._socket
        assert made is not None
        with self._errors():
            if made.gettimeout() != self.timeout_s:  # each call to set it is one of the kernel's
                made.settimeout(self.timeout_s)
            made.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")

    def _receive(self) -> Any:
        with self._errors():
            answer = self._answer()
            if answer.pop("ok"):
                return answer
        number = answer.get("errno", errno.EINVAL)
        raise RefusedError(answer["error"], number, ErrorCode(answer.get("code", code_of(number))))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Close the connection after any error, and raise UnreachableError for those of the socket."""
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise UnreachableError(
                f"no answer within {self.timeout_s:.0f} s", errno.ETIMEDOUT, ErrorCode.SILENT
            ) from error
        except OSError as error:
            self.close()
            raise UnreachableError(error.strerror or str(error), error.errno) from error
        except BaseException:
            self.close()
            raise

    def _answer(self) -> Any:
        made = self._socket
        assert made is not None
        deadline, came = time.monotonic() + self.timeout_s, False
        while (answer := self._lines.take()) is None:
            if came:  # of an answer in pieces
                made.settimeout(max(deadline - time.monotonic(), 0.001))
            data = made.recv(_RECV_BYTES)
            came = True
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "connection closed")
            if not self._lines.feed(data):
                raise ConnectionAbortedError(errno.EMSGSIZE, f"an answer of more than {self._lines.limit} bytes")
        return json.loads(answer)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._lines = LineBuffer()
        self._begun = False


class Loop(Protocol):
    """The event loop of a server. `ready` is called with the time (ns) when the file descriptor is readable."""

    def watch(self, fd: int, ready: Callable[[int], None]) -> None:
        """Start watching a file descriptor."""

    def unwatch(self, fd: int) -> None:
        """Stop watching a file descriptor."""


class SelectLoop:
    """An event loop for servers in a process without one."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._ends = 0.0
        self._signals: tuple[socket.socket, socket.socket] | None = None

    def wake_on_signals(self) -> None:
        """Have a signal that this process handles end `run` at once; without, it sleeps on. In the main thread only."""
        woken, waking = self._signals = socket.socketpair()
        waking.setblocking(False)
        signal.set_wakeup_fd(waking.fileno())

        def wake(now: int) -> None:
            woken.recv(64)
            self._ends = 0.0

        self.watch(woken.fileno(), wake)

    def watch(self, fd: int, ready: Callable[[int], None]) -> None:
        """See `Loop`."""
        self._selector.register(fd, selectors.EVENT_READ, ready)

    def unwatch(self, fd: int) -> None:
        """See `Loop`."""
        self._selector.unregister(fd)

    def run(self, seconds: float) -> None:
        """Serve for this time."""
        self._ends = time.monotonic() + seconds
        while (left := self._ends - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                # An earlier one of these may have closed this descriptor.
                if key.fd in self._selector.get_map():
                    key.data(time.monotonic_ns())

    def close(self) -> None:
        """Release the loop's own resources."""
        self._selector.close()
        for each in self._signals or ():
            each.close()


def listen(path: pathlib.Path, kind: socket.SocketKind = socket.SOCK_STREAM, backlog: int = 16) -> socket.socket:
    """Return a socket that listens at a path to which only its owner may connect.

    Raises:
        OSError: it cannot be bound there.
    """
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, kind)
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        made.bind(str(path))
    except OSError:
        made.close()
        raise
    finally:
        os.umask(before)
    made.listen(backlog)
    made.setblocking(False)
    return made


class Server:
    """Serves verbs at a path: `carry_out(verb, arguments, now)` returns an answer or raises RefusedError."""

    def __init__(
        self,
        path: pathlib.Path,
        loop: Loop,
        carry_out: CarryOut,
        limit: int = MAX_LINE_BYTES,
    ) -> None:
        self.path = path
        self.loop = loop
        self.carry_out = carry_out
        self.limit = limit
        self._peers: dict[int, tuple[socket.socket, LineBuffer]] = {}
        self._listener = listen(path)
        loop.watch(self._listener.fileno(), self._accept)
        #: The clients to which a thread sends the rest of an answer, the clients that have received it, and the wakeup
        #: of the loop.
        self._sending: set[int] = set()
        self._sent: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._bell = socket.socketpair()
        for end in self._bell:
            end.setblocking(False)
        loop.watch(self._bell[0].fileno(), self._resume_reading)

    def _accept(self, now: int) -> None:
        with contextlib.suppress(OSError):  # the client has gone, or no file descriptor is left for it
            peer, _ = self._listener.accept()
            self._peers[peer.fileno()] = (peer, LineBuffer(self.limit))
            self.loop.watch(peer.fileno(), functools.partial(self._read, peer.fileno()))

    def _read(self, fd: int, now: int) -> None:
        peer, lines = self._peers[fd]
        try:
            data = peer.recv(_RECV_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or not lines.feed(data):
            self._drop(fd)
            return
        self._serve(fd, now)

    def _serve(self, fd: int, now: int) -> None:
        """Answer the whole lines that a client has sent."""
        peer, lines = self._peers[fd]
        while (line := lines.take()) is not None:
            answer = answer_to(line, self.carry_out, now) + b"\n"
            try:
                sent = peer.send(answer, socket.MSG_DONTWAIT)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._drop(fd)
                return
            if sent < len(answer):
                self._send_later(fd, answer[sent:])
                return

    def _send_later(self, fd: int, rest: bytes) -> None:
        """Let a thread send what the socket's buffer has no room for; read nothing from the client until then.

        The loop never waits for a client: an agent's packets and timers would wait, too.
        """
        peer, _ = self._peers[fd]
        self.loop.unwatch(fd)
        self._sending.add(fd)

        def send() -> None:
            try:
                peer.settimeout(SEND_S)
                peer.sendall(rest)
                peer.settimeout(None)  # With a timeout the loop's recv would wait, whether or not MSG_DONTWAIT is set.
            except OSError:
                # The loop then reads the end of the connection, and drops the client.
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
            self._sent.put(fd)
            with contextlib.suppress(OSError):
                self._bell[1].send(b"x")

        threading.Thread(target=send, name="control-answer", daemon=True).start()

    def _resume_reading(self, now: int) -> None:
        """Watch the clients again that have received their answers, and read what they sent meanwhile."""
        with contextlib.suppress(BlockingIOError):
            self._bell[0].recv(_RECV_BYTES)
        while not self._sent.empty():
            fd = self._sent.get()
            self._sending.discard(fd)
            self.loop.watch(fd, functools.partial(self._read, fd))
            if self._peers[fd][1]:
                self._serve(fd, now)

    def _drop(self, fd: int) -> None:
        peer, _ = self._peers.pop(fd)
        if fd not in self._sending:
            self.loop.unwatch(fd)
        self._sending.discard(fd)
        peer.close()

    def close(self) -> None:
        """Close all connections and remove the socket."""
        for fd in list(self._peers):
            self._drop(fd)
        for each in (self._listener, self._bell[0]):
            self.loop.unwatch(each.fileno())
            each.close()
        self._bell[1].close()
        self.path.unlink(missing_ok=True)


def answer_to(line: bytes, carry_out: CarryOut, now: int) -> bytes:
    """Return the answer to a line as JSON; every line gets an answer, and the server continues."""
    try:
        request = json.loads(line)
        verb = request.pop("verb")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return _refusal(RefusedError('a request is one JSON object in a line, with a "verb"'))
    try:
        return json.dumps({"ok": True, **encode(carry_out(verb, request, now))}).encode()
    except RefusedError as error:
        return _refusal(error)
    except Exception as error:  # noqa: BLE001 - no request ends a server
        return _refusal(RefusedError(f"internal fault: {type(error).__name__}: {error}", errno.EIO))


def refusing(carry_out: CarryOut, refusals: tuple[type[Exception], ...]) -> CarryOut:
    """Return a wrapper of a function that raises RefusedError in the place of errors of these types."""

    def refuse(verb: str, arguments: Arguments, now: int) -> object:
        try:
            return carry_out(verb, arguments, now)
        except RefusedError:
            raise
        except refusals as error:
            raise RefusedError(str(error) or type(error).__name__) from error

    return refuse


def _refusal(error: RefusedError) -> bytes:
    document = {"ok": False, "errno": error.number, "code": error.code, "error": str(error)}
    return json.dumps(document).encode()
