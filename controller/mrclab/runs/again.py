"""A run repeated from the folder of its results: the same lab, experiment or workload, seed and clock."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from mrc_topo.base.document import printable
from mrc_topo.base.files import Archive
from mrc_topo.labfile import load_lab
from mrc_topo.schema import Lab
from mrclab.results.provenance import Provenance
from mrclab.results.reading import RESULT, FolderError, document_of, readable
from mrclab.results.record import RunResult
from mrclab.results.recording import EVENTS, MAX_ARRAY, SAMPLES, event_lines
from mrclab.runs.experiment import Experiment, ExperimentError, check_trusted
from p4lite.scratch import scratch

#: Parts of `result.json` that say by what the run was made, not what came out.
NOT_COMPARED = ("provenance", "fidelity")


@dataclass(frozen=True)
class EarlierRun:
    """An earlier run, read from its folder. `caveats`: why it may not be repeatable, a line each."""

    folder: Path
    experiment: Experiment
    lab: Lab
    provenance: Provenance | None
    caveats: list[str]


@dataclass(frozen=True)
class RepeatReport:
    """The differences between an earlier run and its repetition.

    `provenance`: a line for each difference in its software and inputs; `results`: the parts of the results whose bytes
    differ, None on the real clock, where they always do.
    """

    provenance: list[str]
    results: list[str] | None

    @property
    def passed(self) -> bool:
        """Return whether the results are the same, as far as that can be expected."""
        return not self.results


def load(folder: Path) -> EarlierRun:
    """Read what is needed to repeat a run.

    Raises:
        FolderError: there are no results that can be read; names the file.
        ExperimentError: they do not hold the experiment (an earlier version wrote them), or others can change them and
            they name code.
    """
    path = folder / RESULT
    document = document_of(path)
    with readable(path):
        asked, lab, interrupted = document.get("experiment"), document.get("topology"), document.get("interrupted", "")
        clicked = any(each.get("clicked") for each in document.get("happenings", ()))
        given = document.get("provenance")
    if asked is None or lab is None:
        raise ExperimentError(
            f"{printable(str(path))}: it does not hold its experiment, because an earlier version of mrclab or a "
            "workshop check wrote it; run the experiment by its name"
        )
    with readable(path):  # what is nested too deep, too
        check_trusted(path, {"experiment": asked, "topology": lab})
    try:
        experiment, made = Experiment.model_validate(asked), Lab.model_validate(lab)
        came = None if given is None else Provenance.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"])
        raise ExperimentError(
            f"{printable(str(path))}: {printable(where)}: {printable(str(first['msg']))}; another version wrote it, or "
            "it is damaged"
        ) from error
    caveats = ["it has no provenance"] if came is None else []
    if interrupted:
        caveats.append(f"it was ended by {printable(str(interrupted))}, which is not repeated")
    if clicked:
        caveats.append("failures were caused from the live view, which are not repeated")
    return EarlierRun(folder, experiment, made, came, caveats)


@contextlib.contextmanager
def repeatable(earlier: EarlierRun) -> Iterator[Experiment]:
    """Yield the experiment on the lab of the earlier run, whose file lasts as long as the context."""
    with on_lab(earlier.experiment, earlier.lab) as experiment:
        yield experiment


@contextlib.contextmanager
def seeded(experiment: Experiment, seed: int) -> Iterator[Experiment]:
    """Yield the experiment on its lab with another seed; the lab's file lasts as long as the context.

    Raises:
        LabError: there is no such lab, or its file is wrong.
    """
    with on_lab(experiment, load_lab(experiment.lab).lab.model_copy(update={"seed": seed})) as changed:
        yield changed


@contextlib.contextmanager
def on_lab(experiment: Experiment, lab: Lab) -> Iterator[Experiment]:
    """Yield the experiment on a lab that has no file of its own; its file lasts as long as the context."""
    with scratch("lab") as folder:
        path = Path(folder, "lab.yaml")
        path.write_text(lab.model_dump_json(indent=1), encoding="utf-8")  # JSON is YAML
        yield experiment.model_copy(update={"lab": str(path)})


def compared(
    earlier: EarlierRun, result: RunResult, folder: Path, moved: Mapping[str, str] = MappingProxyType({})
) -> RepeatReport:
    """Compare an earlier run with its repetition in a folder.

    Args:
        moved: files of code that were elsewhere in the earlier run, with the paths that they had.

    Raises:
        FolderError: a file of either cannot be read.
    """
    now = result.provenance
    lines = ["not known of the earlier run"]
    if earlier.provenance is not None and now is not None:
        lines = earlier.provenance.differences(now)
    return RepeatReport(lines, _differing(earlier.folder, folder, moved) if result.clock == "virtual" else None)


def _differing(first: Path, second: Path, moved: Mapping[str, str]) -> list[str]:
    """Return the parts of two folders' results whose bytes differ: keys of result.json, arrays, events."""
    ours, theirs = _parts(first, {}), _parts(second, moved)
    return [name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name) != theirs.get(name)]


def _parts(folder: Path, moved: Mapping[str, str]) -> dict[str, str]:
    """Return digests of a folder's results by name, with `moved` paths as they were; archives hold the time at which
    they were written."""
    paths = [[json.dumps(path)[1:-1].encode() for path in each] for each in moved.items()]

    def digest(pieces: Iterable[bytes], *, texts: bool = True) -> str:
        found = hashlib.sha256()
        for piece in pieces:
            for now, then in paths if texts else ():
                piece = piece.replace(now, then)
            found.update(piece)
        return found.hexdigest()

    document = document_of(folder / RESULT)
    with readable(folder / RESULT):
        parts = {
            f"{RESULT}: {key}": digest([json.dumps(value).encode()])
            for key, value in document.items()
            if key not in NOT_COMPARED
        }
    with readable(folder / SAMPLES), Archive(folder / SAMPLES) as archive:
        for info in archive.infolist():
            with archive.member(info, MAX_ARRAY) as array:
                parts[f"{SAMPLES}: {info.filename}"] = digest(array.pieces(), texts=False)
    with readable(folder / EVENTS), event_lines(folder) as lines:
        parts[EVENTS] = digest(lines)
    return parts


def check_other(folder: Path, earlier: EarlierRun) -> None:
    """Check that the repetition does not replace the results that it is compared with.

    Raises:
        FolderError: it would.
    """
    if folder.exists() and folder.resolve() == earlier.folder.resolve():
        raise FolderError(f"{printable(str(folder))}: the results to be repeated are here; choose another -o")
