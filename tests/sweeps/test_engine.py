"""The engine of studies: what is done, what is done again, and what becomes of a run whose process died."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Sequence

import pytest

from mrc_host.policy import PolicyError
from mrc_topo.schema import Lab
from mrclab.runs.experiment import Experiment
from mrclab.studies import engine
from mrclab.studies.cells import measure, store
from mrclab.studies.cells.measure import Cell
from mrclab.studies.engine import Answer, DocumentStore, Progress, RunStatus, Study, Task
from support.endings import answer_of


def study(folder: pathlib.Path, words: list[str], *, again: bool = False) -> Study[str, Answer]:
    """Return a study with a run for each word, of which later ones take longer."""
    kept = DocumentStore(folder, Answer)

    def keep(task: Task[str], answer: Answer) -> Answer:
        kept.put(task.digest, answer)
        return answer

    tasks = [Task(word, word, word, cost) for cost, word in enumerate(words, 1)]
    return Study(tasks, kept.get, keep, again=again)


def test_what_died_is_done_again_and_what_failed_only_when_asked(tmp_path: pathlib.Path) -> None:
    words = ["good", "failed", "error", "died"]
    first = study(tmp_path, words)
    assert [task.name for task in first.waiting] == words[::-1]  # the longest first
    seen: list[Progress] = []
    bad = first.carry_out(engine.here(answer_of), seen.append)
    assert set(bad) == {"failed", "error", "died"}
    assert [(each.done, each.total) for each in seen] == [(number, 4) for number in range(5)]
    assert (seen[-1].bad, seen[-1].left_s) == (3, 0.0)
    second = study(tmp_path, words)
    assert ([task.name for task in second.waiting], set(second.bad)) == (["died"], {"failed", "error"})
    third = study(tmp_path, words, again=True)
    assert ({task.name for task in third.waiting}, third.bad) == ({"failed", "error", "died"}, {})


def test_tasks_of_one_digest_are_one_run(tmp_path: pathlib.Path) -> None:
    assert study(tmp_path, ["good", "good"]).total == 1


def test_a_run_that_ends_its_process_died_and_the_others_are_done(tmp_path: pathlib.Path) -> None:
    made = study(tmp_path, ["good", "failed", "exits"])
    bad = made.carry_out(engine.processes(answer_of, Answer, 1))
    assert {digest: (each.status, each.failure) for digest, each in bad.items()} == {
        "failed": (RunStatus.FAILED, "failed"),
        "exits": (RunStatus.DIED, "its process died"),
    }
    assert study(tmp_path, ["good", "failed", "exits"]).waiting == made.waiting[:1]


def test_a_process_that_dies_before_it_has_read_its_run_is_one_that_died(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give = engine._Worker.give
    killed: list[str] = []

    def give_and_kill(worker: engine._Worker[str], task: Task[str], work: object) -> None:
        give(worker, task, work)
        if not killed:  # it is still importing its modules
            killed.append(task.name)
            worker.process.kill()
            worker.process.join()

    monkeypatch.setattr(engine._Worker, "give", give_and_kill)
    bad = study(tmp_path, ["good", "failed"]).carry_out(engine.processes(answer_of, Answer, 1))
    assert {digest: each.status for digest, each in bad.items()} == {"failed": RunStatus.DIED}
    assert killed == ["failed"]


def test_what_is_under_way_counts_as_half_done_in_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def two_at_once(tasks: Sequence[Task[str]]) -> engine.Answers[str, Answer]:
        for number, task in enumerate(tasks):
            clock[0] = 10.0 * (number // 2 + 1)
            yield task, answer_of("good")

    seen: list[Progress] = []
    tasks = [Task(str(number), "", "good", 10.0) for number in range(4)]
    engine.carry_out(tasks, two_at_once, seen.append, 2)
    assert [each.left_s for each in seen] == [
        None,
        pytest.approx(10 * 25 / 15),
        pytest.approx(6),
        pytest.approx(20 * 5 / 35),
        0,
    ]


def test_a_policys_mistake_is_the_answer_of_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(cell: Cell) -> None:
        raise PolicyError("own.py:9: Wrong.infer: KeyError\nmore")

    monkeypatch.setattr(measure, "measure", mistaken)
    content = {"name": "x", "title": "x", "workload": {"name": "write_bw"}}
    answer = store.perform(Cell("x", Lab.model_validate({"name": "x"}), Experiment.model_validate(content)))
    assert (answer.status, answer.failure) == (RunStatus.ERROR, "PolicyError: own.py:9: Wrong.infer: KeyError")
