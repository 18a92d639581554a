"""The node controller of a host, after the verbs of `mrc_ctl.h` (`mrc-protocol.md §10`): profiles, EVs, probes.

EV format, EV and CC profiles have states::

    INIT -> OFFLINE -> ONLINE -> OFFLINE -> INIT

Any setting may change in INIT and OFFLINE; in ONLINE only those of `LIMITED`. QPs are created with ONLINE profiles, and
a profile that a QP uses cannot leave ONLINE. The verbs are reached over the agent's unix socket (mode 0600).
"""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mrc_common.rpc import Done, Verbs
from mrc_host import requests
from mrc_host.node.config import build, build_cc
from mrc_host.node.jobs import Job
from mrc_host.node.own_evs import HostEvs, replaced
from mrc_host.node.quota import RefusedError
from mrc_host.node.stacks import Profiles
from mrc_host.proto.config import EvConfig, EvFormat, EvMode
from mrc_host.proto.congestion.base import CcConfig, algorithms
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.context import EVERYBODY
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import EvChanged, EvState
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.statistics import CcStatistics, NsccStatistics
from mrc_host.proto.transport import Pair
from mrc_host.requests import EvOnPlane, ProbedEv, ProfileDocument, ProfileKind, ProfileState, QueuedEvent, Settings

DEFAULT: Final = requests.DEFAULT_PROFILE
MAX_PROBES: Final = 4096
MAX_EVENTS: Final = 1 << 16
MAX_EVENT_QUEUES: Final = 64
MAX_EVS: Final = 4096  # of a profile
MAX_PROFILES: Final = 1024  # of a kind
MAX_WIDTH: Final = 128  # of a format's field
EVENT_STATES: Final = frozenset({EvState.GOOD, EvState.ASSUMED_BAD, EvState.DENIED})


TRANSITIONS: Final = {
    (ProfileState.INIT, ProfileState.OFFLINE),
    (ProfileState.OFFLINE, ProfileState.ONLINE),
    (ProfileState.ONLINE, ProfileState.OFFLINE),
    (ProfileState.OFFLINE, ProfileState.INIT),
}
#: What may change while a profile is ONLINE: what QPs look up each time, and the fields of later QPs' EVs.
LIMITED: Final[dict[ProfileKind, set[str]]] = {
    ProfileKind.FORMAT: set(),
    ProfileKind.EV: {
        "event_states", "fields", "probe_interval_ns", "probe_timeout_ns", "probe_jitter", "probes_to_revive",
        "ev_min_active",
    },
    ProfileKind.CC: set(),
}  # fmt: skip
#: What a controller hears of when it sets `event_states`.
REPORTED: Final = frozenset({EvState.GOOD, EvState.ASSUMED_BAD})
#: Settings of an EV profile that are the controller's alone.
OWN: Final = frozenset({"entries", "event_states"})


@dataclass
class Profile:
    """A named set of settings; `made` is its checked configuration, from OFFLINE on."""

    kind: ProfileKind
    name: str
    settings: Settings
    state: ProfileState = ProfileState.INIT
    made: EvConfig | CcConfig | EvFormat | None = None

    def document(self, users: int) -> ProfileDocument:
        """Return the profile as a controller sees it."""
        return ProfileDocument(self.kind, self.name, self.state, self.settings, users)


@dataclass
class _Batch:
    """EV probes under way."""

    results: list[ProbedEv] = field(default_factory=list)
    waiting: int = 0


class ControlledQp(NamedTuple):
    """A queue pair as a controller sees it: its peer, and the names of its profiles."""

    peer: str
    qp: QueuePair
    ev: str
    cc: str


@dataclass
class _EventQueue:
    """Changes of EVs that have not been polled yet; `lost` counts those for which there was no room, since the last
    that fitted.
    """

    depth: int
    states: frozenset[EvState]
    profiles: frozenset[str] | None
    events: deque[QueuedEvent] = field(default_factory=deque)
    lost: int = 0


def event_states(settings: Settings) -> frozenset[EvState] | None:
    """Return of which states of its EVs a profile tells; None: its settings do not say, and it tells of all.

    Raises:
        ConfigError: it is no list of states that are told of.
    """
    given = settings.get("event_states")
    if given is None:
        return None
    known = {each.name: each for each in REPORTED}
    if isinstance(given, str) or not set(given) <= set(known):
        raise ConfigError(f"ev.event_states is a list of some of {', '.join(sorted(known))}")
    return frozenset(known[name] for name in given)


def _format(settings: Settings) -> EvFormat:
    """Return the format that the settings of a format profile name.

    Raises:
        ConfigError: there is none, or the widths of its fields are none.
        RefusedError: E2BIG, the fields are wider than the format.
    """
    name, widths = str(settings.get("fmt", "")), settings.get("widths", ())
    if not {"fmt"} <= set(settings) <= {"fmt", "widths"} or name.upper() not in EvFormat.__members__:
        known = ", ".join(each.name.lower() for each in EvFormat)
        raise ConfigError(f"a format profile has one setting, fmt: {known}; and it may have widths, of its fields")
    if not all(isinstance(each, int) and 1 <= each <= MAX_WIDTH for each in widths):
        raise ConfigError(f"widths are those of fields, each 1 to {MAX_WIDTH} bits")
    made = EvFormat[name.upper()]
    if sum(widths) > made.value:
        raise RefusedError(errno.E2BIG, f"fields of {sum(widths)} bits; {made.name} has {made.value}")
    return made


def in_force(config: CcConfig, mtu: int) -> dict[str, object]:
    """Return the settings of a congestion control by the names of `mrc_ctl_cc_nscc_cfg`, with `algorithm`; what was not
    given is derived from the rest."""
    if not isinstance(config, NsccConfig):
        return {"algorithm": config.algorithm}
    made = config.controller(mtu)
    return {
        "algorithm": config.algorithm,
        "disable_qa": made.disable_qa,
        "adjust_bytes_threshold": made.adjust_bytes,
        "adjust_period_threshold": made.adjust_period_ns,
        "base_rtt": config.base_rtt_ns,
        "eta": made.eta,
        "fi": made.fi,
        "fi_scale": made.fi_scale,
        "gamma": made.gamma,
        "max_md_jump": made.max_md_jump,
        "max_cwnd": int(made.max_wnd),
        "qa_gate": made.qa_gate,
        "qa_threshold": made.qa_threshold_ns,
        "target_delay": made.target_ns,
    }


class NodeController:
    """The verbs of one host. Errors are RefusedError, ValueError and KeyError; the node turns them into answers.

    Args:
        endpoint: whose EVs and profiles these are.
        ports: how many it has.
        own_evs: the host's EVs towards each peer.
        jobs: those of the node, by name, as they come and go.
        await_probe: calls the second argument with (RTT in ns or None, port of the
            answer, time) when the EV probe of a token has ended.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        ports: int,
        own_evs: HostEvs,
        jobs: Mapping[str, Job[Pair]],
        await_probe: Callable[[int, Callable[[int | None, int | None, int], None]], None],
    ) -> None:
        self.endpoint = endpoint
        self.ports = ports
        self.own_evs = own_evs
        self.jobs = jobs
        self.await_probe = await_probe
        self.profiles: dict[tuple[ProfileKind, str], Profile] = {}
        #: Queue pairs that are not of jobs.
        self.holders: list[Callable[[], Iterable[ControlledQp]]] = []
        #: Are called with EV profile, event and state of each change that the profile tells of.
        self.watchers: list[Callable[[str, EvChanged, EvState], None]] = []
        self._event_queues: dict[int, _EventQueue] = {}
        self._batches: dict[int, _Batch] = {}
        self._next_batch = 1
        config = endpoint.config
        defaults: dict[ProfileKind, EvConfig | CcConfig | EvFormat] = {
            ProfileKind.FORMAT: config.ev.fmt,
            ProfileKind.EV: config.ev,
            ProfileKind.CC: config.cc,
        }
        for kind, made in defaults.items():
            self.profiles[kind, DEFAULT] = Profile(kind, DEFAULT, {}, ProfileState.ONLINE, made)

    def add_verbs(self, verbs: Verbs) -> None:
        """Add the verbs of this part of a host."""
        add = verbs.add
        add(requests.CreateProfile, self.profile_create)
        add(requests.ModifyProfile, self.profile_modify)
        add(requests.SetProfileState, self.profile_state)
        add(requests.DeleteProfile, self.profile_delete)
        add(requests.ListProfiles, self.profile_list)
        add(requests.GetProfile, self.profile_details)
        add(requests.ReplaceEntry, self.profile_entry)
        add(requests.QueryEvs, self.ev_query)
        add(requests.GetPair, self.pair)
        add(requests.SetEvs, self.ev_set)
        add(requests.ReplaceEv, self.ev_replace)
        add(requests.ProbeEvs, self.ev_probe)
        add(requests.GetProbedEvs, self.ev_probe_result)
        add(requests.CreateEventQueue, self.ev_events_create)
        add(requests.PollEventQueue, self.ev_events_poll)
        add(requests.DestroyEventQueue, self.ev_events_destroy)
        add(requests.GetDevice, self.device)

    # -- profiles -----------------------------------------------------------------------------------------

    def _profile(self, kind: ProfileKind, name: str) -> Profile:
        if (kind, name) not in self.profiles:
            known = ", ".join(sorted(f"{each[0]} {each[1]}" for each in self.profiles))
            raise ValueError(f"no {kind} profile '{name}'; known: {known}")
        return self.profiles[kind, name]

    def _users(self, profile: Profile) -> int:
        """Return how many QPs use a profile; those of a format profile use it through their EV profile."""
        if profile.kind is ProfileKind.FORMAT:
            return sum(self._users(each) for each in self._ev_profiles_of(profile))
        if profile.kind is ProfileKind.EV:
            return sum(holder.ev == profile.name for holder in self._all())
        return sum(holder.cc == profile.name for holder in self._all())

    def _ev_profiles_of(self, profile: Profile) -> list[Profile]:
        """Return the EV profiles that name a format profile; none for other kinds."""
        if profile.kind is not ProfileKind.FORMAT:
            return []
        return [
            each
            for each in self.profiles.values()
            if each.kind is ProfileKind.EV and each.settings.get("format", DEFAULT) == profile.name
        ]

    def _all(self) -> Iterator[ControlledQp]:
        """Yield every queue pair, of jobs and of others."""
        for job in self.jobs.values():
            for rank, qps in job.qps.items():
                for qp in qps:
                    if isinstance(qp, QueuePair):
                        yield ControlledQp(job.names[rank], qp, job.ev_profile, job.cc_profile)
        for others in self.holders:
            yield from others()

    def _make(self, profile: Profile) -> EvConfig | CcConfig | EvFormat:
        """Return the configuration that the settings describe, over the host's own.

        Raises:
            ConfigError: a setting that does not exist or is out of range.
        """
        base = self.endpoint.config
        settings = dict(profile.settings)
        if profile.kind is ProfileKind.FORMAT:
            return _format(settings)
        if profile.kind is ProfileKind.CC:
            return build_cc({"algorithm": base.cc.algorithm, **dataclasses.asdict(base.cc), **settings})
        chosen = settings.pop("format", None)
        if chosen is not None:
            fmt = self._profile(ProfileKind.FORMAT, chosen)
            if fmt.state is not ProfileState.ONLINE:
                raise ConfigError(f"format profile '{chosen}' is {fmt.state.value}; bring it ONLINE first")
            settings["fmt"] = fmt.made
            settings["format_widths"] = tuple(fmt.settings.get("widths", ()))
        self._take_own(profile, settings)
        own = {each.name: getattr(base.ev, each.name) for each in dataclasses.fields(EvConfig)}
        return build(EvConfig, {**own, **settings}, "ev")

    def _take_own(self, profile: Profile, settings: dict[str, object]) -> None:
        """Remove the controller's own settings; `entries` become the values of an EXPLICIT profile once all are there.

        Raises:
            ConfigError: they are not lists of what they name.
        """
        event_states(settings)
        entries = self._entries(profile)
        for name in OWN:
            settings.pop(name, None)
        if entries is None:
            return
        if None in entries:
            # Everything else is checked now, and the values when the last place is taken.
            settings["mode"] = EvMode.AUTO
            settings.pop("values", None)
            return
        values: list[list[int]] = [[] for _ in range(self.ports)]
        for ev, plane in (each for each in entries if each is not None):
            values[plane].append(ev)
        settings["values"] = tuple(tuple(each) for each in values)

    def _entries(self, profile: Profile) -> list[EvOnPlane | None] | None:
        """Return the places of an EXPLICIT profile, as many as its count; None for other profiles.

        Raises:
            ConfigError: they are not a list of EVs with their planes.
        """
        settings = profile.settings
        given = settings.get("entries")
        if given is None or str(settings.get("mode", "")).lower() != EvMode.EXPLICIT.value:
            return None
        count = settings.get("count", self.endpoint.config.ev.count)
        found: list[EvOnPlane | None] = []
        try:
            for each in given:
                entry = None if each is None else EvOnPlane(*each)
                if entry is not None and not (0 <= entry.ev < 1 << 32 and 0 <= entry.plane < self.ports):
                    raise ConfigError(
                        f"ev.entries has {entry}; an EV has 32 bits, and planes are 0 to {self.ports - 1}"
                    )
                found.append(entry)
            return [*found, *[None] * count][:count]
        except TypeError as error:
            raise ConfigError(f"ev.entries is a list of [EV, plane] and null ({error})") from error

    def profile_entry(self, request: requests.ReplaceEntry, now: int) -> Done:
        """Put an EV into an EXPLICIT profile.

        Raises:
            RefusedError: ENOENT, the profile lacks the EV that is to be replaced, or has no place left.
        """
        profile = self._profile(ProfileKind.EV, request.profile)
        entries, old, new = self._entries(profile), request.old, request.new
        if entries is None:
            raise ValueError(f"ev profile '{profile.name}' is not EXPLICIT, or has no entries")
        if profile.state is ProfileState.INIT:
            raise ValueError(f"ev profile '{profile.name}' is INIT; bring it OFFLINE first")
        if old not in entries:
            what = "has no place left" if old is None else f"has no EV {old.ev:#010x} on port {old.plane}"
            raise RefusedError(errno.ENOENT, f"ev profile '{profile.name}' {what}")
        if any(each is not None and each.ev == new.ev for each in entries) and old != new:
            raise ValueError(f"ev profile '{profile.name}' has EV {new.ev:#010x} already")
        place = entries.index(old)
        entries[place] = new
        changed = {**profile.settings, "entries": [None if each is None else list(each) for each in entries]}
        if profile.state is ProfileState.ONLINE:
            assert old is not None, "an ONLINE profile has no place without an EV"
            if old.plane != new.plane:
                raise ValueError(f"EV {old.ev:#010x} is of port {old.plane}; in an ONLINE profile it keeps its port")
            if old.ev != new.ev:
                self.ev_replace(requests.ReplaceEv(old.ev, new.ev, profile=profile.name), now)
        else:
            self._make(Profile(profile.kind, profile.name, changed, profile.state))
        profile.settings = changed
        return Done()

    def profile_details(self, request: requests.GetProfile, now: int) -> requests.ProfileDetails:
        """Return all of a profile."""
        profile = self._profile(request.kind, request.name)
        document = profile.document(self._users(profile))
        made = profile.made if profile.made is not None else self._make(profile)
        if isinstance(made, EvFormat):
            return requests.ProfileDetails(document, fmt=made.name)
        if isinstance(made, CcConfig):
            return requests.ProfileDetails(document, congestion=in_force(made, self.endpoint.config.wire.mtu))
        states = self._states_of(profile.name)
        entries = self._entries(profile)
        evs: list[requests.ProfileEv | None]
        if entries is not None:
            evs = [None if each is None else requests.ProfileEv(*each, self._state(each, states)) for each in entries]
        elif made.mode is EvMode.EXPLICIT:
            pairs = [EvOnPlane(ev, plane) for plane, values in enumerate(made.values) for ev in values]
            evs = [requests.ProfileEv(*each, self._state(each, states)) for each in pairs]
        else:
            evs = [requests.ProfileEv(*each, self._state(each, states)) for each in states]
        mode = EvMode.EXPLICIT if entries is not None else made.mode
        return requests.ProfileDetails(document, mode.name, made.fmt.name, made.count, made.ev_min_active, evs)

    def _states_of(self, name: str) -> dict[EvOnPlane, set[EvState]]:
        """Return the EVs of the queue pairs that use an EV profile, each with its states on them."""
        found: dict[EvOnPlane, set[EvState]] = {}
        for holder in self._all():
            if holder.ev == name:
                for row in self.endpoint.query_evs(holder.qp):
                    found.setdefault(EvOnPlane(row.ev, row.plane), set()).add(row.state)
        return found

    def _state(self, entry: EvOnPlane, states: Mapping[EvOnPlane, set[EvState]]) -> EvState:
        """Return the state of an EV of a profile: DENIED by the controller, else the worst that a queue pair knows."""
        if entry.ev in self.endpoint.context.denied_towards(EVERYBODY):
            return EvState.DENIED
        known = states.get(entry, set())
        return next((each for each in (EvState.DENIED, EvState.ASSUMED_BAD) if each in known), EvState.GOOD)

    def profile_create(self, request: requests.CreateProfile, now: int) -> ProfileDocument:
        """Create a profile, in INIT."""
        if (request.kind, request.name) in self.profiles:
            raise ValueError(f"{request.kind} profile '{request.name}' exists")
        if sum(kind is request.kind for kind, _ in self.profiles) >= MAX_PROFILES:
            raise RefusedError(errno.ENOMEM, f"there are {MAX_PROFILES} {request.kind} profiles, which is the most")
        profile = Profile(request.kind, request.name, dict(request.settings))
        self._make(profile)
        self.profiles[request.kind, request.name] = profile
        return profile.document(0)

    def profile_modify(self, request: requests.ModifyProfile, now: int) -> ProfileDocument:
        """Change settings; ONLINE profiles allow only a few."""
        kind, name, settings = request.kind, request.name, request.settings
        profile = self._profile(kind, name)
        if profile.state is ProfileState.ONLINE:
            refused = set(settings) - LIMITED[kind]
            if refused:
                allowed = ", ".join(sorted(LIMITED[kind])) or "none"
                raise ValueError(
                    f"{kind} profile '{name}' is ONLINE: {min(refused)} cannot change; these can: {allowed}"
                )
        changed = Profile(kind, name, {**profile.settings, **settings}, profile.state, profile.made)
        if profile.state is not ProfileState.ONLINE or set(settings) - OWN:
            changed.made = self._make(changed)
        else:
            event_states(settings)
        profile.settings, profile.made = changed.settings, changed.made
        if profile.state is ProfileState.ONLINE:
            self._refresh(profile, settings)
        return profile.document(self._users(profile))

    def _refresh(self, profile: Profile, settings: Settings) -> None:
        """Hand changes of an ONLINE profile to the QPs that use it."""
        kept = {"fields", *OWN}  # queue pairs keep their EVs
        current = {name: value for name, value in settings.items() if name not in kept}
        for holder in self._all():
            if holder.ev == profile.name:
                self.endpoint.modify_ev_profile(holder.qp, **current)

    def profile_state(self, request: requests.SetProfileState, now: int) -> ProfileDocument:
        """Take one step of a profile's life."""
        kind, name, wanted = request.kind, request.name, request.state
        profile = self._profile(kind, name)
        if (profile.state, wanted) not in TRANSITIONS:
            raise ValueError(f"{kind} profile '{name}' is {profile.state.value} and cannot go to {wanted.value}")
        users = self._users(profile)
        if profile.state is ProfileState.ONLINE:
            if users:
                raise RefusedError(errno.EBUSY, f"{kind} profile '{name}' is busy: {users} queue pairs use it")
            online = [each.name for each in self._ev_profiles_of(profile) if each.state is ProfileState.ONLINE]
            if online:
                text = f"format profile '{name}' is busy: EV profile '{online[0]}' is ONLINE; bring that OFFLINE first"
                raise RefusedError(errno.EBUSY, text)
        if wanted is ProfileState.ONLINE and kind is ProfileKind.EV:
            entries = self._entries(profile)
            if entries is not None and None in entries:
                text = f"{entries.count(None)} of {len(entries)} places of ev profile '{name}' have no EV"
                raise ValueError(f"{text}; fill them before it goes ONLINE")
        if name != DEFAULT or profile.settings:
            profile.made = self._make(profile)
        profile.state = wanted
        return profile.document(users)

    def profile_delete(self, request: requests.DeleteProfile, now: int) -> Done:
        """Forget a profile in INIT."""
        profile = self._profile(request.kind, request.name)
        if profile.state is not ProfileState.INIT:
            text = f"{request.kind} profile '{request.name}' is {profile.state.value}; bring it to INIT first"
            raise ValueError(text)
        del self.profiles[request.kind, request.name]
        return Done()

    def profile_list(self, request: requests.ListProfiles, now: int) -> requests.ProfileList:
        """Return all profiles with the number of QPs that use each."""
        return requests.ProfileList([each.document(self._users(each)) for each in self.profiles.values()])

    def profiles_for(self, ev: str, cc: str) -> Profiles:
        """Return the configurations of ONLINE profiles, for new QPs.

        Raises:
            ValueError: no such profile, or it is not ONLINE.
        """
        ev_made, cc_made = self._online(ProfileKind.EV, ev), self._online(ProfileKind.CC, cc)
        assert isinstance(ev_made, EvConfig)
        assert isinstance(cc_made, CcConfig)
        # The host's own EV profile differs by destination; a profile of a controller is the same towards all,
        # unless it says nothing of values.
        own = ev == DEFAULT or not {"mode", "values", "format"} & set(self._profile(ProfileKind.EV, ev).settings)
        return Profiles(ev_made, cc_made, per_peer=own)

    def _online(self, kind: ProfileKind, name: str) -> EvConfig | CcConfig | EvFormat:
        profile = self._profile(kind, name)
        if profile.state is not ProfileState.ONLINE or profile.made is None:
            raise ValueError(f"{kind} profile '{name}' is {profile.state.value}; a queue pair needs it ONLINE")
        return profile.made

    # -- EVs ----------------------------------------------------------------------------------------------

    def _qps(self, peer: str | None) -> list[tuple[str, QueuePair]]:
        found = [(each.peer, each.qp) for each in self._all() if peer in (None, each.peer)]
        if peer is not None and not found:
            raise ValueError(f"no queue pair to '{peer}'")
        return found

    def ev_query(self, request: requests.QueryEvs, now: int) -> requests.EvList:
        """Return the EVs of every QP (to a peer), each with plane, state, whether it is active, and its losses."""
        return requests.EvList(
            [requests.QpEvs(name, qp.number, self.endpoint.query_evs(qp)) for name, qp in self._qps(request.peer)]
        )

    def pair(self, request: requests.GetPair, now: int) -> requests.PairDocument:
        """Return everything about the queue pairs to a peer, and the congestion control that they share."""
        rows = []
        congestion: CcStatistics | NsccStatistics | Done = Done()
        for each in self._all():
            if each.peer != request.peer:
                continue
            qp, found = each.qp, each.qp.snapshot()
            flying = qp.requestor.board.last_on_ev
            sender = found.requestor
            rows.append(
                requests.PairRow(
                    qpn=qp.number,
                    state=found.state,
                    packets=sender["packets_sent"],
                    retransmissions=sender["retransmissions"],
                    losses=sum(sender[key] for key in sender if key.startswith("lost_")),
                    srtt_ns=found.srtt_ns,
                    evs=[
                        requests.PairEvRow(**vars(row), sent_ns=flying[ev].sent_ns if ev in flying else -1)
                        for ev, row in enumerate(self.endpoint.query_evs(qp))
                    ],
                )
            )
            if qp.connected and isinstance(congestion, Done):
                congestion = qp.peer.snapshots()[0].cc
        return requests.PairDocument(rows, congestion)

    def ev_set(self, request: requests.SetEvs, now: int) -> requests.Changed:
        """Set EVs to DENIED (out of use) or to GOOD (in use again) on every QP that has them, or only on those to a
        peer.

        Without a peer this also holds for later QPs.
        """
        evs, state, peer = request.evs, request.state, request.peer
        if state not in (EvState.DENIED, EvState.GOOD):
            raise ValueError(f"state is DENIED or GOOD, not '{state.name}'; the others are the endpoint's own")
        if peer is None:
            return requests.Changed(self.endpoint.deny_evs(evs, state is EvState.DENIED, now))
        changed = 0
        qps = [(qp, {each.ev for each in self.endpoint.query_evs(qp)}) for _, qp in self._qps(peer)]
        for ev in evs:
            holders = [qp for qp, known in qps if ev in known]
            if not holders:
                raise RefusedError(errno.ENOENT, f"no queue pair to '{peer}' has EV {ev:#010x}")
            for qp in holders:
                self.endpoint.set_ev_state(qp, ev, state, now)
            changed += len(holders)
        return requests.Changed(changed)

    def ev_replace(self, request: requests.ReplaceEv, now: int) -> requests.Replaced:
        """Put another EV of the same plane in the place of one, now and for later queue pairs.

        That is for the queue pairs to a peer, for an EV profile (EXPLICIT, OFFLINE or ONLINE) and those that use it, or
        for all copies of the EV. `changed` counts queue pairs, `profiles` the profiles and own EVs towards peers.

        Raises:
            RefusedError: ENOENT, nothing has the EV.
        """
        old, new, peer, profile = request.old, request.new, request.peer, request.profile
        if profile is not None:
            self._profile(ProfileKind.EV, profile)
        changed = 0
        addresses: set[str] = set()
        for each in self._all():
            if peer not in (None, each.peer) or profile not in (None, each.ev):
                continue
            if each.qp.connected:
                addresses.add(str(ipaddress.IPv6Address(each.qp.peer.address)))
            if any(row.ev == old for row in self.endpoint.query_evs(each.qp)):
                self.endpoint.replace_ev(each.qp, old, new, now)
                changed += 1
        kept = 0
        if peer is None:
            kept += self._replace_in_profiles(old, new, profile)
        if profile in (None, DEFAULT):
            for address in [None] if peer is None else {peer, *addresses}:
                kept += self.own_evs.replace(old, new, address)
        if not changed and not kept:
            where = f"no queue pair to '{peer}'" if peer is not None else "no queue pair and no EV profile"
            if profile is not None:
                where = f"neither EV profile '{profile}' nor a queue pair that uses it"
            raise RefusedError(errno.ENOENT, f"{where} has EV {old:#010x}")
        return requests.Replaced(changed, kept)

    def _replace_in_profiles(self, old: int, new: int, name: str | None) -> int:
        """Replace an EV in the EXPLICIT values of profiles; return in how many."""
        count = 0
        for profile in self.profiles.values():
            made = profile.made
            if profile.kind is not ProfileKind.EV or name not in (None, profile.name):
                continue
            own = made.values if isinstance(made, EvConfig) else ()
            values = replaced(profile.settings.get("values", own), old, new)
            if values is None:
                continue
            if "values" in profile.settings:
                profile.settings = {**profile.settings, "values": [list(plane) for plane in values]}
            entries = self._entries(profile)
            if entries is not None:
                changed = [each and [new if each.ev == old else each.ev, each.plane] for each in entries]
                profile.settings = {**profile.settings, "entries": changed}
            if isinstance(made, EvConfig):
                profile.made = dataclasses.replace(made, values=values)
            count += 1
        return count

    def ev_probe(self, request: requests.ProbeEvs, now: int) -> requests.ProbeBatch:
        """Probe EVs towards an address. Ask for the answers by `batch`."""
        if len(request.evs) > MAX_PROBES:
            raise ValueError(f"{len(request.evs)} probes; at most {MAX_PROBES} in one batch")
        destination = ipaddress.IPv6Address(request.address).packed
        for each in request.evs:
            self._check_probe(each, destination)
        number = self._next_batch
        self._next_batch += 1
        batch = self._batches[number] = _Batch()
        for index, (ev, plane) in enumerate(request.evs):
            token = self.endpoint.probe_ev(destination, ev, plane, now, request.timeout_ns, request.dscp)
            batch.waiting += 1
            self.await_probe(token, self._answer(batch, ev, plane, index))
        return requests.ProbeBatch(number)

    def _check_probe(self, probe: requests.EvOnPlane, destination: bytes) -> None:
        """Raise ValueError for a probe that cannot be sent, before the first one leaves."""
        ev, plane = probe
        if not 0 <= plane < self.ports:
            raise ValueError(f"no plane {plane}; this host has {self.ports}, numbered from 0")
        resolver = self.endpoint.config.ev.resolver
        if resolver is not None:
            try:
                resolver(ev, destination)
            except KeyError:
                where = ipaddress.IPv6Address(destination)
                raise ValueError(f"EV {ev:#010x} has no path to {where}") from None

    @staticmethod
    def _answer(batch: _Batch, ev: int, plane: int, request: int) -> Callable[[int | None, int | None, int], None]:
        def take(rtt_ns: int | None, port: int | None, now: int) -> None:
            batch.waiting -= 1
            batch.results.append(ProbedEv(ev, plane, rtt_ns, port, request))

        return take

    def ev_probe_result(self, request: requests.GetProbedEvs, now: int) -> requests.ProbedEvs:
        """Return the answers so far; `rtt_ns` null: none in time. A complete batch is forgotten when asked for."""
        if request.batch not in self._batches:
            raise ValueError(f"no batch {request.batch}")
        found = self._batches[request.batch]
        if not found.waiting:
            del self._batches[request.batch]
        return requests.ProbedEvs(found.waiting, found.results)

    # -- events of EVs ------------------------------------------------------------------------------------

    def ev_events_create(self, request: requests.CreateEventQueue, now: int) -> requests.EventQueue:
        """Create a queue of changes of EVs to these states, of queue pairs with these EV profiles (None: all)."""
        wanted = frozenset(request.states)
        if not wanted or wanted - EVENT_STATES:
            raise ValueError(f"states are some of {', '.join(sorted(each.name for each in EVENT_STATES))}")
        if not 1 <= request.depth <= MAX_EVENTS or len(self._event_queues) >= MAX_EVENT_QUEUES:
            raise ValueError(f"a queue has 1 to {MAX_EVENTS} entries, and there are at most {MAX_EVENT_QUEUES} queues")
        number = max(self._event_queues, default=0) + 1
        profiles = None if request.profiles is None else frozenset(request.profiles)
        self._event_queues[number] = _EventQueue(request.depth, wanted, profiles)
        return requests.EventQueue(number)

    def ev_changed(self, event: EvChanged) -> None:
        """Take an event of the endpoint."""
        state = EvState.GOOD if event.new is EvState.SKIP else event.new
        wanted = any(state in queue.states for queue in self._event_queues.values())
        if not wanted and not (self.watchers and state in REPORTED):
            return
        profile = next((each.ev for each in self._all() if each.qp.number == event.qpn), DEFAULT)
        reported = event_states(self.profiles[ProfileKind.EV, profile].settings)
        if reported is not None and state not in reported:
            return
        if state in REPORTED:
            for watcher in self.watchers:
                watcher(profile, event, state)
        for queue in self._event_queues.values():
            if state not in queue.states or (queue.profiles is not None and profile not in queue.profiles):
                continue
            if len(queue.events) >= queue.depth:
                queue.lost += 1
                continue
            queue.events.append(QueuedEvent(profile, event.ev, event.plane, state, event.qpn, queue.lost))
            queue.lost = 0

    def _event_queue(self, number: int) -> _EventQueue:
        if number not in self._event_queues:
            raise ValueError(f"no queue {number} of EV events")
        return self._event_queues[number]

    def ev_events_poll(self, request: requests.PollEventQueue, now: int) -> requests.QueuedEvents:
        """Take the oldest events of a queue, each with the number of those that were dropped before it."""
        events = self._event_queue(request.queue).events
        return requests.QueuedEvents([events.popleft() for _ in range(min(request.limit, len(events)))])

    def ev_events_destroy(self, request: requests.DestroyEventQueue, now: int) -> Done:
        """Forget a queue."""
        self._event_queue(request.queue)
        del self._event_queues[request.queue]
        return Done()

    def _count(self, profile: Profile) -> int:
        """Return how many EVs a profile may have."""
        return profile.made.count if isinstance(profile.made, EvConfig) else 0

    # -- the device -----------------------------------------------------------------------------------------

    def device(self, request: requests.GetDevice, now: int) -> requests.DeviceDocument:
        """Return what a controller can expect (`mrc_ctl_device_attr`), and which ports are up."""
        ports = [requests.PortState(each.carrier, each.enabled, each.up) for each in self.endpoint.port_states()]
        return requests.DeviceDocument(
            mrc_ctl_protocol_version=1,
            ev_formats=[each.name for each in EvFormat],
            ev_modes=[each.name for each in EvMode],
            ev_max_count_profile=MAX_EVS,
            algorithms=sorted(algorithms()),
            phy_port_mask=(1 << self.ports) - 1 << 1,
            max_probes=MAX_PROBES,
            modify_online={kind: sorted(names) for kind, names in LIMITED.items()},
            ports=ports,
            max_profiles=MAX_PROFILES,
            free_evs=MAX_PROFILES * MAX_EVS - sum(self._count(each) for each in self.profiles.values()),
        )
