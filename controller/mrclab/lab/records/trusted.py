"""Trust in files that name or hold code that is run as the user: only those that no other user can change
(docs/security.md).

A policy is Python and a P4 program becomes C; both run in our processes. A lab or an experiment chooses them, so a file
that names code must be as trustworthy as the code itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mrc_topo.shipped import CHECKOUT, shipped
from p4lite.folders import FolderError, check_code_file

#: The keys of labs, experiments, comparisons and sweeps whose values name code.
KEYS: Final = ("policies", "program")


def names_code(document: object) -> bool:
    """Return whether a document of a lab, experiment, comparison or sweep names a policy or a P4 program."""
    if isinstance(document, Mapping):
        return any(
            (bool(value) and not set(KEYS).isdisjoint(str(key).split("."))) or names_code(value)
            for key, value in document.items()
        )
    return isinstance(document, list) and any(names_code(each) for each in document)


def check(path: Path) -> None:
    """Check that only this user and root can change a file, unless it comes with the project.

    A file of the project is as trustworthy as the running program, wherever that is installed.

    Raises:
        FolderError: another user can change it; the text names the cause and the remedy.
    """
    real = path.resolve()
    if any(real.is_relative_to(shipped(kind).resolve()) for kind in CHECKOUT):
        return
    try:
        check_code_file(path)
    except FileNotFoundError:
        raise FolderError(f"{path}: no such file") from None
    except FolderError as error:
        raise FolderError(f"{error} (it names or holds code that would run as you; docs/security.md)") from None
