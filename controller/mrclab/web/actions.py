"""Actions that a page may ask for, checked as the commands of the shell are: the same models, the same functions; and
the experiment file that repeats them.

Every action is data of a fixed shape; no path, no program and no address comes from a page.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import Field, ValidationError

from mrc_host.proto.limits import ConfigError
from mrc_host.requests import Hello
from mrc_topo.base.document import Model, dotted, explain
from mrc_topo.base.files import WriteError
from mrc_topo.labfile import LabError, load_lab
from mrc_topo.topology import Topology, UnknownElement
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.faults.ledger import UnsettledError
from mrclab.lab.hosts.hostclient import HostError
from mrclab.lab.management import denylist
from mrclab.lab.management.denylist import DenylistError
from mrclab.lab.records.rundir import RunError
from mrclab.lab.session.base import Session
from mrclab.lab.switches.names import P4RuntimeError
from mrclab.lab.switches.program import ProgramError
from mrclab.results import verdict
from mrclab.results.expectation import Expectation
from mrclab.results.record import RunResult
from mrclab.runs.experiment import Experiment, ExperimentError, parse
from mrclab.runs.runner import WorkloadRun
from mrclab.web.hub import CommandAnswer, CommandError
from p4lite.switch.errors import TargetError

Name = Annotated[str, Field(min_length=1, max_length=128)]
#: The errors of actions that cannot be carried out; their text is shown to the user.
REFUSALS = (
    ConfigError,
    DenylistError,
    ExperimentError,
    FailureError,
    HostError,
    LabError,
    OSError,
    P4RuntimeError,
    ProgramError,
    RunError,
    TargetError,
    UnknownElement,
    UnsettledError,
    WriteError,
)


class Fail(Model):
    """Break an element, as `mrclab fail` does."""

    target: Name
    kind: Annotated[str, Field(max_length=64)] = ""
    direction: Literal["both", "up", "down"] = "both"
    settings: Annotated[dict[Annotated[str, Field(max_length=64)], bool | int | float], Field(max_length=16)] = {}

    def action(self) -> Action:
        """Return the action for the fault ledger."""
        return Action("fail", self.target, self.kind, self.direction, dict(self.settings))


class Restore(Model):
    """Restore an element, as `mrclab restore` does; without a target everything."""

    target: Annotated[str, Field(max_length=128)] = ""
    kind: Annotated[str, Field(max_length=64)] = ""


class Elements(Model):
    """The arguments of `mrclab deny` and `mrclab allow`."""

    elements: Annotated[list[Name], Field(max_length=1000)] = []


class Deny(Elements):
    """Deny elements, as `mrclab deny` does; without elements, what the hosts find dead."""


class Allow(Elements):
    """Allow elements, as `mrclab allow` does; without elements, all that are denied."""


class Capture(Model):
    """Begin or end a capture of a port, into a file that the page then fetches."""

    port: Name
    on: bool = True


class Start(Model):
    """Start a workload, as `mrclab run WORKLOAD` does."""

    workload: Name
    params: Annotated[dict[Annotated[str, Field(max_length=64)], Any], Field(max_length=32)] = {}
    hosts: Annotated[list[Name], Field(min_length=1, max_length=10_000)] | None = None
    duration: Annotated[float, Field(gt=0, le=1e6)] | None = None
    qps_per_peer: Annotated[int, Field(ge=1, le=64)] = 1


class RunExperiment(Model):
    """Run an experiment that comes with the project, as `mrclab run EXPERIMENT` does."""

    name: Name


class Speed(Model):
    """Set the speed of a simulation or replay, as a multiple of the wall's clock; 0: as fast as possible."""

    speed: Annotated[float, Field(ge=0, le=1000)]


class Step(Model):
    """Pause a simulation, and advance it by these seconds of its own clock."""

    seconds: Annotated[float, Field(gt=0, le=10)] = 0.01


class Seek(Model):
    """Go to a time of a recorded run, in seconds."""

    seconds: Annotated[float, Field(ge=0, le=1e6)]


class Stop(Model):
    """End the workload after its present iteration."""


class Save(Model):
    """Return what was done since the workload began as an experiment file, in `file`."""


class Pause(Model):
    """Pause a simulation or replay."""


class Resume(Model):
    """Continue a simulation or replay."""


MODELS: dict[str, type[Model]] = {
    "fail": Fail,
    "restore": Restore,
    "deny": Deny,
    "allow": Allow,
    "capture": Capture,
    "start": Start,
    "stop": Stop,
    "run": RunExperiment,
    "save": Save,
    "pause": Pause,
    "resume": Resume,
    "step": Step,
    "speed": Speed,
    "seek": Seek,
}


def parse_action(name: str, arguments: object) -> Model:
    """Return a command's arguments.

    Raises:
        CommandError: there is no such command, or the arguments do not fit it; one line per problem.
    """
    model = MODELS.get(name)
    if model is None:
        raise CommandError(f"no command '{name[:40]}'; known: {', '.join(MODELS)}")
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        problems = [f"{dotted(tuple(each['loc'])) or name}: {explain(model, each)}" for each in error.errors()]
        raise CommandError("\n".join(problems)) from error


def fail(session: Session, asked: Fail, run: WorkloadRun | None) -> CommandAnswer:
    """Inject a failure; in the name of a run, if one is in progress."""
    action = session.failures.check(asked.action())
    if run is None:
        session.failures.perform(session, action)
    else:
        run.act(action)
    return CommandAnswer(action.describe(), session.failures.expected_loss())


def restore(session: Session, asked: Restore, run: WorkloadRun | None) -> CommandAnswer:
    """Remove a failure, or all failures."""
    failures = session.failures
    if asked.kind and not asked.target:
        raise CommandError("a kind needs the target that failed like this")
    if asked.target:
        action = Action("restore", asked.target, asked.kind)
        if run is None:
            failures.perform(session, action)
        else:
            run.act(action)
        return CommandAnswer(action.describe())
    failures.reload()
    targets = list(dict.fromkeys(cause.target for cause in reversed(failures.causes)))
    if run is not None:
        for target in targets:
            run.act(Action("restore", target))
    else:
        targets = failures.restore_all(session)
    return CommandAnswer(f"restored: {', '.join(targets)}" if targets else "nothing is broken")


def deny(session: Session, asked: Elements) -> CommandAnswer:
    """Put elements on the denylist."""
    names = asked.elements or denylist.dead_now(session)
    if not names:
        return CommandAnswer("the hosts' probes find nothing dead")
    changed = denylist.deny(session, names)
    return CommandAnswer(f"denied: {', '.join(names)}; EVs taken out of use: {changed}")


def allow(session: Session, asked: Elements) -> CommandAnswer:
    """Take elements, or all, off the denylist."""
    changed = denylist.allow(session, asked.elements or None)
    return CommandAnswer(f"allowed: {', '.join(asked.elements) or 'everything'}; EVs that came back: {changed}")


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
    counted = verdict.counted(result, topology, number)
    seen = [key for key in PREFERRED if counted[key]]
    if not seen:
        # An experiment must name the evidence of a failure, and this failure left none.
        step["evidence"] = {"dropped": 1}
        return step, [f"# Nothing was seen of {action.describe()}: its evidence is a guess, and may be missed."]
    key = seen[0]
    least = 1 if key != "paused" else counted[key] / 10
    step["evidence"] = {key: least}
    return step, []
