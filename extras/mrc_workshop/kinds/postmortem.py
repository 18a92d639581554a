"""Check of a learner's findings about a run from its records (`mrc_workshop.records`), against what was done in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, ValidationError

from mrc_host.proto.events import EvState
from mrc_topo.base import document
from mrc_topo.base.document import DocumentError, Model, explain
from mrc_topo.paths import Paths
from mrc_topo.topology import UnknownElement
from mrc_workshop import records
from mrc_workshop.job import Run
from mrc_workshop.kinds.registry import Finding, kind


class Postmortem(Model):
    """`file`: the learner's YAML file (`Findings`); `within_ms`: how far its times may be off."""

    file: str
    within_ms: Annotated[float, Field(gt=0)]


class Findings(Model):
    """What the learner found out: the element that failed, from when to when (ms after the start), which hosts sent
    across it, how many EVs were taken out because of it, and how many others were."""

    element: str
    failed_ms: Annotated[float, Field(ge=0)]
    mended_ms: Annotated[float, Field(ge=0)]
    senders: list[str]
    evs_lost: Annotated[int, Field(ge=0)]
    evs_of_noise: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Truth:
    """What was done in a run and what its hosts did: the element, when it failed and was mended (ms), and the EVs that
    were taken out, as (host, EV): those that cross it, and those that do not."""

    element: str
    failed_ms: float
    mended_ms: float
    lost: frozenset[tuple[str, int]]
    noise: frozenset[tuple[str, int]]

    @property
    def senders(self) -> set[str]:
        """The hosts that lost EVs."""
        return {host for host, _ in self.lost}


def truth(run: Run) -> Truth:
    """Return what was done in a run that fails one element and restores it."""
    steps = {each.action.verb: each for each in run.result.happenings}
    failed, mended = (run.result.since_start(steps[verb].done_ns) * 1000 for verb in ("fail", "restore"))
    name = steps["fail"].action.target
    element = run.topology.element(name)
    taken: dict[bool, set[tuple[str, int]]] = {True: set(), False: set()}
    for each, path in records.path_changes(run.result, run.events, run.topology):
        if each.new == EvState.ASSUMED_BAD.name:
            taken[Paths.crosses(element, path)].add((each.host, each.ev))
    return Truth(name, failed, mended, frozenset(taken[True]), frozenset(taken[False]))


@kind(Postmortem)
def postmortem(params: Postmortem, runs: Sequence[Run], sources: Mapping[str, str]) -> Finding:
    """Check what the learner found out about a recorded run: element, times, hosts and EVs."""
    try:
        found = document.parse(sources.get(params.file, ""), params.file, f"{params.file} is a mapping of findings")
    except DocumentError as error:
        return Finding(False, "no findings", error.problems[0])
    missing = next((key for key in Findings.model_fields if found.data.get(key) is None), None)
    if missing is not None:
        return Finding(False, "not complete", f"{params.file}: {missing} has no value yet")
    try:
        findings = Findings.model_validate(found.data)
    except ValidationError as error:
        first = error.errors()[0]
        return Finding(False, "not readable", found.problem(tuple(first["loc"]), explain(Findings, first)))
    run = runs[0]
    key, mistake = _mistake(params, findings, run)
    if mistake:
        return Finding(False, f"{key} is not right", found.problem((key,), mistake), run=run)
    # The check does not print the findings, because its output is also in the README, where they would be the answer.
    return Finding(True, f"{len(Findings.model_fields)} findings right")


def _mistake(params: Postmortem, findings: Findings, run: Run) -> tuple[str, str]:
    """Return the first key whose value is wrong and what speaks against it; empty texts if all are right."""
    actual = truth(run)
    if findings.element != actual.element:
        return "element", _not_it(findings.element, actual, run)
    for key, value, right in (
        ("failed_ms", findings.failed_ms, actual.failed_ms),
        ("mended_ms", findings.mended_ms, actual.mended_ms),
    ):
        if abs(value - right) > params.within_ms:
            side = "too early" if value < right else "too late"
            return key, f"{value:g} is {side}: {_TIMES[key]}"
    if set(findings.senders) != actual.senders:
        wrong = min(set(findings.senders) ^ actual.senders)
        does = "lost no EV to it" if wrong in findings.senders else "lost EVs to it, too"
        return "senders", f"{wrong} {does}: look at the column host of the rows whose path crosses {actual.element}"
    for key, number, evs, other in (
        ("evs_lost", findings.evs_lost, actual.lost, actual.noise),
        ("evs_of_noise", findings.evs_of_noise, actual.noise, actual.lost),
    ):
        if number != len(evs):
            why = "count an EV of a host once, and only rows in which it becomes ASSUMED_BAD"
            if number == len(evs) + len(other):
                why = "not all of them: some paths do not cross what failed"
            return key, f"{number} is not the number: {why}"
    return "", ""


_TIMES = {
    "failed_ms": "an EV is taken out some milliseconds after the failure, when packets behind the lost one arrived",
    "mended_ms": "an EV is used again when three probes, sent every 20 ms, have been answered",
}


def _not_it(name: str, actual: Truth, run: Run) -> str:
    """Return what speaks against an element that did not fail."""
    try:
        element = run.topology.element(name)
    except UnknownElement:
        return f"there is no {name} in this lab"
    crossing = {
        (each.host, each.ev)
        for each, path in records.path_changes(run.result, run.events, run.topology)
        if each.new == EvState.ASSUMED_BAD.name and Paths.crosses(element, path)
    }
    missed = len(actual.lost - crossing)
    if missed:
        return f"{missed} EVs that were taken out do not cross {name}; it explains {len(crossing)} of them"
    return f"{name} would take away paths on which all goes well; something smaller explains the same EVs"
