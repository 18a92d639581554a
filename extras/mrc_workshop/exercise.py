"""Contents of `exercise.yaml`: the lab, the runs, the checks, the hints and the seeds of one exercise."""

from __future__ import annotations

import pathlib
import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from mrc_topo.base.document import NAME, Model, formerly
from mrc_topo.base.errors import ExitCode, UsageError
from mrc_topo.shipped import UnknownNameError, shipped
from mrc_topo.shipped import find as find_named
from mrc_workshop.drawn import RandomFailures, RandomLink
from mrc_workshop.job import Document
from mrc_workshop.kinds import catalogue
from mrclab.results.expectation import Expectation
from mrclab.runs.experiment import ExperimentStep, ProfileSpec, Workload, read

FILE = "exercise.yaml"
README = "README.md"
STARTER, SOLUTION = "starter", "solution"
EXAMPLE = "an exercise is a mapping with title, minutes, edit, runs and checks; see workshop/TEMPLATE"
FOLDER_NAME = re.compile(r"^(\d\d)-([a-z0-9]+(?:-[a-z0-9]+)*)$")
#: A class in a learner's file, in the form of a lab file.
CLASS = r"^[A-Za-z_]\w*:[A-Za-z_]\w*$"

Name = Annotated[str, Field(pattern=NAME)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Seeds = Annotated[list[Seed], Field(min_length=1, max_length=20)]
Ports = Literal["none", "fabric", "all"]
#: The kinds of a learner's classes that a lab can use.
Policy = Literal["congestion", "ev", "loss", "localiser"]


class WorkshopError(UsageError):
    """An exercise or a folder that cannot be used; one line per problem, with file, key and remedy."""


class NotGraded(WorkshopError):
    """A check that says nothing about the learner's files, such as one on a machine that is too busy."""

    exit_code = ExitCode.FAILED


class Inject(Model):
    """Packets that a check sends in the place of hosts: `usid_paths` sends one along every path of the lab, and others
    that a switch must pass on unshifted or drop."""

    what: Literal["usid_paths"]


class RunSpec(Model):
    """A simulated run. It has either a `workload` with its `schedule`, or `inject`.

    `lab`: a lab that comes with mrclab, a file beside `exercise.yaml`, or one of the learner's files; `may_change`: the
    keys of the learner's lab file that may differ from the starter's. `program`, `policies`: the learner's own.
    `capture`: the switches whose ports are recorded, with `snaplen` bytes of each packet. `hidden`: the run has hidden
    seeds only, and is not shown. `experiment`: the learner's experiment file, of which `workload`, `schedule` and
    `expect` are used. `random_failures`: failures beside those of `schedule`, which the seed draws; `random_links`: bad
    links, which it draws, too. `recorded`: learners get the records of this run (`mrclab workshop record`).
    """

    name: Name
    lab: Annotated[str, Field(min_length=1, max_length=200)] = "tiny"
    may_change: Annotated[list[str], Field(json_schema_extra=formerly("only"))] = []
    changes: Document = {}
    program: str | None = None
    policies: dict[Policy, Annotated[str, Field(pattern=CLASS)]] = {}
    transport: Literal["mrc", "roce"] = "mrc"
    inject: Inject | None = None
    workload: Workload | None = None
    experiment: str | None = None
    profiles: list[ProfileSpec] = []
    schedule: list[ExperimentStep] = []
    random_failures: Annotated[RandomFailures | None, Field(json_schema_extra=formerly("drawn"))] = None
    random_links: Annotated[list[RandomLink], Field(max_length=20, json_schema_extra=formerly("links"))] = []
    expect: Expectation = Expectation()
    capture: Ports = "none"
    snaplen: Annotated[int, Field(ge=64, le=65_535)] = 160
    hidden: bool = False
    recorded: bool = False

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(each is not None for each in (self.inject, self.workload, self.experiment)) != 1:
            raise ValueError("a run has exactly one of workload, experiment and inject")
        if self.inject is not None and self.capture != "none":
            raise ValueError("a run with inject records every port; leave capture out")
        if self.random_failures is not None and self.workload is None:
            raise ValueError("`random_failures` needs a `workload` in the same run; add one")
        return self


class CheckSpec(Model):
    """A line of a check: its `kind` (`mrclab workshop kinds`), its `runs` (all if left out), and its `params`.

    `statement` is what is printed; `hint` is shown first when it fails. `given`: the starter holds it already, so that
    it earns nothing; it costs as much as another check earns if an answer breaks it.
    """

    kind: Name
    statement: Annotated[Text, Field(json_schema_extra=formerly("says"))]
    runs: list[Name] = []
    params: Document = {}
    hint: Text | None = None
    given: bool = False


class SeedSpec(Model):
    """The seeds of the labs, visible and hidden. Fewer seeds make a check faster."""

    visible: Seeds = [1]
    hidden: Seeds = [11]


class CodeLimits(Model):
    """The limits of the learner's code, per check."""

    cpu_s: Annotated[int, Field(ge=1, le=3600)] = 120
    wall_s: Annotated[int, Field(ge=1, le=3600)] = 180
    memory_mb: Annotated[int, Field(ge=256, le=65_536)] = 3072


class ExerciseFile(Model):
    """`exercise.yaml`. `level`: core, or open (its checks give a `score`, which grades show)."""

    title: Text
    minutes: Annotated[int, Field(ge=5, le=600)]
    learn: Text
    language: Literal["P4", "Python", "YAML", "YAML, Python", "YAML, text"]
    edit: Annotated[list[str], Field(min_length=1, max_length=10)]
    seeds: SeedSpec = SeedSpec()
    runs: Annotated[list[RunSpec], Field(min_length=1, max_length=30)]
    checks: Annotated[list[CheckSpec], Field(min_length=1, max_length=30)]
    hints: Annotated[list[Text], Field(min_length=1, max_length=10)]
    limits: CodeLimits = CodeLimits()
    level: Literal["core", "open"] = "core"

    @field_validator("edit")
    @classmethod
    def _plain(cls, edit: list[str]) -> list[str]:
        for each in edit:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*\.(p4|py|yaml|md|txt)", each):
                raise ValueError(f"'{each[:60]}' is not a plain file name ending in .p4, .py, .yaml, .md or .txt")
        return edit

    @model_validator(mode="after")
    def _names(self) -> Self:
        names = [run.name for run in self.runs]
        again = next((each for each in names if names.count(each) > 1), None)
        if again is not None:
            raise ValueError(f"two runs are called '{again}'; give each its own name")
        for check in self.checks:
            unknown = next((each for each in check.runs if each not in names), None)
            if unknown is not None:
                raise ValueError(f"check '{check.kind}': no run '{unknown}'; there are: {', '.join(names)}")
        for run in self.runs:
            for what, named in (("program", run.program), ("experiment", run.experiment)):
                if named is not None and named not in self.edit:
                    raise ValueError(f"run '{run.name}': {what} '{named}' is not one of the files to edit")
            for policy, where in run.policies.items():
                if where.partition(":")[0] + ".py" not in self.edit:
                    raise ValueError(f"run '{run.name}': policy {policy} '{where}' is in none of the files to edit")
        return self


class Exercise:
    """An exercise: its number and name, its folder, and the content of its file."""

    def __init__(self, folder: pathlib.Path, content: ExerciseFile) -> None:
        self.folder = folder
        self.content = content
        found = FOLDER_NAME.match(folder.name)
        self.number = int(found.group(1)) if found else 0
        self.name = folder.name

    @property
    def starter(self) -> pathlib.Path:
        """The files that the learner begins with."""
        return self.folder / STARTER

    @property
    def solution(self) -> pathlib.Path:
        """The files of one solution."""
        return self.folder / SOLUTION

    def runs(self, *, hidden: bool) -> list[RunSpec]:
        """Return the runs with hidden seeds, or those with visible ones."""
        return [run for run in self.content.runs if hidden or not run.hidden]


def load(folder: pathlib.Path) -> Exercise:
    """Return the exercise in a folder.

    Raises:
        ExperimentError: its file is not that of an exercise.
        WorkshopError: files that it names are missing, or its checks are unknown.
    """
    exercise = Exercise(folder, read(ExerciseFile, folder / FILE, EXAMPLE))
    problems = []
    for part in (STARTER, SOLUTION):
        for name in exercise.content.edit:
            if not (folder / part / name).is_file():
                problems.append(f"{folder / part / name}: is missing; `edit` of {FILE} names it")
    if not (folder / README).is_file():
        problems.append(f"{folder / README}: is missing; every exercise has one")
    for index, check in enumerate(exercise.content.checks):
        problems += [
            f"{folder / FILE}: checks.{index}: {each}" for each in catalogue.problems(check.kind, check.params)
        ]
    for index, run in enumerate(exercise.content.runs):
        if run.lab.endswith(".yaml") and run.lab not in exercise.content.edit and not (folder / run.lab).is_file():
            problems.append(f"{folder / FILE}: runs.{index}.lab: no file '{run.lab}' beside it or among `edit`")
    if problems:
        raise WorkshopError("\n".join(problems))
    return exercise


def known() -> dict[int, pathlib.Path]:
    """Return the folders of the exercises that come with the project, by number."""
    folders = sorted(path.parent for path in shipped("workshop").glob(f"*/{FILE}"))
    found = {}
    for folder in folders:
        match = FOLDER_NAME.match(folder.name)
        if match:
            found[int(match.group(1))] = folder
    return found


def find(number_or_folder: str) -> Exercise:
    """Return an exercise by number, by name, or by the folder that it is in.

    Raises:
        WorkshopError: there is no such exercise.
    """
    folders = known()
    given = str(int(number_or_folder)) if number_or_folder.isdecimal() else number_or_folder
    names = {
        name: folder / FILE
        for number, folder in folders.items()
        for name in (str(number), folder.name, folder.name[3:])
    }
    listed = ", ".join(folder.name for folder in folders.values())
    try:
        path = find_named(given, names, "exercise", inside=FILE, listed=listed)
    except UnknownNameError as error:
        raise WorkshopError(str(error)) from error
    return load(path.absolute().parent)
