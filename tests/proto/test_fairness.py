"""NSCC in an incast whose last hop marks: as fair and as little trimmed when slower (`mrc-protocol.md §8`)."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import pytest

BENCHMARK = pathlib.Path(__file__).parents[2] / "benchmarks" / "bench_fairness.py"


@pytest.mark.parametrize("slower", [1, 1000])
def test_a_slower_network_trims_as_little(slower: int) -> None:
    spec = importlib.util.spec_from_file_location("bench_fairness", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = bench  # where its dataclasses look for their annotations
    spec.loader.exec_module(bench)
    found = bench.measure(bench.Cell(8, True, True, 3), 1_500_000, 1_000_000, slower=slower)
    assert found.lost < 0.03  # 46 % where b was not bounded
    assert found.used > 0.96
    assert found.jain > 0.9
