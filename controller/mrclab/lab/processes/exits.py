"""Records of the processes of a lab that have died or are frozen.

The daemon reaps fabric and agents and records their deaths; the lab's first process reaps the daemon and records why it
ended. The death of the first process cannot be recorded inside the lab. Sessions and commands read the records.
"""

from __future__ import annotations

import contextlib
import enum
import json
import pathlib
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

#: The file in the lab's folder with the last message of the first process.
LAST_WORD = "last-word.json"
#: The limit of a sentence about a death, which none reaches.
WORDS = 300
#: Up to this many deaths are reported one by one.
FEW = 3
#: The suffix after a host's name for the shell that holds its namespace; the name alone means its agent.
SHELL = ".shell"
#: The prefix of a machine's name that means its whole slice. Processes of a slice have the machine's name before their
#: own (`m1.fabric`), but hosts and their shells do not.
MACHINE = "machine."


class RoleKind(enum.IntEnum):
    """The task of a process of a lab."""

    LAB = 1
    DAEMON = 2
    FABRIC = 3
    SHELL = 4
    MACHINE = 5
    #: A host's agent, or a switch with a process of its own; `name` says which one.
    NODE = 6


_PARTS = {"lab": RoleKind.LAB, "labd": RoleKind.DAEMON, "fabric": RoleKind.FABRIC}


@dataclass(frozen=True)
class Role:
    """A process of a lab: its kind, its host, switch or machine, and the machine where it runs ("": this one, or the
    host's)."""

    kind: RoleKind
    name: str = ""
    machine: str = ""

    @classmethod
    def parse(cls, text: str) -> Role:
        """Return the role of a name in records, sockets and logs."""
        if text.endswith(SHELL):
            return cls(RoleKind.SHELL, text.removesuffix(SHELL))
        if text.startswith(MACHINE):
            return cls(RoleKind.MACHINE, text.removeprefix(MACHINE))
        machine, _, part = text.rpartition(".")
        return cls(_PARTS[part], machine=machine) if part in _PARTS else cls(RoleKind.NODE, text)

    def sentence(self) -> str:
        """Return the role's name in a sentence."""
        if self.kind is RoleKind.SHELL:
            return f"the shell that holds the namespace of {self.name}"
        if self.kind is RoleKind.MACHINE:
            return f"machine {self.name}"
        if self.kind is RoleKind.NODE:
            return self.name
        names = {RoleKind.LAB: "the lab", RoleKind.DAEMON: "the lab's daemon", RoleKind.FABRIC: "the fabric's process"}
        return f"{names[self.kind]} on machine {self.machine}" if self.machine else names[self.kind]


@dataclass(frozen=True)
class ProcessExit:
    """The exit of a process. `role` is fabric (or a switch with a process of its own), labd, lab (all of it), a host
    (its agent), or a host's shell; `how` ends a sentence that begins with the role. `at_ns` is on the monotonic clock,
    `at` on the machine's clock."""

    role: str
    how: str
    at_ns: int
    at: float

    @classmethod
    def now(cls, role: str, how: str) -> ProcessExit:
        """Return an exit that was found just now."""
        return cls(role, how, time.monotonic_ns(), time.time())

    @classmethod
    def then(cls, role: str, how: str, at: float) -> ProcessExit:
        """Return an exit at a time of the machine's clock."""
        ago = max(time.time() - at, 0.0)
        return cls(role, how, time.monotonic_ns() - int(ago * 1e9), at)

    def text(self, started_ns: int = 0) -> str:
        """Describe the death in a sentence."""
        when = time.strftime("at %H:%M:%S", time.localtime(self.at))
        if started_ns and self.at_ns >= started_ns:
            when = f"{(self.at_ns - started_ns) / 1e9:.2f} s after the start, {when}"
        return f"{Role.parse(self.role).sentence()} {self.how} ({when})"


@dataclass(frozen=True)
class StoppedProcess:
    """A process that a signal has stopped (SIGSTOP) and that waits for SIGCONT; `since` is on the machine's clock."""

    role: str
    since: float | None = None

    def text(self) -> str:
        """Describe the stopped process in a sentence."""
        when = "" if self.since is None else time.strftime(" since %H:%M:%S", time.localtime(self.since))
        return f"{Role.parse(self.role).sentence()} is frozen: a signal has stopped it{when}"


def several(deaths: Sequence[ProcessExit], separator: str = "; ") -> str:
    """Return sentences about the first deaths, and the number of all others, on one line even if all switches of a lab
    die."""
    more = f" and {len(deaths) - FEW} more" if len(deaths) > FEW else ""
    return separator.join(death.text() for death in deaths[:FEW]) + more


def cause(code: int, others: Sequence[str] = ()) -> str:
    """Return how a process died, from its exit code as `subprocess` gives it (negative: the signal), and with which
    others."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended by itself with exit code {code}"
    with contextlib.suppress(ValueError):
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
    return f"{how}, in one process with {', '.join(others)}" if others else how


def record_daemon_exit(folder: pathlib.Path, code: int) -> None:
    """Record how the daemon died if it did not end on request. Errors of writing are ignored: no process is left to
    handle them."""
    if code:
        with contextlib.suppress(OSError):
            (folder / LAST_WORD).write_text(json.dumps(asdict(ProcessExit.now("labd", cause(code)))), encoding="utf-8")
