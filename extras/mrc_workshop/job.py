"""The job of a confined process and the facts that it leaves: plain data on both sides of the confinement.

The judge (`judge`) makes the job, and reads what is left as a stranger's: sizes are bounded, nothing in it is executed,
and topologies are rebuilt from the lab texts of the job, never from what came back.
"""

from __future__ import annotations

import functools
import pathlib
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from mrc_host.answers import Event
from mrc_topo.base.document import Model
from mrc_topo.labfile import parse_lab
from mrc_topo.topology import Topology
from mrc_workshop import trace
from mrclab.results.record import RunResult
from mrclab.results.recording import event_of

#: A YAML or JSON document, which its model checks when it is used.
Document = dict[str, Any]
JOB, FACTS = "job.json", "facts.json"
#: The limit of facts, which an honest run does not reach; longer ones are refused.
MAX_FACTS_BYTES = 64 << 20


class RunOrder(Model):
    """The order for one run: `lab` is YAML text, `experiment` a document in the form of `runs.experiment.Experiment`
    (none with `inject`). `program` and `policies` name files in the learner's folder."""

    name: str
    seed: int
    hidden: bool
    lab: str
    program: str | None = None
    policies: dict[str, str] = {}
    transport: str = "mrc"
    inject: str | None = None
    experiment: Document | None = None
    capture: str = "none"
    snaplen: int = 160
    report: bool = False


class CheckJob(Model):
    """All runs of a check, in order. `edit`: the learner's files."""

    edit: list[str]
    orders: list[RunOrder]


class JudgedCheck(Model):
    """A check of a run's own verdict (`mrclab.results.verdict.Check`)."""

    what: str
    expected: str
    measured: str
    passed: bool


class RunFacts(Model):
    """The result of a run. `problem` and its `stage` (`program`, `python`, `lab`, `run`) say why there is no more.

    `document`: the result without samples (`results.record.RunResult`); `ports`: counters of the fabric at the end;
    `checks`: the run's own expectations.
    """

    name: str
    seed: int
    hidden: bool
    stage: str = ""
    problem: str = ""
    document: Document = {}
    ports: dict[str, dict[str, int]] = {}
    events: dict[str, list[object]] = {}
    checks: list[JudgedCheck] = []
    folder: str = ""


class Facts(Model):
    """All results of a confined process. `isolation`: what it was kept from, and what not."""

    runs: Annotated[list[RunFacts], Field(max_length=500)] = []
    isolation: dict[str, bool] = {}


@dataclass(frozen=True)
class Run:
    """A run as checks see it: its facts, topology and packets."""

    facts: RunFacts
    order: RunOrder
    out: pathlib.Path

    @property
    def label(self) -> str:
        """The run's label in messages; it does not reveal the seed of a hidden run."""
        return f"{self.facts.name}, {'a hidden seed' if self.facts.hidden else f'seed {self.facts.seed}'}"

    @functools.cached_property
    def topology(self) -> Topology:
        """The lab of this run."""
        return parse_lab(self.order.lab, self.order.name)

    @functools.cached_property
    def packets(self) -> list[trace.CapturedPacket]:
        """The packets that the switches captured."""
        folder = self.out / pathlib.Path(self.facts.folder).name
        return trace.read_folder(folder, self.topology)

    @functools.cached_property
    def result(self) -> RunResult:
        """The result, without samples and events."""
        return RunResult.parse(self.facts.document)

    @functools.cached_property
    def events(self) -> dict[str, list[Event]]:
        """The events that the hosts logged, by host."""
        return {host: [event_of(each) for each in rows] for host, rows in sorted(self.facts.events.items())}

    @functools.cached_property
    def done_ns(self) -> dict[str, int]:
        """The times of the last failure and the last restore (ns), by `fail` and `restore`."""
        return {each.action.verb: each.done_ns for each in self.result.happenings}
