"""What a run has to do, as quantities that cost time or memory; each is multiplied by what one of it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from mrc_host.node.config import NodeConfig
from mrc_host.workloads import WORKLOADS
from mrc_lab.describe import PROBE_INTERVAL_NS
from mrc_runs.experiment import Experiment
from mrc_runs.runner import POLL_S
from mrc_studies.estimates.traffic import Traffic
from mrc_topo.topology import Topology

#: The interval of the hosts' samples.
SAMPLE_NS: int = {each.name: each.default for each in fields(NodeConfig)}["sample_ns"]  # type: ignore[assignment]
#: Up to the first number of ranks the state of hosts stays in caches, from the second on little does: permutations of
#: 4, 16, 36, 64 and 144 hosts took 18, 21, 37, 45 and 63 µs per packet on a busy machine.
CACHED = (16, 64)
#: Phases of a run, in their order.
PHASES = ("imports", "start", "connect", "simulate", "report")

#: What costs CPU time in each phase of a run on the virtual clock, and what costs memory.
TIME: Mapping[str, tuple[str, ...]] = {
    "imports": ("run",),
    "start": ("run", "switches", "host_ports", "probe_targets"),
    "connect": ("run", "ranks", "rank_squares", "queue_pairs", "roce_pairs", "evs", "region_bytes"),
    "simulate": (
        "packets",
        "roce_packets",
        "payload_bytes",
        "hops",
        "messages",
        "scattered",
        "rank_iterations",
        "rank_turns",
        "port_turns",
        "switch_turns",
        "pair_samples",
        "ev_samples",
        "probes",
        "target_turns",
    ),
    "report": ("run", "switches", "host_ports", "rank_seconds"),
}
MEMORY: tuple[str, ...] = (
    "run",
    "switches",
    "host_ports",
    "probe_targets",
    "ranks",
    "queue_pairs",
    "roce_pairs",
    "evs",
    "region_bytes",
    "rank_seconds",
)


@dataclass(frozen=True)
class Work:
    """What a run has to do.

    Attributes:
        run: 1.
        hosts, switches: of the lab.
        host_ports: ports of all hosts.
        probe_targets: of the Clustermapper, added up over hosts.
        ranks: hosts that take part in the workload.
        rank_squares: ranks times ranks, as each is given the list of all.
        queue_pairs, roce_pairs: of all ranks, by transport.
        evs: of all queue pairs.
        region_bytes: memory of the workload at all ranks; none with `payload: length`.
        packets: data packets of MRC.
        roce_packets: data packets of RoCE.
        payload_bytes: of all messages that are made, sent and verified; none with `payload: length`.
        hops: switches that all packets pass, added up: data, acknowledgements and probes.
        messages: writes of the workload.
        scattered: packets of MRC and messages, as far as the state of this many hosts does not fit into caches.
        rank_iterations: iterations of all ranks that take part.
        seconds: of the lab's clock.
        rank_seconds: seconds of all ranks together.
        rank_turns, port_turns, switch_turns: how often ranks, ports of hosts and switches are asked for their counters.
        pair_samples, ev_samples: how often queue pairs and EVs are counted for the hosts' samples.
        probes: of the Clustermapper.
        target_turns: how often the results of the Clustermapper are asked for, target by target, after a failure.
    """

    run: float
    hosts: float
    switches: float
    host_ports: float
    probe_targets: float
    ranks: float
    rank_squares: float
    queue_pairs: float
    roce_pairs: float
    evs: float
    region_bytes: float
    packets: float
    roce_packets: float
    payload_bytes: float
    hops: float
    messages: float
    scattered: float
    rank_iterations: float
    seconds: float
    rank_seconds: float
    rank_turns: float
    port_turns: float
    switch_turns: float
    pair_samples: float
    ev_samples: float
    probes: float
    target_turns: float

    def of(self, names: tuple[str, ...]) -> list[float]:
        """Return these quantities, in this order."""
        return [float(getattr(self, name)) for name in names]


def work_of(experiment: Experiment, topology: Topology, traffic: Traffic) -> Work:
    """Return what an experiment on a lab has to do, whose workload has this traffic."""
    lab, spec = topology.lab, experiment.workload
    kind = WORKLOADS[spec.name]
    ranks = len(spec.hosts or topology.hosts)
    params = kind.complete(spec.params)
    roce = experiment.transport == "roce"
    peers = [kind.peers(rank, ranks, params) for rank in range(ranks)]
    pairs = _pairs(ranks, peers) * spec.qps_per_peer
    ports = lab.hosts * lab.planes
    targets = 0 if roce else topology.probe_count
    # A run ends with a turn of its loop.
    turns = math.ceil(traffic.seconds / POLL_S) + 1
    probes = targets * traffic.seconds * 1e9 / PROBE_INTERVAL_NS
    actions = experiment.actions()
    first = actions[0][0] if actions else 0.0
    samples = traffic.seconds * 1e9 / SAMPLE_NS
    evs = 0 if roce else pairs * lab.ev.size
    stored = lab.payload == "bytes"
    answers = 1 / 4 if roce else 1 / lab.reliability.sack_every
    return Work(
        run=1,
        hosts=lab.hosts,
        switches=len(topology.switches),
        host_ports=ports,
        probe_targets=targets,
        ranks=ranks,
        rank_squares=ranks * ranks,
        queue_pairs=0 if roce else pairs,
        roce_pairs=pairs if roce else 0,
        evs=evs,
        region_bytes=kind.plan(ranks, params) * ranks if stored else 0,
        packets=0 if roce else traffic.packets,
        roce_packets=traffic.packets if roce else 0,
        payload_bytes=traffic.payload_bytes if stored else 0,
        hops=traffic.hops * (1 + answers) + probes * 2,
        messages=traffic.messages,
        scattered=0 if roce else _scattered(ranks) * (traffic.packets + traffic.messages),
        rank_iterations=sum(1 for each in peers if each) * traffic.iterations,
        seconds=traffic.seconds,
        rank_seconds=ranks * traffic.seconds,
        rank_turns=ranks * turns,
        port_turns=ports * turns,
        switch_turns=len(topology.switches) * turns,
        pair_samples=pairs * samples,
        ev_samples=evs * samples,
        probes=probes,
        target_turns=targets * max(turns - first / POLL_S, 0) if actions else 0,
    )


def _scattered(ranks: int) -> float:
    """Return which share of packets finds the state of its hosts displaced from caches."""
    few, many = CACHED
    return min(max(math.log2(ranks / few) / math.log2(many / few), 0.0), 1.0)


def _pairs(ranks: int, peers: list[set[int]]) -> int:
    """Return the ends of queue pairs: one at each rank for each rank that it writes to, or that writes to it."""
    return len(
        {(rank, peer) for rank in range(ranks) for peer in peers[rank]}
        | {(peer, rank) for rank in range(ranks) for peer in peers[rank]}
    )
