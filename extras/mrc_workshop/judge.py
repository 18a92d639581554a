"""A check: the learner's files are run in a confined process, and what was recorded is judged here, outside of it."""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import yaml

from mrc_topo.base.document import DocumentError, read_text
from mrc_topo.base.plain import DecodeError
from mrc_topo.labfile import LabError, lab_path, merged, parse_lab
from mrc_topo.schema import Lab
from mrc_topo.shipped import shipped
from mrc_topo.topology import Topology
from mrc_workshop import confine, drawn, keep
from mrc_workshop.exercise import FILE, CheckSpec, Exercise, NotGraded, RunSpec, WorkshopError
from mrc_workshop.job import CheckJob, Document, Run, RunOrder
from mrc_workshop.kinds import catalogue
from mrc_workshop.kinds.registry import Finding
from mrc_workshop.trace import CapturedPacket, CaptureError
from mrclab.runs import experiment as experiments
from mrclab.runs.experiment import Experiment, ExperimentError


class SubmissionError(WorkshopError):
    """A learner's folder without the files that the exercise requires, or with something else in their place."""


@dataclass(frozen=True)
class CheckLine:
    """A line of a check's outcome. `passed` None: it could not be judged."""

    what: str
    passed: bool | None
    measured: str = ""
    mistake: str = ""
    evidence: tuple[str, ...] = ()
    where: str = ""
    hint: str = ""
    packets: tuple[CapturedPacket, ...] = ()
    details: Document = field(default_factory=dict)
    given: bool = False
    """The starter holds it already: it earns nothing."""

    def document(self) -> Document:
        """Return the line as JSON; packets are in the capture."""
        return {key: value for key, value in asdict(self).items() if key != "packets"}


@dataclass(frozen=True)
class Report:
    """The outcome of a check. `score`: that of an open exercise, whether or not it passed. `output`: the output of the
    code."""

    exercise: str
    lines: list[CheckLine]
    output: str = ""
    score: float | None = None
    spent_s: float = 0.0
    isolation: dict[str, bool] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Return whether every line holds."""
        return bool(self.lines) and all(line.passed for line in self.lines)

    @property
    def share(self) -> float:
        """The share of the work that is done: 1 for all; what the starter holds earns nothing, and costs if broken."""
        if self.passed:
            return 1.0
        asked = [line for line in self.lines if not line.given]
        done = sum(line.passed is True for line in asked)
        broken = sum(line.given and line.passed is False for line in self.lines)
        return round(min(max(done - broken, 0) / max(len(asked), 1), 0.99), 2)

    @property
    def first_failure(self) -> CheckLine | None:
        """The line that the learner should look at first."""
        return next((line for line in self.lines if line.passed is False), None)

    @property
    def reason(self) -> str:
        """The reason of a failure, in a line."""
        line = self.first_failure
        return "" if line is None else line.mistake or f"{line.what}: {line.measured}"

    def document(self) -> Document:
        """Return the report as JSON."""
        return {
            "exercise": self.exercise,
            "passed": self.passed,
            "reason": self.reason,
            "score": self.score,
            "checks": [line.document() for line in self.lines],
            "output": self.output,
            "isolation": self.isolation,
            "files": self.files,
        }


def check(
    exercise: Exercise,
    folder: pathlib.Path,
    *,
    keep_in: pathlib.Path | None = None,
    seeds: Sequence[int] = (),
    quick: bool = False,
    hide: Sequence[pathlib.Path] = (),
    progress: Callable[[str], object] = bool,
    judged: Callable[[CheckLine], object] = bool,
    stop: threading.Event | None = None,
) -> Report:
    """Check a learner's folder.

    Args:
        keep_in: the folder for a small capture and the reports; none are kept if left out.
        seeds: hidden seeds beyond those of the exercise.
        quick: with the first visible seed alone.
        hide: folders that the learner's code must not see.
        progress: receives the run that has begun.
        judged: is given each line of the report when it is known.
        stop: once it is set, the run is ended.

    Raises:
        SubmissionError: files are missing, or are not regular files.
        NotGraded: the run says nothing about the files.
    """
    sources = read_sources(exercise, folder)
    try:
        orders = _orders(exercise, sources, seeds, quick)
    except _Refused as refused:
        judged(refused.line)
        return Report(exercise.name, [refused.line])
    with confine.scratch_folders() as scratch:
        scratch.write(sources)
        job = CheckJob(edit=exercise.content.edit, orders=orders)
        plays = any(run.policies for run in exercise.content.runs)
        hidden = [shipped("workshop"), exercise.folder, *hide]
        look = _teller(orders, scratch.out, exercise.content.limits.cpu_s, progress)
        outcome = confine.run(job, scratch, exercise.content.limits, hidden, plays, stop, look)
        if outcome.not_graded:
            raise NotGraded(f"not graded: {outcome.not_graded}")
        lines, score = [], None
        for line, scored in _judge(exercise, sources, orders, outcome, scratch.out):
            judged(line)
            lines.append(line)
            score = scored if score is None else score
        report = Report(exercise.name, lines, outcome.output, score, outcome.spent_s, outcome.isolation)
        if keep_in is not None:
            files = keep.keep(report.document(), exercise, lines, scratch.out, keep_in)
            report = Report(exercise.name, lines, outcome.output, score, outcome.spent_s, outcome.isolation, files)
    return report


#: A run that computes on tells its CPU time as often, s.
TOLD_EACH_S = 5.0


def _teller(
    orders: Sequence[RunOrder], out: pathlib.Path, limit_s: int, progress: Callable[[str], object]
) -> Callable[[float], None]:
    """Return a function that tells which run has begun, and the CPU time of one that takes long.

    A run begins with a folder in `out`. The function is given the CPU time of all so far, s.
    """
    told, told_s = 0, 0.0

    def look(cpu_s: float) -> None:
        nonlocal told, told_s
        begun = min(sum(each.is_dir() for each in out.iterdir()), len(orders))
        name = f"run {begun} of {len(orders)}: {orders[begun - 1].name}" if begun else "preparing"
        if begun > told:
            told, told_s = begun, cpu_s
            progress(name)
        elif cpu_s >= told_s + TOLD_EACH_S:
            told_s = cpu_s
            progress(f"{name}, {cpu_s:.0f} s of CPU time; the limit is {limit_s} s")

    return look


# -- before: the job -----------------------------------------------------------------------------------------


class _Refused(Exception):
    """A learner's document that cannot be run; `line` says why."""

    def __init__(self, what: str, mistake: str) -> None:
        super().__init__(mistake)
        self.line = CheckLine(what, False, mistake=mistake)


def read_sources(exercise: Exercise, folder: pathlib.Path) -> dict[str, str]:
    """Return the learner's files as text.

    Raises:
        SubmissionError: files are missing, or are not plain files.
    """
    if not folder.is_dir():
        raise SubmissionError(f"{folder}: no such folder; `mrclab workshop start {exercise.number}` makes one")
    found, problems = {}, []
    for name in exercise.content.edit:
        path = folder / name
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                problems.append(f"{path}: is not a plain file")
                continue
            found[name] = read_text(path, str(path))
        except FileNotFoundError:
            problems.append(f"{path}: is missing; `mrclab workshop reset {exercise.number}` brings the starter back")
        except (OSError, DocumentError) as error:
            problems.append(str(error))
    if problems:
        raise SubmissionError("\n".join(problems))
    return found


def stretched(seed: int) -> int:
    """Return the seed that a lab gets for an instructor's hidden seed: always the same one, 63 bits long.

    A single value of an EV, or a random number, is enough to recognise the right seed among all seeds of nine digits. A
    guess costs scrypt's time, so a submission can try some thousand within its limits, not all of them.
    """
    digest = hashlib.scrypt(str(seed).encode(), salt=b"mrclab hidden seed", n=4096, r=8, p=1, dklen=8)
    return int.from_bytes(digest, "big") >> 1


def _orders(exercise: Exercise, sources: dict[str, str], more: Sequence[int], quick: bool) -> list[RunOrder]:
    seeds = exercise.content.seeds
    visible = seeds.visible[:1] if quick else seeds.visible
    wanted = [(run, seed, False) for seed in visible for run in exercise.runs(hidden=False)]
    if not quick:
        secret = [stretched(seed) for seed in more]
        wanted += [(run, seed, True) for seed in [*seeds.hidden, *secret] for run in exercise.runs(hidden=True)]
    return [
        # The report of a recorded run would show what its learner is to find out.
        order(exercise, run, seed, sources, hidden=hidden, report=not number and not run.inject and not run.recorded)
        for number, (run, seed, hidden) in enumerate(wanted)
    ]


def order(
    exercise: Exercise,
    run: RunSpec,
    seed: int,
    sources: Mapping[str, str],
    *,
    hidden: bool = False,
    report: bool = False,
) -> RunOrder:
    """Return the order for a run of an exercise with this seed and the learner's files (`sources`).

    Raises:
        WorkshopError: the exercise describes a run that cannot be.
    """
    try:
        lab = _lab(exercise, run, sources, seed)
        experiment, transport = _experiment(run, sources, lab)
    except ValueError as error:
        raise WorkshopError(f"{exercise.folder / FILE}: run '{run.name}': {error}") from error
    return RunOrder(
        name=run.name,
        seed=seed,
        hidden=hidden,
        lab=yaml.safe_dump(lab, sort_keys=False),
        program=run.program,
        transport=transport,
        inject=None if run.inject is None else run.inject.what,
        experiment=experiment,
        capture=run.capture,
        snaplen=run.snaplen,
        report=report,
    )


def _lab(exercise: Exercise, run: RunSpec, sources: Mapping[str, str], seed: int) -> Document:
    """Return the lab's document: the exercise's, with the learner's values for the keys that may differ."""
    beside = exercise.folder / run.lab
    if run.lab in sources:
        what = f"{run.lab} is a lab file"
        try:
            parse_lab(sources[run.lab], run.lab)
        except LabError as error:
            raise _Refused(what, error.problems[0]) from error
        document: Document = yaml.safe_load(sources[run.lab])
        reference: Document = yaml.safe_load((exercise.starter / run.lab).read_text(encoding="utf-8"))
        changed = {key for key in {*document, *reference} if document.get(key) != reference.get(key)} - set(
            run.may_change
        )
        if changed:
            keys = ", ".join(sorted(changed))
            allowed = ", ".join(run.may_change) or "nothing"
            raise _Refused(what, f"{run.lab}: {keys}: is not yours to change in this exercise; yours: {allowed}")
    elif beside.is_file():
        document = yaml.safe_load(beside.read_text(encoding="utf-8"))
    else:
        document = yaml.safe_load(lab_path(run.lab).read_text(encoding="utf-8"))
    document = merged(document, run.changes)
    document["seed"] = seed
    if run.program is not None:
        document["program"] = run.program
    if run.policies:
        document["policies"] = {**document.get("policies", {}), **run.policies}
    lab = Lab.model_validate(document)
    if run.random_links:
        document = merged(document, {"overrides": drawn.overrides(run.random_links, Topology(lab), seed)})
        Lab.model_validate(document)
    return document


def _experiment(run: RunSpec, sources: Mapping[str, str], lab: Document) -> tuple[Document | None, str]:
    """Return the experiment and transport of a run on a lab; the learner's own where the exercise says so."""
    if run.inject is not None:
        return None, run.transport
    document: Document = {
        "name": run.name,
        "title": run.name,
        "transport": run.transport,
        "profiles": [each.model_dump() for each in run.profiles],
        "schedule": [each.model_dump(exclude_none=True) for each in run.schedule],
        "expect": run.expect.model_dump(exclude_none=True),
    }
    if run.experiment is not None:
        try:
            theirs = experiments.parse(Experiment, sources[run.experiment], run.experiment, experiments.EXAMPLE)
        except ExperimentError as error:
            raise _Refused(f"{run.experiment} is an experiment", str(error).splitlines()[0]) from error
        # The learner may not choose its other keys (another lab, classes from anywhere).
        told = theirs.model_dump(exclude_none=True)
        document |= {key: told[key] for key in ("title", "workload", "schedule", "expect") if key in told}
    else:
        assert run.workload is not None
        document["workload"] = run.workload.model_dump()
    if run.random_failures is not None and run.workload is not None:
        topology = Topology(Lab.model_validate(lab))
        hosts = run.workload.hosts or [host.name for host in topology.hosts]
        steps = run.random_failures.steps(topology, hosts, int(lab["seed"]))
        document["schedule"] += [each.model_dump(exclude_defaults=True) for each in steps]
        document["schedule"].sort(key=lambda step: float(step["at"]))
    Experiment.model_validate(document)
    return document, str(document["transport"])


# -- after: the judgement ------------------------------------------------------------------------------------

STAGES = {
    "program": "{files} compiles and fits the lab",
    "python": "{files} runs without an exception",
    "lab": "the lab can be built",
    "run": "the run comes to its end",
}


def _judge(
    exercise: Exercise,
    sources: dict[str, str],
    orders: list[RunOrder],
    outcome: confine.ConfinedOutcome,
    out: pathlib.Path,
) -> Iterator[tuple[CheckLine, float | None]]:
    """Yield each line with the score that it gives."""
    content = exercise.content
    programs = [name for name in sources if name.endswith(".p4")]
    modules = [name for name in sources if name.endswith(".py")]
    facts = outcome.facts.runs
    runs = [Run(each, order, out) for each, order in zip(facts, orders, strict=False) if _same(each, order)]
    first = None
    broken = next((run for run in runs if run.facts.stage), None)
    if outcome.reason:
        first = CheckLine("it comes to an end within its limits", False, mistake=outcome.reason)
    elif len(runs) < len(orders):
        mistake = "its process left other facts than those asked for"
        first = CheckLine("it leaves what was recorded", False, mistake=mistake)
    elif broken is not None:
        files = ", ".join(programs if broken.facts.stage == "program" else modules) or "it"
        what = STAGES.get(broken.facts.stage, "it runs").format(files=files)
        first = CheckLine(what, False, mistake=broken.facts.problem, where=broken.label)
    elif programs or modules:
        stage = "program" if programs else "python"
        first = CheckLine(STAGES[stage].format(files=", ".join(programs or modules)), True, given=True)
    if first is not None:
        yield first, None
    for spec in content.checks:
        if first is not None and first.passed is False:
            yield CheckLine(spec.statement, None, given=spec.given), None
        else:
            yield _line(spec, runs, sources)


def _same(facts: Any, order: RunOrder) -> bool:
    return (facts.name, facts.seed, facts.hidden) == (order.name, order.seed, order.hidden)


def _line(spec: CheckSpec, runs: Sequence[Run], sources: dict[str, str]) -> tuple[CheckLine, float | None]:
    concerned = [run for run in runs if not spec.runs or run.facts.name in spec.runs]
    try:
        finding = catalogue.judge(spec.kind, spec.params, concerned, sources)
    except (CaptureError, DecodeError, KeyError, ValueError, TypeError, IndexError, ArithmeticError) as error:
        # The result comes from untrusted code; facts of another shape are a failure of the submission.
        finding = Finding(False, "", f"what was recorded cannot be judged: {type(error).__name__}: {error}")
    where = "" if finding.run is None else finding.run.label
    return (
        CheckLine(
            spec.statement,
            finding.passed,
            finding.measured,
            finding.mistake,
            finding.evidence,
            where,
            "" if finding.passed else (spec.hint or ""),
            finding.packets,
            finding.details,
            spec.given,
        ),
        finding.score,
    )
