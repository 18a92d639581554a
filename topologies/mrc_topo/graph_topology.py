"""A lab whose fabric is a graph: any switches, hosts and links, with paths computed instead of given by rule.

A switch with hosts is a T0, one without is a T1. An EV's hop field is the number of a path among those of the pair; the
uSIDs of all its switches and of the host port steer the packet. What has no EV (ping, RoCE, TCP) takes one shortest
path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

from mrc_topo import addressing
from mrc_topo.addressing import Tier
from mrc_topo.base.errors import UsageError
from mrc_topo.graph import Joint, SwitchPaths
from mrc_topo.modes import MODES, RoutingMode
from mrc_topo.schema import GraphSpec, Lab
from mrc_topo.tenants import Segment
from mrc_topo.topology import End, Host, HostPort, Link, Path, PathError, ProbePath, Switch, Topology, TopologyError

#: How many links away from a host's switch a probe can turn and come back within one carrier.
PROBE_REACH = 2
#: Finding this many paths, longer ones included, takes some ten seconds.
MOST_SEARCHED = 1 << 16


def build_topology(lab: Lab) -> Topology:
    """Return the topology of a lab, a Clos or a graph. Raises TopologyError."""
    return Topology(lab) if lab.topology is None else GraphTopology(lab)


def require_clos(topology: Topology, what: str) -> None:
    """Raise UsageError for a graph; `what` begins the sentence."""
    if isinstance(topology, GraphTopology):
        raise UsageError(f"{what} needs the two tiers of a Clos, and the fabric of lab {topology.lab.name} is a graph")


class GraphTopology(Topology):
    """A `Lab` with a graph. Raises TopologyError for one with paths that no source route can hold."""

    def __init__(self, lab: Lab) -> None:
        assert lab.topology is not None
        self.spec: GraphSpec = lab.topology
        joints = self.spec.shape.joints
        known = set(self.spec.hosts)
        self._cables = [each for each in joints if each.low in known]
        #: The links of the file by the names that they have in the lab.
        self._names = {_link_name(each, known): index for index, each in enumerate(joints)}
        self._trunks = {
            frozenset((each.low, each.high)): name
            for name, each in zip(self._names, joints, strict=True)
            if each.low not in known
        }
        edges = {each.high for each in self._cables}
        count: Counter[tuple[int, Tier]] = Counter()
        #: Of every switch: plane, tier, and number among those of its plane and tier.
        self._numbers: dict[str, tuple[int, Tier, int]] = {}
        for name in self.spec.switches:
            plane, tier = self.spec.shape.plane_of[name], Tier.T0 if name in edges else Tier.T1
            self._numbers[name] = (plane, tier, count[plane, tier])
            count[plane, tier] += 1
        #: How many switches a path can have: the host port's uSID is the last of the carriers.
        self.most_switches = MODES[lab.routing.mode].carriers * addressing.CARRIER_USIDS - 1
        self.switch_paths = SwitchPaths(
            self.spec.switches,
            [(each.low, each.high) for each in joints if each.low not in known],
            self.spec.paths.limit,
            self.spec.paths.extra_hops,
            self.most_switches,
        )
        self._check_number()
        self._check_lengths()
        super().__init__(lab)

    @property
    def shape(self) -> str:
        t0s = sum(tier is Tier.T0 for _, tier, _ in self._numbers.values())
        ports = "1 port" if self.lab.planes == 1 else f"{self.lab.planes} ports"
        return f"a graph of {len(self._numbers)} switches, {t0s} of them with hosts, and {ports} a host"

    # --- paths ---------------------------------------------------------------------------------------

    @cached_property
    def hops(self) -> int:
        return max((len(self.switch_paths.between(one, other)) for one, other in self._pairs()), default=1)

    def t0_of(self, host: int) -> int:
        return self.hosts[host].t0

    def hops_between(self, src: int, dst: int, plane: int) -> int:
        return len(self._switch_paths(src, dst, plane))

    def choices(self, src: int, dst: int, plane: int) -> tuple[int | None, ...]:
        self.check_pair(src, dst, plane)
        many = len(self._switch_paths(src, dst, plane))
        return tuple(range(many)) if many > 1 else (None,)

    def path(self, src: int, dst: int, plane: int, hop: int | None) -> Path:
        """Return the path with a hop field, or the first. Fields beyond the number of paths start again at the first,
        so that the EVs of one profile lead to every host."""
        self.check_pair(src, dst, plane)
        if hop is not None and not 0 <= hop < max(self.hops, 1):
            raise PathError(f"no path {hop}; hosts of the lab have up to {self.hops} in a plane")
        found = self._switch_paths(src, dst, plane)
        number = (hop or 0) % len(found)
        switches = found[number]
        start, end = self.host_port(src, plane), self.host_port(dst, plane)
        inner = [self._trunks[frozenset(pair)] for pair in pairwise(switches)]
        usids = tuple(addressing.usid(*self._numbers[name]) for name in switches)
        links = (start.name, *inner, end.name)
        return Path(src, dst, plane, number if len(found) > 1 else None, switches, links, (*usids, end.last_usid))

    def _switch_paths(self, src: int, dst: int, plane: int) -> tuple[tuple[str, ...], ...]:
        return self.switch_paths.between(self.host_port(src, plane).t0, self.host_port(dst, plane).t0)

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Yield every two switches between which hosts have paths in some plane, once."""
        by_plane: dict[int, dict[str, None]] = {}
        for joint in self._cables:
            by_plane.setdefault(joint.low_port, {})[joint.high] = None
        seen: set[tuple[str, str]] = set()
        for switches in by_plane.values():
            for one in switches:
                for other in switches:
                    if (other, one) not in seen and (one, other) not in seen:
                        seen.add((one, other))
                        yield one, other

    def _check_number(self) -> None:
        pairs, asked = sum(1 for _ in self._pairs()), self.spec.paths
        if asked.extra_hops and pairs * asked.limit > MOST_SEARCHED:
            raise TopologyError(
                f"{pairs} pairs of switches with up to {asked.limit} paths each are more than the {MOST_SEARCHED} that "
                f"are searched for; lower limit to {MOST_SEARCHED // pairs}, or leave extra_hops out",
                ("topology", "paths"),
            )

    def _check_lengths(self) -> None:
        at: dict[tuple[int, str], str] = {}
        for joint in self._cables:
            at.setdefault((joint.low_port, joint.high), f"{joint.low}:{joint.low_port}")
        for plane in range(self.spec.shape.planes):
            switches = [switch for port, switch in at if port == plane]
            for one in switches:
                far = self.switch_paths.distances(one)
                for other in switches:
                    if far[other] + 1 > self.most_switches:
                        longer = f", or use routing.mode {RoutingMode.SRV6_SRH.value}, which holds twice as many uSIDs"
                        single = self.most_switches < addressing.CARRIER_USIDS
                        raise TopologyError(
                            f"the shortest path from {at[plane, one]} to {at[plane, other]} has {far[other] + 1} "
                            f"switches, and the uSIDs of a packet hold {self.most_switches} and the host port; add "
                            f"links{longer if single else ''}",
                            ("topology",),
                        )

    # --- probes and plain packets --------------------------------------------------------------------

    def probe_paths(self, host: int) -> list[ProbePath]:
        """Return the probes by which faults are located: to a host's switches, over every link there, and over those
        links beyond whose ends have no hosts that could do so."""
        found = []
        for port in self.hosts[host].ports:
            own = port.t0
            found.append(ProbePath(own, port.plane, (self._usid(own), port.usid), (own,)))
            far = self.switch_paths.distances(own)
            near = sorted((name for name in far if far[name] < PROBE_REACH), key=lambda name: (far[name], name))
            towards = self.switch_paths.towards(own)
            for one in near:
                if one != own and self._numbers[one][1] is Tier.T0:
                    continue
                out = [own, one] if one != own else [own]
                for other in self.switch_paths.graph[one]:
                    if far[other] < far[one] or other == towards.get(one):
                        continue
                    if one != own and (self._numbers[other][1] is Tier.T0 or (far[other] == far[one] and other < one)):
                        continue
                    way = [*out, other]
                    links = tuple(self._trunks[frozenset(pair)] for pair in pairwise(way))
                    usids = (*map(self._usid, [*way, *out[::-1]]), port.usid)
                    found.append(ProbePath(links[-1], port.plane, usids, tuple(way), links))
        return found

    def _usid(self, switch: str) -> int:
        return addressing.usid(*self._numbers[switch])

    def plain_routes(self, switch: Switch) -> Iterator[tuple[bytes, int]]:
        """Yield the addresses that a switch knows, each with the port on a shortest path to the nearest port that has
        it."""
        numbers = {switch.peer(port).node: port for port in switch.links}
        far = self.switch_paths.distances(switch.name)
        for host in self.hosts:
            there = [port for port in host.ports if port.t0 in far]
            nearest = min(there, key=lambda port: (far[port.t0], port.plane))
            for address, port in ((host.address, nearest), *((each.address, each) for each in there)):
                if port.t0 == switch.name:
                    yield address, port.t0_port
                else:
                    yield address, numbers[self.switch_paths.towards(port.t0)[switch.name]]

    def base_rtt_ns(self, frame_bytes: int, ack_bytes: int = 150) -> int:
        """Return the time of one full frame and of its answer through empty queues, on the longest path of any EV."""
        return max(
            self._round_trip_ns(self.path(src, dst, plane, hop).links, frame_bytes, ack_bytes)
            for plane, src, dst in self._examples_of_pairs()
            for hop in self.choices(src, dst, plane)
        )

    def _examples_of_pairs(self) -> Iterator[tuple[int, int, int]]:
        """Yield a plane and two hosts for every two switches and the rates and delays of their ports."""
        for plane in range(self.lab.planes):
            some: dict[tuple[str, int, int], int] = {}
            for host in self.hosts:
                port = host.ports[plane]
                spec = self.links[port.name].spec
                some.setdefault((port.t0, spec.rate, spec.delay), host.index)
            yield from ((plane, src, dst) for src in some.values() for dst in some.values())

    # --- construction --------------------------------------------------------------------------------

    def _make_hosts(self) -> tuple[Host, ...]:
        at: dict[str, dict[int, Joint]] = {}
        slots: dict[tuple[str, int], int] = {}
        members: Counter[str] = Counter()
        for joint in sorted(self._cables, key=lambda each: each.high_port):
            at.setdefault(joint.low, {})[joint.low_port] = joint
            slots[joint.low, joint.low_port] = members[joint.high]
            members[joint.high] += 1
        hosts: list[Host] = []
        for index, name in enumerate(self.spec.hosts):
            first, segment = at[name][0].high, self.lab.segments[name]
            t0, slot = self._numbers[first][2], slots[name, 0]
            mine = sorted(at[name].items())
            if segment.usid(0) is not None and len({each.high for _, each in mine}) < len(mine):
                raise TopologyError(
                    f"two ports of {name} are at one switch, whose table of a tenant can have one only; use host",
                    ("tenants", segment.name, "decapsulation"),
                )
            ports = tuple(
                self._port(index, joint, slots[name, plane], (t0, slot), segment)
                for plane, joint in sorted(at[name].items())
            )
            hosts.append(Host(index, name, t0, slot, segment.plan.host(t0, slot), ports, segment))
        return tuple(hosts)

    def _port(self, index: int, joint: Joint, slot: int, place: tuple[int, int], segment: Segment) -> HostPort:
        plane = joint.low_port
        return HostPort(
            host=index,
            plane=plane,
            name=f"{joint.low}:{plane}",
            interface=addressing.host_interface(index, plane),
            mac=addressing.host_mac(index, plane),
            gateway_mac=addressing.switch_mac(*self._numbers[joint.high], joint.high_port),
            address=segment.plan.port(plane, *place),
            usid=addressing.usid(plane, Tier.HOST, slot),
            t0=joint.high,
            t0_port=joint.high_port,
            tenant_usid=segment.usid(plane),
        )

    def _make_links(self) -> list[Link]:
        links = []
        known = set(self.spec.hosts)
        for (name, index), joint in zip(self._names.items(), self.spec.shape.joints, strict=True):
            is_host = joint.low in known
            plane = joint.low_port if is_host else self.spec.shape.plane_of[joint.low]
            usual = self.lab.links.host if is_host else self.lab.links.fabric
            ends = End(joint.low, joint.low_port), End(joint.high, joint.high_port)
            links.append(self._link(name, plane, *ends, usual, self.spec.links[index]))
        return links

    def _queue_key(self, link: str) -> tuple[str | int, ...]:
        if link in self.lab.overrides or self.spec.links[self._names[link]].queue is None:
            return super()._queue_key(link)
        return ("topology", "links", self._names[link], "queue")

    def _make_switches(self, links: dict[str, dict[int, Link]]) -> list[Switch]:
        return [
            Switch(name, *self._numbers[name], number, self._usid(name), dict(sorted(links[name].items())))
            for number, name in enumerate(self.spec.switches, 1)
        ]

    def _examples(self) -> str:
        first = next(iter(self._trunks.values()), None)
        shown = f"{self.hosts[0].ports[0].name}" + (f" or {first}" if first else "")
        return f"{shown}, switches like {self.spec.switches[0]}, hosts like {self.hosts[0].name}"


def _link_name(joint: Joint, hosts: set[str]) -> str:
    return f"{joint.low}:{joint.low_port}" if joint.low in hosts else f"{joint.low}--{joint.high}"
