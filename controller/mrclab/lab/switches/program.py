"""The fabric's P4 program, compiled, and the one way in which a controller takes a switch over and fills it.

A switch wants an election id at least as high as any that it has seen: a later controller takes the time, which is
higher than the daemon's and than that of every earlier controller.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import p4lite.compiler
from mrc_topo.base import document, interruption
from mrc_topo.base.document import DocumentError
from mrc_topo.base.errors import MrclabError, UsageError
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import DecodeError, decode, encode
from mrc_topo.shipped import shipped
from mrc_topo.topology import Switch, Topology
from mrclab.lab.records import rundir
from mrclab.lab.switches import forwarders, mapping
from mrclab.lab.switches import names as p4info_names
from mrclab.lab.switches.names import Match, P4InfoNames, P4RuntimeError, TableEntry
from p4lite.files import FolderError
from p4lite.scratch import scratch
from p4lite.switch.errors import BuildError
from p4lite.switch.fabric.switch import FabricSwitch
from p4lite.switch.native.build import Store, cache_dir
from p4lite.switch.program.entry import ActionCall, Exact, Lpm, MatchValue
from p4lite.switch.program.facts import KeyFacts
from p4lite.switch.runtime.loader import load_program

if TYPE_CHECKING:
    import grpc

    from mrclab.lab.switches.p4rt import Device


FOLDER = shipped("programs")
SOURCE = FOLDER / "fabric.p4"
INFO = ".p4info.txtpb"
#: The file beside a compiled program of a lab's own, with the program's origin and the texts of its files.
SOURCES = ".sources.json"
P4C_S = 120.0
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)


class ProgramError(MrclabError):
    """A program that does not compile; the text has the compiler's first error."""


class OwnProgramError(ProgramError, UsageError):
    """A program named by a lab file that cannot be read, does not compile, or does not fit the lab's tables."""


#: The switches' program in a run's result: `file`, `sha256` and `files`.
ProgramDocument = dict[str, str | list[str]]


@dataclass(frozen=True)
class _Sources:
    """The origin of a saved program, and the text of its files by name."""

    path: str = ""
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FabricProgram:
    """BMv2 JSON and P4Info text of a program. For a lab's own program, `path` is its file, and `files` are the texts of
    that file and of the files in its folder that it includes, by their names there."""

    bmv2: bytes
    p4info: str
    path: str = field(default="", compare=False)
    files: Mapping[str, str] = field(default_factory=dict, compare=False)
    #: What `names` returns, where that is known without reading the P4Info.
    known: P4InfoNames | None = field(default=None, compare=False, repr=False)

    def save(self, path: pathlib.Path) -> None:
        """Write the JSON to a file and the P4Info to one beside it."""
        path.write_bytes(self.bmv2)
        path.with_suffix(INFO).write_text(self.p4info, encoding="utf-8")
        if self.path:
            path.with_suffix(SOURCES).write_text(
                json.dumps(encode(_Sources(self.path, dict(self.files)))), encoding="utf-8"
            )

    @classmethod
    def load(cls, path: pathlib.Path) -> FabricProgram:
        """Load what `save` wrote. Raises OSError."""
        sources = path.with_suffix(SOURCES)
        of = decode(_Sources, json.loads(sources.read_text(encoding="utf-8")) if sources.exists() else {})
        return cls(path.read_bytes(), path.with_suffix(INFO).read_text(encoding="utf-8"), of.path, of.files)

    @cached_property
    def names(self) -> P4InfoNames:
        """The names in the program's P4Info."""
        return P4InfoNames.of(self.p4info) if self.known is None else self.known

    @property
    def counters(self) -> dict[str, str]:
        """The program's names of the counters of `rules.COUNTERS`; counters that it lacks are left out."""
        return mapping.counters(self.names)

    def document(self) -> ProgramDocument:
        """Return, for a run's result, the source's place and digest, and `files` of a lab's own program."""
        return _document(self.path or str(SOURCE), self.files)

    def keep(self, folder: pathlib.Path) -> None:
        """Write the sources of a lab's own program, and the compiler's output, into a new folder.

        Raises:
            WriteError: they cannot be written.
        """
        for name, text in self.files.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, text)
        if self.files:
            write_whole(folder / "program.json", self.bmv2)
            write_whole(folder / f"program{INFO}", self.p4info)


def _document(path: str, files: Mapping[str, str]) -> ProgramDocument:
    digest = hashlib.sha256()
    for name, text in sorted((files or sources_of(SOURCE)).items()):
        digest.update(f"{name} {len(text)}\n{text}".encode())
    return {"file": path if files else pathlib.Path(path).name, "sha256": digest.hexdigest(), "files": sorted(files)}


def shipped_document() -> ProgramDocument:
    """Return `FabricProgram.document` of the project's own program, which need not be compiled for it."""
    return _document(str(SOURCE), {})


def sources_of(source: pathlib.Path) -> dict[str, str]:
    """Return the text of a program and of the files of its folder that it includes by `#include "..."`, by their names
    there.

    Raises:
        OwnProgramError: the program cannot be read.
    """
    folder = source.parent.resolve()
    found: dict[str, str] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        try:
            text = document.read_text(path, str(path))
        except DocumentError as error:
            if not found:
                raise OwnProgramError(str(error)) from error
            continue  # the compiler reports what is wrong with this file, if it includes it
        found[path.resolve().relative_to(folder).as_posix() if found else source.name] = text
        for name in _INCLUDE.findall(text):
            for place in (path.parent / name, source.parent / name):
                inside = place.resolve()
                if inside.is_relative_to(folder) and inside.is_file():
                    if inside.relative_to(folder).as_posix() not in found:
                        waiting.append(inside)
                    break
    return found


def by_p4c(binary: pathlib.Path, source: pathlib.Path = SOURCE) -> FabricProgram:
    """Compile the program with p4c.

    Raises:
        ProgramError: p4c does not run, or refuses the program.
    """
    with scratch("p4c") as folder:
        output = pathlib.Path(folder, "program.json")
        paths = [str(each) for each in (binary, output, output.with_suffix(INFO), source)]
        include = [] if source == SOURCE else [f"-I{each}" for each in _include_dirs(source)]
        command = [paths[0], *include, "--p4v", "16", "-o", paths[1], "--p4runtime-files", *paths[2:]]
        try:
            done = interruption.run(command, timeout=P4C_S, errors="replace")
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _refused(binary, source, forwarders.silence(error)) from error
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if "error" in line] or lines[-1:] or [f"exit code {done.returncode}"]
            raise _refused(binary, source, errors[0].strip())
        try:
            return FabricProgram.load(output)
        except (OSError, UnicodeDecodeError) as error:
            raise _refused(binary, source, "it wrote no program") from error


def _refused(binary: pathlib.Path, source: pathlib.Path, why: str) -> ProgramError:
    return ProgramError(f"p4c does not compile {source.name}: {binary}: {why}; `--compiler p4lite` does without it")


def _include_dirs(source: pathlib.Path) -> list[pathlib.Path]:
    """Return the source's own folder and the project's headers, which a lab's own program may include, too."""
    return list(dict.fromkeys([source.parent, source.parent / "include", FOLDER, FOLDER / "include"]))


def fabric_program(source: pathlib.Path = SOURCE) -> FabricProgram:
    """Compile `p4/programs/fabric.p4` (or another program that keeps to its tables).

    Raises:
        ProgramError: it does not compile.
    """
    kept = _CachedProgram() if source == SOURCE else None
    if kept is not None and (found := kept.find()) is not None:
        return found
    # The compiler's parser takes a moment to load, which a command that compiles nothing should not wait for.
    from p4lite.compiler import compile_program
    from p4lite.compiler.diagnostics import CompileError

    try:
        compiled = compile_program(source, include_dirs=_include_dirs(source))
    except CompileError as error:
        raise ProgramError(str(error)) from error
    made = FabricProgram(json.dumps(compiled.bmv2).encode(), compiled.p4info)
    if kept is not None:
        kept.put(made)
    return made


class _CachedProgram:
    """The compiled project program with its names in the private cache of compiled switches.

    It is found by a digest of the files beside it, of the compiler, and of the module that makes the names. An
    incomplete file, or one that others can change, counts as missing (`native.build`).
    """

    PREFIX = "p4-program-"
    MOST = 8

    def __init__(self) -> None:
        digest = hashlib.sha256(f"{SOURCE}\n".encode())
        digest.update(pathlib.Path(p4info_names.__file__).read_bytes())
        for folder in (FOLDER, pathlib.Path(p4lite.compiler.__file__).parent):
            for path in sorted(folder.rglob("*")):
                if "__pycache__" in path.parts or not path.is_file():
                    continue
                content = path.read_bytes()
                digest.update(f"{path.relative_to(folder)} {len(content)}\n".encode())
                digest.update(content)
        self.name = f"{self.PREFIX}{digest.hexdigest()[:32]}.json"

    def find(self) -> FabricProgram | None:
        """Return the program if it is cached."""
        try:
            path = Store(cache_dir()).find(self.name)
            if path is None:
                return None
            bmv2, p4info, known = json.loads(path.read_text(encoding="utf-8"))
            return FabricProgram(bmv2.encode(), p4info, known=decode(P4InfoNames, known))
        except (BuildError, OSError, ValueError, DecodeError):
            return None

    def put(self, made: FabricProgram) -> None:
        """Cache the program, and remove all but the most recent versions."""
        try:
            store = Store(cache_dir())
            with tempfile.NamedTemporaryFile(
                "w", dir=store.folder, prefix=Store.BUILD_PREFIX, encoding="utf-8"
            ) as file:
                json.dump([made.bmv2.decode(), made.p4info, encode(made.names)], file)
                file.flush()
                store.put(self.name, pathlib.Path(file.name))
            kept = store.folder.glob(f"{self.PREFIX}*.json")
            for old in sorted(kept, key=lambda path: path.stat().st_mtime)[: -self.MOST]:
                old.unlink(missing_ok=True)
                old.with_name(f"{old.name}.sum").unlink(missing_ok=True)
        except (BuildError, OSError):
            return  # The next command compiles it again.


def program_of(topology: Topology) -> FabricProgram:
    """Return the program of a lab's switches: the lab file's or the project's, built by the compiler that the file
    names.

    Raises:
        ProgramError: it does not compile. `OwnProgramError`, if the program is the lab's own: it does not fit the lab's
            tables, or others can change one of its files, which becomes C that runs with our rights.
        ReferencePartMissing: p4c is not installed.
    """
    lab = topology.lab
    source = SOURCE if lab.program is None else pathlib.Path(lab.program)
    files = {} if lab.program is None else sources_of(source)
    for name in files:
        try:
            rundir.check(source.parent / name)
        except FolderError as error:
            raise OwnProgramError(f"program: {error}") from None
    try:
        made = by_p4c(forwarders.p4c(), source) if lab.compiler == "p4c" else fabric_program(source)
    except ProgramError as error:
        raise (error if lab.program is None else OwnProgramError(str(error))) from error
    if lab.program is None:
        return made
    made = FabricProgram(made.bmv2, made.p4info, str(source), files)
    try:
        for switch in topology.switches:
            mapping.fit(topology, switch, made.names)
    except P4RuntimeError as error:
        raise OwnProgramError(f"{source}: {error}") from error
    return made


def primary(
    channel: grpc.Channel, switch: Switch, program: FabricProgram, *, first: bool = False, patient: bool = False
) -> Device:
    """Become a switch's primary controller in place of any other; `first`: there was none; `patient` as in `Device`.

    Raises:
        P4RuntimeError: the switch refuses.
    """
    # A simulation fills its tables without gRPC, until it is asked to serve P4Runtime.
    from mrclab.lab.switches.p4rt import Device

    device = Device(channel, switch.device_id, switch.name, program.p4info, patient=patient)
    device.become_primary(election_id=1 if first else time.time_ns(), over=not first)
    return device


def fill(topology: Topology, switch: Switch, device: Device, program: FabricProgram) -> None:
    """Load program and tables into a switch whose primary controller we are. Raises as `primary`."""
    device.set_pipeline(program.bmv2)
    push_rules(topology, switch, device)


def push_rules(topology: Topology, switch: Switch, device: Device) -> int:
    """Fill a switch's tables by P4Runtime, as far as its program has them; return the number of entries."""
    fitted = mapping.fit(topology, switch, device.names)
    for entry in fitted.defaults:
        device.set_default(entry.table, entry.action, entry.params)
    return device.insert(fitted.entries)


class DirectTables:
    """The project's program, ready for switches of this process."""

    def __init__(self, program: FabricProgram) -> None:
        """Check the program and load its C, compiled if that is not cached.

        Raises:
            ProgramError, BuildError: as `p4lite.switch.runtime.loader`.
        """
        document = json.loads(program.bmv2)
        source = document.get("program")
        self.program = program
        self._loaded = load_program(document, name=pathlib.Path(source).stem if isinstance(source, str) else None)
        _ = self._loaded.opened

    def fill(self, topology: Topology, switch: Switch, into: FabricSwitch) -> None:
        """Load the program with empty tables into a switch, and fill them.

        Raises:
            P4RuntimeError: as `mapping.fit`.
            ControlError: an entry that the program does not take.
        """
        fitted = mapping.fit(topology, switch, self.program.names)
        into.load(self._loaded)
        instance = into.instance
        for entry in fitted.defaults:
            instance.table_set_default(entry.table, self._call(entry))
        for entry in fitted.entries:
            key = tuple(_value(each, entry.match[each.name]) for each in self._loaded.tables[entry.table].key)
            instance.table_add(entry.table, key, self._call(entry))

    def _call(self, entry: TableEntry) -> ActionCall:
        action = self._loaded.tables[entry.table].actions[entry.action]
        return ActionCall(entry.action, tuple(entry.params[param.name] for param in action.params))


def _value(key: KeyFacts, value: Match) -> MatchValue:
    """Return a match value in the form of the program."""
    if isinstance(value, int):
        return Exact(value)
    if key.match != "lpm":
        raise P4RuntimeError(f"key {key.name} is {key.match}; tables of this process are filled as exact or lpm")
    return Lpm(*value)
