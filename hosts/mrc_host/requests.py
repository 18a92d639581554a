"""What can be asked of a host over its control socket: a class for each verb, with the class of its answer.

A new verb is a class here and a handler in `mrc_host.node.host` or `mrc_host.node.controller`. Ports and planes are
numbered from 0; times and durations are in ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

from mrc_common.plain import OMIT_NONE
from mrc_common.rpc import Done, Request
from mrc_host.answers import (
    Event,
    EvRow,
    HostFidelity,
    HostStatistics,
    JobProgress,
    JobWaiting,
    Measured,
    ProbeRow,
    Sample,
)
from mrc_host.proto.events import EvState
from mrc_host.proto.statistics import CcStatistics, NsccStatistics

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
    """A summary of a host. `faults` counts errors of the agent itself."""

    ports_up: int
    sent: int
    received: int
    retransmitted: int
    jobs: Sequence[str]
    queue_pairs: int
    programs: int
    faults: int


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
    """Events, a sample of this moment, how far the jobs are and, if asked for, what the probes say."""

    sample: Sample
    jobs: Mapping[str, JobProgress]
    probes: Sequence[ProbeRow] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class GetView(Request[View], verb="view"):
    """Ask for all that a live view needs many times a second."""

    since: int = 0
    probes: bool = False


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
    """What a job measured."""

    measured: Measured


@dataclass(frozen=True)
class FinishJob(Request[FinishedJob], verb="finish"):
    """End a job and forget it."""

    job: str


# -- profiles -------------------------------------------------------------------------------------------------------


class ProfileState(Enum):
    """Where a profile is in its life: INIT, OFFLINE, ONLINE, and back."""

    INIT = "INIT"
    OFFLINE = "OFFLINE"
    ONLINE = "ONLINE"


class ProfileKind(StrEnum):
    """The kinds of profiles."""

    FORMAT = "format"
    EV = "ev"
    CC = "cc"


#: Settings of a profile by name; the configuration that they become checks them (`mrc_host.node.config.build`).
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class ProfileDocument:
    """A profile and how many queue pairs use it."""

    kind: ProfileKind
    name: str
    state: ProfileState
    settings: Settings
    qps: int


@dataclass(frozen=True)
class CreateProfile(Request[ProfileDocument], verb="profile_create"):
    """Make a profile, in INIT."""

    kind: ProfileKind
    name: str
    settings: Settings


@dataclass(frozen=True)
class ModifyProfile(Request[ProfileDocument], verb="profile_modify"):
    """Change settings of a profile; one that is ONLINE allows only a few."""

    kind: ProfileKind
    name: str
    settings: Settings


@dataclass(frozen=True)
class SetProfileState(Request[ProfileDocument], verb="profile_state"):
    """Take one step of the life of a profile."""

    kind: ProfileKind
    name: str
    state: ProfileState


@dataclass(frozen=True)
class DeleteProfile(Request[Done], verb="profile_delete"):
    """Forget a profile in INIT."""

    kind: ProfileKind
    name: str


@dataclass(frozen=True)
class ProfileList:
    """All profiles."""

    profiles: Sequence[ProfileDocument]


@dataclass(frozen=True)
class ListProfiles(Request[ProfileList], verb="profile_list"):
    """Ask for all profiles."""


class ProfileEv(NamedTuple):
    """An EV of a profile, and its state; None: a place of an EXPLICIT profile that has no EV yet."""

    ev: int
    plane: int
    state: EvState


@dataclass(frozen=True)
class ProfileDetails:
    """All of a profile: also what its settings leave to the host, and its EVs.

    `evs`: of an EXPLICIT profile in its order, with its places; of another those of the queue pairs that use it.
    `congestion`: the settings in force of a CC profile, by the names of `mrc_ctl_cc_nscc_cfg`, with `algorithm`.
    """

    document: ProfileDocument
    mode: str = ""
    fmt: str = ""
    count: int = 0
    ev_min_active: int = 0
    evs: Sequence[ProfileEv | None] = ()
    congestion: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GetProfile(Request[ProfileDetails], verb="profile"):
    """Ask for all of a profile."""

    kind: ProfileKind
    name: str


# -- EVs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QpEvs:
    """The EVs of a queue pair to a peer."""

    peer: str
    qpn: int
    evs: Sequence[EvRow]


@dataclass(frozen=True)
class EvList:
    """The EVs of queue pairs."""

    qps: Sequence[QpEvs]


@dataclass(frozen=True)
class QueryEvs(Request[EvList], verb="ev_query"):
    """Ask for the EVs of all queue pairs, or of those to a peer."""

    peer: str | None = None


@dataclass(frozen=True)
class PairEvRow(EvRow):
    """An EV, and when the newest packet was sent that is in flight on it; -1 without one."""

    sent_ns: int


@dataclass(frozen=True)
class PairRow:
    """A queue pair to a peer."""

    qpn: int
    state: str
    packets: int
    retransmissions: int
    losses: int
    srtt_ns: int
    evs: Sequence[PairEvRow]


@dataclass(frozen=True)
class PairDocument:
    """The queue pairs to a peer, and the congestion control that they share, if any is connected."""

    qps: Sequence[PairRow]
    cc: NsccStatistics | CcStatistics | Done


@dataclass(frozen=True)
class GetPair(Request[PairDocument], verb="pair"):
    """Ask for everything about the queue pairs to a peer."""

    peer: str


@dataclass(frozen=True)
class Changed:
    """How many queue pairs, or EVs of them, a request changed."""

    changed: int


@dataclass(frozen=True)
class SetEvs(Request[Changed], verb="ev_set"):
    """Take EVs out of use (DENIED) or give them back (GOOD), on all queue pairs or on those to a peer."""

    evs: Sequence[int]
    state: EvState
    peer: str | None = None


@dataclass(frozen=True)
class Replaced(Changed):
    """In how many queue pairs, and in how many profiles, an EV was replaced."""

    profiles: int


@dataclass(frozen=True)
class ReplaceEv(Request[Replaced], verb="ev_replace"):
    """Put another EV of the same plane in the place of one, now and for later queue pairs."""

    old: int
    new: int
    peer: str | None = None
    profile: str | None = None


class EvOnPlane(NamedTuple):
    """An EV and its plane."""

    ev: int
    plane: int


@dataclass(frozen=True)
class ReplaceEntry(Request[Done], verb="profile_entry"):
    """Put an EV into an EXPLICIT profile, in the place of one (None: in the first place without one).

    In an ONLINE profile only EVs of the same plane replace each other, also those of the queue pairs that use it.
    """

    profile: str
    old: EvOnPlane | None
    new: EvOnPlane


@dataclass(frozen=True)
class ProbeBatch:
    """The number by which the answers to a batch of probes are asked for."""

    batch: int


@dataclass(frozen=True)
class ProbeEvs(Request[ProbeBatch], verb="ev_probe"):
    """Probe EVs towards an address."""

    address: str
    evs: Sequence[EvOnPlane]
    timeout_ns: int | None = None
    dscp: int | None = None


@dataclass(frozen=True)
class ProbedEv:
    """The outcome of the probe number `request` of a batch; `rtt_ns` null: no answer in time."""

    ev: int
    plane: int
    rtt_ns: int | None
    port: int | None
    request: int


@dataclass(frozen=True)
class ProbedEvs:
    """The answers so far, and how many are still under way."""

    waiting: int
    results: Sequence[ProbedEv]


@dataclass(frozen=True)
class GetProbedEvs(Request[ProbedEvs], verb="ev_probe_result"):
    """Ask for the answers to a batch. A complete batch is forgotten when asked for."""

    batch: int


@dataclass(frozen=True)
class EventQueue:
    """The number of a queue of EV events."""

    queue: int


@dataclass(frozen=True)
class CreateEventQueue(Request[EventQueue], verb="ev_events_create"):
    """Make a queue of changes of EVs to these states, of queue pairs with these EV profiles (None: all)."""

    depth: int
    states: Sequence[EvState] = (EvState.ASSUMED_BAD, EvState.GOOD)
    profiles: Sequence[str] | None = None


@dataclass(frozen=True)
class QueuedEvent:
    """A change of an EV. `drop_count`: events that found no room just before this one."""

    profile: str
    ev: int
    port: int
    state: EvState
    qpn: int
    drop_count: int


@dataclass(frozen=True)
class QueuedEvents:
    """The oldest events of a queue."""

    events: Sequence[QueuedEvent]


@dataclass(frozen=True)
class PollEventQueue(Request[QueuedEvents], verb="ev_events_poll"):
    """Take the oldest events of a queue."""

    queue: int
    limit: int = 64


@dataclass(frozen=True)
class DestroyEventQueue(Request[Done], verb="ev_events_destroy"):
    """Forget a queue."""

    queue: int


@dataclass(frozen=True)
class PortState:
    """A port: whether the administrator enabled it, whether it has a link, and both together."""

    carrier: bool
    enabled: bool
    up: bool


@dataclass(frozen=True)
class DeviceDocument:
    """What the host offers to controllers (`mrc_ctl_device_attr`). `phy_port_mask`: bit n for port n, from 1.

    `modify_online`: by kind of profile, the settings that may change while it is ONLINE. `max_profiles`: of each kind.
    `free_evs`: of the EVs that all EV profiles together may have.
    """

    mrc_ctl_protocol_version: int
    ev_formats: Sequence[str]
    ev_modes: Sequence[str]
    ev_max_count_profile: int
    algorithms: Sequence[str]
    phy_port_mask: int
    max_probes: int
    modify_online: Mapping[str, Sequence[str]]
    ports: Sequence[PortState]
    max_profiles: int = 0
    free_evs: int = 0


@dataclass(frozen=True)
class GetDevice(Request[DeviceDocument], verb="device"):
    """Ask what the host offers to controllers."""
