"""What a run's verdict says on the terminal: capacity after a restore, two counts of lost packets, a slow machine."""

from __future__ import annotations

import dataclasses

import pytest

from mrclab.cli.outcome import show
from mrclab.results import report
from mrclab.results.expectation import Evidence, Expectation
from mrclab.results.record import EXPLAINED, RunResult, losses_of
from mrclab.results.recording import StoredRecording
from mrclab.runs import execute
from mrclab.runs.execute import Outcome
from mrclab.runs.experiment import Experiment, ExperimentStep, Workload

PORT = "h0:1"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Return a run in which a NIC port, half of what a host has, fails and comes back, and then a link fails."""
    experiment = Experiment(
        name="x",
        title="a title",
        lab="tiny",
        workload=Workload(name="ring_all_reduce", params={"size_bytes": 1 << 18}, duration=2.4),
        schedule=[
            ExperimentStep(at=0.6, fail=PORT, evidence=Evidence(ports_down=1)),
            ExperimentStep(at=1.2, restore=PORT),
            ExperimentStep(at=1.8, fail="p0-t0.0--p0-t1.0", evidence=Evidence(dropped=1)),
        ],
        expect=Expectation(),
    )
    return execute.execute(experiment, "virtual", folder=tmp_path_factory.mktemp("run"), live=False)


def shown(outcome: Outcome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    show(outcome)
    return capsys.readouterr().out


def test_counters_of_a_program_of_ones_own_are_shown_also_where_they_are_0(
    outcome: Outcome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = {"marked": 0, "drop_no_route": 0, "Ig.seen": 0, "Ig.seen.bytes": 7, "trimmed": 3}
    result = dataclasses.replace(outcome.result, program_counters=counted)
    text = shown(dataclasses.replace(outcome, result=result), capsys, monkeypatch)
    assert "the P4 program counted: Ig.seen 0, Ig.seen.bytes 7, trimmed 3\n" in text


def test_capacity_after_a_restore_is_a_share_of_the_whole(
    outcome: Outcome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail, restore, _ = outcome.verdict.recoveries
    assert restore.expected > 1
    assert (fail.left, restore.left) == (pytest.approx(0.5), 1.0)
    row = next(line for line in shown(outcome, capsys, monkeypatch).splitlines() if f"restore {PORT}" in line)
    # What goodput is after it is told as a share of what it was before.
    assert restore.lowest in row
    assert restore.low == restore.dip


def test_each_count_of_lost_packets_has_its_name_and_the_difference_is_explained(
    outcome: Outcome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = losses_of(outcome.result)
    assert found.dropped > found.taken > 0, "probes of the dead link are dropped, and no host counts them"
    text = shown(outcome, capsys, monkeypatch)
    counts = f"the fabric dropped {found.dropped} because of failures, the hosts took {found.taken} for lost"
    assert counts in text.replace("\n", " ")
    made = report.render(RunResult.load(outcome.folder), outcome.topology, outcome.verdict, "t")
    assert f"<td>{found.dropped}; {found.taken}</td>" in made
    for sentence in EXPLAINED:
        assert sentence in " ".join(text.split())
        assert sentence in made


def test_without_losses_they_are_not_explained(
    outcome: Outcome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = dataclasses.replace(outcome.result)
    result.recording = StoredRecording.of({}, [], {})
    assert not losses_of(result)
    assert EXPLAINED[0] not in shown(dataclasses.replace(outcome, result=result), capsys, monkeypatch)


def test_a_slow_machine_is_named_below_the_verdict(
    outcome: Outcome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = dataclasses.replace(outcome.verdict, valid=False, reasons=["the loop of h0 was 70 ms late"])
    text = shown(dataclasses.replace(outcome, verdict=judged), capsys, monkeypatch)
    assert text.index("passed; report:") < text.index("times and rates above are not valid")
    assert text.rstrip().endswith("the loop of h0 was 70 ms late")
