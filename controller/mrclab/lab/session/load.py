"""Load of the processes that are a lab's switches, and the packets that they never saw."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import psutil

from mrclab.lab.processes.process import Process
from mrclab.lab.records.rundir import RunDir

#: By switch: the packets that its links delivered, and those that its program counted.
Seen = Mapping[str, tuple[int, int]]


class Thread(NamedTuple):
    """The resources of a thread since it began: CPU time and time in which it waited for a core (s), and its turns on
    one. Kernels without scheduler statistics report CPU time alone."""

    used: float
    waited: float = 0.0
    turns: int = 0

    def since(self, before: Thread) -> Thread:
        """Return the difference from an earlier reading."""
        return Thread(self.used - before.used, self.waited - before.waited, self.turns - before.turns)


def threads_of(pid: int) -> dict[int, Thread]:
    """Return all threads of a process; those that end meanwhile are left out.

    Raises:
        psutil.Error: there is no such process.
    """
    found = {}
    for each in psutil.Process(pid).threads():
        used = each.user_time + each.system_time
        found[each.id] = Thread(used)
        with contextlib.suppress(OSError, ValueError):
            ran, waited, turns = (
                pathlib.Path(f"/proc/{pid}/task/{each.id}/schedstat").read_text(encoding="utf-8").split()
            )
            if int(turns):
                found[each.id] = Thread(int(ran) / 1e9, int(waited) / 1e9, int(turns))
    return found


@dataclass(frozen=True)
class SwitchLoad:
    """The load of a switch's process, and how many packets it missed of those that its links delivered.

    `cpu_share` is the share of a core of all threads together, `busiest_thread` that of the busiest one. For the thread
    with the most to do, `runnable` is the share of the time in which it ran or waited for a core, and `waited_ns` its
    mean wait.
    """

    cpu_share: float
    busiest_thread: float
    runnable: float
    waited_ns: float
    given: int
    missed: int

    @classmethod
    def of(cls, spent: Collection[Thread], seconds: float, given: int, counted: int) -> SwitchLoad:
        """Return the load from what the threads of a process used in some seconds."""
        keenest = max(spent, key=lambda each: each.used + each.waited, default=Thread(0.0))
        return cls(
            cpu_share=sum(each.used for each in spent) / seconds,
            busiest_thread=max((each.used for each in spent), default=0.0) / seconds,
            runnable=(keenest.used + keenest.waited) / seconds,
            waited_ns=keenest.waited * 1e9 / max(keenest.turns, 1),
            given=given,
            missed=max(given - counted, 0),
        )


class ProcessLoad:
    """Measures, between `reset` and `measure`, the processes of a lab with the given roles."""

    def __init__(self, run: RunDir, roles: Collection[str]) -> None:
        self.run = run
        self.roles = roles
        self._since = time.monotonic()
        self._before: dict[str, tuple[Process, dict[int, Thread]]] = {}
        self._seen: Seen = {}

    def _now(self) -> dict[str, tuple[Process, dict[int, Thread]]]:
        found = {}
        for process in self.run.processes() if self.roles else ():
            if process.role in self.roles:
                with contextlib.suppress(psutil.Error):
                    found[process.role] = process, threads_of(process.pid)
        return found

    def reset(self, seen: Seen) -> None:
        """Restart the measurement."""
        self._since, self._before, self._seen = time.monotonic(), self._now(), seen

    def measure(self, seen: Seen) -> dict[str, SwitchLoad]:
        """Return the load by switch, without processes that were started meanwhile, because their counters started at
        0."""
        seconds = max(time.monotonic() - self._since, 1e-9)
        found = {}
        for role, (process, threads) in self._now().items():
            before, then = self._before.get(role, (None, {}))
            if process != before:
                continue
            given, counted = (
                (now - old for now, old in zip(seen[role], self._seen[role], strict=True))
                if role in seen and role in self._seen
                else (0, 0)
            )
            spent = [now.since(then.get(ident, Thread(0.0))) for ident, now in threads.items()]
            found[role] = SwitchLoad.of(spent, seconds, given, counted)
        return found
