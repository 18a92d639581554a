"""The built laboratory: hosts, switches, ports and links of a `Lab`, as plain objects and as a networkx graph."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from mrc_topo import addressing
from mrc_topo.addressing import AddressPlan, Tier
from mrc_topo.base.errors import UsageError
from mrc_topo.schema import Lab, LinkSpec, MarkingError, Marks, Override, QueueSpec, marks
from mrc_topo.tenants import COMMON, Segment

if TYPE_CHECKING:
    import networkx as nx

ETHERNET_BYTES = 14


class TopologyError(Exception):
    """A lab that cannot be built; `key` is the path of the wrong key in the lab file."""

    def __init__(self, message: str, key: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.key = key


class PathError(Exception):
    """An EV, a segment list or a pair of hosts without a path."""


class UnknownElement(UsageError, LookupError):
    """A name of no element of the lab; the message suggests similar ones."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a link. A host's port number is its plane."""

    node: str
    port: int


@dataclass(frozen=True, slots=True)
class Link:
    """A link with equal directions. `low` is the host or the T0, `high` the T0 or the T1."""

    name: str
    plane: int
    low: End
    high: End
    spec: LinkSpec
    queue: QueueSpec
    loss: float = 0.0
    corrupt: float = 0.0
    #: Where its queues mark (on a link of a host: the switch's queue), None: never.
    marks: Marks | None = None

    @property
    def is_host_link(self) -> bool:
        return ":" in self.name

    def other(self, node: str) -> End:
        """Return the end that is not at `node`."""
        return self.high if self.low.node == node else self.low


@dataclass(frozen=True, slots=True)
class HostPort:
    """Port `plane` of a host, and the switch port at the other end of its cable."""

    host: int
    plane: int
    name: str
    interface: str
    mac: int
    gateway_mac: int
    address: bytes
    usid: int
    t0: str
    t0_port: int
    #: The uSID of its tenant's table at the T0, where that takes the outer header off.
    tenant_usid: int | None = None

    @property
    def last_usid(self) -> int:
        """The last uSID of a path from another host."""
        return self.usid if self.tenant_usid is None else self.tenant_usid


@dataclass(frozen=True, slots=True)
class Host:
    """A host with one port per plane; its QPs use `address` on all of them."""

    index: int
    name: str
    t0: int
    slot: int
    address: bytes
    ports: tuple[HostPort, ...]
    segment: Segment = COMMON


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch. `links` are by port number, from 1; on a T0 host ports come first, then uplinks."""

    name: str
    plane: int
    tier: Tier
    index: int
    device_id: int
    usid: int
    links: dict[int, Link] = field(hash=False)

    def peer(self, port: int) -> End:
        """Return what is at the other end of a port."""
        return self.links[port].other(self.name)


@dataclass(frozen=True, slots=True)
class Path:
    """A path from a host port to another in a plane; `hop` is the hop field of its EVs: the number of the T1, or of the
    path among those of a graph. It is None below one T0."""

    src: int
    dst: int
    plane: int
    hop: int | None
    switches: tuple[str, ...]
    links: tuple[str, ...]
    usids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProbePath:
    """The path of a probe from a host port to an element and back: the uSIDs, and the switches and links between
    switches that it crosses on its way out."""

    target: str
    plane: int
    usids: tuple[int, ...]
    switches: tuple[str, ...]
    links: tuple[str, ...] = ()


class Topology:
    """A `Lab` with all names and addresses that the rules of `mrc_topo.addressing` give it. Raises TopologyError.

    This is the Clos; `mrc_topo.graph_topology.GraphTopology` is a graph, and `build_topology` returns what a lab has.
    """

    #: Parts of the lab's files that are left out: a line for each, which users see.
    notes: Sequence[str] = ()

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._used_overrides: set[str] = set()
        self.hosts = self._make_hosts()
        by_switch: dict[str, dict[int, Link]] = {}
        self.links = {link.name: link for link in self._make_links()}
        # A share of the base RTT is known only when all links are.
        base_rtt_ns = lab.cc.base_rtt or self.base_rtt_ns(lab.interface_mtu + ETHERNET_BYTES)
        for name, link in self.links.items():
            self.links[name] = link = replace(link, marks=self._marks(link, base_rtt_ns))
            for end in (link.low, link.high):
                by_switch.setdefault(end.node, {})[end.port] = link
        self.switches = tuple(self._make_switches(by_switch))
        unused = sorted(set(lab.overrides) - self._used_overrides)
        if unused:
            raise TopologyError(f"no link of that name{self._near(unused[0], self.links)}", ("overrides", unused[0]))
        self._switch_by_name = {switch.name: switch for switch in self.switches}
        self._host_by_name = {host.name: host for host in self.hosts}

    def for_transport(self, transport: str) -> Topology:
        """Return the same fabric with the queues for a transport (`Lab.for_transport`)."""
        lab = self.lab.for_transport(transport)
        return self if lab is self.lab else self.with_lab(lab)

    def with_lab(self, lab: Lab) -> Self:
        """Return the topology of a lab that differs from this one in settings, not in shape."""
        made = type(self)(lab)
        made.notes = self.notes
        return made

    # --- numbers by rule -----------------------------------------------------------------------------

    def host_port_number(self, slot: int) -> int:
        """Return the T0 port of the host in a slot."""
        return 1 + slot

    @property
    def first_uplink(self) -> int:
        """The T0 port of the link to T1 number 0; the others follow."""
        return 1 + self.lab.hosts_per_t0

    def uplink_number(self, t1: int) -> int:
        """Return the T0 port of the link to a T1."""
        return self.first_uplink + t1

    def downlink_number(self, t0: int) -> int:
        """Return the T1 port of the link to a T0."""
        return 1 + t0

    def t0_of(self, host: int) -> int:
        """Return the number of the T0 (in every plane) to which a host connects."""
        return host // self.lab.hosts_per_t0

    def hosts_of(self, t0: int) -> tuple[Host, ...]:
        """Return the hosts at a T0 number."""
        return tuple(host for host in self.hosts if host.t0 == t0)

    def device_id(self, plane: int, tier: Tier, index: int) -> int:
        """Return the P4Runtime device id: from 1, plane after plane, T0s before T1s."""
        per_plane = self.lab.t0_per_plane + self.lab.t1_per_plane
        return 1 + plane * per_plane + index + (self.lab.t0_per_plane if tier is Tier.T1 else 0)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The tenants, and what stands for the hosts in none if there are any."""
        return tuple(sorted({host.segment for host in self.hosts}, key=lambda segment: segment.number))

    @property
    def plans(self) -> list[AddressPlan]:
        """The address plans of all hosts."""
        return [segment.plan for segment in self.segments]

    # --- look-up ------------------------------------------------------------------------------------

    def switch(self, name: str) -> Switch:
        """Return the switch of a name. Raises UnknownElement."""
        try:
            return self._switch_by_name[name]
        except KeyError:
            raise UnknownElement(
                f"no switch '{name}' in lab {self.lab.name}{self._near(name, self._switch_by_name)}"
            ) from None

    def host(self, name: str | int) -> Host:
        """Return the host of a name or number. Raises UnknownElement."""
        if isinstance(name, int) and 0 <= name < len(self.hosts):
            return self.hosts[name]
        word = addressing.host_name(name) if isinstance(name, int) else name
        try:
            return self._host_by_name[word]
        except KeyError:
            raise UnknownElement(
                f"no host '{word}' in lab {self.lab.name}{self._near(word, self._host_by_name)}"
            ) from None

    def host_port(self, host: int, plane: int) -> HostPort:
        """Return a host's port in a plane."""
        return self.hosts[host].ports[plane]

    def element(self, name: str) -> Link | Switch | Host:
        """Return the link, host port (a link, too), switch or host of a name. Raises UnknownElement."""
        for group in (self.links, self._switch_by_name, self._host_by_name):
            if name in group:
                found: Link | Switch | Host = group[name]
                return found
        ends = name.split("--")
        swapped = f"{ends[1]}--{ends[0]}" if len(ends) == 2 else ""
        if swapped in self.links:
            return self.links[swapped]
        known = {**self.links, **self._switch_by_name, **self._host_by_name}
        raise UnknownElement(
            f"nothing in lab {self.lab.name} is called '{name}'{self._near(name, known)}; "
            f"links are like {self._examples()}"
        )

    def _examples(self) -> str:
        return "p0-t0.1--p0-t1.0 or h3:2, switches like p0-t1.0, hosts like h3"

    @staticmethod
    def _near(name: str, known: Iterable[str]) -> str:
        near = difflib.get_close_matches(name, list(known), 3, 0.5)
        return f"; near ones: {', '.join(near)}" if near else ""

    @cached_property
    def by_address(self) -> dict[bytes, int]:
        """The number of the host by address: a host's own, or that of one of its ports."""
        found = {host.address: host.index for host in self.hosts}
        found |= {port.address: host.index for host in self.hosts for port in host.ports}
        return found

    # --- paths ---------------------------------------------------------------------------------------

    @property
    def shape(self) -> str:
        """The shape in words: `4 planes of 4 T0 and 2 T1`."""
        return f"{self.lab.planes} planes of {self.lab.t0_per_plane} T0 and {self.lab.t1_per_plane} T1"

    @property
    def hops(self) -> int:
        """How many values an EV's hop field has; 0 where nothing is to be chosen."""
        return self.lab.t1_per_plane

    def hops_between(self, src: int, dst: int, plane: int) -> int:
        """Return the number of values over which the EVs of two hosts are spread in a plane."""
        return self.lab.t1_per_plane

    def choices(self, src: int, dst: int, plane: int) -> tuple[int | None, ...]:
        """Return the hop fields of the paths between two hosts in a plane, one each."""
        return (None,) if self.t0_of(src) == self.t0_of(dst) else tuple(range(self.lab.t1_per_plane))

    def path(self, src: int, dst: int, plane: int, hop: int | None) -> Path:
        """Return the path from host to host in a plane with a hop field (ignored below one T0).

        Raises:
            PathError: there is no such host, plane or path.
        """
        lab = self.lab
        self.check_pair(src, dst, plane)
        t0_src, t0_dst = self.t0_of(src), self.t0_of(dst)
        first = addressing.switch_name(plane, Tier.T0, t0_src)
        last = addressing.switch_name(plane, Tier.T0, t0_dst)
        start, end = addressing.host_port_name(src, plane), addressing.host_port_name(dst, plane)
        tail = (addressing.usid(plane, Tier.T0, t0_dst), self.host_port(dst, plane).last_usid)
        if t0_src == t0_dst:
            return Path(src, dst, plane, None, (first,), (start, end), tail)
        if hop is None or not 0 <= hop < lab.t1_per_plane:
            raise PathError(f"no T1 {hop} in plane {plane}; the lab has 0 to {lab.t1_per_plane - 1}")
        spine = addressing.switch_name(plane, Tier.T1, hop)
        up = addressing.fabric_link_name(plane, t0_src, hop)
        down = addressing.fabric_link_name(plane, t0_dst, hop)
        usids = (
            addressing.usid(plane, Tier.T0, t0_src),
            addressing.usid(plane, Tier.T1, hop),
            *tail,
        )
        return Path(src, dst, plane, hop, (first, spine, last), (start, up, down, end), usids)

    def check_pair(self, src: int, dst: int, plane: int) -> None:
        """Raise PathError if there are no such hosts or there is no such plane."""
        lab = self.lab
        if not (0 <= src < lab.hosts and 0 <= dst < lab.hosts):
            raise PathError(f"no hosts {src} and {dst}; the lab has 0 to {lab.hosts - 1}")
        if not 0 <= plane < lab.planes:
            raise PathError(f"no plane {plane}; the lab has 0 to {lab.planes - 1}")

    def probe_paths(self, host: int) -> list[ProbePath]:
        """Return the probes by which faults are located: to a host's T0 and every T1 of every plane, and back."""
        t1s = (None, *range(self.lab.t1_per_plane))
        return [self.probe_path(host, plane, t1) for plane in range(self.lab.planes) for t1 in t1s]

    def probe_path(self, host: int, plane: int, t1: int | None = None) -> ProbePath:
        """Return the probe from a host to its T0, or on to a T1, and back to the same port. Raises PathError."""
        port = self.host_port(host, plane)
        t0 = addressing.usid(plane, Tier.T0, self.t0_of(host))
        if t1 is None:
            return ProbePath(port.t0, plane, (t0, port.usid), (port.t0,))
        if not 0 <= t1 < self.lab.t1_per_plane:
            raise PathError(f"no T1 {t1} in plane {plane}; the lab has 0 to {self.lab.t1_per_plane - 1}")
        name = addressing.switch_name(plane, Tier.T1, t1)
        link = addressing.fabric_link_name(plane, self.t0_of(host), t1)
        usids = (t0, addressing.usid(plane, Tier.T1, t1), t0, port.usid)
        return ProbePath(name, plane, usids, (port.t0, name), (link,))

    # --- construction -------------------------------------------------------------------------------

    def _make_hosts(self) -> tuple[Host, ...]:
        return tuple(self._host(index) for index in range(self.lab.hosts))

    def _host(self, index: int) -> Host:
        t0, slot = divmod(index, self.lab.hosts_per_t0)
        port_number, name = self.host_port_number(slot), addressing.host_name(index)
        segment = self.lab.segments[name]
        ports = tuple(
            HostPort(
                host=index,
                plane=plane,
                name=addressing.host_port_name(index, plane),
                interface=addressing.host_interface(index, plane),
                mac=addressing.host_mac(index, plane),
                gateway_mac=addressing.switch_mac(plane, Tier.T0, t0, port_number),
                address=segment.plan.port(plane, t0, slot),
                usid=addressing.usid(plane, Tier.HOST, slot),
                t0=addressing.switch_name(plane, Tier.T0, t0),
                t0_port=port_number,
                tenant_usid=segment.usid(plane),
            )
            for plane in range(self.lab.planes)
        )
        return Host(index, name, t0, slot, segment.plan.host(t0, slot), ports, segment)

    def _make_links(self) -> list[Link]:
        lab = self.lab
        links: list[Link] = []
        for plane in range(lab.planes):
            for host in self.hosts:
                port = host.ports[plane]
                low, high = End(host.name, plane), End(port.t0, port.t0_port)
                links.append(self._link(port.name, plane, low, high, lab.links.host))
            for t0 in range(lab.t0_per_plane):
                for t1 in range(lab.t1_per_plane):
                    name = addressing.fabric_link_name(plane, t0, t1)
                    low = End(addressing.switch_name(plane, Tier.T0, t0), self.uplink_number(t1))
                    high = End(addressing.switch_name(plane, Tier.T1, t1), self.downlink_number(t0))
                    links.append(self._link(name, plane, low, high, lab.links.fabric))
        return links

    def _link(self, name: str, plane: int, low: End, high: End, spec: LinkSpec, own: Override | None = None) -> Link:
        override = self.lab.overrides.get(name, own or Override())
        if name in self.lab.overrides:
            self._used_overrides.add(name)
        usual = spec.rate
        spec = LinkSpec(
            rate=spec.rate if override.rate is None else override.rate,
            delay=spec.delay if override.delay is None else override.delay,
        )
        queue = self.lab.queues if override.queue is None else override.queue
        if override.queue is None and override.rate is not None and override.rate < usual:
            # Thresholds are meant as times: on a slow link, bytes that last a few round trips elsewhere would outlast
            # the local ACK timeout.
            queue = queue.at_rate(override.rate, usual, self.lab.interface_mtu + 14)
        return Link(name, plane, low, high, spec, queue, override.loss, override.corrupt)

    def _marks(self, link: Link, base_rtt_ns: int) -> Marks | None:
        """Return where the queues of a link mark. Raises TopologyError for thresholds that they cannot have."""
        ecn = link.queue.ecn
        if ecn is None:
            return None
        try:
            found = marks(ecn, link.is_host_link, link.name, link.spec.rate, base_rtt_ns, link.queue.limit)
        except MarkingError as error:
            raise TopologyError(str(error), (*self._queue_key(link.name), "ecn", error.key)) from error
        # They must be possible also where MRC does not mark, because RoCE does (`Lab.for_transport`).
        return None if link.is_host_link and not ecn.last_hop else found

    def _queue_key(self, link: str) -> tuple[str | int, ...]:
        """Return the key of the lab file that a link's queues come from."""
        override = self.lab.overrides.get(link)
        own = override is not None and override.queue is not None
        return ("overrides", link, "queue") if own else ("queues",)

    def base_rtt_ns(self, frame_bytes: int, ack_bytes: int = 150) -> int:
        """Return the time of one full frame from the first host to the last and of its answer, through empty queues.

        The path is that of plane 0 through its first T1.
        """
        first, last = self.hosts[0], self.hosts[-1]
        names = [first.ports[0].name, last.ports[0].name]
        if first.t0 != last.t0:
            names[1:1] = [addressing.fabric_link_name(0, host.t0, 0) for host in (first, last)]
        return self._round_trip_ns(names, frame_bytes, ack_bytes)

    def _round_trip_ns(self, names: Sequence[str], frame_bytes: int, ack_bytes: int) -> int:
        return self._one_way_ns(names, frame_bytes) + self._one_way_ns(names, ack_bytes)

    def _one_way_ns(self, names: Iterable[str], frame_bytes: int) -> int:
        bits = (frame_bytes + self.lab.link_overhead) * 8
        specs = [self.links[name].spec for name in names]
        return sum(spec.delay + bits * 10**9 // spec.rate for spec in specs)

    def _make_switches(self, links: dict[str, dict[int, Link]]) -> list[Switch]:
        lab = self.lab
        switches: list[Switch] = []
        for plane in range(lab.planes):
            for tier, count in ((Tier.T0, lab.t0_per_plane), (Tier.T1, lab.t1_per_plane)):
                for index in range(count):
                    name = addressing.switch_name(plane, tier, index)
                    switches.append(
                        Switch(
                            name,
                            plane,
                            tier,
                            index,
                            self.device_id(plane, tier, index),
                            addressing.usid(plane, tier, index),
                            dict(sorted(links.get(name, {}).items())),
                        )
                    )
        return switches

    @cached_property
    def graph(self) -> nx.Graph:
        """Nodes `h3`, `p0-t0.1`, `p0-t1.0` with `kind` (host, t0, t1), `plane` (None for hosts) and `index`;
        edges keyed by link name, with `plane`, `rate_bps`, `delay_ns` and `ports` (node -> port)."""
        # networkx takes a quarter of the start of a command, and few commands ask for the graph.
        import networkx as nx

        graph = nx.MultiGraph(name=self.lab.name)
        for host in self.hosts:
            graph.add_node(host.name, kind="host", plane=None, index=host.index)
        for switch in self.switches:
            graph.add_node(switch.name, kind=switch.tier.name.lower(), plane=switch.plane, index=switch.index)
        for link in self.links.values():
            graph.add_edge(
                link.low.node,
                link.high.node,
                key=link.name,
                plane=link.plane,
                rate_bps=link.spec.rate,
                delay_ns=link.spec.delay,
                ports={link.low.node: link.low.port, link.high.node: link.high.port},
            )
        return graph
