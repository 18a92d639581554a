"""The agent's control socket: JSON lines over a unix socket, one request `{"verb": ..., ...}`, one answer each."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import pathlib
import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mrc_host.node.host import CommandError

MAX_REQUEST_BYTES = 64 << 20
RECV_BYTES = 1 << 16
SOCKET_MODE = 0o600


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
        while (end := buffer.find(b"\n")) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            try:
                # Blocking: an answer is small beside the socket's buffer, or the controller waits for it.
                peer.settimeout(5.0)
                peer.sendall(self._answer(line, now) + b"\n")
            except OSError:
                self._drop(fd)
                return

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
        self.loop.unwatch(fd)
        peer.close()

    def close(self) -> None:
        """Closes all connections and removes the socket."""
        for fd in list(self._buffers):
            self._drop(fd)
        self.loop.unwatch(self._listener.fileno())
        self._listener.close()
        self.path.unlink(missing_ok=True)


def _refused(text: str, number: int = errno.EINVAL) -> bytes:
    return json.dumps({"ok": False, "errno": number, "error": text}).encode()
