"""Files: each is written so that it is complete or absent, and read only if it is a plain file of a size that is sane.

No header of a zip archive of others is believed.

What another wrote may be a device, a pipe, or larger than the memory; reading it must not end the command.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, Protocol

from mrc_topo.base.errors import MrclabError
from p4lite import files

#: The most that one reading of a `Bounded` file takes into memory.
PIECE: Final = 1 << 20
_KINDS: Final = {
    stat.S_ISDIR: "a directory",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
}


class UnfitFile(OSError):
    """A file that is not read: it is none (a device, a pipe), or too large; `strerror` says which."""

    def __init__(self, path: str | os.PathLike[str], why: str) -> None:
        super().__init__(errno.EINVAL, why, os.fspath(path))


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file for reading.

    Raises:
        UnfitFile: it is a device, a pipe, a socket or a folder.
        OSError, ValueError: it cannot be opened.
    """
    # Only plain files are opened: opening a device may have effects, and opening a pipe may block.
    _only_files(path, os.stat(path).st_mode)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _only_files(path, os.fstat(handle).st_mode)  # it may be another file than a moment ago
    except UnfitFile:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def read_plain(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of a plain file.

    Raises:
        UnfitFile: as `open_plain`, or it has more than `most` bytes.
        OSError, ValueError: it cannot be read.
    """
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise UnfitFile(path, _too_large(most))
        # One that grows, or whose size is not known, is not read beyond the limit either.
        return b"".join(Bounded(file, most, os.fspath(path)).pieces())


def _too_large(most: int) -> str:
    return f"larger than {most} bytes, which no such file needs"


def _only_files(path: str | os.PathLike[str], mode: int) -> None:
    if not stat.S_ISREG(mode):
        what = next((word for test, word in _KINDS.items() if test(mode)), "something else")
        raise UnfitFile(path, f"{what}, not a file")


class Stream(Protocol):
    """What is read from: a file, a member of an archive, a compressed file."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line, or its next bytes."""


class Bounded:
    """What is read of a stream, counted as it comes: at most `most` bytes, and `PIECE` at a time.

    Sizes in headers of an archive are its author's. A reader that trusts them takes all memory.
    """

    def __init__(self, stream: Stream, most: int, name: str) -> None:
        self._stream, self._most, self._room, self._name = stream, most, most, name

    def read(self, size: int = PIECE) -> bytes:
        """Return the next bytes, fewer than `size` if that is more than a piece; none at the end.

        Raises:
            UnfitFile: there are more than the stream may have.
        """
        return self._counted(self._stream.read(PIECE if size < 0 else min(size, PIECE)))

    def lines(self) -> Iterator[bytes]:
        """Yield the lines; a line is at most a piece. Raises as `read`."""
        while line := self._counted(self._stream.readline(PIECE)):
            if len(line) == PIECE:
                raise UnfitFile(self._name, f"a line of more than {PIECE} bytes, which no such file has")
            yield line

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes, a piece at a time. Raises as `read`."""
        while piece := self.read():
            yield piece

    def _counted(self, data: bytes) -> bytes:
        self._room -= len(data)
        if self._room < 0:
            raise UnfitFile(self._name, _too_large(self._most))
        return data


class WriteError(MrclabError, OSError):
    """A file that could not be written; the text names it and the reason. Its earlier content is intact."""

    def __init__(self, path: str | os.PathLike[str], cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror or str(cause), os.fspath(path))

    def __str__(self) -> str:
        return f"{self.filename}: cannot be written: {self.strerror}"


def write_whole(path: str | os.PathLike[str], data: str | bytes, *, mode: int = 0o666) -> None:
    """Write a file (text as UTF-8) whole or not at all; see `writing_whole`.

    Raises:
        WriteError: the file could not be written; nothing is left of the attempt.
    """
    with _named(path):
        files.write_whole(path, data, mode=mode)


@contextlib.contextmanager
def writing_whole(path: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a file that appears under its name, whole, at the end of the context; `mode` is subject to the umask.

    A device, or a pipe with a reader, is written to directly. The target of a symbolic link is replaced, not the link.

    Raises:
        WriteError: as `p4lite.files.writing_whole` raises OSError.
    """
    whole = files.writing_whole(path, mode=mode)
    with _named(path):
        file = whole.__enter__()
    try:
        yield file
    except BaseException:
        with _named(path):  # what was not written yet may not fit
            whole.__exit__(*sys.exc_info())
        raise
    with _named(path):
        whole.__exit__(None, None, None)


@contextlib.contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in every error of the system. Raises WriteError."""
    try:
        yield
    except WriteError:
        raise
    except ValueError as error:  # a NUL in the path
        raise WriteError(path, OSError(errno.EINVAL, str(error))) from error
    except OSError as error:
        raise WriteError(path, error) from error


#: The most bytes of an archive's directory: some ten thousand members.
MAX_DIRECTORY: Final = 4 << 20
#: Methods whose output can be limited while it comes. Others unpack a gigabyte at once from a few kilobytes.
METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: What reading a damaged archive raises.
DAMAGE: Final = (
    *(zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, NotImplementedError, RuntimeError, LookupError),
    *(ValueError, OverflowError, TypeError),
)


class _Directory(io.BufferedReader):
    """The file of an archive, of which no reading is larger than a directory may be."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes. Raises BadZipFile for a directory that says it is larger."""
        data = super().read(MAX_DIRECTORY + 1 if size is None or size < 0 else min(size, MAX_DIRECTORY + 1))
        if len(data) > MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory has more than {MAX_DIRECTORY} bytes")
        return data


class Archive(zipfile.ZipFile):
    """An archive, open for reading.

    Raises:
        DAMAGE: it is none, or is damaged; `files.UnfitFile` (an `OSError`), if it is no plain file.
    """

    _plain: _Directory | None = None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._plain = _Directory(open_plain(path).detach())  # type: ignore[attr-defined]
        try:
            super().__init__(self._plain)
        except BaseException:
            self._plain.close()
            raise

    def close(self) -> None:
        """Close the archive and its file."""
        super().close()
        if self._plain is not None:
            self._plain.close()

    @contextlib.contextmanager
    def member(self, info: zipfile.ZipInfo, most: int) -> Iterator[Bounded]:
        """Yield the content of a member; it ends at the size that the directory says.

        Raises:
            BadZipFile: it says more than `most` bytes, or is compressed in a way that cannot be limited.
            DAMAGE: it is damaged.
        """
        if info.file_size > most:
            raise zipfile.BadZipFile(f"{info.filename}: larger than {most} bytes, which no such file needs")
        if info.compress_type not in METHODS:
            raise zipfile.BadZipFile(f"{info.filename}: compressed in a way that is not used here")
        with self.open(info) as stream:
            yield Bounded(stream, most, info.filename)
