"""Scripted experiments: a YAML file with lab, workload, what happens when, and what is expected of it."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from mrc_host.workloads import WORKLOADS, WorkloadError
from mrc_topo.base import document
from mrc_topo.base.document import NAME, DocumentError, Model
from mrc_topo.base.errors import UsageError
from mrc_topo.labfile import placed
from mrc_topo.schema import Compiler, Forwarder, Payload, PoliciesSpec
from mrc_topo.shipped import UnknownNameError, beside, find, shipped
from mrc_topo.units import parse_seconds, parse_share, with_quantities
from mrclab.lab.faults.action import Action, FailureError, flapping
from mrclab.lab.faults.kinds import KINDS, Impair
from mrclab.lab.records import rundir
from mrclab.results.expectation import Evidence, Expectation
from mrclab.runs.workload import WorkloadSpec
from p4lite.files import FolderError

FOLDER = shipped("experiments")

EXAMPLE = "an experiment is a mapping with name, title and workload; see experiments/ and docs/reference/experiments.md"

M = TypeVar("M", bound=Model)
#: A mapping as YAML or JSON gives it: a document before it is checked as what it is.
Tree = Mapping[str, object]

Seconds = Annotated[float, BeforeValidator(parse_seconds), Field(ge=0, le=1e6)]
Duration = Annotated[float, BeforeValidator(parse_seconds), Field(gt=0, le=1e6)]
#: Settings of a failure, by name; `rate: 20Mbps` is `rate_bps: 20000000`, and `loss: 5%` is `loss: 0.05`.
Settings = Annotated[
    dict[str, Any], BeforeValidator(lambda given: with_quantities(given) if isinstance(given, dict) else given)
]
Name = Annotated[str, Field(pattern=NAME)]
Title = Annotated[str, Field(min_length=1, max_length=200)]


class ExperimentError(UsageError):
    """An experiment file that cannot be used; one line per problem, with file, key and remedy."""


class UnknownExperiment(ExperimentError):
    """There is no experiment, comparison or sweep of this name, or no such file."""


class Workload(Model):
    """The workload of a run; either `params.iterations` or `duration` (seconds) bounds it."""

    name: str
    params: dict[str, Any] = {}
    hosts: Annotated[list[str], Field(min_length=1)] | None = None
    duration: Duration | None = None
    limit: Duration = 120.0
    qps_per_peer: Annotated[int, Field(ge=1, le=64)] = 1
    ev_profile: Name = "default"
    cc_profile: Name = "default"

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        name, params = data.get("name"), data.get("params")
        if isinstance(name, str) and name in WORKLOADS and isinstance(params, dict):
            return {**data, "params": with_quantities(params, WORKLOADS[name].texts())}
        return data

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in WORKLOADS:
            raise ValueError(f"no workload '{name[:60]}'; known: {', '.join(sorted(WORKLOADS))}")
        return name

    @field_validator("hosts")
    @classmethod
    def _once(cls, hosts: list[str] | None) -> list[str] | None:
        again = next((each for each in hosts or () if (hosts or []).count(each) > 1), None)
        if again is not None:
            raise ValueError(f"host '{again[:60]}' is named twice; name each once")
        return hosts

    @model_validator(mode="after")
    def _parameters(self) -> Self:
        try:
            WORKLOADS[self.name].complete(self.params)
        except WorkloadError as error:
            raise ValueError(str(error)) from error
        return self

    def spec(self) -> WorkloadSpec:
        """Return the specification for the runner."""
        return WorkloadSpec(
            self.name,
            dict(self.params),
            self.hosts,
            self.duration,
            self.limit,
            self.qps_per_peer,
            self.ev_profile,
            self.cc_profile,
        )


def lasting(workload: Workload, seconds: float) -> Tree:
    """Return the document of a workload that runs for this many seconds, and not for a number of iterations."""
    params = {key: value for key, value in workload.params.items() if key != "iterations"}
    return {**workload.model_dump(exclude_unset=True), "params": params, "duration": seconds}


class ProfileSpec(Model):
    """A profile that the node controllers of all hosts are given for the run (`mrc_host.node.controller`)."""

    kind: Literal["format", "ev", "cc"]
    name: Name
    settings: dict[str, Any] = {}


def check_settings(kind: str, settings: Mapping[str, Any], target: str) -> None:
    """Check that a kind of failure takes these settings, for validators of models. Raises ValueError."""
    try:
        KINDS[kind].check_settings(settings, target)
    except FailureError as error:
        raise ValueError(str(error)) from error


class ExperimentStep(Model):
    """An event `at` a time in seconds: `fail`, `restore` or `flap` a target.

    `loss` is the share of capacity that this workload must lose from then on; left out, it is what the topology
    says of the host that loses most. What breaks something states its `evidence`; of a flap, each time it is down.
    """

    at: Seconds
    fail: str | None = None
    restore: str | None = None
    flap: str | None = None
    kind: str = ""
    direction: Literal["both", "up", "down"] = "both"
    settings: Settings = {}
    loss: Annotated[float, BeforeValidator(parse_share), Field(ge=0, le=1)] | None = None
    period: Duration = 1.0
    count: Annotated[int, Field(ge=1, le=1000)] = 1
    evidence: Evidence | None = None

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind and kind not in KINDS:
            raise ValueError(f"no failure '{kind[:60]}'; known: {', '.join(KINDS)}")
        return kind

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        target = self.fail or self.flap
        if target is not None and self.settings:
            check_settings(self.kind or Impair.name, self.settings, target)
        return self

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(each is not None for each in (self.fail, self.restore, self.flap)) != 1:
            raise ValueError("a step has exactly one of fail, restore and flap")
        if self.restore is not None and (self.settings or self.direction != "both"):
            raise ValueError("restore takes a kind at most: direction and settings belong to fail and flap")
        target = self.fail or self.flap
        if target is not None and self.evidence is None:
            raise ValueError(
                f"nothing would tell if {target} never failed; state what shows it, like `evidence: {{dropped: 1}}`; "
                f"known: {', '.join(Evidence.model_fields)}"
            )
        if target is None and self.evidence is not None:
            raise ValueError("a restore has no evidence of its own; it ends that of the failure")
        return self

    def actions(self) -> list[tuple[float, Action]]:
        """Return the actions with their times in seconds."""
        if self.restore is not None:
            return [(self.at, Action("restore", self.restore, self.kind, loss=self.loss))]
        action = Action("fail", self.flap or self.fail or "", self.kind, self.direction, self.settings, self.loss)
        return flapping(action, self.at, self.period, self.count) if self.flap else [(self.at, action)]


class Experiment(Model):
    """One experiment. `lab` by name or path, which may start in the experiment's folder; `clock`, `switch`, `compiler`
    and `payload` may be overridden when it is run; the latter three are the lab's where they are left out, and so are
    `policies`, each for itself."""

    name: Name
    title: Title
    lab: Annotated[str, Field(min_length=1, max_length=4096)] = "default"
    clock: Literal["real", "virtual"] = "virtual"
    transport: Literal["mrc", "roce"] = "mrc"
    switch: Forwarder | None = None
    compiler: Compiler | None = None
    payload: Payload | None = None
    policies: PoliciesSpec = PoliciesSpec()
    profiles: Annotated[list[ProfileSpec], Field(max_length=64)] = []
    workload: Workload
    schedule: Annotated[list[ExperimentStep], Field(max_length=1000)] = []
    expect: Expectation = Expectation()
    paper: str = ""

    def actions(self) -> list[tuple[float, Action]]:
        """Return everything that happens, in the order of time."""
        return [(at, action) for at, action, _ in self._schedule()]

    def claims(self) -> list[Evidence | None]:
        """Return the evidence of each action, in the same order."""
        return [claim for _, _, claim in self._schedule()]

    def _schedule(self) -> list[tuple[float, Action, Evidence | None]]:
        rows = [
            (at, action, step.evidence if action.verb == "fail" else None)
            for step in self.schedule
            for at, action in step.actions()
        ]
        return sorted(rows, key=lambda each: each[0])


def known_experiments() -> dict[str, pathlib.Path]:
    """Return the experiments that come with the project, by name."""
    return {path.parent.name: path for path in sorted(FOLDER.glob("*/experiment.yaml"))}


def find_file(name_or_path: str, known: dict[str, pathlib.Path], file_name: str, what: str) -> pathlib.Path:
    """Return the file of an experiment or comparison: one of the known names, a path, or that of a folder with
    `file_name`.

    Raises:
        UnknownExperiment: there is none.
    """
    try:
        return find(name_or_path, known, what, inside=file_name)
    except UnknownNameError as error:
        raise UnknownExperiment(str(error)) from error


def load_experiment(name_or_path: str) -> Experiment:
    """Read an experiment by name or path.

    Raises:
        ExperimentError: there is no experiment of that name, or the file is not one.
    """
    path = find_file(name_or_path, known_experiments(), "experiment.yaml", "experiment")
    made = read(Experiment, path, EXAMPLE)
    folder, workload = path.absolute().parent, made.workload
    workload = workload.model_copy(update={"params": placed_params(workload.name, workload.params, folder)})
    changes = {"policies": placed(made.policies, folder), "workload": workload, "lab": beside(folder, made.lab)}
    return made.model_copy(update=changes)


def placed_params(workload: str, params: Mapping[str, Any], folder: pathlib.Path) -> dict[str, Any]:
    """Return a workload's parameters as its ranks get them; see `Workload.placed`. Raises ExperimentError."""
    try:
        return WORKLOADS[workload].placed(params, folder)
    except WorkloadError as error:
        raise ExperimentError(str(error)) from None


def read(model: type[M], path: pathlib.Path, example: str) -> M:
    """Return the model in a YAML file.

    Raises:
        ExperimentError: it is none, a line per problem, with file, line, key and remedy; or it names code and others
            can change it.
    """
    try:
        text = document.read_text(path, str(path))
    except DocumentError as error:
        raise ExperimentError(str(error)) from error
    made = parse(model, text, str(path), example)
    check_trusted(path, made.model_dump(mode="json", exclude_unset=True))
    return made


def check_trusted(path: pathlib.Path, content: object) -> None:
    """Check that only this user and root can change a file whose content names policies or programs.

    Raises:
        ExperimentError: another user can.
    """
    if rundir.names_code(content):
        try:
            rundir.check(path)
        except FolderError as error:
            raise ExperimentError(str(error)) from None


def parse(model: type[M], text: str, name: str, example: str) -> M:
    """Return the model in YAML text; see `read`."""
    try:
        found = document.parse(text, name, example)
    except DocumentError as error:
        raise ExperimentError(str(error)) from error
    try:
        return model.model_validate(found.data)
    except ValidationError as error:
        raise ExperimentError("\n".join(found.explain(model, error))) from error
