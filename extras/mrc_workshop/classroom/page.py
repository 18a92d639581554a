"""The progress of a class as one page that opens anywhere."""

from __future__ import annotations

import html
from collections.abc import Sequence

from mrc_topo.base import look
from mrc_workshop.classroom.classfile import Classroom, Student, shown_time
from mrc_workshop.classroom.standing import Standing, State

RULES = """.passed{background:var(--good-paper);color:var(--good)}.failed{background:var(--bad-paper);color:var(--bad)}
.waiting{background:var(--warn-paper);color:var(--warn)}.nothing{color:var(--muted)}td,th{padding:.25rem .6rem}
summary{cursor:pointer}"""


def page(classroom: Classroom, standings: Sequence[Standing], students: Sequence[Student], now_s: float) -> str:
    """Return the page of these students. `now_s`: the time that it states, in seconds since the epoch."""
    found = {(each.student, each.exercise): each for each in standings}
    head = ["student", "group"]
    for assignment in classroom.assignments:
        due = "" if assignment.due_s is None else f"<br>due {shown_time(assignment.due_s)}"
        head.append(f"{html.escape(assignment.name)}{due}")
    head.append("points")
    rows, reasons = [], []
    for student in students:
        row = [f"{html.escape(student.name)} ({html.escape(student.id)})", html.escape(student.group)]
        mine = [found[student.id, each.name] for each in classroom.assignments]
        for each in mine:
            row.append(f'<span class="{each.state}" title="{html.escape(each.reason)}">{html.escape(each.word)}</span>')
            if each.reason or each.equals:
                reasons.append(_reason(student, each))
        row.append(f"{sum(each.points or 0.0 for each in mine):g}")
        rows.append(row)
    counts = [
        f"{html.escape(each.name)}: {sum(found[s.id, each.name].state is State.PASSED for s in students)}"
        f" of {len(students)}"
        for each in classroom.assignments
    ]
    body = (
        f"<h1>{html.escape(classroom.content.title)}</h1>"
        f"<p class=note>{shown_time(now_s)}. Passed: {', '.join(counts)}. "
        "<b>?</b> waits to be graded; <b>late</b>: a version after the deadline; <b>=</b>: equal to another answer or "
        f"to the solution.</p>{look.table(head, rows)}"
    )
    if reasons:
        body += f"<details><summary>Reasons</summary>{look.table(['student', 'exercise', 'why'], reasons)}</details>"
    return look.page(classroom.content.title, body, rules=RULES)


def _reason(student: Student, standing: Standing) -> list[str]:
    why = standing.reason
    if standing.equals:
        why = "; ".join(each for each in (why, f"equal to: {', '.join(standing.equals)}") if each)
    return [html.escape(student.name), html.escape(standing.exercise), html.escape(why)]
