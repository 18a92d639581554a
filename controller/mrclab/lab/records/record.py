"""Record that a lab keeps of itself, in a folder that it can write to and that is never trusted; all that is known of
it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import stat
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import DecodeError, decode, encode
from mrclab.lab.processes.process import LAST_WORD, WORDS, Process, ProcessExit

ROLE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}\Z")
#: The path of a lab's folder inside its namespaces.
LAB_FOLDER = "/run/lab"
#: The folder of libmrc, as it was when the lab came up, in the lab's folder.
LIBRARY = "libmrc"
CAPTURES = "captures"
#: The file of the switches' program as BMv2 JSON; its P4Info is beside it.
PROGRAM = "program.json"
#: The size limit of a record, which the largest lab does not reach.
RECORD_BYTES = 8 << 20
#: The format of state.json. Format 1 also held the failures in force, and had no number.
FORMAT = 2


def read_untrusted(path: pathlib.Path, limit: int = RECORD_BYTES) -> bytes:
    """Read a file that a lab wrote: a regular file, not a link, and at most `limit` bytes from its end.

    Raises:
        OSError: there is no such file.
    """
    return GrowingFile(path).read(limit)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Open a file that a lab wrote. Raises OSError unless it is a regular file and no link."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FileNotFoundError(f"{path} is not a file")
        yield file


@dataclass
class GrowingFile:
    """A file to which a lab appends, read as it grows; `taken`: bytes that were read.

    It may be missing at first. If it is cut off or replaced by another, it is read from its beginning.
    """

    path: pathlib.Path
    taken: int = 0
    identity: tuple[int, int] | None = None

    def read(self, limit: int) -> bytes:
        """Return what was appended since the last call: at most `limit` bytes, those before the end.

        Raises:
            OSError: there is no such file.
        """
        with _opened(self.path) as file:
            found = os.fstat(file.fileno())
            if self.identity != (found.st_dev, found.st_ino) or found.st_size < self.taken:
                self.taken = 0
            self.identity = found.st_dev, found.st_ino
            file.seek(max(self.taken, found.st_size - limit))
            text = file.read(limit)
            self.taken = file.tell()
        return text


def last_line(path: pathlib.Path) -> str:
    """Return the last line of a log that a lab wrote; empty if there is none."""
    try:
        lines = read_untrusted(path, 1 << 16).decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "".join(each for each in lines[-1] if each.isprintable()) if lines else ""


@dataclass
class LabRecord:
    """The lab's own record of its processes.

    `fabric`: the device ids of each fabric process; `hosts`: a PID in the namespace of each host; `roles`: the PIDs of
    the processes by role; all PIDs are those inside the lab. `deaths`: the processes that have died, oldest first;
    `frozen`: since when a process is stopped by a signal; `switches`: the device ids of switches that are P4Runtime
    servers of their own; `held`: the switches that the lab itself keeps frozen or stopped.
    """

    phase: str = "starting"
    error: str = ""
    roles: dict[str, int] = field(default_factory=dict)
    fabric: dict[str, list[int]] = field(default_factory=dict)
    switches: dict[str, int] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, int] = field(default_factory=dict)
    deaths: list[ProcessExit] = field(default_factory=list)
    frozen: dict[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, document: object) -> LabRecord:
        """Return the record in a JSON value that is not trusted.

        Raises:
            DecodeError: the value is not a record.
        """
        record = decode(cls, document)
        named = (record.roles, record.fabric, record.switches, record.held, record.hosts, record.frozen)
        if not all(ROLE.match(role) for each in named for role in each):
            raise DecodeError("it names a process that no lab has")
        record.deaths = [_checked(each) for each in record.deaths]
        return record


class LabFolder:
    """The folder that a lab can write to, seen from inside or outside."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.record_file = path / "lab.json"
        #: The folder that the fabric creates for all files that clients of its target API can have it write.
        self.captures = path / CAPTURES

    def socket(self, role: str) -> pathlib.Path:
        """Return the socket of a process: an agent's control socket, or a fabric's P4Runtime and target API."""
        return self.path / f"{role}.sock"

    def config(self, host: str) -> pathlib.Path:
        """Return the configuration of a host's agent."""
        return self.path / f"{host}.json"

    def address(self, role: str) -> str:
        """Return the gRPC address of a fabric process."""
        return f"unix:{urllib.parse.quote(str(self.socket(role)))}"

    def fabric(self, record: LabRecord) -> dict[str, list[int]]:
        """Return the device ids of each fabric process by its gRPC address."""
        return {self.address(role): devices for role, devices in record.fabric.items()}

    def switches(self, record: LabRecord) -> dict[str, str]:
        """Return the gRPC address of each switch that is a P4Runtime server of its own."""
        return {role: self.address(role) for role in record.switches}

    def log(self, role: str) -> pathlib.Path:
        """Return the log of a process; hosts that share a process have one log, under the name of each."""
        return self.path / f"{role}.log"

    def read(self) -> LabRecord:
        """Return the record.

        Raises:
            OSError: there is no record.
            ValueError: the file is not a record.
        """
        document = json.loads(read_untrusted(self.record_file))
        try:
            return LabRecord.parse(document)
        except DecodeError as error:
            raise ValueError(f"{self.record_file}: {error}") from error

    def last_word(self) -> ProcessExit | None:
        """Return how the daemon died, if the lab's first process could still record it."""
        try:
            return _checked(decode(ProcessExit, json.loads(read_untrusted(self.path / LAST_WORD))))
        except (OSError, ValueError, DecodeError):
            return None

    def write(self, record: LabRecord) -> None:
        """Write the record, whole or not at all. Only one process, inside the lab, writes it."""
        write_whole(self.record_file, json.dumps(encode(record), indent=1))


def _checked(death: ProcessExit) -> ProcessExit:
    """Return a death that a lab reports, with its text made printable."""
    if not ROLE.match(death.role):
        raise DecodeError("a death of a process that no lab has")
    return replace(death, how="".join(each for each in death.how[:WORDS] if each.isprintable()))


@dataclass
class LabState:
    """The data about one lab: what commands record (state.json), `record`, and whether the lab is `ending`.

    `first`: the lab's first process; `uid`, `gid`: the user it runs as; `machines`: for a lab on several machines, the
    hosts on each; `shell`: the shell of the command that started it (`shells.here`).
    """

    name: str
    lab_file: str = ""
    transport: str = "mrc"
    links: str = "memory"
    switch: str = "p4lite"
    compiler: str = "p4lite"
    first: Process | None = None
    uid: int = -1
    gid: int = -1
    denied: list[str] = field(default_factory=list)
    since: float = 0.0
    machines: dict[str, list[str]] = field(default_factory=dict)
    shell: list[str] = field(default_factory=list)
    format: int = FORMAT
    ending: bool = False
    record: LabRecord = field(default_factory=LabRecord)
