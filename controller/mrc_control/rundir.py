"""What a running lab leaves on the machine, recorded so that it can be taken away again, whatever happened.

A lab's run directory holds `state.json`: its processes (with the start time of each, because a PID alone may have been
given to somebody else), interfaces and namespaces. A resource is recorded before it is made: a record of what
does not exist is harmless, the reverse is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}\Z")
MODE = 0o700
#: In the abstract namespace of sockets: whatever run directory a lab has.
CLAIM = "\0mrclab-real-clock"
KILL_AFTER_S = 3.0


class RunError(Exception):
    """A lab that cannot be started, found or cleaned; the text says what to do."""


def base() -> pathlib.Path:
    """Where run directories are: MRCLAB_RUN, /run/mrclab for root, else the user's runtime directory."""
    override = os.environ.get("MRCLAB_RUN")
    if override:
        return pathlib.Path(override)
    if os.geteuid() == 0:
        return pathlib.Path("/run/mrclab")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return pathlib.Path(runtime or f"/tmp/mrclab-{os.geteuid()}") / "mrclab"


@dataclass
class Process:
    """A process of a lab; `started` as the kernel counts it tells it from a later one with the same PID."""

    role: str
    pid: int
    started: float

    @classmethod
    def of(cls, role: str, pid: int) -> Process:
        """Records a process that runs."""
        return cls(role, pid, psutil.Process(pid).create_time())

    def alive(self) -> bool:
        """Whether this very process still runs."""
        try:
            process = psutil.Process(self.pid)
            return bool(process.create_time() == self.started and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    def signal(self, number: int) -> None:
        """Sends a signal, if this very process still runs."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass
class State:
    """The record of one lab. `fabric` has the device ids behind each gRPC address, `broken` the ledger of failures
    (`faults.ledger`)."""

    name: str
    lab_file: str = ""
    transport: str = "mrc"
    phase: str = "starting"
    error: str = ""
    links: str = "memory"
    fabric: dict[str, list[int]] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    interfaces: list[str] = field(default_factory=list)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: dict[str, Any] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)


class RunDir:
    """The run directory of one lab.

    Raises:
        RunError: a name that cannot be one of a directory.
    """

    def __init__(self, name: str) -> None:
        if not NAME.match(name):
            raise RunError(
                f"'{name}' is no lab name: small letters, digits, - and _, at most 31, a letter or digit first"
            )
        self.name = name
        self.path = base() / name
        self.state_file = self.path / "state.json"

    def create(self) -> None:
        """Makes the directory.

        Raises:
            RunError: the name is in use.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=MODE)
        try:
            self.path.mkdir(mode=MODE)
        except FileExistsError:
            raise RunError(f"lab '{self.name}' is in use; `mrclab down {self.name}` ends it") from None

    def exists(self) -> bool:
        """Whether there is such a lab, alive or not."""
        return self.path.is_dir()

    def read(self) -> State:
        """The recorded state.

        Raises:
            RunError: no such lab, or a record that is not readable.
        """
        try:
            document = json.loads(self.state_file.read_text())
        except FileNotFoundError:
            running = ", ".join(each.name for each in all_runs()) or "none"
            raise RunError(f"no lab '{self.name}' is up; up: {running}") from None
        except ValueError as error:
            raise RunError(f"{self.state_file}: {error}; `mrclab cleanup` removes it") from error
        document["processes"] = [Process(**each) for each in document["processes"]]
        return State(**document)

    def write(self, state: State) -> None:
        """Records the state, whole or not at all."""
        temporary = self.path / f".state.{os.getpid()}"
        temporary.write_text(json.dumps(asdict(state), indent=1))
        temporary.replace(self.state_file)

    @contextlib.contextmanager
    def change(self) -> Iterator[State]:
        """Reads, lets the caller change, and records the state, one at a time."""
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.read()
            yield state
            self.write(state)

    def socket(self, host: str) -> pathlib.Path:
        """The control socket of a host's agent."""
        return self.path / f"{host}.sock"

    def remove(self) -> list[str]:
        """Ends what is recorded and removes the directory; returns what had to be ended."""
        ended: list[str] = []
        try:
            state = self.read()
        except RunError:
            state = State(self.name)
        ended += end_processes(state.processes)
        if state.interfaces:
            claim = claim_machine()
            # Names are by rule: while another lab is up, interfaces of these names are its own.
            if claim is not None:
                with claim:
                    ended += [f"interface {name}" for name in state.interfaces if delete_interface(name)]
        shutil.rmtree(self.path, ignore_errors=True)
        return ended


def claim_machine() -> socket.socket | None:
    """The claim that a real-clock lab holds on this network namespace, where interface names and processor time are
    one lab's; None while another lab holds it. It ends with the socket, so with its process at the latest."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(CLAIM)
    except OSError:
        claim.close()
        return None
    return claim


def end_processes(processes: list[Process], grace_s: float = KILL_AFTER_S) -> list[str]:
    """SIGTERM, then SIGKILL for what does not end; returns the roles of those that ran."""
    alive = [process for process in processes if process.alive()]
    for process in alive:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(process.alive() for process in alive) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in alive:
        process.signal(signal.SIGKILL)
    while any(process.alive() for process in alive) and time.monotonic() < deadline + KILL_AFTER_S:
        time.sleep(0.02)
    return [f"{process.role} (pid {process.pid})" for process in alive]


def delete_interface(name: str) -> bool:
    """Deletes an interface of this namespace; False when there was none."""
    if not pathlib.Path(f"/sys/class/net/{name}").exists():
        return False
    done = subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
    return done.returncode == 0


def all_runs() -> list[RunDir]:
    """Every lab that has a run directory."""
    try:
        return [RunDir(each.name) for each in sorted(base().iterdir()) if each.is_dir() and NAME.match(each.name)]
    except FileNotFoundError:
        return []
