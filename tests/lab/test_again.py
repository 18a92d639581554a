"""Provenance of results, and runs repeated from their folders."""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mrc_topo.schema import Lab
from mrclab.cli import app as cli
from mrclab.results import provenance
from mrclab.results.provenance import Provenance
from mrclab.results.record import RunResult

Run = Callable[..., tuple[int, str, str]]

LAB = """\
name: own
planes: 2
t0_per_plane: 2
t1_per_plane: 2
hosts: 4
hosts_per_t0: 2
path_mtu: 1024
ev: {size: 16, active: 8}
seed: 7
policies: {loss: own.py:Own}
"""
POLICY = "from mrc_host.policy import LossDetector\nclass Own(LossDetector):\n    pass\n"
EXPERIMENT = """\
name: own
title: a link fails
lab: ./own.yaml
workload: {name: incast, params: {message_bytes: 65536, iterations: 4}}
schedule:
  - {at: 0.02, fail: p0-t0.0--p0-t1.0, evidence: {dropped: 1}}
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Types `mrclab run` with these words: exit code, output, errors."""

    def go(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mrclab", "run", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        told = capsys.readouterr()
        return int(caught.value.code or 0), told.out, told.err

    return go


@pytest.fixture
def first(tmp_path: pathlib.Path, run: Run) -> pathlib.Path:
    """Return the results of an experiment with a policy, in simulated time."""
    (tmp_path / "own.py").write_text(POLICY)
    (tmp_path / "own.yaml").write_text(LAB)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT.replace("./own.yaml", str(tmp_path / "own.yaml")))
    run(tmp_path / "experiment.yaml", "-o", tmp_path / "first", "--json")
    return tmp_path / "first"


def document(folder: pathlib.Path, name: str = "result.json") -> dict[str, Any]:
    return json.loads((folder / name).read_text())


def rewrite(folder: pathlib.Path, **changes: Any) -> None:
    made = {key: value for key, value in {**document(folder), **changes}.items() if value is not None}
    (folder / "result.json").write_text(json.dumps(made))


def test_a_result_says_where_it_comes_from(first: pathlib.Path) -> None:
    found = Provenance.model_validate(document(first)["provenance"])
    assert found is not None
    assert Provenance.model_validate(document(first, "verdict.json")["provenance"]) == found
    root = pathlib.Path(__file__).parents[2]
    commit = None
    if shutil.which("git"):
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    assert found.commit == commit
    assert (found.dirty is None) == (found.commit is None)
    assert found.python.endswith(sys.version.split()[0])
    assert found.core in ("compiled", "pure")
    assert found.policies == {"loss": hashlib.sha256(POLICY.encode()).hexdigest()}
    assert found.program == document(first)["program"]["sha256"]
    assert {len(found.lab), len(found.experiment)} == {64}


def test_a_run_is_repeated_byte_for_byte(first: pathlib.Path, tmp_path: pathlib.Path, run: Run) -> None:
    # Neither the experiment nor the lab file is needed, and neither their place nor their layout is of the lab.
    (tmp_path / "experiment.yaml").unlink()
    (tmp_path / "own.yaml").unlink()
    code, out, err = run("--again", first, "-o", tmp_path / "second", "--json")
    told = json.loads(out)
    assert told["again"] == {"of": str(first), "caveats": [], "provenance": [], "results": []}, err
    assert code == (0 if told["passed"] else 1)
    assert document(tmp_path / "second")["seed"] == 7
    assert document(tmp_path / "second")["experiment"] == document(first)["experiment"]
    assert run("--again", tmp_path / "second", "-o", tmp_path / "third")[1].endswith("results: the same bytes\n")


def test_repetition_with_a_changed_policy_names_what_differs(
    first: pathlib.Path, tmp_path: pathlib.Path, run: Run
) -> None:
    (tmp_path / "own.py").write_text(POLICY + "    def infer(self, acked, overtaken, base, now):\n        return []\n")
    code, out, _ = run("--again", first, "-o", tmp_path / "second")
    assert code == 1
    assert "provenance: policies.loss: " in out
    assert "results: other bytes in result.json: " in out
    assert "samples.npz" in out


def test_a_run_with_another_seed_is_the_run_of_a_lab_with_that_seed(
    first: pathlib.Path, tmp_path: pathlib.Path, run: Run
) -> None:
    run(tmp_path / "experiment.yaml", "--seed", "9", "-o", tmp_path / "given")
    (tmp_path / "own.yaml").write_text(LAB.replace("seed: 7", "seed: 9"))
    run(tmp_path / "experiment.yaml", "-o", tmp_path / "written")
    given, written = document(tmp_path / "given"), document(tmp_path / "written")
    assert given.pop("provenance")["lab"] == written.pop("provenance")["lab"]
    assert given == written
    assert given["seed"] == 9
    assert given["statistics"] != document(first)["statistics"]
    code, out, _ = run("--again", tmp_path / "given", "-o", tmp_path / "again")
    assert out.endswith("results: the same bytes\n"), (code, out)


def test_a_workload_is_repeated_with_its_parameters(tmp_path: pathlib.Path, run: Run) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    words = ["write_bw", "--lab", "tiny", "--clock", "virtual", "--set", "message_bytes=65536", "--set", "iterations=3"]
    assert run(*words, "--hosts", "h1,h3", "--qps", "2", "-o", first)[0] == 0
    code, out, _ = run("--again", first, "-o", second)
    assert code == 0
    assert out.endswith("provenance: the same\nresults: the same bytes\n")
    assert document(second)["ranks"] == ["h1", "h3"]


def test_results_without_provenance_stay_readable(first: pathlib.Path, tmp_path: pathlib.Path, run: Run) -> None:
    rewrite(first, provenance=None)
    RunResult.load(first)
    _, out, _ = run("--again", first, "-o", tmp_path / "second")
    assert "note: it has no provenance" in out
    assert "results: the same bytes" in out
    rewrite(first, experiment=None)
    RunResult.load(first)
    code, _, err = run("--again", first)
    assert code == 2
    assert "result.json: it does not hold its experiment" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("write_bw",), "a name with --again"),
        (("--clock", "real"), "--clock with --again"),
        (("--seed", "2"), "--seed with --again"),
        (("--set", "iterations=1"), "--set with --again"),
    ],
)
def test_run_again_with_an_option_that_the_results_say_is_refused(
    first: pathlib.Path, words: tuple[str, ...], named: str, run: Run
) -> None:
    code, _, err = run(*words, "--again", first)
    assert (code, named in err) == (2, True), err


def test_results_are_not_replaced_by_their_repetition(first: pathlib.Path, run: Run) -> None:
    before = (first / "result.json").read_bytes()
    code, _, err = run("--again", first, "-o", first)
    assert (code, "choose another -o" in err) == (2, True), err
    assert (first / "result.json").read_bytes() == before


def test_a_changed_or_damaged_record_is_named(first: pathlib.Path, run: Run) -> None:
    whole = document(first)
    rewrite(first, experiment={**whole["experiment"], "workload": {"name": "nothing"}})
    code, _, err = run("--again", first)
    assert (code, "result.json: workload.name" in err) == (2, True), err
    rewrite(first, experiment=whole["experiment"], provenance={"version": 1})
    code, _, err = run("--again", first)
    assert (code, "result.json: version" in err) == (2, True), err


def test_results_of_others_that_name_code_are_refused(first: pathlib.Path, run: Run) -> None:
    (first / "result.json").chmod(0o666)
    code, _, err = run("--again", first)
    assert (code, "result.json" in err) == (2, True), err


def test_digests_are_of_what_is_asked_not_of_where_it_stands() -> None:
    here = Lab.model_validate({"name": "own", "policies": {"loss": "/a/own.py:Own"}})
    there = Lab.model_validate({"name": "own", "policies": {"loss": "/b/own.py:Own"}})
    other = Lab.model_validate({"name": "own", "seed": 2})
    assert provenance.lab_digest(here) == provenance.lab_digest(there) != provenance.lab_digest(other)


def test_differences_of_two_provenances_leave_the_date_out() -> None:
    lab = Lab.model_validate({"name": "own"})
    one = provenance.collect(lab, {}, {})
    later = one.model_copy(update={"date": "2100-01-01T00:00:00+00:00"})
    assert one.differences(later) == []
    machine = one.machine.model_copy(update={"cpus": one.machine.cpus + 1})
    other: Provenance = later.model_copy(update={"machine": machine, "dirty": None, "commit": None})
    named = [line.partition(":")[0] for line in one.differences(other)]
    assert set(named) - {"commit", "dirty"} == {"machine.cpus"}
