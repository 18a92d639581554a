"""Table entries of `p4/programs/fabric.p4` for every switch of a lab, as plain data, and the walk of a packet through
them.

Names are those of the program's P4Info. Values are integers; a controller encodes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, product
from typing import Any, Final

from mrc_topo import addressing, ev
from mrc_topo.addressing import Tier
from mrc_topo.graph_topology import GraphTopology
from mrc_topo.modes import MODES, UplinkChooser
from mrc_topo.paths import Paths, Srv6Path
from mrc_topo.schema import DATA_PRIORITY as DATA_PRIORITY
from mrc_topo.tenants import Decapsulation
from mrc_topo.topology import Path, Switch, Topology

#: The number of strict-priority queues of every port; the highest number is sent first.
PRIORITY_QUEUES: Final = 8
CONTROL_PRIORITY: Final = 7

DSCP_NO_TRIM: Final = 0
DSCP_TRIMMABLE: Final = 4
DSCP_TRIMMABLE_RETX: Final = 8
DSCP_TRIMMED: Final = 12
DSCP_TRIMMED_LASTHOP: Final = 16
#: The DSCP of RoCE's data where switches count credits; neither MRC nor the hosts' kernels use it.
DSCP_CREDITED: Final = 26
DSCP_CONTROL: Final = 46

LOCAL_USID: Final = "FabricIngress.routing.local_usid"
USID_ROUTES: Final = "FabricIngress.routing.usid_routes"
HOST_ROUTES: Final = "FabricIngress.routing.host_routes"
SOURCE_SEGMENTS: Final = "FabricIngress.routing.source_segments"
TENANT_USIDS: Final = "FabricIngress.routing.tenant_usids"
INGRESS_SEGMENTS: Final = "FabricIngress.isolation.ingress_segments"
EGRESS_SEGMENTS: Final = "FabricIngress.isolation.egress_segments"
UPLINK_CHOICE: Final = "FabricIngress.uplinks.uplink_choice"
TRAFFIC_CLASSES: Final = "FabricIngress.queueing.traffic_classes"
PORTS: Final = "FabricIngress.queueing.ports"

#: The width of a table's key in bits, by the key's name in `Match`; a table has one key or none.
KEY_BITS: Final = {"usid_prefix": 48, "source": 128, "destination": 128, "dscp": 6, "port": 9}
#: What a lab lacks if its own program does not have such a table (docs/extending.md).
WITHOUT: Final = {
    LOCAL_USID: "no switch has its own uSID",
    USID_ROUTES: "SRv6 packets are routed by the program alone; the hosts' probes are SRv6",
    HOST_ROUTES: "plain IPv6 packets, such as ping, are routed by the program alone",
    UPLINK_CHOICE: "what goes up without SRv6 goes where the program sends it",
    TRAFFIC_CLASSES: "all packets are in the queue and class that the program gives them",
    PORTS: "frames keep their MAC addresses; no ECN, no trimming, and no limit but the traffic manager's",
}

#: Tables without one of which hosts would reach other tenants' hosts.
ISOLATION: Final = (SOURCE_SEGMENTS, TENANT_USIDS, INGRESS_SEGMENTS, EGRESS_SEGMENTS)

#: The program's counters, by what they count.
COUNTERS: Final = {
    "port_rx": "FabricIngress.port_rx",
    "port_tx": "FabricEgress.port_tx",
    "drops": "FabricIngress.drops",
    "ev_packets": "FabricIngress.ev_packets",
    "marked": "FabricIngress.queueing.marked",
    "trimmed": "FabricIngress.queueing.trimmed",
    "queue_drops": "FabricIngress.queueing.queue_drops",
}
#: The reasons of drops, by index of the counter `drops`.
DROP_REASONS: Final = {
    1: "malformed",
    2: "not_ipv6",
    3: "hop_limit",
    4: "no_route",
    5: "end_of_path",
    6: "no_uplink",
    7: "loop",
    8: "queue_full",
    9: "no_port",
    10: "tenant_denied",
}
TENANT_DENIED: Final = 10
#: The bytes counted in a queue that has sent nothing for four times its drain time plus this were lost by the switch.
STALL_MARGIN_US: Final = 10_000
#: The value of `mark_min` for a port that never marks.
NEVER: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Match:
    """A key field; `prefix_length` is set for LPM keys, None for exact ones."""

    field: str
    value: int
    prefix_length: int | None = None


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table entry or, with `default`, the table's default action."""

    table: str
    action: str
    params: dict[str, int] = field(default_factory=dict, hash=False)
    match: tuple[Match, ...] = ()
    default: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def switch_entries(topology: Topology, switch: Switch) -> list[TableEntry]:
    """Return all entries of one switch, which never change while a lab runs."""
    entries = [
        TableEntry(
            LOCAL_USID,
            "FabricIngress.routing.end_un",
            match=(Match("usid_prefix", addressing.usid_prefix(switch.usid)),),
        )
    ]
    if isinstance(topology, GraphTopology):
        entries += _graph_routes(topology, switch)
    else:
        entries += _t0_routes(topology, switch) if switch.tier is Tier.T0 else _t1_routes(topology, switch)
    if topology.lab.tenants:
        entries += _isolation(topology, switch)
    entries += _classes()
    entries += [_port(topology, switch, port) for port in switch.links]
    return entries


def all_entries(topology: Topology) -> dict[str, list[TableEntry]]:
    """Return entries of every switch, by switch name."""
    return {switch.name: switch_entries(topology, switch) for switch in topology.switches}


def needed(topology: Topology) -> dict[str, set[str]]:
    """Return the tables that every program needs in this lab, with the actions of each; all others are optional."""
    lab = topology.lab
    mode = MODES[lab.routing.mode]
    found = {USID_ROUTES: {"forward"}} if mode.carriers else {HOST_ROUTES: {"forward"}}
    if not mode.carriers and lab.t0_per_plane > 1:
        found = {HOST_ROUTES: {"forward", "go_up"}, UPLINK_CHOICE: {mode.uplink(lab.routing, 1).action}}
    if lab.tenants:
        found |= {SOURCE_SEGMENTS: {"in_segment"}, INGRESS_SEGMENTS: {"only"}, EGRESS_SEGMENTS: {"only"}}
    if any(segment.decapsulation is Decapsulation.T0 for segment in topology.segments):
        found |= {TENANT_USIDS: {"end_dt6"}, HOST_ROUTES: {"forward"}}
    return found


def _usid_route(usid: int, port: int) -> TableEntry:
    match = (Match("usid_prefix", addressing.usid_prefix(usid)),)
    return TableEntry(USID_ROUTES, "FabricIngress.routing.forward", {"port": port}, match)


def _host_route(value: int, prefix_length: int, action: str, params: dict[str, int]) -> TableEntry:
    match = (Match("destination", value, prefix_length),)
    return TableEntry(HOST_ROUTES, f"FabricIngress.routing.{action}", params, match)


def _t0_routes(topology: Topology, switch: Switch) -> list[TableEntry]:
    entries = []
    for host in topology.hosts_of(switch.index):
        port = host.ports[switch.plane]
        entries.append(_usid_route(port.usid, port.t0_port))
        for address in (host.address, port.address):
            value = int.from_bytes(address, "big")
            entries.append(_host_route(value, 128, "forward", {"port": port.t0_port}))
    for t1 in range(topology.lab.t1_per_plane):
        usid = addressing.usid(switch.plane, Tier.T1, t1)
        entries.append(_usid_route(usid, topology.uplink_number(t1)))
    # Addresses of this T0 without a host end here; those of other T0s go up.
    for plan in topology.plans:
        entries.append(_host_route(plan.t0(switch.index), plan.bits + 16, "no_route", {}))
        for t0 in range(topology.lab.t0_per_plane):
            if t0 != switch.index and topology.lab.t1_per_plane:
                entries.append(_host_route(plan.t0(t0), plan.bits + 16, "go_up", {}))
    if topology.lab.t1_per_plane:
        entries.append(_uplinks(topology, switch))
    return entries


def _t1_routes(topology: Topology, switch: Switch) -> list[TableEntry]:
    entries = []
    for t0 in range(topology.lab.t0_per_plane):
        port = topology.downlink_number(t0)
        entries.append(_usid_route(addressing.usid(switch.plane, Tier.T0, t0), port))
        for plan in topology.plans:
            entries.append(_host_route(plan.t0(t0), plan.bits + 16, "forward", {"port": port}))
    return entries


def _isolation(topology: Topology, switch: Switch) -> list[TableEntry]:
    """Return what keeps tenants apart: nothing for a switch without hosts."""
    entries = []
    here = [
        (host.segment, topology.host_port(host.index, end.port))
        for port, link in switch.links.items()
        if link.is_host_link
        for end in (switch.peer(port),)
        for host in (topology.host(end.node),)
    ]
    for segment in topology.segments if here else ():
        match = (Match("source", segment.plan.value, segment.plan.bits),)
        params = {"segment": segment.number}
        entries.append(TableEntry(SOURCE_SEGMENTS, "FabricIngress.routing.in_segment", params, match))
    own = dict.fromkeys((port.tenant_usid, segment.number) for segment, port in here)
    for usid, number in own:
        if usid is not None:
            match = (Match("usid_prefix", addressing.usid_prefix(usid)),)
            entries.append(TableEntry(TENANT_USIDS, "FabricIngress.routing.end_dt6", {"segment": number}, match))
    for segment, port in here:
        for table in (INGRESS_SEGMENTS, EGRESS_SEGMENTS):
            match = (Match("port", port.t0_port),)
            params = {"segment": segment.number}
            entries.append(TableEntry(table, "FabricIngress.isolation.only", params, match))
    return entries


def _graph_routes(topology: GraphTopology, switch: Switch) -> list[TableEntry]:
    entries = []
    for port, link in switch.links.items():
        peer = link.other(switch.name)
        if link.is_host_link:
            usid = topology.host_port(topology.host(peer.node).index, peer.port).usid
        else:
            usid = topology.switch(peer.node).usid
        entries.append(_usid_route(usid, port))
    for address, port in topology.plain_routes(switch):
        entries.append(_host_route(int.from_bytes(address, "big"), 128, "forward", {"port": port}))
    return entries


def _uplinks(topology: Topology, switch: Switch) -> TableEntry:
    """Return the lab's routing mode."""
    lab = topology.lab
    uplink = MODES[lab.routing.mode].uplink(lab.routing, switch.device_id)
    params = {"first_port": topology.first_uplink, "count": lab.t1_per_plane, **uplink.params}
    return TableEntry(UPLINK_CHOICE, f"FabricIngress.uplinks.{uplink.action}", params, default=True)


def _classes() -> list[TableEntry]:
    def entry(dscp: int, action: str, params: dict[str, int]) -> TableEntry:
        name = f"FabricIngress.queueing.{action}"
        return TableEntry(TRAFFIC_CLASSES, name, params, (Match("dscp", dscp),))

    control = {"priority": CONTROL_PRIORITY}
    return [
        entry(DSCP_NO_TRIM, "data_class", {"trimmable": 0}),
        entry(DSCP_TRIMMABLE, "data_class", {"trimmable": 1}),
        entry(DSCP_TRIMMABLE_RETX, "data_class", {"trimmable": 1}),
        entry(DSCP_TRIMMED, "control_class", control),
        entry(DSCP_TRIMMED_LASTHOP, "control_class", control),
        entry(DSCP_CONTROL, "control_class", control),
    ]


def next_mac(topology: Topology, switch: Switch, port: int) -> int:
    """Return the MAC of what is at the other end of a switch's port."""
    peer = switch.peer(port)
    if switch.links[port].is_host_link:
        return topology.host_port(topology.host(peer.node).index, peer.port).mac
    other = topology.switch(peer.node)
    return addressing.switch_mac(other.plane, other.tier, other.index, peer.port)


def _port(topology: Topology, switch: Switch, port: int) -> TableEntry:
    """Return the settings of an egress port: MACs of the hop, ECN (on host ports if they mark), trimming, limit."""
    link = switch.links[port]
    dst_mac = next_mac(topology, switch, port)
    queue = link.queue
    lossless = DATA_PRIORITY in queue.lossless
    params = {
        "src_mac": addressing.switch_mac(switch.plane, switch.tier, switch.index, port),
        "dst_mac": dst_mac,
        "mark_min": NEVER if link.marks is None else link.marks.kmin,
        "mark_range": 1 if link.marks is None else link.marks.kmax - link.marks.kmin,
        "trims": 0 if queue.trim is None else 1,
        "trim_threshold": NEVER if queue.trim is None else queue.trim.threshold,
        "trim_dscp": DSCP_TRIMMED_LASTHOP if link.is_host_link else DSCP_TRIMMED,
        "trim_priority": CONTROL_PRIORITY,
        # The limit of waiting bytes is then set at the ports through which they came.
        "queue_limit": NEVER if lossless else queue.limit,
        "stall_time": min(NEVER, 4 * queue.limit * 8 * 10**6 // link.spec.rate + STALL_MARGIN_US),
    }
    return TableEntry(PORTS, "FabricIngress.queueing.port_settings", params, (Match("port", port),))


HOP_LIMIT = 64


class WalkError(Exception):
    """A packet that the tables do not deliver; the message says where it was lost and why."""


@dataclass(frozen=True, slots=True)
class PacketPath:
    """The links that a packet crossed, in order, and the host where it arrived."""

    links: tuple[str, ...]
    host: str


class PacketTracer:
    """Follows packets through the entries of a whole lab."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._tables: dict[str, dict[str, list[TableEntry]]] = {}
        for name, entries in all_entries(topology).items():
            tables: dict[str, list[TableEntry]] = {}
            for entry in entries:
                tables.setdefault(entry.table, []).append(entry)
            self._tables[name] = tables

    def srv6(self, src: int, plane: int, route: Srv6Path, inner: bytes = b"") -> PacketPath:
        """Return the path of an SRv6 packet from a host port; `inner` is the destination inside. Raises WalkError."""
        destination = int.from_bytes(route.destination, "big")
        segments = [int.from_bytes(segment, "big") for segment in route.segments]
        port = self.topology.host_port(src, plane)
        node, crossed, came = port.t0, [port.name], port.t0_port
        segment = self._segment(node, int.from_bytes(route.source, "big"))
        for _ in range(HOP_LIMIT):
            prefix = destination >> 80
            if self._exact(node, LOCAL_USID, prefix):
                if destination & (1 << 80) - 1:
                    rest = destination << 16 & (1 << 96) - 1
                    destination = destination >> 96 << 96 | rest
                elif segments:
                    destination = segments.pop(0)
                else:
                    raise WalkError(f"{node}: the path ends here")
            table = self._exact(node, TENANT_USIDS, destination >> 80)
            if table is not None:
                if table.params["segment"] != segment:
                    raise WalkError(f"{node}: denied the table of another tenant")
                entry = self._longest(node, HOST_ROUTES, int.from_bytes(inner, "big"))
                if entry is not None and not self._exact(node, EGRESS_SEGMENTS, entry.params.get("port", 0)):
                    raise WalkError(f"{node}: denied a way behind the table of a tenant")
            else:
                entry = self._exact(node, USID_ROUTES, destination >> 80)
            if entry is None or "port" not in entry.params:
                raise WalkError(f"{node}: no route for uSID {destination >> 80 & 0xFFFF:#06x}")
            link, node, done = self._leave(node, entry.params["port"], segment, came)
            crossed.append(link)
            came = 0
            if done:
                return PacketPath(tuple(crossed), node)
        raise WalkError("hop limit exceeded: the source route loops")

    def plain(
        self, src: int, plane: int, destination: bytes, value: int, *, sprayed_to: int | None = None
    ) -> PacketPath:
        """Return the path of an MRC packet without SRv6 and with an EV; where switches spray, `sprayed_to` is the T1
        assumed for this packet. Raises WalkError."""
        address = int.from_bytes(destination, "big")
        source = self.topology.hosts[src].address
        port = self.topology.host_port(src, plane)
        node, crossed, came = port.t0, [port.name], port.t0_port
        segment = self._segment(node, int.from_bytes(source, "big"))
        for _ in range(HOP_LIMIT):
            entry = self._longest(node, HOST_ROUTES, address)
            if entry is None or entry.action.endswith(".no_route"):
                raise WalkError(f"{node}: no route to {addressing.text(destination)}")
            if entry.action.endswith(".go_up"):
                number = self._uplink(node, source, destination, value, sprayed_to)
            else:
                number = entry.params["port"]
            link, node, done = self._leave(node, number, segment, came)
            crossed.append(link)
            came = 0
            if done:
                return PacketPath(tuple(crossed), node)
        raise WalkError("hop limit exceeded: the routes loop")

    def _leave(self, node: str, number: int, segment: int, came: int) -> tuple[str, str, bool]:
        switch = self.topology.switch(node)
        if number not in switch.links or self._exact(node, PORTS, number) is None:
            raise WalkError(f"{node}: no port {number}")
        for table, port in ((INGRESS_SEGMENTS, came), (EGRESS_SEGMENTS, number)):
            entry = self._exact(node, table, port)
            if entry is not None and entry.params["segment"] != segment:
                raise WalkError(f"{node}: denied port {port} of another tenant")
        peer = switch.peer(number)
        link = switch.links[number]
        return link.name, peer.node, link.is_host_link

    def _exact(self, node: str, table: str, value: int) -> TableEntry | None:
        for entry in self._tables[node].get(table, []):
            if entry.match and entry.match[0].value == value:
                return entry
        return None

    def _segment(self, node: str, source: int) -> int:
        entry = self._longest(node, SOURCE_SEGMENTS, source)
        return 0 if entry is None else entry.params["segment"]

    def _longest(self, node: str, table: str, address: int) -> TableEntry | None:
        best: tuple[int, TableEntry] | None = None
        for entry in self._tables[node].get(table, []):
            match: Match = entry.match[0]
            length = match.prefix_length or 0
            hit = address >> 128 - length == match.value >> 128 - length
            if hit and (best is None or length > best[0]):
                best = (length, entry)
        return best[1] if best else None

    def _uplink(self, node: str, source: bytes, destination: bytes, value: int, sprayed_to: int | None) -> int:
        entry = self._tables[node][UPLINK_CHOICE][0]
        first, count = entry.params["first_port"], entry.params["count"]
        kind = entry.action.rsplit(".", 1)[-1]
        if kind == "structured_ev":
            choice = value >> 16 >> entry.params["hop_shift"] & entry.params["hop_mask"]
            if choice >= count:
                raise WalkError(f"{node}: hop field {choice} names no uplink")
            return first + choice
        if kind in ("ecmp", "adaptive"):  # any of them is right
            ports = (value & 0xFFFF, addressing.UDP_PORT)
            salt = entry.params["salt"]
            return first + ev.ecmp_uplink(salt, source, destination, value >> 16, ports, 17, count)
        if sprayed_to is None or not 0 <= sprayed_to < count:
            raise WalkError(f"{node}: sprays over {count} uplinks, not to {sprayed_to}")
        return first + sprayed_to


def check_routes(topology: Topology, sources: Sequence[int] | None = None) -> int:
    """Follow every path between every two hosts through the tables, or only from `sources`; return the number of paths.

    In ECMP, where an EV decides, the EVs of each pair's profile are followed instead. Raises WalkError if a packet
    arrives elsewhere or takes another path than `Paths` predicts, or reaches a host of another tenant.
    """
    paths, walker = Paths(topology), PacketTracer(topology)
    mode = paths.mode
    count = 0
    hosts = range(topology.lab.hosts)
    for src, dst in product(hosts if sources is None else sources, hosts):
        if src == dst:
            continue
        if mode.chooser is UplinkChooser.HASH:
            for value in chain.from_iterable(paths.profile(src, dst)):
                expected = paths.path_of_ev(src, dst, value)
                assert expected is not None
                _check(walker, paths, expected, value)
                count += 1
            continue
        for path in paths.all_paths(src, dst):
            by_ev = mode.chooser is UplinkChooser.EV and not mode.carriers
            _check(walker, paths, path, paths.ev_of_path(path) if by_ev else 0)
            count += 1
    return count


def _check(walker: PacketTracer, paths: Paths, expected: Path, value: int) -> None:
    source, target = (walker.topology.hosts[index] for index in (expected.src, expected.dst))
    pair = f"{source.name} to {target.name}"
    try:
        if paths.mode.carriers:
            taken = walker.srv6(source.index, expected.plane, paths.srv6(expected), target.address)
        else:
            taken = walker.plain(source.index, expected.plane, target.address, value, sprayed_to=expected.hop)
    except WalkError:
        if source.segment is target.segment:
            raise
        return
    if source.segment is not target.segment:
        raise WalkError(f"{pair}: arrives, though they are not of one tenant")
    if taken.links != expected.links:
        raise WalkError(f"{pair}: goes {taken.links}, not {expected.links}")
