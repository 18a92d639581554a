"""Execution of an experiment on either clock, from lab to verdict, and the origin of its result."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from mrc_host.ctl_requests import CreateProfile, DeleteProfile, ProfileKind, ProfileState, SetProfileState
from mrc_topo.base import interruption
from mrc_topo.base.interruption import Interrupted, interruptible
from mrc_topo.shipped import shipped
from mrc_topo.topology import Topology
from mrclab.lab.hosts.hostclient import HostControl, HostError
from mrclab.lab.management import clustermapper, denylist
from mrclab.lab.management.clustermapper import Localiser
from mrclab.lab.records.rundir import LabDied
from mrclab.lab.session.base import Session
from mrclab.results import provenance, resultdir, verdict
from mrclab.results.check import Verdict
from mrclab.results.record import RunResult
from mrclab.results.recording import Recording
from mrclab.runs import precheck, sessions
from mrclab.runs.endings import LOST
from mrclab.runs.experiment import Experiment, Tree
from mrclab.runs.live import LiveView
from mrclab.runs.runner import Observer, Watcher, WorkloadRun
from mrclab.runs.workload import WorkloadSpec

#: Seconds that the hosts' probes have after a run to find the failures, and to see what works again, by clock: a busy
#: machine brings them back late; in simulated time ten probes of a target take far less.
FINDINGS_S = {"real": 30.0, "virtual": 2.0}
LOOK_S = 0.2


def run_on(
    session: Session,
    experiment: Experiment,
    observe: Observer | None = None,
    recording: Recording | None = None,
    interrupted: Callable[[], object] | None = None,
    watcher: Watcher | None = None,
) -> RunResult:
    """Run an experiment's workload and schedule on a session, with the hosts' own findings after every failure."""

    finder = denylist.load(session.topology.lab.policies.localiser)

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
        return run.partial_result(error)


@contextlib.contextmanager
def _profiles(session: Session, experiment: Experiment) -> Iterator[None]:
    """Keep the experiment's profiles ONLINE at every host for as long as the context lasts."""
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


def _await_findings(
    session: Session, result: RunResult, finder: Localiser, interrupted: Callable[[], object] | None
) -> None:
    """Wait until the hosts name what is broken, and no longer what works again: a run may end too soon after its last
    event for that."""
    if not result.happenings:
        return
    latest, until = result.happenings[-1], session.now_ns() + round(FINDINGS_S[session.clock] * 1e9)
    # The run is over, so that its verdict stands where the results of an interrupted run count.
    with contextlib.nullcontext() if interrupted is None else contextlib.suppress(Interrupted):
        while latest.localised != latest.broken and session.now_ns() < until and not session.deaths():
            session.advance(LOOK_S)
            (interrupted or interruption.check)()
            _note_findings(session, result, finder)


def complete(session: Session, result: RunResult, experiment: Experiment) -> None:
    """Add to the result of a run that has ended what the session knows of it: program and lab; and what
    `mrclab run --again` needs: the experiment as it was run, and its provenance. Where switches died or stand still,
    counters are empty."""
    for name in ("program_counters", "pauses", "credits"):
        if getattr(result, name) is None:
            setattr(result, name, {})
    program = session.program_document()
    result.program = program
    add_origin(result, session.topology, experiment.model_copy(update={"clock": session.clock}), program)


def add_origin(result: RunResult, topology: Topology, experiment: Experiment, program: Tree) -> None:
    """Add to a result where it comes from: `topology`, `experiment` and `provenance`."""
    asked = experiment.model_dump(mode="json")
    result.topology, result.experiment = topology.lab.model_dump(mode="json"), asked
    result.provenance = provenance.collect(topology.lab, asked, program)


def result_of_failed_start(
    topology: Topology, clock: str, spec: WorkloadSpec, failure: str, recording: Recording
) -> RunResult:
    """Return the result of a run whose lab died before it could begin."""
    names = list(spec.hosts or (host.name for host in topology.hosts))
    lab = topology.lab
    made = RunResult(lab.name, clock, lab.seed, spec.workload, dict(spec.params), names, recording=recording)
    made.failures.append(failure)
    made.program_counters = {}
    return made


class ExperimentView(Watcher, Protocol):
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


def execute(
    experiment: Experiment,
    clock: str | None = None,
    *,
    folder: pathlib.Path | None = None,
    live: bool = True,
    progress: Callable[[str], None] = lambda text: None,
    trust_code: bool = False,
    view: ExperimentView | None = None,
    recorded: Experiment | None = None,
) -> Outcome:
    """Run an experiment from lab to report; result.json, verdict.json and report.html are in the outcome's folder.

    `live`: with a live view in the terminal; `view`: with
    one in a browser. `recorded`: the experiment as the result shall name it, where its lab is in a temporary file.

    Raises:
        LabError, ExperimentError, FolderError: it cannot be run or its results not be kept; nothing was started.
        WriteError: a result could not be written.
    """
    clock = clock or experiment.clock
    recorded = (recorded or experiment).model_copy(update={"clock": clock})
    wanted = precheck.requested_lab(experiment, trust_code=trust_code, clock=clock)
    topology = wanted.topology
    precheck.check(experiment, topology)
    precheck.print_notes(experiment.workload)
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
            with sessions.session_for(wanted, progress) as session:
                progress("running")
                if view is not None:
                    view.begin(session, experiment, interruption.check)
                with LiveView(topology, workload.spec()) if live else contextlib.nullcontext(None) as terminal:
                    result = run_on(session, experiment, terminal, recording, interruption.check, view)
                complete(session, result, recorded)
                program = None if session.topology.lab.program is None else session.program
        except (LabDied, Interrupted) as error:
            if result is None:
                result = result_of_failed_start(topology, clock, workload.spec(), str(error), recording)
                result.interrupted = error.name if isinstance(error, Interrupted) else ""
                add_origin(result, topology, recorded, {})
        judged = verdict.judge(result, topology, experiment.expect, claims)
        if view is not None:
            view.end(judged)
        resultdir.write(folder, result, topology, judged, experiment.title, recording)
        if program is not None:
            program.keep(folder / "program")
    return Outcome(experiment, topology, result, judged, folder, interruption.number)


#: The packages on whose sources a run's result depends. Those above them start runs and change no result.
PACKAGES = ("p4lite", "mrc_topo", "mrc_host", "mrclab.lab", "mrclab.results", "mrclab.runs")


@cache
def software(*own: pathlib.Path) -> str:
    """Return a hash of all programs that a result depends on: their sources, and `own`, which reduce it."""
    digest = hashlib.sha256()
    roots = [pathlib.Path(str(importlib.import_module(each).__file__)).parent for each in PACKAGES]
    for root in (*roots, shipped("programs")):
        for path in sorted(root.rglob("*")):
            parts = path.relative_to(root.parent).parts
            if path.suffix in (".py", ".c", ".h", ".p4") and "__compiled__" not in parts:
                digest.update("/".join(parts).encode() + b"\0" + path.read_bytes())
    for path in own:
        digest.update(path.read_bytes())
    return digest.hexdigest()
