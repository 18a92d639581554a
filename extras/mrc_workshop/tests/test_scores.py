"""Scores of the open exercise: better before worse, broken last with its reason, hidden runs count."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any

import pytest
import yaml

from mrc_host.answers import JobProgress
from mrc_topo.shipped import shipped
from mrc_workshop import exercise, grade
from mrc_workshop.exercise import Exercise
from mrc_workshop.grade import Grade
from mrc_workshop.kinds import race
from mrclab.results.record import RunResult

OPEN = shipped("workshop") / "11-open"
OURS = """
from mrc_host.policy import EvSet, LossDetector, Nscc

class Window(Nscc): pass
class Paths(EvSet): pass
class Detector(LossDetector): pass
"""
#: Quick where a link is dead, and slow where one only loses packets.
TUNED = (
    OURS
    + """
class Detector(LossDetector):
    def infer(self, acked, overtaken, base_rtt_ns, now):
        lost = list(super().infer(acked, overtaken, base_rtt_ns, now) or ())
        known = {sent.psn for sent in lost}
        limit = now - (self.rtt.srtt_ns + 4 * self.rtt.var_ns)
        return lost + [sent for sent in self.in_flight() if sent.sent_ns < limit and sent.psn not in known]
"""
)
CLASS = {
    "zoe": OURS,
    "ann": OURS,
    "slow": (OPEN / "starter" / "policy.py").read_text(),
    "tuned": TUNED,
    "broken": OURS.replace("class Window(Nscc): pass", "class Window(Nscc):\n    def __init__(self, *args): 1 / 0"),
    "absent": None,
}


#: A lossy and a long link on which `TUNED` is slow, in the place of what the seed draws.
LOSSY = {"overrides": {"p1-t0.1--p1-t1.0": {"loss": 0.05}, "p0-t0.0--p0-t1.0": {"delay": "20ms"}}}


def small(folder: pathlib.Path, runs: tuple[str, ...]) -> Exercise:
    """Return the open exercise with some of its scenarios, none of them drawn."""
    shutil.copytree(OPEN, folder)
    document = yaml.safe_load((folder / "exercise.yaml").read_text())
    document["runs"] = [each for each in document["runs"] if each["name"] in runs]
    for each in document["runs"]:
        if each.pop("random_links", None):
            each["changes"] = LOSSY
    (folder / "exercise.yaml").write_text(yaml.safe_dump(document))
    return exercise.load(folder)


def submit(folder: pathlib.Path, *names: str) -> pathlib.Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        text = CLASS[name]
        if text is not None:
            (folder / name / "policy.py").write_text(text)
    return folder


def grades(folder: pathlib.Path, exercise: Exercise) -> dict[str, Grade]:
    return {each.submission: each for each in grade.grade(folder, folder.with_suffix(".csv"), only=exercise)}


@pytest.mark.slow
def test_hidden_scenarios_count_in_the_score_of_a_submission(tmp_path: pathlib.Path) -> None:
    both = small(tmp_path / "51-open", ("dead-link", "hidden-lossy-link"))
    found = grades(submit(tmp_path / "class", *CLASS), both)
    scores = {name: each.score or 0.0 for name, each in found.items()}
    assert scores["ann"] == scores["zoe"] == 1
    assert 0 < scores["slow"] < scores["tuned"] < 1
    assert scores["broken"] == scores["absent"] == 0
    assert "policy.py:5: Window.__init__" in found["broken"].reason
    assert "division by zero" in found["broken"].reason
    assert "policy.py: is missing" in found["absent"].reason
    # Again, from the beginning: the same scores.
    again = grades(submit(tmp_path / "again", "tuned", "ann"), both)
    assert {name: each.score for name, each in again.items()} == {name: scores[name] for name in ("ann", "tuned")}
    # What is tuned to what is shown wins without the hidden scenarios.
    shown = grades(submit(tmp_path / "shown", "ann", "tuned"), small(tmp_path / "52-open", ("dead-link",)))
    assert (shown["tuned"].score or 0.0) > (shown["ann"].score or 0.0)


def test_scores_are_geometric_means() -> None:
    assert race.geometric_mean([2.0, 0.5]) == pytest.approx(1)
    assert race.geometric_mean([3.0, 0.0]) == 0
    assert race.geometric_mean([]) == 0


RANK = JobProgress(done=True, started_ns=5, finished_ns=105)


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({}, 100),
        ({"finished_ns": 205}, 200),
        ({"done": False}, None),
        ({"mismatches": 1}, None),
        ({"failure": "it broke"}, None),
    ],
)
def test_the_last_rank_decides_and_wrong_bytes_have_no_time(change: dict[str, Any], taken: int | None) -> None:
    result = RunResult("tiny", "virtual", 1, "x", {}, ["h0", "h1"])
    result.progress = {"h0": RANK, "h1": dataclasses.replace(RANK, **change)}
    assert race.finishing_ns(result) == taken
    result.failures.append("no end")
    assert race.finishing_ns(result) is None
