"""From a choice of figures to their page."""

from __future__ import annotations

import importlib.util
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mrc_topo.base.files import write_whole
from mrclab.pages import chart
from mrclab.runs.experiment import Tree
from mrclab.studies.cells import pages, store
from mrclab.studies.cells.measure import Cell, prepare, software
from mrclab.studies.cells.pages import has_parquet, write
from mrclab.studies.cells.store import CellAnswer, CellStore
from mrclab.studies.engine import Show
from mrclab.studies.figures import draw, tables
from mrclab.studies.figures.model import SETTLED_S, Figure, FigureStatus, JudgedFigure, Measure, Seeded, Size, judged

PAGE, TIMES, RESULTS = "index.html", "times.js", "figures.json"

STYLE = """
.figure { break-before: page; border-top: 3px solid var(--line); margin-top: 2.5rem; padding-top: .4rem }
.figure h2 { margin-top: .6rem }
.claim { display: grid; grid-template-columns: 8rem 1fr; gap: .2rem .8rem; margin: .6rem 0 }
.claim dt { color: var(--muted); font-weight: 600 } .claim dd { margin: 0 }
.state { border-radius: 6px; display: inline-block; font-weight: 600; padding: .05rem .5rem; white-space: nowrap }
.reproduced { background: var(--good-paper); color: var(--good) }
.not { background: var(--bad-paper); color: var(--bad) }
.differs, .could { background: var(--warn-paper); color: var(--warn) }
summary { cursor: pointer; color: var(--accent) }
@page { size: A4; margin: 14mm }
@media print {
  body { font-size: 10pt } .page { max-width: none; padding: 0 } table, code { font-size: 8pt }
  .figure { border-top: 0; margin-top: 0; padding-top: 0 } .figure h2 { margin-top: 0 }
  .files, .time, details:not([open]) { display: none } tr, .claim { break-inside: avoid }
  .state { border: 1px solid currentColor } a { color: inherit; text-decoration: none }
}
"""


def write_page(
    folder: pathlib.Path,
    figures: Sequence[JudgedFigure],
    files: Mapping[str, Sequence[str]],
    seconds: Mapping[str, float],
    options: str,
    notes: Sequence[str] = (),
) -> pathlib.Path:
    """Write the page, its times, and the results as JSON (`RESULTS`).

    Args:
        files: what lies beside it, by figure.
        options: of the command, `--full` say.
        seconds: how long the runs of each figure took, one after another.

    Raises:
        WriteError: one could not be written.
    """
    lines = "".join(
        f"document.getElementById({json.dumps('time-' + name)}).textContent = "
        f"{json.dumps(f'{value:.1f} s of one core')};\n"
        for name, value in seconds.items()
    )
    write_whole(folder / TIMES, lines)
    tables_of = {each.figure.name: tables.points(each) for each in figures}
    drawn = {
        each.figure.name: chart.html(draw.page_chart(each, rows))
        for each in figures
        if (rows := tables_of[each.figure.name])
    }
    given = {
        "figures": figures,
        "files": files,
        "options": options,
        "notes": notes,
        "charts": drawn,
        "settled": SETTLED_S,
    }
    body = pages.fill("figures.html", **given)
    # Times differ from run to run, so that they are not in the page.
    write_whole(
        folder / PAGE, chart.page("mrclab: the paper's figures", f'{body}<script src="{TIMES}"></script>', STYLE)
    )
    write_whole(folder / RESULTS, json.dumps([_document(each) for each in figures], indent=1) + "\n")
    return folder / PAGE


def _document(judged: JudgedFigure) -> Tree:
    return {
        "figure": judged.figure.name,
        "title": judged.figure.title,
        "seeds": judged.seeds,
        "held": judged.held,
        "left_out": {str(seed): why for seed, why in judged.left_out.items()},
        "result": judged.status,
        "differs": judged.reason if judged.status is FigureStatus.DIFFERS else "",
        "failures": list(judged.failures),
        "not_run": list(judged.not_run),
        "measures": [_measure(each) for each in judged.measures],
        "alternatives": {name: _document(each) for name, each in judged.alternatives.items()},
    }


def _measure(measure: Measure) -> Tree:
    low, high = measure.interval
    row = {**asdict(measure), "values": list(measure.each), "least": low, "most": high}
    finite: Tree = _finite({**row, "held": measure.held, "passed": measure.passed})
    return finite


def _finite(value: Any) -> Any:
    """Return a value of JSON, which has no infinity and nothing that is not a number: None in their place."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


#: What each run takes beside its cost, and each figure for its plots.
OVERHEAD_S, PLOTS_S = 0.3, 1.0
#: Seeds of each figure, where none are asked for.
SEEDS: dict[Size, int] = {"quick": 1, "full": 5}


@dataclass(frozen=True)
class Plan:
    """The runs of figures that are asked for.

    Args:
        size: `quick` or `full`.
        seeds: how many seeds, the first of which is that of the lab; None: as many as the size has (`SEEDS`).
        alternatives: whether what else was tried is run, too (`Figure.alternatives`).
        broken: False leaves out what each figure is about, with which it must not be reproduced.
    """

    size: Size = "quick"
    seeds: int | None = None
    alternatives: bool = False
    broken: bool = True

    @property
    def options(self) -> str:
        """The plan as options of the command."""
        seeds = f" --seeds {self.seeds}" if self.seeds else ""
        return f"--{self.size}{seeds}{' --alternatives' if self.alternatives else ''}"

    def count(self, figure: Figure) -> int:
        """Return the number of seeds of a figure."""
        return self.seeds or min(SEEDS[self.size], figure.many)

    def cells(self, figure: Figure) -> Iterator[tuple[str, list[list[Cell]]]]:
        """Yield the name of each way to run a figure (empty: as it is), with its cells by seed."""
        base = [cell if self.broken else figure.without(cell) for cell in figure.cells(self.size)]
        made = [[cell.seeded(cell.lab.seed + number) for cell in base] for number in range(self.count(figure))]
        yield "", made
        for each in figure.alternatives if self.alternatives else ():
            yield each.name, [[each.apply(cell) for cell in cells] for cells in made]


def _costs(figure: Figure, plan: Plan) -> list[float]:
    """Return the cost of each run of a figure, s; what two ways of it share is one run."""
    found = {cell.digest(""): cell.cost for _, seeds in plan.cells(figure) for cells in seeds for cell in cells}
    return list(found.values())


def runs(figure: Figure, plan: Plan) -> int:
    """Return the number of runs of a figure."""
    return len(_costs(figure, plan))


def estimate_s(figures: Sequence[Figure], plan: Plan, jobs: int) -> float:
    """Return how long all of it takes from the beginning, very roughly."""
    costs = [cost for figure in figures for cost in _costs(figure, plan)]
    return (sum(costs) + OVERHEAD_S * len(costs)) / jobs + PLOTS_S * len(figures)


def produce(
    figures: Sequence[Figure],
    plan: Plan,
    folder: pathlib.Path,
    jobs: int,
    show: Show = lambda progress: None,
) -> tuple[pathlib.Path, list[JudgedFigure]]:
    """Run what is missing, then write tables, plots and the page; return it, and the figures with their results.

    Args:
        folder: exists and can be written.

    Raises:
        WriteError: something could not be written; what was done stays done.
        LabError, ExperimentError: a figure's run cannot be; nothing was started.
    """
    kept = CellStore(folder)
    programs = software()
    planned = [(figure, list(plan.cells(figure))) for figure in figures]
    tasks = [
        cell.task(programs, f"{figure.name}, {cell.name}, seed {cell.lab.seed}{way and ', ' + way}")
        for figure, ways in planned
        for way, seeds in ways
        for cells in seeds
        for cell in cells
    ]
    for task in tasks:
        prepare(task.work)
    failed = store.run(tasks, kept, jobs, show)
    done: list[JudgedFigure] = []
    files: dict[str, list[str]] = {}
    seconds: dict[str, float] = {}
    for figure, ways in planned:
        found = {way: _judged(figure, seeds, kept, programs, failed) for way, seeds in ways}
        made = replace(found.pop(""), alternatives=found)
        files[figure.name] = _write(folder, made)
        digests = {cell.digest(programs) for _, seeds in ways for cells in seeds for cell in cells}
        seconds[figure.name] = sum(map(kept.seconds, digests))
        done.append(made)
    notes = [] if has_parquet() else ["Tables are CSV only: pyarrow is not installed."]
    notes += [] if _can_draw() else ["There are no plots: matplotlib is not installed."]
    return write_page(folder, done, files, seconds, plan.options, notes), done


def _judged(
    figure: Figure, seeds: Sequence[Sequence[Cell]], store: CellStore, programs: str, failed: Mapping[str, CellAnswer]
) -> JudgedFigure:
    runs = []
    wrong = []
    for cells in seeds:
        digests = {cell.digest(programs): cell for cell in cells}
        results = {
            cell.name: result for digest, cell in digests.items() if (result := store.result(digest)) is not None
        }
        runs.append(Seeded(cells[0].lab.seed, cells, results))
        wrong += [f"{cell.name}: {failed[digest].failure}" for digest, cell in digests.items() if digest in failed]
    return judged(figure, runs, wrong)


def _write(folder: pathlib.Path, made: JudgedFigure) -> list[str]:
    """Write the tables and plots of a figure; return the files' names."""
    name = made.figure.name
    rows = tables.points(made)
    files = write(folder, name, tables.PointRow, rows)
    files += write(folder, f"{name}-checks", tables.CheckRow, tables.checks(made))
    if rows and _can_draw():
        files += draw.write(folder, made, rows)
    return files


def _can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None
