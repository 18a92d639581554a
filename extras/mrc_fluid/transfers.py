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


@dataclass(frozen=True)
class Transfer:
    """A transfer between two NICs: payload bytes, and when it begins, s."""

    source: int
    target: int
    bytes: int
    start_s: float = 0.0


@dataclass(frozen=True)
class TransferResult:
    """When each transfer ended (acknowledged at its requestor), s; what failures lost, in packets; EVs that are
    ASSUMED_BAD at the end."""

    ends_s: Floats
    lost: float
    evs_bad: int


def run(
    loaded: Loaded, kernels: Kernels, transfers: Sequence[Transfer], ev: EvSpec, payload_share: float,
    rates: LinkLoads | None = None, lone: float = 1.0,
) -> TransferResult:  # fmt: skip
    """Run transfers through the failures of a cluster.

    Args:
        ev: EVs of a queue pair; there may be several for one path, as in labs.
        payload_share: of all that a link carries.
        rates: of all links, bits per second, where they differ.
        lone: see `Carrier`.

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
        return _Course(carrier, transfers, [number[each.source, each.target] for each in transfers]).go()


class _Course:
    """The course of all transfers. Times are ns; `left` bytes of each, which ends no sooner than `least`."""

    def __init__(self, carrier: Carrier, transfers: Sequence[Transfer], pairs: Sequence[int]) -> None:
        self.carrier = carrier
        self.pairs = pairs
        self.begins = np.array([each.start_s * 1e9 for each in transfers])
        self.waiting = deque(sorted(range(len(transfers)), key=lambda index: (self.begins[index], index)))
        self.changes = deque(sorted(carrier.loaded.events))
        self.queues: dict[int, deque[int]] = {}
        self.left = np.array([float(each.bytes) for each in transfers])
        self.least = np.zeros(len(transfers))
        self.ends = np.full(len(transfers), np.inf)
        self.lost = 0.0

    def go(self) -> TransferResult:
        """Go from one change to the next until all transfers have ended, or none can go on."""
        now = 0.0
        while self.waiting or self.queues:
            self._begin(now)
            active = np.array(sorted(self.queues), np.int64)
            rates = self.carrier.rates(active) if len(active) else np.zeros(0)
            self._pay(active, rates, now)
            first = np.array([self.queues[pair][0] for pair in active], np.int64)
            rest = np.divide(self.left[first], rates, out=np.full(len(first), np.inf), where=rates > 0)
            spans = list(np.maximum(rest, self.least[first] - now))
            spans += [self.begins[self.waiting[0]] - now] if self.waiting else []
            spans += [self.changes[0].at - now] if self.changes else []
            span = min(spans, default=np.inf)
            if not np.isfinite(span):
                break  # nothing can be sent any more, and nothing will be repaired
            now += span
            self.left[first] -= rates * span
            self._end(active, first, now, self.carrier.late(active) if len(active) else np.zeros(0))
        base_rtt = self.carrier.run.base_rtt
        evs_bad = self.carrier.evs.counts()["bad"]
        return TransferResult(self.ends / 1e9 + base_rtt, self.lost / self.carrier.loaded.cluster.path_mtu, evs_bad)

    def _begin(self, now: float) -> None:
        """Begin what is due: failures and repairs, then transfers behind those of the same queue pair."""
        due = []
        while self.changes and self.changes[0].at <= now + NOTHING:
            due.append(self.changes.popleft())
        if due:
            self.carrier.change(due)
        while self.waiting and self.begins[self.waiting[0]] <= now + NOTHING:
            first = self.waiting.popleft()
            queue = self.queues.setdefault(self.pairs[first], deque())
            queue.append(first)
            if len(queue) == 1:
                self.carrier.dead.begin(self.pairs[first])

    def _pay(self, active: Ints, rates: Floats, now: float) -> None:
        """Let queue pairs find what has died under them: they send again, and end no sooner than that is done."""
        struck: Ints = np.flatnonzero(self.carrier.dead.due[active] & (rates > 0))
        if not len(struck):
            return
        flows = active[struck]
        first = np.array([self.queues[pair][0] for pair in flows], np.int64)
        again, delay = self.carrier.price(active, struck, self.left[first], next_repair(self.changes) - now)
        self.left[first] += again
        self.least[first] = np.maximum(self.least[first], now + delay)
        self.lost += float(again.sum())

    def _end(self, active: Ints, first: Ints, now: float, late: Floats) -> None:
        for pair, transfer, longer in zip(active.tolist(), first.tolist(), late.tolist(), strict=True):
            if self.left[transfer] <= NOTHING and self.least[transfer] <= now + NOTHING:
                self.left[transfer] = 0.0
                self.ends[transfer] = now + longer
                self.queues[pair].popleft()
                if self.queues[pair]:
                    self.carrier.dead.begin(pair)
                else:
                    del self.queues[pair]
            else:
                self.left[transfer] = max(self.left[transfer], 0.0)
