"""Least time of a workload: from the sizes of headers, the hops and delays of paths, and the rates of links.

No window, no queue, no collision of flows, no loss and no time in hosts is in it: what a run takes longer, they cost.
Rings (all-reduce, reduce-scatter, all-gather) are reckoned step by step, rank by rank, as ranks wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from mrc_host.workloads import WORKLOADS
from mrc_host.workloads.ring import RingCollective
from mrc_topo.topology import Topology
from mrclab.results.wire import Costs, beyond_first, costs
from mrclab.runs.workload import WorkloadSpec


def ideal_seconds(topology: Topology, spec: WorkloadSpec, transport: str) -> float | None:
    """Return the seconds per iteration on empty, healthy paths; None for workloads that are not modelled here."""
    kind = WORKLOADS[spec.workload]
    if not issubclass(kind, RingCollective):
        return None
    hosts = [topology.host(name).index for name in spec.hosts or [host.name for host in topology.hosts]]
    size = kind.complete(spec.params).size_bytes
    cost = costs(topology, transport, spec.qps_per_peer, size // len(hosts))
    rate = topology.lab.links.host.rate * cost.ports
    iterations = int(spec.params.get("iterations") or 1)
    return _ring(topology, hosts, cost, rate, kind.count_steps(len(hosts)), iterations) / iterations


def _ring(topology: Topology, hosts: Sequence[int], cost: Costs, rate_bps: int, steps: int, iterations: int) -> float:
    """Return the time until the last rank has ended all iterations, s."""
    count = len(hosts)
    ahead = [beyond_first(topology, hosts[r], hosts[(r + 1) % count], cost.frame_bytes) for r in range(count)]
    back = [beyond_first(topology, hosts[(r + 1) % count], hosts[r], cost.ack_bytes) for r in range(count)]
    frame = cost.frame_bytes * 8 / (rate_bps / cost.ports)
    data, share = cost.data_bytes * 8 / rate_bps, cost.acks * cost.ack_bytes / cost.data_bytes
    ready = [0.0] * count  # when a rank may send its next step
    for _ in range(iterations):
        sent = [0.0] * count
        for _ in range(steps):
            began = ready
            for r in range(count):
                # Once its predecessor's packets come, a rank acknowledges them on the link on which it sends.
                alone = max(0.0, began[r - 1] + frame + ahead[r - 1] - began[r])
                sent[r] = began[r] + (data if data <= alone else alone + (data - alone) * (1 + share))
            ready = [max(sent[r], sent[r - 1] + ahead[r - 1]) for r in range(count)]
        # An iteration ends when all that a rank has written is acknowledged.
        ready = [max(ready[r], sent[r] + ahead[r] + back[r]) for r in range(count)]
    return max(ready)
