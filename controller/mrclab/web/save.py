"""Actions on pages as an experiment file that `mrclab run` repeats; and a workload that a page asks for, as one."""

from __future__ import annotations

from typing import Any, Final

import yaml

from mrc_host.requests import Hello
from mrc_topo.labfile import LabError, load_lab
from mrc_topo.topology import Topology
from mrclab.lab.session.base import Session
from mrclab.results import evidence
from mrclab.results.expectation import Expectation
from mrclab.results.record import RunResult
from mrclab.runs.experiment import Experiment, ExperimentError, parse
from mrclab.web.actions import Start

#: A part of an experiment file, as plain YAML values.
Document = dict[str, Any]
#: Without a duration a workload continues until it is stopped.
FOREVER_S: Final = 1e6
#: The first of these that was observed becomes a failure's evidence: from the plainest to indirect ones.
PREFERRED: Final = ("dropped", "ports_down", "evs_lost", "losses", "pause_frames", "paused")


def transport_of(session: Session) -> str:
    """Return the transport of a session's hosts."""
    for host in session.hosts.values():
        return host.ask(Hello()).transport
    raise ExperimentError("the lab has no hosts")


def workload_experiment(asked: Start, session: Session, lab: str) -> Experiment:
    """Return the experiment that corresponds to `mrclab run WORKLOAD`.

    Raises:
        ExperimentError: a parameter does not fit.
    """
    document = {
        "name": asked.workload,
        "title": f"{asked.workload} on {session.topology.lab.name}",
        "lab": lab,
        "clock": session.clock,
        "transport": transport_of(session),
        "workload": {
            "name": asked.workload,
            "params": asked.params,
            "hosts": asked.hosts,
            "duration": None if "iterations" in asked.params else asked.duration or FOREVER_S,
            "limit": FOREVER_S,
            "qps_per_peer": asked.qps_per_peer,
        },
        "expect": {"valid": False},
    }
    text = yaml.safe_dump(document, sort_keys=False)
    return parse(Experiment, text, "start", "a workload by its name and parameters")


def lab_reference(topology: Topology, lab: str) -> str:
    """Return how an experiment refers to this lab: by name if the lab comes with mrclab, else by its file."""
    try:
        if load_lab(topology.lab.name).lab == topology.lab:
            return topology.lab.name
    except LabError:
        pass
    return lab


def experiment_text(experiment: Experiment, result: RunResult, topology: Topology, lab: str) -> str:
    """Return the YAML text of an experiment that repeats a run with all its actions, from pages and from the schedule.

    Args:
        result: the result of the run, which may still go on.
    """
    lasted = max(result.finished_ns - result.started_ns, 1) / 1e9
    workload = experiment.workload
    made: Document = {
        "name": f"{experiment.name[:40]}-clicked",
        "title": f"{experiment.title[:150]}, as it was clicked",
        "lab": lab_reference(topology, lab),
        "clock": result.clock,
        "transport": experiment.transport,
        "workload": workload.model_dump(exclude_defaults=True),
    }
    if experiment.profiles:
        made["profiles"] = [each.model_dump() for each in experiment.profiles]
    if experiment.policies.named:
        made["policies"] = dict(experiment.policies.named)
    if workload.duration is not None:
        made["workload"]["duration"] = round(min(workload.duration, lasted), 3)
    made["workload"].pop("limit", None)
    steps, notes = [], []
    for number, happening in enumerate(result.happenings):
        if happening.error:
            continue
        step, note = _step(result, topology, number)
        steps.append(step)
        notes += note
    made["schedule"] = steps
    made["expect"] = Expectation(valid=False).model_dump(exclude_defaults=True)
    head = ["# What was clicked in the live view; `mrclab run FILE` repeats it.", *notes]
    return "\n".join(head) + "\n" + yaml.safe_dump(made, sort_keys=False)


def _step(result: RunResult, topology: Topology, number: int) -> tuple[Document, list[str]]:
    """Return a step of the schedule, and the comments on it."""
    happening = result.happenings[number]
    action = happening.action
    at = max(happening.at_ns - result.started_ns, 0) / 1e9
    step: Document = {"at": round(at, 9), action.verb: action.target}
    if action.kind:
        step["kind"] = action.kind
    if action.loss is not None:
        step["loss"] = action.loss
    if action.verb == "restore":
        return step, []
    if action.direction != "both":
        step["direction"] = action.direction
    if action.settings:
        step["settings"] = dict(action.settings)
    counted = evidence.counted(result, topology, number)
    seen = [key for key in PREFERRED if counted[key]]
    if not seen:
        # An experiment must name the evidence of a failure, and this failure left none.
        step["evidence"] = {"dropped": 1}
        return step, [f"# Nothing was seen of {action.describe()}: its evidence is a guess, and may be missed."]
    key = seen[0]
    least = 1 if key != "paused" else counted[key] / 10
    step["evidence"] = {key: least}
    return step, []
