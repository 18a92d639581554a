"""What an untouched starter earns, and how an endless loop of a learner ends."""

from __future__ import annotations

import pathlib
import socket
import time
from typing import Any

import pytest

from mrc_workshop import cli as workshop
from mrc_workshop import exercise, judge, player, verify
from mrc_workshop.job import RunOrder
from mrc_workshop.judge import CheckLine, Report
from mrc_workshop.wire import Wire
from support.amount import first

EXERCISES = {folder.name: folder for folder in exercise.known().values()}


def report(*lines: tuple[bool | None, bool]) -> Report:
    """Return a report of lines: whether each holds, and whether it is given."""
    return Report("01-x", [CheckLine(f"line {n}", passed, given=given) for n, (passed, given) in enumerate(lines)])


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        ([(True, True), (False, False)], 0.0),
        ([(True, True), (True, True), (True, False), (False, False)], 0.5),
        ([(True, True), (False, True), (True, False), (True, False)], 0.5),
        ([(True, True), (False, True), (True, False)], 0.0),
        ([(True, True), (True, False)], 1.0),
        ([(False, True), (None, False)], 0.0),
        ([(False, False)], 0.0),
        ([], 0.0),
    ],
)
def test_what_is_given_earns_nothing_and_costs_if_broken(lines: list[tuple[bool | None, bool]], share: float) -> None:
    assert report(*lines).share == share


def test_verify_names_a_check_that_is_given_without_being_held_or_held_without_being_given() -> None:
    for lines, wrong in (
        ([(True, True), (False, False)], ""),
        ([(True, False), (False, False)], "line 0"),
        ([(True, True), (False, True)], "line 1"),
    ):
        trial = verify.SelfCheck("starter", "line 1", report(*lines), earns_nothing=True)
        assert trial.misjudged == wrong
        assert trial.holds is (not wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", first(EXERCISES))
def test_untouched_starter_earns_nothing(name: str) -> None:
    (trial,) = verify.trials(exercise.load(EXERCISES[name]), only=["starter"])
    assert trial.holds, trial.text()
    assert trial.report.share == 0


def test_part_of_a_failure_that_is_empty_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    workshop._explain(CheckLine("it runs", False, mistake="a.py:1: it is wrong", where="tiny, seed 1"))
    assert capsys.readouterr().out.splitlines() == ["a.py:1: it is wrong", "Seen in run tiny, seed 1."]
    workshop._explain(CheckLine("it runs", False, mistake="wrong", where="tiny, seed 1", evidence=("a packet",)))
    assert capsys.readouterr().out.splitlines()[-2:] == ["Seen in run tiny, seed 1:", "  a packet"]


def test_run_that_computes_on_tells_its_cpu_time(tmp_path: pathlib.Path) -> None:
    orders = [RunOrder(name=name, seed=1, hidden=False, lab="") for name in ("one", "two")]
    told: list[str] = []
    look = judge._teller(orders, tmp_path, 120, told.append)
    look(1.0)
    (tmp_path / "00-one").mkdir()
    for cpu_s in (2.0, 3.0, 6.9, 7.0, 11.0, 12.5):
        look(cpu_s)
    (tmp_path / "01-two").mkdir()
    look(13.0)
    assert [text.partition(",")[0] for text in told] == ["run 1 of 2: one"] * 3 + ["run 2 of 2: two"]
    assert [text.split()[5] for text in told[1:3]] == ["7", "12"]


LOOPS = {
    "in a method": ("def locate(self, topology, views):\n        while True:\n            pass\n", 5, "locate"),
    "that catches": (
        "def locate(self, topology, views):\n        while True:\n            try:\n                pass\n"
        "            except Exception:\n                pass\n",
        None,
        "locate",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_endless_loop_ends_with_its_line(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "CALL_CPU_S", 0.2)
    method, line, function = LOOPS[name]
    (tmp_path / "finder.py").write_text(f"class Finder:\n\n    {method}")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        objects = player.LearnerObjects(Wire(theirs), tmp_path)
        source = (tmp_path / "finder.py").read_text()
        namespace: dict[str, type] = {}
        exec(compile(source, str(tmp_path / "finder.py"), "exec"), namespace)
        finder = namespace["Finder"]()
        with pytest.raises(player.EndlessLoop) as error, objects._bounded():
            finder.locate(None, {})
    told = str(error.value)
    assert told.startswith("finder.py:")
    assert f"in {function}()" in told
    if line is not None:
        assert int(told.split(":")[1]) in (line - 1, line)


def test_endless_loop_is_ended_at_a_line_of_the_learner_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception may come neither within compiled code nor within our own, such as while an answer is sent."""
    monkeypatch.setattr(player, "CALL_CPU_S", 0.1)
    outcomes = []

    def ours() -> None:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        outcomes.append("whole")

    namespace: dict[str, Any] = {}
    exec(compile("def call(given):\n    while True:\n        given()\n", str(tmp_path / "loop.py"), "exec"), namespace)
    one, theirs = socket.socketpair()
    with one, theirs:
        objects = player.LearnerObjects(Wire(theirs), tmp_path)
        with pytest.raises(player.EndlessLoop, match=r"loop\.py:\d"), objects._bounded():
            namespace["call"](ours)
    assert outcomes == ["whole"]


def test_call_that_ends_is_not_disturbed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "CALL_CPU_S", 0.2)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        objects = player.LearnerObjects(Wire(theirs), tmp_path)
        for _ in range(3):
            with objects._bounded():
                sum(range(1000))
        # The time of one call does not count for the next, and none runs on behind it.
        assert sum(range(10_000_000)) > 0
