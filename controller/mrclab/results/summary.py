"""The top of a report, for who has a minute: what was done, whether it went well, and six figures, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrc_topo.topology import Topology
from mrc_topo.units import format_rate
from mrclab.lab import payloads
from mrclab.results.analysis import duration_text
from mrclab.results.check import Verdict
from mrclab.results.checks import goodput_share
from mrclab.results.record import Readings, RunResult

#: Missed checks that are named here; all of them are in the report's table.
NAMED = 4


@dataclass(frozen=True)
class KeyFigure:
    """A figure at the top of a report: its value, its name, and its meaning."""

    value: str
    what: str
    more: str


@dataclass(frozen=True)
class Top:
    """The banner, in a `colour` of the style sheet, with the first `NAMED` checks that were missed; and the figures."""

    headline: str
    story: str
    missed: Sequence[str]
    more: int
    figures: Sequence[KeyFigure]
    outcome: str
    colour: str


def top_of(result: RunResult, topology: Topology, readings: Readings, verdict: Verdict) -> Top:
    """Return what the top of a report says."""
    missed = [f"{each.what}: expected {each.expected}, measured {each.measured}" for each in verdict.missed]
    return Top(
        headline=headline(readings, verdict),
        story=story(result, topology, readings),
        missed=missed[:NAMED],
        more=max(len(missed) - NAMED, 0),
        figures=figures(result, topology, readings, verdict),
        outcome=verdict.outcome,
        colour="doubtful" if verdict.timing_only else verdict.status,
    )


def headline(readings: Readings, verdict: Verdict) -> str:
    """Return the outcome in one line."""
    count = readings.failures
    through = f", with {_many(count, 'failure')} on the way" if count else ""
    missed = len(verdict.missed)
    if verdict.interrupted:
        return f"Interrupted by {verdict.interrupted}: the run ended before its time"
    if verdict.passed:
        return f"Passed: everything came out as expected{through}"
    if verdict.timing_only:
        rates = f"{missed} of {_many(len(verdict.checks), 'check')} {'is' if missed == 1 else 'are'} of times and rates"
        return f"Passed; timing not valid: {rates} that this machine could not keep up with{through}"
    return (
        f"Failed: {missed} of {_many(len(verdict.checks), 'check')} {'was' if missed == 1 else 'were'} missed{through}"
    )


def story(result: RunResult, topology: Topology, readings: Readings) -> str:
    """Describe what was done, for readers who do not know the workloads' names."""
    clock = "simulated time" if result.clock == "virtual" else "real time"
    networks = len({switch.plane for switch in topology.switches})
    switches = _many(len(topology.switches) // networks, "switch", "switches")
    planes = "one network" if networks == 1 else f"{networks} parallel networks (planes)"
    happened = readings.failures
    done = f"{_many(happened, 'failure')} {'was' if happened == 1 else 'were'} caused on purpose" if happened else ""
    return (
        f"{_many(len(result.ranks), 'host')} ran the workload {result.workload} for {result.seconds:.1f} s "
        f"({clock}) over {planes} of {switches} each; {done or 'nothing was broken'}."
    )


def figures(result: RunResult, topology: Topology, readings: Readings, verdict: Verdict) -> list[KeyFigure]:
    """Return the six figures."""
    achieved = result.achieved()
    right, wrong = achieved.bytes_verified, achieved.mismatches
    errors = f"{wrong} wrong" if right or wrong else "none was"
    checked = KeyFigure(f"{right / 1e6:.1f} MB", "data checked byte by byte", errors)
    if result.fidelity.length_only:
        checked = KeyFigure("none", "data checked byte by byte", payloads.NOT_VERIFIED)
    share = goodput_share(result, topology, readings)
    judged = [each for each in verdict.recoveries if each.breaks]
    totals = readings.totals
    lost, spurious = totals["retransmissions"], totals["spurious_retransmissions"]
    return [
        KeyFigure(format_rate(readings.mean_bps), "goodput, on average", f"{share:.0%} of what the hosts' links carry"),
        checked,
        KeyFigure(str(readings.failures), "failures caused", _lowest([each.dip for each in judged])),
        KeyFigure(*_slowest([each.recovery_s for each in judged]), "until goodput was 95 % of what the rest can carry"),
        KeyFigure(str(achieved.qp_errors), "connections lost", f"of {achieved.qps} queue pairs"),
        KeyFigure(str(lost), "packets sent again", f"to repair losses; {spurious} of them had arrived after all"),
    ]


def _lowest(dips: list[float]) -> str:
    return f"goodput fell to {min(dips):.0%} at the lowest" if dips else "no dip to be measured"


def _slowest(times: list[float | None]) -> tuple[str, str]:
    if not times:
        return "-", "recovery"
    if None in times:
        return "never", "slowest recovery"
    return duration_text(max(each for each in times if each is not None)), "slowest recovery"


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
