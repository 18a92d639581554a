"""What a host can send and receive, with every link as it should be or with some slower or dead."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from mrc_topo import addressing
from mrc_topo.topology import Topology

#: Bits per second of directions of links, by (link name, direction); up is away from the host.
Rates = Mapping[tuple[str, Literal["up", "down"]], float]
_OPPOSITE: dict[str, Literal["up", "down"]] = {"up": "down", "down": "up"}


class Capacity:
    """The capacities of a topology.

    A host's capacity towards another T0 is what it can send to the hosts there when all hosts of its own T0 send there
    at once and endpoints use every path that is left. In each plane it is the host's max-min fair share of the maximum
    flow from T0 to T0, bounded by its own port; and likewise for receiving. With a single T0 it is the capacity of the
    host's ports.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._whole = lru_cache(maxsize=None)(lambda host, other, way: self._capacity(host, other, way, {}))

    def lost(self, host: int, rates: Rates) -> float:
        """Return the share of a host's capacity that is lost, from 0 to 1, when directions have the rates in `rates`.

        It is the share for the other T0, and for the direction (sending or receiving), that lose most.
        """
        mine = self.topology.t0_of(host)
        others = [t0 for t0 in range(self.topology.lab.t0_per_plane) if t0 != mine] or [mine]
        worst = 0.0
        if rates:
            for other in others:
                for way in _OPPOSITE.values():
                    left = self._capacity(host, other, way, rates) / self._whole(host, other, way)
                    worst = max(worst, 1 - left)
        return worst

    def worst_lost(self, rates: Rates) -> float:
        """Return `lost` of the host that loses most."""
        return max((self.lost(host.index, rates) for host in self.topology.hosts), default=0.0) if rates else 0.0

    def _capacity(self, host: int, other: int, way: Literal["up", "down"], rates: Rates) -> float:
        """Return bits per second between a host and the hosts of a T0: up is sending."""
        topology, mine = self.topology, self.topology.t0_of(host)
        total = 0.0
        for plane in range(topology.lab.planes):
            port = self._rate(topology.host_port(host, plane).name, way, rates)
            if other == mine:
                total += port
                continue
            flow = 0.0
            for t1 in range(topology.lab.t1_per_plane):
                near, far = (addressing.fabric_link_name(plane, t0, t1) for t0 in (mine, other))
                flow += min(self._rate(near, way, rates), self._rate(far, _OPPOSITE[way], rates))
            ports = [
                self._rate(topology.host_port(each.index, plane).name, way, rates) for each in topology.hosts_of(mine)
            ]
            total += min(port, fair_share(flow, ports))
        return total

    def _rate(self, link: str, way: Literal["up", "down"], rates: Rates) -> float:
        return rates.get((link, way), self.topology.links[link].spec.rate)


def fair_share(flow: float, limits: list[float]) -> float:
    """Return the level that uses up a capacity when each flow takes as much as the others, up to its own limit."""
    left = flow
    for place, limit in enumerate(sorted(limits)):
        share = left / (len(limits) - place)
        if share <= limit:
            return share
        left -= limit
    return max(limits)
