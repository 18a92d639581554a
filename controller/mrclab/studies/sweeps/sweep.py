"""Sweeps for scripts and for `mrclab sweep`: from a file or keys to the runs, and what they came to."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mrc_topo.base.errors import UsageError
from mrclab.api import Frames, policy_of, table
from mrclab.lab import lifecycle
from mrclab.results import resultdir
from mrclab.runs.experiment import ExperimentError
from mrclab.studies.engine import RunStatus, Show
from mrclab.studies.sweeps import page, spec, work
from mrclab.studies.sweeps import plan as planning
from mrclab.studies.sweeps.measure import Row, RunAnswer
from mrclab.studies.sweeps.page import PairedDifference
from mrclab.studies.sweeps.plan import SweepPlan, SweepRun
from p4lite.scratch import scratch


def _nothing(_: object) -> None:
    """Show no progress."""


class Sweep:
    """Many runs of one experiment or comparison, which differ in keys and seeds; everything is checked when it is made.

    Args:
        source: the name or the file of a sweep; None for one of `keys` alone.
        progress: is given a line while points are checked.
        keys: keys of a sweep file that replace those of `source`, such as experiment, lab, grid, cases and seeds. A
            policy may be a class of a module. Files are relative to the current folder, or to that of the file.

    Raises:
        ExperimentError, LabError: a key or a point is wrong; the text has key, point and remedy.
    """

    def __init__(
        self, source: str | pathlib.Path | None = None, *, progress: Callable[[str], None] = _nothing, **keys: Any
    ) -> None:
        found = None if source is None else spec.load_sweep(str(source))
        if found is None or keys:
            document = {"name": "script", "title": "sweep of a script"} if found is None else found.file.data
            name = "Sweep(...)" if found is None else found.file.name
            found = spec.parse_sweep(json.dumps({**document, **keys}, default=_plain), name)
        total = spec.count(found)
        progress(f"checking {total} runs")
        self.plan: SweepPlan = planning.make(found, progress)
        page.check(self.plan)

    def __len__(self) -> int:
        """Return the number of its runs."""
        return len(self.plan.runs)

    def __repr__(self) -> str:
        return f"<Sweep {self.name}, {len(self)} runs>"

    @property
    def name(self) -> str:
        """Its name."""
        return self.plan.source.sweep.name

    @property
    def real(self) -> bool:
        """Whether it has runs on the real clock."""
        return planning.clock_is_real(self.plan)

    def done(self, folder: pathlib.Path) -> int:
        """Return how many of its runs a folder of results has."""
        return sum(1 for _ in work.answers(folder, self.plan))

    def run(
        self,
        output: str | pathlib.Path | None = None,
        *,
        workers: int | None = None,
        dask: contextlib.AbstractContextManager[Any] | None = None,
        again: bool = False,
        progress: Show = _nothing,
    ) -> SweepResult:
        """Do the runs, and return what they came to.

        Args:
            output: a folder for results; runs that it already has are not repeated. None: nothing is kept.
            workers: processes that do the runs; by default one per core, and 0 does them here, one after another.
            dask: a client of Dask, whose workers do the runs; it is entered if there is something to do, and left.
            again: repeat the runs of `output` that failed.
            progress: is given the state after each run.

        Raises:
            ExperimentError: runs on the real clock and several workers, or the folder is that of another sweep.
            WriteError: a result could not be kept; those before it were.
            StudyCut: Dask's scheduler is gone.
        """
        if self.real:
            if workers or dask is not None:
                raise ExperimentError("runs on the real clock need the machine for themselves: use --workers 0")
            workers = 0
            lifecycle.check()
        with contextlib.ExitStack() as stack:
            if output is None:
                output = stack.enter_context(scratch("sweep"))
            folder = pathlib.Path(output)
            stack.enter_context(resultdir.prepared(folder, 0.0))
            store = work.SweepStore(folder, self.plan)
            stack.callback(store.close)
            study = store.study(again=again)
            waiting = len(study.waiting)
            executor = work.here(self.plan)
            if waiting and dask is not None:
                executor = work.on_dask(stack.enter_context(dask), self.plan)
            elif waiting and workers != 0:
                executor = work.on_processes(self.plan, min(workers or len(os.sched_getaffinity(0)), waiting))
            bad = work.carry_out(store, study, executor, progress)
            rows = list(work.rows(self.plan, store.answers()))
            return SweepResult(self.plan, rows, bad, page.write(folder, self.plan, rows))


class SweepResult(Frames):
    """The rows of all runs of a sweep, and the paired differences between its points.

    `bad` are the runs that failed or could not be done, with their answers; `report` is the path of the report, which
    is there if the runs were kept.
    """

    def __init__(
        self, plan: SweepPlan, rows: Sequence[Row], bad: Sequence[tuple[SweepRun, RunAnswer]], report: pathlib.Path
    ) -> None:
        self.plan, self.rows, self.bad, self.report = plan, rows, bad, report
        plotted = {each.y for each in page.plots_of(plan)}
        self.differences: list[PairedDifference] = [
            each for each in page.differences(plan, rows) if each.measure in plotted
        ]

    def __repr__(self) -> str:
        return f"<SweepResult of {self.plan.source.sweep.name}, {len(self.plan.runs)} runs, {len(self.bad)} not good>"

    @property
    def passed(self) -> bool:
        """Whether all runs are good, or failed where the sweep says that they may."""
        may_fail = self.plan.source.sweep.may_fail
        return not self.bad or (may_fail and all(answer.status is RunStatus.FAILED for _, answer in self.bad))

    def frame(self, what: str = "runs") -> dict[str, list[Any]]:
        """Return columns of equal length: `runs` (a row for each, or for each cell of a comparison), or `differences`
        from the first point on the same seeds, with half of the width of their 95 % confidence interval."""
        if what == "runs":
            return {name: [row[name] for row in self.rows] for name in work.columns(self.plan)}
        if what == "differences":
            return {
                name: [getattr(difference, name) for difference in self.differences]
                for name in ("measure", "key", "first", "value", "where", "pairs", "mean", "half", "differs")
            }
        raise UsageError(f"no frame '{what}'; there are runs and differences")

    def _repr_html_(self) -> str:
        lines = {
            f"{difference.measure}, {difference.value} {difference.where}": f"{difference.mean:+.4g}"
            + ("" if difference.half is None else f" ± {difference.half:.4g}")
            for difference in self.differences
        }
        first = f", differences from {self.differences[0].first}" if lines else ""
        return table(f"{self.plan.source.sweep.title}: {len(self.plan.runs)} runs, {len(self.bad)} bad{first}", lines)


def _plain(value: object) -> object:
    """Return what JSON has no form for as a sweep file has it."""
    if isinstance(value, type):
        return policy_of(value, pathlib.Path.cwd())
    if isinstance(value, pathlib.Path):
        return str(value)
    if isinstance(value, range | set | frozenset):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise UsageError(f"a sweep takes numbers, texts, lists, mappings, paths and classes, not {type(value).__name__}")
