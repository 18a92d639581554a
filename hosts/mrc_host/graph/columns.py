"""Operations in the making: columns that grow, and the edges between them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from mrc_host.graph.graph import Ints


class Op(IntEnum):
    """What an operation of a schedule is; JOIN waits for its predecessors, and then for its `work` in ns."""

    COMPUTE = 0
    SEND = 1
    RECEIVE = 2
    JOIN = 3


class Columns:
    """Columns of operations; `finish` makes arrays of them."""

    def __init__(self) -> None:
        self._count = 0
        self._rows: dict[str, list[Ints]] = {name: [] for name in ("kind", "rank", "work", "unit", "counts", "peer")}
        self._tails: list[Ints] = []
        self._heads: list[Ints] = []
        self._pairs: list[tuple[Ints, Ints]] = []
        self._labels: dict[str, int] = {}
        self._spans: list[tuple[int, Ints, Ints]] = []

    def __len__(self) -> int:
        return self._count

    def add(
        self, kind: Op, rank: Ints, work: int | Ints, *, unit: Ints | None = None, peer: Ints | None = None,
        counts: bool = False,
    ) -> Ints:  # fmt: skip
        """Add operations of one kind, one for each rank, in the shape of `rank`; return their numbers."""
        flat = rank.ravel()
        none = np.full(len(flat), -1, np.int64)
        columns = {
            "kind": np.full(len(flat), int(kind), np.int64),
            "rank": flat,
            "work": np.broadcast_to(np.asarray(work, np.int64), rank.shape).ravel(),
            "unit": none if unit is None else unit.ravel(),
            "counts": np.full(len(flat), int(counts), np.int64),
            "peer": none if peer is None else peer.ravel(),
        }
        for name, values in columns.items():
            self._rows[name].append(values)
        made = np.arange(self._count, self._count + len(flat))
        self._count += len(flat)
        return made.reshape(rank.shape)

    def joins(self, rank: Ints, work: int = 0) -> Ints:
        """Add operations that wait for their predecessors."""
        return self.add(Op.JOIN, rank, work)

    def edges(self, before: Ints, after: Ints) -> None:
        """Let each of `after` wait for the one of `before` at its place."""
        self._tails.append(before.ravel())
        self._heads.append(after.ravel())

    def pair(self, sends: Ints, receives: Ints) -> None:
        """Let each receive take the message of the send at its place."""
        self._pairs.append((sends.ravel(), receives.ravel()))
        self.edges(sends, receives)

    def span(self, label: str, begin: Ints, end: Ints) -> None:
        """Name what is between two operations of a rank."""
        number = self._labels.setdefault(label, len(self._labels))
        self._spans.append((number, begin.ravel(), end.ravel()))

    def finish(self, ranks: int, units: int) -> dict[str, Any]:
        """Return the fields of a `Schedule`."""
        made = {name: _joined(rows) for name, rows in self._rows.items()}
        count = self._count
        kind, peer = made["kind"], made["peer"]
        sends = np.flatnonzero(kind == Op.SEND)
        pairs = made["rank"][sends] * max(ranks, 1) + peer[sends]
        flows, flow = np.unique(pairs, return_inverse=True)
        made["unit"][sends] = flow.ravel()
        message, sent = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        order = np.argsort(flow.ravel(), kind="stable")
        first = np.searchsorted(flow.ravel()[order], np.arange(len(flows)))
        message[sends[order]] = np.arange(len(sends)) - first[flow.ravel()[order]]
        for one, other in self._pairs:
            sent[other] = one
            message[other] = message[one]
        tails, heads = _joined(self._tails), _joined(self._heads)
        by_tail = np.argsort(tails, kind="stable")
        return {
            "ranks": ranks,
            "kind": kind.astype(np.uint8),
            "rank": made["rank"].astype(np.int32),
            "work": made["work"].astype(np.float64),
            "unit": made["unit"].astype(np.int32),
            "units": ranks * units,
            "counts": made["counts"].astype(bool),
            "peer": peer.astype(np.int32),
            "message": message.astype(np.int32),
            "sent": sent,
            "first": np.concatenate([[0], np.cumsum(np.bincount(tails, minlength=count))]).astype(np.int64),
            "heads": heads[by_tail],
            "needs": np.bincount(heads, minlength=count).astype(np.int32),
            "flow_src": (flows // max(ranks, 1)).astype(np.int32),
            "flow_dst": (flows % max(ranks, 1)).astype(np.int32),
            "labels": list(self._labels),
            "span_label": np.repeat(
                np.array([row[0] for row in self._spans], np.uint8), [len(row[1]) for row in self._spans]
            ),
            "span_begin": _joined([row[1] for row in self._spans]),
            "span_end": _joined([row[2] for row in self._spans]),
        }


def _joined(rows: list[Ints]) -> Ints:
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)
