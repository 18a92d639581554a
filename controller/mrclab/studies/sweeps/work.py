"""The folder of a sweep, and the runs that are missing in it, done here or by workers of Dask."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mrc_topo.base import interruption
from mrc_topo.base.document import Document, printable
from mrc_topo.base.errors import MrclabError
from mrc_topo.base.files import write_whole
from mrc_topo.base.plain import decode, encode
from mrclab.results.reading import FolderError, document_of, readable
from mrclab.runs.experiment import ExperimentError, Tree, check_trusted
from mrclab.studies.cells.pages import ColumnType, csv_of, has_parquet, parquet_of
from mrclab.studies.cells.workers import RUNS, DocumentStore
from mrclab.studies.sweeps import measure, plan
from mrclab.studies.sweeps.measure import Row, RunAnswer, RunStatus, Scalar
from mrclab.studies.sweeps.plan import SweepPlan, SweepRun
from mrclab.studies.sweeps.spec import quantity, source_of

PLAN, LOGS, DATASET, CSV = "sweep.json", "logs", "dataset", "sweep.csv"
#: Runs whose rows are in one file of the dataset.
PART = 64
SHORT = 12


class SweepStore:
    """A sweep's folder, which exists; `close` lets another command have it.

    Raises:
        ExperimentError: another command is writing there, or it holds what another version made.
    """

    def __init__(self, folder: pathlib.Path, made: SweepPlan) -> None:
        self.folder, self.plan = folder, made
        self._runs = DocumentStore(folder, RunAnswer)
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
        known = _read(self.folder / PLAN)
        if known is None:
            return
        sweep, mine = known.get("sweep"), self.plan.source.sweep.name
        name = sweep.get("name") if isinstance(sweep, dict) else None
        if name != mine:
            text = f"it holds the sweep '{name}', and one dataset is of one sweep; choose another for '{mine}' with -o"
            raise ExperimentError(f"{printable(str(self.folder))}: {printable(text)}")
        if known.get("software") != self.plan.software:
            raise ExperimentError(
                f"{printable(str(self.folder))}: its runs were made by other sources of mrclab, and one dataset is of "
                "one version; choose another folder with -o, or remove this one"
            )

    def begin(self) -> None:
        """Write the plan, and the parts of the dataset whose runs are all there.

        Raises:
            WriteError: something could not be written.
        """
        for name in (RUNS, LOGS, DATASET):
            (self.folder / name).mkdir(exist_ok=True)
        write_whole(self.folder / PLAN, json.dumps(self.plan.document(), indent=1, sort_keys=True) + "\n")
        for number in range(self._parts()):
            self._part(number)

    def get(self, run: SweepRun) -> RunAnswer | None:
        """Return the answer of a run; None if it was not done, or its file cannot be read."""
        return self._runs.get(run.digest)

    def put(self, run: SweepRun, answer: RunAnswer) -> None:
        """Keep the answer of a run.

        Raises:
            WriteError: it could not be written; what was kept before stays.
        """
        log = self.folder / LOGS / f"{run.digest}.log"
        if answer.good:
            log.unlink(missing_ok=True)
        else:
            write_whole(log, self._log(run, answer))
        self._runs.put(run.digest, replace(answer, log=None))
        self._part(run.index // PART)

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
        for path in (self.folder / DATASET).iterdir():  # of an earlier, longer plan
            if path.name not in wanted:
                path.unlink()
        heads = list(columns(self.plan))
        found = [[row[head] for head in heads] for row in rows(self.plan, self.answers())]
        _write(self.folder / CSV, csv_of(heads, found).encode())

    def answers(self) -> Iterator[tuple[SweepRun, RunAnswer]]:
        """Yield all runs that are there, in the order of the plan."""
        return answers(self.folder, self.plan)

    def _parts(self) -> int:
        return -(-len(self.plan.runs) // PART)

    def _part(self, number: int) -> None:
        """Write a part of the dataset, if all of its runs are there."""
        if not has_parquet():
            return
        own = self.plan.runs[number * PART : (number + 1) * PART]
        if not all((self.folder / RUNS / f"{run.digest}.json").exists() for run in own):
            return
        found = [(run, answer) for run in own if (answer := self.get(run)) is not None]
        if len(found) == len(own):
            lines = list(rows(self.plan, found))
            table = {head: (kind, [row[head] for row in lines]) for head, kind in columns(self.plan).items()}
            _write(self.folder / DATASET / f"part-{number:05}.parquet", parquet_of(table))


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


#: Runs that the scheduler knows at a time: enough to keep its workers busy while others join and leave.
LEAST_AHEAD, AHEAD = 64, 4

#: Does runs, in any order.
Answers = Generator[tuple[SweepRun, RunAnswer], None, None]
Executor = Callable[[SweepPlan, Sequence[SweepRun]], Answers]


class SweepCut(MrclabError):
    """The sweep cannot go on; finished runs are kept, and the same command continues it."""


@dataclass(frozen=True)
class SweepProgress:
    """The progress of a sweep.

    It has the runs that are done of all, those of them that are not good, and seconds that the others may take (None:
    not yet known).
    """

    done: int
    total: int
    bad: int
    left_s: float | None


def carry_out(
    store: SweepStore,
    executor: Executor,
    progress: Callable[[SweepProgress], None] = lambda each: None,
    *,
    again: bool = False,
) -> list[tuple[SweepRun, RunAnswer]]:
    """Do the runs of the store's plan that it does not have; return those that are not good, of all.

    Args:
        again: do those again that were not good.

    Raises:
        WriteError: a run could not be kept; those before it were.
        SweepCut: the scheduler is gone, or a worker is another version.
    """
    store.begin()
    waiting, bad = missing(store, again=again)
    total = len(store.plan.runs)
    done = before = total - len(waiting)
    begin = time.monotonic()
    progress(SweepProgress(done, total, len(bad), None if waiting else 0.0))
    with contextlib.closing(executor(store.plan, waiting)) as answers:
        for run, answer in answers:
            if answer.status is RunStatus.STRANGER:
                kept = f"{done} of {total} runs are kept, the same command goes on"
                raise SweepCut(f"a worker cannot take part: {answer.failure}; {kept}")
            store.put(run, answer)
            done += 1
            if not answer.good:
                bad[run.index] = (run, replace(answer, log=None))
            left = (time.monotonic() - begin) / (done - before) * (total - done)
            progress(SweepProgress(done, total, len(bad), left))
    store.finish()
    return [bad[index] for index in sorted(bad)]


def missing(store: SweepStore, *, again: bool = False) -> tuple[list[SweepRun], dict[int, tuple[SweepRun, RunAnswer]]]:
    """Return the runs that are to be done, and by their place those that are done and not good. What its workers died
    of, or a machine lacked something for, is done again in any case: next time it may be otherwise."""
    waiting, bad = [], {}
    for run in store.plan.runs:
        answer = store.get(run)
        if answer is None or answer.status is RunStatus.DIED or (again and not answer.good):
            waiting.append(run)
        elif not answer.good:
            bad[run.index] = (run, answer)
    return waiting, bad


def here(plan: SweepPlan, runs: Sequence[SweepRun]) -> Answers:
    """Do runs in this process, one after another."""
    for run in runs:
        answer = measure.perform(plan.task(run))
        # The terminal's signal also ends what a run has started, which is no result of it.
        interruption.check()
        yield run, answer


def on_dask(client: Any) -> Executor:
    """Return an executor that gives runs to the workers of a Dask cluster.

    A run whose worker died is done by another; a run that ends several workers is an error.
    """

    def execute(plan: SweepPlan, runs: Sequence[SweepRun]) -> Answers:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        waiting = iter(runs)
        # Of this command alone: a scheduler may serve others, or remember an earlier one.
        mark = secrets.token_hex(4)
        at: dict[str, SweepRun] = {}

        def submit(run: SweepRun) -> Any:
            key = f"mrclab-{mark}-{run.digest}"
            at[key] = run
            return client.submit(measure.run_in_worker, encode(plan.task(run)), key=key, pure=False)

        ahead = max(LEAST_AHEAD, AHEAD * sum(client.nthreads().values()))
        first = [submit(run) for run in itertools.islice(waiting, ahead)]
        futures = as_completed(first, loop=client.loop)
        try:
            for future in _completed(futures):
                run = at.pop(future.key)
                try:
                    answer = decode(RunAnswer, future.result(), lenient=True)
                except KilledWorker as error:
                    answer = RunAnswer(RunStatus.DIED, "each worker died that took it", [], 0.0, str(error))
                except BaseException as error:
                    if not _lost(client, error):
                        raise
                    kept = "what is done is kept, the same command goes on"
                    raise SweepCut(f"the scheduler is gone ({type(error).__name__}); {kept}") from error
                future.release()
                following = next(waiting, None)
                if following is not None:
                    futures.add(submit(following))
                yield run, answer
        finally:
            with contextlib.suppress(Exception):  # of a scheduler that may be gone
                client.cancel(list(futures.futures))

    return execute


def _completed(futures: Any) -> Iterator[Any]:
    """Yield the futures of Dask's `as_completed`, to which more may be added, and look for signals meanwhile."""
    while not futures.is_empty():
        interruption.check()
        if futures.has_ready():
            yield next(futures)
        else:
            interruption.sleep(interruption.LOOK_S / 5)


def _lost(client: Any, error: BaseException) -> bool:
    """Return whether a future ended because the scheduler no longer knows it."""
    from asyncio import CancelledError as Cancelled
    from concurrent.futures import CancelledError

    return isinstance(error, CancelledError | Cancelled | OSError) or client.status != "running"
