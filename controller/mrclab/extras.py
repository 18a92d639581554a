"""Extras that the core needs for one thing: packages beside it, found by their entry points."""

from __future__ import annotations

from typing import Any

from mrc_topo.base.errors import UsageError
from mrc_topo.shipped import checkout
from p4lite.contributions import contributions

#: The group and the package of the extra for labs on several machines.
MACHINES = "mrclab.machines", "mrc_machines"


def need(group: str, package: str, what: str) -> Any:
    """Return the object of an entry point group that only `package` contributes to; `what` needs it.

    Raises:
        UsageError: the package is not here; the text says how to get it.
    """
    found = contributions(group).get(package)
    if found is None:
        root = checkout()
        way = "`pip install --force-reinstall mrclab`"
        if root is not None:
            way = f"get the folder extras/{package} of the repository, and type `make setup` in {root}"
        raise UsageError(f"{what} needs the extra {package}, which is not installed here; {way}")
    return found
