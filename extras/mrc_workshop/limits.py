"""Limits that a confined process sets for itself before anything of the learner's runs: limits, mounts, rights, system
calls.

Only the standard library, and a table, is imported: this runs in a process with one thread, right after a fork.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct

from mrc_workshop import seccomp

SYS_MOUNT_SETATTR = 442  # the same on all architectures
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND = 1, 2, 4, 4096
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 38, 22, 4, 24
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
CLONE_NEWIPC = 0x08000000

MAX_FILE_BYTES = 512 << 20
MAX_OPEN_FILES = 1024
MAX_PROCESSES = 256
#: The size of the folder that a learner's Python can write to: it is in memory, and ends with its process.
MAX_NOTES_BYTES, MAX_NOTES = 64 << 20, 4096

libc = ctypes.CDLL(None, use_errno=True)


class LimitError(OSError):
    """A step that the kernel refused."""


def check(result: int, step: str) -> int:
    """Return the result of a system call.

    Raises:
        LimitError: it failed; the text names the step.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise LimitError(number, f"{step}: {os.strerror(number)}")
    return result


def forbid_new_rights() -> None:
    """Let no set-user-ID program give this process rights, which the kernel requires before a filter or Landlock.

    Raises:
        LimitError: the kernel refuses.
    """
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


def set_limits(cpu_s: int, memory_bytes: int) -> None:
    """Limit CPU time, address space, file size, open files and core dumps of this process and its children."""
    for which, soft, hard in (
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 2),
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES, MAX_FILE_BYTES),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES, MAX_OPEN_FILES),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        _, most = resource.getrlimit(which)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(which, (soft, hard))


def limit_processes() -> None:
    """Limit the processes and threads of this user, or, in a user namespace, those inside it; root has no such
    limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    wanted = MAX_PROCESSES if most == resource.RLIM_INFINITY else min(MAX_PROCESSES, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (wanted, wanted))


def forbid_tracing() -> None:
    """Forbid other processes of this user to trace this one or open its memory.

    Raises:
        LimitError: the kernel refuses.
    """
    check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "keeping others out")


def make_read_only(writable: str) -> None:
    """Make everything that is mounted read-only but for one mount; in a mount namespace of our own.

    Raises:
        LimitError: the kernel is older than 5.12, or refuses.
    """
    _attributes(b"/", AT_RECURSIVE, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0)
    _attributes(os.fsencode(writable), 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, MOUNT_ATTR_RDONLY)


def _attributes(path: bytes, flags: int, set_: int, clear: int) -> None:
    attributes = struct.pack("QQQQ", set_, clear, 0, 0)
    result = libc.syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR), AT_FDCWD, path, flags, attributes, ctypes.c_size_t(len(attributes))
    )
    check(result, f"making {path.decode()} read-only")


def cover(path: str) -> None:
    """Mount an empty, read-only folder or file over one that the confined process must not see.

    Raises:
        LimitError: the kernel refuses.
    """
    if os.path.isdir(path):
        flags, size = ctypes.c_ulong(MS_NOSUID | MS_NODEV | MS_RDONLY), b"size=4k"
        result = libc.mount(b"none", os.fsencode(path), b"tmpfs", flags, size)
    else:
        result = libc.mount(b"/dev/null", os.fsencode(path), None, ctypes.c_ulong(MS_BIND), None)
    check(result, f"covering {path}")


def make_notes(folder: str) -> None:
    """Mount a small folder in memory over an existing one.

    Raises:
        LimitError: the kernel refuses.
    """
    options = f"size={MAX_NOTES_BYTES},nr_inodes={MAX_NOTES},mode=0700".encode()
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    check(libc.mount(b"none", os.fsencode(folder), b"tmpfs", flags, options), f"making room in {folder}")


def leave_shared_objects() -> None:
    """Leave the machine's shared memory, semaphores and message queues by key (System V, POSIX).

    From now on they belong to this process and its children alone, and end with them; in a user namespace of our own.

    Raises:
        LimitError: the kernel has no such namespaces.
    """
    check(libc.unshare(CLONE_NEWIPC), "leaving the machine's shared objects")


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Set(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


def drop_rights() -> None:
    """Drop all capabilities, and every way to get any: by a set-user-ID program, or by being root in here.

    Raises:
        LimitError: the kernel refuses.
    """
    forbid_new_rights()
    for number in range(64):
        if libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0 and ctypes.get_errno() == errno.EINVAL:
            break
    header = _Header(CAPABILITY_VERSION_3, 0)
    check(libc.capset(ctypes.byref(header), (_Set * 2)()), "dropping capabilities")


def forbid_processes() -> bool:
    """Forbid this process to start others, to signal any, and to create shared objects or anonymous files in memory:
    such system calls fail with EPERM. Threads are allowed.

    Returns:
        False where the numbers of system calls are not known for this machine.

    Raises:
        LimitError: the kernel has no seccomp.
    """
    code = seccomp.filter_of(os.uname().machine)
    if code is None:
        return False
    buffer = ctypes.create_string_buffer(code, len(code))

    class _Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    filter_ = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p).value)
    forbid_new_rights()
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0), "forbidding system calls")
    return True
