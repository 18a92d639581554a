"""Files: reading what users name, and writing so that each is complete or absent: on a full disk, after a crash, under
concurrent readers; and standard output that is full or closed."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from pathlib import Path

from p4lite.errors import P4liteError
from p4lite.folders import check_links

UNFINISHED = ".part"
"""How the names of files end that are being written; of a killed process they stay."""


class ReadError(P4liteError):
    """A file that cannot be read; the text names it and says why."""

    code = "unreadable"


def is_device(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a device; one such as /dev/zero has no end. Raises OSError."""
    mode = os.stat(path).st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file or a pipe that a user names.

    Raises:
        ReadError: it is not there, or is a folder or a device.
    """
    try:
        if is_device(path):
            raise ReadError(f"{os.fspath(path)}: cannot read: it is a device; give a file")
        return Path(path).read_bytes()
    except OSError as error:
        raise ReadError(f"{os.fspath(path)}: cannot read: {error.strerror or error}") from None
    except ValueError:
        raise ReadError(f"{os.fspath(path)!r}: cannot read: not a file name") from None


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the content of a text file that a user names. Raises ReadError as `read_bytes`, and if it is not UTF-8."""
    data = read_bytes(path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        where = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise ReadError(f"{os.fspath(path)}: cannot read: it is not UTF-8 text ({where})") from None


def open_standard_streams() -> None:
    """Open /dev/null in the place of standard input, output and errors that are closed.

    Without this a file that is opened later gets the number of one of them, and what is printed goes there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as the process


def write_whole(path: str | os.PathLike[str], data: str | bytes, *, mode: int = 0o666) -> None:
    """Write a file (text as UTF-8) whole or not at all; `mode` is subject to the umask. Raises OSError.

    A device, or a pipe with a reader, is written to directly. The target of a symbolic link is replaced, not the link;
    a link of another user's is refused.
    """
    try:
        check_links(Path(os.path.abspath(path)))
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
        # Opening a pipe that nothing reads would wait; it fails instead.
        handle = os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(handle, True)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
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
