"""The filter of system calls that a learner's process runs under, as a program for the kernel's filter machine (BPF).

Numbers of system calls differ between machines; the table names each, so that a test can compare it with the kernel's
headers. Nothing in here makes a system call, so that the filter of either machine can be examined on both.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import Final

CLONE_THREAD: Final = 0x00010000

#: The number of each refused system call on x86-64 and on arm64; None: arm64 has no such call. First those that nothing
#: needs once the program is compiled, then those that reach other processes, then those that allocate memory which no
#: limit of a process counts, and some of which outlives the process.
FORBIDDEN: Final[dict[str, tuple[int, int | None]]] = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
}


@dataclass(frozen=True)
class Machine:
    """What a filter must know of a machine: the kernel's audit architecture, and two numbers beside `FORBIDDEN`."""

    architecture: int
    clone: int
    clone3: int
    forbidden: tuple[int, ...]


#: By the name of the machine in `os.uname()`.
MACHINES: Final = {
    "x86_64": Machine(0xC000003E, 56, 435, tuple(x86 for x86, _ in FORBIDDEN.values())),
    "aarch64": Machine(0xC00000B7, 220, 435, tuple(arm for _, arm in FORBIDDEN.values() if arm is not None)),
}

# Operations of the filter machine: load a word of `struct seccomp_data`; jump on equality, on greater or equal, on a
# bit; return. A jump skips as many instructions as its second (true) or third (false) field says.
LOAD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
#: Offsets into `struct seccomp_data`: the number, the architecture, the low half of the first argument (both machines
#: are little-endian).
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, MISSING = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
#: Numbers of x32, 32-bit pointers on x86-64, have this bit, and differ.
X32 = 0x40000000


def filter_of(machine: str) -> bytes | None:
    """Return the filter for a machine (`os.uname().machine`) as the kernel's `struct sock_filter`, 8 bytes each.

    It refuses other processes (EPERM), but not threads. `clone3` is answered as if it did not exist (ENOSYS): its flags
    lie in memory that a filter cannot read, and the C library then uses `clone`.

    Returns:
        None where the numbers of system calls are not known.
    """
    known = MACHINES.get(machine)
    if known is None:
        return None
    program = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_EQUAL, 1, 0, known.architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    if machine == "x86_64":
        program += [(JUMP_GREATER_EQUAL, 0, 1, X32), (RETURN, 0, 0, KILL)]
    program += [
        (JUMP_EQUAL, 0, 1, known.clone3),
        (RETURN, 0, 0, MISSING),
        (JUMP_EQUAL, 0, 4, known.clone),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (JUMP_SET, 1, 0, CLONE_THREAD),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    for number in known.forbidden:
        program += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *each) for each in program)
