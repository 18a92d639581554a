"""EV formats, EV and CC profiles of a host, after the verbs of `mrc_ctl.h` (`mrc-protocol.md §10`).

They have states::

    INIT -> OFFLINE -> ONLINE -> OFFLINE -> INIT

Any setting may change in INIT and OFFLINE; in ONLINE only those of `LIMITED`. QPs are created with ONLINE profiles, and
a profile that a QP uses cannot leave ONLINE.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mrc_host import ctl_requests, requests
from mrc_host.ctl_requests import EvOnPlane, ProfileDocument, ProfileKind, ProfileState, Settings
from mrc_host.node.config import build, build_cc
from mrc_host.node.own_evs import replaced
from mrc_host.node.stacks import Profiles, RefusedError
from mrc_host.proto.config import EvConfig, EvFormat, EvMode
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.context import EVERYBODY
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import EvState
from mrc_host.proto.limits import ConfigError
from mrc_host.proto.reliability.qp import QueuePair
from mrc_topo.base.rpc import Done, Verbs

DEFAULT: Final = requests.DEFAULT_PROFILE
MAX_EVS: Final = 4096  # of a profile
MAX_PROFILES: Final = 1024  # of a kind
MAX_WIDTH: Final = 128  # of a format's field

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


class ControlledQp(NamedTuple):
    """A queue pair as a controller sees it: its peer, and the names of its profiles."""

    peer: str
    qp: QueuePair
    ev: str
    cc: str


def event_states(settings: Settings) -> frozenset[EvState] | None:
    """Return the EV states that a profile reports; None: its settings do not say, and it reports all.

    Raises:
        ConfigError: it is not a list of states that can be reported.
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


class ControlledProfiles:
    """The profiles of one host, and the verbs that concern them alone.

    Args:
        endpoint: whose settings the defaults are.
        ports: how many it has.
        queue_pairs: yields every queue pair with its profiles.
        replace_ev: puts another EV in the place of one in a profile and in the queue pairs that use it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        ports: int,
        queue_pairs: Callable[[], Iterator[ControlledQp]],
        replace_ev: Callable[[ctl_requests.ReplaceEv, int], object],
    ) -> None:
        self.endpoint = endpoint
        self.ports = ports
        self.queue_pairs = queue_pairs
        self.replace_ev = replace_ev
        self.profiles: dict[tuple[ProfileKind, str], Profile] = {}
        config = endpoint.config
        defaults: dict[ProfileKind, EvConfig | CcConfig | EvFormat] = {
            ProfileKind.FORMAT: config.ev.fmt,
            ProfileKind.EV: config.ev,
            ProfileKind.CC: config.cc,
        }
        for kind, made in defaults.items():
            self.profiles[kind, DEFAULT] = Profile(kind, DEFAULT, {}, ProfileState.ONLINE, made)

    def add_verbs(self, verbs: Verbs) -> None:
        """Add the verbs that concern profiles."""
        add = verbs.add
        add(ctl_requests.CreateProfile, self.create)
        add(ctl_requests.ModifyProfile, self.modify)
        add(ctl_requests.SetProfileState, self.set_state)
        add(ctl_requests.DeleteProfile, self.delete)
        add(ctl_requests.ListProfiles, self.list_all)
        add(ctl_requests.GetProfile, self.details)
        add(ctl_requests.ReplaceEntry, self.replace_entry)

    # -- what is known of them ----------------------------------------------------------------------------

    def find(self, kind: ProfileKind, name: str) -> Profile:
        """Return a profile. Raises ValueError where there is none."""
        if (kind, name) not in self.profiles:
            known = ", ".join(sorted(f"{each[0]} {each[1]}" for each in self.profiles))
            raise ValueError(f"no {kind} profile '{name}'; known: {known}")
        return self.profiles[kind, name]

    def users(self, profile: Profile) -> int:
        """Return how many QPs use a profile; those of a format profile use it through their EV profile."""
        if profile.kind is ProfileKind.FORMAT:
            return sum(self.users(each) for each in self._ev_profiles_of(profile))
        if profile.kind is ProfileKind.EV:
            return sum(holder.ev == profile.name for holder in self.queue_pairs())
        return sum(holder.cc == profile.name for holder in self.queue_pairs())

    def _ev_profiles_of(self, profile: Profile) -> list[Profile]:
        """Return the EV profiles that name a format profile; none for other kinds."""
        if profile.kind is not ProfileKind.FORMAT:
            return []
        return [
            each
            for each in self.profiles.values()
            if each.kind is ProfileKind.EV and each.settings.get("format", DEFAULT) == profile.name
        ]

    def online(self, ev: str, cc: str) -> Profiles:
        """Return the configurations of ONLINE profiles, for new QPs.

        Raises:
            ValueError: no such profile, or it is not ONLINE.
        """
        ev_made, cc_made = self._online(ProfileKind.EV, ev), self._online(ProfileKind.CC, cc)
        assert isinstance(ev_made, EvConfig)
        assert isinstance(cc_made, CcConfig)
        # The host's own EV profile differs by destination; a profile of a controller is the same towards all,
        # unless it says nothing of values.
        own = ev == DEFAULT or not {"mode", "values", "format"} & set(self.find(ProfileKind.EV, ev).settings)
        return Profiles(ev_made, cc_made, per_peer=own)

    def _online(self, kind: ProfileKind, name: str) -> EvConfig | CcConfig | EvFormat:
        profile = self.find(kind, name)
        if profile.state is not ProfileState.ONLINE or profile.made is None:
            raise ValueError(f"{kind} profile '{name}' is {profile.state.value}; a queue pair needs it ONLINE")
        return profile.made

    def evs(self) -> int:
        """Return how many EVs the EV profiles may have in all."""
        return sum(each.made.count for each in self.profiles.values() if isinstance(each.made, EvConfig))

    # -- the configuration that settings describe ---------------------------------------------------------

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
            fmt = self.find(ProfileKind.FORMAT, chosen)
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

    # -- verbs --------------------------------------------------------------------------------------------

    def create(self, request: ctl_requests.CreateProfile, now: int) -> ProfileDocument:
        """Create a profile, in INIT."""
        if (request.kind, request.name) in self.profiles:
            raise ValueError(f"{request.kind} profile '{request.name}' exists")
        if sum(kind is request.kind for kind, _ in self.profiles) >= MAX_PROFILES:
            raise RefusedError(errno.ENOMEM, f"there are {MAX_PROFILES} {request.kind} profiles, which is the most")
        profile = Profile(request.kind, request.name, dict(request.settings))
        self._make(profile)
        self.profiles[request.kind, request.name] = profile
        return profile.document(0)

    def modify(self, request: ctl_requests.ModifyProfile, now: int) -> ProfileDocument:
        """Change settings; ONLINE profiles allow only a few."""
        kind, name, settings = request.kind, request.name, request.settings
        profile = self.find(kind, name)
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
        return profile.document(self.users(profile))

    def _refresh(self, profile: Profile, settings: Settings) -> None:
        """Hand changes of an ONLINE profile to the QPs that use it."""
        kept = {"fields", *OWN}  # queue pairs keep their EVs
        current = {name: value for name, value in settings.items() if name not in kept}
        for holder in self.queue_pairs():
            if holder.ev == profile.name:
                self.endpoint.modify_ev_profile(holder.qp, **current)

    def set_state(self, request: ctl_requests.SetProfileState, now: int) -> ProfileDocument:
        """Take one step of a profile's life."""
        kind, name, wanted = request.kind, request.name, request.state
        profile = self.find(kind, name)
        if (profile.state, wanted) not in TRANSITIONS:
            raise ValueError(f"{kind} profile '{name}' is {profile.state.value} and cannot go to {wanted.value}")
        users = self.users(profile)
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

    def delete(self, request: ctl_requests.DeleteProfile, now: int) -> Done:
        """Forget a profile in INIT."""
        profile = self.find(request.kind, request.name)
        if profile.state is not ProfileState.INIT:
            text = f"{request.kind} profile '{request.name}' is {profile.state.value}; bring it to INIT first"
            raise ValueError(text)
        del self.profiles[request.kind, request.name]
        return Done()

    def list_all(self, request: ctl_requests.ListProfiles, now: int) -> ctl_requests.ProfileList:
        """Return all profiles with the number of QPs that use each."""
        return ctl_requests.ProfileList([each.document(self.users(each)) for each in self.profiles.values()])

    def replace_entry(self, request: ctl_requests.ReplaceEntry, now: int) -> Done:
        """Put an EV into an EXPLICIT profile.

        Raises:
            RefusedError: ENOENT, the profile lacks the EV that is to be replaced, or has no place left.
        """
        profile = self.find(ProfileKind.EV, request.profile)
        entries, old, new = self._entries(profile), request.old, request.new
        if entries is None:
            raise ValueError(f"ev profile '{profile.name}' is not EXPLICIT, or has no entries")
        if profile.state is ProfileState.INIT:
            raise ValueError(f"ev profile '{profile.name}' is INIT; bring it OFFLINE first")
        if old not in entries:
            what = "has no place left" if old is None else f"has no EV {old.ev:08x} on port {old.plane}"
            raise RefusedError(errno.ENOENT, f"ev profile '{profile.name}' {what}")
        if any(each is not None and each.ev == new.ev for each in entries) and old != new:
            raise ValueError(f"ev profile '{profile.name}' has EV {new.ev:08x} already")
        place = entries.index(old)
        entries[place] = new
        changed = {**profile.settings, "entries": [None if each is None else list(each) for each in entries]}
        if profile.state is ProfileState.ONLINE:
            assert old is not None, "an ONLINE profile has no place without an EV"
            if old.plane != new.plane:
                raise ValueError(f"EV {old.ev:08x} is of port {old.plane}; in an ONLINE profile it keeps its port")
            if old.ev != new.ev:
                self.replace_ev(ctl_requests.ReplaceEv(old.ev, new.ev, profile=profile.name), now)
        else:
            self._make(Profile(profile.kind, profile.name, changed, profile.state))
        profile.settings = changed
        return Done()

    def replace_values(self, old: int, new: int, name: str | None) -> int:
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

    def details(self, request: ctl_requests.GetProfile, now: int) -> ctl_requests.ProfileDetails:
        """Return all of a profile."""
        profile = self.find(request.kind, request.name)
        document = profile.document(self.users(profile))
        made = profile.made if profile.made is not None else self._make(profile)
        if isinstance(made, EvFormat):
            return ctl_requests.ProfileDetails(document, fmt=made.name)
        if isinstance(made, CcConfig):
            return ctl_requests.ProfileDetails(document, congestion=in_force(made, self.endpoint.config.wire.mtu))
        states = self._states_of(profile.name)
        entries = self._entries(profile)
        evs: list[ctl_requests.ProfileEv | None]
        if entries is not None:
            evs = [
                None if each is None else ctl_requests.ProfileEv(*each, self._state(each, states)) for each in entries
            ]
        elif made.mode is EvMode.EXPLICIT:
            pairs = [EvOnPlane(ev, plane) for plane, values in enumerate(made.values) for ev in values]
            evs = [ctl_requests.ProfileEv(*each, self._state(each, states)) for each in pairs]
        else:
            evs = [ctl_requests.ProfileEv(*each, self._state(each, states)) for each in states]
        mode = EvMode.EXPLICIT if entries is not None else made.mode
        return ctl_requests.ProfileDetails(document, mode.name, made.fmt.name, made.count, made.ev_min_active, evs)

    def _states_of(self, name: str) -> dict[EvOnPlane, set[EvState]]:
        """Return the EVs of the queue pairs that use an EV profile, each with its states on them."""
        found: dict[EvOnPlane, set[EvState]] = {}
        for holder in self.queue_pairs():
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
