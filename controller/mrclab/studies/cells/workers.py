"""Cells on all cores, each kept in a folder under the digest of all that it depends on as soon as it is done."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from mrc_topo.base import interruption
from mrc_topo.base.errors import end_with_parent
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import DecodeError, decode, encode
from mrclab.results.reading import FolderError, document_of
from mrclab.studies.cells import measure
from mrclab.studies.cells.measure import Cell, Measured

T = TypeVar("T")
RUNS = "runs"


class DocumentStore(Generic[T]):
    """Documents of type `kind` by digest; the folder is made with the first."""

    def __init__(self, folder: pathlib.Path, kind: type[T]) -> None:
        self.folder = folder / RUNS
        self.kind = kind

    def get(self, digest: str) -> T | None:
        """Return the document that was kept; None if there is none, or it cannot be read."""
        try:
            document = document_of(self.folder / f"{digest}.json")
            if document.pop("digest") != digest:
                return None
            return decode(self.kind, document, lenient=True)
        except (FolderError, KeyError, DecodeError, RecursionError):
            return None

    def put(self, digest: str, value: T) -> None:
        """Keep a document.

        Raises:
            WriteError: it could not be written; what was kept before stays.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"digest": digest, **encode(value)}, sort_keys=True)
        write_whole(self.folder / f"{digest}.json", text + "\n")


@dataclass(frozen=True)
class CellProgress:
    """The progress: runs that are done of all, and seconds that the others may take (None: not yet known)."""

    done: int
    total: int
    left_s: float | None
    text: str


@dataclass(frozen=True)
class CellTask:
    """A cell to be run: its digest, and its displayed name."""

    digest: str
    name: str
    cell: Cell


@dataclass(frozen=True)
class CellAnswer:
    """The outcome of a cell: its result, or why there is none; how long it took, by the clock and of a core."""

    result: Measured | None
    failure: str = ""
    seconds: float = 0.0
    busy_s: float = 0.0


@dataclass(frozen=True)
class KeptResult:
    """A cell's result as it is stored; `run` is the displayed name."""

    run: str
    result: Measured


class CellStore(DocumentStore[KeptResult]):
    """Results of cells, and how long each took."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder, KeptResult)

    def seconds(self, digest: str) -> float:
        """Return how much of a core's time the cell took, s; 0 if that is not known."""
        try:
            return float((self.folder / f"{digest}.time").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0.0

    def keep(self, task: CellTask, result: Measured, seconds: float) -> None:
        """Keep a result.

        Raises:
            WriteError: it could not be written.
        """
        self.put(task.digest, KeptResult(task.name, result))
        write_whole(self.folder / f"{task.digest}.time", f"{seconds:.2f}\n")


def _serve(line: Connection, parent: int) -> None:
    """Run as a worker: run cells until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is for the command, which then ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()  # it would finish its cell first, which takes minutes
    if os.getppid() != parent:
        return
    while True:
        try:
            cell = line.recv()
        except EOFError:
            return
        begin = time.monotonic(), time.process_time()
        result, failure = None, ""
        try:
            result = measure.measure(cell)
        except Exception as error:  # noqa: BLE001 - one run that fails is one figure's; it tells why
            failure = f"{type(error).__name__}: {error}"[:500]
        line.send(CellAnswer(result, failure, time.monotonic() - begin[0], time.process_time() - begin[1]))


class _Worker:
    """A process and the cell that it runs."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()
        self.at: CellTask | None = None

    def give(self, task: CellTask) -> None:
        self.at = task
        self.line.send(task.cell)

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
    tasks: Sequence[CellTask],
    store: CellStore,
    jobs: int,
    progress: Callable[[CellProgress], None] = lambda each: None,
) -> dict[str, str]:
    """Run what the store does not have yet; by digest, why runs failed.

    Raises:
        WriteError: a result could not be kept; those before it were.
    """
    interruption.check()
    unique = {task.digest: task for task in tasks}
    waiting = [task for task in unique.values() if store.get(task.digest) is None]
    # The longest first, or one that is left to the end keeps the other cores waiting.
    waiting.sort(key=lambda task: -task.cell.cost)
    total, done = len(unique), len(unique) - len(waiting)
    failed: dict[str, str] = {}
    spent = worth = 0.0
    progress(CellProgress(done, total, None if waiting else 0.0, f"{done} of {total} runs are there already"))
    if not waiting:
        return failed
    with _workers(min(jobs, len(waiting))) as workers:
        for worker in workers:
            worker.give(waiting.pop(0))
        while busy := {worker.line: worker for worker in workers if worker.at is not None}:
            interruption.check()
            for line in wait(list(busy), interruption.LOOK_S):
                worker = busy[line]  # type: ignore[index]
                assert worker.at is not None
                task = worker.at
                try:
                    answer: CellAnswer = worker.line.recv()
                except EOFError:
                    answer = CellAnswer(None, "its process died")
                    worker.end()
                    workers[workers.index(worker)] = worker = _Worker()
                worker.at = None
                if answer.result is None:
                    failed[task.digest] = answer.failure
                else:
                    store.keep(task, answer.result, answer.busy_s)
                done, spent, worth = done + 1, spent + answer.seconds, worth + task.cell.cost
                if waiting:
                    worker.give(waiting.pop(0))
                rest = [each.at.cell.cost for each in workers if each.at] + [each.cell.cost for each in waiting]
                left = sum(rest) * spent / worth / len(workers) if worth else None
                progress(CellProgress(done, total, left, task.name))
    return failed
