"""Identify the installed version of mrclab, so that coordinator and parts can compare theirs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import pathlib
from collections.abc import Iterable

#: The packages that a slice runs.
PACKAGES = ("mrc_machines", "mrclab.lab", "mrc_host", "mrc_topo", "mrc_topo.base", "p4lite")
#: The suffixes of the files that decide what runs; compiled files are built from these.
KINDS = frozenset({".py", ".c", ".h", ".p4"})


def version() -> str:
    """Return the installed version, which is cached."""
    return importlib.metadata.version("mrclab")


def digest(folders: Iterable[pathlib.Path]) -> str:
    """Return the SHA-256 of the names and contents of the sources in some folders, shortened to 16 digits."""
    whole = hashlib.sha256()
    for folder in folders:
        files = {path.relative_to(folder.parent).as_posix(): path for path in folder.rglob("*") if path.suffix in KINDS}
        # A wheel has no tests.
        files = {name: path for name, path in files.items() if "/tests/" not in name}
        for name, path in sorted(files.items()):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            whole.update(f"{name} {content}\n".encode())
    return whole.hexdigest()[:16]


def sources() -> str:
    """Return the `digest` of the installed packages."""
    folders = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        folders += [pathlib.Path(each) for each in (spec.submodule_search_locations or ())] if spec else []
    return digest(folders)
