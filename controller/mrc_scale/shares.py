"""Who gets how much: max-min fair shares of queue pairs, and how load moves between the EVs of each.

A queue pair loads its planes equally, as long as both its ends have a port there and an EV of it lives; in a plane it
spreads over its active EVs. ECN moves load off links that mark: a link has a price, which rises while more is brought
to it than it carries, and an EV's share is one over the prices of its links. NSCC is reduced to its result: a queue
pair gets its max-min fair share, and never more than its largest window in a round trip.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mrc_scale.evs import Endpoints, Evs
from mrc_scale.fabric import Bools, FabricShape, Floats
from mrc_scale.kernels import Kernels
from mrc_scale.queueing import used

#: Levels that differ by less are one: what progressive filling is off at most.
LEVEL = 0.01
#: How fast prices follow load; twice as fast where both links of all paths are equally full, and beyond 1.5 they swing.
GAIN = 0.4
#: The share of a capacity that rounding leaves.
NOTHING = 1e-9


@dataclass
class LinkLoads:
    """Bits per second by link: `up` and `dn` are `[plane, T0, T1]`, `out` and `into` (NIC ports) `[plane, NIC]`."""

    up: Floats
    dn: Floats
    out: Floats
    into: Floats

    @classmethod
    def none(cls, shape: FabricShape, value: float = 0.0) -> LinkLoads:
        """Return the same value for every link."""
        fabric, ports = (shape.planes, shape.t0s, shape.t1s), (shape.planes, shape.nics)
        return cls(*(np.full(size, value) for size in (fabric, fabric, ports, ports)))

    def each(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return all four arrays."""
        return self.up, self.dn, self.out, self.into


@dataclass
class LinkPrices:
    """The prices of links between T0 and T1, at least 1; infinite where nothing passes."""

    up: Floats
    dn: Floats

    @classmethod
    def fresh(cls, shape: FabricShape) -> LinkPrices:
        """Return equal prices for all links."""
        size = (shape.planes, shape.t0s, shape.t1s)
        return cls(np.ones(size), np.ones(size))


class Model:
    """Queue pairs on a fabric: the passes over all of their EVs.

    `use[plane, qp]` says in which planes a queue pair sends, and `planes[qp]` in how many.
    """

    def __init__(
        self, shape: FabricShape, ends: Endpoints, evs: Evs, kernels: Kernels, pool: ThreadPoolExecutor,
        usable: tuple[float, float] = (1.0, 1.0), steering: float = np.inf, room: float | None = None,
    ) -> None:  # fmt: skip
        """Create a model.

        `usable`: what share of NIC ports and of links between switches can be used; `steering`: the highest price;
        `room`: the packets that a queue has place for, from which the usable share of a link between switches follows.
        """
        self.shape, self.ends, self.evs = shape, ends, evs
        self.kernels, self.pool = kernels, pool
        self.use: Bools = np.ones((shape.planes, len(ends.src)), bool)
        self.planes: NDArray[np.int64] = np.full(len(ends.src), shape.planes)
        self.steering, self.room, self._usable = steering, room, usable
        self.port_bps = shape.port_bps * usable[0]
        self.capacity = LinkLoads.none(shape, self.port_bps)
        self.capacity.up[:] = self.capacity.dn[:] = shape.fabric_bps * usable[1]

    def set_rates(self, rates: LinkLoads) -> None:
        """Set the rate of each link, where not all are the same."""
        ports, fabric = self._usable
        for mine, given, share in zip(self.capacity.each(), rates.each(), (fabric, fabric, ports, ports), strict=True):
            mine[:] = given * share

    def set_dead(self, links: Bools, ports: Bools, prices: LinkPrices) -> None:
        """Set the elements that carry nothing; the planes of queue pairs and the prices follow.

        Links that came back cost what the others do.
        """
        for price in (prices.up, prices.dn):
            price[links] = np.inf
            price[~links & np.isinf(price)] = 1.0
        ends, count = self.ends, np.zeros(self.use.shape, np.int32)
        tasks = [
            (self.evs.hop[p], self.evs.active[p], ends.src, ends.dst, links[p], links[p], count[p])
            for p in range(self.shape.planes)
        ]
        list(self.pool.map(lambda task: self.kernels.living(*task), tasks))
        self.use = (count > 0) & ~ports[:, ends.src_nic] & ~ports[:, ends.dst_nic]
        self.planes = self.use.sum(axis=0)

    def weights(self, prices: LinkPrices, values: LinkPrices | None = None) -> Floats:
        """Return what the active EVs of each plane and queue pair weigh together, as many as they are where none marks;
        `values`: each multiplied by the lower value of its two links."""
        ends, found = self.ends, np.zeros(self.use.shape)
        values = values or LinkPrices.fresh(self.shape)
        tasks = [
            (
                self.evs.hop[p], self.evs.active[p], ends.src, ends.dst, prices.up[p], prices.dn[p], values.up[p],
                values.dn[p], found[p],
            )
            for p in range(self.shape.planes)
        ]  # fmt: skip
        list(self.pool.map(lambda task: self.kernels.weigh(*task), tasks))
        return found

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
        for more, carried, rate in (
            (offered.up, load.up, self.capacity.up),
            (offered.dn, load.dn, self.capacity.dn),
        ):
            over = (carried >= rate * (1 - 2 * LEVEL)) & (more > rate * (1 + LEVEL))
            planes = np.maximum(over.any(axis=2).sum(axis=0), 1)
            room = np.broadcast_to((self.room * self.shape.planes / planes)[None, :, None], rate.shape)
            rho = np.where(over, 1.0, carried / rate)
            part = used(rho, np.where(over, room, self.room))
            share = np.divide(part, np.minimum(rho, 1.0), out=np.ones(rho.shape), where=rho > 0)
            # A T0 with a single path has no choice that could leave one idle while another has a queue.
            ways = np.isfinite(prices.up).sum(axis=2)
            share[ways < 2] = 1.0
            shares.append(share)
        whole = self.weights(prices)
        passed = self.weights(LinkPrices(prices.up / shares[0], prices.dn / shares[1]))
        each = np.divide(passed, whole, out=np.ones(whole.shape), where=whole > 0)
        part = np.divide((each * self.use).sum(axis=0), self.planes, out=np.ones(len(rates)), where=self.planes > 0)
        return rates * part, self.load(rates * part, prices)

    def load(self, rates: Floats, prices: LinkPrices) -> LinkLoads:
        """Return the load of all links when queue pairs send at these rates."""
        shape, ends = self.shape, self.ends
        made = LinkLoads.none(shape)
        each = np.divide(rates, self.planes, out=np.zeros(len(rates)), where=self.planes > 0)

        def part(p: int) -> None:
            value = each * self.use[p]
            made.out[p] = np.bincount(ends.src_nic, value, shape.nics)
            made.into[p] = np.bincount(ends.dst_nic, value, shape.nics)
            self.kernels.spread(
                self.evs.hop[p], self.evs.active[p], ends.src, ends.dst, value, prices.up[p], prices.dn[p], made.up[p],
                made.dn[p],
            )  # fmt: skip

        list(self.pool.map(part, range(shape.planes)))
        return made

    def least(self, wanted: Bools, values: LinkLoads, prices: LinkPrices) -> Floats:
        """Return for each wanted queue pair the least value on its links; infinite for the others."""
        ends = self.ends
        found = np.full(self.use.shape, np.inf)

        def part(p: int) -> None:
            here = wanted & self.use[p]
            ports = np.minimum(values.out[p][ends.src_nic], values.into[p][ends.dst_nic])
            found[p][here] = ports[here]
            self.kernels.least(
                self.evs.hop[p], self.evs.active[p], ends.src, ends.dst, here, prices.up[p], prices.dn[p], values.up[p],
                values.dn[p], found[p],
            )  # fmt: skip

        list(self.pool.map(part, range(self.shape.planes)))
        least: Floats = found.min(axis=0)
        return least

    def max_min(self, demand: Floats, prices: LinkPrices, level: float = LEVEL) -> tuple[Floats, LinkLoads]:
        """Return the max-min fair rates of queue pairs that want `demand` and split it by the prices; and the load of
        all links.

        Progressive filling: all rates rise together until links are full, whose queue pairs then stay where they are.
        Those that would stop within `level` of the first stop together, each at what its own links allow: nothing is
        overloaded, and no rate is off by more than `level`.
        """
        rates = np.zeros(len(demand))
        waiting: Bools = (self.planes > 0) & (demand > 0)
        used = LinkLoads.none(self.shape)
        share = self.load(waiting.astype(float), prices)
        while waiting.any():
            room = LinkLoads(
                *(
                    np.divide(np.maximum(have - gone, 0.0), part, out=np.full(part.shape, np.inf), where=part > NOTHING)
                    for have, gone, part in zip(self.capacity.each(), used.each(), share.each(), strict=True)
                )
            )
            reach = np.minimum(self.least(waiting, room, prices), demand)
            stop: Bools = waiting & (reach <= float(reach[waiting].min()) * (1 + level))
            rates[stop] = reach[stop]
            waiting = waiting & ~stop
            gone, rest = self.load(np.where(stop, rates, 0.0), prices), self.load(stop.astype(float), prices)
            for total, more in zip(used.each(), gone.each(), strict=True):
                total += more
            for total, less in zip(share.each(), rest.each(), strict=True):
                total -= less
        return rates, used

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
            free = []
            have = (self.capacity.out, self.capacity.into)
            for most, gone, part in zip(have, ports(rates), ports(waiting.astype(float)), strict=True):
                left = np.maximum(most - gone, 0.0)
                free.append(np.divide(left, part, out=np.full(part.shape, np.inf), where=part > NOTHING))
            reach = np.where(self.use, np.minimum(free[0][:, ends.src_nic], free[1][:, ends.dst_nic]), np.inf)
            reach = np.minimum(reach.min(axis=0), demand)
            stop: Bools = waiting & (reach <= float(reach[waiting].min()) * (1 + LEVEL))
            rates[stop] = reach[stop]
            waiting = waiting & ~stop
        return rates

    def steer(self, rates: Floats, prices: LinkPrices, steps: int, enough: float = 0.003) -> LinkLoads | None:
        """Move load off links that would carry more than they can; change `prices`. End early when no link is
        more than `enough` above its capacity. Returns the last load, None for no step."""
        load = None
        for _ in range(steps):
            load = self.load(rates, prices)
            worst = 0.0
            for price, carried, rate in (
                (prices.up, load.up, self.capacity.up),
                (prices.dn, load.dn, self.capacity.dn),
            ):
                over = carried / rate
                worst = max(worst, float(over.max(initial=0.0)))
                # Where all links of a T0 together have too much, load moves until they share that.
                alive = np.isfinite(price).sum(axis=2, keepdims=True)
                over /= np.maximum(over.sum(axis=2, keepdims=True) / np.maximum(alive, 1), 1.0)
                with np.errstate(invalid="ignore"):
                    price *= np.maximum(over, 1e-3) ** GAIN
                np.maximum(price, 1.0, out=price)
                np.minimum(price, self.steering, out=price, where=np.isfinite(price))
            if worst <= 1 + enough:
                break
        return load


def window_bps(max_window_bytes: float, base_rtt_ns: float) -> float:
    """Return the highest rate of a queue pair: its largest window in each round trip through empty queues."""
    return max_window_bytes * 8e9 / base_rtt_ns
