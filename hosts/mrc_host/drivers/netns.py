"""Network namespaces of a process: what is opened in one stays there, wherever its process goes."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence

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


class KernelPackets:
    """IPv6 packets that a namespace's kernel sent itself: neighbour discovery, reports of groups, those of programs.

    The namespace is the one that this thread is in now.

    Args:
        interfaces: their names, in the order of the ports.

    Raises:
        OSError: the kernel has no IPv6.
    """

    def __init__(self, interfaces: Sequence[str]) -> None:
        self.interfaces = interfaces
        self._folder = os.open("/proc/thread-self/net/dev_snmp6", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sent(self, port: int) -> int:
        """Return the packets sent through a port's interface since it is there; 0 where it has no IPv6 now."""
        try:
            handle = os.open(self.interfaces[port], os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return 0
        with open(handle, encoding="ascii") as table:
            rows = dict(line.split() for line in table)
        return int(rows["Ip6OutRequests"])
