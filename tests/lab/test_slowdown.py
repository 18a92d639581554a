"""Completion times of flows over those that they take alone: single flows, tables, files, frames and sweeps."""

from __future__ import annotations

import csv
import json
import pathlib
from typing import Any

import pytest

import mrclab
from mrc_host.answers import FlowTimes
from mrclab.cli.app import main
from mrclab.results import performance
from mrclab.results.performance import FlowRow, by_size
from mrclab.studies.sweeps import measure
from support.lab.labs import lab_file

FAST: dict[str, Any] = {
    "links": {"host": {"rate": "50Gbps", "delay": "500ns"}, "fabric": {"rate": "50Gbps", "delay": "500ns"}},
    "queues": {"limit": "1MiB", "ecn": {"kmin": "128KiB", "kmax": "512KiB"}, "trim": {"threshold": "768KiB"}},
    "path_mtu": 4096,
    "payload": "length",
    "clock": "virtual",
}
SIZES = [1, 4096, 4097, 12_289, 100_000, 1_000_000]
#: Far apart in time, near and far in the fabric.
SINGLE = [[0, 1 + number % 2 * 2, SIZES[number // 2], number * 10**7] for number in range(2 * len(SIZES))]


@pytest.mark.parametrize(("transport", "within"), [("mrc", 0.003), ("roce", 0.02)])
def test_a_single_flow_takes_the_time_alone(tmp_path: pathlib.Path, transport: str, within: float) -> None:
    with mrclab.Lab(lab_file(tmp_path, "tiny", **FAST), transport=transport) as lab:
        lab.run("write_bw", message_bytes=9000, iterations=1)  # the clock is not at 0 when flows begin
        result = lab.run("flows", flows=SINGLE, iterations=1)
    # A run by RoCE was once recorded as one by MRC.
    recorded: Any = result.run.experiment
    assert recorded["transport"] == transport
    found = result.frame("flows")
    assert list(found) == list(performance.FLOWS)
    assert found["bytes"] == [row[2] for row in SINGLE]
    assert found["start_s"] == pytest.approx([row[3] / 1e9 for row in SINGLE], abs=1e-9)
    assert found["slowdown"] == pytest.approx([1] * len(SINGLE), abs=within)


def rows(sizes: list[int]) -> list[FlowRow]:
    return [FlowRow("h0", "h1", FlowTimes(number, 1, size, 0, 5), 5) for number, size in enumerate(sizes)]


def test_flows_are_grouped_by_size_or_into_ten_of_as_many() -> None:
    few = by_size(rows([7, 5, 7]))
    assert [(name, len(group)) for name, group in few] == [("5", 1), ("7", 2), ("all", 3)]
    ten = by_size(rows(list(range(100))))
    assert [len(group) for _, group in ten] == [10] * 10 + [100]
    many = by_size(rows([9] * 30 + list(range(100, 170))))
    assert [(name, len(group)) for name, group in many][:3] == [("9", 30), ("100 to 109", 10), ("110 to 119", 10)]
    assert sum(len(group) for _, group in many[:-1]) == len(many[-1][1]) == 100


def test_a_run_under_load_writes_and_shows_its_flows(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, out = lab_file(tmp_path, "tiny", **FAST), tmp_path / "out"
    words = ["mrclab", "run", "load", "--lab", lab, "--set", "load=60%", "--set", "sizes=hadoop", "--set", "time=400us"]
    monkeypatch.setattr("sys.argv", [*words, "-o", str(out), "--json"])
    with pytest.raises(SystemExit, match="0"):
        main()
    shown = json.loads(capsys.readouterr().out)["performance"]["flows"]
    with (out / "flows.csv").open() as file:
        written = list(csv.DictReader(file))
    assert list(written[0]) == list(performance.FLOWS)
    assert [float(each["slowdown"]) for each in written] == [each["slowdown"] for each in shown]
    assert all(each["slowdown"] == (each["ended_ns"] - each["began_ns"]) / each["alone_ns"] for each in shown)
    # Some had to wait for others.
    assert max(each["slowdown"] for each in shown) > 1.2
    assert min(each["slowdown"] for each in shown) > 0.99


def test_a_sweep_measures_slowdown(tmp_path: pathlib.Path) -> None:
    with mrclab.Lab(lab_file(tmp_path, "tiny", **FAST)) as lab:
        result = lab.run("flows", flows=SINGLE * 2, iterations=1)
        found = measure._numbers(result.run, result.topology, result.verdict, None)
    assert measure.EXPERIMENT.keys() >= found.keys()
    slowdowns = result.frame("flows")["slowdown"]
    assert found["flow_slowdown"] == pytest.approx(sum(slowdowns) / len(slowdowns))
    assert found["flow_slowdown_p50"] in slowdowns
    assert found["flow_slowdown_p95"] == sorted(slowdowns)[22]
    assert found["flow_slowdown_p99"] is None  # of 24 flows
    assert found["fct_s"] in result.frame("flows")["completion_s"]


def test_two_seeds_are_two_lists_of_flows(tmp_path: pathlib.Path) -> None:
    starts = []
    for seed in (1, 1, 2):
        with mrclab.Lab(lab_file(tmp_path, "tiny", **FAST, seed=seed)) as lab:
            result = lab.run("load", load=0.5, sizes="hadoop", time_ns=300_000, iterations=1)
            starts.append(result.frame("flows")["start_s"])
    assert starts[0] == starts[1] != starts[2]
