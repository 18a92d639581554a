"""Looks at a session, many times a second, and says what it saw as a `ViewState`.

Looking costs the lab something: its agents and its fabric answer. So each part has a budget: after a look that took
long, the next one waits, until all looks together take no more than `SHARE` of a core.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from mrc_host.answers import Event, JobProgress, Sample, Times
from mrc_host.requests import GetEvents, GetStatistics, GetView, View
from mrc_host.workloads import WORKLOADS
from mrc_host.workloads.streams import Streams
from mrc_topo.base.quantiles import nearest_rank, quantile
from mrc_topo.topology import Topology
from mrclab.lab.faults.follow import ChangeFollower
from mrclab.lab.hosts.hostclient import HostError, ask_all
from mrclab.lab.management import clustermapper
from mrclab.lab.management.clustermapper import Localiser, Probed
from mrclab.lab.processes.process import Role, RoleKind
from mrclab.lab.session.base import Session
from mrclab.results import steps
from mrclab.results.counted import achieved
from mrclab.results.record import RunResult
from mrclab.runs.endings import LOST
from mrclab.web.log import Log, LogLine, LogWriter, Peers
from mrclab.web.state import (
    FORMAT,
    ActiveFailure,
    Completions,
    Congestion,
    FidelityState,
    HostState,
    Job,
    Layout,
    LinkRow,
    PlaneState,
    SwitchState,
    ViewState,
)
from p4lite.switch.fabric.values import PortSample
from p4lite.switch.fabric.values import SwitchState as Running
from p4lite.switch.targetapi.values import DeviceSample

#: The time over which the duration of an iteration is averaged, ns.
STEP_NS: Final = 2_000_000_000


class ProgressWatch:
    """Makes a `Job` of the progress of ranks, sample after sample."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        #: The job, and how many iterations of its slowest rank had ended, at the last look.
        self._last: tuple[str, int] | None = None
        #: When these iterations were first seen to have ended, or the job to run; the present one began then or before.
        self._since_ns = 0
        #: When iterations had ended, and how many, over the latest `STEP_NS`.
        self._steps: list[tuple[int, int]] = []

    def look(self, jobs: Mapping[str, Mapping[str, JobProgress]], now_ns: int) -> Job | None:
        """Return the job in which most hosts take part, or None.

        Args:
            jobs: the progress of each rank by job and host.
            now_ns: when the hosts said so, by the session's clock.
        """
        steps = self._steps
        if not jobs:
            self._last = None
            return None
        name, ranks = max(jobs.items(), key=lambda each: len(each[1]))
        rows = ranks.values()
        done_so_far = achieved(rows)
        iterations = done_so_far.least_iterations
        before = self._last[1] if self._last is not None and self._last[0] == name else -1
        if before < 0 or iterations < before:
            # Of a job that is seen in the middle of a later iteration the beginning of that one is not known.
            steps.clear()
            self._since_ns = now_ns
        if not iterations:
            started_ns = max((row.started_ns for row in rows if row.takes_part), default=0)
            # A rank that has not started says 0, which on the clock of a simulation is a time.
            if started_ns or not self._began_ns:
                self._since_ns = min(started_ns, now_ns)
                steps[:] = [(self._since_ns, 0)]
        elif 0 <= before < iterations:
            self._since_ns = now_ns
            steps.append((now_ns, iterations))
        self._last = (name, iterations)
        while len(steps) > 2 and now_ns - steps[0][0] > STEP_NS:
            del steps[0]
        done = steps[-1][1] - steps[0][1] if steps else 0
        step_ns = (steps[-1][0] - steps[0][0]) // done if done else 0
        workload, running = next(iter(rows)).workload, not all(row.done for row in rows)
        took_ns, ended_ns = now_ns - self._since_ns, -1
        if not running:
            took_ns, ended_ns = 0, max(row.finished_ns for row in rows)
            if iterations and not step_ns:
                # No two samples saw iterations end: the job was shorter than the time between them.
                began_ns = max(row.started_ns for row in rows if row.takes_part)
                step_ns = max(ended_ns - began_ns, 0) // iterations
        failures = sorted({row.failure for row in rows if row.failure})
        mismatches = done_so_far.mismatches
        return {
            "name": name,
            "workload": workload,
            "params": {},
            "hosts": list(ranks),
            "running": running,
            "began_ns": max(min(row.started_ns for row in rows) - self._began_ns, 0),
            "iterations": iterations,
            "step_ns": step_ns,
            "ended_ns": max(ended_ns - self._began_ns, 0) if ended_ns >= 0 else -1,
            "completion_ns": 0 if overlap(workload) else max(step_ns, took_ns),
            "bytes_verified": done_so_far.bytes_verified,
            "mismatches": mismatches,
            "failures": failures,
            "verdict": "failed" if failures or mismatches else "good",
            "schedule": [],
        }


def overlap(workload: str) -> bool:
    """Return whether iterations of a workload begin before the last one has ended, as messages of a stream do: the time
    between two ends is then not the time that one takes."""
    kind = WORKLOADS.get(workload)
    return kind is not None and issubclass(kind, Streams)


@dataclass(frozen=True)
class SampleKind:
    """A kind of samples that a lab answers: its part of `SHARE`, and the CPU time that an answer costs the lab, as a
    multiple of the CPU time that its request costs here (`python -m benchmarks web`)."""

    part: float
    answers: float


#: The share of a core for all samples that a lab's agents and fabric answer.
SHARE: Final = 0.05
HOSTS, PORTS = SampleKind(0.4, 1.9), SampleKind(0.4, 2.2)
FIDELITY, PAIRS = SampleKind(0.1, 0.5), SampleKind(0.1, 4.5)
#: Of samples that send no request.
OWN: Final = SampleKind(1.0, 1.0)
SAMPLE_S: Final = 0.1
FOUND_S, FIDELITY_S, HARM_S = 0.5, 2.0, 1.0
#: A host that did not answer receives the next request after this time.
SILENT_S: Final = 3.0
#: The switches' counters are read for this time after the hosts saw trims or marks.
COUNT_S: Final = 5.0

RUNNING: Final = Running.RUNNING


class SampleBudget:
    """Decides when a sample is due: at least `least_s` after the last one, and not before its cost is paid for.

    The cost for the lab is taken as a multiple of the CPU time that the request took here. Wall time would be the wrong
    measure: on a busy machine a sample takes longer and costs no more.

    Args:
        share: the share of a core that samples of all kinds may take; 0: unlimited.
        clock, cpu: seconds of the wall's clock, and CPU time of this thread.
    """

    def __init__(
        self,
        least_s: float,
        share: float = SHARE,
        kind: SampleKind = OWN,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self.least_s = least_s
        self.share = share * kind.part
        self.answers = kind.answers
        self.clock = clock
        self.cpu = cpu
        #: The number of samples so far.
        self.taken = 0
        self._next = 0.0
        self._began = (0.0, 0.0)

    @property
    def due_s(self) -> float:
        """When the sample is due, by the wall's clock; 0: now."""
        return self._next

    def due(self) -> bool:
        """Return whether the sample is due."""
        return self.clock() >= self._next

    def begin(self) -> None:
        """Record the start of a sample."""
        self._began = (self.clock(), self.cpu())

    def spend(self) -> None:
        """Record the end of a sample."""
        self.taken += 1
        began, before = self._began
        cost = self.answers * (self.cpu() - before)
        self._next = began + max(self.least_s, cost / self.share if self.share else 0.0)

    def wait(self, seconds: float) -> None:
        """Delay the next sample by this time."""
        self._next = self.clock() + seconds

    def sample_now(self) -> None:
        """Make the next sample due now."""
        self._next = 0.0


class Rates:
    """Rates of counters between two samples; a counter that fell, because its owner restarted, has rate 0."""

    def __init__(self) -> None:
        self._before: Sequence[int] = ()
        self._rates: list[int] = []
        self._t_ns = -1

    def update(self, t_ns: int, totals: Sequence[int]) -> list[int]:
        """Return eight times the increase per second of each counter, 0 at first; without time passed, the previous
        rates."""
        span = t_ns - self._t_ns
        if self._t_ns < 0:
            self._rates = [0] * len(totals)
        elif span > 0:
            pairs = zip(totals, self._before, strict=True)
            self._rates = [round((now - before) * 8e9 / span) if now > before else 0 for now, before in pairs]
        if span > 0 or self._t_ns < 0:
            self._before, self._t_ns = totals, t_ns
        return self._rates


class Sampler:
    """Keeps the state of a session; `sample` updates it.

    Args:
        layout: the layout of the session's lab.
        log: receives the changes.
        localiser: finds broken elements from the hosts' probes; the built-in one if left out.
        share: the share of a core that samples may take of the lab; 0: unlimited.
        heard: called with each host's next events.
    """

    def __init__(
        self,
        session: Session,
        layout: Layout,
        log: Log,
        localiser: Localiser | None = None,
        share: float = SHARE,
        heard: Callable[[str, Sequence[Event]], object] = lambda host, events: None,
    ) -> None:
        self.session = session
        self.topology: Topology = session.topology
        self.layout = layout
        self.log = log
        self.localiser = localiser
        self.began_ns = layout["began_ns"]
        self._number = 0
        self._heard = heard
        self._peers = Peers(self.topology)
        self._teller = LogWriter(self.topology, log.append, self._peers)
        self._hosts: list[HostState] = [{} for _ in self.topology.hosts]
        self._cursors: dict[str, int] = {}
        self._silent: dict[str, float] = {}
        self._probes: dict[str, list[Probed]] = {}
        self._jobs: dict[str, dict[str, JobProgress]] = {}
        self._host_rates = [Rates() for _ in self.topology.hosts]
        self._port_rates = Rates()
        #: Bytes that each link carried upwards and downwards, in turn.
        self._carried = [0] * (2 * len(layout["links"]))
        self._links: list[LinkRow] = [{} for _ in layout["links"]]
        self._switches: list[SwitchState] = [{} for _ in layout["switches"]]
        # The log begins with the failures that are in force already.
        self._follower = ChangeFollower(session.failures, known=())
        #: When the ledger was last sampled; -1: not yet.
        self._ledger_ns = -1
        self._denied: set[str] = set(session.denied)
        self._found: dict[str, str] = {}
        self._fidelity: FidelityState = {}
        self._progress = ProgressWatch(self.began_ns)
        #: When the hosts last said how far their jobs are.
        self._jobs_ns = self.began_ns
        self._seen_trims = (-1, -1)
        self._count_until = 0.0
        self.problem = ""
        self._host_budget = SampleBudget(SAMPLE_S * 0.9, share, HOSTS)
        self._fabric_budget = SampleBudget(SAMPLE_S * 0.9, share, PORTS)
        self._fidelity_budget = SampleBudget(FIDELITY_S, share, FIDELITY)
        # These samples send no request to the lab.
        self._ledger_budget = SampleBudget(SAMPLE_S * 0.9, share)
        self._found_budget = SampleBudget(FOUND_S, share)
        self._harm_budget = SampleBudget(HARM_S, share)
        self._frozen: set[str] = set()
        self._harm: set[str] = set()

    # --- looking -----------------------------------------------------------------------------------------

    @property
    def taken(self) -> tuple[int, int]:
        """The numbers of samples of all hosts and of all ports so far."""
        return self._host_budget.taken, self._fabric_budget.taken

    def sample_now(self) -> None:
        """Make the samples that a command may change due now."""
        for budget in (self._ledger_budget, self._fabric_budget, self._host_budget):
            budget.sample_now()

    def forget_jobs(self) -> None:
        """Forget the jobs of the last sample, because they have ended."""
        self._jobs = {}

    def sample(self) -> ViewState:
        """Take the samples that are due, and return the state."""
        now_ns = self.session.now_ns()
        chosen = self._slow_due()
        if self._harm_budget in chosen:  # no host that does not answer is asked
            self._sample_if_due(self._harm_budget, self._sample_exits)
        self._sample_if_due(self._host_budget, self._sample_hosts)
        self._sample_if_due(self._ledger_budget, self._ledger)
        if self._fabric_budget in chosen:
            self._sample_if_due(self._fabric_budget, self._sample_ports)
        self._sample_if_due(self._found_budget, self._sample_findings)
        if self._fidelity_budget in chosen:
            self._sample_if_due(self._fidelity_budget, self._sample_fidelity)
        self._number += 1
        return {
            "format": FORMAT,
            "number": self._number,
            "layout": self.layout["number"],
            "t_ns": now_ns - self.began_ns,
            "phase": "lost" if self.problem else "running",
            "problem": self.problem,
            "speed": 1.0,
            "asked_speed": 1.0,
            "hosts": list(self._hosts),
            "switches": list(self._switches),
            "links": self._link_states(),
            "planes": self._planes(),
            "goodput_bps": sum(host.get("goodput_bps", 0) for host in self._hosts),
            "broken": self._broken(),
            "denied": sorted(self._denied),
            "found": self._found,
            "captures": [],
            "job": self._progress.look(self._jobs, self._jobs_ns),
            "fidelity": self._fidelity,
            "log_end": self.log.end,
            "commands": 0,
        }

    def _slow_due(self) -> list[SampleBudget]:
        """Return which of the slow samples to take now. On a busy machine each waits long for the lab, and the state of
        all else must not wait for all of them: on the real clock one at a time, as they came due."""
        slow = (self._harm_budget, self._fabric_budget, self._fidelity_budget)
        if self.session.clock != "real":
            return list(slow)
        return sorted((each for each in slow if each.due()), key=lambda each: each.due_s)[:1]

    def _sample_if_due(self, budget: SampleBudget, look: Callable[[], None]) -> None:
        """Take one part of a sample if it is due; report a fabric that does not answer in `problem`."""
        if not budget.due():
            return
        budget.begin()
        try:
            look()
        except LOST as error:
            if look == self._sample_ports:
                self.problem = self.problem or f"the fabric does not answer: {error}"
        finally:
            budget.spend()

    def _note(self, what: str, text: str, element: str = "") -> None:
        """Add a line to the log, at this time."""
        self.log.add(self.session.now_ns() - self.began_ns, what, text, element)

    # --- hosts ---------------------------------------------------------------------------------------------

    def _sample_hosts(self) -> None:
        wall = time.monotonic()
        jobs: dict[str, dict[str, JobProgress]] = {}
        answers = self._views(
            [each for each in self.session.hosts if each not in self._frozen and self._silent.get(each, 0.0) <= wall]
        )
        self._jobs_ns = self.session.now_ns()
        self._learn_peers(answers)
        for at, name in enumerate(self.session.hosts):
            seen = answers.get(name)
            if seen is None:
                continue
            if isinstance(seen, HostError):
                error = seen
                self._silent[name] = time.monotonic() + SILENT_S
                if self._hosts[at].get("alive", True):
                    self._note("death", str(error), name)
                self._hosts[at] = {"alive": False, "error": str(error)}
                self._probes.pop(name, None)
                continue
            self._cursors[name] = seen.next
            self._teller.tell(name, seen.events, self.began_ns)
            self._heard(name, seen.events)
            row = seen.sample
            for job, progress in seen.jobs.items():
                jobs.setdefault(job, {})[name] = progress
            if seen.probes is not None:
                self._probes[name] = [clustermapper.probed(each) for each in seen.probes]
            self._hosts[at] = host = _host(row, seen.denied)
            # By the host's own time: a recent sample of its series is up to a twentieth of a second old.
            rates = self._host_rates[at].update(row.t_ns, [row.delivered_bytes, *row.tx_bytes, *row.rx_bytes])
            planes = len(row.tx_bytes)
            host["goodput_bps"], host["tx_bps"], host["rx_bps"] = rates[0], rates[1 : 1 + planes], rates[1 + planes :]
        self._jobs = jobs

    def _views(self, names: list[str]) -> dict[str, View | HostError]:
        """Ask these hosts for all that is shown of them."""
        hosts = self.session.hosts
        found: dict[str, View | HostError] = {}
        fresh = [name for name in names if name not in self._cursors]
        for name, seen in ask_all(hosts, {name: GetEvents(since=1 << 62) for name in fresh}).items():
            if isinstance(seen, HostError):
                found[name] = seen
            else:
                self._cursors[name] = seen.next
        probes, recent = self._found_budget.due(), self.session.clock == "real"
        asked = {name: GetView(self._cursors[name], probes, recent) for name in names if name not in found}
        return found | ask_all(hosts, asked)

    def _learn_peers(self, answers: Mapping[str, View | HostError]) -> None:
        """Learn the peers of queue pairs from events, and from the statistics of hosts where no event named them: their
        workload began before this view."""
        events = {name: seen.events for name, seen in answers.items() if not isinstance(seen, HostError)}
        asked = {name: GetStatistics() for name, rows in events.items() if self._peers.learn(name, rows)}
        for name, found in ask_all(self.session.hosts, asked).items():
            if not isinstance(found, HostError):
                self._peers.know(name, found, events[name])

    # --- the fabric ----------------------------------------------------------------------------------------

    def _ledger(self) -> None:
        """Sample failures and denied elements, whichever program caused them.

        A change's line has the time when the change began, because hosts notice it before it is done.
        """
        before, self._ledger_ns = self._ledger_ns, self.session.now_ns()
        self.session.failures.reload()
        self._denied = set(self.session.denied_now())
        followed = self._follower.take()
        # With the times that records of runs have, and not of this sample, which comes later.
        for each in followed:
            change, fails = each.change, each.change.action.verb == "fail"
            text = f"{'' if fails else 'restored: '}{each.failure.describe()}"
            began_ns, done_ns = change.began_ns, change.done_ns - self.began_ns
            if not change.number and before >= 0:
                # It is under way, and the ledger does not have its beginning: that was after the sample before.
                began_ns = before
            what, target = "failure" if fails else "restore", change.action.target
            self.log.append(LogLine(began_ns - self.began_ns, what, text, target, done_ns))
        if followed:
            self._fabric_budget.sample_now()

    def _broken(self) -> list[ActiveFailure]:
        return [
            {
                "target": each.target,
                "kind": each.kind,
                "direction": each.direction,
                "settings": dict(each.settings),
                "text": each.describe(),
            }
            for each in self.session.failures.causes
        ]

    def _link_states(self) -> list[LinkRow]:
        """Return the state of links and switches as the fabric reports it, not as it was requested."""
        impaired = {name for name, _ in self.session.failures.effects().settings}
        for at, link in enumerate(self.topology.links.values()):
            row = self._links[at]
            row["impaired"] = link.name in impaired
            row["denied"] = link.name in self._denied
        return list(self._links)

    def _sample_ports(self) -> None:
        now_ns = self.session.now_ns()
        counters = self._counters()
        seen = self.session.samples(counters.values())
        by_name = {switch.name: seen.get(switch.device_id) for switch in self.topology.switches}
        carried = list(self._carried)
        seen_links = []
        for at, link in enumerate(self.topology.links.values()):
            row = self._links[at]
            high = _port(by_name.get(link.high.node), link.high.port)
            low = _port(by_name.get(link.low.node), link.low.port)
            if high is None:
                continue
            ends = [by_name[each.node] for each in (link.high, link.low) if each.node in by_name]
            row["state"] = _state(high.up, all(end is not None and end.state is RUNNING for end in ends))
            row["down_bytes"] = high.tx_bytes
            row["up_bytes"] = high.rx_bytes if low is None else low.tx_bytes
            row["down_queue_bytes"] = high.depth_bytes
            row["drops"], row["lost"] = high.drops, high.some_drops
            if low is not None:
                row["up_queue_bytes"] = low.depth_bytes
                row["drops"] += low.drops
                row["lost"] += low.some_drops
            carried[2 * at], carried[2 * at + 1] = row["up_bytes"], row["down_bytes"]
            seen_links.append(at)
        self._carried = carried
        rates = self._port_rates.update(now_ns, carried)
        for at in seen_links:
            self._links[at]["up_bps"], self._links[at]["down_bps"] = rates[2 * at], rates[2 * at + 1]
        for at, switch in enumerate(self.topology.switches):
            device = seen.get(switch.device_id)
            if device is None:
                continue
            mine, ports = self._switches[at], device.ports.values()
            if mine.get("state") != "dead":
                mine["state"] = device.state.value
            mine["queue_bytes"] = sum(port.depth_bytes for port in ports)
            mine["drops"] = sum(port.drops for port in ports)
            mine["lost"] = sum(port.some_drops for port in ports)
            for key, name in counters.items():
                if name in device.counters:
                    mine[key] = device.counters[name]  # type: ignore[literal-required]

    def _counters(self) -> dict[str, str]:
        """Return the program's names of the counters of trims and marks; empty while the hosts see no trims or
        marks."""
        seen = (self._sum("trims"), self._sum("marks"))
        now = time.monotonic()
        if seen != self._seen_trims:
            self._seen_trims = seen
            self._count_until = now + COUNT_S
        if now > self._count_until:
            return {}
        names = self.session.counter_names()
        return {key: names[key] for key in ("trimmed", "marked") if key in names}

    def _sum(self, key: str) -> int:
        return sum(int(host.get(key, 0)) for host in self._hosts)  # type: ignore[call-overload]

    # --- what is made of it --------------------------------------------------------------------------------

    def _sample_findings(self) -> None:
        localiser = self.localiser or clustermapper.Clustermapper()
        found = {each.element: each.state for each in localiser.locate(self.topology, self._probes)}
        truth = self.session.failures.broken
        for name, state in found.items():
            if self._found.get(name) != state:
                self._note("found", f"the hosts find {name} {state}; the truth: {truth.get(name, 'healthy')}", name)
        for name, state in self._found.items():
            if name not in found:
                now = truth.get(name, "healthy")
                self._note("found", f"the hosts no longer find {name} {state}; the truth: {now}", name)
        self._found = found

    def _sample_exits(self) -> None:
        """Sample which processes have died or are frozen; no request is sent to a process that does not answer."""
        frozen = {each.role: each.text() for each in self.session.frozen()}
        for role, text in frozen.items():
            if role not in self._frozen:
                self._note("death", text, role)
        for role in self._frozen - set(frozen):
            self._note("note", f"{role} goes on", role)
        self._frozen = set(frozen)
        for at, name in enumerate(self.session.hosts):
            if name in frozen:
                self._hosts[at] = {"alive": False, "error": frozen[name]}
                self._probes.pop(name, None)
        for death in self.session.deaths():
            if death.text() in self._harm:
                continue
            self._harm.add(death.text())
            self._note("death", death.text(), death.role)
            for at, switch in enumerate(self.topology.switches):
                if switch.name == death.role:
                    self._switches[at]["state"] = "dead"
            if death.role not in self.session.hosts and Role.parse(death.role).kind is not RoleKind.NODE:
                self.problem = self.problem or f"the lab is gone: {death.text()}"
        if frozen and not self.problem and set(frozen) - set(self.session.hosts):
            # A call to a frozen process blocks until it continues.
            self._fabric_budget.wait(2 * HARM_S)

    def _sample_fidelity(self) -> None:
        if self._frozen:
            return
        measured = self.session.fidelity()
        before = self._fidelity.get("valid", True)
        self._fidelity = {
            "valid": measured.valid,
            "reasons": list(measured.reasons),
            "simulated": measured.simulated,
        }
        if before and not self._fidelity["valid"]:
            self._note("note", f"the machine does not keep up: {self._fidelity['reasons'][0]}")

    def _planes(self) -> list[PlaneState]:
        made: list[PlaneState] = []
        states = {
            link["name"]: row.get("state", "up") for link, row in zip(self.layout["links"], self._links, strict=True)
        }
        for plane in range(self.topology.lab.planes):
            received = sum(host["rx_bps"][plane] for host in self._hosts if "rx_bps" in host)
            up = sum(states.get(host.ports[plane].name) == "up" for host in self.topology.hosts)
            made.append({"rx_bps": received, "ports_up": up})
        return made


def _host(row: Sample, denied_evs: int) -> HostState:
    """Return a host's row of the state from a sample of it, and how many EVs it keeps denied."""
    return {
        "alive": True,
        "goodput_bps": 0,
        "ports_up": row.ports_up,
        "delivered_bytes": row.delivered_bytes,
        "tx_bytes": list(row.tx_bytes),
        "rx_bytes": list(row.rx_bytes),
        "packets": row.packets,
        "retransmissions": row.retransmissions,
        "losses": row.losses,
        "trims": row.trims,
        "marks": row.marks,
        "timeouts": row.timeouts,
        "ev": dict(row.ev),
        "denied_evs": denied_evs,
        "cc": cast(Congestion, row.cc),
    }


def _port(device: DeviceSample | None, number: int) -> PortSample | None:
    return None if device is None else device.ports.get(number)


def _state(up: int, running: bool) -> str:
    """Return a link's state from `PortSample.up` of its high end's port, where incoming is the way up."""
    if not running:
        return "dark"
    return {0: "cut", 1: "cut_up", 2: "cut_down", 3: "up"}[up]


#: The least time over which median and P99 are taken, ns; and how many completions of median length it has.
WINDOW_NS: Final = 1_000_000_000
WINDOW_TIMES: Final = 5
#: The number of points of a curve, and the least interval between them, ns of the session's clock.
POINTS: Final = 1500
POINT_NS: Final = 100_000_000

PENDING: Final = "median and P99 follow at the end, if the workload times single steps or flows"
FEW: Final = "no window has the 100 completions of which there is a P99"
IDLE: Final = "no workload has run yet"
OTHERS: Final = "median and P99 are in the results of the command that runs this workload"


def without(why: str) -> Completions:
    """Return that there are no completion times, and why."""
    return {"what": "", "window_ns": WINDOW_NS, "rows": [], "why": why}


def edges_of(length_ns: int) -> list[int]:
    """Return the times at which curves of a run have points, and its beginning, in ns after that."""
    points = min(POINTS, max(length_ns // POINT_NS, 2))
    return [length_ns * number // points for number in range(points + 1)]


def completions_of(result: RunResult, began_ns: int) -> Completions:
    """Return the completion times of a run that has ended, at times in ns after `began_ns` of the session's clock."""
    ended = [(each.end_ns, each.end_ns - each.begin_ns) for each in steps.steps_of(result)]
    what: Literal["step", "flow"] = "step"
    if not ended:
        measured = [each.measured for each in result.progress.values() if each.measured is not None]
        flows = [flow for each in measured for flow in each.flows or ()]
        ended, what = [(flow.ended_ns, flow.ended_ns - flow.began_ns) for flow in flows], "flow"
    if not ended:
        return without(_lacking(result))
    ended.sort()
    window_ns = max(WINDOW_NS, WINDOW_TIMES * nearest_rank([took for _, took in ended], 0.5))
    first = result.started_ns - began_ns
    length_ns = max(result.finished_ns - result.started_ns, 1)
    ends = [end - began_ns for end, _ in ended]
    rows: list[list[int | None]] = []
    for edge in edges_of(length_ns)[1:]:
        now = first + edge
        took = [each for _, each in ended[bisect.bisect_right(ends, now - window_ns) : bisect.bisect_right(ends, now)]]
        rows.append([now, *(quantile(took, share) for share in (0.5, 0.99)), len(took)])
    why = "" if any(p99 is not None for _, _, p99, _ in rows) else FEW
    return {"what": what, "window_ns": window_ns, "rows": rows, "why": why}


def _lacking(result: RunResult) -> str:
    """Return why a run that has ended has no single completion times."""
    measured = [each.measured for each in result.progress.values() if each.measured is not None]
    if any(each.latency_ns for each in measured):
        return _whole("message", (each.latency_ns for each in measured))
    if any(each.iteration_ns for each in measured):
        return _whole("iteration", (each.iteration_ns for each in measured))
    return f"{result.workload or 'the workload'} times no single steps, flows or messages"


def _whole(what: str, times: Iterable[Times | None]) -> str:
    """Return the distribution over a whole run at the host where its P99 is highest, or the longest time."""
    known = [each for each in times if each is not None]
    worst = max(known, key=lambda each: each.max if each.p99 is None else each.p99)
    tail = f"longest {worst.max / 1e6:.3g} ms" if worst.p99 is None else f"P99 {worst.p99 / 1e6:.3g} ms"
    return f"{what}: of the whole run only, median {worst.typical / 1e6:.3g} ms, {tail}"
