"""The controller's side of a host, after `mrc_ctl.h`: profiles, EVs and their events, probes, ports.

It talks to an agent by its control socket (`HOST.sock`, mode 0600), as the lab's own controller does:

    with control_api.open_controller("h0") as host:
        host.modify_port(1, enabled=False)

Profiles have names here, not numbers; ports are numbered from 1, as in `ibv_query_port`. docs/verbs.md has the table.
"""

from __future__ import annotations

import errno
import pathlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

from mrc_common.plain import DecodeError
from mrc_common.rpc import TIMEOUT_S, Client, RefusedError, Request, UnreachableError
from mrc_host import ctl_requests, requests
from mrc_host.ctl_requests import EvOnPlane, GetProbedEvs, ProbeEvs, ProfileState
from mrc_host.proto.events import EvState
from mrc_host.verbs.connection import VerbsError, device_path
from mrc_host.verbs.device import Version, Versions, query_version

__all__ = [
    "CcProfile",
    "Controller",
    "DeviceAttributes",
    "EpRequest",
    "EpResponse",
    "EvEntry",
    "EvEvent",
    "EvEventQueue",
    "EvFormatProfile",
    "EvProfile",
    "EvState",
    "NsccConfig",
    "PortAttributes",
    "ProfileState",
    "VerbsError",
    "Version",
    "Versions",
    "open_controller",
    "query_version",
]

_ASK_S: Final = 0.002
A = TypeVar("A")


@dataclass(frozen=True)
class DeviceAttributes:
    """What a host offers to controllers. `phy_port_mask`: bit n for port n, from 1. `modify_online`: by kind of
    profile, the settings that may change while it is ONLINE. `max_profiles`: of each kind. `free_evs`: of the EVs that
    all EV profiles together may have."""

    mrc_ctl_protocol_version: int
    ev_formats: Sequence[str]
    ev_modes: Sequence[str]
    ev_max_count_profile: int
    algorithms: Sequence[str]
    phy_port_mask: int
    max_probes: int
    modify_online: Mapping[str, Sequence[str]]
    max_profiles: int
    free_evs: int


@dataclass(frozen=True)
class PortAttributes:
    """A port: whether the administrator enabled it, and whether it has a link."""

    enabled: bool
    carrier: bool
    up: bool


@dataclass(frozen=True)
class NsccConfig:
    """The settings of NSCC, by the names of `mrc_ctl_cc_nscc_cfg`; None: derived from the others. Bytes and ns."""

    disable_qa: bool | None = None
    adjust_bytes_threshold: int | None = None
    adjust_period_threshold: int | None = None
    base_rtt: int | None = None
    eta: float | None = None
    fi: float | None = None
    fi_scale: float | None = None
    gamma: float | None = None
    max_md_jump: float | None = None
    max_cwnd: int | None = None
    qa_gate: int | None = None
    qa_threshold: int | None = None
    target_delay: int | None = None

    def settings(self) -> ctl_requests.Settings:
        """Return the settings that are given, by the names of the agent's configuration."""
        given = {name: getattr(self, name) for name in NSCC_NAMES}
        return {NSCC_NAMES[name]: value for name, value in given.items() if value is not None}


#: Names in `mrc_ctl_cc_nscc_cfg`, and in a host's configuration (`cc`).
NSCC_NAMES: Final = {
    "disable_qa": "disable_qa",
    "adjust_bytes_threshold": "adjust_bytes_threshold",
    "adjust_period_threshold": "adjust_period_threshold_ns",
    "base_rtt": "base_rtt_ns",
    "eta": "eta",
    "fi": "fi",
    "fi_scale": "fi_scale",
    "gamma": "gamma",
    "max_md_jump": "max_md_jump",
    "max_cwnd": "max_wnd_bytes",
    "qa_gate": "qa_gate",
    "qa_threshold": "qa_threshold_ns",
    "target_delay": "target_qdelay_ns",
}


class EvEntry(NamedTuple):
    """An EV of a queue pair: its value, its port (from 1), state, whether it is active, losses inferred on it."""

    ev: int
    port: int
    state: str
    active: bool
    losses: int


class EvEvent(NamedTuple):
    """A change of an EV's state. `drop_count`: events that found no room in the queue just before this one."""

    profile: str
    ev: int
    port: int
    state: EvState
    qp_num: int
    drop_count: int


class EpRequest(NamedTuple):
    """An EV probe: to which host's address, on which EV, out of which port (from 1)."""

    req_id: int
    dgid: str
    ev: int
    port: int


class EpResponse(NamedTuple):
    """The answer to a probe: the port on which it arrived (from 1), and its round-trip time in ns.

    `adj_svc_time`: whether the responder's service time is subtracted (never: no public layout has a field for it).
    """

    req_id: int
    port: int
    rtt: int
    adj_svc_time: bool


class Controller:
    """A host, as a controller commands it. Use it as a context manager, or call `close`. Errors are VerbsError."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._client = Client(path)
        try:
            self._client.connect()
        except UnreachableError as error:
            raise VerbsError(error.number, f"{path}: no agent answers ({error})") from None

    def ask(self, request: Request[A]) -> A:
        """Carry out a request (`mrc_host.requests`) and return its answer."""
        try:
            return self._client.ask(request)
        except RefusedError as error:
            raise VerbsError(error.number, str(error)) from None
        except UnreachableError as error:
            raise VerbsError(errno.ENODEV, f"{self.path}: the agent is gone ({error})") from None
        except DecodeError as error:
            raise VerbsError(errno.EPROTO, f"{self.path}: {error}; the agent must be of the same mrclab") from None

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- device and ports ---------------------------------------------------------------------------------------

    def query_device(self) -> DeviceAttributes:
        """Return the attributes of the host."""
        found = dict(vars(self.ask(ctl_requests.GetDevice())))
        del found["ports"]
        return DeviceAttributes(**found)

    def query_port(self, port: int) -> PortAttributes:
        """Return a port, numbered from 1."""
        ports = self.ask(ctl_requests.GetDevice()).ports
        if not 1 <= port <= len(ports):
            raise VerbsError(errno.EINVAL, f"no port {port}; this host has 1 to {len(ports)}")
        found = ports[port - 1]
        return PortAttributes(found.enabled, found.carrier, found.up)

    def modify_port(self, port: int, *, enabled: bool) -> None:
        """Enable or disables a port."""
        self.ask(requests.SetPort(port - 1, enabled))

    # -- EVs ----------------------------------------------------------------------------------------------------

    def query_evs(self, peer: str | None = None) -> dict[int, list[EvEntry]]:
        """Return the EVs of all queue pairs (to a peer), by the number of the queue pair."""
        return {
            row.qpn: [EvEntry(ev.ev, ev.plane + 1, ev.state.name, ev.active, ev.losses) for ev in row.evs]
            for row in self.ask(ctl_requests.QueryEvs(peer)).qps
        }

    def modify_ev_state(self, evs: Iterable[int], state: EvState, peer: str | None = None) -> int:
        """Set EVs to DENIED (out of use) or to GOOD (in use again); return how many EVs of queue pairs this
        concerned.
        """
        return self.ask(ctl_requests.SetEvs(list(evs), state, peer)).changed

    def replace_ev(self, old: int, new: int, peer: str | None = None, profile: str | None = None) -> int:
        """Put an EV in the place of another, also for later queue pairs; return for how many present queue pairs.

        It concerns the queue pairs to a peer, an EV profile (OFFLINE or ONLINE) with those that use it, or, without
        either, all copies of the EV.

        Raises:
            VerbsError: ENOENT, nothing has the EV.
        """
        return self.ask(ctl_requests.ReplaceEv(old, new, peer, profile)).changed

    def create_ev_event_queue(
        self,
        depth: int = 256,
        states: Iterable[EvState] = (EvState.ASSUMED_BAD, EvState.GOOD),
        profiles: Sequence[str] | None = None,
    ) -> EvEventQueue:
        """Create a queue of changes of EVs to some states, of some EV profiles (None: all).

        It never overruns: events for which there is no room are counted.
        """
        return EvEventQueue(self, self.ask(ctl_requests.CreateEventQueue(depth, list(states), profiles)).queue)

    # -- endpoint operations --------------------------------------------------------------------------------------

    def ep_batch_send_wait(
        self, requests: Sequence[EpRequest], *, dscp: int | None = None, timeout_ns: int = 1_000_000_000
    ) -> list[EpResponse]:
        """Send EV probes, in the class of `dscp`, and wait for the answers, in the order in which they came.

        Raises:
            VerbsError: ETIMEDOUT when some have not come in time; its `args[2]` has those that came.
        """
        if len({each.req_id for each in requests}) != len(requests):
            raise VerbsError(errno.EINVAL, "request ids must differ")
        batches: dict[int, list[EpRequest]] = {}
        for address in dict.fromkeys(each.dgid for each in requests):
            mine = [each for each in requests if each.dgid == address]
            evs = [EvOnPlane(each.ev, each.port - 1) for each in mine]
            batches[self.ask(ProbeEvs(address, evs, timeout_ns, dscp)).batch] = mine
        found: list[EpResponse] = []
        deadline = time.monotonic() + timeout_ns / 1e9 + TIMEOUT_S
        while batches:
            for number, mine in list(batches.items()):
                answer = self.ask(GetProbedEvs(number))
                if not answer.waiting:
                    del batches[number]
                    found += [
                        EpResponse(mine[row.request].req_id, row.port + 1, row.rtt_ns, False)
                        for row in answer.results
                        if row.rtt_ns is not None and row.port is not None
                    ]
            if batches:
                if time.monotonic() > deadline:
                    raise VerbsError(errno.EIO, "the agent does not end its probes")
                time.sleep(_ASK_S)
        if len(found) < len(requests):
            error = VerbsError(errno.ETIMEDOUT, f"{len(requests) - len(found)} of {len(requests)} probes unanswered")
            error.args = (*error.args, found)
            raise error
        return found


class _Profile:
    """A named set of settings, and its life."""

    kind: ClassVar[ctl_requests.ProfileKind]

    def __init__(self, controller: Controller, name: str) -> None:
        self.controller = controller
        self.name = name

    def create(self, **settings: Any) -> Self:
        """Create a profile, in INIT."""
        self.controller.ask(ctl_requests.CreateProfile(self.kind, self.name, settings))
        return self

    def modify(self, state: ProfileState | None = None, **settings: Any) -> None:
        """Change settings, and then take one step of its life."""
        if settings:
            self.controller.ask(ctl_requests.ModifyProfile(self.kind, self.name, settings))
        if state is not None:
            self.controller.ask(ctl_requests.SetProfileState(self.kind, self.name, state))

    def online(self) -> Self:
        """Take the profile from INIT or OFFLINE to ONLINE."""
        if self._document().state is ProfileState.INIT:
            self.modify(ProfileState.OFFLINE)
        self.modify(ProfileState.ONLINE)
        return self

    def query(self) -> dict[str, Any]:
        """Return the state, the settings, and the number of queue pairs that use the profile."""
        found = self._document()
        return {"state": found.state.value, "settings": found.settings, "qps": found.qps}

    def _document(self) -> ctl_requests.ProfileDocument:
        for row in self.controller.ask(ctl_requests.ListProfiles()).profiles:
            if (row.kind, row.name) == (self.kind, self.name):
                return row
        raise VerbsError(errno.EINVAL, f"no {self.kind} profile '{self.name}'")

    def destroy(self) -> None:
        """Forget a profile in INIT."""
        self.controller.ask(ctl_requests.DeleteProfile(self.kind, self.name))


class EvFormatProfile(_Profile):
    """How EVs travel; its setting is `fmt` (udp16, stev32, srv6_usid128, srv6_srh256)."""

    kind = ctl_requests.ProfileKind.FORMAT


class EvProfile(_Profile):
    """The settings of an EV profile.

    These are `mode`, `format` (the name of a format profile), `count`, `active`, `ev_min_active`, `values` by plane,
    `fields`, and the settings of probes.
    """

    kind = ctl_requests.ProfileKind.EV


class CcProfile(_Profile):
    """Congestion control: `algorithm` (nscc, fixed) and its settings."""

    kind = ctl_requests.ProfileKind.CC

    def create_nscc(self, config: NsccConfig) -> Self:
        """Create a profile of NSCC, in INIT."""
        return self.create(algorithm="nscc", **config.settings())


@dataclass
class EvEventQueue:
    """See `Controller.create_ev_event_queue`."""

    controller: Controller
    number: int
    taken: int = field(default=0)

    def poll(self, limit: int = 64) -> list[EvEvent]:
        """Take the oldest events."""
        rows = self.controller.ask(ctl_requests.PollEventQueue(self.number, limit)).events
        self.taken += len(rows)
        return [EvEvent(row.profile, row.ev, row.port + 1, row.state, row.qpn, row.drop_count) for row in rows]

    def destroy(self) -> None:
        """Forget it."""
        self.controller.ask(ctl_requests.DestroyEventQueue(self.number))


def open_controller(name: str | None = None) -> Controller:
    """Return a host by its name (of the lab that the program runs in) or the path of its agent's control socket;
    without a name the host that the program runs in."""
    path = device_path(name)
    return Controller(path if name is not None and "/" in name else path.with_suffix(".sock"))
