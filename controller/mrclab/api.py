"""Labs, jobs and their results for scripts: what `from mrclab import Lab` gives.

    with Lab("default", clock="virtual") as lab:
        job = lab.start("ring_all_reduce", size="4MiB")
        lab.advance("2s")
        with lab.fail("p0-t1.1", kind="freeze"):
            lab.advance("3s")
        result = job.stop()
    print(result.goodput, result.recovery("p0-t1.1"), result.passed)

The same script runs in simulated time and on the real clock. Times are seconds, or texts such as "500ms"; other
quantities are numbers in the unit of their name, or texts such as size="4MiB" for size_bytes. Errors are those of the
command line, `mrc_topo.base.errors.MrclabError`; a `UsageError` is a mistake in what was asked.
"""

from __future__ import annotations

import abc
import contextlib
import html
import importlib
import inspect
import json
import math
import os
import re
import subprocess
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import yaml

from mrc_host.answers import HostStatistics
from mrc_host.proto.events import EvState
from mrc_host.requests import FinishJob, GetStatistics, GetView
from mrc_host.workloads import WORKLOADS
from mrc_topo import addressing, mininet_topo
from mrc_topo.base import interruption
from mrc_topo.base.errors import MrclabError, UsageError
from mrc_topo.base.files import write_whole
from mrc_topo.labfile import LabError, lab_path, policy_class, read_lab
from mrc_topo.topology import Topology, UnknownElement
from mrc_topo.units import parse_seconds, with_quantities
from mrclab.lab.faults.action import Action, Direction, FailureError
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import Session
from mrclab.results import performance, reordering, report, verdict
from mrclab.results.check import Check
from mrclab.results.expectation import Expectation
from mrclab.results.record import LabEvent, RunResult
from mrclab.results.recording import TIME
from mrclab.runs import execute, precheck, sessions
from mrclab.runs import experiment as experiments
from mrclab.runs.endings import LOST
from mrclab.runs.runner import LEAST_TURN_S, POLL_S, Loop, WorkloadRun
from p4lite.errors import P4liteError

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars
    import pyarrow

    from mrc_host import verbs
    from mrclab.lab.replayed import Trace
    from p4lite.api.tables import MeterArray, ProgramObjects, Register, Table

E = TypeVar("E", bound="Element")
Clock = Literal["virtual", "real"]
#: A time in seconds, or a text such as "500ms".
Time = float | str
AnyTopo = mininet_topo.Topo | type[mininet_topo.Topo]


class JobError(UsageError):
    """A job that cannot be started or used any more; the text says why."""


class Elements(dict[str, E]):
    """The elements of a lab by name; another name is an `UnknownElement`, whose text has similar ones."""

    def __init__(self, kind: type[E], lab: Lab, names: Iterable[str]) -> None:
        super().__init__({name: kind(lab, name) for name in names})
        self._lab = lab

    def __missing__(self, name: str) -> E:
        known = self._lab.topology.element(name)
        if known.name in self:
            return self[known.name]
        raise UnknownElement(f"'{name}' is no name of these; there are {', '.join(list(self)[:8])}")


@dataclass(frozen=True)
class Failure:
    """A failure that `Lab.fail` made; as a context manager it ends with the context."""

    lab: Lab
    action: Action

    def restore(self) -> None:
        """Undo this failure, and no other of the same element. Raises FailureError if it is undone already."""
        self.lab._act(Action("restore", self.action.target, self.action.kind))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        mine = (self.action.target, self.action.kind)
        if kind is None:
            if mine in {(cause.target, cause.kind) for cause in self.lab.causes()}:
                self.restore()
            return
        # What went wrong in the context is worth more than what goes wrong because of it.
        with contextlib.suppress(MrclabError, P4liteError):
            self.restore()


@dataclass(frozen=True)
class Element:
    """A host, NIC port, switch or link of a lab, by its name."""

    lab: Lab
    name: str

    def fail(self, kind: str = "", *, direction: Direction = "both", **settings: Any) -> Failure:
        """Break it; see `Lab.fail`."""
        return self.lab.fail(self.name, kind, direction=direction, **settings)

    def impair(self, *, direction: Direction = "both", **settings: Any) -> Failure:
        """Impair it, by settings such as loss=0.01 or delay="2ms"; see `Lab.fail`."""
        return self.fail("impair", direction=direction, **settings)

    @property
    def broken(self) -> bool:
        """Whether a failure of it is in force."""
        return self.name in self.lab.broken


class Link(Element):
    """A link, or the NIC port `h0:1` with its cable; `rate_bps` and `delay_ns` are those of its direction."""

    @property
    def ends(self) -> tuple[str, str]:
        """The names of the nodes at its ends."""
        link = self.lab.topology.links[self.name]
        return link.low.node, link.high.node

    @property
    def rate_bps(self) -> int:
        """Its rate in bit/s."""
        return self.lab.topology.links[self.name].spec.rate

    @property
    def delay_ns(self) -> int:
        """Its delay in ns."""
        return self.lab.topology.links[self.name].spec.delay


class Switch(Element):
    """A switch with the counters of its P4 program, by the names of its P4Info."""

    @property
    def device_id(self) -> int:
        """Its P4Runtime device id."""
        return self.lab.topology.switch(self.name).device_id

    @property
    def p4runtime(self) -> str:
        """The address on which it serves P4Runtime."""
        return self.lab.session.p4runtime_address(self.name)

    @property
    def counters(self) -> list[str]:
        """The names of its program's counters."""
        names = self.lab.session.program.names
        return sorted(names.counters | names.direct_counters)

    def counter(self, name: str) -> list[tuple[int, int]]:
        """Return packets and bytes of all cells of a counter. Raises UsageError if the program has no such counter."""
        if name not in self.counters:
            raise UsageError(f"{self.name}: no counter '{name}'; the program has {', '.join(self.counters)}")
        return list(self.lab.session.fabric.read_counter(self.device_id, name))

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables of its program, each used like a dict, as of `p4lite.Switch`; in simulated time only, as are
        registers and meters. Raises UsageError on the real clock."""
        # The compiler makes further ones, which no controller knows.
        return self._objects().tables.only(self.lab.session.program.names.tables)

    @property
    def registers(self) -> Mapping[str, Register]:
        """The registers of its program. Raises as `tables`."""
        return self._objects().registers

    @property
    def meters(self) -> Mapping[str, MeterArray]:
        """The meters of its program. Raises as `tables`."""
        return self._objects().meters

    def trace(self, packets: int = 1, within: Time = "10s") -> Trace:
        """Return what its program does with the next packets that arrive, by source line: see `mrclab trace`.

        On the real clock only, with packets on their way; fewer come back if they do not arrive in time.

        Raises:
            UsageError: the lab is in simulated time.
        """
        from mrclab.lab.replayed import trace
        from mrclab.lab.session.real import RealSession

        session = self.lab.session
        if not isinstance(session, RealSession):
            raise UsageError(f"{self.name}: packets are traced on the real clock only; give the lab clock='real'")
        return trace(session, self.name, packets, _seconds(within))

    def _objects(self) -> ProgramObjects:
        from p4lite.api.tables import ProgramObjects

        control = self.lab.session.control(self.name)
        if control is None:
            raise UsageError(f"{self.name} is another process: its tables are at {self.p4runtime}, by P4Runtime")
        return ProgramObjects(control, contextlib.nullcontext(), {})


class Host(Element):
    """A host, with its agent."""

    @property
    def addresses(self) -> list[str]:
        """Its addresses in the fabric, by plane."""
        return [addressing.text(port.address) for port in self.lab.topology.host(self.name).ports]

    @property
    def ports(self) -> list[Link]:
        """Its NIC ports, by plane."""
        return [self.lab.links[port.name] for port in self.lab.topology.host(self.name).ports]

    def statistics(self) -> HostStatistics:
        """Return all counters of its agent. Raises HostError if the agent is gone."""
        return self.lab.session.hosts[self.name].ask(GetStatistics())

    @property
    def ev_states(self) -> Mapping[str, int]:
        """How many EVs of its queue pairs are in each state: GOOD, SKIP, ASSUMED_BAD, DENIED."""
        counted = self.lab.session.hosts[self.name].ask(GetView()).sample.ev
        return {state.name: counted.get(state.name, 0) for state in EvState}

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in its namespace, as `mrclab exec` does, and return what it printed.

        Raises:
            UsageError: the lab is simulated.
            RunError: the lab has died.
        """
        with self.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[Any]:
        """Start a command in its namespace; options are those of `subprocess.Popen`. Raises as `run`."""
        from mrclab.lab.hosts import inside

        self._check_real()
        state = RunDir(self.lab.name).read()
        return subprocess.Popen(inside.command(state, words, host=self.name, by_hand=True), **options)

    def verbs(self) -> verbs.Context:
        """Open its NIC for the script itself, as `mrc_host.verbs.open_device` does for a program on the host.

        Raises:
            UsageError: the lab is simulated, or runs as another user than the script.
            VerbsError: the agent takes no programs, or has died.
        """
        from mrc_host import verbs
        from mrc_host.verbs.connection import verbs_socket

        self._check_real()
        run = RunDir(self.lab.name)
        if os.geteuid() == 0 and (uid := run.read().uid) > 0:
            raise UsageError(
                f"{self.name} serves programs of user {uid} alone, as which a lab of root runs; run the script as an "
                "ordinary user, or what needs the NIC as a program of its own (popen)"
            )
        return verbs.open_device(str(verbs_socket(run.socket(self.name))))

    def _check_real(self) -> None:
        if self.lab.clock != "real":
            raise UsageError(f"{self.name} is simulated and runs no programs; open the lab with clock='real'")


class Lab:
    """A lab that is up; a context manager, which takes down what it brought up.

    On the real clock a lab of this name that is up already is used, and stays up. `hosts`, `switches` and `links` are
    its elements by name, `job` the one that runs, `results` those of the jobs that have ended, and `topology` the
    numbers and addresses of all.

    Args:
        source: the name of a lab, the path of a lab file, keys of one, a Topo of Mininet or its class, or a networkx
            graph whose nodes `kind="host"` are hosts; None for a lab of `keys` alone.
        clock: virtual (simulated time) or real.
        transport: mrc or roce.
        switch, compiler, payload: instead of those of the lab file.
        trust_code: policies of the lab may run on the real clock, as this user.
        keys: keys of the lab file that replace those of `source`, such as planes=2. Files that they name are relative
            to the current folder; a policy may be a class of an imported module.

    Raises:
        LabError: there is no such lab, or a key is wrong; the text has key and remedy.
        RunError: it cannot be brought up here.
    """

    @interruption.between_steps()
    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | networkx.Graph | AnyTopo | None = "default",
        *,
        clock: Clock = "virtual",
        transport: str = "mrc",
        switch: str | None = None,
        compiler: str | None = None,
        payload: str | None = None,
        trust_code: bool = False,
        **keys: Any,
    ) -> None:
        with contextlib.ExitStack() as stack:
            # Two scripts at a time have two labs, and their jobs do not meet.
            unnamed = "script" if clock == "virtual" else f"script-{os.getpid()}"
            file = stack.enter_context(_file_of(source, keys, unnamed))
            options = {"switch": switch, "compiler": compiler, "payload": payload}
            try:
                wanted = LabRequest.of(file, transport, **options, trust_code=trust_code, clock=clock)  # type: ignore[arg-type]
            except LabError as error:
                if file == str(source):
                    raise
                # The script has written no file: what is wrong is among the arguments.
                place = re.compile(re.escape(file) + r"(:\d+)?")
                raise LabError([place.sub("Lab(...)", text) for text in error.problems]) from None
            name = str(source) if isinstance(source, str | Path) else "script"
            run = RunDir(wanted.topology.lab.name)
            if clock == "real" and (not run.exists() or run.is_dead()):
                stack.enter_context(sessions.down_if_killed(run.name))
            session = stack.enter_context(sessions.session_for(wanted))
            up, own = session.topology.lab, wanted.topology.lab
            other = [key for key in (*keys, "topology") if getattr(up, key) != getattr(own, key)]
            if other:
                raise RunError(
                    f"lab '{up.name}' is up with other {', '.join(other)}: `mrclab down {up.name}` first, or give name="
                )
            self._open(session, stack.pop_all(), name, transport)
            if self.broken:
                notes = [f"was up with failures in force: {', '.join(self.broken)}; `mrclab restore` undoes them"]
                sessions.print_warnings(up.name, notes)

    @classmethod
    def attach(cls, name: str) -> Self:
        """Return a lab that is up on the real clock, which stays up. Raises RunError if none of this name is."""
        # A simulation does without this, which imports gRPC.
        from mrclab.lab.spread import session_of

        lab = cls.__new__(cls)
        session = session_of(name)
        stack = contextlib.ExitStack()
        stack.callback(session.close)
        lab._open(session, stack, name, RunDir(name).read().transport)
        return lab

    def _open(self, session: Session, stack: contextlib.ExitStack, source: str, transport: str) -> None:
        self._session, self.topology, self._source, self.transport = session, session.topology, source, transport
        self.name, self.clock = self.topology.lab.name, session.clock
        self.hosts = Elements(Host, self, (host.name for host in self.topology.hosts))
        self.switches = Elements(Switch, self, (switch.name for switch in self.topology.switches))
        self.links = Elements(Link, self, self.topology.links)
        self.job: Job | None = None
        #: The results of the jobs that have ended.
        self.results: list[Result] = []
        self._idle = _Idle(session)
        #: Jobs of which the hosts have not been told that they are over.
        self._open_jobs: dict[str, WorkloadRun] = {}
        stack.callback(_forget, session, self._open_jobs)
        # A script that forgets to close, or dies by an exception, leaves no lab behind.
        self._finalizer = weakref.finalize(self, stack.close)

    @interruption.between_steps()
    def close(self) -> None:
        """Take the lab down if this object brought it up; a job that still runs is given up."""
        self.job = None
        self._finalizer()

    def check_open(self) -> None:
        """Check that the lab is there. Raises UsageError after `close`."""
        if not self._finalizer.alive:
            raise UsageError(f"lab '{self.name}' is closed; what needs it belongs into its `with` block")

    @property
    def session(self) -> Session:
        """The lab as the rest of mrclab sees it. Raises UsageError after `close`."""
        self.check_open()
        return self._session

    def __repr__(self) -> str:
        if not hasattr(self, "_finalizer"):
            return "<Lab that could not be opened>"
        return f"<Lab {self.name}, {self.clock} clock{'' if self._finalizer.alive else ', closed'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def now(self) -> float:
        """The time of the lab's clock in seconds."""
        return self.session.now_ns() / 1e9

    @property
    def broken(self) -> list[str]:
        """The elements with a failure in force."""
        return sorted({cause.target for cause in self.causes()})

    def causes(self) -> Sequence[Action]:
        """Return the failures in force, also those of other processes."""
        if self.clock == "real":
            self.session.failures.reload()
        return self.session.failures.causes

    @property
    def _loop(self) -> Loop:
        """The loop that lets time pass: that of the job, or of a lab without one."""
        self.check_open()
        return self._idle.loop if self.job is None or self.job.done else self.job._run.loop

    @interruption.between_steps()
    def advance(self, duration: Time) -> None:
        """Let time pass: simulate it, or wait. Scheduled actions are done, and a running job goes on.

        Raises:
            FailureError: a scheduled action could not be done; those of a job are in its result.
        """
        self.check_open()
        seconds = _seconds(duration)
        if not seconds:
            return
        if self.job is not None and not self.job.done:
            until = self.now + seconds
            self.job._run.proceed(self._loop.elapsed_s + seconds)
            seconds = until - self.now
        if seconds > LEAST_TURN_S:
            if self.job is not None:  # it is over
                _move_schedule(self.job._run.loop, self._idle.loop)
            self._idle.loop.go(self._idle, self._idle.loop.elapsed_s + seconds)
            if self._idle.failures:
                text = "; ".join(self._idle.failures)
                self._idle.failures.clear()
                raise FailureError(text)

    def fail(self, target: str, kind: str = "", *, direction: Direction = "both", **settings: Any) -> Failure:
        """Break a link, a NIC port (h3:2) or a switch.

        Args:
            kind: as of `mrclab fail`; by default link_down, port_down or stop.
            direction: both, up (away from the host) or down.
            settings: of the failure, such as loss=0.1 or delay="2ms".

        Raises:
            FailureError, UnknownElement: there is no such element, or it cannot fail like this.
        """
        return Failure(self, self._act(_failure(target, kind, direction, settings)))

    def restore(self, target: str | None = None, kind: str = "") -> None:
        """Undo the failures of an element (of this kind), or all that are in force.

        Raises:
            FailureError: that element has no such failure.
        """
        for name in [target] if target is not None else self.broken:
            self._act(Action("restore", name, kind))

    def at(
        self,
        time: Time,
        target: str,
        kind: str = "",
        *,
        lasts: Time | None = None,
        direction: Direction = "both",
        **settings: Any,
    ) -> None:
        """Schedule a failure so long after now, and its end if it `lasts`. Arguments and errors as of `fail`."""
        action = self.session.failures.check(_failure(target, kind, direction, settings))
        begin_s = self._loop.elapsed_s + _seconds(time)
        lasts_s = None if lasts is None else _seconds(lasts)
        self._loop.add(begin_s, action)
        if lasts_s is not None:
            self._loop.add(begin_s + lasts_s, Action("restore", target, action.kind))

    @interruption.between_steps()
    def _act(self, action: Action) -> Action:
        """Do an action now; a job that runs records it."""
        checked = self.session.failures.check(action)
        self._loop.click(checked)
        return checked

    @interruption.between_steps()
    def start(
        self,
        workload: str,
        *,
        duration: Time | None = None,
        hosts: Sequence[str] | None = None,
        expect: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Job:
        """Start a workload, which runs until it is stopped, for a duration, or for `iterations`.

        Args:
            hosts: its ranks; all hosts of the lab by default.
            expect: further checks of the result, as of experiments, such as {"recovery": "1s"}.
            params: parameters of the workload, such as size="4MiB"; and `qps_per_peer`, `ev_profile`, `cc_profile`, and
                `limit`: a job of `iterations` fails after this time, 120 s by default.

        Raises:
            ExperimentError: there is no such workload, or a parameter is wrong.
            JobError: another job runs.
        """
        if self.job is not None:
            raise JobError(f"{self.job.workload} still runs on lab '{self.name}'; stop it before another is started")
        job = Job(self, _experiment(self, workload, duration, hosts, expect or {}, params))
        self._open_jobs[job._run.job] = job._run
        _move_schedule(self._idle.loop, job._run.loop)
        self.job = job
        return job

    def run(self, workload: str, **options: Any) -> Result:
        """Run a workload to its end, and return its result. Arguments and errors as of `start`."""
        if "duration" not in options and "iterations" not in options:
            raise JobError(f"{workload} has neither duration nor iterations: give one, or use start() and stop()")
        return self.start(workload, **options).wait()

    def _repr_html_(self) -> str:
        shape = f"{len(self.hosts)} hosts, {len(self.switches)} switches, {len(self.links)} links"
        if self._finalizer.alive:
            rows = {"clock": f"{self.clock}, {self.now:.3f} s", "broken": ", ".join(self.broken) or "nothing"}
        else:
            rows = {"clock": f"{self.clock}, closed"}
        return table(f"Lab {self.name}: {shape}", rows)


@dataclass
class _Idle:
    """Turns of a lab without a job, and the record of what is done to it."""

    session: Session
    happenings: list[LabEvent] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = Loop(self.session, (), self, POLL_S, bool)
        self.loop.begin(self.session.now_ns())

    def spend(self, seconds: float) -> None:
        """Let time pass."""
        self.session.advance(seconds)

    def over(self) -> bool:
        """Return False: the loop ends with its time."""
        return False


class Job:
    """A workload that runs on a lab, with what it has done so far."""

    def __init__(self, lab: Lab, experiment: experiments.Experiment) -> None:
        self.lab, self.workload = lab, experiment.workload.name
        self._experiment = experiment
        self._run = WorkloadRun(lab.session, experiment.workload.spec())
        self._result: Result | None = None
        self._run.begin()

    def __repr__(self) -> str:
        return f"<Job {self.workload} on {self.lab.name}, {self.iterations} iterations{', done' if self.done else ''}>"

    @property
    def done(self) -> bool:
        """Whether all ranks have ended, or cannot go on."""
        return self._run.is_over

    @property
    def iterations(self) -> int:
        """The iterations that every rank has done."""
        return self._run.result.achieved().least_iterations

    @property
    def counters(self) -> Mapping[str, int]:
        """Sums over all hosts up to now, such as retransmissions, trims and packets."""
        return self._run.result.totals()

    @property
    def delivered_bytes(self) -> int:
        """The payload that responders have placed up to now."""
        return self._run.result.delivered_bytes()

    @interruption.between_steps()
    def wait(self) -> Result:
        """Let time pass until the job has ended by itself. Raises JobError if nothing bounds it."""
        workload = self._experiment.workload
        if workload.duration == ENDLESS_S and "iterations" not in workload.params:
            raise JobError(f"{self.workload} has neither duration nor iterations: give one to start(), or use stop()")
        if self._result is None:
            self.lab.check_open()
            self._run.proceed()
        return self._finish()

    @interruption.between_steps()
    def stop(self) -> Result:
        """Let all ranks end after the same iteration, and return the result; again, return the same."""
        if self._result is None:
            self.lab.check_open()
            self._run.stop()
            self._run.proceed()
        return self._finish()

    def _finish(self) -> Result:
        if self._result is None:
            # What is scheduled for later comes then, and not at once as at the end of an experiment.
            _move_schedule(self._run.loop, self.lab._idle.loop)
            found = self._run.end(when_over=True)
            self.lab.job = None
            del self.lab._open_jobs[self._run.job]
            execute.complete(self.lab.session, found, self._experiment)
            self._result = Result(found, self.lab.topology, self._experiment.expect)
            self.lab.results.append(self._result)
        return self._result


class Frames(abc.ABC):
    """Something with columns, which are frames of pandas, Arrow or Polars where these are installed."""

    @abc.abstractmethod
    def frame(self, what: str) -> dict[str, list[Any]]:
        """Return columns of equal length."""

    def to_pandas(self, *what: str) -> pandas.DataFrame:
        """Return a frame of pandas, which must be installed; see `frame`."""
        return _package("pandas").DataFrame(self.frame(*what))

    def to_arrow(self, *what: str) -> pyarrow.Table:
        """Return a table of Arrow, which must be installed; see `frame`."""
        return _package("pyarrow").table(self.frame(*what))

    def to_polars(self, *what: str) -> polars.DataFrame:
        """Return a frame of Polars, which must be installed; see `frame`."""
        return _package("polars").DataFrame(self.frame(*what))


class Result(Frames):
    """The result of a job: verdict, figures, curves and report.

    `run` is the whole record (`mrclab.results.record.RunResult`), as `result.json` has it.
    """

    def __init__(self, run: RunResult, topology: Topology, expect: Expectation) -> None:
        self.run, self.topology = run, topology
        self.readings = run.readings()
        self.verdict = verdict.judge(run, topology, expect)

    def __repr__(self) -> str:
        missed = [f"{each.what} is {each.measured}, not {each.expected}" for each in self.verdict.missed]
        outcome = ": ".join([self.verdict.status, *(["; ".join(missed)] if missed else [])])
        return f"<Result of {self.run.workload} on {self.run.lab}, {self.goodput / 1e6:.1f} Mbit/s, {outcome}>"

    @property
    def passed(self) -> bool:
        """Whether all checks were met: data right, no queue pair in error, books balanced, and what was expected."""
        return self.verdict.passed

    @property
    def checks(self) -> list[Check]:
        """The checks of the verdict."""
        return list(self.verdict.checks)

    @property
    def seconds(self) -> float:
        """The time that ranks worked."""
        return self.run.busy_s

    @property
    def goodput(self) -> float:
        """The mean goodput of all ranks together over `seconds`, in bit/s."""
        return self.readings.mean_bps

    @property
    def totals(self) -> Mapping[str, int]:
        """Sums over all hosts, such as retransmissions, trims and packets."""
        return self.readings.totals

    @property
    def program_counters(self) -> Mapping[str, int]:
        """What the switches' P4 program counted in the run, such as trimmed, marked and drop_no_route."""
        return self.run.program_counters or {}

    def recovery(self, target: str) -> float | None:
        """Return how long goodput took to be back after the first failure of an element, in seconds; None if it never
        was.

        Raises:
            UsageError: no failure of it was measured: there was none, or too little time (0.3 s) around it.
        """
        failed = [each for each in self.run.happenings if each.fails and each.action.target == target]
        times = [self.run.since_start(each.done_ns) for each in failed]
        found = [each for each in self.verdict.recoveries if times and math.isclose(each.at_s, times[0])]
        if not found:
            why = "it failed too close to another event or the end" if times else "it did not fail in this job"
            raise UsageError(f"no recovery of {target} was measured: {why}")
        return found[0].recovery_s

    def frame(self, what: str = "goodput") -> dict[str, list[Any]]:
        """Return columns of equal length: `goodput` (bit/s from `t_s` on, until the next row or `seconds`), the hosts'
        `samples` (counters since the lab came up), the `events`, the `flows` (`performance.FLOWS`), or the
        `reordering` of packets (`reordering.COLUMNS`). `t_s` counts from the start of the job."""
        if what == "goodput":
            edges = self.readings.edges[:-1]
            return {"t_s": edges.tolist(), "goodput_bps": self.readings.goodput_bps.tolist()}
        if what == "samples":
            return _samples(self.run)
        if what == "events":
            happened = self.run.happenings
            return {
                "t_s": [self.run.since_start(each.done_ns) for each in happened],
                "what": [each.action.describe() for each in happened],
                "error": [each.error for each in happened],
            }
        if what == "flows":
            flows = performance.of(self.run).flows
            return {name: [getattr(each, name) for each in flows] for name in performance.FLOWS}
        if what == "reordering":
            late = reordering.rows(self.run, self.topology)
            return {name: [getattr(each, name) for each in late] for name in reordering.COLUMNS}
        raise UsageError(f"no frame '{what}'; there are goodput, samples, events, flows and reordering")

    def report(self, path: str | Path) -> None:
        """Write the report, one HTML file. Raises WriteError if it cannot be written."""
        title = f"{self.run.workload} on {self.run.lab}"
        write_whole(path, report.render(self.run, self.topology, self.verdict, title))

    def _repr_html_(self) -> str:
        figures = report.figures(self.run, self.topology, self.readings, self.verdict)
        return table(report.headline(self.readings, self.verdict), {each.what: each.value for each in figures})


#: The duration of a job that is bounded by nothing but `Job.stop`.
ENDLESS_S = 1e6


def _forget(session: Session, jobs: Mapping[str, WorkloadRun]) -> None:
    """Have the hosts of a lab forget jobs that were given up: on a lab that stays up they would go on for ever."""
    for job, run in jobs.items():
        for name in run.result.ranks:
            with contextlib.suppress(*LOST):
                session.hosts[name].ask(FinishJob(job))


def _move_schedule(source: Loop, to: Loop) -> None:
    """Move what a loop has still to do to another one, at the same times."""
    later_s = to.elapsed_s - source.elapsed_s
    while source.waiting and math.isfinite(later_s):
        at_s, action = source.waiting.pop(0)
        to.add(at_s + later_s, action)


def _package(name: str) -> Any:
    """Return a package that is optional. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed: pip install {name}") from None


def _seconds(time: Time) -> float:
    """Return a time in seconds. Raises UsageError if it is none, or negative."""
    try:
        seconds = parse_seconds(time)
    except ValueError as error:
        raise UsageError(f"{time!r} is no time: {error}") from None
    if not 0 <= seconds <= ENDLESS_S:
        raise UsageError(f"a time is from 0 to {ENDLESS_S:.0f} s, not {time!r}")
    return seconds


def _failure(target: str, kind: str, direction: Direction, settings: Mapping[str, Any]) -> Action:
    try:
        return Action("fail", target, kind, direction, with_quantities(settings))
    except ValueError as error:
        raise FailureError(f"{target}: {error}") from None


def _experiment(
    lab: Lab,
    workload: str,
    duration: Time | None,
    hosts: Sequence[str] | None,
    expect: Mapping[str, Any],
    params: Mapping[str, Any],
) -> experiments.Experiment:
    """Return the experiment of a job. Raises ExperimentError."""
    if isinstance(hosts, str):
        raise JobError(f"hosts is a list of names, such as {hosts.split(',')}")
    if workload in WORKLOADS:
        params = experiments.placed_params(workload, params, Path.cwd())
    own = {key: value for key, value in params.items() if key in ("qps_per_peer", "ev_profile", "cc_profile", "limit")}
    given = {key: value for key, value in params.items() if key not in own}
    bounded = duration is not None or "iterations" in given
    document = {"name": workload, "params": given, **own} | ({} if hosts is None else {"hosts": list(hosts)})
    if not bounded or duration is not None:
        document["duration"] = ENDLESS_S if duration is None else duration
    whole = {"name": "script", "title": f"{workload} on {lab.name}", "lab": lab._source[:4096], "clock": lab.clock}
    whole["transport"] = lab.transport
    if "localised" in expect:
        raise JobError("localised needs the hosts' findings after each failure, which experiments note: mrclab run")
    text = json.dumps({**whole, "expect": dict(expect), "workload": document}, default=str, indent=1)
    where = f"start({workload!r})"
    found = experiments.parse(experiments.Experiment, text, where, experiments.EXAMPLE)
    precheck.check_workload(found.workload, lab.topology, lab.transport, found.profiles, where)
    return found


@contextlib.contextmanager
def _file_of(source: Any, keys: Mapping[str, Any], unnamed: str) -> Iterator[str]:
    """Yield the path or name of a lab file that says what `Lab` was given; `unnamed`: the name without another."""
    if isinstance(source, str | Path) and not keys:
        yield str(source)
        return
    document: dict[str, Any] = {"name": unnamed}
    if isinstance(source, str | Path):
        text, topology = read_lab(source)
        sessions.print_warnings(str(source), topology.notes)
        loaded = yaml.safe_load(text)
        document |= _absolute(loaded, lab_path(source).absolute().parent)
    elif isinstance(source, Mapping):
        keys = {**source, **keys}
    elif source is not None:
        document["topology"] = _graph(source, keys)
    with sessions.lab_file(document | _absolute(keys, Path.cwd())) as name:
        yield name


def _absolute(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return keys of a lab file with absolute paths of programs and policies, which were relative to a folder."""
    found = dict(document)
    if isinstance(program := found.get("program"), str | Path):
        found["program"] = str(folder / program)
    if isinstance(policies := found.get("policies"), Mapping):
        found["policies"] = {kind: policy_of(policy, folder) for kind, policy in policies.items()}
    return found


def policy_of(policy: object, folder: Path) -> object:
    """Return a policy as a lab file names it. Raises UsageError for a class that only this script has."""
    if isinstance(policy, type):
        if policy.__module__ == "__main__":
            raise UsageError(
                f"{policy.__name__} is a class of the script itself, which hosts would run again: put it into a module"
            )
        return f"{inspect.getfile(policy)}:{policy.__qualname__}"
    return policy_class(policy, folder) if isinstance(policy, str) else policy


def _graph(graph: Any, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `topology` of a networkx graph, or of a Topo of Mininet, in a lab with these keys; attributes
    of edges are keys of the link, such as rate."""
    if mininet_topo.is_topo(graph):
        name = graph.__name__ if isinstance(graph, type) else type(graph).__name__
        read = mininet_topo.of_topo(graph, name, keys)
        sessions.print_warnings(name, read.notes)
        return dict(read.data["topology"])
    if not hasattr(graph, "nodes"):
        raise UsageError(f"a lab is a name, a file, keys, a networkx graph or a Topo, not {type(graph).__name__}")
    kinds = {str(node): data.get("kind", "switch") for node, data in graph.nodes(data=True)}
    if "host" not in kinds.values():
        raise UsageError("the graph has no hosts: give their nodes the attribute kind='host'")
    return {
        "kind": "graph",
        "switches": [name for name, kind in kinds.items() if kind != "host"],
        "hosts": [name for name, kind in kinds.items() if kind == "host"],
        "links": [{"ends": [str(one), str(other)], **data} for one, other, data in graph.edges(data=True)],
    }


def _samples(run: RunResult) -> dict[str, list[Any]]:
    """Return the series of all hosts as columns, with None where a host has no such column."""
    names = list(dict.fromkeys(name for series in run.samples.values() for name in series.columns if name != TIME))
    columns: dict[str, list[Any]] = {name: [] for name in ("host", "t_s", *names)}
    for host, series in run.samples.items():
        own = list(series.columns)
        values = dict(zip(own, series.take(own), strict=True))
        columns["host"] += [host] * len(series)
        columns["t_s"] += ((values[TIME] - run.started_ns) / 1e9).tolist()
        for name in names:
            columns[name] += values[name].tolist() if name in values else [None] * len(series)
    return columns


def table(title: str, rows: Mapping[str, str]) -> str:
    """Return a table of two columns with a caption as HTML."""
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"
