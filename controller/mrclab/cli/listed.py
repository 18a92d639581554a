"""The kinds of things that `mrclab list` lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class ListedKind(StrEnum):
    """A kind of things that can be listed."""

    RUNNING = "running"
    LABS = "labs"
    EXPERIMENTS = "experiments"
    COMPARISONS = "comparisons"
    SWEEPS = "sweeps"
    WORKLOADS = "workloads"
    CLUSTERS = "clusters"
    EXERCISES = "exercises"
    FIGURES = "figures"


@dataclass(frozen=True)
class Available:
    """Something that comes with mrclab: its name, what it is, and more by column."""

    name: str
    title: str
    more: Mapping[str, str]

    def document(self) -> dict[str, str]:
        """Return it as plain JSON values."""
        return {"name": self.name, "title": self.title, **self.more}


@dataclass(frozen=True)
class Section:
    """A kind in the list: the command that uses it, and the functions that find its names and read all of it."""

    use: str
    names: Callable[[], Iterable[object]]
    found: Callable[[], list[Available]]
