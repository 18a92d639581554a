"""Requests to a host over its control socket: a class for each verb, with the class of its answer.

A new verb is a class here and a handler in `mrc_host.node.host`; those of the node controller are in
`ctl_requests`. Ports and planes are numbered from 0; times and durations are in ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mrc_host.answers import (
    Event,
    HostFidelity,
    HostStatistics,
    JobProgress,
    JobWaiting,
    Measured,
    ProbeRow,
    Sample,
)
from mrc_topo.base.plain import OMIT_NONE
from mrc_topo.base.rpc import Done, Request

DEFAULT_PROFILE: Final = "default"


# -- the host -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HostIdentity:
    """The host's name, transport, clock and number of ports."""

    name: str
    transport: str
    now_ns: int
    ports: int


@dataclass(frozen=True)
class Hello(Request[HostIdentity], verb="hello"):
    """Ask which host this is."""


@dataclass(frozen=True)
class GetStatistics(Request[HostStatistics], verb="statistics"):
    """Ask for all counters."""


@dataclass(frozen=True)
class HostSummary:
    """A summary of a host. `faults` counts errors of the agent itself, `denied` the EVs that it keeps denied."""

    ports_up: int
    sent: int
    received: int
    retransmitted: int
    jobs: Sequence[str]
    queue_pairs: int
    programs: int
    faults: int
    denied: int


@dataclass(frozen=True)
class HoldProbes(Request[Done], verb="hold_probes"):
    """Send no probes of the Clustermapper for this many ns from now on; 0 ends that."""

    for_ns: int


@dataclass(frozen=True)
class GetSummary(Request[HostSummary], verb="summary"):
    """Ask for a summary of the host."""


@dataclass(frozen=True)
class Samples:
    """Samples of the host, oldest first."""

    samples: Sequence[Sample]


@dataclass(frozen=True)
class GetSamples(Request[Samples], verb="samples"):
    """Ask for the samples that were taken at the time `since` or later."""

    since: int = 0


@dataclass(frozen=True)
class Events:
    """The log of a host: events, the number of the one that comes next, and how many are no longer kept."""

    events: Sequence[Event]
    next: int
    dropped: int


@dataclass(frozen=True)
class GetEvents(Request[Events], verb="events"):
    """Ask for the events from number `since` on."""

    since: int = 0


@dataclass(frozen=True)
class View(Events):
    """Events, a sample of this moment, how far the jobs are, how many EVs the host keeps denied and, if asked for, what
    the probes say."""

    sample: Sample
    jobs: Mapping[str, JobProgress]
    denied: int
    probes: Sequence[ProbeRow] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class GetView(Request[View], verb="view"):
    """Ask for all that a live view needs many times a second. `recent`: the newest sample of the host's own series will
    do where it takes one, instead of one of this moment, which costs more than all else of the answer."""

    since: int = 0
    probes: bool = False
    recent: bool = False


@dataclass(frozen=True)
class SetPort(Request[Done], verb="port"):
    """Enable or disable a port."""

    port: int
    up: bool


class Provided(StrEnum):
    """What the process of an agent measures, on the real clock only."""

    FIDELITY = "fidelity"
    RESET_FIDELITY = "reset_fidelity"


@dataclass(frozen=True)
class Provide(Request[HostFidelity | Done], verb="provide"):
    """Ask how well the agent keeps up, or begin that measurement again."""

    what: Provided


@dataclass(frozen=True)
class Probes:
    """The host's probes of switches."""

    probes: Sequence[ProbeRow]


@dataclass(frozen=True)
class GetMap(Request[Probes], verb="map"):
    """Ask for the results of the Clustermapper's probes of this host."""


@dataclass(frozen=True)
class ProgramRow:
    """A program on the host, and what it has; `memory` in bytes."""

    number: int
    memory: int
    regions: int
    queue_pairs: int
    completion_queues: int
    events_lost: int


@dataclass(frozen=True)
class ProgramList:
    """All programs; `ejected` counts those that broke a rule."""

    programs: Sequence[ProgramRow]
    ejected: int


@dataclass(frozen=True)
class GetPrograms(Request[ProgramList], verb="programs"):
    """Ask which programs there are."""


# -- jobs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RegionAttributes:
    """Memory that peers may write to."""

    va: int
    rkey: int
    length: int


@dataclass(frozen=True)
class RankAttributes:
    """What the peers of a rank must know: its region, and by peer the documents of the queue pairs towards it. The
    transport checks the documents."""

    region: RegionAttributes
    qps: Mapping[int, Sequence[object]]


@dataclass(frozen=True)
class PrepareJob(Request[RankAttributes], verb="prepare"):
    """Make a rank of a workload: its region and queue pairs. The workload checks `params`."""

    job: str
    workload: str
    params: object
    rank: int
    names: Sequence[str]
    addresses: Sequence[str]
    qps_per_peer: int = 1
    ev_profile: str = DEFAULT_PROFILE
    cc_profile: str = DEFAULT_PROFILE


@dataclass(frozen=True)
class ConnectJob(Request[Done], verb="connect"):
    """Connect the queue pairs of a job, with the attributes of the peers by rank."""

    job: str
    peers: Mapping[int, RankAttributes]


@dataclass(frozen=True)
class StartJob(Request[Done], verb="start"):
    """Begin the workload."""

    job: str


@dataclass(frozen=True)
class Begun:
    """How many iterations have begun."""

    begun: int


@dataclass(frozen=True)
class WindDownJob(Request[Begun], verb="wind_down"):
    """Begin no further iteration until `stop_after`."""

    job: str


@dataclass(frozen=True)
class StopJobAfter(Request[Done], verb="stop_after"):
    """Set the number of iterations: at least as many as any rank has begun."""

    job: str
    iterations: int


@dataclass(frozen=True)
class GetProgress(Request[JobProgress], verb="progress"):
    """Ask how far a job is."""

    job: str


@dataclass(frozen=True)
class GetWaiting(Request[JobWaiting], verb="waiting"):
    """Ask what a job waits for."""

    job: str


@dataclass(frozen=True)
class FinishedJob:
    """The last progress of a job, and its measurements."""

    progress: JobProgress
    measured: Measured


@dataclass(frozen=True)
class FinishJob(Request[FinishedJob], verb="finish"):
    """End a job and forget it."""

    job: str
