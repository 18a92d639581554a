"""The core without the extra for labs on several machines: it refuses those on the real clock, and starts nothing."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import yaml

from mrc_topo.base.errors import UsageError
from mrclab import extras
from mrclab.lab import lifecycle
from mrclab.lab.records.record import LabState
from mrclab.lab.records.rundir import RunDir, RunError, all_runs
from mrclab.lab.requested import LabRequest
from mrclab.lab.spread import session_of

LAB: dict[str, Any] = {
    "name": "two",
    "planes": 1,
    "t0_per_plane": 2,
    "t1_per_plane": 1,
    "hosts": 2,
    "hosts_per_t0": 1,
    "ev": {"size": 8, "active": 4},
    "machines": {
        "m1": {"address": "127.0.0.1", "hosts": ["h0"], "switches": ["p0-t0.0", "p0-t1.0"]},
        "m2": {"address": "127.0.0.1", "port_base": 48000, "hosts": ["h1"], "switches": ["p0-t0.1"]},
    },
}
#: Runs a command as if the package were not there.
WITHOUT = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "mrc_machines" else real(name, *more)
from mrclab.cli.entry import main
main()
"""
RUN = ("run", "write_bw", "--duration", "0.01")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump(LAB))
    return path


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "contributions", lambda group: {})


def command(*words: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", WITHOUT, *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("words", [("up",), (*RUN, "--clock", "real", "--lab")], ids=lambda words: words[0])
def test_on_the_real_clock_such_a_lab_is_refused_before_anything_starts(
    words: tuple[str, ...], lab: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(*words, lab)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "`machines`" in line
    assert "extra mrc_machines" in line
    assert "make setup" in line  # the way to get it
    assert {each.name for each in tmp_path.iterdir()} <= {"two.yaml", "run"}
    assert not all_runs()


def test_in_simulated_time_it_runs_as_one_process(lab: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = command(*RUN, "--clock", "virtual", "--lab", lab, "-o", tmp_path / "results")
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("without")
def test_nothing_of_it_comes_up_whole_on_one_machine(lab: pathlib.Path) -> None:
    with pytest.raises(UsageError, match="extra mrc_machines"):
        lifecycle.up(LabRequest.of(str(lab)))
    assert not all_runs()


@pytest.mark.usefixtures("without")
def test_no_session_opens_on_a_lab_whose_record_names_machines() -> None:
    run = RunDir("two")
    run.create()
    run.write(LabState("two", machines={"m1": ["h0"], "m2": ["h1"]}))
    with pytest.raises(UsageError, match="lab 'two', which is on several machines, needs the extra mrc_machines"):
        session_of("two")
    assert list(lifecycle.cleanup()) == ["two"]


def test_a_lab_on_one_machine_has_no_way_to_others(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump({**LAB, "machines": {}}))
    with pytest.raises(RunError, match="lab 'two' has no `machines`"):
        lifecycle.up(replace(LabRequest.of(str(path)), connect="ssh {ssh}"))
