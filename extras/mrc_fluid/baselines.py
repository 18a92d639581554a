"""Baselines on the same fabric with the same failures: single-path RoCE where switches hash (ECMP), and an
InfiniBand-like fabric whose switches route adaptively.

RoCE has a queue pair (or several) per peer and plane port, each on one path, which the T0 chooses by the hash of
`mrc_topo.ev.ecmp_uplink`; between pods its T1 takes other bits of the same hash, so that the choices do not depend on
each other. When that path dies they stand still until routing has gone around it. An adaptive T0 spreads packets over
those of its paths that live; what it cannot see is a dead link on the far side of a T1, until a subnet manager has
swept. With either, a queue pair whose port is dead breaks once its retries are used up, and its job ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mrc_fluid.evs import Endpoints, Evs
from mrc_fluid.fabric import Bools, Fabric, FabricShape, Floats, Harm
from mrc_fluid.grey import go_back_n
from mrc_fluid.jobs import Flows
from mrc_fluid.kernels import Kernels, workers
from mrc_fluid.schema import RoceSpec
from mrc_fluid.shares import LinkLoads, LinkPrices, Model
from mrc_topo import addressing
from mrc_topo.modes import ecmp_salt

#: Levels of shares that count as one here: there are many more of them than where load is even.
LEVEL = 0.05


@dataclass(frozen=True)
class Usable:
    """The usable shares of the rates of NIC ports and of links between switches.

    `in_flight`: packets of a round trip for each bit per second; go-back-N sends them again when one is lost.
    """

    ports: float = 1.0
    links: float = 1.0
    in_flight: float = 0.0


@dataclass(frozen=True)
class Baseline:
    """The goodput (bits per second) with all links, while routing has not yet gone around the failures, and after that.

    Also how many of all queue pairs stand still meanwhile, how many break, and for how long, s.
    """

    name: str
    before: float
    during: float
    after: float
    stalled: int
    broken: int
    of: int
    outage_s: float


def uplinks(shape: FabricShape, flows: Flows, plane: int, source_ports: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the hash by which T0s choose the uplinks of flows in a plane (CRC-32, before it is reduced to their
    number).
    """
    count = len(flows)
    data = np.zeros((count, 45), np.uint8)
    t0 = flows.src // shape.per_t0
    first = 1 + plane * (shape.t0s + shape.all_t1s + shape.t2s)
    salts = np.array([ecmp_salt(first + each) for each in range(shape.t0s)], np.uint64)
    data[:, 0:4] = salts[t0].astype(">u4").view(np.uint8).reshape(count, 4)
    for nics, at in ((flows.src, 4), (flows.dst, 20)):
        block = np.frombuffer(addressing.HOST_BLOCK.to_bytes(4, "big"), np.uint8)
        data[:, at : at + 4] = block
        data[:, at + 4 : at + 6] = (nics // shape.per_t0).astype(">u2").view(np.uint8).reshape(count, 2)
        data[:, at + 12 : at + 16] = (nics % shape.per_t0 + 1).astype(">u4").view(np.uint8).reshape(count, 4)
    data[:, 40:42] = source_ports.astype(">u2").view(np.uint8).reshape(count, 2)
    data[:, 42:44] = np.frombuffer(addressing.UDP_PORT.to_bytes(2, "big"), np.uint8)
    data[:, 44] = 17
    return _crc32(data)


def _crc32(data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each row."""
    # CRC-32 of a single byte is an entry of the table with the inversions of beginning and end.
    table = np.array([zlib.crc32(bytes([number ^ 0xFF])) ^ 0xFF000000 for number in range(256)], np.uint32)
    found = np.full(len(data), 0xFFFFFFFF, np.uint32)
    for column in data.T:
        found = table[(found ^ column) & 0xFF] ^ (found >> np.uint32(8))
    return found ^ np.uint32(0xFFFFFFFF)


class _Ecmp:
    """RoCE's queue pairs on their paths."""

    def __init__(
        self,
        shape: FabricShape,
        flows: Flows,
        ends: Endpoints,
        spec: RoceSpec,
        kernels: Kernels,
        usable: Usable,
    ) -> None:
        self.shape, self.ends, self.kernels, self.usable = shape, ends, kernels, usable
        self.parts: list[tuple[int, NDArray[np.uint32]]] = []
        for plane in range(shape.planes):
            for number in range(spec.qps_per_plane):
                qp = plane * spec.qps_per_plane + number
                ports = 0xC000 + (np.arange(len(flows)) * 31 + qp * 7919) % 0x4000
                self.parts.append((plane, uplinks(shape, flows, plane, ports)))

    def rates(self, fabric: Fabric, rerouted: bool, demand: float) -> tuple[list[Floats], int, int]:
        """Return the rates of the queue pairs, by plane and number; the number on a dead path; and the number without a
        port.
        """
        shape, paths, ports = self.shape, fabric.dead_paths(), fabric.dead_ports()
        found: list[Floats] = []
        stalled = broken = 0
        each = len(self.parts) // self.shape.planes
        for plane in range(self.shape.planes):
            hashes = [hashed for at, hashed in self.parts if at == plane]
            src, dst = (np.tile(part, each) for part in (self.ends.src, self.ends.dst))
            src_nic, dst_nic = (np.tile(part, each) for part in (self.ends.src_nic, self.ends.dst_nic))
            far = shape.pod_of[src] != shape.pod_of[dst]
            hop = _chosen(shape, np.concatenate(hashes), far)
            dead = (paths[plane, src, hop] | paths[plane, dst, hop]) & (src != dst)
            gone = ports[plane, src_nic] | ports[plane, dst_nic]
            stalled += int(np.count_nonzero(dead & ~gone))
            broken += int(np.count_nonzero(gone))
            if rerouted and dead.any():
                for qp in np.flatnonzero(dead):
                    some = slice(shape.t1s, None) if far[qp] else slice(shape.t1s)
                    first = int(some.start or 0)
                    living = np.flatnonzero(~(paths[plane, src[qp], some] | paths[plane, dst[qp], some]))
                    if len(living):
                        hop[qp] = first + living[(int(hop[qp]) - first) % len(living)]
            ends = Endpoints(src, dst, src_nic, dst_nic)
            rates = self._shares(plane, hop, ends, fabric, demand / each)
            lost = _path_losses(fabric, plane, ends, hop)
            found.append(rates * go_back_n(lost, np.maximum(rates * self.usable.in_flight, 1.0)))
        return found, stalled, broken

    def _shares(self, plane: int, hop: NDArray[np.uint32], ends: Endpoints, fabric: Fabric, demand: float) -> Floats:
        left, one = fabric.rates(), replace(self.shape, planes=1)
        ones = np.ones((1, len(hop)), np.int32)
        held = hop.astype(np.uint16).reshape(1, -1, 1)
        evs = Evs(held, np.zeros(held.shape, np.uint8), ones, ones * 0, 1, 0)
        with ThreadPoolExecutor(1) as pool:
            model, prices = (
                Model(one, ends, evs, self.kernels, pool, (self.usable.ports, self.usable.links)),
                LinkPrices.fresh(one),
            )
            if left is not None:
                link, upper, port = left.plane(plane)
                fabric_bps = one.fabric_bps
                parts = (link * fabric_bps, port * one.port_bps, upper * fabric_bps)
                model.set_rates(LinkLoads(*(part for part in parts for _ in range(2))))
            model.set_dead(fabric.dead().plane(plane))
            prices.set_dead(fabric.dead().plane(plane))
            rates, _ = model.max_min(np.full(len(hop), demand), prices, LEVEL)
        return rates


def ecmp(
    shape: FabricShape, flows: Flows, ends: Endpoints, whole: Fabric, failed: Fabric, spec: RoceSpec, kernels: Kernels,
    payload: float, usable: Usable = Usable(),
) -> Baseline:  # fmt: skip
    """Model single-path RoCE over hashing switches, before and after what has failed."""
    paths = _Ecmp(shape, flows, ends, spec, kernels, usable)
    with ThreadPoolExecutor(workers()) as pool:
        cases = [(whole, True), (failed, False), (failed, True)]
        found = list(pool.map(lambda case: paths.rates(case[0], case[1], shape.port_bps), cases))
    before, during, after = (float(sum(part.sum() for part in each[0])) * payload for each in found)
    _, stalled, broken = found[1]
    outage = spec.ecmp / 1e9 if stalled or broken else 0.0
    return Baseline("RoCE, ECMP", before, during, after, stalled, broken, len(paths.parts) * len(flows), outage)


def adaptive(
    shape: FabricShape,
    flows: Flows,
    ends: Endpoints,
    whole: Fabric,
    failed: Fabric,
    wanted: Floats,
    spec: RoceSpec,
    payload: float,
    usable: Usable = Usable(),
) -> Baseline:
    """Model adaptive routing over a fabric that drops nothing by itself, before and after what has failed."""
    before, _ = _adaptive_rates(shape, ends, whole, wanted * usable.ports, usable)
    after, broken = _adaptive_rates(shape, ends, failed, wanted * usable.ports, usable)
    # A sender to a T0 that some T1 does not reach still sends a part of its packets there.
    paths, reaches = failed.dead_paths(), ~failed.dead_ports()
    far = shape.pod_of[ends.src] != shape.pod_of[ends.dst]
    of, stalled, during = 0, 0, 0.0
    for plane in range(shape.planes):
        dead = paths[plane] & ~(failed.t0s[plane] > 0)[:, None]
        near_hidden, far_hidden = dead[:, : shape.t1s].any(axis=1), dead[:, shape.t1s :].any(axis=1)
        alive = reaches[plane, ends.src_nic] & reaches[plane, ends.dst_nic]
        stuck = np.where(far, far_hidden[ends.dst], near_hidden[ends.dst]) & (ends.src != ends.dst) & alive
        stalled += int(np.count_nonzero(stuck))
        during += float(after[plane][~stuck].sum())
        of += len(flows)
    outage = spec.adaptive / 1e9 if stalled or broken else 0.0
    total = [float(sum(part.sum() for part in each)) * payload for each in (before, after)]
    return Baseline(
        "InfiniBand-like, adaptive routing", total[0], during * payload, total[1], stalled, broken, of, outage
    )


def _adaptive_rates(
    shape: FabricShape, ends: Endpoints, fabric: Fabric, wanted: Floats, usable: Usable
) -> tuple[list[Floats], int]:
    """Return rates by plane when each T0 spreads over all T1s that lead to the other, and the queue pairs without a
    port."""
    dead, left, losses = fabric.dead(), fabric.rates(), fabric.losses()
    ports, lossy_ports = dead.ports, losses.ports
    # Adaptive switches send less where links are slower.
    rate_of = (1.0, 1.0) if left is None else (left.links, left.upper)
    living = tuple(~down * whole for down, whole in zip((dead.links, dead.upper), rate_of, strict=True))
    kept = shape.halves(living[0] * (1 - losses.links), living[1] * (1 - losses.upper), np.multiply)
    rates: list[Floats] = []
    broken = 0
    for plane in range(shape.planes):
        gone = ports[plane, ends.src_nic] | ports[plane, ends.dst_nic]
        broken += int(np.count_nonzero(gone))
        rate = np.where(gone, 0.0, wanted / shape.planes)
        if left is not None:
            port = left.ports[plane]
            rate = np.minimum(rate, np.minimum(port[ends.src_nic], port[ends.dst_nic]) * shape.port_bps)
        away = ends.src != ends.dst
        pairs = np.zeros((shape.t0s, shape.t0s))
        np.add.at(pairs, (ends.src[away], ends.dst[away]), rate[away])
        spread = _Spread(shape, *(part[plane : plane + 1] for part in living))
        passing = spread.passing(pairs, shape.fabric_bps * usable.links)
        rate = rate * np.where(away, passing[ends.src, ends.dst], 1.0)
        ways = np.maximum(spread.ways, 1e-12)
        arrives = np.where(away, (spread.common(kept[plane]) / ways)[ends.src, ends.dst], 1.0)
        arrives *= (1 - lossy_ports[plane, ends.src_nic]) * (1 - lossy_ports[plane, ends.dst_nic])
        lost = np.where(rate > 0, 1 - np.minimum(arrives, 1.0), 0.0)
        rates.append(rate * go_back_n(lost, np.maximum(rate * usable.in_flight, 1.0)))
    return rates, broken


class _Spread:
    """Load of pairs of T0s in a plane, spread over the paths that both ends share, in proportion to what is left of
    their links (`links` and `upper`, 0 to 1)."""

    def __init__(self, shape: FabricShape, links: Floats, upper: Floats) -> None:
        self.shape, self.links, self.upper = shape, links, upper
        self.living = shape.halves(links, upper, np.multiply)[0]
        self.near = shape.pod_of[:, None] == shape.pod_of[None, :]
        #: What pairs of T0s have between them, in paths.
        self.ways = self.common(self.living)

    def common(self, halves: Floats) -> Floats:
        """Return the sum over the paths of each pair of T0s of the product of both halves."""
        t1s = self.shape.t1s
        within, beyond = halves[:, :t1s], halves[:, t1s:]
        found: Floats = within @ within.T
        if beyond.size:
            found = np.where(self.near, found, beyond @ beyond.T)
        return found

    def passing(self, pairs: Floats, capacity: float) -> Floats:
        """Return the share of its demand that each pair gets, if links carry `capacity` at most."""
        each = np.divide(pairs, self.ways, out=np.zeros_like(pairs), where=self.ways > 0)
        up, dn = (np.maximum(part / capacity, 1.0) for part in (self._loads(each), self._loads(each.T)))
        reached: Floats = (self.ways > 0).astype(float)
        if up.max() == 1.0 and dn.max() == 1.0:
            return reached
        share, alive, t1s = np.zeros_like(pairs), self.living > 0, self.shape.t1s
        for source in np.flatnonzero(pairs.any(axis=1)):
            targets = np.flatnonzero(pairs[source])
            both = np.where(alive[source] & alive[targets], np.maximum(up[source], dn[targets]), 1.0)
            worst = np.where(
                self.near[source, targets], both[:, :t1s].max(axis=1), both[:, t1s:].max(axis=1, initial=1.0)
            )
            share[source, targets] = np.where(self.ways[source, targets] > 0, 1.0 / worst, 0.0)
        return share

    def _loads(self, each: Floats) -> Floats:
        """Return the load of links on each half of a path, of two links that of the fuller, in shares of what each link
        can carry: what is left of it cancels."""
        shape, t1s = self.shape, self.shape.t1s
        alive = self.living > 0
        within = np.where(alive[:, :t1s], np.where(self.near, each, 0.0) @ self.living[:, :t1s], 0.0)
        if not shape.uplinks:
            return within
        beyond = np.where(alive[:, t1s:], np.where(self.near, 0.0, each) @ self.living[:, t1s:], 0.0)
        at_t1s = beyond.reshape(shape.t0s, t1s, shape.uplinks)
        above = self.upper[0, shape.pod_of].reshape(at_t1s.shape)
        links = within + (at_t1s * above).sum(axis=2)
        upper = shape.by_pod((at_t1s * self.links[0][:, :, None]).reshape(1, shape.t0s, -1))
        found: Floats = shape.halves(links[None], upper, np.maximum)[0]
        return found


def _chosen(shape: FabricShape, hashes: NDArray[np.uint32], far: Bools) -> NDArray[np.uint32]:
    """Return the paths of flows by their hashes; those between pods (`far`) use further bits for the T1's uplink."""
    t1 = hashes % np.uint32(shape.t1s)
    if not shape.uplinks:
        return t1
    uplink = hashes // np.uint32(shape.t1s) % np.uint32(shape.uplinks)
    found: NDArray[np.uint32] = np.where(far, shape.t1s + t1 * np.uint32(shape.uplinks) + uplink, t1).astype(np.uint32)
    return found


def _path_losses(fabric: Fabric, plane: int, ends: Endpoints, hop: NDArray[np.uint32]) -> Floats:
    """Return the share of packets lost on the path of each queue pair."""
    links, upper, ports = fabric.losses()
    kept = (1 - ports[plane, ends.src_nic]) * (1 - ports[plane, ends.dst_nic])
    passed = fabric.shape.halves(1 - links, 1 - upper, np.multiply)[plane]
    across = passed[ends.src, hop] * passed[ends.dst, hop]
    lost: Floats = 1.0 - kept * np.where(ends.src == ends.dst, 1.0, across)
    return lost


def fabrics(shape: FabricShape, names: Sequence[tuple[str, int | None, Harm]]) -> tuple[Fabric, Fabric]:
    """Return a whole fabric, and one in which these elements (name, lanes, what is wrong with them) have failed."""
    failed = Fabric(shape)
    for name, lanes, harm in names:
        failed.change(name, 1, lanes, harm)
    return Fabric(shape), failed
