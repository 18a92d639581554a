"""The kit against a real agent in namespaces, through its adapter and real interfaces."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
pytestmark = pytest.mark.lab


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "support.mrclab", "conform", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


def test_agent_follows_the_rules_on_the_real_clock(tmp_path: pathlib.Path) -> None:
    areas = ("--only", "protection", "--only", "order", "--only", "write-")
    done = run("--device", "agent", *areas, "-o", str(tmp_path / "out"), "--json")
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    wrong = [each for each in found["results"] if each["verdict"] not in ("passed", "skipped")]
    assert not wrong, done.stderr
    assert found["counts"]["passed"] >= 30
    assert done.returncode == 0
