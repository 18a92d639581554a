"""Least time of a workload: from the sizes of headers, the hops and delays of paths, and the rates of links.

No window, no queue, no collision of flows, no loss and no time in hosts is in it: what a run takes longer, they cost.
Rings (all-reduce, reduce-scatter, all-gather) are reckoned step by step, rank by rank, as ranks wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from mrc_host.proto.roce.endpoint import RoceConfig
from mrc_host.proto.wire.fields import HEADERS, MRC_LAYOUTS, ROCE_LAYOUTS, Layout, Opcode, RoceOpcode
from mrc_host.workloads import WORKLOADS
from mrc_host.workloads.ring import RingCollective
from mrc_topo.modes import MODES
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology
from mrclab.runs.workload import WorkloadSpec

ETHERNET_BYTES, ICRC_BYTES, SEGMENT_BYTES = 14, 4, 16


def _size(*names: str) -> int:
    return sum(HEADERS[name].size for name in names)


def _behind_bth(layout: Layout) -> int:
    return sum(header.size for header in layout.headers)


#: What all packets have.
COMMON_BYTES = ETHERNET_BYTES + _size("IPV6", "UDP", "BTH") + ICRC_BYTES
DATA_BYTES = _behind_bth(MRC_LAYOUTS[Opcode.WRITE_MIDDLE])
SACK_BYTES = _behind_bth(MRC_LAYOUTS[Opcode.SACK])
#: Of the first packet of a RoCE write; the others have nothing behind BTH.
ROCE_FIRST_BYTES = _behind_bth(ROCE_LAYOUTS[RoceOpcode.WRITE_FIRST])
ROCE_ACK_BYTES = _behind_bth(ROCE_LAYOUTS[RoceOpcode.ACK])
ROCE_ACK_EVERY: int = {each.name: each.default for each in fields(RoceConfig)}["ack_every"]  # type: ignore[assignment]
#: What steers a packet, by the number of SRv6 carriers: an outer IPv6 header, and an SRH of one segment behind it.
OUTER_BYTES = {0: 0, 1: _size("IPV6"), 2: _size("IPV6", "SRH") + SEGMENT_BYTES}


@dataclass(frozen=True, slots=True)
class Costs:
    """What a transport puts on the wire, bytes with Ethernet header: `data_bytes` for a write and `frame_bytes` for
    one full packet of it, `ack_bytes` for each acknowledgement, of which a write has `acks`; over `ports` of a host."""

    data_bytes: int
    frame_bytes: int
    ack_bytes: int
    acks: int
    ports: int


def costs(topology: Topology, transport: str, qps_per_peer: int, write_bytes: int) -> Costs:
    """Return the costs of a write, which RoCE cuts into as many parts as it has queue pairs."""
    lab, overhead = topology.lab, topology.lab.link_overhead
    if transport == "roce":
        part = -(-write_bytes // qps_per_peer)
        packets = -(-part // lab.path_mtu)
        frame = COMMON_BYTES + overhead
        data = qps_per_peer * (packets * frame + ROCE_FIRST_BYTES) + write_bytes
        acks = qps_per_peer * -(-packets // ROCE_ACK_EVERY)
        return Costs(data, frame + lab.path_mtu, frame + ROCE_ACK_BYTES, acks, min(qps_per_peer, lab.planes))
    frame = COMMON_BYTES + OUTER_BYTES[MODES[lab.routing.mode].carriers] + overhead
    packets = -(-write_bytes // lab.path_mtu)
    data = packets * (frame + DATA_BYTES) + write_bytes
    acks = -(-packets // lab.reliability.sack_every)
    return Costs(data, frame + DATA_BYTES + lab.path_mtu, frame + SACK_BYTES, acks, lab.planes)


def message_bytes(topology: Topology, opcode: Opcode) -> int:
    """Return the bytes of a packet of MRC on the wire, without its payload."""
    lab = topology.lab
    carriers = OUTER_BYTES[MODES[lab.routing.mode].carriers]
    return COMMON_BYTES + carriers + lab.link_overhead + _behind_bth(MRC_LAYOUTS[opcode])


def payload_share(topology: Topology, transport: str, qps_per_peer: int, write_bytes: int) -> float:
    """Return the share of payload in all that a link carries, on which a host sends writes and acknowledges as many."""
    cost = costs(topology, transport, qps_per_peer, write_bytes)
    return write_bytes / (cost.data_bytes + cost.acks * cost.ack_bytes)


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
    ahead = [_beyond_first(topology, hosts[r], hosts[(r + 1) % count], cost.frame_bytes) for r in range(count)]
    back = [_beyond_first(topology, hosts[(r + 1) % count], hosts[r], cost.ack_bytes) for r in range(count)]
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


def _beyond_first(topology: Topology, src: int, dst: int, frame_bytes: int) -> float:
    """Return how long after a packet has left its host it has arrived, s."""
    links = [topology.links[name].spec for name in Paths(topology).all_paths(src, dst)[0].links]
    delay = sum(link.delay for link in links) / 1e9
    return delay + sum(frame_bytes * 8 / link.rate for link in links[1:])
