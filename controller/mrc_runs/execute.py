"""Runs an experiment on either clock, from lab to verdict."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from mrc_host.requests import CreateProfile, DeleteProfile, ProfileKind, ProfileState, SetProfileState
from mrc_lab import describe, lifecycle
from mrc_lab import policies as own
from mrc_lab.faults import kinds
from mrc_lab.faults.action import FailureError
from mrc_lab.faults.ledger import UnsettledError
from mrc_lab.hosts.hostclient import HostControl, HostError
from mrc_lab.machines import lifecycle as machines
from mrc_lab.machines.session import session_of
from mrc_lab.management import clustermapper, localiser
from mrc_lab.management.clustermapper import Localiser
from mrc_lab.processes.exits import several
from mrc_lab.processes.process import Process
from mrc_lab.records.rundir import LabDied, RunDir, RunError
from mrc_lab.requested import RequestedLab
from mrc_lab.session.base import Session
from mrc_lab.session.virtual import VirtualSession
from mrc_lab.switches import mapping
from mrc_results import provenance, resultdir, verdict
from mrc_results.record import RunResult
from mrc_results.recording import Recording
from mrc_results.verdict import Verdict
from mrc_runs import precheck
from mrc_runs.endings import LOST, is_silence
from mrc_runs.experiment import Experiment, ExperimentError, Tree
from mrc_runs.interruption import Interrupted, interruptible
from mrc_runs.live import LiveView
from mrc_runs.runner import Observer, Watcher, WorkloadRun
from mrc_runs.workload import WorkloadSpec
from mrc_topo.labfile import load_lab
from mrc_topo.schema import PoliciesSpec
from mrc_topo.topology import Topology, UnknownElement

#: How long the hosts' probes have, after a run on the real clock, to say what is broken; it is hardly ever needed.
FINDINGS_S = 30.0
LOOK_S = 0.2


class View(Watcher, Protocol):
    """A live view of experiments, one after another."""

    def begin(self, session: Session, experiment: Experiment, interrupted: Callable[[], object]) -> None:
        """Begin a run on this session."""

    def end(self, judged: Verdict) -> None:
        """End the run; its session is closed."""


@dataclass(frozen=True)
class Outcome:
    """A finished experiment."""

    experiment: Experiment
    topology: Topology
    result: RunResult
    verdict: Verdict
    folder: pathlib.Path
    #: The signal that came meanwhile (0: none).
    signal: int = 0


@contextlib.contextmanager
def session_for(
    lab: str,
    clock: str,
    transport: str,
    progress: Callable[[str], None] = lambda text: None,
    switch: str | None = None,
    compiler: str | None = None,
    policies: PoliciesSpec | None = None,
    *,
    trust_code: bool = False,
) -> Iterator[Session]:
    """Yield a session on a lab: a virtual one is built here; a real one is used if it is up, else brought up and down
    again.
    `switch`, `compiler` and `policies` are instead of the lab file's; `trust_code`: policies may run on the real clock.

    Raises:
        RunError: the lab that is up has another transport, switch or compiler; a part for these is missing; policies
            may not run there.
        ConfigError: a policy cannot be loaded.
        NamespaceError: there can be no real-clock lab here.
    """
    wanted = RequestedLab.of(
        lab, transport, switch=switch, compiler=compiler, policies=policies, trust_code=trust_code, clock=clock
    )
    with session_on(wanted, clock, progress) as session:
        yield session


@contextlib.contextmanager
def session_on(
    wanted: RequestedLab, clock: str, progress: Callable[[str], None] = lambda text: None, cores: int = 1
) -> Iterator[Session]:
    """As `session_for`, of a lab that was checked (`RequestedLab.of` with a clock).

    Args:
        cores: how many cores a simulation may use.
    """
    lab, topology, transport = wanted.lab, wanted.topology, wanted.transport
    for text in describe.warnings(topology, clock, transport):
        print(f"warning: {lab}: {text}", file=sys.stderr, flush=True)
    if clock == "virtual":
        progress("building the simulation")
        session: Session = VirtualSession(topology, transport, cores)
        _tell_lacking(lab, session)
        try:
            yield session
        finally:
            session.close()
        return
    run = RunDir(topology.lab.name)
    ours = not run.exists() or run.is_dead()
    if ours:
        machines.bring_up(wanted, progress)
    else:
        check_usable(run, transport=transport, switch=wanted.switch, compiler=wanted.compiler)
        if not own.same(topology, load_lab(run.lab_file)):
            raise RunError(f"lab '{run.name}' is up with other policies; `mrclab down {run.name}` first")
    first = None
    try:
        session = session_of(topology.lab.name, fresh=ours)
        first = session.first
        _tell_lacking(lab, session)
        try:
            yield session
        finally:
            try:
                session.failures.restore_own(session)
            except (*LOST, UnsettledError) as error:
                # What cannot be restored because something is dead or frozen goes with the lab, or stays noted.
                if not session.deaths() and not session.frozen() and not is_silence(error):
                    raise
            session.close()
    finally:
        if ours:
            _down(run, first)


def _tell_lacking(lab: str, session: Session) -> None:
    """Print to stderr what a program of the lab's own does not implement, a line each."""
    if session.topology.lab.program is not None:
        program = session.program
        for text in mapping.lacking(session.topology, program.names):
            print(f"note: {lab}: {program.path}: {text}", file=sys.stderr, flush=True)


def check_usable(run: RunDir, **wanted: str | None) -> None:
    """Raise RunError when a lab that is up cannot carry a run: where it is other than wanted (None: as it is)."""
    state = run.read()
    for what, value in wanted.items():
        found = getattr(state, what)
        if value is not None and found != value:
            raise RunError(f"lab '{run.name}' is up with {what} {found}; `mrclab down {run.name}` first")
    dead = [death for death in state.record.deaths if death.role not in state.record.hosts]
    if dead:
        raise RunError(f"lab '{run.name}' is damaged: {several(dead, ', ')}; `mrclab down {run.name}` first")


def _down(run: RunDir, first: Process | None) -> None:
    """Take the lab with this first process down, unless another process already does."""
    with contextlib.suppress(RunError):
        if first is None or run.read().first == first:
            lifecycle.down(run.name)


def wanted_by(experiment: Experiment, *, trust_code: bool = False, clock: str | None = None) -> RequestedLab:
    """Return an experiment's lab, with what the experiment chooses itself; checked with a `clock` (`RequestedLab.of`).

    Raises:
        LabError: there is no such lab.
    """
    return RequestedLab.of(
        experiment.lab,
        experiment.transport,
        switch=experiment.switch,
        compiler=experiment.compiler,
        policies=experiment.policies,
        trust_code=trust_code,
        clock=clock,
    )


def check(experiment: Experiment, topology: Topology) -> None:
    """Check every step against the lab before anything runs.

    Raises:
        ExperimentError: a workload that cannot run there, or a step that cannot be done.
    """
    where = f"experiment {experiment.name}"
    precheck.check_policies(topology, where)
    precheck.check_workload(experiment.workload, topology, experiment.transport, experiment.profiles, where)
    for _, action in experiment.actions():
        try:
            kinds.check(topology, action)
        except (UnknownElement, FailureError) as error:
            raise ExperimentError(f"experiment {experiment.name}: {action.describe()}: {error}") from error


def run_on(
    session: Session,
    experiment: Experiment,
    observe: Observer | None = None,
    recording: Recording | None = None,
    interrupted: Callable[[], object] = bool,
    watcher: Watcher | None = None,
) -> RunResult:
    """Run an experiment's workload and schedule on a session, with the hosts' own findings after every failure."""

    finder = localiser.load(session.topology.lab.policies.localiser)

    def watch(result: RunResult) -> None:
        _note_findings(session, result, finder)
        if observe is not None:
            observe(result)

    run = WorkloadRun(session, experiment.workload.spec(), experiment.actions(), watch, recording, interrupted, watcher)
    try:
        with _profiles(session, experiment):
            result = run.go()
            if experiment.expect.localised and not result.failures:
                _await_findings(session, result, finder, interrupted)
            return result
    except LOST as error:
        return run.cut_short(error)


@contextlib.contextmanager
def _profiles(session: Session, experiment: Experiment) -> Iterator[None]:
    """Yield the experiment's profiles, ONLINE at every host for as long as the context lasts."""
    made: list[tuple[HostControl, ProfileKind, str]] = []
    try:
        for host in session.hosts.values():
            for profile in experiment.profiles:
                kind, name = ProfileKind(profile.kind), profile.name
                host.ask(CreateProfile(kind, name, profile.settings))
                made.append((host, kind, name))
                for state in (ProfileState.OFFLINE, ProfileState.ONLINE):
                    host.ask(SetProfileState(kind, name, state))
        yield
    finally:
        for host, kind, name in reversed(made):
            with contextlib.suppress(HostError):  # a host that died in the run
                for state in (ProfileState.OFFLINE, ProfileState.INIT):
                    host.ask(SetProfileState(kind, name, state))
                host.ask(DeleteProfile(kind, name))


def _note_findings(session: Session, result: RunResult, finder: Localiser) -> None:
    """Note what the hosts' probes find broken beside the latest event, until the next one."""
    if not result.happenings:
        return
    latest = result.happenings[-1]
    found = clustermapper.view_of(session.topology, session.hosts, finder)
    latest.localised = sorted(found)


def _await_findings(session: Session, result: RunResult, finder: Localiser, interrupted: Callable[[], object]) -> None:
    """Wait on the real clock until the hosts name what is broken: on a busy machine their probes come back late."""
    if session.clock != "real" or not result.happenings:
        return
    latest, until = result.happenings[-1], session.now_ns() + round(FINDINGS_S * 1e9)
    with contextlib.suppress(Interrupted):  # the run is over: its verdict stands
        while latest.localised != latest.broken and session.now_ns() < until and not session.deaths():
            session.advance(LOOK_S)
            interrupted()
            _note_findings(session, result, finder)


def complete(session: Session, result: RunResult, experiment: Experiment) -> None:
    """Add to the result of a run that has ended what the session knows of it: counters, program and lab; and what
    `mrclab run --again` needs: the experiment as it was run, and its provenance. Where switches died or stand still,
    counters are empty."""
    try:
        result.program_counters, result.pauses = session.program_counters(), session.pauses()
        result.credits = session.stalls()
    except LOST as error:
        if not session.deaths() and not session.frozen() and not is_silence(error):
            raise
        result.program_counters, result.pauses, result.credits = {}, {}, {}
    program = session.program_document()
    result.program = program
    add_origin(result, session.topology, experiment.model_copy(update={"clock": session.clock}), program)


def add_origin(result: RunResult, topology: Topology, experiment: Experiment, program: Tree) -> None:
    """Add to a result where it comes from: `topology`, `experiment` and `provenance`."""
    asked = experiment.model_dump(mode="json")
    result.topology, result.experiment = topology.lab.model_dump(mode="json"), asked
    result.provenance = provenance.collect(topology.lab, asked, program)


def stillborn(topology: Topology, clock: str, spec: WorkloadSpec, failure: str, recording: Recording) -> RunResult:
    """Return the result of a run whose lab died before it could begin."""
    names = list(spec.hosts or (host.name for host in topology.hosts))
    lab = topology.lab
    made = RunResult(lab.name, clock, lab.seed, spec.workload, dict(spec.params), names, recording=recording)
    made.failures.append(failure)
    made.program_counters = {}
    return made


def execute(
    experiment: Experiment,
    clock: str | None = None,
    *,
    folder: pathlib.Path | None = None,
    live: bool = True,
    progress: Callable[[str], None] = lambda text: None,
    trust_code: bool = False,
    cores: int = 1,
    view: View | None = None,
    recorded: Experiment | None = None,
) -> Outcome:
    """Return an experiment from lab to report; result.json, verdict.json and report.html are in the outcome's folder.
    `cores`: what a simulation may use; the result is the same. `live`: with a live view in the terminal; `view`: with
    one in a browser. `recorded`: the experiment as the result shall name it, where its lab is in a temporary file.

    Raises:
        LabError, ExperimentError, FolderError: it cannot be run or its results not be kept; nothing was started.
        WriteError: a result could not be written.
    """
    clock = clock or experiment.clock
    recorded = (recorded or experiment).model_copy(update={"clock": clock})
    wanted = wanted_by(experiment, trust_code=trust_code, clock=clock)
    topology = wanted.topology
    check(experiment, topology)
    workload, claims = experiment.workload, experiment.claims()
    folder = folder or resultdir.default_folder(experiment.name, clock)
    hosts = len(workload.hosts or topology.hosts)
    with (
        interruptible() as interruption,
        resultdir.prepared(folder, hosts * (workload.duration or 0.0)),
        Recording(folder) as recording,
    ):
        result = program = None
        try:
            with session_on(wanted, clock, progress, cores) as session:
                progress("running")
                # From here on whatever comes is brought to its end: the run, the lab, the report.
                interruption.patient = True
                if view is not None:
                    view.begin(session, experiment, interruption.check)
                with LiveView(topology) if live else contextlib.nullcontext(None) as terminal:
                    result = run_on(session, experiment, terminal, recording, interruption.check, view)
                complete(session, result, recorded)
                program = None if session.topology.lab.program is None else session.program
        except (LabDied, Interrupted) as error:
            if result is None:
                result = stillborn(topology, clock, workload.spec(), str(error), recording)
                result.interrupted = error.name if isinstance(error, Interrupted) else ""
                add_origin(result, topology, recorded, {})
        judged = verdict.judge(result, topology, experiment.expect, claims)
        if view is not None:
            view.end(judged)
        resultdir.write(folder, result, topology, judged, experiment.title, recording)
        if program is not None:
            program.keep(folder / "program")
    return Outcome(experiment, topology, result, judged, folder, interruption.number)
