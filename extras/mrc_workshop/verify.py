"""Is an exercise sound? The starter fails and says why, the solution passes, and typical wrong answers are told apart.

`wrong.yaml` beside `exercise.yaml` has what each failure must say: of the starter, and of at least three wrong answers,
which are the solution with pieces of text replaced.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from mrc_topo.base.document import NAME, Model, formerly, printable
from mrc_topo.base.plain import DecodeError, decode
from mrc_workshop import judge
from mrc_workshop.exercise import FILE as EXERCISE
from mrc_workshop.exercise import Exercise, WorkshopError
from mrc_workshop.judge import Report
from mrclab.runs.experiment import read
from p4lite.scratch import scratch

FILE = "wrong.yaml"
EXAMPLE = "a list of wrong answers is a mapping with starter and wrong; see workshop/TEMPLATE"


class Replacement(Model):
    """A piece of text that one file of the solution has once, and its replacement."""

    file: str
    old: Annotated[str, Field(min_length=1)]
    new: str


class WrongAnswer(Model):
    """A wrong answer: its differences from the solution, and the text that the check must show."""

    name: Annotated[str, Field(pattern=NAME)]
    expected_text: Annotated[str, Field(min_length=5, json_schema_extra=formerly("says"))]
    replace: Annotated[list[Replacement], Field(min_length=1)]


class WrongFile(Model):
    """The content of `wrong.yaml`."""

    starter: Annotated[str, Field(min_length=5)]
    wrong: Annotated[list[WrongAnswer], Field(min_length=3)]


@dataclass(frozen=True)
class TrialRow:
    """A trial in JSON; every run of it must have the same `report`."""

    name: str
    holds: bool
    text: str
    cpu_s: float
    wall_s: float
    report: object


@dataclass(frozen=True)
class SelfCheck:
    """An answer and its expected outcome: to pass, or to fail with a text that contains `expected_text`."""

    name: str
    expected_text: str | None
    report: Report
    cpu_s: float = 0.0
    wall_s: float = 0.0
    earns_nothing: bool = False
    """Whether it is the starter, which holds exactly the checks that are `given`."""

    @property
    def misjudged(self) -> str:
        """The first check that the starter holds without being `given`, or the other way round; empty if none."""
        lines = self.report.lines if self.earns_nothing else []
        return next((line.what for line in lines if line.passed is not None and line.given is not line.passed), "")

    def row(self) -> TrialRow:
        """Return the row for `--json`."""
        told = {key: value for key, value in self.report.document().items() if key not in ("isolation", "files")}
        return TrialRow(self.name, self.holds, self.text(), round(self.cpu_s, 2), round(self.wall_s, 2), told)

    @property
    def holds(self) -> bool:
        """Whether the outcome was the expected one."""
        if self.expected_text is None:
            return self.report.passed
        if self.misjudged:
            return False
        return not self.report.passed and " ".join(self.expected_text.split()) in " ".join(self.report.reason.split())

    def text(self) -> str:
        """Return the outcome in a line."""
        found = "passed" if self.report.passed else f"failed: {self.report.reason}"
        if self.holds:
            return f"{self.name}: {found}"
        if self.misjudged:
            return (
                f"{self.name}: `given` in {EXERCISE} is true of just the checks that it holds; not so: {self.misjudged}"
            )
        wanted = "must pass" if self.expected_text is None else f"must fail and say '{self.expected_text}'"
        return f"{self.name}: {wanted}, but {found}"


def load(exercise: Exercise) -> WrongFile:
    """Return the wrong answers of an exercise. Raises ExperimentError."""
    return read(WrongFile, exercise.folder / FILE, EXAMPLE)


def write_wrong(exercise: Exercise, wrong: WrongAnswer, folder: pathlib.Path) -> None:
    """Write a wrong answer into a folder.

    Raises:
        WorkshopError: the solution does not have a piece of text exactly once.
    """
    for path in exercise.solution.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    for each in wrong.replace:
        path = folder / each.file
        if not path.is_file():
            raise WorkshopError(f"{exercise.folder / FILE}: {wrong.name}: the solution has no file {each.file}")
        text = path.read_text(encoding="utf-8")
        if text.count(each.old) != 1:
            raise WorkshopError(
                f"{exercise.folder / FILE}: {wrong.name}: this is in {each.file} {text.count(each.old)} times, "
                f"not once: {each.old.strip()[:80]}"
            )
        path.write_text(text.replace(each.old, each.new), encoding="utf-8")


def trials(
    exercise: Exercise, progress: Callable[[str], None] = lambda text: None, only: Sequence[str] = ()
) -> Iterator[SelfCheck]:
    """Check starter, solution and every wrong answer; wrong answers, with the first visible seed alone.

    Raises:
        WorkshopError: one of `only` (names of answers; all if empty) is unknown.
    """
    expected = load(exercise)
    known = ["starter", "solution", *(wrong.name for wrong in expected.wrong)]
    unknown = next((name for name in only if name not in known), None)
    if unknown is not None:
        raise WorkshopError(
            f"{exercise.folder / FILE}: no answer '{printable(unknown)}'; there are: {', '.join(known)}"
        )
    for name, expected_text, folder in (
        ("starter", expected.starter, exercise.starter),
        ("solution", None, exercise.solution),
    ):
        if only and name not in only:
            continue
        progress(name)
        begin = _clock()
        yield _timed(
            SelfCheck(
                name,
                expected_text,
                judge.check(exercise, folder),
                earns_nothing=expected_text is not None,
            ),
            begin,
        )
    for wrong in expected.wrong:
        if only and wrong.name not in only:
            continue
        progress(wrong.name)
        begin = _clock()
        yield _timed(try_wrong(exercise, wrong), begin)


def try_wrong(exercise: Exercise, wrong: WrongAnswer) -> SelfCheck:
    """Check one wrong answer with the first visible seed. Raises WorkshopError as `write_wrong`."""
    with scratch("wrong") as made:
        write_wrong(exercise, wrong, pathlib.Path(made))
        return SelfCheck(wrong.name, wrong.expected_text, judge.check(exercise, pathlib.Path(made), quick=True))


def _clock() -> tuple[float, float]:
    """Return the CPU time of this process and its awaited children, and the monotonic time, in seconds."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used), time.monotonic()


def _timed(trial: SelfCheck, begin: tuple[float, float]) -> SelfCheck:
    cpu, wall = _clock()
    return replace(trial, cpu_s=cpu - begin[0], wall_s=wall - begin[1])


# -- again and again -----------------------------------------------------------------------------------------


def repeated(exercise: Exercise, runs: int, hash_seeds: int, only: Sequence[str] = ()) -> Iterator[list[TrialRow]]:
    """Run all trials of an exercise `runs` times, each in a new process with the next of several PYTHONHASHSEEDs.

    Raises:
        WorkshopError: a process ended without a result.
    """
    for number in range(runs):
        environment = {**os.environ, "PYTHONHASHSEED": str(1 + number % hash_seeds)}
        code = "import sys; from mrclab.cli import app as cli; sys.argv[0] = 'mrclab'; cli.main()"
        command = [sys.executable, "-P", "-c", code, "workshop", "verify", str(exercise.folder), "--json"]
        command += [word for name in only for word in ("--answer", name)]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        try:
            found = decode(list[TrialRow], json.loads(done.stdout))
        except (ValueError, DecodeError):
            last = done.stderr.decode(errors="replace").strip()[-400:]
            raise WorkshopError(f"{exercise.folder}: verifying it ended with code {done.returncode}: {last}") from None
        yield found


def difference(first: Any, again: Any, where: str = "") -> str:
    """Return the first place where two results differ, with both values; empty if they are equal."""
    if isinstance(first, dict) and isinstance(again, dict) and first.keys() == again.keys():
        found = (difference(first[key], again[key], f"{where}.{key}") for key in first)
        return next((text for text in found if text), "")
    if isinstance(first, list) and isinstance(again, list) and len(first) == len(again):
        found = (difference(a, b, f"{where}[{index}]") for index, (a, b) in enumerate(zip(first, again, strict=True)))
        return next((text for text in found if text), "")
    return "" if first == again else f"{where.removeprefix('.')}: {first!r}, then {again!r}"[:600]


def differences(results: Sequence[list[TrialRow]]) -> list[str]:
    """Return where the trials of a run had another outcome than in the first run, a line for each trial and run."""
    found = []
    for number, result in enumerate(results[1:], 2):
        for one, other in zip(results[0], result, strict=True):
            text = difference(one.report, other.report)
            if text:
                found.append(f"{one.name}: run {number} is not like run 1: {text}")
    return found
