"""Actions that a page may ask for, checked as the commands of the shell are: the same models, the same functions.

Every action is data of a fixed shape; no path, no program and no address comes from a page.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from mrc_host.proto.limits import ConfigError
from mrc_topo.base.document import Model, dotted, explain
from mrc_topo.base.files import WriteError
from mrc_topo.labfile import LabError
from mrc_topo.topology import UnknownElement
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.faults.ledger import UnsettledError
from mrclab.lab.hosts.hostclient import HostError
from mrclab.lab.management import denylist
from mrclab.lab.management.denylist import DenylistError
from mrclab.lab.records.rundir import RunError
from mrclab.lab.session.base import Session
from mrclab.lab.switches.names import P4RuntimeError
from mrclab.lab.switches.program import ProgramError
from mrclab.runs.experiment import ExperimentError
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


def parse(name: str, arguments: object) -> Model:
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
