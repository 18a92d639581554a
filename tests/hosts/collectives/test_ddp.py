"""A real job: DDP and FSDP2, unmodified, four programs on four hosts; and what becomes of it when one is killed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.verbs.bed import Bed, bed

pytest.importorskip("torch", reason="torch is not installed (pip install mrclab[torch])")
pytest.importorskip("sklearn", reason="scikit-learn is not installed (pip install mrclab[torch])")

ROOT = pathlib.Path(__file__).parents[3]
RANKS = 4
#: Relative. The backends add gradients in other orders; thirty steps of float32 stay far below.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("bed"), hosts=RANKS) as made:
        yield made


@contextlib.contextmanager
def job(hosts: Bed, meet: pathlib.Path, *options: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Its ranks; killed at the end, if they still run."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "examples/ddp.py", str(meet), str(RANKS), str(rank), *options],
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
