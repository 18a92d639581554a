"""Workloads whose data is checked: collectives, point-to-point streams, and perftest's two classics.

A class in a module of this folder that has a `name` is one; nothing else lists them.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from mrc_host.workloads.base import Channel, Parameters, Workload, WorkloadError

__all__ = ["WORKLOADS", "Channel", "Parameters", "Workload", "WorkloadError"]

WORKLOADS: dict[str, type[Workload[Any]]] = {
    kind.name: kind
    for module in pkgutil.iter_modules(__path__, f"{__name__}.")
    for kind in vars(importlib.import_module(module.name)).values()
    if isinstance(kind, type) and issubclass(kind, Workload) and "name" in vars(kind)
}
