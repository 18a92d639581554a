"""`mrclab workshop class`: a whole class, from its roster to its grades."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from mrc_topo.base.document import printable
from mrc_topo.base.errors import UsageError
from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import interruptible
from mrc_workshop.classroom import classfile, collecting, gradebook, notebooks, page, resetting, standing
from mrc_workshop.classroom.classfile import Classroom, Student
from mrc_workshop.classroom.standing import Standing, State
from mrc_workshop.classroom.store import ClassStore
from mrc_workshop.grade import Grade
from mrclab.results.terminal import Terminal

app = typer.Typer(
    help="Run a class: collect what students did, grade it, see who is where, export grades.",
    no_args_is_help=True,
    add_completion=False,
)

ClassPath = Annotated[str, typer.Option("--class", metavar="FILE", help="the class file, or its folder")]
Group = Annotated[str | None, typer.Option("--group", help="only the students of this group")]
CLASS = classfile.FILE


@app.command("new")
def new_class(folder: Annotated[str, typer.Argument(metavar="DIR", help="a new folder")]) -> None:
    """Write a class file and a roster to change into a new folder."""
    for path in classfile.write_example(pathlib.Path(folder)):
        typer.echo(path)
    typer.echo(f"Change both; then: mrclab workshop class collect --class {folder}")


@app.command()
def collect(
    path: ClassPath = CLASS,
    received: Annotated[
        str | None,
        typer.Option("--received", help="when all of it was handed in (2027-05-04T18:00:00Z), if you know better"),
    ] = None,
) -> None:
    """Copy what students did or handed in into the records of the class; change nothing of theirs."""
    classroom = classfile.read_class(pathlib.Path(path))
    try:
        received_s = None if received is None else classfile.moment(received)
    except ValueError as error:
        raise UsageError(f"--received: {error}") from error
    store = ClassStore(classroom)
    with store.changing():
        made = collecting.collect(classroom, store, received_s)
    for each in made.receipts:
        late = " (late)" if classroom.assignment(each.exercise).late(each.changed_s) else ""
        typer.echo(f"{each.student} {each.exercise}: version {each.number} of {shown(each.changed_s)}{late}")
    for problem in made.problems:
        typer.echo(f"not read: {printable(problem)}", err=True)
    typer.echo(f"{len(made.receipts)} new versions, {len(made.problems)} problems; records: {store.folder}")


@app.command("grade")
def grade_class(
    path: ClassPath = CLASS,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="checks at a time (default: one per core)")] = None,
) -> None:
    """Grade what was collected, each version in a sandbox; what was graded before is not run again."""
    classroom = classfile.read_class(pathlib.Path(path))
    store = ClassStore(classroom)
    with store.changing(), interruptible():
        standing.grade_class(classroom, store, jobs=jobs, progress=_tell)
    made = standing.standings(classroom, store)
    counts = {state: sum(each.state is state for each in made) for state in State}
    words = {state: "not handed in" if state is State.NOTHING else str(state) for state in State}
    typer.echo(", ".join(f"{number} {words[state]}" for state, number in counts.items()))


@app.command("progress")
def show_progress(
    path: ClassPath = CLASS,
    group: Group = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="write a page (HTML) to this file")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show the progress of the class: students and exercises, from the grades of what was collected."""
    classroom = classfile.read_class(pathlib.Path(path))
    students = _chosen(classroom, group)
    made = standing.standings(classroom, ClassStore(classroom))
    mine = [each for each in made if each.student in {student.id for student in students}]
    if output is not None:
        write_whole(output, page.page(classroom, made, students, time.time()))
        if not as_json:
            typer.echo(output)
            return
    if as_json:
        typer.echo(json.dumps([each.document() for each in mine], indent=1))
        return
    Terminal().print(_table(classroom, mine, students))
    typer.echo("? waits for `class grade`, % of the checks hold, late: after the deadline, =: equal to another answer")


@app.command()
def reset(
    student: Annotated[str, typer.Argument(help="the student's id")],
    exercise: Annotated[str, typer.Argument(help="number or name of an exercise")],
    path: ClassPath = CLASS,
) -> None:
    """Put the starter into a student's folder, after a backup of what is there."""
    classroom = classfile.read_class(pathlib.Path(path))
    who, what = classroom.student(student), classroom.assignment(exercise)
    store = ClassStore(classroom)
    with store.changing():
        backup = resetting.reset(classroom, store, who, what)
    typer.echo(f"{who.id} {what.name}: as in the beginning; backup: {backup}; beside the starter: FILE.mine")


@app.command()
def export(
    output: Annotated[str, typer.Option("-o", "--output", help="the CSV file to write")],
    path: ClassPath = CLASS,
) -> None:
    """Write the grades as CSV."""
    classroom = classfile.read_class(pathlib.Path(path))
    made = standing.standings(classroom, ClassStore(classroom))
    write_whole(output, gradebook.export(classroom, made), mode=0o600)
    waiting = sum(each.state is State.WAITING for each in made)
    tail = f"; {waiting} wait for `mrclab workshop class grade`" if waiting else ""
    typer.echo(f"{output}: {len(classroom.students)} students, {len(classroom.assignments)} exercises{tail}")


@app.command("notebooks")
def write_notebooks(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="the folder of a course of nbgrader")],
    numbers: Annotated[
        list[str] | None, typer.Argument(metavar="[N]...", help="exercises in Python or YAML (default: 2, 5 and 7)")
    ] = None,
) -> None:
    """Write exercises as notebooks for nbgrader, into DIR/source."""
    for path in notebooks.write_all(numbers, pathlib.Path(folder)):
        typer.echo(path)


def shown(seconds: float) -> str:
    """Return a time in seconds since the epoch as text."""
    return classfile.shown_time(seconds)


def _tell(made: Grade, done: int, total: int) -> None:
    word = "passed" if made.passed else made.reason
    typer.echo(f"{made.exercise}: {done} of {total}  {made.submission}: {word}")


def _chosen(classroom: Classroom, group: str | None) -> list[Student]:
    if group is None:
        return classroom.students
    found = [each for each in classroom.students if each.group == group]
    if not found:
        groups = ", ".join(sorted({each.group for each in classroom.students if each.group})) or "none"
        raise UsageError(f"--group: no student is in '{printable(group)[:60]}'; groups of the roster: {groups}")
    return found


def _table(classroom: Classroom, standings: Sequence[Standing], students: Sequence[Student]) -> Table:
    table = Table(box=None)
    for column in ("id", "name", *(each.name[:2] for each in classroom.assignments), "points"):
        table.add_column(column)
    for student in students:
        mine = [each for each in standings if each.student == student.id]
        points = sum(each.points or 0.0 for each in mine)
        table.add_row(student.id, printable(student.name), *(each.word for each in mine), f"{points:g}")
    passed = [
        sum(each.exercise == assignment.name and each.state is State.PASSED for each in standings)
        for assignment in classroom.assignments
    ]
    table.add_row("", "passed", *(f"{each} of {len(students)}" for each in passed), "")
    return table
