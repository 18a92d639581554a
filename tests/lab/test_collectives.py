"""A job of ranks in the hosts of a real lab: it goes on while things break, and ends everywhere when a part dies."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from mrc_control.faults.action import Action
from mrc_control.lab.rundir import RunDir
from mrc_control.session.real import RealSession
from support.lab import users
from support.lab.labs import lab_file, session

HOSTS = 4
SECONDS = 240.0
#: Reduces without end, checks every sum, and says how far it is; at last, what ended it.
RANK = """
import json, sys
import numpy as np
from mrc_torch import CollectiveError, Collectives, FolderStore
rank, size = int(sys.argv[1]), int(sys.argv[2])
step = 0
try:
    with Collectives(FolderStore("/run/lab/job"), rank, size, timeout=200) as group:
        while True:
            row = np.full(20_000, rank + step, np.int64)
            group.all_reduce(row, algorithm="ring").wait()
            assert (row == size * step + size * (size - 1) // 2).all(), step
            step += 1
            print(json.dumps({"step": step}), flush=True)
except CollectiveError as error:
    print(json.dumps({"rank": getattr(error, "rank", None), "error": str(error)}), flush=True)
"""


class Job:
    """Its ranks, each with what it says in a file."""

    def __init__(self, folder: pathlib.Path, lab: str) -> None:
        self.files = [folder / f"rank{rank}" for rank in range(HOSTS)]
        self.ranks = []
        for rank, file in enumerate(self.files):
            words = ["exec", "--lab", lab, f"h{rank}", "--", sys.executable, "-c", RANK, str(rank), str(HOSTS)]
            with file.open("w") as out:
                self.ranks.append(subprocess.Popen([*users.MRCLAB, *words], stdout=out, stderr=subprocess.STDOUT))

    def said(self, rank: int) -> list[dict[str, object]]:
        text = self.files[rank].read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def steps(self) -> int:
        """Of the slowest rank."""
        return min(sum("step" in row for row in self.said(rank)) for rank in range(HOSTS))

    def go_on(self, steps: int = 2) -> None:
        """Until all ranks have done so many more."""
        wanted = self.steps() + steps
        deadline = time.monotonic() + SECONDS
        while self.steps() < wanted:
            assert time.monotonic() < deadline, [self.said(rank)[-3:] for rank in range(HOSTS)]
            assert not any(each.poll() for each in self.ranks), [file.read_text() for file in self.files]
            time.sleep(0.05)


@pytest.mark.lab
@pytest.mark.slow
def test_a_job_goes_on_through_failures_and_ends_with_an_agent(tmp_path: pathlib.Path) -> None:
    with session(lab_file(tmp_path, "tiny"), "real") as made:
        assert isinstance(made, RealSession)
        job = Job(tmp_path, "tiny")
        try:
            job.go_on()
            for target in ("p0-t0.0--p0-t1.0", "h1:1", "p1-t1.0"):
                made.failures.perform(made, Action("fail", target))
                job.go_on()
                made.failures.perform(made, Action("restore", target))
                job.go_on()
            made.kill_agent("h2")
            for rank, each in enumerate(job.ranks):
                each.wait(SECONDS)
                *steps, last = job.said(rank)
                assert [row["step"] for row in steps] == list(range(1, len(steps) + 1)), "a step was lost"
                assert last["rank"] == 2, last
                assert ("rank 2 (this one, host h2)" if rank == 2 else "rank 2 (host h2) is dead: ") in str(
                    last["error"]
                )
        finally:
            for each in job.ranks:
                each.kill()
                each.wait(SECONDS)


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.skipif("MRCLAB_KILLS" not in os.environ, reason="another lab for this alone; MRCLAB_KILLS=1 runs it")
def test_nothing_is_left_of_a_job_when_its_lab_is_killed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))

    def mrclab(*words: str) -> None:
        done = subprocess.run([*users.MRCLAB, *words], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr

    mrclab("up", lab_file(tmp_path, "tiny"))
    job = Job(tmp_path, "tiny")
    run = RunDir("tiny")
    try:
        job.go_on(1)
        assert len(list(run.path.rglob("*.verbs"))) == HOSTS
        (first,) = [each for each in run.processes() if each.role == "lab"]
        first.signal(signal.SIGKILL)
        for each in job.ranks:
            each.wait(SECONDS)
    finally:
        for each in job.ranks:
            each.kill()
            each.wait(SECONDS)
        mrclab("cleanup")
    assert not run.path.exists(), "sockets and all; the memory was the processes' own"
