"""Ranking a class: the same order each time, better before worse, broken last with its reason, hidden runs count."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest
import yaml

from mrc_host.answers import JobProgress
from mrc_results.record import RunResult
from mrc_topo.shipped import shipped
from mrc_workshop import exercise, leaderboard
from mrc_workshop.exercise import Exercise, WorkshopError
from mrc_workshop.grade import Grade
from mrc_workshop.kinds import race
from mrc_workshop.leaderboard import Place

MRCLAB = pathlib.Path(sys.executable).parent / "mrclab"
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


def order(places: list[Place]) -> list[tuple[int, str]]:
    return [(each.rank, each.submission) for each in places]


@pytest.mark.slow
def test_a_class_is_ranked_and_hidden_scenarios_count(tmp_path: pathlib.Path) -> None:
    both = small(tmp_path / "51-open", ("dead-link", "hidden-lossy-link"))
    submitted = submit(tmp_path / "class", *CLASS)
    places = leaderboard.make(submitted, tmp_path / "grades.csv", both)
    assert order(places) == [(1, "ann"), (1, "zoe"), (3, "tuned"), (4, "slow"), (5, "absent"), (5, "broken")]
    by_name = {each.submission: each for each in places}
    assert by_name["ann"].score == 1
    assert 0 < by_name["slow"].score < by_name["tuned"].score < 1
    assert by_name["broken"].score == by_name["absent"].score == 0
    assert "policy.py:5: Window.__init__" in by_name["broken"].reason
    assert "division by zero" in by_name["broken"].reason
    assert "policy.py: is missing" in by_name["absent"].reason
    # Again, from the beginning: the same order and the same scores.
    some = submit(tmp_path / "again", "tuned", "ann")
    again = leaderboard.make(some, tmp_path / "again.csv", both)
    assert [(each.submission, each.score) for each in again] == [
        (each.submission, each.score) for each in places if each.submission in ("ann", "tuned")
    ]
    # What is tuned to what is shown wins without the hidden scenarios.
    shown = small(tmp_path / "52-open", ("dead-link",))
    without = leaderboard.make(submit(tmp_path / "shown", "ann", "tuned"), tmp_path / "shown.csv", shown)
    assert order(without) == [(1, "tuned"), (2, "ann")]


def graded(name: str, score: float | None, reason: str = "") -> Grade:
    return Grade(name, "11-open", not reason, 1.0, 1, 1, score, reason, "yes", 0.0, "0")


def test_ties_are_by_name_and_who_failed_is_last() -> None:
    rows = [graded("b", 1.0), graded("c", None, "broke"), graded("d", 2.0), graded("a", 1.0), graded("e", 0.5)]
    assert order(leaderboard.rank(rows)) == [(1, "d"), (2, "a"), (2, "b"), (4, "e"), (5, "c")]
    assert leaderboard.rank(rows) == leaderboard.rank(rows[::-1])
    assert leaderboard.rank(rows)[-1].reason == "broke"


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


def mrclab(place: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(MRCLAB), "workshop", "leaderboard", *words]
    return subprocess.run(command, cwd=place, env=os.environ, capture_output=True, text=True, check=False)


def test_what_cannot_be_ranked_is_told(tmp_path: pathlib.Path) -> None:
    submit(tmp_path / "class", "ann")
    (tmp_path / "empty").mkdir()
    for words, said in (
        (("nowhere",), "nowhere: cannot be read"),
        (("empty",), "empty: no submissions; each is a sub-folder"),
        (("class", "--exercise", "7"), "07-window: has no score for a ranking"),
    ):
        done = mrclab(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr


def test_another_file_is_not_overwritten(tmp_path: pathlib.Path) -> None:
    places = leaderboard.rank([graded("a", 1.0), graded("b", None, "it broke")])
    leaderboard.write(tmp_path / "ranks.csv", places)
    leaderboard.write(tmp_path / "ranks.csv", places)
    assert (tmp_path / "ranks.csv").read_text().splitlines() == [
        "rank,submission,score,passed,reason,isolated",
        "1,a,1.0,True,,yes",
        "2,b,0.0,False,it broke,yes",
    ]
    (tmp_path / "notes.txt").write_text("mine\n")
    with pytest.raises(WorkshopError, match="is not a leaderboard, and is not overwritten"):
        leaderboard.write(tmp_path / "notes.txt", places)


@pytest.mark.slow
def test_what_fails_has_score_0_in_print_and_json(tmp_path: pathlib.Path) -> None:
    submit(tmp_path / "class", "absent")
    printed = mrclab(tmp_path, "class")
    assert printed.returncode == 0
    assert "1  0.000  absent" in printed.stdout
    done = mrclab(tmp_path, "class", "--json", "-o", "ranks.csv")
    assert [(each["submission"], each["score"]) for each in json.loads(done.stdout)] == [("absent", 0.0)]
    assert (tmp_path / "ranks.csv").read_text().startswith("rank,")
