"""The fabric's P4 program, compiled: what the controller pushes to every switch."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass

from mrc_topo.shipped import shipped

SOURCE = shipped("programs") / "fabric.p4"


class ProgramError(Exception):
    """The program does not compile; the text has the compiler's first error."""


@dataclass(frozen=True)
class FabricProgram:
    """BMv2 JSON and P4Info text of a program."""

    bmv2: bytes
    p4info: str


def fabric_program(source: pathlib.Path = SOURCE) -> FabricProgram:
    """Compiles `p4/programs/fabric.p4` (or another program that keeps to its tables).

    Raises:
        ProgramError: it does not compile.
    """
    # The compiler's parser takes a moment to load, which a command that compiles nothing should not wait for.
    from p4lite.compiler import compile_program
    from p4lite.compiler.diagnostics import CompileError

    try:
        compiled = compile_program(source, include_dirs=[source.parent, source.parent / "include"])
    except CompileError as error:
        raise ProgramError(str(error)) from error
    return FabricProgram(json.dumps(compiled.bmv2).encode(), compiled.p4info)
