"""The workload `trace` on packets in simulated time, beside the fluid model of the same fabric; mistakes in files."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
import typer.testing

from mrc_topo.base.errors import ExitCode
from mrclab.cli.app import app
from mrclab.runs.experiment import ExperimentError, load_experiment

runner = typer.testing.CliRunner()
MIXTURE = [
    *("model=mixtral-8x7b", "pipeline=2", "data=4", "experts=2", "exchanges=1", "micro_batches=4", "placement=random"),
    *("bytes_divisor=160000", "time_divisor=40", "iterations=2"),
]
#: A step ordered by data dependencies, and the same ordered by control dependencies.
STEPS = pathlib.Path(__file__).parents[1] / "vectors" / "chakra"
#: How far the models may be apart: what 'docs/howto/run-a-trace.md' measures, and some room.
APART = 0.08


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


def both(folder: pathlib.Path, lab: str, settings: list[str]) -> tuple[dict, dict]:  # type: ignore[type-arg]
    """Return the summary of steps on packets and on the fluid model."""
    given = ["--lab", lab, "--json", *(word for setting in settings for word in ("--set", setting))]
    packets = runner.invoke(app, ["run", "trace", "--clock", "virtual", *given, "-o", str(folder / "packets")])
    assert packets.exit_code == 0, packets.output
    fluid = runner.invoke(app, ["replay", *given, "-o", str(folder / "fluid")])
    assert fluid.exit_code == 0, fluid.output
    (training,) = json.loads(packets.stdout)["performance"]["training"]
    return training, json.loads(fluid.stdout)["training"]


def test_both_models_take_the_same_time_for_a_step(tmp_path: pathlib.Path) -> None:
    packets, fluid = both(tmp_path, "default", MIXTURE)
    assert packets["times"]["all"]["count"] == fluid["times"]["all"]["count"] == 2
    assert fluid["times"]["all"]["mean"] == pytest.approx(packets["times"]["all"]["mean"], rel=APART)
    assert fluid["exposed"]["mean"] == pytest.approx(packets["exposed"]["mean"], rel=2 * APART)
    assert {name: each["count"] for name, each in packets["operations"].items()} == {
        name: each["count"] for name, each in fluid["operations"].items()
    }


def test_control_dependencies_of_a_trace_are_followed_by_both_models(tmp_path: pathlib.Path) -> None:
    steps = [both(tmp_path / name, "tiny", [f"file={STEPS / name}"]) for name in ("data", "ctrl")]
    for by_data, by_control in zip(*steps, strict=True):
        assert by_control["times"] == by_data["times"]
    packets, fluid = (each["times"]["all"]["mean"] for each in steps[0])
    assert (packets, fluid) == pytest.approx((0.71912, 0.71342), abs=5e-6)


def test_what_is_not_used_of_a_file_is_noted_by_both_models(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.goal").write_text("num_ranks 2\nrank 0 {\nsend 8b to 1 nic 0\n}\nrank 1 {\nrecv 8b from 0\n}\n")
    given = ["--lab", "tiny", "--set", f"file={tmp_path}/x.goal", "-o", str(tmp_path / "out")]
    note = "x.goal: not used: nic of 1 message"
    packets = runner.invoke(app, ["run", "trace", "--clock", "virtual", *given])
    assert f"note: {note}" in packets.stderr
    fluid = runner.invoke(app, ["replay", *given, "--json"])
    assert any(note in each for each in json.loads(fluid.stdout)["notes"])


PUBLIC = os.environ.get("MRCLAB_CHAKRA", "")


@pytest.mark.skipif(not PUBLIC, reason="MRCLAB_CHAKRA names no PREFIX of a public Chakra trace")
def test_public_trace_runs_on_both_models(tmp_path: pathlib.Path) -> None:
    packets, fluid = both(tmp_path, "training-64", [f"file={PUBLIC}"])
    assert fluid["times"]["all"]["mean"] == pytest.approx(packets["times"]["all"]["mean"], rel=APART)


def test_mistake_in_a_trace_ends_with_two_before_anything_starts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.goal").write_text("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\ncalc 5\n}\n")
    command = ["run", "trace", "--lab", "tiny", "--clock", "virtual", "--set", f"file={tmp_path}/x.goal"]
    done = runner.invoke(app, [*command, "-o", str(tmp_path / "out")])
    assert isinstance(done.exception, ExperimentError)
    assert done.exception.exit_code is ExitCode.USAGE
    assert "x.goal: line 3: a message from rank 0 to rank 1 with tag 0 is sent and not received" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_file_of_an_experiment_lies_beside_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "experiment.yaml").write_text(
        "name: mine\ntitle: mine\nlab: tiny\nworkload: {name: trace, params: {file: traces/x, ranks: 2}}\n"
    )
    assert load_experiment(str(tmp_path)).workload.params == {"file": str(tmp_path / "traces" / "x"), "ranks": 2}
