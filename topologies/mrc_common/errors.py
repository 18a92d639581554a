"""The errors that the command line shows as lines of text, and the exit codes that go with them."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """How a command ended, for shells and scripts. A command that a signal ended has 128 and the signal's number."""

    FAILED = 1
    """Something that was asked for correctly did not work, or an expectation was missed."""
    USAGE = 2
    """The command, or a file that it was given, is wrong; nothing was started."""
    INTERRUPTED = 130


class MrclabError(Exception):
    """Base of all errors that are shown without a traceback. The text says what is wrong, where, and what to do."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class UsageError(MrclabError):
    """What was asked for is wrong: a command, a name or a file. Nothing was started."""

    exit_code = ExitCode.USAGE
