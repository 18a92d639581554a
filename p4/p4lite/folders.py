"""Folders and files that only we and root can change: what is loaded and run, and where we listen, are such."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from pathlib import Path

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


def check_links(path: Path) -> None:
    """Check that only our links and root's lead to a path: another user's would choose which of our files we replace.

    Raises:
        OSError: one of another user's does.
    """
    for part in (path, *path.parents):
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
