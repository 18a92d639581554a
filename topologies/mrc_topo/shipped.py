"""Files that come with the project: their folders, words that name one, and how extras are installed."""

from __future__ import annotations

import importlib.resources
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from mrc_topo.base.document import DocumentError, printable

Kind = Literal["labs", "clusters", "costs", "experiments", "programs", "workshop"]

CHECKOUT: dict[Kind, str] = {
    "labs": "topologies/labs",
    "clusters": "topologies/clusters",
    "costs": "topologies/costs",
    "experiments": "experiments",
    "programs": "p4/programs",
    "workshop": "workshop",
}


def _carried(kind: Kind) -> Path:
    return _package() / "data" / kind


def _package() -> Path:
    return Path(str(importlib.resources.files("mrc_topo")))


def checkout() -> Path | None:
    """Return the root of the checkout that this package lies in; None if it is that of a wheel."""
    root = _package().parents[1]
    return root if (root / CHECKOUT["labs"]).is_dir() and not _carried("labs").is_dir() else None


def shipped(kind: Kind) -> Path:
    """Return the folder of a kind of files that come with the project: `labs/NAME.yaml`, `clusters/NAME.yaml`,
    `costs/NAME.yaml`, `experiments/NAME/`, `programs/NAME.p4`, `workshop/NN-NAME/`."""
    carried = _carried(kind)
    return carried if carried.is_dir() else _package().parents[1] / CHECKOUT[kind]


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


Extra = Literal["cluster", "dot", "scale", "torch", "web"]


def requirement(extra: Extra) -> tuple[str, ...]:
    """Return pip's arguments that install an extra, from any folder: of a checkout, its path as an editable
    installation; otherwise the released package."""
    root = checkout()
    return (f"mrclab[{extra}]",) if root is None else ("-e", f"{root}[{extra}]")


def install(extra: Extra) -> str:
    """Return the command that installs an extra, as a message shows it: in the folder of a checkout it names `.`,
    elsewhere the checkout's path."""
    root = checkout()
    if root is None:
        return f"pip install 'mrclab[{extra}]'"
    here = "." if root == Path.cwd() else str(root)
    target = f"{here}[{extra}]"
    return f"pip install -e {shlex.quote(target)}"
