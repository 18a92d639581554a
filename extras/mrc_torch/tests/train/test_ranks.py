"""Ranks of a PyTorch job as processes beside each other, without a lab: gloo over the loopback interface."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'mrclab[torch]'")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'mrclab[torch]'")
pytestmark = pytest.mark.slow

RANKS = 2


class Rank:
    def __init__(self, folder: pathlib.Path, rank: int, **settings: Any) -> None:
        base = {"backend": "gloo", "rank": rank, "size": RANKS, "store": str(folder / "store"), "timeout_s": 60}
        command = [sys.executable, "-P", "-m", "mrc_torch.train", json.dumps(base | settings)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment, text=True
        )

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def until(self, event: str) -> Iterator[dict[str, Any]]:
        while (found := self.next())["event"] != event:
            yield found

    def tell(self, **document: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(document) + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)


def both(folder: pathlib.Path, **settings: Any) -> list[Rank]:
    folder.mkdir()
    made = [Rank(folder, rank, **settings) for rank in range(RANKS)]
    for event in ("ready", "connected"):
        assert {each.next()["event"] for each in made} == {event}
        for each in made:
            each.tell()
    return made


TRAIN = {"job": "train", "model": "mlp", "batch": 8, "seed": 3, "checkpoint_every": 2}


def test_ranks_train_end_together_and_go_on_from_the_checkpoint(tmp_path: pathlib.Path) -> None:
    kept = str(tmp_path / "checkpoint.pt")
    made = both(tmp_path / "one", **TRAIN, steps=None, checkpoint=kept, resume=False)
    first = [made[0].next() for _ in range(4)]
    # Rank 0 holds; nobody is beyond the step that it has not begun, so that all end behind it.
    made[0].tell(hold=True)
    first += list(made[0].until("held"))
    last = len(first) + 1
    for each in reversed(made):
        each.tell(stop_after=last)
    first += list(made[0].until("done"))
    other = list(made[1].until("done"))
    assert [row["step"] for row in first] == [row["step"] for row in other] == list(range(1, last + 1))
    assert [row["loss"] for row in first] == [row["loss"] for row in other]
    assert all(row["all_reduce_ns"] for row in first)
    assert [each.end() for each in made] == [0, 0]
    # A step that is repeated from the checkpoint gives the same loss: model, optimizer and data are as they were.
    again = both(tmp_path / "two", **TRAIN, steps=last, checkpoint=kept, resume=True)
    rows = list(again[0].until("done"))
    # Every second step is kept: of an even number of steps none is left to do.
    assert not rows or rows[0]["step"] == last // 2 * 2 + 1
    known = {row["step"]: row["loss"] for row in first}
    for row in rows:
        assert row["loss"] == pytest.approx(known[row["step"]], rel=1e-5)
    for each in again:
        each.end()


def test_rank_reports_an_error_when_its_peer_is_killed(tmp_path: pathlib.Path) -> None:
    made = both(tmp_path / "x", **TRAIN, steps=100_000, checkpoint=str(tmp_path / "c.pt"), resume=False)
    made[0].next()
    made[1].process.kill()
    events = [made[0].next()]
    while events[-1]["event"] == "step":
        events.append(made[0].next())
    assert events[-1]["event"] == "error"
    assert made[0].process.wait(30) == 1
    made[1].process.wait()


def test_ranks_that_measure_say_that_they_go_on(tmp_path: pathlib.Path) -> None:
    """An operation of 64 MB takes a minute in a lab, and a size six of them: more than anybody waits for a word."""
    settings = {"job": "perf", "collective": "all_reduce", "sizes": [[64, 16], [400, 100]], "iterations": 2}
    made = both(tmp_path / "x", **settings, word_s=0.0)
    for each in made:
        rows = list(each.until("done"))
        going = [("going", size, number) for size in (64, 400) for number in (1, 2, 3)]
        assert [(row["event"], row["size"], row["operations"]) for row in rows if row["event"] == "going"] == going
        assert [(row["size"], row["count"], row["wrong"]) for row in rows if row["event"] == "size"] == [
            (64, 16, 0),
            (400, 100, 0),
        ]
    assert [each.end() for each in made] == [0, 0]


def test_error_is_reported_without_the_wrappers_of_torch() -> None:
    from mrc_torch.train.__main__ import plain

    wrapper = "Got the following error when running the callback: "
    inner = "RankDeadError: rank 1 (host h1) is dead"
    wrapped = RuntimeError(f"{wrapper}RuntimeError: {wrapper}{inner}\n\nAt:\n  /x/backend.py(175): _value\n")
    assert plain(wrapped) == inner
    assert plain(ValueError("two\nlines")) == "ValueError: two lines"


def test_text_is_reproducible_and_its_model_learns() -> None:
    from mrc_torch.train import models

    task = models.make("gpt-tiny", 1)
    assert models.sentences(1, 3) == models.sentences(1, 3) != models.sentences(2, 3)
    first, second = (next(models.batches(len(task.inputs), 2, rank, 4, 1, 0)) for rank in range(2))
    assert not set(first.tolist()) & set(second.tolist())
    losses = []
    optimizer = torch.optim.SGD(task.model.parameters(), lr=task.learning_rate)
    for _ in range(8):
        loss = task.loss(task.model, first)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    # A character that is yet to come changes nothing.
    rows = task.inputs[:1].clone()
    before = task.model(rows)[0, 10]
    rows[0, 30] = (rows[0, 30] + 1) % 5
    assert torch.equal(task.model(rows)[0, 10], before)
