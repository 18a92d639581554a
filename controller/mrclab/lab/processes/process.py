"""Processes of a lab: a PID with the time of its start is one process, and never a later one."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
from dataclasses import dataclass

import psutil

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
