"""Builds and loads the shared object of a program."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import TYPE_CHECKING

from p4lite.switch.errors import BuildError
from p4lite.switch.native.build import LARGE, PROGRAM_DIR, build

if TYPE_CHECKING:
    from p4lite.switch.program.facts import Program

ABI = 1
RUNTIME = ("tables.c", "instance.c", "arrays.c", "hashes.c", "control.c")


def build_program(program: Program, *, sanitize: bool = False) -> Path:
    """Compiles a program to a shared object, or finds it in the cache. Raises BuildError."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", program.name)[:60] or "program"
    made = program.generator
    sources = [PROGRAM_DIR / file for file in RUNTIME]
    return build(name, sources, generated={"program.c": made.source}, sanitize=sanitize, large=made.code_bytes > LARGE)


def load_built(program: Program) -> tuple[ctypes.CDLL, int]:
    """Builds and loads a program; an object in the cache that cannot be loaded is built anew."""
    path = build_program(program)
    try:
        return open_program(path)
    except BuildError:
        path.unlink(missing_ok=True)
        return open_program(build_program(program))


def open_program(path: Path) -> tuple[ctypes.CDLL, int]:
    """Loads a program object: the library and the address of its `struct p4_program`. Raises BuildError."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path}: cannot load: {error}") from None
    if not hasattr(library, "p4lite_program"):
        raise BuildError(f"{path}: is no compiled program")
    library.p4lite_program.restype = ctypes.c_void_p
    library.p4lite_program.argtypes = []
    address = int(library.p4lite_program())
    abi = ctypes.c_uint32.from_address(address).value
    if abi != ABI:
        raise BuildError(f"{path}: built for interface {abi}, this is {ABI}; delete the file")
    return library, address
