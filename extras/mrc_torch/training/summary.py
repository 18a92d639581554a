"""Summary of a training job: steps and their times, loss, all-reduces, and the cost of deaths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mrc_torch.training.job import Attempt, AttemptEnd, JobResult
from mrc_torch.training.ranks import BACKENDS
from mrclab.results import steps
from mrclab.results.steps import TimeSummary, TrainingStep


def zero_ns(result: JobResult) -> int:
    """Return when the first step began: the zero of all times that are reported."""
    begun = [min(each.begins.values()) for each in result.attempts if each.begins]
    return min(begun, default=result.attempts[0].connected_ns or result.attempts[0].started_ns)


def steps_of(result: JobResult) -> list[TrainingStep]:
    """Return the steps that all ranks have ended, those that a restart repeated among them, in the order of time."""
    finished = max(each.ended_ns for each in result.attempts)
    broken = steps.broken_intervals(result.happenings, finished)
    found = []
    for attempt in result.attempts:
        begin = 0
        for number in attempt.steps(len(result.plan.names)):
            begin, end = begin or attempt.begins[number], attempt.ends[number]
            found.append(
                TrainingStep(number, begin, end, any(since < end and begin < until for since, until in broken))
            )
            begin = end
    return found


@dataclass(frozen=True)
class Restart:
    """What a death cost: the last `step` before it, `repeated` steps (None: no rank connected again), and `seconds`.

    The seconds go from that step, or from the death before, until the job was as far again, or had died again (None: it
    was not started again). Those of all deaths together are all that was lost. `at_s`: after the first step began.
    """

    ended: AttemptEnd
    error: str
    at_s: float
    step: int
    repeated: int | None
    seconds: float | None


@dataclass(frozen=True)
class TrainingMoment:
    """An action on the lab, in seconds after the first step began."""

    at_s: float
    text: str
    breaks: bool


class StepRow(NamedTuple):
    """A step: its number, begin and duration in seconds, and whether something was broken meanwhile."""

    number: int
    begin_s: float
    seconds: float
    broken: bool


@dataclass(frozen=True)
class JobSummary:
    """What a job by one backend came to: an entry of train.json. Times are in seconds after the first step began.

    `loss`: of each step, by number. `times`: of steps, by `mrclab.results.steps.DURING`. `reached`: the
    last step.
    """

    backend: str
    transport: str
    model: str
    hosts: list[str]
    status: str
    steps: list[StepRow]
    loss: list[tuple[int, float]]
    reached: int
    times: dict[str, TimeSummary]
    operations: dict[str, TimeSummary]
    seconds: float
    unit: str
    per_second: float
    accuracy: float | None
    restarts: list[Restart]
    happenings: list[TrainingMoment]
    failures: list[str]

    @property
    def done(self) -> bool:
        """Return whether the job has come to its end without any failure."""
        return self.status == "done"


def restarts(result: JobResult) -> list[Restart]:
    """Return what each death cost, in the order of time."""
    found = []
    ranks = len(result.plan.names)
    zero = zero_ns(result)
    reached, last_ns = 0, zero
    for attempt, following in zip(result.attempts, [*result.attempts[1:], None], strict=True):
        if (mine := attempt.steps(ranks)) and mine[-1] >= reached:
            reached, last_ns = mine[-1], attempt.ends[mine[-1]]
        if attempt.ended is AttemptEnd.DONE:
            break
        assert attempt.ended is not None
        again = None if following is None else _beyond(following, reached, ranks)
        seconds = None if again is None else (again - last_ns) / 1e9
        resumed = following.resumed_at if following is not None and following.connected_ns else None
        repeated = None if resumed is None else reached - resumed
        at_s = (attempt.ended_ns - zero) / 1e9
        found.append(Restart(attempt.ended, attempt.error, at_s, reached, repeated, seconds))
        last_ns = last_ns if again is None else again
    return found


def _beyond(attempt: Attempt, number: int, ranks: int) -> int:
    """Return when an attempt began the step after the one of a number, or ended without."""
    return attempt.begins[number + 1] if attempt.counts.get(number + 1, 0) == ranks else attempt.ended_ns


def summary(result: JobResult) -> JobSummary:
    """Summarize a job."""
    zero, rows = zero_ns(result), steps_of(result)
    times = {}
    for during in steps.DURING:
        if seconds := [each.seconds for each in steps.chosen(rows, during)]:
            times[during] = steps.time_summary(seconds)
    losses = {number: loss for attempt in result.attempts for number, loss in attempt.losses.items()}
    reduced = [each / 1e9 for attempt in result.attempts for each in attempt.all_reduce_ns]
    span = (max((each.end_ns for each in rows), default=zero) - zero) / 1e9
    reached = max((each.number for each in rows), default=0)
    return JobSummary(
        backend=result.backend,
        transport="tcp" if result.backend == "gloo" else BACKENDS[result.backend][1],
        model=result.plan.model,
        hosts=list(result.plan.names),
        status="done" if result.done and not result.failures else "failed",
        steps=[StepRow(each.number, (each.begin_ns - zero) / 1e9, each.seconds, each.broken) for each in rows],
        loss=sorted(losses.items()),
        reached=reached,
        times=times,
        operations={"all_reduce": steps.time_summary(reduced)} if reduced else {},
        seconds=span,
        unit=result.unit,
        per_second=reached * result.per_step / span if span > 0 else 0.0,
        accuracy=result.accuracy,
        restarts=restarts(result),
        happenings=[
            TrainingMoment((each.done_ns - zero) / 1e9, each.action.describe(), each.fails)
            for each in result.happenings
        ],
        failures=list(result.failures),
    )
