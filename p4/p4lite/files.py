"""Files: reading what users name, writing each complete or not at all, and folders that only we and root can change."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from p4lite.errors import P4liteError


class FolderError(P4liteError):
    """A folder that cannot be created or that others can change; the text names it and says what to do."""

    code = "unsafe_folder"


def cache_path() -> Path:
    """Return the folder of what may be made again: `$MRCLAB_CACHE`, `$XDG_CACHE_HOME/mrclab` or `~/.cache/mrclab`.

    It need not exist (`make_private`).
    """
    if chosen := os.environ.get("MRCLAB_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mrclab"


def make_private(path: Path) -> Path:
    """Create a folder (0700, with its parents) unless it exists, and check it (`check_private`).

    Returns:
        The folder without symbolic links in it.

    Raises:
        FolderError: it cannot be created, or others can change it.
    """
    path = Path(os.path.abspath(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise FolderError(f"{path}: cannot make the folder: {error.strerror}") from None
    return check_private(path)


def check_private(path: Path, *, closed: bool = False) -> Path:
    """Check that only this user and root can change the content of a folder, or replace it.

    Args:
        closed: no other user may read it either, and no link but root's leads to it.

    Returns:
        The folder without symbolic links in it.

    Raises:
        FileNotFoundError: it does not exist, in a place where no other user could create it.
        FolderError: another user can change it; the text names the folder.
    """
    shown = Path(os.path.abspath(path))
    try:
        _check_way(shown, closed=closed)
        found = shown.lstat()
        if closed and stat.S_ISLNK(found.st_mode):
            raise FolderError(f"{path} is a link")
        real = shown.resolve(strict=True)
        found = real.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise FolderError(f"{path} is not a folder")
        if found.st_uid != os.geteuid():
            raise FolderError(f"{path}: belongs to user {found.st_uid}, not to you")
        if closed and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise FolderError(f"{path} is open to others; `chmod 700 {path}`")
        if _is_changeable(found, sticky=False):
            raise FolderError(f"{path}: others can write to it; `chmod go-w {path}` after a look at what is in it")
        _check_way(real, closed=closed)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FolderError(f"{path}: cannot look at it: {error.strerror}") from None
    return real


def check_code_file(path: Path) -> Path:
    """Check that only this user and root wrote a file, can change it, or can replace it.

    Code that runs with our rights (a policy, a P4 program, a file that names such) must pass. Unlike with
    `check_private` it may lie in a folder of root's, or in one with the sticky bit, such as /tmp, where no other user
    can replace this user's files.

    Returns:
        The file without symbolic links in its path.

    Raises:
        FileNotFoundError: it does not exist.
        FolderError: another user can change it; the text names the file or folder and the remedy.
    """
    shown = Path(os.path.abspath(path))
    owners = {0, os.geteuid(), *_strangers()}
    try:
        _check_way(shown, closed=False)
        link = shown.lstat()
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in owners:
            raise FolderError(f"{path}: is a link of user {link.st_uid}'s; name the file itself")
        real = shown.resolve(strict=True)
        _check_way(real, closed=False)
        found = real.lstat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FolderError(f"{path}: cannot look at it: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise FolderError(f"{path}: is not a plain file")
    if found.st_uid not in owners:
        raise FolderError(f"{path}: belongs to user {found.st_uid}, not to you; copy it after a look at what is in it")
    if _is_changeable(found, sticky=False):
        raise FolderError(f"{path}: others can write to it; `chmod go-w {path}` after a look at what is in it")
    return real


def check_links(path: str | os.PathLike[str]) -> None:
    """Check that only our links and root's lead to a path: another user's would choose which of our files we replace.

    Raises:
        OSError: one of another user's does.
    """
    way = Path(os.path.abspath(path))
    for part in (way, *way.parents):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = part.lstat()
            if stat.S_ISLNK(found.st_mode) and found.st_uid not in {0, os.geteuid(), *_strangers()}:
                raise OSError(errno.EPERM, f"{part} is a link of user {found.st_uid}'s; name a place without it")


def _check_way(path: Path, *, closed: bool) -> None:
    """Check every existing folder above one."""
    roots = {0, *_strangers()}
    for parent in reversed(path.parents):
        found = parent.lstat()
        if stat.S_ISLNK(found.st_mode):
            if found.st_uid not in (roots if closed else roots | {os.geteuid()}):
                raise FolderError(f"{path}: {parent} is a link of user {found.st_uid}'s")
            found = parent.stat()
        if found.st_uid not in roots | {os.geteuid()}:
            raise FolderError(f"{path}: {parent} belongs to user {found.st_uid}, who can put another in its place")
        if _is_changeable(found, sticky=True):
            raise FolderError(
                f"{path}: others can write to {parent}, and put another in its place; `chmod go-w {parent}`"
            )


def is_private_file(found: os.stat_result) -> bool:
    """Return whether a file of a private folder is a plain file of this user that no other user can write to."""
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not _is_changeable(found, sticky=False)


def _is_changeable(found: os.stat_result, *, sticky: bool) -> bool:
    """Return whether others can write to it; with `sticky`, a folder where users cannot rename each other's files is
    safe."""
    if sticky and found.st_mode & stat.S_ISVTX:
        return False
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(found.st_gid)


def _is_own_group(gid: int) -> bool:
    """Return whether only this user is in a group: where every user has a group, umask 002 makes folders writable to
    it."""
    if gid == 0 and os.geteuid() != 0:
        # Root shares what its group can write with users that it trusts.
        return True
    try:
        us = pwd.getpwuid(os.geteuid())
        return gid == us.pw_gid and set(grp.getgrgid(gid).gr_mem) <= {us.pw_name} and us.pw_gid == us.pw_uid
    except KeyError:
        return False


def _strangers() -> set[int]:
    """Return the user ID of all users outside of this user namespace, root among them; outside of one, none."""
    with contextlib.suppress(OSError, ValueError):
        first = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
        if first != ["0", "0", "4294967295"]:
            return {int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))}
    return set()


UNFINISHED = ".part"
"""How the names of files end that are being written; of a killed process they stay."""


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Opening a pipe that nothing reads would wait; it fails instead.
_OLD = os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
#: On the way to a folder no link is followed. A folder may be one that we cannot list, which a Mac has no flag for.
_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
    """Write a file (text as UTF-8) whole or not at all; see `writing_whole`. Raises OSError, which names the file."""
    try:
        with writing_whole(path, mode=mode) as file:
            file.write(data.encode() if isinstance(data, str) else data)
    except OSError as error:  # it names a file that the caller has not heard of
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


@contextlib.contextmanager
def writing_whole(path: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a file that appears under its name, whole, at the end of the context; `mode` is subject to the umask.

    A device, or a pipe with a reader, is written to directly. The target of a symbolic link is replaced, not the link.

    Raises:
        OSError: the file cannot be made or completed, or another user's link leads to it; nothing is left of the
            attempt.
    """
    temporary = f".{secrets.token_hex(8)}{UNFINISHED}"
    check_links(path)
    target = Path(os.path.realpath(path))
    plain = not target.exists() or target.is_file()
    folder = _open_folder(target.parent)
    try:
        handle = os.open(temporary if plain else target.name, _NEW if plain else _OLD, mode, dir_fd=folder)
        os.set_blocking(handle, True)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                if plain:
                    # Some file systems report only now that they are full, and a crash must not leave an empty file.
                    os.fsync(file.fileno())
            if plain:
                os.replace(temporary, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            if plain:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
            raise
    finally:
        os.close(folder)


def discard_output() -> None:
    """Let what is still to be written to standard output go nowhere.

    Its reader, such as `head`, has all that it wants; without this the interpreter's end would fail on the rest.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_folder(folder: Path) -> int:
    """Return a handle of a folder without links in its path, for `dir_fd`.

    Another user who owns a folder above it could put a link in its place after `check_links`; what is written by the
    handle stays in the folder that was opened.
    """
    handle = os.open("/", _WAY)
    for part in folder.parts[1:]:
        try:
            following = os.open(part, _WAY, dir_fd=handle)
        finally:
            os.close(handle)
        handle = following
    return handle
