"""The fabric's P4 program, compiled, and the one way in which a controller takes a switch over and fills it.

A switch wants an election id at least as high as any that it has seen: whoever comes later takes the time, which is
higher than the daemon's and than that of whoever came before.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile
import time
from dataclasses import dataclass

import grpc

from mrc_control.lab.p4rt import Device, Match, TableEntry
from mrc_topo import rules
from mrc_topo.shipped import shipped
from mrc_topo.topology import Switch, Topology

SOURCE = shipped("programs") / "fabric.p4"
INFO = ".p4info.txtpb"
P4C_S = 120.0


class ProgramError(Exception):
    """The program does not compile; the text has the compiler's first error."""


@dataclass(frozen=True)
class FabricProgram:
    """BMv2 JSON and P4Info text of a program."""

    bmv2: bytes
    p4info: str

    def save(self, path: pathlib.Path) -> None:
        """Writes the JSON to a file and the P4Info to one beside it."""
        path.write_bytes(self.bmv2)
        path.with_suffix(INFO).write_text(self.p4info)

    @classmethod
    def load(cls, path: pathlib.Path) -> FabricProgram:
        """What `save` wrote. Raises OSError."""
        return cls(path.read_bytes(), path.with_suffix(INFO).read_text())


def by_p4c(binary: pathlib.Path, source: pathlib.Path = SOURCE) -> FabricProgram:
    """The program as p4c makes it.

    Raises:
        ProgramError: p4c does not run, or refuses the program.
    """
    with tempfile.TemporaryDirectory(prefix="mrclab-p4c-") as folder:
        output = pathlib.Path(folder, "program.json")
        paths = [str(each) for each in (binary, output, output.with_suffix(INFO), source)]
        command = [paths[0], "--p4v", "16", "-o", paths[1], "--p4runtime-files", *paths[2:]]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=P4C_S)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.strip()]
                errors = [line for line in lines if "error" in line] or lines[-1:] or [f"exit code {done.returncode}"]
                raise ProgramError(f"{binary}: {errors[0].strip()}")
            return FabricProgram.load(output)
        except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired) as error:
            raise ProgramError(f"{binary}: {error}") from error


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


def primary(channel: grpc.Channel, switch: Switch, program: FabricProgram, *, first: bool = False) -> Device:
    """Becomes the primary controller of a switch, whoever was; `first`: nobody was before.

    Raises:
        P4RuntimeError: the switch refuses.
    """
    device = Device(channel, switch.device_id, switch.name, program.p4info)
    device.become_primary(election_id=1 if first else time.time_ns())
    return device


def fill(topology: Topology, switch: Switch, device: Device, program: FabricProgram) -> None:
    """Program and tables of a switch whose primary we are; errors as `primary`."""
    device.set_pipeline(program.bmv2)
    push_rules(topology, switch, device)


def push_rules(topology: Topology, switch: Switch, device: Device) -> int:
    """Fills a switch's tables by P4Runtime; returns the number of entries."""
    entries: list[TableEntry] = []
    for entry in rules.switch_entries(topology, switch):
        if entry.default:
            device.set_default(entry.table, entry.action, entry.params)
            continue
        match: dict[str, Match] = {
            key.field: key.value if key.prefix_length is None else (key.value, key.prefix_length) for key in entry.match
        }
        entries.append(TableEntry(entry.table, match, entry.action, entry.params))
    return device.insert(entries)
