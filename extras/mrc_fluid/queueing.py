"""Queues and windows in a fluid, from the protocol's constants alone: how much of a link can be used, how
long a round trip takes, how soon an EV that has died is found, and how many packets that costs.

`calibrate` in `mrc_fluid.calibration` holds all of it against packets. Times are seconds, rates packets per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mrc_fluid.fabric import Floats, Ints

#: A window goes round through four queues: the host's own, T0 up, T1 down, T0 to the NIC; across a T2 there are two
#: more. RTTs see all but the first.
QUEUES, LONGER = 4, 6
#: Deviations that rule (c) of loss inference adds to the smoothed RTT (`mrc-protocol.md`, 5).
DEVIATIONS = 4
#: A requestor's smoothed RTT and deviation vary with each sample, and the first time that an age exceeds them counts:
#: this many mean deviations sooner than their means say, with this standard deviation (a test simulates it).
SOONER, SPREAD = 0.3, 1.06
#: Standard deviations below the mean that are counted, so that times stay positive.
SURE = 2.0
#: Uses of an EV that are counted one by one; beyond them jitter is averaged out.
MOST = 64


def places(target_s: float, packets_per_s: float) -> float:
    """Return how many packets a queue has place for in effect: NSCC lets queues stand no longer than its target
    delay. Service takes the same time for each packet, which halves what waits, so the place counts twice."""
    return 2 * target_s * packets_per_s


def used(load: Floats, room: float | Floats) -> Floats:
    """Return the share of a link that is used when `load` of it is offered at random, and a queue has `room` packets:
    that of the queue M/M/1/K. Below the load itself near 1, and 1 for what is overloaded."""
    rho = np.asarray(load, float)
    near = np.abs(rho - 1) < 1e-6
    safe = np.where(near, 0.5, rho)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        # Beyond 1 in powers of 1/rho, which do not overflow.
        power = np.where(safe > 1, safe**-room, safe**room)
        share = np.where(safe > 1, (1 - power) / (1 - power / safe), safe * (1 - power) / (1 - power * safe))
    found: Floats = np.where(near, room / (room + 1), share)
    return found


def queued(load: Floats, places: float) -> Floats:
    """Return how many packets wait on average at a link that is offered `load` of its rate at random, and whose queue
    holds `places` packets: half of the queue M/M/1/K with twice the room (`places`), since service takes the same time
    for each."""
    room = 2 * places
    rho = np.clip(np.asarray(load, float), 0.0, 50.0)
    near = np.abs(rho - 1) < 1e-4
    safe = np.where(near, 0.5, rho)
    # Beyond 1 by the empty places, which are those of the inverse load.
    low = np.minimum(safe, 1 / np.maximum(safe, 1e-12))
    power = np.exp((room + 1) * np.log(np.maximum(low, 1e-300)))
    mean = low / (1 - low) - (room + 1) * power / (1 - power)
    found: Floats = np.where(near, room / 2, np.where(safe > 1, room - mean, mean)) / 2
    return found


def marked(load: Floats, room: float, low: float, high: float) -> Floats:
    """Return the share of packets that a switch marks (ECN) at a link that is offered `load`.

    It marks no packet that finds less than the share `low` of the queue full, every packet that finds `high` or more,
    and a linear share in between; the queue is M/M/1/K as in `used`.
    """
    states = np.arange(math.ceil(room) + 1)
    ramp = np.clip((states / room - low) / (high - low), 0.0, 1.0)
    grid = np.linspace(0.0, 2.0, 401)
    # Beyond 1 in powers of 1/rho, as above; only ratios count.
    powers = np.minimum(grid, 1.0)[:, None] ** states * np.where(grid > 1, grid, 1.0)[:, None] ** (states - states[-1])
    found: Floats = np.interp(load, grid, (powers * ramp).sum(axis=1) / powers.sum(axis=1))
    return found


def _deviation(seen: int) -> float:
    """Return mean deviation over mean of the sum of queues, each about exponential (Erlang's distribution)."""
    return float(2 * seen ** (seen - 1) * math.exp(-seen) / math.factorial(seen - 1))


def waiting(window: float, rate: Floats, base_rtt: float, target: float, queues: int | Ints = QUEUES) -> Floats:
    """Return the queueing delay of queue pairs that always have data to send.

    The part of a window that exceeds the path waits, the same in each of the queues on its way; NSCC limits it to its
    target delay.
    """
    with np.errstate(divide="ignore"):
        excess = np.maximum(np.where(rate > 0, window / rate, np.inf) - base_rtt, 0.0)
    found: Floats = np.minimum(excess * (queues - 1) / queues, target)
    return found


def detection(wait: Floats, base_rtt: float, queues: int | Ints = QUEUES) -> Floats:
    """Return the time from a packet that is lost to the verdict, s.

    By rule (c), another packet is sent a smoothed RTT and four deviations later; its answer comes after the shortest of
    round trips, because there are many paths.
    """
    deviation = np.where(queues == LONGER, _deviation(LONGER - 1), _deviation(QUEUES - 1))
    found: Floats = base_rtt + wait + DEVIATIONS * deviation * wait + base_rtt
    return found


@dataclass(frozen=True)
class Delays:
    """Times of a queue pair's packets, s.

    `verdict`: the age from which a packet counts as lost once a later one is answered (rule (c)); `found`: the age at
    which that is known while packets follow; `last_rtt`: the mean round trip of the last window, which drains while it
    is answered, so its packets wait half as long; `silence`: the round trip as the timer of the tail counts it then;
    `spread`: the standard deviation of the first two; `base_rtt`: the round trip when a message begins and after it has
    ended; `silence_before`: as that timer counts it while the window is full.
    """

    verdict: float
    found: float
    last_rtt: float
    silence: float
    spread: float
    base_rtt: float
    silence_before: float

    def later(self, by: float) -> Delays:
        """Return the same where the requestor's deviation is larger by as many standard deviations than on average."""
        more = max(by * self.spread, -self.spread * SURE)
        return replace(self, verdict=self.verdict + more, found=self.found + more)

    @classmethod
    def of(cls, wait: float, base_rtt: float, found: float) -> Delays:
        """Return those of a queueing delay, and of the `detection` that follows from it."""
        last, deviation = base_rtt + wait / 2, max(found - 2 * base_rtt - wait, 0.0) / DEVIATIONS
        found = max(found - SOONER * deviation, base_rtt)
        return cls(
            found - base_rtt,
            found,
            last,
            last + 2 * deviation / 2,
            SPREAD * deviation,
            base_rtt,
            base_rtt + wait + 2 * deviation,
        )


def further(turns: Floats, jitter: Floats) -> Floats:
    """Return how often a dead EV is used again until it is found, on average. `turns`: how often its turn comes
    meanwhile.

    EVs take turns, so what is lost are whole numbers: where each turn takes the same time, the turns that are over.
    `jitter` is the share of turns that are passed over because of ECN; gaps vary as much, and the number with them.
    """
    turns, jitter = np.broadcast_arrays(np.asarray(turns, float), np.asarray(jitter, float))
    total = np.where(turns > MOST, turns, 0.0)
    small = np.where(turns > MOST, 0.0, turns)
    spread = np.maximum(jitter, 1e-9)
    for number in range(1, math.ceil(float(small.max(initial=0.0)) * 2) + 2):
        # The chance that this many gaps are over by then.
        z = np.clip((small - number) / (spread * math.sqrt(number)), -8.0, 8.0)
        total = total + np.where(turns > MOST, 0.0, _normal(z))
    return total


def _normal(z: Floats) -> Floats:
    """Return the normal distribution's function, to 2e-4 (a logistic curve of an odd polynomial)."""
    found: Floats = 1.0 / (1.0 + np.exp(-(1.5976 * z + 0.070566 * z**3)))
    return found
