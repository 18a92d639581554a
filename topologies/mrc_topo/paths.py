"""EV <-> path <-> uSID stack, both ways, in every routing mode."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from mrc_topo import addressing, ev
from mrc_topo.addressing import Tier
from mrc_topo.modes import MODES, UplinkChooser, ecmp_salt
from mrc_topo.topology import Host, Link, Path, PathError, ProbePath, Switch, Topology


class Srv6Path(NamedTuple):
    """The outer addresses of a packet, 16 bytes each: destination, segments after it in travel order, source."""

    destination: bytes
    segments: tuple[bytes, ...] = ()
    source: bytes = b""


class Paths:
    """All path computations of a topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.lab = topology.lab
        self.mode = MODES[topology.lab.routing.mode]
        self.path = lru_cache(maxsize=65536)(self._path)

    # --- paths -------------------------------------------------------------------------------------

    def _path(self, src: int, dst: int, plane: int, hop: int | None = None) -> Path:
        """Return the path from host to host in a plane with a hop field (`Topology.path`). Raises PathError."""
        return self.topology.path(src, dst, plane, hop)

    def all_paths(self, src: int, dst: int, plane: int | None = None) -> tuple[Path, ...]:
        """Return every path between two hosts, plane by plane (or in one plane)."""
        planes: Iterable[int] = range(self.lab.planes) if plane is None else (plane,)
        return tuple(self.path(src, dst, p, hop) for p in planes for hop in self.topology.choices(src, dst, p))

    # --- EV <-> path -------------------------------------------------------------------------------

    def path_of_ev(self, src: int, dst: int, value: int, plane: int | None = None) -> Path | None:
        """Return the path a packet with this EV takes; None when the switch sprays and the path cannot be predicted.

        `plane` is only needed for EVs not made by `mrc_topo.ev` (AUTO profiles). Raises PathError for a hop
        field that names no T1.
        """
        plane = ev.plane_of(value) if plane is None else plane
        if self.mode.chooser is UplinkChooser.EV:
            return self.path(src, dst, plane, ev.hop_of(value))
        if self.topology.t0_of(src) == self.topology.t0_of(dst):
            return self.path(src, dst, plane, None)
        if self.mode.chooser is UplinkChooser.SWITCH:
            self.path(src, dst, plane, 0)
            return None
        t0 = self.topology.device_id(plane, Tier.T0, self.topology.t0_of(src))
        hosts = self.topology.hosts
        t1 = ev.ecmp_uplink(
            ecmp_salt(t0),
            hosts[src].address,
            hosts[dst].address,
            value >> 16,
            (value & 0xFFFF, addressing.UDP_PORT),
            17,
            self.lab.t1_per_plane,
        )
        return self.path(src, dst, plane, t1)

    def ev_of_path(self, path: Path, salt: int = 0) -> int:
        """Return an EV that takes this path: the first from `salt` (0..16383) on. Raises PathError if none does.

        By rule in structured and SRv6 modes; by search in ECMP; impossible where switches spray.
        """
        if path.hop is None or self.mode.chooser is UplinkChooser.EV:
            return ev.make_ev(path.plane, path.hop or 0, salt)
        if self.mode.chooser is UplinkChooser.HASH:
            for step in range(ev.SALTS):
                value = ev.make_ev(path.plane, 0, (salt + step) % ev.SALTS)
                if self.path_of_ev(path.src, path.dst, value) == path:
                    return value
        raise PathError(f"in routing mode {self.lab.routing.mode.value} no EV is sure to take a path")

    def profile(self, src: int, dst: int, qp: int = 0) -> tuple[tuple[int, ...], ...]:
        """Return the EV universe of a QP from `src` to `dst`, one tuple per plane. It depends on the lab's seed, the
        pair and `qp`."""
        lab = self.lab
        rng = random.Random(f"{lab.seed}/{lab.name}/{src}/{dst}/{qp}")
        hops = [self.topology.hops_between(src, dst, plane) for plane in range(lab.planes)]
        return ev.draw_profile(lab.routing.mode, hops, lab.ev.size, rng)

    # --- path <-> uSID stack -----------------------------------------------------------------------

    def srv6(self, path: Path) -> Srv6Path:
        """Return the outer addresses that steer a packet along a path.

        In mode srv6_srh the first carrier leads to the T1 (below one T0: to the T0), and the second, in the SRH, to the
        host port; otherwise one carrier holds all uSIDs. The last uSID is that of the host port. On a long path through
        a graph the first carrier holds as many as it can.
        """
        source = self.topology.host_port(path.src, path.plane).address
        if self.mode.carriers < 2:
            return Srv6Path(addressing.carrier(path.usids), (), source)
        split = min(len(path.usids) - 2 or 1, addressing.CARRIER_USIDS)
        first, second = path.usids[:split], path.usids[split:]
        return Srv6Path(addressing.carrier(first), (addressing.carrier(second),), source)

    def path_of_srv6(self, src: int, route: Srv6Path) -> Path:
        """Return the path that outer addresses describe, as `srv6` makes them. Raises PathError."""
        try:
            usids = addressing.parse_carrier(route.destination)
            for segment in route.segments:
                usids += addressing.parse_carrier(segment)
            if self.lab.topology is not None:
                return self._path_of_usids(src, usids)
            parts = [addressing.parse_usid(value) for value in usids]
        except ValueError as error:
            raise PathError(str(error)) from error
        tiers = tuple(tier for _, tier, _ in parts)
        if parts and parts[-1][1] is Tier.HOST and parts[-1][2] >= addressing.FIRST_TENANT:
            raise PathError("the uSIDs end in a tenant's table: only the destination inside says at which host")
        if len({plane for plane, _, _ in parts}) != 1:
            raise PathError("the uSIDs are of different planes, which share nothing")
        plane = parts[0][0]
        if tiers == (Tier.T0, Tier.HOST):
            t1 = None
        elif tiers == (Tier.T0, Tier.T1, Tier.T0, Tier.HOST):
            t1 = parts[1][2]
        else:
            raise PathError(f"uSIDs of {', '.join(tier.name for tier in tiers)} are no path host to host")
        dst = parts[-2][2] * self.lab.hosts_per_t0 + parts[-1][2]
        path = self.path(src, dst, plane, t1)
        if path.usids != usids:
            raise PathError("the uSIDs do not begin at the source's T0")
        return path

    def _path_of_usids(self, src: int, usids: tuple[int, ...]) -> Path:
        """Return the path through a graph whose uSIDs these are."""
        switches = {switch.usid: switch for switch in self.topology.switches}
        last = switches.get(usids[-2]) if len(usids) > 1 else None
        for host in self.topology.hosts:
            for port in host.ports:
                if last is not None and (port.t0, port.usid) == (last.name, usids[-1]):
                    for path in self.all_paths(src, host.index, port.plane):
                        if path.usids == usids:
                            return path
        shown = " ".join(f"{each:04x}" for each in usids)
        raise PathError(f"no path from {self.topology.hosts[src].name} has the uSIDs {shown}")

    def resolver(self, src: int) -> Callable[[int, bytes], Srv6Path]:
        """Return a function from (32-bit EV, inner destination address) to outer addresses of packets from `src`.

        The function raises PathError for an address that no host has or an EV that names no path.
        """
        by_address = self.topology.by_address

        @lru_cache(maxsize=65536)
        def resolve(value: int, destination: bytes) -> Srv6Path:
            try:
                dst = by_address[destination]
            except KeyError:
                raise PathError(f"no host has the address {addressing.text(destination)}") from None
            path = self.path(src, dst, ev.plane_of(value), ev.hop_of(value))
            return self.srv6(path)

        return resolve

    def probe(self, host: int, plane: int, t1: int | None = None) -> Srv6Path:
        """Return the outer addresses of a probe from a host to its T0, or on to a T1, and back to the same port."""
        return self.srv6_of(host, self.topology.probe_path(host, plane, t1))

    def srv6_of(self, host: int, probe: ProbePath) -> Srv6Path:
        """Return the outer addresses that steer a probe from a host along its path and back."""
        return Srv6Path(addressing.carrier(probe.usids), (), self.topology.host_port(host, probe.plane).address)

    # --- what crosses what -------------------------------------------------------------------------

    def may_cross(self, element: Link | Switch | Host, src: int, dst: int, value: int) -> bool:
        """Return whether a packet of this EV crosses an element; in spray mode, whether it may."""
        path = self.path_of_ev(src, dst, value)
        if path is not None:
            return self.crosses(element, path)
        return any(self.crosses(element, each) for each in self.all_paths(src, dst, ev.plane_of(value)))

    @staticmethod
    def crosses(element: Link | Switch | Host, path: Path) -> bool:
        """Return whether a path uses an element."""
        if isinstance(element, Link):
            return element.name in path.links
        if isinstance(element, Switch):
            return element.name in path.switches
        return element.index in (path.src, path.dst)

    def evs_crossing(self, element: Link | Switch | Host, src: int, dst: int, values: Iterable[int]) -> tuple[int, ...]:
        """Return those of `values` whose packets from `src` to `dst` cross (in spray mode: may cross) an element."""
        return tuple(value for value in values if self.may_cross(element, src, dst, value))

    # --- expectations ------------------------------------------------------------------------------

    def base_rtt_ns(self, frame_bytes: int, ack_bytes: int = 150) -> int:
        """Return the time of one full frame from the first host to the last and of its answer, through empty queues."""
        return self.topology.base_rtt_ns(frame_bytes, ack_bytes)
