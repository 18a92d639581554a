"""Gradebooks of a class as CSV: a table of everything, and the forms that Moodle and Canvas import.

Moodle: "Grade import" of its documentation (docs.moodle.org/en/Grade_import): any columns, which the teacher maps; a
student is found by ID number, e-mail address or user name; `-` is no grade; who imports feedback must import the grade,
too. Canvas: the header that `lib/gradebook_importer.rb` of its source asks for, as "Gradebook: import grades" of its
guides describes: Student, ID, SIS User ID, SIS Login ID, Section, then assignments; a row with the points possible.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from enum import StrEnum

from mrc_common.document import csv_cell
from mrc_workshop.classroom.classfile import Classroom, Student
from mrc_workshop.classroom.standing import Standing, State


class Form(StrEnum):
    """A form of gradebook."""

    CSV = "csv"
    """A row for each student and exercise, with everything that is known."""
    MOODLE = "moodle"
    CANVAS = "canvas"


#: What Moodle reads as the absence of a grade; alone in a cell it is no formula.
NO_GRADE = "-"
COLUMNS = (
    "id", "name", "group", "exercise", "state", "points", "most_points", "grade", "late_grade", "late", "changed",
    "versions", "equals", "reason", "isolated",
)  # fmt: skip


def export(classroom: Classroom, standings: Sequence[Standing], form: Form) -> str:
    """Return the gradebook of a class. Every text is quoted where CSV needs it, and one that a spreadsheet would take
    for a formula begins with an apostrophe."""
    found = {(each.student, each.exercise): each for each in standings}
    rows = {Form.CSV: _all, Form.MOODLE: _moodle, Form.CANVAS: _canvas}[form](classroom, found)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    for row in rows:
        writer.writerow([_cell(each) for each in row])
    return out.getvalue()


def _cell(value: str | float) -> str | float:
    if not isinstance(value, str) or value == NO_GRADE:
        return value
    return str(csv_cell(" ".join(value.split())))


Rows = Iterable[Sequence[str | float | int]]
Found = dict[tuple[str, str], Standing]


def _number(value: float | None, absent: str = "") -> str | float:
    return absent if value is None else value


def _all(classroom: Classroom, found: Found) -> Rows:
    yield COLUMNS
    for student in classroom.students:
        for assignment in classroom.assignments:
            each = found[student.id, assignment.name]
            yield (
                student.id, student.name, student.group, assignment.name, each.state, _number(each.points),
                each.most_points, _number(each.grade), _number(each.late_grade), "late" if each.late else "",
                each.changed, each.versions, " ".join(each.equals), each.reason, each.isolated,
            )  # fmt: skip


def _moodle(classroom: Classroom, found: Found) -> Rows:
    columns = [name for each in classroom.assignments for name in (each.column, f"{each.column} (feedback)")]
    yield ("ID number", "Full name", "Email address", "Group", *columns)
    for student in classroom.students:
        cells: list[str | float] = [student.id, student.name, student.email or "", student.group]
        for assignment in classroom.assignments:
            each = found[student.id, assignment.name]
            cells += [_number(each.points, NO_GRADE), _feedback(each)]
        yield cells


def _canvas(classroom: Classroom, found: Found) -> Rows:
    assignments = classroom.assignments
    yield ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", *(each.column for each in assignments))
    yield ("Points Possible", "", "", "", "", *(each.points for each in assignments))
    for student in classroom.students:
        points = [_number(found[student.id, each.name].points) for each in assignments]
        yield (student.name, student.canvas or "", student.id, _login(student), student.group, *points)


def _login(student: Student) -> str:
    """Return the student's name of log-in at Canvas: that of the roster, or else what is most often the same."""
    return student.canvas_login or student.account or (student.email or "").partition("@")[0]


def _feedback(standing: Standing) -> str:
    if standing.state is State.NOTHING:
        return "nothing handed in"
    late = f"late ({standing.changed}); " if standing.late else ""
    return late + (standing.reason or str(standing.state))
