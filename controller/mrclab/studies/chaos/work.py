"""A workload under chaos: set up on its hosts beside others, watched, and taken away, whatever becomes of the hosts."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from mrc_host.answers import JobProgress
from mrc_host.requests import FinishJob, GetProgress, StartJob
from mrc_topo.base.rpc import Request
from mrclab.lab.session.base import Session
from mrclab.runs.experiment import Workload
from mrclab.runs.workload import set_up, stop_together
from mrclab.studies.chaos import invariants
from mrclab.studies.chaos.invariants import Violation

A = TypeVar("A")


class Work:
    """One workload. `excused`: pairs of hosts between which queue pairs may have died, by what was done to the lab;
    `gone`: hosts whose agent was killed since the start."""

    def __init__(self, session: Session, name: str, workload: Workload) -> None:
        self.session = session
        self.name = name
        self.workload = workload
        self.names = list(workload.hosts or session.hosts)
        self.excused: set[frozenset[str]] = set()
        self.gone: set[str] = set()
        self.failure = ""
        self.stop_wanted = False
        self.progress: dict[str, JobProgress] = {}

    def start(self) -> None:
        """Create the queue pairs, connect them, and start the workload. Raises HostError."""
        set_up(self.session, self.name, self.workload.spec(), self.names)
        for name in self.names:
            self._ask(name, StartJob(self.name))

    def _ask(self, name: str, request: Request[A]) -> A:
        return self.session.hosts[name].ask(request)

    def poll(self, silent: Collection[str]) -> bool:
        """Ask every rank except those that cannot answer now; return whether the workload has ended and was removed.

        It ends when all ranks have done their part, or, after a failure, when no work request is left open.

        Raises:
            Violation: of `invariants`.
        """
        if self.stop_wanted and not self.gone & set(self.names) and not set(silent) & set(self.names):
            self.stop_wanted = False
            stop_together(self._ask, self.name, self.names)
        left = [name for name in self.names if name not in self.gone]
        for name in left:
            if name not in silent:
                self.progress[name] = self._ask(name, GetProgress(self.name))
                self._judge(self.progress[name].failure)
        if set(silent) & set(left):
            return False
        progress = {name: self.progress[name] for name in left}
        if self.failure or self.gone:
            if invariants.open_requests(progress):
                return False
        elif not all(each.done for each in progress.values()):
            return False
        else:
            invariants.check_bytes(self.name, self.workload.name, self.names, progress)
        for name, each in progress.items():
            if each.mismatches:
                raise Violation("bytes", f"{self.name}: {each.mismatches} wrong values at {name}")
            self._ask(name, FinishJob(self.name))
        return True

    def _judge(self, failure: str) -> None:
        if not failure or failure == self.failure:
            return
        pair = invariants.blame(failure, self.names)
        if pair not in self.excused:
            raise Violation("errors", f"{self.name} ({self.workload.name}): {failure}, with a whole path between them")
        self.failure = failure

    def state(self) -> str:
        """Return what each rank is at, in words."""
        rows = []
        for name, each in self.progress.items():
            if name not in self.gone:
                open_now = each.requests_posted - each.requests_ended
                at = "done" if each.done else f"at iteration {each.iterations} with {open_now} requests open"
                rows.append(f"{name} {at}{' (' + each.failure + ')' if each.failure else ''}")
        gone = f"; killed: {', '.join(sorted(self.gone))}" if self.gone else ""
        return f"{self.name} ({self.workload.name}): {'; '.join(rows)}{gone}"
