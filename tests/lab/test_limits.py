"""Limits of the shell that are too low are named, with the remedy that helps."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

MRCLAB = f"{sys.executable} -P -c 'from mrclab.cli.app import main; main()'"


@pytest.mark.parametrize(
    ("limit", "words", "remedy"),
    [
        (
            "-n 16",
            "run write_bw --lab tiny --clock virtual",
            "16 files open here, a lab needs 256; raise it (`ulimit -n",
        ),
        ("-n 16", "up tiny", "16 files open here, a lab needs 256; raise it (`ulimit -n"),
        ("-v 600000", "up tiny", "raise it (`ulimit -v unlimited`)"),
        ("-v 200000", "run write_bw --lab tiny --clock virtual", "a lab on the virtual clock needs 256 MiB; raise it"),
    ],
)
def test_the_limit_is_named(limit: str, words: str, remedy: str, tmp_path: pathlib.Path) -> None:
    command = f"ulimit {limit}; exec {MRCLAB} {words}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, remedy in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_memory_that_runs_out_during_a_run_is_named(tmp_path: pathlib.Path) -> None:
    words = "run write_bw --lab tiny --clock virtual --set message_bytes=64MiB --duration 0.01"
    command = f"ulimit -v 300000; exec {MRCLAB} {words}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode in (1, 2)
    assert "no memory is left; use fewer hosts or smaller messages" in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
