"""Reasons for which a run ends before its work is done: something of the lab has died or is frozen, nothing moves, or
time is up.

Every reason is a line of the result's `failures` that names the culprit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from mrc_host.answers import JobWaiting, QpWaiting
from mrc_host.requests import GetWaiting
from mrc_topo.base import interruption
from mrc_topo.base.rpc import Request
from mrclab.lab.hosts.hostclient import HostControl, HostError, HostGone
from mrclab.lab.processes.process import SHELL, ProcessExit
from mrclab.lab.records.rundir import RunError
from mrclab.lab.session.base import Session
from mrclab.lab.switches.names import P4RuntimeError
from mrclab.results.record import RunResult
from mrclab.runs.workload import WorkloadSpec
from p4lite.switch.errors import TargetError

#: Nothing moved for so long, and for as long as queue pairs retry a packet, is not a progress.
STILL_S = 5.0
#: A queue pair that retries for ever does so after this time at the latest.
LONGEST_TIMEOUT_S = (1024 << 24) / 1e9
NAMED = 3


def bound_s(documents: Mapping[str, JobWaiting]) -> float:
    """Return after how many seconds without movement no further progress can be expected."""
    patience = 0.0
    for document in documents.values():
        for row in document.qps:
            given = row.patience_ns
            patience = max(patience, LONGEST_TIMEOUT_S if given is None else given / 1e9)
    return STILL_S + patience


def culprits(documents: Mapping[str, JobWaiting], gone: Iterable[str] = ()) -> list[str]:
    """Return a line for each, the one that waits longest first.

    Args:
        documents: what each rank waits for, by host.
        gone: hosts that do not answer any more.
    """
    rows = [(name, row) for name, document in documents.items() for row in document.qps]
    if rows:
        rows.sort(key=lambda each: -each[1].for_ns)
        return [_queue_pair(name, row) for name, row in rows]
    lost = set(gone)
    lines = []
    for name, document in documents.items():
        if not document.done:
            for other in document.awaits:
                found = _end_of_chain(name, document, other, documents, lost)
                if found is not None:
                    lines.append(found)
    if lines:
        return lines
    waiting = [(name, document) for name, document in documents.items() if not document.done]
    waiting.sort(key=lambda each: not each[1].puts)
    return [f"{name} waits for {_what(document)}" for name, document in waiting]


def _what(document: JobWaiting) -> str:
    if document.puts:
        return f"{document.puts} of its own writes to end, of which no queue pair knows"
    names = ", ".join(document.awaits)
    return f"{document.what} of {names}" if names else document.what


def _queue_pair(name: str, row: QpWaiting) -> str:
    times = f", sent {row.sent} times" if row.sent > 1 else ""
    return f"{name} QP {row.qpn} to {row.peer} waits for {row.what} since {row.for_ns / 1e9:.1f} s{times}"


def _end_of_chain(
    name: str, document: JobWaiting, other: str, documents: Mapping[str, JobWaiting], lost: set[str]
) -> str | None:
    """Return a rank that waits for one that will send nothing more; None if that one waits in its turn."""
    begin = f"{name} waits for {document.what} of {other}, "
    if other in lost:
        return f"{begin}which is gone"
    if other not in documents:
        return f"{begin}which does not answer"
    there = documents[other]
    if there.failure:
        return f"{begin}which ended by: {there.failure}"
    if there.done:
        return f"{begin}which has ended"
    if not there.awaits and not there.puts:
        return f"{begin}which waits for {there.what} and for no other rank"
    return None


def text(documents: Mapping[str, JobWaiting], gone: Iterable[str] = (), broken: Iterable[str] = ()) -> str:
    """Return the first culprits in one line, and what is broken in the lab."""
    lines = culprits(documents, gone)
    more = [f"and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    harm = [f"broken: {', '.join(sorted(broken))}"] if broken else []
    return "; ".join([*(lines[:NAMED] or ["no rank waits for anything"]), *more, *harm])


#: What a run of some seconds may take longer than that.
GRACE_S = 30.0
#: After a host is lost its peers' QPs must end in an error by themselves within this time.
LOSS_GRACE_S = 20.0
#: Seconds: a process that died does not answer at once; its name and the cause of its death are known a little later.
CAUSE_S = 5.0
#: The errors that are raised when a process of a lab no longer answers.
LOST = (HostError, TargetError, P4RuntimeError, RunError, OSError)
SILENCE = ("UNAVAILABLE", "DEADLINE_EXCEEDED")

A = TypeVar("A")


def is_silence(error: Exception) -> bool:
    """Return whether an error means that a process does not answer, and not that it refuses."""
    return isinstance(error, HostGone) or (isinstance(error, TargetError) and error.code in SILENCE)


class RunCannotContinue(Exception):
    """A process that the run needs has died."""


class ProcessLosses:
    """The processes of a lab that are lost during a run, each recorded in its result once.

    `gone`: hosts that get no more requests; `since_ns`: when the first was lost (0: none). `closing`: the run is
    already ending, so that nothing ends it.
    """

    def __init__(self, session: Session, result: RunResult) -> None:
        self.session = session
        self.result = result
        self.gone: set[str] = set()
        self.since_ns = 0
        self.closing = False
        self._mourned: set[tuple[str, str]] = set()

    def ask(self, name: str, request: Request[A]) -> A | None:
        """Return the answer of a host that may be gone; None if it is."""
        return self.attempt(name, lambda host: host.ask(request))

    def attempt(self, name: str, exchange: Callable[[HostControl], A]) -> A | None:
        """Do something with a host that may be gone; None if it is."""
        if name in self.gone:
            return None
        try:
            return exchange(self.session.hosts[name])
        except HostGone as error:
            self._lose(name)
            # The cause of its death says more than the error.
            frozen = self.frozen(name)
            if frozen or not self.record_deaths(CAUSE_S, role=name):
                self.result.failures.append(f"{error}: {frozen}" if frozen else str(error))
        except HostError as error:
            self._lose(name)
            self.result.failures.append(str(error))
        return None

    def fabric_lost(self, error: TargetError) -> None:
        """Record that the fabric does not answer; the counters of its switches are lost.

        Raises:
            Over: unless it is known to have died, and nothing else is lost by that.
        """
        frozen = self.frozen()
        if frozen or not self.record_deaths(CAUSE_S, everything=True):
            self.result.failures.append(f"the fabric does not answer: {frozen or error}")
            raise RunCannotContinue from error

    def explain(self, error: Exception) -> None:
        """Record why a run was broken off: a death, a frozen process, or silence.

        Raises:
            Exception: `error` itself, when nothing has died and a process has answered.
        """
        self.closing = True
        frozen = self.frozen() if is_silence(error) else ""
        # A refusal is not caused by a death.
        self.record_deaths(0.0 if frozen or type(error) is HostError else CAUSE_S, everything=True)
        if not self.result.deaths and not is_silence(error):
            raise error
        if not self.result.failures:
            self.result.failures.append(f"{error}: {frozen}" if frozen else str(error))

    def frozen(self, role: str = "") -> str:
        """Return the processes of the lab that a signal has stopped (all of them, or one), in words."""
        return "; ".join(each.text() for each in self.session.frozen() if role in ("", each.role))

    def record_deaths(self, wait_s: float = 0.0, *, role: str = "", everything: bool = False) -> bool:
        """Record what has died; return whether anything is new, or `role` is recorded as dead.

        Args:
            wait_s: wait so long, at most, for such a death.
            everything: a death of anything is what is waited for.

        Raises:
            Over: what has died is more than a host, and the run is not at its end yet.
        """
        deadline = time.monotonic() + (wait_s if self.session.clock == "real" else 0.0)
        while True:
            fresh = [each for each in self.session.deaths() if (each.role, each.how) not in self._mourned]
            for death in fresh:
                self._write_down(death)
            known = bool(fresh) if everything or not role else role in {each for each, _ in self._mourned}
            if known or self._fatal() or time.monotonic() >= deadline:
                break
            interruption.sleep(0.05)
        if self._fatal() and not self.closing:
            raise RunCannotContinue
        return known or self._fatal()

    def _fatal(self) -> bool:
        """Return whether a process has died that the run needs; a shell in a host is needed only by its user."""
        return any(role not in self.session.hosts and not role.endswith(SHELL) for role, _ in self._mourned)

    def _write_down(self, death: ProcessExit) -> None:
        self._mourned.add((death.role, death.how))
        result = self.result
        result.deaths.append(death)
        text = death.text(result.started_ns)
        if death.role not in self.session.hosts:
            result.failures.append(text)
        elif death.role in result.ranks:
            result.failures.append(f"host {death.role}: its agent is gone: {text}")
            self._lose(death.role)

    def _lose(self, name: str) -> None:
        self.gone.add(name)
        self.since_ns = self.since_ns or self.session.now_ns()


class EndDetector:
    """Decides whether a run can make progress; `moved` reports progress to it."""

    def __init__(self, losses: ProcessLosses, spec: WorkloadSpec, job: str) -> None:
        self.losses = losses
        self.session, self.result = losses.session, losses.result
        self.spec = spec
        self.job = job
        self._moved_ns = self._looked_ns = 0
        self._counts: dict[str, int] = {}
        self._bound_s: float | None = None

    def moved(self) -> None:
        """Note that something has been done to the lab, or that the run begins."""
        self._moved_ns = self.session.now_ns()

    def look(self) -> None:
        """Note that the ranks are about to be asked. Nothing is known of the time after that: a machine that is busy,
        or a stopped terminal, may hold this process up for longer than a run may stand still."""
        self._looked_ns = self.session.now_ns()

    def count(self, name: str, moved: int) -> None:
        """Note how much has moved at a rank since its beginning."""
        if self._counts.get(name) != moved:
            self._counts[name] = moved
            self.moved()

    def reason(self, elapsed_s: float, running: Sequence[str], scheduled: bool) -> str:
        """Return why the run shall end now, with the culprits; empty if it shall not.

        Args:
            running: ranks that are neither done nor gone.
            scheduled: something is still to be done to the lab.
        """
        names, spec = ", ".join(running), self.spec
        if not scheduled and (still := self._still(running)):
            return still
        since = self.losses.since_ns
        if since and self.session.now_ns() - since > LOSS_GRACE_S * 1e9:
            return f"still waiting after {LOSS_GRACE_S:.0f} s: {names}; {self._culprits()}"
        if elapsed_s > (spec.duration_s or 0.0) + (GRACE_S if spec.duration_s else spec.limit_s):
            return f"no end after {elapsed_s:.0f} s; not finished: {names}; {self._culprits()}"
        return ""

    def _still(self, running: Sequence[str]) -> str:
        """Return whether nothing has moved for so long that no progress can be expected."""
        still_s = (self._looked_ns - self._moved_ns) / 1e9
        if still_s < STILL_S:
            self._bound_s = None
            return ""
        if self._bound_s is None:
            self._bound_s = bound_s(self._waiting())
        if still_s < self._bound_s:
            return ""
        culprits = self._culprits()
        if all(name in self.result.waiting and self.result.waiting[name].done for name in running):
            return ""  # they have ended since they were asked for their progress
        return f"no progress for {still_s:.1f} s; not finished: {', '.join(running)}; {culprits}"

    def _waiting(self) -> dict[str, JobWaiting]:
        """Return what each rank waits for, where that is known."""
        asked = {name: self.losses.ask(name, GetWaiting(self.job)) for name in self.result.ranks}
        self.result.waiting = {name: answer for name, answer in asked.items() if answer is not None}
        return self.result.waiting

    def _culprits(self) -> str:
        return text(self._waiting(), self.losses.gone, self.session.failures.broken)
