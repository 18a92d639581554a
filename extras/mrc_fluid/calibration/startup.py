"""Common start of packets and model: the EVs of all queue pairs of a simulation, noted until something fails;
and what became of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mrc_fluid.evs import ASSUMED_BAD, Evs
from mrc_fluid.jobs import Flows
from mrc_host.proto.reliability.qp import QueuePair
from mrc_topo import ev
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology
from mrclab.lab.session.virtual import VirtualSession


@dataclass
class _QpSnapshot:
    """A queue pair from host to host; its active EVs and backups by plane, and losses by EV, when last noted."""

    src: int
    dst: int
    qp: QueuePair
    order: list[list[int]]
    backup: list[list[int]]
    losses: dict[int, int]
    port_down: int


class StartupSampler:
    """`look` is called while a simulation goes on; the rest afterwards."""

    def __init__(self) -> None:
        self.noted: list[_QpSnapshot] = []

    def look(self, session: VirtualSession) -> None:
        """Note the state of all queue pairs, unless something is broken."""
        if session.failures.broken:
            return
        index = {host.name: host.index for host in session.topology.hosts}
        self.noted = []
        for name, node in session.nodes.items():
            for job in node.jobs.values():
                for peer, qps in job.qps.items():
                    for qp in qps:
                        if isinstance(qp, QueuePair):
                            self.noted.append(_note(index[name], index[job.names[peer]], qp))

    def for_model(self, target: int, floor: int) -> tuple[Flows, Evs]:
        """Return the queue pairs with their EVs as the model has them; `target`: active EVs of a plane."""
        rows = self.noted
        planes, each = len(rows[0].order), len(rows[0].qp.evs.universe.by_plane[0])
        shape = (planes, len(rows))
        hop, state = np.zeros((*shape, each), np.uint16), np.zeros((*shape, each), np.uint8)
        active, backup = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        for number, row in enumerate(rows):
            values = row.qp.evs.universe.values
            for plane in range(planes):
                inside = [*row.order[plane], *row.backup[plane]]
                outside = [one for one in row.qp.evs.universe.by_plane[plane] if one not in inside]
                hop[plane, number] = [ev.hop_of(values[one]) for one in (*inside, *outside)]
                state[plane, number, len(inside) :] = ASSUMED_BAD
                active[plane, number], backup[plane, number] = len(row.order[plane]), len(row.backup[plane])
        src, dst = (np.array([getattr(row, end) for row in rows], np.int32) for end in ("src", "dst"))
        flows = Flows(src, dst, src * 0, np.ones(len(rows)))
        return flows, Evs(hop, state, active, backup, target, floor)

    def lost_across(self, topology: Topology, element: str) -> tuple[int, int]:
        """Return packets taken for lost on EVs that cross an element, since it failed; and how many EVs these are."""
        paths, broken = Paths(topology), topology.element(element)
        packets = evs = 0
        for row in self.noted:
            values = row.qp.evs.universe.values
            for index, count in row.qp.evs.losses.items():
                lost = count - row.losses.get(index, 0)
                if lost and paths.may_cross(broken, row.src, row.dst, values[index]):
                    packets += lost
                    evs += 1
        return packets, evs

    def lost_with_ports(self) -> int:
        """Return how many packets were on their way in a plane when either end learned that its port there is down."""
        return sum(row.qp.requestor.counters.lost_port_down - row.port_down for row in self.noted)


def _note(src: int, dst: int, qp: QueuePair) -> _QpSnapshot:
    evs: Any = qp.evs
    order, backup = ([list(each) for each in part] for part in (evs.order, evs.backup))
    return _QpSnapshot(src, dst, qp, order, backup, dict(evs.losses), qp.requestor.counters.lost_port_down)
