"""Origin of a result: counters of the whole lab, its program, and what repeats the run."""

from __future__ import annotations

from mrc_topo.topology import Topology
from mrclab.lab.session.base import Session
from mrclab.results import provenance
from mrclab.results.record import RunResult
from mrclab.results.recording import Recording
from mrclab.runs.experiment import Experiment, Tree
from mrclab.runs.workload import WorkloadSpec


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
