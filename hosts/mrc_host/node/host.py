"""One host: a protocol endpoint, the workloads on it, and the JSON verbs by which a controller commands both.

A node is sans-IO like the endpoint: drivers hand in packets and time. `command` is the same on both clocks; the real
one reaches it over the agent's unix socket, the virtual one by a call.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import itertools
import random
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mrc_host import requests
from mrc_host.answers import Event as LogEvent
from mrc_host.answers import (
    EvEvent,
    FaultEvent,
    HostFidelity,
    HostStatistics,
    JobProgress,
    JobWaiting,
    LinkStatistics,
    MrcHostStatistics,
    PortEvent,
    QpEvent,
    RoceHostStatistics,
)  # fmt: skip
from mrc_host.node import stacks
from mrc_host.node.both import BothTransports
from mrc_host.node.config import NodeConfig
from mrc_host.node.controller import NodeController
from mrc_host.node.datapath import Datapath, TimedCalls
from mrc_host.node.jobs import Job
from mrc_host.node.mapper import Mapper
from mrc_host.node.own_evs import HostEvs
from mrc_host.node.programs.pairs import MrcPairs, Pairs, RocePairs
from mrc_host.node.programs.program import Answer, Program
from mrc_host.node.programs.programs import Programs
from mrc_host.node.programs.shared import Resources, Wires
from mrc_host.node.samples import Sampler, condense
from mrc_host.node.stacks import RefusedError as RefusedRequestError
from mrc_host.proto.common import CommonEndpoint
from mrc_host.proto.completion import Completion, CompletionKind, CompletionStatus
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import (
    CompletionsReady,
    EvChanged,
    Event,
    Fault,
    LastReceiveTaken,
    PortChanged,
    ProbeResult,
    QpError,
    QpStateChanged,
    SrqLimitReached,
)
from mrc_host.proto.roce.endpoint import RoceEndpoint
from mrc_host.proto.statistics import PortStatistics, RoceStatistics
from mrc_host.proto.transport import Pair, TransportEndpoint
from mrc_host.requests import DEFAULT_PROFILE, Provided
from mrc_host.workloads import WorkloadError
from mrc_topo.base.plain import encode
from mrc_topo.base.rpc import Done, RefusedError, Verbs

MAX_LOG = 10_000
MAX_FAULTS = 64
POLL_BATCH = 64
CQ_DEPTH = 1 << 20


class CommandError(RefusedError):
    """A command that cannot be carried out; the text says why and what would."""


def _ignore_mac_control(port: int, frame: bytes, now: int) -> None:
    """Ignore pauses: MRC's class is lossy."""


class HostNode:
    """A host on any clock; see the module's docstring. Drivers drive its `datapath`.

    Args:
        config: addresses, ports, transport, endpoint settings.
        rng: the only source of randomness.
    """

    def __init__(self, config: NodeConfig, rng: random.Random) -> None:
        self.config = config
        self.name = config.name
        self.ports = config.ports
        self.packet_bytes = config.packet_bytes
        self.jobs: dict[str, Job[Pair]] = {}
        self.by_qpn: dict[int, tuple[Job[Pair], int]] = {}
        self.events: deque[LogEvent] = deque(maxlen=MAX_LOG)  # the newest
        self.events_logged = 0
        self.faults = 0
        self._known_faults: set[tuple[str, str, int]] = set()
        self.endpoint: TransportEndpoint
        self.controller: NodeController | None = None
        self._new_job: Callable[..., Job[Pair]]
        alarms = TimedCalls()
        pairs: Pairs[Any]
        mac_control: Callable[[int, bytes, int], None] = _ignore_mac_control
        self._rng = rng
        self._own_evs = own_evs = HostEvs(config.profiles)
        own: CommonEndpoint
        if config.transport == "roce":
            roce = RoceEndpoint(config.roce(), rng)
            self.endpoint, self.cq, own = roce, roce.create_cq(CQ_DEPTH), roce
            self._new_job = partial(Job, stacks.roce(roce, self.cq), alarms)
            mac_control = roce.mac_control
            pairs = RocePairs(roce, own_evs, config.endpoint().ev)
        else:
            mrc = Endpoint(config.endpoint(), rng)
            self.endpoint, self.cq, own = mrc, mrc.create_cq(CQ_DEPTH), mrc
            self._new_job = partial(Job, stacks.mrc(mrc, self.cq, own_evs), alarms)
            self.controller = NodeController(mrc, config.ports, own_evs, self.jobs, self.await_probe)
            pairs = MrcPairs(mrc, own_evs, self.controller.profiles)
        self.programs: Programs[Any] = Programs(
            Wires(pairs, self._other_transport, lambda: self.endpoint),
            config.programs(),
            ports=self.endpoint.ports_up,
            address=config.address,
            mtu=config.path_mtu,
            fault=self._fault,
        )
        if self.controller is not None:
            self.controller.holders.append(self.programs.holders)
            self.controller.events.watchers.append(self.programs.ev_changed)
        self.sampler = Sampler(self.endpoint, config.sample_ns)
        self.mapper = Mapper(config.address, config.probes, config.probe_interval_ns, config.probe_timeout_ns)
        self.datapath = Datapath(
            self.endpoint, own.shared()[0], ipaddress.IPv6Address(config.address).packed, self.mapper, self.sampler,
            alarms, self._fault, self._take, mac_control,
        )  # fmt: skip
        self.providers: dict[Provided, Callable[[], HostFidelity | Done]] = {}
        self._probe_waiters: dict[int, Callable[[int | None, int | None, int], None]] = {}
        self.verbs = Verbs()
        self._add_verbs()
        if self.controller is not None:
            self.controller.add_verbs(self.verbs)

    def _other_transport(self) -> Pairs[Any]:
        """Make the endpoint of the transport that is not the host's own, and drive both from now on."""
        config, own = self.config, self.endpoint
        rng = random.Random(self._rng.getrandbits(64))
        pairs: Pairs[Any]
        if isinstance(own, Endpoint):
            mrc, roce = own, RoceEndpoint(config.roce(), rng, beside=own)
            self.datapath.mac_control = roce.mac_control
            pairs = RocePairs(roce, self._own_evs, config.endpoint().ev)
        else:
            assert isinstance(own, RoceEndpoint)
            roce, mrc = own, Endpoint(config.endpoint(), rng, beside=own)
            pairs = MrcPairs(
                mrc,
                self._own_evs,
                NodeController(mrc, config.ports, self._own_evs, self.jobs, self.await_probe).profiles,
            )
        self.endpoint = self.datapath.endpoint = self.sampler.source = BothTransports(mrc, roce, own)
        return pairs

    def _add_verbs(self) -> None:
        add = self.verbs.add
        add(requests.Hello, self._hello)
        add(requests.PrepareJob, self._prepare)
        add(requests.ConnectJob, self._connect)
        add(requests.StartJob, self._start)
        add(requests.WindDownJob, self._wind_down)
        add(requests.StopJobAfter, self._stop_after)
        add(requests.GetProgress, self._progress)
        add(requests.GetWaiting, self._waiting)
        add(requests.FinishJob, self._finish)
        add(requests.GetStatistics, self._statistics)
        add(requests.GetSummary, self._summary)
        add(requests.HoldProbes, self._hold_probes)
        add(requests.GetSamples, self._samples)
        add(requests.GetEvents, self._events)
        add(requests.GetView, self._view)
        add(requests.SetPort, self._port)
        add(requests.Provide, self._provide)
        add(requests.GetMap, self._map)
        add(requests.GetPrograms, self._programs)

    # -- events of the datapath -----------------------------------------------------------------------------

    def _take(self, event: Event, now: int) -> None:
        """Handle an event of the endpoint: completions go to the workloads, the rest to its waiter or into the log."""
        if isinstance(event, CompletionsReady):
            if event.cq != self.cq.number:
                self.programs.completions(event.cq, now)
                return
            while completions := self.endpoint.poll(self.cq, POLL_BATCH):
                for completion in completions:
                    try:
                        self._completed(completion, now)
                    except Exception as error:  # noqa: BLE001 - a workload's fault is its own
                        self._fault("a completion", error, now, self.by_qpn.get(completion.qpn))
            return
        try:
            if isinstance(event, ProbeResult):
                waiter = self._probe_waiters.pop(event.token, None)
                if waiter is not None:
                    waiter(event.rtt_ns, event.port, now)
            else:
                if not isinstance(event, SrqLimitReached | LastReceiveTaken):
                    self._log(event, now)
                self.programs.event(event, now)
                if self.controller is not None and isinstance(event, EvChanged):
                    self.controller.events.take(event)
        except Exception as error:  # noqa: BLE001
            self._fault("an event", error, now)

    # -- programs -------------------------------------------------------------------------------------------

    def connect_program(self, resources: Resources, hang_up: Callable[[str, int], None]) -> Program[Any]:
        """Add a program that has connected. Raises RefusedRequestError."""
        program = self.programs.connect(resources, hang_up)
        self.datapath.applications = self.programs
        return program

    def disconnect_program(self, program: Program[Any], now: int) -> None:
        """Release everything that a program that has ended held."""
        self.datapath.handle_timer(now)
        self.programs.disconnect(program, now)
        self.datapath.settle(now)
        if not self.programs.connected:
            self.datapath.applications = None

    def program_request(self, program: Program[Any], op: object, arguments: Mapping[str, object], now: int) -> Answer:
        """Handle a request of a program. Raises RefusedRequestError."""
        self.datapath.handle_timer(now)
        try:
            return self.programs.request(program, op, arguments, now)
        except RefusedError:
            raise
        except Exception as error:
            self._fault(f"a program's request '{op}'", error, now)
            raise RefusedRequestError(errno.EIO, f"internal fault: {type(error).__name__}: {error}") from error
        finally:
            self.datapath.settle(now)

    def _fault(self, where: str, error: Exception, now: int, place: tuple[Job[Pair], int] | None = None) -> None:
        """Handle an exception of this program: count it, report it once per place in the code, fail the workload
        concerned.
        """
        self.faults += 1
        text = f"{type(error).__name__}: {error}"
        frame = traceback.extract_tb(error.__traceback__)[-1]
        kind = (type(error).__name__, frame.filename, frame.lineno or 0)
        if kind not in self._known_faults and len(self._known_faults) < MAX_FAULTS:
            self._known_faults.add(kind)
            self._log(Fault(where, None, text, "".join(traceback.format_exception(error))), now)
        if place is not None:
            with contextlib.suppress(Exception):
                place[0].failed(place[1], f"internal fault: {text}", now)

    # -- workloads ------------------------------------------------------------------------------------------

    def _completed(self, completion: Completion, now: int) -> None:
        place = self.by_qpn.get(completion.qpn)
        if place is None:
            return
        job, peer = place
        if completion.kind is not CompletionKind.RECV_IMM:
            job.requests_ended += 1
        if completion.status is not CompletionStatus.SUCCESS:
            job.failed(peer, completion.status.value, now)
        elif completion.kind is CompletionKind.RECV_IMM:
            job.arrived(peer, completion.qpn, completion.immediate or 0, now)
        else:
            job.put_done(peer, completion.wr_id, now)

    def _log(self, event: QpStateChanged | EvChanged | PortChanged | Fault, now: int) -> None:
        self.events.append(self._row(event, now))
        self.events_logged += 1

    def _row(self, event: QpStateChanged | EvChanged | PortChanged | Fault, now: int) -> LogEvent:
        if isinstance(event, QpStateChanged):
            place = self.by_qpn.get(event.qpn)
            peer = place[0].names[place[1]] if place else None
            reason = event.reason.value if event.reason else None
            if place and reason:
                place[0].failed(place[1], reason, now)
            return QpEvent(now, "qp", event.qpn, peer, event.old.value, event.new.value, reason)
        if isinstance(event, EvChanged):
            old, new = event.old.name, event.new.name
            return EvEvent(now, "ev", event.qpn, event.ev, event.plane, old, new, event.cause, event.losses)
        address = event.peer.hex() if event.peer else None
        if isinstance(event, Fault):
            print(f"host {self.name}: internal fault in {event.where}\n{event.detail}", file=sys.stderr, flush=True)
            return FaultEvent(now, "fault", event.where, event.error, event.detail, address)
        return PortEvent(now, "port", event.port, event.up, address)

    # -- commands -------------------------------------------------------------------------------------------

    def command(self, verb: str, arguments: Mapping[str, object], now: int) -> Any:
        """Carry out a verb and return its answer as plain JSON values.

        Raises:
            CommandError: unknown verb, wrong arguments, or a state that does not allow it.
        """
        try:
            request, handler = self.verbs.parse(verb, arguments)
        except RefusedError as error:
            raise CommandError(f"host {self.name}: {error}", error.number) from error
        # Verbs of the endpoint take the time of the last call into it; this is one, and harmless.
        self.datapath.handle_timer(now)
        try:
            answer = encode(handler(request, now))
        except RefusedError as error:
            raise CommandError(f"host {self.name}: {verb}: {error}", error.number) from error
        except (TypeError, ValueError, KeyError, WorkloadError, QpError) as error:
            raise CommandError(f"host {self.name}: {verb}: {error}") from error
        except MemoryError as error:
            remedy = "use fewer hosts or smaller messages, or raise `ulimit -v`"
            raise CommandError(f"host {self.name}: {verb}: no memory is left; {remedy}", errno.ENOMEM) from error
        except Exception as error:
            self._fault(f"verb {verb}", error, now)
            text = f"{type(error).__name__}: {error}"
            raise CommandError(
                f"host {self.name}: {verb}: internal fault, see the event log: {text}", errno.EIO
            ) from error
        self.datapath.settle(now)
        return answer

    def await_probe(self, token: int, answer: Callable[[int | None, int | None, int], None]) -> None:
        """Call `answer(rtt_ns, port, now)` when the EV probe of a token has ended."""
        self._probe_waiters[token] = answer

    def _hello(self, request: requests.Hello, now: int) -> requests.HostIdentity:
        return requests.HostIdentity(self.name, self.config.transport, now, self.ports)

    def _prepare(self, request: requests.PrepareJob, now: int) -> requests.RankAttributes:
        chosen = (request.ev_profile, request.cc_profile)
        if request.job in self.jobs:
            raise ValueError(f"job '{request.job}' exists; finish it first")
        if self.controller is not None:
            profiles = self.controller.profiles.online(*chosen)
        elif chosen == (DEFAULT_PROFILE, DEFAULT_PROFILE):
            profiles = stacks.Profiles()
        else:
            raise ValueError(f"profiles are of MRC; this host's transport is {self.config.transport}")
        made = self._new_job(
            request.workload, request.params, request.rank, request.names, request.addresses, request.qps_per_peer,
            profiles,
        )  # fmt: skip
        made.ev_profile, made.cc_profile = chosen
        self.jobs[request.job] = made
        for peer, qps in made.qps.items():
            for qp in qps:
                self.by_qpn[qp.number] = (made, peer)
        return made.attributes()

    def _job(self, job: str) -> Job[Pair]:
        if job not in self.jobs:
            raise ValueError(f"no job '{job}'; known: {', '.join(self.jobs) or 'none'}")
        return self.jobs[job]

    def _connect(self, request: requests.ConnectJob, now: int) -> Done:
        self._job(request.job).connect(request.peers, now)
        return Done()

    def _start(self, request: requests.StartJob, now: int) -> Done:
        self.sampler.start(now)
        self._job(request.job).workload.start(now)
        return Done()

    def _wind_down(self, request: requests.WindDownJob, now: int) -> requests.Begun:
        return requests.Begun(self._job(request.job).workload.wind_down(now))

    def _stop_after(self, request: requests.StopJobAfter, now: int) -> Done:
        self._job(request.job).workload.stop_after(request.iterations, now)
        return Done()

    def _progress(self, request: requests.GetProgress, now: int) -> JobProgress:
        return self._job(request.job).progress()

    def _waiting(self, request: requests.GetWaiting, now: int) -> JobWaiting:
        return self._job(request.job).waiting(now)

    def _finish(self, request: requests.FinishJob, now: int) -> requests.FinishedJob:
        made = self._job(request.job)
        progress = made.progress()
        for qps in made.qps.values():
            for qp in qps:
                self.by_qpn.pop(qp.number, None)
        made.close(now)
        del self.jobs[request.job]
        if not self.jobs:
            self.sampler.stop()
        return requests.FinishedJob(progress, made.workload.measured())

    def _statistics(self, request: requests.GetStatistics, now: int) -> HostStatistics:
        found = self.endpoint.statistics()
        if looped := self.datapath.loopback.packets.total():
            found = replace(found, endpoint={**found.endpoint, "looped_packets": looped})
        links = self._links(found.ports)
        if isinstance(found, RoceStatistics):
            return RoceHostStatistics(**vars(found), faults=self.faults, links=links)
        late = self.endpoint.reordering()
        return MrcHostStatistics(**vars(found), faults=self.faults, links=links, reordering=late)

    def _links(self, ports: Sequence[PortStatistics]) -> list[LinkStatistics]:
        loopback, mapper, kernel_sent = self.datapath.loopback, self.mapper, self.datapath.kernel_sent
        return [
            LinkStatistics(
                port.sent_packets + mapper.sent[port.port] + kernel_sent(port.port) - loopback.packets[port.port],
                port.received_packets + mapper.received[port.port] - loopback.arrived[port.port],
            )
            for port in ports
        ]

    def _hold_probes(self, request: requests.HoldProbes, now: int) -> Done:
        self.mapper.hold(now + request.for_ns)
        return Done()

    def _summary(self, request: requests.GetSummary, now: int) -> requests.HostSummary:
        statistics = self.endpoint.statistics()
        sample = condense(statistics, now)
        return requests.HostSummary(
            ports_up=sample.ports_up,
            sent=sample.packets,
            received=sum(port.received_packets for port in statistics.ports),
            retransmitted=sample.retransmissions,
            jobs=sorted(self.jobs),
            queue_pairs=len(statistics.qps),
            programs=len(self.programs.connected),
            faults=self.faults,
            denied=self._denied(),
        )

    def _denied(self) -> int:
        """Return how many EVs the host keeps denied; RoCE has none."""
        return 0 if self.controller is None else self.controller.denied()

    def _samples(self, request: requests.GetSamples, now: int) -> requests.Samples:
        return requests.Samples(self.sampler.since(request.since))

    def _events_since(self, number: int) -> list[LogEvent]:
        # Read from the end: a client that polls many times a second needs the last few of thousands.
        return list(itertools.islice(reversed(self.events), max(self.events_logged - number, 0)))[::-1]

    def _events(self, request: requests.GetEvents, now: int) -> requests.Events:
        dropped = self.events_logged - len(self.events)
        return requests.Events(self._events_since(request.since), self.events_logged, dropped)

    def _view(self, request: requests.GetView, now: int) -> requests.View:
        recent = self.sampler.newest(now) if request.recent else None
        return requests.View(
            events=self._events_since(request.since),
            next=self.events_logged,
            dropped=self.events_logged - len(self.events),
            sample=recent or condense(self.endpoint.statistics(), now),
            jobs={name: job.progress() for name, job in self.jobs.items()},
            denied=self._denied(),
            probes=self.mapper.view() if request.probes else None,
        )

    def _port(self, request: requests.SetPort, now: int) -> Done:
        if not 0 <= request.port < self.ports:
            raise ValueError(f"no port {request.port}; this host has {self.ports}, numbered from 0")
        self.endpoint.set_port_enabled(request.port, request.up, now)
        return Done()

    def _programs(self, request: requests.GetPrograms, now: int) -> requests.ProgramList:
        return self.programs.document()

    def _map(self, request: requests.GetMap, now: int) -> requests.Probes:
        return requests.Probes(self.mapper.view())

    def _provide(self, request: requests.Provide, now: int) -> HostFidelity | Done:
        provider = self.providers.get(request.what)
        if provider is None:
            known = ", ".join(self.providers) or "none"
            raise ValueError(f"nothing called '{request.what}' here; known: {known}")
        return provider()
