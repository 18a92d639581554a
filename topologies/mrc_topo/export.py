"""A lab for other software: a containerlab topology, SONiC's CONFIG_DB, and routes of the Linux kernel."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mrc_topo import addressing, rules
from mrc_topo.addressing import Tier
from mrc_topo.graph_topology import GraphTopology
from mrc_topo.paths import Paths
from mrc_topo.schema import HEADER_BYTES
from mrc_topo.tenants import COMMON, Decapsulation, Segment
from mrc_topo.topology import End, Host, Switch, Topology

#: The next hop on every port, whatever device is there.
NEIGHBOUR: Final = "fe80::1"


def prefix_of(entry: rules.TableEntry) -> str:
    """Return what an entry of a table of uSIDs (48 bits) or of host addresses matches, as an IPv6 prefix."""
    match = entry.match[0]
    if match.field != "usid_prefix":
        return f"{addressing.text(match.value.to_bytes(16, 'big'))}/{match.prefix_length}"
    return f"{addressing.text((match.value << 80).to_bytes(16, 'big'))}/48"


def uplinks(topology: Topology, switch: Switch, interfaces: Mapping[int, str]) -> list[str]:
    """Return the interfaces of a switch that lead to T1s; none of a T1."""
    if switch.tier is not Tier.T0:
        return []
    return [interfaces[topology.uplink_number(t1)] for t1 in range(topology.lab.t1_per_plane)]


#: The interface that takes what may not pass between tenants, and counts it as dropped. (An ifb drops what no filter
#: sends it, and has no packets of its own.)
DENIED: Final = "tenant_denied"
#: Its MTU: what is longer would be refused before it is counted.
MOST: Final = 65535
#: The routing tables of segment 0: of its packets, and of what its T0 has taken out of the outer header.
OF_SOURCE, OF_INSIDE = 1000, 2000


def port_segments(topology: Topology, switch: Switch) -> dict[int, Segment]:
    """Return the segments of a switch's host ports; nothing in a lab without tenants."""
    hosts = {port: topology.host(switch.peer(port).node) for port, link in switch.links.items() if link.is_host_link}
    return {port: host.segment for port, host in hosts.items()} if topology.lab.tenants else {}


def policy(topology: Topology, switch: Switch, interfaces: Mapping[int, str]) -> list[str]:
    """Return what, before its routes, keeps tenants apart at a switch, for `ip -6 -batch`: the source says the table,
    and a host port takes no other tenant's sources."""
    here = port_segments(topology, switch)
    if not here:
        return []
    lines = [f"link add {DENIED} mtu {MOST} type ifb", f"link set dev {DENIED} addrgenmode none up"]
    for port, segment in here.items():
        own = f"rule add pref 100 from {segment.plan} iif {interfaces[port]} lookup {OF_SOURCE + segment.number}"
        lines += [own, f"rule add pref 200 iif {interfaces[port]} lookup {OF_SOURCE - 1}"]
    lines += [f"rule add pref 300 from {each.plan} lookup {OF_SOURCE + each.number}" for each in topology.segments]
    return [*lines, _in(str(OF_SOURCE - 1), _leave("default", DENIED))]


def routes(topology: Topology, switch: Switch, interfaces: Mapping[int, str]) -> dict[str, list[str]]:
    """Return the routes of a switch for `ip -6 -batch`, by table; `interfaces` by port number."""
    here = port_segments(topology, switch)
    if not here:
        return {"main": _table(topology, switch, interfaces)}
    found = {}
    for segment in topology.segments:
        theirs = {port: DENIED for port, other in here.items() if other is not segment}
        table, inside = str(OF_SOURCE + segment.number), str(OF_INSIDE + segment.number)
        found[table] = [_in(table, each) for each in _table(topology, switch, {**interfaces, **theirs}, segment)]
        own = [
            _in(inside, _leave(prefix_of(entry), interfaces[entry.params["port"]]))
            for entry in rules.switch_entries(topology, switch)
            if entry.table == rules.HOST_ROUTES and here.get(entry.params.get("port", 0)) is segment
        ]
        found[inside] = [*own, _in(inside, _leave("default", DENIED))]
    return found


def _table(topology: Topology, switch: Switch, interfaces: Mapping[int, str], segment: Segment = COMMON) -> list[str]:
    """Return the routes for the packets of a segment."""
    lines = []
    some = next((each for each in interfaces.values() if each != DENIED), DENIED)
    for entry in rules.switch_entries(topology, switch):
        prefix = prefix_of(entry) if entry.match else ""
        if entry.table == rules.LOCAL_USID:
            end = "encap seg6local action End flavors next-csid lblen 32 nflen 16"
            lines.append(f"route add {prefix} {end} dev {some}")
        elif entry.table == rules.TENANT_USIDS and entry.params["segment"] == segment.number:
            end = f"encap seg6local action End.DT6 table {OF_INSIDE + segment.number}"
            lines.append(f"route add {prefix} {end} dev {some}")
        elif entry.table == rules.TENANT_USIDS:
            lines.append(_leave(prefix, DENIED))
        elif entry.table == rules.USID_ROUTES:
            lines.append(_leave(prefix, interfaces[entry.params["port"]]))
        elif entry.table == rules.HOST_ROUTES:
            action = entry.action.rpartition(".")[2]
            if action == "forward":
                lines.append(_leave(prefix, interfaces[entry.params["port"]]))
            elif action == "go_up":
                hops = " ".join(
                    f"nexthop via {NEIGHBOUR} dev {each} onlink" for each in uplinks(topology, switch, interfaces)
                )
                lines.append(f"route add {prefix} {hops}")
            else:
                lines.append(f"route add blackhole {prefix}")
    return lines


def _in(table: str, line: str) -> str:
    return line.replace("route add", f"route add table {table}")


def _leave(prefix: str, interface: str) -> str:
    via = "" if interface == DENIED else f"via {NEIGHBOUR} "
    return f"route add {prefix} {via}dev {interface}{' onlink' * bool(via)}"


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
    lines = itertools.chain(policy(topology, switch, ports), *routes(topology, switch, ports).values())
    return commands + [f"ip -6 {line}" for line in lines]


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


Tables = dict[str, dict[str, Any]]
LOCATOR: Final = "MRC"
#: Names of what a lab's queues become.
DATA_MAP, PROFILE = "mrclab", "mrclab"
DATA_QUEUE, CONTROL_QUEUE = "0", "7"
#: Traffic classes by DSCP: data may wait, and control is sent first.
CLASSES: Final = {
    rules.DSCP_NO_TRIM: "0",
    rules.DSCP_TRIMMABLE: "0",
    rules.DSCP_TRIMMABLE_RETX: "0",
    rules.DSCP_TRIMMED: "7",
    rules.DSCP_TRIMMED_LASTHOP: "7",
    rules.DSCP_CONTROL: "7",
}


def documents(topology: Topology) -> dict[str, Tables]:
    """Return the tables of each switch, by its name."""
    return {switch.name: switch_tables(topology, switch) for switch in topology.switches}


def switch_tables(topology: Topology, switch: Switch) -> Tables:
    """Return the tables of one switch."""
    names = {port: f"Ethernet{port - 1}" for port in switch.links}
    tables: Tables = {
        "DEVICE_METADATA": {"localhost": {"hostname": switch.name, "type": _role(switch)}},
        "PORT": {name: _config_port(topology, switch, port, name) for port, name in names.items()},
        "INTERFACE": {name: {"ipv6_use_link_local_only": "enable"} for name in names.values()},
        "NEIGH": {
            f"{name}|{NEIGHBOUR}": {
                "family": "IPv6", "neigh": addressing.mac_text(rules.next_mac(topology, switch, port)),
            }
            for port, name in names.items()
        },
        **_sids(switch),
        "STATIC_ROUTE": _routes(topology, switch, names),
    }  # fmt: skip
    _add_tenants(topology, switch, names, tables)
    return tables | _queues(switch, names)


def _add_tenants(topology: Topology, switch: Switch, names: dict[int, str], tables: Tables) -> None:
    """Add what keeps tenants apart: ACLs of sources at host ports, in both directions, whose drops are counted by rule;
    and the VRF, uDT46 and routes of a tenant whose packets the switch decapsulates."""
    here = port_segments(topology, switch)
    for port, segment in here.items():
        for stage in ("ingress", "egress"):
            table = f"TENANT_{segment.number}_{stage.upper()}"
            acl: dict[str, Any] = {
                "type": "L3V6",
                "stage": stage,
                "policy_desc": segment.name or "no tenant",
                "ports": [],
            }
            tables.setdefault("ACL_TABLE", {}).setdefault(table, acl)["ports"].append(names[port])
            tables.setdefault("ACL_RULE", {}).update({
                f"{table}|OWN": {"PRIORITY": "20", "SRC_IPV6": str(segment.plan), "PACKET_ACTION": "FORWARD"},
                f"{table}|{DENIED.upper()}": {"PRIORITY": "10", "IP_TYPE": "IPV6ANY", "PACKET_ACTION": "DROP"},
            })  # fmt: skip
    static = tables["STATIC_ROUTE"]
    opened = {each for each in here.values() if each.decapsulation is Decapsulation.T0}
    if opened:
        _add_guards(switch, names, here, opened, tables)
    for segment in opened:
        vrf, own = f"Vrf-{segment.name}", {names[port] for port, each in here.items() if each is segment}
        tables.setdefault("VRF", {})[vrf] = {}
        for name in own:
            tables["INTERFACE"][name]["vrf_name"] = vrf
        carrier = _table_sid(switch, segment)
        sid = {"action": "uDT46", "decap_vrf": vrf, "decap_dscp_mode": "uniform"}
        tables["SRV6_MY_SIDS"][f"{LOCATOR}|{carrier}"] = sid
        for key, route in [each for each in static.items() if each[0].startswith("default|")]:
            prefix = key.partition("|")[2]
            there = route if route.get("blackhole") or route["ifname"] in own else {**route, **_via_default(route)}
            if route["ifname"] in own:
                route["nexthop-vrf"] = vrf
            if ipaddress.IPv6Network(prefix).overlaps(segment.plan.network):
                static[f"{vrf}|{prefix}"] = there


def _table_sid(switch: Switch, segment: Segment) -> str:
    """Return the prefix of destinations that open a tenant's table at a switch."""
    carrier = addressing.carrier((switch.usid, addressing.tenant_usid(switch.plane, segment.number)))
    return f"{addressing.text(carrier)}/64"


def _add_guards(
    switch: Switch, names: dict[int, str], here: Mapping[int, Segment], opened: Iterable[Segment], tables: Tables
) -> None:
    """Let only sources of a tenant open its table: egress ACLs see the inner source, which nobody has checked.

    A destination that has the switch's own uSID twice is dropped, too, since the second look-up meets no ACL.
    """
    acl = tables["ACL_RULE"]
    twice = f"{addressing.text(addressing.carrier((switch.usid, switch.usid)))}/64"
    inner = [names[port] for port in switch.links if port not in here]
    guarded = {f"TENANT_{each.number}_INGRESS": each for each in here.values()}
    if inner:
        tables["ACL_TABLE"]["TENANTS_INGRESS"] = {
            "type": "L3V6", "stage": "ingress", "policy_desc": "tenants' tables", "ports": inner,
        }  # fmt: skip
        for segment in opened:
            acl[f"TENANTS_INGRESS|OWN_{segment.number}"] = {
                "PRIORITY": "40", "SRC_IPV6": str(segment.plan), "DST_IPV6": _table_sid(switch, segment),
                "PACKET_ACTION": "FORWARD",
            }  # fmt: skip
    for table in [*guarded, *(["TENANTS_INGRESS"] if inner else [])]:
        closed = {_table_sid(switch, each): str(each.number) for each in opened if each is not guarded.get(table)}
        for prefix, name in {**closed, twice: "TWICE"}.items():
            acl[f"{table}|{DENIED.upper()}_{name}"] = {
                "PRIORITY": "30", "DST_IPV6": prefix, "PACKET_ACTION": "DROP",
            }  # fmt: skip


def _via_default(route: Mapping[str, str]) -> dict[str, str]:
    return {"nexthop-vrf": ",".join(["default"] * len(route["ifname"].split(",")))}


def _role(switch: Switch) -> str:
    return "ToRRouter" if switch.tier is Tier.T0 else "LeafRouter"


def _config_port(topology: Topology, switch: Switch, port: int, name: str) -> dict[str, str]:
    link = switch.links[port]
    peer = switch.peer(port)
    return {
        "alias": name,
        # The unit is Mb/s. A real port has no rates as low as a lab's, so a device may refuse them.
        "speed": str(max(1, link.spec.rate // 10**6)),
        "mtu": str(topology.lab.interface_mtu),
        "admin_status": "up",
        "description": f"{peer.node}:{peer.port}",
    }


def _sids(switch: Switch) -> Tables:
    """Return the locator and the one static SID of a switch: its own uSID, which it shifts out (uN)."""
    prefix = addressing.text(addressing.carrier((switch.usid,)))
    return {
        "SRV6_MY_LOCATORS": {
            LOCATOR: {"prefix": prefix, "block_len": "32", "node_len": "16", "func_len": "16", "arg_len": "0"}
        },
        "SRV6_MY_SIDS": {f"{LOCATOR}|{prefix}/48": {"action": "uN", "decap_dscp_mode": "pipe"}},
    }


def _routes(topology: Topology, switch: Switch, names: dict[int, str]) -> dict[str, Any]:
    """Return static routes: to the uSIDs of neighbours, to host addresses, and over all uplinks to other T0s."""
    found: dict[str, Any] = {}
    for entry in rules.switch_entries(topology, switch):
        if entry.table not in (rules.USID_ROUTES, rules.HOST_ROUTES):
            continue
        prefix = prefix_of(entry)
        if "port" in entry.params:
            ports = [names[entry.params["port"]]]
        elif entry.action.rpartition(".")[2] == "go_up":
            ports = uplinks(topology, switch, names)
        else:
            found[f"default|{prefix}"] = {"blackhole": "true", "nexthop": "::", "ifname": ""}
            continue
        found[f"default|{prefix}"] = {
            "nexthop": ",".join([NEIGHBOUR] * len(ports)), "ifname": ",".join(ports),
        }  # fmt: skip
    return found


def _queues(switch: Switch, names: dict[int, str]) -> Tables:
    """Return classes, ECN and trimming. The thresholds of a port are those of its link."""
    tables: Tables = {
        "DSCP_TO_TC_MAP": {DATA_MAP: {str(dscp): CLASSES.get(dscp, "0") for dscp in range(64)}},
        "TC_TO_QUEUE_MAP": {DATA_MAP: {"0": DATA_QUEUE, "7": CONTROL_QUEUE}},
        "PORT_QOS_MAP": {
            name: {"dscp_to_tc_map": DATA_MAP, "tc_to_queue_map": DATA_MAP} for name in names.values()
        },
        "SCHEDULER": {"mrclab-data": {"type": "DWRR", "weight": "1"}, "mrclab-control": {"type": "STRICT"}},
        "QUEUE": {}, "BUFFER_PROFILE": {}, "BUFFER_QUEUE": {}, "WRED_PROFILE": {},
    }  # fmt: skip
    trims = False
    for port, name in names.items():
        link = switch.links[port]
        queue, marks = link.queue, link.marks
        data = {"scheduler": "mrclab-data"}
        if marks is not None:
            profile = f"{PROFILE}-{marks.kmin}-{marks.kmax}"
            tables["WRED_PROFILE"][profile] = {
                "ecn": "ecn_all",
                "wred_green_enable": "true",
                "green_min_threshold": str(marks.kmin),
                "green_max_threshold": str(marks.kmax),
                "green_drop_probability": "100",
            }
            data["wred_profile"] = profile
        tables["QUEUE"][f"{name}|{DATA_QUEUE}"] = data
        tables["QUEUE"][f"{name}|{CONTROL_QUEUE}"] = {"scheduler": "mrclab-control"}
        size = queue.trim.threshold if queue.trim is not None else queue.limit
        trims = trims or queue.trim is not None
        buffer = f"{PROFILE}-{size}-{'trim' if queue.trim is not None else 'drop'}"
        tables["BUFFER_PROFILE"][buffer] = {
            "pool": "egress_lossy_pool", "size": "0", "static_th": str(size),
            "packet_discard_action": "trim" if queue.trim is not None else "drop",
        }  # fmt: skip
        tables["BUFFER_QUEUE"][f"{name}|{DATA_QUEUE}"] = {"profile": buffer}
    if trims:
        tables["SWITCH_TRIMMING"] = {
            "GLOBAL": {
                "size": str(HEADER_BYTES),
                "dscp_value": str(rules.DSCP_TRIMMED),
                "queue_index": CONTROL_QUEUE,
            }
        }
    return {name: table for name, table in tables.items() if table}
