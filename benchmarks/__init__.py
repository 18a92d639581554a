"""Benchmarks: what is measured is printed, as ratios within one run where machines differ."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")


def smoke() -> bool:
    """Return whether benchmarks only show that they run, with so little work that their figures mean nothing."""
    return os.environ.get("MRCLAB_SMOKE") == "1"


def scaled(full: T, little: T) -> T:
    """Return the amount of work of a measurement, or `little` of a smoke run."""
    return little if smoke() else full
