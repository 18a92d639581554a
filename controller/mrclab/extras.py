"""Contributions of extras: packages beside the core, found by entry points of distributions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
from collections.abc import Iterator
from functools import cache
from typing import Any

#: The group and the package of the extra for labs on several machines.
MACHINES = "mrclab.machines", "mrc_machines"


@cache
def contributions(group: str) -> dict[str, Any]:
    """Return the objects of an entry point group by name, without those whose package is missing, in order of name."""
    return {point.name: point.load() for point, _ in _points(group)}


def need(group: str, package: str, what: str) -> Any:
    """Return the object of an entry point group that only `package` contributes to; `what` needs it.

    Raises:
        UsageError: the package is not here; the text says how to get it.
    """
    found = contributions(group).get(package)
    if found is None:
        from mrc_topo.base.errors import UsageError
        from mrc_topo.shipped import checkout

        root = checkout()
        way = "`pip install --force-reinstall mrclab`"
        if root is not None:
            way = f"get the folder extras/{package} of the repository, and type `make setup` in {root}"
        raise UsageError(f"{what} needs the extra {package}, which is not installed here; {way}")
    return found


def tables(group: str) -> list[Any]:
    """Return the objects of an entry point group as `contributions`, each of a module that imports little.

    The module is loaded by its file: to import the package around it takes longer than `mrclab --help` may.
    """
    found = []
    for point, folder in _points(group):
        file = folder / f"{point.module.rpartition('.')[2]}.py"
        spec = importlib.util.spec_from_file_location(point.module, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append(getattr(module, point.attr))
    return found


def _points(group: str) -> Iterator[tuple[importlib.metadata.EntryPoint, pathlib.Path]]:
    """Yield entry points with the folder of their package, in order of name.

    A folder that holds only compiled files, which an update may leave behind, is a package to Python, without origin.
    """
    for point in sorted(importlib.metadata.entry_points(group=group), key=lambda point: point.name):
        spec = importlib.util.find_spec(point.module.partition(".")[0])
        if spec is not None and spec.origin is not None:
            yield point, pathlib.Path(spec.origin).parent
