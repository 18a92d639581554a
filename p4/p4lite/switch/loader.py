"""Builds and loads the shared object of a program."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import TYPE_CHECKING

from p4lite.switch.build import CORE_DIR, build
from p4lite.switch.errors import BuildError

if TYPE_CHECKING:
    from p4lite.switch.program import Program

ABI = 1
RUNTIME = ("tables.c", "state.c", "stateful.c", "hashes.c", "control.c")


def build_program(program: Program, *, sanitize: bool = False) -> Path:
    """Compiles a program to a shared object, or finds it in the cache. Raises BuildError."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", program.name)[:60] or "program"
    sources = [CORE_DIR / file for file in RUNTIME]
    return build(name, sources, generated={"program.c": program.generator.source}, sanitize=sanitize)


def open_program(path: Path) -> tuple[ctypes.CDLL, int]:
    """Loads a program object: the library and the address of its `struct p4_program`. Raises BuildError."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path}: cannot load: {error}") from None
    library.p4lite_program.restype = ctypes.c_void_p
    library.p4lite_program.argtypes = []
    address = int(library.p4lite_program())
    abi = ctypes.c_uint32.from_address(address).value
    if abi != ABI:
        raise BuildError(f"{path}: built for interface {abi}, this is {ABI}; delete the file")
    return library, address
