"""Writing files so that each is complete or absent: on a full disk, after a crash, under concurrent readers."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from pathlib import Path

UNFINISHED = ".part"
"""How the names of files end that are being written; of a killed process they stay."""


def write_whole(path: str | os.PathLike[str], data: str | bytes, *, mode: int = 0o666) -> None:
    """Write a file (text as UTF-8) whole or not at all; `mode` is subject to the umask. Raises OSError.

    A device or a pipe is written to directly. The target of a symbolic link is replaced, not the link.
    """
    try:
        _write(Path(os.path.realpath(path)), data.encode() if isinstance(data, str) else data, mode)
    except OSError as error:  # it names a file that the caller has not heard of
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def discard_output() -> None:
    """Let what is still to be written to standard output go nowhere.

    Its reader, such as `head`, has all that it wants; without this the interpreter's end would fail on the rest.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(target: Path, content: bytes, mode: int) -> None:
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    temporary = target.parent / f".{secrets.token_hex(8)}{UNFINISHED}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            # Some file systems report only now that they are full, and a crash must not leave an empty file.
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
