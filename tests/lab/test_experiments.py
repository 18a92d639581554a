"""Every experiment that comes with the project passes in simulated time; the manual says what is true."""

from __future__ import annotations

import pathlib
import re

import pytest
import typer

from mrc_control import execute
from mrc_control.cli import app
from mrc_control.experiment import FOLDER, Expectation, Step, Workload, known_experiments, load_experiment
from mrc_control.failures import IMPAIRMENTS, KINDS
from mrc_host.workloads import WORKLOADS
from mrc_topo.labfile import load_lab

MANUAL = (FOLDER.parent / "docs" / "lab.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(known_experiments()))
def test_experiment(name: str, tmp_path: pathlib.Path) -> None:
    outcome = execute.execute(load_experiment(name), "virtual", folder=tmp_path, live=False)
    missed = [check for check in outcome.verdict.checks if not check.passed]
    assert not missed, missed
    assert outcome.document["failures"] == []
    assert {path.name for path in tmp_path.iterdir()} == {"result.json", "verdict.json", "report.html"}
    assert (FOLDER / name / "README.md").is_file()


def test_the_manuals_experiment_is_one(tmp_path: pathlib.Path) -> None:
    block = MANUAL.split("## Experiments")[1].split("    name: ", 1)[1].split("\n\n")[0]
    path = tmp_path / "experiment.yaml"
    path.write_text("name: " + re.sub(r"^    ", "", block, flags=re.M))
    experiment = load_experiment(str(path))
    execute.check(experiment, load_lab(experiment.lab))
    assert len(experiment.actions()) == 2 + 2 * 3


def test_the_manual_names_everything() -> None:
    named = [*KINDS, *IMPAIRMENTS, *WORKLOADS]
    for model in (Workload, Step, Expectation):
        named += list(model.model_fields)
    missing = [word for word in named if f"`{word}" not in MANUAL and f"{word}:" not in MANUAL]
    assert not missing
    verbs = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert [verb for verb in sorted(verbs) if not re.search(rf"`(mrclab )?{verb}\b", MANUAL)] == []
