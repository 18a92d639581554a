"""Scripted experiments: a YAML file with lab, workload, what happens when, and what is expected of it."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mrc_control.failures import Action, flapping
from mrc_control.runner import WorkloadSpec

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "experiments"


class ExperimentError(Exception):
    """An experiment file that cannot be used; one line per problem, with file, key and remedy."""


class Model(BaseModel):
    """Base: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Workload(Model):
    """What runs; either `params.iterations` or `duration` (seconds) bounds it."""

    name: str
    params: dict[str, Any] = {}
    hosts: list[str] | None = None
    duration: Annotated[float, Field(gt=0)] | None = None
    limit: Annotated[float, Field(gt=0)] = 120.0
    qps_per_peer: Annotated[int, Field(ge=1, le=64)] = 1
    ev_profile: str = "default"
    cc_profile: str = "default"

    def spec(self) -> WorkloadSpec:
        """As the runner takes it."""
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


class ProfileSpec(Model):
    """A profile that the node controllers of all hosts are given for the run (`mrc_host.nodectl`)."""

    kind: Literal["format", "ev", "cc"]
    name: str
    settings: dict[str, Any] = {}


class Step(Model):
    """Something that happens `at` so many seconds: `fail`, `restore` or `flap` a target.

    `loss` is the share of capacity that this workload must lose from then on; left out, it is what the topology
    says of the host that loses most.
    """

    at: Annotated[float, Field(ge=0)]
    fail: str | None = None
    restore: str | None = None
    flap: str | None = None
    kind: str = ""
    direction: Literal["both", "up", "down"] = "both"
    settings: dict[str, Any] = {}
    loss: Annotated[float, Field(ge=0, le=1)] | None = None
    period: Annotated[float, Field(gt=0)] = 1.0
    count: Annotated[int, Field(ge=1, le=1000)] = 1

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(each is not None for each in (self.fail, self.restore, self.flap)) != 1:
            raise ValueError("a step has exactly one of fail, restore and flap")
        return self

    def actions(self) -> list[tuple[float, Action]]:
        """With their times in seconds."""
        if self.flap is not None:
            return flapping(self.flap, self.kind or _guess(self.flap), self.at, self.period, self.count, self.loss)
        if self.restore is not None:
            return [(self.at, Action("restore", self.restore, loss=self.loss))]
        target = self.fail or ""
        kind = self.kind or ("impair" if self.settings else _guess(target))
        return [(self.at, Action("fail", target, kind, self.direction, self.settings, self.loss))]


class Expectation(Model):
    """What must be true of the result; a check that is left out is not made.

    `verified`: all bytes that arrived are right, and every rank did its iterations. `recovery`: after every
    action the goodput is back at 95 % of what the remaining capacity allows within 10 base RTTs, one ACK
    timeout, and so many seconds more. `min_share`: settled goodput after the last failure, as a share of the
    expected. `goodput_share`: total goodput as a share of the ranks' link capacity. `qp_errors`: how many
    QPs may die. `localised`: the hosts' probes alone name what was broken.
    """

    verified: bool = True
    qp_errors: Annotated[int, Field(ge=0)] = 0
    recovery: Annotated[float, Field(ge=0)] | None = None
    min_share: Annotated[float, Field(ge=0)] | None = None
    max_dip: Annotated[float, Field(ge=0, le=1)] | None = None
    goodput_share: Annotated[float, Field(ge=0)] | None = None
    max_goodput_share: Annotated[float, Field(ge=0)] | None = None
    trims: bool | None = None
    marks: bool | None = None
    localised: bool | None = None
    valid: bool = True


class Experiment(Model):
    """One experiment. `labs` by name or path; `clock` and `transport` may be overridden when it is run."""

    name: str
    title: str
    lab: str = "default"
    clock: Literal["real", "virtual"] = "virtual"
    transport: Literal["mrc", "roce"] = "mrc"
    profiles: list[ProfileSpec] = []
    workload: Workload
    schedule: list[Step] = []
    expect: Expectation = Expectation()
    paper: str = ""

    def actions(self) -> list[tuple[float, Action]]:
        """Everything that happens, in the order of time."""
        return sorted((each for step in self.schedule for each in step.actions()), key=lambda each: each[0])


def _guess(target: str) -> str:
    if "--" in target:
        return "link_down"
    return "port_down" if ":" in target else "stop"


def known_experiments() -> dict[str, pathlib.Path]:
    """The experiments that come with the project, by name."""
    return {path.parent.name: path for path in sorted(FOLDER.glob("*/experiment.yaml"))}


def load_experiment(name_or_path: str) -> Experiment:
    """Reads an experiment by name or path.

    Raises:
        ExperimentError: none of that name, or a file that is not one.
    """
    known = known_experiments()
    path = pathlib.Path(name_or_path)
    if path.is_dir():
        path = path / "experiment.yaml"
    if not path.is_file():
        if name_or_path not in known:
            raise ExperimentError(
                f"{name_or_path}: no experiment of that name and no such file; known: {', '.join(known) or 'none'}"
            )
        path = known[name_or_path]
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ExperimentError(f"{path}: not readable YAML: {str(error).splitlines()[0]}") from error
    try:
        return Experiment.model_validate(document)
    except ValidationError as error:
        lines = [f"{path}: {place(each['loc'])}: {each['msg']}" for each in error.errors()]
        raise ExperimentError("\n".join(lines)) from error


def place(path: Sequence[str | int]) -> str:
    """Where in a document a problem is."""
    return ".".join(map(str, path)) or "document"
