"""From a topology to what the parts of a lab are started with: the fabric's description, the hosts' configurations."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from mrc_host.node.config import NodeConfig
from mrc_host.node.mapper import ProbeTarget
from mrc_topo import addressing, rules
from mrc_topo.capacity import Capacity
from mrc_topo.ev import generated_fields, make_ev
from mrc_topo.modes import MODES
from mrc_topo.paths import Paths
from mrc_topo.schema import EvMode, NicSpec, QueueSpec
from mrc_topo.topology import Host, Link, Switch, Topology
from mrclab.lab.records.record import CAPTURES, LabFolder
from p4lite.switch.description import (
    FabricDescription,
    LinkDescription,
    PortDescription,
    SwitchDescription,
    TunnelDescription,
)
from p4lite.switch.fabric.values import CreditSettings, LinkSettings, PfcSettings, QueueLimits, pfc_headroom_bytes

#: The room in the base RTT for the scheduling of processes on the real clock, beside `nic.rx_usecs` at either end.
REAL_CLOCK_RTT_NS = 1_000_000
#: The largest exponent of the local ACK timeout.
LONGEST_TIMEOUT = 24
#: What a late agent may send at once to catch up on the real clock, and how much later it looks at a pause frame.
AGENT_PAUSE_NS = 10_000_000
ETHERNET_BYTES = 14
#: The shortest interval between wakeups of the fabric's loop. Links of tens of Mb/s take milliseconds for a packet.
ROUND_US = 250
#: Planes that differ by less than this share of a host's capacity are not worth a warning.
USABLE = 0.99
#: How many packet times on a link of the lab the other planes wait for one that does not move.
PATIENCE_PACKETS = 4
#: The interval between two probes of one target by the Clustermapper.
PROBE_INTERVAL_NS = 100_000_000
#: The setting of a lab file by which hosts can be frozen and killed one by one.
PER_HOST = "`agents: {processes: per-host}`"
#: The number of the port behind port 1, where another backend than the fabric process forwards.
BEHIND = 1000
#: The device that only carries frames between host interfaces and tunnels to their T0s; no switch of a lab has its id.
RELAY = 60_000
#: Queue capacity is in bytes, so the limit of packets must be out of reach.
PACKETS_LIMIT = 1 << 16
FULL_QUEUE = QueueLimits(packets=PACKETS_LIMIT)
V = TypeVar("V")
#: A value in a section of an endpoint's configuration.
Setting = bool | int | float | str | None


@dataclass(frozen=True)
class FabricPlan:
    """The wiring of the fabric. `interfaces` maps (switch name, port) to the interface there, where there is one.

    In memory a fabric's own links have none; with veth links between processes they have one at each end. With
    `realtime` the thread that all switches' links depend on may precede the hosts' processes. `behind` has the
    interfaces to the backend that forwards in the fabric's place: the fabric then carries the links only, and every
    port is a wire to the one behind it. `tunnels` are ports whose links lead to another machine, in the form that the
    fabric process takes; `relays` are interfaces of hosts whose T0 is on another machine, each with its tunnel there.
    """

    grpc_address: str
    clock: Literal["real", "virtual"]
    interfaces: Mapping[tuple[str, int], str]
    realtime: bool = False
    behind: Mapping[tuple[str, int], str] = field(default_factory=dict)
    tunnels: Mapping[tuple[str, int], TunnelDescription] = field(default_factory=dict)
    relays: Mapping[str, TunnelDescription] = field(default_factory=dict)


def agent_command(folder: LabFolder, hosts: Sequence[str], *, wait: bool = False) -> list[str]:
    """Return the command that runs the agent of these hosts, or with `wait` has it wait for a line first."""
    places = [str(path) for host in hosts for path in (folder.config(host), folder.socket(host))]
    return [sys.executable, "-P", "-m", "mrc_host.agent", *(["--wait"] if wait else []), *places]


def agent_groups(topology: Topology, hosts: Sequence[Host] | None = None) -> list[list[str]]:
    """Return groups of hosts (all if None) that share an agent's process here. Neighbours share one only if they must,
    because they often work at the same time."""
    names = [host.name for host in (topology.hosts if hosts is None else hosts)]
    if not names:
        return []
    count = topology.lab.agents.groups(len(names), len(os.sched_getaffinity(0)))
    return [names[first::count] for first in range(count)]


def sharing(topology: Topology) -> list[str]:
    """Return the hosts of the first process that runs more than one; an empty list where each host has its own."""
    return next((names for names in agent_groups(topology) if len(names) > 1), [])


def frame_bytes(topology: Topology) -> int:
    """Return the size of a full packet with its Ethernet header, in bytes."""
    return topology.lab.interface_mtu + ETHERNET_BYTES


def held_bytes(topology: Topology, link: Link) -> int:
    """Return the bytes that the queue of a link holds before it trims, or drops where it does not trim."""
    trim = link.queue.trim
    return link.queue.limit if trim is None else trim.threshold + frame_bytes(topology)


def trim_rtts(topology: Topology, port_bps: float, base_rtt_ns: int) -> float:
    """Return the base RTTs that the queue of the slowest link between switches holds before it trims, at a port's rate:
    `model.trim_rtts` of a cluster file. A lab gives slow links shorter queues."""
    fabric = [link for link in topology.links.values() if not link.is_host_link]
    slowest = min(fabric, key=lambda link: link.spec.rate)
    return held_bytes(topology, slowest) * 8e9 / port_bps / base_rtt_ns


def base_rtt_ns(topology: Topology, clock: str) -> int:
    """Return the lab's base RTT with room for late processes (ns): the lab file's, or computed from the longest
    path."""
    lab = topology.lab
    if lab.cc.base_rtt is not None:
        return lab.cc.base_rtt
    real_ns = REAL_CLOCK_RTT_NS + 2 * 1000 * lab.nic.rx_usecs
    return Paths(topology).base_rtt_ns(frame_bytes(topology)) + (real_ns if clock == "real" else 0)


def control_rtt_ns(topology: Topology, clock: str) -> int:
    """Return the base RTT of congestion control (ns): the same on both clocks with the usual `nic.rx_usecs`.

    The target delay follows from it. Only the largest window has room for late processes, because the interval in which
    quick adapt counts follows the measured RTT: with a longer base RTT and window, a fair share of an incast of seven
    was below the bound under which quick adapt cuts the window.
    """
    if topology.lab.cc.base_rtt is not None:
        return topology.lab.cc.base_rtt
    unusual_ns = 2 * 1000 * max(topology.lab.nic.rx_usecs - NicSpec().rx_usecs, 0)
    return Paths(topology).base_rtt_ns(frame_bytes(topology)) + (unusual_ns if clock == "real" else 0)


def ack_timeout_exponent(topology: Topology) -> int:
    """Return t of the QPs' local ACK timeout, 1.024 us * 2^t (`mrc-protocol.md §4`).

    It is the lab file's, or the default, made longer where a slow link's full queue would outlast it: a timeout that
    expires for a packet that waits its turn marks every EV of that plane as bad. Headers of trimmed packets go first on
    such a link, so that its data may take three times as long.
    """
    lab = topology.lab
    exponent = lab.reliability.timeout
    if "timeout" in lab.reliability.model_fields_set:
        return exponent
    usual = min(lab.links.host.rate, lab.links.fabric.rate)
    for link in topology.links.values():
        if link.spec.rate < usual:
            full_ns = held_bytes(topology, link) * 8 * 10**9 // link.spec.rate
            while 1024 << exponent < 3 * full_ns and exponent < LONGEST_TIMEOUT:
                exponent += 1
    return exponent


def ack_timeout_ns(topology: Topology) -> int:
    """Return the QPs' local ACK timeout in ns."""
    return 1024 << ack_timeout_exponent(topology)


def _settings(link: Link, overhead: int) -> LinkSettings:
    return LinkSettings(
        rate_bps=link.spec.rate,
        delay_ns=link.spec.delay,
        overhead_bytes=overhead,
        loss=link.loss,
        corrupt=link.corrupt,
    )


def _queues(spec: QueueSpec) -> dict[int, QueueLimits]:
    limits = {rules.DATA_PRIORITY: spec.limit, rules.CONTROL_PRIORITY: spec.control_limit}
    lossless = spec.lossless
    # The bytes of a lossless priority are limited at the ports through which they came.
    none = QueueLimits(packets=0, bytes=0)
    return {
        priority: none if priority in lossless else QueueLimits(PACKETS_LIMIT, limit)
        for priority, limit in limits.items()
    }


def needed_headroom(topology: Topology, link: Link, clock: str) -> int:
    """Return the headroom in bytes with which priority flow control loses no packet at the end of a link."""
    lab, rate = topology.lab, link.spec.rate
    needed = pfc_headroom_bytes(rate, link.spec.delay, frame_bytes(topology), lab.link_overhead)
    if clock == "real" and link.is_host_link:
        # What an agent has sent before it looks at a pause frame is on its way.
        needed += rate * (AGENT_PAUSE_NS + lab.nic.rx_usecs * 1000) // (8 * 10**9)
    return needed


def _pfc(topology: Topology, link: Link, clock: str) -> dict[int, PfcSettings]:
    spec = link.queue.pfc
    if spec is None:
        return {}
    watchdog = spec.watchdog
    settings = PfcSettings(
        xoff_bytes=spec.xoff,
        xon_bytes=spec.xoff // 2 if spec.xon is None else spec.xon,
        headroom_bytes=needed_headroom(topology, link, clock) if spec.headroom is None else spec.headroom,
        quanta=spec.quanta,
        detection_ns=0 if watchdog is None else watchdog.detection,
        restoration_ns=0 if watchdog is None else watchdog.restoration,
    )
    return dict.fromkeys(spec.priorities, settings)


def _credits(link: Link) -> dict[int, CreditSettings]:
    spec = link.queue.credits
    if spec is None:
        return {}
    return {rules.DATA_PRIORITY: CreditSettings(spec.buffer, (rules.DSCP_CREDITED,))}


def warnings(topology: Topology, clock: str, transport: str) -> list[str]:
    """Return warnings for the user: parts of the lab's files that are left out, links whose headroom for flow control
    is too small, and hosts that cannot use all of their planes because MRC loads these equally."""
    found: dict[tuple[int, int], list[str]] = {}
    for link in topology.for_transport(transport).links.values():
        pfc = link.queue.pfc
        if pfc is not None and pfc.headroom is not None:
            needed = needed_headroom(topology, link, clock)
            if pfc.headroom < needed:
                found.setdefault((pfc.headroom, needed), []).append(link.name)
    return [
        *topology.notes,
        *(
            f"queues.pfc.headroom ({given} bytes) is too small for {names[0]}"
            + (f" and {len(names) - 1} more links" if len(names) > 1 else "")
            + f", which need {needed} bytes (rate x delay both ways, three packets, a pause frame): packets may be lost"
            for (given, needed), names in found.items()
        ),
        *(_unequal(topology) if transport == "mrc" else []),
    ]


def _unequal(topology: Topology) -> list[str]:
    """Return a warning where planes differ, with the numbers of the host that loses most."""
    if all(
        len({link.spec.rate for link in topology.links.values() if link.is_host_link is at_host}) < 2
        for at_host in (True, False)
    ):
        return []
    capacity = Capacity(topology)
    reached = {host.name: capacity.sprayed(host.index) for host in topology.hosts}
    share = {name: equal / whole for name, (equal, whole) in reached.items() if equal < USABLE * whole}
    if not share:
        return []
    worst = min(share, key=lambda name: share[name])
    equal, whole = (bps / 1e6 for bps in reached[worst])
    more = f"; {len(share) - 1} more hosts lose, too" if len(share) > 1 else ""
    # A plane that needs longer for a packet than others wait for it holds them back in part only.
    slowest = reached[worst][0] / topology.lab.planes
    waited_for = slowest * PATIENCE_PACKETS >= min(topology.lab.links.host.rate, topology.lab.links.fabric.rate)
    reaches = "reaches" if waited_for else "reaches at least"
    return [
        f"planes are loaded equally but differ in rate: at full load {worst} {reaches} {equal:g} of {whole:g} Mb/s "
        f"({share[worst]:.0%}), because of the slowest{more}"
    ]


def _port_description(topology: Topology, plan: FabricPlan, switch: Switch, number: int) -> PortDescription:
    link, place = switch.links[number], (switch.name, number)
    pfc, credits = _pfc(topology, link, plan.clock), _credits(link)
    interface, tunnel = plan.interfaces.get(place), plan.tunnels.get(place)
    settings = _settings(link, topology.lab.link_overhead)
    # On a link between two processes, the switch at the other end shapes the other direction.
    own = link.is_host_link or interface is not None or tunnel is not None
    return PortDescription(
        number,
        name=f"{switch.name}:{number}",
        queues=_queues(link.queue),
        pfc=pfc,
        credits=credits,
        mac=addressing.switch_mac(switch.plane, switch.tier, switch.index, number) if pfc or credits else 0,
        to_host=settings if own else None,
        to_switch=settings if link.is_host_link else None,
        interface=interface,
        tunnel=tunnel,
    )


def _switch_description(topology: Topology, plan: FabricPlan, switch: Switch) -> SwitchDescription:
    ports = [_port_description(topology, plan, switch, number) for number in switch.links]
    behind = switch.links if plan.behind else ()
    ports += [
        PortDescription(
            BEHIND + number,
            name=f"{switch.name}:{number} behind",
            interface=plan.behind[switch.name, number],
            queue=FULL_QUEUE,
        )
        for number in behind
    ]
    return SwitchDescription(
        switch.device_id,
        name=switch.name,
        priority_queues=rules.PRIORITY_QUEUES,
        ports=tuple(ports),
        patches=tuple((number, BEHIND + number) for number in behind),
    )


def _relays(plan: FabricPlan) -> list[SwitchDescription]:
    """Return the relays that carry frames between hosts and T0s on other machines; they apply the links' rates and
    delays.
    """
    if not plan.relays:
        return []
    ports: list[PortDescription] = []
    for interface, tunnel in plan.relays.items():
        ports.append(PortDescription(len(ports) + 1, interface=interface, queue=FULL_QUEUE))
        ports.append(PortDescription(len(ports) + 1, tunnel=tunnel, queue=FULL_QUEUE))
    patches = tuple((first, first + 1) for first in range(1, len(ports), 2))
    return [SwitchDescription(RELAY, name="relay", ports=tuple(ports), patches=patches)]


def fabric_description(
    topology: Topology, plan: FabricPlan, switches: Sequence[Switch] | None = None
) -> FabricDescription:
    """Return the description from which `p4lite.switch.server` builds a process; pipelines follow by P4Runtime.

    It has all switches, or only `switches`, with the links between them in memory; their other links are interfaces or
    tunnels.
    """
    lab = topology.lab
    switches = topology.switches if switches is None else switches
    here = {each.name for each in switches}
    links = []
    for link in topology.links.values():
        if not link.is_host_link and {link.low.node, link.high.node} <= here:
            a, b = ((topology.switch(end.node).device_id, end.port) for end in (link.low, link.high))
            links.append(LinkDescription(a, b, _settings(link, lab.link_overhead)))
    return FabricDescription(
        clock=plan.clock,
        grpc_server_addr=plan.grpc_address,
        seed=lab.seed & 0x7FFFFFFF,
        round_us=ROUND_US,
        realtime=plan.realtime,
        # On the virtual clock the fabric is in this process, which writes captures itself.
        files=CAPTURES if plan.clock == "real" else None,
        switches=(*(_switch_description(topology, plan, each) for each in switches), *_relays(plan)),
        links=tuple(links),
    )


def endpoint_settings(topology: Topology, clock: str) -> dict[str, dict[str, Setting]]:
    """Return the sections of every endpoint's configuration that follow from the lab file."""
    lab = topology.lab
    credits = lab.queues.credits is not None
    packet_ns = frame_bytes(topology) * 8 * 10**9 // min(lab.links.host.rate, lab.links.fabric.rate)
    rtt = base_rtt_ns(topology, clock)
    max_wnd = lab.cc.max_wnd
    if max_wnd is None and clock == "real":
        # Here the smallest RTT has no lateness of the hosts in it, so it does not measure what must be in flight.
        max_wnd = 3 * lab.host_rate_bps * rtt // (2 * 8 * 10**9)
    cc: dict[str, Setting] = {
        "algorithm": lab.cc.algorithm,
        "line_rate_bps": lab.host_rate_bps,
        "base_rtt_ns": control_rtt_ns(topology, clock),
        "trimming": lab.queues.trim is not None,
        "fixed_window_bytes": lab.cc.fixed_window,
        "target_qdelay_ns": lab.cc.target_qdelay,
        "max_wnd_bytes": max_wnd,
        "initial_cwnd_bytes": lab.cc.initial_cwnd,
        "gamma": lab.cc.gamma,
        "max_md_jump": lab.cc.max_md_jump,
        "disable_qa": lab.cc.disable_qa,
        "qa_gate": lab.cc.qa_gate,
        "qa_threshold_ns": lab.cc.qa_threshold,
        "fi": lab.cc.fi,
        "fi_scale": lab.cc.fi_scale,
        "eta": lab.cc.eta,
        "adjust_bytes_threshold": lab.cc.adjust_bytes,
        "adjust_period_threshold_ns": lab.cc.adjust_period,
    }
    return {
        "wire": {
            "mtu": lab.path_mtu,
            "payload": lab.payload,
            "udp_port": addressing.UDP_PORT,
            "fabric_trims": lab.queues.trim is not None,
            "dscp_no_trim": rules.DSCP_CREDITED if credits else rules.DSCP_NO_TRIM,
            "dscp_trimmable": rules.DSCP_TRIMMABLE,
            "dscp_trimmable_retx": rules.DSCP_TRIMMABLE_RETX,
            "dscp_trimmed": rules.DSCP_TRIMMED,
            "dscp_trimmed_lasthop": rules.DSCP_TRIMMED_LASTHOP,
            "dscp_control": rules.DSCP_CONTROL,
        },
        "reliability": {
            **lab.reliability.model_dump(),
            "timeout": ack_timeout_exponent(topology),
            "mpr_dest": lab.reliability.mpr,
            "sack_delay_ns": lab.reliability.sack_every * packet_ns,
        },
        "ev": {
            "mode": lab.ev.mode.value,
            "fmt": MODES[lab.routing.mode].encapsulation,
            "count": lab.ev.size,
            "active": lab.ev.active,
            "ev_min_active": lab.ev.min_active,
            "probe_interval_ns": lab.ev.probe_interval,
            "probe_timeout_ns": lab.ev.probe_timeout,
            "probes_to_revive": lab.ev.probes_to_revive,
        },
        "cc": cc,
        "roce": {**lab.roce.model_dump(), "credits": credits},
        "ports": {
            "status_repeat_ns": rtt,
            "status_repeat_max_ns": 64 * rtt,
            "balance_patience_ns": PATIENCE_PACKETS * packet_ns,
        },
    }


class _LazyPeers(Mapping[str, V]):
    """A mapping from peers' addresses to what a function returns for host and peer, computed on demand: all pairs of a
    large lab would take more memory than its simulation."""

    def __init__(self, topology: Topology, host: Host, function: Callable[[Topology, Host, Host], V]) -> None:
        self._topology = topology
        self._host = host
        self._function = function

    def __getitem__(self, address: str) -> V:
        try:
            packed = ipaddress.IPv6Address(address).packed
        except ValueError:
            raise KeyError(address) from None
        peer = self._topology.hosts[self._topology.by_address[packed]]
        if peer.address != packed or peer.index == self._host.index:
            raise KeyError(address)
        return self._function(self._topology, self._host, peer)

    def __iter__(self) -> Iterator[str]:
        return (addressing.text(peer.address) for peer in self._topology.hosts if peer.index != self._host.index)

    def __len__(self) -> int:
        return len(self._topology.hosts) - 1


def _profile(topology: Topology, host: Host, peer: Host) -> list[list[int]]:
    """Return the EVs of a host towards a peer, by plane."""
    return [list(plane) for plane in Paths(topology).profile(host.index, peer.index)]


def _routes(topology: Topology, host: Host, peer: Host) -> dict[str, list[str]]:
    """Return the outer addresses that lead from a host to a peer, by the upper half of the EV."""
    resolve = Paths(topology).resolver(host.index)
    routes = {}
    for plane in range(topology.lab.planes):
        for hop in range(max(topology.hops, 1)):
            value = make_ev(plane, hop, 0)
            route = resolve(value, peer.address)
            addresses = [route.source, route.destination, *route.segments]
            routes[str(value >> 16)] = [addressing.text(each) for each in addresses]
    return routes


def host_config(topology: Topology, host: Host, clock: str, transport: str = "mrc") -> NodeConfig:
    """Return the configuration of a host's agent. Its data per peer is a `dict` on the real clock, where it becomes
    JSON, and is computed on demand on the virtual one."""
    lab = topology.lab
    profiles: Mapping[str, list[list[int]]] = {}
    routes: Mapping[str, dict[str, list[str]]] = {}
    if lab.ev.mode is EvMode.EXPLICIT:
        profiles = _LazyPeers(topology, host, _profile)
    if MODES[lab.routing.mode].carriers:
        routes = _LazyPeers(topology, host, _routes)
    if clock == "real":
        profiles, routes = dict(profiles), dict(routes)
    fields = generated_fields(lab.routing.mode, topology.hops) if lab.ev.mode is EvMode.GENERATED else []
    settings = endpoint_settings(topology, clock)
    if host.segment.max_wnd is not None:
        settings["cc"]["max_wnd_bytes"] = host.segment.max_wnd
    return NodeConfig(
        name=host.name,
        address=addressing.text(host.address),
        ports=lab.planes,
        rate_bps=[topology.links[port.name].spec.rate for port in host.ports],
        transport=transport,
        seed=lab.seed * 1000 + host.index,
        interfaces=[port.interface for port in host.ports],
        macs=[addressing.mac_text(port.mac) for port in host.ports],
        gateways=[addressing.mac_text(port.gateway_mac) for port in host.ports],
        profiles=profiles,
        generated=[dataclasses.asdict(each) for each in fields],
        paths=routes,
        settings=settings,
        probes=probe_targets(topology, host),
        probe_interval_ns=PROBE_INTERVAL_NS,
        probe_timeout_ns=max(4 * base_rtt_ns(topology, clock), PROBE_INTERVAL_NS),
        moderation_ns=lab.nic.rx_usecs * 1000 if clock == "real" else 0,
        policies={kind: given for kind, given in lab.policies.named.items() if kind != "localiser"},
        verbs=lab.agents.verbs.model_dump(),
    )


def probe_targets(topology: Topology, host: Host) -> list[ProbeTarget]:
    """Return the targets of a host's Clustermapper (`Topology.probe_paths`), back to the same port."""
    paths = Paths(topology)
    targets = []
    for each in topology.probe_paths(host.index):
        route = paths.srv6_of(host.index, each)
        texts = (addressing.text(address) for address in (route.source, route.destination))
        targets.append(ProbeTarget(each.target, each.plane, *texts))
    return targets
