"""Milestones of each failure: when it was made, noticed, acted on and overcome, and what limited goodput afterwards."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrc_host.answers import Event, EvEvent, PortEvent
from mrc_host.proto.events import EvState
from mrc_topo.units import Unit, shown
from mrclab.pages.chart import Mark
from mrclab.results.analysis import RECOVERED, Recovery
from mrclab.results.record import BIN_S, Change, Readings, RunResult

#: What is named as the limit is off by this share at least, or explains all but this share.
NOTABLE = 0.05


@dataclass(frozen=True)
class Milestone:
    """An action on the lab, and what followed before the next one. Times are seconds, those of hosts after `at_s`.

    `number`: of a failure, as in the charts; 0 of a repair, and `mends` are those of the failures that it ended.
    `within_s`: how long the action took. `detected_s`: the first host took an EV or a port for bad, or for good again;
    `denied_s`: the first EV was on the denylist. `host_s`: how late hosts may be in noticing. `recovery` where it was
    measured.
    """

    number: int
    mends: Sequence[int]
    at_s: float
    within_s: float
    text: str
    breaks: bool
    detected_s: float | None
    denied_s: float | None
    host_s: float
    recovery: Recovery | None
    limit: str

    @property
    def cells(self) -> list[str]:
        """The row of the table: see `HEADS`."""
        found = self.recovery
        mended = f"✓{', '.join(map(str, self.mends))}" if self.mends else "-"
        return [
            str(self.number or mended),
            self.text,
            f"{self.at_s:.2f} s{_within(self.within_s)}",
            *(_after(each, self.host_s) for each in (self.detected_s, self.denied_s)),
            "not measured" if found is None else _recovered(found),
            "-" if found is None else found.lowest,
            "-" if found is None else shown(found.after, Unit.SHARE, 3),
            self.limit,
        ]


HEADS = (
    "", "what", "injected", "detected by hosts", "put on the denylist",
    f"recovered to {RECOVERED * 100:.0f} % of what was left", "lowest, of what was left", "settled, of before",
    "what limited it once settled",
)  # fmt: skip


def _recovered(found: Recovery) -> str:
    """Return when goodput had recovered, and that the lowest bin came after it where it did."""
    after = found.recovery_s is not None and found.low < RECOVERED and found.dip_s >= found.recovery_s
    within = _within(BIN_S) if found.recovery_s else ""
    return f"{found.took}{within}{', then single bins below' if after else ''}"


def _within(seconds: float) -> str:
    return f" ± {shown(seconds, Unit.TIME, 2)}" if seconds >= 5e-4 else ""


def _after(seconds: float | None, within: float) -> str:
    return "-" if seconds is None else f"+{shown(seconds, Unit.TIME, 3)}{_within(within)}"


def marks_of(result: RunResult, readings: Readings) -> list[Mark]:
    """Return the failures of a run for its charts, each until it was repaired; what repairs none is not marked."""
    marks: list[Mark] = []
    opened: dict[tuple[str, str], list[int]] = {}
    for happening, change in zip(result.happenings, readings.changes, strict=True):
        action = happening.action
        if change.breaks and change.done:
            opened.setdefault((action.target, action.kind), []).append(len(marks))
            marks.append(Mark(change.at_s, change.text, True, float(readings.edges[-1])))
        elif not change.breaks:
            for target, kind in list(opened):
                if action.target in ("", target) and action.kind in ("", kind):
                    for number in opened.pop((target, kind)):
                        marks[number] = Mark(marks[number].at, marks[number].text, True, change.at_s)
    return marks


def milestones_of(result: RunResult, readings: Readings, recoveries: Sequence[Recovery]) -> list[Milestone]:
    """Return what followed each action on the lab, in order."""
    changes = readings.changes
    if not changes:
        return []
    noticed, denied = _noticed(result, changes)
    marks = marks_of(result, readings)
    measured = {round(each.at_s, 6): each for each in recoveries}
    lags = [host.loop_lag.p99_ns for host in result.fidelity.hosts.values()]
    late = 0.0 if result.fidelity.simulated else max(lags, default=0) / 1e9
    ends = [*(each.at_s for each in changes[1:]), float(readings.edges[-1])]
    found, number = [], 0
    for place, (happening, change, end) in enumerate(zip(result.happenings, changes, ends, strict=True)):
        number += change.breaks and change.done
        recovery = measured.get(round(change.at_s, 6))
        limit = _limit(result, recovery, end) if recovery is not None else ""
        found.append(
            Milestone(
                number=number if change.breaks and change.done else 0,
                mends=[at for at, mark in enumerate(marks, 1) if not change.breaks and mark.until == change.at_s],
                at_s=change.at_s,
                within_s=(happening.done_ns - happening.at_ns) / 1e9,
                text=change.text if change.done else f"{change.text}: not done",
                breaks=change.breaks,
                detected_s=noticed.get(place),
                denied_s=denied.get(place),
                host_s=late,
                recovery=recovery,
                limit=limit,
            )
        )
    return found


def _noticed(result: RunResult, changes: Sequence[Change]) -> tuple[dict[int, float], dict[int, float]]:
    """Return after how long hosts noticed each action, and denied EVs for it, by its place: in one reading of all
    events."""
    times = [each.at_s for each in changes]
    noticed: dict[int, float] = {}
    denied: dict[int, float] = {}
    for _, event in result.events.between(-(1 << 63), 1 << 63):
        at = result.since_start(event.t_ns)
        place = bisect_right(times, at) - 1
        if place < 0:
            continue
        found = denied if isinstance(event, EvEvent) and event.new == EvState.DENIED.name else noticed
        if found is denied or _tells(event, changes[place].breaks):
            found[place] = min(found.get(place, np.inf), at - times[place])
    return noticed, denied


def _tells(event: Event, breaks: bool) -> bool:
    """Return whether an event says that something broke, or works again."""
    if isinstance(event, PortEvent):
        return event.up is not breaks
    bad = EvState.ASSUMED_BAD.name
    return isinstance(event, EvEvent) and (event.new if breaks else event.old) == bad


def _limit(result: RunResult, recovery: Recovery, end: float) -> str:
    """Return what limited goodput once it had settled, as far as the samples say."""
    share = min(recovery.expected, 1.0)
    if recovery.after >= (1 - NOTABLE) * share:
        if recovery.left > 1 - NOTABLE / 5:
            return "-"
        return f"the capacity that was left, {shown(recovery.left, Unit.SHARE, 3)}"
    hosts = list(result.samples)
    edges = np.array([max(recovery.at_s - 0.1, 0.0), (recovery.at_s + end) / 2])
    states = [result.levels(hosts, "ev", state.name, edges) for state in EvState]
    out, total = float(states[2][1] + states[3][1]), float(sum(each[1] for each in states))
    before, then = result.levels(hosts, "cc", "cwnd", edges)
    if total and out > NOTABLE * total:
        return f"entropy values: {out:,.0f} of {total:,.0f} were out of use"
    if before and then < (1 - NOTABLE) * before:
        return f"windows: {shown(then / before, Unit.SHARE, 3)} of before"
    return "not known: neither capacity, entropy values nor windows explain it"
