"""Progress of a lab's workload, from what its ranks say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mrc_host.answers import JobProgress
from mrc_host.workloads import WORKLOADS
from mrc_host.workloads.streams import Streams
from mrclab.results.counted import achieved
from mrclab.web.state import Job

#: The time over which the duration of an iteration is averaged, ns.
STEP_NS: Final = 2_000_000_000


class ProgressWatch:
    """Makes a `Job` of the progress of ranks, sample after sample."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        #: The job, and how many iterations of its slowest rank had ended, at the last look.
        self._last: tuple[str, int] | None = None
        #: When these iterations were first seen to have ended, or the job to run; the present one began then or before.
        self._since_ns = 0
        #: When iterations had ended, and how many, over the latest `STEP_NS`.
        self._steps: list[tuple[int, int]] = []

    def look(self, jobs: Mapping[str, Mapping[str, JobProgress]], now_ns: int) -> Job | None:
        """Return the job in which most hosts take part, or None.

        Args:
            jobs: the progress of each rank by job and host.
            now_ns: when the hosts said so, by the session's clock.
        """
        steps = self._steps
        if not jobs:
            self._last = None
            return None
        name, ranks = max(jobs.items(), key=lambda each: len(each[1]))
        rows = ranks.values()
        done_so_far = achieved(rows)
        iterations = done_so_far.least_iterations
        before = self._last[1] if self._last is not None and self._last[0] == name else -1
        if before < 0 or iterations < before:
            # Of a job that is seen in the middle of a later iteration the beginning of that one is not known.
            steps.clear()
            self._since_ns = now_ns
        if not iterations:
            started_ns = max((row.started_ns for row in rows if row.takes_part), default=0)
            # A rank that has not started says 0, which on the clock of a simulation is a time.
            if started_ns or not self._began_ns:
                self._since_ns = min(started_ns, now_ns)
                steps[:] = [(self._since_ns, 0)]
        elif 0 <= before < iterations:
            self._since_ns = now_ns
            steps.append((now_ns, iterations))
        self._last = (name, iterations)
        while len(steps) > 2 and now_ns - steps[0][0] > STEP_NS:
            del steps[0]
        done = steps[-1][1] - steps[0][1] if steps else 0
        step_ns = (steps[-1][0] - steps[0][0]) // done if done else 0
        workload, running = next(iter(rows)).workload, not all(row.done for row in rows)
        took_ns, ended_ns = now_ns - self._since_ns, -1
        if not running:
            took_ns, ended_ns = 0, max(row.finished_ns for row in rows)
            if iterations and not step_ns:
                # No two samples saw iterations end: the job was shorter than the time between them.
                began_ns = max(row.started_ns for row in rows if row.takes_part)
                step_ns = max(ended_ns - began_ns, 0) // iterations
        failures = sorted({row.failure for row in rows if row.failure})
        mismatches = done_so_far.mismatches
        return {
            "name": name,
            "workload": workload,
            "params": {},
            "hosts": list(ranks),
            "running": running,
            "began_ns": max(min(row.started_ns for row in rows) - self._began_ns, 0),
            "iterations": iterations,
            "step_ns": step_ns,
            "ended_ns": max(ended_ns - self._began_ns, 0) if ended_ns >= 0 else -1,
            "completion_ns": 0 if overlap(workload) else max(step_ns, took_ns),
            "bytes_verified": done_so_far.bytes_verified,
            "mismatches": mismatches,
            "failures": failures,
            "verdict": "failed" if failures or mismatches else "good",
            "schedule": [],
        }


def overlap(workload: str) -> bool:
    """Return whether iterations of a workload begin before the last one has ended, as messages of a stream do: the time
    between two ends is then not the time that one takes."""
    kind = WORKLOADS.get(workload)
    return kind is not None and issubclass(kind, Streams)
