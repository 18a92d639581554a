"""The kinds of things that `mrclab list` lists."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What can be listed."""

    RUNNING = "running"
    LABS = "labs"
    EXPERIMENTS = "experiments"
    COMPARISONS = "comparisons"
    SWEEPS = "sweeps"
    WORKLOADS = "workloads"
    CLUSTERS = "clusters"
    EXERCISES = "exercises"
    FIGURES = "figures"
