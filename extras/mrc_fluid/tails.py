"""Tails of messages: how much longer than a round trip the last packets take, which differs from message to message.

A message ends with the last of its packets that arrives. Each waits in the queues that a round trip sees, about
exponentially in each; the window drains meanwhile, so it waits half as long as packets before (`queueing.Delays`).
Where a slow plane trims, each of the packets that are under way at the end passes with a chance of its own, and is sent
again until it does. Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrc_fluid.fabric import Floats, Ints

#: Windows of more packets than this count as such: the last of as many decide.
MOST_PACKETS = 64


@dataclass(frozen=True)
class Trims:
    """Effect of a slow plane on the last packets of queue pairs, of those with more than 0 `trimmed`.

    `trimmed`: the share of packets, which are sent again after `again`; `slow`: the share of those that pass in that
    plane, and wait `late` there; a packet leaves every `gap`, and `window` of them are under way. `ahead`: packets that
    have arrived early, because windows begin at their largest.
    """

    trimmed: Floats
    again: Floats
    slow: Floats
    late: Floats
    gap: Floats
    window: Floats
    ahead: Floats

    def draw(self, rng: np.random.Generator, draws: int) -> Floats:
        """Return how much later than the last byte would have left the last packet arrives, `[draw, queue pair]`."""
        found, which = np.zeros((draws, len(self.trimmed))), np.flatnonzero(self.trimmed > 0)
        if not len(which):
            return found
        share, gap = self.trimmed[which][:, None], self.gap[which][:, None]
        window = np.clip(np.round(self.window[which]), 1, MOST_PACKETS)[:, None]
        number = np.arange(MOST_PACKETS)
        times = np.floor(np.log(1 - rng.random((draws, len(which), MOST_PACKETS))) / np.log(share))
        slow = rng.random(times.shape) < self.slow[which][:, None]
        # The last packet leaves as much sooner as sending again takes of the link's time.
        first = -gap * (number + window * share / (1 - share))
        arrival = first + times * self.again[which][:, None] + slow * self.late[which][:, None]
        found[:, which] = np.where(number < window, arrival, -np.inf).max(axis=2)
        return found

    def of(self, some: Ints) -> Trims:
        """Return those of some queue pairs."""
        return Trims(*(part[some] for part in vars(self).values()))


@dataclass(frozen=True)
class Tails:
    """The queueing delay of the packets of queue pairs, in the `queues` that a round trip sees; `trims`: None where
    nothing is trimmed."""

    wait: Floats
    queues: Ints
    trims: Trims | None = None

    def draw(self, rng: np.random.Generator, draws: int, some: Ints) -> Floats:
        """Return how much longer than a round trip through empty queues the last packets of some queue pairs take,
        `[draw, queue pair]`."""
        seen = self.queues[some] - 1
        wait = self.wait[some]
        if self.trims is None:
            return rng.gamma(seen, wait / 2 / seen, (draws, len(some)))
        trims = self.trims.of(some)
        # What a slow plane trims waits there, and elsewhere queues are short.
        wait = np.where(trims.trimmed > 0, 0.0, wait)
        found: Floats = rng.gamma(seen, wait / 2 / seen, (draws, len(some))) + trims.draw(rng, draws)
        return found
