"""Restrict a process to a list of folders by Landlock, which needs no rights, no namespaces and no mounts (Linux 5.13).

The constants are those of the kernel's include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from mrc_workshop.limits import check, forbid_new_rights, libc

# These numbers are the same on all architectures.
SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
#: The rights of the first version, and those that later versions added, by version.
FIRST_RIGHTS = (1 << 13) - 1
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
LATER_RIGHTS = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEVICE}
#: The rights that a rule for a file may name, as opposed to one for a folder.
RIGHTS_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
#: Restrictions of later versions: binding and connecting TCP sockets, from version 4; abstract unix sockets and
#: signals, from version 6.
TCP, TCP_VERSION = 3, 4
OUTSIDE, OUTSIDE_VERSION = 3, 6
READ = EXECUTE | READ_FILE | READ_DIR


def version() -> int:
    """Return the version of Landlock that the kernel offers; 0: none, or it is switched off."""
    found: int = libc.syscall(ctypes.c_long(SYS_CREATE_RULESET), None, ctypes.c_size_t(0), CREATE_RULESET_VERSION)
    return max(found, 0)


def restrict(readable: Iterable[str], writable: Iterable[str]) -> bool:
    """Allow this process to open only these files and folders; threads and processes that begin later inherit this.

    Connecting and binding TCP sockets is refused, too, where the kernel can do so. What is open stays open. A path that
    does not exist, or cannot be reached, is left out.

    Args:
        readable: files and folders to read and to execute.
        writable: files and folders to do anything with.

    Returns:
        False where the kernel has no Landlock.

    Raises:
        LimitError: the kernel refuses.
    """
    found = version()
    if not found:
        return False
    rights = FIRST_RIGHTS | sum(right for since, right in LATER_RIGHTS.items() if found >= since)
    tcp = TCP if found >= TCP_VERSION else 0
    outside = OUTSIDE if found >= OUTSIDE_VERSION else 0
    # Versions before TCP have the first field only, and refuse a longer structure unless the rest is zero.
    attributes = struct.pack("QQQ", rights, tcp, outside)
    ruleset = check(
        libc.syscall(ctypes.c_long(SYS_CREATE_RULESET), attributes, ctypes.c_size_t(len(attributes)), 0),
        "Landlock: rules",
    )
    try:
        for paths, allowed in ((readable, READ), (writable, rights)):
            for path in paths:
                # A path that cannot be reached cannot be read either: it gets no rule and stays unreadable.
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    _allow(ruleset, path, allowed & rights)
        forbid_new_rights()
        check(libc.syscall(ctypes.c_long(SYS_RESTRICT_SELF), ruleset, 0), "Landlock: restricting the process")
    finally:
        os.close(ruleset)
    return True


def _allow(ruleset: int, path: str, allowed: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            allowed &= RIGHTS_OF_FILES
        rule = struct.pack("=Qi", allowed, handle)  # packed, as in the kernel's header
        check(
            libc.syscall(ctypes.c_long(SYS_ADD_RULE), ruleset, RULE_PATH_BENEATH, rule, 0), f"Landlock: allowing {path}"
        )
    finally:
        os.close(handle)
