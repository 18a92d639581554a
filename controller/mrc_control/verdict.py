"""The verdict on a run: what was expected, what was measured, and whether that is good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mrc_control import analysis, labbuild
from mrc_control.analysis import Recovery
from mrc_control.experiment import Expectation
from mrc_topo.topology import Topology


@dataclass(frozen=True)
class Check:
    """One line of the verdict."""

    what: str
    expected: str
    measured: str
    passed: bool


@dataclass(frozen=True)
class Verdict:
    """All checks; `valid` tells whether the machine kept up with the run (a simulation always does)."""

    checks: list[Check]
    recoveries: list[Recovery]
    valid: bool
    reasons: list[str]

    @property
    def passed(self) -> bool:
        """Whether every check holds."""
        return all(check.passed for check in self.checks)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "passed": self.passed,
            "valid": self.valid,
            "reasons": self.reasons,
            "checks": [asdict(check) for check in self.checks],
            "recoveries": [asdict(each) for each in self.recoveries],
        }


def recovery_bound_s(topology: Topology, clock: str, extra_s: float = 0.0) -> float:
    """10 base RTTs, one local ACK timeout, and the width of a bin of the measurement."""
    rtt = labbuild.base_rtt_ns(topology, clock)
    return (10 * rtt + labbuild.ack_timeout_ns(topology)) / 1e9 + analysis.BIN_S + extra_s


def judge(document: Mapping[str, Any], topology: Topology, expect: Expectation) -> Verdict:
    """Judges a run's result (`runner.RunResult.document`)."""
    recoveries = analysis.recoveries(document)
    checks: list[Check] = []
    _failures(document, checks)
    if expect.verified:
        _verified(document, checks)
    errors = sum(each["qps"] - each["qps_in_rts"] for each in document["progress"].values())
    checks.append(Check("queue pairs in error", f"at most {expect.qp_errors}", str(errors), errors <= expect.qp_errors))
    if expect.recovery is not None:
        bound = recovery_bound_s(topology, document["clock"], expect.recovery)
        checks += [_recovered(each, bound) for each in recoveries]
    if expect.min_share is not None:
        checks += [_settled(each, expect.min_share) for each in recoveries if each.breaks]
    if expect.max_dip is not None:
        checks += [_dip(each, expect.max_dip) for each in recoveries if each.breaks]
    _goodput(document, topology, expect, checks)
    totals = analysis.totals(document)
    for key, wanted in (("trims", expect.trims), ("marks", expect.marks)):
        if wanted is not None:
            text = "some" if wanted else "none"
            checks.append(Check(key, text, str(totals[key]), bool(totals[key]) is wanted))
    if expect.localised is not None:
        _localised(document, checks)
    fidelity = document["fidelity"]
    valid = bool(fidelity.get("valid", True))
    reasons = list(fidelity.get("reasons", []))
    if expect.valid and not valid:
        checks.append(Check("the machine kept up", "yes", "; ".join(reasons[:2]), False))
    return Verdict(checks, recoveries, valid, reasons)


def _failures(document: Mapping[str, Any], checks: list[Check]) -> None:
    failures = document["failures"]
    text = "; ".join(failures[:3]) + ("; ..." if len(failures) > 3 else "")
    checks.append(Check("nothing failed", "no failure", text or "none", not failures))


def _verified(document: Mapping[str, Any], checks: list[Check]) -> None:
    progress = document["progress"].values()
    wrong = sum(each["mismatches"] for each in progress)
    good = sum(each["bytes_verified"] for each in progress)
    least = min((each["iterations"] for each in progress if each.get("takes_part", True)), default=0)
    text = f"{good / 1e6:.1f} MB right, {wrong} values wrong"
    checks.append(Check("bytes verified", "all right, some at least", text, wrong == 0 and good > 0))
    done = all(each["done"] and not each["failure"] for each in progress)
    checks.append(Check("iterations of every rank", "at least 1, all done", str(least), done and least >= 1))


def _recovered(recovery: Recovery, bound: float) -> Check:
    measured = "never" if recovery.recovery_s is None else f"{recovery.recovery_s * 1e3:.0f} ms"
    passed = recovery.recovery_s is not None and recovery.recovery_s <= bound
    return Check(
        f"back to {analysis.RECOVERED:.0%} of {min(recovery.expected, 1.0):.1%} after {recovery.text}",
        f"within {bound * 1e3:.0f} ms",
        measured,
        passed,
    )


def _settled(recovery: Recovery, share: float) -> Check:
    wanted = share * min(recovery.expected, 1.0)
    return Check(
        f"goodput settled after {recovery.text}",
        f"at least {wanted:.1%}",
        f"{recovery.after:.1%}",
        recovery.after >= wanted,
    )


def _dip(recovery: Recovery, dip: float) -> Check:
    lowest = (1 - dip) * min(recovery.expected, 1.0)
    return Check(
        f"lowest after {recovery.text}", f"at least {lowest:.1%}", f"{recovery.dip:.1%}", recovery.dip >= lowest
    )


def goodput_share(document: Mapping[str, Any], topology: Topology) -> float:
    """Mean goodput of the run over what the receiving ranks' links could carry."""
    edges = analysis.grid(document)
    capacity = topology.lab.host_rate_bps * len(document["ranks"])
    return float(analysis.goodput_bps(document, edges).mean()) / capacity


def _goodput(document: Mapping[str, Any], topology: Topology, expect: Expectation, checks: list[Check]) -> None:
    share = goodput_share(document, topology)
    if expect.goodput_share is not None:
        text = f"at least {expect.goodput_share:.0%} of link capacity"
        checks.append(Check("goodput", text, f"{share:.1%}", share >= expect.goodput_share))
    if expect.max_goodput_share is not None:
        text = f"at most {expect.max_goodput_share:.0%} of link capacity"
        checks.append(Check("goodput", text, f"{share:.1%}", share <= expect.max_goodput_share))


def _localised(document: Mapping[str, Any], checks: list[Check]) -> None:
    for happening in document["happenings"]:
        wanted, named = happening["broken"], happening["localised"]
        text = ", ".join(named) or "nothing"
        what = f"hosts name what is broken after {happening['action']['text']}"
        checks.append(Check(what, ", ".join(wanted) or "nothing", text, named == wanted))
