"""Messages between the process that simulates and the one that has a learner's Python: JSON behind its length.

Neither unpickles anything of the other's. Who reads bounds what may come, for the other end may be hostile.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

MAX_MESSAGE = 16 << 20
_LENGTH = struct.Struct("!I")
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decode = json.JSONDecoder().decode


class WireError(Exception):
    """Bytes from the other end that are not a message."""


class PeerGone(WireError):
    """The other end has closed."""


class Wire:
    """One end of a connected stream socket."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours
        self._buffer = bytearray()

    def send(self, message: list[Any]) -> None:
        """Send a message. Raises PeerGone if the other process has ended."""
        data = _encode(message).encode()
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise PeerGone(str(error.strerror)) from None

    def receive(self) -> list[Any]:
        """Wait for the next message and return it.

        Raises:
            WireError: the bytes are not a message, or the other end has closed.
        """
        buffer = self._buffer
        need = _LENGTH.size
        length = -1
        while True:
            if length < 0 and len(buffer) >= need:
                (length,) = _LENGTH.unpack_from(buffer)
                if length > MAX_MESSAGE:
                    raise WireError(f"a message of {length} bytes")
                need += length
            if len(buffer) >= need:
                break
            try:
                data = self._socket.recv(1 << 18)
            except OSError as error:
                raise PeerGone(str(error.strerror)) from None
            if not data:
                raise PeerGone("it was closed")
            buffer += data
        try:
            message = _decode(buffer[_LENGTH.size : need].decode())
        except (ValueError, RecursionError) as error:
            raise WireError(f"no message: {type(error).__name__}") from None
        del buffer[:need]
        if not isinstance(message, list) or not message:
            raise WireError("no message: no list")
        return message
