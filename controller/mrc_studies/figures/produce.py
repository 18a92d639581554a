"""From a choice of figures to their page."""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Callable, Sequence

from mrc_studies.cells import workers
from mrc_studies.cells.cell import Cell
from mrc_studies.cells.measure import prepare, software
from mrc_studies.cells.tables import has_parquet, write
from mrc_studies.cells.workers import CellStore, Progress, Task
from mrc_studies.figures import draw, page, tables
from mrc_studies.figures.model import Figure, JudgedFigure, Size, judged

#: Of what `Cell.cost` says, on one core of a machine of 2024.
OVERHEAD_S = 2.0


def estimate_s(figures: Sequence[Figure], size: Size, jobs: int) -> float:
    """Return how long all of it takes from the beginning, very roughly."""
    cells = [cell for figure in figures for cell in figure.cells(size)]
    return sum(cell.cost + OVERHEAD_S for cell in cells) / jobs


def produce(
    figures: Sequence[Figure],
    size: Size,
    folder: pathlib.Path,
    jobs: int,
    progress: Callable[[Progress], None] = lambda each: None,
    broken: bool = True,
) -> tuple[pathlib.Path, list[JudgedFigure]]:
    """Run what is missing, then write tables, plots and the page; return it, and the figures with their results.

    Args:
        folder: exists and can be written.
        broken: False leaves out what each figure is about, with which it must not be reproduced.

    Raises:
        WriteError: something could not be written; what was done stays done.
        LabError, ExperimentError: a figure's run cannot be; nothing was started.
    """
    store = CellStore(folder)
    programs = software()
    planned: list[tuple[Figure, dict[str, Cell]]] = []
    for figure in figures:
        cells = [cell if broken else figure.without(cell) for cell in figure.cells(size)]
        for cell in cells:
            prepare(cell)
        planned.append((figure, {cell.digest(programs): cell for cell in cells}))
    tasks = [
        Task(digest, f"{figure.name}, {cell.name}", cell) for figure, own in planned for digest, cell in own.items()
    ]
    failed = workers.run(tasks, store, jobs, progress)
    done: list[JudgedFigure] = []
    files: dict[str, list[str]] = {}
    seconds: dict[str, float] = {}
    for figure, own in planned:
        results = {cell.name: kept.result for digest, cell in own.items() if (kept := store.get(digest)) is not None}
        wrong = [f"{cell.name}: {failed[digest]}" for digest, cell in own.items() if digest in failed]
        made = judged(figure, list(own.values()), results, wrong)
        rows = tables.points(made)
        files[figure.name] = write(folder, figure.name, tables.PointRow, rows, tables.NUMBERS)
        files[figure.name] += write(
            folder, f"{figure.name}-checks", tables.CheckRow, tables.checks(made), tables.NUMBERS
        )
        if rows and _can_draw():
            files[figure.name] += draw.write(folder, made, rows)
        seconds[figure.name] = sum(map(store.seconds, own))
        done.append(made)
    notes = [] if has_parquet() else ["Tables are CSV only: pyarrow is not installed."]
    notes += [] if _can_draw() else ["There are no plots: matplotlib is not installed."]
    return page.write(folder, done, files, seconds, size, notes), done


def _can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None
