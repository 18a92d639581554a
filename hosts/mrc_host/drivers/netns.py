"""Network namespaces of a process: what is opened in one stays there, wherever its process goes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
from collections.abc import Iterator, Sequence

CLONE_NEWNET = 0x40000000
OWN = "/proc/thread-self/ns/net"
#: The field of /proc/net/dev, after the name, of frames that were not sent.
DROPPED = 11

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

    Args:
        interfaces: their names, in the order of the ports.
        namespace: its path, /proc/PID/ns/net; empty for that of this process.

    Raises:
        OSError: no such process, or the kernel has no IPv6.
    """

    def __init__(self, interfaces: Sequence[str], namespace: str = "") -> None:
        self.interfaces = interfaces
        # The folder of a process shows the namespace in which that process is when a name is looked up. This process
        # leaves the namespace again at the end of `inside`, so the folder is that of one which stays there.
        process = pathlib.Path(namespace).parents[1] if namespace else pathlib.Path("/proc/self")
        self._folder = os.open(process / "net", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.close(self._open("dev_snmp6"))
        self._requests, self._dropped = [0] * len(interfaces), [0] * len(interfaces)

    def _open(self, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)

    def sent(self, port: int) -> int:
        """Return the packets sent through a port's interface since it is there, without all that it dropped instead:
        one without carrier takes what the kernel and the agent give it, and drops it. What cannot be read, such as
        while IPv6 is off, stays as it was."""
        name = self.interfaces[port]
        with contextlib.suppress(OSError), open(self._open(f"dev_snmp6/{name}"), encoding="ascii") as table:
            self._requests[port] = int(dict(line.split() for line in table)["Ip6OutRequests"])
        with contextlib.suppress(OSError), open(self._open("dev"), encoding="ascii") as table:
            rows = {label.strip(): counts.split() for label, _, counts in (line.partition(":") for line in table)}
            if name in rows:
                self._dropped[port] = int(rows[name][DROPPED])
        return self._requests[port] - self._dropped[port]
