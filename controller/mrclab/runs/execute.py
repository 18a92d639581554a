"""Runs an experiment on either clock, from lab to verdict."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mrc_topo.base.interruption import Interrupted, interruptible
from mrc_topo.topology import Topology
from mrclab.lab.records.rundir import LabDied
from mrclab.lab.session.base import Session
from mrclab.results import resultdir, verdict
from mrclab.results.check import Verdict
from mrclab.results.record import RunResult
from mrclab.results.recording import Recording
from mrclab.runs import conduct, origin, precheck, sessions
from mrclab.runs.experiment import Experiment
from mrclab.runs.live import LiveView
from mrclab.runs.runner import Watcher


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
            with sessions.session_on(wanted, clock, progress) as session:
                progress("running")
                if view is not None:
                    view.begin(session, experiment, interruption.check)
                with LiveView(topology, workload.spec()) if live else contextlib.nullcontext(None) as terminal:
                    result = conduct.run_on(session, experiment, terminal, recording, interruption.check, view)
                origin.complete(session, result, recorded)
                program = None if session.topology.lab.program is None else session.program
        except (LabDied, Interrupted) as error:
            if result is None:
                result = origin.result_of_failed_start(topology, clock, workload.spec(), str(error), recording)
                result.interrupted = error.name if isinstance(error, Interrupted) else ""
                origin.add_origin(result, topology, recorded, {})
        judged = verdict.judge(result, topology, experiment.expect, claims)
        if view is not None:
            view.end(judged)
        resultdir.write(folder, result, topology, judged, experiment.title, recording)
        if program is not None:
            program.keep(folder / "program")
    return Outcome(experiment, topology, result, judged, folder, interruption.number)
