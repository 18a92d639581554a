"""Result of a run: a typed document of everything that happened, and the recording of what grows with its length."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mrc_host.answers import HostStatistics, JobProgress, JobWaiting, MrcHostStatistics, RoceHostStatistics
from mrc_host.proto.statistics import QpStatistics
from mrc_topo.base.document import printable
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import OMIT_NONE, DecodeError, encode
from mrclab.lab.faults.action import Action
from mrclab.lab.processes.process import ProcessExit
from mrclab.lab.session.fidelity import UNMEASURED, Fidelity
from mrclab.results.counted import TOTALS, Achieved, achieved
from mrclab.results.provenance import Provenance
from mrclab.results.reading import RESULT, FolderError, document_of, of_any_version, readable
from mrclab.results.recording import EVENTS, SAMPLES, TIME, Events, Recording, Series, StoredRecording
from p4lite.switch.fabric.values import CreditStats, PfcStats


@dataclass(frozen=True)
class Balance:
    """An identity of a run: how many entries it has, how far apart their bounds are in all, and what is wrong."""

    identity: str
    entries: int
    slack: int
    unbalanced: Sequence[str] = ()


@dataclass(frozen=True)
class Books:
    """The balances of a run, and why some entries were not judged."""

    balances: Sequence[Balance] = ()
    notes: Sequence[str] = ()

    @property
    def balanced(self) -> bool:
        """Return whether no identity is violated."""
        return not any(each.unbalanced for each in self.balances)


Numbers = npt.NDArray[np.float64]

#: Of result.json. Format 1 held all samples and events itself (`RunResult.load` reads both).
FORMAT = 2
#: The longest run whose results are read: a workload takes at most as long.
MAX_NS = 10**15
#: Width of the bins in which goodput is measured, seconds.
BIN_S = 0.1
_STORED: dict[str, str] = {"samples": SAMPLES, "fabric": SAMPLES, "events": EVENTS}


@dataclass
class LabEvent:
    """An action on the lab: when it was requested and when it was done (ns of the session's clock).

    `clicked`: requested by a user who watched, not by the schedule.
    """

    at_ns: int
    done_ns: int
    action: Action
    expected_loss: float
    error: str = ""
    broken: list[str] = field(default_factory=list)
    localised: list[str] = field(default_factory=list)
    clicked: bool = False

    @property
    def fails(self) -> bool:
        """Return whether it was to break something."""
        return self.action.verb == "fail"


@dataclass(frozen=True)
class Change:
    """An event in the course of a run: seconds after the start, a text, and whether it broke something.

    `expected_loss`: the share of the capacity that is missing from then on. `done`: without an error.
    """

    at_s: float
    text: str
    breaks: bool
    expected_loss: float
    done: bool


@dataclass(frozen=True)
class Readings:
    """The readings of a whole run from its samples: goodput (bit/s) between the `edges` (s after the start), and its
    mean while ranks worked.

    `changes`: the actions on the lab meanwhile, and `failures` of it. `totals`: sums over hosts of each of `TOTALS`.
    """

    edges: Numbers
    goodput_bps: Numbers
    mean_bps: float
    changes: Sequence[Change]
    failures: int
    totals: Mapping[str, int]


@dataclass
class RunResult:
    """Everything about a run.

    `statistics` of a host that was lost is None. `waiting`: of a run without progress, what each rank waited for at the
    end. `interrupted`: the signal that ended the run before its time, if one did. `books`: whether
    what hosts and fabric counted agrees; None of a run whose fabric could not be read. `counted`: by host and name, how
    much each counter grew in the run (`counted.counters`). `pauses` and `credits`: what flow control did in the run, by
    port and priority. `program`, `topology` and `experiment` repeat the run.
    """

    lab: str
    clock: str
    seed: int
    workload: str
    params: Mapping[str, object]
    ranks: list[str]
    started_ns: int = 0
    finished_ns: int = 0
    happenings: list[LabEvent] = field(default_factory=list)
    progress: dict[str, JobProgress] = field(default_factory=dict)
    statistics: dict[str, HostStatistics | None] = field(default_factory=dict)
    fidelity: Fidelity = UNMEASURED
    failures: list[str] = field(default_factory=list)
    deaths: list[ProcessExit] = field(default_factory=list)
    waiting: dict[str, JobWaiting] = field(default_factory=dict)
    interrupted: str = ""
    counted: dict[str, dict[str, int]] = field(default_factory=dict)
    books: Books | None = field(default=None, metadata=OMIT_NONE)
    program_counters: Mapping[str, int] | None = field(default=None, metadata=OMIT_NONE)
    pauses: Mapping[str, Mapping[str, PfcStats]] | None = field(default=None, metadata=OMIT_NONE)
    credits: Mapping[str, Mapping[str, CreditStats]] | None = field(default=None, metadata=OMIT_NONE)
    program: object = field(default=None, metadata=OMIT_NONE)
    topology: object = field(default=None, metadata=OMIT_NONE)
    experiment: object = field(default=None, metadata=OMIT_NONE)
    provenance: Provenance | None = field(default=None, metadata=OMIT_NONE)
    recording: Recording | StoredRecording = field(default_factory=Recording, repr=False)

    @property
    def seconds(self) -> float:
        """The time that the run took on the session's clock, up to the turn in which its end was seen."""
        return (self.finished_ns - self.started_ns) / 1e9

    @property
    def busy_s(self) -> float:
        """The time that ranks worked, from the first start to the last end of one; `seconds` if one has not ended."""
        ended = self._ended_ranks()
        return self.ended_s - self.since_start(min(each.started_ns for each in ended)) if ended else self.seconds

    @property
    def ended_s(self) -> float:
        """When the last rank had ended, seconds after the start of the run; `seconds` if one has not."""
        ended = self._ended_ranks()
        return self.since_start(max(each.finished_ns for each in ended)) if ended else self.seconds

    def _ended_ranks(self) -> list[JobProgress]:
        """Return the ranks that take part, once all have ended; none before."""
        ranks = [each for each in self.progress.values() if each.takes_part]
        # Of a rank that has not started, the time of the start is 0, which on the clock of a simulation is one.
        return ranks if all(each.done and each.finished_ns for each in ranks) else []

    def since_start(self, t_ns: int) -> float:
        """Return a time of the session's clock in seconds after the start of the run."""
        return (t_ns - self.started_ns) / 1e9

    @property
    def samples(self) -> Mapping[str, Series]:
        """The samples of the hosts that sent some."""
        return self.recording.samples

    @property
    def events(self) -> Events:
        """What the hosts logged."""
        return self.recording.events

    def samples_of(self, host: str) -> Series:
        """Return the samples of a host; none at all if it never sent any."""
        found = self.samples.get(host)
        return Series.of([]) if found is None else found

    def grid(self, bin_s: float = BIN_S) -> Numbers:
        """Return the bin edges in seconds from the start of the run to the end of the last rank; the last bin is the
        rest, of half a bin to one and a half."""
        whole = max(int(self.ended_s / bin_s + 0.5), 1)
        edges = np.linspace(0.0, whole * bin_s, whole + 1)
        edges[-1] = self.ended_s or bin_s
        return edges

    def rates(self, host: str, column: str, edges: Numbers) -> Numbers:
        """Return the rate per second of a cumulative counter of one host, one number per bin."""
        return self._rates([host], column, edges)

    def _rates(self, hosts: Iterable[str], column: str, edges: Numbers) -> Numbers:
        until = edges.copy()
        ended_s = self.ended_s
        if math.isclose(until[-1], ended_s):
            # Hosts are asked for the last time when all ranks have ended: what they tell then belongs to the last bin.
            until[-1] = max(ended_s, self.seconds)
        total = np.zeros(len(edges) - 1)
        for host in hosts:
            total += self.samples_of(host).rates(column, self.started_ns, until)
        return total * np.diff(until) / np.diff(edges)

    def levels(self, hosts: Iterable[str], key: str, name: str, edges: Numbers) -> Numbers:
        """Return the sum over hosts of a level (not a counter) that samples hold under `key`/`name`, at the edges."""
        total = np.zeros(len(edges))
        for host in hosts:
            samples = self.samples_of(host)
            if len(samples) and f"{key}.{name}" in samples.columns:
                times, values = samples.take([TIME, f"{key}.{name}"])
                total += np.interp(edges, (times - self.started_ns) / 1e9, values)
        return total

    def goodput_bps(self, edges: Numbers) -> Numbers:
        """Return the payload placed at all responders, bits per second."""
        return 8 * self._rates(self.ranks, "delivered_bytes", edges)

    def mean_goodput_bps(self) -> float:
        """Return the payload placed at all responders over `busy_s`, bits per second."""
        return 8 * self.delivered_bytes() / self.busy_s if self.busy_s else 0.0

    def readings(self, bin_s: float = BIN_S) -> Readings:
        """Return the readings of the whole run from its samples."""
        totals, edges = self.totals(), self.grid(bin_s)
        changes = [
            Change(
                self.since_start(each.done_ns), each.action.describe(), each.fails, each.expected_loss, not each.error
            )
            for each in self.happenings
        ]
        failures = sum(each.breaks and each.done for each in changes)
        return Readings(edges, self.goodput_bps(edges), self.mean_goodput_bps(), changes, failures, totals)

    def past_findings(self, happening: LabEvent) -> list[str]:
        """Return what the hosts' probes named beside an event though it was whole again: their latest probes were still
        of the time when it was broken."""
        before = itertools.takewhile(lambda each: each is not happening, self.happenings)
        was = {name for each in before for name in each.broken}
        return [name for name in happening.localised if name in was and name not in happening.broken]

    def totals(self) -> dict[str, int]:
        """Return the sum over hosts of the growth of each of `TOTALS` in the run: its first sample is the state before
        the workload started, and the last one the final statistics."""
        grown = [self.samples_of(host).growth(TOTALS) for host in self.samples]
        return {key: sum(each[key] for each in grown) for key in TOTALS}

    def achieved(self) -> Achieved:
        """Return what the ranks achieved together, so far."""
        return achieved(self.progress.values())

    def delivered_bytes(self) -> int:
        """Return the payload placed at all responders in the run."""
        return sum(self.samples_of(host).growth(["delivered_bytes"])["delivered_bytes"] for host in self.ranks)

    def counter(self, name: str) -> int | None:
        """Return how much a counter of `counted` grew in the run, over all hosts; None where none counts it."""
        found = [each[name] for each in self.counted.values() if name in each]
        return sum(found) if found else None

    def queue_pairs(self) -> dict[tuple[str, int], QpStatistics]:
        """Return the queue pairs of MRC by host and number, as they were at the end."""
        return {
            (host, qp.qpn): qp
            for host, statistics in self.statistics.items()
            if isinstance(statistics, MrcHostStatistics)
            for qp in statistics.qps
        }

    def document(self, *, recorded: bool = True) -> dict[str, object]:
        """Return the contents of result.json; without `recorded`, without the names of the files beside it."""
        run: dict[str, object] = {"format": FORMAT}
        origin: dict[str, object] = {}
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if each.metadata:
                origin |= {} if value is None else {each.name: _encoded(value)}
            elif each.name != "recording":
                run[each.name] = _encoded(value)
        run["statistics"] = {host: {} if each is None else encode(each) for host, each in self.statistics.items()}
        return {**run, **(_STORED if recorded else {}), **origin}

    def save(self, folder: pathlib.Path) -> None:
        """Write result.json; samples and events are in the recording's files.

        Raises:
            WriteError: it could not be written.
        """
        write_whole(folder / RESULT, json.dumps(self.document()))

    @classmethod
    def load(cls, folder: pathlib.Path, *, recorded: bool = True) -> RunResult:
        """Return the result of an earlier run, of this format or 1; without `recorded`, without samples and events.

        Raises:
            FolderError: there is none, a file of it is damaged, or its format is a later one; names the file.
        """
        with readable(folder / RESULT):
            document = document_of(folder / RESULT)
            version = document.get("format", 1)
        if version not in (1, FORMAT):
            text = f"results of format {version}; this version reads up to {FORMAT}"
            raise FolderError(f"{printable(str(folder))}: {text}")
        with readable(folder / RESULT):
            made = cls.parse(document)
            if not 0 <= made.finished_ns - made.started_ns <= MAX_NS:
                raise ValueError(f"finished_ns is not within {MAX_NS} ns after started_ns")
            if recorded and version == 1:
                made.recording = StoredRecording.of(document["samples"], document["fabric"], document["events"])
        if recorded and version == FORMAT:
            made.recording = StoredRecording.load(folder)
        return made

    @classmethod
    def parse(cls, document: Mapping[str, object]) -> RunResult:
        """Return the result of the contents of result.json, without samples and events.

        Raises:
            DecodeError, ValidationError: a key is missing or a value of another type.
        """
        hints = typing.get_type_hints(cls)
        made: dict[str, typing.Any] = {}
        for each in dataclasses.fields(cls):
            if each.name in document and each.name != "recording":
                made[each.name] = _decoded(each.name, hints[each.name], document[each.name])
            elif each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
                raise DecodeError(f"key '{each.name}' is missing")
        return cls(**{"recording": StoredRecording.of({}, [], {}), **made})


def _encoded(value: object) -> object:
    """Return a value of a result as JSON."""
    if isinstance(value, Fidelity):
        return value.document()
    if isinstance(value, Provenance):
        return value.model_dump()
    if isinstance(value, list):
        return [
            encode(each) | {"action": each.action.document()} if isinstance(each, LabEvent) else encode(each)
            for each in value
        ]
    return encode(value)


def _decoded(name: str, kind: type[object], value: object) -> object:
    """Return the value of a result's key `name` from JSON."""
    if name == "fidelity":
        return fidelity_of(value)
    if name == "provenance":
        return None if value is None else Provenance.model_validate(value)
    if name == "statistics" and isinstance(value, Mapping):
        rows = typing.cast("Mapping[str, object]", value)
        return {key: statistics_of(each, f"statistics.{key}") for key, each in rows.items()}
    return of_any_version(kind, value, name)


def fidelity_of(document: object) -> Fidelity:
    """Return the fidelity that this or an earlier version wrote down.

    Raises:
        DecodeError: a value is of another type.
    """
    if document == {}:
        return UNMEASURED
    if isinstance(document, Mapping) and document.get("fabric") == {}:  # of a lab on machines of which none answered
        document = {**document, "fabric": None}
    return of_any_version(Fidelity, document, "fidelity")


def statistics_of(answer: object, where: str = "statistics") -> HostStatistics | None:
    """Return the statistics of a host from its answer; None of a host that gave none.

    Raises:
        DecodeError: a value is of another type; `where` stands in front of its key.
    """
    if not answer:
        return None
    if isinstance(answer, Mapping) and answer.get("transport") == "roce":
        return of_any_version(RoceHostStatistics, answer, where)
    return of_any_version(MrcHostStatistics, answer, where)


#: What is counted, and why the two differ, in a sentence each.
EXPLAINED = (
    "Dropped: packets of all kinds (data, acknowledgements, probes) that failures stopped in the fabric.",
    "Taken for lost: data packets that hosts, as senders, gave up waiting for, and sent again.",
    "They differ, because hosts go on probing a dead path and senders do not wait for probes and acknowledgements; "
    "and because senders also give up packets that were trimmed, or only late.",
)


@dataclass(frozen=True)
class Losses:
    """Packets: `dropped` in the fabric because of failures (not of full queues), and `taken` for lost by the hosts."""

    dropped: int
    taken: int

    def __bool__(self) -> bool:
        return bool(self.dropped or self.taken)


def losses_of(result: RunResult) -> Losses:
    """Return the counts of a run, over the whole of it."""
    fabric = result.recording.fabric
    dropped = fabric.growth([name for name in fabric.columns if name.endswith(".lost")])
    return Losses(sum(dropped.values()), result.totals()["losses"])
