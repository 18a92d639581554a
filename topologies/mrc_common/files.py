"""Writing files so that each is complete or absent: on a full disk, after a crash, under concurrent readers."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets

from mrc_common.errors import MrclabError

UNFINISHED = ".part"
"""How the names of files end that are being written; of a killed process they stay."""


class WriteError(MrclabError, OSError):
    """A file that could not be written; the text names it and the reason. Its earlier content is intact."""

    def __init__(self, path: str | os.PathLike[str], cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror or str(cause), os.fspath(path))

    def __str__(self) -> str:
        return f"{self.filename}: cannot be written: {self.strerror}"


def write_whole(path: str | os.PathLike[str], data: str | bytes, *, mode: int = 0o666) -> None:
    """Write a file (text as UTF-8) whole or not at all; `mode` is subject to the umask.

    A device or a pipe is written to directly. The target of a symbolic link is replaced, not the link.

    Raises:
        WriteError: the file could not be written; nothing is left of the attempt.
    """
    content = data.encode() if isinstance(data, str) else data
    try:
        target = pathlib.Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        _replace(target, content, mode)
    except ValueError as error:  # a NUL in the path
        raise WriteError(path, OSError(22, str(error))) from error
    except OSError as error:
        raise WriteError(path, error) from error


def _replace(target: pathlib.Path, content: bytes, mode: int) -> None:
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
