"""The loop of every run: what is scheduled is done to the lab at its time, and between, time passes in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from mrclab.lab.faults.action import Action
from mrclab.lab.faults.follow import ChangeFollower
from mrclab.lab.faults.ledger import LedgerChange
from mrclab.lab.session.base import Session
from mrclab.results.record import LabEvent

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

    def go(self, turns: Turns) -> None:
        """Take turns until they are over."""
        while True:
            elapsed = self._run_due_steps()
            left = self.waiting[0][0] - elapsed if self.waiting else math.inf
            turns.spend(min(self._turn_s, max(left, LEAST_TURN_S)))
            self._look_for_others()
            self._interrupted()
            if turns.over():
                return

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
