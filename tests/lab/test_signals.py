"""A handful of signals at random moments; `python -m support.lab.signals` is the campaign."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

from mrc_topo.base.interruption import Interrupted, interruptible
from mrclab.results.record import RunResult
from mrclab.runs import artifact
from mrclab.runs.execute import execute
from mrclab.runs.experiment import Experiment
from mrclab.runs.runner import WorkloadRun
from mrclab.studies.engine import RUNS
from mrclab.studies.sweeps import plan, work
from mrclab.studies.sweeps.spec import load_sweep
from mrclab.studies.sweeps.work import SweepStore
from support.amount import LONG
from support.lab.signals import VERBS, campaign


def test_an_interrupted_repetition_of_an_artifact_is_no_failure_of_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment.model_validate(
        {"name": "x", "title": "x", "lab": "tiny", "workload": {"name": "write_bw", "params": {"iterations": 2}}}
    )
    execute(experiment, "virtual", folder=tmp_path / "run", live=False)
    artifact.pack([tmp_path / "run"], tmp_path / "one.zip")
    (tmp_path / "unpacked").mkdir()
    made = artifact.unpack(tmp_path / "one.zip", tmp_path / "unpacked")
    go = WorkloadRun.go

    def interrupted(run: WorkloadRun) -> RunResult:
        signal.raise_signal(signal.SIGTERM)
        return go(run)

    monkeypatch.setattr(WorkloadRun, "go", interrupted)
    with pytest.raises(Interrupted) as caught, interruptible():
        list(artifact.check(made, tmp_path / "unpacked", tmp_path / "work"))
    assert caught.value.exit_code == 143


ORPHAN = """
import os, signal, sys
from mrclab.studies.engine import _Worker
class Long:
    def __reduce__(self):
        return exec, (f"import time; open({sys.argv[1]!r}, 'w').close(); time.sleep(600)",)
if __name__ == "__main__":
    _Worker(len).line.send(Long())
    open(sys.argv[1]).close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_ends_with_a_command_that_is_killed(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "begun")
    (tmp_path / "orphan.py").write_text(ORPHAN)
    # The worker has the pipe of the output, which ends with the last process that has it.
    command = [sys.executable, str(tmp_path / "orphan.py"), str(tmp_path / "begun")]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, b"")


STARTING = """
import os, signal
from mrclab.studies.engine import _Worker
if __name__ == "__main__":
    worker = _Worker(len)
    os.kill(worker.process.pid, signal.SIGINT)
    worker.line.send("four")
    print(worker.line.recv())
    worker.end()
"""


def test_a_worker_that_starts_leaves_ctrl_c_to_the_command(tmp_path: pathlib.Path) -> None:
    (tmp_path / "starting.py").write_text(STARTING)
    command = [sys.executable, str(tmp_path / "starting.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "sweep", "conform"])
def test_signals_at_random_moments(verb: str) -> None:
    assert verb in VERBS
    shots = campaign(verb, 3 if LONG else 1, random.Random(verb))
    assert [shot.wrong for shot in shots if shot.wrong] == []


def test_an_interrupted_run_of_a_sweep_is_not_kept_and_done_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan.make(load_sweep("evs-failures"))
    store = SweepStore(tmp_path, made)
    go = WorkloadRun.go

    def interrupted(run: WorkloadRun) -> RunResult:
        signal.raise_signal(signal.SIGTERM)
        return go(run)

    monkeypatch.setattr(WorkloadRun, "go", interrupted)

    def command() -> None:
        with interruptible():
            work.carry_out(store, store.study(), work.here(made))

    with pytest.raises(Interrupted):
        command()
    assert [json.loads(each.read_text()) for each in (tmp_path / RUNS).iterdir()] == []
    assert len(store.study().waiting) == len(made.runs)
    store.close()
