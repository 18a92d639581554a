"""The base of all errors of p4lite."""

from __future__ import annotations

from typing import ClassVar


class P4liteError(Exception):
    """Base of errors that are shown without a traceback: the text says what is wrong, where, and what to do.

    `code` is the same in every release, for programs; a command that fails with the error ends with `exit_code`: 1, or
    2 where the command or its input is wrong and nothing was started.
    """

    code: str = "failed"
    exit_code: ClassVar[int] = 1
