"""The verdict on a run: what was expected, what was measured, and whether that is good."""

from __future__ import annotations

from collections.abc import Sequence

from mrc_topo.topology import Topology
from mrclab.lab import payloads
from mrclab.results import analysis, checks, evidence
from mrclab.results.check import Verdict
from mrclab.results.expectation import Evidence, Expectation
from mrclab.results.record import RunResult


def judge(
    result: RunResult, topology: Topology, expect: Expectation, claims: Sequence[Evidence | None] = ()
) -> Verdict:
    """Judge a run's result; `claims`: the evidence of each happening."""
    readings = result.readings()
    found = list(evidence.findings(result, topology, claims))
    recoveries = analysis.recoveries(result, readings)
    made = checks.checks_of(result, topology, expect, readings, recoveries, found)
    fidelity = result.fidelity
    return Verdict(
        made,
        recoveries,
        fidelity.valid,
        list(fidelity.reasons),
        result.deaths,
        result.interrupted,
        payloads.NOT_VERIFIED if result.fidelity.length_only else "",
    )
