"""Network namespaces of a process: a socket stays in the one in which it was opened, wherever its process goes."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

CLONE_NEWNET = 0x40000000
OWN = "/proc/thread-self/ns/net"

_libc = ctypes.CDLL(None, use_errno=True)


def _enter(handle: int, name: str) -> None:
    if _libc.setns(handle, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"network namespace {name}: {os.strerror(number)}")


@contextlib.contextmanager
def inside(path: str) -> Iterator[None]:
    """Open what is opened in here in the network namespace of a path such as /proc/PID/ns/net, and return afterwards.

    An empty path is where this thread is already. Needs CAP_SYS_ADMIN in the user namespace that owns both.

    Raises:
        OSError: no such namespace, or not permitted.
    """
    if not path:
        yield
        return
    own = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            other = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise OSError(error.errno, f"network namespace {path}: {error.strerror}") from error
        try:
            _enter(other, path)
        finally:
            os.close(other)
        try:
            yield
        finally:
            _enter(own, OWN)
    finally:
        os.close(own)
