"""Contributions of extras to the command line: packages beside the core, found by entry points of distributions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import cache
from typing import Any


@cache
def contributions(group: str) -> dict[str, Any]:
    """Return the objects of an entry point group by name, without those whose package is missing, in order of name."""
    points = sorted(importlib.metadata.entry_points(group=group), key=lambda point: point.name)
    return {point.name: point.load() for point in points if importlib.util.find_spec(point.module.partition(".")[0])}
