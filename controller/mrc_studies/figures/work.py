"""The runs of figures on all cores, each kept as soon as it is done: what was done is not done again.

A run's result is `runs/DIGEST.json` in the figures' folder. The digest is that of all its inputs, the programs among
them; another lab, seed or version is another file. How long it took is beside it (`DIGEST.time`), since that alone
differs from one time to the next.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from mrc_common.files import write_whole
from mrc_studies.figures import measure
from mrc_studies.figures.model import Cell, Result

RUNS = "runs"


@dataclass(frozen=True)
class Progress:
    """How far it is: runs that are done of all, and seconds that the others may take (None: nobody knows yet)."""

    done: int
    total: int
    left_s: float | None
    text: str


class Store:
    """Results of runs by digest, in a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / RUNS
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, digest: str) -> Result | None:
        """A result; None if there is none, or none that can be read."""
        try:
            document = json.loads((self.folder / f"{digest}.json").read_text())
        except (OSError, ValueError):
            return None
        return document["result"] if isinstance(document, dict) and document.get("digest") == digest else None

    def seconds(self, digest: str) -> float:
        """How much of a core's time the run took, s; 0 if that is not known."""
        try:
            return float((self.folder / f"{digest}.time").read_text())
        except (OSError, ValueError):
            return 0.0

    def put(self, digest: str, name: str, result: Result, seconds: float) -> None:
        """Keeps a result.

        Raises:
            WriteError: it could not be written.
        """
        write_whole(self.folder / f"{digest}.time", f"{seconds:.2f}\n")
        document = {"digest": digest, "run": name, "result": result}
        write_whole(self.folder / f"{digest}.json", json.dumps(document, sort_keys=True) + "\n")


def _serve(line: Connection) -> None:
    """A worker: runs cells until the line is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is for the command, which then ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        try:
            cell = line.recv()
        except EOFError:
            return
        begin = time.monotonic(), time.process_time()
        answer: tuple[dict[str, Any] | None, str]
        try:
            answer = measure.measure(cell), ""
        except Exception as error:  # noqa: BLE001 - one run that fails is one figure's; it tells why
            answer = None, f"{type(error).__name__}: {error}"[:500]
        line.send((*answer, time.monotonic() - begin[0], time.process_time() - begin[1]))


class _Worker:
    """A process and what it is at."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.at: tuple[str, str, Cell] | None = None

    def give(self, task: tuple[str, str, Cell]) -> None:
        self.at = task
        self.line.send(task[2])

    def end(self) -> None:
        self.line.close()
        self.process.terminate()
        self.process.join()


@contextlib.contextmanager
def _workers(count: int) -> Iterator[list[_Worker]]:
    made: list[_Worker] = []
    try:
        for _ in range(count):
            made.append(_Worker())
        yield made
    finally:
        for worker in made:
            worker.end()


def run(
    tasks: Sequence[tuple[str, str, Cell]],
    store: Store,
    jobs: int,
    progress: Callable[[Progress], None] = lambda each: None,
) -> dict[str, str]:
    """Runs what the store does not have yet; by digest, why runs failed.

    Args:
        tasks: digest, name to show, and cell.

    Raises:
        WriteError: a result could not be kept; those before it were.
    """
    unique = {digest: (digest, name, cell) for digest, name, cell in tasks}
    waiting = [task for task in unique.values() if store.get(task[0]) is None]
    # The longest first, or one that is left to the end keeps the other cores waiting.
    waiting.sort(key=lambda task: -task[2].cost)
    total, done = len(unique), len(unique) - len(waiting)
    failed: dict[str, str] = {}
    spent = worth = 0.0
    progress(Progress(done, total, None if waiting else 0.0, f"{done} of {total} runs are there already"))
    if not waiting:
        return failed
    with _workers(min(jobs, len(waiting))) as workers:
        for worker in workers:
            worker.give(waiting.pop(0))
        while busy := {worker.line: worker for worker in workers if worker.at is not None}:
            for line in wait(list(busy)):
                worker = busy[line]  # type: ignore[index]
                assert worker.at is not None
                digest, name, cell = worker.at
                try:
                    result, failure, seconds, busy_s = worker.line.recv()
                except EOFError:
                    result, failure, seconds, busy_s = None, "its process died", 0.0, 0.0
                    worker.end()
                    workers[workers.index(worker)] = worker = _Worker()
                worker.at = None
                if result is None:
                    failed[digest] = failure
                else:
                    store.put(digest, name, result, busy_s)
                done, spent, worth = done + 1, spent + seconds, worth + cell.cost
                if waiting:
                    worker.give(waiting.pop(0))
                rest = [each.at[2].cost for each in workers if each.at] + [task[2].cost for task in waiting]
                left = sum(rest) * spent / worth / len(workers) if worth else None
                progress(Progress(done, total, left, name))
    return failed
