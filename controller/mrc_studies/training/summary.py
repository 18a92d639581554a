"""What a training job came to: steps and their times, loss, all-reduces, and what dying cost."""

from __future__ import annotations

from typing import Any

from mrc_results import steps
from mrc_results.steps import Step
from mrc_studies.training.job import Attempt, JobResult
from mrc_studies.training.ranks import BACKENDS


def zero_ns(result: JobResult) -> int:
    """When the first step began: the zero of all times that are told."""
    begun = [min(each.begins.values()) for each in result.attempts if each.begins]
    return min(begun, default=result.attempts[0].connected_ns or result.attempts[0].started_ns)


def steps_of(result: JobResult) -> list[Step]:
    """The steps that all ranks have ended, those that a restart repeated among them, in the order of time."""
    finished = max(each.ended_ns for each in result.attempts)
    broken = steps.broken_intervals(result.happenings, finished)
    found = []
    for attempt in result.attempts:
        begin = 0
        for number in attempt.steps(len(result.plan.names)):
            begin, end = begin or attempt.begins[number], attempt.ends[number]
            found.append(Step(number, begin, end, any(since < end and begin < until for since, until in broken)))
            begin = end
    return found


def restarts(result: JobResult) -> list[dict[str, Any]]:
    """What each death cost: `repeated` steps, and `seconds` from the last step before it, or from the death before,
    until the job was as far again, or had died anew (None: it was not started again); together all that was lost."""
    found = []
    ranks = len(result.plan.names)
    reached, last_ns = 0, zero_ns(result)
    for attempt, following in zip(result.attempts, [*result.attempts[1:], None], strict=True):
        if (mine := attempt.steps(ranks)) and mine[-1] >= reached:
            reached, last_ns = mine[-1], attempt.ends[mine[-1]]
        if attempt.ended == "done":
            break
        again = None if following is None else _beyond(following, reached, ranks)
        found.append(
            {
                "ended": attempt.ended,
                "error": attempt.error,
                "at_s": (attempt.ended_ns - zero_ns(result)) / 1e9,
                "step": reached,
                "repeated": reached - following.resumed_at
                if following is not None and following.connected_ns
                else None,
                "seconds": None if again is None else (again - last_ns) / 1e9,
            }
        )
        last_ns = last_ns if again is None else again
    return found


def _beyond(attempt: Attempt, number: int, ranks: int) -> int:
    """When an attempt began the step behind the one of a number, or ended without."""
    return attempt.begins[number + 1] if attempt.counts.get(number + 1, 0) == ranks else attempt.ended_ns


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"count": len(seconds)} | {name: steps.statistic(seconds, name) for name in steps.STATISTICS}


def document(result: JobResult) -> dict[str, Any]:
    """Plain data (JSON); seconds after the first step began."""
    zero, rows = zero_ns(result), steps_of(result)
    times = {}
    for during in steps.DURING:
        if seconds := [each.seconds for each in steps.chosen(rows, during)]:
            times[during] = _spread(seconds)
    losses = {number: loss for attempt in result.attempts for number, loss in attempt.losses.items()}
    reduced = [each / 1e9 for attempt in result.attempts for each in attempt.all_reduce_ns]
    span = (max((each.end_ns for each in rows), default=zero) - zero) / 1e9
    reached = max((each.number for each in rows), default=0)
    return {
        "backend": result.backend,
        "transport": "tcp" if result.backend == "gloo" else BACKENDS[result.backend][1],
        "model": result.plan.model,
        "hosts": list(result.plan.names),
        "status": "done" if result.done and not result.failures else "failed",
        "steps": [[each.number, (each.begin_ns - zero) / 1e9, each.seconds, each.broken] for each in rows],
        "loss": sorted(losses.items()),
        "reached": reached,
        "times": times,
        "operations": {"all_reduce": _spread(reduced)} if reduced else {},
        "seconds": span,
        "unit": result.unit,
        "per_second": reached * result.per_step / span if span > 0 else 0.0,
        "accuracy": result.accuracy,
        "restarts": restarts(result),
        "happenings": [
            {
                "at_s": (each.done_ns - zero) / 1e9,
                "text": each.action.describe(),
                "breaks": each.fails,
            }
            for each in result.happenings
        ],
        "failures": list(result.failures),
    }
