"""A real job: DDP and FSDP, unmodified, four programs on four hosts; and what becomes of it when one is killed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.verbs.bed import Bed, bed

pytest.importorskip("torch", reason="torch is not installed (pip install mrclab[torch])")
pytest.importorskip("sklearn", reason="scikit-learn is not installed (pip install mrclab[torch])")

ROOT = pathlib.Path(__file__).parents[4]
RANKS = 4
#: Relative. The backends add gradients in other orders; thirty steps of float32 stay far below.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("bed"), hosts=RANKS) as made:
        yield made


@contextlib.contextmanager
def job(
    hosts: Bed, meet: pathlib.Path, *options: str, program: str = "examples/ddp.py"
) -> Iterator[list[subprocess.Popen[str]]]:
    """Its ranks; killed at the end, if they still run."""
    ranks = [
        subprocess.Popen(
            [sys.executable, program, str(meet), str(RANKS), str(rank), *options],
            env={**os.environ, "MRC_DEVICE": hosts.path(rank), "GLOO_SOCKET_IFNAME": "lo"},
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    try:
        yield ranks
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


def losses(hosts: Bed, meet: pathlib.Path, backend: str) -> list[float]:
    with job(hosts, meet, "--backend", backend, "--steps", "30") as ranks:
        said = [each.communicate(timeout=300) for each in ranks]
        assert [each.returncode for each in ranks] == [0] * RANKS, said
    rows = [json.loads(line) for line in said[0][0].splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


@pytest.mark.slow
def test_ddp_learns_as_with_gloo(hosts: Bed, tmp_path: pathlib.Path) -> None:
    ours, gloo = (losses(hosts, tmp_path / backend, backend) for backend in ("mrc", "gloo"))
    assert len(ours) == len(gloo) == 30
    assert ours == pytest.approx(gloo, rel=TOLERANCE)
    assert ours[-1] < ours[0] / 2


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1", "2"])
def test_fsdp_learns_as_one_process_does(hosts: Bed, tmp_path: pathlib.Path, version: str) -> None:
    with job(hosts, tmp_path / "meet", version, program="tests/support/verbs/fsdp_job.py") as ranks:
        said = [each.communicate(timeout=300) for each in ranks]
        assert [each.returncode for each in ranks] == [0] * RANKS, said
    for text, _ in said:
        losses = json.loads(text)
        assert losses["fsdp"] == pytest.approx(losses["alone"], rel=TOLERANCE)
        assert losses["fsdp"][-1] < losses["fsdp"][0]


@pytest.mark.slow
def test_a_killed_rank_ends_the_others_with_its_name(hosts: Bed, tmp_path: pathlib.Path) -> None:
    """Out of DDP's backward, in whatever thread that waits."""
    with job(hosts, tmp_path / "meet", "--steps", "100000") as ranks:
        assert ranks[0].stdout is not None
        for line in ranks[0].stdout:
            if json.loads(line).get("step") == 3:
                break
        ranks[2].send_signal(signal.SIGKILL)
        for rank, each in enumerate(ranks):
            _, errors = each.communicate(timeout=120)
            assert each.returncode == (-signal.SIGKILL if rank == 2 else 1), (rank, errors)
            if rank != 2:
                assert "rank 2 (host h2) is dead: " in errors


def test_program_of_pytorch_page_prints_what_the_page_says(hosts: Bed, tmp_path: pathlib.Path) -> None:
    """Ten lines, which all ranks run; the page says what they print."""
    page = (ROOT / "docs" / "pytorch.md").read_text()
    block = re.search(r"```python\n(.*?)```", page, re.S)
    printed = re.search(r"prints on both\s+`([^`]*)`", page)
    assert block is not None
    assert printed is not None
    assert len([line for line in block[1].splitlines() if line]) == 10
    code = block[1].replace("/run/lab/job", str(tmp_path / "job"))
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank)], env={**os.environ, "MRC_DEVICE": hosts.path(rank)},
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [each.communicate(timeout=300)[0] for each in ranks] == [f"{printed[1]}\n"] * 2
