"""Runs a workload on a lab, breaks and mends things at scripted times, and writes down what happened."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mrc_control.faults.action import Action
from mrc_control.lab.death import SHELL, Death
from mrc_control.lab.hostclient import HostError, HostGone
from mrc_control.lab.p4rt import P4RuntimeError
from mrc_control.lab.rundir import RunError
from mrc_control.paths import denylist
from mrc_control.results.recording import Events, Recording
from mrc_control.runs import stall
from mrc_control.runs.interruption import Interrupted
from mrc_control.session.base import Session
from mrc_topo import addressing
from mrc_topo.topology import Topology
from p4lite.switch.targetapi.client import TargetError

POLL_S = 0.1
GRACE_S = 30.0
#: Of `RunResult.document`. Format 1 held all samples and events itself (`resultdir.load` reads both).
FORMAT = 2
#: After a host is lost its peers' QPs must end in an error by themselves within this time.
LOSS_GRACE_S = 20.0
#: A death shows at once in what no longer answers; what died, and of what, is known a little later.
CAUSE_S = 5.0
#: What is raised when something of a lab does not answer any more.
LOST = (HostError, TargetError, P4RuntimeError, RunError, OSError)
SILENCE = ("UNAVAILABLE", "DEADLINE_EXCEEDED")


def is_silence(error: Exception) -> bool:
    """Whether an error says that nobody answers, and not that somebody refuses."""
    return isinstance(error, HostGone) or (isinstance(error, TargetError) and error.code in SILENCE)


@dataclass
class WorkloadSpec:
    """What runs: a workload's name and parameters, on all hosts or on those named, for some iterations or time.

    `ev_profile` and `cc_profile` name ONLINE profiles of the hosts' node controllers.
    """

    workload: str
    params: dict[str, Any] = field(default_factory=dict)
    hosts: list[str] | None = None
    duration_s: float | None = None
    limit_s: float = 120.0
    qps_per_peer: int = 1
    ev_profile: str = "default"
    cc_profile: str = "default"


@dataclass
class Happening:
    """Something that was done to the lab: when it was asked for and when it was done (ns of the session's clock)."""

    at_ns: int
    done_ns: int
    action: dict[str, Any]
    expected_loss: float
    error: str = ""
    broken: list[str] = field(default_factory=list)
    localised: list[str] = field(default_factory=list)


@dataclass
class RunResult:
    """Everything about a run: plain data, and the recording of what grows with its length."""

    lab: str
    clock: str
    seed: int
    workload: str
    params: dict[str, Any]
    ranks: list[str]
    started_ns: int = 0
    finished_ns: int = 0
    happenings: list[Happening] = field(default_factory=list)
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)
    fidelity: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    #: What of the lab died, and when (`lab.death.Death`).
    deaths: list[dict[str, Any]] = field(default_factory=list)
    #: Of a run without progress: what each rank waited for at the end (`mrc_host.node.jobs.Job.waiting`).
    waiting: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: The signal that ended the run before its time, if one did.
    interrupted: str = ""
    recording: Recording = field(default_factory=Recording, repr=False)

    @property
    def events(self) -> Events:
        """What the hosts logged."""
        return self.recording.events

    def document(self) -> dict[str, Any]:
        """Plain data, but `samples` (by host) and `fabric` are `Series`, and `events` are `recording.Events`."""
        document = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "recording"}
        document["happenings"] = [asdict(each) for each in self.happenings]
        record = self.recording
        return {
            "format": FORMAT,
            **document,
            "samples": record.samples,
            "fabric": record.fabric,
            "events": record.events,
        }

    @classmethod
    def stillborn(
        cls, topology: Topology, clock: str, spec: WorkloadSpec, failure: str, recording: Recording
    ) -> RunResult:
        """Of a run whose lab died before it could begin."""
        names = list(spec.hosts or (host.name for host in topology.hosts))
        lab = topology.lab
        made = cls(lab.name, clock, lab.seed, spec.workload, dict(spec.params), names, recording=recording)
        made.failures.append(failure)
        return made


class Over(Exception):
    """What the run cannot go on without has died."""


Observer = Callable[[RunResult], None]
_numbers = itertools.count(1)


class Run:
    """One workload on one session; `go` does it all.

    Args:
        session: the lab.
        spec: what runs.
        schedule: actions with their times in seconds after the start, in order.
        observe: called after every poll with the result so far (for a live view).
        recording: takes samples and events; one that leaves no files if left out.
        interrupted: asked after every poll; raises `Interrupted` when the run shall end.
    """

    def __init__(
        self,
        session: Session,
        spec: WorkloadSpec,
        schedule: Sequence[tuple[float, Action]] = (),
        observe: Observer | None = None,
        recording: Recording | None = None,
        interrupted: Callable[[], object] = bool,
    ) -> None:
        self.session = session
        self.spec = spec
        self.schedule = sorted(schedule, key=lambda each: each[0])
        self.observe = observe or (lambda result: None)
        self.interrupted = interrupted
        self.job = f"job{next(_numbers)}-{session.now_ns()}"
        names = list(spec.hosts or session.hosts)
        for name in names:
            if name not in session.hosts:
                raise HostError(f"no host '{name}' in this lab; it has: {', '.join(session.hosts)}")
        lab = session.topology.lab
        self.result = RunResult(lab.name, session.clock, lab.seed, spec.workload, dict(spec.params), names)
        if recording is not None:
            self.result.recording = recording
        self.gone: set[str] = set()
        self._over = self._begun = False
        self._mourned: set[tuple[str, str]] = set()
        self._moved: dict[str, int] = {}
        self._moved_ns = 0
        self._bound_s: float | None = None
        self._lost_ns = 0
        self._cursors: dict[str, int] = {}
        self._sample_ns: dict[str, int] = {}

    def go(self) -> RunResult:
        """Sets up, runs, collects; if something of the lab dies, or the run is interrupted, what was until then.

        Raises:
            HostError: the workload cannot be set up (a host refused its parameters, say).
        """
        try:
            self._begin()
            self._loop()
        except Over:
            pass
        except Interrupted as error:
            self._note_interruption(error)
        except LOST as error:
            return self.cut_short(error)
        try:
            return self._close()
        except Interrupted as error:  # by whoever has no patience for those that do not answer
            self._note_interruption(error)
            return self.result

    def _note_interruption(self, error: Interrupted) -> None:
        self._over = True
        result = self.result
        if not result.interrupted:
            result.interrupted = error.name
            result.failures.append(f"interrupted by {error.name}{self._when()}")

    def _when(self) -> str:
        seconds = (self.session.now_ns() - self.result.started_ns) / 1e9
        return f" {seconds:.2f} s after the start" if self._begun else " before the start"

    def cut_short(self, error: Exception) -> RunResult:
        """The result as far as it goes, when `error` came of a death, or of silence.

        Raises:
            Exception: `error` itself, when nothing has died and somebody has answered.
        """
        self._over = True
        frozen = self._frozen() if is_silence(error) else ""
        # A refusal is none of death's.
        self._mourn(0.0 if frozen or type(error) is HostError else CAUSE_S, everything=True)
        if not self.result.deaths and not is_silence(error):
            raise error
        if not self.result.failures:
            self.result.failures.append(f"{error}: {frozen}" if frozen else str(error))
        return self._close()

    def _begin(self) -> None:
        session, result = self.session, self.result
        params = dict(self.spec.params)
        if self.spec.duration_s is not None:
            params.setdefault("iterations", 1 << 30)
        self._set_up(params)
        if session.denied:
            denylist.apply(session, session.denied)
        session.reset_fidelity()
        result.started_ns = self._moved_ns = session.now_ns()
        self._begun = True
        self._cursors = {name: self._ask(name, "events").get("next", 0) for name in result.ranks}
        self._sample_ns = dict.fromkeys(result.ranks, result.started_ns)
        for name in result.ranks:
            self._ask(name, "start", job=self.job)

    def _close(self) -> RunResult:
        """Collects what can still be had."""
        session, result = self.session, self.result
        self._over = True
        result.finished_ns = session.now_ns()
        if not self._begun:  # a simulation begins at 0
            result.started_ns = result.finished_ns
        try:
            result.fidelity = session.fidelity()
        except LOST as error:
            result.fidelity = {"valid": False, "reasons": [f"fidelity could not be measured: {error}"]}
        for name in result.ranks:
            result.statistics[name] = self._ask(name, "statistics")
            measured = self._ask(name, "finish", job=self.job).get("measured", {})
            if name in result.progress:
                result.progress[name]["measured"] = measured
        return result

    def _ask(self, name: str, verb: str, **arguments: Any) -> dict[str, Any]:
        """A request to a host that may be gone; its loss is written down once."""
        if name in self.gone:
            return {}
        try:
            return self.session.hosts[name].request(verb, **arguments)
        except HostGone as error:
            self._lose(name)
            # A word of what it died of says more.
            frozen = self._frozen(name)
            if frozen or not self._mourn(CAUSE_S, role=name):
                self.result.failures.append(f"{error}: {frozen}" if frozen else str(error))
        except HostError as error:
            self._lose(name)
            self.result.failures.append(str(error))
        return {}

    def _frozen(self, role: str = "") -> str:
        """The processes of the lab that a signal has stopped (all of them, or one), in words."""
        return "; ".join(each.text() for each in self.session.frozen() if role in ("", each.role))

    def _lose(self, name: str) -> None:
        self.gone.add(name)
        self._lost_ns = self._lost_ns or self.session.now_ns()

    def _mourn(self, wait_s: float = 0.0, *, role: str = "", everything: bool = False) -> bool:
        """Writes down what has died; whether there was something new, or `role` is known to be dead.

        Args:
            wait_s: wait so long, at most, for such a death.
            everything: a death of anything is what is waited for.

        Raises:
            Over: what has died is more than a host, and the run is not at its end yet.
        """
        deadline = time.monotonic() + (wait_s if self.session.clock == "real" else 0.0)
        while True:
            fresh = [each for each in self.session.deaths() if (each.role, each.how) not in self._mourned]
            for death in fresh:
                self._write_down(death)
            known = bool(fresh) if everything or not role else role in {each for each, _ in self._mourned}
            if known or self._fatal() or time.monotonic() >= deadline:
                break
            time.sleep(0.05)
        if self._fatal() and not self._over:
            raise Over
        return known or self._fatal()

    def _fatal(self) -> bool:
        """Whether something has died that the run needs; of a shell only who wants into the host has need."""
        return any(role not in self.session.hosts and not role.endswith(SHELL) for role, _ in self._mourned)

    def _write_down(self, death: Death) -> None:
        self._mourned.add((death.role, death.how))
        result = self.result
        result.deaths.append(death.document())
        text = death.text(result.started_ns)
        if death.role not in self.session.hosts:
            result.failures.append(text)
        elif death.role in result.ranks:
            result.failures.append(f"host {death.role}: its agent is gone: {text}")
            self._lose(death.role)

    def _set_up(self, params: Mapping[str, Any]) -> None:
        ranks = self.result.ranks
        hosts = [self.session.hosts[name] for name in ranks]
        addresses = [addressing.text(self.session.topology.host(name).address) for name in ranks]
        try:
            attributes = [
                host.request(
                    "prepare",
                    job=self.job,
                    workload=self.spec.workload,
                    params=dict(params),
                    rank=rank,
                    names=ranks,
                    addresses=addresses,
                    qps_per_peer=self.spec.qps_per_peer,
                    ev_profile=self.spec.ev_profile,
                    cc_profile=self.spec.cc_profile,
                )
                for rank, host in enumerate(hosts)
            ]
        except HostError:
            for name in ranks:
                self._ask(name, "finish", job=self.job)
            raise
        for rank, host in enumerate(hosts):
            mine = {int(peer) for peer in attributes[rank]["qps"]}
            peers = {
                str(peer): {
                    "region": attributes[peer]["region"],
                    "qps": {str(rank): attributes[peer]["qps"][str(rank)]},
                }
                for peer in mine
            }
            host.request("connect", job=self.job, peers=peers)

    def _loop(self) -> None:
        session, result, spec = self.session, self.result, self.spec
        start = result.started_ns
        waiting = list(self.schedule)
        stopping = spec.duration_s is None
        while True:
            elapsed = (session.now_ns() - start) / 1e9
            while waiting and waiting[0][0] <= elapsed:
                self._act(waiting.pop(0)[1])
                self._moved_ns = session.now_ns()
            pause = POLL_S if not waiting else min(POLL_S, max(waiting[0][0] - elapsed, 0.0005))
            session.advance(pause)
            self._mourn()
            self._collect()
            self.observe(result)
            self.interrupted()
            elapsed = (session.now_ns() - start) / 1e9
            running = [name for name in result.ranks if not self._finished(name)]
            if not stopping and spec.duration_s is not None and elapsed >= spec.duration_s:
                stopping = True
                # The ranks go on while they are asked one after another: none may stop before all have answered.
                begun = [self._ask(name, "wind_down", job=self.job).get("begun", 0) for name in result.ranks]
                for name in result.ranks:
                    self._ask(name, "stop_after", job=self.job, iterations=max(begun))
            if not running:
                break
            if not waiting and self._still(running):
                break
            lost_s = (session.now_ns() - self._lost_ns) / 1e9 if self._lost_ns else 0.0
            if lost_s > LOSS_GRACE_S:
                names = ", ".join(running)
                result.failures.append(f"still waiting after {LOSS_GRACE_S:.0f} s: {names}; {self._culprits()}")
                break
            if elapsed > (spec.duration_s or 0.0) + (GRACE_S if spec.duration_s else spec.limit_s):
                names = ", ".join(running)
                result.failures.append(f"no end after {elapsed:.0f} s; not finished: {names}; {self._culprits()}")
                break
        for _, action in waiting:
            self._act(action)

    def _still(self, running: Sequence[str]) -> bool:
        """Whether nothing has moved for so long that nothing will; then the culprits are written down."""
        still_s = (self.session.now_ns() - self._moved_ns) / 1e9
        if still_s < stall.STILL_S:
            self._bound_s = None
            return False
        if self._bound_s is None:
            self._bound_s = stall.bound_s(self._waiting())
        if still_s < self._bound_s:
            return False
        culprits = self._culprits()
        if all(self.result.waiting.get(name, {}).get("done") for name in running):
            return False  # they have ended since they were asked for their progress
        names = ", ".join(running)
        self.result.failures.append(f"no progress for {still_s:.1f} s; not finished: {names}; {culprits}")
        return True

    def _waiting(self) -> dict[str, dict[str, Any]]:
        """What each rank waits for, where one can tell."""
        asked = {name: self._ask(name, "waiting", job=self.job) for name in self.result.ranks}
        self.result.waiting = {name: answer for name, answer in asked.items() if answer}
        return self.result.waiting

    def _culprits(self) -> str:
        return stall.text(self._waiting(), self.gone, self.session.failures.broken)

    def _finished(self, name: str) -> bool:
        return name in self.gone or bool(self.result.progress.get(name, {}).get("done"))

    def _act(self, action: Action) -> None:
        session = self.session
        asked = session.now_ns()
        try:
            action = session.failures.check(action)
            session.failures.perform(session, action)
            error = ""
        except Exception as problem:  # noqa: BLE001 - whatever it was belongs into the record of the run
            error = f"{action.describe()}: {problem}"
            self.result.failures.append(error)
        loss = session.failures.expected_loss() if action.loss is None else action.loss
        broken = sorted(session.failures.broken)
        self.result.happenings.append(Happening(asked, session.now_ns(), action.document(), loss, error, broken))

    def _collect(self) -> None:
        result, record = self.result, self.result.recording
        for name in result.ranks:
            progress = self._ask(name, "progress", job=self.job)
            if progress:
                moved = progress.pop("moved")
                if self._moved.get(name) != moved:
                    self._moved[name], self._moved_ns = moved, self.session.now_ns()
                result.progress[name] = progress
                if progress["failure"] and progress["failure"] not in result.failures:
                    result.failures.append(progress["failure"])
            fresh = self._ask(name, "samples", since=self._sample_ns[name] + 1).get("samples", [])
            if fresh:
                self._sample_ns[name] = fresh[-1]["t_ns"]
                for row in fresh:
                    record.sample(name, row)
            events = self._ask(name, "events", since=self._cursors[name])
            if events:
                self._cursors[name] = events["next"]
                record.events.extend(name, events["events"])
        try:
            record.fabric_sample({"t_ns": self.session.now_ns(), **self.session.fabric_sample()})
        except TargetError as error:
            # With the counters go the switches.
            frozen = self._frozen()
            if frozen or not self._mourn(CAUSE_S, everything=True):
                result.failures.append(f"the fabric does not answer: {frozen or error}")
                raise Over from error
