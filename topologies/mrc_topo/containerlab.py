"""A lab as a containerlab topology of Linux nodes with SRv6 uSID static routes.

Switches forward as a lab with `switch: kernel` does. Hosts have an address for each port, a route to each peer over all
paths of all planes (one uSID carrier each, encapsulated by the kernel), and end the paths that lead to them. Endpoints
are not part of it: containers run no agents.

The document follows containerlab's published schema (https://containerlab.dev, `schemas/clab.schema.json`).
"""

from __future__ import annotations

from typing import Any, Final

from mrc_topo import addressing, rules
from mrc_topo.graph_topology import GraphTopology
from mrc_topo.kernel_routes import NEIGHBOUR, routes
from mrc_topo.paths import Paths
from mrc_topo.topology import End, Host, Switch, Topology

#: It needs iproute2 that knows NEXT-C-SID (6.1 or later).
IMAGE: Final = "debian:trixie-slim"
#: The smallest MTU with which Linux gives an interface IPv6.
IPV6_MIN_MTU: Final = 1280
#: Of a container; containerlab gives `eth0` to its management network.
FIRST_PORT: Final = 1
#: The locator block and the plane, with which each uSID begins.
PLANE_BITS: Final = 36
#: A route over more next hops than this is refused by some kernels; further paths are left out.
MAX_NEXTHOPS: Final = 64


def document(topology: Topology, image: str = IMAGE) -> dict[str, Any]:
    """Return the topology file as plain data."""
    nodes: dict[str, Any] = {
        switch.name: {"kind": "linux", "group": switch.tier.name.lower(), "exec": switch_commands(topology, switch)}
        for switch in topology.switches
    }
    paths = Paths(topology)
    nodes |= {
        host.name: {"kind": "linux", "group": "host", "exec": host_commands(paths, host)} for host in topology.hosts
    }
    mtu = max(topology.lab.interface_mtu, IPV6_MIN_MTU)
    links = [
        {"endpoints": [_endpoint(link.low, is_host=link.is_host_link), _endpoint(link.high)], "mtu": mtu}
        for link in topology.links.values()
    ]
    kind = {"image": image}
    return {"name": topology.lab.name, "topology": {"kinds": {"linux": kind}, "nodes": nodes, "links": links}}


def switch_commands(topology: Topology, switch: Switch) -> list[str]:
    """Return the commands that make a node forward as a switch does."""
    ports = {port: f"eth{port}" for port in switch.links}
    commands = ["sysctl -w net.ipv6.conf.all.forwarding=1"]
    for port, name in ports.items():
        mac = addressing.mac_text(addressing.switch_mac(switch.plane, switch.tier, switch.index, port))
        commands += _port(name, mac, addressing.mac_text(rules.next_mac(topology, switch, port)))
    return commands + [f"ip -6 {line}" for line in routes(topology, switch, ports)]


def host_commands(paths: Paths, host: Host) -> list[str]:
    """Return the commands that give a node a host's addresses and its routes to all others."""
    topology = paths.topology
    commands = [f"ip -6 address add {addressing.text(host.address)}/128 dev lo nodad"]
    routed: set[str] = set()
    for port in host.ports:
        name = f"eth{port.plane + FIRST_PORT}"
        commands += _port(name, addressing.mac_text(port.mac), addressing.mac_text(port.gateway_mac))
        commands.append(f"ip -6 address add {addressing.text(port.address)}/128 dev {name} nodad")
        # The kernel looks the carrier up after it has encapsulated: all carriers of a plane leave through its port.
        # Ports of a graph may share switches: there the first uSID tells them apart, which is the port's switch.
        plane = (addressing.LOCATOR_BLOCK << 96 | port.plane << 92).to_bytes(16, "big")
        prefix = f"{addressing.text(plane)}/{PLANE_BITS}"
        if isinstance(topology, GraphTopology):
            prefix = f"{addressing.text(addressing.carrier((topology.switch(port.t0).usid,)))}/48"
        if prefix not in routed:
            commands.append(f"ip -6 route add {prefix} via {NEIGHBOUR} dev {name} onlink")
        routed.add(prefix)
        end = f"{addressing.text(addressing.carrier((port.usid,)))}/48"
        commands.append(f"ip -6 route add {end} encap seg6local action End.DT6 table local dev {name}")
    for peer in topology.hosts:
        if peer.index != host.index:
            commands.append(f"ip -6 route add {addressing.text(peer.address)}/128 {_hops(paths, host, peer)}")
    return commands


def _hops(paths: Paths, host: Host, peer: Host) -> str:
    """Return the next hops to a peer, one for each path."""
    hops = []
    for path in paths.all_paths(host.index, peer.index)[:MAX_NEXTHOPS]:
        carrier = addressing.text(addressing.carrier(path.usids))
        source = addressing.text(host.address)
        name = f"eth{path.plane + FIRST_PORT}"
        hops.append(f"nexthop encap seg6 mode encap.red segs {carrier} via {NEIGHBOUR} dev {name} onlink")
    return f"src {source} {' '.join(hops)}"


def _port(name: str, mac: str, peer_mac: str) -> list[str]:
    return [
        f"sysctl -w net.ipv6.conf.{name}.disable_ipv6=0 net.ipv6.conf.{name}.seg6_enabled=1",
        f"ip link set dev {name} addrgenmode none address {mac} up",
        f"ip -6 neighbour replace {NEIGHBOUR} lladdr {peer_mac} dev {name} nud permanent",
    ]


def _endpoint(end: End, *, is_host: bool = False) -> str:
    """Return an end of a link: `eth1` is port 1 of a switch and plane 0 of a host."""
    return f"{end.node}:eth{end.port + (FIRST_PORT if is_host else 0)}"
