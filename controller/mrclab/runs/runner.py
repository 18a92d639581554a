"""Run of a workload on a lab, and the loop of every run: sets it up, collects what its hosts say while the loop turns,
and closes its record.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from mrc_host.answers import HostStatistics, Measured
from mrc_host.node.samples import condense
from mrc_host.requests import FinishJob, GetEvents, GetProgress, GetStatistics, StartJob
from mrc_topo.base import interruption
from mrc_topo.base.interruption import Interrupted
from mrc_topo.base.plain import encode
from mrclab.lab.faults.action import Action
from mrclab.lab.faults.follow import ChangeFollower
from mrclab.lab.faults.ledger import LedgerChange
from mrclab.lab.hosts.hostclient import HostError
from mrclab.lab.management import denylist
from mrclab.lab.session.base import Session
from mrclab.lab.session.fidelity import Fidelity
from mrclab.results import counted
from mrclab.results.record import LabEvent, RunResult
from mrclab.results.recording import Recording
from mrclab.runs.accounts import BooksReader
from mrclab.runs.endings import LOST, EndDetector, ProcessLosses, RunCannotContinue
from mrclab.runs.workload import WorkloadSpec, set_up, stop_together
from p4lite.switch.errors import TargetError

#: A step that comes later than this (the machine was busy) moves what follows: a failure lasts as long as it shall.
LATE_S = 0.25
#: The shortest turn, so that time passes in each: a nanosecond, since simulations keep the times of steps exactly.
LEAST_TURN_S = 1e-9


class RunInProgress(Protocol):
    """The record of a run in progress."""

    happenings: list[LabEvent]
    failures: list[str]


class Turns(Protocol):
    """The work between the actions of the schedule."""

    def spend(self, seconds: float) -> None:
        """Let at most this much of the session's time pass, and handle what happened in it."""

    def over(self) -> bool:
        """Return whether that was the last turn."""


class Loop:
    """Turns and scheduled actions until a run is over.

    Args:
        schedule: actions with their times in seconds after `begin`, in any order.
        record: every action is noted there, and as a failure when it cannot be done.
        turn_s: how long a turn lasts at most.
        interrupted: called after every turn; raises `Interrupted` when the run shall end.
        changed: called after every action.
    """

    def __init__(
        self,
        session: Session,
        schedule: Sequence[tuple[float, Action]],
        record: RunInProgress,
        turn_s: float,
        interrupted: Callable[[], object],
        changed: Callable[[], object] = bool,
    ) -> None:
        self.session, self.record = session, record
        self.waiting = sorted(schedule, key=lambda each: each[0])
        self._turn_s = turn_s
        self._interrupted, self._changed = interrupted, changed
        self._start_ns: int | None = None
        self._moved_s = 0.0
        self._follower = ChangeFollower(session.failures)

    def begin(self, at_ns: int) -> None:
        """Make a time of the session's clock the zero of the schedule; before, nothing is due."""
        self._start_ns = at_ns

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning, without those by which late actions have moved the schedule."""
        if self._start_ns is None:
            return -math.inf
        return (self.session.now_ns() - self._start_ns) / 1e9 - self._moved_s

    def add(self, at_s: float, action: Action) -> None:
        """Add an action to the schedule."""
        bisect.insort(self.waiting, (at_s, action), key=lambda each: each[0])

    def go(self, turns: Turns, until_s: float = math.inf) -> bool:
        """Take turns until they are over, or until a time; return whether they are over."""
        while (elapsed := self._run_due_steps()) < until_s:
            left = min(self.waiting[0][0] if self.waiting else math.inf, until_s) - elapsed
            turns.spend(min(self._turn_s, max(left, LEAST_TURN_S)))
            self._look_for_others()
            self._interrupted()
            if turns.over():
                return True
        return False

    def finish(self) -> None:
        """Do the remaining actions of the schedule at once."""
        while self.waiting:
            self._act(self.waiting.pop(0)[1])

    def click(self, action: Action) -> None:
        """Do an action that a user asks for; it is recorded beside the schedule, which it does not move.

        Raises:
            FailureError, UnknownElement, UnsettledError: it cannot be done.
        """
        self._perform(action, clicked=True)
        self._changed()

    def _look_for_others(self) -> None:
        """Record what was done to the lab from elsewhere, as by `mrclab fail` in another shell.

        Only a lab on the real clock has other processes.
        """
        if self.session.clock == "real":
            self.session.failures.reload()
            if self._note_others():
                self._changed()

    def _run_due_steps(self) -> float:
        """Run the steps that are due; return the time up to which all has been done."""
        elapsed = self.elapsed_s
        while self.waiting and self.waiting[0][0] <= elapsed:
            at, action = self.waiting.pop(0)
            self._act(action)
            # Both count: that its turn came late, and that it took long.
            late = self.elapsed_s - at
            if late > LATE_S:
                self._moved_s += late
                elapsed = at
            self._changed()
        return elapsed

    def _act(self, action: Action) -> None:
        asked = self.session.now_ns()
        try:
            self._perform(action)
        except Exception as problem:  # noqa: BLE001 - whatever it was belongs into the record of the run
            error = f"{action.describe()}: {problem}"
            self.record.failures.append(error)
            self._note(action, asked, self.session.now_ns(), self.session.failures.causes, error=error)

    def _perform(self, action: Action, *, clicked: bool = False) -> None:
        """Do an action, and record it after what others did before it."""
        asked, failures = self.session.now_ns(), self.session.failures
        action = failures.check(action)
        made: Sequence[LedgerChange] = ()
        try:
            made = failures.perform(self.session, action)
        finally:
            self._note_others(made, action)
        self._note(action, asked, made[-1].done_ns, failures.causes, clicked=clicked)

    def _note_others(self, made: Sequence[LedgerChange] = (), tried: Action | None = None) -> bool:
        """Record the changes of the ledger since the last call, without those that the run made, and without a failure
        that its action `tried` left behind when it broke off; return whether there were any."""
        found = False
        for each in self._follower.take():
            change = each.change
            left = tried is not None and not change.number and change.action.target == tried.target
            if change not in made and not left:
                self._note(change.action, change.began_ns, change.done_ns, each.causes, clicked=True)
                found = True
        return found

    def _note(
        self,
        action: Action,
        asked_ns: int,
        done_ns: int,
        causes: Sequence[Action],
        *,
        error: str = "",
        clicked: bool = False,
    ) -> None:
        """Record an action, after which the failures `causes` are in force."""
        loss = self.session.failures.expected_loss(causes=causes) if action.loss is None else action.loss
        broken = sorted({cause.target for cause in causes})
        self.record.happenings.append(LabEvent(asked_ns, done_ns, action, loss, error, broken, clicked=clicked))


POLL_S = 0.1

Observer = Callable[[RunResult], None]


class Watcher(Protocol):
    """An observer of a run that lets its time pass and may end it: the live view."""

    def started(self, run: WorkloadRun) -> None:
        """Begin the run; `WorkloadRun.act` does things in its name."""

    def advance(self, seconds: float) -> None:
        """Let this much of the session's time pass, as `Session.advance` does; it may act on the lab meanwhile."""

    def observe(self, result: RunResult) -> None:
        """Observe the result so far, after every poll."""

    def stop_asked(self) -> bool:
        """Return whether the workload shall end, as when its duration is over."""

    def closing(self) -> None:
        """Observe the end of the run, before the hosts forget its job; processes of the lab may have died."""


_numbers = itertools.count(1)


class WorkloadRun:
    """One workload on one session; `go` does it all.

    Args:
        session: the lab.
        spec: what runs.
        schedule: actions with their times in seconds after the start, in order.
        observe: called after every poll with the result so far (for a live view).
        recording: takes samples and events; one that leaves no files if left out.
        interrupted: asked after every poll; raises `Interrupted` when the run shall end, whose results until then are
            returned. If left out, the run is given up when a signal comes.
        watcher: looks on, and lets time pass; the session itself does if left out.
    """

    def __init__(
        self,
        session: Session,
        spec: WorkloadSpec,
        schedule: Sequence[tuple[float, Action]] = (),
        observe: Observer | None = None,
        recording: Recording | None = None,
        interrupted: Callable[[], object] | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.session = session
        self.watcher = watcher
        self.spec = spec
        self.observe = observe or (lambda result: None)
        self.job = f"job{next(_numbers)}-{session.now_ns()}"
        names = list(spec.hosts or session.hosts)
        for name in names:
            if name not in session.hosts:
                raise HostError(f"no host '{name}' in this lab; it has: {', '.join(session.hosts)}")
        lab = session.topology.lab
        self.recording = recording or Recording()
        self.result = RunResult(
            lab.name, session.clock, lab.seed, spec.workload, dict(spec.params), names, recording=self.recording
        )
        self.losses = ProcessLosses(session, self.result)
        self.books = BooksReader(self.losses)
        self.endings = EndDetector(self.losses, spec, self.job)
        self.loop = Loop(session, schedule, self.result, POLL_S, interrupted or interruption.check, self.endings.moved)
        self._is_kept = interrupted is not None
        self._begun = False
        self._stopping = self._stop_asked = False
        self._stopped_late_s = 0.0
        #: Whether all ranks have ended, or waiting for them is useless; whether something broke the run off.
        self.is_over = self._is_cut = False
        self._over_ns = 0
        self._cursors: dict[str, int] = {}
        self._sample_ns: dict[str, int] = {}
        self._initial: Mapping[str, HostStatistics | None] = {}

    def go(self) -> RunResult:
        """Set up, run and collect; if a process of the lab dies, or the run is interrupted, return the results until
        then.

        Raises:
            HostError: the workload cannot be set up (a host refused its parameters, say).
        """
        self.begin()
        self.proceed()
        return self.end()

    def begin(self) -> None:
        """Set the workload up, and start it. Raises as `go`."""
        self._attempt(self._begin)

    def proceed(self, until_s: float = math.inf) -> bool:
        """Let the workload run to its end, or to a time in seconds after its start; return whether it is over."""

        def run() -> None:
            self.is_over = self.loop.go(self, until_s)

        if not self.is_over:
            self._attempt(run)
            if self.is_over:
                self._over_ns = self.session.now_ns()
        return self.is_over

    def end(self, *, when_over: bool = False) -> RunResult:
        """Do what is left of the schedule, and return the result, up to now or to when the workload was over."""
        if not self._is_cut:
            self._attempt(self.loop.finish)
        try:
            return self._close(self._over_ns if when_over else 0)
        except Interrupted as error:  # by a user, while processes do not answer
            self._note_interruption(error)
            return self.result

    def stop(self) -> None:
        """Have all ranks end after the same iteration, the next that none has begun."""
        self._stop_asked = True

    def _attempt(self, work: Callable[[], object]) -> None:
        """Do a part of the run, which is over where it cannot go on."""
        try:
            work()
            return
        except RunCannotContinue:
            pass
        except Interrupted as error:
            self._note_interruption(error)
        except LOST as error:
            self.losses.explain(error)
        self.is_over = self._is_cut = True

    def _note_interruption(self, error: Interrupted) -> None:
        if not self._is_kept:
            raise error
        self.losses.closing = True
        if not self.result.interrupted:
            seconds = (self.session.now_ns() - self.result.started_ns) / 1e9
            when = f"{seconds:.2f} s after the start" if self._begun else "before the start"
            self.result.interrupted = error.name
            self.result.failures.append(f"interrupted by {error.name} {when}")

    def partial_result(self, error: Exception) -> RunResult:
        """Return the result as far as it goes, when `error` came of a death, or of silence.

        Raises:
            Exception: `error` itself, when nothing has died and a process has answered.
        """
        self.losses.explain(error)
        return self._close()

    def act(self, action: Action) -> None:
        """Do an action that a user asks for; it is recorded beside the schedule, which it does not move.

        Raises:
            FailureError, UnknownElement, UnsettledError: it cannot be done.
        """
        self.loop.click(action)

    def _begin(self) -> None:
        session, result = self.session, self.result
        params = dict(self.spec.params)
        if self.spec.duration_s is not None:
            params.setdefault("iterations", 1 << 30)
        try:
            set_up(session, self.job, dataclasses.replace(self.spec, params=params), result.ranks)
            denylist.enforce(session)
        except (HostError, denylist.DenylistError):
            for name in result.ranks:
                self.losses.ask(name, FinishJob(self.job))
            raise
        session.reset_fidelity()
        # Before the start: ranks begin at once after it, as those who only watch them see the start.
        for name in result.ranks:
            events = self.losses.ask(name, GetEvents())
            self._cursors[name] = 0 if events is None else events.next
        self._initial = initial = self.books.begin()
        result.started_ns = session.now_ns()
        self._sample(initial, result.started_ns)
        self.loop.begin(result.started_ns)
        self.endings.moved()
        self._begun = True
        if self.watcher is not None:
            self.watcher.started(self)
        self._sample_ns = dict.fromkeys(result.ranks, result.started_ns)
        for name in result.ranks:
            self.losses.ask(name, StartJob(self.job))

    def _close(self, finished_ns: int = 0) -> RunResult:
        """Collect the results that are still available, up to a time of the session's clock (0: now)."""
        session, result = self.session, self.result
        self.losses.closing = True
        result.finished_ns = finished_ns or session.now_ns()
        if not self._begun:  # a simulation begins at 0
            result.started_ns = result.finished_ns
        elif self.watcher is not None:
            with contextlib.suppress(*LOST):  # What has died is in the result already.
                self.watcher.closing()
        try:
            result.fidelity = session.fidelity()
        except LOST as error:
            reason = f"fidelity could not be measured: {error}"
            result.fidelity = Fidelity(reasons=[reason])
        for name in result.ranks:
            result.statistics[name] = final = self.losses.ask(name, GetStatistics())
            if self._begun and final is not None:
                result.counted[name] = counted.grown(self._initial[name], final)
        for name in result.ranks:
            finished = self.losses.ask(name, FinishJob(self.job))
            if name in result.progress:
                # A rank that is stopped has put bytes since it was asked for its progress.
                measured = Measured() if finished is None else finished.measured
                progress = result.progress[name] if finished is None else finished.progress
                result.progress[name] = dataclasses.replace(progress, moved=None, measured=measured)
        if self._begun:
            self._sample(result.statistics, result.finished_ns)
            # Without queue pairs nothing is sent any more, so that what is on its way can arrive.
            self.books.finish()
        return result

    def _sample(self, statistics: Mapping[str, HostStatistics | None], at_ns: int) -> None:
        """Record the state of ranks and fabric as their samples at a time."""
        for name in self.result.ranks:
            if (found := statistics.get(name)) is not None:
                self.recording.sample(name, encode(condense(found, at_ns)))
        with contextlib.suppress(*LOST):
            self.recording.fabric_sample({"t_ns": at_ns, **self.session.fabric_sample()})

    def spend(self, seconds: float) -> None:
        """Let time pass, and collect what the hosts say."""
        (self.session if self.watcher is None else self.watcher).advance(seconds)
        self.losses.record_deaths()
        self._collect()
        self.observe(self.result)
        if self.watcher is not None:
            self.watcher.observe(self.result)

    def over(self) -> bool:
        """Return whether all ranks have ended, or waiting for them is useless; stop them first when their time is
        up.
        """
        elapsed, waiting = self.loop.elapsed_s, self.loop.waiting
        lasts = math.inf if self.spec.duration_s is None else self.spec.duration_s
        running = [name for name in self.result.ranks if not self._finished(name)]
        overdue = any(at < lasts and at <= elapsed for at, _ in waiting[:1])
        asked = self._stop_asked or (self.watcher is not None and self.watcher.stop_asked())
        if not self._stopping and (asked or (not overdue and elapsed >= lasts)):
            self._stopping = True
            # A script that did not come back in time takes nothing from the time that the ranks have to end.
            self._stopped_late_s = max(elapsed - lasts, 0.0)
            stop_together(self.losses.ask, self.job, self.result.ranks)
        if not running:
            return True
        reason = self.endings.reason(elapsed - self._stopped_late_s, running, bool(waiting))
        if reason:
            self.result.failures.append(reason)
        return bool(reason)

    def _finished(self, name: str) -> bool:
        progress = self.result.progress.get(name)
        return name in self.losses.gone or (progress is not None and progress.done)

    def _collect(self) -> None:
        result, record, losses = self.result, self.recording, self.losses
        self.endings.look()
        for name in result.ranks:
            if progress := losses.ask(name, GetProgress(self.job)):
                self.endings.count(name, progress.moved or 0)
                result.progress[name] = dataclasses.replace(progress, moved=None)
                if progress.failure and progress.failure not in result.failures:
                    result.failures.append(progress.failure)
            self._collect_samples(name)
            if events := losses.ask(name, GetEvents(self._cursors[name])):
                self._cursors[name] = events.next
                record.events.extend(name, [each for each in events.events if each.t_ns >= result.started_ns])
        try:
            record.fabric_sample({"t_ns": self.session.now_ns(), **self.session.fabric_sample()})
        except TargetError as error:
            self.losses.fabric_lost(error)

    def _collect_samples(self, name: str) -> None:
        """Record the samples of a host since the last that it gave, as they come."""
        since = self._sample_ns[name] + 1
        answer = self.losses.attempt(name, lambda host: host.request("samples", since=since))
        rows = [] if answer is None else answer["samples"]
        for row in rows:
            self.recording.sample(name, row)
        if rows:
            self._sample_ns[name] = rows[-1]["t_ns"]
