"""Run directories: what is recorded can be taken away, and nobody else's processes are touched."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from mrc_control import lifecycle
from mrc_control.rundir import Process, RunDir, RunError, State, all_runs, claim_machine


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    return tmp_path / "run"


def sleeper(*, stubborn: bool = False) -> subprocess.Popen[bytes]:
    code = "import signal, time; print(1, flush=True)\n"
    if stubborn:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)\n"
    process = subprocess.Popen([sys.executable, "-c", code + "time.sleep(60)"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_state_survives_a_round_trip_and_names_are_checked() -> None:
    run = RunDir("one")
    run.create()
    run.write(State("one", lab_file="x.yaml", processes=[Process("a", 1, 2.0)], interfaces=["if0"]))
    with run.change() as state:
        state.phase = "up"
    assert RunDir("one").read() == State(
        "one", "x.yaml", phase="up", processes=[Process("a", 1, 2.0)], interfaces=["if0"]
    )
    assert (run.path.stat().st_mode & 0o777) == 0o700
    with pytest.raises(RunError, match="in use"):
        RunDir("one").create()
    with pytest.raises(RunError, match="no lab name"):
        RunDir("../etc")
    with pytest.raises(RunError, match="no lab 'two' is up; up: one"):
        RunDir("two").read()


@pytest.mark.parametrize("stubborn", [False, True])
def test_removal_ends_recorded_processes(stubborn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrc_control.rundir.KILL_AFTER_S", 0.3)
    process = sleeper(stubborn=stubborn)
    run = RunDir("one")
    run.create()
    run.write(State("one", processes=[Process.of("sleeper", process.pid)]))
    ended = run.remove()
    assert ended == [f"sleeper (pid {process.pid})"]
    assert process.wait(5) in (-signal.SIGTERM, -signal.SIGKILL)
    assert not run.exists()


def test_a_recycled_pid_is_left_alone() -> None:
    process = sleeper()
    try:
        run = RunDir("one")
        run.create()
        record = Process.of("sleeper", process.pid)
        run.write(State("one", processes=[Process("sleeper", record.pid, record.started - 100)]))
        assert run.remove() == []
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_cleanup_removes_only_what_nobody_holds() -> None:
    dead = sleeper()
    dead_record = Process.of("labd", dead.pid)
    dead.kill()
    dead.wait()
    for name, record in (("alive", Process.of("labd", os.getpid())), ("dead", dead_record)):
        run = RunDir(name)
        run.create()
        run.write(State(name, processes=[record]))
    broken = RunDir("broken")
    broken.create()
    broken.state_file.write_text("{")
    assert sorted(lifecycle.cleanup()) == ["broken", "dead"]
    assert [run.name for run in all_runs()] == ["alive"]


@pytest.mark.root
def test_interfaces_of_a_dead_lab_are_another_ones_while_that_is_up() -> None:
    name = f"mlr{os.getpid() % 10**6}"
    subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}b"], check=True)
    try:
        run = RunDir("dead")
        run.create()
        run.write(State("dead", interfaces=[name]))
        claim = claim_machine()
        if claim is None:
            pytest.skip("a real-clock lab is up")
        with claim:
            assert claim_machine() is None
            assert run.remove() == []
        assert not run.exists()
        assert os.path.exists(f"/sys/class/net/{name}")
        run.create()
        run.write(State("dead", interfaces=[name]))
        assert run.remove() == [f"interface {name}"]
    finally:
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)
