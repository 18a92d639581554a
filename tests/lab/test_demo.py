"""The demonstration: its rate, its lab, what decides, and what the parts show in simulated time."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from mrc_host.answers import HostFidelity, LagSummary
from mrc_topo.base.interruption import Interrupted
from mrc_topo.labfile import load_lab
from mrclab.lab import lifecycle
from mrclab.lab.records import rundir
from mrclab.lab.records.rundir import RunError
from mrclab.lab.requested import LabRequest
from mrclab.lab.session import fidelity
from mrclab.results.check import Check, Verdict
from mrclab.runs import demo
from mrclab.runs.demo import LEAST_MBPS, MOST_MBPS, Demo, FreeCapacity, lab_at, own_mbps, part
from mrclab.runs.experiment import Experiment
from support.lab import users


def test_the_rate_follows_what_is_free_within_bounds() -> None:
    fast = FreeCapacity(cores=64, decodings=1e6)
    assert fast.rate_mbps(32) == MOST_MBPS
    assert FreeCapacity(cores=0.01, decodings=1e5).rate_mbps(32) == LEAST_MBPS
    one, two = FreeCapacity(1.5, 500_000), FreeCapacity(2.5, 500_000)
    assert LEAST_MBPS < one.rate_mbps(32) < two.rate_mbps(32) < MOST_MBPS
    assert not one.too_slow(32)


def test_a_machine_that_is_far_too_slow_is_shown_simulated_time(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "measure", lambda: FreeCapacity(cores=2.0, decodings=25_000))
    said: list[str] = []
    scripted = Scripted(tmp_path, ROCE)
    scripted.say = said.append
    assert scripted.go("real")
    assert scripted.ran[0] == "ring"
    assert scripted.clocks[0] == "virtual"
    assert "--rate" in said[1]


def test_a_measurement_is_of_this_machine() -> None:
    machine = demo.measure(0.1)
    assert machine.decodings > 1000
    assert 0 < machine.cores <= 1.2 * (os.cpu_count() or 1)


@pytest.mark.parametrize("rate", [3, LEAST_MBPS, own_mbps(), MOST_MBPS, 200])
def test_the_lab_scales_its_queues_with_the_rate(tmp_path: pathlib.Path, rate: int) -> None:
    topology = load_lab(str(lab_at(rate, tmp_path)))
    lab = topology.lab
    assert lab.links.host.rate == lab.links.fabric.rate == rate * 10**6
    trim, ecn = lab.queues.trim, topology.links["p0-t0.0--p0-t1.0"].marks
    assert trim is not None
    assert ecn is not None
    assert ecn.kmin < ecn.kmax <= trim.threshold < lab.queues.limit
    assert ecn.kmin >= lab.path_mtu
    assert lab.reliability.exp_cnt >= 2 * load_lab("default").lab.reliability.exp_cnt, (
        "of a packet that is trimmed often"
    )
    experiment = part("ring", tmp_path / "demo.yaml", rate)
    assert experiment.workload.params["size_bytes"] % 4096 == 0


class Scripted(Demo):
    """A demonstration whose runs end as the test says."""

    def __init__(self, folder: pathlib.Path, endings: dict[str, Verdict]) -> None:
        super().__init__(folder, lambda text: None, lambda outcome: None, live=False)
        self.endings = endings
        self.ran: list[str] = []
        self.clocks: list[str] = []

    def _run(self, name: str, experiment: Experiment, clock: str) -> Any:
        self.ran.append(name)
        self.clocks.append(clock)
        verdict = self.endings.get(name, verdict_of())
        failures = [] if verdict.holds else ["x"] if "failed" in verdict.reasons else []
        result = SimpleNamespace(failures=failures, progress={"h0": SimpleNamespace(iterations=1)})
        return SimpleNamespace(verdict=verdict, signal=0, result=result, experiment=experiment)


def verdict_of(*, holds: bool = True, times: bool = True, valid: bool = True, failed: bool = False) -> Verdict:
    checks = [Check("bytes", "", "", holds and not failed), Check("recovery", "", "", times, timed=True)]
    return Verdict(checks, [], valid, ["failed"] if failed else [] if valid else ["late"])


LATE = verdict_of(times=False, valid=False)
WRONG = verdict_of(holds=False, valid=False)
ROCE = {"link-roce": verdict_of(failed=True)}
STORIES = [
    ("all good", {}, True, ["ring", "incast"]),
    (
        "times missed once on a machine that kept up",
        {"ring": verdict_of(times=False)},
        True,
        ["ring", "incast", "ring-half-rate", "incast-half-rate"],
    ),
    (
        "times missed twice on a machine that kept up",
        {"ring": verdict_of(times=False), "ring-half-rate": verdict_of(times=False)},
        False,
        ["ring", "incast", "ring-half-rate", "incast-half-rate"],
    ),
    (
        "what must hold did not, though the machine kept up",
        {"ring": verdict_of(holds=False)},
        False,
        ["ring", "incast"],
    ),
    ("late once", {"ring": LATE}, True, ["ring", "incast", "ring-half-rate", "incast-half-rate"]),
    (
        "late twice",
        {"ring": LATE, "incast-half-rate": LATE},
        True,
        ["ring", "incast", "ring-half-rate", "incast-half-rate", "ring-simulated"],
    ),
    (
        "what must hold did not, late twice",
        {"ring": LATE, "ring-half-rate": WRONG},
        False,
        ["ring", "incast", "ring-half-rate", "incast-half-rate", "ring-simulated"],
    ),
    (
        "simulated times missed",
        {"ring": LATE, "ring-half-rate": LATE, "ring-simulated": verdict_of(times=False)},
        False,
        ["ring", "incast", "ring-half-rate", "incast-half-rate", "ring-simulated"],
    ),
    (
        "times missed again, on a machine that seemed to keep up",
        {"ring": LATE, "ring-half-rate": verdict_of(times=False)},
        True,
        ["ring", "incast", "ring-half-rate", "incast-half-rate", "ring-simulated"],
    ),
    ("a failure", {"ring": verdict_of(failed=True, valid=False)}, False, ["ring"]),
    ("RoCE does not fail", {"link-roce": verdict_of()}, False, ["ring", "incast"]),
]


@pytest.mark.parametrize(("endings", "good", "ran"), [each[1:] for each in STORIES], ids=[each[0] for each in STORIES])
def test_what_must_hold_decides_and_times_count_when_the_machine_kept_up(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    endings: dict[str, Verdict],
    good: bool,
    ran: list[str],
) -> None:
    ups: list[str] = []

    def up(wanted: LabRequest, progress: object) -> None:
        ups.append(wanted.lab)

    def down(name: str) -> None:
        if len(ups) == 2:
            raise RunError("it is gone already")

    monkeypatch.setattr(lifecycle, "up", up)
    monkeypatch.setattr(rundir, "down", down)
    scripted = Scripted(tmp_path, ROCE | endings)
    assert scripted.go("real", 10) is good
    assert [name for name in scripted.ran if not name.startswith("link")] == ran


def test_an_interrupted_demonstration_runs_nothing_more_and_takes_its_lab_down(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downs: list[str] = []
    monkeypatch.setattr(lifecycle, "up", lambda *_: None)
    monkeypatch.setattr(rundir, "down", downs.append)
    runs: list[str] = []

    def execute(experiment: Experiment, *_: object, **__: object) -> Any:
        runs.append(experiment.name)
        return SimpleNamespace(verdict=verdict_of(), signal=signal.SIGTERM, result=SimpleNamespace(failures=[]))

    monkeypatch.setattr(demo, "execute", execute)
    said: list[str] = []
    with pytest.raises(Interrupted) as caught:
        Demo(tmp_path, said.append, lambda outcome: None, live=False).go("real", 10)
    first, up, ring = said
    assert first.startswith("bringing the lab up")
    assert up == "the lab is up"
    assert ring.endswith(f" (real clock, {part('ring').workload.duration:.0f} s)")
    assert caught.value.exit_code == 143
    assert (runs, downs) == (["demo"], ["demo"])


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command_that_is_interrupted_says_so(tmp_path: pathlib.Path, number: int, code: int) -> None:
    command = [*users.MRCLAB, "demo", "--clock", "virtual", "--rate", "20", "-o", str(tmp_path / "demo")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as shown:
        assert shown.stderr is not None
        next(line for line in shown.stderr if re.fullmatch(r"\[ *\d+ s\] running\n", line))
        shown.send_signal(number)
        said = shown.stderr.read()
        assert shown.wait(60) == code
    assert "under MRC" not in said, "no part after it"
    assert json.loads((tmp_path / "demo" / "ring" / "verdict.json").read_text())["status"] == "interrupted"


def test_a_single_stall_makes_a_run_not_valid() -> None:
    host = HostFidelity(LagSummary(1, 0, 0, 10**6, 10**8), 0.1, 10**9, 0, 0)
    quiet = dataclasses.replace(host, loop_lag=LagSummary(1, 0, 0, 10**6, 10**7))
    assert fidelity.judge(fidelity.Fidelity(hosts={"h0": quiet}), 5 * 10**6) == []
    (reason,) = fidelity.judge(fidelity.Fidelity(hosts={"h0": host}), 5 * 10**6)
    assert "100 ms late once" in reason


@pytest.mark.slow
def test_the_slowest_machine_still_sees_its_times_in_simulated_time(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Demo):
        def _on_lab(self, rate_mbps: int, suffix: str) -> tuple[bool, bool]:
            self.failed, self.held = False, True
            return False, False

    monkeypatch.setattr(Demo, "_beside", lambda self: True)
    assert Late(tmp_path, lambda text: None, lambda outcome: None, live=False).go("real", LEAST_MBPS)
    sizes = [report.stat().st_size for report in tmp_path.glob("*/report.html")]
    assert sizes
    assert max(sizes) < 1_500_000  # 4.9 MB with a plotting library inside


@pytest.mark.slow
def test_the_same_failure_ends_a_job_on_roce_and_not_on_mrc(tmp_path: pathlib.Path) -> None:
    said: list[str] = []
    shown = Demo(tmp_path, said.append, lambda outcome: None, live=False)
    assert shown._beside()
    rows = [text for text in said if text.startswith((" MRC", "RoCE"))]
    assert "the job went on" in rows[0]
    assert "the job failed: " in rows[1]


def test_verdict_with_only_timed_checks_missed_holds_and_does_not_pass() -> None:
    verdict = verdict_of(times=False)
    assert verdict.holds
    assert not verdict.passed
    assert dataclasses.replace(verdict, checks=[*verdict.checks, Check("x", "", "", False)]).holds is False
    assert verdict.document()["holds"] is True
