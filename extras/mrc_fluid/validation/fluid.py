"""A scenario as a fluid: the model of `mrclab scale`, with the EVs that the endpoints of the lab draw."""

from __future__ import annotations

import dataclasses
import json
from typing import Final

import numpy as np

from mrc_fluid import transfers
from mrc_fluid.clusterfile import Loaded, parse_cluster
from mrc_fluid.kernels import Kernels
from mrc_fluid.schema import EvSpec
from mrc_fluid.shares import LinkLoads
from mrc_fluid.transfers import Transfer
from mrc_fluid.validation.outcome import ScenarioOutcome, of_flows
from mrc_fluid.validation.scenario import Backend, Failure, Scenario, ScenarioFabric, mark_bytes
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_topo.graph_topology import build_topology
from mrc_topo.schema import Lab
from mrc_topo.topology import Topology
from mrclab.lab import describe
from mrclab.results.wire import costs, payload_share

#: How often what decides single packets is drawn; quantities are means over all draws.
DRAWS: Final = 64


def outcome(scenario: Scenario, seed: int, lab: Lab, topology: Topology, kernels: Kernels) -> ScenarioOutcome:
    """Run a scenario as a fluid on the lab that its packets run on."""
    specs = scenario.flows(seed)
    loaded = _cluster(scenario, lab, topology)
    ev = EvSpec(
        size=lab.ev.size, active=lab.ev.active, min_active=lab.ev.min_active, probe_interval=lab.ev.probe_interval,
        probes_to_revive=lab.ev.probes_to_revive,
    )  # fmt: skip
    share = payload_of(scenario, seed, topology)
    flows = [Transfer(each.source, each.target, each.bytes, each.start_ns / 1e9) for each in specs]
    lone = payload_of(dataclasses.replace(scenario, both_ways=False), seed, topology) / share
    found = transfers.run(loaded, kernels, flows, ev, share, _rates(scenario, loaded), lone, DRAWS)
    starts = np.array([flow.start_s for flow in flows])
    times = ((found.ends_s - starts) * 1e6).tolist()
    drawn = [of_flows(specs, each) for each in times]
    values = {quantity: float(np.mean([each[quantity] for each in drawn])) for quantity in drawn[0]}
    facts = {"evs_bad": float(found.evs_bad), "lost": found.lost}
    return ScenarioOutcome(scenario.name, Backend.FLUID, seed, values, times[0], facts)


def payload_of(scenario: Scenario, seed: int, topology: Topology) -> float:
    """Return the share of payload in what the busiest links of a scenario carry."""
    size = max(flow.bytes for flow in scenario.flows(seed))
    if scenario.both_ways:
        return payload_share(topology, "mrc", 1, size)
    return size / costs(topology, "mrc", 1, size).data_bytes


def _cluster(scenario: Scenario, lab: Lab, topology: Topology) -> Loaded:
    fabric = scenario.fabric
    base_rtt = describe.base_rtt_ns(topology, "virtual")
    # The fastest paths bound the window, and base RTT is that of the slowest.
    fast = dataclasses.replace(fabric, slow_plane=False, slow_t1s=0).lab(lab.name, lab.seed, {}, {})
    shortest = describe.base_rtt_ns(build_topology(fast), "virtual")
    # A queue that stands at NSCC's target delay, of which marks begin and are certain at a share.
    target = NsccConfig(base_rtt_ns=base_rtt).controller(lab.path_mtu).target_ns * fabric.port_bps / 8e9
    low, high = mark_bytes(fabric.port_bps)
    document = {
        "name": lab.name, "planes": fabric.planes, "radix": 2 * max(fabric.per_t0 + fabric.t1s, fabric.t0s),
        "nics": fabric.hosts, "nics_per_t0": fabric.per_t0, **_tiers(fabric), "port_rate": fabric.port_bps,
        "base_rtt": base_rtt, "path_mtu": lab.path_mtu, "duration": "1s",
        "bin": "100us", "ev": {"size": fabric.planes, "active": fabric.planes, "min_active": fabric.planes},
        "jobs": [{"name": "flows", "kind": "ring"}], "seed": lab.seed, "denylist": False,
        "model": {"trim_rtts": describe.trim_rtts(topology, fabric.port_bps, base_rtt), "min_rtt": shortest,
                  "ecn_low": low / target, "ecn_high": high / target},
        "failures": [_failure(each) for each in scenario.failures],
    }  # fmt: skip
    return parse_cluster(json.dumps(document), f"<{scenario.name}>")


def _tiers(fabric: ScenarioFabric) -> dict[str, int]:
    """Return the keys of a cluster file that say how T0s are connected."""
    if fabric.tiers == 2:
        return {"t1_per_plane": fabric.t1s}
    return {
        "tiers": 3, "t0_per_pod": fabric.t0s // fabric.pods, "t1_per_pod": fabric.t1s, "t1_uplinks": fabric.t1_uplinks,
        "t2_per_plane": fabric.t1s * fabric.t1_uplinks,
    }  # fmt: skip


def _failure(failure: Failure) -> dict[str, object]:
    made: dict[str, object] = {"at": failure.at_ns, "fail": failure.element, "loss": failure.loss}
    if failure.lasts_ns is not None:
        made |= {"for": failure.lasts_ns, "repeat": failure.count, "every": 2 * failure.lasts_ns}
    return made


def _rates(scenario: Scenario, loaded: Loaded) -> LinkLoads:
    """Return the rates of all links."""
    shape, fabric = loaded.shape, scenario.fabric
    made = LinkLoads.none(shape, shape.port_bps)
    for plane in range(shape.planes):
        for t1 in range(shape.t1s):
            rate = shape.fabric_bps * fabric.share(plane, t1)
            made.up[plane, :, t1] = made.dn[plane, :, t1] = rate
    return made
