"""Grants of the target API on the machine: files in one folder, interfaces named at start."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from p4lite.files import FolderError, make_private
from p4lite.switch.description import DEFAULT_LIMIT_BYTES
from p4lite.switch.errors import GrantError

#: Names that are no path, no hidden file and no option.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
#: Empty files cost, too.
MAX_FILES = 1000


class Grants:
    """Files below `folder` (None: no files at all), `limit_bytes` all together, and `interfaces` for new ports."""

    def __init__(
        self,
        folder: Path | None = None,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        interfaces: Iterable[str] = (),
    ) -> None:
        """Create the folder. Raises GrantError if it cannot be created, or others can write to it."""
        self.interfaces = set(interfaces)
        self.limit_bytes = limit_bytes
        try:
            self.folder = None if folder is None else make_private(folder)
        except FolderError as error:
            raise GrantError(f"the folder of captures and traces: {error}") from None

    def check_interface(self, name: str) -> None:
        """Raise GrantError unless ports may be on this interface."""
        if name not in self.interfaces:
            known = ", ".join(sorted(self.interfaces)) or "none"
            raise GrantError(f"interface {name} was not named at start; named: {known}")

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[str]:
        """Yield a path by which the file of this name can be opened for writing while the context lasts.

        No link is followed, and only a plain file with no other name is opened. Raises GrantError for any other.
        """
        if self.folder is None:
            raise GrantError("no folder for captures and traces was named at start")
        if not FILE_NAME.match(name):
            raise GrantError(
                f"{name[:120]!r}: not the name of a file in the folder of captures and traces (letters, digits, . _ -)"
            )
        handle = -1
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if len(os.listdir(folder)) >= MAX_FILES and not (self.folder / name).exists():
                    raise GrantError(f"{name}: there are {MAX_FILES} files already")
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                handle = os.open(name, flags, 0o600, dir_fd=folder)
            finally:
                os.close(folder)
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise GrantError(f"{name}: is not a plain file of its own")
            os.ftruncate(handle, 0)
            yield f"/proc/self/fd/{handle}"
        except OSError as error:
            raise GrantError(f"{name}: cannot be opened: {error.strerror}") from None
        finally:
            if handle >= 0:
                os.close(handle)

    def room(self) -> int:
        """Return how many more bytes the files may have."""
        used = 0
        if self.folder is not None:
            with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
                used = sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in entries)
        return max(0, self.limit_bytes - used)
