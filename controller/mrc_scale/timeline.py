"""What fails when: the failures of a cluster file, random ones, and those of a trace, as one list of events."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrc_common.document import DocumentError, printable
from mrc_scale.fabric import Fabric, UnknownElement
from mrc_scale.schema import CLASSES, Cluster
from mrc_topo.units import parse_time_ns

#: Random failures of a class beyond this are a mistake in the file.
MAX_EVENTS = 1_000_000


@dataclass(frozen=True, order=True)
class Event:
    """Element `name` fails (`by` +1) or is repaired (-1) at a time, ns; `lanes` as in `FailureSpec`."""

    at: int
    by: int
    name: str
    lanes: int | None = None


def events(cluster: Cluster, fabric: Fabric, traced: Sequence[Event] = ()) -> list[Event]:
    """Return all events of a cluster in the order of time; random ones follow from its seed."""
    made = list(traced)
    rng = np.random.default_rng([cluster.seed, 2])
    for failure in cluster.failures:
        names = [failure.fail]
        if failure.fail in CLASSES:
            drawn = rng.choice(fabric.count(failure.fail), failure.count, replace=False)
            names = [fabric.name(failure.fail, int(number)) for number in drawn]
        for turn in range(failure.repeat):
            at = failure.at + turn * (failure.every or 0)
            for name in names:
                made.append(Event(at, 1, name, failure.lanes))
                if failure.lasts is not None:
                    made.append(Event(at + failure.lasts, -1, name, failure.lanes))
    for spec in cluster.random:
        clock = 0.0
        while (clock := clock + rng.exponential(spec.between)) < cluster.duration:
            name = fabric.name(spec.fail, int(rng.integers(fabric.count(spec.fail))))
            made.append(Event(int(clock), 1, name))
            made.append(Event(int(clock + rng.exponential(spec.repair)), -1, name))
    return sorted(event for event in made if event.at < cluster.duration)


def times(cluster: Cluster, found: Sequence[Event]) -> list[int]:
    """Return the bins in which something changes, with the first, by number."""
    return sorted({0, *(event.at // cluster.bin for event in found)})


def read_trace(text: str, name: str, fabric: Fabric) -> list[Event]:
    """Return the events of a CSV file with the columns `at`, `element`, `for` (empty: for good); times have units.

    Raises:
        DocumentError: it is none.
    """
    rows = csv.DictReader(io.StringIO(text))
    wanted = ["at", "element", "for"]
    if rows.fieldnames is None or list(rows.fieldnames) != wanted:
        raise DocumentError([f"{name}:1: the first line of a trace is '{','.join(wanted)}'"])
    made: list[Event] = []
    problems: list[str] = []
    for row in rows:
        place = f"{name}:{rows.line_num}"
        try:
            at = _time(row["at"])
            element = row["element"] or ""
            fabric.change(element, 1)
            made.append(Event(at, 1, element))
            if row["for"]:
                made.append(Event(at + _time(row["for"]), -1, element))
        except (UnknownElement, ValueError) as error:
            problems.append(f"{place}: {printable(str(error))}")
    if problems:
        raise DocumentError(problems[:8])
    return made


def _time(text: str | None) -> int:
    found = parse_time_ns(text or "")
    if not 0 <= found < math.inf:
        raise ValueError(f"'{text}' is not a time")
    return found
