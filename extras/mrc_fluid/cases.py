"""Errors of the model in a run's own case: the kinds of its failures, at the compared size nearest to its own.

`mrclab scale --calibrate --nics N -o FOLDER` writes the comparisons with packets, one file for each size, and
`mrclab scale --calibrate -o FOLDER` those of streams on 8 NICs (`caveat.FILE`). Both are in this package.
"""

from __future__ import annotations

import importlib.resources
import json
import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from mrc_fluid.caveat import NATURE, NICS, measured
from mrc_fluid.clusterfile import Loaded
from mrc_fluid.fabric import Fabric, Floats, Ints
from mrc_fluid.timeline import Event

#: Of a file with the comparison at one size.
PREFIX = "compared-"
#: A comparison is of a run's size if neither has more than this many times the NICs of the other.
NEAR = 2.0
#: What comparisons of streams have: goodput after a failure, and without one.
SETTLED, UNDISTURBED = "goodput settled after it", "goodput"


@dataclass(frozen=True)
class CaseKind:
    """A kind of failure: what it is called here and in comparisons of flows, and the scenarios of streams that have
    it."""

    title: str
    streams: tuple[str, ...] = ()


class FailureCase(Enum):
    """The kinds of failures that runs have; some of them were never compared with packets."""

    WHOLE = CaseKind(
        "nothing fails", ("no failure, half as many T1s again as needed", "no failure, as many T1s as needed")
    )
    DEAD_T1 = CaseKind("a T1 is dead", ("a T1 stops, 8 EVs active",))
    CUT_LINK = CaseKind("a T0-T1 link is cut", ("a T0-T1 link is cut", "a T0-T1 link is cut, no T1 to spare"))
    GREY_LINK = CaseKind("a T0-T1 link loses one packet in a hundred")
    SLOW_PLANE = CaseKind("one of two planes at a tenth of its rate")
    OVERSUBSCRIBED = CaseKind("T0s with half as many uplinks as NICs")
    DEAD_PORT = CaseKind("a NIC port goes down", ("a NIC port goes down",))
    TRANSCEIVER = CaseKind("a transceiver of four NIC links", ("a transceiver of four NIC links",))
    DEAD_PLANE = CaseKind("all links of a plane are cut")
    DEAD_T0 = CaseKind("a T0 is dead")
    DEAD_T2 = CaseKind("a T2 is dead")
    CUT_UPPER_LINK = CaseKind("a T1-T2 link is cut")
    GREY_OTHER = CaseKind("a switch, a port or a T1-T2 link loses packets")
    SLOW_OTHER = CaseKind("an element that is no plane is slow")


#: What is dead, by its class.
_DEAD = {
    "links": FailureCase.CUT_LINK,
    "upper_links": FailureCase.CUT_UPPER_LINK,
    "ports": FailureCase.DEAD_PORT,
    "t0s": FailureCase.DEAD_T0,
    "t1s": FailureCase.DEAD_T1,
    "t2s": FailureCase.DEAD_T2,
}


class Modelled(Enum):
    """What a run tells of the time after its first failure, and is not told where the model is off by more than
    `MOST_OFF` in one of the run's cases."""

    GOODPUT = "goodput"
    STEPS = "time of a step"


#: The largest error with which a quantity is still told as a number.
MOST_OFF = 0.15
#: How much seeds of packets may differ without being told.
SPREADS = 0.10
#: Messages of this many times the packets of the compared flows are streams.
STREAM = 4


@dataclass(frozen=True)
class CaseValues:
    """Goodput (Gb/s), P50 and P99 of flows (us), by these names, of packets and of the model: a value for each seed."""

    packets: dict[str, list[float]]
    model: dict[str, list[float]]

    def mean(self, name: str, *, of_model: bool = False) -> float:
        """Return the mean of a quantity over all seeds."""
        return statistics.fmean((self.model if of_model else self.packets)[name])

    def spread(self, name: str) -> float:
        """Return how much packets' own seeds differ: the standard deviation, as a share of the mean."""
        values = self.packets[name]
        return statistics.stdev(values) / self.mean(name) if len(values) > 1 else math.inf

    def error(self, name: str) -> float:
        """Return the relative error of the model's mean, positive where it is larger."""
        return _error(self.mean(name), self.mean(name, of_model=True))


@dataclass(frozen=True)
class Comparison:
    """The model beside packets at one size, in flows of `packets` packets, for each kind of failure. `settings` and
    `sources`: digests of what packets were run with, and of the model."""

    nics: int
    planes: int
    packets: int
    settings: str
    sources: str
    cases: dict[str, CaseValues]

    def document(self) -> str:
        """Return the JSON that `parse` reads."""
        cases = {case: {"packets": each.packets, "model": each.model} for case, each in self.cases.items()}
        about = {**vars(self), "cases": cases}
        # A list of seeds in a line.
        return re.sub(r"\[[^]]*\]", lambda found: re.sub(r"\s+", " ", found[0]), json.dumps(about, indent=1)) + "\n"


#: What a page tells of the comparisons with packets.
COMPARED = (
    "kind of failure", "goodput of short flows (some hundred packets)", "99 % quantile of their times",
    "settled goodput of streams (long flows)",
)  # fmt: skip


@dataclass(frozen=True)
class OwnError:
    """How far the model is off in one of a run's cases.

    `nics`: of the run; `compared`: of the comparison of flows of `packets` packets nearest to it, None if none has the
    case, with the relative errors `goodput` and `p99`; `streams`: the relative error of settled goodput on
    `caveat.NICS` NICs, None if that has not been compared; `goodput_spread` and `p99_spread`: how much packets'
    own seeds differ. Errors are positive where the model's number is larger.
    """

    case: str
    nics: int
    compared: int | None = None
    packets: int | None = None
    goodput: float | None = None
    p99: float | None = None
    streams: float | None = None
    goodput_spread: float = 0.0
    p99_spread: float = 0.0

    @property
    def of_this_size(self) -> bool:
        """Return whether the comparison is of a size like that of the run."""
        return self.compared is not None and max(self.nics / self.compared, self.compared / self.nics) <= NEAR

    @property
    def text(self) -> str:
        """Return this for users, without a full stop."""
        parts = []
        if self.compared is not None and self.goodput is not None and self.p99 is not None:
            size = f"{self.compared:,} NICs"
            where = (
                f"at {size}" if self.of_this_size else f"no comparison has {self.nics:,} NICs; at {size}, the nearest"
            )
            parts.append(
                f"{where}, in flows of {self.packets} packets goodput is {_off(self.goodput)}"
                f"{_differ(self.goodput_spread)} and P99 of flows is {_off(self.p99)}{_differ(self.p99_spread)}"
            )
        elif self.streams is not None:
            parts.append(f"no comparison has {self.nics:,} NICs, or P99 of flows")
        if self.streams is not None:
            parts.append(f"in streams between {NICS} NICs settled goodput is {_off(self.streams)}")
        return f"{self.case}: {'; '.join(parts) or 'never compared with packets, at any size'}"

    @property
    def cells(self) -> list[str]:
        """The row of the page's table: see `COMPARED`."""
        size = (
            "never"
            if self.compared is None
            else f"{self.compared:,} NICs{'' if self.of_this_size else ', the nearest'}"
        )
        errors = [(self.goodput, size), (self.p99, size), (self.streams, f"{NICS} NICs")]
        return [self.case, *("never compared" if error is None else f"{_off(error)} ({at})" for error, at in errors)]

    def document(self) -> dict[str, object]:
        """Return it as JSON."""
        return {**vars(self), "of_this_size": self.of_this_size, "text": self.text}


def _off(error: float) -> str:
    """Return a relative error as text: `69% too high`."""
    whole = round(abs(error) * 100)
    if not whole:
        return "right within 0.5 %"
    return f"{whole} % too {'high' if error > 0 else 'low'}"


def _differ(spread: float) -> str:
    """Return how much packets' own seeds differ, where that is as much as an error may be."""
    return f" (packets' own seeds differ by {round(spread * 100)} %)" if SPREADS < spread < math.inf else ""


@cache
def comparisons() -> tuple[Comparison, ...]:
    """Return the comparisons of flows, the smallest fabric first."""
    found = [
        parse(path.read_text("utf-8"))
        for path in importlib.resources.files("mrc_fluid").iterdir()
        if path.name.startswith(PREFIX) and path.name.endswith(".json")
    ]
    return tuple(sorted(found, key=lambda each: each.nics))


def file_of(nics: int) -> str:
    """Return the name of the file with the comparison at a size."""
    return f"{PREFIX}{nics}.json"


def parse(text: str) -> Comparison:
    """Return the comparison that a file's text has."""
    read: dict[str, Any] = json.loads(text)
    cases = {case: CaseValues(**values) for case, values in read.pop("cases").items()}
    return Comparison(**read, cases=cases)


def _error(packets: float, model: float) -> float:
    return model / packets - 1


def own_errors(loaded: Loaded) -> list[OwnError]:
    """Return how far the model is off in each case of a cluster with its failures."""
    return [_own(case.value, loaded.shape.nics) for case in cases_of(loaded)]


def streaming(loaded: Loaded) -> int:
    """Return the packets of a run's shortest message where all are much longer than compared flows; 0 elsewhere."""
    packets = min((job.message // loaded.cluster.path_mtu for job in loaded.cluster.jobs), default=0)
    longest = max((each.packets for each in comparisons()), default=0)
    return packets if packets >= STREAM * longest else 0


def not_modelled(loaded: Loaded) -> dict[Modelled, str]:
    """Return the quantities that a cluster with its failures is not told as numbers, each with the reason.

    Goodput of long messages is that of streams, where these were compared; a step ends with its slowest flow.
    """
    found: dict[Modelled, str] = {}
    long = streaming(loaded)
    for each in own_errors(loaded):
        streams = long and each.streams is not None
        errors = {Modelled.GOODPUT: each.streams if streams else each.goodput, Modelled.STEPS: each.p99}
        for quantity, error in errors.items():
            if error is not None and abs(error) > MOST_OFF:
                what = "goodput" if quantity is Modelled.GOODPUT else "P99 of flows"
                found.setdefault(quantity, f"{each.case}: beside packets {what} is {_off(error)}")
    return found


def told(loaded: Loaded, of: Modelled, values: Floats, begins: Ints) -> Floats:
    """Return values by time without those that are not told: NaN from the first failure on, where the model is off by
    too much. `begins`: the bin of each value."""
    failed = min((each.at // loaded.cluster.bin for each in loaded.events if each.by > 0), default=0)
    unknown = of in not_modelled(loaded)
    kept: Floats = np.where(unknown & (begins >= failed) & (begins > 0), np.nan, values)
    return kept


def accuracy(loaded: Loaded) -> str:
    """Return what stands beside a result, in one line: what the model leaves out, and how far it is off in each case of
    this cluster with its failures. No error of other cases is there, since this run's may be larger."""
    return f"{NATURE} In this run's own case, beside packets: {'; '.join(each.text for each in own_errors(loaded))}."


def cases_of(loaded: Loaded) -> list[FailureCase]:
    """Return the cases of a cluster with its failures, each once, in the order of `FailureCase`."""
    fabric, planes = Fabric(loaded.shape), {f"p{number}" for number in range(loaded.shape.planes)}
    found = {case for event in loaded.events if event.by > 0 for case in _cases(event, fabric, planes)}
    return [case for case in FailureCase if case in found] or [FailureCase.WHOLE]


def _cases(event: Event, fabric: Fabric, planes: set[str]) -> Iterator[FailureCase]:
    """Yield the cases of one failure: an element may lose packets and be slow."""
    classes = {kind for kind, _ in fabric.find(event.name, event.lanes)}
    if event.harm.loss:
        yield FailureCase.GREY_LINK if classes == {"links"} and event.name not in planes else FailureCase.GREY_OTHER
    if event.harm.rate < 1:
        yield FailureCase.SLOW_PLANE if event.name in planes else FailureCase.SLOW_OTHER
    if event.harm.kills and event.name in planes:
        yield FailureCase.DEAD_PLANE
    elif event.harm.kills:
        yield from (FailureCase.TRANSCEIVER if kind == "ports" and event.lanes else _DEAD[kind] for kind in classes)


def _own(kind: CaseKind, nics: int) -> OwnError:
    with_it = [each for each in comparisons() if kind.title in each.cases]
    streams = _streams(kind)
    if not with_it:
        return OwnError(kind.title, nics, streams=streams)
    near = min(with_it, key=lambda each: abs(math.log(each.nics / nics)))
    own = near.cases[kind.title]
    return OwnError(
        kind.title, nics, near.nics, near.packets, own.error("goodput"), own.error("p99"), streams,
        own.spread("goodput"), own.spread("p99"),
    )  # fmt: skip


def _streams(kind: CaseKind) -> float | None:
    """Return the largest error of settled goodput in comparisons of streams; None: there is no such comparison."""
    rows = (measured() or {}).get("rows", [])
    errors = [
        _error(row["packets"], row["model"])
        for row in rows
        if row["scenario"] in kind.streams and row["what"] in (SETTLED, UNDISTURBED)
    ]
    return max(errors, key=abs, default=None)
