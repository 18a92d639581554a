"""The moment of each failure, as frames: what every link carried, what was broken, and what became of the goodput.

`moments.js` plays them over the picture of the lab. A frame is a string with a digit per link, in the topology's order.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from mrc_host.proto.events import EvState
from mrc_topo.topology import Topology, UnknownElement
from mrc_topo.units import format_rate
from mrclab.lab.faults import action, kinds
from mrclab.lab.faults.action import Effects, FailureError
from mrclab.results.analysis import Recovery
from mrclab.results.record import Numbers, Readings, RunResult
from mrclab.results.recording import TIME

#: What is shown of the time before a failure and after it, and how finely.
BEFORE_S, AFTER_S, FRAME_S = 0.5, 2.0, 0.05
#: Failures that are shown, and digits of all their frames together: what a page may spend on them.
MOST, DIGITS = 12, 300_000
LEAST_FRAMES = 10
#: Shares of a link's rate at which its picture gets darker: `--load-0` to `--load-5` of style.css.
LEVELS = (0.02, 0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True)
class Moment:
    """A failure (`number`: of the run's happenings) and the time that is shown; `recovery` where it was measured.

    `told`: what became of the goodput, in words.
    """

    number: int
    at_s: float
    text: str
    begin_s: float
    end_s: float
    recovery: Recovery | None
    told: str


#: As of the frame `from`: what is down or impaired, links by their place in the topology's order.
BrokenFrom = TypedDict("BrokenFrom", {"from": int, "down": list[int], "impaired": list[int], "switches": list[str]})


class MomentFrames(TypedDict):
    """The frames of a moment that `moments.js` plays (see `frames`)."""

    at: float
    t: list[float]
    links: list[str]
    goodput: list[float]
    bad: list[int]
    lost: list[int]
    states: list[BrokenFrom]


@dataclass(frozen=True)
class Moments:
    """The failures that a report shows, the number of failures that were made, and the frames of each."""

    shown: Sequence[Moment]
    made: int
    frames: Sequence[MomentFrames]


def moments_of(result: RunResult, topology: Topology, readings: Readings, recoveries: Sequence[Recovery]) -> Moments:
    """Return the failures to show, with what is played of each."""
    found = chosen(readings, recoveries, len(topology.links), result.seconds)
    return Moments(found, readings.failures, frames(result, topology, found) if found else [])


def chosen(readings: Readings, recoveries: Sequence[Recovery], links: int, seconds: float) -> list[Moment]:
    """Return the failures to show, in order of time: all, or of many those that cost the most goodput.

    Args:
        links: of the topology.
        seconds: how long the run took.
    """
    measured = {round(each.at_s, 6): each for each in recoveries}
    found = []
    for number, change in enumerate(readings.changes):
        at = change.at_s
        if change.breaks and change.done:
            recovery = measured.get(round(at, 6))
            span = max(at - BEFORE_S, 0.0), min(at + AFTER_S, seconds)
            found.append(Moment(number, at, change.text, *span, recovery, _told(recovery)))
    most = max(min(MOST, DIGITS // (LEAST_FRAMES * max(links, 1))), 1)
    found.sort(key=lambda each: (_cost(each), each.number))
    return sorted(found[:most], key=lambda each: each.number)


def _told(recovery: Recovery | None) -> str:
    """Describe in words what became of the goodput."""
    if recovery is None:
        return "Too close to another change for goodput to be compared."
    back = "did not come back" if recovery.recovery_s is None else f"was back after {recovery.took}"
    return (
        f"Goodput was {format_rate(recovery.before_bps)}; {recovery.left:.1%} of the capacity was"
        f" left. It fell to {recovery.lowest} of what was left, and {back}."
    )


def _cost(moment: Moment) -> float:
    """Return the rank of a moment: lower is worse; what was not measured comes last."""
    recovery = moment.recovery
    return math.inf if recovery is None else recovery.dip - min(recovery.expected, 1.0)


def frames(result: RunResult, topology: Topology, moments: Sequence[Moment]) -> list[MomentFrames]:
    """Return for each moment what `moments.js` plays.

    By frame: `t` (s), `links` (a digit of load each), `goodput` (Mb/s), `bad` (EVs out of use) and `lost` (packets
    since the failure). `states`: from which frame on which links and switches are down or impaired.
    """
    links = len(topology.links)
    longest = DIGITS // max(links * len(moments), 1)
    made: list[MomentFrames] = []
    forced = forces(result, topology)
    for moment in moments:
        count = round((moment.end_s - moment.begin_s) / FRAME_S)
        edges = np.linspace(moment.begin_s, moment.end_s, max(min(count, longest), LEAST_FRAMES) + 1)
        hosts = list(result.samples)
        bad = result.levels(hosts, "ev", EvState.ASSUMED_BAD.name, edges[1:])
        lost = _lost(result, edges[1:], moment.at_s)
        made.append(
            {
                "at": round(moment.at_s, 4),
                "t": edges[1:].round(4).tolist(),
                "links": loads(result, topology, edges),
                "goodput": (result.goodput_bps(edges) / 1e6).round(2).tolist(),
                "bad": bad.round().astype(int).tolist(),
                "lost": lost,
                "states": list(states(forced, topology, edges[1:])),
            }
        )
    return made


def loads(result: RunResult, topology: Topology, edges: Numbers) -> list[str]:
    """Return for each interval between two edges the level of every link's busier direction."""
    fabric = result.recording.fabric
    start = result.started_ns
    names: dict[str, list[str]] = {link.name: [] for link in topology.links.values()}
    hosts = {host.name for host in topology.hosts}
    for link in topology.links.values():
        for end in (link.low, link.high):
            column = f"ports.{end.node}:{end.port}.tx_bytes"
            if end.node not in hosts and column in fabric.columns:
                names[link.name].append(column)
    wanted = [column for columns in names.values() for column in columns]
    span = start + int(edges[0] * 1e9), start + int(edges[-1] * 1e9)
    times, *totals = fabric.take([TIME, *wanted], *span)
    seconds = (times - start) / 1e9
    found = {}
    if len(seconds) > 1:
        for column, total in zip(wanted, totals, strict=True):
            found[column] = np.diff(np.interp(edges, seconds, total)) / np.diff(edges)
    rows = []
    for link in topology.links.values():
        rates = [found[column] for column in names[link.name] if column in found]
        if link.low.node in hosts:
            rates.append(result.rates(link.low.node, f"tx_bytes.{link.low.port}", edges))
        busier = np.max(rates, axis=0) if rates else np.zeros(len(edges) - 1)
        rows.append(np.searchsorted(LEVELS, 8 * busier / link.spec.rate, side="right"))
    table = np.array(rows, dtype=np.uint8).reshape(len(rows), len(edges) - 1).T + ord("0")
    return [row.tobytes().decode("ascii") for row in np.ascontiguousarray(table)]


def _lost(result: RunResult, times: Numbers, since: float) -> list[int]:
    """Return packets that failures cost in the fabric, from a time on, at each of some times (s)."""
    fabric, start = result.recording.fabric, result.started_ns
    columns = [name for name in fabric.columns if name.endswith(".lost")]
    begin, end = start + int(min(since, times[0]) * 1e9), start + int(times[-1] * 1e9)
    stamps, *counters = fabric.take([TIME, *columns], begin, end)
    if not len(stamps) or not counters:
        return [0] * len(times)
    total = np.sum(counters, axis=0)
    rows = np.searchsorted((stamps - start) / 1e9, [since, *times], side="right") - 1
    lost = total[np.maximum(rows, 0)]
    return np.maximum(lost[1:] - lost[0], 0).tolist()  # type: ignore[no-any-return]


#: From a time (s) on, what each failure in force does.
Force = tuple[float, tuple[Effects, ...]]


def forces(result: RunResult, topology: Topology) -> list[Force]:
    """Return what was broken, from each event on; unknown targets and kinds are left out."""
    force: dict[tuple[str, str], Effects] = {}
    found: list[Force] = [(-math.inf, ())]
    for happening in result.happenings:
        if happening.error:
            continue
        try:
            action = kinds.check(topology, happening.action)
        except (FailureError, UnknownElement, TypeError):
            continue
        if action.verb == "fail":
            force[action.target, action.kind] = kinds.effects_of(topology, action)
        else:
            gone = [key for key in force if key[0] == action.target and action.kind in ("", key[1])]
            for key in gone:
                del force[key]
        found.append((result.since_start(happening.done_ns), tuple(force.values())))
    return found


def states(forced: Sequence[Force], topology: Topology, times: Numbers) -> Iterator[BrokenFrom]:
    """Yield what is broken, as of the frame (`from`) in which it changes; links by their place in the topology's
    order.
    """
    place = {name: number for number, name in enumerate(topology.links)}
    begins = [begin for begin, _ in forced]
    shown = None
    for number, time in enumerate(times):
        at = bisect_right(begins, float(time)) - 1
        if at == shown:
            continue
        shown = at
        harm = action.together(forced[at][1])
        down = {name for (name, _), rate in harm.rates(topology).items() if rate == 0} | harm.carriers
        impaired = {name for name, _ in harm.settings} - down
        yield {
            "from": number,
            "down": sorted(place[name] for name in down),
            "impaired": sorted(place[name] for name in impaired),
            "switches": sorted(harm.switches),
        }
