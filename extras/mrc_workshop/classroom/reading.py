"""Reading what students own: they may replace any file or folder at any time by a link, a pipe or something huge.

Folders are opened one below the other, so no link is followed after the first, trusted one. Of a file, type, owner and
size are checked on the descriptor that is read. Nothing is written here.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mrc_topo.base.document import MAX_BYTES, printable
from mrc_topo.base.errors import MrclabError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: The number of names of a folder that are looked at.
MAX_NAMES = 1000


class RefusedError(MrclabError):
    """A file or folder that is not read; the text names it, says why, and what to do."""


@dataclass
class Found:
    """What was read. `changed_s`: when the last of it was changed, in seconds since the epoch, as the kernel recorded
    it (`ctime`); an ordinary user can set that to now, and not to another time. `problems`: what was not read."""

    files: dict[str, bytes] = field(default_factory=dict)
    changed_s: float = 0.0
    problems: list[str] = field(default_factory=list)


@contextlib.contextmanager
def opened(base: pathlib.Path, parts: Sequence[str]) -> Iterator[int]:
    """Open a folder below a trusted one without following links in `parts`; give its descriptor.

    Raises:
        FileNotFoundError: it is not there.
        RefusedError: a part is a link or not a folder, or may not be read.
    """
    handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    here = base
    try:
        for part in parts:
            here = here / part
            try:
                below = os.open(part, _FOLDER, dir_fd=handle)
            except NotADirectoryError:
                raise RefusedError(f"{here}: is a link or not a folder; put the folder itself there") from None
            except PermissionError:
                raise RefusedError(f"{here}: may not be read by you; ask its owner for `chmod g+rx`") from None
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def names(folder: int) -> list[str]:
    """Return the first names in an open folder, sorted."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            found.append(entry.name)
            if len(found) >= MAX_NAMES:
                break
    return sorted(found)


def read_file(folder: int, name: str, owner: int | None, limit: int = MAX_BYTES) -> tuple[bytes, float]:
    """Return the content of a plain file in an open folder, and when it was changed.

    Args:
        folder: the descriptor of the folder.
        name: the name of the file in it.
        owner: the user whom the file must belong to; any if left out.
        limit: the most bytes that are accepted.

    Raises:
        FileNotFoundError: it is not there.
        RefusedError: it is something else, belongs to another user, or is too large.
    """
    shown = printable(name)[:80]
    _plain(os.stat(name, dir_fd=folder, follow_symlinks=False), shown, owner)
    try:
        handle = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RefusedError(f"{shown}: cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())  # it may be another file than a moment ago
        _plain(about, shown, owner)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise RefusedError(f"{shown}: is larger than {limit} bytes; no exercise needs that")
    return data, about.st_ctime


def _plain(about: os.stat_result, shown: str, owner: int | None) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise RefusedError(f"{shown}: is a link, pipe, device or folder; put a plain file there")
    if owner is not None and about.st_uid != owner:
        raise RefusedError(f"{shown}: belongs to another user; copy it, so that the student owns it")
    if owner is None and about.st_nlink > 1:
        raise RefusedError(f"{shown}: has a second name, perhaps in another user's folder; copy it")


def read_files(folder: int, wanted: Sequence[str], owner: int | None) -> Found:
    """Read the files of an exercise from an open folder; what is not there is left out."""
    found = Found()
    for name in wanted:
        try:
            data, changed = read_file(folder, name, owner)
        except FileNotFoundError:
            continue
        except (RefusedError, OSError) as error:
            found.problems.append(str(error))
            continue
        found.files[name] = data
        found.changed_s = max(found.changed_s, changed)
    return found
