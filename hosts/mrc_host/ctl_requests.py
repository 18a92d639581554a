"""Requests to a host's node controller, as in `mrc_ctl.h`: a class for each verb, with that of its answer.

A new verb is a class here and a handler in `mrc_host.node.controller` or a part of it. They come by the control socket,
as those of `requests`. Ports and planes are numbered from 0; times and durations are in ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from mrc_host.answers import EvRow
from mrc_host.proto.events import EvState
from mrc_host.proto.statistics import CcStatistics, NsccStatistics
from mrc_topo.base.rpc import Done, Request

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
    """The EVs of queue pairs, and those that the host keeps denied for present and later queue pairs: by the peer's
    address, or towards all peers (`""`)."""

    qps: Sequence[QpEvs]
    denied: Mapping[str, Sequence[int]]


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
class SetDenials(Request[Changed], verb="ev_denials"):
    """Make the EVs that are denied exactly these, by the address of the peer, for present and later queue pairs."""

    denied: Mapping[str, Sequence[int]]


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
