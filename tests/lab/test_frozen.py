"""What a signal has stopped is named as frozen; who interrupts a run gets its verdict."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mrclab.lab.processes.process import Process, StoppedProcess, frozen
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.session.real import RealSession
from mrclab.results.record import RunResult
from mrclab.runs import endings
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, Workload
from support.amount import first
from support.lab import users
from support.lab.labs import lab_file, session
from support.namespaces import interfaces, left_behind

SMALL = {"planes": 2, "t0_per_plane": 1, "t1_per_plane": 0, "hosts": 2, "ev": {"size": 8, "active": 4}}
TIMEOUT_S = 120
STOPPED = "is frozen: a signal has stopped it since "
WRITES = Experiment(name="x", title="x", lab="tiny", workload=Workload(name="write_bw", duration=600))


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


def eventually(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def mrclab(*words: str) -> subprocess.CompletedProcess[str]:
    command = [*users.MRCLAB, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


# -- frozen processes -----------------------------------------------------------------------------------------


def test_a_process_that_a_signal_has_stopped() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        assert not frozen(process.pid)
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: frozen(process.pid), "frozen")
        assert Process.of("x", process.pid).alive()
        process.send_signal(signal.SIGCONT)
        eventually(lambda: not frozen(process.pid), "thawed")
        process.kill()
    assert not frozen(process.pid)


def test_it_is_said_since_when() -> None:
    assert StoppedProcess("h1").text() == "h1 is frozen: a signal has stopped it"
    assert StoppedProcess("fabric", time.time()).text().startswith(f"the fabric's process {STOPPED}")


@pytest.fixture
def real(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSession]:
    monkeypatch.setattr(endings, "LOSS_GRACE_S", 1.0)
    with session(lab_file(tmp_path, "tiny", **SMALL), "real") as made:
        assert isinstance(made, RealSession)
        made.target.clients[0].timeout_s = 3.0
        for client in made.clients.values():
            client._client.timeout_s = 3.0
        yield made


def process_of(role: str) -> Process:
    return next(each for each in RunDir("tiny").processes() if each.role == role)


def failures(made: RealSession, role: str, number: int) -> list[str]:
    """Return what a run has to say in which a process gets this signal."""
    sent = False

    def send(result: RunResult) -> None:
        nonlocal sent
        if not sent and any(each.bytes_sent for each in result.progress.values()):
            sent = True
            process_of(role).signal(number)

    try:
        return run_on(made, WRITES, send).failures
    finally:
        process_of(role).signal(signal.SIGCONT)


@pytest.mark.lab
@pytest.mark.slow
def test_a_run_names_what_is_frozen(real: RealSession) -> None:
    (first, *_) = failures(real, "h1", signal.SIGSTOP)
    assert f"host h1: its agent does not answer within 3 s: h1 {STOPPED}" in first
    eventually(lambda: not real.frozen(), "thawed")
    (first, *_) = failures(real, "fabric", signal.SIGSTOP)
    assert first.startswith(f"the fabric does not answer: the fabric's process {STOPPED}")


@pytest.mark.lab
@pytest.mark.slow
def test_commands_name_what_is_frozen(real: RealSession) -> None:
    process_of("h1").signal(signal.SIGSTOP)
    eventually(lambda: RunDir("tiny").read().record.frozen, "the daemon notes it")
    status = json.loads(mrclab("status", "--json").stdout)
    assert [host["alive"] for host in status["hosts"]] == [True, False]
    assert status["hosts"][1]["error"].startswith(f"h1 {STOPPED}")
    assert len(status["switches"]) == 2
    process_of("fabric").signal(signal.SIGSTOP)
    eventually(lambda: len(RunDir("tiny").read().record.frozen) == 2, "the daemon notes it")
    shown = " ".join(mrclab("status").stdout.split())
    assert f"the fabric's process {STOPPED}" in shown
    failed = mrclab("fail", "h1:0")
    assert failed.returncode == 1
    assert f"the fabric's process {STOPPED}" in failed.stderr
    for role in ("h1", "fabric"):
        process_of(role).signal(signal.SIGCONT)
    eventually(lambda: not RunDir("tiny").read().record.frozen, "the daemon notes it")
    # An agent that was started again is none of the daemon's.
    real.kill_agent("h1")
    real.restart_agent("h1")
    real.freeze_agent("h1")
    eventually(lambda: [each.role for each in real.frozen()] == ["h1"], "seen from outside")
    real.thaw_agent("h1")


@pytest.mark.lab
@pytest.mark.slow
def test_the_shell_that_holds_a_namespace_is_missed(real: RealSession, tmp_path: pathlib.Path) -> None:
    (failure,) = failures_of_a_short_run(real, lambda: process_of("h1.shell").signal(signal.SIGKILL))
    assert "the shell that holds the namespace of h1 was killed by SIGKILL" in failure
    entered = mrclab("exec", "h1", "true")
    assert entered.returncode == 2
    assert "the shell that holds the namespace of h1 was killed by SIGKILL" in entered.stderr
    assert "the shell that holds the namespace of h1" in " ".join(mrclab("status").stdout.split())
    again = mrclab("run", "write_bw", "-o", str(tmp_path / "result"))
    assert again.returncode == 2
    assert "damaged: the shell that holds the namespace of h1" in again.stderr


def failures_of_a_short_run(made: RealSession, harm: Callable[[], None]) -> list[str]:
    harmed = False

    def once(result: RunResult) -> None:
        nonlocal harmed
        if not harmed:
            harmed = True
            harm()

    short = WRITES.model_copy(update={"workload": Workload(name="write_bw", duration=2.0)})
    result = run_on(made, short, once)
    assert all(each.done for each in result.progress.values())
    assert sum(each.bytes_verified for each in result.progress.values()) > 0
    assert [each.role for each in result.deaths] == ["h1.shell"]
    return result.failures


# -- interruptions --------------------------------------------------------------------------------------------


def interrupted(number: int, code: int, clock: str, lab: str, output: pathlib.Path) -> dict[str, Any]:
    """Return the verdict of a run that is interrupted a moment after its beginning."""
    command = [*users.MRCLAB, "run", "write_bw", "--lab", lab, "--clock", clock, "--duration", "1000"]
    with subprocess.Popen(
        [*command, "-o", str(output)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.startswith("running"):
                break
        time.sleep(1.0)
        run.send_signal(number)
        try:
            said, errors = run.communicate(timeout=TIMEOUT_S)
        finally:
            run.kill()
    assert run.returncode == code, errors
    assert "Traceback" not in errors
    assert "interrupted; report" in " ".join(said.split())
    assert (output / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads((output / "result.json").read_text())["interrupted"] == signal.Signals(number).name
    verdict: dict[str, Any] = json.loads((output / "verdict.json").read_text())
    assert (verdict["status"], verdict["passed"]) == ("interrupted", False)
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_simulation_has_a_verdict(number: int, code: int, tmp_path: pathlib.Path) -> None:
    verdict = interrupted(number, code, "virtual", lab_file(tmp_path, "tiny", **SMALL), tmp_path / "result")
    assert f"interrupted by {signal.Signals(number).name} " in verdict["checks"][0]["measured"]


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), first([(signal.SIGINT, 130), (signal.SIGTERM, 143)]))
def test_an_interrupted_run_has_a_verdict_and_leaves_nothing(number: int, code: int, tmp_path: pathlib.Path) -> None:
    before = interfaces()
    interrupted(number, code, "real", lab_file(tmp_path, "tiny", **SMALL), tmp_path / "result")
    assert not RunDir("tiny").exists()
    assert left_behind(before, tmp_path) == []


@pytest.mark.lab
@pytest.mark.slow
def test_a_run_that_is_interrupted_before_it_begins(tmp_path: pathlib.Path) -> None:
    before = interfaces()
    output = tmp_path / "result"
    command = [*users.MRCLAB, "run", "write_bw", "--lab", lab_file(tmp_path, "tiny", **SMALL), "--clock", "real"]
    with subprocess.Popen([*command, "-o", str(output)], stdout=subprocess.DEVNULL) as run:

        def starting() -> bool:
            try:
                return RunDir("tiny").read().first is not None
            except RunError:
                return False

        eventually(starting, "it starts")
        run.send_signal(signal.SIGTERM)
        assert run.wait(TIMEOUT_S) == 143
    assert json.loads((output / "verdict.json").read_text())["status"] == "interrupted"
    assert (output / "report.html").exists()
    assert not RunDir("tiny").exists()
    assert left_behind(before, tmp_path) == []


@pytest.mark.lab
@pytest.mark.slow
def test_an_agent_that_was_started_again_and_frozen_ends_with_its_lab(tmp_path: pathlib.Path) -> None:
    """Found by chaos: what had started it was stopped with it, and never buried it, so the lab never ended."""
    before = interfaces()
    with session(lab_file(tmp_path, "tiny", **SMALL), "real") as made:
        made.kill_agent("h1")
        made.restart_agent("h1")
        made.freeze_agent("h1")
        time.sleep(0.5)
        made.thaw_agent("h1")
        assert made.hosts["h1"].request("summary")
    assert left_behind(before, tmp_path) == []
