"""The algorithm in simulated time: all bytes arrive, and the same seed gives the same bytes."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

EXPERIMENT = """
{name: mine, title: mine, lab: tiny, policies: {ev: "@least-marked"},
 workload: {name: write_bw, params: {message_bytes: 65536, iterations: 4}}}
"""
COMMAND = [sys.executable, "-c", "from mrclab.cli.entry import main; main()"]


def test_all_bytes_arrive(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    words = [*COMMAND, "run", str(path), "--json", "-o", str(tmp_path / "results")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["passed"]
