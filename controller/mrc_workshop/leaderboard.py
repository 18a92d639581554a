"""Ranking a class: grades of one open exercise, by score.

Everything about finding, confining, resuming and running in parallel is grading's (`grade`); here grades become ranks.
"""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields

from mrc_common.files import write_whole
from mrc_workshop import exercise as exercises
from mrc_workshop import grade as grading
from mrc_workshop.exercise import Exercise, WorkshopError
from mrc_workshop.grade import Grade

OPEN = "open"


@dataclass(frozen=True)
class Place:
    """A row of the ranking. `score` is 0 for a submission that fails, and `reason` says why. Submissions with the same
    score have the same `rank`, ordered by name."""

    rank: int
    submission: str
    score: float
    passed: bool
    reason: str
    isolated: str


COLUMNS = [each.name for each in fields(Place)]


def chosen(number: str | None) -> Exercise:
    """Return the selected open exercise: the given one, or the only one.

    Raises:
        WorkshopError: it is not open, or there are several.
    """
    if number is not None:
        exercise = exercises.find(number)
        if exercise.content.level != OPEN:
            raise WorkshopError(
                f"{exercise.name}: has no score for a ranking; `mrclab workshop grade` grades it, and "
                "`level: open` in its exercise.yaml makes one that is ranked"
            )
        return exercise
    found = [each for each in map(exercises.load, exercises.known().values()) if each.content.level == OPEN]
    if len(found) != 1:
        names = ", ".join(each.name for each in found) or "none"
        raise WorkshopError(f"which exercise is ranked? Open ones are: {names}; give one with --exercise")
    return found[0]


def rank(grades: Sequence[Grade]) -> list[Place]:
    """Rank the grades of one exercise by score, highest first, then by name; leave out what is not graded."""
    graded = [each for each in grades if each.grade is not None]
    scored = sorted(graded, key=lambda each: (-(each.score or 0.0), each.submission))
    places: list[Place] = []
    for number, each in enumerate(scored, 1):
        score = each.score or 0.0
        same = places and places[-1].score == score
        at = places[-1].rank if same else number
        places.append(Place(at, each.submission, score, each.passed, each.reason, each.isolated))
    return places


def make(
    folder: pathlib.Path,
    grades: pathlib.Path,
    exercise: Exercise,
    *,
    seeds: Sequence[int] = (),
    jobs: int | None = None,
    progress: Callable[[Grade, int, int], None] = lambda made, done, total: None,
) -> list[Place]:
    """Grade every submission that is not in the file of grades yet, and rank those in the folder.

    Raises:
        WorkshopError: there are no submissions, or the file is not one of grades.
        WriteError: grades cannot be stored.
    """
    made = grading.grade(folder, grades, only=exercise, seeds=seeds, jobs=jobs, progress=progress)
    here = {grading.cell(name) for name in grading.names(folder)}
    return rank([each for each in made if each.exercise == exercise.name and each.submission in here])


def write(path: pathlib.Path, places: Sequence[Place]) -> None:
    """Write the ranking as CSV.

    Raises:
        WorkshopError: the file is not a ranking; it is not overwritten.
        WriteError: the file cannot be written.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for each in places:
        writer.writerow(asdict(each))
    header = ",".join(COLUMNS)
    try:
        other = path.exists() and path.read_text(encoding="utf-8").partition("\n")[0].strip() != header
    except (OSError, UnicodeDecodeError) as error:
        raise WorkshopError(f"{path}: cannot be read; give another file with -o") from error
    if other:
        raise WorkshopError(f"{path}: is not a leaderboard, and is not overwritten; give another file with -o")
    write_whole(path, out.getvalue())
