"""The agent's control socket: JSON lines over a unix socket, one request `{"verb": ..., ...}`, one answer each."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import pathlib
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mrc_host.node.host import CommandError

MAX_REQUEST_BYTES = 64 << 20
RECV_BYTES = 1 << 16
SOCKET_MODE = 0o600
#: A client that takes nothing of an answer for so long is dropped.
SEND_S = 5.0


class Watcher(Protocol):
    """The loop that the socket lives in."""

    def watch(self, fd: int, ready: Callable[[int], None]) -> None:
        """Calls back when readable."""

    def unwatch(self, fd: int) -> None:
        """Ends it."""


class ControlServer:
    """Serves `command(verb, arguments, now)`.

    Every answer is `{"ok": true, ...}` or `{"ok": false, "errno": ..., "error": ...}`.
    """

    def __init__(
        self,
        path: pathlib.Path,
        loop: Watcher,
        command: Callable[[str, Mapping[str, Any], int], dict[str, Any]],
    ) -> None:
        self.path = path
        self.loop = loop
        self.command = command
        self._buffers: dict[int, tuple[socket.socket, bytearray]] = {}
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o777 & ~SOCKET_MODE)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(before)
        self._listener.listen(16)
        self._listener.setblocking(False)
        loop.watch(self._listener.fileno(), self._accept)
        #: Clients to which a thread sends the rest of an answer, those that have it, and how the loop hears of it.
        self._sending: set[int] = set()
        self._sent: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._bell = socket.socketpair()
        for end in self._bell:
            end.setblocking(False)
        loop.watch(self._bell[0].fileno(), self._hear_again)

    def _accept(self, now: int) -> None:
        with contextlib.suppress(OSError):  # nobody there any more, or no file descriptor left for it
            peer, _ = self._listener.accept()
            self._buffers[peer.fileno()] = (peer, bytearray())
            self.loop.watch(peer.fileno(), functools.partial(self._read, peer.fileno()))

    def _read(self, fd: int, now: int) -> None:
        peer, buffer = self._buffers[fd]
        try:
            data = peer.recv(RECV_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        buffer += data
        if not data or len(buffer) > MAX_REQUEST_BYTES:
            self._drop(fd)
            return
        self._serve(fd, now)

    def _serve(self, fd: int, now: int) -> None:
        """Answer the whole lines that a client has sent."""
        peer, buffer = self._buffers[fd]
        while (end := buffer.find(b"\n")) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            answer = self._answer(line, now) + b"\n"
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
        """Have a thread hand over what the socket's buffer has no room for; until then the client is not heard.

        The agent's loop never waits for a client: its packets and timers would wait, too.
        """
        peer, _ = self._buffers[fd]
        self.loop.unwatch(fd)
        self._sending.add(fd)

        def send() -> None:
            try:
                peer.settimeout(SEND_S)
                peer.sendall(rest)
                peer.settimeout(None)  # with a timeout the loop's recv would wait, MSG_DONTWAIT or not
            except OSError:
                # The loop then reads the end of the connection, and drops it.
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
            self._sent.put(fd)
            with contextlib.suppress(OSError):
                self._bell[1].send(b"x")

        threading.Thread(target=send, name="control-answer", daemon=True).start()

    def _hear_again(self, now: int) -> None:
        """Watch the clients that have their answers, and take what they sent meanwhile."""
        with contextlib.suppress(BlockingIOError):
            self._bell[0].recv(RECV_BYTES)
        while not self._sent.empty():
            fd = self._sent.get()
            self._sending.discard(fd)
            self.loop.watch(fd, functools.partial(self._read, fd))
            if self._buffers[fd][1]:
                self._serve(fd, now)

    def _answer(self, line: bytes, now: int) -> bytes:
        """The answer as JSON; whatever a client sends, it is one, and the agent goes on."""
        try:
            request = json.loads(line)
            verb = request.pop("verb")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return _refused('a request is one JSON object in a line, with a "verb"')
        try:
            return json.dumps({"ok": True, **self.command(verb, request, now)}).encode()
        except CommandError as error:
            return _refused(str(error), error.number)
        except Exception as error:  # noqa: BLE001 - no command ends an agent
            return _refused(f"internal fault: {type(error).__name__}: {error}", errno.EIO)

    def _drop(self, fd: int) -> None:
        peer, _ = self._buffers.pop(fd)
        if fd not in self._sending:
            self.loop.unwatch(fd)
        self._sending.discard(fd)
        peer.close()

    def close(self) -> None:
        """Closes all connections and removes the socket."""
        for fd in list(self._buffers):
            self._drop(fd)
        for each in (self._listener, self._bell[0]):
            self.loop.unwatch(each.fileno())
            each.close()
        self._bell[1].close()
        self.path.unlink(missing_ok=True)


def _refused(text: str, number: int = errno.EINVAL) -> bytes:
    return json.dumps({"ok": False, "errno": number, "error": text}).encode()
