"""Putting a student's exercise back to its starter: as that student, after a backup in the records of the class."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import subprocess
import sys
import time

from mrc_topo.base.document import printable
from mrc_topo.base.files import write_whole
from mrc_workshop.classroom import reading
from mrc_workshop.classroom.classfile import Assignment, Classroom, Student
from mrc_workshop.classroom.collecting import place_of
from mrc_workshop.classroom.reading import RefusedError
from mrc_workshop.classroom.store import BACKUPS, ClassStore
from mrc_workshop.exercise import Exercise, WorkshopError

TIMEOUT_S = 60
_RESET = (
    "import json, pathlib, sys\n"
    "from mrc_workshop import learner\n"
    "from mrc_workshop.exercise import WorkshopError\n"
    "files = {name: text.encode() for name, text in json.load(sys.stdin).items()}\n"
    "try:\n"
    "    learner.put_back(files, pathlib.Path(sys.argv[1]))\n"
    "except WorkshopError as error:\n"
    "    sys.exit(str(error))\n"
)


def reset(classroom: Classroom, store: ClassStore, student: Student, assignment: Assignment) -> pathlib.Path:
    """Put the starter into a student's folder; return the folder of the backup. The lock of the records must be held.

    The student's own files stay beside, as `FILE.mine`. Files in the student's folder are written by a process that
    runs as the student, so it can change nothing that the student cannot change.

    Raises:
        WorkshopError: there is nothing to reset, it cannot be read, or it belongs to another user.
        WriteError: the backup cannot be written; nothing was changed.
    """
    name = assignment.name
    try:
        where = place_of(classroom, student)
    except RefusedError as error:
        raise WorkshopError(f"{student.id}: {error}") from error
    if where is None:
        number = assignment.exercise.number
        raise WorkshopError(f"{student.id}: works on another machine, where they type `mrclab workshop reset {number}`")
    base, parts, user = where
    place = base.joinpath(*parts, name)
    try:
        with reading.opened(base, [*parts, name]) as folder:
            owner = os.fstat(folder).st_uid if user is None else user
            found = reading.read_files(folder, assignment.exercise.content.edit, owner)
    except FileNotFoundError:
        raise WorkshopError(f"{place}: is not there; {student.id} has not started {name}") from None
    except (RefusedError, OSError) as error:
        raise WorkshopError(f"{student.id}: {error}") from error
    backup = store.folder / BACKUPS / student.id / name / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    backup.mkdir(parents=True, exist_ok=True)
    for each, data in found.files.items():
        write_whole(backup / each, data)
    _as_owner(owner, assignment.exercise, place)
    return backup


def _as_owner(owner: int, exercise: Exercise, place: pathlib.Path) -> None:
    """Run the reset as the owner of the folder, without a terminal, open files or variables of ours."""
    if owner == 0:
        raise WorkshopError(f"{place}: belongs to root, as whom this does not write there; give it to the student")
    command = [sys.executable, "-I", "-c", _RESET, str(place)]
    # The student may be unable to read an exercise of the instructor's own.
    files = {each.name: each.read_text(encoding="utf-8") for each in exercise.starter.iterdir() if each.is_file()}
    change: dict[str, object] = {}
    if owner != os.geteuid():
        if os.geteuid() != 0:
            raise WorkshopError(f"{place}: belongs to user {owner}; only they and root can reset it")
        try:
            entry = pwd.getpwuid(owner)
        except KeyError:
            raise WorkshopError(f"{place}: belongs to user {owner}, who has no account here") from None
        change = {"user": owner, "group": entry.pw_gid, "extra_groups": []}
    try:
        done = subprocess.run(
            command,
            cwd="/",
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            input=json.dumps(files).encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            start_new_session=True,
            check=False,
            **change,  # type: ignore[call-overload]
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkshopError(f"{place}: was not reset: {printable(str(error))}") from error
    if done.returncode:
        said = printable(done.stderr.decode(errors="replace").strip())
        raise WorkshopError(f"{place}: was not reset: {said}; can user {owner} read the installation of mrclab?")
