"""The grades of a class as CSV: a row for each student and exercise, with everything that is known."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from mrc_topo.base.document import csv_cell
from mrc_workshop.classroom.classfile import Classroom
from mrc_workshop.classroom.standing import Standing

COLUMNS = (
    "id", "name", "group", "exercise", "state", "points", "most_points", "grade", "late_grade", "late", "changed",
    "versions", "equals", "reason", "isolated",
)  # fmt: skip


def export(classroom: Classroom, standings: Sequence[Standing]) -> str:
    """Return the grades of a class. Every text is quoted where CSV needs it, and one that a spreadsheet would take
    for a formula begins with an apostrophe."""
    by_place = {(standing.student, standing.exercise): standing for standing in standings}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for student in classroom.students:
        for assignment in classroom.assignments:
            standing = by_place[student.id, assignment.name]
            row = (
                student.id, student.name, student.group, assignment.name, standing.state, standing.points,
                standing.most_points, standing.grade, standing.late_grade, "late" if standing.late else "",
                standing.changed, standing.versions, " ".join(standing.equals), standing.reason, standing.isolated,
            )  # fmt: skip
            writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def _cell(value: str | float | None) -> str | float | None:
    return str(csv_cell(" ".join(value.split()))) if isinstance(value, str) else value
