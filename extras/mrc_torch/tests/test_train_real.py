"""PyTorch jobs in a lab on the real clock: one loss curve by MRC and by gloo, through failures; the columns of perf.

They need PyTorch, and take minutes on a small machine:
`MRCLAB_TORCH_LABS=1 pytest extras/mrc_torch/tests/test_train_real.py`.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest
from typer.testing import CliRunner

from mrclab.cli.app import app

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'mrclab[torch]'")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'mrclab[torch]'")

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("MRCLAB_TORCH_LABS"), reason="minutes; MRCLAB_TORCH_LABS=1 runs it"),
]


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


def train(folder: pathlib.Path, *words: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["train", "--lab", "tiny", "-o", str(folder), *words])
    assert done.exit_code == 0, done.output
    assert (folder / "report.html").stat().st_size > 10_000
    found: list[dict[str, Any]] = json.loads((folder / "train.json").read_text())
    return found


def test_one_loss_curve_by_mrc_and_gloo_while_things_break(tmp_path: pathlib.Path) -> None:
    words = ["--model", "mlp", "--schedule", "training-failures", "--steps", "30"]
    (mrc,) = train(tmp_path / "mrc", *words, "--backend", "mrc")
    assert [each["text"] for each in mrc["happenings"] if each["breaks"]] == [
        "link down p0-t0.0--p0-t1.0", "port down h1:1", "stop p1-t1.1",
    ]  # fmt: skip
    assert mrc["restarts"] == []
    # No step is lost, and none done twice.
    assert [each[0] for each in mrc["steps"]] == list(range(1, mrc["reached"] + 1))
    assert any(each[3] for each in mrc["steps"])
    (gloo,) = train(tmp_path / "gloo", "--model", "mlp", "--steps", "30", "--backend", "gloo")
    for (step, mine), (other, theirs) in zip(mrc["loss"], gloo["loss"], strict=False):
        assert step == other
        # Four ranks' floats are added in another order, over thirty steps.
        assert mine == pytest.approx(theirs, rel=1e-3)
    assert mrc["loss"][-1][1] < mrc["loss"][0][1]


@pytest.mark.parametrize("backend", ["torch", "gloo"])
def test_perf_by_torch(backend: str) -> None:
    words = [
        "all_reduce",
        "-b",
        "64",
        "-e",
        "4K",
        "-f",
        "8",
        "-n",
        "2",
        "--lab",
        "tiny",
        "--backend",
        backend,
        "--json",
    ]
    done = CliRunner().invoke(app, ["perf", *words])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout[done.stdout.index("[") :])
    assert [(row["size"], row["wrong"], row["failure"]) for row in rows] == [(64, 0, ""), (512, 0, ""), (4096, 0, "")]
    assert all(row["time_us"] > 0 for row in rows)
