"""Does a schedule to a lab and checks after every step what must be true of it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from mrc_host.answers import JobProgress
from mrc_host.requests import FinishJob, GetProgress, StartJob
from mrc_topo.base import interruption
from mrc_topo.base.rpc import Request
from mrc_topo.labfile import load_lab
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology
from mrclab.lab import payloads
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.faults.ledger import UnsettledError
from mrclab.lab.hosts.hostclient import HostError
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import Session
from mrclab.lab.session.real import RealSession
from mrclab.lab.switches.names import P4RuntimeError
from mrclab.lab.switches.p4rt import Device
from mrclab.lab.switches.program import primary
from mrclab.runs import sessions
from mrclab.runs.experiment import Workload
from mrclab.runs.workload import set_up, stop_together
from mrclab.studies.chaos import invariants, truth
from mrclab.studies.chaos.invariants import Violation
from mrclab.studies.chaos.schedule import ENDS, ChaosStep, Schedule
from p4lite.switch.errors import TargetError

A = TypeVar("A")


class Work:
    """One workload. `excused`: pairs of hosts between which queue pairs may have died, by what was done to the lab;
    `gone`: hosts whose agent was killed since the start."""

    def __init__(self, session: Session, name: str, workload: Workload) -> None:
        self.session = session
        self.name = name
        self.workload = workload
        self.names = list(workload.hosts or session.hosts)
        self.excused: set[frozenset[str]] = set()
        self.gone: set[str] = set()
        self.failure = ""
        self.stop_wanted = False
        self.progress: dict[str, JobProgress] = {}

    def start(self) -> None:
        """Create the queue pairs, connect them, and start the workload. Raises HostError."""
        set_up(self.session, self.name, self.workload.spec(), self.names)
        for name in self.names:
            self._ask(name, StartJob(self.name))

    def _ask(self, name: str, request: Request[A]) -> A:
        return self.session.hosts[name].ask(request)

    def poll(self, silent: Collection[str]) -> bool:
        """Ask every rank except those that cannot answer now; return whether the workload has ended and was removed.

        It ends when all ranks have done their part, or, after a failure, when no work request is left open.

        Raises:
            Violation: of `invariants`.
        """
        if self.stop_wanted and not self.gone & set(self.names) and not set(silent) & set(self.names):
            self.stop_wanted = False
            stop_together(self._ask, self.name, self.names)
        left = [name for name in self.names if name not in self.gone]
        for name in left:
            if name not in silent:
                self.progress[name] = self._ask(name, GetProgress(self.name))
                self._judge(self.progress[name].failure)
        if set(silent) & set(left):
            return False
        progress = {name: self.progress[name] for name in left}
        if self.failure or self.gone:
            if invariants.open_requests(progress):
                return False
        elif not all(each.done for each in progress.values()):
            return False
        else:
            invariants.check_bytes(self.name, self.workload.name, self.names, progress)
        for name, each in progress.items():
            if each.mismatches:
                raise Violation("bytes", f"{self.name}: {each.mismatches} wrong values at {name}")
            self._ask(name, FinishJob(self.name))
        return True

    def _judge(self, failure: str) -> None:
        if not failure or failure == self.failure:
            return
        pair = invariants.blame(failure, self.names)
        if pair not in self.excused:
            raise Violation("errors", f"{self.name} ({self.workload.name}): {failure}, with a whole path between them")
        self.failure = failure

    def state(self) -> str:
        """Return what each rank is at, in words."""
        rows = []
        for name, each in self.progress.items():
            if name not in self.gone:
                open_now = each.requests_posted - each.requests_ended
                at = "done" if each.done else f"at iteration {each.iterations} with {open_now} requests open"
                rows.append(f"{name} {at}{' (' + each.failure + ')' if each.failure else ''}")
        gone = f"; killed: {', '.join(sorted(self.gone))}" if self.gone else ""
        return f"{self.name} ({self.workload.name}): {'; '.join(rows)}{gone}"


POLL_S = 0.1
#: What must end does so within the retry time of a queue pair and this many seconds more.
GRACE_S = 30.0
#: What ended a lab is known within this time on a busy machine.
NAMED_S = 20.0
PROBLEMS = (HostError, P4RuntimeError, TargetError, UnsettledError, RunError, FailureError)


@dataclass
class ChaosResult:
    """The outcome of a schedule: what broke, if anything, and when; `counts` and a `log` of the events, by time."""

    violation: Violation | None = None
    at: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)


def retry_s(topology: Topology) -> float:
    """Return how long a queue pair tries before it dies (`mrc-protocol.md §4`)."""
    spec = topology.lab.reliability
    timeout: float = 1.024e-6 * (1 << spec.timeout)
    return timeout * (1 + spec.linear_cnt + (2 << spec.exp_cnt))


class ChaosRun:
    """One schedule on one session; `play` does it all. `may_end`: the lab belongs to this run alone."""

    def __init__(self, session: Session, schedule: Schedule, *, may_end: bool = False) -> None:
        self.may_end = may_end
        self.ended = False
        self.session = session
        self.schedule = schedule
        self.paths = Paths(session.topology)
        self.in_force: list[Action] = []
        self.frozen: set[str] = set()
        self.dead: set[str] = set()
        self.controllers: dict[str, tuple[grpc.Channel, Device]] = {}
        self.works: dict[str, Work] = {}
        self.played = ChaosResult()
        self._start_ns = session.now_ns()

    def play(self) -> ChaosResult:
        """Do all steps of the schedule, then restore everything; leave the lab whole where that is possible."""
        try:
            self.truth = invariants.FabricInvariant(self.session)
            self.tables = invariants.entries(self.session)
            self._start_ns = self.session.now_ns()
            for step in self.schedule.steps:
                self._wait_until(step.at)
                self._do(step)
                if self.ended:
                    return self.played
            self._wait_until(self.schedule.duration)
            self._settle()
            self._last_work()
            invariants.check_nothing_left(self.session, self.tables)
        except Violation as violation:
            self.played.violation = violation
        except PROBLEMS as problem:
            self.played.violation = Violation("refused", str(problem))
        finally:
            self.played.at = self._elapsed()
            if self.played.violation is not None:
                self._restore_all()
        return self.played

    def _elapsed(self) -> float:
        return (self.session.now_ns() - self._start_ns) / 1e9

    def _note(self, text: str) -> None:
        self.played.log.append(f"{self._elapsed():.6f} {text}")

    def _wait_until(self, at: float) -> None:
        while (left := at - self._elapsed()) > 1e-9:
            self.session.advance(min(left, POLL_S))
            self._poll()

    def _asked(self) -> list[str]:
        return [name for name in self.session.hosts if name not in self.frozen | self.dead]

    def _poll(self) -> None:
        silent = self.frozen | self.dead
        for name, work in list(self.works.items()):
            if work.poll(silent):
                del self.works[name]
                end = "failed" if work.failure else "killed" if work.gone else "done"
                self.played.counts[f"workloads {end}"] += 1
                self._note(f"{name} {end} {work.failure}")

    # --- steps ---------------------------------------------------------------------------------------------------

    def _do(self, step: ChaosStep) -> None:
        done = getattr(self, f"_{step.verb}")(step)
        self.played.counts[step.verb if done else "passed over"] += 1
        self._note(f"{step.describe()}{'' if done else ' (passed over)'}")
        if self.ended:
            return
        self._note_allowed_failures()
        self._poll()
        self.truth.check(self.in_force, self._asked())

    def _note_allowed_failures(self) -> None:
        """Note for every running workload which of its queue pairs may fail in the present state."""
        cut = truth.disconnected_pairs(self.session.topology, self.paths, self.in_force)
        silent = self.frozen | self.dead
        for work in self.works.values():
            work.excused |= cut
            for host in silent & set(work.names):
                work.excused |= {frozenset((host, other)) for other in work.names}

    def _fail(self, step: ChaosStep) -> bool:
        action = self.session.failures.check(step.action())
        if any((each.target, each.kind) == (action.target, action.kind) for each in self.in_force):
            self._refused(action)
            return False
        self.session.failures.fail(self.session, action)
        self.in_force.append(action)
        return True

    def _restore(self, step: ChaosStep) -> bool:
        action = self.session.failures.check(step.action())
        gone = [each for each in self.in_force if each.target == action.target and action.kind in ("", each.kind)]
        if not gone:
            self._refused(action)
            return False
        self.session.failures.restore(self.session, action.target, action.kind)
        self.in_force = [each for each in self.in_force if each not in gone]
        return True

    def _refused(self, action: Action) -> None:
        """Check that the ledger refuses a step and changes nothing."""
        try:
            self.session.failures.perform(self.session, action)
        except FailureError:
            return
        raise Violation("refused", f"{action.describe()} was done, though it cannot be")

    def _freeze(self, step: ChaosStep) -> bool:
        if step.target in self.frozen | self.dead:
            return False
        self.session.freeze_agent(step.target)
        self.frozen.add(step.target)
        return True

    def _thaw(self, step: ChaosStep) -> bool:
        if step.target not in self.frozen:
            return False
        self.session.thaw_agent(step.target)
        self.frozen.remove(step.target)
        return True

    def _kill(self, step: ChaosStep) -> bool:
        if step.target in self.dead:
            return False
        self.session.kill_agent(step.target)
        self.frozen.discard(step.target)
        self.dead.add(step.target)
        for work in self.works.values():
            if step.target in work.names:
                work.gone.add(step.target)
        return True

    def _revive(self, step: ChaosStep) -> bool:
        if step.target not in self.dead:
            return False
        self.session.restart_agent(step.target)
        self.dead.remove(step.target)
        return True

    def _enter(self, step: ChaosStep) -> bool:
        if step.target in self.controllers:
            return False
        switch = self.session.topology.switch(step.target)
        channel = grpc.insecure_channel(self.session.p4runtime_address(switch.name))
        self.controllers[step.target] = (
            channel,
            primary(channel, switch, self.session.program, patient=self.session.clock == "virtual"),
        )
        return True

    def _leave(self, step: ChaosStep) -> bool:
        if step.target not in self.controllers:
            return False
        channel, device = self.controllers.pop(step.target)
        device.close()
        channel.close()
        return True

    def _start(self, step: ChaosStep) -> bool:
        assert step.workload is not None
        work = Work(self.session, step.target, step.workload)
        if set(work.names) & (self.frozen | self.dead) or step.target in self.works:
            return False
        self.works[step.target] = work
        work.start()
        return True

    def _stop(self, step: ChaosStep) -> bool:
        if step.target not in self.works:
            return False
        self.works[step.target].stop_wanted = True
        return True

    def _end(self, step: ChaosStep) -> bool:
        """End the lab; return whether it reports what ended it."""
        kind = step.kind or "kill"
        if not self.may_end or not self.session.signal_process(step.target, ENDS[kind]):
            return False
        self.ended = True
        deadline = time.monotonic() + NAMED_S
        while True:
            told = self.session.deaths() if kind == "kill" else self.session.frozen()
            if any(each.role == step.target for each in told):
                return True
            if time.monotonic() > deadline:
                names = ", ".join(each.text() for each in told) or "nothing"
                raise Violation("named", f"{step.describe()}: the lab tells of {names}")
            interruption.sleep(POLL_S)

    # --- back to how it was ------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Undo what is left of the schedule; every workload must end after that."""
        self._release()
        self.session.failures.restore_all(self.session)
        self.in_force = []
        self._poll()
        self.truth.check([], self._asked())
        self._await_works()

    def _release(self) -> None:
        for switch in sorted(self.controllers):
            self._leave(ChaosStep(at=0, leave=switch))
        for host in sorted(self.frozen):
            self._thaw(ChaosStep(at=0, thaw=host))
        for host in sorted(self.dead):
            self._revive(ChaosStep(at=0, revive=host))

    def _await_works(self) -> None:
        deadline = self._elapsed() + retry_s(self.session.topology) + GRACE_S
        while self.works:
            if self._elapsed() > deadline:
                rule = "requests" if any(work.failure or work.gone for work in self.works.values()) else "progress"
                raise Violation(rule, "no end of " + " | ".join(work.state() for work in self.works.values()))
            self.session.advance(POLL_S)
            self._poll()

    def _last_work(self) -> None:
        """Check after everything else that every host still reaches every other."""
        workload = Workload(name="all_to_all", params={"block_bytes": 5000, "iterations": 2})
        self._start(ChaosStep(at=0, start="afterwards", workload=workload))
        self._await_works()

    def _restore_all(self) -> None:
        """Restore everything after a violation: a lab that others use shall not stay broken."""
        for what in (self._release, lambda: self.session.failures.restore_all(self.session)):
            with contextlib.suppress(*PROBLEMS, Violation):
                what()
        for work in self.works.values():
            for name in work.names:
                with contextlib.suppress(HostError):
                    self.session.hosts[name].ask(FinishJob(work.name))


def is_ours(name: str, clock: str) -> bool:
    """Return whether a real-clock lab of this name would be one of the schedule's own."""
    return clock == "real" and (not RunDir(name).exists() or RunDir(name).is_dead())


@contextlib.contextmanager
def _watched(schedule: Schedule, clock: str, progress: Callable[[str], None], played: ChaosResult) -> Iterator[Session]:
    """Yield a session, and after its end the check that nothing of it is left (a lab that was up before stays up)."""
    before = invariants.threads()
    name = load_lab(schedule.lab).lab.name
    ours = is_ours(name, clock)
    processes = []
    with sessions.session_for(LabRequest.of(schedule.lab, schedule.transport, clock=clock), progress) as session:
        payloads.require_bytes(session.topology, "chaos")
        yield session
        if isinstance(session, RealSession):
            processes = session.run.processes()
    if played.violation is not None:
        return
    try:
        if clock == "virtual":
            invariants.check_threads_gone(before)
        elif ours and (alive := [each for each in processes if each.alive()]):
            raise Violation("left", f"after down: {', '.join(f'{each.role} (pid {each.pid})' for each in alive)}")
        elif ours and RunDir(name).exists():
            raise Violation("left", f"after down: {RunDir(name).path}")
    except Violation as violation:
        played.violation = violation


def play(schedule: Schedule, clock: str, progress: Callable[[str], None] = lambda text: None) -> ChaosResult:
    """Run a schedule on its lab: a simulation, or on the real clock the lab that is up, else one of its own.

    Raises:
        LabError, RunError, NamespaceError, HostNetError: there is no such lab.
    """
    played = ChaosResult()
    may_end = is_ours(load_lab(schedule.lab).lab.name, clock)
    with _watched(schedule, clock, progress, played) as session:
        progress("breaking things")
        player = ChaosRun(session, schedule, may_end=may_end)
        player.played = played
        player.play()
    return played


T = TypeVar("T")


class _TriesExhausted(Exception):
    """No more tries."""


def ddmin(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Return a minimal part of `items`, in order, for which `fails` holds: without any one of its items it does not.

    `fails(items)` must hold.
    """
    left, pieces = list(items), 2
    while left:
        size = -(-len(left) // pieces)
        for first in range(0, len(left), size):
            rest = left[:first] + left[first + size :]
            if fails(rest):
                left, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(left))
    return left


def shrink(
    schedule: Schedule, played: ChaosResult, again: Callable[[Schedule], ChaosResult], tries: int = 200
) -> tuple[Schedule, ChaosResult, int]:
    """Return the shortest schedule found that breaks the same rule, its outcome, and the number of plays.

    `again` plays one. On the real clock what breaks once need not break again; a step is only left out when it broke
    without it.
    """
    assert played.violation is not None
    rule = played.violation.rule
    best, outcome, count = schedule, played, 0

    def breaks(candidate: Schedule) -> bool:
        nonlocal best, outcome, count
        if count >= tries:
            raise _TriesExhausted
        count += 1
        found = again(candidate)
        if found.violation is None or found.violation.rule != rule:
            return False
        best, outcome = candidate, found
        return True

    def cut(steps: list[object], duration: float) -> Schedule:
        return schedule.model_copy(update={"steps": steps, "duration": duration})

    try:
        # Steps after the violation cannot have caused it.
        steps = [step for step in schedule.steps if step.at <= played.at]
        if not breaks(cut([*steps], steps[-1].at if steps else 0.0)) and not breaks(cut([*steps], schedule.duration)):
            return best, outcome, count
        duration = best.duration
        ddmin(best.steps, lambda rest: breaks(cut([*rest], min(duration, rest[-1].at if rest else 0.0))))
    except _TriesExhausted:
        pass
    return best, outcome, count
