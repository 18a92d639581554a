"""Measurements of a run's workload, as perftest's users look for them: bandwidth of streams, latency, iteration times.

All of it comes from the hosts (`mrc_host.workloads.measure`); here it gets names, and a shape for tables and JSON.
"""

from __future__ import annotations

import bisect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter

import numpy as np

from mrc_host.answers import FlowTimes, LatencyTimes, Measured, Stream, Times
from mrc_topo.base import quantiles
from mrc_topo.base.plain import encode
from mrc_topo.schema import Lab
from mrc_topo.topology import Topology
from mrclab.results import steps, wire
from mrclab.results.record import RunResult
from mrclab.results.steps import TrainingSummary

#: Columns of ib_write_lat, and their times.
TIMES = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "99%", "99.9%")
_times = attrgetter("min", "max", "typical", "mean", "stdev", "p99", "p99_9")
#: Quantiles in the table of flows.
_SHARES = (0.5, 0.99, 1.0)

#: Columns of flows in tables and frames, and what they are.
FLOWS = {
    "number": "place in the list of flows, from 0; again in each iteration",
    "source": "the host that sends",
    "destination": "the host that receives",
    "bytes": "size",
    "start_s": "when it began, from the start of the run, s",
    "completion_s": "from then until all of it was acknowledged at the requestor, s",
    "alone_s": "completion time of a flow of this size between these hosts, alone in a healthy fabric, s",
    "slowdown": "completion_s / alone_s",
}
#: Quantiles of slowdown.
SLOWDOWNS = {"P50": 0.5, "P95": 0.95, "P99": 0.99, "P99.9": 0.999}
#: Groups of flows by size.
_MOST_SIZES = 10

#: The title of a table has room for this many.
_MOST_INDICES = 3


@dataclass(frozen=True)
class Table:
    """Rows of text under heads."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Format the columns as wide as they must be, on a narrow terminal too: no figure is cut."""
        lines = [self.heads, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([*textwrap.wrap(self.title, 79), *shown])


@dataclass(frozen=True)
class StreamRow:
    """A stream between two hosts."""

    source: str
    destination: str
    stream: Stream


@dataclass(frozen=True)
class LatencyRow:
    """Latency between two hosts."""

    source: str
    destination: str
    times: LatencyTimes


@dataclass(frozen=True)
class IterationsRow:
    """Times of a host's iterations."""

    host: str
    times: Times


@dataclass(frozen=True)
class FlowRow:
    """A flow of a connection matrix between two hosts."""

    source: str
    destination: str
    flow: FlowTimes
    alone_ns: int | None = None
    run_began_ns: int = 0

    @property
    def number(self) -> int:
        """Its place in the list of flows, from 0."""
        return self.flow.number

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.flow.bytes

    @property
    def start_s(self) -> float:
        """When it began, from the start of the run."""
        return (self.flow.began_ns - self.run_began_ns) / 1e9

    @property
    def alone_s(self) -> float | None:
        """The time that it takes alone."""
        return None if self.alone_ns is None else self.alone_ns / 1e9

    @property
    def completion_s(self) -> float:
        """The flow's completion time."""
        return (self.flow.ended_ns - self.flow.began_ns) / 1e9

    @property
    def slowdown(self) -> float | None:
        """The completion time over the time that the flow takes alone (`wire.alone_ns`); None of a run whose record
        lacks its lab."""
        return None if self.alone_ns is None else self.completion_s * 1e9 / self.alone_ns


@dataclass(frozen=True)
class Performance:
    """The workload's measurements; parts that it does not measure are empty."""

    bandwidth: Sequence[StreamRow]
    latency: Sequence[LatencyRow]
    iterations: Sequence[IterationsRow]
    training: TrainingSummary | None
    flows: Sequence[FlowRow] = ()

    def document(self) -> dict[str, list[dict[str, object]]]:
        """Return the performance as JSON, of `bandwidth`, `latency`, `iterations`, `training` and `flows` those that
        there are."""
        parts = {
            "bandwidth": [
                {"source": each.source, "destination": each.destination, **encode(each.stream)}
                for each in self.bandwidth
            ],
            "latency": [
                {"source": each.source, "destination": each.destination, **_without_peer(each.times)}
                for each in self.latency
            ],
            "iterations": [{"host": each.host, **encode(each.times)} for each in self.iterations],
            "training": [] if self.training is None else [encode(self.training)],
            "flows": [
                {
                    "source": each.source,
                    "destination": each.destination,
                    **encode(each.flow),
                    **({} if each.alone_ns is None else {"alone_ns": each.alone_ns, "slowdown": each.slowdown}),
                }
                for each in self.flows
            ],
        }
        return {name: rows for name, rows in parts.items() if rows}


def _without_peer(times: LatencyTimes) -> dict[str, object]:
    return {key: value for key, value in encode(times).items() if key != "peer"}


def measured(result: RunResult, host: str) -> Measured:
    """Return the measurements of a rank's workload; empty for a rank that never ended."""
    progress = result.progress.get(host)
    return Measured() if progress is None or progress.measured is None else progress.measured


def of(result: RunResult) -> Performance:
    """Return what the workload measured: bandwidth per stream, latency per pair, iterations per host (ns), and steps of
    training over all hosts (s); hosts by name."""
    ranks = result.ranks
    bandwidth: list[StreamRow] = []
    latency: list[LatencyRow] = []
    iterations: list[IterationsRow] = []
    flows: list[FlowRow] = []
    alone = _alone(result)
    for name in ranks:
        found = measured(result, name)
        bandwidth += [StreamRow(name, ranks[int(peer)], each) for peer, each in (found.streams or {}).items()]
        for each in found.flows or ():
            least = alone(name, ranks[each.target], each.bytes)
            flows.append(FlowRow(name, ranks[each.target], each, least, result.started_ns))
        if found.latency_ns is not None:
            latency.append(LatencyRow(name, ranks[found.latency_ns.peer], found.latency_ns))
        elif found.iteration_ns is not None and not found.flows:
            iterations.append(IterationsRow(name, found.iteration_ns))
    training = steps.summary(result)
    # Iterations of a training are the same at all ranks but for a few packets, and the answering side of a latency test
    # measured nothing of its own.
    kept = [] if latency or flows or training is not None else iterations
    return Performance(bandwidth, latency, kept, training, sorted(flows, key=lambda each: each.flow.number))


def _alone(result: RunResult) -> Callable[[str, str, int], int | None]:
    """Return a function of the least time of a flow, by the names of its hosts and its bytes, ns."""

    @cache
    def lab() -> tuple[Topology, str, int] | None:
        asked = result.experiment
        if not isinstance(asked, Mapping) or result.topology is None:
            return None
        return Topology(Lab.model_validate(result.topology)), asked["transport"], asked["workload"]["qps_per_peer"]

    @cache
    def alone(source: str, destination: str, nbytes: int) -> int | None:
        found = lab()
        if found is None:
            return None
        topology, transport, qps = found
        ends = topology.host(source).index, topology.host(destination).index
        return wire.alone_ns(topology, transport, qps, *ends, nbytes)

    return alone


def stream_rates(result: RunResult, source: str | None, destination: str | None) -> dict[str, float]:
    """Average bit rates of the streams from and to these hosts (None: any), by `SOURCE to DESTINATION`."""
    ranks = result.ranks
    rates = {}
    for name in ranks:
        for rank, stream in (measured(result, name).streams or {}).items():
            if source in (None, name) and destination in (None, ranks[int(rank)]):
                rates[f"{name} to {ranks[int(rank)]}"] = float(stream.average_bps)
    return rates


def jain(rates: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 when all are equal, 1/n when one has everything."""
    squares = len(rates) * sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / squares if squares else 0.0


def _fairness(streams: Sequence[StreamRow]) -> str:
    """Return Jain's index of the streams that share a destination, for the title of their table; empty where none
    do."""
    shared: dict[str, list[float]] = {}
    for each in streams:
        shared.setdefault(each.destination, []).append(each.stream.average_bps)
    indices = [
        f"of {len(rates)} streams to {destination}: {jain(rates):.3f}"
        for destination, rates in shared.items()
        if len(rates) > 1
    ]
    # All-to-all has as many as hosts: one line says it for a few.
    return f"; Jain's index of fairness {', '.join(indices)}" if 0 < len(indices) <= _MOST_INDICES else ""


def _cells(times: Times) -> list[str]:
    """Return times as cells under `TIMES`, in µs."""
    return [quantiles.shown(ns, 1e-3, 2) for ns in _times(times)]


def tables(result: RunResult) -> list[Table]:
    """Return the performance as tables of text; bandwidths are in Mb/s, times in µs."""
    found = of(result)
    made = []
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    if streams := found.bandwidth:
        heads = ("stream", "#bytes", "#messages", "BW peak", "BW average", "MsgRate")
        rows = [
            (
                f"{each.source} > {each.destination}",
                str(each.stream.message_bytes),
                str(each.stream.messages),
                f"{each.stream.peak_bps / 1e6:.3f}",
                f"{each.stream.average_bps / 1e6:.3f}",
                f"{each.stream.messages_per_s:.3f}",
            )
            for each in streams
        ]
        made.append(Table(f"bandwidth, Mb/s; messages per second{_fairness(streams)}", heads, rows))
        rows = [
            (f"{each.source} > {each.destination}", str(times.count), *_cells(times))
            for each in streams
            if (times := each.stream.completion_ns) is not None
        ]
        if rows:
            made.append(Table("completion time of a message, µs", ("stream", "#messages", *TIMES), rows))
    if pairs := found.latency:
        heads = ("pair", "#bytes", "#iterations", *TIMES)
        rows = [
            (
                f"{each.source} > {each.destination}",
                str(each.times.message_bytes),
                str(each.times.count),
                *_cells(each.times),
            )
            for each in pairs
        ]
        made.append(Table("latency (half of the round trip), µs", heads, rows))
    if hosts := found.iterations:
        heads = ("host", "#iterations", *TIMES)
        rows = [(each.host, str(each.times.count), *_cells(each.times)) for each in hosts]
        made.append(Table("time of an iteration, µs", heads, rows))
    if found.training is not None:
        made += training_tables(found.training)
    if found.flows:
        made += _flows(found.flows)
    return made


def by_size(flows: Sequence[FlowRow]) -> list[tuple[str, Sequence[FlowRow]]]:
    """Return flows by size, each group with the name of its sizes, and then all: a group for each size, or where there
    are more than ten, ten of equally many flows (equal sizes stay together)."""
    ordered = sorted(flows, key=lambda each: each.flow.bytes)
    sizes = sorted({each.flow.bytes for each in flows})
    if len(sizes) > _MOST_SIZES:
        ends = (ordered[-(-len(ordered) * part // _MOST_SIZES) - 1].flow.bytes for part in range(1, _MOST_SIZES + 1))
        sizes = sorted(set(ends))
    groups: dict[int, list[FlowRow]] = {size: [] for size in sizes}
    for each in ordered:
        groups[sizes[bisect.bisect_left(sizes, each.flow.bytes)]].append(each)
    named: list[tuple[str, Sequence[FlowRow]]] = []
    for size, group in groups.items():
        least = group[0].flow.bytes
        named.append((str(size) if least == size else f"{least} to {size}", group))
    return [*named, ("all", ordered)] if len(named) > 1 else named


def _flows(flows: Sequence[FlowRow]) -> list[Table]:
    """Return the tables of completion times and of slowdown, by size of flow."""
    times, slowdowns = [], []
    for name, group in by_size(flows):
        taken = [each.completion_s for each in group]
        cells = (quantiles.shown(quantiles.quantile(taken, share), 1e6, 2) for share in _SHARES)
        times.append((name, str(len(group)), *cells, f"{np.mean(taken) * 1e6:.2f}"))
        slower = [each.slowdown for each in group if each.slowdown is not None]
        cells = (quantiles.shown(quantiles.quantile(slower, share), 1, 2) for share in SLOWDOWNS.values())
        if slower:
            slowdowns.append((name, str(len(group)), f"{np.mean(slower):.2f}", *cells))
    made = [Table("flow completion time, µs", ("#bytes", "#flows", "P50", "P99", "max", "mean"), times)]
    if slowdowns:
        title = "flow slowdown: completion time over the time that the flow takes alone"
        made.append(Table(title, ("#bytes", "#flows", "mean", *SLOWDOWNS), slowdowns))
    return made


STEPS = {"all": "all steps", "broken": "with something broken", "whole": "with nothing broken"}


def training_tables(training: TrainingSummary) -> list[Table]:
    """Return the tables of the times of steps and of their communication."""
    made = []
    idle = f"exposed communication, when a rank does not compute: {training.idle:.1%} of it"
    for title, rows in (
        (f"time of a step, ms; {idle}", {STEPS[key]: each for key, each in training.times.items()}),
        (
            "exposed communication: time of a rank in a step in which it does not compute, ms",
            {} if training.exposed is None else {"all": training.exposed},
        ),
        ("time of an operation at a rank, ms", training.operations),
    ):
        if not rows:
            continue
        lines = [
            (name, str(each.count), *(quantiles.shown(value, 1e3, 2) for value in each.values()))
            for name, each in rows.items()
        ]
        made.append(Table(title, ("which", "#", "mean", "P50", "P99", "max"), lines))
    return made
