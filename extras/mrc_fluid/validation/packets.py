"""A scenario packet by packet: real endpoints and P4 switches in simulated time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mrc_fluid.validation.outcome import ScenarioError, ScenarioOutcome, of_flows
from mrc_fluid.validation.scenario import Backend, Quantity, Scenario
from mrclab.studies.cells.measure import Cell, Measured, experiment

#: Facts of an outcome, by the counter that each is (`Measured.counters`).
FACTS = {
    "packets_sent": "requestor.packets_sent",
    "probes": "requestor.probes_sent",
    "sacks": "responder.sacks_sent",
    "nacks": "responder.nacks_sent",
    "acks": "responder.acks_sent",
    "echo_requests": "endpoint.ev_probes_sent",
    "echo_responses": "endpoint.ev_probes_answered",
    "host_sent_bytes": "ports.sent_bytes",
}


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """What endpoints run instead of the lab's defaults: policies and settings of congestion control."""

    policies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cc: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def cell(scenario: Scenario, seed: int, algorithm: Algorithm) -> Cell:
    """Return the run of a scenario with one seed."""
    lab = scenario.fabric.lab(f"validate-{scenario.name}"[:31], seed, algorithm.policies, algorithm.cc)
    flows = [[each.source, each.target, each.bytes, each.start_ns] for each in scenario.flows(seed)]
    steps = [step for failure in scenario.failures for step in failure.steps()]
    workload = {"name": "flows", "params": {"flows": flows, "iterations": 1}}
    return Cell(f"{scenario.name}, seed {seed}", lab, experiment(workload, steps), cost=scenario.cost)


def outcome(scenario: Scenario, seed: int, result: Measured) -> ScenarioOutcome:
    """Return the outcome of a scenario from what its run has measured.

    Raises:
        ScenarioError: a flow failed, or the failure that the scenario is about did not happen.
    """
    if result.failures:
        raise ScenarioError(f"{scenario.name}, seed {seed}: {result.failures[0]}")
    if scenario.failures and not result.evidence[0].passed:
        shown = result.evidence[0]
        raise ScenarioError(f"{scenario.name}, seed {seed}: {shown.what}: {shown.measured}, expected {shown.expected}")
    specs = scenario.flows(seed)
    times = [row.completion_s * 1e6 for row in result.flows]
    counters = result.counters
    sent = counters["requestor.packets_sent"]
    shares = {
        Quantity.TRIMMED: counters["responder.trimmed"],
        Quantity.MARKED: counters["responder.ecn_marked"],
        Quantity.AGAIN: counters["requestor.retransmissions"],
    }
    values = of_flows(specs, times) | {name: 100 * count / sent for name, count in shares.items()}
    facts = {name: float(counters[key]) for name, key in FACTS.items()}
    return ScenarioOutcome(
        scenario.name, Backend.PACKETS, seed, values, times, facts | {"evs_bad": float(result.evs_bad)}
    )
