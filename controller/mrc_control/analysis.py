"""What a run's samples say: goodput over time, the dip and the recovery after every failure.

Samples hold cumulative counters at unequal times; series here are rates on a common grid. Times are seconds after the
start of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Series = npt.NDArray[np.float64]

BIN_S = 0.1
#: Goodput counts as recovered when its mean over this time reaches the bound.
HOLD_S = 0.3
RECOVERED = 0.95


@dataclass(frozen=True)
class Recovery:
    """What one action did to the goodput.

    `before_bps`: mean before; `expected`: share of it that the remaining capacity allows; `dip`: lowest share
    seen; `after`: share once settled; `recovery_s`: from the action until goodput holds 95 % of what is
    expected, None if it never did.
    """

    at_s: float
    text: str
    breaks: bool
    before_bps: float
    expected: float
    dip: float
    after: float
    recovery_s: float | None


def grid(document: Mapping[str, Any], bin_s: float = BIN_S) -> Series:
    """Bin edges in seconds from the start of the run to its end."""
    length = (document["finished_ns"] - document["started_ns"]) / 1e9
    return np.arange(0.0, max(length, 2 * bin_s), bin_s)


def rates(
    document: Mapping[str, Any],
    host: str,
    value: Callable[[Mapping[str, Any]], float],
    edges: Series,
) -> Series:
    """Rate per second of a cumulative counter of one host, one number per bin."""
    samples = document["samples"].get(host, [])
    if len(samples) < 2:
        return np.zeros(len(edges) - 1)
    times = np.array([(each["t_ns"] - document["started_ns"]) / 1e9 for each in samples])
    totals = np.array([value(each) for each in samples], dtype=np.float64)
    return np.diff(np.interp(edges, times, totals)) / np.diff(edges)


def goodput_bps(document: Mapping[str, Any], edges: Series) -> Series:
    """Payload placed at all responders, bits per second."""
    total = np.zeros(len(edges) - 1)
    for host in document["ranks"]:
        total += 8 * rates(document, host, lambda sample: sample["delivered_bytes"], edges)
    return total


def plane_load_bps(document: Mapping[str, Any], edges: Series, planes: int) -> list[Series]:
    """Bits per second that all hosts send into each plane."""
    loads = []
    for plane in range(planes):
        total = np.zeros(len(edges) - 1)
        for host in document["ranks"]:
            total += 8 * rates(document, host, lambda sample, port=plane: sample["tx_bytes"][port], edges)  # type: ignore[misc]
        loads.append(total)
    return loads


def levels(document: Mapping[str, Any], hosts: Sequence[str], key: str, name: str, edges: Series) -> Series:
    """Sum over hosts of a level (not a counter) that samples hold under `key`/`name`, at the bin edges."""
    total = np.zeros(len(edges))
    for host in hosts:
        samples = document["samples"].get(host, [])
        if samples:
            times = [(each["t_ns"] - document["started_ns"]) / 1e9 for each in samples]
            total += np.interp(edges, times, [each[key][name] for each in samples])
    return total


def recoveries(document: Mapping[str, Any], bin_s: float = BIN_S) -> list[Recovery]:
    """Dip and recovery for every action of the run, in order, but those with less than `HOLD_S` to the one before
    (or the start) or the one after: there is nothing to compare with."""
    edges = grid(document, bin_s)
    series = goodput_bps(document, edges)
    happenings = document["happenings"]
    start = document["started_ns"]
    if not happenings:
        return []
    times = [(each["done_ns"] - start) / 1e9 for each in happenings]
    ends = [*times[1:], edges[-1]]
    begins = [0.0, *times[:-1]]
    found = []
    loss = 0.0
    for happening, begin, time, end in zip(happenings, begins, times, ends, strict=True):
        expected = (1.0 - happening["expected_loss"]) / max(1.0 - loss, 1e-9)
        loss = happening["expected_loss"]
        if end - time < HOLD_S or time - begin < HOLD_S:
            continue
        before = window_mean(series, edges, max(begin + (time - begin) / 2, time - 2.0), time)
        found.append(_recovery(happening, series, edges, (time, end), before, expected))
    return found


def window_mean(series: Series, edges: Series, begin: float, end: float) -> float:
    """Mean of the bins that lie inside; 0 when there is none."""
    inside = (edges[:-1] >= begin - 1e-9) & (edges[1:] <= end + 1e-9)
    return float(series[inside].mean()) if inside.any() else 0.0


def _recovery(
    happening: Mapping[str, Any],
    series: Series,
    edges: Series,
    span: tuple[float, float],
    before: float,
    expected: float,
) -> Recovery:
    begin, end = span
    bin_s = float(edges[1] - edges[0])
    hold = max(round(HOLD_S / bin_s), 1)
    first = int(np.searchsorted(edges, begin, side="left"))
    last = int(np.searchsorted(edges, end, side="right")) - 1
    shares = series[first:last] / before if before > 0 else np.zeros(max(last - first, 0))
    recovery: float | None = None
    for index in range(len(shares) - hold + 1):
        if shares[index : index + hold].mean() >= RECOVERED * min(expected, 1.0):
            recovery = max(float(edges[first + index]) - begin, 0.0)
            break
    settled = window_mean(series, edges, begin + (end - begin) / 2, end)
    action = happening["action"]
    return Recovery(
        at_s=begin,
        text=action["text"],
        breaks=action["verb"] == "fail",
        before_bps=before,
        expected=expected,
        dip=float(shares.min()) if len(shares) else 0.0,
        after=settled / before if before > 0 else 0.0,
        recovery_s=recovery,
    )


def totals(document: Mapping[str, Any]) -> dict[str, int]:
    """Sums over hosts between the first and the last sample of the run."""
    keys = ("retransmissions", "trims", "marks", "timeouts", "losses")
    result = dict.fromkeys(keys, 0)
    for samples in document["samples"].values():
        for key in keys:
            if len(samples) > 1:
                result[key] += samples[-1][key] - samples[0][key]
    return result
