"""Predictions that the learner writes down before measuring: a YAML file of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from mrc_topo.base import document
from mrc_topo.base.document import DocumentError, Model, formerly
from mrc_workshop.job import Run
from mrc_workshop.kinds.registry import Finding, kind


class CommonMistake(Model):
    """A wrong number that learners often arrive at, and why it is wrong."""

    value: float
    explanation: Annotated[str, Field(json_schema_extra=formerly("says"))]


class Number(Model):
    """The required number: `value`, with the absolute tolerance `within`."""

    value: float
    within: Annotated[float, Field(gt=0)]
    explanation: Annotated[str, Field(json_schema_extra=formerly("says"))]
    traps: list[CommonMistake] = []


class Prediction(Model):
    """`file`: the learner's YAML file; `numbers`: by key."""

    file: str
    numbers: Annotated[dict[str, Number], Field(min_length=1)]


def read_numbers(file: str, sources: Mapping[str, str]) -> dict[str, float] | str:
    """Read the numbers in a learner's file; return what is wrong with it otherwise."""
    try:
        found = document.parse(sources.get(file, ""), file, f"{file} is a mapping of names to numbers")
    except DocumentError as error:
        return error.problems[0]
    for key, value in found.data.items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            return found.problem((key,), f"is a number, not {value!r}")
    return {key: float(value) for key, value in found.data.items() if value is not None}


@kind(Prediction)
def prediction(params: Prediction, runs: Sequence[Run], sources: Mapping[str, str]) -> Finding:
    """Check the numbers that the learner predicted against theory."""
    numbers = read_numbers(params.file, sources)
    if isinstance(numbers, str):
        return Finding(False, "no numbers", numbers)
    measured = ", ".join(f"{key}: {numbers[key]:g}" for key in params.numbers if key in numbers) or "no number"
    for key, wanted in params.numbers.items():
        if key not in numbers:
            return Finding(False, measured, f"{params.file}: {key} has no number yet: {wanted.explanation}")
        value = numbers[key]
        if abs(value - wanted.value) <= wanted.within:
            continue
        trap = next((each for each in wanted.traps if abs(value - each.value) <= wanted.within), None)
        why = trap.explanation if trap is not None else wanted.explanation
        return Finding(False, measured, f"{params.file}: {key}: {value:g} is not right: {why}")
    # The check does not print the numbers, because its output is also in the README, where they would be the answer.
    count = len(params.numbers)
    return Finding(True, f"{count} {'number' if count == 1 else 'numbers'} right")
