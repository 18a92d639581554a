"""Idle time of a submission's processes: neither computing nor kept from it by a busy machine.

Wall time says nothing about a submission on a machine with other work. CPU time is limited by the kernel (`limits`);
what is left for a clock to limit is the time of those that sleep.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass

#: The states of a thread, by proc(5), in which it does not wait for its own program: it runs or waits for a core, waits
#: for a disk, or was stopped from outside.
HELD_UP = frozenset("RDTt")
#: The longest time between two samples that counts: after a longer one, this process did not get a core either.
LONGEST_LOOK_S = 2.0


@dataclass(frozen=True)
class CpuUse:
    """The CPU time of threads and the time for which they waited for a core, s; and whether one is held up now."""

    cpu_s: float
    waited_s: float
    held_up: bool


def use_of(pids: Iterable[int], proc: pathlib.Path = pathlib.Path("/proc")) -> CpuUse:
    """Sum up what all threads of some processes have used until now; those that have ended count nothing."""
    cpu_ns = waited_ns = 0
    held_up = False
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in (proc / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    state = (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                    held_up |= state in HELD_UP
                    used, waited, *_ = (task / "schedstat").read_text(encoding="utf-8").split()
                    cpu_ns += int(used)
                    waited_ns += int(waited)
    return CpuUse(cpu_ns / 1e9, waited_ns / 1e9, held_up)


class IdleTime:
    """Adds up idle time (`seconds`) from samples of the CPU use; `cpu_s` is the largest CPU time in them."""

    def __init__(self, now: float) -> None:
        self.seconds = 0.0
        self.cpu_s = 0.0
        self._at = now
        self._before = CpuUse(0.0, 0.0, held_up=False)

    def look(self, now: float, use: CpuUse) -> None:
        """Add a sample taken at `now`, s."""
        passed = min(now - self._at, LONGEST_LOOK_S)
        busy = max(use.cpu_s - self._before.cpu_s, 0.0) + max(use.waited_s - self._before.waited_s, 0.0)
        if not use.held_up:
            self.seconds += max(passed - busy, 0.0)
        self.cpu_s = max(self.cpu_s, use.cpu_s)
        self._at, self._before = now, use
