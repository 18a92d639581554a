"""The filter of system calls, for x86-64 and arm64 on either: the numbers are the kernel's, the answers as promised."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys

import pytest

from mrc_workshop import seccomp

#: Where the kernel's numbers are written down: arm64 has the generic ones, which every machine's headers hold.
HEADERS = {"x86_64": "asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}


def kernel_numbers(machine: str) -> dict[str, int]:
    """Return the kernel's number of each system call, from the headers, as the preprocessor resolves them."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    if machine == "x86_64" != os.uname().machine:
        pytest.skip("the numbers of x86-64 are in its own headers only")
    # These two of the generic numbers are given on request only, and arm64's headers request them.
    wanted = [f"-D__ARCH_WANT_{name}" for name in ("SYS_CLONE3", "MEMFD_SECRET")]
    command = [compiler, "-E", "-dM", *wanted, "-include", HEADERS[machine], "-x", "c", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"no {HEADERS[machine]} here")
    found = dict(re.findall(r"^#define __NR_(\w+) (\w+)$", done.stdout, re.MULTILINE))
    return {name: int(number) for name, number in found.items() if number.isdigit()}


def answer(code: bytes, number: int, *, architecture: int, argument: int = 0) -> int:
    """Return what the kernel would answer: runs the filter on `struct seccomp_data`."""
    data = struct.pack("=iIQ6Q", number, architecture, 0, argument, *([0] * 5))
    rows = list(struct.iter_unpack("=HBBI", code))
    place, word = 0, 0
    while True:
        operation, yes, no, value = rows[place]
        place += 1
        if operation == seccomp.RETURN:
            return int(value)
        if operation == seccomp.LOAD:
            (word,) = struct.unpack_from("=I", data, value)
            continue
        true = {
            seccomp.JUMP_EQUAL: word == value,
            seccomp.JUMP_GREATER_EQUAL: word >= value,
            seccomp.JUMP_SET: bool(word & value),
        }[operation]
        place += yes if true else no


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    kernel = kernel_numbers(machine)
    column = list(HEADERS).index(machine)
    known = seccomp.MACHINES[machine]
    for name, numbers in {**seccomp.FORBIDDEN, "clone": (known.clone,) * 2, "clone3": (known.clone3,) * 2}.items():
        assert numbers[column] == kernel.get(name), name


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_filter_answers_as_it_says(machine: str) -> None:
    code, known = seccomp.filter_of(machine), seccomp.MACHINES[machine]
    assert code is not None
    assert len(code) // 8 <= 4096, "the kernel takes no longer program"
    here = known.architecture
    other = next(each.architecture for name, each in seccomp.MACHINES.items() if name != machine)
    for number in range(600):
        expected = seccomp.REFUSE if number in (*known.forbidden, known.clone) else seccomp.ALLOW
        expected = seccomp.MISSING if number == known.clone3 else expected
        assert answer(code, number, architecture=here) == expected, number
        assert answer(code, number, architecture=other) == seccomp.KILL, number
    assert answer(code, known.clone, architecture=here, argument=seccomp.CLONE_THREAD | 0x100) == seccomp.ALLOW
    if machine == "x86_64":
        assert answer(code, seccomp.X32 | 1, architecture=here) == seccomp.KILL


def test_a_machine_whose_numbers_are_unknown_has_no_filter() -> None:
    assert seccomp.filter_of("riscv64") is None


UNDER = """
import ctypes, errno, os, threading
from mrc_workshop import limits
try:
    assert limits.forbid_processes()
except OSError as error:
    print("no filter:", error.errno == errno.EINVAL)
    raise SystemExit
done = []
thread = threading.Thread(target=done.append, args=(1,))
thread.start()
thread.join()
assert done == [1]
refused = 0
for attempt in (lambda: os.fork(), lambda: os.execv("/bin/true", ["true"]), lambda: os.kill(os.getpid(), 0),
                lambda: os.memfd_create("x"), lambda: os.pidfd_open(os.getpid())):
    try:
        attempt()
    except PermissionError:
        refused += 1
print("refused", refused)
"""


def test_the_kernel_takes_the_filter() -> None:
    """On a machine of either kind. qemu's user mode installs no filter: its own system calls have other numbers."""
    if os.uname().machine not in seccomp.MACHINES:
        pytest.skip("no filter for this machine")
    done = subprocess.run([sys.executable, "-c", UNDER], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() == "no filter: True":
        pytest.skip("the kernel, or qemu's user mode, takes no filter")
    assert done.stdout.strip() == "refused 5"
