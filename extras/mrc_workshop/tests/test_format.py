"""The format of exercises: what a file may say, the learner's folders, captures, and the verbs that run nothing."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo.labfile import load_lab
from mrc_topo.schema import Lab
from mrc_topo.shipped import shipped
from mrc_topo.units import parse_rate_bps, parse_time_ns
from mrc_workshop import confine, exercise, inject, judge, keep, learner, trace, verify
from mrc_workshop.drawn import RandomFailures, RandomLink, overrides
from mrc_workshop.exercise import WorkshopError
from mrc_workshop.job import CheckJob
from mrc_workshop.trace import CapturedPacket
from mrclab.runs.experiment import ExperimentError
from support.mrclab import within

TEMPLATE = shipped("workshop") / "TEMPLATE"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a copy of the template, as an exercise of its own."""
    made = tmp_path / "42-mine"
    shutil.copytree(TEMPLATE, made)
    return made


def change(folder: pathlib.Path, **keys: Any) -> None:
    path = folder / "exercise.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | keys))


def test_exercises_that_come_with_mrclab_are_sound() -> None:
    assert {1, 2} <= set(exercise.known())
    for number, folder in exercise.known().items():
        found = exercise.load(folder)
        assert found.number == number
        assert len(verify.load(found).wrong) >= 3
        assert set(found.content.edit) <= {path.name for path in found.starter.iterdir()}


RUN = {"name": "one", "lab": "lab.yaml", "workload": {"name": "incast"}}
CHECK = {"kind": "finished", "statement": "it ends"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"minuts": 3}, "minuts: unknown key; did you mean 'minutes'?"),
        ({"minutes": 1}, "minutes: input should be greater than or equal to 5"),
        ({"edit": ["../lab.yaml"]}, "not a plain file name"),
        ({"edit": ["lab.yaml", "more.py"]}, "starter/more.py: is missing; `edit` of exercise.yaml names it"),
        ({"runs": [RUN, RUN]}, "two runs are called 'one'"),
        ({"runs": [RUN | {"workload": None}]}, "exactly one of workload, experiment and inject"),
        ({"runs": [RUN | {"workload": {"name": "incats"}}]}, "no workload 'incats'"),
        ({"runs": [RUN | {"lab": "other.yaml"}]}, "runs.0.lab: no file 'other.yaml' beside it or among `edit`"),
        ({"runs": [RUN | {"program": "x.p4"}]}, "program 'x.p4' is not one of the files to edit"),
        (
            {"runs": [RUN | {"policies": {"ev": "mine:Spray"}}]},
            "policy ev 'mine:Spray' is in none of the files to edit",
        ),
        (
            {"checks": [CHECK | {"kind": "finishd"}]},
            "checks.0: kind: no kind of check 'finishd'; did you mean 'finished'",
        ),
        ({"checks": [CHECK | {"runs": ["two"]}]}, "check 'finished': no run 'two'; there are: incast"),
        (
            {"checks": [{"kind": "counters", "statement": "x", "params": {"lest": {}}}]},
            "params.lest: unknown key; did you mean",
        ),
        ({"runs": [RUN | {"only": ["ev"]}]}, "runs.0.only: was renamed; write 'may_change' instead"),
        ({"runs": [RUN | {"drawn": {}}]}, "runs.0.drawn: was renamed; write 'random_failures' instead"),
        ({"runs": [RUN | {"links": []}]}, "runs.0.links: was renamed; write 'random_links' instead"),
        ({"checks": [CHECK | {"says": "x"}]}, "checks.0.says: was renamed; write 'statement' instead"),
        ({"hints": []}, "hints"),
    ],
)
def test_what_is_wrong_with_an_exercise_is_told_with_its_place(
    folder: pathlib.Path, keys: dict[str, Any], said: str
) -> None:
    change(folder, **keys)
    with pytest.raises((ExperimentError, WorkshopError)) as error:
        exercise.load(folder)
    assert said in str(error.value)
    assert str(error.value).startswith(str(folder))


def test_a_wrong_answer_must_differ_from_the_solution(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    one = exercise.load(folder)
    wrong = verify.load(one).wrong[0]
    away = wrong.model_copy(update={"replace": [wrong.replace[0].model_copy(update={"old": "not there"})]})
    with pytest.raises(WorkshopError, match=r"wrong.yaml: nothing-is-trimmed: this is in lab.yaml 0 times, not once"):
        verify.write_wrong(one, away, tmp_path)


def test_a_learners_files_must_be_files(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    one, mine = exercise.load(folder), tmp_path / "mine"
    mine.mkdir()
    with pytest.raises(judge.SubmissionError, match=r"lab.yaml: is missing; `mrclab workshop reset 42`"):
        judge.check(one, mine)
    (mine / "lab.yaml").symlink_to("/etc/passwd")
    with pytest.raises(judge.SubmissionError, match=r"lab.yaml: is not a plain file"):
        judge.check(one, mine)


def test_a_lab_that_cannot_be_is_a_failed_check_with_its_line(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    one, mine = exercise.load(folder), tmp_path / "mine"
    mine.mkdir()
    (mine / "lab.yaml").write_text((one.solution / "lab.yaml").read_text() + "plans: 3\n")
    report = judge.check(one, mine)
    assert not report.passed
    assert report.reason.startswith("lab.yaml:16: plans: unknown key; did you mean 'planes'?")


def test_folders_of_a_learner(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    one, mine, progress = exercise.load(folder), tmp_path / "mine", learner.Progress(tmp_path / "state.json")
    learner.copy_exercise(one, mine, one.starter)
    assert (mine / "README.md").is_file()
    with pytest.raises(WorkshopError, match="is not empty"):
        learner.copy_exercise(one, mine, one.starter)
    (mine / "lab.yaml").write_text("name: mine\n")
    assert learner.reset(one, mine) == ["lab.yaml"]
    assert (mine / "lab.yaml").read_text() == (one.starter / "lab.yaml").read_text()
    assert (mine / "lab.yaml.mine").read_text() == "name: mine\n"
    progress.note(one.name, hints=2, passed=True)
    assert learner.Progress(tmp_path / "state.json").of(one.name).hints == 2
    (tmp_path / "state.json").write_text("[1]")
    with pytest.raises(WorkshopError, match="cannot be read"):
        learner.Progress(tmp_path / "state.json")


@pytest.mark.parametrize("number", exercise.known())
def test_links_of_the_readme_lead_somewhere_from_the_learners_folder(number: int, tmp_path: pathlib.Path) -> None:
    one = exercise.find(str(number))
    learner.copy_exercise(one, tmp_path / "a" / "mine", one.starter)
    text = (tmp_path / "a" / "mine" / "README.md").read_text()
    links = re.findall(r"\]\(([^)#\s]+)", text)
    assert links
    assert [link for link in links if not (tmp_path / "a" / "mine" / link).exists()] == []


def test_a_plan_is_the_same_whenever_it_is_made() -> None:
    topology = load_lab("tiny")
    assert inject.usid_paths(topology, 3) == inject.usid_paths(load_lab("tiny"), 3)
    assert inject.usid_paths(topology, 3) != inject.usid_paths(topology, 4)
    hosts = {hop.switch for packet in inject.usid_paths(topology, 3) for hop in packet.hops}
    assert hosts == {switch.name for switch in topology.switches}


PACKETS = st.lists(
    st.builds(
        CapturedPacket,
        t_ns=st.integers(0, 2**63),
        switch=st.just("p0-t0.0"),
        port=st.just(1),
        out=st.booleans(),
        data=st.binary(min_size=1, max_size=200),
        length=st.integers(200, 9000),
    ),
    max_size=8,
)


@given(packets=PACKETS)
def test_what_is_written_is_read_and_decoded(
    packets: list[CapturedPacket], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("captures")
    topology = load_lab("tiny")
    trace.write(folder / "p0-t0.0_1.pcapng", packets)
    found = trace.read_folder(folder, topology)
    assert found == sorted(packets, key=lambda seen: (seen.t_ns, seen.out))
    for seen in found:
        assert trace.line(topology, seen)


def test_a_page_cannot_be_written_by_what_is_on_it(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    line = judge.CheckLine("it <b>ends</b>", False, mistake="<script>alert(1)</script>", evidence=("<img>",))
    keep.keep({}, exercise.load(folder), [line], tmp_path, tmp_path / "check")
    page = (tmp_path / "check" / "check.html").read_text()
    assert "<script" not in page
    assert "<img" not in page


def workshop(tmp_path: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    return within("workshop", *words, cwd=tmp_path, HOME=str(tmp_path), MRCLAB_WORKSHOP=str(tmp_path / "state.json"))


def test_verbs_and_their_exit_codes(tmp_path: pathlib.Path) -> None:
    listed = json.loads(workshop(tmp_path, "list", "--json").stdout)
    assert [each["number"] for each in listed] == list(exercise.known())
    assert workshop(tmp_path, "start", "1").returncode == 0
    again = workshop(tmp_path, "start", "1")
    assert (again.returncode, again.stdout) == (2, "")
    assert "01-usid: is not empty" in again.stderr
    assert workshop(tmp_path, "hint", "1").stdout.startswith("Hint 1 of 3: ")
    assert workshop(tmp_path, "hint", "1").stdout.startswith("Hint 2 of 3: ")
    assert "01-usid" in workshop(tmp_path, "progress").stdout
    for words, said in (
        (("check", "77"), "77: no exercise of that name; known: 01-usid"),
        (("check",), "no exercise here"),
        (("check", "2"), "exercise 2 was not started; `mrclab workshop start 2`"),
        (("check", "1", "nowhere"), "nowhere: no such folder"),
        (("new", "mine"), "an exercise's folder is named like 12-ecn"),
    ):
        done = workshop(tmp_path, *words)
        assert done.returncode == 2, words
        assert said in done.stderr


@pytest.mark.slow
def test_the_template_is_an_exercise(folder: pathlib.Path) -> None:
    assert [trial.text() for trial in verify.trials(exercise.load(folder)) if not trial.holds] == []


def test_of_a_learners_experiment_only_workload_schedule_and_expectation_count(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot name another lab, or classes from anywhere, which the simulation would import."""
    one = exercise.find("10")
    shutil.copytree(one.solution, tmp_path / "mine")
    path = tmp_path / "mine" / "lossy.yaml"
    path.write_text(path.read_text() + "policies: {ev: evil.py:Evil}\nswitch: bmv2\ntransport: roce\n")
    jobs: list[CheckJob] = []

    def stopped(job: CheckJob, *given: Any) -> Any:
        jobs.append(job)
        raise WorkshopError("enough")

    monkeypatch.setattr(confine, "run", stopped)
    with pytest.raises(WorkshopError, match="enough"):
        judge.check(one, tmp_path / "mine")
    theirs = [each.experiment for each in jobs[0].orders if each.name.endswith("-lossy")]
    assert len(theirs) == 4
    for each in theirs:
        assert each is not None
        assert each["schedule"][0]["fail"] == "p0-t0.0--p0-t1.0"
        assert not {"policies", "switch", "lab", "compiler", "clock"} & set(each)
    assert [each["transport"] for each in theirs if each] == ["mrc", "roce"] * 2


@given(st.integers(0, 2**31 - 1))
def test_drawn_failures_are_of_the_lab_one_at_a_time_and_spare_the_workload(seed: int) -> None:
    lab = shipped("workshop") / "09-localisation" / "hidden.yaml"
    topology = load_lab(str(lab))
    steps = RandomFailures(count=5, first=0.5, every=1.0).steps(topology, ["h0", "h1"], seed)
    assert steps == RandomFailures(count=5, first=0.5, every=1.0).steps(topology, ["h0", "h1"], seed)
    assert [each.at for each in steps] == [0.5 + number / 2 for number in range(10)]
    fails, restores = [str(each.fail) for each in steps[::2]], [str(each.restore) for each in steps[1::2]]
    assert fails == restores
    for name in fails:
        topology.element(name)
    assert not {"h0:0", "h1:0", "p0-t0.0"} & set(fails)
    kinds = [
        (":" in name and "host") or ("--" in name and "link") or ("-t1" in name and "t1") or "t0" for name in fails
    ]
    assert len(set(kinds[:4])) == 4


def test_seeds_draw_other_failures() -> None:
    topology = load_lab(str(shipped("workshop") / "09-localisation" / "hidden.yaml"))
    drawn = {str(RandomFailures(count=2).steps(topology, ["h0", "h1"], seed)) for seed in range(20)}
    assert len(drawn) > 15
    path = shipped("workshop") / "10-loss-and-pfc" / "path.yaml"
    with pytest.raises(ValueError, match="has no t1 that can be drawn"):
        RandomFailures(count=1, kinds=["t1"]).steps(load_lab(str(path)), ["h0"], 1)


@given(st.integers(0, 2**31 - 1))
def test_drawn_links_are_others_of_the_lab_within_their_ranges(seed: int) -> None:
    topology = load_lab(str(shipped("workshop") / "11-open" / "lab.yaml"))
    wanted = [RandomLink(loss=(0.03, 0.08)), RandomLink(rate_mbps=(1.5, 4), delay_ms=(2, 2))]
    lossy, slow = overrides(wanted, topology, seed).items()
    assert lossy[0] != slow[0]
    assert not any(topology.element(name).is_host_link for name, _ in (lossy, slow))
    assert list(lossy[1]) == ["loss"]
    assert 0.03 <= float(lossy[1]["loss"]) <= 0.08
    assert 1_500_000 <= parse_rate_bps(slow[1]["rate"]) <= 4_000_000
    assert parse_time_ns(slow[1]["delay"]) == 2_000_000
    changed = topology.lab.model_dump(mode="json") | {"overrides": overrides(wanted, topology, seed)}
    assert Lab.model_validate(changed).overrides.keys() == {lossy[0], slow[0]}


def test_the_seeds_draw_the_hidden_scenarios_of_the_open_exercise(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = []

    def stopped(job: CheckJob, *given: Any) -> Any:
        jobs.append(job)
        raise WorkshopError("enough")

    monkeypatch.setattr(confine, "run", stopped)
    one = exercise.load(shipped("workshop") / "11-open")
    seeds = range(100, 108)
    secret = [judge.stretched(seed) for seed in seeds]
    with pytest.raises(WorkshopError, match="enough"):
        judge.check(one, one.starter, seeds=seeds)
    for name in ("hidden-lossy-link", "hidden-dead-link", "hidden-slow-link"):
        orders = [order for order in jobs[0].orders if order.name == name and order.seed in secret]
        drawn = {
            (str(yaml.safe_load(order.lab).get("overrides")), str((order.experiment or {})["schedule"]))
            for order in orders
        }
        assert len(orders) == len(seeds)
        assert len(drawn) > 3, name


@pytest.mark.parametrize(
    ("given", "said"),
    [({}, "give one"), ({"loss": [0.2, 0.1]}, "the lower one comes first"), ({"loss": [-1, 0]}, "loss")],
)
def test_a_link_that_nothing_is_drawn_for_is_told(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RandomLink.model_validate(given)


def test_more_bad_links_than_there_are_is_told(folder: pathlib.Path) -> None:
    change(folder, runs=[RUN | {"random_links": [{"loss": [0.1, 0.2]}] * 20}], checks=[CHECK])
    one = exercise.load(folder)
    with pytest.raises(WorkshopError, match=r"exercise.yaml: run 'one': lab '.*' has \d+ links between switches"):
        judge.check(one, one.starter)
