"""Reorder distance: how far below the highest PSN packets arrived, from the records of MRC's responders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from mrc_host.answers import MrcHostStatistics
from mrc_host.proto.statistics import QpReordering
from mrc_host.proto.stats import EXACT
from mrc_topo import addressing
from mrc_topo.topology import Topology
from mrclab.results.performance import Table
from mrclab.results.record import RunResult

#: Columns of reordering in frames, and what they are.
COLUMNS = {
    "source": "the host that sent",
    "destination": "the host to which the packets came",
    "qpn": "number of the queue pair there",
    "unit": "packets or bytes: of the distance",
    "least": "shortest distance of this row",
    "most": "longest distance of this row",
    "count": "packets that came this far out of order",
    "placed": "all packets that came to the queue pair, but for duplicates",
}


@dataclass(frozen=True)
class ReorderRow:
    """A bin of a queue pair's histogram; `COLUMNS` has the fields."""

    source: str
    destination: str
    qpn: int
    unit: str
    least: int
    most: int
    count: int
    placed: int


@dataclass(frozen=True)
class Reordered:
    """The histograms of all queue pairs together; `again`: late retransmissions, which are in none."""

    placed: int
    again: int
    packets: Sequence[int]
    bytes: Sequence[int]

    @property
    def late(self) -> int:
        """All packets that came out of order."""
        return sum(self.packets)

    @property
    def share(self) -> float:
        """Packets that came out of order, of all that came."""
        return self.late / self.placed

    def distance(self, share: float) -> int:
        """Return the distance, in packets, that this share of all packets does not exceed (the upper end of its
        span); those in order have 0."""
        left = share * self.placed - (self.placed - self.late)
        for index, count in enumerate(self.packets):
            if left <= 0:
                break
            left -= count
            if left <= 0:
                return span_of_packets(index)[1]
        return 0


def span_of_packets(index: int) -> tuple[int, int]:
    """Return the shortest and longest distance of an element of a histogram in packets (`proto.stats.Reordering`)."""
    if index < EXACT:
        return index, index
    least = EXACT << index - EXACT
    return least, 2 * least - 1


def span_of_bytes(index: int) -> tuple[int, int]:
    """Return the same of a histogram in bytes."""
    return (1 << index) >> 1, (1 << index) - 1


def _pairs(result: RunResult) -> Iterator[tuple[str, QpReordering]]:
    for host, statistics in result.statistics.items():
        if isinstance(statistics, MrcHostStatistics):
            yield from ((host, each) for each in statistics.reordering)


def of(result: RunResult) -> Reordered | None:
    """Return the reordering of a run; None where nothing measured it: over RoCE, or of queue pairs that are gone."""
    found = [each for _, each in _pairs(result)]
    if not found:
        return None
    packets, sizes = (
        [sum(each) for each in zip_longest(*columns, fillvalue=0)]
        for columns in ((each.late for each in found), (each.late_bytes for each in found))
    )
    return Reordered(sum(each.packets for each in found), sum(each.again for each in found), packets, sizes)


def rows(result: RunResult, topology: Topology) -> list[ReorderRow]:
    """Return the bins that are not empty, by queue pair."""
    names = {addressing.text(host.address): host.name for host in topology.hosts}
    made = []
    for host, each in _pairs(result):
        ends = names.get(each.peer or "", ""), host, each.qpn
        for unit, counts, span in (
            ("packets", each.late, span_of_packets), ("bytes", each.late_bytes, span_of_bytes),
        ):  # fmt: skip
            made += [
                ReorderRow(*ends, unit, *span(index), count, each.packets)
                for index, count in enumerate(counts)
                if count
            ]
    return made


def tables(result: RunResult) -> list[Table]:
    """Return the histograms as tables of text, in spans that double; none where nothing came out of order."""
    found = of(result)
    if found is None or not found.late:
        return []
    title = (
        f"reorder distance: {found.late} of {found.placed} packets ({found.share:.1%}) came below the highest PSN; "
        f"{found.again} late retransmissions are not counted"
    )
    return [
        Table(title, (f"distance, {unit}", "packets", "of all"), _doubling(counts, span, found.placed))
        for unit, counts, span in (
            ("packets", found.packets, span_of_packets),
            ("bytes", found.bytes, span_of_bytes),
        )
    ]


def _doubling(counts: Sequence[int], span: Callable[[int], tuple[int, int]], placed: int) -> list[tuple[str, str, str]]:
    """Return rows whose spans double, from counts whose spans are as long or shorter."""
    merged: dict[int, int] = {}
    for index, count in enumerate(counts):
        if count:
            octave = span(index)[0].bit_length()
            merged[octave] = merged.get(octave, 0) + count
    return [
        (f"{(1 << octave) >> 1} to {(1 << octave) - 1}" if octave > 1 else "1", str(count), f"{count / placed:.2%}")
        for octave, count in sorted(merged.items())
    ]
