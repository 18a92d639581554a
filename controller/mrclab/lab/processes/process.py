"""Processes of a lab: a PID with the time of its start is one process, and never a later one.

How processes ended is recorded.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import pathlib
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mrc_topo.base import interruption

KILL_AFTER_S = 3.0


def started(pid: int) -> int:
    """Return when a process started, in clock ticks since boot (which no change of the clock moves).

    Raises:
        ProcessLookupError: there is no such process, or it is dead and only not yet reaped.
    """
    return int(_stat(pid)[19])


def frozen(pid: int) -> bool:
    """Return whether a process is alive, but stopped by a signal (or a debugger)."""
    try:
        return _stat(pid)[0] in "Tt"
    except ProcessLookupError:
        return False


def _stat(pid: int) -> list[str]:
    """Return the fields of a living process's stat file, from its state on. Raises ProcessLookupError."""
    fields = _fields(pathlib.Path(f"/proc/{pid}/stat"))
    if fields is None or (fields[0] in "ZX" and not _has_live_threads(pid)):
        raise ProcessLookupError(pid)
    return fields


def _has_live_threads(pid: int) -> bool:
    """Return whether a process whose first thread has ended has other threads, which keep its sockets and files
    open."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            fields = _fields(pathlib.Path(f"/proc/{pid}/task/{task}/stat"))
            if fields is not None and fields[0] not in "ZX":
                return True
    return False


def wanted_s(pid: int) -> float:
    """Return the seconds for which the living threads of a process and its descendants ran or waited for a core."""
    import psutil  # takes longer than the rest of this module, and most commands wait for no process

    spent_ns = 0
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        for each in [first, *first.children(recursive=True)]:
            for path in pathlib.Path(f"/proc/{each.pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):
                    spent_ns += sum(map(int, path.read_text(encoding="utf-8").split()[:2]))
    return spent_ns / 1e9


class ProgressTimeout:
    """The time to wait for a process: one period, and further periods while it works. A slow process is not a hanging
    one.

    Args:
        pid: the process; its descendants count, too.
        period_s: a working process runs or waits for a core during `SHARE` of each such period; after `PERIODS` the
            time is over in any case.
    """

    SHARE = 0.3
    PERIODS = 8

    def __init__(self, pid: int, period_s: float) -> None:
        self.pid = pid
        self.period_s = period_s
        self.began = time.monotonic()
        self.ends = self.began + period_s
        self._periods = 1
        self._wanted = 0.0

    def over(self) -> bool:
        """Return whether further waiting is pointless."""
        if time.monotonic() <= self.ends:
            return False
        before, self._wanted = self._wanted, wanted_s(self.pid)
        if self._wanted - before < self.SHARE * self.period_s or self._periods == self.PERIODS:
            return True
        self._periods += 1
        self.ends += self.period_s
        return False


def _fields(stat: pathlib.Path) -> list[str] | None:
    """Return the fields of a kernel stat file from the state on; None if there is no such process or thread."""
    try:
        return stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


@dataclass(frozen=True)
class Process:
    """A process of a lab; `started`, as the kernel counts it, distinguishes it from a later one with the same PID."""

    role: str
    pid: int
    started: int

    @classmethod
    def of(cls, role: str, pid: int) -> Process:
        """Return the record of a running process."""
        return cls(role, pid, started(pid))

    def alive(self) -> bool:
        """Return whether this very process still runs."""
        try:
            return started(self.pid) == self.started
        except ProcessLookupError:
            return False

    def signal(self, number: int) -> None:
        """Send a signal if this very process still runs."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def end_process(process: Process, grace_s: float = KILL_AFTER_S) -> bool:
    """Send SIGTERM, then SIGKILL if the process does not end; return whether it ran."""
    if not process.alive():
        return False
    process.signal(signal.SIGTERM)
    if not wait_dead(process, grace_s):
        process.signal(signal.SIGKILL)
        wait_dead(process, KILL_AFTER_S)
    return True


def wait_dead(process: Process, seconds: float) -> bool:
    """Wait until a process is dead; return whether it is."""
    deadline = time.monotonic() + seconds
    while process.alive():
        if time.monotonic() > deadline:
            return False
        interruption.sleep(0.02)
    return True


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
