"""Closed forms of a scenario, whatever simulates it: bytes on the wire, the maximum flow, EVs that are found bad.

These follow from the formats, from graph theory and from combinatorics, and not from our models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from pydantic import computed_field
from pydantic.dataclasses import dataclass

from mrc_fluid.validation.outcome import ScenarioOutcome
from mrc_fluid.validation.scenario import NIC_BPS, FlowSpec, Quantity, Scenario
from mrc_host.proto.wire.fields import Opcode
from mrc_topo.topology import Topology
from mrclab.results.wire import ETHERNET_BYTES, costs, message_bytes

#: Messages without payload, by the fact that counts them (`packets.FACTS`).
MESSAGES = {
    "sacks": Opcode.SACK,
    "nacks": Opcode.NACK,
    "acks": Opcode.ACK,
    "probes": Opcode.PROBE,
    "echo_requests": Opcode.ENDPOINT_REQUEST,
    "echo_responses": Opcode.ENDPOINT_RESPONSE,
}


class Bound(StrEnum):
    """How a measured value must relate to a closed form."""

    EQUAL = "equal"
    AT_MOST = "at most"


@dataclass(frozen=True)
class ClosedForm:
    """A closed form beside what packets did: means over the seeds; `tolerance` is relative."""

    scenario: str
    what: str
    bound: Bound
    expected: float
    measured: float
    tolerance: float

    @computed_field  # type: ignore[prop-decorator]
    @property
    def holds(self) -> bool:
        """Return whether the measured value is as it must be."""
        if self.bound is Bound.AT_MOST:
            return self.measured <= self.expected * (1 + self.tolerance)
        return abs(self.measured - self.expected) <= self.tolerance * abs(self.expected)


def forms(scenario: Scenario, topology: Topology, outcomes: Sequence[ScenarioOutcome]) -> list[ClosedForm]:
    """Return the closed forms of a scenario beside its runs by packets."""
    if not outcomes:
        return []
    flows = {each.seed: scenario.flows(each.seed) for each in outcomes}

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    made = [
        ClosedForm(
            scenario.name, "bytes that hosts put on their links, MB", Bound.EQUAL,
            mean([_wire_bytes(topology, flows[each.seed], each) / 1e6 for each in outcomes]),
            mean([each.facts["host_sent_bytes"] / 1e6 for each in outcomes]), 0.002,
        )
    ]  # fmt: skip
    # A rate of long flows is theirs alone: what one had while another had ended is not beside it.
    if Quantity.GOODPUT in outcomes[0].values and not any(flow.start_ns for flow in flows[outcomes[0].seed]):
        bounds = [max_flow_bps(scenario, flows[each.seed]) / 1e9 for each in outcomes]
        rates = [each.values[Quantity.GOODPUT] for each in outcomes]
        text = "goodput beside the maximum flow, Gb/s"
        made.append(ClosedForm(scenario.name, text, Bound.AT_MOST, mean(bounds), mean(rates), 0.0))
    if any(each.of_t1 and each.lasts_ns is None and not each.loss for each in scenario.failures):
        expected = len(flows[outcomes[0].seed]) * evs_found_bad(topology)
        found = mean([each.facts["evs_bad"] for each in outcomes])
        made.append(ClosedForm(scenario.name, "EVs found bad across the dead T1", Bound.EQUAL, expected, found, 0.15))
    return made


def _wire_bytes(topology: Topology, flows: Sequence[FlowSpec], outcome: ScenarioOutcome) -> float:
    """Return the bytes of all packets: of each write, of those that were sent again, and of their SACKs and NACKs."""
    total = 0.0
    for flow in flows:
        total += costs(topology, "mrc", 1, flow.bytes).data_bytes
    cost = costs(topology, "mrc", 1, max(flow.bytes for flow in flows))
    again = outcome.values[Quantity.AGAIN] / 100 * outcome.facts["packets_sent"]
    total += again * cost.frame_bytes
    for fact, opcode in MESSAGES.items():
        total += outcome.facts[fact] * message_bytes(topology, opcode)
    # Hosts count packets as the driver has them.
    packets = outcome.facts["packets_sent"] + sum(outcome.facts[fact] for fact in MESSAGES)
    return total - packets * ETHERNET_BYTES


def max_flow_bps(scenario: Scenario, flows: Sequence[FlowSpec]) -> float:
    """Return the rate on the wire at which all flows can end at the same time, at most: the smallest cut.

    The cuts are the ports of each host, the links of each T0 to the T1s, and with three tiers those of each pod to the
    T2s. Where all flows spread over these by their rates, they are reached, so this is the maximum flow of all
    commodities.
    """
    fabric = scenario.fabric
    uplinks = fabric.port_bps * sum(fabric.share(p, t1) for p in range(fabric.planes) for t1 in range(fabric.t1s))
    pod_uplinks = fabric.port_bps * fabric.planes * fabric.t1s * fabric.t1_uplinks
    times = [
        _most_across(flows, 1) / NIC_BPS,
        _most_across(flows, fabric.per_t0) / uplinks,
        _most_across(flows, fabric.hosts_per_pod) / pod_uplinks if pod_uplinks else 0.0,
    ]
    return sum(flow.bytes for flow in flows) / max(times)


def _most_across(flows: Sequence[FlowSpec], size: int) -> int:
    """Return the most bytes that leave or reach one of the groups of this many hosts."""
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for flow in flows:
        source, target = flow.source // size, flow.target // size
        if source != target:
            out[source] += flow.bytes
            into[target] += flow.bytes
    return max(0, *out.values(), *into.values())


def evs_found_bad(topology: Topology) -> float:
    """Return how many EVs of a queue pair are found bad when one T1 of one plane is dead, on average.

    A queue pair of N EVs in that plane, of which D cross the dead T1, takes EVs from an order drawn at random until as
    many as it keeps active (`a`) are alive: the negative hypergeometric distribution, whose mean is a·D / (N - D + 1).
    For many EVs it is the negative binomial's a·p / (1 - p). It never takes more than there are.
    """
    lab = topology.lab
    each, active = lab.ev.size // lab.planes, lab.ev.active // lab.planes
    dead = each // lab.t1_per_plane
    if each - dead < active:
        return float(dead)
    return active * dead / (each - dead + 1)
