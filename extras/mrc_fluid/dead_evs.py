"""Cost of dead EVs to messages: packets that are sent again, and an end that waits for the last of them.

A queue pair finds a dead EV when it has used it. The backup that replaces the EV may be dead, too, and is found in its
turn: the two are a chain. A message that ends before the turn of an EV does not find it, and a later one does. What is
lost at the end of a message has no packet behind it whose answer could tell; a probe asks after a silence
(`mrc-protocol.md`, 5).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mrc_fluid.fabric import Bools, Floats
from mrc_fluid.queueing import Delays

#: Smoothed RTTs of silence until the peer is asked.
SILENCE = 2
#: Intervals of the tail's timer after which its phase is any; and the standard deviation of one as a share of it, by
#: the averages that it follows from.
MOST_INTERVALS, VARIES = 50, 0.09
#: Probes in a row that may be lost.
MOST_PROBES = 20


@dataclass(frozen=True)
class Chain:
    """Dead EVs of which each replaces the one before, in a plane; `loss` is the share of packets that each loses."""

    plane: int
    length: int
    loss: float = 1.0


@dataclass(frozen=True)
class Pace:
    """How a queue pair sends a message: seconds until its last packet leaves, those from one use of an EV to the next
    by plane, its EVs in use, and packets per second that grey elements lose. `until`: seconds until something is
    repaired; `since`: since the message began, if its queue pair was idle before."""

    lasts: float
    turns: Sequence[float]
    active: int
    grey: float = 0.0
    until: float = math.inf
    since: float = math.inf


class DeadEvs:
    """The EVs that queue pairs have not found dead yet. The moments of their turns are drawn from `seed`."""

    def __init__(self, count: int, seed: int) -> None:
        #: Queue pairs whose message has not paid yet.
        self.due: Bools = np.zeros(count, bool)
        self._grey = False
        self._chains: dict[int, list[Chain]] = {}
        self._cut = np.zeros(count)
        self._rng = random.Random(f"{seed}/dead-evs")

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._chains) or bool(self._cut.any())

    def add(self, rounds: Sequence[NDArray[np.int32]], loss: float = 1.0) -> None:
        """Add EVs by plane and queue pair: those that are used now, the dead ones of their backups, and so on."""
        if not rounds:
            return
        for plane, qp in np.argwhere(rounds[0]).tolist():
            for number in range(int(rounds[0][plane, qp])):
                length = sum(int(found[plane, qp]) > number for found in rounds)
                self._chains.setdefault(qp, []).append(Chain(plane, length, loss))
            self.due[qp] = True

    def add_cut(self, packets: Floats) -> None:
        """Add packets by queue pair that a port has taken along."""
        self._cut += packets
        self.due |= packets > 0

    def set_grey(self, grey: bool) -> None:
        """Set whether elements lose packets without being dead, so that any message may lose its last ones."""
        self._grey = grey
        self.due |= grey

    def forget(self) -> None:
        """Forget EVs that were not used until something was repaired: the first answer to a probe brings them back."""
        self._chains.clear()

    def begin(self, qp: int) -> None:
        """Begin a message, which finds what those before have not."""
        self.due[qp] = self._grey or qp in self._chains or self._cut[qp] > 0

    def pay(self, qp: int, pace: Pace, delays: Delays, draws: int = 1) -> tuple[float, list[float]]:
        """Return what the message of a queue pair pays: packets that are sent again, on average over this many draws,
        and in each draw the seconds from now before which the last of them has not left.

        What later messages have still to find is that of the first draw.
        """
        self.due[qp] = False
        cut, chains = float(self._cut[qp]), self._chains.pop(qp, [])
        self._cut[qp] = 0
        drawn = [self._draw(cut, chains, pace, delays) for _ in range(draws)]
        if drawn[0][2]:
            self._chains[qp] = drawn[0][2]
        return sum(lost for lost, _, _ in drawn) / draws, [end for _, end, _ in drawn]

    def _draw(
        self, cut: float, chains: Sequence[Chain], pace: Pace, delays: Delays
    ) -> tuple[float, float, list[Chain]]:  # fmt: skip
        """Return packets lost, the end of the last of them, and the chains that were not found."""
        delays = delays.later(self._rng.gauss(0.0, 1.0))
        uses, lost = [0.0] if cut else [], cut
        later: list[Chain] = []
        hidden = 0
        for chain in chains:
            spent, left, found = self._use(chain, pace, delays)
            uses += spent
            hidden += found > pace.lasts
            lost += len(spent) if chain.loss >= 1 else min(len(spent), 1 + chain.loss * (len(spent) - 1))
            later += left
        # What grey elements lose before the end is in the rates.
        if self._rng.random() < -math.expm1(-pace.grey * min(delays.verdict, pace.lasts)):
            uses.append(pace.lasts)
        return lost, self._end(sorted(uses), pace, hidden / pace.active, delays), later

    def _use(self, chain: Chain, pace: Pace, delays: Delays) -> tuple[list[float], list[Chain], float]:
        """Return when a message uses the EVs of a chain before it finds them dead, what is left of the chain, and when
        the last of it is found."""
        uses: list[float] = []
        found, turn, ends = 0.0, pace.turns[chain.plane], min(pace.lasts, pace.until)
        for number in range(chain.length):
            use = found + (self._rng.random() + self._spared(chain.loss)) * turn
            if use >= ends:
                return uses, [replace(chain, length=chain.length - number)], math.inf
            found = use + delays.found
            uses += [use + turn * again for again in range(1 + int((min(found, ends) - use) / turn))]
        return uses, [], found

    def _end(self, uses: Sequence[float], pace: Pace, dead: float, delays: Delays) -> float:
        """Return when the last packet that was lost at these times leaves again. One is found lost by the answer to a
        packet that left long enough after it, which may have been sent again itself."""
        sent, missing = pace.lasts, False
        last = 0.0
        for use in uses:
            if use + delays.verdict <= sent:
                last = use + delays.found
                sent = max(sent, last)
            else:
                missing = True
        return sent + self._silence(pace.since + sent, dead, delays) if missing else last

    def _spared(self, loss: float) -> int:
        """Return how many uses of an EV pass before the first that is lost."""
        return 0 if loss >= 1 else int(math.log(1 - self._rng.random()) / math.log1p(-loss))

    def _rest(self, end: float, delays: Delays) -> float:
        """Return what is left of an interval of the tail's timer when the last answer arrives, `end` seconds after the
        message began. Intervals follow each other from there; after many of them any part may be left."""
        interval = SILENCE * delays.silence_before
        if not end < MOST_INTERVALS * interval:
            return self._rng.random() * interval
        at = SILENCE * delays.base_rtt
        while at < end:
            at += interval * max(self._rng.gauss(1.0, VARIES), VARIES)
        return at - end

    def _silence(self, end: float, dead: float, delays: Delays) -> float:
        """Return the seconds from the last packet until what was lost is repeated: the last answer, the rest of an
        interval of the timer, another one, and the probe's answer; longer if the share `dead` of EVs takes the probe,
        or what is repeated."""
        interval = SILENCE * delays.silence
        waited = delays.last_rtt + self._rest(end + delays.last_rtt, delays)
        for _ in range(MOST_PROBES):
            # By then queues are empty.
            waited += interval + delays.base_rtt
            answered = self._rng.random() >= dead
            if answered and self._rng.random() >= dead:
                break
            # The timer takes what was repeated for progress, and begins another interval when it ends.
            interval *= 2
            waited += interval * answered
        return waited
