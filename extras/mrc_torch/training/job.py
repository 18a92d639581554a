"""A training job in a lab: ranks that train, things that break meanwhile, and a restart from a checkpoint."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mrc_torch.training.ranks import RankEvent, RankMessage, Ranks, shared_folder
from mrclab.lab.faults.action import Action
from mrclab.lab.session.real import RealSession
from mrclab.results.record import LabEvent
from mrclab.runs.runner import Loop

#: Python and PyTorch are imported by all ranks at once, which takes a small machine its time.
START_S = 300.0
TURN_S = 0.05
#: Seconds that the other ranks have to report their errors after one rank has ended by an error.
ERRORS_S = 2.0
#: A job goes on for so long after the last thing that was done to the lab.
SETTLE_S = 1.0


class AttemptEnd(StrEnum):
    """How an attempt has ended."""

    DONE = "done"
    DIED = "died"
    STALLED = "stalled"


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained: `model`, at least `steps` steps of `batch` samples at each rank, and checkpoints.

    `patience_s`: after so long a collective operation has failed; a job without a step for twice as long has stalled.
    `restarts`: how often a job that died is started again. `schedule`: what is done to the lab, seconds after the
    first step begins.
    """

    model: str
    names: Sequence[str]
    steps: int = 60
    batch: int = 16
    seed: int = 1
    checkpoint_every: int = 10
    patience_s: float = 20.0
    restarts: int = 2
    schedule: Sequence[tuple[float, Action]] = ()


@dataclass
class Attempt:
    """One attempt, from the start of the ranks until they have ended; times are in ns of the session's clock (0:
    never).

    `ends`: when the last rank had ended each step; `begins`: when the first one began it. `ended`: None while it goes
    on.
    """

    started_ns: int
    connected_ns: int = 0
    ended_ns: int = 0
    resumed_at: int = 0
    ended: AttemptEnd | None = None
    error: str = ""
    begins: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    all_reduce_ns: list[int] = field(default_factory=list)

    def steps(self, ranks: int) -> list[int]:
        """Return the steps that all ranks have ended."""
        return sorted(number for number, count in self.counts.items() if count == ranks)


@dataclass
class JobResult:
    """Everything about a job by one backend."""

    backend: str
    plan: TrainingPlan
    attempts: list[Attempt] = field(default_factory=list)
    happenings: list[LabEvent] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unit: str = "samples"
    per_step: int = 0
    accuracy: float | None = None

    @property
    def done(self) -> bool:
        """Return whether the job has come to its end."""
        return bool(self.attempts) and self.attempts[-1].ended is AttemptEnd.DONE


Observer = Callable[[JobResult, Attempt], None]


class TrainingJob:
    """One job by one backend on one session.

    Args:
        backend: of `ranks.BACKENDS`; the session's agents speak its transport.
        observe: called after every turn.
        interrupted: called after every turn; raises when the job shall end.
    """

    def __init__(
        self,
        session: RealSession,
        plan: TrainingPlan,
        backend: str,
        observe: Observer = lambda result, attempt: None,
        interrupted: Callable[[], object] = bool,
    ) -> None:
        self.session, self.plan, self.observe = session, plan, observe
        self.result = JobResult(backend, plan)
        self.loop = Loop(session, plan.schedule, self.result, TURN_S, interrupted)
        self._begun = False

    def go(self) -> JobResult:
        """Train until the end, or until it has died too often, or the lab has."""
        with shared_folder(self.session.state) as folder:
            for number in range(self.plan.restarts + 1):
                attempt = Attempt(self.session.now_ns())
                self.result.attempts.append(attempt)
                self._attempt(attempt, number, folder)
                if attempt.ended is AttemptEnd.DONE or self._lab_is_dead():
                    break
        if not self.result.done:
            self.result.failures.append(
                f"the job has died {len(self.result.attempts)} times: {self.result.attempts[-1].error}"
            )
        return self.result

    def _lab_is_dead(self) -> bool:
        """Return whether anything but an agent has died, without which no job can be started again; it is recorded."""
        found = [death.text() for death in self.session.deaths() if death.role not in self.session.hosts]
        self.result.failures += found
        return bool(found)

    def _attempt(self, attempt: Attempt, number: int, folder: pathlib.Path) -> None:
        plan = self.plan
        settings = {
            "job": "train", "model": plan.model, "batch": plan.batch, "seed": plan.seed, "timeout_s": plan.patience_s,
            "steps": None if plan.schedule else plan.steps, "checkpoint": str(folder / "checkpoint.pt"),
            "checkpoint_every": plan.checkpoint_every, "resume": number > 0,
        }  # fmt: skip
        ranks = Ranks(self.session, plan.names, self.result.backend, folder / f"store{number}", settings)
        try:
            self.loop.go(_AttemptLoop(self, attempt, ranks))
        finally:
            attempt.ended_ns = attempt.ended_ns or self.session.now_ns()
            ranks.end()

    def begin(self) -> None:
        """Begin the first step of the first attempt: the schedule's zero."""
        if not self._begun:
            self._begun = True
            self.loop.begin(self.session.now_ns())

    def quiet(self) -> bool:
        """Return whether nothing will be done to the lab any more, nor was a moment ago."""
        if self.loop.waiting:
            return False
        last = self.result.happenings[-1].done_ns if self.result.happenings else 0
        return self.session.now_ns() > last + SETTLE_S * 1e9


class _AttemptLoop:
    """One attempt, from the ranks' first word to their last."""

    def __init__(self, job: TrainingJob, attempt: Attempt, ranks: Ranks) -> None:
        self.job, self.attempt, self.ranks = job, attempt, ranks
        self.said: dict[RankEvent, set[int]] = {}
        self.errors: list[tuple[int, str]] = []
        self.error_at = 0.0
        self.held = False
        self.moved_at = time.monotonic()

    def _all(self, word: RankEvent) -> bool:
        return len(self.said.get(word, ())) == len(self.ranks.names)

    def spend(self, seconds: float) -> None:
        """Collect what the ranks report, and judge what has become of the attempt."""
        job, attempt = self.job, self.attempt
        for rank, event in self.ranks.events(seconds):
            self._heard(rank, event)
        self._judge()
        enough = attempt.ends and max(attempt.ends) >= job.plan.steps
        if job.plan.schedule and not self.held and enough and job.quiet():
            self.held = True
            self.ranks.tell(0, hold=True)
        job.observe(job.result, attempt)

    def over(self) -> bool:
        """Return whether all ranks are done, one has died, or nothing moves."""
        return self.attempt.ended is not None

    def _judge(self) -> None:
        attempt = self.attempt
        if self._all(RankEvent.DONE):
            self._end(AttemptEnd.DONE)
        elif self.errors and time.monotonic() > self.error_at + ERRORS_S:
            rank, text = self.errors[0]
            self._end(AttemptEnd.DIED, f"rank {rank} ({self.ranks.names[rank]}): {text}")
        else:
            # An operation that fails by itself after this time shall have its say first.
            patience = 2 * self.job.plan.patience_s if attempt.connected_ns else START_S
            if time.monotonic() > self.moved_at + patience:
                self._end(AttemptEnd.STALLED, f"nothing has moved for {patience:.0f} s")

    def _end(self, how: AttemptEnd, error: str = "") -> None:
        self.attempt.ended, self.attempt.error = how, error
        self.attempt.ended_ns = self.job.session.now_ns()

    def _heard(self, rank: int, said: RankMessage) -> None:
        attempt, result, word = self.attempt, self.job.result, said.event
        self.moved_at = time.monotonic()
        if word in (RankEvent.ERROR, RankEvent.GONE):
            if word is RankEvent.ERROR or rank not in self.said.get(RankEvent.ERROR, ()):
                self.errors.append((rank, said.text))
                self.error_at = self.error_at or time.monotonic()
            word = RankEvent.ERROR
        elif word is RankEvent.STEP:
            number = said.step
            attempt.begins[number] = min(attempt.begins.get(number, said.begin_ns), said.begin_ns)
            attempt.ends[number] = max(attempt.ends.get(number, 0), said.end_ns)
            attempt.counts[number] = attempt.counts.get(number, 0) + 1
            attempt.all_reduce_ns += said.all_reduce_ns
            attempt.losses[number] = said.loss
        elif word is RankEvent.HELD:
            # No rank is beyond the step that rank 0 has not begun.
            self.ranks.tell_all(stop_after=said.step + 1)
        self.said.setdefault(word, set()).add(rank)
        if word is RankEvent.READY and self._all(word):
            self.ranks.tell_all()
        elif word is RankEvent.CONNECTED:
            attempt.resumed_at = said.step
            result.unit, result.per_step = said.unit, said.per_step
            if self._all(word):
                attempt.connected_ns = self.job.session.now_ns()
                self.job.begin()
                self.ranks.tell_all()
        elif word is RankEvent.DONE and said.accuracy is not None:
            result.accuracy = said.accuracy
