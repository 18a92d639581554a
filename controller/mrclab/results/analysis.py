"""Effect of every failure on the goodput of a run: how far it fell, and how long it took to come back.

Times are seconds after the start of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrc_topo.units import Unit, format_duration_ms, shown
from mrclab.results.record import BIN_S, Change, Numbers, Readings, RunResult

#: Goodput counts as recovered when its mean over this time reaches the bound.
HOLD_S = 0.3
RECOVERED = 0.95
#: A bin counts as behind an action if it begins at most this share of a bin before it: what fell in it is its doing.
EARLY = 0.1


@dataclass(frozen=True)
class Recovery:
    """What one action did to the goodput.

    `before_bps`: mean before; `expected`: share of it that the remaining capacity allows; `dip`: lowest share seen in a
    bin, which began `dip_s` after the action; `after`: share once settled, in the second half of the time until the
    next action or the end; `recovery_s`: from the action until goodput holds 95 % of what is expected on average, over
    `HOLD_S` and over all the time until the next action or the end: the end of the last bin below that within the first
    such `HOLD_S` or before it. Single bins behind may be below again. 0 if no bin was below, None if it never did.
    `left`: the capacity that remains after it, a share of that of the whole lab; after a restore `expected` is more
    than 1 and this is not.
    """

    at_s: float
    text: str
    breaks: bool
    before_bps: float
    expected: float
    dip: float
    after: float
    recovery_s: float | None
    left: float
    dip_s: float = 0.0

    @property
    def low(self) -> float:
        """The lowest bin over what the recovery is measured by: 95 % of it, or more, is as good as recovered."""
        return self.dip / min(self.expected, 1.0) if self.expected > 0 else 1.0

    @property
    def lowest(self) -> str:
        """`low`, and when it was."""
        return f"{shown(self.low, Unit.SHARE, 3)} after {self.dip_s:.1f} s"

    @property
    def took(self) -> str:
        """The time of the recovery, which is known to a bin, as text."""
        return duration_text(self.recovery_s)


def duration_text(recovery_s: float | None) -> str:
    """Return a `Recovery.recovery_s` as text: whole milliseconds, "never", or less than a bin."""
    if recovery_s is not None and not recovery_s:
        return f"less than {BIN_S * 1e3:.0f} ms"
    return format_duration_ms(recovery_s)


def recoveries(result: RunResult, readings: Readings) -> list[Recovery]:
    """Return the dip and recovery of every action of the run, in order.

    Actions with less than `HOLD_S` to the one before (or the start) or to the one after are left out: they have nothing
    to be compared with.
    """
    changes = readings.changes
    if not changes:
        return []
    times = [each.at_s for each in changes]
    # Goodput falls when ranks have done their work, which is not a dip of a failure.
    last = min(float(readings.edges[-1]), _first_end(result))
    ends = [min(each, last) for each in (*times[1:], last)]
    begins = [0.0, *times[:-1]]
    found = []
    loss = 0.0
    for change, begin, end in zip(changes, begins, ends, strict=True):
        time = change.at_s
        expected = (1.0 - change.expected_loss) / max(1.0 - loss, 1e-9)
        loss = change.expected_loss
        if end - time < HOLD_S or time - begin < HOLD_S:
            continue
        before = window_mean(readings.goodput_bps, readings.edges, *_window_before(begin, time))
        found.append(_recovery(change, readings, end, before, expected))
    return found


def _first_end(result: RunResult) -> float:
    """Return when the first rank had done its work, seconds after the start; infinite if none has."""
    progress = [each for each in result.progress.values() if each.takes_part]
    ends = [each.finished_ns for each in progress if each.done and each.finished_ns]
    return (min(ends) - result.started_ns) / 1e9 if ends else np.inf


def _window_before(begin: float, time: float) -> tuple[float, float]:
    """Return the window before an action: half of the time since the action before it (or the start), 2 s at most."""
    return max(begin + (time - begin) / 2, time - 2.0), time


def goodput_before(result: RunResult, times: Sequence[float]) -> float | None:
    """Return the mean goodput before the last of some actions, bit/s, as `Recovery.before_bps` has it, during a run.

    Args:
        result: so far.
        times: when the actions were done, seconds after the start, in order.

    Returns:
        None where there is too little time before the action.
    """
    begin, time = ([0.0, *times])[-2:]
    if time - begin < HOLD_S:
        return None
    low, high = _window_before(begin, time)
    edges = np.arange(0.0, high + 1e-9, BIN_S)
    edges = edges[edges >= low - BIN_S]
    return window_mean(result.goodput_bps(edges), edges, low, high) if len(edges) > 1 else None


def window_mean(series: Numbers, edges: Numbers, begin: float, end: float) -> float:
    """Return the mean of the bins that lie inside; 0 when there is none."""
    inside = (edges[:-1] >= begin - 1e-9) & (edges[1:] <= end + 1e-9)
    return float(series[inside].mean()) if inside.any() else 0.0


def _recovery(change: Change, readings: Readings, end: float, before: float, expected: float) -> Recovery:
    """Return what a change did to the goodput until `end` (s); `before`: the goodput before it, bit/s."""
    edges, series = readings.edges, readings.goodput_bps
    begin = change.at_s
    width = float(edges[1] - edges[0])
    hold = max(round(HOLD_S / width), 1)
    first = int(np.searchsorted(edges, begin - EARLY * width - 1e-9, side="left"))
    last = int(np.searchsorted(edges, end, side="right")) - 1
    shares = series[first:last] / before if before > 0 else np.zeros(max(last - first, 0))
    # Of a failure that lasts hardly longer than that, fewer whole bins are there.
    hold = max(min(hold, len(shares)), 1)
    recovery: float | None = None
    bound = RECOVERED * min(expected, 1.0)
    # Bins before the first that is below the bound say nothing of a recovery: the fall may only begin.
    fall = min(int(np.argmax(shares < bound)), len(shares) - hold) if len(shares) else 0
    for index in range(fall, len(shares) - hold + 1):
        window = shares[index : index + hold]
        if window.mean() >= bound and shares[index:].mean() >= bound:
            below = index + np.flatnonzero(window < bound)
            behind = below[-1] + 1 if len(below) else index
            recovery = round(max(float(edges[first + behind]) - begin, 0.0), 6) if behind else 0.0
            break
    lowest = int(shares.argmin()) if len(shares) else 0
    settled = window_mean(series, edges, begin + (end - begin) / 2, end)
    return Recovery(
        at_s=begin,
        text=change.text,
        breaks=change.breaks,
        before_bps=before,
        expected=expected,
        dip=float(shares[lowest]) if len(shares) else 0.0,
        after=settled / before if before > 0 else 0.0,
        recovery_s=recovery,
        left=1.0 - change.expected_loss,
        dip_s=max(float(edges[min(first + lowest, len(edges) - 1)]) - begin, 0.0),
    )
