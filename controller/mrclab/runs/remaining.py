"""Progress of a run, and the time that it will still take at the pace of what has passed."""

from __future__ import annotations

import time
from collections.abc import Callable

from mrc_host.workloads import WORKLOADS
from mrclab.results.counted import achieved
from mrclab.results.record import RunResult
from mrclab.runs.workload import WorkloadSpec

#: Seconds of a minute, and of an hour.
MINUTE, HOUR = 60, 3600


def duration_text(seconds: float) -> str:
    """Return a duration as text: `4.2 s`, `43 s`, `12 min`, `3.5 h`."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


class Remaining:
    """The remaining time of a run, from the share of its duration or of its iterations that has passed.

    Args:
        spec: the workload that runs.
        clock: returns seconds of wall time.
    """

    def __init__(self, spec: WorkloadSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self._duration_s = spec.duration_s
        params = WORKLOADS[spec.workload].complete(spec.params)
        self._iterations = params.iterations
        self._clock = clock
        #: Wall time and share at the first observation: what came before, as connecting, is no part of the pace.
        self._first: tuple[float, float] | None = None
        #: The share that has passed, 0 to 1, and the seconds that remain (None: not known yet).
        self.share = 0.0
        self.seconds: float | None = None

    def observe(self, result: RunResult) -> None:
        """Take the result so far."""
        if self._duration_s is not None:
            last = result.recording.fabric.last
            elapsed = (last["t_ns"] - result.started_ns) / 1e9 if last else 0.0
            share = elapsed / self._duration_s if self._duration_s else 1.0
        else:
            done = achieved(result.progress.values()).least_iterations
            share = done / self._iterations
        self.share = min(max(share, 0.0), 1.0)
        now = self._clock()
        if self._first is None:
            self._first = (now, self.share)
        began, before = self._first
        gained = self.share - before
        self.seconds = (now - began) * (1 - self.share) / gained if gained > 0 else None

    def text(self) -> str:
        """Return both as text: `42 %, 12 s remain`."""
        if self.share >= 1:
            return "100 %, finishing"
        remains = "remaining time not known yet" if self.seconds is None else f"{duration_text(self.seconds)} remain"
        return f"{100 * self.share:.0f} %, {remains}"
