"""What a run's workload measured, as perftest's users look for it: bandwidth of streams, latency, iteration times.

All of it comes from the hosts (`mrc_host.workloads.measure`); here it gets names, and a shape for tables and JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mrc_results import steps, verdict

#: Columns of ib_write_lat, and where they stand in a distribution's summary.
TIMES = (
    ("t_min", "min"),
    ("t_max", "max"),
    ("t_typical", "typical"),
    ("t_avg", "mean"),
    ("t_stdev", "stdev"),
    ("99%", "p99"),
    ("99.9%", "p99_9"),
)

#: The title of a table has room for so many.
_MOST_INDICES = 3


@dataclass(frozen=True)
class Table:
    """Rows of text under heads."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Columns as wide as they must be, on a narrow terminal too: no figure is cut."""
        lines = [self.heads, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = ["  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self.title, *shown])


def of(document: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """`bandwidth` per stream (`Meter.summary`), `latency` per pair and `iterations` per host (`Distribution.summary`,
    ns); `training` of all hosts (`steps.summary`, seconds); hosts by name. Parts that the workload does not measure are
    missing."""
    ranks = document["ranks"]
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ranks:
        measured = document["progress"].get(name, {}).get("measured", {})
        for peer, stream in measured.get("streams", {}).items():
            row = {"source": name, "destination": ranks[int(peer)], **stream}
            found.setdefault("bandwidth", []).append(row)
        if times := measured.get("latency_ns"):
            rest = {key: value for key, value in times.items() if key != "peer"}
            row = {"source": name, "destination": ranks[int(times["peer"])], **rest}
            found.setdefault("latency", []).append(row)
        elif times := measured.get("iteration_ns"):
            found.setdefault("iterations", []).append({"host": name, **times})
    if training := steps.summary(document):
        # Of all ranks together: that of each is the same but for a few packets.
        found.pop("iterations", None)
        found["training"] = [training]
    # The answering side of a latency test measured nothing of its own.
    if "latency" in found:
        found.pop("iterations", None)
    return found


def _fairness(streams: Sequence[Mapping[str, Any]]) -> str:
    """Jain's index of the streams that share a destination, for the title of their table; empty where none do."""
    shared: dict[str, list[float]] = {}
    for each in streams:
        shared.setdefault(each["destination"], []).append(each["average_bps"])
    indices = [
        f"of {len(rates)} streams to {destination}: {verdict.jain(rates):.3f}"
        for destination, rates in shared.items()
        if len(rates) > 1
    ]
    # All-to-all has as many as hosts: one line says it for a few.
    return f"; Jain's index of fairness {', '.join(indices)}" if 0 < len(indices) <= _MOST_INDICES else ""


def tables(document: Mapping[str, Any]) -> list[Table]:
    """The same as text; bandwidths in Mb/s, times in µs."""
    found = of(document)
    made = []
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    if streams := found.get("bandwidth"):
        heads = ("stream", "#bytes", "#messages", "BW peak", "BW average", "MsgRate")
        rows = [
            (
                f"{each['source']} > {each['destination']}",
                str(each["message_bytes"]),
                str(each["messages"]),
                f"{each['peak_bps'] / 1e6:.3f}",
                f"{each['average_bps'] / 1e6:.3f}",
                f"{each['messages_per_s']:.3f}",
            )
            for each in streams
        ]
        made.append(Table(f"bandwidth, Mb/s; messages per second{_fairness(streams)}", heads, rows))
    if pairs := found.get("latency"):
        heads = ("pair", "#bytes", "#iterations", *(head for head, _ in TIMES))
        rows = [
            (f"{each['source']} > {each['destination']}", str(each["message_bytes"]), str(each["count"]), *_times(each))
            for each in pairs
        ]
        made.append(Table("latency (half of the round trip), µs", heads, rows))
    if hosts := found.get("iterations"):
        heads = ("host", "#iterations", *(head for head, _ in TIMES))
        rows = [(each["host"], str(each["count"]), *_times(each)) for each in hosts]
        made.append(Table("time of an iteration, µs", heads, rows))
    for training in found.get("training", ()):
        made += _training(training)
    return made


STEPS = {"all": "all steps", "broken": "with something broken", "whole": "with nothing broken"}


def _training(training: Mapping[str, Any]) -> list[Table]:
    """Times of steps and of what they communicate."""
    made = []
    idle = f"{training['idle']:.1%} of the time nothing is computed"
    for title, rows in (
        (f"time of a step, ms; {idle}", {STEPS[key]: each for key, each in training["times"].items()}),
        ("time of an operation at a rank, ms", training["operations"]),
    ):
        lines = [
            (name, str(each["count"]), *(f"{each[key] * 1e3:.2f}" for key in steps.STATISTICS))
            for name, each in rows.items()
        ]
        made.append(Table(title, ("which", "#", "mean", "P50", "P99", "max"), lines))
    return made


def _times(summary: Mapping[str, Any]) -> list[str]:
    return [f"{summary[key] / 1e3:.2f}" for _, key in TIMES]
