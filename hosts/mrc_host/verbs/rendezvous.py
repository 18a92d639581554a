"""Out of band: how two programs on one machine give each other their documents.

All hosts of a lab see the same files, so a unix socket by its path is enough.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import socket
import time
from typing import Any, Final

from mrc_host.verbs.connection import VerbsError

_RECV_BYTES: Final = 1 << 16
_RETRY_S: Final = 0.02


class Rendezvous:
    """A stream of JSON objects between two programs; close it, or use it as a context manager.

    `first`: this program came first, and the other to it.
    """

    def __init__(self, stream: socket.socket, first: bool) -> None:
        self.first = first
        self._stream = stream
        self._file = stream.makefile("rwb")

    @classmethod
    def at(cls, path: str | os.PathLike[str], timeout: float = 30.0) -> Rendezvous:
        """Meet another program that calls this with the same path: the first one waits there.

        Raises:
            VerbsError: no program comes within `timeout` seconds.
        """
        place = pathlib.Path(path)
        deadline = time.monotonic() + timeout
        while True:
            found = _connect(place)
            first = found is None
            if found is None:
                found = _wait(place, deadline)
            if found is not None:
                found.settimeout(timeout)
                return cls(found, first)
            if time.monotonic() >= deadline:
                raise VerbsError(errno.ETIMEDOUT, f"no other program came to {place} within {timeout:.0f} s")
            time.sleep(_RETRY_S)

    def send(self, document: Any) -> None:
        """Send a JSON object."""
        try:
            self._file.write(json.dumps(document).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise VerbsError(errno.ECONNRESET, f"the other program is gone ({error})") from None

    def receive(self) -> Any:
        """Wait for an object of the other program. Raises VerbsError when it is gone."""
        try:
            line = self._file.readline()
        except OSError as error:
            raise VerbsError(errno.ETIMEDOUT, f"the other program says nothing ({error})") from None
        if not line:
            raise VerbsError(errno.ECONNRESET, "the other program is gone")
        return json.loads(line)

    def exchange(self, document: Any) -> Any:
        """Send an object, and wait for one of the other program."""
        self.send(document)
        return self.receive()

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._stream.close()

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def exchange(path: str | os.PathLike[str], document: Any, timeout: float = 30.0) -> Any:
    """Meet another program at a path and swap documents with it."""
    with Rendezvous.at(path, timeout) as meeting:
        return meeting.exchange(document)


def _connect(place: pathlib.Path) -> socket.socket | None:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.connect(str(place))
    except OSError as error:
        found.close()
        if isinstance(error, ConnectionRefusedError):
            place.unlink(missing_ok=True)  # of a program that is gone
        return None
    return found


def _wait(place: pathlib.Path, deadline: float) -> socket.socket | None:
    """Listen at the path, which is this program's then; None when another program has just begun to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        listener.bind(str(own))
        os.chmod(own, 0o600)
        listener.listen(1)
        try:
            os.link(own, place)  # only one program can create it
        except FileExistsError:
            return None
        listener.settimeout(max(deadline - time.monotonic(), 0.01))
        try:
            found, _ = listener.accept()
        except TimeoutError:
            return None
        finally:
            place.unlink(missing_ok=True)
        return found
    except OSError as error:
        raise VerbsError(error.errno or errno.EIO, f"{place}: {error.strerror}") from None
    finally:
        listener.close()
        own.unlink(missing_ok=True)
