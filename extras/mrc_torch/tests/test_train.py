"""`mrclab train`: the course of a job, what dying costs, the report side by side; bad input. The ranks are scripted."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mrc_torch import cli as train_verb
from mrc_torch.training import job, page, summary
from mrc_torch.training.job import JobResult, TrainingJob, TrainingPlan
from mrclab.cli.app import app
from mrclab.lab.faults.action import Action
from mrclab.lab.processes.process import ProcessExit
from mrclab.lab.requested import LabRequest
from mrclab.runs.experiment import ExperimentError
from support.lab.scripted import Clock, Failures, Scripted

NAMES = ["h0", "h1", "h2", "h3"]
LINK = "p0-t0.0--p0-t1.0"


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "Ranks", Scripted)
    monkeypatch.setattr(job, "ERRORS_S", 0.0)
    monkeypatch.setattr(Scripted, "made", [])
    monkeypatch.setattr(Scripted, "reached", 0)


def go(backend: str, *, breaks: bool = True, mends: bool = True, **plan: Any) -> JobResult:
    schedule = [(1.0, Action("fail", LINK, "link_down"))] if breaks else []
    schedule += [(2.0, Action("restore", LINK))] if breaks and mends else []
    made = TrainingPlan("digits", NAMES, **{"steps": 30, "schedule": schedule, **plan})
    session: Any = Clock()
    return TrainingJob(session, made, backend).go()


def test_a_job_without_a_schedule_ends_with_its_steps() -> None:
    result = go("mrc", breaks=False)
    found = summary.summary(result)
    assert (found.status, found.reached, found.accuracy) == ("done", 30, 0.9)
    assert found.restarts == []
    assert set(found.times) == {"all", "whole"}
    assert found.times["all"].p50 == pytest.approx(0.1, abs=0.02)
    assert found.operations["all_reduce"].count == 30
    assert found.per_second == pytest.approx(30 * 64 / found.seconds)
    assert found.loss[0] == (1, 2.0)


def test_mrc_goes_on_while_something_is_broken() -> None:
    result = go("mrc")
    found = summary.summary(result)
    assert found.status == "done"
    assert found.reached >= 30
    assert len(result.attempts) == 1
    assert [each.text for each in found.happenings] == [f"link down {LINK}", f"restore {LINK}"]
    assert found.times["broken"].max == pytest.approx(0.3, abs=0.02)
    assert found.times["whole"].p50 == pytest.approx(0.1, abs=0.02)
    numbers = [each[0] for each in found.steps]
    assert numbers == list(range(1, found.reached + 1))  # no step is lost, none is done twice


def test_a_job_lasts_as_long_as_its_schedule() -> None:
    """All ranks end with the same step, told while they run: rank 0 holds, and the others end one step behind."""
    found = summary.summary(go("mrc", steps=1))
    assert found.status == "done"
    assert found.seconds >= 2.0 + job.SETTLE_S


def test_a_busy_machine_does_not_shorten_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    perform = Failures.perform

    def slow(self: Failures, session: Any, action: Action) -> None:
        perform(self, session, action)
        session.now += 3_000_000_000 if action.verb == "fail" else 0

    monkeypatch.setattr(Failures, "perform", slow)
    down, up = go("mrc").happenings
    assert 0.9e9 < up.at_ns - down.done_ns < 1.5e9


def test_roce_dies_and_is_started_again_from_the_checkpoint() -> None:
    result = go("roce", restarts=300)
    found = summary.summary(result)
    assert found.status == "done"
    assert [each["resume"] for each in Scripted.made] == [False] + [True] * (len(Scripted.made) - 1)
    first = found.restarts[0]
    assert first.ended == "died"
    assert first.error == "rank 1 (h1): RuntimeError: retry exceeded"
    died = first.step
    assert 8 <= died <= 10
    last = found.restarts[-1]
    assert last.repeated == died - died // 10 * 10
    # The link is back a second later; what it cost is told from the last step before until the job was as far again.
    assert 0.8 < sum(each.seconds or 0.0 for each in found.restarts) < 1.5
    assert result.attempts[-1].resumed_at == died // 10 * 10


def test_a_job_that_cannot_be_started_again_fails() -> None:
    result = go("roce", mends=False, restarts=2)
    found = summary.summary(result)
    assert (found.status, len(result.attempts)) == ("failed", 3)
    assert "has died 3 times: rank 1 (h1)" in found.failures[0]
    assert found.restarts[-1].seconds is None


@pytest.mark.parametrize(("role", "attempts"), [("h1", 3), ("fabric", 1), ("lab", 1)])
def test_a_job_is_not_started_again_in_a_lab_that_is_dead(role: str, attempts: int) -> None:
    """An agent may be started again by then; the rest of a lab never is."""
    session: Any = Clock()
    session.dead.append(ProcessExit.now(role, "was killed by SIGKILL"))
    plan = TrainingPlan("digits", NAMES, 30, restarts=2, schedule=[(1.0, Action("fail", LINK, "link_down"))])
    result = TrainingJob(session, plan, "roce").go()
    found = summary.summary(result)
    assert (found.status, len(result.attempts)) == ("failed", attempts)
    assert f"has died {attempts} times: rank 1 (h1)" in found.failures[-1]
    assert any("was killed by SIGKILL" in each for each in found.failures) == (role != "h1")


def test_a_job_in_which_nothing_moves_has_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "events", lambda self, timeout_s: [])
    monkeypatch.setattr(job, "START_S", 0.0)
    result = go("mrc", breaks=False, restarts=0)
    assert result.attempts[0].ended == "stalled"
    found = summary.summary(result)
    assert (found.status, found.steps, found.loss) == ("failed", [], [])
    assert "stalled" in page.text([found])


def test_report_of_two_backends_has_a_column_and_a_curve_for_each() -> None:
    documents = [summary.summary(go(each, restarts=300)) for each in ("mrc", "roce")]
    heads, rows = page.table(documents)
    assert heads == ["", "mrc", "roce"]
    table = {row[0]: row[1:] for row in rows}
    assert table["ended"] == ["done", "done"]
    assert table["died or stalled"][0] == "never"
    assert table["died or stalled"][1].startswith("died at step ")
    assert table["cost of restarts"][0] == "0.0 s"
    assert page.text(documents).splitlines()[0].split() == ["mrc", "roce"]
    html = page.render(documents, "digits <&>")
    assert "digits &lt;&amp;&gt;" in html
    assert html.count("<figure") == 2
    assert "roce, something broken" not in html  # it made no step then
    assert "mrc, something broken" in html
    assert "retry exceeded" in html
    assert f"link down {LINK}" in html


def test_the_command_tells_live_and_leaves_a_report(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    asked = []

    @contextlib.contextmanager
    def session_for(wanted: LabRequest, progress: object) -> Iterator[Clock]:
        asked.append((wanted.lab, wanted.clock, wanted.transport))
        yield Clock()

    monkeypatch.setattr(train_verb, "session_for", session_for)
    monkeypatch.setattr(train_verb, "RealSession", Clock)
    monkeypatch.setattr(train_verb, "need_namespaces", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    words = ["--backend", "mrc,roce", "--schedule", "training-failures", "--restarts", "0", "-o", str(tmp_path / "out")]
    done = train(*words)
    assert asked == [("tiny", "real", "mrc"), ("tiny", "real", "roce")]
    # RoCE's job died, and was not started again.
    assert done.exit_code == 1
    told = done.output
    assert "mrc: 4 ranks train" in told
    assert "mrc:   1.0" in told
    assert "step 10, loss 0.2000, 100 ms" in told
    assert "roce: died: rank 1 (h1): RuntimeError: retry exceeded" in told
    assert "roce: the job has died 1 times" in told
    table = [line.split() for line in told.splitlines()]
    assert ["ended", "done", "failed"] in table
    documents = json.loads((tmp_path / "out" / "train.json").read_text())
    assert [each["backend"] for each in documents] == ["mrc", "roce"]
    assert "retry exceeded" in (tmp_path / "out" / "report.html").read_text()


def train(*words: str) -> Result:
    return CliRunner().invoke(app, ["train", "--lab", "tiny", *words])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "gpt"], "--model is one of digits, mlp, gpt-tiny, not 'gpt'"),
        (["--backend", "nccl"], "--backend: 'nccl' is none of mrc, roce, gloo"),
        (["--backend", "mrc,mrc"], "--backend: 'mrc' is named twice"),
        (["--steps", "0"], "--steps is a number from 1 to 1000000, not 0"),
        (["--batch", "0"], "--batch is a number from 1 to 1024, not 0"),
        (["--restarts", "-1"], "--restarts is a number from 0 to 100, not -1"),
        (["--hosts", "h0"], "a job needs at least 2 ranks, not 1"),
        (["--hosts", "h0,x"], "--hosts: 'x' is not a host of tiny; it has: h0, h1, h2, h3"),
        (["--schedule", "nothing"], "nothing: no experiment of that name"),
        (["--schedule", "training-64"], "--schedule on lab tiny: port down h17:1"),
    ],
)
def test_train_with_an_option_that_cannot_be_names_it(words: list[str], told: str) -> None:
    done = train(*words)
    assert isinstance(done.exception, ExperimentError)  # exit code 2: `common.USAGE`
    assert told in str(done.exception)


def test_train_without_torch_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else real(name) or object())
    done = train("-o", str(tmp_path / "out"))
    assert isinstance(done.exception, ExperimentError)
    assert str(done.exception).startswith("torch is missing, which PyTorch jobs need: install it with `pip install")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else real(name) or object())
    assert "scikit-learn is missing" in str(train().exception)
    done = CliRunner().invoke(app, ["perf", "all_reduce", "--lab", "tiny", "--backend", "gloo", "--clock", "virtual"])
    assert "on the real clock only" in str(done.exception)
