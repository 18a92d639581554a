"""Run an order in this process, without the learner's files: our own policies, or a run that learners only read of."""

from __future__ import annotations

from mrc_topo.labfile import parse_lab
from mrc_workshop.job import RunOrder
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.record import RunResult
from mrclab.runs import execute
from mrclab.runs.experiment import Experiment


def simulate(order: RunOrder, lab: str) -> RunResult:
    """Run the experiment of an order on a lab (YAML text) in simulated time; return all that it left."""
    session = VirtualSession(parse_lab(lab, order.name), order.transport)
    try:
        return execute.run_on(session, Experiment.model_validate(order.experiment))
    finally:
        session.close()
