"""Every experiment that comes with the project passes in simulated time; the manual says what is true."""

from __future__ import annotations

import pathlib
import re

import pytest
from pydantic import ValidationError

from mrc_host.workloads import WORKLOADS
from mrc_topo.labfile import load_lab
from mrclab.lab.faults.kinds import IMPAIRMENTS, KINDS
from mrclab.lab.hosts.hostclient import HostError
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results import verdict
from mrclab.results.expectation import Evidence, Expectation
from mrclab.results.history import What, history
from mrclab.runs import execute, precheck
from mrclab.runs.experiment import FOLDER, Experiment, ExperimentStep, Workload, load_experiment
from support.amount import only
from support.lab.results import plain
from support.lab.usual import usual_experiments

KEPT = {"verdict.json", "samples.npz", "events.jsonl.gz", "result.json", "report.html"}
MANUAL = (FOLDER.parent / "docs" / "reference" / "experiments.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", only(usual_experiments(), ("fabric-links", "nic-ports", "t0-down")))
def test_each_experiment_of_the_project_passes_in_simulated_time(name: str, tmp_path: pathlib.Path) -> None:
    outcome = execute.execute(load_experiment(name), "virtual", folder=tmp_path, live=False)
    missed = [check for check in outcome.verdict.checks if not check.passed]
    assert not missed, missed
    assert not outcome.result.failures or outcome.experiment.expect.denied
    assert {path.name for path in tmp_path.iterdir()} == KEPT
    # 4.9 MB with a plotting library inside.
    assert (tmp_path / "report.html").stat().st_size < 1_500_000
    assert (FOLDER / name / "README.md").is_file()


def test_profiles_are_there_for_the_run_and_gone_afterwards() -> None:
    experiment = Experiment.model_validate(
        {
            "name": "x",
            "title": "y",
            "profiles": [
                {"kind": "ev", "name": "few", "settings": {"active": 4}},
                {"kind": "cc", "name": "still", "settings": {"algorithm": "fixed", "fixed_window_bytes": 20_000}},
            ],
            "workload": {
                "name": "all_to_all",
                "params": {"block_bytes": 5000},
                "ev_profile": "few",
                "cc_profile": "still",
            },
        }
    )
    session = VirtualSession(load_lab("tiny"))
    try:
        result = execute.run_on(session, experiment)
        assert not result.failures
        for statistics in plain(result)["statistics"].values():
            assert {tuple(qp["ev_active"]) for qp in statistics["qps"]} == {(2, 2)}
            assert {peer["cc"]["cwnd"] for peer in statistics["peers"]} == {20_000}
        for host in session.hosts.values():
            assert {each["name"] for each in host.request("profile_list")["profiles"]} == {"default"}
        bad = experiment.model_copy(update={"profiles": []})
        with pytest.raises(HostError, match="no ev profile 'few'"):
            execute.run_on(session, bad)
    finally:
        session.close()


def flap(down: float, up: float, expect: Expectation) -> tuple[str, Experiment]:
    """Return a link, and an experiment in which it goes down and comes back at these seconds."""
    link = "p0-t0.0--p0-t1.0"
    return link, Experiment(
        name="x",
        title="y",
        lab="tiny",
        workload=Workload(name="ring_all_reduce", params={"size_bytes": 1 << 18}, duration=1.2),
        schedule=[ExperimentStep(at=down, fail=link, evidence=Evidence(losses=1)), ExperimentStep(at=up, restore=link)],
        expect=expect,
    )


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_run_that_ends_early_waits_until_the_hosts_withdraw_what_works_again(
    clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VirtualSession, "clock", clock)
    link, experiment = flap(0.2, 1.1, Expectation(localised=True))
    session = VirtualSession(load_lab("tiny"))
    try:
        result = execute.run_on(session, experiment)
        assert [each.broken for each in result.happenings] == [[link], []]
        # A tenth of a second after it is mended, the link looks lossy: most of the ten latest probes were lost.
        assert [each.localised for each in result.happenings] == [[link], []]
    finally:
        session.close()


def test_without_time_for_new_probes_what_they_name_is_said_to_be_of_the_past() -> None:
    link, experiment = flap(0.2, 1.1, Expectation())
    session = VirtualSession(load_lab("tiny"))
    try:
        result = execute.run_on(session, experiment)
    finally:
        session.close()
    fail, restore = result.happenings
    assert [each.localised for each in (fail, restore)] == [[link], [link]]
    assert [result.past_findings(each) for each in (fail, restore)] == [[], [link]]
    told = [each.text for each in history(result, session.topology) if each.what is What.DETECTED]
    assert told == [
        f"h3 notices it first, 6.9 ms after its injection; probes of the hosts name {link} before the next action",
        f"{link}: healthy again; the hosts' latest probes were still of before",
    ]
    judged = verdict.judge(result, session.topology, Expectation(localised=True))
    assert f"{link} (probes of before)" in [check.measured for check in judged.checks if not check.passed]


def test_a_busy_machine_does_not_shorten_a_failure() -> None:
    class Slow(VirtualSession):
        stalled = False

        def advance(self, seconds: float) -> None:
            # Once, when the first step is nearly due, nobody gets a turn for three seconds.
            if self.now_ns() > 0.15e9 and not self.stalled:
                self.stalled, seconds = True, 3.0
            super().advance(seconds)

    link, experiment = flap(0.3, 0.9, Expectation())
    session = Slow(load_lab("tiny"))
    try:
        result = execute.run_on(session, experiment)
    finally:
        session.close()
    down, up = (each.at_ns for each in result.happenings)
    assert down - result.started_ns > 3e9
    assert 0.6e9 <= up - down < 0.7e9
    assert result.happenings[0].localised == [link]


def test_experiment_in_the_manual_can_be_loaded_and_checked(tmp_path: pathlib.Path) -> None:
    block = MANUAL.split("## Experiments")[1].split("    name: ", 1)[1].split("\n\n")[0]
    path = tmp_path / "experiment.yaml"
    path.write_text("name: " + re.sub(r"^    ", "", block, flags=re.M))
    experiment = load_experiment(str(path))
    precheck.check(experiment, load_lab(experiment.lab))
    assert len(experiment.actions()) == 2 + 2 * 3


def test_manual_names_every_key_kind_and_workload() -> None:
    named = [*KINDS, *IMPAIRMENTS, *WORKLOADS]
    for model in (Workload, ExperimentStep, Expectation):
        named += list(model.model_fields)
    missing = [word for word in named if f"`{word}" not in MANUAL and f"{word}:" not in MANUAL]
    assert not missing


@pytest.mark.parametrize(("given", "seconds"), [("800ms", 0.8), ("2s", 2.0), (3, 3.0), ("1.5", 1.5)])
def test_times_of_an_experiment_have_units(given: object, seconds: float) -> None:
    step = {"at": given, "fail": "h0:0", "evidence": {"dropped": 1}}
    made = Experiment.model_validate(
        {"name": "a", "title": "a", "workload": {"name": "write_bw", "duration": given}, "schedule": [step]}
    )
    assert made.workload.duration == made.schedule[0].at == seconds


@pytest.mark.parametrize("given", ["3 apples", [1], True, "nan"])
def test_what_is_not_a_time_is_refused(given: object) -> None:
    with pytest.raises(ValidationError, match=r"limit"):
        Workload.model_validate({"name": "write_bw", "limit": given})
