"""Random failures, and what they must do and cost, told a second time and as plainly as can be."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import networkx as nx
from hypothesis import strategies as st

from mrc_topo.topology import Topology
from mrclab.lab.faults.action import Action
from mrclab.studies.chaos.truth import hit


def actions(topology: Topology) -> st.SearchStrategy[Action]:
    """Any failure of any kind."""
    links = st.sampled_from(sorted(topology.links))
    ports = st.sampled_from([name for name, link in topology.links.items() if link.is_host_link])
    switches = st.sampled_from([switch.name for switch in topology.switches])
    directions = st.sampled_from(["both", "up", "down"])
    settings = st.fixed_dictionaries(
        {},
        optional={
            "loss": st.sampled_from([0.0, 0.5, 1.0]),
            "corrupt": st.sampled_from([0.25, 1]),
            "rate_bps": st.integers(1000, 30_000_000),
            "delay_ns": st.integers(0, 10**6),
            "blackhole": st.booleans(),
        },
    ).filter(bool)
    least = min(len(switch.links) for switch in topology.switches)
    modules = st.fixed_dictionaries({"count": st.integers(1, 4)}, optional={"first": st.integers(1, least)})
    verb = st.just("fail")
    return st.one_of(
        st.builds(Action, verb, links, st.just("link_down"), directions),
        st.builds(Action, verb, ports, st.sampled_from(["port_down", "pause_storm"])),
        st.builds(Action, verb, links, st.just("impair"), directions, settings),
        st.builds(Action, verb, switches, st.just("transceiver"), settings=modules),
        st.builds(Action, verb, switches, st.sampled_from(["stop", "freeze", "reboot"])),
    )


# --- what they cost --------------------------------------------------------------------------------------------------


def graph(topology: Topology, in_force: Iterable[Action]) -> nx.DiGraph:
    """Return the network that is left: a node per switch and host port, an edge per direction with its `capacity`."""
    left = nx.DiGraph()
    for link in topology.links.values():
        low = link.name if link.is_host_link else link.low.node
        left.add_edge(low, link.high.node, capacity=link.spec.rate)
        left.add_edge(link.high.node, low, capacity=link.spec.rate)
    for action in in_force:
        if action.kind in ("stop", "freeze", "reboot"):
            for edge in (*left.in_edges(action.target), *left.out_edges(action.target)):
                left.edges[edge]["capacity"] = 0
        if action.kind == "pause_storm" and topology.lab.queues.pfc is not None:
            left.edges[topology.links[action.target].high.node, action.target]["capacity"] = 0
        for link in hit(topology, action) or ([topology.links[action.target]] if action.kind == "impair" else []):
            low = link.name if link.is_host_link else link.low.node
            for way, edge in (("up", (low, link.high.node)), ("down", (link.high.node, low))):
                if action.direction not in ("both", way):
                    continue
                if action.kind == "impair":
                    dead = action.settings.get("blackhole") or 1 in map(action.settings.get, ("loss", "corrupt"))
                    rate = 0 if dead else action.settings.get("rate_bps", link.spec.rate)
                    # Whatever cut the link before the impairment has cut it.
                    left.edges[edge]["capacity"] = rate if left.edges[edge]["capacity"] else 0
                else:
                    left.edges[edge]["capacity"] = 0
    return left


def capacity(topology: Topology, network: nx.DiGraph, host: int) -> Iterator[float]:
    """Of a host to and from every other T0 (none: its ports): the sum over planes of its max-min fair share, found by
    raising what each host of its T0 may take until the maximum flow falls short of it."""
    lab, mine = topology.lab, topology.t0_of(host)
    others = [t0 for t0 in range(lab.t0_per_plane) if t0 != mine] or [mine]
    for other, sending in itertools.product(others, (True, False)):
        total = 0.0
        for plane in range(lab.planes):
            ports = [f"h{each.index}:{plane}" for each in topology.hosts_of(mine)]
            t0, near = f"p{plane}-t0.{other}", f"p{plane}-t0.{mine}"
            limits = {port: network.edges[(port, near)[:: 1 if sending else -1]] for port in ports}
            rates = {port: each["capacity"] for port, each in limits.items()}
            low, high = 0.0, float(max(rates.values()))
            level = high
            for _ in range(24):
                if flow(network, ports, near, t0, level, sending) >= sum(min(level, r) for r in rates.values()) * (
                    1 - 1e-9
                ):
                    low = level
                else:
                    high = level
                level = (low + high) / 2
            total += min(high, rates[f"h{host}:{plane}"])
        yield total


def flow(network: nx.DiGraph, ports: list[str], near: str, t0: str, level: float, sending: bool) -> float:
    """Maximum flow between ports of the T0 `near`, each held to a level, and another T0."""
    held = network.copy() if sending else network.reverse(copy=True)
    for port in ports:
        held.add_edge("all", port, capacity=level)
    # Hosts send and receive, they do not forward; and no path leads down to a third T0 and up again.
    others = [node for node in network if ("-t0." in node and node not in (near, t0)) or ":" in node]
    held.remove_nodes_from([node for node in others if node not in ports])
    return float(nx.maximum_flow_value(held, "all", t0))


def lost(topology: Topology, in_force: Iterable[Action], hosts: Iterable[int]) -> float:
    """Share of capacity that the failures cost the host that loses most."""
    whole, left = graph(topology, []), graph(topology, in_force)
    return max(
        (
            1 - after / before
            for host in hosts
            for before, after in zip(capacity(topology, whole, host), capacity(topology, left, host), strict=True)
        ),
        default=0.0,
    )
