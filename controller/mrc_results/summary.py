"""The top of a report, for who has a minute: what was done, whether it went well, and six figures, in plain words."""

from __future__ import annotations

import html

from mrc_results import analysis
from mrc_results.check import Check
from mrc_results.record import RunResult
from mrc_results.verdict import Verdict, goodput_share
from mrc_topo.topology import Topology
from mrc_topo.units import format_rate

#: Missed checks that are named here; all of them are in the report's table.
NAMED = 4


def render(result: RunResult, topology: Topology, verdict: Verdict) -> str:
    """Return the banner, what was done, and the figures, as HTML."""
    missed = [check for check in verdict.checks if not check.passed]
    named = "".join(f"<li>{_missed(check)}</li>" for check in missed[:NAMED])
    more = f"<li>and {len(missed) - NAMED} more</li>" if len(missed) > NAMED else ""
    colour = "doubtful" if verdict.timing_only else verdict.status
    return (
        f'<div class="banner {colour}"><strong>{html.escape(headline(result, verdict))}</strong>'
        f"{html.escape(story(result, topology))}{f'<ul>{named}{more}</ul>' if missed else ''}</div>"
        f'<div class="tiles">{"".join(_tile(*each) for each in figures(result, topology, verdict))}</div>'
    )


def _missed(check: Check) -> str:
    return html.escape(f"{check.what}: expected {check.expected}, measured {check.measured}")


def _tile(value: str, what: str, more: str) -> str:
    return f'<div class="tile"><b>{html.escape(value)}</b>{html.escape(what)}<br><span>{html.escape(more)}</span></div>'


def broken(result: RunResult) -> int:
    """How many failures were made."""
    return sum(each.fails and not each.error for each in result.happenings)


def headline(result: RunResult, verdict: Verdict) -> str:
    """Return the outcome in one line."""
    count = broken(result)
    through = f", with {_many(count, 'failure')} on the way" if count else ""
    missed = sum(not check.passed for check in verdict.checks)
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


def story(result: RunResult, topology: Topology) -> str:
    """Return what was done, for who does not know the workloads' names."""
    lab = topology.lab
    clock = "simulated time" if result.clock == "virtual" else "real time"
    switches = _many(lab.t0_per_plane + lab.t1_per_plane, "switch", "switches")
    planes = "one network" if lab.planes == 1 else f"{lab.planes} parallel networks (planes)"
    happened = broken(result)
    done = f"{_many(happened, 'failure')} {'was' if happened == 1 else 'were'} caused on purpose" if happened else ""
    return (
        f"{_many(len(result.ranks), 'host')} ran the workload {result.workload} for {result.seconds:.1f} s "
        f"({clock}) over {planes} of {switches} each; {done or 'nothing was broken'}."
    )


def figures(result: RunResult, topology: Topology, verdict: Verdict) -> list[tuple[str, str, str]]:
    """Value, what it is, and what it means, six times."""
    progress = list(result.progress.values())
    right = sum(each.bytes_verified for each in progress)
    wrong = sum(each.mismatches for each in progress)
    dead = sum(each.qps - each.qps_in_rts for each in progress)
    edges = analysis.grid(result)
    mean = float(analysis.goodput_bps(result, edges).mean())
    share = goodput_share(result, topology)
    judged = [each for each in verdict.recoveries if each.breaks]
    totals = analysis.totals(result)
    lost, spurious = totals["retransmissions"], totals["spurious_retransmissions"]
    return [
        (format_rate(round(mean)), "goodput, on average", f"{share:.0%} of what the hosts' links carry"),
        (f"{right / 1e6:.1f} MB", "data checked byte by byte", f"{wrong} wrong" if right or wrong else "none was"),
        (str(broken(result)), "failures caused", _lowest([each.dip for each in judged])),
        (*_slowest([each.recovery_s for each in judged]), "until goodput was 95 % of what the rest can carry"),
        (str(dead), "connections lost", f"of {sum(each.qps for each in progress)} queue pairs"),
        (str(lost), "packets sent again", f"to repair losses; {spurious} of them had arrived after all"),
    ]


def _lowest(dips: list[float]) -> str:
    return f"goodput fell to {min(dips):.0%} at the lowest" if dips else "no dip to be measured"


def _slowest(times: list[float | None]) -> tuple[str, str]:
    if not times:
        return "-", "recovery"
    if None in times:
        return "never", "slowest recovery"
    return f"{max(each for each in times if each is not None) * 1e3:.0f} ms", "slowest recovery"


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
