"""Capacity of hosts to send and receive, with every link as it should be or with some slower or dead."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from mrc_topo import addressing
from mrc_topo.graph_topology import GraphTopology
from mrc_topo.topology import HostPort, Topology

#: Bits per second of directions of links, by (link name, direction); up is away from the host.
Rates = Mapping[tuple[str, Literal["up", "down"]], float]
_OPPOSITE: dict[str, Literal["up", "down"]] = {"up": "down", "down": "up"}


class Capacity:
    """The capacities of a topology.

    A host's capacity towards another T0 is what it can send to the hosts there when all hosts of its own T0 send there
    at once and endpoints use every path that is left. In each plane it is the host's max-min fair share of the maximum
    flow from T0 to T0, bounded by its own port; and likewise for receiving. With a single T0 it is the capacity of the
    host's ports.

    Of a graph the maximum flow is that over the links of the EVs' paths to another host, over all ports at once.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._whole = lru_cache(maxsize=None)(lambda host, other, way: self._capacity(host, other, way, {}))

    def lost(self, host: int, rates: Rates) -> float:
        """Return the share of a host's capacity that is lost, from 0 to 1, when directions have the rates in `rates`.

        It is the share for the other T0, and for the direction (sending or receiving), that lose most.
        """
        worst = 0.0
        if rates:
            for other in self._others(host):
                for way in _OPPOSITE.values():
                    left = self._capacity(host, other, way, rates) / self._whole(host, other, way)
                    worst = max(worst, 1 - left)
        return worst

    def worst_lost(self, rates: Rates) -> float:
        """Return `lost` of the host that loses most."""
        return max((self.lost(host.index, rates) for host in self.topology.hosts), default=0.0) if rates else 0.0

    def sprayed(self, host: int) -> tuple[float, float]:
        """Return what a host reaches when it loads all planes equally, and what its planes carry together (bits per
        second), towards the T0 and in the direction in which the share is least. Of a graph, only ports count."""
        shares = []
        for other in self._others(host):
            for way in _OPPOSITE.values():
                if isinstance(self.topology, GraphTopology):
                    planes = [self._rate(port.name, way, {}) for port in self.topology.hosts[host].ports]
                else:
                    planes = self._planes(self.topology, host, other, way, {})
                shares.append((len(planes) * min(planes), sum(planes)))
        return min(shares, key=lambda each: each[0] / each[1])

    def _others(self, host: int) -> list[int]:
        """Return the T0s that a host's capacity is judged by; of a graph, hosts that stand for all."""
        topology = self.topology
        if not isinstance(topology, GraphTopology):
            mine = topology.t0_of(host)
            return [t0 for t0 in range(topology.lab.t0_per_plane) if t0 != mine] or [mine]
        places = [tuple(port.t0 for port in each.ports) for each in topology.hosts]
        found = {place: index for index, place in reversed(list(enumerate(places))) if place != places[host]}
        return sorted(found.values()) or [each.index for each in topology.hosts if each.index != host][:1] or [host]

    def _capacity(self, host: int, other: int, way: Literal["up", "down"], rates: Rates) -> float:
        """Return bits per second between a host and the hosts of a T0, or of a graph another host: up is sending."""
        if isinstance(self.topology, GraphTopology):
            return self._through_graph(self.topology, host, other, way, rates)
        return sum(self._planes(self.topology, host, other, way, rates))

    def _planes(
        self, topology: Topology, host: int, other: int, way: Literal["up", "down"], rates: Rates
    ) -> list[float]:
        """Return what each plane adds to `_capacity`."""
        mine = topology.t0_of(host)
        found = []
        for plane in range(topology.lab.planes):
            port = self._rate(topology.host_port(host, plane).name, way, rates)
            if other == mine:
                found.append(port)
                continue
            flow = 0.0
            for t1 in range(topology.lab.t1_per_plane):
                near, far = (addressing.fabric_link_name(plane, t0, t1) for t0 in (mine, other))
                flow += min(self._rate(near, way, rates), self._rate(far, _OPPOSITE[way], rates))
            ports = [
                self._rate(topology.host_port(each.index, plane).name, way, rates) for each in topology.hosts_of(mine)
            ]
            found.append(min(port, fair_share(flow, ports)))
        return found

    def _through_graph(
        self, topology: GraphTopology, host: int, other: int, way: Literal["up", "down"], rates: Rates
    ) -> float:
        """Return the sum over components: the host's share of the maximum flow over the links that EVs lead over."""
        import networkx as nx

        ways: dict[int, set[str]] = {}
        ports: dict[int, list[HostPort]] = {}
        for port in topology.hosts[host].ports:
            component = topology.switch(port.t0).plane
            ports.setdefault(component, []).append(port)
            for hop in topology.choices(host, other, port.plane):
                ways.setdefault(component, set()).update(topology.path(host, other, port.plane, hop).links[1:-1])
        total = 0.0
        for component, mine in ports.items():
            near = {port.t0 for port in mine}
            far = {topology.host_port(other, port.plane).t0 for port in mine}
            own = sum(self._rate(port.name, way, rates) for port in mine)
            if near & far:  # a switch has no rate of its own
                total += own
                continue
            graph = nx.DiGraph()
            for name in ways[component]:
                link = topology.links[name]
                for end, direction in ((link.low, "up"), (link.high, "down")):
                    ends = (end.node, link.other(end.node).node)
                    rate = self._rate(name, "up" if direction == "up" else "down", rates)
                    graph.add_edge(*(ends if way == "up" else ends[::-1]), capacity=rate)
            graph.add_edges_from([("", switch) for switch in near] + [(switch, "*") for switch in far])
            flow = float(nx.maximum_flow_value(graph, "", "*"))
            sharing = [
                sum(self._rate(port.name, way, rates) for port in each.ports if port.t0 in near)
                for each in topology.hosts
                if any(port.t0 in near for port in each.ports)
            ]
            total += min(own, fair_share(flow, sharing))
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
