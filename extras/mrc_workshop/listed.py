"""Exercises in `mrclab list`."""

from __future__ import annotations

from mrc_workshop import exercise
from mrclab.cli.listed import Available, ListedKind, Section


def _exercises() -> list[Available]:
    return [
        Available(str(number), exercise.load(folder).content.title, {}) for number, folder in exercise.known().items()
    ]


SECTIONS = {ListedKind.EXERCISES: Section("mrclab workshop start NAME", exercise.known, _exercises)}
