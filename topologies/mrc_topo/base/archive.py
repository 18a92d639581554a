"""Zip archives that others wrote: no header is believed, and memory stays small whatever is in them."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Final

from mrc_topo.base.files import Bounded, open_plain

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
