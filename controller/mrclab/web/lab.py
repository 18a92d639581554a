"""The live view of a lab that is up: watches it, runs workloads on it, and waits for it when it is gone; and of a
simulation that it runs itself.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from mrc_topo.labfile import load_lab
from mrclab.lab.management.denylist import DenylistError
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import Session
from mrclab.lab.session.real import RealSession
from mrclab.lab.spread import session_of
from mrclab.results import resultdir, verdict
from mrclab.results.recording import Recording
from mrclab.runs import execute, precheck, sessions
from mrclab.runs.endings import LOST
from mrclab.runs.experiment import Experiment, ExperimentError
from mrclab.runs.precheck import requested_lab
from mrclab.web.hub import Hub
from mrclab.web.view import View

POLL_S = 0.2
#: The interval at which a missing lab is looked for.
AGAIN_S = 1.0


class Pending:
    """The experiment or workload that a page has asked to run next."""

    def __init__(self) -> None:
        self.experiment: Experiment | None = None

    def take(self) -> Experiment | None:
        """Return the pending experiment, once."""
        found, self.experiment = self.experiment, None
        return found


def perform(
    view: View, session: Session, experiment: Experiment, folder: pathlib.Path | None, interrupted: Callable[[], object]
) -> None:
    """Run an experiment on the session that a view shows, and judge it. With a folder, keep its results as `mrclab run`
    does. Pages show why a run broke off, or that the denylist refused it."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        _perform(view, session, experiment, folder, interrupted)
    except (*LOST, DenylistError) as error:
        view.broke_off(str(error))


def _perform(
    view: View, session: Session, experiment: Experiment, folder: pathlib.Path | None, interrupted: Callable[[], object]
) -> None:
    with Recording(folder) as recording:
        view.begin(session, experiment, interrupted)
        result = execute.run_on(session, experiment, None, recording, interrupted, view)
        execute.complete(session, result, experiment)
        judged = verdict.judge(result, session.topology, experiment.expect, experiment.claims())
        view.finished(result, judged)
        if folder is not None:
            resultdir.write(folder, result, session.topology, judged, experiment.title, recording)
            view.hub.log.add(0, "note", f"results: {folder}")


def folder_of(experiment: Experiment, experiments: list[str], clock: str) -> pathlib.Path | None:
    """Return the folder for the results of an experiment that comes with mrclab; None for a page's workload."""
    return resultdir.default_folder(experiment.name, clock) if experiment.name in experiments else None


class LabView:
    """A lab by its name; `go` shows it until it is interrupted."""

    def __init__(self, hub: Hub, name: str, find: Callable[[str], Experiment], experiments: list[str]) -> None:
        self.hub = hub
        self.name = name
        self.pending = Pending()
        self.view = View(hub, start=self._start, find=find, experiments=experiments)

    def _start(self, experiment: Experiment) -> None:
        session = self.view.session
        assert isinstance(session, RealSession)
        if experiment.clock != "real" and experiment.name in self.view.experiments:
            experiment = experiment.model_copy(update={"clock": "real"})
        lab = load_lab(experiment.lab).lab.name
        if lab != session.topology.lab.name:
            raise ExperimentError(
                f"experiment {experiment.name} is of lab {lab}; this is {session.topology.lab.name}: "
                f"`mrclab up {lab}` and look at that, or `mrclab web --clock virtual`"
            )
        sessions.check_usable(session.run, transport=experiment.transport)
        precheck.check(experiment, session.topology)
        self.pending.experiment = experiment

    def go(self, interrupted: Callable[[], object]) -> None:
        """Show the lab; end with the exception that `interrupted` raises."""
        self.view.interrupted = interrupted
        self.view.wanted = lambda: self.pending.experiment is not None
        while True:
            interrupted()
            try:
                session = session_of(self.name)
            except RunError as error:
                self._lost(str(error))
                continue
            try:
                self.view.lab = RunDir(self.name).read().lab_file
                self.view.show(session, session.state.transport)
                self._watch(session, interrupted)
            finally:
                self.view.leave()
                session.close()

    def _watch(self, session: RealSession, interrupted: Callable[[], object]) -> None:
        while session.first.alive():
            interrupted()
            self.view.advance(POLL_S)
            experiment = self.pending.take()
            if experiment is not None:
                folder = folder_of(experiment, self.view.experiments, "real")
                perform(self.view, session, experiment, folder, interrupted)
        self._lost("the lab is gone")

    def _lost(self, problem: str) -> None:
        """Report that the lab is lost; pages keep showing its last state."""
        state = self.hub.state
        if state is not None and state["phase"] != "lost":
            self.hub.publish({**state, "phase": "lost", "problem": problem})
        self.hub.refuse_all(problem)
        self.hub.wait(AGAIN_S)


SIMULATION_POLL_S = 0.1


class SimulationView:
    """A simulation of a lab (by name or path); `go` runs it until it is interrupted.

    Args:
        first: the experiment that runs at once.
        once: whether the simulation ends with it.
    """

    def __init__(
        self,
        hub: Hub,
        lab: str,
        transport: str,
        find: Callable[[str], Experiment],
        experiments: list[str],
        *,
        speed: float = 1.0,
        paused: bool = False,
        first: Experiment | None = None,
    ) -> None:
        self.lab = lab
        self.transport = transport
        self.pending = Pending()
        self.pending.experiment = first
        self.view = View(hub, speed=speed, start=self._start, find=find, experiments=experiments, lab=lab)
        self.view.paused = paused

    def _start(self, experiment: Experiment) -> None:
        if experiment.name in self.view.experiments:
            experiment = experiment.model_copy(update={"clock": "virtual"})
            topology = precheck.requested_lab(experiment).topology
        else:
            assert self.view.session is not None
            topology = self.view.session.topology
        precheck.check(experiment, topology)
        self.pending.experiment = experiment

    def go(self, interrupted: Callable[[], object]) -> None:
        """Run the simulation until `interrupted` raises."""
        self.view.interrupted = interrupted
        self.view.wanted = lambda: self.pending.experiment is not None
        experiment = self.pending.experiment
        while True:
            wanted = (
                LabRequest.of(self.lab, self.transport, clock="virtual")
                if experiment is None
                else requested_lab(experiment, clock="virtual")
            )
            with sessions.session_for(wanted) as session:
                try:
                    self.view.lab = wanted.lab
                    self.view.show(session, wanted.transport)
                    experiment = self._run(session, interrupted)
                finally:
                    self.view.leave()

    def _run(self, session: Session, interrupted: Callable[[], object]) -> Experiment | None:
        """Run the session until an experiment needs another one, and return it; a new session performs its first."""
        fresh = True
        while True:
            interrupted()
            experiment = self.pending.experiment
            if experiment is None:
                self.view.advance(SIMULATION_POLL_S)
                fresh = False
                continue
            shipped = experiment.name in self.view.experiments
            if shipped and not fresh:
                return experiment
            self.pending.take()
            fresh = False
            folder = folder_of(experiment, self.view.experiments, "virtual")
            perform(self.view, session, experiment, folder, interrupted)
