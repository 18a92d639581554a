"""Check of finishing times: a learner's policies beside those of ours, for exercises that are ranked."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Sequence
from typing import Annotated

import yaml
from pydantic import Field

from mrc_topo.base.document import Model
from mrc_workshop import trusted
from mrc_workshop.job import Run, RunOrder
from mrc_workshop.kinds.counters import totals
from mrc_workshop.kinds.registry import Finding, kind
from mrclab.results.record import RunResult

#: A spurious retransmission per this many losses counts as a cause.
MANY = 4
#: Our own policies run once for all submissions of a class, which threads of one process judge.
_running = threading.Lock()


class Race(Model):
    """`at_least`: the score that passes. A scenario's score is the finishing time of our policies over the learner's;
    the total is their geometric mean, or 0 if a scenario does not end with every byte right."""

    at_least: Annotated[float, Field(gt=0, le=100)] = 1.0


@kind(Race)
def race(params: Race, runs: Sequence[Run]) -> Finding:
    """Check that the learner's policies finish sooner than the built-in ones: geometric mean of the ratios."""
    ratios = [_ratio(run) for run in runs]
    score = geometric_mean(ratios)
    # Hidden runs stay hidden: neither their names nor their single scores are shown.
    pairs = list(zip(runs, ratios, strict=True))
    names = dict.fromkeys(run.facts.name for run in runs if not run.facts.hidden)
    scores = {
        name: geometric_mean([ratio for run, ratio in pairs if run.facts.name == name and not run.facts.hidden])
        for name in names
    }
    hidden = [ratio for run, ratio in pairs if run.facts.hidden]
    if hidden:
        scores["hidden scenarios"] = geometric_mean(hidden)
    measured = f"score {score:.3f} ({', '.join(f'{name}: {value:.3f}' for name, value in scores.items())})"
    details = {"scores": {name: round(value, 6) for name, value in scores.items()}}
    if score >= params.at_least:
        return Finding(True, measured, score=round(score, 6), details=details)
    worst = min(range(len(runs)), key=lambda index: ratios[index])
    run = runs[worst]
    seen = None if run.facts.hidden else run
    if not ratios[worst]:
        mistake = "what does not bring every byte has no time: score 0"
        return Finding(False, measured, mistake, run=seen, score=0.0, details=details)
    where = "a hidden scenario" if run.facts.hidden else run.facts.name
    why, evidence = _why(run)
    mistake = (
        f"score {score:.3f}, must be at least {params.at_least:g} (ours: 1); it loses most in {where}, which takes it "
        f"{1 / ratios[worst]:.2f} times as long: {why}"
    )
    return Finding(False, measured, mistake, evidence, run=seen, score=round(score, 6), details=details)


def _why(run: Run) -> tuple[str, tuple[str, ...]]:
    """Return the probable reason of a slow run, with the counters that show it, by host."""
    found = totals(run)
    total = {name: sum(found.get(name, {}).values()) for name in ("duplicates", "timeouts", "losses", "trims")}
    bad, says = "", "it sends less than the paths would carry: its windows are small, or it uses few paths"
    if total["timeouts"] and total["timeouts"] * MANY >= total["losses"]:
        bad, says = "timeouts", f"{total['timeouts']} packets were lost that only their timeout found"
    elif total["duplicates"] and total["duplicates"] * MANY >= total["losses"]:
        bad, says = "duplicates", f"{total['duplicates']} packets were taken for lost that had arrived"
    elif total["trims"] > total["losses"] // MANY and total["trims"]:
        bad, says = "trims", f"{total['trims']} packets were trimmed: it sends more than the queues hold"
    return says, tuple(f"{host}: {value} {bad}" for host, value in sorted(found.get(bad, {}).items()) if value)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of ratios; 0 if one of them is 0, or there are none."""
    if not ratios or min(ratios) <= 0:
        return 0.0
    return math.exp(math.fsum(math.log(each) for each in ratios) / len(ratios))


def _ratio(run: Run) -> float:
    theirs = finishing_ns(run.result)
    if theirs is None:
        return 0.0
    ours = ours_ns(run.order.model_dump_json())
    if ours is None:
        raise ValueError(f"{run.facts.name}: our own policies do not finish it; the exercise is wrong")
    return ours / theirs


def finishing_ns(result: RunResult) -> int | None:
    """Return the nanoseconds from the first rank's start to the last one's end.

    None if a rank failed, received wrong bytes or did not end.
    """
    progress = [each for each in result.progress.values() if each.takes_part]
    if result.failures or not progress:
        return None
    if any(not each.done or each.mismatches or each.failure for each in progress):
        return None
    taken = max(each.finished_ns for each in progress) - min(each.started_ns for each in progress)
    return taken if taken > 0 else None


@functools.lru_cache(maxsize=256)
def _ours(order: str) -> int | None:
    asked = RunOrder.model_validate_json(order)
    document = yaml.safe_load(asked.lab)
    document.pop("policies", None)
    return finishing_ns(trusted.simulate(asked, yaml.safe_dump(document, sort_keys=False)))


def ours_ns(order: str) -> int | None:
    """Return the finishing time of our own policies in an ordered run. This process has nothing of the learner's, so
    the learner's code cannot slow it down."""
    with _running:
        return _ours(order)
