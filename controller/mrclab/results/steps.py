"""Steps of a training run: how long each took over all ranks, and which of them saw a failure.

A step ends when its last rank has ended it, and begins when the one before has ended. It saw a failure when something
of the lab was broken at any time of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mrc_host.answers import Times, TrainingTimes
from mrc_topo.base import quantiles
from mrc_topo.base.plain import OMIT_NONE
from mrclab.results.record import LabEvent, RunResult

#: Statistics of step times, by the names that results and expectations use.
STATISTICS = ("mean", "p50", "p99", "max")
SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}
#: Which steps: all, those with something broken, those without.
DURING = ("all", "broken", "whole")


@dataclass(frozen=True)
class TrainingStep:
    """One step, on the session's clock (ns)."""

    number: int
    begin_ns: int
    end_ns: int
    broken: bool

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.begin_ns) / 1e9


def broken_intervals(happenings: Sequence[LabEvent], finished_ns: int) -> list[tuple[int, int]]:
    """Return when something was broken: from a failure until nothing is broken any more (ns of the session's clock)."""
    found: list[tuple[int, int]] = []
    since: int | None = None
    for happening in happenings:
        if happening.broken and since is None:
            since = happening.at_ns
        elif not happening.broken and since is not None:
            found.append((since, happening.done_ns))
            since = None
    if since is not None:
        found.append((since, max(finished_ns, since)))
    return found


def steps_of(result: RunResult) -> list[TrainingStep]:
    """Return the steps that every rank has ended and whose beginning is known; none where the workload has no steps."""
    taking = [each for each in result.progress.values() if each.takes_part]
    rows = [each for each in taking if each.measured is not None and each.measured.training]
    if not rows or len(rows) < len(taking) or len(result.progress) < len(result.ranks):
        return []
    ends = [each.ends_ns for each in _measured(result)]
    first = max(each.iterations - len(mine) for each, mine in zip(rows, ends, strict=True))
    last = min(each.iterations for each in rows)
    broken = broken_intervals(result.happenings, result.finished_ns)
    begin = min(each.started_ns for each in rows) if first == 0 else None
    found = []
    for number in range(first, last):
        end = max(mine[number - each.iterations] for each, mine in zip(rows, ends, strict=True))
        if begin is not None:
            saw = any(since < end and begin < until for since, until in broken)
            found.append(TrainingStep(number, begin, end, saw))
        begin = end
    return found


def chosen(steps: Sequence[TrainingStep], during: str) -> list[TrainingStep]:
    """Return the steps that one of `DURING` selects."""
    return [each for each in steps if during == "all" or each.broken == (during == "broken")]


def statistic(seconds: Sequence[float], name: str) -> float:
    """Return the mean, maximum, or quantile by nearest rank, of at least one time.

    A bound on a P99 of fewer than 100 times is one on their maximum.
    """
    if name == "mean":
        return sum(seconds) / len(seconds)
    return quantiles.nearest_rank(seconds, SHARES[name])


def time_summary(seconds: Sequence[float]) -> TimeSummary:
    """Return the statistics of at least one time."""
    p99 = quantiles.quantile(seconds, SHARES["p99"])
    return TimeSummary(len(seconds), statistic(seconds, "mean"), statistic(seconds, "p50"), p99, max(seconds))


@dataclass(frozen=True)
class TimeSummary:
    """The number of times, and their `STATISTICS` in seconds; P99 is None of too few (`mrc_topo.base.quantiles`)."""

    count: int
    mean: float
    p50: float
    p99: float | None
    max: float

    def values(self) -> tuple[float | None, ...]:
        """Return the statistics in the order of `STATISTICS`."""
        return self.mean, self.p50, self.p99, self.max


@dataclass(frozen=True)
class TrainingSummary:
    """All steps (number, begin and duration in seconds, whether it saw a failure), their `times` by `DURING`, `idle`
    (share of all ranks' time that is not computation: exposed communication, and bubbles of the pipeline), the
    times of `operations` over all ranks, and of a rank's time in a step without computation (`exposed`)."""

    steps: Sequence[tuple[int, float, float, bool]]
    times: dict[str, TimeSummary]
    idle: float
    operations: dict[str, TimeSummary]
    exposed: TimeSummary | None = field(default=None, metadata=OMIT_NONE)


def summary(result: RunResult) -> TrainingSummary | None:
    """Summarize the steps of a training run; None without steps."""
    steps = steps_of(result)
    if not steps:
        return None
    times: dict[str, TimeSummary] = {}
    for during in DURING:
        if seconds := [each.seconds for each in chosen(steps, during)]:
            times[during] = time_summary(seconds)
    measured = _measured(result)
    taking = (each for each in result.progress.values() if each.takes_part)
    ended = [
        (rank.finished_ns - rank.started_ns, times.computed_ns)
        for rank, times in zip(taking, measured, strict=True)
        if rank.done
    ]
    spent, computed = (sum(each) for each in zip((0, 0), *ended, strict=True))
    return TrainingSummary(
        [(each.number, result.since_start(each.begin_ns), each.seconds, each.broken) for each in steps],
        times,
        1 - computed / spent if spent else 0.0,
        _combined([each.operations for each in measured]),
        _combined([{} if each.exposed_ns is None else {"": each.exposed_ns} for each in measured]).get(""),
    )


def _measured(result: RunResult) -> list[TrainingTimes]:
    """Return what the ranks of a training measured that take part in it."""
    taking = (each for each in result.progress.values() if each.takes_part)
    found = (each.measured.training for each in taking if each.measured is not None)
    return [each for each in found if each is not None]


def _combined(ranks: Sequence[Mapping[str, Times]]) -> dict[str, TimeSummary]:
    """Summarise times over the ranks: counts, mean, median of the medians, highest 99 % quantile, and maximum."""
    names = sorted({name for each in ranks for name in each})
    found = {}
    for name in names:
        rows = [each[name] for each in ranks if name in each]
        count = sum(each.count for each in rows)
        tails = [each.p99 for each in rows]
        found[name] = TimeSummary(
            count,
            sum(each.mean * each.count for each in rows) / count / 1e9,
            statistic([each.typical for each in rows], "p50") / 1e9,
            None if None in tails else max(each for each in tails if each is not None) / 1e9,
            max(each.max for each in rows) / 1e9,
        )
    return found
