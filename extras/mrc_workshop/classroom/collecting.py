"""Collecting a class: from homes on a shared server, from folders, and from files that were handed in."""

from __future__ import annotations

import os
import pathlib
import pwd
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from mrc_topo.base.document import printable
from mrc_workshop.classroom import handin, reading
from mrc_workshop.classroom.classfile import Classroom, Student
from mrc_workshop.classroom.reading import Found, RefusedError
from mrc_workshop.classroom.store import ClassStore, Receipt, digest
from mrc_workshop.exercise import WorkshopError


@dataclass
class Collected:
    """What a command collected: receipts of new versions, and what was not read, a line each."""

    receipts: list[Receipt] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def collect(classroom: Classroom, store: ClassStore, received_s: float | None = None) -> Collected:
    """Keep what students have changed or handed in since the last time. Nothing of theirs is changed or run.

    Args:
        classroom: the class.
        store: its records; its lock must be held.
        received_s: when all of it was handed in, where a course system knows it; else the kernel's time of each file.

    Raises:
        WorkshopError: the inbox cannot be read.
        WriteError: a version cannot be kept.
    """
    made = Collected()
    now_s = time.time()
    for student in classroom.students:
        try:
            place = place_of(classroom, student)
            if place is None:
                continue
        except RefusedError as error:
            made.problems.append(f"{student.id}: {error}")
            continue
        base, parts, owner = place
        for each in classroom.assignments:
            try:
                with reading.opened(base, [*parts, each.name]) as folder:
                    found = reading.read_files(folder, each.exercise.content.edit, owner)
            except FileNotFoundError:
                continue
            except (RefusedError, OSError) as error:  # the student's other exercises are collected
                made.problems.append(f"{student.id}: {error}")
            else:
                _keep(store, student, each.name, found, received_s, now_s, made)
    if classroom.content.inbox is not None:
        _collect_inbox(classroom, store, received_s, now_s, made)
    return made


def _keep(
    store: ClassStore,
    student: Student,
    exercise: str,
    found: Found,
    received_s: float | None,
    now_s: float,
    made: Collected,
) -> None:
    found.changed_s = found.changed_s if received_s is None else received_s
    receipt = store.add(student.id, exercise, found, now_s)
    if receipt is not None:
        made.receipts.append(receipt)
    made.problems += [f"{student.id} {exercise}: {each}" for each in found.problems]


def place_of(classroom: Classroom, student: Student) -> tuple[pathlib.Path, list[str], int | None] | None:
    """Return the trusted folder, the folders below it, and the owner of a student's work; None for the inbox.

    Raises:
        RefusedError: the student's account does not exist, or is root's.
    """
    if student.account is not None:
        home, owner = home_of(student.account)
        work = classroom.content.work
        return home, [] if work is None else work.split("/"), owner
    if student.folder is not None:
        return classroom.folder, student.folder.split("/"), None
    return None


def home_of(account: str) -> tuple[pathlib.Path, int]:
    """Return an account's home, where it really is, and its user.

    Raises:
        RefusedError: there is no such account, or it is root's.
    """
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise RefusedError(f"this machine has no account '{account}'; correct the roster") from None
    if entry.pw_uid == 0:
        raise RefusedError(f"'{account}' is root's account; correct the roster")
    # The folders above a home are the administrator's, so a link there is theirs, too.
    return pathlib.Path(os.path.realpath(entry.pw_dir)), entry.pw_uid


def _collect_inbox(
    classroom: Classroom, store: ClassStore, received_s: float | None, now_s: float, made: Collected
) -> None:
    """Collect handed-in files, the oldest first, so that the last one that a student handed in counts."""
    place = classroom.folder / (classroom.content.inbox or "")
    known = {each.name: each.exercise for each in classroom.assignments}
    found: list[tuple[float, Student, str, bytes]] = []
    try:
        for parts in _archives(place):
            shown = printable("/".join(parts))
            try:
                student = owner_of(classroom, parts)
                with reading.opened(place, parts[:-1]) as folder:
                    data, changed_s = reading.read_file(folder, parts[-1], None, handin.MAX_ARCHIVE)
            except (RefusedError, OSError) as error:
                made.problems.append(f"{place / shown}: {error}")
            else:
                found.append((changed_s, student, shown, data))
    except OSError as error:
        raise WorkshopError(f"{place}: cannot be read: {error.strerror}; `inbox` of the class file names it") from error
    for changed_s, student, shown, data in sorted(found, key=lambda each: (each[0], each[2])):
        try:
            parts_of_it = handin.read(data, known)
        except RefusedError as error:
            made.problems.append(f"{place / shown}: {error}")
            continue
        for name, each in parts_of_it.items():
            if not _seen(store, student, name, each):
                each.changed_s = changed_s
                _keep(store, student, name, each, received_s, now_s, made)


def _seen(store: ClassStore, student: Student, exercise: str, found: Found) -> bool:
    """Return whether this version was kept before: files stay in the inbox, and an old one is not a new version."""
    return any(each.digest == digest(found.files) for each in store.receipts(student.id, exercise))


def _archives(place: pathlib.Path) -> Iterator[list[str]]:
    """Yield the names of the files in the inbox and in its folders."""
    with reading.opened(place, []) as folder:
        for name in reading.names(folder):
            if name.startswith("."):
                continue
            try:
                with reading.opened(place, [name]) as below:
                    inside = reading.names(below)
            except RefusedError:
                yield [name]
            else:
                yield from ([name, each] for each in inside if not each.startswith("."))


def owner_of(classroom: Classroom, parts: list[str]) -> Student:
    """Return the student whom a file of the inbox belongs to, by the first part of its name, which the instructor
    made: the student's `id`.

    What is inside a file, and the rest of its name, are the student's words and do not count.

    Raises:
        RefusedError: no student or several fit.
    """
    first = parts[0]
    found = [each for each in classroom.students if _is_of(first, each, alone=len(parts) > 1)]
    if len(found) != 1:
        several = f"fits {', '.join(each.id for each in found)}" if found else "belongs to no student of the roster"
        raise RefusedError(f"{several}; rename it to ID-{printable(parts[-1])[:60]} with the student's id")
    return found[0]


def _is_of(name: str, student: Student, *, alone: bool) -> bool:
    pattern = rf"{re.escape(student.id)}{'' if alone else '([-_.].*)'}"
    return re.fullmatch(pattern, name, re.DOTALL) is not None
