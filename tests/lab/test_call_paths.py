"""Call paths of docs/reference/code-map.md: how often they return to a module that they had left."""

from __future__ import annotations

import pathlib

import pytest

from mrc_topo import units
from mrclab.results import resultdir, verdict
from mrclab.results.check import Verdict
from mrclab.results.expectation import Evidence, Expectation
from mrclab.results.record import RunResult
from mrclab.results.recording import Recording
from mrclab.runs import execute
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload
from support.callpath import CallPath, walked

EXPERIMENT = Experiment(
    name="path",
    title="a link fails",
    lab="tiny",
    workload=Workload(name="ring_all_reduce", params={"size_bytes": 1 << 18}, duration=1.5),
    schedule=[
        ExperimentStep(at=0.5, fail="p0-t0.0--p0-t1.0", evidence=Evidence(dropped=1, evs_lost=1)),
        ExperimentStep(at=1.0, restore="p0-t0.0--p0-t1.0"),
    ],
    expect=Expectation(recovery=1.0, min_share=0.5, max_dip=1.0, plane_spread=1.0, trims=False),
)


def test_path_that_enters_a_module_twice_has_one_return() -> None:
    path = CallPath((("a", "f"), ("b", "g"), ("b", "h"), ("a", "k")))
    assert path.modules == ["a", "b", "a"]
    assert path.returns == 1


def test_walk_notes_only_the_first_call_of_each_function_of_ours() -> None:
    path = walked(lambda: [units.format_time(units.parse_time_ns(each)) for each in ("5ms", "7ms")])
    names = ["parse_time_ns", "_parse", "format_time", "shown", "Unit.scale", "digits"]
    assert path.functions == tuple(("mrc_topo.units", name) for name in names)
    assert path.returns == 0


DATA = {f"mrclab.results.{name}" for name in ("record", "recording", "series", "counted", "check", "analysis")}


def test_path_of_a_result_to_its_report_goes_through_each_module_about_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every return that there may be is one to data, `DATA`: the recording, the verdict, the result itself."""
    made = execute.execute(EXPERIMENT, "virtual", folder=tmp_path / "run", live=False)
    result = RunResult.load(tmp_path / "run")
    # The samples are on disk already.
    monkeypatch.setattr(Recording, "keep", lambda self: None)
    recording = Recording()
    judged: list[Verdict] = []
    again = tmp_path / "again"
    again.mkdir()

    def call() -> None:
        judged.append(verdict.judge(result, made.topology, EXPERIMENT.expect, EXPERIMENT.claims()))
        resultdir.write(again, result, made.topology, judged[0], EXPERIMENT.title, recording)

    path = walked(call, ("mrclab.results",))
    assert judged == [made.verdict]
    assert (again / "report.html").read_text() == (tmp_path / "run/report.html").read_text()
    assert {"mrclab.results.verdict", "mrclab.results.charts"} <= set(path.modules)
    logic = CallPath(tuple(each for each in path.functions if each[0] not in DATA))
    assert logic.returns <= 6, logic.modules
