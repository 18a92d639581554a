"""Programs for a switch from files: P4 source (compiled here), or BMv2 JSON with or without its P4Info."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import text_format

from p4lite import terminal
from p4lite.messages import p4info_pb2, p4runtime_pb2
from p4lite.recursion import DOCUMENT_LIMIT, deep_recursion
from p4lite.switch.bmv2.model import load_model
from p4lite.switch.bmv2.reader import read_document
from p4lite.switch.codegen.generate import check_compiled
from p4lite.switch.errors import ProgramError
from p4lite.switch.runtime.loader import LoadedProgram, load_program

if TYPE_CHECKING:
    from p4lite.compiler.frontend import Defines, StrPath


@dataclass(frozen=True, slots=True)
class Loaded:
    """BMv2 JSON from `path`, and the P4Info if it is known."""

    path: Path
    bmv2: dict[str, Any]
    p4info: Any | None

    def program(self) -> LoadedProgram:
        """Return the validated program; ProgramError names the file."""
        terminal.step(f"{self.path}: generating C")
        try:
            return load_program(self.bmv2, name=self.path.stem)
        except ProgramError as error:
            raise ProgramError(str(error).replace("<memory>", str(self.path), 1)) from None

    def check_compiled(self) -> None:
        """Raise InterpretedOnly if the compiled switch has not the program's architecture."""
        check_compiled(load_model(self.bmv2, str(self.path)))

    def config(self) -> Any:
        """Return the ForwardingPipelineConfig; None without P4Info."""
        if self.p4info is None:
            return None
        with deep_recursion(DOCUMENT_LIMIT):
            document = json.dumps(self.bmv2).encode()
        return p4runtime_pb2.ForwardingPipelineConfig(p4info=self.p4info, p4_device_config=document)


def load_source(
    path: Path,
    *,
    p4info: Path | None = None,
    include_dirs: Sequence[StrPath] = (),
    defines: Defines = (),
    with_p4info: bool = True,
) -> Loaded:
    """Read a `.p4` or `.json` file; ProgramError (one line for files, the compiler's text for P4).

    Without `with_p4info` the compiler's P4Info is not made, which saves time where it is not needed.
    """
    if path.suffix == ".p4":
        return _compile(path, include_dirs, defines, with_p4info)
    return Loaded(path, read_document(path), None if p4info is None else read_p4info(p4info))


def read_p4info(path: Path) -> Any:
    """Return a P4Info message from its text form."""
    message = p4info_pb2.P4Info()
    try:
        text_format.Merge(path.read_text(encoding="utf-8"), message, allow_unknown_field=True)
    except OSError as error:
        raise ProgramError(f"{path}: cannot read: {error.strerror}") from None
    except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise ProgramError(f"{path}: no P4Info in text form: {error}") from None
    return message


def _compile(path: Path, include_dirs: Sequence[StrPath], defines: Defines, with_p4info: bool) -> Loaded:
    from p4lite.compiler import compile_program
    from p4lite.compiler.diagnostics import CompileError

    try:
        result = compile_program(path, include_dirs, defines)
    except CompileError as error:
        raise ProgramError(str(error)) from None
    return Loaded(path, result.bmv2, result.p4info_message if with_p4info else None)
