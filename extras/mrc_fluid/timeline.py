"""Timeline of failures: those of a cluster file, random ones, and those of a trace, as one list of events."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mrc_fluid.fabric import DEAD, Fabric, Harm, UnknownElement
from mrc_fluid.schema import CLASSES, Cluster, Repair
from mrc_topo.base.document import DocumentError, printable
from mrc_topo.units import parse_time_ns

#: Elements that a name with ranges may have.
MAX_MEMBERS = 10_000
#: Of the name of elements: a text without a range, or a range. Numbers have few digits, so lists stay short.
_RANGES = re.compile(r"((\d{1,4})\.\.(\d{1,4})|.)")
#: Random failures of a class beyond this are a mistake in the file.
MAX_EVENTS = 1_000_000


@dataclass(frozen=True, order=True)
class Event:
    """Element `name` fails (`by` +1) or is repaired (-1) at a time, ns; `lanes` as in `FailureSpec`; `harm`: how."""

    at: int
    by: int
    name: str
    lanes: int | None = None
    harm: Harm = DEAD

    @property
    def what(self) -> str:
        """Return what happens, for users."""
        if self.by < 0:
            return f"is back: {self.name}"
        if self.harm.kills:
            return f"fails: {self.name}"
        parts = [f"loses {self.harm.loss:.3g} of packets"] if self.harm.loss else []
        parts += [f"has {self.harm.rate:.3g} of its rate"] if self.harm.rate < 1 else []
        return f"{' and '.join(parts)}: {self.name}"


def next_repair(waiting: Iterable[Event]) -> float:
    """Return when the first element is repaired, of events in the order of time, ns; infinite if none is."""
    return next((event.at for event in waiting if event.by < 0), math.inf)


def events(cluster: Cluster, fabric: Fabric, traced: Sequence[Event] = ()) -> list[Event]:
    """Return all events of a cluster in the order of time; random ones follow from its seed."""
    made = list(traced)
    rng = np.random.default_rng([cluster.seed, 2])
    domains = {each.name: members(each.elements) for each in cluster.domains}
    for failure in cluster.failures:
        names = domains.get(failure.fail, [failure.fail])
        if failure.fail in CLASSES:
            drawn = rng.choice(fabric.count(failure.fail), failure.count, replace=False)
            names = [fabric.name(failure.fail, int(number)) for number in drawn]
        harm = Harm(failure.loss, failure.rate)
        for turn in range(failure.repeat):
            at = failure.at + turn * (failure.every or 0)
            end = None if failure.lasts is None else at + failure.lasts
            made += _events(names, at, end, harm, failure.lanes)
    for spec in cluster.random:
        clock, harm = 0.0, Harm(spec.loss, spec.rate)
        while (clock := clock + rng.exponential(spec.between)) < cluster.duration:
            if spec.fail == "domains":
                names = domains[cluster.domains[int(rng.integers(len(domains)))].name]
            else:
                names = [fabric.name(spec.fail, int(rng.integers(fabric.count(spec.fail))))]
            made += _events(names, int(clock), int(clock + repair(rng, spec.repair, spec.repairs, spec.sigma)), harm)
    for batch in cluster.batches:
        count = fabric.count(batch.fail)
        for number in rng.choice(count, max(1, round(batch.share * count)), replace=False):
            begin = batch.at + int(rng.uniform(0, batch.over))
            end = None
            if batch.repair is not None:
                end = begin + int(repair(rng, batch.repair, batch.repairs, batch.sigma))
            made += _events([fabric.name(batch.fail, int(number))], begin, end, Harm(batch.loss))
    return sorted((event for event in made if event.at < cluster.duration), key=_order)


def _events(names: Sequence[str], at: int, end: int | None, harm: Harm, lanes: int | None = None) -> list[Event]:
    """Return failures of elements at the same time, and their repairs."""
    made = [Event(at, 1, name, lanes, harm) for name in names]
    return made if end is None else made + [Event(end, -1, name, lanes, harm) for name in names]


def _order(event: Event) -> tuple[int, int, str, int, Harm]:
    return event.at, event.by, event.name, event.lanes or 0, event.harm


def repair(rng: np.random.Generator, mean: float, kind: Repair, sigma: float) -> float:
    """Return a time of repair with this mean."""
    match kind:
        case "fixed":
            return mean
        case "lognormal":
            # The mean of a lognormal distribution is exp(mu + sigma^2 / 2).
            return float(rng.lognormal(math.log(mean) - sigma**2 / 2, sigma))
        case "exponential":
            return float(rng.exponential(mean))


def members(elements: Sequence[str]) -> list[str]:
    """Return the names of elements, of which each may have ranges: `p0..1-t1.0..2` are six.

    Raises:
        UnknownElement: a range is empty, or there are too many.
    """
    found: list[str] = []
    for element in elements:
        names = [""]
        for text, first, last in _RANGES.findall(element):
            options = [text] if not last else [str(number) for number in range(int(first), int(last) + 1)]
            if not 0 < len(names) * len(options) <= MAX_MEMBERS:
                raise UnknownElement(
                    f"'{element[:60]}' names {len(names) * len(options)} elements; use 1 to {MAX_MEMBERS}"
                )
            names = [name + option for name in names for option in options]
        found += names
    return found


def times(cluster: Cluster, found: Sequence[Event]) -> list[int]:
    """Return the bins in which something changes, with the first, by number."""
    return sorted({0, *(event.at // cluster.bin for event in found)})


def read_trace(text: str, name: str, fabric: Fabric) -> list[Event]:
    """Return the events of a CSV file with the columns `at`, `element`, `for` (empty: for good), and, if there is one,
    `loss` (the share of packets that a grey element loses; empty: it is dead); times have units.

    Raises:
        DocumentError: it is none.
    """
    rows = csv.DictReader(io.StringIO(text))
    wanted = ["at", "element", "for"]
    if rows.fieldnames is None or list(rows.fieldnames) not in (wanted, [*wanted, "loss"]):
        raise DocumentError(
            [f"{name}:1: the first line of a trace is '{','.join(wanted)}', and ',loss' if it has losses"]
        )
    made: list[Event] = []
    problems: list[str] = []
    for row in rows:
        place = f"{name}:{rows.line_num}"
        try:
            at = _time(row["at"])
            element = row["element"] or ""
            fabric.find(element)
            end = at + _time(row["for"]) if row["for"] else None
            made += _events([element], at, end, Harm(_loss(row.get("loss"))))
        except (UnknownElement, ValueError) as error:
            problems.append(f"{place}: {printable(str(error))}")
    if problems:
        raise DocumentError(problems[:8])
    return made


def _loss(text: str | None) -> float:
    found = float(text or 0)
    if not 0 <= found < 1:
        raise ValueError(f"a loss of '{text}' is no share of packets; use a number from 0 to below 1")
    return found


def _time(text: str | None) -> int:
    found = parse_time_ns(text or "")
    if not 0 <= found < math.inf:
        raise ValueError(f"'{text}' is not a time")
    return found
