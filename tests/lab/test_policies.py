"""Policies of a lab file: that they take hold, that ours stand in for them, and how their mistakes are told."""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mrclab.cli import app as cli

Run = Callable[..., tuple[int, str]]

PAGE = pathlib.Path(__file__).parents[2] / "docs/extending.md"
LAB = """\
name: own
planes: 2
t0_per_plane: 2
t1_per_plane: 2
hosts: 4
hosts_per_t0: 2
path_mtu: 1024
ev: {size: 16, active: 8}
queues: {limit: 64KiB, ecn: {kmin: 4KiB, kmax: 16KiB}, trim: {threshold: 32KiB}}
"""
EXPERIMENT = """\
name: own
title: a policy of one's own
lab: LAB
workload: {name: incast, params: {message_bytes: 65536, iterations: 4}}
schedule:
  - {at: 0.02, fail: p0-t0.0--p0-t1.0, evidence: {dropped: 1}}
"""


def examples() -> dict[str, tuple[str, str]]:
    """Return the classes on the page: kind, code."""
    found = re.findall(r"```python\n# policy: (\w+)\n(.*?)```", PAGE.read_text(), re.S)
    return {kind: (code, re.findall(r"^class (\w+)", code, re.M)[0]) for kind, code in found}


@pytest.fixture
def run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the experiment with some policies of some code: code, errors. Results are in `results`."""

    def go(kind: str = "", code: str = "", name: str = "Own", *words: str, lab: str = "", more: str = "") -> Any:
        (tmp_path / "own.py").write_text(code)
        (tmp_path / "own.yaml").write_text(LAB + (lab or (f"policies: {{{kind}: own:{name}}}\n" if kind else "")))
        (tmp_path / "experiment.yaml").write_text(EXPERIMENT.replace("LAB", str(tmp_path / "own.yaml")) + more)
        argv = ["mrclab", "run", str(tmp_path / "experiment.yaml"), "-o", str(tmp_path / "results"), "--json", *words]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return int(caught.value.code or 0), capsys.readouterr().err

    return go


def result(tmp_path: pathlib.Path) -> dict[str, Any]:
    return json.loads((tmp_path / "results/result.json").read_text())


@pytest.mark.parametrize("kind", ["congestion", "ev", "loss", "localiser"])
def test_each_example_of_the_documentation_runs(kind: str, run: Run, tmp_path: pathlib.Path) -> None:
    code, name = examples()[kind]
    assert len(code.strip().splitlines()) <= 13
    exit_code, told = run(kind, code, name)
    assert "PolicyError" not in told
    assert exit_code in (0, 1), told  # what it does need not be good
    assert all(each["done"] for each in result(tmp_path)["progress"].values()), told


PLAIN = {
    "congestion": "from mrc_host.policy import Nscc\nclass Own(Nscc):\n    pass\n",
    "ev": "from mrc_host.policy import EvSet\nclass Own(EvSet):\n    pass\n",
    "loss": "from mrc_host.policy import LossDetector\nclass Own(LossDetector):\n    pass\n",
    "localiser": "from mrclab.lab.management.clustermapper import Clustermapper\nclass Own(Clustermapper):\n    pass\n",
}


def test_a_subclass_that_changes_nothing_changes_nothing(run: Run, tmp_path: pathlib.Path) -> None:
    run()
    ours = result(tmp_path)
    for kind, code in PLAIN.items():
        run(kind, code)
        again = result(tmp_path)
        for key in ("statistics", "finished_ns", "happenings", "program_counters"):
            assert again[key] == ours[key], (kind, key)


#: Classes that take hold, and what in the result shows it.
TAKES_HOLD = {
    "congestion": (
        """\
from mrc_host.policy import WindowPolicy
class Own(WindowPolicy):
    def on_sack(self, now, newly, rtt_ns, ce, penalty, restore, whole=True):
        self.cwnd = self.mtu
""",
        lambda ours, own: own["finished_ns"] - own["started_ns"] > 1.2 * (ours["finished_ns"] - ours["started_ns"]),
    ),
    "loss": (
        """\
from mrc_host.policy import LossDetector
class Own(LossDetector):
    def infer(self, acked, overtaken, base_rtt_ns, now):
        return []
""",
        lambda ours, own: summed(own, "lost_rack") + summed(own, "lost_same_ev") == 0 < summed(ours, "lost_rack"),
    ),
}


def summed(document: dict[str, Any], counter: str) -> int:
    return sum(qp["requestor"].get(counter, 0) for host in document["statistics"].values() for qp in host["qps"])


@pytest.mark.parametrize("kind", ["congestion", "loss"])
def test_a_policy_takes_hold(kind: str, run: Run, tmp_path: pathlib.Path) -> None:
    run()
    ours = result(tmp_path)
    code, shows = TAKES_HOLD[kind]
    _, told = run(kind, code)
    assert shows(ours, result(tmp_path)), told


def test_an_ev_policy_has_the_round_trip_of_each_answer(run: Run) -> None:
    code = "from mrc_host.policy import EvSet\nclass Own(EvSet):\n    def answered(self, ev, mark, now):\n"
    _, told = run("ev", code + "        if self.rtt_ns:\n            raise ValueError(f'{self.rtt_ns} of {now} ns')\n")
    found = re.search(r"Own.answered: ValueError: (\d+) of (\d+) ns", told)
    assert found, told
    assert 1_000_000 < int(found[1]) <= int(found[2])  # a packet and its answer cross four links each


BASES = {"congestion": "WindowPolicy", "ev": "EvSet", "loss": "LossDetector"}
SACK = "on_sack(self, now, newly, rtt_ns, ce, penalty, restore, whole=True)"
INFER = "infer(self, acked, overtaken, base_rtt_ns, now)"


@pytest.mark.parametrize(
    ("kind", "method", "body", "named"),
    [
        pytest.param("congestion", SACK, "1 // 0", "own.py:4: Own.on_sack: ZeroDivisionError", id="raises"),
        pytest.param("congestion", SACK, "self.cwnd = -3.0", "own.py:3: Own.on_sack: cwnd is -3 bytes", id="negative"),
        pytest.param("congestion", SACK, "self.cwnd = float('nan')", "Own.on_sack: cwnd is nan", id="nan"),
        pytest.param("congestion", SACK, "self.inflight = 0", "Own.on_sack: changed inflight from", id="inflight"),
        pytest.param("congestion", SACK, "raise SystemExit(0)", "own.py:4: Own.on_sack: SystemExit", id="exit"),
        pytest.param("congestion", "__init__(self, config, mtu)", "pass", "call super().__init__", id="init"),
        pytest.param(
            "ev",
            "choose(self, plane, avoid=-1)",
            "return 16",
            "own.py:3: Own.choose: returned EV 16, which",
            id="index",
        ),
        pytest.param("ev", "choose(self, plane, avoid=-1)", "return None", "returned None, not the index", id="none"),
        pytest.param(
            "ev",
            "choose(self, plane, avoid=-1)",
            "return self.universe.by_plane[1 - plane][0]",
            "Own.choose: returned EV",
            id="plane",
        ),
        pytest.param(
            "ev",
            "replacement(self, ev)",
            "return self.backup[1 - self.universe.planes[ev]][0]",
            "Own.replacement: returned EV",
            id="replacement",
        ),
        pytest.param(
            "ev", "usable_planes(self, ours, theirs)", "return [0, 1]", "not a bit mask of the 2 planes", id="planes"
        ),
        pytest.param("ev", "apply(self, ev, item)", "return None", "not whether the state changed", id="apply"),
        pytest.param("loss", INFER, "return [acked[0]] if acked else []", "PSN", id="acknowledged"),
        pytest.param("loss", INFER, "return 7", "returned 7, not a list", id="no-list"),
        pytest.param("loss", INFER, "return ['x']", "returned 'x' among what is lost", id="no-packet"),
        pytest.param(
            "localiser", "locate(self, topology, views)", "return views['h9']", "own.py:4: Own.locate: KeyErr", id="map"
        ),
        pytest.param(
            "localiser",
            "locate(self, topology, views)",
            "from mrclab.lab.management.clustermapper import Finding; return [Finding('p9-t0.0', 'dead', ())]",
            "nothing in lab own is called 'p9-t0.0'",
            id="element",
        ),
        pytest.param("localiser", "locate(self, topology, views)", "return None", "not a list of findings", id="list"),
    ],
)
def test_a_mistake_of_a_policy_ends_the_run_and_is_named(
    kind: str, method: str, body: str, named: str, run: Run, tmp_path: pathlib.Path
) -> None:
    base = BASES.get(kind, "")
    code = f"from mrc_host.policy import {base or 'Nscc'}\nclass Own({base}):\n    def {method}:\n        {body}\n"
    exit_code, told = run(kind, code)
    assert exit_code == 1, told
    assert named in told
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("code", "named"),
    [
        pytest.param("class Other: pass\n", "has no class Own; it has: Other", id="class"),
        pytest.param("class Own: pass\n", "must derive from mrc_host.policy.CongestionControl", id="base"),
        pytest.param("x = 1\ndef f(:\n", "own.py:2: SyntaxError", id="syntax"),
        pytest.param("x = 1\nimport nothing_of_the_kind\n", "own.py:2: ModuleNotFoundError", id="import"),
        pytest.param("raise SystemExit(0)\n", "own.py:1: SystemExit", id="exit"),
    ],
)
def test_what_cannot_be_loaded_is_told_before_anything_starts(
    code: str, named: str, run: Run, tmp_path: pathlib.Path
) -> None:
    exit_code, told = run("congestion", code)
    assert exit_code == 2, told
    assert "policies.congestion: " in told
    assert named in told
    assert not (tmp_path / "results").exists()


def test_a_file_that_is_not_there_and_a_name_that_is_none(run: Run) -> None:
    exit_code, told = run(lab="policies: {ev: missing:Own}\n")
    assert exit_code == 2
    assert "missing.py: no such file" in told
    exit_code, told = run(lab="policies: {ev: own}\n")
    assert exit_code == 2
    assert "use 'module:Class', 'FILE.py:Class', or '@NAME'" in told


def test_an_experiment_names_policies_too(run: Run) -> None:
    exit_code, told = run(code="class Other: pass\n", more="policies: {loss: own:Own}\n")
    assert exit_code == 2
    assert "policies.loss: " in told


def test_policies_run_in_simulated_time_and_for_mrc_only(run: Run) -> None:
    exit_code, told = run("congestion", PLAIN["congestion"], "Own", "--clock", "real")
    assert exit_code == 2, told
    assert "policies.congestion" in told
    assert "--clock virtual" in told
    exit_code, told = run("congestion", PLAIN["congestion"], more="transport: roce\n")
    assert exit_code == 2, told
    assert "leave it out" in told
