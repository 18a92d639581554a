"""Contributions of extras to the command line: packages beside the core, found by entry points of distributions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
from functools import cache
from typing import Any


@cache
def contributions(group: str) -> dict[str, Any]:
    """Return the objects of an entry point group by name, without those whose package is missing, in order of name."""
    return {point.name: point.load() for point in _points(group)}


def tables(group: str) -> list[Any]:
    """Return the objects of an entry point group as `contributions`, each of a module that imports little.

    The module is loaded by its file: to import the package around it takes longer than `mrclab --help` may.
    """
    found = []
    for point in _points(group):
        package, _, module = point.module.rpartition(".")
        folder = importlib.util.find_spec(package)
        if folder is None or not folder.submodule_search_locations:
            continue
        file = pathlib.Path(folder.submodule_search_locations[0]) / f"{module}.py"
        spec = importlib.util.spec_from_file_location(point.module, file)
        if spec is None or spec.loader is None:
            continue
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        found.append(getattr(loaded, point.attr))
    return found


def _points(group: str) -> list[importlib.metadata.EntryPoint]:
    points = sorted(importlib.metadata.entry_points(group=group), key=lambda point: point.name)
    return [point for point in points if _is_here(point.module.partition(".")[0])]


def _is_here(package: str) -> bool:
    """Return whether a package is there, and not only the folder of its compiled files, which Python takes for one."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None
