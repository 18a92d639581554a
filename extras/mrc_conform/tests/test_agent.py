"""The kit against a real agent in namespaces, through its adapter and real interfaces."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from libmrc import build
from mrc_conform.case import select
from support import libmrc

TESTS = pathlib.Path(__file__).parents[3] / "tests"
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


def test_adapter_in_c_asks_by_mrc_h(tmp_path: pathlib.Path) -> None:
    source = TESTS.parent / "examples/conform_adapter.c"
    library = build.library(sanitize=False)
    program = tmp_path / "conform_adapter"
    folders = [f"-I{build.INCLUDE}", f"-L{library}", f"-Wl,-rpath,{library}"]
    subprocess.run(
        [*libmrc.compiler(), *libmrc.WARNINGS, str(source), "-o", str(program), *folders, "-lmrc", "-lpthread", "-ldl"],
        check=True,
    )
    done = run(
        "--device", "agent", "--adapter", str(program), "--only", "protection", "-o", str(tmp_path / "o"), "--json"
    )
    assert done.stdout, done.stderr
    results = json.loads(done.stdout)["results"]
    assert len(results) == len(select(["protection"]))
    # The adapter has no request `finish`, by which a user goes.
    assert [each["case"] for each in results if each["verdict"] != "passed"] == ["nak-outlives-user"]
