"""Transfers of given sizes in a cluster: each begins at its time, shares the fabric with the others, and ends.

Between two changes (a transfer begins or ends, something fails or is repaired) all rates are those of a steady state.
Transfers of one queue pair are sent one after another, as its messages are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from mrc_scale.clusterfile import Loaded
from mrc_scale.fabric import Floats
from mrc_scale.jobs import Flows
from mrc_scale.kernels import Kernels, workers
from mrc_scale.run import ClusterRun, Interval
from mrc_scale.schema import EvSpec
from mrc_scale.shares import LinkLoads, LinkPrices

#: Bits that rounding leaves of a transfer.
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
    rates: LinkLoads | None = None,
) -> TransferResult:  # fmt: skip
    """Run transfers through the failures of a cluster.

    Args:
        ev: EVs of a queue pair; there may be several for one path, as in labs.
        payload_share: of all that a link carries.
        rates: of all links, bits per second, where they differ.

    Raises:
        ValueError: there is no transfer.
    """
    if not transfers:
        raise ValueError("no transfer was given; name at least one")
    pairs = sorted({(each.source, each.target) for each in transfers})
    number = {pair: index for index, pair in enumerate(pairs)}
    src, dst = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    zeros = np.zeros(len(pairs))
    flows = Flows(src, dst, zeros.astype(np.int32), zeros)
    whole = ClusterRun(loaded, kernels, every=flows)
    whole.payload = payload_share
    queues: list[deque[int]] = [deque() for _ in pairs]
    begins = sorted(range(len(transfers)), key=lambda index: (transfers[index].start_s, index))
    with ThreadPoolExecutor(workers()) as pool:
        evs = whole.draw(pool, ev)
        model = whole.model(pool, evs)
        if rates is not None:
            model.set_rates(rates)
        changes = deque(sorted(loaded.events))
        left = np.array([each.bytes * 8.0 for each in transfers])
        ends = np.full(len(transfers), np.inf)
        now, lost, step = 0.0, 0.0, None
        until = Interval(zeros, LinkPrices.fresh(loaded.shape), LinkLoads.none(loaded.shape))
        while begins or any(queues):
            due = []
            while changes and changes[0].at <= now * 1e9 + NOTHING:
                due.append(changes.popleft())
            if due or step is None:
                step, _ = whole.change(model, evs, until, due, round(now * 1e9) // loaded.cluster.bin, step)
                lost += step.lost
                hit = [queue[0] for queue in queues if queue]
                for index in hit:  # what was lost is sent again
                    left[index] += step.lost / len(hit) * loaded.cluster.path_mtu * 8
            while begins and transfers[begins[0]].start_s <= now + NOTHING / 1e9:
                first = begins.pop(0)
                queues[number[transfers[first].source, transfers[first].target]].append(first)
            demand = np.array([whole.window_bps if queue else 0.0 for queue in queues])
            until = whole.settled(model, demand)[1] if demand.any() else Interval(zeros, until.prices, until.load)
            payload = until.rates * payload_share
            spans = [left[queue[0]] / payload[pair] for pair, queue in enumerate(queues) if queue and payload[pair] > 0]
            if begins:
                spans.append(transfers[begins[0]].start_s - now)
            if changes:
                spans.append(changes[0].at / 1e9 - now)
            if not spans:
                break  # nothing can be sent any more, and nothing will be repaired
            span = max(min(spans), 0.0)
            now += span
            for pair, queue in enumerate(queues):
                if queue:
                    left[queue[0]] -= payload[pair] * span
                    if left[queue[0]] <= NOTHING:
                        ends[queue.popleft()] = now + whole.base_rtt
    return TransferResult(ends, lost, evs.counts()["bad"])
