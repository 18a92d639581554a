"""The stream between a lab's coordinator and its part on another machine: standard input and output of one process.

It carries messages (JSON objects) and connections to unix sockets, in frames: kind (8 bits), connection (32), length
(32), payload. Only the coordinator opens connections, and names the process of the part that is meant by its role. A
connection is closed in both directions at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

HEAD = struct.Struct("!BII")
MESSAGE, OPEN, DATA, CLOSE = 1, 2, 3, 4
#: The first bytes of a slice's stream; up to `SKIPPED` bytes that a login shell prints before are skipped.
GREETING = b"\nmrclab part 1\n"
SKIPPED = 1 << 16
LARGEST = 16 << 20
CHUNK = 1 << 16
#: The limit of bytes that wait for a process which does not read; beyond it the connection is closed.
WAITING = 32 << 20

#: A message as it arrived. Its receiver checks the contents.
Message = Mapping[str, Any]
Heard = Callable[[Message], object]


class StreamBroken(Exception):
    """A stream that has ended, or whose bytes are not those of a stream; the text says how."""


class Connection:
    """One connection of a stream, joined to a local socket by two threads."""

    def __init__(self, line: StreamEnd, number: int, local: socket.socket) -> None:
        self._line = line
        self.number = number
        self._local = local
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._changed = threading.Condition()
        for work in (self._outward, self._inward):
            threading.Thread(target=work, daemon=True).start()

    def take(self, data: bytes) -> None:
        """Take bytes that came from the other machine."""
        with self._changed:
            self._waiting.append(data)
            self._size += len(data)
            self._ended = self._ended or self._size > WAITING
            self._changed.notify()

    def end(self) -> None:
        """Record that the other machine has closed; what has arrived is still delivered."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _inward(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._ended)
                    if not self._waiting or self._size > WAITING:
                        break
                    data = self._waiting.popleft()
                self._local.sendall(data)
                with self._changed:
                    self._size -= len(data)
        with contextlib.suppress(OSError):
            self._local.shutdown(socket.SHUT_RDWR)

    def _outward(self) -> None:
        with contextlib.suppress(OSError, StreamBroken):
            while data := self._local.recv(CHUNK):
                self._line.write(DATA, self.number, data)
        self.end()
        self._line.forget(self.number)
        with contextlib.suppress(StreamBroken):
            self._line.write(CLOSE, self.number, b"")
        self._local.close()


class StreamEnd:
    """One end of a stream, on two descriptors. `heard` takes the messages; `opened` returns the socket to join to a
    connection for a role (OSError: there is none)."""

    def __init__(
        self, source: int, sink: int, heard: Heard, opened: Callable[[str], socket.socket] | None = None
    ) -> None:
        self._source = source
        self._sink = sink
        self._heard = heard
        self._opened = opened
        self._writing = threading.Lock()
        self._shut = False
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}
        self._next = 1
        self._buffer = b""

    def greet(self) -> None:
        """Send the greeting, a slice's first message."""
        self._put(GREETING)

    def await_greeting(self) -> None:
        """Skip what comes before the greeting.

        Raises:
            StreamBroken: there is no greeting.
        """
        seen = b""
        while GREETING not in seen:
            data = os.read(self._source, CHUNK)
            seen += data
            if not data or len(seen) > SKIPPED + CHUNK:
                said = "".join(each if each.isprintable() else " " for each in seen.decode(errors="replace"))
                raise StreamBroken(f"it is not part of mrclab; it says: {said.strip()[-200:]}" if said.strip() else "")
        self._buffer = seen.partition(GREETING)[2]

    def send(self, **message: Any) -> None:
        """Send a message.

        Raises:
            StreamBroken: the other end has closed.
        """
        self.write(MESSAGE, 0, json.dumps(message).encode())

    def write(self, kind: int, number: int, payload: bytes) -> None:
        """Write a frame. Raises as `send`."""
        self._put(HEAD.pack(kind, number, len(payload)) + payload)

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            with self._writing:
                if self._shut:
                    raise StreamBroken("the stream has ended")
                while view:
                    view = view[os.write(self._sink, view) :]
        except OSError as error:
            raise StreamBroken(error.strerror or str(error)) from error

    def shut(self) -> None:
        """Stop writing: the descriptor may soon belong to another connection."""
        with self._writing:
            self._shut = True

    def connect(self, role: str, local: socket.socket) -> None:
        """Join a socket here to the process of a role at the other end. Raises as `send`."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self.write(OPEN, number, role.encode())
            self._connections[number] = Connection(self, number, local)

    def forget(self, number: int) -> None:
        """Remove a connection that has ended."""
        with self._lock:
            self._connections.pop(number, None)

    def listen(self) -> None:
        """Handle the frames that arrive, until the stream ends.

        Raises:
            StreamBroken: the bytes are not those of a stream.
        """
        try:
            while (frame := self._frame()) is not None:
                self._take(*frame)
        finally:
            with self._lock:
                left = list(self._connections.values())
            for each in left:
                each.end()

    def _frame(self) -> tuple[int, int, bytes] | None:
        head = self._bytes(HEAD.size)
        if head is None:
            return None
        kind, number, length = HEAD.unpack(head)
        if kind not in (MESSAGE, OPEN, DATA, CLOSE) or length > LARGEST:
            raise StreamBroken("what it says is not a stream of mrclab's")
        payload = self._bytes(length)
        return None if payload is None else (kind, number, payload)

    def _bytes(self, count: int) -> bytes | None:
        """Read this many bytes; return None at the end."""
        parts = [self._buffer]
        size = len(self._buffer)
        while size < count:
            try:
                data = os.read(self._source, CHUNK)
            except OSError:
                data = b""
            if not data:
                return None
            parts.append(data)
            size += len(data)
        data = b"".join(parts)
        self._buffer = data[count:]
        return data[:count]

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == MESSAGE:
            try:
                message = json.loads(payload)
            except ValueError:
                raise StreamBroken("a message of it is not JSON") from None
            if not isinstance(message, dict):
                raise StreamBroken("a message of it is not an object")
            self._heard(message)
        elif kind == OPEN:
            self._accept(number, payload)
        else:
            with self._lock:
                found = self._connections.get(number)
            if found is not None and kind == DATA:
                found.take(payload)
            elif found is not None:
                found.end()

    def _accept(self, number: int, payload: bytes) -> None:
        if self._opened is None:
            raise StreamBroken("it opens a connection, which is not its to do")
        try:
            local = self._opened(payload.decode(errors="replace"))
        except OSError:
            self.write(CLOSE, number, b"")
            return
        with self._lock:
            self._connections[number] = Connection(self, number, local)
