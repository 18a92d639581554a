"""What a run leaves: plain data about everything that happened, beside the recording of what grows with its length."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mrc_results.recording import Events, Recording

#: Of `RunResult.document`. Format 1 held all samples and events itself (`resultdir.load` reads both).
FORMAT = 2


@dataclass
class Happening:
    """Something that was done to the lab: when it was asked for and when it was done (ns of the session's clock).

    `clicked`: not by the schedule, but by somebody who looked on.
    """

    at_ns: int
    done_ns: int
    action: dict[str, Any]
    expected_loss: float
    error: str = ""
    broken: list[str] = field(default_factory=list)
    localised: list[str] = field(default_factory=list)
    clicked: bool = False


@dataclass
class RunResult:
    """Everything about a run: plain data, and the recording of what grows with its length."""

    lab: str
    clock: str
    seed: int
    workload: str
    params: dict[str, Any]
    ranks: list[str]
    started_ns: int = 0
    finished_ns: int = 0
    happenings: list[Happening] = field(default_factory=list)
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)
    fidelity: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    #: What of the lab died, and when (`lab.death.Death`).
    deaths: list[dict[str, Any]] = field(default_factory=list)
    #: Of a run without progress: what each rank waited for at the end (`mrc_host.node.jobs.Job.waiting`).
    waiting: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: The signal that ended the run before its time, if one did.
    interrupted: str = ""
    recording: Recording = field(default_factory=Recording, repr=False)

    @property
    def events(self) -> Events:
        """What the hosts logged."""
        return self.recording.events

    def document(self) -> dict[str, Any]:
        """Plain data, but `samples` (by host) and `fabric` are `Series`, and `events` are `recording.Events`."""
        document = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "recording"}
        document["happenings"] = [asdict(each) for each in self.happenings]
        record = self.recording
        return {
            "format": FORMAT,
            **document,
            "samples": record.samples,
            "fabric": record.fabric,
            "events": record.events,
        }
