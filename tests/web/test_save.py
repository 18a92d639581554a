"""What was clicked, saved as an experiment, does the same again."""

from __future__ import annotations

import pathlib
from typing import Any

from mrclab.runs.execute import execute
from mrclab.runs.experiment import load_experiment
from support.web import simulating

LINK = "p0-t0.0--p0-t1.0"


def test_what_was_clicked_is_repeated(tmp_path: pathlib.Path) -> None:
    with simulating(speed=0) as view:
        view.ask("start", workload="ring_all_reduce", params={"size_bytes": 65536})
        view.until(lambda state: state["job"] and state["job"]["iterations"] > 1)
        view.ask("fail", target=LINK)
        view.until(lambda state: state["hosts"][1]["ev"]["ASSUMED_BAD"] > 0)
        view.ask("fail", target="h2:1", kind="port_down")
        view.until(lambda state: "h2:1" in state["found"])
        view.ask("restore", target=LINK)
        view.until(lambda state: LINK not in state["found"])
        early = view.ask("save").file
        view.ask("stop")
        view.until(lambda state: state["job"] and not state["job"]["running"])
        late = view.ask("save")
    assert late.file is not None
    assert early is not None
    assert late.name == "ring_all_reduce-clicked.yaml"
    done = repeated(tmp_path / "late.yaml", late.file)
    happened = done.result.happenings
    assert [each.action.describe() for each in happened] == [
        f"link down {LINK}",
        "port down h2:1",
        f"restore {LINK}",
    ]
    steps = done.experiment.schedule
    began = done.result.started_ns
    assert [each.at_ns - began for each in happened] == [round(step.at * 1e9) for step in steps]
    assert done.verdict.passed, done.verdict.checks
    assert [step.fail or step.restore for step in load(tmp_path / "early.yaml", early).schedule] == [LINK, "h2:1", LINK]


def load(path: pathlib.Path, text: str) -> Any:
    path.write_text(text)
    return load_experiment(str(path))


def repeated(path: pathlib.Path, text: str) -> Any:
    experiment = load(path, text)
    return execute(experiment, folder=path.with_suffix(""), live=False)
