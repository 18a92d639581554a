"""Rates of queue pairs when one of their planes carries far less than the others, and switches trim what is too much.

An endpoint sends as many bytes on each plane, whatever arrives (`mrc_host.proto.congestion.qpcc`). So a slow plane
gets a share of the packets like any other, carries what it can, and trims the rest, which is sent again on all planes.
NSCC lowers the window only while the average of its RTT samples exceeds the target delay. Few samples are of the slow
plane: SACKs on other planes overtake its own. So the slow plane does not limit a queue pair by its delay: it goes on,
less what is trimmed. What holds it back is its largest window, since packets in the slow plane wait longer, and the
trims, since NSCC takes each trimmed packet off the window. Where the average does reach the target, all wait for the
slowest plane: these are the max-min fair rates of `shares`. Times are seconds, rates bits per second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mrc_fluid.fabric import Bools, Floats
from mrc_fluid.queueing import queued
from mrc_fluid.shares import LinkLoads, LinkPrices, Model
from mrc_fluid.tails import Trims

#: Passes in which rates and delays find their balance, at most.
PASSES = 12
#: What a rate is off its balance in the end.
ENOUGH = 1.02
#: How far a pass moves a rate towards what the last one asks for, as a power: delays rise up to five times as steeply
#: as rates.
PACE = 1 / 3
#: What shedding must gain over waiting for the slowest plane to be looked at.
GAIN = 1.05
#: The average delay that NSCC holds, as a share of its target: it takes more of a window at once than it gives back in
#: a round trip. In the scenarios permutation-planes and cold-start of `mrclab validate` it is 0.75 to 0.85.
HELD = 0.75
#: The share of packets that is late in a slow plane, so that rule (c) of loss inference takes it for lost. Measured:
#: 1.9 % with two planes, 1.7 % with one of which a T1 is slow, 1.4 % with four (`docs/reference/scale-accuracy.md`).
MISTAKEN = 0.018
#: No more than this share of what is trimmed: where all planes are alike and trim little, no packet is late.
FEW = 1 / 3


@dataclass(frozen=True)
class Protocol:
    """What sheds load follows from: the largest window of a queue pair (bits), the round trip through empty queues, the
    base RTT that NSCC is configured with, its target delay, and the time that the queue of a link at its full rate
    holds when it trims; `packet_bits`: of a packet, of which a trimmed one keeps the share `header`; `link_bps`: of a
    link at its full rate; `growth`: bits that NSCC adds, divided by the window, per bit acknowledged without delay."""

    window_bits: float
    rtt: float
    base_rtt: float
    target: float
    trim: float
    packet_bits: float
    header: float
    link_bps: float
    growth: float


@dataclass(frozen=True)
class Shed:
    """Queue pairs that send `sent`, of which `rates` arrives; `trims`: what becomes of a message's last packets; `load`
    of all links. Where `which` is not true, nothing is trimmed and rates are those given."""

    which: Bools
    sent: Floats
    rates: Floats
    trims: Trims
    load: LinkLoads


def shed(model: Model, wanted: Floats, waits: Floats, prices: LinkPrices, protocol: Protocol) -> Shed | None:
    """Return what queue pairs get that want `wanted`, and `waits` when all of them wait for the slowest plane.

    None: none gets more by having packets trimmed.
    """
    if (waits >= wanted / GAIN).all():
        return None
    state = _State(model, prices, protocol)
    state.look(wanted)
    if (wanted * state.arrived <= waits * GAIN).all():
        return None
    # The window alone first: the delay is not largest at the largest rate, where most of a slow plane's packets are
    # trimmed and few wait. NSCC comes from there, and lowers the window more only while the delay is above its target.
    sent = state.balance(wanted, waits, lambda at: state.window() / state.trip)
    slow: Bools = state.delay > protocol.target
    if slow.any():
        most = protocol.target * HELD
        sent = state.balance(sent, waits, lambda at: np.where(slow, at * most / np.maximum(state.delay, 1e-12), at))
    which: Bools = sent * state.arrived > waits * GAIN
    if not which.any():
        return None
    sent = np.where(which, sent, waits)
    state.look(sent)
    rates = np.where(which, sent * state.arrived, waits)
    for part, whole in zip(state.offered.each(), model.capacity.each(), strict=True):
        np.minimum(part, whole, out=part)
    return Shed(which, sent, rates, state.trims(sent, which), state.offered)


class _State:
    """What becomes of packets at given rates, by queue pair: the share that passes all links, the mean delay in queues
    as NSCC sees it, the mean time on the way, and the longest delay of a plane."""

    def __init__(self, model: Model, prices: LinkPrices, protocol: Protocol) -> None:
        self.model, self.prices, self.protocol = model, prices, protocol
        whole = model.weights(prices)
        self.whole = np.where(whole > 0, whole, 1.0)
        self.here = model.use & (whole > 0)
        self.away = model.ends.src != model.ends.dst
        self.planes = np.maximum(self.here.sum(axis=0), 1)

    def balance(self, high: Floats, low: Floats, asked: Callable[[Floats], Floats]) -> Floats:
        """Return the rates that are what is asked for at them, between the lowest and the highest; both these and what
        is returned have been looked at.

        A rate that was too high in one pass and too low in the next moves half as far from then on.
        """
        sent, pace, before = high, np.full(len(high), PACE), np.zeros(len(high))
        for _ in range(PASSES):
            aim = np.clip(asked(sent), low, high)
            step = np.log(np.divide(aim, sent, out=np.ones(len(sent)), where=sent > 0))
            pace = np.where(step * before < 0, pace / 2, pace)
            if (np.abs(step) * pace).max(initial=0.0) <= PACE * np.log(ENOUGH):
                break
            sent, before = sent * np.exp(step * pace), step
            self.look(sent)
        return sent

    def look(self, sent: Floats) -> None:
        """Set what becomes of packets when queue pairs send at these rates."""
        model, protocol = self.model, self.protocol
        self.offered = model.load(sent, self.prices)
        planes = model.by_plane(self._in_plane)
        passed, wait, halves = (np.stack(rows) for rows in zip(*planes, strict=True))
        self.passed = self._mean(passed)
        # A packet that is trimmed counts as a base RTT of delay.
        trimmed, seen = 1 - passed, passed * self._seen(sent, halves)
        samples = np.maximum(self._mean(trimmed + seen), 1e-9)
        self.delay = self._mean(trimmed * protocol.base_rtt + seen * wait) / samples
        # Answers and what is left of a trimmed packet go first, behind the packet that is under way.
        self.trip = protocol.rtt + self._mean(passed * wait + (2 - passed) * halves)
        self.by_plane = passed, wait, halves
        # A window grows by what is acknowledged, the less the later a sample is than those of the fastest plane; by as
        # much as there where SACKs of other planes were sooner.
        later = np.where(self.here, wait - np.where(self.here, wait, np.inf).min(axis=0), 0.0)
        self.grows = self._mean(passed - seen * np.clip(later / protocol.target, 0, 1))

    def _in_plane(self, p: int) -> tuple[Floats, Floats, Floats]:
        """Return what becomes of packets in a plane, by queue pair: the share that passes, the time in queues, and the
        time that what goes first waits."""
        model, prices, shape = self.model, self.prices.plane(p), self.model.shape
        offered, capacity = self.offered.plane(p), model.capacity.plane(p)
        up, wait_up = self._link(offered.up, np.zeros(offered.up.shape), capacity.up)
        # What a link trims reaches the links behind it as headers.
        through = _share(shape.by_pod(offered.up * up), shape.by_pod(offered.up))
        above, below, arrives = self._across_t2s(offered, through, capacity)
        dn, wait_dn = self._link(*self._mixed(offered.dn, arrives[:, shape.pod_of]), capacity.dn)
        passed = model.passing_of(p, prices, LinkPrices(up, dn, above[0], below[0]), self.whole[p])
        waits = LinkPrices(wait_up, wait_dn, above[1], below[1])
        wait, halves = (
            np.where(self.away, model.weigh(p, prices, each.halves(shape, np.add), add=True) / self.whole[p], 0.0)
            for each in (waits, self._halves(offered, capacity))
        )
        return passed, wait, halves

    @property
    def arrived(self) -> Floats:
        """The share of packets that pass and are not sent again by mistake."""
        return self.passed - np.minimum((1 - self.passed) * FEW, MISTAKEN)

    def window(self) -> Floats:
        """Return the largest windows: NSCC takes what is trimmed off a window, which stands where it adds as much."""
        with np.errstate(divide="ignore", invalid="ignore"):
            stands: Floats = self.protocol.growth * self.grows / (1 - self.arrived)
        return np.minimum(stands, self.protocol.window_bits)

    def trims(self, sent: Floats, which: Bools) -> Trims:
        """Return what becomes of the last packets of these queue pairs' messages."""
        protocol, pairs = self.protocol, np.arange(len(sent))
        passed, wait, halves = (np.where(self.here, each, 0.0) for each in self.by_plane)
        slow = wait.argmax(axis=0)
        gap = np.divide(protocol.packet_bits, sent, out=np.zeros(len(sent)), where=sent > 0)
        window = np.divide(self.trip, gap, out=np.zeros(len(sent)), where=gap > 0)
        ahead = np.maximum(protocol.window_bits / protocol.packet_bits - window, 0.0) * self.passed
        return Trims(
            np.where(which, 1 - self.passed, 0.0), protocol.rtt + 2 * halves.max(axis=0),
            passed[slow, pairs] / np.maximum(passed.sum(axis=0), 1e-9), wait[slow, pairs], gap, window, ahead,
        )  # fmt: skip

    def _seen(self, sent: Floats, halves: Floats) -> Floats:
        """Return the share of packets that give an RTT sample, by plane: a SACK that comes back more slowly than
        others on other planes finds its packet acknowledged by them, and tells no RTT.
        """
        after = halves - np.where(self.here, halves, np.inf).min(axis=0)
        others = sent * self.passed * (self.planes - 1) / self.planes
        found: Floats = np.exp(-np.where(self.here, after, 0.0) * others / self.protocol.packet_bits)
        return found

    def _across_t2s(
        self, offered: LinkLoads, through: Floats, capacity: LinkLoads
    ) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats], Floats]:
        """Return what becomes of packets at links from T1s to T2s and at those back, as `_link` does, and the share of
        whole packets in what T1s send down. `through`: that share in what comes up to them, `[plane, pod, T1]`."""
        shape, planes = self.model.shape, len(through)
        if not shape.uplinks:
            none = np.ones(offered.upper_up.shape)
            return (none, none), (none, none), through
        t1s = (planes, shape.pods, shape.t1s, shape.uplinks)
        t2s = (planes, shape.pods, shape.t2s, shape.parallel)
        whole = np.repeat(through, shape.uplinks, axis=2)
        up = self._link(*self._mixed(offered.upper_up, whole), capacity.upper_up)
        up_whole = (offered.upper_up * whole * up[0]).reshape(t2s).sum(axis=(1, 3))
        at_t2s = _share(up_whole, offered.upper_up.reshape(t2s).sum(axis=(1, 3)))
        whole = np.repeat(at_t2s, shape.parallel, axis=1)[:, None, :]
        dn = self._link(*self._mixed(offered.upper_dn, whole), capacity.upper_dn)
        # A T1 sends down what came from its pod and does not go up, and what comes from other pods.
        own = np.maximum(shape.by_pod(offered.up) - offered.upper_up.reshape(t1s).sum(axis=3), 0.0)
        far_whole = (offered.upper_dn * whole * dn[0]).reshape(t1s).sum(axis=3)
        far = offered.upper_dn.reshape(t1s).sum(axis=3)
        return up, dn, _share(own * through + far_whole, own + far)

    def _mixed(self, offered: Floats, whole: Floats) -> tuple[Floats, Floats]:
        """Return whole packets and headers of trimmed ones, of what links are offered with this share of whole ones."""
        return offered * whole, offered * (1 - whole) * self.protocol.header

    def _link(self, data: Floats, headers: Floats, rate: Floats) -> tuple[Floats, Floats]:
        """Return the share of whole packets that links do not trim, and how long these wait."""
        protocol = self.protocol
        # Headers of trimmed packets go first, and whole packets get what they leave.
        room = np.divide(rate - headers, data, out=np.full(data.shape, np.inf), where=data > 0)
        passed = np.clip((room - protocol.header) / (1 - protocol.header), 0.01, 1.0)
        places = protocol.trim * protocol.link_bps / protocol.packet_bits
        return passed, queued((data + headers) / rate, places) * protocol.packet_bits / rate

    def _halves(self, offered: LinkLoads, capacity: LinkLoads) -> LinkPrices:
        """Return how long what goes first waits at each link: half of a packet, if there is one."""
        half = self.protocol.packet_bits / 2
        pairs = zip(offered.fabric().each(), capacity.fabric().each(), strict=True)
        return LinkPrices(*(np.minimum(load / whole, 1.0) * half / whole for load, whole in pairs))

    def _mean(self, values: Floats) -> Floats:
        found: Floats = np.where(self.here, values, 0.0).sum(axis=0) / self.planes
        return found


def _share(part: Floats, whole: Floats) -> Floats:
    """Return a part of a whole as a share, 1 of nothing."""
    found: Floats = np.divide(part, whole, out=np.ones(whole.shape), where=whole > 0)
    return found
