"""The shortest schedule that breaks a lab the same way, by delta debugging (Zeller and Hildebrandt, 2002: ddmin)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mrclab.studies.chaos.run import ChaosResult
from mrclab.studies.chaos.schedule import Schedule

T = TypeVar("T")


class _TriesExhausted(Exception):
    """No more tries."""


def ddmin(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Return a minimal part of `items`, in order, for which `fails` holds: without any one of its items it does not.

    `fails(items)` must hold.
    """
    left, pieces = list(items), 2
    while left:
        size = -(-len(left) // pieces)
        for first in range(0, len(left), size):
            rest = left[:first] + left[first + size :]
            if fails(rest):
                left, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(left))
    return left


def shrink(
    schedule: Schedule, played: ChaosResult, again: Callable[[Schedule], ChaosResult], tries: int = 200
) -> tuple[Schedule, ChaosResult, int]:
    """Return the shortest schedule found that breaks the same rule, its outcome, and the number of plays.

    `again` plays one. On the real clock what breaks once need not break again; a step is only left out when it broke
    without it.
    """
    assert played.violation is not None
    rule = played.violation.rule
    best, outcome, count = schedule, played, 0

    def breaks(candidate: Schedule) -> bool:
        nonlocal best, outcome, count
        if count >= tries:
            raise _TriesExhausted
        count += 1
        found = again(candidate)
        if found.violation is None or found.violation.rule != rule:
            return False
        best, outcome = candidate, found
        return True

    def cut(steps: list[object], duration: float) -> Schedule:
        return schedule.model_copy(update={"steps": steps, "duration": duration})

    try:
        # Steps after the violation cannot have caused it.
        steps = [step for step in schedule.steps if step.at <= played.at]
        if not breaks(cut([*steps], steps[-1].at if steps else 0.0)) and not breaks(cut([*steps], schedule.duration)):
            return best, outcome, count
        duration = best.duration
        ddmin(best.steps, lambda rest: breaks(cut([*rest], min(duration, rest[-1].at if rest else 0.0))))
    except _TriesExhausted:
        pass
    return best, outcome, count
