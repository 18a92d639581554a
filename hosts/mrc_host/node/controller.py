"""The node controller of a host, after the verbs of `mrc_ctl.h` (`mrc-protocol.md §10`): EVs of queue pairs and the
device here, profiles, probes and changes of EVs in parts of their own.

The verbs are reached over the agent's unix socket (mode 0600).
"""

from __future__ import annotations

import errno
import ipaddress
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mrc_host import ctl_requests
from mrc_host.ctl_requests import ProbedEv, ProfileKind, QueuedEvent
from mrc_host.node.jobs import Job
from mrc_host.node.own_evs import HostEvs
from mrc_host.node.profiles import (
    DEFAULT,
    LIMITED,
    MAX_EVS,
    MAX_PROFILES,
    REPORTED,
    ControlledProfiles,
    ControlledQp,
    event_states,
)
from mrc_host.node.stacks import RefusedError
from mrc_host.proto.config import EvFormat, EvMode
from mrc_host.proto.congestion.base import algorithms
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import EvChanged, EvState
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.statistics import CcStatistics, NsccStatistics
from mrc_host.proto.transport import Pair
from mrc_topo.base.rpc import Done, Verbs

MAX_EVENTS: Final = 1 << 16
MAX_EVENT_QUEUES: Final = 64
EVENT_STATES: Final = frozenset({EvState.GOOD, EvState.ASSUMED_BAD, EvState.DENIED})


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


class EvEvents:
    """See the module's docstring. `profiles`: which of them tell of what."""

    def __init__(self, profiles: ControlledProfiles) -> None:
        self.profiles = profiles
        #: Are called with EV profile, event and state of each change that the profile tells of.
        self.watchers: list[Callable[[str, EvChanged, EvState], None]] = []
        self._queues: dict[int, _EventQueue] = {}

    def add_verbs(self, verbs: Verbs) -> None:
        """Add the verbs that concern queues of changes."""
        verbs.add(ctl_requests.CreateEventQueue, self.create)
        verbs.add(ctl_requests.PollEventQueue, self.poll)
        verbs.add(ctl_requests.DestroyEventQueue, self.destroy)

    def create(self, request: ctl_requests.CreateEventQueue, now: int) -> ctl_requests.EventQueue:
        """Create a queue of changes of EVs to these states, of queue pairs with these EV profiles (None: all)."""
        wanted = frozenset(request.states)
        if not wanted or wanted - EVENT_STATES:
            raise ValueError(f"states are some of {', '.join(sorted(each.name for each in EVENT_STATES))}")
        if not 1 <= request.depth <= MAX_EVENTS or len(self._queues) >= MAX_EVENT_QUEUES:
            raise ValueError(f"a queue has 1 to {MAX_EVENTS} entries, and there are at most {MAX_EVENT_QUEUES} queues")
        number = max(self._queues, default=0) + 1
        profiles = None if request.profiles is None else frozenset(request.profiles)
        self._queues[number] = _EventQueue(request.depth, wanted, profiles)
        return ctl_requests.EventQueue(number)

    def take(self, event: EvChanged) -> None:
        """Take an event of the endpoint."""
        state = EvState.GOOD if event.new is EvState.SKIP else event.new
        wanted = any(state in queue.states for queue in self._queues.values())
        if not wanted and not (self.watchers and state in REPORTED):
            return
        profile = next((each.ev for each in self.profiles.queue_pairs() if each.qp.number == event.qpn), DEFAULT)
        reported = event_states(self.profiles.find(ProfileKind.EV, profile).settings)
        if reported is not None and state not in reported:
            return
        if state in REPORTED:
            for watcher in self.watchers:
                watcher(profile, event, state)
        for queue in self._queues.values():
            if state not in queue.states or (queue.profiles is not None and profile not in queue.profiles):
                continue
            if len(queue.events) >= queue.depth:
                queue.lost += 1
                continue
            queue.events.append(QueuedEvent(profile, event.ev, event.plane, state, event.qpn, queue.lost))
            queue.lost = 0

    def _queue(self, number: int) -> _EventQueue:
        if number not in self._queues:
            raise ValueError(f"no queue {number} of EV events")
        return self._queues[number]

    def poll(self, request: ctl_requests.PollEventQueue, now: int) -> ctl_requests.QueuedEvents:
        """Take the oldest events of a queue, each with the number of those that were dropped before it."""
        events = self._queue(request.queue).events
        return ctl_requests.QueuedEvents([events.popleft() for _ in range(min(request.limit, len(events)))])

    def destroy(self, request: ctl_requests.DestroyEventQueue, now: int) -> Done:
        """Forget a queue."""
        self._queue(request.queue)
        del self._queues[request.queue]
        return Done()


MAX_PROBES: Final = 4096


@dataclass
class _Batch:
    """EV probes under way."""

    results: list[ProbedEv] = field(default_factory=list)
    waiting: int = 0


class EvProbes:
    """See the module's docstring.

    Args:
        endpoint: sends them.
        ports: how many it has.
        await_probe: calls the second argument with (RTT in ns or None, port of the
            answer, time) when the EV probe of a token has ended.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        ports: int,
        await_probe: Callable[[int, Callable[[int | None, int | None, int], None]], None],
    ) -> None:
        self.endpoint = endpoint
        self.ports = ports
        self.await_probe = await_probe
        self._batches: dict[int, _Batch] = {}
        self._next_batch = 1

    def add_verbs(self, verbs: Verbs) -> None:
        """Add the verbs that concern probes."""
        verbs.add(ctl_requests.ProbeEvs, self.probe)
        verbs.add(ctl_requests.GetProbedEvs, self.results)

    def probe(self, request: ctl_requests.ProbeEvs, now: int) -> ctl_requests.ProbeBatch:
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
        return ctl_requests.ProbeBatch(number)

    def _check_probe(self, probe: ctl_requests.EvOnPlane, destination: bytes) -> None:
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
                raise ValueError(f"EV {ev:08x} has no path to {where}") from None

    @staticmethod
    def _answer(batch: _Batch, ev: int, plane: int, request: int) -> Callable[[int | None, int | None, int], None]:
        def take(rtt_ns: int | None, port: int | None, now: int) -> None:
            batch.waiting -= 1
            batch.results.append(ProbedEv(ev, plane, rtt_ns, port, request))

        return take

    def results(self, request: ctl_requests.GetProbedEvs, now: int) -> ctl_requests.ProbedEvs:
        """Return the answers so far; `rtt_ns` null: none in time. A complete batch is forgotten when asked for."""
        if request.batch not in self._batches:
            raise ValueError(f"no batch {request.batch}")
        found = self._batches[request.batch]
        if not found.waiting:
            del self._batches[request.batch]
        return ctl_requests.ProbedEvs(found.waiting, found.results)


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
        #: Queue pairs that are not of jobs.
        self.holders: list[Callable[[], Iterable[ControlledQp]]] = []
        self.profiles = ControlledProfiles(endpoint, ports, self._all, self.ev_replace)
        self.probes = EvProbes(endpoint, ports, await_probe)
        self.events = EvEvents(self.profiles)

    def add_verbs(self, verbs: Verbs) -> None:
        """Add the verbs of this part of a host."""
        for part in (self.profiles, self.probes, self.events):
            part.add_verbs(verbs)
        verbs.add(ctl_requests.QueryEvs, self.ev_query)
        verbs.add(ctl_requests.GetPair, self.pair)
        verbs.add(ctl_requests.SetEvs, self.ev_set)
        verbs.add(ctl_requests.SetDenials, self.ev_denials)
        verbs.add(ctl_requests.ReplaceEv, self.ev_replace)
        verbs.add(ctl_requests.GetDevice, self.device)

    def _all(self) -> Iterator[ControlledQp]:
        """Yield every queue pair, of jobs and of others."""
        for job in self.jobs.values():
            for rank, qps in job.qps.items():
                for qp in qps:
                    if isinstance(qp, QueuePair):
                        yield ControlledQp(job.names[rank], qp, job.ev_profile, job.cc_profile)
        for others in self.holders:
            yield from others()

    # -- EVs ----------------------------------------------------------------------------------------------

    def _qps(self, peer: str | None) -> list[tuple[str, QueuePair]]:
        found = [(each.peer, each.qp) for each in self._all() if peer in (None, each.peer)]
        if peer is not None and not found:
            raise ValueError(f"no queue pair to '{peer}'")
        return found

    def ev_query(self, request: ctl_requests.QueryEvs, now: int) -> ctl_requests.EvList:
        """Return the EVs of every QP (to a peer), each with plane, state, whether it is active, and its losses."""
        return ctl_requests.EvList(
            [ctl_requests.QpEvs(name, qp.number, self.endpoint.query_evs(qp)) for name, qp in self._qps(request.peer)],
            {
                str(ipaddress.IPv6Address(address)) if address else "": sorted(values)
                for address, values in self.endpoint.context.denied.items()
            },
        )

    def denied(self) -> int:
        """Return how many EVs the host keeps denied, over all peers."""
        return sum(len(values) for values in self.endpoint.context.denied.values())

    def pair(self, request: ctl_requests.GetPair, now: int) -> ctl_requests.PairDocument:
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
                ctl_requests.PairRow(
                    qpn=qp.number,
                    state=found.state,
                    packets=sender["packets_sent"],
                    retransmissions=sender["retransmissions"],
                    losses=sum(sender[key] for key in sender if key.startswith("lost_")),
                    srtt_ns=found.srtt_ns,
                    evs=[
                        ctl_requests.PairEvRow(
                            **vars(row), sent_ns=-1 if (last := flying[ev]) is None else last.sent_ns
                        )
                        for ev, row in enumerate(self.endpoint.query_evs(qp))
                    ],
                )
            )
            if qp.connected and isinstance(congestion, Done):
                congestion = qp.peer.snapshots()[0].cc
        return ctl_requests.PairDocument(rows, congestion)

    def ev_set(self, request: ctl_requests.SetEvs, now: int) -> ctl_requests.Changed:
        """Set EVs to DENIED (out of use) or to GOOD (in use again) on every QP that has them, or only on those to a
        peer.

        Without a peer this also holds for later QPs.
        """
        evs, state, peer = request.evs, request.state, request.peer
        if state not in (EvState.DENIED, EvState.GOOD):
            raise ValueError(f"state is DENIED or GOOD, not '{state.name}'; the others are the endpoint's own")
        if peer is None:
            return ctl_requests.Changed(self.endpoint.deny_evs(evs, state is EvState.DENIED, now))
        changed = 0
        qps = [(qp, {each.ev for each in self.endpoint.query_evs(qp)}) for _, qp in self._qps(peer)]
        for ev in evs:
            holders = [qp for qp, known in qps if ev in known]
            if not holders:
                raise RefusedError(errno.ENOENT, f"no queue pair to '{peer}' has EV {ev:08x}")
            for qp in holders:
                self.endpoint.set_ev_state(qp, ev, state, now)
            changed += len(holders)
        return ctl_requests.Changed(changed)

    def ev_denials(self, request: ctl_requests.SetDenials, now: int) -> ctl_requests.Changed:
        """Make the EVs that are denied towards each peer exactly these, whichever controller denied others before."""
        denied = {ipaddress.IPv6Address(peer).packed: evs for peer, evs in request.denied.items()}
        return ctl_requests.Changed(self.endpoint.set_denials(denied, now))

    def ev_replace(self, request: ctl_requests.ReplaceEv, now: int) -> ctl_requests.Replaced:
        """Put another EV of the same plane in the place of one, now and for later queue pairs.

        That is for the queue pairs to a peer, for an EV profile (EXPLICIT, OFFLINE or ONLINE) and those that use it, or
        for all copies of the EV. `changed` counts queue pairs, `profiles` the profiles and own EVs towards peers.

        Raises:
            RefusedError: ENOENT, nothing has the EV.
        """
        old, new, peer, profile = request.old, request.new, request.peer, request.profile
        if profile is not None:
            self.profiles.find(ProfileKind.EV, profile)
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
            kept += self.profiles.replace_values(old, new, profile)
        if profile in (None, DEFAULT):
            for address in [None] if peer is None else {peer, *addresses}:
                kept += self.own_evs.replace(old, new, address)
        if not changed and not kept:
            where = f"no queue pair to '{peer}'" if peer is not None else "no queue pair and no EV profile"
            if profile is not None:
                where = f"neither EV profile '{profile}' nor a queue pair that uses it"
            raise RefusedError(errno.ENOENT, f"{where} has EV {old:08x}")
        return ctl_requests.Replaced(changed, kept)

    # -- the device -----------------------------------------------------------------------------------------

    def device(self, request: ctl_requests.GetDevice, now: int) -> ctl_requests.DeviceDocument:
        """Return what a controller can expect (`mrc_ctl_device_attr`), and which ports are up."""
        ports = [ctl_requests.PortState(each.carrier, each.enabled, each.up) for each in self.endpoint.port_states()]
        return ctl_requests.DeviceDocument(
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
            free_evs=MAX_PROFILES * MAX_EVS - self.profiles.evs(),
        )
