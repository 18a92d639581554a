"""Reference model of what failures do to a fabric: computed a second time, as plainly as possible and without
`faults.action`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mrc_topo import addressing
from mrc_topo.paths import Paths
from mrc_topo.topology import Link, Topology
from mrclab.lab.faults.action import Action
from p4lite.switch.fabric.values import SwitchState
from p4lite.switch.targetapi.values import FabricInfo

Carriers = dict[tuple[str, int], bool]


def hit(topology: Topology, action: Action) -> list[Link]:
    """Return the links that an action cuts at least one way."""
    if action.kind in ("link_down", "port_down"):
        return [topology.links[action.target]]
    if action.kind == "transceiver":
        ports = topology.switch(action.target).links
        first = action.settings.get("first", min(ports))
        return [link for port, link in ports.items() if 0 <= port - first < action.settings["count"]]
    return []


def expected(
    topology: Topology, info: FabricInfo, carriers: Carriers, in_force: Iterable[Action]
) -> tuple[FabricInfo, Carriers]:
    """Return the fabric and the carriers as they must be: the union of what each failure does to them."""
    switches = {key: replace(each, ports=dict(each.ports)) for key, each in info.switches.items()}
    carriers = dict(carriers)
    in_force = list(in_force)

    def change(link: Link, way: str, **what: Any) -> None:
        end, outgoing = (link.high, way == "down") if link.is_host_link else (link.low, way == "up")
        ports = switches[topology.switch(end.node).device_id].ports
        ends = [(ports, end.port, outgoing)]
        if (peer := ports[end.port].peer) is not None:
            ends.append((switches[peer[0]].ports, peer[1], not outgoing))
        for ports, number, out in ends:
            named = {key.format("outgoing" if out else "incoming"): value for key, value in what.items()}
            ports[number] = replace(ports[number], **named)

    for action in in_force:
        for link, way in itertools.product(hit(topology, action), ("up", "down")):
            if action.direction in ("both", way):
                change(link, way, **{"up_{}": False})
            if link.is_host_link and action.direction == "both":
                carriers[link.low.node, link.low.port] = False
        if action.kind in ("stop", "freeze", "reboot"):
            switch = topology.switch(action.target)
            now = switches[switch.device_id]
            if action.kind != "freeze":
                switches[switch.device_id] = replace(now, state=SwitchState.STOPPED)
                for link in switch.links.values():
                    if link.is_host_link:
                        carriers[link.low.node, link.low.port] = False
            elif now.state is SwitchState.RUNNING:
                switches[switch.device_id] = replace(now, state=SwitchState.FROZEN)
    for (link_name, way), settings in _impaired(topology, in_force).items():
        link = topology.links[link_name]
        end = link.high if link.is_host_link else link.low
        port = info.switches[topology.switch(end.node).device_id].ports[end.port]
        base = port.outgoing if (way == "down") == link.is_host_link else port.incoming
        change(link, way, **{"{}": replace(base, **settings)})
    return replace(info, switches=switches), carriers


def _impaired(topology: Topology, in_force: Iterable[Action]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return settings by link and direction; a link has one failure of a kind at most (`FaultLedger.fail`)."""
    found: defaultdict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for action in in_force:
        if action.kind == "impair":
            for way in ("up", "down"):
                if action.direction in ("both", way):
                    found[action.target, way].update(action.settings)
        if action.kind == "pause_storm":
            end = topology.links[action.target].low
            mac = addressing.host_mac(topology.host(end.node).index, end.port)
            found[action.target, "up"]["pause_storm_mac"] = mac
    return found


def disconnected_pairs(topology: Topology, paths: Paths, in_force: Iterable[Action]) -> set[frozenset[str]]:
    """Return the pairs of hosts between which every path has a failure on it, in either direction.

    Queue pairs between these may fail while the failures last; those of all others must survive them.
    """
    dirty: set[str] = set()
    for action in in_force:
        dirty |= {link.name for link in hit(topology, action)} or {action.target}
    pairs: set[frozenset[str]] = set()
    if not dirty:
        return pairs
    for one, other in itertools.combinations(topology.hosts, 2):
        ways = paths.all_paths(one.index, other.index)
        if all(dirty & {*way.switches, *way.links} for way in ways):
            pairs.add(frozenset((one.name, other.name)))
    return pairs
