"""Options that verbs share: quantities with units, `-v` and `-q`, `list`, `logs`, and offers to install packages."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import pty
import subprocess
import sys

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo.base.errors import UsageError
from mrclab.cli import app as cli
from mrclab.cli import errors, logs, progress
from mrclab.cli.common import parse_mbps, parse_seconds, parse_setting
from mrclab.cli.listed import ListedKind
from mrclab.cli.logs import LogFile
from mrclab.cli.progress import Verbosity
from mrclab.cli.run import lasting
from mrclab.lab.faults.action import FailureError
from mrclab.lab.records.record import GrowingFile, LabRecord, LabState
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.runs import compare
from mrclab.runs.experiment import ExperimentError, load_experiment
from support.mrclab import within

COMMAND = [sys.executable, "-c", "from mrclab.cli.app import main; main()"]


def mrclab(*words: str) -> subprocess.CompletedProcess[str]:
    return within(*words)


@pytest.mark.parametrize(
    ("text", "seconds"), [("2s", 2.0), ("500ms", 0.5), ("1.5", 1.5), ("20us", 2e-5), ("0", 0.0), (3.0, 3.0)]
)
def test_times(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["2x", "", "s", "20Mbps", "1 2", "2s\x1b"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time; write one such as 2s or 500ms"):
        parse_seconds(text)


@pytest.mark.parametrize(("text", "rate"), [("20Mbps", 20), ("20", 20), ("1Gbps", 1000), (7, 7)])
def test_rates(text: str | int, rate: int) -> None:
    assert parse_mbps(text) == rate


@pytest.mark.parametrize("text", ["2s", "0", "1.5Mbps", "2Gbps", "-3", "x", "9" * 400])
def test_what_is_no_rate_of_the_demonstration(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_mbps(text)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("rate_bps=20Mbps", ("rate_bps", 20_000_000)),
        ("rate=20Mbps", ("rate_bps", 20_000_000)),
        ("delay=2ms", ("delay_ns", 2_000_000)),
        ("size_bytes=64KiB", ("size_bytes", 65536)),
        ("loss=20%", ("loss", 0.2)),
        ("loss=0.2", ("loss", 0.2)),
        ("iterations=3", ("iterations", 3)),
    ],
)
def test_settings_with_units(text: str, setting: tuple[str, float]) -> None:
    assert parse_setting(text) == setting


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rate_bps=2ms", "takes a rate such as 20Mbps"),
        ("delay_ns=20Mbps", "takes a time such as 2ms"),
        ("size_bytes=2s", "takes a size such as 64KiB"),
        ("delay_ns=1.5ns", "not a whole number of ns"),
        ("loss=x%", "must be a finite number"),
        ("loss=inf", "must be a finite number"),
    ],
)
def test_settings_whose_unit_does_not_fit(text: str, told: str) -> None:
    with pytest.raises(FailureError, match=told):
        parse_setting(text)


@given(st.text(max_size=60))
def test_any_text_is_a_setting_or_an_error_of_one_line(text: str) -> None:
    told = ""
    try:
        parse_setting(text)
    except FailureError as error:
        told = str(error)
    assert "\n" not in told


def test_an_experiment_may_last_longer_but_not_shorter_than_its_schedule() -> None:
    experiment = load_experiment("fabric-links")
    last = experiment.actions()[-1][0]
    assert lasting(experiment, last + 1).workload.duration == last + 1
    assert lasting(experiment, last + 1).schedule == experiment.schedule
    with pytest.raises(ExperimentError, match=f"has an action at {last:g} s: give a longer time"):
        lasting(experiment, last)
    with pytest.raises(ExperimentError, match="--duration"):
        lasting(experiment, float("inf"))


def test_a_duration_takes_the_place_of_iterations() -> None:
    comparison = compare.load_comparison("mrc-vs-roce")
    assert "iterations" in comparison.workload.params
    changed = compare.lasting(comparison, 0.5).workload
    assert (changed.duration, "iterations" in changed.params) == (0.5, False)


def test_a_comparison_with_tcp_has_no_duration() -> None:
    with pytest.raises(ExperimentError, match=r"--duration: .*not after a duration"):
        compare.lasting(compare.load_comparison("mrc-vs-tcp"), 1.0)


@pytest.mark.parametrize(
    ("words", "shown", "hidden"),
    [
        (["-v", "compare"], ["s  starting", "s  MRC 1 QP, no loss"], []),
        (["compare"], [], ["s  starting"]),
        (["compare", "-q"], [], ["starting"]),
    ],
)
def test_how_much_is_printed(words: list[str], shown: list[str], hidden: list[str], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "{name: c, title: c, lab: tiny, workload: {name: write_bw, params: {message_bytes: 4096, iterations: 2}},"
        " variants: [{name: MRC 1 QP}], conditions: [{name: no loss}]}",
        encoding="utf-8",
    )
    done = mrclab(*words, str(path), "-o", str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    assert [each for each in shown if each not in done.stderr] == []
    assert [each for each in hidden if each in done.stderr] == []
    made = json.loads((tmp_path / "made" / "compare.json").read_text())
    assert [row["failure"] for row in made["cells"]] == [""]
    assert (tmp_path / "made" / "compare.csv").read_text().splitlines()[1].startswith("c,MRC 1 QP,no loss,0.")


def test_a_quiet_command_leaves_the_next_one_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tests run several commands in a process."""
    for words, wanted in ((["-q", "list", "running"], Verbosity.QUIET), (["list", "running"], Verbosity.NORMAL)):
        monkeypatch.setattr(sys, "argv", ["mrclab", *words])
        with pytest.raises(SystemExit):
            cli.main()
        assert progress.chosen() is wanted


def test_lines_of_steps_keep_their_distance(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_chosen", Verbosity.NORMAL)
    with progress.steps(lines=True, pause_s=1000.0) as tell:
        for text in ("one", "two", "three"):
            tell(text)
    assert capsys.readouterr().err.split() == ["one"]
    with progress.steps(lines=True, pause_s=1000.0) as tell:
        for text, due in (("one", False), ("two", False), ("three", True)):
            tell(text, due=due)
    assert capsys.readouterr().err.split() == ["one", "three"]


def test_quiet_hides_warnings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_chosen", Verbosity.QUIET)
    progress.warn("never mind")
    with progress.steps() as tell:
        tell("working")
    assert capsys.readouterr().err == ""


def test_everything_that_can_be_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("COLUMNS", "200")
    found = json.loads(mrclab("list", "--json").stdout)
    assert list(found) == [each.value for each in ListedKind]
    assert found.pop("running") == []
    assert all(rows and all(row["name"] and row["title"] for row in rows) for rows in found.values())
    text = mrclab("list").stdout
    assert "no lab is up" in text
    assert [row["name"] for rows in found.values() for row in rows if row["name"] not in text] == []
    assert "A ring all-reduce over MRC and over RoCE" in mrclab("list", "comparisons").stdout
    wrong = mrclab("list", "nothing")
    assert (wrong.returncode, "'labs'" in wrong.stderr) == (2, True)


def test_a_verb_that_was_renamed() -> None:
    done = mrclab("experiments")
    assert done.returncode == 2
    assert done.stderr == "mrclab: error: `mrclab experiments` was renamed; write `mrclab list experiments`\n"


@pytest.fixture
def lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """Make the run directory of a lab with logs, of which no process is alive."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    run = RunDir("tiny")
    run.create()
    run.write(LabState("tiny", transport="mrc", links="memory", switch="p4lite", compiler="p4lite"))
    run.folder.write(LabRecord(phase="up", roles={"labd": 1, "fabric": 2, "h0": 3, "h1": 3, "h2": 4}))
    run.log_file.write_text("started\n", encoding="utf-8")
    for role, text in (("fabric", ""), ("h0", "one\ntwo\x1b[31m\n"), ("h2", "three\n")):
        run.folder.log(role).write_text(text, encoding="utf-8")
    return run


def test_logs_of_processes(lab: RunDir) -> None:
    assert [each.roles for each in logs.logs_of(lab)] == [("labd",), ("fabric",), ("h0", "h1"), ("h2",)]
    done = mrclab("logs", "--lab", "tiny", "-f")  # the lab is dead, so following ends
    assert done.stdout.splitlines() == [
        "labd   | started",
        "h0..h1 | one",
        "h0..h1 | two\\x1b[31m",
        "h2     | three",
    ]
    assert mrclab("logs", "h1", "-n", "1", "--lab", "tiny").stdout == "two\\x1b[31m\n"
    wrong = mrclab("logs", "h9", "--lab", "tiny")
    assert (wrong.returncode, "with a log: labd, fabric, h0, h1, h2" in wrong.stderr) == (2, True)


def test_a_link_in_a_lab_is_no_log(lab: RunDir, tmp_path: pathlib.Path) -> None:
    """A lab runs as another user than root, and could point its log anywhere."""
    secret = tmp_path / "secret"
    secret.write_text("of root's\n", encoding="utf-8")
    lab.folder.log("h2").unlink()
    lab.folder.log("h2").symlink_to(secret)
    assert "of root's" not in mrclab("logs", "--lab", "tiny").stdout


def test_only_logs_that_exist_are_chosen(lab: RunDir) -> None:
    found = [LogFile(("h0",), lab.log_file)]
    assert logs.chosen(found, None) == found
    with pytest.raises(RunError, match="no process 'h1' has a log"):
        logs.chosen(found, "h1")


def test_packages_are_offered_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.confirm", lambda *_, **__: pytest.fail("no user could answer"))
    with pytest.raises(SystemExit) as caught, errors.report_errors():
        raise UsageError("it lacks something").needing("mrclab[scale]")
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("answer", "wanted"), [("n", "it lacks something"), ("y", "pip install no-such-thing` failed")]
)
def test_the_question_on_a_terminal(answer: str, wanted: str) -> None:
    """The command runs on a terminal of its own; pip is made to find nothing, without a network."""
    code = (
        "from mrclab.cli.errors import report_errors; from mrc_topo.base.errors import UsageError\n"
        "with report_errors(): raise UsageError('it lacks something').needing('no-such-thing')"
    )
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    ) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError as error:
            if error.errno != errno.EIO:  # of a terminal whose other end was closed
                raise
        process.wait(120)
    os.close(ours)
    assert b"-m pip install no-such-thing` now?" in shown
    assert wanted.encode() in shown
    assert process.returncode == (2 if answer == "n" else 1)


def test_following_reads_only_what_was_appended(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of long runs are megabytes, and are looked at five times a second."""
    path = tmp_path / "h0.log"
    tail = logs.LogTail(path)
    assert tail.new_lines() == []  # there is no file yet
    path.write_text("one\ntwo\nthr")
    assert tail.new_lines() == ["one", "two"]
    with path.open("a") as file:
        file.write("ee\nfour\x1b\n")
    read: list[int] = []
    real = GrowingFile.read
    monkeypatch.setattr(GrowingFile, "read", lambda file, limit: (text := real(file, limit), read.append(len(text)))[0])
    assert tail.new_lines() == ["three", "four\\x1b"]
    assert tail.new_lines() == []
    assert read == [len("ee\nfour\x1b\n"), 0]


def test_following_takes_up_a_log_that_appears_later(lab: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.folder.log("h2").unlink()
    tails = {log: logs.LogTail(log.path) for log in logs.logs_of(lab)}
    for tail in tails.values():
        tail.new_lines()
    looks = iter((False, True))
    monkeypatch.setattr(RunDir, "is_dead", lambda run: next(looks))
    monkeypatch.setattr("mrc_topo.base.interruption.sleep", lambda seconds: lab.folder.log("h2").write_text("late\n"))
    assert [(log.title, line) for log, line in logs._new_lines(lab, None, tails)] == [("h2", "late")]


def test_following_a_log_that_is_cut_off_or_replaced_begins_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "h0.log"
    path.write_text("one\nbegun")
    tail = logs.LogTail(path)
    assert tail.new_lines() == ["one"]
    path.write_text("new\n")  # shorter
    assert tail.new_lines() == ["new"]
    path.rename(tmp_path / "old.log")
    assert tail.new_lines() == []
    path.write_text("another, and longer than before\nits last")
    assert tail.new_lines() == ["another, and longer than before"]
    assert tail.new_lines(whole=False) == ["its last"]


def test_following_a_link_shows_nothing(tmp_path: pathlib.Path) -> None:
    (tmp_path / "secret").write_text("one\n")
    (tmp_path / "h0.log").symlink_to(tmp_path / "secret")
    assert logs.LogTail(tmp_path / "h0.log").new_lines() == []
