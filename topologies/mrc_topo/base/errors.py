"""The errors that the command line shows as lines of text, and the exit codes that go with them."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import sys
from enum import IntEnum, StrEnum
from typing import ClassVar, Final, Self

#: What needs no lab on the real clock, for the remedies of errors: `mrclab up` has no option that simulates one.
SIMULATE = "simulate it: `mrclab run` or `mrclab web` with `--clock virtual`"


class ExitCode(IntEnum):
    """How a command ended, for shells and scripts. A command that a signal ended exits with 128 plus the signal's
    number."""

    FAILED = 1
    """Something that was asked for correctly did not work, or an expectation was missed."""
    USAGE = 2
    """The command, or a file that it was given, is wrong; nothing was started."""
    INTERRUPTED = 130


class ErrorCode(StrEnum):
    """What kind of error it is, for programs; the text is for people."""

    FAILED = "failed"
    INVALID = "invalid"
    NOT_FOUND = "not-found"
    BUSY = "busy"
    EXHAUSTED = "exhausted"
    UNSUPPORTED = "unsupported"
    GONE = "gone"
    SILENT = "silent"
    INTERNAL = "internal"


_BY_ERRNO = {
    errno.EINVAL: ErrorCode.INVALID,
    errno.EPROTO: ErrorCode.INVALID,
    errno.ENOENT: ErrorCode.NOT_FOUND,
    errno.EBUSY: ErrorCode.BUSY,
    errno.ENOMEM: ErrorCode.EXHAUSTED,
    errno.EMFILE: ErrorCode.EXHAUSTED,
    errno.EOPNOTSUPP: ErrorCode.UNSUPPORTED,
    errno.ENODEV: ErrorCode.GONE,
    errno.ETIMEDOUT: ErrorCode.SILENT,
    errno.EIO: ErrorCode.INTERNAL,
}


def code_of(number: int) -> ErrorCode:
    """Return the code that goes with an errno."""
    return _BY_ERRNO.get(number, ErrorCode.FAILED)


class MrclabError(Exception):
    """Base of all errors that are shown without a traceback. The text says what is wrong, where, and what to do."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    code: ErrorCode = ErrorCode.FAILED
    #: pip's arguments that remedy it, such as `mrclab[scale]`; a command on a terminal offers to run it.
    packages: tuple[str, ...] = ()

    def needing(self, *packages: str) -> Self:
        """Return this error with pip's arguments that install what it lacks."""
        self.packages = packages
        return self


class UsageError(MrclabError):
    """A command, name or file that is wrong. Nothing was started."""

    exit_code = ExitCode.USAGE
    code = ErrorCode.INVALID


PR_SET_PDEATHSIG: Final = 1
_TEXT: Final = (
    "labs need Linux, on the real clock for network namespaces and in simulated time for the switch's C code, and "
    "this is {system}; run mrclab in a Linux machine (docs/howto/virtual-machine.md) or a container "
    "(docs/howto/container.md)"
)


def not_linux() -> str:
    """Return why no lab runs on this machine, and where one does; empty on Linux."""
    return "" if sys.platform == "linux" else _TEXT.format(system=platform.system())


def end_with_parent() -> None:
    """Have this process killed when the thread that started it ends. Children do not inherit this; it is lost when the
    user changes. On other systems nothing is done.

    Raises:
        OSError: the kernel refuses.
    """
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"ending with the parent: {os.strerror(ctypes.get_errno())}")
