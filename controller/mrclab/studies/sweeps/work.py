"""The folder of a sweep, and the runs that are missing in it, done here or by workers of Dask."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mrc_topo.base.document import Document, printable
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import encode
from mrclab.results.reading import FolderError, document_of, readable
from mrclab.runs.experiment import ExperimentError, Tree, check_trusted
from mrclab.studies import engine
from mrclab.studies.cells.pages import ColumnType, csv_of, has_parquet, parquet_of
from mrclab.studies.engine import RUNS, DocumentStore, Executor, Show, Study, Task
from mrclab.studies.sweeps import measure, plan
from mrclab.studies.sweeps.measure import Row, RunAnswer, Scalar
from mrclab.studies.sweeps.plan import SweepPlan, SweepRun
from mrclab.studies.sweeps.spec import quantity, source_of

PLAN, LOGS, DATASET, CSV = "sweep.json", "logs", "dataset", "sweep.csv"
#: Runs whose rows are in one file of the dataset.
PART = 64
SHORT = 12
SweepStudy = Study[SweepRun, RunAnswer]
SweepExecutor = Executor[SweepRun, RunAnswer]


class SweepStore(DocumentStore[RunAnswer]):
    """A sweep's folder, which exists; `close` lets another command have it.

    Raises:
        ExperimentError: another command is writing there, or it holds what another version made.
    """

    def __init__(self, folder: pathlib.Path, made: SweepPlan) -> None:
        super().__init__(folder, RunAnswer)
        self.place, self.plan = folder, made
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            text = "another command is running a sweep in this folder; wait for it, or choose another with -o"
            raise ExperimentError(f"{printable(str(folder))}: {text}") from error
        try:
            self._check_whose()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder."""
        os.close(self._lock)

    def _check_whose(self) -> None:
        known = _read(self.place / PLAN)
        if known is None:
            return
        sweep, mine = known.get("sweep"), self.plan.source.sweep.name
        name = sweep.get("name") if isinstance(sweep, dict) else None
        if name != mine:
            text = f"it holds the sweep '{name}', and one dataset is of one sweep; choose another for '{mine}' with -o"
            raise ExperimentError(f"{printable(str(self.place))}: {printable(text)}")
        if known.get("software") != self.plan.software:
            raise ExperimentError(
                f"{printable(str(self.place))}: its runs were made by other sources of mrclab, and one dataset is of "
                "one version; choose another folder with -o, or remove this one"
            )

    def begin(self) -> None:
        """Write the plan, and the parts of the dataset whose runs are all there.

        Raises:
            WriteError: something could not be written.
        """
        for name in (RUNS, LOGS, DATASET):
            (self.place / name).mkdir(exist_ok=True)
        write_whole(self.place / PLAN, json.dumps(self.plan.document(), indent=1, sort_keys=True) + "\n")
        for number in range(self._parts()):
            self._part(number)

    def study(self, *, again: bool = False) -> SweepStudy:
        """Return the runs of the plan, with those that are kept; `again`: do those again that are not good."""
        tasks = (Task(run.digest, "", run) for run in self.plan.runs)
        return Study(tasks, self.get, self.keep, again=again)

    def keep(self, task: Task[SweepRun], answer: RunAnswer) -> RunAnswer:
        """Keep the answer of a run, and what it printed in a file of its own if it is not good.

        Raises:
            WriteError: it could not be written; what was kept before stays.
        """
        run, kept = task.work, replace(answer, log=None)
        log = self.place / LOGS / f"{run.digest}.log"
        if answer.good:
            log.unlink(missing_ok=True)
        else:
            write_whole(log, self._log(run, answer))
        self.put(run.digest, kept)
        self._part(run.index // PART)
        return kept

    def _log(self, run: SweepRun, answer: RunAnswer) -> str:
        lab, content = self.plan.documents(run)
        lines = [
            f"run {run.digest}: {answer.status}: {answer.failure}",
            f"again, in the sweep's folder: {command(run)}",
            f"point {run.point.number}: {run.point.text()}; seed {run.seed}, repetition {run.repetition}",
            f"lab: {json.dumps(lab)}",
            f"{self.plan.base.kind}: {json.dumps(content)}",
            "--- what it printed",
            answer.log or "",
        ]
        return "\n".join(lines) + "\n"

    def finish(self) -> None:
        """Write the dataset of all runs, which are there.

        Raises:
            WriteError: something could not be written.
        """
        for number in range(self._parts()):
            self._part(number)
        wanted = {f"part-{number:05}.parquet" for number in range(self._parts())}
        for path in (self.place / DATASET).iterdir():  # of an earlier, longer plan
            if path.name not in wanted:
                path.unlink()
        heads = list(columns(self.plan))
        found = [[row[head] for head in heads] for row in rows(self.plan, self.answers())]
        _write(self.place / CSV, csv_of(heads, found).encode())

    def answers(self) -> Iterator[tuple[SweepRun, RunAnswer]]:
        """Yield all runs that are there, in the order of the plan."""
        return answers(self.place, self.plan)

    def _parts(self) -> int:
        return -(-len(self.plan.runs) // PART)

    def _part(self, number: int) -> None:
        """Write a part of the dataset, if all of its runs are there."""
        if not has_parquet():
            return
        own = self.plan.runs[number * PART : (number + 1) * PART]
        if not all((self.folder / f"{run.digest}.json").exists() for run in own):
            return
        found = [(run, answer) for run in own if (answer := self.get(run.digest)) is not None]
        if len(found) == len(own):
            lines = list(rows(self.plan, found))
            table = {head: (kind, [row[head] for row in lines]) for head, kind in columns(self.plan).items()}
            _write(self.place / DATASET / f"part-{number:05}.parquet", parquet_of(table))


def _write(path: pathlib.Path, data: bytes) -> None:
    """Write a file unless it has these contents already."""
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass
    write_whole(path, data)


def _read(path: pathlib.Path) -> Tree | None:
    try:
        return document_of(path)
    except FolderError:
        return None


def answers(folder: pathlib.Path, made: SweepPlan) -> Iterator[tuple[SweepRun, RunAnswer]]:
    """See `SweepStore.answers`."""
    kept = DocumentStore(folder, RunAnswer)
    for run in made.runs:
        if (answer := kept.get(run.digest)) is not None:
            yield run, answer


def load_plan(folder: pathlib.Path) -> SweepPlan:
    """Return the plan of a sweep's folder, as it was made.

    Raises:
        ExperimentError: there is none, or its format is a later one; or it names code and others can change it.
    """
    shown = printable(str(folder / PLAN))
    found = _read(folder / PLAN)
    sweep = None if found is None else found.get("sweep")
    with readable(folder / PLAN):  # what is nested too deep, too
        check_trusted(folder / PLAN, sweep)
    if found is None or not isinstance(sweep, dict):
        raise ExperimentError(f"{shown}: no plan of a sweep; name the folder that `mrclab sweep FILE -o FOLDER` filled")
    if found.get("format") != plan.FORMAT:
        raise ExperimentError(f"{shown}: format {found.get('format')}; this version reads {plan.FORMAT}")
    with readable(folder / PLAN):
        return plan.make(source_of(Document(shown, sweep)), check=False, software=str(found["software"]))


def command(run: SweepRun) -> str:
    """Return the command that repeats this run, in the sweep's folder."""
    return f"mrclab sweep repeat . {run.digest[:SHORT]}"


def columns(made: SweepPlan) -> dict[str, ColumnType]:
    """Return the columns of the dataset with their types."""
    text, whole = ColumnType.TEXT, ColumnType.WHOLE
    heads = {"run": text, "index": whole, "point": whole, "case": text, "seed": whole, "repetition": whole}
    heads |= {key: _type([run.point.values.get(key) for run in made.runs]) for key in made.keys}
    if made.base.kind == "comparison":
        heads |= {"variant": text, "condition": text}
    heads |= {"status": text, "failure": text}
    return {**heads, **dict.fromkeys(measure.METRICS[made.base.kind], ColumnType.NUMBER), "command": text}


def _type(values: Sequence[object]) -> ColumnType:
    given = [quantity(value) for value in values if value is not None]
    if given and all(isinstance(value, bool) for value in given):
        return ColumnType.TRUTH
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in given):
        return ColumnType.TEXT
    whole = all(isinstance(value, int) and abs(value) < 2**63 for value in given)
    return ColumnType.WHOLE if whole else ColumnType.NUMBER


def rows(made: SweepPlan, answers: Iterable[tuple[SweepRun, RunAnswer]]) -> Iterator[Row]:
    """Yield the dataset's rows, with all columns; a run that could not be done has one, without numbers."""
    heads = columns(made)
    for run, answer in answers:
        about: dict[str, Scalar] = dict.fromkeys(heads)
        about |= {"run": run.digest, "index": run.index, "point": run.point.number, "case": run.point.case}
        about |= {"seed": run.seed, "repetition": run.repetition, "command": command(run)}
        about |= {"status": answer.status.value, "failure": answer.failure}
        about |= {key: cell(run.point.values.get(key), heads[key]) for key in made.keys}
        for numbers in answer.rows or [{}]:
            yield about | {key: cell(value, heads[key]) for key, value in numbers.items() if key in heads}


def cell(value: object, kind: ColumnType) -> Scalar:
    """Return a value of a point as it stands in a row; lists and mappings are JSON texts."""
    if value is None or (isinstance(value, bool) and kind is ColumnType.TRUTH):
        return value
    if kind is ColumnType.TEXT:
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    number = quantity(value)
    assert isinstance(number, int | float)  # as the column's type says
    return float(number) if kind is ColumnType.NUMBER else number


def carry_out(
    store: SweepStore, study: SweepStudy, executor: SweepExecutor, show: Show = lambda progress: None
) -> list[tuple[SweepRun, RunAnswer]]:
    """Do the runs of a sweep that are missing; return those that are not good, of all.

    Raises:
        WriteError: a run could not be kept; those before it were.
        StudyCut: the scheduler is gone, or a worker is another version.
    """
    store.begin()
    bad = study.carry_out(executor, show)
    store.finish()
    return [(run, bad[run.digest]) for run in store.plan.runs if run.digest in bad]


def here(plan: SweepPlan) -> SweepExecutor:
    """Return the executor that does runs in this process."""
    return engine.here(lambda run: measure.perform(plan.task(run)))


def on_processes(plan: SweepPlan, jobs: int) -> SweepExecutor:
    """Return the executor that gives runs to processes on this machine, at most `jobs` of them."""
    return engine.processes(measure.perform, measure.without_rows, jobs, plan.task)


def on_dask(client: Any, plan: SweepPlan) -> SweepExecutor:
    """Return the executor that gives runs to the workers of a Dask cluster."""
    return engine.dask(client, measure.run_in_worker, lambda run: encode(plan.task(run)), RunAnswer, measure.died)
