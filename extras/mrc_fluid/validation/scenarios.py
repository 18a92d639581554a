"""The scenarios of the suite."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from mrc_fluid.validation.scenario import LONG_BYTES, MTU, NIC_BPS, Failure, FlowSpec, Scenario, ScenarioFabric

MICROSECOND = 1_000
#: Flows are whole packets, so that bytes on the wire follow from their number.
FLOW_BYTES, MESSAGE_BYTES = 488 * MTU, 63 * MTU
#: All senders of an incast together.
INCAST_BYTES = 3904 * MTU
Flows = Callable[[int], list[FlowSpec]]


def incast(senders: int) -> Flows:
    """Return this many flows to host 0, from hosts drawn at random."""

    def flows(seed: int) -> list[FlowSpec]:
        hosts = -(-(senders + 1) // 4) * 4 if senders > 15 else 16
        chosen = random.Random(f"incast/{seed}").sample(range(1, hosts), senders)
        return [FlowSpec(source, 0, INCAST_BYTES // senders // MTU * MTU) for source in sorted(chosen)]

    return flows


def permutation(hosts: int, group: int = 4) -> Flows:
    """Return a flow from each host to another one in another group of this many, below a T0 or in a pod, so that all
    cross the fabric."""

    def flows(seed: int) -> list[FlowSpec]:
        rng = random.Random(f"permutation/{seed}")
        while True:
            targets = list(range(hosts))
            rng.shuffle(targets)
            if all(source // group != target // group for source, target in enumerate(targets)):
                return [FlowSpec(source, target, FLOW_BYTES) for source, target in enumerate(targets)]

    return flows


def on_off(hosts: int, each: int = 24, load: float = 0.5) -> Flows:
    """Return messages from each host to others at random, with exponential gaps, at this load."""
    size = MESSAGE_BYTES

    def flows(seed: int) -> list[FlowSpec]:
        rng = random.Random(f"on-off/{seed}")
        gap_ns = size * 8e9 / (NIC_BPS * load)
        made = []
        for source in range(hosts):
            at = 0.0
            for _ in range(each):
                at += rng.expovariate(1 / gap_ns)
                target = rng.choice([host for host in range(hosts) if host != source])
                # uet-htsim starts flows at whole microseconds.
                made.append(FlowSpec(source, target, size, round(at / MICROSECOND) * MICROSECOND))
        return sorted(made, key=lambda flow: flow.start_ns)

    return flows


def _incasts() -> list[Scenario]:
    made = []
    for senders in (2, 4, 8, 16, 32, 64):
        t0s = 4 if senders < 16 else -(-(senders + 1) // 4)
        for marks in (False, True):
            made.append(
                Scenario(
                    f"incast-{senders}{'-marked' if marks else ''}",
                    f"incast of {senders} senders" + (", with ECN marks at the last hop" if marks else ""),
                    ScenarioFabric(t0s=t0s, last_hop_marks=marks),
                    incast(senders),
                    htsim=True,
                )
            )
    return made


#: Of plane 0, from 40 us on: when all flows are at their full rate.
UPLINK, POD_UPLINK, EARLY_NS = "p0-t0.0--p0-t1.0", "p0-t1.0--p0-t2.0", 40 * MICROSECOND


def _pods() -> list[Scenario]:
    flows = permutation(32, group=8)
    one, four = (ScenarioFabric(t0s=8, pods=4, t1_uplinks=2, planes=planes) for planes in (1, 4))
    short = ScenarioFabric(t0s=8, pods=4, t1_uplinks=1)
    return [
        Scenario("pods", "permutation between four pods, three tiers", one, flows, both_ways=True, htsim=True),
        Scenario("pods-planes", "permutation between four pods on four planes", four, flows, both_ways=True),
        Scenario(
            "pods-oversubscribed-2", "permutation between four pods, T1s oversubscribed 2:1", short, flows,
            both_ways=True, htsim=True,
        ),
        Scenario(
            "pods-dead-uplink", "permutation between four pods on four planes, a T1-T2 link dies", four, flows,
            [Failure(POD_UPLINK, EARLY_NS)], both_ways=True,
        ),
    ]  # fmt: skip


def of_long_flows(known: Scenario) -> Scenario:
    """Return a scenario with flows so long that what they get in between decides, and not their start and end."""

    def flows(seed: int) -> list[FlowSpec]:
        return [replace(each, bytes=LONG_BYTES) for each in known.flows(seed)]

    return replace(
        known, name=f"{known.name}-long", title=f"{known.title}, long flows", flows=flows, cost=4 * known.cost
    )


_SHORT: tuple[Scenario, ...] = (
    *_incasts(),
    Scenario(
        "permutation", "permutation of 32 hosts", ScenarioFabric(t0s=8), permutation(32), both_ways=True, htsim=True,
    ),
    Scenario(
        "permutation-planes", "permutation of 16 hosts on four planes", ScenarioFabric(planes=4), permutation(16),
        both_ways=True,
    ),
    Scenario(
        "oversubscribed-2", "permutation, T0s oversubscribed 2:1", ScenarioFabric(t1s=2), permutation(16),
        both_ways=True, htsim=True,
    ),
    Scenario(
        "oversubscribed-4", "permutation, T0s oversubscribed 4:1", ScenarioFabric(t1s=1), permutation(16),
        both_ways=True, htsim=True,
    ),
    Scenario(
        "mixed-rtt", "incast of 8 senders, half of them 5 us further away", ScenarioFabric(far_ns=5 * MICROSECOND),
        incast(8)
    ),
    Scenario(
        "on-off", "messages of 252 KiB at half of the load", ScenarioFabric(), on_off(16), both_ways=True, htsim=True,
    ),
    Scenario(
        "slow-t1", "permutation, one T1 at a quarter of its rate", ScenarioFabric(slow_t1s=1), permutation(16),
        both_ways=True, htsim=True,
    ),
    Scenario(
        "slow-plane", "permutation on four planes, one at a tenth of its rate", ScenarioFabric(planes=4,
        slow_plane=True), permutation(16), both_ways=True,
    ),
    Scenario(
        "dead-uplink", "permutation on four planes, an uplink dies", ScenarioFabric(planes=4), permutation(16),
        [Failure(UPLINK, EARLY_NS)], both_ways=True,
    ),
    Scenario(
        "lossy-uplink", "permutation on four planes, an uplink loses one packet in 20", ScenarioFabric(planes=4),
        permutation(16), [Failure(UPLINK, EARLY_NS, loss=0.05)], both_ways=True,
    ),
    Scenario(
        "flapping-uplink", "permutation on four planes, an uplink is down 20 us three times", ScenarioFabric(planes=4),
        permutation(16), [Failure(UPLINK, EARLY_NS, 20 * MICROSECOND, 3)], both_ways=True,
    ),
    Scenario(
        "cold-start", "permutation on four planes, a T1 is dead from the start", ScenarioFabric(planes=4),
        permutation(16), [Failure("p0-t1.0", of_t1=True)], both_ways=True,
    ),
    *_pods(),
)  # fmt: skip
#: Scenarios that are run with long flows, too.
_LONG = ("permutation", "permutation-planes", "oversubscribed-2", "slow-t1", "dead-uplink", "pods-dead-uplink")
SCENARIOS = (*_SHORT, *(of_long_flows(each) for each in _SHORT if each.name in _LONG))


def by_name() -> dict[str, Scenario]:
    """Return the scenarios by name."""
    return {each.name: each for each in SCENARIOS}
