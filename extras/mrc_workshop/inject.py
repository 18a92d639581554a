"""Packets of a check's own: what is sent into a fabric without hosts, and where each must be seen.

The same plan is made twice from lab and seed: by the confined process, which sends it, and by the judge, who knows from
it what every switch has to do (`mrc-protocol.md §9`; addresses by rule, docs/topology.md).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from mrc_topo import addressing, rules
from mrc_topo.addressing import Tier
from mrc_topo.ev import make_ev
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology

GAP_NS = 2_000_000
HOP_LIMIT = 64
PAYLOAD = 64
#: The first PSN of the packets of `looks`.
LOOKS = 1 << 20


@dataclass(frozen=True)
class Hop:
    """The required behaviour of one switch: `out_port` None: drop the packet; `destination`: the address when it
    leaves."""

    switch: str
    in_port: int
    out_port: int | None
    destination: bytes


@dataclass(frozen=True)
class InjectedPacket:
    """A packet from a host port. `number` is its PSN, which identifies it; `what` says what it tests."""

    number: int
    host: int
    plane: int
    what: str
    frame: bytes
    at_ns: int
    hops: tuple[Hop, ...]


def _frame(topology: Topology, host: int, plane: int, destination: bytes, target: int, value: int, psn: int) -> bytes:
    """Return a frame: Ethernet, outer IPv6 with a carrier, and an MRC WRITE Only (payload and ICRC are filler)."""
    port = topology.hosts[host].ports[plane]
    body = struct.pack("!BBHIII", 0xCA, 0x40, 0xFFFF, 0x11, psn, 0)[:12] + bytes(20) + b"\x5a" * PAYLOAD + bytes(4)
    udp = struct.pack("!HHHH", value & 0xFFFF, addressing.UDP_PORT, 8 + len(body), 0) + body
    words = 6 << 28 | 4 << 22 | 2 << 20 | value >> 16
    inner = struct.pack("!IHBB", words, len(udp), 17, HOP_LIMIT)
    inner += topology.hosts[host].address + topology.hosts[target].address + udp
    outer = struct.pack("!IHBB", words, len(inner), 41, HOP_LIMIT) + port.address + destination
    ethernet = port.gateway_mac.to_bytes(6, "big") + port.mac.to_bytes(6, "big") + b"\x86\xdd"
    return ethernet + outer + inner


def _walk(topology: Topology, host: int, plane: int, destination: bytes) -> tuple[Hop, ...]:
    """Return the required behaviour of each switch for a carrier that a host sends, from the lab's own tables."""
    port = topology.hosts[host].ports[plane]
    switch, in_port, address = topology.switch(port.t0), port.t0_port, destination
    hops: list[Hop] = []
    while len(hops) < 2 * addressing.CARRIER_USIDS:
        routes = {
            entry.match[0].value: entry.params["port"]
            for entry in rules.switch_entries(topology, switch)
            if entry.table == rules.USID_ROUTES
        }
        first = int.from_bytes(address[:6], "big")
        if first == addressing.usid_prefix(switch.usid):
            address = address[:4] + address[6:] + bytes(2)
            first = int.from_bytes(address[:6], "big")
        out = routes.get(first)
        hops.append(Hop(switch.name, in_port, out, address))
        if out is None or switch.links[out].is_host_link:
            break
        peer = switch.peer(out)
        switch, in_port = topology.switch(peer.node), peer.port
    return tuple(hops)


def usid_paths(topology: Topology, seed: int) -> list[InjectedPacket]:
    """Return one packet along every path of the lab, in an order that the seed draws. For each T0 there are two more:
    one whose first uSID is the next switch's (routed unshifted), and one whose path ends at the T0 (dropped)."""
    rng = random.Random(f"usid_paths {seed} {topology.lab.name}")
    paths = Paths(topology)
    wanted: list[tuple[int, int, int, str, bytes, int]] = []
    for src in range(topology.lab.hosts):
        for dst in range(topology.lab.hosts):
            if src == dst:
                continue
            for path in paths.all_paths(src, dst):
                value = make_ev(path.plane, path.hop or 0, rng.randrange(1 << 14))
                through = "" if path.hop is None else f" through {path.switches[1]}"
                what = f"h{src}:{path.plane} to h{dst}:{path.plane}{through}"
                wanted.append((src, path.plane, dst, what, addressing.carrier(path.usids), value))
    for plane in range(topology.lab.planes):
        for t0 in range(topology.lab.t0_per_plane):
            host = topology.hosts_of(t0)[0].index
            name = addressing.switch_name(plane, Tier.T0, t0)
            usid = addressing.usid(plane, Tier.T0, t0)
            value = make_ev(plane, 0, rng.randrange(1 << 14))
            end = addressing.carrier((usid,))
            wanted.append((host, plane, host, f"a path that ends at {name}", end, value))
            other = next((each for each in range(topology.lab.hosts) if topology.t0_of(each) != t0), None)
            if other is None:
                continue
            path = rng.choice(paths.all_paths(host, other, plane))
            text = f"h{host}:{plane} to h{other}:{plane}, with {path.switches[1]} first in the address, not {name}"
            wanted.append((host, plane, other, text, addressing.carrier(path.usids[1:]), value))
    rng.shuffle(wanted)
    return [
        InjectedPacket(
            number,
            host,
            plane,
            what,
            _frame(topology, host, plane, destination, target, value, number),
            (number + 1) * GAP_NS,
            _walk(topology, host, plane, destination),
        )
        for number, (host, plane, target, what, destination, value) in enumerate(wanted)
    ]


def looks(topology: Topology) -> list[InjectedPacket]:
    """Return, for every T0, two packets to another T0: one with the T0's own uSID in front, one without.

    They are sent while all switches forward what they have no route for, so that the packet that comes out shows what
    became of the address. They serve to recognise mistakes, not to judge.
    """
    paths = Paths(topology)
    made: list[InjectedPacket] = []
    for plane in range(topology.lab.planes):
        for t0 in range(topology.lab.t0_per_plane):
            host = topology.hosts_of(t0)[0].index
            other = next((each for each in range(topology.lab.hosts) if topology.t0_of(each) != t0), None)
            if other is None:
                continue
            path = paths.all_paths(host, other, plane)[0]
            for usids in (path.usids, path.usids[1:]):
                number = LOOKS + len(made)
                frame = _frame(topology, host, plane, addressing.carrier(usids), other, make_ev(plane, 0, 0), number)
                made.append(InjectedPacket(number, host, plane, "a look", frame, 0, ()))
    return made


PLANS: dict[str, Callable[[Topology, int], list[InjectedPacket]]] = {"usid_paths": usid_paths}
