"""Copies a file that a lab writes into one of the caller's, while it grows."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import stat
from types import TracebackType
from typing import NamedTuple

from mrc_topo.base.document import printable
from mrc_topo.topology import Host, Topology
from mrclab.lab.records.record import LabFolder
from mrclab.lab.records.rundir import RunError
from p4lite.files import check_links

FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
CHUNK_BYTES = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


class Place(NamedTuple):
    """A port of a switch, with the name that was given for it; `outside`: that is a host's port, at the other end."""

    device_id: int
    number: int
    label: str
    outside: bool


def place_of(topology: Topology, port: str) -> Place:
    """Return where a port is captured that is named as host port `h3:2` or switch port `p0-t0.1:3`.

    Raises:
        RunError: it names no port.
        UnknownElement: of the topology.
    """
    node, _, number = port.rpartition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 6):
        raise RunError(f"'{printable(port)}' names no port; write h3:2 or p0-t0.1:3")
    element = topology.element(node)
    if isinstance(element, Host):
        if int(number) >= len(element.ports):
            raise RunError(f"{node} has ports 0 to {len(element.ports) - 1}")
        place = element.ports[int(number)]
        return Place(topology.switch(place.t0).device_id, place.t0_port, port, outside=True)
    switch = topology.switch(node)
    if int(number) not in switch.links:
        raise RunError(f"{node} has ports {', '.join(map(str, switch.links))}")
    return Place(switch.device_id, int(number), port, outside=False)


class CaptureTail:
    """Follows the file `name` among the lab's captures; `copy` appends its new bytes to `output`. A context manager.

    A lab sees few of the machine's files and may run as another user, so it cannot write to `output` itself. Copied
    bytes are released from the file system at once, because run directories are often in memory. `number` distinguishes
    captures of one process.

    Raises:
        RunError: `output` cannot be written.
    """

    def __init__(self, folder: LabFolder, output: pathlib.Path, number: int = 0) -> None:
        self.output = output
        self.name = f"capture-{os.getpid()}{f'-{number}' if number else ''}.pcapng"
        self._path = folder.captures / self.name
        self._done = 0
        self._source = -1
        try:
            check_links(output)
            self._file = output.open("wb")
        except OSError as error:
            raise RunError(f"{output}: cannot be written: {error.strerror}") from error

    def copy(self) -> None:
        """Copy the new bytes."""
        if self._source < 0:
            try:
                self._source = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                return
            found = os.fstat(self._source)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise RunError(f"{self._path} is not a file of the lab's own")
        before = self._done
        while data := os.pread(self._source, CHUNK_BYTES, self._done):
            self._file.write(data)
            self._done += len(data)
        self._file.flush()
        if self._done > before:
            mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
            _libc.fallocate(self._source, mode, ctypes.c_long(before), ctypes.c_long(self._done - before))

    def __enter__(self) -> CaptureTail:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.copy()
        finally:
            self._file.close()
            if self._source >= 0:
                os.close(self._source)
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
