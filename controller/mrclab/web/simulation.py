"""The live view of a simulation that it runs itself: of a lab, or of an experiment; no root, no namespaces."""

from __future__ import annotations

from collections.abc import Callable

from mrclab.lab.session.base import Session
from mrclab.runs import precheck, sessions
from mrclab.runs.experiment import Experiment
from mrclab.web.hub import Hub
from mrclab.web.lab import Pending, folder_of, perform
from mrclab.web.view import View

POLL_S = 0.1


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
        nothing: Callable[[str], None] = lambda text: None  # noqa: E731
        self.view.interrupted = interrupted
        self.view.wanted = lambda: self.pending.experiment is not None
        experiment = self.pending.experiment
        while True:
            lab = self.lab if experiment is None else experiment.lab
            transport = self.transport if experiment is None else experiment.transport
            parts = () if experiment is None else (experiment.switch, experiment.compiler, experiment.policies)
            payload = None if experiment is None else experiment.payload
            with sessions.session_for(lab, "virtual", transport, nothing, *parts, payload=payload) as session:
                try:
                    self.view.lab = lab
                    self.view.show(session, transport)
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
                self.view.advance(POLL_S)
                fresh = False
                continue
            shipped = experiment.name in self.view.experiments
            if shipped and not fresh:
                return experiment
            self.pending.take()
            fresh = False
            folder = folder_of(experiment, self.view.experiments, "virtual")
            perform(self.view, session, experiment, folder, interrupted)
