"""Temporary folders that do not outlive their process, however that ends.

All of a user's lie in one folder, `mrclab-scratch-UID` in the folder of temporary files (TMPDIR). Each has a file
beside it, `NAME.owner`, which says what made it and which its process holds locked. What no process holds any more is
removed by the next `scratch`, and by `mrclab cleanup`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from p4lite.files import FolderError, make_private

OWNER = ".owner"


@contextlib.contextmanager
def scratch(kind: str, *, passable: bool = False) -> Iterator[Path]:
    """Yield an empty folder (0700) whose name begins with `kind`, and remove it with all that is in it.

    Args:
        passable: other users who know the folder's name may go to it, for one that is given to another user.

    Raises:
        FolderError: there is no place for it; the text names the place and the remedy.
    """
    try:
        base = _base()
        if passable:
            base.chmod(0o711)
        with _locked(base):
            _remove_abandoned(base)
            handle, name = tempfile.mkstemp(prefix=f"{kind}-", suffix=OWNER, dir=base)
            fcntl.flock(handle, fcntl.LOCK_EX)
            owner = Path(name)
            folder = owner.with_suffix("")
            try:
                os.write(handle, f"{os.getpid()} {' '.join(sys.argv)[:200]}\n".encode(errors="replace"))
                folder.mkdir(mode=0o700)
            except BaseException:
                owner.unlink()
                os.close(handle)
                raise
    except OSError as error:
        place = error.filename or _shown_place()
        text = f"{place}: cannot make temporary files: {error.strerror}; make room there, or set TMPDIR"
        raise FolderError(text) from None
    try:
        yield folder
    finally:
        _remove(owner)
        os.close(handle)


def remove_abandoned() -> list[str]:
    """Remove what killed processes left; return what each was, with its process and command.

    Raises:
        FolderError: others can change the folder.
    """
    if not (Path(_shown_place()) / _name()).exists():
        return []
    base = _base()
    with _locked(base):
        return _remove_abandoned(base)


def _name() -> str:
    return f"mrclab-scratch-{os.geteuid()}"


def _shown_place() -> str:
    """Return the folder of temporary files; if none can be written to, that of the environment."""
    try:
        return tempfile.gettempdir()
    except OSError:
        return os.environ.get("TMPDIR", "/tmp")


def _base() -> Path:
    try:
        return make_private(Path(tempfile.gettempdir()) / _name())
    except FolderError as error:
        raise FolderError(f"{error}; or set TMPDIR to another folder") from None
    except FileNotFoundError:  # whose text is a list of all places that Python tried
        text = "the disk is full, or it cannot be written to"
        raise OSError(0, text, _shown_place()) from None


@contextlib.contextmanager
def _locked(base: Path) -> Iterator[None]:
    """Let one process at a time make or remove folders, so that none is found before its owner has locked it."""
    with (base / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_abandoned(base: Path) -> list[str]:
    removed = []
    for owner in sorted(base.glob(f"*{OWNER}")):
        # A process that ends at this moment may have removed its own.
        with contextlib.suppress(FileNotFoundError, BlockingIOError), owner.open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            pid, _, command = lock.read().strip().partition(" ")
            removed.append(f"{owner.stem} of process {pid or 'unknown'}{f' ({command})' if command else ''}")
            _remove(owner)
    return removed


def _remove(owner: Path) -> None:
    folder = owner.with_suffix("")
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # deeper than Python's calls or path names may be
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, stdin=subprocess.DEVNULL)
    owner.unlink(missing_ok=True)
