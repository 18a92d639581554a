"""The learner's folders, and how far the learner is.

Each folder has a marker that says of which exercise it is. How far one is stands in one file of the user's own:
`$XDG_STATE_HOME/mrclab/workshop.json`, or `~/.local/state/mrclab/workshop.json`; `MRCLAB_WORKSHOP` names another.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from mrc_topo.base.document import DocumentError, Model, read_text
from mrc_topo.base.files import WriteError, write_whole
from mrc_workshop import exercise as exercises
from mrc_workshop.exercise import Exercise, WorkshopError
from mrc_workshop.job import Document

MARKER = ".mrclab-exercise"
#: A link that leads out of an exercise's folder.
RELATIVE = re.compile(r"\]\((\.\./[^)\s]+)\)")


class ExerciseProgress(Model):
    """A learner's progress with one exercise."""

    folder: str = ""
    hints: int = 0
    checks: int = 0
    passed: bool = False


class Progress:
    """A learner's progress, by exercise name."""

    def __init__(self, path: pathlib.Path | None = None) -> None:
        self.path = path or _default_path()
        self._standings = self._read()

    def _read(self) -> dict[str, ExerciseProgress]:
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            return {str(name): ExerciseProgress.model_validate(each) for name, each in document.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, ValidationError) as error:
            raise WorkshopError(f"{self.path}: cannot be read: {str(error).splitlines()[0]}; move it away") from error

    def of(self, name: str) -> ExerciseProgress:
        """Return the learner's standing with an exercise."""
        return self._standings.get(name, ExerciseProgress())

    def note(self, name: str, **changes: Any) -> None:
        """Change the record of an exercise, and write it.

        Raises:
            WriteError: the file cannot be written.
            WorkshopError: the present file cannot be read.
        """
        with self._alone():
            self._change(name, changes)

    def checked(self, name: str, *, passed: bool) -> None:
        """Record one more check of an exercise; an exercise that has passed once stays passed. Raises as `note`."""
        with self._alone():
            before = self.of(name)
            self._change(name, {"checks": before.checks + 1, "passed": before.passed or passed})

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of the file, and read its present content: other commands may have changed it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # The file itself is replaced at each change, so another file is locked.
        with open(f"{self.path}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._standings = self._read()
            yield

    def _change(self, name: str, changes: Document) -> None:
        self._standings[name] = self.of(name).model_copy(update=changes)
        document = {name: each.model_dump() for name, each in sorted(self._standings.items())}
        write_whole(self.path, json.dumps(document, indent=1) + "\n")


def _default_path() -> pathlib.Path:
    chosen = os.environ.get("MRCLAB_WORKSHOP")
    if chosen:
        return pathlib.Path(chosen)
    base = os.environ.get("XDG_STATE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".local" / "state") / "mrclab" / "workshop.json"


def copy_exercise(exercise: Exercise, folder: pathlib.Path, source: pathlib.Path, readme: bool = True) -> list[str]:
    """Copy starter or solution into a new or empty folder, with the README; return the names of the files.

    Raises:
        WorkshopError: the folder is not empty, or cannot be created.
    """
    names: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise WorkshopError(
                f"{folder}: is not empty; give another folder; `mrclab workshop reset {exercise.number}` brings the "
                "starter back"
            )
        for name in sorted(path.name for path in source.iterdir() if path.is_file()):
            names.append(name)
            write_whole(folder / name, (source / name).read_bytes())
        if readme:
            names.append(exercises.README)
            write_whole(folder / exercises.README, _readme(exercise, folder))
        write_whole(folder / MARKER, f"{exercise.name}\n")
    except OSError as error:
        # So that the same command works once there is room: the folder was empty.
        for name in names:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
        raise WorkshopError(f"{error.filename or folder}: {error.strerror}; give a folder elsewhere") from error
    return names


def _readme(exercise: Exercise, folder: pathlib.Path) -> str:
    """Return the exercise's README with its relative links changed to work from a learner's folder."""

    def absolute_link(found: re.Match[str]) -> str:
        path, mark, place = found.group(1).partition("#")
        target = exercise.folder / path
        if not target.exists():
            return found.group()
        return f"]({os.path.relpath(target.resolve(), folder.resolve())}{mark}{place})"

    return RELATIVE.sub(absolute_link, (exercise.folder / exercises.README).read_text(encoding="utf-8"))


def reset(exercise: Exercise, folder: pathlib.Path) -> list[str]:
    """Put the starter's files back; the learner's stay beside them as `FILE.mine`. Return the names.

    Raises:
        WorkshopError: a file cannot be replaced.
    """
    files = {path.name: path.read_bytes() for path in sorted(exercise.starter.iterdir()) if path.is_file()}
    put_back(files, folder)
    return list(files)


def put_back(files: Mapping[str, bytes], folder: pathlib.Path) -> None:
    """Write files into a learner's folder; what differs from them there becomes `FILE.mine`.

    Raises:
        WorkshopError: a file cannot be replaced.
    """
    try:
        for name, content in files.items():
            path = folder / name
            if os.path.lexists(path):
                # What is no plain file is not opened: a link leads elsewhere, and reading a pipe may block.
                if stat.S_ISREG(os.lstat(path).st_mode) and path.read_bytes() == content:
                    continue
                path.replace(folder / f"{name}.mine")
            # A new file, never one that a link put here meanwhile leads to.
            with path.open("xb") as file:
                try:
                    file.write(content)
                    file.flush()
                except OSError as error:
                    path.unlink()
                    raise WriteError(path, error) from error
    except OSError as error:
        raise WorkshopError(f"{error.filename or folder}: {error.strerror}") from error


def exercise_of(folder: pathlib.Path) -> str | None:
    """Return the name of a folder's exercise; None if it has no marker."""
    marker = folder / MARKER
    try:
        # The marker in an untrusted folder may be a link or a device.
        return None if marker.is_symlink() else read_text(marker, MARKER)[:100].strip() or None
    except (OSError, DocumentError):
        return None


def locate(exercise: Exercise | None, folder: str | None, progress: Progress) -> tuple[Exercise, pathlib.Path]:
    """Return the exercise and the folder that a command means: the given ones, or else the working directory,
    `./NN-name`, or the folder where the exercise was started.

    Raises:
        WorkshopError: none of these fits; the text says what would.
    """
    here = pathlib.Path()
    if folder is not None:
        place = pathlib.Path(folder)
        if not place.is_dir():
            raise WorkshopError(f"{place}: no such folder")
        if exercise is None:
            name = exercise_of(place)
            if name is None:
                raise WorkshopError(f"{place}: cannot tell which exercise this is; give its number as well")
            exercise = exercises.find(name)
        return exercise, place
    if exercise is None:
        name = exercise_of(here)
        if name is None:
            raise WorkshopError(
                "no exercise here; give its number, or a folder that `mrclab workshop start` has made, or go there"
            )
        return exercises.find(name), here
    for place in (here, here / exercise.name, pathlib.Path(progress.of(exercise.name).folder or "-")):
        if exercise_of(place) == exercise.name:
            return exercise, place
    raise WorkshopError(f"exercise {exercise.number} was not started; `mrclab workshop start {exercise.number}`")
