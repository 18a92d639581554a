"""Max-min fair shares of queue pairs, and the movement of load between the EVs of each.

A queue pair loads its planes equally, as long as both its ends have a port there and an EV of it lives; in a plane it
spreads over its active EVs. ECN moves load off links that mark: a link has a price, which rises while more is brought
to it than it carries, and an EV's share is one over the prices of its links. NSCC is reduced to its result: a queue
pair gets its max-min fair share, and never more than its largest window in a round trip.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mrc_fluid.evs import Endpoints, Evs
from mrc_fluid.fabric import Bools, ByElement, FabricShape, Floats, Ints
from mrc_fluid.kernels import Kernels
from mrc_fluid.queueing import used
from mrc_topo.base import interruption

#: What a link may be off its rate and count as full.
FULL = 0.01
#: Levels that differ by less are one: what progressive filling is off at most. On average it is far less: 0.06 % for
#: the queue pairs of `cluster-131k`, where steps of 1 % take twice as long.
LEVEL = 0.03
#: Load has moved as far as it does once a pass takes off less than this share of what overloads links.
SETTLED = 0.05
#: How fast prices follow load where all links of a path are equally full: each link has its part of it. Beyond 1.5 they
#: swing.
GAIN = 0.8
#: The share of a capacity that rounding leaves.
NOTHING = 1e-9


Made = TypeVar("Made")
#: What is known of the halves of paths up from T0s and down to them (`fabric`).
Halves = tuple[Floats, Floats]


@dataclass
class LinkPrices:
    """The prices of links between switches, at least 1, infinite where nothing passes; or other values of these links.

    `up` and `dn` are `[plane, T0, T1]`, `upper_up` and `upper_dn` (between T1 and T2) `[plane, pod, uplink]`.
    """

    up: Floats
    dn: Floats
    upper_up: Floats
    upper_dn: Floats

    @classmethod
    def fresh(cls, shape: FabricShape) -> LinkPrices:
        """Return equal prices for all links."""
        sizes = (shape.lower(shape.planes), shape.upper(shape.planes))
        return cls(*(np.ones(size) for size in sizes for _ in range(2)))

    @classmethod
    def both_ways(cls, links: Floats, upper: Floats) -> LinkPrices:
        """Return values that are the same up and down."""
        return cls(links, links, upper, upper)

    def each(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return all four arrays."""
        return self.up, self.dn, self.upper_up, self.upper_dn

    def set_dead(self, dead: ByElement) -> None:
        """Set the links that carry nothing. Those that came back cost what the others do."""
        for price, links in zip(self.each(), (dead.links, dead.links, dead.upper, dead.upper), strict=True):
            price[links] = np.inf
            price[~links & np.isinf(price)] = 1.0

    def halves(self, shape: FabricShape, by: np.ufunc) -> Halves:
        """Return what halves of paths have of their links, by a function of two values."""
        return shape.halves(self.up, self.upper_up, by), shape.halves(self.dn, self.upper_dn, by)

    def plane(self, number: int) -> LinkPrices:
        """Return the part of a plane, as the only one."""
        return LinkPrices(*(part[number : number + 1] for part in self.each()))

    def weights(self, shape: FabricShape) -> Halves:
        """Return the weights of halves of paths, of prices: one over those of their links multiplied, 0 where nothing
        passes."""
        up, dn = self.halves(shape, np.multiply)
        return 1 / up, 1 / dn


@dataclass
class LinkLoads:
    """Bits per second by link: between switches as in `LinkPrices`; `out` and `into` (NIC ports) `[plane, NIC]`."""

    up: Floats
    dn: Floats
    out: Floats
    into: Floats
    upper_up: Floats
    upper_dn: Floats

    @classmethod
    def none(cls, shape: FabricShape, value: float = 0.0) -> LinkLoads:
        """Return the same value for every link."""
        planes = shape.planes
        sizes = (shape.lower(planes), (planes, shape.nics), shape.upper(planes))
        return cls(*(np.full(size, value) for size in sizes for _ in range(2)))

    def each(self) -> tuple[Floats, ...]:
        """Return all six arrays."""
        return self.up, self.dn, self.out, self.into, self.upper_up, self.upper_dn

    def fabric(self) -> LinkPrices:
        """Return those of links between switches."""
        return LinkPrices(self.up, self.dn, self.upper_up, self.upper_dn)

    def plane(self, number: int) -> LinkLoads:
        """Return the part of a plane, as the only one."""
        return LinkLoads(*(part[number : number + 1] for part in self.each()))


@dataclass
class _Sums:
    """Sums over queue pairs, by halves of paths (`up` and `dn`, `[plane, T0, path]`) and NIC ports."""

    up: Floats
    dn: Floats
    out: Floats
    into: Floats

    @classmethod
    def none(cls, shape: FabricShape) -> _Sums:
        """Return sums of nothing."""
        sizes = ((shape.planes, shape.t0s, shape.numbers), (shape.planes, shape.nics))
        return cls(*(np.zeros(size) for size in sizes for _ in range(2)))

    def loads(self, shape: FabricShape, planes: slice = slice(None)) -> LinkLoads:
        """Return those of links."""
        (up, upper_up), (dn, upper_dn) = shape.links_of(self.up[planes]), shape.links_of(self.dn[planes])
        return LinkLoads(up, dn, self.out[planes], self.into[planes], upper_up, upper_dn)


class Model:
    """Queue pairs on a fabric: the passes over all of their EVs.

    `use[plane, qp]` says in which planes a queue pair sends, and `planes[qp]` in how many; `intact`: no active EV
    crosses something dead.
    """

    def __init__(
        self, shape: FabricShape, ends: Endpoints, evs: Evs, kernels: Kernels, pool: ThreadPoolExecutor,
        usable: tuple[float, float] = (1.0, 1.0), steering: float = np.inf, room: float | None = None,
    ) -> None:  # fmt: skip
        """Create a model.

        `usable`: what share of NIC ports and of links between switches can be used; `steering`: the highest price of
        a path; `room`: the packets that a queue has place for, from which the usable share of a link between switches
        follows.
        """
        self.shape, self.ends, self.evs = shape, ends, evs
        self.kernels, self.pool = kernels, pool
        self.intact = True
        self.use: Bools = np.ones((shape.planes, len(ends.src)), bool)
        self.planes: NDArray[np.int64] = np.full(len(ends.src), shape.planes)
        self.steering, self.room, self._usable = steering, room, usable
        self.port_bps = shape.port_bps * usable[0]
        self.capacity = LinkLoads.none(shape, self.port_bps)
        for each in self.capacity.fabric().each():
            each[:] = shape.fabric_bps * usable[1]
        self._lone: tuple[Floats, Floats] = (np.ones(shape.nics), np.ones(shape.nics))

    def set_lone(self, more: float) -> None:
        """Let ports carry `more` times as much in a direction in which no acknowledgements go: out of NICs that receive
        nothing, and into those that send nothing."""
        for part, there in zip(self._lone, (self.ends.dst_nic, self.ends.src_nic), strict=True):
            part[:] = more
            part[there] = 1.0
        self.capacity.out *= self._lone[0]
        self.capacity.into *= self._lone[1]

    def set_rates(self, rates: LinkLoads) -> None:
        """Set the rate of each link, where not all are the same."""
        ports, fabric = self._usable
        lone: tuple[Floats | float, ...] = (1.0, 1.0, *self._lone, 1.0, 1.0)
        shares = (fabric, fabric, ports, ports, fabric, fabric)
        for mine, given, share, more in zip(self.capacity.each(), rates.each(), shares, lone, strict=True):
            mine[:] = given * share * more

    def set_dead(self, dead: ByElement) -> None:
        """Set the elements that carry nothing; the planes of queue pairs follow."""
        paths = self.shape.halves(dead.links, dead.upper, np.logical_or)
        ends, count = self.ends, np.zeros(self.use.shape, np.int32)
        tasks = [
            (self.evs.hop[p], self.evs.active[p], ends.src, ends.dst, paths[p], paths[p], count[p])
            for p in range(self.shape.planes)
        ]
        list(self.pool.map(lambda task: self.kernels.living(*task), tasks))
        self.intact = bool((count == self.evs.active).all())
        self.use = (count > 0) & ~dead.ports[:, ends.src_nic] & ~dead.ports[:, ends.dst_nic]
        self.planes = self.use.sum(axis=0)

    def by_plane(self, work: Callable[[int], Made]) -> list[Made]:
        """Return what a function of a plane's number makes of each plane, several at a time."""
        return list(self.pool.map(work, range(self.shape.planes)))

    def weights(self, prices: LinkPrices) -> Floats:
        """Return what the active EVs of each plane and queue pair weigh together, as many as they are where none
        marks."""
        return np.stack(self.by_plane(lambda p: self.weigh(p, prices.plane(p))))

    def weigh(self, p: int, prices: LinkPrices, values: Halves | None = None, *, add: bool = False) -> Floats:
        """Return what the active EVs of each queue pair weigh together in a plane; `values`: each multiplied by the
        values of the halves of its path, or with `add` by their sum. Prices and values are of the plane, as the only
        one."""
        ends, found = self.ends, np.zeros(len(self.planes))
        up, dn = prices.weights(self.shape)
        values_up, values_dn = values or (np.ones(up.shape), np.ones(dn.shape))
        self.kernels.weigh(
            self.evs.hop[p], self.evs.active[p], ends.src, ends.dst, 1 / self.steering, up[0], dn[0], values_up[0],
            values_dn[0], add, found,
        )  # fmt: skip
        return found

    def passing(self, prices: LinkPrices, shares: LinkPrices) -> Floats:
        """Return the share of packets that passes their paths, by plane and queue pair, 1 where there is none, from the
        shares that pass each link."""

        def part(p: int) -> Floats:
            mine = prices.plane(p)
            return self.passing_of(p, mine, shares.plane(p), self.weigh(p, mine))

        return np.stack(self.by_plane(part))

    def passing_of(self, p: int, prices: LinkPrices, shares: LinkPrices, whole: Floats) -> Floats:
        """Return that share in a plane, of its prices and shares as the only one and the weights of all EVs."""
        part = self.weigh(p, prices, shares.halves(self.shape, np.multiply))
        return np.divide(part, whole, out=np.ones(len(whole)), where=whole > 0)

    def idle(self, wanted: Floats, rates: Floats, load: LinkLoads, prices: LinkPrices) -> tuple[Floats, LinkLoads]:
        """Return rates and load, less what links between switches idle although they are wanted: packets meet at
        random, so one has none while others have a queue. A queue pair loses the mean of that over its EVs, for its
        window is one; what passes two links that idle at times is what neither takes.

        A link that is brought more than it carries is full in a fluid. In packets its windows are as large as NSCC's
        target delay, averaged over planes, allows: the fewer planes are full, the more packets wait at a full one.
        """
        if self.room is None:
            return rates, load
        offered, shares = self.load(wanted, prices), []
        for more, carried, rate in zip(
            offered.fabric().each(), load.fabric().each(), self.capacity.fabric().each(), strict=True
        ):
            over = (carried >= rate * (1 - 2 * FULL)) & (more > rate * (1 + FULL))
            planes = np.maximum(over.any(axis=2).sum(axis=0), 1)
            room = np.broadcast_to((self.room * self.shape.planes / planes)[None, :, None], rate.shape)
            rho = np.where(over, more, carried) / rate
            part = used(rho, np.where(over, room, self.room))
            share = np.divide(part, np.minimum(rho, 1.0), out=np.ones(rho.shape), where=rho > 0)
            # A T0 or pod with a single path has no choice that could leave one idle while another has a queue.
            share[(more > 0).sum(axis=2) < 2] = 1.0
            shares.append(share)
        each = self.passing(prices, LinkPrices(*shares))
        part = np.divide((each * self.use).sum(axis=0), self.planes, out=np.ones(len(rates)), where=self.planes > 0)
        return rates * part, self.load(rates * part, prices)

    def load(self, rates: Floats, prices: LinkPrices) -> LinkLoads:
        """Return the load of all links when queue pairs send at these rates."""
        sums, some = _Sums.none(self.shape), _some(rates != 0)
        few = rates[some]
        self.by_plane(lambda p: self._add(p, some, few, prices.plane(p).weights(self.shape), sums))
        return sums.loads(self.shape)

    def _add(self, p: int, some: slice | Ints, rates: Floats, weights: Halves, sums: _Sums) -> None:
        """Add to the sums of a plane what these queue pairs send at these rates."""
        ends, nics, planes = self.ends, self.shape.nics, self.planes[some]
        # Without planes it uses none.
        each = rates * self.use[p][some] / np.maximum(planes, 1)
        sums.out[p] += np.bincount(ends.src_nic[some], each, nics)
        sums.into[p] += np.bincount(ends.dst_nic[some], each, nics)
        up, dn = weights
        self.kernels.spread(
            self.evs.hop[p][some], self.evs.active[p][some], ends.src[some], ends.dst[some], each, 1 / self.steering,
            up[0], dn[0], sums.up[p], sums.dn[p],
        )  # fmt: skip

    def _least(self, p: int, some: slice | Ints, wanted: Bools, values: LinkLoads, weights: Halves) -> Floats:
        """Return for these queue pairs, if they are wanted, the least value on their links of a plane; infinite for the
        others. `values`, `weights`: of the plane, as the only one."""
        ends = self.ends
        here = wanted[some] & self.use[p][some]
        ports = np.minimum(values.out[0][ends.src_nic[some]], values.into[0][ends.dst_nic[some]])
        found = np.where(here, ports, np.inf)
        (weight_up, weight_dn), (up, dn) = weights, values.fabric().halves(self.shape, np.minimum)
        self.kernels.least(
            self.evs.hop[p][some], self.evs.active[p][some], ends.src[some], ends.dst[some], here, weight_up[0],
            weight_dn[0], up[0], dn[0], found,
        )  # fmt: skip
        return found

    def max_min(self, demand: Floats, prices: LinkPrices, level: float = LEVEL) -> tuple[Floats, LinkLoads]:
        """Return the max-min fair rates of queue pairs that want `demand` and split it by the prices; and the load of
        all links.

        Progressive filling: all rates rise together until links are full, whose queue pairs then stay where they are.
        Those that would stop within `level` of the first stop together, each at what its own links allow: nothing is
        overloaded, and no rate is off by more than `level`.
        """
        shape = self.shape
        rates, stopped = np.zeros(len(demand)), np.zeros(len(demand), bool)
        waiting: Bools = (self.planes > 0) & (demand > 0)
        #: What those that stopped send, and how many of the others share a link.
        used, share = _Sums.none(shape), _Sums.none(shape)
        weights = self.by_plane(lambda p: prices.plane(p).weights(shape))
        everyone = waiting.astype(float)
        self.by_plane(lambda p: self._add(p, slice(None), everyone, weights[p], share))

        def rise(p: int) -> Floats:
            """Count in those that stopped last; return how far the others can rise in a plane."""
            if stopped.any():
                some = _some(stopped)
                self._add(p, some, (rates * stopped)[some], weights[p], used)
                self._add(p, some, -1.0 * stopped[some], weights[p], share)
            mine = slice(p, p + 1)
            links = self.capacity.plane(p).each(), used.loads(shape, mine).each(), share.loads(shape, mine).each()
            room = LinkLoads(*map(_room, *links))
            return self._least(p, _some(waiting), waiting, room, weights[p])

        while True:
            interruption.check()
            least = np.min(self.by_plane(rise), axis=0)
            if not waiting.any():
                return rates, used.loads(shape)
            reach = np.full(len(demand), np.inf)
            reach[_some(waiting)] = least
            reach = np.minimum(reach, demand)
            stopped = waiting & (reach <= float(reach[waiting].min()) * (1 + level))
            rates[stopped] = reach[stopped]
            waiting = waiting & ~stopped

    def ports_only(self, demand: Floats) -> Floats:
        """Return the max-min fair rates with an unlimited fabric between the T0s."""
        rates = np.zeros(len(demand))
        waiting: Bools = (self.planes > 0) & (demand > 0)
        ends, shape = self.ends, self.shape
        inverse = np.divide(1.0, self.planes, out=np.zeros(len(demand)), where=self.planes > 0)

        def ports(value: Floats) -> tuple[Floats, Floats]:
            weight = value * inverse * self.use
            out: Floats = np.stack([np.bincount(ends.src_nic, each, shape.nics) for each in weight]).astype(float)
            into: Floats = np.stack([np.bincount(ends.dst_nic, each, shape.nics) for each in weight]).astype(float)
            return out, into

        while waiting.any():
            interruption.check()
            have = (self.capacity.out, self.capacity.into)
            free = list(map(_room, have, ports(rates), ports(waiting.astype(float))))
            reach = np.where(self.use, np.minimum(free[0][:, ends.src_nic], free[1][:, ends.dst_nic]), np.inf)
            reach = np.minimum(reach.min(axis=0), demand)
            stop: Bools = waiting & (reach <= float(reach[waiting].min()) * (1 + LEVEL))
            rates[stop] = reach[stop]
            waiting = waiting & ~stop
        return rates

    def steer(self, rates: Floats, prices: LinkPrices, steps: int, enough: float = 0.003) -> LinkLoads | None:
        """Move load off links that would carry more than they can; change `prices`. End early when no link is
        more than `enough` above its capacity, or when prices at their bound (`steering`) leave nothing to move. Returns
        the last load, None for no step."""
        load, excess = None, np.inf
        for _ in range(steps):
            sums = _Sums.none(self.shape)

            def part(p: int, sums: _Sums = sums) -> tuple[float, float]:
                mine = prices.plane(p)
                self._add(p, slice(None), rates, mine.weights(self.shape), sums)
                carried = sums.loads(self.shape, slice(p, p + 1)).fabric().each()
                links = zip(mine.each(), carried, self.capacity.plane(p).fabric().each(), strict=True)
                found = [self._follow(price[0], load[0] / rate[0]) for price, load, rate in links]
                return max(worst for worst, _ in found), sum(more for _, more in found)

            planes = self.by_plane(part)
            load = sums
            worst, before, excess = max(most for most, _ in planes), excess, sum(more for _, more in planes)
            if worst <= 1 + enough or (self.steering < np.inf and (1 - SETTLED) * before < excess <= before):
                break
        return None if load is None else load.loads(self.shape)

    def _follow(self, price: Floats, over: Floats) -> tuple[float, float]:
        """Have the prices of a plane's links follow their load (`over`, of their rate), which changes. Returns the
        highest load, and the sum of what is more than links carry."""
        worst, excess = float(over.max(initial=0.0)), float(np.maximum(over - 1, 0.0).sum())
        # Where all links of a T0, or of a pod, that EVs use have too much together, load moves until they share that.
        carrying = over > 0
        shared = over.sum(axis=1, keepdims=True) / np.maximum(carrying.sum(axis=1, keepdims=True), 1)
        over /= np.maximum(shared, 1.0)
        gain = GAIN / (4 if self.shape.pods > 1 else 2)
        with np.errstate(invalid="ignore"):
            price *= np.exp(gain * np.log(np.maximum(over, 1e-3)))
        np.maximum(price, 1.0, out=price)
        np.minimum(price, self.steering, out=price, where=carrying)
        return worst, excess


def _room(have: Floats, gone: Floats, part: Floats) -> Floats:
    """Return how far each of those that share links can rise, infinitely where nobody does; in place, and without a
    mask for the division, which takes several times as long."""
    left: Floats = have - gone
    np.maximum(left, 0.0, out=left)
    with np.errstate(divide="ignore", invalid="ignore"):
        left /= part
    np.copyto(left, np.inf, where=part <= NOTHING)
    return left


def _some(which: Bools) -> slice | Ints:
    """Return the numbers of these queue pairs if they are few, as progressive filling asks for, else all."""
    few = np.flatnonzero(which)
    return few if 4 * len(few) < len(which) else slice(None)


def window_bps(max_window_bytes: float, base_rtt_ns: float) -> float:
    """Return the highest rate of a queue pair: its largest window in each round trip through empty queues."""
    return max_window_bytes * 8e9 / base_rtt_ns
