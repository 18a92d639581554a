"""From BMv2 JSON to a program that runs: read it, generate its C, compile it, load it; and the state of one switch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from p4lite.switch.bmv2.reader import read_document
from p4lite.switch.codegen.generate import Code, generate
from p4lite.switch.errors import BuildError
from p4lite.switch.native.build import LARGE, PROGRAM_DIR, build
from p4lite.switch.program.facts import DROP_PORT, Facts
from p4lite.switch.program.load import load_facts
from p4lite.switch.runtime.abi import OpenedProgram, open_program
from p4lite.switch.runtime.arrays import ArrayControl, CounterValue, MeterConfig
from p4lite.switch.runtime.profiles import Group, ProfileMember
from p4lite.switch.runtime.tables import Entry

__all__ = ["CounterValue", "Entry", "Group", "MeterConfig", "ProfileMember", "ProgramInstance"]


class ProgramInstance(ArrayControl):
    """One switch's state: a `Handle` (abi.py) and what can be done to action profiles (profiles.py), to tables
    (tables.py), and to arrays, those of tables among them (arrays.py), each on top of those before."""


RUNTIME = ("tables.c", "instance.c", "arrays.c", "hashes.c", "control.c", "describe.c")


@dataclass(frozen=True, eq=False)
class LoadedProgram(Facts):
    """A validated BMv2 JSON: its declarations, and its C."""

    code: Code = field(repr=False)

    def build(self, *, sanitize: bool = False) -> Path:
        """Compile to a shared object, or find it in the cache; return its path. Raises BuildError."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", self.name)[:60] or "program"
        sources = [PROGRAM_DIR / file for file in RUNTIME]
        generated = {"program.c": self.code.text}
        return build(name, sources, generated=generated, sanitize=sanitize, large=self.code.size > LARGE)

    def instance(self, *, seed: int = 1, drop_port: int = DROP_PORT, lock: int = 0, host: int = 0) -> ProgramInstance:
        """Return a fresh switch state with the initial entries of the program. Raises BuildError.

        `lock` and `host` are addresses of a `struct p4_lock` and a `struct p4_host` (pipeline.h), 0 for none;
        the fabric core hands them in.
        """
        return ProgramInstance(self, self.opened, seed=seed, drop_port=drop_port, lock=lock, host=host)

    @cached_property
    def opened(self) -> OpenedProgram:
        """The loaded object, which all instances share; finding it in the cache takes longer than making an instance.
        Raises BuildError."""
        return _opened(self)

    @property
    def is_opened(self) -> bool:
        """Whether `opened` has been asked for, so that nothing is left to compile."""
        return "opened" in self.__dict__


def load_program(source: str | Path | dict[str, Any], *, name: str | None = None) -> LoadedProgram:
    """Read and validate BMv2 JSON (ours, p4c's, or that of P4_14 programs) from a file or a dictionary.

    Raises ProgramError with the file and the place in the JSON: not a JSON, not BMv2's, a wrong version, a
    dangling reference, an unknown primitive, and so on.
    """
    if isinstance(source, dict):
        facts = load_facts(source, source="<memory>", name=name or "program")
    else:
        path = Path(source)
        facts = load_facts(read_document(path), source=str(path), name=name or path.stem)
    return LoadedProgram(**{f.name: getattr(facts, f.name) for f in fields(facts)}, code=generate(facts))


def _opened(program: LoadedProgram) -> OpenedProgram:
    """Open a program's object; rebuild one in the cache that cannot be loaded."""
    path = program.build()
    try:
        return open_program(path)
    except BuildError:
        path.unlink(missing_ok=True)
        return open_program(program.build())
