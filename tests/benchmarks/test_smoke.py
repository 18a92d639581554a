"""Every benchmark runs to its end with next to no work, and says something."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from support.amount import only

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py"))
#: Those that bring labs up, and those that give processes real-time priority.
LABS = frozenset({"forwarders", "lab", "steadiness", "web"})
ROOT_ONLY = frozenset({"switch"})
LIMIT_S = 240
#: Those that `make test` tries; they share their set-up and tables with the others.
SHORT = frozenset({"endpoint", "lab", "virtual"})


def run(name: str) -> str:
    """Run a benchmark as `make bench` does, in smoke mode; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--smoke", name],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", only([name for name in NAMES if name not in LABS | ROOT_ONLY], SHORT))
def test_benchmark_runs(name: str) -> None:
    if name == "scale":
        pytest.importorskip("pyarrow", reason="extra `scale` is not installed")
    assert run(name).strip()


@pytest.mark.root
@pytest.mark.parametrize("name", sorted(ROOT_ONLY))
def test_benchmark_with_real_time_priority_runs(name: str) -> None:
    assert run(name).strip()


@pytest.mark.lab
@pytest.mark.parametrize("name", only(sorted(LABS), SHORT))
def test_benchmark_on_labs_runs(name: str) -> None:
    assert run(name).strip()
