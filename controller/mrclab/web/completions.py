"""Completion times over the time of a run: median and P99 of what ended shortly before each moment.

Hosts keep the times of single steps of training, and of single flows; of the iterations of other workloads they keep
one distribution for the whole run, and of streams of messages none. All of it comes when a workload ends. While it
runs, samples have how many iterations ended, which makes a mean (`state.Job`).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Final, Literal

from mrc_host.answers import Times
from mrc_topo.base.quantiles import nearest_rank, quantile
from mrclab.results import steps
from mrclab.results.record import RunResult
from mrclab.web.state import Completions

#: The least time over which median and P99 are taken, ns; and how many completions of median length it has.
WINDOW_NS: Final = 1_000_000_000
WINDOW_TIMES: Final = 5
#: The number of points of a curve, and the least interval between them, ns of the session's clock.
POINTS: Final = 1500
POINT_NS: Final = 100_000_000

PENDING: Final = "median and P99 follow at the end, if the workload times single steps or flows"
FEW: Final = "no window has the 100 completions of which there is a P99"
IDLE: Final = "no workload has run yet"
OTHERS: Final = "median and P99 are in the results of the command that runs this workload"


def without(why: str) -> Completions:
    """Return that there are no completion times, and why."""
    return {"what": "", "window_ns": WINDOW_NS, "rows": [], "why": why}


def edges_of(length_ns: int) -> list[int]:
    """Return the times at which curves of a run have points, and its beginning, in ns after that."""
    points = min(POINTS, max(length_ns // POINT_NS, 2))
    return [length_ns * number // points for number in range(points + 1)]


def completions_of(result: RunResult, began_ns: int) -> Completions:
    """Return the completion times of a run that has ended, at times in ns after `began_ns` of the session's clock."""
    ended = [(each.end_ns, each.end_ns - each.begin_ns) for each in steps.steps_of(result)]
    what: Literal["step", "flow"] = "step"
    if not ended:
        measured = [each.measured for each in result.progress.values() if each.measured is not None]
        flows = [flow for each in measured for flow in each.flows or ()]
        ended, what = [(flow.ended_ns, flow.ended_ns - flow.began_ns) for flow in flows], "flow"
    if not ended:
        return without(_lacking(result))
    ended.sort()
    window_ns = max(WINDOW_NS, WINDOW_TIMES * nearest_rank([took for _, took in ended], 0.5))
    first = result.started_ns - began_ns
    length_ns = max(result.finished_ns - result.started_ns, 1)
    ends = [end - began_ns for end, _ in ended]
    rows: list[list[int | None]] = []
    for edge in edges_of(length_ns)[1:]:
        now = first + edge
        took = [each for _, each in ended[bisect.bisect_right(ends, now - window_ns) : bisect.bisect_right(ends, now)]]
        rows.append([now, *(quantile(took, share) for share in (0.5, 0.99)), len(took)])
    why = "" if any(p99 is not None for _, _, p99, _ in rows) else FEW
    return {"what": what, "window_ns": window_ns, "rows": rows, "why": why}


def _lacking(result: RunResult) -> str:
    """Return why a run that has ended has no single completion times."""
    measured = [each.measured for each in result.progress.values() if each.measured is not None]
    if any(each.latency_ns for each in measured):
        return _whole("message", (each.latency_ns for each in measured))
    if any(each.iteration_ns for each in measured):
        return _whole("iteration", (each.iteration_ns for each in measured))
    return f"{result.workload or 'the workload'} times no single steps, flows or messages"


def _whole(what: str, times: Iterable[Times | None]) -> str:
    """Return the distribution over a whole run at the host where its P99 is highest, or the longest time."""
    known = [each for each in times if each is not None]
    worst = max(known, key=lambda each: each.max if each.p99 is None else each.p99)
    tail = f"longest {worst.max / 1e6:.3g} ms" if worst.p99 is None else f"P99 {worst.p99 / 1e6:.3g} ms"
    return f"{what}: of the whole run only, median {worst.typical / 1e6:.3g} ms, {tail}"
