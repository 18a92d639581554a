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

from mrclab.lab.faults.action import Action
from mrclab.lab.records.rundir import RunDir
from mrclab.lab.session.base import closing
from mrclab.lab.session.real import RealSession
from support.lab import users
from support.lab.labs import lab_file
from support.namespaces import interfaces, lab_processes, left_behind

HOSTS = ("h0", "h1", "h2", "h3")
SECONDS = 240.0
#: Reduces without end, checks every sum, and says how far it is; at last, what ended it.
RANK = """
import json, sys
import numpy as np
from mrc_torch import CollectiveError, Collectives, FolderStore
meet, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
step = 0
try:
    with Collectives(FolderStore(meet), rank, size, timeout=200) as group:
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

    def __init__(self, folder: pathlib.Path, name: str, hosts: tuple[str, ...] = HOSTS) -> None:
        self.size = len(hosts)
        self.files = [folder / f"{name}-{host}" for host in hosts]
        self.ranks = []
        for rank, (host, file) in enumerate(zip(hosts, self.files, strict=True)):
            code = [sys.executable, "-c", RANK, f"/run/lab/{name}", str(rank), str(self.size)]
            with file.open("w") as out:
                words = [*users.MRCLAB, "exec", "--lab", "tiny", host, "--", *code]
                self.ranks.append(subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT))

    def said(self, rank: int) -> list[dict[str, object]]:
        text = self.files[rank].read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def steps(self) -> int:
        """Of the slowest rank."""
        return min(sum("step" in row for row in self.said(rank)) for rank in range(self.size))

    def go_on(self, steps: int = 2) -> None:
        """Until all ranks have done so many more."""
        wanted = self.steps() + steps
        deadline = time.monotonic() + SECONDS
        while self.steps() < wanted:
            assert time.monotonic() < deadline, [self.said(rank)[-3:] for rank in range(self.size)]
            assert not any(each.poll() for each in self.ranks), [file.read_text() for file in self.files]
            time.sleep(0.05)

    def end(self) -> None:
        """Whatever still runs."""
        for each in self.ranks:
            each.kill()
            each.wait(SECONDS)


def mrclab(*words: str) -> None:
    done = subprocess.run([*users.MRCLAB, *words], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def ends_with_rank_2(job: Job, host: str, own: str | None, why: str) -> None:
    """Every rank that lives says how far it was, step by step, and then that rank 2 is dead."""
    for rank, each in enumerate(job.ranks):
        each.wait(SECONDS)
        if rank == 2 and own is None:
            continue
        *steps, last = job.said(rank)
        assert [row["step"] for row in steps] == list(range(1, len(steps) + 1)), "a step was lost"
        assert last["rank"] == 2, last
        told = str(last["error"])
        assert told.startswith(own if own and rank == 2 else f"rank 2 (host {host}) is dead: "), told
        if rank != 2:
            assert why in told or " says so" in told, told


@pytest.mark.lab
@pytest.mark.slow
def test_a_job_goes_on_while_things_break_and_ends_with_whoever_dies(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links, ports and switches; then SIGKILL of an agent, of a rank, and of the lab."""
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    before = interfaces()
    mrclab("up", lab_file(tmp_path, "tiny"))
    run = RunDir("tiny")
    jobs = []
    try:
        with closing(RealSession("tiny")) as made:
            jobs.append(job := Job(tmp_path, "breaking"))
            job.go_on()
            for target in ("p0-t0.0--p0-t1.0", "h1:1", "p1-t1.0"):
                made.failures.perform(made, Action("fail", target))
                job.go_on()
                made.failures.perform(made, Action("restore", target))
                job.go_on()
            made.kill_agent("h2")
            ends_with_rank_2(job, "h2", "rank 2 (this one, host h2)", "its host does not answer")
            jobs.append(job := Job(tmp_path, "killed", ("h0", "h1", "h3")))
            job.go_on(1)
            # Who entered the host for it has its words, too.
            said = {pid: words for pid, words in lab_processes(run.path).items() if "/run/lab/killed 2 3" in words}
            (program,) = [pid for pid, words in said.items() if not words.startswith("nsenter")]
            os.kill(program, signal.SIGKILL)
            ends_with_rank_2(job, "h3", None, "its program has ended")
        jobs.append(job := Job(tmp_path, "last", ("h0", "h1", "h3")))
        job.go_on(1)
        assert list(run.path.rglob("*.verbs"))
        (first,) = [each for each in run.processes() if each.role == "lab"]
        first.signal(signal.SIGKILL)
        for each in job.ranks:  # programs in a lab end with it
            assert each.wait(SECONDS) != 0
    finally:
        for job in jobs:
            job.end()
        subprocess.run([*users.MRCLAB, "down", "tiny"], capture_output=True, timeout=SECONDS, check=False)
        mrclab("cleanup")
    assert not run.path.exists(), "sockets and all; the memory was the processes' own"
    assert left_behind(before, tmp_path) == []
