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

#: Below the lab's folder: the last word of the first process.
LAST_WORD = "last-word.json"
#: More than any sentence about a death.
WORDS = 300
#: Up to this many deaths are reported one by one.
FEW = 3
#: Behind a host's name: the shell that holds its namespace, beside the agent of that name.
SHELL = ".shell"
#: Before the name of a machine that carries a part of a lab: all of that part. Processes of a part have the machine's
#: name before their own (`m1.fabric`), hosts and their shells have not.
MACHINE = "machine."


class RoleKind(enum.IntEnum):
    """What a process of a lab does."""

    LAB = 1
    DAEMON = 2
    FABRIC = 3
    SHELL = 4
    MACHINE = 5
    #: A host's agent, or a switch with a process of its own; `name` says which.
    NODE = 6


_PARTS = {"lab": RoleKind.LAB, "labd": RoleKind.DAEMON, "fabric": RoleKind.FABRIC}


@dataclass(frozen=True)
class Role:
    """A process of a lab: its kind, the host, switch or machine that it is of, and the machine that it is on ("": this
    one, or whichever has the host)."""

    kind: RoleKind
    name: str = ""
    machine: str = ""

    @classmethod
    def parse(cls, text: str) -> Role:
        """Return the role that records, sockets and logs name like this."""
        if text.endswith(SHELL):
            return cls(RoleKind.SHELL, text.removesuffix(SHELL))
        if text.startswith(MACHINE):
            return cls(RoleKind.MACHINE, text.removeprefix(MACHINE))
        machine, _, part = text.rpartition(".")
        return cls(_PARTS[part], machine=machine) if part in _PARTS else cls(RoleKind.NODE, text)

    def sentence(self) -> str:
        """Return what it is called in a sentence."""
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
    """`role` is fabric (or a switch with a process of its own), labd, lab (all of it), a host (its agent), or a host's
    shell; `how` ends a sentence that begins with it. `at_ns` is of the monotonic clock, `at` of the machine's."""

    role: str
    how: str
    at_ns: int
    at: float

    @classmethod
    def now(cls, role: str, how: str) -> ProcessExit:
        """Return one that was found just now."""
        return cls(role, how, time.monotonic_ns(), time.time())

    @classmethod
    def then(cls, role: str, how: str, at: float) -> ProcessExit:
        """Return one at a time of the machine's clock."""
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
    """A process that a signal has stopped (SIGSTOP) and that waits for SIGCONT; `since` of the machine's clock."""

    role: str
    since: float | None = None

    def text(self) -> str:
        """Describe the death in a sentence."""
        when = "" if self.since is None else time.strftime(" since %H:%M:%S", time.localtime(self.since))
        return f"{Role.parse(self.role).sentence()} is frozen: a signal has stopped it{when}"


def several(deaths: Sequence[ProcessExit], separator: str = "; ") -> str:
    """Return sentences about the first of them, and how many more there are: of a lab whose switches all die, a
    line."""
    more = f" and {len(deaths) - FEW} more" if len(deaths) > FEW else ""
    return separator.join(death.text() for death in deaths[:FEW]) + more


def cause(code: int, others: Sequence[str] = ()) -> str:
    """Return how a process died, of its exit code as `subprocess` gives it (negative: the signal), and with whom."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended by itself with exit code {code}"
    with contextlib.suppress(ValueError):
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
    return f"{how}, in one process with {', '.join(others)}" if others else how


def record_daemon_exit(folder: pathlib.Path, code: int) -> None:
    """Write down how the daemon died if it did not end on request. Errors of writing are ignored: no process is left
    to handle them.
    """
    if code:
        with contextlib.suppress(OSError):
            (folder / LAST_WORD).write_text(json.dumps(asdict(ProcessExit.now("labd", cause(code)))))
