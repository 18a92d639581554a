"""Artifacts: runs packed with what is needed to repeat them elsewhere, and their repetition.

    artifact.json            version, commit, digest of the sources, packages, and a row per run (`Artifact`)
    README.md                how to check it
    runs/NUMBER-NAME/...     the folder of each run, as it was written
    code/NUMBER/...          the files of a run's policies and of its P4 program
    data/NUMBER/KEY/...      the files that a run's workload reads, by its parameter

An artifact of another author is data until it is repeated. Then the code that it holds would run as the user, so it is
refused unless the user allows that.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import platform
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from mrc_common.document import printable
from mrc_common.errors import ExitCode, UsageError
from mrc_common.files import write_whole
from mrc_common.plain import DecodeError, decode, encode
from mrc_graph.errors import GraphError
from mrc_graph.source import files_of
from mrc_host.workloads import WORKLOADS
from mrc_results.provenance import checkout
from mrc_results.reading import RESULT
from mrc_results.recording import EVENTS, SAMPLES
from mrc_runs import again, sources
from mrc_runs.again import EarlierRun
from mrc_runs.execute import execute
from mrc_topo.schema import PoliciesSpec

FORMAT = 1
CONTENT = "artifact.json"
README = "README.md"
#: The files of a run's folder that are packed; other files in it do not belong to the run.
PACKED = (RESULT, SAMPLES, EVENTS, "verdict.json", "report.html")
#: Limits of what is unpacked, so that a file from elsewhere cannot fill the disk.
MAX_FILES, MAX_BYTES = 10_000, 8 << 30
#: The date of all files in the archive, so that the same runs make the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)


class ArtifactError(UsageError):
    """A file that is no artifact, or that cannot be repeated here; the text says why."""


class RepetitionFailed(ArtifactError):
    """A run that did not end when it was repeated."""

    exit_code = ExitCode.FAILED


@dataclass(frozen=True)
class PackedRun:
    """A run in an artifact. `code`: the places of policy and program files in the archive, by their paths as the
    results name them; `files`: SHA-256 of each file of the run's folder; `data`: the place of what each parameter of
    the workload names, a file or a prefix; `data_files`: SHA-256 of each of these files."""

    folder: str
    name: str
    clock: str
    command: str
    files: dict[str, str]
    code: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    data_files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """What is in an artifact, and by what it was made. `packages`: name and version of all installed ones."""

    format: int
    version: str
    commit: str | None
    dirty: bool | None
    sources: str
    python: str
    packages: dict[str, str]
    runs: list[PackedRun]


@dataclass(frozen=True)
class Repeated:
    """The repetition of a run: what differs in software (`differences`) and in results (None: not comparable)."""

    run: PackedRun
    passed_before: bool
    passed: bool
    differences: list[str]
    results: list[str] | None

    @property
    def same(self) -> bool:
        """Return whether the repetition agrees: the same bytes, or on the real clock the same verdict."""
        return self.passed == self.passed_before if self.results is None else not self.results


def pack(folders: Sequence[Path], output: Path) -> Artifact:
    """Pack runs into a file; the same runs make the same bytes.

    Raises:
        FolderError, ExperimentError: a folder holds no results that can be repeated.
        ArtifactError: a policy, program or trace of a run is not where it was.
        WriteError: the file cannot be written.
    """
    contents: dict[str, bytes] = {}
    runs = []
    for number, folder in enumerate(folders, 1):
        earlier = again.load(folder)
        place = f"runs/{number}-{earlier.experiment.name}"
        files = {name: (folder / name).read_bytes() for name in PACKED if (folder / name).is_file()}
        contents |= {f"{place}/{name}": content for name, content in files.items()}
        code = {given: f"code/{number}/{path.name}" for given, path in _code(earlier).items()}
        places = {key: f"data/{number}/{key}" for key in _given(earlier)}
        data = dict(_data(earlier, places, folder))
        for inside, path in [*((inside, Path(given)) for given, inside in code.items()), *data.items()]:
            try:
                contents[inside] = path.read_bytes()
            except OSError as error:
                raise _missing(path, folder, error.strerror or str(error)) from error
        experiment = earlier.experiment
        runs.append(
            PackedRun(
                place, experiment.name, experiment.clock, f"mrclab run --again {place}", _digests(files), code,
                {key: f"{places[key]}/{path.name}" for key, path in _given(earlier).items()},
                _digests({inside: contents[inside] for inside in data}),
            )
        )  # fmt: skip
    commit, dirty = checkout()
    made = Artifact(
        FORMAT, importlib.metadata.version("mrclab"), commit, dirty, sources.software(), _python(), _packages(), runs
    )
    contents[CONTENT] = (json.dumps(encode(made), indent=1) + "\n").encode()
    contents[README] = _readme(made).encode()
    write_whole(output, _archive(contents))
    return made


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def _given(earlier: EarlierRun) -> dict[str, Path]:
    """Return what the parameters of a run's workload name, a file or a prefix, by parameter, in their order."""
    name, params = earlier.experiment.workload.name, earlier.experiment.workload.params
    return {key: Path(params[key]) for key in sorted(WORKLOADS[name].files) if params.get(key)}


def _data(earlier: EarlierRun, places: Mapping[str, str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that a run's workload reads, after their places in the archive."""
    for key, given in _given(earlier).items():
        try:
            files = files_of(given)
        except GraphError as error:
            raise _missing(given, folder, str(error)) from error
        for path in files:
            yield f"{places[key]}/{path.name}", path


def _missing(path: Path, folder: Path, why: str) -> ArtifactError:
    names = f"{printable(str(folder))} names it: put it back, or leave that run out"
    return ArtifactError(f"{printable(str(path))}: {printable(why)}; {names}")


def _python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def _packages() -> dict[str, str]:
    found = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _code(earlier: EarlierRun) -> dict[str, Path]:
    """Return the files that hold code of a run, by the text with which its results name them."""
    found = {}
    for policies in (earlier.lab.policies, earlier.experiment.policies):
        for given in policies.named.values():
            path = given.rpartition(":")[0]
            if path.endswith(".py"):
                found[path] = Path(path)
    if earlier.lab.program is not None:
        found[earlier.lab.program] = Path(earlier.lab.program)
    return found


def _archive(contents: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), contents[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _readme(made: Artifact) -> str:
    rows = "\n".join(f"| {run.folder} | {run.name} | {run.clock} |" for run in made.runs)
    commit = f"commit {made.commit}{' with changes' if made.dirty else ''}" if made.commit else "no git checkout"
    return (
        f"# Runs of mrclab\n\nMade by mrclab {made.version} ({commit}), {made.python}.\n"
        "`artifact.json` has the digest of its sources, the installed packages, and the SHA-256 of each file.\n\n"
        f"| folder | experiment | clock |\n|---|---|---|\n{rows}\n\n"
        "`report.html` in each folder opens without a network. To repeat all runs and compare them, install mrclab\n"
        "of that version and type:\n\n    mrclab artifact check FILE\n"
    )


def read(path: Path) -> Artifact:
    """Read the list of an artifact's contents.

    Raises:
        ArtifactError: it is none, or of another format.
    """
    with _opened(path) as archive:
        try:
            document = json.loads(archive.read(CONTENT))
            if isinstance(document, dict) and document.get("format") != FORMAT:
                raise ArtifactError(f"{path}: of format {document.get('format')!r}; this version reads {FORMAT}")
            return decode(Artifact, document)
        except KeyError:
            raise ArtifactError(f"{path}: is no artifact; it has no {CONTENT}") from None
        except (ValueError, DecodeError, zipfile.BadZipFile) as error:
            raise ArtifactError(f"{path}: {CONTENT}: {printable(str(error))}") from error


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise ArtifactError(f"{path}: {error.strerror or error}") from error
    except zipfile.BadZipFile as error:
        raise ArtifactError(f"{path}: is no artifact; `mrclab artifact pack` makes one") from error


def unpack(path: Path, folder: Path) -> Artifact:
    """Unpack an artifact into an empty folder that only this user can change, and check the digests of its files.

    Raises:
        ArtifactError: it is none, it is too large, a name leads out of the folder, or a file was changed.
    """
    made = read(path)
    with _opened(path) as archive:
        infos = archive.infolist()
        if len(infos) > MAX_FILES or sum(each.file_size for each in infos) > MAX_BYTES:
            raise ArtifactError(f"{path}: more than {MAX_FILES} files or {MAX_BYTES >> 30} GiB; it is not unpacked")
        for info in infos:
            name = PurePosixPath(info.filename)
            mode = info.external_attr >> 16
            if name.is_absolute() or ".." in name.parts or "\\" in info.filename or stat.S_ISLNK(mode):
                raise ArtifactError(f"{path}: '{printable(info.filename)}' leads out of the archive")
            if info.is_dir():
                continue
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.write_bytes(archive.read(info))
            except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
                raise ArtifactError(f"{path}: {printable(info.filename)}: {printable(str(error))}") from error
    for run in made.runs:
        place = _inside(path, run.folder)
        digests = {place / _inside(path, listed): wanted for listed, wanted in run.files.items()}
        digests |= {_inside(path, listed): wanted for listed, wanted in run.data_files.items()}
        for inside, wanted in digests.items():
            file = folder / inside
            if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != wanted:
                raise ArtifactError(f"{path}: {printable(str(inside))} is missing or was changed")
        for listed in run.data.values():
            _inside(path, listed)
        for listed in run.code.values():
            if not (folder / _inside(path, listed)).is_file():
                raise ArtifactError(f"{path}: {printable(listed)} is missing")
    return made


def _inside(path: Path, name: str) -> PurePosixPath:
    """Return a path that `artifact.json` names, if it stays in the archive."""
    found = PurePosixPath(name)
    if found.is_absolute() or ".." in found.parts:
        raise ArtifactError(f"{path}: '{printable(name)}' in {CONTENT} leads out of the archive")
    return found


def check(
    made: Artifact,
    folder: Path,
    work: Path,
    *,
    trust_code: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[Repeated]:
    """Repeat each run of an unpacked artifact, and yield how it compares.

    Args:
        folder: where `unpack` put it; work: a folder for the results of the repetitions.
        trust_code: policies and P4 programs that it holds may run as this user.

    Raises:
        ArtifactError: it holds code, and that may not run.
        RepetitionFailed: a run was interrupted.
    """
    for run in made.runs:
        if run.code and not trust_code:
            files = ", ".join(map(printable, run.code.values()))
            raise ArtifactError(
                f"run '{printable(run.name)}' has code of its author's ({files}), which would run as you; read it, "
                "then repeat with --trust-code"
            )
    for number, run in enumerate(made.runs, 1):
        progress(f"{number} of {len(made.runs)}: {run.name}")
        yield _repeat(run, folder, work / str(number), trust_code=trust_code)


def _repeat(run: PackedRun, folder: Path, work: Path, *, trust_code: bool) -> Repeated:
    place = folder / run.folder
    earlier = again.load(place)
    moved = {given: str((folder / inside).absolute()) for given, inside in run.code.items()}
    lab = earlier.lab.model_copy(
        update={
            "policies": _moved(earlier.lab.policies, moved),
            "program": moved.get(earlier.lab.program or "", earlier.lab.program),
        }
    )
    workload = earlier.experiment.workload
    data = {key: str((folder / inside).absolute()) for key, inside in run.data.items()}
    moved |= {str(workload.params[key]): now for key, now in data.items()}
    experiment = earlier.experiment.model_copy(
        update={
            "policies": _moved(earlier.experiment.policies, moved),
            "workload": workload.model_copy(update={"params": {**workload.params, **data}}),
        }
    )
    with again.repeatable(replace(earlier, lab=lab, experiment=experiment)) as repeated:
        outcome = execute(repeated, None, folder=work, live=False, trust_code=trust_code, recorded=earlier.experiment)
    if outcome.signal:
        raise RepetitionFailed(f"run '{printable(run.name)}' was interrupted")
    report = again.compared(earlier, outcome.result, work, {now: then for then, now in moved.items()})
    before = json.loads((place / "verdict.json").read_text(encoding="utf-8")).get("passed") is True
    return Repeated(run, before, outcome.verdict.passed, report.provenance, report.results)


def _moved(policies: PoliciesSpec, moved: Mapping[str, str]) -> PoliciesSpec:
    """Return policies whose files are where they were unpacked."""
    changed = {}
    for kind, given in policies.named.items():
        path, _, name = given.rpartition(":")
        changed[kind] = f"{moved.get(path, path)}:{name}"
    return policies.model_copy(update=changed)
