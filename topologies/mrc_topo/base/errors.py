"""The errors that the command line shows as lines of text, and the exit codes that go with them."""

from __future__ import annotations

import errno
from enum import IntEnum, StrEnum
from typing import ClassVar, Self

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
