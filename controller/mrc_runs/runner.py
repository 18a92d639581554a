"""Runs a workload on a lab, breaks and mends things at scripted times, and writes down what happened."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from mrc_host.answers import JobProgress, Measured, from_json
from mrc_lab.faults.action import Action
from mrc_lab.hosts.hostclient import HostError
from mrc_lab.management import denylist
from mrc_lab.session.base import Session
from mrc_lab.session.fidelity import Fidelity
from mrc_results.record import Happening, RunResult, statistics_of
from mrc_results.recording import Recording, event_of
from mrc_runs.endings import LOST, Endings, Losses, Over
from mrc_runs.interruption import Interrupted
from mrc_runs.workload import WorkloadSpec, set_up, stop_together
from p4lite.switch.targetapi.client import TargetError

POLL_S = 0.1
#: A step that comes later than this (the machine was busy) moves what follows: a failure lasts as long as it shall.
LATE_S = 0.25

Observer = Callable[[RunResult], None]


class Watcher(Protocol):
    """Somebody who looks on while a run goes, lets its time pass, and may end it: the live view."""

    def started(self, run: WorkloadRun) -> None:
        """The run begins; `Run.act` does things in its name."""

    def advance(self, seconds: float) -> None:
        """Lets so much of the session's time pass, as `Session.advance`; it may do things to the lab meanwhile."""

    def observe(self, result: RunResult) -> None:
        """The result so far, after every poll."""

    def stop_asked(self) -> bool:
        """Whether the workload shall end, as when its duration is over."""


_numbers = itertools.count(1)


class WorkloadRun:
    """One workload on one session; `go` does it all.

    Args:
        session: the lab.
        spec: what runs.
        schedule: actions with their times in seconds after the start, in order.
        observe: called after every poll with the result so far (for a live view).
        recording: takes samples and events; one that leaves no files if left out.
        interrupted: asked after every poll; raises `Interrupted` when the run shall end.
        watcher: looks on, and lets time pass; the session itself does if left out.
    """

    def __init__(
        self,
        session: Session,
        spec: WorkloadSpec,
        schedule: Sequence[tuple[float, Action]] = (),
        observe: Observer | None = None,
        recording: Recording | None = None,
        interrupted: Callable[[], object] = bool,
        watcher: Watcher | None = None,
    ) -> None:
        self.session = session
        self.watcher = watcher
        self.spec = spec
        self.schedule = sorted(schedule, key=lambda each: each[0])
        self.observe = observe or (lambda result: None)
        self.interrupted = interrupted
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
        self.losses = Losses(session, self.result)
        self.endings = Endings(self.losses, spec, self.job)
        self._begun = False
        self._cursors: dict[str, int] = {}
        self._sample_ns: dict[str, int] = {}

    def go(self) -> RunResult:
        """Sets up, runs, collects; if something of the lab dies, or the run is interrupted, what was until then.

        Raises:
            HostError: the workload cannot be set up (a host refused its parameters, say).
        """
        try:
            self._begin()
            self._loop()
        except Over:
            pass
        except Interrupted as error:
            self._note_interruption(error)
        except LOST as error:
            return self.cut_short(error)
        try:
            return self._close()
        except Interrupted as error:  # by whoever has no patience for those that do not answer
            self._note_interruption(error)
            return self.result

    def _note_interruption(self, error: Interrupted) -> None:
        self.losses.closing = True
        if not self.result.interrupted:
            seconds = (self.session.now_ns() - self.result.started_ns) / 1e9
            when = f"{seconds:.2f} s after the start" if self._begun else "before the start"
            self.result.interrupted = error.name
            self.result.failures.append(f"interrupted by {error.name} {when}")

    def cut_short(self, error: Exception) -> RunResult:
        """The result as far as it goes, when `error` came of a death, or of silence.

        Raises:
            Exception: `error` itself, when nothing has died and somebody has answered.
        """
        self.losses.explain(error)
        return self._close()

    def act(self, action: Action) -> None:
        """Does what somebody asks for meanwhile; it is written down beside what was scheduled, and moves nothing.

        Raises:
            FailureError, UnknownElement, UnsettledError: it cannot be done.
        """
        session = self.session
        asked = session.now_ns()
        action = session.failures.check(action)
        session.failures.perform(session, action)
        self._note(action, asked, clicked=True)
        self.endings.moved()

    def _begin(self) -> None:
        session, result = self.session, self.result
        params = dict(self.spec.params)
        if self.spec.duration_s is not None:
            params.setdefault("iterations", 1 << 30)
        try:
            set_up(session, self.job, dataclasses.replace(self.spec, params=params), result.ranks)
        except HostError:
            for name in result.ranks:
                self.losses.ask(name, "finish", job=self.job)
            raise
        if session.denied:
            denylist.apply(session, session.denied)
        session.reset_fidelity()
        result.started_ns = session.now_ns()
        self.endings.moved()
        self._begun = True
        if self.watcher is not None:
            self.watcher.started(self)
        self._cursors = {name: self.losses.ask(name, "events").get("next", 0) for name in result.ranks}
        self._sample_ns = dict.fromkeys(result.ranks, result.started_ns)
        for name in result.ranks:
            self.losses.ask(name, "start", job=self.job)

    def _close(self) -> RunResult:
        """Collects what can still be had."""
        session, result = self.session, self.result
        self.losses.closing = True
        result.finished_ns = session.now_ns()
        if not self._begun:  # a simulation begins at 0
            result.started_ns = result.finished_ns
        try:
            result.fidelity = session.fidelity()
        except LOST as error:
            reason = f"fidelity could not be measured: {error}"
            result.fidelity = Fidelity(reasons=[reason])
        for name in result.ranks:
            result.statistics[name] = statistics_of(self.losses.ask(name, "statistics"))
            measured = from_json(Measured, self.losses.ask(name, "finish", job=self.job).get("measured", {}))
            if name in result.progress:
                result.progress[name] = dataclasses.replace(result.progress[name], measured=measured)
        return result

    def _loop(self) -> None:
        session, result, spec = self.session, self.result, self.spec
        start = result.started_ns
        waiting = list(self.schedule)
        lasts = math.inf if spec.duration_s is None else spec.duration_s
        stopping = False
        moved = 0.0
        while True:
            elapsed = (session.now_ns() - start) / 1e9 - moved
            while waiting and waiting[0][0] <= elapsed:
                at, action = waiting.pop(0)
                self._act(action)
                # Both count: that its turn came late, and that it took long.
                late = (session.now_ns() - start) / 1e9 - moved - at
                if late > LATE_S:
                    moved += late
                    elapsed = at
                self.endings.moved()
            pause = POLL_S if not waiting else min(POLL_S, max(waiting[0][0] - elapsed, 0.0005))
            (session if self.watcher is None else self.watcher).advance(pause)
            self.losses.mourn()
            self._collect()
            self.observe(result)
            if self.watcher is not None:
                self.watcher.observe(result)
            self.interrupted()
            elapsed = (session.now_ns() - start) / 1e9 - moved
            running = [name for name in result.ranks if not self._finished(name)]
            overdue = any(at < lasts and at <= elapsed for at, _ in waiting[:1])
            asked = self.watcher is not None and self.watcher.stop_asked()
            if not stopping and (asked or (not overdue and elapsed >= lasts)):
                stopping = True
                stop_together(self.losses.ask, self.job, result.ranks)
            if not running:
                break
            if reason := self.endings.reason(elapsed, running, bool(waiting)):
                result.failures.append(reason)
                break
        for _, action in waiting:
            self._act(action)

    def _finished(self, name: str) -> bool:
        progress = self.result.progress.get(name)
        return name in self.losses.gone or (progress is not None and progress.done)

    def _act(self, action: Action) -> None:
        session = self.session
        asked = session.now_ns()
        try:
            action = session.failures.check(action)
            session.failures.perform(session, action)
            error = ""
        except Exception as problem:  # noqa: BLE001 - whatever it was belongs into the record of the run
            error = f"{action.describe()}: {problem}"
            self.result.failures.append(error)
        self._note(action, asked, error)

    def _note(self, action: Action, asked: int, error: str = "", *, clicked: bool = False) -> None:
        session = self.session
        loss = session.failures.expected_loss() if action.loss is None else action.loss
        broken = sorted(session.failures.broken)
        made = Happening(asked, session.now_ns(), action, loss, error, broken, clicked=clicked)
        self.result.happenings.append(made)

    def _collect(self) -> None:
        result, record, ask = self.result, self.recording, self.losses.ask
        for name in result.ranks:
            if answer := ask(name, "progress", job=self.job):
                progress = from_json(JobProgress, answer)
                self.endings.count(name, progress.moved or 0)
                result.progress[name] = dataclasses.replace(progress, moved=None)
                if progress.failure and progress.failure not in result.failures:
                    result.failures.append(progress.failure)
            fresh = ask(name, "samples", since=self._sample_ns[name] + 1).get("samples", [])
            if fresh:
                self._sample_ns[name] = fresh[-1]["t_ns"]
                for row in fresh:
                    record.sample(name, row)
            events = ask(name, "events", since=self._cursors[name])
            if events:
                self._cursors[name] = events["next"]
                record.events.extend(name, map(event_of, events["events"]))
        try:
            record.fabric_sample({"t_ns": self.session.now_ns(), **self.session.fabric_sample()})
        except TargetError as error:
            self.losses.fabric_lost(error)
