"""Placement of the parts of a lab on machines (`machines` of a lab file), and the tunnels between them.

A link whose two ends are on different machines is a tunnel: UDP between an address and port on either side. Ports are
numbered on each machine from its `port_base` on, in the order of the lab's links, so that everybody who reads the same
lab file finds the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mrc_topo.base.document import PlacedError
from mrc_topo.schema import MachineSpec
from mrc_topo.tenants import named
from mrc_topo.topology import Host, Link, Switch, Topology, TopologyError

MACHINE = re.compile(r"[a-z][a-z0-9-]{0,15}\Z")
#: Names with another meaning where processes of a lab are named.
RESERVED = ("machine", "lab", "labd", "fabric")
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class TunnelEnd:
    """One end of a tunnel: `local` and `peer` are addresses with a port; `end` and `peer_end` are the numbers of the
    two ends in the lab."""

    machine: str
    node: str
    local: str
    peer: str
    end: int
    peer_end: int


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A link between two machines; `low` is the end at the host or T0, `high` the end at the T0 or T1."""

    link: Link
    low: TunnelEnd
    high: TunnelEnd

    def at(self, machine: str) -> TunnelEnd:
        """Return the tunnel's end on a machine."""
        return self.low if self.low.machine == machine else self.high


class Placement:
    """The slices of a lab; without `machines` in its file there are none.

    Raises:
        TopologyError: a host or switch is in no slice or in two, a name is unknown, or addresses or ports clash.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.machines: dict[str, MachineSpec] = dict(topology.lab.machines)
        #: By the names of hosts and switches.
        self.machine_of: dict[str, str] = {}
        #: By the names of their links.
        self.tunnels: dict[str, Tunnel] = {}
        if self.machines:
            self._check_names()
            hosts, switches = [host.name for host in topology.hosts], [switch.name for switch in topology.switches]
            self._place("hosts", hosts)
            self._place("switches", switches)
            self._check_all("hosts", hosts)
            self._check_all("switches", switches)
            self._check_used()
            self._check_families()
            self._placed_tunnels()

    def hosts(self, machine: str) -> list[Host]:
        """Return the hosts on a machine."""
        return [host for host in self.topology.hosts if self.machine_of[host.name] == machine]

    def switches(self, machine: str) -> list[Switch]:
        """Return the switches on a machine."""
        return [switch for switch in self.topology.switches if self.machine_of[switch.name] == machine]

    def ends(self, machine: str) -> dict[str, TunnelEnd]:
        """Return the tunnels that end on a machine, by link."""
        return {
            name: tunnel.at(machine)
            for name, tunnel in self.tunnels.items()
            if machine in (tunnel.low.machine, tunnel.high.machine)
        }

    def _check_names(self) -> None:
        hosts = {host.name for host in self.topology.hosts}
        for name in self.machines:
            if not MACHINE.match(name) or name in RESERVED or name in hosts:
                raise TopologyError(
                    "the name of a machine has small letters, digits and '-', a letter first, at most 16, and is not "
                    f"that of a host, nor {', '.join(RESERVED)}",
                    ("machines", name),
                )

    def _place(self, kind: str, names: Sequence[str]) -> None:
        for machine, spec in self.machines.items():
            for index, word in enumerate(getattr(spec, kind)):
                key = ("machines", machine, kind, index)
                try:
                    found = named(word, names, key)
                except PlacedError as error:
                    raise TopologyError(str(error), error.key) from None
                if not found:
                    shown = f"{', '.join(names[:3])} to {names[-1]}" if len(names) > 4 else ", ".join(names)
                    raise TopologyError(f"'{word}' is not one of the lab's {kind}; it has {shown}", key)
                for name in found:
                    other = self.machine_of.setdefault(name, machine)
                    if other != machine:
                        raise TopologyError(f"{name} is on machine {other} already; place it once", key)

    def _check_all(self, kind: str, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self.machine_of]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise TopologyError(
                f"{', '.join(missing[:3])}{more} {'is' if len(missing) == 1 else 'are'} on no machine; add to the "
                f"{kind} of one",
                ("machines",),
            )

    def _check_families(self) -> None:
        first = next(iter(self.machines))
        for machine, spec in self.machines.items():
            if (":" in spec.address) is not (":" in self.machines[first].address):
                raise TopologyError(
                    f"{spec.address} and {self.machines[first].address} of machine {first} are not of one family; give "
                    "all IPv4 or all IPv6",
                    ("machines", machine, "address"),
                )

    def _check_used(self) -> None:
        for machine in self.machines:
            if machine not in self.machine_of.values():
                raise TopologyError("no host and no switch is here; place some, or leave it out", ("machines", machine))

    def _placed_tunnels(self) -> None:
        """Fill `tunnels`, and give each end the next UDP port of its machine."""
        used = dict.fromkeys(self.machines, 0)
        for link in self.topology.links.values():
            ends = [(self.machine_of[end.node], end.node) for end in (link.low, link.high)]
            if ends[0][0] == ends[1][0]:
                continue
            places = []
            for machine, _ in ends:
                places.append((self.machines[machine].address, self.machines[machine].port_base + used[machine]))
                used[machine] += 1
            low, high = (f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address, port in places)
            number = 2 * len(self.tunnels)
            self.tunnels[link.name] = Tunnel(
                link,
                TunnelEnd(*ends[0], low, high, number + 1, number + 2),
                TunnelEnd(*ends[1], high, low, number + 2, number + 1),
            )
        self._check_ports(used)

    def _check_ports(self, used: dict[str, int]) -> None:
        taken: list[tuple[str, str, range]] = []
        for machine, spec in self.machines.items():
            ports = range(spec.port_base, spec.port_base + used[machine])
            if ports and ports[-1] > MAX_PORT:
                raise TopologyError(
                    f"{len(ports)} tunnels end here, and the last would have port {ports[-1]}; "
                    f"lower it to {MAX_PORT + 1 - len(ports)} at most",
                    ("machines", machine, "port_base"),
                )
            for other, address, theirs in taken:
                if address == spec.address and ports and theirs and ports[0] <= theirs[-1] and theirs[0] <= ports[-1]:
                    raise TopologyError(
                        f"ports {ports[0]} to {ports[-1]} of {address} are machine {other}'s, too (it has "
                        f"{theirs[0]} to {theirs[-1]}); give one of them another address or port_base",
                        ("machines", machine, "port_base"),
                    )
            taken.append((machine, spec.address, ports))
