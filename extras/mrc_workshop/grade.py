"""Grading a class: every submission is checked in a confined process of its own, and a CSV file says what came of it.

A submission is a sub-folder. It holds folders of exercises, by their names or with the marker that `mrclab workshop
start` leaves, or the files of one exercise themselves. What is in the CSV with the same digest of files, exercise and
seeds is not done again, so that a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields

from mrc_topo.base import interruption
from mrc_topo.base.document import csv_cell, printable
from mrc_topo.base.files import write_whole
from mrc_workshop import exercise as exercises
from mrc_workshop import judge, learner
from mrc_workshop.exercise import Exercise, NotGraded, WorkshopError

MAX_REASON = 300
MAX_HASHED_BYTES = 1_000_000


@dataclass(frozen=True)
class Grade:
    """A row of grades. `grade`: the share of the checks that hold, without those that the starter holds already; None
    where the machine was too busy to judge. Such a
    row has no `digest`, and the next command judges it again. `reason`: that of the first check that does not hold.
    `isolated`: whether the submission was kept from network, files and processes; else the missing parts of the
    isolation."""

    submission: str
    exercise: str
    passed: bool
    grade: float | None
    checks_passed: int
    checks: int
    score: float | None
    reason: str
    isolated: str
    seconds: float
    digest: str


COLUMNS = [each.name for each in fields(Grade)]


@dataclass(frozen=True)
class _Task:
    submission: str
    exercise: Exercise
    folder: pathlib.Path
    digest: str


def find(folder: pathlib.Path, only: Exercise | None) -> Iterator[tuple[str, Exercise, pathlib.Path]]:
    """Yield the submissions in a folder, in order: name, exercise and folder of the files.

    Raises:
        WorkshopError: the folder cannot be read, or has no submission.
    """
    known = {path.name: exercises.load(path) for path in exercises.known().values()}
    if only is not None:
        known = {only.name: only}
    found = names(folder)
    if not found:
        raise WorkshopError(f"{folder}: no submissions; each is a sub-folder with folders of exercises in it")
    for name in found:
        with contextlib.suppress(OSError):  # `_nothing` reports it
            for one, place in _of(folder / name, known, only):
                yield name, one, place


def names(folder: pathlib.Path) -> list[str]:
    """Return the submissions in a folder. Raises WorkshopError if it cannot be read."""
    try:
        return sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    except OSError as error:
        raise WorkshopError(f"{folder}: cannot be read: {error.strerror}") from error


def _nothing(folder: pathlib.Path, name: str, only: Exercise | None) -> Grade:
    """Return the row of a submission that contains no exercise."""
    place = folder / name
    if place.is_symlink():
        reason = "it is a link, and links are not followed; copy the folder itself to here"
    elif not os.access(place, os.R_OK | os.X_OK):
        reason = "the folder cannot be read; `chmod u+rx` it"
    else:
        reason = "no folder of an exercise in it: by its name, as 01-usid, or with the marker that `start` leaves"
    return Grade(cell(name), "" if only is None else only.name, False, 0.0, 0, 0, None, reason, "", 0.0, "")


def _of(
    place: pathlib.Path, known: dict[str, Exercise], only: Exercise | None
) -> Iterator[tuple[Exercise, pathlib.Path]]:
    if place.is_symlink():
        return
    mark = learner.exercise_of(place)
    if mark in known:
        yield known[mark], place
        return
    inside = sorted(each for each in place.iterdir() if each.is_dir() and not each.is_symlink())
    some = False
    for each in inside:
        name = each.name if each.name in known else learner.exercise_of(each)
        if name in known:
            some = True
            yield known[name], each
    if not some and only is not None:
        yield only, place


def digest_of(exercise: Exercise, folder: pathlib.Path, seeds: Sequence[int]) -> str:
    """Return a digest of everything that a grade depends on: seeds, exercise files and the learner's files."""
    made = hashlib.sha256(repr(sorted(seeds)).encode())
    own = sorted(path for path in exercise.folder.iterdir() if path.suffix == ".yaml")
    for path in [*own, *(folder / name for name in exercise.content.edit)]:
        made.update(path.name.encode())
        try:
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    made.update(file.read(MAX_HASHED_BYTES))
        except OSError:
            made.update(b"unreadable")
    return made.hexdigest()[:16]


def read(path: pathlib.Path) -> list[Grade]:
    """Return the grades in a CSV file; none if there is no such file.

    Raises:
        WorkshopError: the file is not one of grades; it is not overwritten.
    """
    if not path.exists():
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        if rows and list(rows[0]) != COLUMNS:
            raise ValueError("other columns")
        return [_grade(row) for row in rows]
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise WorkshopError(f"{path}: is not a file of grades ({error}); give another with -o") from error


def _grade(row: dict[str, str]) -> Grade:
    return Grade(
        row["submission"],
        row["exercise"],
        row["passed"] == "True",
        float(row["grade"]) if row["grade"] else None,
        int(row["checks_passed"]),
        int(row["checks"]),
        float(row["score"]) if row["score"] else None,
        row["reason"],
        row["isolated"],
        float(row["seconds"]),
        row["digest"],
    )


def write(path: pathlib.Path, grades: Sequence[Grade]) -> None:
    """Write all grades, in order of submission and exercise.

    Raises:
        WriteError: the file cannot be written.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for each in sorted(grades, key=lambda grade: (grade.submission, grade.exercise)):
        row = asdict(each)
        row |= {key: "" for key in ("score", "grade") if row[key] is None}
        writer.writerow(row)
    write_whole(path, out.getvalue())


def cell(text: str) -> str:
    """Make an untrusted text safe for a cell."""
    return str(csv_cell(printable(" ".join(text.split()))[:MAX_REASON]))


def grade(
    folder: pathlib.Path,
    output: pathlib.Path,
    *,
    only: Exercise | None = None,
    seeds: Sequence[int] = (),
    jobs: int | None = None,
    progress: Callable[[Grade, int, int], None] = lambda made, done, total: None,
) -> list[Grade]:
    """Grade every submission in a folder that is not graded yet, and store each grade at once.

    Args:
        only: one exercise; all if left out.
        seeds: hidden seeds beyond those of the exercises, which learners can find out.
        jobs: checks at a time; one per core if left out.

    Raises:
        WorkshopError: there are no submissions, or the output is not a file of grades.
        WriteError: grades cannot be stored.
    """
    before = {(each.submission, each.exercise, each.digest): each for each in read(output)}
    tasks = [_Task(cell(name), one, place, digest_of(one, place, seeds)) for name, one, place in find(folder, only)]
    keys = {(task.submission, task.exercise.name) for task in tasks}
    submitted = {name for name, _ in keys}
    done = [each for key, each in before.items() if key[:2] not in keys and each.digest]
    done += [_nothing(folder, name, only) for name in names(folder) if cell(name) not in submitted]
    waiting = []
    for task in tasks:
        known = before.get((task.submission, task.exercise.name, task.digest))
        if known is None:
            waiting.append(task)
        else:
            done.append(known)
    write(output, done)
    stop = threading.Event()
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        futures: list[Future[Grade]] = [pool.submit(_check, task, folder, seeds, stop) for task in waiting]
        try:
            for number, future in enumerate(interruption.completed(futures), 1):
                made = future.result()
                done.append(made)
                write(output, done)
                progress(made, number, len(waiting))
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
    return sorted(done, key=lambda each: (each.submission, each.exercise))


def _check(task: _Task, folder: pathlib.Path, seeds: Sequence[int], stop: threading.Event) -> Grade:
    name = task.exercise.name
    checks = len(task.exercise.content.checks)
    try:
        report = judge.check(task.exercise, task.folder, seeds=seeds, hide=[folder.absolute()], stop=stop)
    except NotGraded as error:
        return Grade(task.submission, name, False, None, 0, checks, None, cell(str(error)), "", 0.0, "")
    except WorkshopError as error:
        return Grade(task.submission, name, False, 0.0, 0, checks, None, cell(str(error)), "", 0.0, task.digest)
    except Exception as error:  # noqa: BLE001 - no submission keeps the others from their grades
        text = cell(f"it could not be judged: {type(error).__name__}: {error}")
        return Grade(task.submission, name, False, 0.0, 0, checks, None, text, "", 0.0, task.digest)
    good = sum(line.passed is True for line in report.lines)
    missing = [what for what, had in report.isolation.items() if not had]
    isolated = "" if not report.isolation else "yes" if not missing else f"without {', '.join(missing)}"
    return Grade(
        task.submission,
        name,
        report.passed,
        report.share,
        good,
        len(report.lines),
        report.score,
        "" if report.passed else cell(report.reason),
        isolated,
        round(report.spent_s, 1),
        task.digest,
    )
