"""The records of a class: every version that was handed in, with its receipt, and the grades of these versions.

The folder belongs to the instructor. Versions are copies that no student can change; they are never removed, late ones
neither. Which of them are late is asked again each time, so a deadline may be moved.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field, ValidationError

from mrc_topo.base.document import Model
from mrc_topo.base.files import write_whole
from mrc_workshop.classroom.classfile import Assignment, Classroom
from mrc_workshop.classroom.reading import Found
from mrc_workshop.exercise import WorkshopError
from p4lite.files import FolderError, make_private

RECEIPTS, VERSIONS, BACKUPS = "receipts.json", "versions", "backups"


class Receipt(Model):
    """A version of a student's files for an exercise. `changed_s`: when they were changed or handed in; `collected_s`:
    when this command saw them; both in seconds since the epoch. `digest`: of the files. `problems`: what was not
    read."""

    student: str
    exercise: str
    number: Annotated[int, Field(ge=1)]
    changed_s: float
    collected_s: float
    digest: str
    problems: list[str] = []


class Ledger(Model):
    """The receipts of a class, in the order in which they were written."""

    receipts: list[Receipt] = []


class ClassStore:
    """The records of one class."""

    def __init__(self, classroom: Classroom) -> None:
        self.folder = classroom.store
        self._path = self.folder / RECEIPTS
        self._receipts: dict[tuple[str, str], list[Receipt]] = {}
        for each in self._read().receipts:
            self._receipts.setdefault((each.student, each.exercise), []).append(each)

    def _read(self) -> Ledger:
        try:
            return Ledger.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return Ledger()
        except (OSError, ValidationError) as error:
            reason = str(error).splitlines()[0]
            raise WorkshopError(f"{self._path}: cannot be read: {reason}; bring a backup back") from error

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock of the records; two commands must not write at once.

        Raises:
            WorkshopError: the folder is not ours alone, or another command holds the lock.
        """
        try:
            make_private(self.folder)
        except FolderError as error:
            raise WorkshopError(f"{error}; `store` in the class file names another folder") from error
        with open(self.folder / ".lock", "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WorkshopError(f"{self.folder}: another command collects or grades; wait for its end") from None
            yield

    def receipts(self, student: str, exercise: str) -> list[Receipt]:
        """Return the receipts of a student's exercise, oldest first."""
        return self._receipts.get((student, exercise), [])

    def counted(self, student: str, assignment: Assignment) -> tuple[Receipt | None, Receipt | None]:
        """Return the last version in time, and the last late one."""
        in_time = late = None
        for each in self.receipts(student, assignment.name):
            if assignment.late(each.changed_s):
                late = each
            else:
                in_time = each
        return in_time, late

    def version(self, receipt: Receipt) -> pathlib.Path:
        """Return the folder of a version."""
        return self.folder / VERSIONS / receipt.exercise / receipt.student / str(receipt.number)

    def add(self, student: str, exercise: str, found: Found, collected_s: float) -> Receipt | None:
        """Keep a version, unless it equals the one before; return its receipt if it is new.

        Raises:
            WriteError: it cannot be written.
        """
        before = self.receipts(student, exercise)
        made = digest(found.files)
        if before and before[-1].digest == made and before[-1].problems == found.problems:
            return None
        receipt = Receipt(
            student=student,
            exercise=exercise,
            number=len(before) + 1,
            changed_s=found.changed_s or collected_s,
            collected_s=collected_s,
            digest=made,
            problems=found.problems,
        )
        place = self.version(receipt)
        shutil.rmtree(place, ignore_errors=True)  # of a command that was interrupted before it wrote the receipt
        place.mkdir(parents=True)
        for name, data in found.files.items():
            write_whole(place / name, data)
        self._receipts.setdefault((student, exercise), []).append(receipt)
        every = sorted(itertools.chain(*self._receipts.values()), key=lambda each: each.collected_s)
        document = Ledger(receipts=every).model_dump()
        write_whole(self._path, json.dumps(document, indent=1) + "\n", mode=0o600)
        return receipt


def digest(files: Mapping[str, bytes]) -> str:
    """Return a digest of files by their names and contents."""
    made = hashlib.sha256()
    for name in sorted(files):
        made.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    return made.hexdigest()[:16]
