"""Compiled programs, for Python, the scopes of their actions, and the switches that run them."""

from __future__ import annotations

import contextlib
import enum
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p4lite.api.values import Backend, Observer, PythonExtern
from p4lite.compiler import compile_program, compile_text
from p4lite.contributions import GET_TOOLS, contributions
from p4lite.recursion import DOCUMENT_LIMIT, deep_recursion
from p4lite.switch.bmv2.reader import read_document
from p4lite.switch.errors import InvalidArgument
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.fabric.switch import FabricSwitch
from p4lite.switch.fabric.values import NotificationKind, QueueLimits
from p4lite.switch.program.facts import Facts
from p4lite.switch.program.load import load_facts
from p4lite.switch.runtime.loader import ProgramInstance

if TYPE_CHECKING:
    from p4lite.compiler.diagnostics import Diagnostic
    from p4lite.compiler.frontend import Defines, StrPath
    from p4lite.switch.runtime.loader import LoadedProgram


#: For each table its actions that may not stand everywhere.
Scopes = dict[str, dict[str, "ActionScope"]]


class ActionScope(enum.Enum):
    """What an annotation of an action in a table says."""

    ENTRIES_ONLY = "tableonly"
    DEFAULT_ONLY = "defaultonly"


def scopes_of(p4info: Any) -> Scopes:
    """Return the scopes in a P4Info message."""
    from p4lite.messages import p4info_pb2

    kinds = {
        p4info_pb2.ActionRef.TABLE_ONLY: ActionScope.ENTRIES_ONLY,
        p4info_pb2.ActionRef.DEFAULT_ONLY: ActionScope.DEFAULT_ONLY,
    }
    names = {action.preamble.id: action.preamble.name for action in p4info.actions}
    found: Scopes = {}
    for table in p4info.tables:
        limited = {names[ref.id]: kinds[ref.scope] for ref in table.action_refs if ref.scope in kinds}
        if limited:
            found[table.preamble.name] = limited
    return found


#: How files of P4 end.
SOURCES = {".p4", ".p4i", ".p4h", ".h", ".inc"}


@dataclass(eq=False)
class Program:
    """A program: `bmv2` is its BMv2 JSON, `p4info` its P4Info as text ("" of a JSON), `warnings` the compiler's.

    `sources` has the lines of each source file by its name, as far as they are known. `scopes`: for each table the
    actions that are @tableonly or @defaultonly; a BMv2 JSON does not say it. A program can be copied and pickled.
    """

    name: str
    bmv2: dict[str, Any] = field(repr=False)
    p4info: str = field(default="", repr=False)
    warnings: tuple[Diagnostic, ...] = ()
    sources: dict[str, list[str]] = field(default_factory=dict, repr=False)
    scopes: Scopes = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is made again of the rest, and cannot leave this process."""
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        # A document may be nested deeper than pickle and copy can follow.
        with deep_recursion(DOCUMENT_LIMIT):
            return state | {"bmv2": json.dumps(self.bmv2)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read the document again."""
        with deep_recursion(DOCUMENT_LIMIT):
            self.__dict__.update(state, bmv2=json.loads(state["bmv2"]))

    @cached_property
    def facts(self) -> Facts:
        """What the program declares: tables, actions, registers and so on. Raises ProgramError."""
        return load_facts(self.bmv2, source=self.name, name=Path(self.name).stem)

    @cached_property
    def native(self) -> LoadedProgram:
        """The program with its C. Raises ProgramError."""
        from p4lite.switch.runtime.loader import load_program

        return load_program(self.bmv2, name=Path(self.name).stem)

    @property
    def text(self) -> str:
        """The text of the program's own file, "" if it is not known."""
        return "\n".join(self.lines(self.name)) + "\n" if self.lines(self.name) else ""

    def lines(self, file: str) -> list[str]:
        """Return the lines of a source file, [] if it cannot be read."""
        if file not in self.sources:
            self.sources[file] = []
            # A JSON may name any file, such as a private key or a device, which then stands in a page of coverage.
            with contextlib.suppress(OSError, ValueError):
                path = Path(file).resolve()
                if path.suffix in SOURCES and path.is_file():
                    self.sources[file] = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return self.sources[file]


def compile(source: StrPath, *, include_dirs: Sequence[StrPath] = (), defines: Defines = ()) -> Program:
    """Compile P4_16: a path, or the text of a program (a string of several lines). A `.json` is read as BMv2 JSON.

    Raises:
        CompileError: the program has errors; its text is what `p4lite compile` prints.
        InvalidArgument: `source` is neither a path nor a text.
        ProgramError: the JSON cannot be read.
    """
    if not isinstance(source, str | os.PathLike):
        what = type(source).__name__
        raise InvalidArgument(f"a program is a path or a text of several lines, not {what}")
    if isinstance(source, str) and "\n" in source:
        compiled = compile_text(source, "program.p4", include_dirs, defines)
        name = "program.p4"
    else:
        name = os.fspath(source)
        if Path(name).suffix == ".json":
            return Program(name, read_document(Path(name)))
        compiled = compile_program(name, include_dirs, defines)
    sources = {file: list(lines) for file, lines in compiled.program.reporter.sources.items()}
    return Program(
        name, compiled.bmv2, compiled.p4info, tuple(compiled.warnings), sources, scopes_of(compiled.p4info_message)
    )


#: The entry points of switches other than the compiled one.
BACKENDS = "p4lite.backends"
DEVICE_ID = 1


def switch_seed(seed: int) -> int:
    """Return the seed of the program in switch DEVICE_ID of a fabric, whose random() the interpreter shall share."""
    return (seed * 0x9E3779B97F4A7C15 + DEVICE_ID * 0xD1342543DE82EF95) % (1 << 64) or 1


class CompiledBackend:
    """The program as compiled C, in a fabric of one switch whose ports are outside."""

    def __init__(self, program: Program, ports: Sequence[int], seed: int, priority_queues: int) -> None:
        self._fabric = Fabric("virtual", seed=seed)
        try:
            self._switch = self._fabric.add_switch(DEVICE_ID, priority_queues=priority_queues)
            self._switch.load(program.native)
            for port in ports:
                self._switch.add_port(port).set_queue(QueueLimits(packets=0))
        except BaseException:
            self._fabric.close()
            raise

    @property
    def control(self) -> ProgramInstance:
        return self._switch.instance

    @property
    def replication(self) -> FabricSwitch:
        return self._switch

    @property
    def now_ns(self) -> int:
        return self._fabric.now_ns

    def send(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        self._fabric.inject(self._switch.port(port), data)
        return [(out, frame) for _, _, out, frame in self._fabric.run_until(self._fabric.now_ns)]

    def advance(self, duration_ns: int) -> None:
        self._fabric.run_until(self._fabric.now_ns + duration_ns)

    def digests(self) -> list[tuple[str, tuple[int, ...]]]:
        lists = {d.id: d for d in self.control.program.learn_lists}
        notes = [n for n in self._fabric.notifications() if n.kind is NotificationKind.DIGEST]
        return [(lists[n.ident].name, lists[n.ident].split(n.data)) for n in notes]

    def close(self) -> None:
        self._fabric.close()


def interpreter(
    program: Program,
    ports: Sequence[int],
    seed: int,
    priority_queues: int,
    *,
    observers: Sequence[Observer] = (),
    externs: Mapping[str, PythonExtern] | None = None,
) -> Backend:
    """Return the program interpreted. Raises InvalidArgument where the package with the interpreter is missing."""
    backends = contributions(BACKENDS)
    if "interpreter" not in backends:
        raise InvalidArgument(f"the interpreter is not installed: {GET_TOOLS}")
    made: Backend = backends["interpreter"](program, ports, seed, priority_queues, observers=observers, externs=externs)
    return made
