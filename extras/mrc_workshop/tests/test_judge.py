"""What a check makes of an exercise and of a learner's files, and how it judges what a confined process left.

The process itself is replaced: it leaves the facts that a test wants.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import yaml

from mrc_topo.base.files import WriteError
from mrc_topo.shipped import shipped
from mrc_workshop import confine, exercise, judge, keep
from mrc_workshop.confine import ConfinedOutcome
from mrc_workshop.exercise import CodeLimits, Exercise, NotGraded, WorkshopError
from mrc_workshop.job import CheckJob, Facts, Run, RunFacts, RunOrder
from mrc_workshop.judge import CheckLine, Report, SubmissionError, stretched
from mrc_workshop.kinds import registry
from mrc_workshop.kinds.registry import Finding, NoParams
from mrc_workshop.trace import CaptureError

TEXTS = {"lab.yaml": (shipped("workshop") / "TEMPLATE" / "starter" / "lab.yaml").read_text()}
CHECKS: list[dict[str, Any]] = [{"kind": "planted", "statement": "the first", "hint": "look at it"}]


class Params(NoParams):
    """What the planted check is to find."""

    passed: bool = True
    score: float | None = None
    raises: str = ""


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> list[list[Run]]:
    """Return a kind of check that finds what its parameters say, and the runs that each call got."""
    seen: list[list[Run]] = []
    errors = {"ValueError": ValueError, "KeyError": KeyError, "CaptureError": CaptureError, "OSError": OSError}

    def find(params: Params, runs: Sequence[Run]) -> Finding:
        seen.append(list(runs))
        if params.raises:
            raise errors[params.raises]("odd")
        run = runs[0] if runs else None
        return Finding(params.passed, "measured", "" if params.passed else "a mistake", run=run, score=params.score)

    monkeypatch.setitem(registry.KINDS, "planted", registry.CheckKind("planted", find, Params, ""))
    return seen


def made(folder: pathlib.Path, texts: dict[str, str] | None = None, **changes: Any) -> Exercise:
    """Return an exercise like the template, with other keys; `texts`: the learner's files and the starter's."""
    target = folder / "42-made"
    shutil.copytree(shipped("workshop") / "TEMPLATE", target)
    document = yaml.safe_load((target / "exercise.yaml").read_text())
    run, *more = changes.pop("runs", [{}])
    document["runs"] = [{**document["runs"][0], **run}, *more]
    document |= {"checks": CHECKS, **changes}
    for part in ("starter", "solution"):
        for name, text in (texts or {}).items():
            (target / part / name).write_text(text)
    (target / "exercise.yaml").write_text(yaml.safe_dump(document))
    return exercise.load(target)


def orders(
    made: Exercise, sources: dict[str, str] | None = None, more: Sequence[int] = (), quick: bool = False
) -> list[RunOrder]:
    """Return the runs that a check asks for."""
    return judge._orders(made, sources or TEXTS, more, quick)


def ran(job: CheckJob, **changes: Any) -> Facts:
    """Return the facts of a process that did all that it was told, but for `changes` in its first run."""
    runs = [RunFacts(name=each.name, seed=each.seed, hidden=each.hidden) for each in job.orders]
    return Facts(runs=[runs[0].model_copy(update=changes), *runs[1:]])


def checked(
    made: Exercise,
    monkeypatch: pytest.MonkeyPatch,
    leave: Callable[[CheckJob], ConfinedOutcome] = lambda job: ConfinedOutcome(
        ran(job), "", "printed\n", 1.5, {"network": True}
    ),
    **options: Any,
) -> tuple[Report, list[tuple[Any, ...]]]:
    """Return the outcome of a check whose process is replaced, and what it was called with."""
    calls: list[tuple[Any, ...]] = []

    def run(job: CheckJob, *arguments: Any) -> ConfinedOutcome:
        calls.append((job, *arguments))
        return leave(job)

    monkeypatch.setattr(confine, "run", run)
    return judge.check(made, made.starter, **options), calls


# -- reports ----------------------------------------------------------------------------------------------------


def test_report_passes_only_when_every_line_passes() -> None:
    good, bad, unknown = CheckLine("good", True), CheckLine("bad", False, "3", "a mistake"), CheckLine("unknown", None)
    assert Report("e", [good, good]).passed
    assert not Report("e", []).passed
    assert not Report("e", [good, unknown]).passed
    assert Report("e", [good, unknown, bad]).first_failure is bad
    assert Report("e", [good, unknown]).first_failure is None
    assert Report("e", [good, bad]).reason == "a mistake"
    assert Report("e", [CheckLine("bad", False, "3")]).reason == "bad: 3"
    assert Report("e", [good]).reason == ""


def test_documents_hold_everything_but_packets() -> None:
    line = CheckLine("w", False, "m", "x", ("e",), "where", "hint", (), {"a": 1})
    row = {"what": "w", "passed": False, "measured": "m", "mistake": "x", "evidence": ("e",), "where": "where"}
    row |= {"hint": "hint", "details": {"a": 1}, "given": False}
    assert line.document() == row
    report = Report("e", [line], "out", 2.5, 9.0, {"network": True}, ["f"])
    assert report.document() == {
        "exercise": "e",
        "passed": False,
        "reason": "x",
        "score": 2.5,
        "checks": [row],
        "output": "out",
        "isolation": {"network": True},
        "files": ["f"],
    }
    assert (Report("e", []).score, Report("e", []).spent_s, Report("e", []).files) == (None, 0.0, [])


# -- the learner's files -------------------------------------------------------------------------------------------


def test_files_are_read_as_text(tmp_path: pathlib.Path) -> None:
    assert judge.read_sources(made(tmp_path), tmp_path / "42-made" / "starter") == TEXTS


def test_missing_folder_names_the_command_that_makes_one(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SubmissionError, match="no such folder; `mrclab workshop start 42` makes one"):
        judge.read_sources(made(tmp_path), tmp_path / "nowhere")


def test_every_wrong_file_is_named(tmp_path: pathlib.Path) -> None:
    exercise_ = made(tmp_path, {"a.py": "", "b.py": "", "c.py": ""}, edit=["lab.yaml", "a.py", "b.py", "c.py"])
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "a.py").symlink_to("/etc/passwd")
    (folder / "b.py").mkdir()
    (folder / "c.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SubmissionError) as error:
        judge.read_sources(exercise_, folder)
    lines = str(error.value).splitlines()
    assert lines[0] == f"{folder}/lab.yaml: is missing; `mrclab workshop reset 42` brings the starter back"
    assert lines[1:3] == [f"{folder}/a.py: is not a plain file", f"{folder}/b.py: is not a plain file"]
    assert lines[3].startswith(f"{folder}/c.py")
    assert len(lines) == 4


# -- what is run ---------------------------------------------------------------------------------------------------

SECOND = {"name": "second", "hidden": True, "workload": {"name": "write_bw"}}


def test_visible_seeds_leave_hidden_runs_out_and_hidden_seeds_do_not(tmp_path: pathlib.Path) -> None:
    exercise_ = made(tmp_path, runs=[{}, SECOND], seeds={"visible": [1, 2], "hidden": [7]})
    found = orders(exercise_, more=[9])
    assert [(each.name, each.seed, each.hidden) for each in found] == [
        ("incast", 1, False),
        ("incast", 2, False),
        ("incast", 7, True),
        ("second", 7, True),
        ("incast", stretched(9), True),
        ("second", stretched(9), True),
    ]
    assert [each.report for each in found] == [True, False, False, False, False, False]
    assert [(each.name, each.seed) for each in orders(exercise_, more=[9], quick=True)] == [("incast", 1)]


def test_order_carries_what_the_run_says(tmp_path: pathlib.Path) -> None:
    run = {"transport": "roce", "capture": "all", "snaplen": 96, "program": "mine.p4"}
    exercise_ = made(tmp_path, {"mine.p4": ""}, runs=[run], edit=["lab.yaml", "mine.p4"])
    (order, *_) = orders(exercise_, {**TEXTS, "mine.p4": ""})
    assert (order.transport, order.capture, order.snaplen, order.program) == ("roce", "all", 96, "mine.p4")
    assert order.inject is None
    assert order.experiment is not None
    assert order.experiment["transport"] == "roce"
    assert order.experiment["workload"]["name"] == "incast"
    lab = yaml.safe_load(order.lab)
    assert (lab["seed"], lab["program"], lab["name"]) == (1, "mine.p4", "template")


def test_injected_run_has_no_experiment_and_no_report(tmp_path: pathlib.Path) -> None:
    (order, *_) = orders(made(tmp_path, runs=[{"workload": None, "inject": {"what": "usid_paths"}}]))
    assert (order.inject, order.experiment, order.report) == ("usid_paths", None, False)


def refused(exercise_: Exercise, sources: dict[str, str]) -> CheckLine:
    """Return the line with which a learner's document is refused."""
    with pytest.raises(judge._Refused) as error:
        orders(exercise_, sources)
    assert error.value.line.passed is False
    return error.value.line


def changed(**keys: Any) -> dict[str, str]:
    """Return the learner's lab with other keys."""
    return {"lab.yaml": yaml.safe_dump({**yaml.safe_load(TEXTS["lab.yaml"]), **keys})}


def test_lab_may_differ_only_in_the_keys_of_the_exercise(tmp_path: pathlib.Path) -> None:
    exercise_ = made(tmp_path)
    (order, *_) = orders(exercise_, changed(queues={"limit": "16KiB", "ecn": None, "trim": None}))
    assert yaml.safe_load(order.lab)["queues"]["limit"] == "16KiB"
    line = refused(exercise_, changed(hosts=3, path_mtu=4096, description="x"))
    assert line.what == "lab.yaml is a lab file"
    assert line.mistake == (
        "lab.yaml: description, hosts, path_mtu: is not yours to change in this exercise; yours: queues"
    )
    shutil.rmtree(tmp_path / "42-made")
    line = refused(made(tmp_path, runs=[{"may_change": []}]), changed(seed=5))
    assert line.mistake == "lab.yaml: seed: is not yours to change in this exercise; yours: nothing"


def test_broken_lab_is_refused_by_its_first_problem(tmp_path: pathlib.Path) -> None:
    line = refused(made(tmp_path), changed(planes=0, hosts=-1))
    assert (line.what, "planes" in line.mistake) == ("lab.yaml is a lab file", True)


def test_changes_of_the_run_go_into_the_lab_at_any_depth(tmp_path: pathlib.Path) -> None:
    run = {"changes": {"queues": {"limit": "32KiB"}, "path_mtu": 4096, "cc": {"algorithm": "fixed"}}}
    (order, *_) = orders(made(tmp_path, runs=[run]))
    lab = yaml.safe_load(order.lab)
    assert (lab["queues"], lab["path_mtu"]) == ({"limit": "32KiB", "ecn": None, "trim": None}, 4096)
    assert lab["cc"] == {"algorithm": "fixed"}


def test_lab_beside_the_exercise_comes_before_one_of_the_project(tmp_path: pathlib.Path) -> None:
    target = made(tmp_path, {"mine.txt": ""}, runs=[{"lab": "tiny"}], edit=["mine.txt"])
    assert yaml.safe_load(orders(target, {"mine.txt": ""})[0].lab)["name"] == "tiny"
    (target.folder / "own.yaml").write_text(TEXTS["lab.yaml"])
    run = target.content.runs[0].model_copy(update={"lab": "own.yaml"})
    target.content.runs[0] = run
    assert yaml.safe_load(orders(target, {"mine.txt": ""})[0].lab)["name"] == "template"


def test_policies_of_the_run_join_those_of_the_lab(tmp_path: pathlib.Path) -> None:
    run = {"policies": {"ev": "mine:Ev"}, "changes": {"policies": {"loss": "mine:Loss", "ev": "mine:Old"}}}
    exercise_ = made(tmp_path, {"mine.py": ""}, runs=[run], edit=["lab.yaml", "mine.py"])
    (order, *_) = orders(exercise_, {**TEXTS, "mine.py": ""})
    assert yaml.safe_load(order.lab)["policies"] == {"loss": "mine:Loss", "ev": "mine:Ev"}


def test_lab_of_a_secret_hidden_seed_gets_a_seed_too_long_to_guess(tmp_path: pathlib.Path) -> None:
    exercise_ = made(tmp_path, runs=[{}], seeds={"visible": [1], "hidden": [7]})
    first, public, secret = [yaml.safe_load(each.lab)["seed"] for each in orders(exercise_, more=[123456789])]
    assert (first, public) == (1, 7), "the seeds of an exercise are in every checkout"
    assert secret == 0x11E6C7E63B74F7F6
    assert stretched(123456789) != stretched(123456790)


def test_bad_links_are_drawn_from_the_seed(tmp_path: pathlib.Path) -> None:
    run = {"random_links": [{"loss": [0.1, 0.2]}]}
    exercise_ = made(tmp_path, runs=[run], seeds={"visible": [1, 2], "hidden": [1]})
    drawn = [yaml.safe_load(each.lab)["overrides"] for each in orders(exercise_)]
    assert drawn[0] == drawn[2] != drawn[1]
    ((link, values),) = drawn[0].items()
    assert "--" in link
    assert 0.1 <= values["loss"] <= 0.2


def test_exercise_that_cannot_be_run_is_the_teachers_error(tmp_path: pathlib.Path) -> None:
    exercise_ = made(tmp_path, runs=[{"random_links": [{"loss": [0.1, 0.2]}] * 20}])
    with pytest.raises(WorkshopError, match=r"42-made/exercise.yaml: run 'incast': lab 'template' has 8 links"):
        orders(exercise_)


EXPERIMENT = """
name: mine
title: Mine
lab: large
clock: real
policies: {ev: "evil:Evil"}
workload: {name: write_bw, duration: 0.2}
schedule: [{at: 0.1, fail: "h0:0", kind: link_down, evidence: {carried: 0.5}}]
expect: {timeouts: 3}
"""


def test_learners_experiment_chooses_workload_schedule_and_expectations_only(tmp_path: pathlib.Path) -> None:
    run = {"workload": None, "experiment": "mine.yaml", "transport": "roce"}
    exercise_ = made(tmp_path, {"mine.yaml": EXPERIMENT}, runs=[run], edit=["lab.yaml", "mine.yaml"])
    sources = {**TEXTS, "mine.yaml": EXPERIMENT}
    found = orders(exercise_, sources)[0].experiment
    assert found is not None
    assert (found["title"], found["workload"]["name"], found["expect"]["timeouts"]) == ("Mine", "write_bw", 3)
    assert [each["at"] for each in found["schedule"]] == [0.1]
    assert (found["transport"], found["name"]) == ("roce", "incast")
    assert not {"lab", "clock", "policies"} & set(found)
    line = refused(exercise_, {**TEXTS, "mine.yaml": "title: [\n"})
    assert line.what == "mine.yaml is an experiment"
    assert "\n" not in line.mistake


def test_drawn_failures_join_the_schedule_in_the_order_of_time(tmp_path: pathlib.Path) -> None:
    step = {"at": 0.7, "fail": "h0:0", "kind": "link_down", "evidence": {"carried": 0.5}}
    run = {"schedule": [step], "random_failures": {"count": 2, "first": 0.5, "every": 1.0, "kinds": ["t1"]}}
    found = orders(made(tmp_path, runs=[run]))[0].experiment
    assert found is not None
    assert [each["at"] for each in found["schedule"]] == [0.5, 0.7, 1.0, 1.5, 2.0]
    assert [each.get("kind") for each in found["schedule"]] == ["freeze", "link_down", None, "freeze", None]


# -- the judgement -------------------------------------------------------------------------------------------------


def test_passing_check_tells_what_was_measured(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, planted: list[list[Run]]
) -> None:
    told: list[object] = []
    report, _ = checked(made(tmp_path), monkeypatch, judged=told.append)
    assert report.lines == [CheckLine("the first", True, "measured", where="incast, seed 1")]
    assert (report.output, report.spent_s, report.isolation) == ("printed\n", 1.5, {"network": True})
    assert (report.exercise, report.files, told) == ("42-made", [], report.lines)
    assert [[run.facts.seed for run in each] for each in planted] == [[1, 7]]


def test_check_tells_each_run_when_it_begins_and_each_line_when_it_is_judged(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, planted: list[list[Run]]
) -> None:
    """A learner waits seconds for a run. Each check is printed as soon as its result is known, and only once."""
    made_, told = made(tmp_path, checks=CHECKS * 2), list[str]()
    asked: list[RunOrder] = []

    def run(job: CheckJob, scratch: confine.Scratch, *given: Any) -> ConfinedOutcome:
        look, names = given[-1], [each.name for each in job.orders]
        asked.extend(job.orders)
        look(0.0)
        for number, name in enumerate(names):
            (scratch.out / f"{number:02d}-{name}").mkdir(parents=True)
            look(0.0)
            look(0.0)
        assert told == [f"run {number} of {len(names)}: {name}" for number, name in enumerate(names, 1)]
        return ConfinedOutcome(ran(job), "", "", 1.0, {})

    monkeypatch.setattr(confine, "run", run)
    report = judge.check(made_, made_.starter, progress=told.append, judged=lambda line: told.append(line.what))
    assert len(asked) == 2
    assert told[2:] == [each.what for each in report.lines]
    assert len(report.lines) == 2


def test_failing_check_shows_its_hint_and_where(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [
        {**CHECKS[0], "params": {"passed": False}},
        {"kind": "planted", "statement": "2", "params": {"passed": False}},
    ]
    report, _ = checked(made(tmp_path, checks=checks), monkeypatch)
    assert report.lines[0] == CheckLine(
        "the first", False, "measured", "a mistake", where="incast, seed 1", hint="look at it"
    )
    assert report.lines[1].hint == ""


def test_check_gets_the_runs_that_it_names(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, planted: list[list[Run]]
) -> None:
    checks = [{**CHECKS[0], "runs": ["second"]}, *CHECKS]
    checked(made(tmp_path, runs=[{}, SECOND], checks=checks), monkeypatch)
    names = [[(run.facts.name, run.facts.seed) for run in each] for each in planted]
    assert names == [[("second", 7)], [("incast", 1), ("incast", 7), ("second", 7)]]


def test_report_takes_the_first_score_of_its_checks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [{**CHECKS[0], "params": {"score": score}} for score in (None, 0.0, 3.0)]
    report, _ = checked(made(tmp_path, checks=checks), monkeypatch)
    assert report.score == 0.0


@pytest.mark.parametrize("error", ["ValueError", "KeyError", "CaptureError"])
def test_facts_that_cannot_be_judged_fail(error: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = checked(made(tmp_path, checks=[{**CHECKS[0], "params": {"raises": error}}]), monkeypatch)
    (line,) = report.lines
    assert line.passed is False
    assert line.mistake.startswith(f"what was recorded cannot be judged: {error}: ")
    assert line.where == ""


def test_an_error_of_the_machine_is_not_taken_for_the_learners(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="odd"):
        checked(made(tmp_path, checks=[{**CHECKS[0], "params": {"raises": "OSError"}}]), monkeypatch)


def test_ended_process_fails_and_leaves_the_rest_open(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = checked(made(tmp_path), monkeypatch, lambda job: ConfinedOutcome(ran(job), "it took 9 s", "", 1.0))
    assert report.lines == [
        CheckLine("it comes to an end within its limits", False, mistake="it took 9 s"),
        CheckLine("the first", None),
    ]
    assert report.score is None


def fewer(job: CheckJob) -> Facts:
    return Facts(runs=ran(job).runs[:-1])


@pytest.mark.parametrize(
    "facts", [fewer, lambda job: ran(job, seed=99), lambda job: ran(job, name="x"), lambda job: ran(job, hidden=True)]
)
def test_other_facts_than_those_asked_for_fail(
    facts: Callable[[CheckJob], Facts], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, _ = checked(made(tmp_path), monkeypatch, lambda job: ConfinedOutcome(facts(job), "", "", 1.0))
    mistake = "its process left other facts than those asked for"
    assert report.lines == [
        CheckLine("it leaves what was recorded", False, mistake=mistake),
        CheckLine("the first", None),
    ]


@pytest.mark.parametrize(
    ("stage", "what"),
    [
        ("program", "mine.p4 compiles and fits the lab"),
        ("python", "mine.py runs without an exception"),
        ("lab", "the lab can be built"),
        ("run", "the run comes to its end"),
        ("later", "it runs"),
    ],
)
def test_run_that_broke_off_says_where(
    stage: str, what: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exercise_ = made(tmp_path, {"mine.p4": "", "mine.py": ""}, edit=["lab.yaml", "mine.p4", "mine.py"])
    report, _ = checked(
        exercise_, monkeypatch, lambda job: ConfinedOutcome(ran(job, stage=stage, problem="why"), "", "", 1.0)
    )
    assert report.lines == [CheckLine(what, False, mistake="why", where="incast, seed 1"), CheckLine("the first", None)]


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (["mine.p4"], "mine.p4 compiles and fits the lab"),
        (["mine.py"], "mine.py runs without an exception"),
        (["a.p4", "b.p4", "mine.py"], "a.p4, b.p4 compiles and fits the lab"),
    ],
)
def test_code_that_ran_is_a_line_of_its_own(
    files: list[str], what: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exercise_ = made(tmp_path, dict.fromkeys(files, ""), edit=["lab.yaml", *files])
    report, _ = checked(exercise_, monkeypatch)
    assert [(line.what, line.passed) for line in report.lines] == [(what, True), ("the first", True)]


# -- the confined process ------------------------------------------------------------------------------------------


def test_process_sees_neither_the_exercises_nor_what_is_hidden(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    exercise_ = made(tmp_path, limits={"cpu_s": 7})
    _, ((job, scratch, limits, hidden, plays, stopped, _),) = checked(
        exercise_, monkeypatch, hide=[tmp_path / "others"], stop=stop
    )
    assert job.edit == ["lab.yaml"]
    assert limits == CodeLimits(cpu_s=7)
    assert hidden == [shipped("workshop"), exercise_.folder, tmp_path / "others"]
    assert (plays, stopped) == (False, stop)
    assert not scratch.out.exists(), "the folders of a job go with it"


def test_policies_get_a_process_of_their_own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"policies": {"ev": "mine:Ev"}}
    exercise_ = made(tmp_path, {"mine.py": ""}, runs=[run], edit=["lab.yaml", "mine.py"])
    _, ((*_, plays, _, _),) = checked(exercise_, monkeypatch)
    assert plays is True


def test_refused_document_runs_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exercise_ = made(tmp_path)
    (exercise_.starter / "lab.yaml").write_text("planes: nine\n")
    report, calls = checked(exercise_, monkeypatch)
    assert calls == []
    assert [line.what for line in report.lines] == ["lab.yaml is a lab file"]
    assert not report.passed


def test_busy_machine_grades_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = ConfinedOutcome(Facts(), "", "", 1.0, not_graded="the machine is busy")
    with pytest.raises(NotGraded, match="not graded: the machine is busy"):
        checked(made(tmp_path), monkeypatch, lambda job: outcome)


def test_files_are_kept_where_it_is_asked(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = checked(made(tmp_path), monkeypatch, keep_in=tmp_path / "kept")
    assert report.files == [str(tmp_path / "kept" / keep.PAGE)]
    assert (tmp_path / "kept" / keep.PAGE).is_file()
    assert (report.output, report.spent_s, report.isolation) == ("printed\n", 1.5, {"network": True})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user, as whom only root can act")
def test_what_a_check_keeps_is_not_written_through_a_learners_link(tmp_path: pathlib.Path) -> None:
    ours, folder = tmp_path / "ours", tmp_path / "check"
    ours.mkdir()
    (ours / keep.PAGE).write_text("before")
    folder.symlink_to(ours)
    os.chown(folder, 65534, 65534, follow_symlinks=False)
    with pytest.raises(WriteError, match="is a link of user 65534's"):
        keep.keep({}, exercise.find("05"), [], tmp_path, folder)
    assert [(path.name, path.read_text()) for path in ours.iterdir()] == [(keep.PAGE, "before")]
