"""Meaning of a word on the command line or in a file: what comes with the project under that name, or a file.

A plain word is a name and never a file. Otherwise any user who can write to the working directory could put a file
there that is taken for a lab or an experiment of the project, and such a file may name code that is run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mrc_topo.base.document import DocumentError, printable

SUFFIXES = (".yaml", ".yml", ".json")


class UnknownNameError(DocumentError):
    """An unknown name of something that comes with the project, or a path without a file."""


def is_path(given: str) -> bool:
    """Return whether a text is a path: it has a `/`, is `.` or `..`, or ends in .yaml, .yml or .json."""
    return "/" in given or given in (".", "..") or given.endswith(SUFFIXES)


def find(
    given: str | Path, known: Mapping[str, Path], what: str, *, inside: str | None = None, listed: str | None = None
) -> Path:
    """Find the file of a lab, cluster, experiment, comparison, sweep or exercise.

    Args:
        given: the name of one that comes with the project, or a path (`is_path`); a `Path` is always a path.
        known: the files of those that come with the project, by name.
        what: the kind, for errors, such as "lab".
        inside: the name of the file in a folder, where the path of a folder is accepted, too.
        listed: the known names for errors; the keys of `known` if left out.

    Raises:
        UnknownNameError: there is no such file; the text lists the names and says how to give a file.
    """
    text = str(given)
    if isinstance(given, Path) or is_path(text):
        path = Path(given)
        try:
            if inside is not None and path.is_dir() and (path / inside).exists():
                return path / inside
            if path.exists():
                return path
        except (OSError, ValueError):  # a name that no file can have
            pass
        raise UnknownNameError([f"{printable(text)}: no such {what} file"])
    if text in known:
        return known[text]
    names = listed if listed is not None else ", ".join(known)
    example = printable(text) if os.path.lexists(text) else "NAME"
    way = f"a file is given by its path: ./{example}"
    raise UnknownNameError([f"{printable(text)}: no {what} of that name; known: {names or 'none'}; {way}"])


def beside(folder: Path, given: str) -> str:
    """Return the absolute path of a file that a document in this folder names by a path; a name stays as it is."""
    place = folder / given
    return str(place.absolute()) if is_path(given) and place.is_file() else given
