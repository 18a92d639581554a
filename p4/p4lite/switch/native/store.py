"""The store of compiled objects: what comes out is what was put in, or nothing.

Beside each object is a file `NAME.sum` with its length and SHA-256. A loader maps an object and runs it, so that a cut
one is a SIGBUS and a changed one anything at all; one that does not match is therefore as good as none. Object and
sum change under a lock, each whole or not at all (`files.write_whole`), so that a process killed between the two
leaves a mismatch and no more.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from p4lite.files import UNFINISHED, write_whole
from p4lite.folders import is_private_file

#: Folders and files of killed builds are removed after this time; no build takes as long.
ABANDONED_S = 3600


class Store:
    """Objects by name in a folder that only we can write to. All methods but `find` let OSError through."""

    BUILD_PREFIX: ClassVar = "build-"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, name: str) -> Path | None:
        """Return the object's path if it is there and whole."""
        path = self.folder / name
        try:
            with self._locked(fcntl.LOCK_SH):
                if not self._is_whole(path):
                    return None
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return path

    def put(self, name: str, made: Path) -> Path:
        """Store a copy of the file `made` under a name; return its path."""
        data = made.read_bytes()
        path = self.folder / name
        with self._locked(fcntl.LOCK_EX):
            write_whole(path, data, mode=0o755)
            write_whole(self._sum_file(path), _sum(data), mode=0o644)
        self._sweep()
        return path

    def copy(self, name: str, target: Path) -> bool:
        """Copy a whole object to `target`; return False when there is none."""
        found = self.find(name)
        if found is None:
            return False
        shutil.copyfile(found, target)
        return True

    def _sum_file(self, path: Path) -> Path:
        return path.with_name(path.name + ".sum")

    def _is_whole(self, path: Path) -> bool:
        with path.open("rb") as file:
            return is_private_file(os.fstat(file.fileno())) and (
                self._sum_file(path).read_text(encoding="ascii", errors="replace") == _sum(file.read())
            )

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        access = os.O_RDONLY if kind == fcntl.LOCK_SH else os.O_RDWR | os.O_CREAT
        handle = os.open(self.folder / ".lock", access | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)

    def _sweep(self) -> None:
        """Remove the remains of killed builds."""
        for pattern in (f"{self.BUILD_PREFIX}*", f".*{UNFINISHED}"):
            for path in self.folder.glob(pattern):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime <= ABANDONED_S:
                        continue
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink()


def _sum(data: bytes) -> str:
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}\n"
