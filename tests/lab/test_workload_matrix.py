"""Every workload, by iterations and by duration, on all hosts and on some, by MRC and by RoCE, on both clocks."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from mrc_host.workloads import WORKLOADS
from mrclab.lab.session.base import Session
from mrclab.results import performance, verdict
from mrclab.results.expectation import Expectation
from mrclab.results.record import RunResult
from mrclab.runs.execute import run_on
from mrclab.runs.experiment import Experiment, Workload
from support.amount import LONG
from support.lab.labs import SMALL_LOADS, session

CLOCKS = ["virtual", pytest.param("real", marks=pytest.mark.lab)]
HOSTS = {"all": None, "three": ["h3", "h0", "h2"]}
BOUNDS = {"iterations": {"iterations": 3}, "duration": {}}
COUNTED = {
    "bandwidth": {"permutation", "incast", "send_recv", "write_bw"},
    "latency": {"write_lat"},
    "flows": {"flows", "load"},
    "training": {"trace", "training"},
}


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


def run(made: Session, workload: Workload) -> RunResult:
    expect = Expectation(valid=False)
    experiment = Experiment(name="test", title="test", lab="tiny", workload=workload, expect=expect)
    result = run_on(made, experiment)
    missed = [check for check in verdict.judge(result, made.topology, expect).checks if not check.passed]
    assert not missed, (workload, missed, result.failures)
    return result


def check_measured(name: str, result: RunResult) -> None:
    """Check that the measurements exist and belong to what was done."""
    found: dict[str, Any] = performance.of(result).document()
    kind = next((part for part, names in COUNTED.items() if name in names), "iterations")
    assert set(found) == {kind}
    progress = result.progress
    if kind == "bandwidth":
        received = {each["destination"] for each in found[kind]}
        for each in found[kind]:
            assert each["bytes"] == each["messages"] * each["message_bytes"] > 0
            assert each["peak_bps"] >= each["average_bps"] > 0
            assert each["messages_per_s"] == pytest.approx(each["average_bps"] / 8 / each["message_bytes"])
        verified = sum(progress[host].bytes_verified for host in received)
        assert sum(each["bytes"] for each in found[kind]) == verified
    elif kind == "training":
        (training,) = found[kind]
        times = training["times"]["all"]
        taking = [each.iterations for each in progress.values() if each.takes_part]
        assert times["count"] == len(training["steps"]) == min(taking) > 0
        assert 0 < times["p50"] <= (times["p99"] or times["max"]) <= times["max"]
        assert (times["p99"] is None) == (times["count"] < 100)
        assert training["operations"]["all_reduce"]["count"] == 2 * sum(each.iterations for each in progress.values())
    elif kind == "flows":
        numbers = {each["number"] for each in found[kind]}
        assert numbers == set(range(3 if name == "flows" else len(numbers)))
        assert all(each["ended_ns"] > each["began_ns"] for each in found[kind])
        assert sum(each["bytes"] for each in found[kind]) == sum(each.bytes_verified for each in progress.values())
    else:
        for each in found[kind]:
            ordered = [each[key] for key in ("min", "typical", "p99", "p99_9", "max") if each[key] is not None]
            assert ordered == sorted(ordered)
            assert ordered[0] > 0
            assert [each["p99"] is None, each["p99_9"] is None] == [each["count"] < 100, each["count"] < 1000]
            assert each["min"] <= each["mean"] <= each["max"]
            host = each.get("host", each.get("source"))
            assert each["count"] == progress[host].iterations > 0
    text = "\n".join(table.text() for table in performance.tables(result))
    heads = {
        "bandwidth": ("BW peak", "BW average", "MsgRate", "completion time of a message"),
        "training": ("time of a step, ms", "P50", "P99", "all_reduce"),
        "flows": ("flow completion time, µs", "P50", "P99"),
        "latency": ("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "99%", "99.9%"),
    }
    assert all(head in text for head in heads.get(kind, ("t_typical",)))


@pytest.mark.slow
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_every_workload_completes_over_each_transport_and_clock(transport: str, clock: str) -> None:
    # Long enough for three polls on the real clock; one lab for all, because bringing it up takes longer.
    duration = 0.3 if clock == "real" else 0.12
    with session("tiny", clock, transport) as made:
        for name in sorted(WORKLOADS):
            for which, hosts in HOSTS.items():
                for bound, extra in BOUNDS.items():
                    # Each workload on the real clock twice, unless there is time.
                    if clock == "real" and not LONG and (which == "all") != (bound == "duration"):
                        continue
                    result = run(
                        made,
                        Workload(
                            name=name,
                            params={**SMALL_LOADS[name], **extra},
                            hosts=hosts,
                            duration=None if extra else duration,
                            limit=20,
                            qps_per_peer=2 if which == "three" else 1,
                        ),
                    )
                    check_measured(name, result)
                    taking = [each for each in result.progress.values() if each.takes_part]
                    if name in ("write_bw", "write_lat", "trace", "flows"):
                        assert len(taking) == 2
                    if bound == "iterations":
                        assert {each.iterations for each in taking} == {3}
                    elif name not in COUNTED["bandwidth"]:
                        assert len({each.iterations for each in taking}) == 1


@pytest.mark.slow
def test_perftests_figures_are_printed(tmp_path: pathlib.Path) -> None:
    """The command of the finding, which never ended."""
    command = [sys.executable, "-c", "from mrclab.cli.app import main; main()", "run"]
    where = ["--clock", "virtual", "--lab", "tiny", "--duration", "0.5", "-o", str(tmp_path)]
    environment = {**os.environ, "COLUMNS": "60", "MRCLAB_RUN": str(tmp_path / "run")}
    for name, heads in (("write_bw", "BW average  MsgRate"), ("write_lat", "t_min")):
        done = subprocess.run([*command, name, *where], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert heads in done.stdout
        assert heads.split("  ")[0] in (tmp_path / "report.html").read_text()
    done = subprocess.run(
        [*command, "write_lat", *where, "--json"], env=environment, capture_output=True, text=True, timeout=300
    )
    latency = json.loads(done.stdout)["performance"]["latency"]
    assert [(each["source"], each["destination"]) for each in latency] == [("h0", "h1")]
    # Two host links of 20 Mb/s and 100 µs each and a switch: a frame of 8 bytes takes its time.
    assert 250_000 < latency[0]["min"] < 500_000
