"""Measurements of a run's workload, as perftest's users look for them: bandwidth of streams, latency, iteration times.

All of it comes from the hosts (`mrc_host.workloads.measure`); here it gets names, and a shape for tables and JSON.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from mrc_host.answers import FlowTimes, LatencyTimes, Measured, Stream, Times
from mrc_topo.base import quantiles
from mrc_topo.base.plain import encode
from mrclab.results import steps
from mrclab.results.record import RunResult
from mrclab.results.steps import TrainingSummary

#: Columns of ib_write_lat, and their times.
TIMES = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "99%", "99.9%")
_times = attrgetter("min", "max", "typical", "mean", "stdev", "p99", "p99_9")
#: Quantiles in the table of flows.
_SHARES = (0.5, 0.99, 1.0)

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

    @property
    def completion_s(self) -> float:
        """The flow's completion time."""
        return (self.flow.ended_ns - self.flow.began_ns) / 1e9


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
                {"source": each.source, "destination": each.destination, **encode(each.flow)} for each in self.flows
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
    for name in ranks:
        found = measured(result, name)
        bandwidth += [StreamRow(name, ranks[int(peer)], each) for peer, each in (found.streams or {}).items()]
        flows += [FlowRow(name, ranks[each.target], each) for each in found.flows or ()]
        if found.latency_ns is not None:
            latency.append(LatencyRow(name, ranks[found.latency_ns.peer], found.latency_ns))
        elif found.iteration_ns is not None and not found.flows:
            iterations.append(IterationsRow(name, found.iteration_ns))
    training = steps.summary(result)
    # Iterations of a training are the same at all ranks but for a few packets, and the answering side of a latency test
    # measured nothing of its own.
    kept = [] if latency or flows or training is not None else iterations
    return Performance(bandwidth, latency, kept, training, sorted(flows, key=lambda each: each.flow.number))


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
    if pairs := found.latency:
        heads = ("pair", "#bytes", "#iterations", *TIMES)
        rows = [
            (
                f"{each.source} > {each.destination}",
                str(each.times.message_bytes),
                str(each.times.count),
                *(quantiles.shown(ns, 1e-3, 2) for ns in _times(each.times)),
            )
            for each in pairs
        ]
        made.append(Table("latency (half of the round trip), µs", heads, rows))
    if hosts := found.iterations:
        heads = ("host", "#iterations", *TIMES)
        rows = [
            (each.host, str(each.times.count), *(quantiles.shown(ns, 1e-3, 2) for ns in _times(each.times)))
            for each in hosts
        ]
        made.append(Table("time of an iteration, µs", heads, rows))
    if found.training is not None:
        made += training_tables(found.training)
    if found.flows:
        made.append(_flows(found.flows))
    return made


def _flows(flows: Sequence[FlowRow]) -> Table:
    """Return the table of flow completion times, one row per size and one for all."""
    sizes = sorted({each.flow.bytes for each in flows})
    groups = [(str(size), [each for each in flows if each.flow.bytes == size]) for size in sizes]
    if len(sizes) > 1:
        groups.append(("all", list(flows)))
    rows = [
        (
            name,
            str(len(group)),
            *(
                quantiles.shown(quantiles.quantile([each.completion_s for each in group], share), 1e6, 2)
                for share in _SHARES
            ),
            f"{np.mean([each.completion_s for each in group]) * 1e6:.2f}",
        )
        for name, group in groups
    ]
    return Table("flow completion time, µs", ("#bytes", "#flows", "P50", "P99", "max", "mean"), rows)


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
