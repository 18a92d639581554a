"""A stand-in for a Mac: `python -m support.mac COMMAND ...` runs `mrclab COMMAND ...` without what only Linux has.

Names that macOS lacks are deleted from Python's modules, folders of Linux do not exist, packages that are for Linux
alone cannot be imported, and `sys.platform` is `darwin`. The rest is still Linux: the C library and its headers, system
calls, and third-party libraries, which are imported before. So a run in here shows that mrclab's Python asks for
nothing that a Mac lacks. It does not show that the libraries work there, nor that the switch's C compiles there.
"""

from __future__ import annotations

import builtins
import fcntl
import importlib
import io
import os
import platform
import select
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

#: Names that Python on macOS does not have, by module; those that end in * are beginnings.
ABSENT: Final[dict[ModuleType, tuple[str, ...]]] = {
    os: (
        "CLONE_*", "EFD_*", "MFD_*", "O_PATH", "O_TMPFILE", "O_DIRECT", "O_NOATIME", "P_PIDFD", "RWF_*", "SCHED_*",
        "SPLICE_*", "ST_APPEND", "ST_MANDLOCK", "ST_NOATIME", "ST_NODEV", "ST_NODIRATIME", "ST_NOEXEC", "ST_RELATIME",
        "ST_SYNCHRONOUS", "ST_WRITE", "copy_file_range", "eventfd*", "fdatasync", "getrandom", "getresgid",
        "getresuid", "getxattr",
        "listxattr", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "removexattr",
        "sched_get*", "sched_param", "sched_rr_get_interval", "sched_set*", "setns", "setresgid", "setresuid",
        "setxattr", "splice", "unshare", "waitid",
    ),
    socket: (
        "AF_ALG", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "IP_TRANSPARENT", "MSG_CMSG_CLOEXEC", "MSG_ERRQUEUE",
        "NETLINK_*", "PACKET_*", "SCM_CREDENTIALS", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SOCK_SEQPACKET",
        "SO_BINDTODEVICE", "SO_DOMAIN", "SO_MARK", "SO_PASSCRED", "SO_PEERCRED", "SO_PRIORITY", "SO_PROTOCOL",
        "TCP_DEFER_ACCEPT", "TCP_LINGER2", "TCP_QUICKACK", "TCP_USER_TIMEOUT",
    ),
    select: ("EPOLL*", "epoll"),
    selectors: ("EpollSelector",),
    signal: ("SIGPOLL", "SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT", "sigtimedwait", "sigwaitinfo"),
    fcntl: ("F_ADD_SEALS", "F_GETPIPE_SZ", "F_GET_SEALS", "F_OFD_*", "F_SEAL_*", "F_SETPIPE_SZ"),
}  # fmt: skip
FOLDERS: Final = ("/proc", "/sys", "/dev/shm")
#: Packages that are for Linux alone.
LINUX_ONLY: Final = ("mininet", "pyroute2")
#: Libraries that ask for the platform when they are imported, or for one of the names.
BEFORE: Final = (
    "asyncio", "ctypes", "grpc", "matplotlib.pyplot", "multiprocessing.connection", "numpy", "psutil", "rich.console",
    "shutil", "subprocess", "tempfile", "typer", "urllib.request", "uuid",
)  # fmt: skip
#: What reads these folders here, and asks the system in another way on a Mac.
LINUX_THEMSELVES: Final = ("psutil", "multiprocessing")


def _without_folders(function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(path: object, *rest: Any, **named: Any) -> Any:
        if isinstance(path, str | bytes | os.PathLike):
            text = os.fsdecode(path)
            reader = str(sys._getframe(1).f_globals.get("__name__", ""))
            if not reader.startswith(LINUX_THEMSELVES) and any(
                text == folder or text.startswith(f"{folder}/") for folder in FOLDERS
            ):
                raise FileNotFoundError(2, "No such file or directory", text)
        return function(path, *rest, **named)

    return guarded


def become() -> None:
    """Make this process look like one on a Mac, as far as the module's docstring says."""
    for name in BEFORE:
        importlib.import_module(name)
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc,assignment]
    for module, patterns in ABSENT.items():
        for name in list(vars(module)):
            if any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns):
                delattr(module, name)
    for name in LINUX_ONLY:
        sys.modules[name] = None  # type: ignore[assignment]
    builtins.open = io.open = _without_folders(builtins.open)
    for name in ("listdir", "lstat", "open", "readlink", "scandir", "stat"):
        setattr(os, name, _without_folders(getattr(os, name)))
    sys.platform = "darwin"
    platform.system = lambda: "Darwin"
    platform.machine = lambda: "arm64"


def main() -> None:
    """See the module's docstring."""
    become()
    from mrclab.cli.entry import main as command

    sys.argv[0] = "mrclab"
    command()


if __name__ == "__main__":
    main()
