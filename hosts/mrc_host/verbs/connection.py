"""A program's connection to the agent of its host: requests, their answers, the file descriptors beside them."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import pathlib
import select
import socket
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from mrc_topo.base.plain import DecodeError, decode, encode
from mrc_topo.base.rpc import Request

ENVIRONMENT: Final = "MRC_DEVICE"
TIMEOUT_S: Final = 30.0
_ANSWER_BYTES: Final = 1 << 20
_MAX_FILES: Final = 8
_SOCKET_SUFFIX: Final = ".verbs"
A = TypeVar("A")


class VerbsError(OSError):
    """A refused call, with an errno as the C library would set it."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)

    def __str__(self) -> str:
        return f"{self.strerror} [{errno.errorcode.get(self.errno or 0, self.errno)}]"


class DeviceLostError(VerbsError):
    """The agent is gone, or has hung up on this program."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.ENODEV, text)


def verbs_socket(control: pathlib.Path) -> pathlib.Path:
    """Return the socket for programs of a host's agent, beside its control socket."""
    return control.with_suffix(_SOCKET_SUFFIX)


def device_path(name: str | None) -> pathlib.Path:
    """Return the socket of a device: a path, or the name of a host of the lab that the program runs in; without a name
    that of the environment, which `mrclab exec` sets.

    Raises:
        VerbsError: there is nothing to go by.
    """
    own = os.environ.get(ENVIRONMENT, "")
    if name is None:
        if not own:
            raise VerbsError(
                errno.ENODEV,
                f"which device? `mrclab exec HOST -- ...` sets {ENVIRONMENT}; else name the socket of a host's agent",
            )
        return pathlib.Path(own)
    if "/" in name:
        return pathlib.Path(name)
    return pathlib.Path(own or ".").parent / f"{name}{_SOCKET_SUFFIX}"


class AgentConnection:
    """See the module's docstring. One request at a time; threads wait for each other."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.ended = "the context is closed"
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(TIMEOUT_S)
        _OPEN.add(self)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise VerbsError(
                error.errno or errno.ENODEV,
                f"device {path}: no agent answers ({error.strerror}); is the lab up, and the program in a host of it?",
            ) from None

    def fileno(self) -> int:
        """Return the socket's file descriptor; it is readable when the agent is gone."""
        return self._socket.fileno()

    def lost(self) -> bool:
        """Return whether the agent is gone; asks the kernel."""
        if self._socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        with self._lock:
            return bool(poll.poll(0))

    def ask(self, request: Request[A]) -> A:
        """Return the answer to a request.

        Raises:
            VerbsError: refused.
            DeviceLostError: there is no agent any more.
        """
        answer, files = self.ask_files(request)
        for fd in files:
            os.close(fd)
        return answer

    def ask_files(self, request: Request[A], files: Sequence[int] = ()) -> tuple[A, list[int]]:
        """Do as `ask` with file descriptors beside the request.

        Those of the answer are returned, too, and are the caller's.
        """
        with self._lock:
            if self._socket.fileno() < 0:
                raise self.closed()
            try:
                asked = json.dumps({"op": request.verb, **encode(request)}).encode()
                socket.send_fds(self._socket, [asked], files)
                data, found, _, _ = socket.recv_fds(self._socket, _ANSWER_BYTES, _MAX_FILES, socket.MSG_CMSG_CLOEXEC)
            except TimeoutError:
                self._socket.close()
                raise DeviceLostError(f"device {self.path}: the agent does not answer in {TIMEOUT_S:.0f} s") from None
            except OSError as error:
                raise DeviceLostError(f"device {self.path}: the agent is gone ({error.strerror})") from None
        if not data:
            raise DeviceLostError(f"device {self.path}: the agent is gone")
        try:
            answer = json.loads(data)
            if not answer.pop("ok"):
                raise VerbsError(answer["errno"], answer["error"])
            made: A = decode(request.answer, answer, f"answer to {request.verb}")
        except BaseException as error:
            for fd in found:
                os.close(fd)
            if isinstance(error, DecodeError):
                raise VerbsError(errno.EPROTO, f"{error}; the agent must be of the same mrclab") from None
            raise
        return made, found

    def closed(self) -> DeviceLostError:
        """Return the error for uses after its end."""
        return DeviceLostError(f"device {self.path}: {self.ended}")

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def after_fork_in_child(self) -> None:
        """Close this copy in a forked child: it would outlive the program, and the agent would not see the program's
        end.
        """
        self._lock = threading.Lock()  # a thread that is not here may have held it
        self.ended = "it is of the process that this one was forked from; open the device again"
        self.close()


_OPEN: Final[weakref.WeakSet[AgentConnection]] = weakref.WeakSet()


def _forget_all() -> None:
    for connection in list(_OPEN):
        connection.after_fork_in_child()


os.register_at_fork(after_in_child=_forget_all)


def map_shared(fd: int, nbytes: int) -> memoryview:
    """Map shared memory; the view keeps the mapping, which has a file descriptor of its own before Python 3.13."""
    if sys.version_info >= (3, 13):
        return memoryview(mmap.mmap(fd, nbytes, trackfd=False))
    return memoryview(mmap.mmap(fd, nbytes))


def map_file(fd: int, nbytes: int) -> memoryview:
    """Map shared memory, and close the file descriptor; the view keeps the mapping."""
    try:
        return map_shared(fd, nbytes)
    finally:
        os.close(fd)


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
