"""A check comes out the same each time, whatever Python's hashes of strings are; and what does not is noticed.

All answers of all exercises, ten times: `mrclab workshop verify --runs 10 --hash-seeds 3` (an hour of CPU and more).
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner

from mrc_topo.shipped import shipped
from mrc_workshop import exercise, judge, verify
from mrc_workshop.exercise import WorkshopError
from mrclab.cli.app import app


def reason_of(row: verify.TrialRow) -> str:
    assert isinstance(row.report, dict)
    return str(row.report["reason"])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "answers"), [("1", ("shift-by-32-bits",)), ("6", ("never-revived",))], ids=["p4", "python"]
)
def test_verdict_and_output_are_the_same_for_any_hash_seed(number: str, answers: tuple[str, ...]) -> None:
    results = list(verify.repeated(exercise.find(number), 2, 2, answers))
    assert [[each.name for each in result] for result in results] == [list(answers)] * 2
    assert all(each.holds for result in results for each in result), results
    assert verify.differences(results) == []


@pytest.mark.long
@pytest.mark.slow
def test_a_check_that_depends_on_the_hash_seed_is_noticed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who sets none has always the same, as has who takes random numbers from Python's own generator."""
    folder = tmp_path / "50-sets"
    shutil.copytree(shipped("workshop") / "TEMPLATE", folder)
    document = yaml.safe_load((folder / "exercise.yaml").read_text())
    document["runs"][0] = {**document["runs"][0], "lab": "tiny", "policies": {"ev": "policy:Mine"}}
    del document["runs"][0]["may_change"]
    document |= {"edit": ["policy.py"], "language": "Python"}
    (folder / "exercise.yaml").write_text(yaml.safe_dump(document))
    for part in ("starter", "solution"):
        (folder / part / "policy.py").write_text("import random\nraise ValueError(hash('h0'), random.random())\n")
    results = list(verify.repeated(exercise.load(folder), 2, 2, ["starter"]))
    (told,) = verify.differences(results)
    assert told.startswith("starter: run 2 is not like run 1: ")
    assert "policy.py:2: ValueError" in told
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    one = exercise.load(folder)
    reasons = [judge.check(one, one.starter, quick=True).reason, *(reason_of(each[0]) for each in results)]
    hashes, drawn = zip(
        *(re.findall(r"ValueError: \((-?\d+), (0\.\d+)\)", reason)[0] for reason in reasons), strict=True
    )
    assert len(set(hashes)) == 3
    assert len(set(drawn)) == 1
    pinned = {**os.environ, "PYTHONHASHSEED": "0"}
    assert (
        hashes[0] == subprocess.check_output([sys.executable, "-c", "print(hash('h0'))"], env=pinned, text=True).strip()
    )


def test_where_results_differ_is_told() -> None:
    one = {"passed": True, "checks": [{"what": "it ends", "evidence": ["a", "b"]}]}
    other = {"passed": True, "checks": [{"what": "it ends", "evidence": ["a", "c"]}]}
    assert verify.difference(one, one) == ""
    assert verify.difference(one, other) == "checks[0].evidence[1]: 'b', then 'c'"
    assert verify.difference(one, {"passed": True}).startswith(": {'passed': True")


def test_an_answer_that_is_not_there_is_told() -> None:
    with pytest.raises(WorkshopError, match=r"wrong.yaml: no answer 'solutoin'; there are: starter, solution, "):
        next(verify.trials(exercise.find("1"), only=["solutoin"]))


def trial(name: str, passed: bool, holds: bool = True) -> verify.TrialRow:
    return verify.TrialRow(name, holds, f"{name}: told", 1.5, 2.5, {"passed": passed})


@pytest.mark.parametrize(
    ("second", "code", "told"),
    [
        (trial("solution", True), 0, "run 2 of 2: 1 answers; longest: solution   1.5 s CPU   2.5 s"),
        (trial("solution", False), 1, "solution: run 2 is not like run 1: passed: True, then False"),
        (trial("solution", True, holds=False), 1, "solution: told"),
    ],
    ids=["same", "differs", "wrong"],
)
def test_the_command_says_where_runs_differ(
    second: verify.TrialRow, code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [[trial("solution", True)], [second]]
    monkeypatch.setattr(verify, "repeated", lambda *_: iter(results))
    done = CliRunner().invoke(app, ["workshop", "verify", "1", "--runs", "2"])
    assert done.exit_code == code
    assert " ".join(told.split()) in " ".join(done.output.split())


def test_json_is_of_one_run() -> None:
    with pytest.raises(WorkshopError, match="leave --runs and --hash-seeds out"):
        CliRunner().invoke(app, ["workshop", "verify", "1", "--runs", "2", "--json"], catch_exceptions=False)
