"""C programs of libmrc, compiled for a test."""

from __future__ import annotations

import os
import pathlib
import platform
import shutil
import subprocess
from collections.abc import Sequence

import pytest

from libmrc import build
from p4lite.switch.errors import BuildError
from p4lite.switch.native.build import SANITIZE, SANITIZE_THREADS
from p4lite.switch.native.build import compiler as p4lite_compiler

PROGRAMS = pathlib.Path(__file__).parents[1] / "libmrc" / "programs"
WARNINGS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g")


def compiler() -> list[str]:
    """Return the C compiler's command, or skip the test where it or a header that libmrc needs is missing."""
    try:
        build.check_headers()
        return p4lite_compiler()
    except BuildError as error:
        pytest.skip(str(error))


def cross_compiler(folder: pathlib.Path) -> str:
    """Return the command of a C compiler for arm64, as CC takes it, or skip the test.

    In `folder` it finds libibverbs' and jansson's headers alone of this machine's, which are the same for all machines.
    """
    if platform.machine() == "aarch64":
        pytest.skip("this machine is arm64 itself")
    if shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("aarch64-linux-gnu-gcc is not installed (Debian: gcc-aarch64-linux-gnu)")
    compiler()
    headers = folder / "headers"
    headers.mkdir()
    for name in ("infiniband", "jansson.h", "jansson_config.h"):
        (headers / name).symlink_to(pathlib.Path("/usr/include") / name)
    return f"aarch64-linux-gnu-gcc -static -isystem {headers}"


def emulator() -> str:
    """Return the command that runs arm64's programs, or skip the test."""
    found = shutil.which("qemu-aarch64-static")
    if found is None:
        pytest.skip("qemu-aarch64-static is not installed (Debian: qemu-user-static)")
    return found


def compiled(
    folder: pathlib.Path, name: str, *, sanitize: bool = True, include: Sequence[pathlib.Path] | None = None
) -> pathlib.Path:
    """Return a program, linked with libmrc; `include`: the folders of the headers of MRC and libibverbs.

    With P4LITE_SANITIZE=threads in the environment the sanitizer is that of threads.
    """
    command = compiler()
    sanitizers = SANITIZE_THREADS if os.environ.get("P4LITE_SANITIZE") == "threads" else SANITIZE
    library = build.library(sanitize=sanitize)
    folders = [build.INCLUDE] if include is None else include
    program = folder / name
    subprocess.run(
        [*command, *WARNINGS, *(sanitizers if sanitize else ("-O2",)), *(f"-I{each}" for each in folders),
         str(PROGRAMS / f"{name}.c"), "-o", str(program), f"-L{library}", "-lmrc", f"-Wl,-rpath,{library}",
         "-lpthread", "-ldl"],
        check=True,
    )  # fmt: skip
    return program


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a program of this library."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MRC_", "MRCLAB_RC"))}
    return kept | {"UBSAN_OPTIONS": "print_stacktrace=1"} | changes
