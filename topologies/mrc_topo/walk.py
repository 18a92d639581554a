"""A packet's way through the table entries, without a switch: what `validate` and the tests check routes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product

from mrc_topo import addressing, ev, rules
from mrc_topo.modes import UplinkChooser
from mrc_topo.paths import Paths, Srv6Path
from mrc_topo.rules import Match, TableEntry
from mrc_topo.topology import Path, Topology

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
        for name, entries in rules.all_entries(topology).items():
            tables: dict[str, list[TableEntry]] = {}
            for entry in entries:
                tables.setdefault(entry.table, []).append(entry)
            self._tables[name] = tables

    def srv6(self, src: int, plane: int, route: Srv6Path) -> PacketPath:
        """Return the path of an SRv6 packet from a host port. Raises WalkError."""
        destination = int.from_bytes(route.destination, "big")
        segments = [int.from_bytes(segment, "big") for segment in route.segments]
        port = self.topology.host_port(src, plane)
        node, crossed = port.t0, [port.name]
        for _ in range(HOP_LIMIT):
            prefix = destination >> 80
            if self._exact(node, rules.LOCAL_USID, prefix):
                if destination & (1 << 80) - 1:
                    rest = destination << 16 & (1 << 96) - 1
                    destination = destination >> 96 << 96 | rest
                elif segments:
                    destination = segments.pop(0)
                else:
                    raise WalkError(f"{node}: the path ends here")
            entry = self._exact(node, rules.USID_ROUTES, destination >> 80)
            if entry is None or "port" not in entry.params:
                raise WalkError(f"{node}: no route for uSID {destination >> 80 & 0xFFFF:#06x}")
            link, node, done = self._leave(node, entry.params["port"])
            crossed.append(link)
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
        node, crossed = port.t0, [port.name]
        for _ in range(HOP_LIMIT):
            entry = self._longest(node, address)
            if entry is None or entry.action.endswith(".no_route"):
                raise WalkError(f"{node}: no route to {addressing.text(destination)}")
            if entry.action.endswith(".go_up"):
                number = self._uplink(node, source, destination, value, sprayed_to)
            else:
                number = entry.params["port"]
            link, node, done = self._leave(node, number)
            crossed.append(link)
            if done:
                return PacketPath(tuple(crossed), node)
        raise WalkError("hop limit exceeded: the routes loop")

    def _leave(self, node: str, number: int) -> tuple[str, str, bool]:
        switch = self.topology.switch(node)
        if number not in switch.links or self._exact(node, rules.PORTS, number) is None:
            raise WalkError(f"{node}: no port {number}")
        peer = switch.peer(number)
        link = switch.links[number]
        return link.name, peer.node, link.is_host_link

    def _exact(self, node: str, table: str, value: int) -> TableEntry | None:
        for entry in self._tables[node].get(table, []):
            if entry.match and entry.match[0].value == value:
                return entry
        return None

    def _longest(self, node: str, address: int) -> TableEntry | None:
        best: tuple[int, TableEntry] | None = None
        for entry in self._tables[node].get(rules.HOST_ROUTES, []):
            match: Match = entry.match[0]
            length = match.prefix_length or 0
            hit = address >> 128 - length == match.value >> 128 - length
            if hit and (best is None or length > best[0]):
                best = (length, entry)
        return best[1] if best else None

    def _uplink(self, node: str, source: bytes, destination: bytes, value: int, sprayed_to: int | None) -> int:
        entry = self._tables[node][rules.UPLINK_CHOICE][0]
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
    arrives elsewhere or takes another path than `Paths` predicts.
    """
    paths, walker = Paths(topology), PacketTracer(topology)
    mode = paths.mode
    count = 0
    hosts = range(topology.lab.hosts)
    for src, dst in product(hosts if sources is None else sources, hosts):
        if src == dst:
            continue
        address = topology.hosts[dst].address
        if mode.chooser is UplinkChooser.HASH:
            for value in chain.from_iterable(paths.profile(src, dst)):
                expected = paths.path_of_ev(src, dst, value)
                assert expected is not None
                _check(topology, walker.plain(src, expected.plane, address, value), expected)
                count += 1
            continue
        for path in paths.all_paths(src, dst):
            if mode.carriers:
                taken = walker.srv6(src, path.plane, paths.srv6(path))
            elif mode.chooser is UplinkChooser.EV:
                taken = walker.plain(src, path.plane, address, paths.ev_of_path(path))
            else:
                taken = walker.plain(src, path.plane, address, 0, sprayed_to=path.hop)
            _check(topology, taken, path)
            count += 1
    return count


def _check(topology: Topology, taken: PacketPath, expected: Path) -> None:
    if taken.links != expected.links:
        pair = " to ".join(topology.hosts[index].name for index in (expected.src, expected.dst))
        raise WalkError(f"{pair}: goes {taken.links}, not {expected.links}")
