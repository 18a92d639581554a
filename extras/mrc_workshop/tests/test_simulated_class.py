"""A simulated class gets the grades that it must get; `support.workshop.simulated` says which."""

from __future__ import annotations

import pathlib

import pytest

from support.workshop import simulated, small
from support.workshop.simulated import Kind


@pytest.mark.long
@pytest.mark.slow
def test_few_students_are_graded_correctly(tmp_path: pathlib.Path) -> None:
    """The cheap kinds, on an exercise that takes next to nothing."""
    known = [small.make(tmp_path / "50-policy")]
    mix = (Kind.RIGHT, Kind.COPIED, Kind.MISSING)
    rows = simulated.run(tmp_path, known, simulated.members(known, len(mix), 1, mix))
    assert [(row.member.kind, row.problem) for row in rows] == [(kind, "") for kind in mix]
    assert rows[-1].standing.reason.startswith("policy.py: is missing")


@pytest.mark.long
def test_thirty_students_are_graded_correctly_under_load() -> None:
    assert simulated.main(["--students", "30", "--load", "4"]) == 0


def test_class_is_the_same_for_the_same_seed(tmp_path: pathlib.Path) -> None:
    known = simulated.quicker(tmp_path, [1, 7])
    made = simulated.members(known, 30, 1)
    assert made == simulated.members(known, 30, 1) != simulated.members(known, 30, 2)
    assert {each.kind for each in made} == set(Kind)
    assert len({each.expected_text for each in made if each.kind is Kind.WRONG}) > 2
