"""Artifacts: runs packed with what is needed to repeat them elsewhere, and their repetition.

    artifact.json            version, commit, digest of the sources, packages, and a row per run (`Artifact`)
    README.md                how to check it
    runs/NUMBER-NAME/...     the folder of each run, as it was written
    code/NUMBER/...          the files of a run's policies and of its P4 program
    data/NUMBER/KEY/...      the files that a run's workload reads, by its parameter

An artifact of another author is data until it is repeated. Then the code that it holds would run as the user, so it is
refused unless the user allows that. What a run would load decides this, never the author's list: policies, programs and
traces that are not in the archive are refused. The verdict, too, is judged from the results and not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from mrc_host.graph.graph import GraphError
from mrc_host.graph.source import files_of
from mrc_host.workloads import WORKLOADS
from mrc_topo.base.document import printable
from mrc_topo.base.errors import UsageError
from mrc_topo.base.files import DAMAGE, Archive, Bounded, WriteError, open_plain, writing_whole
from mrc_topo.base.interruption import Interrupted
from mrc_topo.base.plain import DecodeError, decode, encode
from mrc_topo.schema import PoliciesSpec
from mrc_topo.topology import Topology
from mrclab.lab.switches.program import FOLDER, OwnProgramError, sources_of
from mrclab.results import verdict
from mrclab.results.check import Verdict
from mrclab.results.provenance import checkout
from mrclab.results.reading import RESULT, document_of, readable
from mrclab.results.record import RunResult
from mrclab.results.recording import EVENTS, SAMPLES
from mrclab.runs import again, precheck
from mrclab.runs.again import EarlierRun
from mrclab.runs.execute import execute, software

FORMAT = 1
CONTENT = "artifact.json"
README = "README.md"
#: The files of a run's folder that are packed; other files in it do not belong to the run.
PACKED = (RESULT, SAMPLES, EVENTS, "verdict.json", "report.html")
#: Limits of what is unpacked, so that a file from elsewhere cannot fill the disk; also of each file, and of `CONTENT`.
MAX_FILES, MAX_BYTES, MAX_FILE, MAX_LIST = 10_000, 8 << 30, 2 << 30, 4 << 20
_INCLUDE = re.compile(r'#\s*include\s*["<]([^">\n]+)')
#: The date of all files in the archive, so that the same runs make the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)


class ArtifactError(UsageError):
    """A file that is no artifact, or that cannot be repeated here; the text says why."""


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
    """The repetition of a run: what differs in software (`differences`) and in results (None: not comparable).

    `passed_before`: by the packed results, judged again; `contradictions`: the keys in which the packed verdict says
    something else.
    """

    run: PackedRun
    passed_before: bool
    passed: bool
    contradictions: list[str]
    differences: list[str]
    results: list[str] | None

    @property
    def same(self) -> bool:
        """Return whether the repetition agrees: the same bytes, or on the real clock the same verdict; and the packed
        verdict is that of the packed results."""
        agrees = self.passed == self.passed_before if self.results is None else not self.results
        return agrees and not self.contradictions


@dataclass(frozen=True)
class _Ready:
    """A packed run that may be repeated: `earlier` with the files of the archive in the place of the author's, of which
    `moved` has the paths as they were, by the paths now; `topology`, which the repetition will load."""

    run: PackedRun
    earlier: EarlierRun
    repeated: EarlierRun
    topology: Topology
    moved: dict[str, str]


def pack(folders: Sequence[Path], output: Path) -> Artifact:
    """Pack runs into a file; the same runs make the same bytes.

    Raises:
        FolderError, ExperimentError: a folder holds no results that can be repeated.
        ArtifactError: a policy, program or trace of a run is not where it was, or a run is given twice.
        WriteError: the file cannot be written.
    """
    earlier = [again.load(folder) for folder in folders]
    try:
        with writing_whole(output) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            runs = [_packed(archive, number, each) for number, each in enumerate(earlier, 1)]
            _check_once(output, runs)
            commit, dirty = checkout()
            version, digest = importlib.metadata.version("mrclab"), software()
            made = Artifact(FORMAT, version, commit, dirty, digest, _python(), _packages(), runs)
            archive.writestr(_info(CONTENT), json.dumps(encode(made), indent=1) + "\n")
            archive.writestr(_info(README), _readme(made))
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(output, error) from error
    return made


def _packed(archive: zipfile.ZipFile, number: int, earlier: EarlierRun) -> PackedRun:
    """Put a run into an archive with all that repeats it."""
    folder, experiment = earlier.folder, earlier.experiment
    place = f"runs/{number}-{experiment.name}"

    def add(inside: str, path: Path) -> str:
        return _add(archive, inside, path, folder)

    files = {name: add(f"{place}/{name}", folder / name) for name in PACKED if (folder / name).is_file()}
    code = _code(earlier, f"code/{number}")
    for given, inside in code.items():
        add(inside, Path(given))
    places = {key: f"data/{number}/{key}" for key in _given(earlier)}
    return PackedRun(
        place, experiment.name, experiment.clock, f"mrclab run --again {place}", files, code,
        {key: f"{places[key]}/{path.name}" for key, path in _given(earlier).items()},
        {inside: add(inside, path) for inside, path in _data(earlier, places, folder)},
    )  # fmt: skip


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _add(archive: zipfile.ZipFile, inside: str, path: Path, folder: Path) -> str:
    """Put a file into an archive and return its digest; `folder` is of the run that names it."""
    info, digest = _info(inside), hashlib.sha256()

    def read() -> Iterator[bytes]:
        try:
            with open_plain(path) as file:
                info.file_size = os.fstat(file.fileno()).st_size
                yield from Bounded(file, MAX_FILE, str(path)).pieces()
        except (OSError, ValueError) as error:
            raise _missing(path, folder, getattr(error, "strerror", "") or str(error)) from error

    pieces = read()
    first = next(pieces, b"")  # then the size is known, and whether it can be read at all
    with archive.open(info, "w") as target:
        for piece in (first, *([] if not first else pieces)):
            digest.update(piece)
            target.write(piece)
    return digest.hexdigest()


def _check_once(path: Path, runs: Sequence[PackedRun]) -> None:
    """Check that no run is listed twice, which would only be repeated twice.

    Raises:
        ArtifactError: one is.
    """
    seen: dict[str, PackedRun] = {}
    for run in runs:
        for mark in (str(PurePosixPath(run.folder)), run.files.get(RESULT, run.folder)):
            other = seen.setdefault(mark, run)
            if other is not run:
                names = f"{printable(other.folder)} and {printable(run.folder)}"
                raise ArtifactError(f"{printable(str(path))}: the same run is in it twice ({names}); leave one out")


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


def _code(earlier: EarlierRun, place: str) -> dict[str, str]:
    """Return the place in the archive of each file of a run's code, by the path with which its results name it.

    Raises:
        ArtifactError: the P4 program cannot be read.
    """
    found: dict[str, str] = {}
    for policies in (earlier.lab.policies, earlier.experiment.policies):
        for path in map(_file, policies.named.values()):
            if path.endswith(".py") and path not in found:
                name = f"{place}/{Path(path).name}"  # files of one name may lie in several folders
                found[path] = name if name not in found.values() else f"{place}/{len(found)}/{Path(path).name}"
    if earlier.lab.program is not None:
        program = Path(earlier.lab.program)
        try:
            included = [program.parent / each for each in sources_of(program)]
        except OwnProgramError as error:
            raise _missing(program, earlier.folder, str(error)) from error
        for source in (program, *included):
            found[str(source)] = f"{place}/program/{source.relative_to(program.parent)}"
    return found


def _file(reference: str) -> str:
    """Return the file of `FILE.py:Class`."""
    return reference.rpartition(":")[0]


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
        return _list(path, archive)


def _list(path: Path, archive: Archive) -> Artifact:
    try:
        info = archive.getinfo(CONTENT)
    except KeyError:
        raise ArtifactError(f"{printable(str(path))}: is no artifact; it has no {CONTENT}") from None
    with _reading(path, CONTENT), archive.member(info, MAX_LIST) as member:
        document = json.loads(b"".join(member.pieces()))
        if isinstance(document, dict) and document.get("format") != FORMAT:
            raise DecodeError(f"of format {document.get('format')!r}; this version reads {FORMAT}")
        return decode(Artifact, document)


def _opened(path: Path) -> Archive:
    shown = printable(str(path))
    try:
        return Archive(path)
    except OSError as error:
        raise ArtifactError(f"{shown}: {error.strerror or error}") from error
    except DAMAGE as error:
        raise ArtifactError(f"{shown}: is no artifact; `mrclab artifact pack` makes one") from error


@contextlib.contextmanager
def _reading(path: Path, name: str) -> Iterator[None]:
    """Name the artifact and a file of it in every error about what is in it. Raises ArtifactError."""
    try:
        yield
    except (*DAMAGE, DecodeError, RecursionError, MemoryError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
        raise ArtifactError(f"{printable(str(path))}: {printable(name)}: {printable(why)}") from error


def unpack(path: Path, folder: Path) -> Artifact:
    """Unpack an artifact into an empty folder that only this user can change, and check the digests of its files.

    Raises:
        ArtifactError: it is none, it is too large, a name leads out of the folder, or a file was changed.
    """
    shown = printable(str(path))
    with _opened(path) as archive:
        made = _list(path, archive)
        if not made.runs:
            raise ArtifactError(f"{shown}: it lists no run, so that there is nothing to repeat")
        _check_once(path, made.runs)
        infos = archive.infolist()
        if len(infos) > MAX_FILES or sum(each.file_size for each in infos) > MAX_BYTES:
            raise ArtifactError(f"{shown}: more than {MAX_FILES} files or {MAX_BYTES >> 30} GiB; it is not unpacked")
        written: dict[PurePosixPath, str] = {}
        for info in infos:
            name = PurePosixPath(info.filename)
            mode = info.external_attr >> 16
            if name.is_absolute() or ".." in name.parts or "\\" in info.filename or stat.S_ISLNK(mode):
                raise ArtifactError(f"{shown}: '{printable(info.filename)}' leads out of the archive")
            if name in written:
                raise ArtifactError(f"{shown}: '{printable(info.filename)}' is in it twice")
            if not info.is_dir():
                with _reading(path, info.filename):
                    written[name] = _unpacked(archive, info, folder / name)
    for run in made.runs:
        place = _inside(path, run.folder)
        digests = {place / _inside(path, listed): wanted for listed, wanted in run.files.items()}
        digests |= {_inside(path, listed): wanted for listed, wanted in run.data_files.items()}
        for inside, wanted in digests.items():
            if written.get(inside) != wanted:
                raise ArtifactError(f"{shown}: {printable(str(inside))} is missing or was changed")
        for listed in run.data.values():
            _inside(path, listed)
        for listed in run.code.values():
            if _inside(path, listed) not in written:
                raise ArtifactError(f"{shown}: {printable(listed)} is missing")
    return made


def _unpacked(archive: Archive, info: zipfile.ZipInfo, target: Path) -> str:
    """Write a member to a file, and return its digest."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.member(info, MAX_FILE) as member, target.open("xb") as file:
        for piece in member.pieces():
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _inside(path: Path, name: str) -> PurePosixPath:
    """Return a path that `artifact.json` names, if it stays in the archive."""
    found = PurePosixPath(name)
    if found.is_absolute() or ".." in found.parts:
        raise ArtifactError(f"{printable(str(path))}: '{printable(name)}' in {CONTENT} leads out of the archive")
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
        ArtifactError: it holds code, and that may not run; or it names a file that it does not hold.
        Interrupted: a signal came during a run.
    """
    ready = [_ready(run, folder) for run in made.runs]
    for each in ready:
        if not trust_code:
            _check_harmless(each, folder)
    for number, each in enumerate(ready, 1):
        progress(f"{number} of {len(made.runs)}: {each.run.name}")
        yield _repeat(each, work / str(number), trust_code=trust_code)


def _ready(run: PackedRun, folder: Path) -> _Ready:
    """Return a packed run with the files of the archive in the place of the author's.

    Raises:
        ArtifactError: it would load a file that is not in the archive.
        FolderError, ExperimentError, LabError: its results are damaged.
    """
    earlier = again.load(folder / run.folder)
    experiment, workload = earlier.experiment, earlier.experiment.workload
    if (experiment.name, experiment.clock) != (run.name, run.clock):
        raise ArtifactError(
            f"{printable(run.folder)}: {CONTENT} says run '{printable(run.name)}' on the {printable(run.clock)} clock, "
            f"its {RESULT} '{experiment.name}' on the {experiment.clock} clock; pack it again"
        )
    inside = {given: str((folder / name).absolute()) for given, name in run.code.items()}
    data = {key: str((folder / run.data[key]).absolute()) for key in _given(earlier) if key in run.data}
    lab = earlier.lab.model_copy(
        update={
            "policies": _moved(earlier.lab.policies, inside),
            "program": inside.get(earlier.lab.program or "", earlier.lab.program),
        }
    )
    experiment = experiment.model_copy(
        update={
            "policies": _moved(experiment.policies, inside),
            "workload": workload.model_copy(update={"params": {**workload.params, **data}}),
        }
    )
    repeated = replace(earlier, lab=lab, experiment=experiment)
    with again.repeatable(repeated) as loaded:
        topology = precheck.requested_lab(loaded).topology
    # These are the files that the repetition will load, however the results or the list name them.
    for file in [*_code_of(topology), *_given(repeated).values()]:
        if not _lies_in(file, folder):
            raise ArtifactError(
                f"run '{run.name}' would load {printable(str(file))}, which is not in the archive; it is not repeated"
            )
    now = inside | {str(workload.params[key]): path for key, path in data.items()}
    return _Ready(run, earlier, repeated, topology, {path: given for given, path in now.items()})


def _code_of(topology: Topology) -> list[Path]:
    """Return the files of code that a lab loads, and those that its P4 program includes from elsewhere."""
    found = [Path(_file(each)) for each in topology.lab.policies.named.values()]
    if topology.lab.program is None:
        return found
    source = Path(topology.lab.program)
    found.append(source)
    if source.is_file():
        for name, text in sources_of(source).items():
            folders = ((source.parent / name).parent, source.parent, Path.cwd())
            places = [folder / each for each in _INCLUDE.findall(text) for folder in folders]
            found += [each for each in places if each.is_file() and not _lies_in(each, FOLDER)]
    return found


def _lies_in(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _check_harmless(ready: _Ready, folder: Path) -> None:
    """Check that nothing of an author's choice would be started.

    Raises:
        ArtifactError: it would.
    """
    lab, where = ready.topology.lab, f"run '{ready.run.name}'"
    if code := _code_of(ready.topology):
        files = ", ".join(printable(str(each.relative_to(folder.absolute()))) for each in dict.fromkeys(code))
        raise ArtifactError(
            f"{where} has code of its author's ({files}), which would run as you; read it, then repeat with "
            "--trust-code"
        )
    if others := [f"{name}: {each.ssh}" for name, each in lab.machines.items() if each.ssh is not None]:
        raise ArtifactError(
            f"{where} would log in to machines of its author's choice as you ({', '.join(map(printable, others))}); "
            "if you trust them, repeat with --trust-code"
        )


def _repeat(ready: _Ready, work: Path, *, trust_code: bool) -> Repeated:
    earlier, run = ready.earlier, ready.run
    with readable(earlier.folder / RESULT):
        before = _judged(RunResult.load(earlier.folder), ready)
    contradictions = _contradictions(earlier.folder, before)
    with again.repeatable(ready.repeated) as repeated:
        outcome = execute(repeated, None, folder=work, live=False, trust_code=trust_code, recorded=earlier.experiment)
    if outcome.signal:
        raise Interrupted(outcome.signal)
    report = again.compared(earlier, outcome.result, work, ready.moved)
    passed = outcome.verdict.passed
    return Repeated(run, before.passed, passed, contradictions, report.provenance, report.results)


def _judged(result: RunResult, ready: _Ready) -> Verdict:
    experiment = ready.earlier.experiment
    return verdict.judge(result, ready.topology, experiment.expect, experiment.claims())


def _contradictions(folder: Path, judged: Verdict) -> list[str]:
    """Return the keys in which a packed verdict decides otherwise than its results do."""

    def decided(document: Mapping[str, object]) -> dict[str, object]:
        checks = document.get("checks")
        rows = checks if isinstance(checks, list) else []
        found: dict[str, object] = {key: document.get(key) for key in ("status", "passed", "holds", "valid")}
        return found | {"checks": [each.get("passed") if isinstance(each, dict) else each for each in rows]}

    packed, again_judged = decided(document_of(folder / "verdict.json")), decided(judged.document())
    # The texts tell true from 1.
    return [key for key, value in again_judged.items() if json.dumps(packed[key]) != json.dumps(value)]


def _moved(policies: PoliciesSpec, moved: Mapping[str, str]) -> PoliciesSpec:
    """Return policies whose files are where they were unpacked."""
    changed = {}
    for kind, given in policies.named.items():
        path = _file(given)
        changed[kind] = moved.get(path, path) + given[len(path) :]
    return policies.model_copy(update=changed)
