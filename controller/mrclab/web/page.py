"""A served page, for the commands that have one: hub, server, and what is shown."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator

from mrclab.runs.experiment import Experiment
from mrclab.web import metrics
from mrclab.web.hub import Hub
from mrclab.web.lab import LabView
from mrclab.web.replay import Recorded, Replay
from mrclab.web.serve import Serving, is_loopback, serving
from mrclab.web.server import Server
from mrclab.web.simulation import SimulationView
from mrclab.web.view import View

Interrupted = Callable[[], object]


class Page:
    """What one command serves: a lab, a simulation, a recorded run, or the experiments of a demonstration.

    Args:
        experiments: names that pages may ask for.
        find: an experiment by its name.
    """

    def __init__(self, experiments: list[str], find: Callable[[str], Experiment]) -> None:
        self.hub = Hub()
        self.experiments = experiments
        self.find = find
        self.loopback = True
        self._serving: Serving | None = None
        self._view: View | None = None

    @classmethod
    @contextlib.contextmanager
    def served(
        cls, host: str, port: int | None, experiments: list[str], find: Callable[[str], Experiment]
    ) -> Iterator[Page]:
        """Serve a page at this address, and yield it, for as long as the context lasts.

        Raises:
            RunError: the address cannot be used.
        """
        made = cls(experiments, find)
        made.loopback = is_loopback(host)
        server = Server(made.hub, made._captured, metrics.render)
        with serving(server, host, port) as made._serving:
            try:
                yield made
            finally:
                if made._view is not None:
                    made._view.close()
                made.hub.end()

    def _captured(self, port: str) -> pathlib.Path | None:
        return None if self._view is None else self._view.captures.file(port)

    @property
    def url(self) -> str:
        """The address that opens the page, with its token."""
        assert self._serving is not None
        return self._serving.url

    def watch(self, lab: str, interrupted: Interrupted) -> None:
        """Show a lab that is up."""
        shown = LabView(self.hub, lab, self.find, self.experiments)
        self._view = shown.view
        shown.go(interrupted)

    def simulate(
        self, lab: str, experiment: Experiment | None, speed: float, paused: bool, interrupted: Interrupted
    ) -> None:
        """Show a simulation of a lab, or of an experiment."""
        shown = SimulationView(
            self.hub, lab, "mrc", self.find, self.experiments, speed=speed, paused=paused, first=experiment
        )
        self._view = shown.view
        shown.go(interrupted)

    def replay(self, recorded: Recorded, speed: float, interrupted: Interrupted) -> None:
        """Show a recorded run."""
        Replay(self.hub, recorded, speed).go(interrupted)

    def beside(self) -> View:
        """Return a view of experiments that the caller runs, one after another."""
        self._view = View(self.hub, speed=0.0)
        return self._view
