"""Standing of a class: the grades of what was collected, by student and exercise."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from mrc_workshop import grade as grading
from mrc_workshop.classroom.classfile import Assignment, Classroom, Student, shown_time
from mrc_workshop.classroom.store import ClassStore, Receipt
from mrc_workshop.exercise import Exercise
from mrc_workshop.grade import Grade

#: The grades of the versions in time and of the late ones, and the folders that the grader reads.
GRADES = {False: "grades.csv", True: "late.csv"}
FOLDERS = {False: "in-time", True: "late"}
#: Comments of P4, Python and YAML, and white space: answers that differ in these alone are equal.
_COMMENTS = {".p4": r"//[^\n]*|/\*.*?\*/", ".py": r"#[^\n]*", ".yaml": r"#[^\n]*"}


class State(StrEnum):
    """What is known of a student's exercise."""

    NOTHING = "nothing"
    """Nothing was collected."""
    WAITING = "waiting"
    """Collected and not graded yet, or not graded because the machine was too busy."""
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True)
class Standing:
    """A student's exercise. `grade`, `late_grade`: shares of the checks that hold in the last version in time and in
    the last late one; None where there is none, or it waits. `points`: those that count, the larger of both, the late
    ones times `late_factor`. `late`: there is a late version. `equals`: students, or `solution`, whose files are equal
    but for comments and white space."""

    student: str
    exercise: str
    state: State
    grade: float | None
    late_grade: float | None
    late: bool
    points: float | None
    most_points: float
    reason: str
    changed: str
    versions: int
    equals: tuple[str, ...]
    isolated: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @property
    def word(self) -> str:
        """A few characters for a table."""
        shown = {
            State.NOTHING: "-",
            State.WAITING: "?",
            State.PASSED: "passed",
            State.FAILED: f"{100 * max(self.grade or 0.0, self.late_grade or 0.0):.0f} %",
        }[self.state]
        return shown + (" late" if self.late else "") + (" =" if self.equals else "")


def grade_class(
    classroom: Classroom,
    store: ClassStore,
    *,
    jobs: int | None = None,
    progress: Callable[[Grade, int, int], None] = lambda made, done, total: None,
) -> list[Grade]:
    """Grade the last version in time, and the last late one, of every student and exercise. What was graded before with
    the same files, exercise and seeds is not run again. The lock of the records must be held.

    Raises:
        WorkshopError: the files of grades are not ours.
        WriteError: grades cannot be stored.
    """
    made: list[Grade] = []
    for assignment in classroom.assignments:
        for late in (False, True):
            place = _lay_out(classroom, store, assignment, late)
            if place is not None:
                made += [
                    each
                    for each in grading.grade(
                        place,
                        store.folder / GRADES[late],
                        only=assignment.exercise,
                        seeds=classroom.content.seeds,
                        jobs=jobs,
                        progress=progress,
                    )
                    if each.exercise == assignment.name
                ]
    return made


def _lay_out(classroom: Classroom, store: ClassStore, assignment: Assignment, late: bool) -> pathlib.Path | None:
    """Copy the versions that count to where the grader finds a folder for each student; None if there are none."""
    place = store.folder / FOLDERS[late] / assignment.name
    shutil.rmtree(place, ignore_errors=True)
    for student in classroom.students:
        receipt = store.counted(student.id, assignment)[late]
        if receipt is not None:
            shutil.copytree(store.version(receipt), place / student.id)
    return place if place.is_dir() else None


def standings(classroom: Classroom, store: ClassStore) -> list[Standing]:
    """Return where each student is with each exercise, in the order of roster and class file.

    Raises:
        WorkshopError: the files of grades cannot be read.
    """
    graded = {
        late: {(each.submission, each.exercise, each.digest): each for each in grading.read(store.folder / name)}
        for late, name in GRADES.items()
    }
    made = []
    for assignment in classroom.assignments:
        equal = equal_answers(store, assignment, classroom.students)
        for student in classroom.students:
            pair = store.counted(student.id, assignment)
            grades: list[Grade | None] = []
            for receipt, known in zip(pair, graded.values(), strict=True):
                key = None
                if receipt is not None:
                    made_of = grading.digest_of(assignment.exercise, store.version(receipt), classroom.content.seeds)
                    key = (student.id, assignment.name, made_of)
                grades.append(known.get(key) if key else None)
            made.append(_standing(classroom, store, student, assignment, pair, grades, equal.get(student.id, ())))
    order = {each.id: number for number, each in enumerate(classroom.students)}
    return sorted(made, key=lambda each: order[each.student])


def _standing(
    classroom: Classroom,
    store: ClassStore,
    student: Student,
    assignment: Assignment,
    receipts: Sequence[Receipt | None],
    grades: Sequence[Grade | None],
    equals: tuple[str, ...],
) -> Standing:
    shares = [None if each is None else each.grade for each in grades]
    factors = (1.0, classroom.content.late_factor)
    counted = [share * factor for share, factor in zip(shares, factors, strict=True) if share is not None]
    waiting = any(receipt is not None and share is None for receipt, share in zip(receipts, shares, strict=True))
    last = next((grade for grade in reversed(grades) if grade is not None), None)
    if not any(receipts):
        state = State.NOTHING
    elif waiting:
        state = State.WAITING
    else:
        state = State.PASSED if any(grade is not None and grade.passed for grade in grades) else State.FAILED
    newest = receipts[1] or receipts[0]
    problems = "; ".join(newest.problems) if newest is not None else ""
    reason = "" if state is State.PASSED or last is None else last.reason
    # Where the instructor's copy lies is not the student's concern.
    for name in FOLDERS.values():
        reason = reason.replace(f"{store.folder / name / assignment.name / student.id}/", "")
    return Standing(
        student=student.id,
        exercise=assignment.name,
        state=state,
        grade=shares[0],
        late_grade=shares[1],
        late=receipts[1] is not None,
        points=round(max(counted) * assignment.points, 2) if counted and not waiting else None,
        most_points=assignment.points,
        reason="; ".join(each for each in (problems, reason) if each),
        changed="" if newest is None else shown_time(newest.changed_s),
        versions=len(store.receipts(student.id, assignment.name)),
        equals=equals,
        isolated="" if last is None else last.isolated,
    )


def equal_answers(store: ClassStore, assignment: Assignment, students: Sequence[Student]) -> dict[str, tuple[str, ...]]:
    """Return the students whose last files equal those of others or the solution, but for comments and white space.

    Answers that equal the starter are left out: they were not changed.
    """
    exercise = assignment.exercise
    by_text: dict[str, list[str]] = {_plain(exercise, exercise.solution): ["solution"]}
    starter = _plain(exercise, exercise.starter)
    for student in students:
        receipts = store.receipts(student.id, assignment.name)
        text = _plain(exercise, store.version(receipts[-1])) if receipts else ""
        if text and text != starter:
            by_text.setdefault(text, []).append(student.id)
    return {
        name: tuple(each for each in group if each != name)
        for group in by_text.values()
        if len(group) > 1
        for name in group
        if name != "solution"
    }


def _plain(exercise: Exercise, folder: pathlib.Path) -> str:
    """Return the files of an answer without comments and white space; empty if it has none."""
    parts = []
    for name in exercise.content.edit:
        if os.path.isfile(folder / name):
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
            pattern = _COMMENTS.get(pathlib.PurePath(name).suffix)
            text = re.sub(pattern, "", text, flags=re.DOTALL) if pattern else text
            parts.append("".join(text.split()))
    return "\n".join(parts)
