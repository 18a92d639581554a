"""The folder of a sweep: each run kept as soon as it is done, and the dataset that is made of the runs in their order.

`sweep.json`: the plan. `runs/DIGEST.json`: a run, under the digest of all that it depends on; so what was done is not
done again, and nothing is there twice. `logs/DIGEST.log`: of runs that are not good. `dataset/part-NNNNN.parquet`: the
rows of so many runs each (`PART`), as soon as all of those are done; `sweep.csv`: all rows, at the end. Every file is
complete or absent, and all but `runs/` and `logs/` are the same, byte by byte, for the same plan.
"""

from __future__ import annotations

import csv
import fcntl
import importlib.util
import io
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mrc_common.document import Document, csv_cell, printable
from mrc_common.files import write_whole
from mrc_runs.experiment import ExperimentError
from mrc_studies.sweeps import measure, plan
from mrc_studies.sweeps.plan import SweepPlan, SweepRun
from mrc_studies.sweeps.spec import quantity, source_of

PLAN, RUNS, LOGS, DATASET, CSV = "sweep.json", "runs", "logs", "dataset", "sweep.csv"
#: Runs whose rows are in one file of the dataset.
PART = 64
SHORT = 12

Answer = Mapping[str, Any]


class Store:
    """A sweep's folder, which exists; `close` lets another command have it.

    Raises:
        ExperimentError: another command is writing there, or it holds what another version made.
    """

    def __init__(self, folder: pathlib.Path, made: SweepPlan) -> None:
        self.folder, self.plan = folder, made
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
        """Lets go of the folder."""
        os.close(self._lock)

    def _check_whose(self) -> None:
        known = _read(self.folder / PLAN)
        if known is None:
            return
        name, mine = (known.get("sweep") or {}).get("name"), self.plan.source.sweep.name
        if name != mine:
            text = f"it holds the sweep '{name}', and one dataset is of one sweep; choose another for '{mine}' with -o"
            raise ExperimentError(f"{printable(str(self.folder))}: {printable(text)}")
        if known.get("software") != self.plan.software:
            raise ExperimentError(
                f"{printable(str(self.folder))}: its runs were made by other sources of mrclab, and one dataset is of "
                "one version; choose another folder with -o, or remove this one"
            )

    def begin(self) -> None:
        """Writes the plan, and the parts of the dataset whose runs are all there.

        Raises:
            WriteError: something could not be written.
        """
        for name in (RUNS, LOGS, DATASET):
            (self.folder / name).mkdir(exist_ok=True)
        write_whole(self.folder / PLAN, json.dumps(self.plan.document(), indent=1, sort_keys=True) + "\n")
        for number in range(self._parts()):
            self._part(number)

    def get(self, run: SweepRun) -> Answer | None:
        """What a run left (`measure.perform`); None if it was not done, or its file is none."""
        return answer_of(self.folder, run)

    def put(self, run: SweepRun, answer: Answer) -> None:
        """Keeps what a run left.

        Raises:
            WriteError: it could not be written; what was kept before stays.
        """
        log = self.folder / LOGS / f"{run.digest}.log"
        if answer["status"] == measure.GOOD:
            log.unlink(missing_ok=True)
        else:
            write_whole(log, self._log(run, answer))
        kept = {key: value for key, value in answer.items() if key != "log"}
        text = json.dumps({"digest": run.digest, **kept}, sort_keys=True, allow_nan=False)
        write_whole(self.folder / RUNS / f"{run.digest}.json", text + "\n")
        self._part(run.index // PART)

    def _log(self, run: SweepRun, answer: Answer) -> str:
        lab, content = self.plan.documents(run)
        lines = [
            f"run {run.digest}: {answer['status']}: {answer['failure']}",
            f"again, in the sweep's folder: {command(run)}",
            f"point {run.point.number}: {run.point.text()}; seed {run.seed}, repetition {run.repetition}",
            f"lab: {json.dumps(lab)}",
            f"{self.plan.base.kind}: {json.dumps(content)}",
            "--- what it printed",
            str(answer.get("log", "")),
        ]
        return "\n".join(lines) + "\n"

    def finish(self) -> None:
        """Writes what is made of all runs, which are there.

        Raises:
            WriteError: something could not be written.
        """
        for number in range(self._parts()):
            self._part(number)
        wanted = {f"part-{number:05}.parquet" for number in range(self._parts())}
        for path in (self.folder / DATASET).iterdir():  # of an earlier, longer plan
            if path.name not in wanted:
                path.unlink()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        heads = list(columns(self.plan))
        writer.writerow(heads)
        for row in rows(self.plan, self.answers()):
            writer.writerow(["" if row[head] is None else csv_cell(row[head]) for head in heads])
        _write(self.folder / CSV, text.getvalue().encode())

    def answers(self) -> Iterator[tuple[SweepRun, Answer]]:
        """All runs that are there, in the order of the plan."""
        return answers(self.folder, self.plan)

    def _parts(self) -> int:
        return -(-len(self.plan.runs) // PART)

    def _part(self, number: int) -> None:
        """Writes a part of the dataset, if all of its runs are there."""
        if not has_parquet():
            return
        own = self.plan.runs[number * PART : (number + 1) * PART]
        if not all((self.folder / RUNS / f"{run.digest}.json").exists() for run in own):
            return
        found = [(run, answer) for run in own if (answer := self.get(run)) is not None]
        if len(found) == len(own):
            data = _parquet(columns(self.plan), list(rows(self.plan, found)))
            _write(self.folder / DATASET / f"part-{number:05}.parquet", data)


def _write(path: pathlib.Path, data: bytes) -> None:
    """Leaves a file alone that is right already."""
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass
    write_whole(path, data)


def _read(path: pathlib.Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def answer_of(folder: pathlib.Path, run: SweepRun) -> Answer | None:
    """See `Store.get`."""
    found = _read(folder / RUNS / f"{run.digest}.json")
    return found if found is not None and found.get("digest") == run.digest else None


def answers(folder: pathlib.Path, made: SweepPlan) -> Iterator[tuple[SweepRun, Answer]]:
    """See `Store.answers`."""
    for run in made.runs:
        if (answer := answer_of(folder, run)) is not None:
            yield run, answer


def load_plan(folder: pathlib.Path) -> SweepPlan:
    """The plan of a sweep's folder, as it was made.

    Raises:
        ExperimentError: there is none, or its format is a later one.
    """
    shown = printable(str(folder / PLAN))
    found = _read(folder / PLAN)
    if found is None or "sweep" not in found:
        raise ExperimentError(f"{shown}: no plan of a sweep; name the folder that `mrclab sweep FILE -o FOLDER` filled")
    if found.get("format") != plan.FORMAT:
        raise ExperimentError(f"{shown}: format {found.get('format')}; this version reads {plan.FORMAT}")
    return plan.make(source_of(Document(shown, found["sweep"])), check=False, software=str(found["software"]))


def command(run: SweepRun) -> str:
    """What does this one run again, in the sweep's folder."""
    return f"mrclab sweep repeat . {run.digest[:SHORT]}"


def columns(made: SweepPlan) -> dict[str, str]:
    """Columns of the dataset with their types: text, whole, number or truth."""
    heads = {"run": "text", "index": "whole", "point": "whole", "case": "text", "seed": "whole", "repetition": "whole"}
    heads |= {key: _type([run.point.values.get(key) for run in made.runs]) for key in made.keys}
    if made.base.kind == "comparison":
        heads |= {"variant": "text", "condition": "text"}
    heads |= {"status": "text", "failure": "text"}
    return {**heads, **dict.fromkeys(measure.METRICS[made.base.kind], "number"), "command": "text"}


def _type(values: Sequence[Any]) -> str:
    given = [quantity(value) for value in values if value is not None]
    if given and all(isinstance(value, bool) for value in given):
        return "truth"
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in given):
        return "text"
    return "whole" if all(isinstance(value, int) and abs(value) < 2**63 for value in given) else "number"


def rows(
    made: SweepPlan, answers: Sequence[tuple[SweepRun, Answer]] | Iterator[tuple[SweepRun, Answer]]
) -> Iterator[dict[str, Any]]:
    """The dataset's rows, with all columns; a run that could not be done has one, without numbers."""
    heads = columns(made)
    for run, answer in answers:
        about: dict[str, Any] = dict.fromkeys(heads)
        about |= {"run": run.digest, "index": run.index, "point": run.point.number, "case": run.point.case}
        about |= {"seed": run.seed, "repetition": run.repetition, "command": command(run)}
        about |= {"status": answer["status"], "failure": answer["failure"]}
        about |= {key: _cell(run.point.values.get(key), heads[key]) for key in made.keys}
        for numbers in answer["rows"] or [{}]:
            yield about | {key: _cell(value, heads[key]) for key, value in numbers.items() if key in heads}


def _cell(value: Any, kind: str) -> Any:
    if value is None or kind == "truth":
        return value
    if kind == "text":
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return float(quantity(value)) if kind == "number" else quantity(value)


def has_parquet() -> bool:
    """Whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def _parquet(heads: Mapping[str, str], found: Sequence[Mapping[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    types = {"text": pa.string(), "whole": pa.int64(), "number": pa.float64(), "truth": pa.bool_()}
    arrays = [pa.array([row[head] for row in found], types[kind]) for head, kind in heads.items()]
    schema = pa.schema([(head, types[kind]) for head, kind in heads.items()])
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), sink)
    return sink.getvalue()
