"""The verdict on a run: what was expected, what was measured, and whether that is good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from mrc_lab import describe
from mrc_lab.processes.exits import ProcessExit
from mrc_results import analysis, evidence, steps
from mrc_results.analysis import Recovery
from mrc_results.check import Check
from mrc_results.expectation import Evidence, Expectation, StepExpectation, StreamExpectation
from mrc_results.record import RunResult
from mrc_topo.topology import Topology


@dataclass(frozen=True)
class Verdict:
    """All checks; `valid` tells whether the machine kept up with the run (a simulation always does). `deaths`: what of
    the lab died meanwhile (`lab.death.ProcessExit`). `interrupted`: the signal that ended the run before its time."""

    checks: list[Check]
    recoveries: list[Recovery]
    valid: bool
    reasons: list[str]
    deaths: list[ProcessExit] = field(default_factory=list)
    interrupted: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return all(check.passed for check in self.checks)

    @property
    def holds(self) -> bool:
        """Whether every check holds that must hold however slow the machine was."""
        return all(check.passed for check in self.checks if not check.timed)

    @property
    def status(self) -> str:
        """In one word: passed, failed or interrupted."""
        return "interrupted" if self.interrupted else "passed" if self.passed else "failed"

    @property
    def timing_only(self) -> bool:
        """Whether nothing was missed but times and rates, on a machine that did not keep up: they say nothing."""
        return not self.interrupted and not self.passed and self.holds and not self.valid

    @property
    def outcome(self) -> str:
        """For people: the status, or that the run passed and its times are not valid."""
        return "passed; timing not valid" if self.timing_only else self.status

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "status": self.status,
            "passed": self.passed,
            "holds": self.holds,
            "valid": self.valid,
            "reasons": self.reasons,
            "deaths": [asdict(each) for each in self.deaths],
            "checks": [asdict(check) for check in self.checks],
            "recoveries": [asdict(each) for each in self.recoveries],
        }


def recovery_bound_s(topology: Topology, clock: str, extra_s: float = 0.0) -> float:
    """10 base RTTs, one local ACK timeout, and the width of a bin of the measurement."""
    rtt = describe.base_rtt_ns(topology, clock)
    return (10 * rtt + describe.ack_timeout_ns(topology)) / 1e9 + analysis.BIN_S + extra_s


def judge(
    result: RunResult, topology: Topology, expect: Expectation, claims: Sequence[Evidence | None] = ()
) -> Verdict:
    """Judge a run's result; `claims`: the evidence of each happening."""
    recoveries = analysis.recoveries(result)
    checks: list[Check] = []
    _failures(result, checks)
    checks += evidence.findings(result, topology, claims)
    if expect.verified:
        _verified(result, checks)
    errors = sum(each.qps - each.qps_in_rts for each in result.progress.values())
    checks.append(Check("queue pairs in error", f"at most {expect.qp_errors}", str(errors), errors <= expect.qp_errors))
    judged = [each for each in recoveries if each.breaks]
    if expect.recovery is not None:
        bound = recovery_bound_s(topology, result.clock, expect.recovery)
        checks += [_recovered(each, bound) for each in recoveries] or [_nothing("recovery")]
    if expect.min_share is not None:
        checks += [_settled(each, expect.min_share) for each in judged] or [_nothing("settled goodput")]
    if expect.max_dip is not None:
        checks += [_dip(each, expect.max_dip) for each in judged] or [_nothing("dip")]
    _goodput(result, topology, expect, checks)
    _counts(result, expect, checks)
    if expect.plane_spread is not None:
        _planes(result, topology, expect.plane_spread, checks)
    for stream in expect.streams:
        _streams(result, topology, stream, checks)
    checks += [check for each in expect.steps for check in _steps(result, each)]
    if expect.localised is not None:
        _localised(result, checks)
    valid, reasons = result.fidelity.valid, list(result.fidelity.reasons)
    if expect.valid and not valid:
        checks.append(Check("the machine kept up", "yes", "; ".join(reasons[:2]), False, timed=True))
    return Verdict(checks, recoveries, valid, reasons, result.deaths, result.interrupted)


def _nothing(what: str) -> Check:
    """Return an expectation that no part of the run can meet or miss is missed."""
    return Check(what, "something to judge by", "no failure with enough time around it", False)


def _counts(result: RunResult, expect: Expectation, checks: list[Check]) -> None:
    """Trims, marks and timeouts: none only counts where the hosts did count."""
    totals = analysis.totals(result)
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


def _failures(result: RunResult, checks: list[Check]) -> None:
    failures = result.failures
    text = "; ".join(failures[:3]) + ("; ..." if len(failures) > 3 else "")
    checks.append(Check("nothing failed", "no failure", text or "none", not failures))


def _verified(result: RunResult, checks: list[Check]) -> None:
    progress = result.progress.values()
    wrong = sum(each.mismatches for each in progress)
    good = sum(each.bytes_verified for each in progress)
    least = min((each.iterations for each in progress if each.takes_part), default=0)
    text = f"{good / 1e6:.1f} MB right, {wrong} values wrong"
    checks.append(Check("bytes verified", "all right, some at least", text, wrong == 0 and good > 0))
    done = all(each.done and not each.failure for each in progress)
    checks.append(Check("iterations of every rank", "at least 1, all done", str(least), done and least >= 1))


def _recovered(recovery: Recovery, bound: float) -> Check:
    measured = "never" if recovery.recovery_s is None else f"{recovery.recovery_s * 1e3:.0f} ms"
    passed = recovery.recovery_s is not None and recovery.recovery_s <= bound
    return Check(
        f"back to {analysis.RECOVERED:.0%} of {min(recovery.expected, 1.0):.1%} after {recovery.text}",
        f"within {bound * 1e3:.0f} ms",
        measured,
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
    return Check(what, f"at least {lowest:.1%}", f"{recovery.dip:.1%}", recovery.dip >= lowest, timed=True)


def goodput_share(result: RunResult, topology: Topology) -> float:
    """Mean goodput of the run over what the receiving ranks' links could carry."""
    edges = analysis.grid(result)
    capacity = topology.lab.host_rate_bps * len(result.ranks)
    return float(analysis.goodput_bps(result, edges).mean()) / capacity


def _goodput(result: RunResult, topology: Topology, expect: Expectation, checks: list[Check]) -> None:
    share = goodput_share(result, topology)
    if expect.goodput_share is not None:
        text = f"at least {expect.goodput_share:.0%} of link capacity"
        checks.append(Check("goodput", text, f"{share:.1%}", share >= expect.goodput_share, timed=True))
    if expect.max_goodput_share is not None:
        text = f"at most {expect.max_goodput_share:.0%} of link capacity"
        checks.append(Check("goodput", text, f"{share:.1%}", share <= expect.max_goodput_share, timed=True))


def _planes(result: RunResult, topology: Topology, most: float, checks: list[Check]) -> None:
    loads = [0] * topology.lab.planes
    for host in result.samples:
        samples = result.samples_of(host)
        for plane in range(len(loads) if len(samples) else 0):
            loads[plane] += samples.last[f"tx_bytes.{plane}"] - samples.first[f"tx_bytes.{plane}"]
    mean = sum(loads) / len(loads)
    spread = (max(loads) - min(loads)) / mean if mean else math.inf
    text = f"at most {most:.1%} of the mean"
    checks.append(Check("spread of the planes' load", text, f"{spread:.1%}", spread <= most, timed=True))


def stream_rates(result: RunResult, source: str | None, destination: str | None) -> dict[str, float]:
    """Average bit rates of the streams from and to these hosts (None: any), by `SOURCE to DESTINATION`."""
    ranks = result.ranks
    rates = {}
    for name in ranks:
        for rank, measured in (result.measured(name).streams or {}).items():
            if source in (None, name) and destination in (None, ranks[int(rank)]):
                rates[f"{name} to {ranks[int(rank)]}"] = float(measured.average_bps)
    return rates


def jain(rates: Sequence[float]) -> float:
    """Jain's index of fairness: 1 when all are equal, 1/n when one has everything."""
    squares = len(rates) * sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / squares if squares else 0.0


def _streams(result: RunResult, topology: Topology, wanted: StreamExpectation, checks: list[Check]) -> None:
    rates = stream_rates(result, wanted.source, wanted.destination)
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
        index = jain(list(rates.values()))
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
        text = ", ".join(named) or "nothing"
        what = f"hosts name what is broken after {happening.action.describe()}"
        checks.append(Check(what, ", ".join(wanted) or "nothing", text, named == wanted))
