"""Transfers of given sizes in a cluster: each begins at its time, shares the fabric with the others, and ends.

Between two changes (a transfer begins or ends, something fails or is repaired) all rates are those of a steady state
(`carrier`). Transfers of one queue pair are sent one after another, as its messages are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from mrc_fluid.carrier import Carrier
from mrc_fluid.clusterfile import Loaded
from mrc_fluid.fabric import Floats, Ints
from mrc_fluid.kernels import Kernels, workers
from mrc_fluid.schema import EvSpec
from mrc_fluid.shares import LinkLoads
from mrc_fluid.timeline import next_repair

#: What rounding leaves of a time (ns), or of a transfer (bytes).
NOTHING = 1e-3
#: How unequal NSCC leaves rates that full links hold back to half of what is wanted (`HALF`): their standard deviation,
#: and the round trips in which half of it is there. Both are measured (`docs/reference/scale-accuracy.md`).
UNEQUAL, HALF, SETTLES = 0.078, 0.5, 6.5


@dataclass(frozen=True)
class Transfer:
    """A transfer between two NICs: payload bytes, and when it begins, s."""

    source: int
    target: int
    bytes: int
    start_s: float = 0.0


@dataclass(frozen=True)
class TransferResult:
    """Ends of transfers (acknowledged at their requestors), s, `[draw, transfer]`: what decides single packets is drawn
    as often. What failures lost, in packets; EVs that are ASSUMED_BAD at the end."""

    ends_s: Floats
    lost: float
    evs_bad: int


def run(
    loaded: Loaded, kernels: Kernels, transfers: Sequence[Transfer], ev: EvSpec, payload_share: float,
    rates: LinkLoads | None = None, lone: float = 1.0, draws: int = 1,
) -> TransferResult:  # fmt: skip
    """Run transfers through the failures of a cluster.

    Args:
        ev: EVs of a queue pair; there may be several for one path, as in labs.
        payload_share: of all that a link carries.
        rates: of all links, bits per second, where they differ.
        lone: see `Carrier`.
        draws: of the tails of transfers.

    Raises:
        ValueError: there is no transfer.
    """
    if not transfers:
        raise ValueError("no transfer was given; name at least one")
    pairs = sorted({(each.source, each.target) for each in transfers})
    number = {pair: index for index, pair in enumerate(pairs)}
    src, dst = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    with ThreadPoolExecutor(workers()) as pool:
        carrier = Carrier(loaded, kernels, pool, src, dst, ev, rates, lone)
        carrier.run.payload = payload_share
        return _Course(carrier, transfers, [number[each.source, each.target] for each in transfers], draws).go()


class _Course:
    """The course of all transfers. Times are ns; `left` bytes of each, which ends no sooner than `least` in each draw.

    Shares follow what changed a round trip later, as windows do.
    """

    def __init__(self, carrier: Carrier, transfers: Sequence[Transfer], pairs: Sequence[int], draws: int) -> None:
        self.carrier, self.draws = carrier, draws
        self.pairs = pairs
        self.begins = np.array([each.start_s * 1e9 for each in transfers])
        self.waiting = deque(sorted(range(len(transfers)), key=lambda index: (self.begins[index], index)))
        self.changes = deque(sorted(carrier.loaded.events))
        self.queues: dict[int, deque[int]] = {}
        self.left = np.array([float(each.bytes) for each in transfers])
        self.least = np.zeros((draws, len(transfers)))
        self.ends = np.full((draws, len(transfers)), np.inf)
        self._left_at = np.full(len(transfers), np.inf)
        self.lost = 0.0
        self._rng = np.random.default_rng(carrier.loaded.cluster.seed)
        #: When each has begun, how much of what it wanted full links held back, and the bytes that it has had ahead.
        self._begun, self._held, self._ahead = np.zeros((3, len(transfers)))
        self._rates, self._rated = np.zeros(len(carrier.run.flows)), -np.inf
        self._active: Ints = np.zeros(0, np.int64)

    def go(self) -> TransferResult:
        """Go from one change to the next until all transfers have ended, or none can go on."""
        now = 0.0
        while self.waiting or self.queues:
            fresh = self._begin(now)
            active = np.array(sorted(self.queues), np.int64)
            first = np.array([self.queues[pair][0] for pair in active], np.int64)
            next_look = np.inf
            if len(active) and len(active) != len(self._active):
                next_look = self._rated + self.carrier.loaded.cluster.base_rtt
            if len(active) and (fresh or self.carrier.dead.due[active].any() or now >= next_look - NOTHING):
                self._share(active, first, now)
                next_look = np.inf
            rates = self._rates[active]
            rest = np.divide(self.left[first], rates, out=np.full(len(first), np.inf), where=rates > 0)
            spans = list(np.maximum(rest, self.least[:, first].mean(axis=0) - now))
            spans += [self.begins[self.waiting[0]] - now] if self.waiting else []
            spans += [self.changes[0].at - now] if self.changes else []
            spans += [next_look - now]
            span = max(min(spans), 0.0)
            if not np.isfinite(span):
                break  # nothing can be sent any more, and nothing will be repaired
            now += span
            self.left[first] -= rates * span
            self._end(active, first, now)
        base_rtt = self.carrier.run.base_rtt
        evs_bad = self.carrier.evs.counts()["bad"]
        return TransferResult(self.ends / 1e9 + base_rtt, self.lost / self.carrier.loaded.cluster.path_mtu, evs_bad)

    def _begin(self, now: float) -> bool:
        """Begin what is due: failures and repairs, then transfers behind those of the same queue pair. Return whether
        anything was."""
        due = []
        while self.changes and self.changes[0].at <= now + NOTHING:
            due.append(self.changes.popleft())
        if due:
            self.carrier.change(due)
        fresh = bool(due)
        while self.waiting and self.begins[self.waiting[0]] <= now + NOTHING:
            first, fresh = self.waiting.popleft(), True
            queue = self.queues.setdefault(self.pairs[first], deque())
            queue.append(first)
            if len(queue) == 1:
                self._start(self.pairs[first], first, now)
        return fresh

    def _start(self, pair: int, transfer: int, now: float) -> None:
        """Start a transfer, which is the first of its queue pair now."""
        self._begun[transfer] = now
        self.carrier.dead.begin(pair)

    def _share(self, active: Ints, first: Ints, now: float) -> None:
        """Give queue pairs their shares from now on, and let them pay for what has died under them."""
        state = self.carrier.state(active)
        self._active, self._rated = active, now
        self._rates[active] = state.rates
        self._held[first] = np.maximum(self._held[first], state.held)
        if state.tails.trims is not None:
            # What windows have sent when they were at their largest is there once.
            ahead = np.minimum(state.tails.trims.ahead * self.carrier.loaded.cluster.path_mtu, self.left[first])
            gets = np.where(self._ahead[first] > 0, 0.0, ahead)
            self.left[first] -= gets
            self._ahead[first] += gets
        struck: Ints = np.flatnonzero(self.carrier.dead.due[active] & (state.rates > 0))
        if len(struck):
            ones = first[struck]
            until = next_repair(self.changes) - now
            since = now - self._begun[ones]
            again, delay = self.carrier.price(active, struck, self.left[ones], until, self.draws, since)
            self.left[ones] += again
            self.least[:, ones] = np.maximum(self.least[:, ones], now + delay)
            self.lost += float(again.sum())

    def _end(self, active: Ints, first: Ints, now: float) -> None:
        gone = self.left[first] <= NOTHING
        self._left_at[first[gone]] = np.minimum(self._left_at[first[gone]], now)
        over = gone & (self.least[:, first].mean(axis=0) <= now + NOTHING)
        if not over.any():
            return
        # The last that was known of all queue pairs that send has the tails of these.
        some = np.searchsorted(self._active, active[over])
        tails = self.carrier.state(self._active).tails.draw(self._rng, self.draws, some) * 1e9
        ones = first[over]
        self.left[ones] = 0.0
        unequal = self._unequal(self._left_at[ones] - self._begun[ones], self._held[ones])
        self.ends[:, ones] = np.maximum(self._left_at[ones] + unequal + tails, self.least[:, ones])
        for pair in active[over].tolist():
            self.queues[pair].popleft()
            if self.queues[pair]:
                self._start(pair, self.queues[pair][0], now)
            else:
                del self.queues[pair]
        self.left[first] = np.maximum(self.left[first], 0.0)

    def _unequal(self, lasts: Floats, held: Floats) -> Floats:
        """Return how much later than on average transfers end that have lasted as long, because windows differ where
        links are full: freed capacity does not make those faster that have little."""
        base_rtt = self.carrier.loaded.cluster.base_rtt
        spread = UNEQUAL * np.clip(held / HALF, 0, 1) * lasts / (lasts + SETTLES * base_rtt)
        found: Floats = lasts * spread * np.clip(self._rng.standard_normal((self.draws, len(lasts))), -3, 3)
        return found
