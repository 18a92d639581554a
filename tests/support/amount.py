"""How much of a repeated test `make test` runs; the rest is `long`, which MRCLAB_LONG=1 and `make soak` run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest

LONG: Final = bool(os.environ.get("MRCLAB_LONG"))


def first(values: Iterable[Any], number: int = 1) -> list[Any]:
    """Return parameters of a test, all but the first `number` of which are `long`."""
    every = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*value, marks=() if place < number else pytest.mark.long) for place, value in enumerate(every)]


def only(values: Iterable[Any], names: Iterable[Any]) -> list[Any]:
    """Return parameters of a test, of which those that are not among `names` are `long`."""
    kept = set(names)
    return [value if value in kept else pytest.param(value, marks=pytest.mark.long) for value in values]


def examples(number: int) -> int:
    """Return how many of these random examples to try; of hundreds a quarter in a short run, but 40 at least."""
    return number if LONG else min(number, max(number // 4, 40))
