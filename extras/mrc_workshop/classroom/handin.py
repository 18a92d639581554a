"""The file that a learner hands in: a zip archive with the exercise's files and the marker that names the exercise."""

from __future__ import annotations

import io
import pathlib
import zipfile
import zlib
from collections.abc import Mapping

from mrc_topo.base.document import MAX_BYTES, printable
from mrc_topo.base.files import write_whole
from mrc_workshop import judge
from mrc_workshop.classroom.reading import Found, RefusedError
from mrc_workshop.exercise import Exercise
from mrc_workshop.learner import MARKER

MAX_ARCHIVE, MAX_MEMBERS = 10 << 20, 1000
#: The time of all members: the time of a learner's clock says nothing, and equal files make equal archives.
_TIME = (1980, 1, 1, 0, 0, 0)


def write(exercise: Exercise, folder: pathlib.Path, path: pathlib.Path) -> None:
    """Write the archive of a learner's folder.

    Raises:
        SubmissionError: files of the exercise are missing.
        WriteError: the archive cannot be written.
    """
    files = {MARKER: f"{exercise.name}\n", **judge.read_sources(exercise, folder)}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(f"{exercise.name}/{name}", _TIME), text.encode())
    write_whole(path, out.getvalue())


def read(data: bytes, known: Mapping[str, Exercise]) -> dict[str, Found]:
    """Return what an archive has of each known exercise, by the exercise's name. Nothing is unpacked to a disk.

    A folder of the archive is an exercise's by its marker or by its own name.

    Raises:
        RefusedError: it is not an archive, or has nothing of an exercise.
    """
    found: dict[str, Found] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS:
                raise RefusedError(f"has {len(members)} files; hand in what `mrclab workshop hand-in` writes")
            for place, inside in _folders(members).items():
                name = _exercise_of(archive, place, inside, known)
                if name in known:
                    _take(archive, inside, known[name], found.setdefault(name, Found()))
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError, ValueError) as error:
        reason = printable(str(error))[:100]
        raise RefusedError(f"is not a zip archive ({reason}); make it by `mrclab workshop hand-in`") from error
    if not found:
        raise RefusedError("has no exercise of this class in it; make it by `mrclab workshop hand-in`")
    return found


def _folders(members: list[zipfile.ZipInfo]) -> dict[str, dict[str, zipfile.ZipInfo]]:
    """Return the files of each folder by their names; the first of several with one name counts."""
    found: dict[str, dict[str, zipfile.ZipInfo]] = {}
    for each in members:
        place, _, name = each.filename.rpartition("/")
        if name:
            found.setdefault(place, {}).setdefault(name, each)
    return found


def _exercise_of(
    archive: zipfile.ZipFile, place: str, inside: Mapping[str, zipfile.ZipInfo], known: Mapping[str, Exercise]
) -> str:
    name = place.rpartition("/")[2]
    if name in known or MARKER not in inside:
        return name
    return _content(archive, inside[MARKER], 200).decode(errors="replace").strip()


def _take(archive: zipfile.ZipFile, inside: Mapping[str, zipfile.ZipInfo], exercise: Exercise, found: Found) -> None:
    for name in exercise.content.edit:
        if name in inside and name not in found.files:
            data = _content(archive, inside[name], MAX_BYTES)
            if len(data) > MAX_BYTES:
                found.problems.append(f"{name}: is larger than {MAX_BYTES} bytes; no exercise needs that")
            else:
                found.files[name] = data


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, limit: int) -> bytes:
    """Return at most `limit` + 1 bytes of a member; a member that says less than it has is not believed."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RefusedError("is compressed in a way that is not used here; make it by `mrclab workshop hand-in`")
    with archive.open(member) as file:
        return file.read(limit + 1)
