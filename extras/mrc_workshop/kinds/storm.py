"""A pause storm: that the stuck NIC is injected, who stalls because of it, and that a watchdog spares the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from mrc_topo.base import document
from mrc_topo.base.document import DocumentError, Model
from mrc_topo.topology import Topology
from mrc_workshop.job import Document, Run
from mrc_workshop.kinds.compared import missed_check, other_workload
from mrc_workshop.kinds.registry import Finding, kind
from mrclab.lab.faults.kinds import PauseStorm
from mrclab.results import performance

#: A stream stalls if it ends less than this share of the messages that the run's busiest stream ends.
STALLED = 0.6
_NAMES: TypeAdapter[list[str]] = TypeAdapter(list[str])


class Stuck(Model):
    """`host`: whose NIC must be stuck, from `by_s` (seconds) on to the end; `workload`: its name and parameters."""

    host: str
    by_s: Annotated[float, Field(gt=0)]
    workload: Document = {}


@kind(Stuck)
def stuck(params: Stuck, runs: Sequence[Run]) -> Finding:
    """Check that a run's own schedule makes a host's NIC ask for pauses without end, and that its evidence shows it."""
    port = f"{params.host}:0"
    for run in runs:
        experiment = run.order.experiment or {}
        if (finding := other_workload(run, params.workload)) is not None:
            return finding
        steps = [each for each in experiment.get("schedule", ()) if each.get("fail")]
        if not steps:
            return Finding(False, "no failure", "schedule: nothing fails, so no NIC is stuck", run=run)
        step = steps[0]
        if step.get("fail") != port or step.get("kind") != PauseStorm.name:
            failed = f"{step.get('fail')} fails as {step.get('kind') or 'link_down'}"
            text = f"schedule: {failed}, must be {port} as {PauseStorm.name}"
            return Finding(False, str(step.get("fail")), text, run=run)
        if len(steps) > 1 or float(step.get("at", 0)) > params.by_s or _restored(experiment):
            text = (
                f"schedule: only {port} fails, by {params.by_s:g} s, and is not restored; then streams can be compared"
            )
            return Finding(False, f"{len(steps)} failures", text, run=run)
        if (finding := missed_check(run, PauseStorm.name)) is not None:
            return finding
    return Finding(True, f"{PauseStorm.name} of {port}")


def _restored(experiment: Document) -> bool:
    return any(each.get("restore") for each in experiment.get("schedule", ()))


class Victims(Model):
    """`file`: the learner's YAML file, with a list of hosts for each key of `runs`, which names the run of that key;
    `host`: the host whose NIC is stuck."""

    file: str
    host: str
    runs: Annotated[dict[str, str], Field(min_length=1)]


@kind(Victims)
def victims(params: Victims, runs: Sequence[Run], sources: Mapping[str, str]) -> Finding:
    """Check which hosts' streams stall while a NIC is stuck, against the hosts that the learner has predicted."""
    try:
        found = document.parse(
            sources.get(params.file, ""), params.file, f"{params.file} is a mapping of keys to lists"
        )
    except DocumentError as error:
        return Finding(False, "no prediction", error.problems[0])
    for key, name in params.runs.items():
        try:
            predicted = set(_NAMES.validate_python(found.data.get(key), strict=True))
        except ValidationError:
            text = found.problem(
                (key,), "is a list of the hosts whose streams stall, such as [h1, h2]; [] if none does"
            )
            return Finding(False, "no prediction", text)
        for run in (each for each in runs if each.facts.name == name):
            hosts = {host.name for host in run.topology.hosts}
            if unknown := sorted(predicted - hosts):
                return Finding(False, "no such host", found.problem((key,), f"has no host {unknown[0]}"))
            stalled, evidence = _stalled(run)
            if predicted != stalled:
                # The first host that differs is named, not all of them: the learner finds the rest.
                first = min(predicted ^ stalled)
                text = _why(run, params.host, first, stalls=first in stalled)
                return Finding(False, f"{key}: not these", found.problem((key,), text), evidence, run=run)
    # The check does not print the hosts, because its output is also in the README, where they would be the answer.
    return Finding(True, f"{len(params.runs)} lists right")


class Spared(Model):
    """`host`: the host whose NIC is stuck. Streams from and to it may stall, and no others."""

    host: str


@kind(Spared)
def spared(params: Spared, runs: Sequence[Run]) -> Finding:
    """Check that no stream stalls but those from and to the host whose NIC is stuck."""
    for run in runs:
        if not run.result.happenings:
            return Finding(False, "no failure", "nothing fails in this run, so that nothing is shown", run=run)
        stalled, evidence = _stalled(run)
        others = {host for host in stalled if params.host not in (host, _target(run, host))}
        if others:
            text = (
                f"{_list(others)} still stall: the port to {params.host} has packets that nothing takes out, and "
                "lossless queues pass the pause on; something must drop them"
            )
            return Finding(False, f"{_list(others)} stall", text, evidence, run=run)
    return Finding(True, f"no stream stalls but those from and to {params.host}")


def _list(hosts: set[str]) -> str:
    return ", ".join(sorted(hosts)) or "none"


def _messages(run: Run) -> dict[str, int]:
    """Return the messages that each host's stream ended."""
    hosts = run.result.ranks
    return {
        name: sum(each.messages for each in (performance.measured(run.result, name).streams or {}).values())
        for name in hosts
    }


def _stalled(run: Run) -> tuple[set[str], tuple[str, ...]]:
    """Return the hosts whose streams stall, and a line for each stream."""
    ended = _messages(run)
    most = max(ended.values(), default=0)
    lines = tuple(f"{host} to {_target(run, host)}: {count} messages" for host, count in sorted(ended.items()))
    return {host for host, count in ended.items() if count < STALLED * most}, lines


def _target(run: Run, host: str) -> str:
    """Return the host that a host of a permutation sends to."""
    ranks = run.result.ranks
    shift = int((run.order.experiment or {})["workload"]["params"]["shift"])
    return ranks[(ranks.index(host) + shift) % len(ranks)]


def _why(run: Run, stuck_host: str, host: str, *, stalls: bool) -> str:
    """Return why a host's stream stalls, or does not."""
    target = _target(run, host)
    culprits = {each for each in run.result.ranks if _target(run, each) == stuck_host}
    if not stalls:
        return (
            f"{host} does not stall: neither its packets to {target} nor {target}'s ACKs wait in a queue that is paused"
        )
    if target == stuck_host:
        return f"{host} stalls, too: it sends to the stuck NIC"
    if host == stuck_host:
        return f"{host} stalls, too: it may send, but the ACKs of its packets must come in through the stuck NIC"
    if target in culprits:
        return (
            f"{host} stalls, too: {target}'s packets for {stuck_host} fill the switch, which pauses {target}; "
            f"ACKs to {host} wait behind them"
        )
    ways = {(_t0(run.topology, each), _t0(run.topology, stuck_host)) for each in culprits}
    here, there = _t0(run.topology, host), _t0(run.topology, target)
    if here != there and (here, there) in ways:
        return f"{host} stalls, too: its packets to {target} take a link that waits for {stuck_host}"
    return f"{host} stalls, too: its packets arrive, but the ACKs from {target} take a link that waits for {stuck_host}"


def _t0(topology: Topology, host: str) -> str:
    return topology.host(host).ports[0].t0
