"""Typical wrong answers of every exercise fail, each with a message that names its mistake.

`make soak` and `MRCLAB_LONG=1` try them all.
"""

from __future__ import annotations

import pytest

from mrc_workshop import exercise, verify
from mrc_workshop.exercise import Exercise
from mrc_workshop.verify import WrongAnswer

pytestmark = pytest.mark.slow

EXERCISES = [exercise.load(folder) for folder in exercise.known().values()]
ANSWERS = [(each, wrong) for each in EXERCISES for wrong in verify.load(each).wrong]


@pytest.mark.parametrize(("one", "wrong"), ANSWERS, ids=[f"{each.name}-{wrong.name}" for each, wrong in ANSWERS])
def test_wrong_answer_is_named(one: Exercise, wrong: WrongAnswer) -> None:
    trial = verify.try_wrong(one, wrong)
    assert trial.holds, trial.text()
    assert trial.report.first_failure is not None


def test_starters_fail_for_the_stated_reason() -> None:
    """What each README prints is checked there; here, that the reason in `wrong.yaml` is the one."""
    for each in EXERCISES:
        printed = " ".join((each.folder / "README.md").read_text().split())
        assert " ".join(verify.load(each).starter.split()) in printed, each.name
