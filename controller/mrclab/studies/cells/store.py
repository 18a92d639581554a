"""Cells as the work of the engine: each is done on one of all cores, and kept with the core's time that it took."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

from mrc_topo.base.files import write_whole
from mrclab.studies import engine
from mrclab.studies.cells import measure
from mrclab.studies.cells.measure import Cell, Measured
from mrclab.studies.engine import Answer, DocumentStore, RunStatus, Show, Study, Task


@dataclass(frozen=True)
class CellAnswer(Answer):
    """The outcome of a cell: its result, or why there is none; how long it took of a core."""

    result: Measured | None = None
    busy_s: float = 0.0


@dataclass(frozen=True)
class KeptResult:
    """A cell's result as it is stored; `run` is the displayed name."""

    run: str
    result: Measured


class CellStore:
    """Results of cells, and how long each took."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._documents = DocumentStore(folder, KeptResult)
        self.folder = self._documents.folder

    def get(self, digest: str) -> CellAnswer | None:
        """Return the answer of a cell; None if it was not done, or its file cannot be read."""
        result = self.result(digest)
        return None if result is None else CellAnswer(RunStatus.GOOD, "", result)

    def result(self, digest: str) -> Measured | None:
        """Return the result of a cell; None if there is none, or it cannot be read."""
        kept = self._documents.get(digest)
        return None if kept is None else kept.result

    def seconds(self, digest: str) -> float:
        """Return how much of a core's time the cell took, s; 0 if that is not known."""
        try:
            return float((self.folder / f"{digest}.time").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0.0

    def keep(self, task: Task[Cell], answer: CellAnswer) -> CellAnswer:
        """Keep a result, if there is one.

        Raises:
            WriteError: it could not be written.
        """
        if answer.result is not None:
            self._documents.put(task.digest, KeptResult(task.name, answer.result))
            write_whole(self.folder / f"{task.digest}.time", f"{answer.busy_s:.2f}\n")
        return answer


def perform(cell: Cell) -> CellAnswer:
    """Do a cell. Raises nothing except for a signal."""
    begin = time.process_time()

    def measured() -> CellAnswer:
        return CellAnswer(RunStatus.GOOD, "", measure.measure(cell), time.process_time() - begin)

    return engine.attempt(measured, CellAnswer)


def run(
    tasks: Iterable[Task[Cell]], store: CellStore, jobs: int, show: Show = lambda progress: None
) -> dict[str, CellAnswer]:
    """Run what the store does not have yet, on this many cores; return by digest the runs that failed.

    Raises:
        WriteError: a result could not be kept; those before it were.
    """
    return Study(tasks, store.get, store.keep).carry_out(engine.processes(perform, CellAnswer, jobs), show, jobs)
