"""The thread that has the session: lets time pass, samples, does what pages ask for. Also `execute.ExperimentView`.

On the real clock time passes by itself. A simulation goes at a chosen speed, in slices so short that pages see it move
and commands are done at once; it may stand still.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import re
import time
from collections.abc import Callable
from typing import Final

from mrc_host.answers import HostStatistics
from mrc_host.requests import GetStatistics
from mrc_host.workloads import WORKLOADS
from mrc_topo.base.document import Model
from mrclab.lab.hosts.inside import check_here
from mrclab.lab.management import denylist
from mrclab.lab.records.capture_tail import CaptureTail, Place, place_of
from mrclab.lab.records.rundir import RunError
from mrclab.lab.session.base import Session
from mrclab.lab.session.real import RealSession
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.check import Verdict
from mrclab.results.record import RunResult
from mrclab.runs.experiment import Experiment
from mrclab.runs.runner import WorkloadRun
from mrclab.web import actions, sampler
from mrclab.web.hub import CommandAnswer, CommandError, Hub
from mrclab.web.pairs import Pairs
from mrclab.web.sampler import PAIRS, SAMPLE_S, SHARE, SampleBudget, Sampler
from mrclab.web.state import Job, Layout, Mode, Pair, layout_of
from p4lite.scratch import scratch

MOST = 8
MOST_BYTES = 64 << 20


class Captures:
    """The captures of a view, by the requested port. Files stay until `close`."""

    def __init__(self) -> None:
        self._left = contextlib.ExitStack()
        self._folder = self._left.enter_context(scratch("captures"))
        self._going: dict[str, CaptureTail | None] = {}
        self._places: dict[str, Place] = {}
        self._numbers = itertools.count(1)
        self._files: dict[str, pathlib.Path] = {}

    @property
    def ports(self) -> list[str]:
        """Ports that are captured at present."""
        return sorted(self._going)

    def file(self, port: str) -> pathlib.Path | None:
        """Return the capture of a port, or None."""
        return self._files.get(port)

    def begin(self, session: Session, port: str) -> None:
        """Begin to capture a port.

        Raises:
            RunError, UnknownElement: the text names no port.
            CommandError: the port is captured already, or too many ports are.
        """
        place = place_of(session.topology, port)
        if port in self._going:
            raise CommandError(f"{port} is captured already")
        if len(self._going) >= MOST or len(self._files) >= 8 * MOST:
            raise CommandError(f"{MOST} ports are captured already; end one first")
        # The file's name is made safe, because a page's text must never act as a path.
        path = self._folder / f"{re.sub(r'[^a-z0-9]', '-', port)}.pcapng"
        number = next(self._numbers)
        if isinstance(session, RealSession):
            try:
                check_here(session.state)
            except RunError as error:
                raise CommandError(str(error)) from error
            following = CaptureTail(session.run.folder, path, number)
            session.target.capture(*place[:2], following.name, label=port, outside=place.outside)
            self._going[port] = following
        elif isinstance(session, VirtualSession):
            at = session.simulated.switch(place.device_id).port(place.number)
            at.capture(path, label=port, outside=place.outside)
            self._going[port] = None
        self._places[port] = place
        self._files[port] = path

    def copy(self, session: Session) -> list[str]:
        """Copy new packets; return the ports whose file has become too large, and end their capture."""
        full = []
        for port, following in list(self._going.items()):
            if following is not None:
                following.copy()
            with contextlib.suppress(OSError):
                if self._files[port].stat().st_size > MOST_BYTES:
                    self.end(session, port)
                    full.append(port)
        return full

    def end(self, session: Session, port: str) -> None:
        """End the capture of a port; its file stays.

        Raises:
            CommandError: the port is not being captured.
        """
        if port not in self._going:
            raise CommandError(f"{port} is not captured")
        following, place = self._going.pop(port), self._places.pop(port)
        if isinstance(session, RealSession):
            session.target.capture(*place[:2], None)
        elif isinstance(session, VirtualSession):
            session.simulated.switch(place[0]).port(place[1]).capture(None)
        if following is not None:
            following.__exit__(None, None, None)

    def leave(self, session: Session) -> None:
        """Prepare for the end of the session."""
        for port in self.ports:
            with contextlib.suppress(Exception):
                self.end(session, port)
        self._going.clear()
        self._places.clear()

    def close(self) -> None:
        """Remove all files."""
        self._left.close()


#: The interval at which pages receive the pairs that they show.
PAIR_S: Final = 0.2
#: Samples that are later than this are not made up for.
CATCH_UP_S: Final = 1.0
#: A slice of simulated time takes about this time, and its length lies between these limits (ns).
SLICE_S: Final = 0.02
LEAST_SLICE_NS, MOST_SLICE_NS = 100_000, 100_000_000
#: A simulation that is further behind than this does not try to catch up.
DEBT_S: Final = 0.2
#: The commands of every view of a session; `start`, `stop` and `run` only where the view runs workloads itself.
ALWAYS: Final = ("fail", "restore", "deny", "allow", "capture", "save")
TIMED: Final = ("pause", "resume", "step", "speed")

Starter = Callable[[Experiment], None]


class SampleRhythm:
    """Says when the next sample is due, in seconds of the wall's clock.

    Samples come ten a second on average although some begin late, as when agents of a busy lab let one wait: those that
    follow are closer together, but not after a second without a sample. A costly one leaves time for the lab.
    """

    def __init__(self) -> None:
        self.due_s = 0.0
        self._regular_s = 0.0

    def sampled(self, began_s: float, took_s: float) -> None:
        """Record a sample."""
        behind = began_s - self._regular_s
        self._regular_s = (self._regular_s if 0 <= behind < CATCH_UP_S else began_s) + SAMPLE_S
        self.due_s = max(self._regular_s, began_s + max(SAMPLE_S / 2, 3 * took_s))

    def sample_now(self) -> None:
        """Make the next sample due now."""
        self.due_s = 0.0


class View:
    """See the module's docstring.

    Args:
        hub: the target of states and the source of commands.
        speed: the speed of simulations, as a multiple of the wall's clock; 0: as fast as possible.
        start: checks and starts a workload or experiment when the present one has ended; None where pages may not do
            so.
        experiments: those that `start` accepts, by name.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        speed: float = 1.0,
        start: Callable[[Experiment], None] | None = None,
        find: Callable[[str], Experiment] | None = None,
        experiments: list[str] | None = None,
        lab: str = "",
    ) -> None:
        self.hub = hub
        self.speed = speed
        self.start = start
        self.find = find
        self.experiments = experiments or []
        self.lab = lab
        self.captures = Captures()
        self.paused = False
        self.session: Session | None = None
        self.experiment: Experiment | None = None
        self.run: WorkloadRun | None = None
        self.result: RunResult | None = None
        self.sampler: Sampler | None = None
        self.saved = ""
        self._pairs: Pairs | None = None
        #: A function that raises the exception that ends the command; it is called while time stands still, too.
        self.interrupted: Callable[[], object] = bool
        #: Returns whether a request waits for idle time to end.
        self.wanted: Callable[[], bool] = bool
        self._stop = False
        self._job: Job | None = None
        self._done = 0
        self._step_ns = 0
        self._slice_ns = 1_000_000
        self._rhythm = SampleRhythm()
        self._pair_budget = SampleBudget(PAIR_S)
        self._base = (0.0, 0)
        self._measured: list[tuple[float, int]] = []

    # --- what is shown -----------------------------------------------------------------------------------

    def show(self, session: Session, transport: str, mode: Mode | None = None) -> None:
        """Show a session from now on."""
        virtual = session.clock == "virtual"
        can = [*ALWAYS, *(TIMED if virtual else ())]
        if self.start is not None:
            can += ["start", "stop", "run"]
        began = session.now_ns()
        layout: Layout = layout_of(
            session.topology,
            mode or ("simulation" if virtual else "lab"),
            clock=session.clock,
            transport=transport,
            began_ns=began,
            can=can,
            workloads={name: each.defaults() for name, each in sorted(WORKLOADS.items())},
            experiments=self.experiments,
        )
        self.hub.show(layout)
        self.session = session
        finder = denylist.load(session.topology.lab.policies.localiser)
        # A simulation waits for its pages, which only costs speed.
        self._pairs = Pairs(session, began)
        share = 4 * SHARE if virtual else SHARE
        self.sampler = Sampler(session, layout, self.hub.log, finder, share, self._pairs.learn)
        self._pair_budget = SampleBudget(PAIR_S, SHARE, PAIRS)
        self._rebase()
        self.hub.log.add(0, "note", f"lab {session.topology.lab.name}, {session.clock} clock, {transport}")

    def leave(self) -> None:
        """Prepare for the end of the session."""
        if self.session is not None:
            self.captures.leave(self.session)
        self.session = self.sampler = self._pairs = None
        self.run = None
        self.hub.refuse_all("the run has ended")

    def close(self) -> None:
        """End the view."""
        self.leave()
        self.hub.end()
        self.captures.close()

    # --- `execute.ExperimentView` ----------------------------------------------------------------------------------

    def begin(self, session: Session, experiment: Experiment, interrupted: Callable[[], object] = bool) -> None:
        """Show an experiment that starts on a session."""
        self.interrupted = interrupted
        if self.session is not session:
            self.show(session, experiment.transport)
        self.experiment = experiment
        self._stop = False
        self.saved = ""
        self.result = None
        self.hub.log.add(self._now(), "job", f"{experiment.title}: begins")

    def started(self, run: WorkloadRun) -> None:
        """Show that the workload has started."""
        self.run = run
        self.result = run.result
        assert self.experiment is not None
        assert self.sampler is not None
        began = run.result.started_ns - self.sampler.began_ns
        self.hub.completions = sampler.without(sampler.PENDING)
        self._job = {
            "name": self.experiment.name,
            "workload": self.experiment.workload.name,
            "params": dict(self.experiment.workload.params),
            "hosts": list(run.result.ranks),
            "running": True,
            "began_ns": began,
            "ended_ns": -1,
            "iterations": 0,
            "step_ns": 0,
            "completion_ns": 0,
            "bytes_verified": 0,
            "mismatches": 0,
            "failures": [],
            "verdict": "good",
            "schedule": [
                {"t_ns": began + round(at * 1e9), "text": action.describe(), "breaks": action.verb == "fail"}
                for at, action in self.experiment.actions()
            ],
        }

    def observe(self, result: RunResult) -> None:
        """Show the run so far."""

    def stop_asked(self) -> bool:
        """Return whether a page has asked the workload to end."""
        return self._stop

    def closing(self) -> None:
        """Show what has changed since the last sample: on a busy machine, or where the workload is short, that may be
        all of it. Its jobs are still at the hosts."""
        if self.sampler is not None:
            self.sampler.sample_now()
            self._sample()

    def advance(self, seconds: float) -> None:
        """Let this much of the session's time pass."""
        session = self.session
        assert session is not None
        if session.clock == "real":
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                self.tick()
                if self.run is None and self.wanted():
                    return
                self.hub.wait(min(left, max(self._rhythm.due_s - time.monotonic(), 0.002)))
            return
        end_ns = session.now_ns() + round(seconds * 1e9)
        while session.now_ns() < end_ns:
            self.tick()
            self.interrupted()
            if self.run is None and self.wanted():
                return
            slice_ns = self._due(end_ns - session.now_ns())
            if slice_ns <= 0:
                continue
            began = time.monotonic()
            session.advance(slice_ns / 1e9)
            self._step_ns = max(self._step_ns - slice_ns, 0)
            took = time.monotonic() - began
            if slice_ns >= self._slice_ns or took > SLICE_S:
                wanted = slice_ns * SLICE_S / max(took, 1e-6)
                self._slice_ns = int(min(max(wanted, LEAST_SLICE_NS), 2 * self._slice_ns, MOST_SLICE_NS))

    def finished(self, result: RunResult, judged: Verdict) -> None:
        """Show that the workload has ended and is judged; the session continues."""
        assert self.experiment is not None
        assert self.session is not None
        self.saved = actions.experiment_text(self.experiment, result, self.session.topology, self.lab)
        self._judged(judged)
        self._sample()

    def end(self, judged: Verdict) -> None:
        """Show that the experiment has ended and its session is closed."""
        self._judged(judged)
        state = self.hub.state
        if state is not None:
            self.hub.publish({**state, "phase": "ended", "job": self._job})
        self.leave()

    def broke_off(self, why: str) -> None:
        """Show that the workload has ended without a verdict, or did not begin."""
        if self.run is not None and self._job is not None:
            self._job = {**self._job, "running": False, "verdict": "failed"}
        self.run = None
        self.hub.log.add(self._now(), "note", f"the run broke off: {why}")
        self.hub.completions = sampler.without("the run broke off")

    def _judged(self, judged: Verdict) -> None:
        self.run = None
        if self.sampler is not None:
            self.sampler.forget_jobs()
            if self.result is not None:
                self.hub.completions = sampler.completions_of(self.result, self.sampler.began_ns)
        if self._job is not None:
            self._job = {**self._job, "running": False, "verdict": judged.status}
            if self.sampler is not None and self.result is not None:
                self._job["ended_ns"] = self.result.finished_ns - self.sampler.began_ns
            if self.result is not None:  # its last steps may have come after the last sample
                achieved = self.result.achieved()
                self._job["iterations"] = achieved.least_iterations
                self._job["bytes_verified"], self._job["mismatches"] = achieved.bytes_verified, achieved.mismatches
                self._job["failures"] = list(self.result.failures)[:20]
        self.hub.log.add(self._now(), "job", f"ended: {judged.status}")

    # --- time ----------------------------------------------------------------------------------------------

    def _now(self) -> int:
        if self.session is None or self.sampler is None:
            return 0
        return self.session.now_ns() - self.sampler.began_ns

    def _rebase(self) -> None:
        assert self.session is not None
        self._base = (time.monotonic(), self.session.now_ns())
        self._measured = [self._base]

    def _due(self, most_ns: int) -> int:
        """Return how much simulated time may pass now, in ns; wait if none may."""
        session = self.session
        assert session is not None
        if self.paused:
            if self._step_ns <= 0:
                self.hub.wait(SAMPLE_S)
                self._rebase()
                return 0
            return min(self._step_ns, self._slice_ns, most_ns)
        if not self.speed:
            return min(self._slice_ns, most_ns)
        wall, now_ns = time.monotonic() - self._base[0], session.now_ns() - self._base[1]
        allowed = wall * self.speed * 1e9 - now_ns
        if allowed > DEBT_S * 1e9 * self.speed:
            self._base = (time.monotonic(), session.now_ns())
        if allowed < LEAST_SLICE_NS:
            self.hub.wait(min((LEAST_SLICE_NS * 5 - allowed) / 1e9 / self.speed, SAMPLE_S / 4))
            return 0
        return int(min(allowed, self._slice_ns, most_ns))

    def _actual_speed(self) -> float:
        """Return the speed of the session's clock relative to the wall clock, over the last second."""
        assert self.session is not None
        if self.paused:
            return 0.0
        now = (time.monotonic(), self.session.now_ns())
        self._measured.append(now)
        while len(self._measured) > 2 and now[0] - self._measured[0][0] > 1.0:
            del self._measured[0]
        wall, then = self._measured[0]
        return round((now[1] - then) / 1e9 / max(now[0] - wall, 1e-3), 3)

    # --- commands and samples -------------------------------------------------------------------------------

    def tick(self) -> None:
        """Carry out the requested commands, and sample if it is time."""
        while (command := self.hub.next_command()) is not None:
            try:
                command.done.set_result(self._do(command.name, command.arguments))
            except CommandError as error:
                command.done.set_exception(error)
            except actions.REFUSALS as error:
                command.done.set_exception(CommandError(str(error)))
            except Exception as error:
                command.done.set_exception(CommandError(f"{type(error).__name__}: {error}"))
                raise
            self._done += 1
            self._rhythm.sample_now()
            if self.sampler is not None:
                self.sampler.sample_now()
        if self._pair_budget.due():
            self._pair_budget.begin()
            self._sample_pairs()
            self._pair_budget.spend()
        now = time.monotonic()
        if now >= self._rhythm.due_s:
            cpu = time.thread_time()
            self._sample()
            # A costly sample must leave time for the lab itself. On the real clock that is CPU time, as for the budgets
            # of samples: on a busy machine a sample waits for agents, and costs no more. A simulation waits for it.
            took = time.thread_time() - cpu if self._is_real() else time.monotonic() - now
            self._rhythm.sampled(now, took)

    def _is_real(self) -> bool:
        return self.session is not None and self.session.clock == "real"

    def _sample_pairs(self) -> None:
        wanted = self.hub.wanted()
        if self._pairs is None or self.session is None:
            return
        found: dict[tuple[str, str], Pair] = {}
        for source, destination in wanted:
            if source in self.session.hosts and destination in self.session.hosts:
                found[source, destination] = self._pairs.look(source, destination)
        self._pairs.forget(set(wanted))
        self.hub.show_pairs(found)

    def _sample(self) -> None:
        assert self.session is not None
        assert self.sampler is not None
        for port in self.captures.copy(self.session):
            self.hub.log.add(self._now(), "note", f"the capture of {port} is full")
        state = self.sampler.sample()
        seen = state["job"]
        if self._job is not None and self.run is not None:
            if seen is not None:
                for key in ("iterations", "step_ns", "completion_ns", "bytes_verified", "mismatches", "failures"):
                    self._job[key] = seen[key]
            assert self.result is not None
            failures = list(self.result.failures) or self._job["failures"]
            self._job["failures"] = failures[:20]
            self._job["verdict"] = "failed" if failures or self._job["mismatches"] else "good"
        elif seen is not None and seen["running"] and self.hub.completions["why"] != sampler.OTHERS:
            self.hub.completions = sampler.without(sampler.OTHERS)
        state["job"] = self._job if self._job is not None and (self.run is not None or seen is None) else seen
        state["captures"] = self.captures.ports
        state["commands"] = self._done
        if self.session.clock == "virtual":
            state["speed"], state["asked_speed"] = self._actual_speed(), self.speed
            if self.paused and state["phase"] == "running":
                state["phase"] = "paused"
        self.hub.publish(state)

    def _do(self, name: str, arguments: object) -> CommandAnswer:
        """Carry out a command. Raises CommandError, or one of `actions.REFUSALS`."""
        asked = actions.parse_action(name, arguments)
        session, layout = self.session, self.hub.layout
        if session is None or layout is None:
            raise CommandError("nothing runs at the moment")
        if name not in layout["can"]:
            raise CommandError(f"{name} is not possible here")
        answer = self._act(session, asked, name)
        if name in ("deny", "allow", "capture", "stop"):
            self.hub.log.add(self._now(), "command", answer.text)
        return answer

    def _act(self, session: Session, asked: Model, name: str) -> CommandAnswer:
        match asked:
            case actions.Fail():
                return actions.fail(session, asked, self.run)
            case actions.Restore():
                return actions.restore(session, asked, self.run)
            case actions.Elements():
                return (actions.deny if name == "deny" else actions.allow)(session, asked)
            case actions.Capture():
                (self.captures.begin if asked.on else self.captures.end)(session, asked.port)
                return CommandAnswer(f"capture of {asked.port} {'begins' if asked.on else 'has ended'}")
            case actions.Start() | actions.RunExperiment():
                return self._begin(asked, session)
            case actions.Speed():
                self.speed = asked.speed
                self._rebase()
                return CommandAnswer(f"speed {asked.speed:g}")
            case actions.Step():
                self.paused = True
                self._step_ns = round(asked.seconds * 1e9)
                return CommandAnswer(f"{asked.seconds:g} s on")
        if name == "save":
            return CommandAnswer("saved", file=self._saved(session), name=self._file_name())
        if name == "stop":
            if self.run is None:
                raise CommandError("no workload of this page runs")
            self._stop = True
            return CommandAnswer("the workload ends after its present iteration")
        self.paused = name == "pause"
        self._rebase()
        return CommandAnswer("paused" if self.paused else "goes on")

    def _begin(self, asked: actions.Start | actions.RunExperiment, session: Session) -> CommandAnswer:
        if self.run is not None:
            raise CommandError("a workload runs; stop it first")
        assert self.start is not None
        if isinstance(asked, actions.RunExperiment):
            if asked.name not in self.experiments or self.find is None:
                raise CommandError(f"no experiment '{asked.name}'; known: {', '.join(self.experiments)}")
            experiment = self.find(asked.name)
        else:
            experiment = actions.workload_experiment(asked, session, self.lab)
        self.start(experiment)
        return CommandAnswer(f"{experiment.title}: begins")

    def _saved(self, session: Session) -> str:
        if self.run is not None and self.result is not None and self.experiment is not None:
            statistics: dict[str, HostStatistics | None] = {}
            for name in self.result.ranks:
                with contextlib.suppress(*actions.REFUSALS):
                    statistics[name] = session.hosts[name].ask(GetStatistics())
            result = dataclasses.replace(self.result, finished_ns=session.now_ns(), statistics=statistics)
            return actions.experiment_text(self.experiment, result, session.topology, self.lab)
        if not self.saved:
            raise CommandError("nothing to save yet: start a workload, break something, and save then")
        return self.saved

    def _file_name(self) -> str:
        return f"{self.experiment.name if self.experiment else 'experiment'}-clicked.yaml"
