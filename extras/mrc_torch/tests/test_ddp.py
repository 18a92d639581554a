"""DDP on digits over the default lab, while a link, a NIC port and a T1 fail and return: the loss curve of gloo."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from mrclab.lab.faults.action import Action
from mrclab.lab.session.real import RealSession
from support.lab import users
from support.lab.labs import lab_file, session

pytest.importorskip("torch", reason="torch is not installed (pip install mrclab[torch])")
pytest.importorskip("sklearn", reason="scikit-learn is not installed (pip install mrclab[torch])")

PROGRAM = (pathlib.Path(__file__).parents[3] / "examples" / "ddp.py").read_text()
HOSTS = ("h0", "h2", "h4", "h6")  # each at another T0 of its plane
FAILURES = ("p0-t0.0--p0-t1.0", "h2:1", "p2-t1.1")
STEPS = 45
#: Relative: gloo adds the gradients of the ranks in another order, which is all that differs.
TOLERANCE = 1e-3
SECONDS = 900.0


def losses(file: pathlib.Path) -> list[float]:
    """One for each step that rank 0 has done."""
    lines = file.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
    assert [row["step"] for row in rows if "step" in row] == list(range(sum("step" in row for row in rows)))
    return [row["loss"] for row in rows if "loss" in row]


def start(file: pathlib.Path, prefix: list[str], meet: str, rank: int, *options: str) -> subprocess.Popen[bytes]:
    words = [*prefix, sys.executable, "-c", PROGRAM, meet, str(len(HOSTS)), str(rank), "--steps", str(STEPS), *options]
    with file.open("wb") as out:
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        return subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environment)


def join(ranks: list[subprocess.Popen[bytes]], files: list[pathlib.Path]) -> None:
    deadline = time.monotonic() + SECONDS
    try:
        for each in ranks:
            each.wait(max(deadline - time.monotonic(), 1))
    finally:
        for each in ranks:
            each.kill()
            each.wait()
    assert [each.returncode for each in ranks] == [0] * len(ranks), [file.read_text()[-2000:] for file in files]


@pytest.mark.lab
@pytest.mark.slow
def test_ddp_learns_as_with_gloo_while_the_fabric_breaks(tmp_path: pathlib.Path) -> None:
    files = [tmp_path / f"gloo{rank}" for rank in range(len(HOSTS))]
    meet = str(tmp_path / "meet")
    join([start(file, [], meet, rank, "--backend", "gloo") for rank, file in enumerate(files)], files)
    expected = losses(files[0])
    assert len(expected) == STEPS
    with session(lab_file(tmp_path, "default"), "real") as made:
        assert isinstance(made, RealSession)
        files = [tmp_path / host for host in HOSTS]
        ranks = [
            start(file, [*users.MRCLAB, "exec", "--lab", "default", host, "--"], "/run/lab/job", rank, "--pause", "0.2")
            for rank, (file, host) in enumerate(zip(files, HOSTS, strict=True))
        ]

        def until(step: int) -> None:
            deadline = time.monotonic() + SECONDS
            while len(losses(files[0])) < step:
                assert time.monotonic() < deadline
                assert not any(each.poll() for each in ranks), [file.read_text()[-2000:] for file in files]
                time.sleep(0.05)

        try:
            for number, target in enumerate(FAILURES):
                until(2 + 12 * number)
                made.failures.perform(made, Action("fail", target))
                until(8 + 12 * number)
                made.failures.perform(made, Action("restore", target))
        finally:
            join(ranks, files)
    assert losses(files[0]) == pytest.approx(expected, rel=TOLERANCE)
    assert expected[-1] < expected[0] / 2
