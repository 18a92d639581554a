"""The history of a run: all that its hosts logged and all that was done to the lab, in the order of time.

Hosts log queue pairs by number and EVs by value. Here each event has the peer, and each EV the path that its packets
take. Times count from the start of the run.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import ValidationError

from mrc_host.answers import Event, EvEvent, FaultEvent, PortEvent, QpEvent
from mrc_host.proto.events import EvState
from mrc_topo import addressing
from mrc_topo.base.document import printable
from mrc_topo.base.plain import OMIT_NONE
from mrc_topo.graph_topology import build_topology
from mrc_topo.labfile import LabError, load_lab
from mrc_topo.paths import Paths
from mrc_topo.schema import Lab
from mrc_topo.topology import Path, PathError, Topology, TopologyError
from mrclab.lab.processes.process import Role, RoleKind
from mrclab.results.reading import FolderError
from mrclab.results.record import LabEvent, RunResult


@dataclass(frozen=True)
class EvChange:
    """An EV of a host's queue pair that changed its state: when (ms after the start), names of both states, and the
    host's reason.

    `peer` is empty where no record names it. `path` is None where switches choose, or where the peer is not known.
    """

    t_ms: float
    host: str
    peer: str
    plane: int
    ev: int
    path: Path | None
    old: str
    new: str
    cause: str


def ev_changes(result: RunResult, events: Mapping[str, Iterable[Event]], topology: Topology) -> Iterator[EvChange]:
    """Yield what happened to the EVs of all hosts, in the order of time.

    Args:
        events: what each host logged, by host.
    """
    names = _Names(result, topology)
    found = []
    for host in events:
        for event in events[host]:
            names.learn(host, event)
            if isinstance(event, EvEvent) and event.old != event.new:
                found.append(names.ev_change(host, event))
    yield from sorted(found, key=lambda each: (each.t_ms, each.host, each.ev))


class What(StrEnum):
    """The kind of an event in a history."""

    FAIL = "fail"
    RESTORE = "restore"
    DETECTED = "detected"
    EV = "ev"
    QP = "qp"
    PORT = "port"
    FAULT = "fault"
    DEATH = "death"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Route:
    """The path of an EV: switches in the order of travel, and in SRv6 modes the uSIDs that steer its packets (four
    hexadecimal digits each)."""

    switches: tuple[str, ...]
    usids: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class HistoryEvent:
    """An event of a run, `t_ms` after its start.

    `host` logged it; it is empty for what was done to the lab. `plane`: of an EV, or of the port. `text` says what
    happened, `cause` why, as far as the record has it. What was done to the lab is at the time of its beginning, so
    that it stands before its effects; `done_ms` is when all of it was done, if that was later.
    """

    t_ms: float
    what: What
    text: str
    host: str = ""
    peer: str = ""
    plane: int | None = None
    ev: str | None = field(default=None, metadata=OMIT_NONE)
    path: Route | None = field(default=None, metadata=OMIT_NONE)
    cause: str = ""
    done_ms: float | None = field(default=None, metadata=OMIT_NONE)


def history(result: RunResult, topology: Topology) -> list[HistoryEvent]:
    """Return all events of a run with samples and events, in the order of time."""
    names = _Names(result, topology)
    found: list[HistoryEvent] = []
    for number, happening in enumerate(result.happenings):
        following = result.happenings[number + 1 :]
        until_ns = following[0].at_ns if following else max(result.finished_ns, happening.done_ns)
        found += _done(result, happening, until_ns)
    found += [names.row(host, event) for host in result.events for event in result.events[host]]
    for death in result.deaths:
        role = Role.parse(death.role)
        host = role.name if role.kind in (RoleKind.NODE, RoleKind.SHELL) else ""
        t_ms = 1000 * result.since_start(death.at_ns)
        found.append(HistoryEvent(t_ms, What.DEATH, f"{role.sentence()} {death.how}", host))
    # Their time is not recorded.
    found += [HistoryEvent(1000 * result.seconds, What.PROBLEM, each) for each in result.failures]
    # What a host noticed stands behind the event by which it did.
    return sorted(found, key=lambda each: (each.t_ms, each.what is What.DETECTED))


def first_notice(result: RunResult, happening: LabEvent, until_ns: int) -> tuple[int, str] | None:
    """Return when a host first noticed a failure, ns of the session's clock, and its name: an EV that it took for bad,
    or a port of its own that went down, before the next action; None if none did."""
    noticed = (
        (event.t_ns, host)
        for host, events in result.events.items()
        for event in events
        if happening.at_ns <= event.t_ns < until_ns and _is_notice(event)
    )
    return min(noticed, default=None) if happening.fails and not happening.error else None


def _is_notice(event: Event) -> bool:
    if isinstance(event, EvEvent):
        return event.new == EvState.ASSUMED_BAD.name != event.old
    return isinstance(event, PortEvent) and not event.up and not event.peer


def _done(result: RunResult, happening: LabEvent, until_ns: int) -> Iterator[HistoryEvent]:
    """Yield what was done to the lab, when a host first noticed it, and what the hosts' probes made of it until the
    next action. What only probes say has the time until which they said it."""
    t_ms, done_ms = (1000 * result.since_start(at) for at in (happening.at_ns, happening.done_ns))
    cause = happening.error or ("a user, in the live view or by a command" if happening.clicked else "the schedule")
    what = What.FAIL if happening.fails else What.RESTORE
    later = done_ms if happening.done_ns > happening.at_ns else None
    yield HistoryEvent(t_ms, what, happening.action.describe(), cause=cause, done_ms=later)
    past = result.past_findings(happening)
    notice = first_notice(result, happening, until_ns)
    parts = []
    if notice is not None:
        parts.append(f"{notice[1]} notices it first, {(notice[0] - happening.at_ns) / 1e6:.1f} ms after its injection")
    if named := [each for each in happening.localised if each not in past]:
        parts.append(f"probes of the hosts name {', '.join(named)} before the next action")
    until_ms = 1000 * result.since_start(until_ns)
    if parts:
        noticed_ms = until_ms if notice is None else 1000 * result.since_start(notice[0])
        yield HistoryEvent(noticed_ms, What.DETECTED, "; ".join(parts), "" if notice is None else notice[1])
    if past:
        text = f"{', '.join(past)}: healthy again; the hosts' latest probes were still of before"
        yield HistoryEvent(until_ms, What.DETECTED, text)


def peers_of(result: RunResult, topology: Topology) -> dict[tuple[str, int], str]:
    """Return the peer of each queue pair of MRC that was there at the end, by host and number."""
    names = {addressing.text(host.address): host.name for host in topology.hosts}
    return {key: names[qp.peer] for key, qp in result.queue_pairs().items() if qp.peer in names}


class _Names:
    """The peers of queue pairs and the paths of EVs.

    Of queue pairs that ended before the run did, the log of a job's queue pairs names the peer.
    """

    def __init__(self, result: RunResult, topology: Topology) -> None:
        self._result, self._paths = result, Paths(topology)
        self._steered = self._paths.mode.carriers > 0
        self._by_hex = {host.address.hex(): host.name for host in topology.hosts}
        self._hosts = {host.name: host.index for host in topology.hosts}
        self._peers = peers_of(result, topology)

    def learn(self, host: str, event: Event) -> None:
        """Keep the peer that an event of a queue pair names."""
        if isinstance(event, QpEvent) and event.peer in self._hosts:
            self._peers[host, event.qpn] = event.peer

    def ev_change(self, host: str, event: EvEvent) -> EvChange:
        """Return a change of an EV with its peer and path."""
        t_ms, peer = 1000 * self._result.since_start(event.t_ns), self._peers.get((host, event.qpn), "")
        path = self._path(host, peer, event)
        return EvChange(t_ms, host, peer, event.plane, event.ev, path, event.old, event.new, event.cause)

    def _path(self, host: str, peer: str, event: EvEvent) -> Path | None:
        if peer not in self._hosts or host not in self._hosts:
            return None
        try:
            return self._paths.path_of_ev(self._hosts[host], self._hosts[peer], event.ev, event.plane)
        except PathError:  # an EV of a program's own profile
            return None

    def row(self, host: str, event: Event) -> HistoryEvent:
        """Return an event that a host logged."""
        self.learn(host, event)
        t_ms = 1000 * self._result.since_start(event.t_ns)
        match event:
            case EvEvent():
                change = self.ev_change(host, event)
                text, cause = f"{event.old} -> {event.new}", event.cause
                route = None if change.path is None else self._route(change.path)
                return HistoryEvent(
                    t_ms, What.EV, text, host, change.peer, event.plane, f"{event.ev:08x}", route, cause
                )
            case QpEvent():
                text = f"QP {event.qpn}: {event.old} -> {event.new}"
                peer = event.peer or self._peers.get((host, event.qpn), "")
                return HistoryEvent(t_ms, What.QP, text, host, peer, cause=event.reason or "")
            case PortEvent():
                owner = self._by_hex.get(event.peer, event.peer) if event.peer else host
                text = f"{owner}:{event.port} is {'up' if event.up else 'down'}"
                if owner == host:
                    return HistoryEvent(t_ms, What.PORT, text, host, plane=event.port)
                return HistoryEvent(t_ms, What.PORT, text, host, owner, event.port, cause="announced by the peer")
            case FaultEvent():
                peer = self._by_hex.get(event.peer, event.peer) if event.peer else ""
                return HistoryEvent(t_ms, What.FAULT, f"internal fault in {event.where}", host, peer, cause=event.error)

    def _route(self, path: Path) -> Route:
        usids = tuple(f"{each:04x}" for each in path.usids) if self._steered else None
        return Route(path.switches, usids)


def topology_of(result: RunResult, folder: pathlib.Path) -> Topology:
    """Return the lab of a run: the one recorded with it, or else the lab of that name that comes with mrclab.

    Raises:
        FolderError: neither exists.
    """
    try:
        given = result.topology
        topology = load_lab(result.lab) if given is None else build_topology(Lab.model_validate(given))
    except (LabError, ValidationError, TopologyError) as error:
        lab = printable(str(result.lab))
        raise FolderError(f"{folder}: its lab '{lab}' is not known here: {printable(str(error))}") from error
    known = {host.name for host in topology.hosts}
    if not set(result.ranks) <= known:
        lab = printable(str(result.lab))
        raise FolderError(f"{folder}: the lab '{lab}' has other hosts now than the run had")
    return topology
