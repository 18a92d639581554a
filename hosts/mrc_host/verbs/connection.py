"""A program's connection to the agent of its host: requests, their answers, the file descriptors beside them."""

from __future__ import annotations

import errno
import json
import mmap
import os
import pathlib
import select
import socket
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Final, TypeVar

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
