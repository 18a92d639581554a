"""Is an exercise sound? The starter fails and says why, the solution passes, and typical wrong answers are told apart.

`wrong.yaml` beside `exercise.yaml` has what each failure must say: of the starter, and of at least three wrong answers,
which are the solution with pieces of text replaced.
"""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from mrc_control.runs.experiment import read
from mrc_control.workshop import judge
from mrc_control.workshop.exercise import Exercise, WorkshopError
from mrc_control.workshop.judge import Report
from mrc_topo.document import NAME, Model

FILE = "wrong.yaml"
EXAMPLE = "a list of wrong answers is a mapping with starter and wrong; see workshop/TEMPLATE"


class Replacement(Model):
    """A piece of text of one file of the solution, which is there once, and what stands in its place."""

    file: str
    old: Annotated[str, Field(min_length=1)]
    new: str


class Wrong(Model):
    """A wrong answer: what differs from the solution, and what the check must say of it."""

    name: Annotated[str, Field(pattern=NAME)]
    says: Annotated[str, Field(min_length=5)]
    replace: Annotated[list[Replacement], Field(min_length=1)]


class WrongFile(Model):
    """`wrong.yaml`."""

    starter: Annotated[str, Field(min_length=5)]
    wrong: Annotated[list[Wrong], Field(min_length=3)]


@dataclass(frozen=True)
class Trial:
    """An answer and what must come of it: to pass, or to fail with a text that has `says` in it."""

    name: str
    says: str | None
    report: Report

    @property
    def holds(self) -> bool:
        """Whether it came so."""
        if self.says is None:
            return self.report.passed
        return not self.report.passed and " ".join(self.says.split()) in " ".join(self.report.reason.split())

    def text(self) -> str:
        """What came of it, in a line."""
        found = "passed" if self.report.passed else f"failed: {self.report.reason}"
        if self.holds:
            return f"{self.name}: {found}"
        wanted = "must pass" if self.says is None else f"must fail and say '{self.says}'"
        return f"{self.name}: {wanted}, but {found}"


def load(exercise: Exercise) -> WrongFile:
    """The wrong answers of an exercise. Raises ExperimentError."""
    return read(WrongFile, exercise.folder / FILE, EXAMPLE)


def write_wrong(exercise: Exercise, wrong: Wrong, folder: pathlib.Path) -> None:
    """Writes a wrong answer into a folder.

    Raises:
        WorkshopError: a piece of text is not there exactly once.
    """
    for path in exercise.solution.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    for each in wrong.replace:
        path = folder / each.file
        if not path.is_file():
            raise WorkshopError(f"{exercise.folder / FILE}: {wrong.name}: the solution has no file {each.file}")
        text = path.read_text()
        if text.count(each.old) != 1:
            raise WorkshopError(
                f"{exercise.folder / FILE}: {wrong.name}: this is in {each.file} {text.count(each.old)} times, "
                f"not once: {each.old.strip()[:80]}"
            )
        path.write_text(text.replace(each.old, each.new))


def trials(exercise: Exercise, progress: Callable[[str], None] = lambda text: None) -> Iterator[Trial]:
    """Checks starter, solution and every wrong answer; those that must fail, with the first visible seed alone."""
    expected = load(exercise)
    for name, says, folder in (
        ("starter", expected.starter, exercise.starter),
        ("solution", None, exercise.solution),
    ):
        progress(name)
        yield Trial(name, says, judge.check(exercise, folder, quick=says is not None))
    for wrong in expected.wrong:
        progress(wrong.name)
        yield try_wrong(exercise, wrong)


def try_wrong(exercise: Exercise, wrong: Wrong) -> Trial:
    """Checks one wrong answer with the first visible seed. Raises WorkshopError as `write_wrong`."""
    with tempfile.TemporaryDirectory(prefix="mrclab-wrong-") as made:
        write_wrong(exercise, wrong, pathlib.Path(made))
        return Trial(wrong.name, wrong.says, judge.check(exercise, pathlib.Path(made), quick=True))
