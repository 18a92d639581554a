"""From a sweep file to runs: documents of each, checked as the runs themselves would be, and what stands for them."""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from mrc_host.proto.limits import ConfigError
from mrc_topo.base.document import KeyPath, Model, dotted, explain
from mrc_topo.labfile import LabError, load_lab, parse_lab, policy_class
from mrc_topo.shipped import beside
from mrclab.lab import payloads
from mrclab.lab import policies as own
from mrclab.lab.faults.action import FailureError
from mrclab.lab.records.rundir import RunError
from mrclab.lab.switches import forwarders
from mrclab.lab.switches.program import OwnProgramError
from mrclab.runs import compare, execute, precheck, sessions
from mrclab.runs.compare import Comparison, known_comparisons
from mrclab.runs.experiment import (
    Experiment,
    ExperimentError,
    Tree,
    find_file,
    known_experiments,
    load_experiment,
    read,
)
from mrclab.studies.sweeps import measure, spec
from mrclab.studies.sweeps.measure import RunTask
from mrclab.studies.sweeps.spec import DesignPoint, Source, changed, key_path

#: Of the plan's file.
FORMAT = 1


@dataclass(frozen=True)
class SweepRun:
    """One run: its place in the sweep, its point, and the digest of everything that its result depends on."""

    index: int
    point: DesignPoint
    seed: int
    repetition: int
    digest: str


@dataclass(frozen=True)
class Base:
    """The common base of all runs: the documents of lab and of experiment or comparison."""

    kind: str
    lab: Tree
    content: Tree
    folder: pathlib.Path

    def built(self, point: Tree, fixed: Tree) -> tuple[Tree, Tree]:
        """Return the documents of lab and of experiment or comparison, with changes.

        Raises:
            ValueError: a change has no place; its text begins with the key.
            LabError: a lab of another name is none.
        """
        content = self.content
        every = {key: _located(key, value, self.folder) for key, value in {**fixed, **point}.items()}
        for key, value in every.items():
            if not key.startswith("lab."):
                content = _put(content, key, value)
        lab = self.lab
        if f"{self.kind}.lab" in every:
            lab = _document_of(str(content["lab"]))
        for key, value in every.items():
            if key.startswith("lab."):
                lab = _put(lab, key, value)
        return lab, content


def _located(key: str, value: object, folder: pathlib.Path) -> object:
    """Return the value of a key with the files of policies where they are: relative paths start at the sweep file.

    Raises:
        ValueError: it names a policy of no installed package; the text begins with the key.
    """
    if isinstance(value, dict):
        return {name: _located(f"{key}.{name}", given, folder) for name, given in value.items()}
    if isinstance(value, list):
        return [_located(f"{key}.{number}", given, folder) for number, given in enumerate(value)]
    if key.split(".")[-2:-1] != ["policies"] or not isinstance(value, str):
        return value
    try:
        return policy_class(value, folder.absolute())
    except LabError as error:
        raise ValueError(f"{key}: {error}") from error


def _put(content: Tree, key: str, value: object) -> Tree:
    try:
        return changed(content, key_path(key.partition(".")[2]), value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


@functools.cache
def _document_of(name: str) -> Tree:
    """Return a lab's document as it was written, with the files that it names where they are."""
    return dumped(load_lab(name).lab)


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that can be run, with every check done."""

    source: Source
    base: Base
    keys: Sequence[str]
    runs: Sequence[SweepRun]
    software: str

    def task(self, run: SweepRun) -> RunTask:
        """Return a run, for the process that does it."""
        lab, content = self.documents(run)
        return RunTask(run.digest, self.base.kind, lab, content, self.software, _files(lab, content))

    def documents(self, run: SweepRun) -> tuple[Tree, Tree]:
        """Return the documents of lab and of experiment or comparison of a run."""
        lab, content = self.base.built(run.point.values, self.source.sweep.set)
        return {**lab, "seed": run.seed}, content

    def document(self) -> Tree:
        """Return all that it takes to make the same plan again, without the files that it came from."""
        sweep = dict(self.source.file.data)
        sweep |= {self.base.kind: dict(self.base.content), "lab": dict(self.base.lab)}
        return {"format": FORMAT, "software": self.software, "sweep": sweep}

    def find(self, digest: str) -> SweepRun:
        """Return the run whose digest begins with these digits.

        Raises:
            ExperimentError: none or several do.
        """
        found = [run for run in self.runs if digest and run.digest.startswith(digest)]
        if len(found) != 1:
            many = f"{len(found)} runs begin so" if found else "no run of this sweep begins so"
            raise ExperimentError(f"run '{digest[:40]}': {many}; sweep.csv and the report have them all")
        return found[0]


def make(
    source: Source,
    progress: Callable[[str], None] = lambda text: None,
    *,
    check: bool = True,
    software: str | None = None,
) -> SweepPlan:
    """Return the plan of a sweep. Every point is checked: keys, values, labs, workloads, failures.

    Args:
        check: False for what was checked when it was made first.
        software: of the programs that made its runs; those here if left out.

    Raises:
        ExperimentError: something cannot be; names file, line and key, and the point. Nothing was started.
        LabError: a lab that it names is none.
    """
    found = spec.points(source)
    sweep = source.sweep
    if sweep.repetitions > 1 and not _real(source, found):
        text = "in simulated time a seed's run is the same each time; give more `seeds` instead"
        raise source.problem(("repetitions",), text)
    base = _base(source)
    if check:
        _check(source, base, found, progress)
    software = software or execute.software(pathlib.Path(measure.__file__))
    runs: list[SweepRun] = []
    for point in found:
        lab, content = base.built(point.values, sweep.set)
        files = _files(lab, content)
        for seed in sweep.seed_list:
            for repetition in range(sweep.repetitions):
                parts = [base.kind, {**lab, "seed": seed}, content, repetition, files, software]
                digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
                runs.append(SweepRun(len(runs), point, seed, repetition, digest))
    _once(source, runs)
    return SweepPlan(source, base, list(spec.keys_of(source)), runs, software)


def _once(source: Source, runs: Sequence[SweepRun]) -> None:
    seen: dict[str, SweepRun] = {}
    for run in runs:
        other = seen.setdefault(run.digest, run)
        if other is not run:
            text = f"two points are the same run: {other.point.text()}; {run.point.text()}; name it once"
            raise source.problem(next(iter(run.point.places.values()), ()), text)


def _real(source: Source, found: Sequence[DesignPoint]) -> bool:
    """Return whether something runs on the real clock."""
    sweep = source.sweep
    kind = sweep.kind
    key = f"{kind}.clock"
    if any(key in point.values for point in found):
        return any(point.values.get(key) == "real" for point in found)
    return bool(sweep.set.get(key, _content(source).get("clock", "virtual")) == "real")


def clock_is_real(plan: SweepPlan) -> bool:
    """Return whether some of its runs are on the real clock: those need the machine for themselves."""
    return any(plan.documents(run)[1].get("clock") == "real" for run in plan.runs)


def _content(source: Source) -> Tree:
    """Return the document of the experiment or comparison before any change.

    Raises:
        ExperimentError: it is none.
    """
    sweep = source.sweep
    given = sweep.experiment if sweep.kind == "experiment" else sweep.comparison
    if isinstance(given, dict):
        # What is swept may be missing here, or be wrong until it is set: each point is checked as a whole.
        return {"name": sweep.name, "title": sweep.title, **_here(source, sweep.kind, given)}
    assert given is not None  # as the file's model has it
    if sweep.kind == "experiment":
        path = find_file(beside(source.folder, given), known_experiments(), "experiment.yaml", "experiment")
        made: Model = load_experiment(str(path))
    else:
        path = find_file(beside(source.folder, given), known_comparisons(), "compare.yaml", "comparison")
        made = compare.placed(read(Comparison, path, compare.EXAMPLE), path.absolute().parent)
    content = dumped(made)
    return {**content, "lab": beside(path.parent, str(content["lab"]))} if "lab" in content else content


def _here(source: Source, key: str, given: Tree) -> Tree:
    """Return a document that is in the sweep file itself, with the files of policies where they are."""
    try:
        return {name: _located(f"{key}.{name}", value, source.folder) for name, value in given.items()}
    except ValueError as error:
        place, _, text = str(error).partition(": ")
        raise source.problem(key_path(place), text) from error


def _base(source: Source) -> Base:
    sweep = source.sweep
    content = _content(source)
    default = "default" if sweep.kind == "experiment" else "tiny"
    if isinstance(sweep.lab, dict):
        lab: Tree = {"name": "sweep", **_here(source, "lab", sweep.lab)}
    else:
        named = sweep.lab if sweep.lab is not None else content.get("lab", default)
        if not isinstance(named, str):
            raise source.problem((sweep.kind, "lab"), "the name or the file of a lab belongs here")
        try:
            lab = _document_of(beside(source.folder, named))
        except LabError as error:
            place: KeyPath = ("lab",) if sweep.lab is not None else (sweep.kind,)
            raise source.problem(place, str(error)) from error
    kept = {key: value for key, value in content.items() if key != "lab"}
    return Base(sweep.kind, lab, kept, source.folder)


def _files(lab: Tree, content: Tree) -> dict[str, str]:
    """Return what files hold that a run names, by path: a worker elsewhere must have the same."""
    found = [str(lab["program"])] if lab.get("program") else []
    variants = content.get("variants")
    for each in (lab, content, *(variants if isinstance(variants, list) else ())):
        policies = each.get("policies") or {}
        found += [str(given).rpartition(":")[0] for given in policies.values() if given]
    return {path: measure.digest_of(path) for path in found}


def dumped(made: Model) -> Tree:
    """Return the document of a model as it was written."""
    document: Tree = made.model_dump(mode="json", exclude_unset=True)
    return document


def _check(source: Source, base: Base, found: Sequence[DesignPoint], progress: Callable[[str], None]) -> None:
    for done, point in enumerate(found):
        if done % 50 == 0:
            progress(f"checking {done} of {len(found)} points")
        problem = next(_problems(source, base, point), None)
        if problem is not None:
            place, text = problem
            where = "" if len(found) == 1 else f" (at {point.text()})"
            raise source.problem(place, f"{text}{where}")


def _problems(source: Source, base: Base, point: DesignPoint) -> Iterator[tuple[KeyPath, str]]:
    """Yield what is wrong with a point: the place in the sweep file that made it so, and a text."""
    fixed = source.sweep.set
    try:
        lab, content = base.built(point.values, fixed)
    except LabError as error:
        yield _place(source, base, point, base.kind, ("lab",)), str(error)
        return
    except ValueError as error:
        yield _place(source, base, point, *_split(str(error).partition(": ")[0])), str(error).partition(": ")[2]
        return
    lab = {**lab, "seed": source.sweep.seed_list[0]}
    try:
        topology = parse_lab(json.dumps(lab), "lab")  # JSON is YAML
    except LabError as error:
        # `lab:1: ev.active: text`: what stands before the text is the key, or `lab` for the whole.
        parts = re.match(r"lab:\d+: ([^:]*): (.*)", error.problems[0], re.S)
        key, text = parts.groups() if parts else ("lab", str(error))
        path: KeyPath = () if key == "lab" else key_path(key)
        yield _place(source, base, point, "lab", path, text), _named("lab", path, text)
        return
    model: type[Experiment] | type[Comparison] = Experiment if base.kind == "experiment" else Comparison
    try:
        made = model.model_validate(content)
    except ValidationError as error:
        each = error.errors()[0]
        loc = tuple(each["loc"])
        text = explain(model, each)
        yield _place(source, base, point, base.kind, loc, text), _named(base.kind, loc, text)
        return
    try:
        if isinstance(made, Experiment):
            topology = own.chosen(forwarders.chosen(topology, made.switch, made.compiler), made.policies)
            topology = payloads.chosen(topology, made.payload)
            payloads.check(topology, made.clock)
            forwarders.check_clock(topology, made.clock)
            own.check(topology, made.clock, made.transport)
            precheck.check(made, topology)
        else:
            with sessions.lab_file(lab) as file:
                compare.check(made.model_copy(update={"lab": file}))
    except (ExperimentError, FailureError, RunError, LabError, ConfigError, OwnProgramError) as error:
        text = str(error).splitlines()[0]
        policy = re.search(r"\bpolicies\.(\w+): ", text)
        root, path = base.kind, ()
        if policy is not None:  # of the lab, where the experiment does not replace it
            named = content.get("policies")
            root = base.kind if isinstance(named, dict) and policy[1] in named else "lab"
            path = ("policies", policy[1])
        yield _place(source, base, point, root, path, text), text


def _named(root: str, path: KeyPath, text: str) -> str:
    return f"{dotted((root, *path))}: {text}"


def _split(key: str) -> tuple[str, KeyPath]:
    root, _, rest = key.partition(".")
    return root, key_path(rest)


def _place(source: Source, base: Base, point: DesignPoint, root: str, path: KeyPath, text: str = "") -> KeyPath:
    """Return where in the sweep file the value of a key comes from, or of one that the text names: from the point, from
    `set`, or from what is given as a whole."""
    places = {**{key: ("set", key) for key in source.sweep.set}, **point.places}
    mine = {key: place for key, place in places.items() if key.partition(".")[0] == root}
    for key, place in mine.items():
        other = _split(key)[1]
        if path and (other[: len(path)] == path or path[: len(other)] == other):
            return place
    for key, place in mine.items():
        rest = key.partition(".")[2]
        if rest and (rest in text or rest.rpartition(".")[2] in re.findall(r"\w+", text)):
            return place
    if not path and mine:
        return next(iter(mine.values()))
    return (root, *path)
