"""The checks of a verdict: what was expected of one matter, what was measured, and whether that is good."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mrc_topo.topology import Topology
from mrclab.lab import describe, payloads
from mrclab.results import analysis, performance, steps
from mrclab.results.analysis import Recovery
from mrclab.results.balance import Books
from mrclab.results.check import Check
from mrclab.results.expectation import Expectation, StepExpectation, StreamExpectation
from mrclab.results.record import BIN_S, Readings, RunResult


def recovery_bound_s(topology: Topology, clock: str, extra_s: float = 0.0) -> float:
    """Return the bound of a recovery, s: 10 base RTTs, one local ACK timeout, and the width of a bin of the
    measurement.
    """
    rtt = describe.base_rtt_ns(topology, clock)
    return (10 * rtt + describe.ack_timeout_ns(topology)) / 1e9 + BIN_S + extra_s


def checks_of(
    result: RunResult,
    topology: Topology,
    expect: Expectation,
    readings: Readings,
    recoveries: Sequence[Recovery],
    found: Sequence[Check],
) -> list[Check]:
    """Return the checks of a run.

    Args:
        found: those of the failures' evidence.
    """
    checks: list[Check] = []
    _failures(result, checks)
    checks += found
    if expect.verified:
        _verified(result, checks)
    errors = result.achieved().qp_errors
    checks.append(Check("queue pairs in error", f"at most {expect.qp_errors}", str(errors), errors <= expect.qp_errors))
    judged = [each for each in recoveries if each.breaks]
    if expect.recovery is not None:
        bound = recovery_bound_s(topology, result.clock, expect.recovery)
        checks += [_recovered(each, bound) for each in recoveries] or [_nothing("recovery")]
    if expect.min_share is not None:
        checks += [_settled(each, expect.min_share) for each in judged] or [_nothing("settled goodput")]
    if expect.max_dip is not None:
        checks += [_dip(each, expect.max_dip) for each in judged] or [_nothing("dip")]
    _goodput(goodput_share(result, topology, readings), expect, checks)
    _counts(result, expect, readings.totals, checks)
    if expect.plane_spread is not None:
        _planes(result, topology, expect.plane_spread, checks)
    for stream in expect.streams:
        _streams(result, topology, stream, checks)
    checks += [check for each in expect.steps for check in _steps(result, each)]
    if expect.localised is not None:
        _localised(result, checks)
    if result.books is not None:
        checks.append(_books(result.books))
    fidelity = result.fidelity
    if expect.valid and not fidelity.valid:
        checks.append(Check("the machine kept up", "yes", "; ".join(fidelity.reasons[:2]), False, timed=True))
    return checks


def _nothing(what: str) -> Check:
    """Return a failed check: an expectation that no part of the run can meet or miss counts as missed."""
    return Check(what, "something to judge by", "no failure with enough time around it", False)


def _counts(result: RunResult, expect: Expectation, totals: Mapping[str, int], checks: list[Check]) -> None:
    """Check trims, marks and timeouts; that there were none counts only where the hosts did count."""
    silent = [name for name in result.ranks if len(result.samples_of(name)) < 2]
    wanted: list[tuple[str, str, bool]] = []
    for key, some in (("trims", expect.trims), ("marks", expect.marks)):
        if some is not None:
            wanted.append((key, "some" if some else "none", bool(totals[key]) is some))
    if expect.timeouts is not None:
        wanted.append(("timeouts", f"at most {expect.timeouts}", totals["timeouts"] <= expect.timeouts))
    if expect.spurious is not None:
        share = totals["spurious_retransmissions"] / max(totals["packets"], 1)
        wanted.append(
            ("spurious_retransmissions", f"at most {expect.spurious:.2%} of the packets", share <= expect.spurious)
        )
    for key, text, passed in wanted:
        measured = f"no samples of {', '.join(silent)}" if silent else str(totals[key])
        if key == "spurious_retransmissions" and not silent:
            measured += f" of {totals['packets']}"
        checks.append(Check(key.replace("_", " "), text, measured, passed and not silent, timed=key == "timeouts"))


def _books(books: Books) -> Check:
    wrong = [f"{each.identity}: {text}" for each in books.balances for text in each.unbalanced]
    entries = sum(each.entries for each in books.balances)
    text = "; ".join(wrong[:2]) + ("; ..." if len(wrong) > 2 else "")
    return Check(
        "the books balance", f"all {len(books.balances)} identities", text or f"{entries} entries do", not wrong
    )


def _failures(result: RunResult, checks: list[Check]) -> None:
    failures = result.failures
    text = "; ".join(failures[:3]) + ("; ..." if len(failures) > 3 else "")
    checks.append(Check("no rank or agent failed", "none", text or "none", not failures))


def _verified(result: RunResult, checks: list[Check]) -> None:
    achieved = result.achieved()
    wrong, good, least = achieved.mismatches, achieved.bytes_verified, achieved.least_iterations
    if result.fidelity.length_only:
        checks.append(Check("payload of packets", "length", payloads.NOT_VERIFIED, wrong == good == 0))
    else:
        text = f"{good / 1e6:.1f} MB right, {wrong} values wrong"
        checks.append(Check("bytes verified", "all right, some at least", text, wrong == 0 and good > 0))
    done = all(each.done and not each.failure for each in result.progress.values())
    checks.append(Check("iterations of every rank", "at least 1, all done", str(least), done and least >= 1))


def _recovered(recovery: Recovery, bound: float) -> Check:
    passed = recovery.recovery_s is not None and recovery.recovery_s <= bound
    return Check(
        f"back to {analysis.RECOVERED:.0%} of {min(recovery.expected, 1.0):.1%} after {recovery.text}",
        f"within {bound * 1e3:.0f} ms",
        recovery.took,
        passed,
        timed=True,
    )


def _settled(recovery: Recovery, share: float) -> Check:
    wanted = share * min(recovery.expected, 1.0)
    return Check(
        f"goodput settled after {recovery.text}",
        f"at least {wanted:.1%}",
        f"{recovery.after:.1%}",
        recovery.after >= wanted,
        timed=True,
    )


def _dip(recovery: Recovery, dip: float) -> Check:
    lowest = (1 - dip) * min(recovery.expected, 1.0)
    what = f"lowest after {recovery.text}"
    return Check(what, f"at least {lowest:.1%}", recovery.lowest, recovery.dip >= lowest, timed=True)


def goodput_share(result: RunResult, topology: Topology, readings: Readings) -> float:
    """Return the mean goodput of the run as a share of what the receiving ranks' links could carry."""
    return readings.mean_bps / (topology.lab.host_rate_bps * len(result.ranks))


def _goodput(share: float, expect: Expectation, checks: list[Check]) -> None:
    """Add the checks of the mean goodput, a `share` of what the links could carry."""
    if expect.goodput_share is not None:
        text = f"at least {expect.goodput_share:.0%} of link capacity"
        checks.append(Check("goodput", text, f"{share:.1%}", share >= expect.goodput_share, timed=True))
    if expect.max_goodput_share is not None:
        text = f"at most {expect.max_goodput_share:.0%} of link capacity"
        checks.append(Check("goodput", text, f"{share:.1%}", share <= expect.max_goodput_share, timed=True))


def _planes(result: RunResult, topology: Topology, most: float, checks: list[Check]) -> None:
    loads = [0] * topology.lab.planes
    for host in result.samples:
        grown = result.samples_of(host).growth([f"tx_bytes.{plane}" for plane in range(len(loads))])
        loads = [load + more for load, more in zip(loads, grown.values(), strict=True)]
    mean = sum(loads) / len(loads)
    spread = (max(loads) - min(loads)) / mean if mean else math.inf
    text = f"at most {most:.1%} of the mean"
    checks.append(Check("spread of the planes' load", text, f"{spread:.1%}", spread <= most, timed=True))


def _streams(result: RunResult, topology: Topology, wanted: StreamExpectation, checks: list[Check]) -> None:
    rates = performance.stream_rates(result, wanted.source, wanted.destination)
    what = f"streams from {wanted.source or 'any'} to {wanted.destination or 'any'}"
    if not rates:
        checks.append(Check(what, "some", "none", False))
        return
    capacity = topology.lab.host_rate_bps
    for bound, name in ((wanted.at_least, "at least"), (wanted.at_most, "at most")):
        if bound is None:
            continue
        pick = min if name == "at least" else max
        worst = pick(rates, key=lambda each: rates[each])
        share = rates[worst] / capacity
        passed = share >= bound if name == "at least" else share <= bound
        text = f"each {name} {bound:.1%} of a host's capacity"
        checks.append(Check(what, text, f"{share:.1%} ({worst})", passed, timed=True))
    if wanted.jain is not None:
        index = performance.jain(list(rates.values()))
        text = f"Jain's index of {len(rates)} rates at least {wanted.jain:g}"
        checks.append(Check(what, text, f"{index:.3f}", len(rates) > 1 and index >= wanted.jain, timed=True))


WHICH = {"all": "all steps", "broken": "steps with something broken", "whole": "steps with nothing broken"}


def _steps(result: RunResult, wanted: StepExpectation) -> list[Check]:
    what = f"{wanted.of} of {WHICH[wanted.during]}"
    seconds = [each.seconds for each in steps.chosen(steps.steps_of(result), wanted.during)]
    if not seconds:
        return [Check(what, "some", "none", False)]
    measured = steps.statistic(seconds, wanted.of)
    checks = []
    for name, bound in (("at least", wanted.at_least), ("at most", wanted.at_most)):
        if bound is not None:
            passed = measured >= bound if name == "at least" else measured <= bound
            text = f"{name} {bound * 1e3:g} ms"
            checks.append(Check(what, text, f"{measured * 1e3:.1f} ms ({len(seconds)} steps)", passed, timed=True))
    return checks


def _localised(result: RunResult, checks: list[Check]) -> None:
    if not result.happenings:
        checks.append(_nothing("hosts name what is broken"))
    for happening in result.happenings:
        wanted, named = happening.broken, happening.localised
        past = result.past_findings(happening)
        text = ", ".join(f"{each} (probes of before)" if each in past else each for each in named) or "nothing"
        what = f"hosts name what is broken after {happening.action.describe()}"
        checks.append(Check(what, ", ".join(wanted) or "nothing", text, named == wanted))
