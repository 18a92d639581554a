"""Class file and roster: exercises with their deadlines, and students with the place of their work."""

from __future__ import annotations

import csv
import io
import os
import pathlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from mrc_topo.base.document import NAME, DocumentError, Model, explain, load, printable, read_text
from mrc_topo.base.errors import UsageError
from mrc_workshop import exercise as exercises
from mrc_workshop.exercise import Exercise, Seed, WorkshopError

FILE, ROSTER, STORE = "class.yaml", "roster.csv", "kept"
EXAMPLE = "a class is a mapping with title and exercises; `mrclab workshop class new DIR` writes one"
MAX_STUDENTS = 5000

#: A folder below another one: no `..`, no absolute path, no hidden parts.
FOLDER = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
#: The names that useradd(8) of Debian accepts.
ACCOUNT = r"^[a-z_][a-z0-9_-]{0,31}$"

#: What to write for a value that does not match a pattern of this file.
_REMEDIES = {
    FOLDER: "write a folder below the other one, such as mrclab or course/mrc: letters, digits and . _ - only",
    ACCOUNT: "write the name of an account of this machine: lower-case letters, digits, _ and -",
}


class ClassExercise(Model):
    """An exercise of a class. `due`: the deadline in ISO 8601 with its zone; without it nothing is late."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    due: Annotated[str, Field(max_length=40)] | None = None
    points: Annotated[float, Field(gt=0, le=1000)] = 100.0

    @field_validator("name", mode="before")
    @classmethod
    def _number(cls, name: object) -> object:
        return str(name) if isinstance(name, int) else name

    @field_validator("due")
    @classmethod
    def _moment(cls, due: str | None) -> str | None:
        if due is not None:
            moment(due)
        return due


class ClassFile(Model):
    """`class.yaml`. `work`: the folder of the exercises below a student's home. `inbox`: the folder of files that
    students handed in. `store`: the folder of this class's records. `late_factor`: the share of its grade that a late
    submission gets. `seeds`: hidden seeds of the instructor's own."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    roster: Annotated[str, Field(pattern=FOLDER)] = ROSTER
    work: Annotated[str, Field(pattern=FOLDER)] | None = None
    inbox: Annotated[str, Field(pattern=FOLDER)] | None = None
    store: Annotated[str, Field(pattern=FOLDER)] = STORE
    exercises: Annotated[list[ClassExercise], Field(min_length=1, max_length=100)]
    late_factor: Annotated[float, Field(ge=0, le=1)] = 1
    seeds: Annotated[list[Seed], Field(max_length=20)] = []


class Student(Model):
    """A row of the roster. The work is in the home of `account`, or in `folder` beside the class file; with neither,
    files with the student's `id` in the inbox are theirs."""

    id: Annotated[str, Field(pattern=NAME)]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    account: Annotated[str, Field(pattern=ACCOUNT)] | None = None
    folder: Annotated[str, Field(pattern=FOLDER)] | None = None
    group: Annotated[str, Field(max_length=100)] = ""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.account is not None and self.folder is not None:
            raise ValueError("has both an account and a folder; empty one of the two")
        return self


@dataclass(frozen=True)
class Assignment:
    """An exercise of the class with its deadline in seconds since the epoch, and its points."""

    exercise: Exercise
    due_s: float | None
    points: float

    @property
    def name(self) -> str:
        """The name of the exercise."""
        return self.exercise.name

    def late(self, changed_s: float) -> bool:
        """Return whether a submission of this time, in seconds since the epoch, is late."""
        return self.due_s is not None and changed_s > self.due_s


@dataclass(frozen=True)
class Classroom:
    """A class: its file, its students in the order of the roster, and its exercises."""

    path: pathlib.Path
    content: ClassFile
    students: list[Student]
    assignments: list[Assignment]

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the class file; paths in it start here."""
        return self.path.parent

    @property
    def store(self) -> pathlib.Path:
        """The folder of the records."""
        return self.folder / self.content.store

    def student(self, name: str) -> Student:
        """Return a student by id.

        Raises:
            WorkshopError: there is none.
        """
        found = next((each for each in self.students if each.id == name), None)
        if found is None:
            raise WorkshopError(f"{self.folder / self.content.roster}: has no student '{printable(name)[:60]}'")
        return found

    def assignment(self, name: str) -> Assignment:
        """Return an exercise of the class by number or name.

        Raises:
            WorkshopError: the class has no such exercise.
        """
        found = next((each for each in self.assignments if name in (each.name, str(each.exercise.number))), None)
        if found is None:
            listed = ", ".join(each.name for each in self.assignments)
            raise WorkshopError(
                f"{self.path}: exercises: '{printable(name)[:60]}' is not one of them; they are: {listed}"
            )
        return found


def moment(text: str) -> float:
    """Return a time in ISO 8601 with its zone as seconds since the epoch.

    Raises:
        ValueError: it is not such a time; the text says what is.
    """
    shown = printable(text)[:60]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{shown}' is not a time; write it as 2027-05-04T18:00:00+02:00, in quotes") from None
    if found.tzinfo is None:
        raise ValueError(f"'{shown}' has no zone; add one, as in {shown}+02:00 or {shown}Z")
    return found.timestamp()


def shown_time(seconds: float) -> str:
    """Return a time, given in seconds since the epoch, in ISO 8601 and UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def read_class(path: pathlib.Path) -> Classroom:
    """Read a class file and its roster.

    Raises:
        WorkshopError: a problem per line, with file, place and remedy.
    """
    if path.is_dir():
        path = path / FILE
    try:
        document = load(path, str(path), EXAMPLE)
        content = ClassFile.model_validate(document.data)
    except DocumentError as error:
        raise WorkshopError(str(error)) from error
    except ValidationError as error:
        problems = []
        for each in error.errors():
            pattern = str(each.get("ctx", {}).get("pattern", ""))
            problems.append(document.problem(tuple(each["loc"]), _REMEDIES.get(pattern) or explain(ClassFile, each)))
        raise WorkshopError("\n".join(problems)) from error
    _private(path, content)
    assignments: list[Assignment] = []
    wrong: list[str] = []
    for index, spec in enumerate(content.exercises):
        # A path starts at the folder of the class file, as all paths in it.
        named = str(path.parent / spec.name) if "/" in spec.name else spec.name
        try:
            found = exercises.find(named)
        except UsageError as error:
            wrong.append(document.problem(("exercises", index, "name"), str(error).splitlines()[0]))
            continue
        if any(found.name == each.name for each in assignments):
            wrong.append(document.problem(("exercises", index, "name"), f"{found.name} is given twice; keep one"))
        due = None if spec.due is None else moment(spec.due)
        assignments.append(Assignment(found, due, spec.points))
    if wrong:
        raise WorkshopError("\n".join(wrong))
    return Classroom(path, content, read_roster(path.parent / content.roster), assignments)


def _private(path: pathlib.Path, content: ClassFile) -> None:
    """Refuse hidden seeds in a file that other users can read."""
    if content.seeds and os.stat(path).st_mode & 0o044:
        raise WorkshopError(f"{path}: seeds: other users can read them, and they are secret; `chmod 600 {path}`")


def read_roster(path: pathlib.Path) -> list[Student]:
    """Read a roster: a CSV file with a header, separated by commas or semicolons, as spreadsheets write it.

    Raises:
        WorkshopError: a problem per line, with file, line, column and remedy.
    """
    try:
        text = read_text(path, str(path)).removeprefix("\ufeff")
    except DocumentError as error:
        raise WorkshopError(str(error)) from error
    header = text.partition("\n")[0]
    separator = ";" if header.count(";") > header.count(",") else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    known = list(Student.model_fields)
    found: list[Student] = []
    problems: list[str] = []
    try:
        columns = [each.strip().lower() for each in reader.fieldnames or ()]
        unknown = [each for each in columns if each not in known]
        lacking = [each for each in ("id", "name") if each not in columns]
        if unknown or lacking or len(set(columns)) < len(columns):
            wrong = f"column '{printable(unknown[0])[:40]}' is unknown" if unknown else "columns are missing or double"
            raise WorkshopError(f"{path}:1: {wrong}; the first line has id, name and any of {', '.join(known[2:])}")
        reader.fieldnames = columns
        for row in reader:
            _add(row, f"{path}:{reader.line_num}", found, problems)
            if len(found) > MAX_STUDENTS:
                raise WorkshopError(f"{path}: more than {MAX_STUDENTS} students; make classes of them")
    except csv.Error as error:
        raise WorkshopError(f"{path}:{reader.line_num}: not CSV: {error}; save it as CSV again") from error
    if problems:
        raise WorkshopError("\n".join(problems[:20]))
    if not found:
        raise WorkshopError(f"{path}: has no students; add a line for each below the first one")
    return found


def _add(row: dict[str, str], place: str, found: list[Student], problems: list[str]) -> None:
    """Add a row to the students, or what is wrong with it to the problems."""
    if None in row or None in row.values():
        problems.append(f"{place}: has not as many cells as the first line; quote names with separators in them")
        return
    given = {key: " ".join(value.split()) for key, value in row.items()}
    if not any(given.values()):
        return
    try:
        student = Student.model_validate({key: value for key, value in given.items() if value})
    except ValidationError as error:
        for each in error.errors():
            key = ".".join(map(str, each["loc"])) or given.get("id", "")
            pattern = str(each.get("ctx", {}).get("pattern", ""))
            problems.append(f"{place}: {printable(key)}: {_REMEDIES.get(pattern) or explain(Student, each)}"[:400])
        return
    for key in ("id", "account", "folder"):
        value = getattr(student, key)
        if value is not None and any(str(getattr(each, key)).lower() == value.lower() for each in found):
            problems.append(f"{place}: {key}: '{value}' is in an earlier line, too; each student has a different one")
    found.append(student)


def write_example(folder: pathlib.Path) -> list[pathlib.Path]:
    """Write a class file and a roster to change into a new or empty folder.

    Raises:
        WorkshopError: the folder is not empty, or cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise WorkshopError(f"{folder}: is not empty; give another folder")
        (folder / "inbox").mkdir(mode=0o700)
        for name, text in ((FILE, _CLASS), (ROSTER, _ROSTER)):
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise WorkshopError(f"{error.filename or folder}: {error.strerror}") from error
    return [folder / FILE, folder / ROSTER]


_CLASS = """\
# A class of the workshop. Paths start at the folder of this file.
title: MRC in four weeks
roster: roster.csv
# On a shared server: the folder below each home in which students type `mrclab workshop start`.
work: mrclab
# For laptops: the folder in which you put the files that students hand in.
inbox: inbox
exercises:
  - {name: 1, due: "2027-05-04T18:00:00+02:00", points: 10}
  - {name: 2, due: "2027-05-11T18:00:00+02:00", points: 10}
# The share of its grade that a late submission gets.
late_factor: 0.5
# A number of nine digits that no student knows makes hidden runs of your own.
seeds: []
"""
_ROSTER = """\
id,name,account,folder,group
s001,"Lee, Ann",,,A
s002,Bob Roy,,,B
"""
