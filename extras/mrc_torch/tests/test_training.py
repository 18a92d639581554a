"""The training workload in the lab: what its steps are, who saw a failure, what is expected of them; deterministic."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import pathlib
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mrc_topo.labfile import load_lab
from mrclab.lab.faults.action import Action
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results import performance, report, steps, verdict
from mrclab.results.expectation import Expectation, StepExpectation
from mrclab.results.record import RunResult
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from support.lab import users
from support.lab.results import result_of
from support.lab.usual import LONG, usual_experiments

SMALL = {"compute_us": 9000, "jitter_percent": 10, "gradient_bytes": 20_000, "pipeline": 2, "experts": 2}
SMALL |= {"micro_batches": 2, "activation_bytes": 4000, "expert_bytes": 1000, "buckets": 3}
LINK = "p0-t0.0--p0-t1.0"


def run(transport: str = "mrc", breaks: bool = True) -> RunResult:
    session = VirtualSession(load_lab("tiny"), transport)
    schedule = [(0.2, Action("fail", LINK)), (0.4, Action("restore", LINK))]
    try:
        return WorkloadRun(session, WorkloadSpec("training", SMALL, duration_s=0.7), schedule if breaks else ()).go()
    finally:
        session.close()


def test_training_run_with_a_failure_tells_steps_operations_and_which_were_broken() -> None:
    result = run()
    assert result.failures == []
    found = steps.steps_of(result)
    (done,) = {each.iterations for each in result.progress.values()}
    assert [each.number for each in found] == list(range(done))
    assert found[0].begin_ns == result.started_ns
    assert all(before.end_ns == after.begin_ns for before, after in itertools.pairwise(found))
    # Every step takes its computation at least; with two stages and two micro batches half as much again is a bubble.
    assert all(each.seconds > 1.5 * 0.009 for each in found)
    failed, restored = (each.done_ns for each in result.happenings)
    for each in found:
        assert each.broken == (each.end_ns > result.happenings[0].at_ns and each.begin_ns < restored)
    assert failed < restored
    assert 0 < sum(each.broken for each in found) < done
    told = performance.of(result).training
    assert told is not None
    title = performance.training_tables(told)[0].title
    assert title.endswith(f"; exposed communication, when a rank does not compute: {told.idle:.1%} of it")
    assert told.times["all"].count == done
    assert set(told.operations) == {"all_reduce", "all_to_all", "send_recv"}
    assert told.operations["all_to_all"].count == 4 * 4 * 2 * done
    made = load_lab("tiny")
    judged = verdict.judge(result, made, Expectation())
    page = report.render(result, made, judged, "x")
    assert '<figure class="chart" id="steps">' in page
    assert "with something broken" in page
    again = run()
    assert again.progress == result.progress
    assert steps.summary(again) == told


LITTLE = [f"--set={name}={value}" for name, value in SMALL.items()]
ALIKE = {
    "tiny": ["training", "--lab", "tiny", "--clock", "virtual", "--duration", "0.4", *LITTLE],
    # 64 hosts, two minutes each: `MRCLAB_LONG=1 pytest extras/mrc_torch/tests/test_training.py`.
    **{name: [name] for name in usual_experiments() if name in LONG and name.startswith("training")},
}


@pytest.mark.slow
@pytest.mark.parametrize("words", ALIKE.values(), ids=ALIKE)
def test_a_run_is_the_same_again_byte_by_byte(words: list[str], tmp_path: pathlib.Path) -> None:
    """In other processes, whose hashes of strings differ: every step of every rank, sample and event."""
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [*users.MRCLAB, "run", *words, "-o", str(folder)], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads((folder / "result.json").read_text())
        assert len(steps.steps_of(RunResult.load(folder))) > 3
        measured = {host: each["measured"]["training"] for host, each in result["progress"].items()}
        events = gzip.decompress((folder / "events.jsonl.gz").read_bytes())
        found.append(
            (measured, result["statistics"], result["happenings"], events, (folder / "samples.npz").read_bytes())
        )
    for one, other in zip(*found, strict=True):
        assert one == other


def test_roces_steps_are_told_too() -> None:
    result = run("roce", breaks=False)
    assert result.failures == []
    assert not any(each.broken for each in steps.steps_of(result))
    summary = steps.summary(result)
    assert summary is not None
    assert set(summary.times) == {"all", "whole"}


def made_up(seconds: list[float], broken: list[tuple[float, float]]) -> dict[str, Any]:
    """Two ranks; the second ends each step a little before the first."""
    ends, now = [], 0.0
    for each in seconds:
        now += each
        ends.append(round(now * 1e9))
    rank = {"iterations": len(ends), "started_ns": 0, "finished_ns": ends[-1], "done": True, "takes_part": True}
    progress = {
        name: rank | {"measured": {"training": {"ends_ns": mine, "computed_ns": ends[-1] // 2, "operations": {}}}}
        for name, mine in (("h0", ends), ("h1", [end - 1 for end in ends]))
    }
    happenings = []
    for since, until in broken:
        happenings.append({"at_ns": round(since * 1e9), "done_ns": round(since * 1e9), "broken": ["x"]})
        happenings.append({"at_ns": round((until - 1) * 1e9), "done_ns": round(until * 1e9), "broken": []})
    return {
        "ranks": ["h0", "h1"], "progress": progress, "happenings": happenings, "started_ns": 0, "finished_ns": ends[-1],
    }  # fmt: skip


def judged(document: dict[str, Any], **wanted: Any) -> list[bool]:
    return [check.passed for check in verdict._steps(result_of(document), StepExpectation.model_validate(wanted))]


def test_check_of_steps_holds_both_bounds_for_steps_with_and_without_failure() -> None:
    document = made_up([1.0, 1.0, 3.0, 1.0], [(2.5, 3.5)])
    assert judged(document, of="max", at_least=2.9, at_most=3.1) == [True, True]
    assert judged(document, of="max", at_least=3.1) == [False]
    assert judged(document, of="p50", at_most=0.9) == [False]
    assert judged(document, of="mean", during="broken", at_least=2.9, at_most=3.1) == [True, True]
    assert judged(document, of="max", during="whole", at_most=1.1) == [True]
    # Without its failure an expectation of steps that saw one is missed.
    assert judged(made_up([1.0, 1.0], []), of="max", during="broken", at_most=9) == [False]
    with pytest.raises(ValidationError, match="at_least or at_most"):
        StepExpectation(of="max")
    told = performance.of(result_of(document)).training
    assert told is not None
    assert told.idle == pytest.approx(0.5)


def test_a_step_saw_a_failure_until_its_restore_was_done() -> None:
    result = result_of(made_up([1.0, 1.0, 3.0, 0.25, 1.0, 1.0], [(1.5, 5.5)]))
    assert [each.broken for each in steps.steps_of(result)] == [False, True, True, True, True, False]


def test_every_operation_weighs_alike_and_the_idle_share_is_of_ranks_that_ended() -> None:
    document = made_up([1.0], [])
    for name, count, mean in (("h0", 1, 1e9), ("h1", 3, 2e9)):
        operation = {"count": count, "mean": mean, "p99": None}
        document["progress"][name]["measured"]["training"]["operations"] = {"send": operation}
    document["progress"]["h1"] |= {"done": False, "started_ns": 7, "finished_ns": 0}
    told = steps.summary(result_of(document))
    assert told is not None
    assert (told.operations["send"].count, told.operations["send"].mean) == (4, 1.75)
    assert told.idle == pytest.approx(0.5)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=200))
def test_statistic_of_times_is_mean_maximum_or_nearest_rank(seconds: list[float]) -> None:
    values = [steps.statistic(seconds, name) for name in ("p50", "p99", "max")]
    assert values == sorted(values)
    assert set(values) <= set(seconds)
    assert values[-1] == max(seconds)
    assert sum(each <= values[0] for each in seconds) * 2 >= len(seconds)
    assert min(seconds) <= steps.statistic(seconds, "mean") * (1 + 1e-9)


def test_a_rank_without_a_word_leaves_no_steps() -> None:
    document = made_up([1.0], [])
    document["progress"].pop("h1")
    assert steps.steps_of(result_of(document)) == []
    assert steps.summary(result_of(document)) is None
