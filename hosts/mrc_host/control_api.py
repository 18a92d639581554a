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
from enum import Enum
from typing import Any, Final, NamedTuple, Self

from mrc_common.rpc import TIMEOUT_S, Client, RefusedError, UnreachableError
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


class ProfileState(Enum):
    """Where a profile is in its life: INIT, OFFLINE, ONLINE, and back."""

    INIT = "INIT"
    OFFLINE = "OFFLINE"
    ONLINE = "ONLINE"


class EvState(Enum):
    """States of an EV that a controller hears of."""

    GOOD = "GOOD"
    ASSUMED_BAD = "ASSUMED_BAD"
    DENIED = "DENIED"


@dataclass(frozen=True)
class DeviceAttributes:
    """What a host offers to controllers. `phy_port_mask`: bit n for port n, from 1. `modify_online`: by kind of
    profile, the settings that may change while it is ONLINE."""

    mrc_ctl_protocol_version: int
    ev_formats: list[str]
    ev_modes: list[str]
    ev_max_count_profile: int
    algorithms: list[str]
    phy_port_mask: int
    max_probes: int
    modify_online: Mapping[str, list[str]]


@dataclass(frozen=True)
class PortAttributes:
    """A port: what the administrator says of it, and whether it has a link."""

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

    def settings(self) -> dict[str, Any]:
        """By the names of the agent's configuration."""
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
    """The answer to a probe: the port it came on (from 1), round-trip time in ns; `adj_svc_time`: whether the time
    that the responder took is taken off (never: no public layout has a place for it)."""

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

    def request(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """A verb of the agent (`mrc_host.node.host`)."""
        try:
            answer: dict[str, Any] = self._client.call(verb, arguments)
        except RefusedError as error:
            raise VerbsError(error.number, str(error)) from None
        except UnreachableError as error:
            raise VerbsError(errno.ENODEV, f"{self.path}: the agent is gone ({error})") from None
        return answer

    def close(self) -> None:
        """Hangs up."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- device and ports ---------------------------------------------------------------------------------------

    def query_device(self) -> DeviceAttributes:
        """What the host offers."""
        answer = self.request("device")
        del answer["ports"]
        return DeviceAttributes(**answer)

    def query_port(self, port: int) -> PortAttributes:
        """A port, numbered from 1."""
        ports = self.request("device")["ports"]
        if not 1 <= port <= len(ports):
            raise VerbsError(errno.EINVAL, f"no port {port}; this host has 1 to {len(ports)}")
        return PortAttributes(**ports[port - 1])

    def modify_port(self, port: int, *, enabled: bool) -> None:
        """Enables or disables a port."""
        self.request("port", port=port - 1, up=enabled)

    # -- EVs ----------------------------------------------------------------------------------------------------

    def query_evs(self, peer: str | None = None) -> dict[int, list[EvEntry]]:
        """The EVs of all queue pairs (to a peer), by the number of the queue pair."""
        rows = self.request("ev_query", peer=peer)["qps"]
        return {
            row["qpn"]: [
                EvEntry(ev["ev"], ev["plane"] + 1, str(ev["state"]), ev["active"], ev["losses"]) for ev in row["evs"]
            ]
            for row in rows
        }

    def modify_ev_state(self, evs: Iterable[int], state: EvState, peer: str | None = None) -> int:
        """DENIED takes EVs out of use, GOOD gives them back; how many EVs of queue pairs that concerned."""
        return int(self.request("ev_set", evs=list(evs), state=state.value, peer=peer)["changed"])

    def replace_ev(self, old: int, new: int, peer: str | None = None, profile: str | None = None) -> int:
        """Put an EV in the place of another, also for later queue pairs; return for how many present queue pairs.

        It concerns the queue pairs to a peer, an EV profile (OFFLINE or ONLINE) with those that use it, or, without
        either, all copies of the EV.

        Raises:
            VerbsError: ENOENT, nothing has the EV.
        """
        return int(self.request("ev_replace", old=old, new=new, peer=peer, profile=profile)["changed"])

    def create_ev_event_queue(
        self,
        depth: int = 256,
        states: Iterable[EvState] = (EvState.ASSUMED_BAD, EvState.GOOD),
        profiles: Sequence[str] | None = None,
    ) -> EvEventQueue:
        """A queue of changes of EVs to some states, of some EV profiles (None: all). It never overruns: what finds no
        room is counted."""
        given = None if profiles is None else list(profiles)
        answer = self.request("ev_events_create", depth=depth, states=[each.value for each in states], profiles=given)
        return EvEventQueue(self, answer["queue"])

    # -- endpoint operations --------------------------------------------------------------------------------------

    def ep_batch_send_wait(
        self, requests: Sequence[EpRequest], *, dscp: int | None = None, timeout_ns: int = 1_000_000_000
    ) -> list[EpResponse]:
        """Sends EV probes, in the class of `dscp`, and waits for the answers, in the order in which they came.

        Raises:
            VerbsError: ETIMEDOUT when some have not come in time; its `args[2]` has those that came.
        """
        if len({each.req_id for each in requests}) != len(requests):
            raise VerbsError(errno.EINVAL, "request ids must differ")
        batches: dict[int, list[EpRequest]] = {}
        for address in dict.fromkeys(each.dgid for each in requests):
            mine = [each for each in requests if each.dgid == address]
            evs = [[each.ev, each.port - 1] for each in mine]
            answer = self.request("ev_probe", address=address, evs=evs, timeout_ns=timeout_ns, dscp=dscp)
            batches[answer["batch"]] = mine
        found: list[EpResponse] = []
        deadline = time.monotonic() + timeout_ns / 1e9 + TIMEOUT_S
        while batches:
            for number, mine in list(batches.items()):
                answer = self.request("ev_probe_result", batch=number)
                if not answer["waiting"]:
                    del batches[number]
                    found += [
                        EpResponse(mine[row["request"]].req_id, row["port"] + 1, row["rtt_ns"], False)
                        for row in answer["results"]
                        if row["rtt_ns"] is not None
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

    kind = ""

    def __init__(self, controller: Controller, name: str) -> None:
        self.controller = controller
        self.name = name

    def create(self, **settings: Any) -> Self:
        """A new profile, in INIT."""
        self.controller.request("profile_create", kind=self.kind, name=self.name, settings=settings)
        return self

    def modify(self, state: ProfileState | None = None, **settings: Any) -> None:
        """Changes settings, and then takes one step of its life."""
        if settings:
            self.controller.request("profile_modify", kind=self.kind, name=self.name, settings=settings)
        if state is not None:
            self.controller.request("profile_state", kind=self.kind, name=self.name, state=state.value)

    def online(self) -> Self:
        """INIT or OFFLINE to ONLINE."""
        if self.query()["state"] == ProfileState.INIT.value:
            self.modify(ProfileState.OFFLINE)
        self.modify(ProfileState.ONLINE)
        return self

    def query(self) -> dict[str, Any]:
        """State, settings, and the number of queue pairs that use it."""
        for row in self.controller.request("profile_list")["profiles"]:
            if (row["kind"], row["name"]) == (self.kind, self.name):
                return {"state": row["state"], "settings": row["settings"], "qps": row["qps"]}
        raise VerbsError(errno.EINVAL, f"no {self.kind} profile '{self.name}'")

    def destroy(self) -> None:
        """Forgets a profile in INIT."""
        self.controller.request("profile_delete", kind=self.kind, name=self.name)


class EvFormatProfile(_Profile):
    """How EVs travel; its setting is `fmt` (udp16, stev32, srv6_usid128, srv6_srh256)."""

    kind = "format"


class EvProfile(_Profile):
    """Which EVs there are: `mode`, `format` (the name of a format profile), `count`, `active`, `ev_min_active`,
    `values` by plane, `fields`, and the settings of probes."""

    kind = "ev"


class CcProfile(_Profile):
    """Congestion control: `algorithm` (nscc, fixed) and its settings."""

    kind = "cc"

    def create_nscc(self, config: NsccConfig) -> Self:
        """A new profile of NSCC, in INIT."""
        return self.create(algorithm="nscc", **config.settings())


@dataclass
class EvEventQueue:
    """See `Controller.create_ev_event_queue`."""

    controller: Controller
    number: int
    taken: int = field(default=0)

    def poll(self, limit: int = 64) -> list[EvEvent]:
        """The oldest events."""
        rows = self.controller.request("ev_events_poll", queue=self.number, limit=limit)["events"]
        self.taken += len(rows)
        return [
            EvEvent(row["profile"], row["ev"], row["port"] + 1, EvState(row["state"]), row["qpn"], row["drop_count"])
            for row in rows
        ]

    def destroy(self) -> None:
        """Forgets it."""
        self.controller.request("ev_events_destroy", queue=self.number)


def open_controller(name: str | None = None) -> Controller:
    """A host by its name (of the lab that the program runs in) or the path of its agent's control socket; without a
    name the host that the program runs in."""
    path = device_path(name)
    return Controller(path if name is not None and "/" in name else path.with_suffix(".sock"))
