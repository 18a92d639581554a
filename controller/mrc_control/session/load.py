"""What the processes that are a lab's switches took of the machine, and which packets they never saw."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from typing import Any

import psutil

from mrc_control.lab.process import Process
from mrc_control.lab.rundir import RunDir

#: By switch: packets that its links gave it, and those that its program counted.
Seen = Mapping[str, tuple[int, int]]


class Load:
    """Measures, between `reset` and `measure`, those of a lab's processes whose roles are given."""

    def __init__(self, run: RunDir, roles: Collection[str]) -> None:
        self.run = run
        self.roles = roles
        self._since = time.monotonic()
        self._before: dict[str, tuple[Process, dict[int, float]]] = {}
        self._seen: Seen = {}

    def _now(self) -> dict[str, tuple[Process, dict[int, float]]]:
        """CPU seconds of every thread."""
        found = {}
        for process in self.run.processes() if self.roles else ():
            if process.role in self.roles:
                with contextlib.suppress(psutil.Error):
                    threads = psutil.Process(process.pid).threads()
                    found[process.role] = process, {each.id: each.user_time + each.system_time for each in threads}
        return found

    def reset(self, seen: Seen) -> None:
        """Begins anew."""
        self._since, self._before, self._seen = time.monotonic(), self._now(), seen

    def measure(self, seen: Seen) -> dict[str, dict[str, Any]]:
        """By switch: `cpu_share` of a core, of all threads and of the `busiest_thread`; packets `given` and `missed`.

        One that was started meanwhile has forgotten what it saw: of it nothing is told.
        """
        seconds = max(time.monotonic() - self._since, 1e-9)
        found = {}
        for role, (process, threads) in self._now().items():
            before, then = self._before.get(role, (None, {}))
            if process != before:
                continue
            spent = [used - then.get(ident, 0.0) for ident, used in threads.items()]
            given, counted = (
                (now - old for now, old in zip(seen[role], self._seen[role], strict=True))
                if role in seen and role in self._seen
                else (0, 0)
            )
            found[role] = {
                "cpu_share": sum(spent) / seconds,
                "busiest_thread": max(spent, default=0.0) / seconds,
                "given": given,
                "missed": max(given - counted, 0),
            }
        return found
