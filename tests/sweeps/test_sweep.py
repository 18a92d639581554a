"""`Sweep` of scripts: the runs of a sweep file, from keys."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from mrc_topo.base.errors import UsageError
from mrclab import Sweep
from mrclab.runs.experiment import ExperimentError

EXPERIMENT = {"workload": {"name": "all_to_all", "params": {"block_bytes": 4096, "iterations": 2}}}
GRID = {"lab.planes": [1, 2]}


def test_runs_are_those_of_the_keys_and_are_kept(tmp_path: pathlib.Path) -> None:
    sweep = Sweep(lab="tiny", experiment=EXPERIMENT, grid=GRID, seeds=[3, 5])
    found = sweep.run(tmp_path, workers=0)
    assert found.passed
    runs = found.frame()
    assert list(zip(runs["lab.planes"], runs["seed"], strict=True)) == [(1, 3), (1, 5), (2, 3), (2, 5)]
    # Every host sends a block to each other one in each of two iterations.
    hosts = 4
    assert runs["bytes_verified"] == [2 * hosts * (hosts - 1) * 4096] * 4
    assert {found.frame("differences")["first"][0], *found.frame("differences")["value"]} == {"planes 1", "planes 2"}
    assert sweep.done(tmp_path) == len(sweep) == 4
    assert found.report.is_file()
    again = Sweep(lab="tiny", experiment=EXPERIMENT, grid=GRID, seeds=[3, 5]).run(tmp_path, workers=0)
    assert again.rows == found.rows


def test_a_script_needs_no_guard_around_its_workers(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from mrclab import Sweep\n"
        f"found = Sweep(lab='tiny', experiment={EXPERIMENT!r}, grid={GRID!r}).run(workers=2)\n"
        "print(found.passed, found.frame()['iterations'])\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "True [2.0, 2.0]\n", done.stderr
    assert list(tmp_path.iterdir()) == [script]


def test_what_is_wrong_is_named_before_anything_starts() -> None:
    with pytest.raises(ExperimentError, match=r"lab\.planez"):
        Sweep(lab="tiny", experiment=EXPERIMENT, grid={"lab.planez": [1]})
    with pytest.raises(UsageError, match="not ellipsis"):
        Sweep(lab="tiny", experiment=EXPERIMENT, grid={"lab.planes": [...]})
    with pytest.raises(ExperimentError, match="nothing is swept"):
        Sweep(lab="tiny", experiment=EXPERIMENT)
