"""Comparisons: one workload by several transports under several conditions, judged against each other.

A comparison is a YAML file (`experiments/NAME/compare.yaml`). Each variant runs on a lab of its own, through all
conditions in order; what counts is the time of one iteration of the workload, over all ranks.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from mrc_host.workloads import WORKLOADS
from mrc_host.workloads.ring import RingCollective
from mrc_topo import labfile
from mrc_topo.base.document import Model, explain, printable
from mrc_topo.labfile import LabError, load_lab, parse_lab
from mrc_topo.schema import PoliciesSpec
from mrc_topo.shipped import beside
from mrc_topo.topology import Link, Switch, Topology, UnknownElement
from mrclab.lab.describe import base_rtt_ns
from mrclab.lab.faults.action import Action
from mrclab.lab.faults.kinds import Impair
from mrclab.lab.requested import LabRequest
from mrclab.lab.session import fidelity
from mrclab.lab.session.base import Session
from mrclab.lab.session.real import RealSession
from mrclab.results.check import Check
from mrclab.results.record import RunResult
from mrclab.results.wire import Costs, beyond_first, costs
from mrclab.runs import experiment, tcp
from mrclab.runs.experiment import (
    FOLDER,
    ExperimentError,
    Name,
    Settings,
    Title,
    Tree,
    Workload,
    check_settings,
    find_file,
    read,
)
from mrclab.runs.precheck import check_policies, check_workload
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.sessions import lab_file, session_for
from mrclab.runs.workload import WorkloadSpec


def ideal_seconds(topology: Topology, spec: WorkloadSpec, transport: str) -> float | None:
    """Return the seconds per iteration on empty, healthy paths; None for workloads that are not modelled here."""
    kind = WORKLOADS[spec.workload]
    if not issubclass(kind, RingCollective):
        return None
    hosts = [topology.host(name).index for name in spec.hosts or [host.name for host in topology.hosts]]
    size = kind.complete(spec.params).size_bytes
    cost = costs(topology, transport, spec.qps_per_peer, size // len(hosts))
    rate = topology.lab.links.host.rate * cost.ports
    iterations = int(spec.params.get("iterations") or 1)
    return _ring(topology, hosts, cost, rate, kind.count_steps(len(hosts)), iterations) / iterations


def _ring(topology: Topology, hosts: Sequence[int], cost: Costs, rate_bps: int, steps: int, iterations: int) -> float:
    """Return the time until the last rank has ended all iterations, s."""
    count = len(hosts)
    ahead = [beyond_first(topology, hosts[r], hosts[(r + 1) % count], cost.frame_bytes) for r in range(count)]
    back = [beyond_first(topology, hosts[(r + 1) % count], hosts[r], cost.ack_bytes) for r in range(count)]
    frame = cost.frame_bytes * 8 / (rate_bps / cost.ports)
    data, share = cost.data_bytes * 8 / rate_bps, cost.acks * cost.ack_bytes / cost.data_bytes
    ready = [0.0] * count  # when a rank may send its next step
    for _ in range(iterations):
        sent = [0.0] * count
        for _ in range(steps):
            began = ready
            for r in range(count):
                # Once its predecessor's packets come, a rank acknowledges them on the link on which it sends.
                alone = max(0.0, began[r - 1] + frame + ahead[r - 1] - began[r])
                sent[r] = began[r] + (data if data <= alone else alone + (data - alone) * (1 + share))
            ready = [max(sent[r], sent[r - 1] + ahead[r - 1]) for r in range(count)]
        # An iteration ends when all that a rank has written is acknowledged.
        ready = [max(ready[r], sent[r] + ahead[r] + back[r]) for r in range(count)]
    return max(ready)


EXAMPLE = (
    "a comparison is a mapping with name, title, workload, variants and conditions; see docs/reference/experiments.md"
)


#: The kernel's own, and who sends: a socket program that runs the workload, or iperf3.
TCP = ("tcp", "iperf3")
NO_VIRTUAL_TCP = (
    "is the kernel's own TCP, which runs on the real clock only; in simulated time there is none, since a home-made "
    "one would be no baseline; write `clock: real`"
)


#: What a variant may have otherwise than the comparison's lab: how it is used, not what it consists of.
OWN_KEYS = ("queues", "routing", "roce", "cc", "reliability", "ev")


class Variant(Model):
    """A way to run the workload.

    `over`, for TCP: the hosts' ports in plane 0, or their kernels' ECMP over all. `lab`: keys of the lab file with
    other values; mappings are merged, null removes. `policies` replace those of the lab, kind by kind; their files are
    in the comparison's folder or below.
    """

    name: Title
    transport: Literal["mrc", "roce", "tcp", "iperf3"] = "mrc"
    qps_per_peer: Annotated[int, Field(ge=1, le=64)] = 1
    over: Literal["one_plane", "ecmp"] | None = None
    lab: dict[str, Any] = {}
    policies: PoliciesSpec = PoliciesSpec()

    @property
    def changes(self) -> Tree:
        """What of the lab's document this variant has otherwise."""
        named = self.policies.named
        return {**self.lab, "policies": named} if named else self.lab

    @model_validator(mode="after")
    def _policies(self) -> Self:
        if self.policies.named and self.transport != "mrc":
            raise ValueError(f"policies: they are of MRC; the transport is {self.transport}: leave them out")
        return self

    @model_validator(mode="after")
    def _lab(self) -> Self:
        for key in self.lab:
            if key not in OWN_KEYS:
                raise ValueError(
                    f"lab: '{key}' is the same for all variants; one may have its own {', '.join(OWN_KEYS)}"
                )
        return self

    @model_validator(mode="after")
    def _over(self) -> Self:
        if self.transport in TCP and self.over is None:
            raise ValueError(f"transport {self.transport} needs `over: one_plane` or `over: ecmp`")
        if self.transport not in TCP and self.over is not None:
            raise ValueError(f"`over` is only for {' and '.join(TCP)}; remove it")
        return self


class ConditionEvidence(Model):
    """The evidence that a condition was in force, for every variant.

    `lost`: packets that failures took on the impaired links, at least. `slower`: the factor by which an iteration takes
    longer than under the first condition, at least.
    """

    lost: Annotated[int, Field(ge=1)] | None = None
    slower: Annotated[float, Field(gt=1)] | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.lost is None and self.slower is None:
            raise ValueError("evidence needs lost or slower")
        return self


class Condition(Model):
    """The impairment of links between switches (settings of the failure `impair`), and the evidence of it.

    `at` names such links, and switches for all of their links to other switches; if it is left out, all links are
    impaired.
    """

    name: Title
    impair: Settings = {}
    at: Annotated[list[str], Field(min_length=1)] | None = None
    evidence: ConditionEvidence | None = None

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.impair:
            check_settings(Impair.name, self.impair, f"at condition {self.name}")
        if self.impair and self.evidence is None:
            raise ValueError("nothing would tell if it were not in force; state what shows it: `evidence: {lost: 1}`")
        if self.evidence is not None and not self.impair:
            raise ValueError("evidence of what? the condition has no impair")
        if self.at is not None and not self.impair:
            raise ValueError("at says where the condition's impair is, and it has none")
        return self


class Expected(Model):
    """`faster` than another variant `at` a condition `by` a factor; or the `slowdown` of a variant `at` a condition,
    against the first condition, `at_most` or `at_least` a factor."""

    faster: str | None = None
    than: str | None = None
    by: Annotated[float, Field(gt=0)] = 1.0
    slowdown: str | None = None
    at: str
    at_most: float | None = None
    at_least: float | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.faster is None) == (self.slowdown is None):
            raise ValueError("an expectation has exactly one of faster and slowdown")
        if self.faster is not None and self.than is None:
            raise ValueError("faster needs than")
        if self.slowdown is not None and (self.at_most is None) == (self.at_least is None):
            raise ValueError("slowdown needs exactly one of at_most and at_least")
        return self


class Comparison(Model):
    """See the module's docstring; `lab` may be a file beside this one."""

    name: Name
    title: Title
    lab: Annotated[str, Field(min_length=1, max_length=4096)] = "tiny"
    clock: Literal["real", "virtual"] = "virtual"
    paper: str = ""
    workload: Workload
    variants: Annotated[list[Variant], Field(min_length=1, max_length=64)]
    conditions: Annotated[list[Condition], Field(min_length=1, max_length=64)]
    expect: Annotated[list[Expected], Field(max_length=1000)] = []

    @model_validator(mode="after")
    def _names(self) -> Self:
        variants, conditions = ([each.name for each in part] for part in (self.variants, self.conditions))
        for names in (variants, conditions):
            if len(set(names)) < len(names):
                raise ValueError("two variants or two conditions have one name; name each once")
        for variant in self.variants:
            if variant.transport in TCP:
                self._check_tcp(variant)
        for each in self.expect:
            for name in (each.faster, each.than, each.slowdown):
                if name is not None and name not in variants:
                    raise ValueError(f"no variant '{name}'; it has: {', '.join(variants)}")
            if each.at not in conditions:
                raise ValueError(f"no condition '{each.at}'; it has: {', '.join(conditions)}")
        return self

    def _check_tcp(self, variant: Variant) -> None:
        if self.clock != "real":
            raise ValueError(f"{variant.name}: {variant.transport} {NO_VIRTUAL_TCP}")
        if self.workload.duration is not None:
            raise ValueError(
                f"{variant.name}: {variant.transport} ends after `params.iterations`, not after a duration"
            )
        if variant.transport == "iperf3" and self.workload.name != "write_bw":
            raise ValueError(f"{variant.name}: iperf3 sends from one host to another, which is write_bw")


@dataclass(frozen=True)
class Timing:
    """One run: seconds per iteration (infinite when it failed), the first thing that failed, how many packets
    failures took from links between switches, bytes verified, and why its times are not valid (real clock)."""

    seconds: float
    failure: str = ""
    lost: int = 0
    verified: int = 0
    doubt: str = ""


def known_comparisons() -> dict[str, pathlib.Path]:
    """Return the comparisons that come with the project, by name."""
    return {path.parent.name: path for path in sorted(FOLDER.glob("*/compare.yaml"))}


def load_comparison(name_or_path: str) -> Comparison:
    """Read a comparison by name or path.

    Raises:
        ExperimentError: there is no comparison of that name, or the file is not one.
    """
    path = find_file(name_or_path, known_comparisons(), "compare.yaml", "comparison")
    found = read(Comparison, path, EXAMPLE)
    return placed(found, path.absolute().parent)


def placed(comparison: Comparison, folder: pathlib.Path) -> Comparison:
    """Return a comparison with the files that it names as they are found from anywhere; `folder`: of its file."""
    variants = [
        each.model_copy(update={"policies": labfile.placed(each.policies, folder)}) if each.policies.named else each
        for each in comparison.variants
    ]
    found = comparison.model_copy(update={"variants": variants})
    if "lab" not in comparison.model_fields_set:
        return found
    return found.model_copy(update={"lab": beside(folder, comparison.lab)})


def lasting(comparison: Comparison, seconds: float) -> Comparison:
    """Return a comparison whose workload runs for this many seconds instead of its iterations.

    Raises:
        ExperimentError: the time is none, or a variant cannot end after a time.
    """
    workload = experiment.lasting(comparison.workload, seconds)
    content = {**comparison.model_dump(exclude_unset=True), "workload": workload}
    try:
        return comparison.model_copy(update={"workload": Comparison.model_validate(content).workload})
    except ValidationError as error:
        problems = "; ".join(explain(Comparison, each) for each in error.errors())
        raise ExperimentError(f"comparison {comparison.name}: --duration: {problems}") from error


def seconds_per_iteration(result: RunResult) -> float:
    """Return the time from the first rank's start to the last rank's end, by iterations; infinite when something
    failed.
    """
    progress = [each for each in result.progress.values() if each.takes_part]
    wrong = any(each.mismatches or not each.done or not each.iterations for each in progress)
    if result.failures or wrong or not progress:
        return math.inf
    return result.busy_s / min(each.iterations for each in progress)


def check(comparison: Comparison) -> None:
    """Check every variant against its lab before any has begun.

    Raises:
        ExperimentError: a variant that its lab cannot be, or cannot run.
    """
    for variant in comparison.variants:
        where = f"comparison {comparison.name}: {variant.name}"
        topology = variant_topology(comparison, variant)
        check_policies(topology, where)
        check_workload(comparison.workload, topology, _carried_by(variant), (), where)
        for condition in comparison.conditions:
            impaired(condition, topology, where)
        if variant.transport == "iperf3" and not tcp.have_iperf3():
            raise ExperimentError(f"{where}: {tcp.IPERF3}")


def impaired(condition: Condition, topology: Topology, where: str) -> list[str]:
    """Return the links that a condition impairs, by name, in the order of the topology; `where` begins the error.

    Raises:
        ExperimentError: there is no such link between switches, and no such switch.
    """
    between = [link for link in topology.links.values() if not link.is_host_link]
    if not condition.impair:
        return []
    if condition.at is None:
        return [link.name for link in between]
    found: set[str] = set()
    for name in condition.at:
        try:
            element = topology.element(name)
        except UnknownElement as error:
            raise ExperimentError(f"{where}: condition {condition.name}: at: {error}") from error
        if isinstance(element, Switch):
            found |= {link.name for link in between if element.name in (link.low.node, link.high.node)}
        elif isinstance(element, Link) and not element.is_host_link:
            found.add(element.name)
        else:
            text = f"{printable(name)}: name links between switches, or switches; those of hosts are not impaired"
            raise ExperimentError(f"{where}: condition {condition.name}: at: {text}")
    return [link.name for link in between if link.name in found]


def compare(
    comparison: Comparison, progress: Callable[[str], None] = lambda text: None, *, trust_code: bool = False
) -> dict[tuple[str, str], Timing]:
    """Run every variant under every condition; return their times by (variant, condition).

    `trust_code`: policies that variants name may run on the real clock.

    Raises:
        ExperimentError: as `check`.
        RunError: as `session_for`.
    """
    check(comparison)
    cells = {}
    for variant in comparison.variants:
        made = lab_file(_variant_document(comparison, variant)) if variant.changes else nullcontext(comparison.lab)
        with (
            made as lab,
            session_for(
                LabRequest.of(lab, _carried_by(variant), trust_code=trust_code, clock=comparison.clock), progress
            ) as session,
        ):
            for condition in comparison.conditions:
                progress(f"{variant.name}, {condition.name}")
                cells[variant.name, condition.name] = _run(session, comparison, variant, condition)
    return cells


def _variant_document(comparison: Comparison, variant: Variant) -> Tree:
    document = load_lab(comparison.lab).lab.model_dump(mode="json", exclude_unset=True)
    # A name of its own: on the real clock a lab that is up under the file's is another.
    document["name"] = f"{document['name'][:40]}-{comparison.variants.index(variant) + 1}"
    return labfile.merged(document, variant.changes)


def variant_topology(comparison: Comparison, variant: Variant) -> Topology:
    """Return the lab of a variant.

    Raises:
        ExperimentError: what it has otherwise cannot be; names the variant and the key.
    """
    if not variant.changes:
        return load_lab(comparison.lab)
    text = yaml.safe_dump(_variant_document(comparison, variant))
    try:
        return parse_lab(text, f"comparison {comparison.name}: variant {variant.name}: {comparison.lab} with its `lab`")
    except LabError as error:
        raise ExperimentError(str(error)) from error


def _carried_by(variant: Variant) -> str:
    """Return the transport of the lab's agents; it is idle where the hosts' kernels send. MRC's class is lossy, as
    TCP's is.
    """
    return "mrc" if variant.transport in TCP else variant.transport


def ideals(comparison: Comparison) -> dict[str, float | None]:
    """Return for every variant the least time that an iteration takes (`ideal_seconds`)."""
    found = {}
    for variant in comparison.variants:
        topology = variant_topology(comparison, variant)
        spec = comparison.workload.spec()
        spec.qps_per_peer = variant.qps_per_peer
        tcps = variant.transport in TCP
        found[variant.name] = None if tcps else ideal_seconds(topology, spec, variant.transport)
    return found


def _run(session: Session, comparison: Comparison, variant: Variant, condition: Condition) -> Timing:
    spec = comparison.workload.spec()
    spec.qps_per_peer = variant.qps_per_peer
    for link in impaired(condition, session.topology, f"comparison {comparison.name}: {variant.name}"):
        session.failures.perform(session, Action("fail", link, Impair.name, settings=condition.impair))
    try:
        before = lost_between_switches(session)
        made = _tcp(session, spec, variant) if variant.transport in TCP else _one(session, spec)
        return replace(made, lost=lost_between_switches(session) - before)
    finally:
        session.failures.restore_own(session)


def _one(session: Session, spec: WorkloadSpec) -> Timing:
    result = WorkloadRun(session, spec).go()
    verified = result.achieved().bytes_verified
    failure = result.failures[0] if result.failures else ""
    return Timing(seconds_per_iteration(result), failure, 0, verified, result.fidelity.doubt)


def _tcp(session: Session, spec: WorkloadSpec, variant: Variant) -> Timing:
    assert isinstance(session, RealSession)
    session.reset_fidelity()
    made = (tcp.run if variant.transport == "tcp" else tcp.iperf3)(session, spec, str(variant.over))
    # The agents are idle: that they are late delays nothing.
    reasons = fidelity.judge(replace(session.fidelity(), hosts={}), base_rtt_ns(session.topology, session.clock))
    return Timing(made.seconds, made.failure, 0, made.verified, "; ".join(reasons))


def document(
    comparison: Comparison,
    cells: Mapping[tuple[str, str], Timing],
    judged: Sequence[Check],
    ideals: Mapping[str, float | None],
) -> dict[str, Any]:
    """Return the results as plain JSON values. JSON has no infinity: a run that failed has no time."""
    rows = [
        {"variant": variant, "condition": at, "failure": cell.failure, "ideal_seconds": ideals[variant]}
        | {"verified_bytes": cell.verified, "not_valid": cell.doubt}
        | {"seconds": cell.seconds if math.isfinite(cell.seconds) else None}
        for (variant, at), cell in cells.items()
    ]
    checks = [
        {"what": each.what, "wanted": each.expected, "measured": each.measured, "passed": each.passed}
        for each in judged
    ]
    return {"name": comparison.name, "cells": rows, "checks": checks}


def lost_between_switches(session: Session) -> int:
    """Return how many packets failures have taken on links between switches so far."""
    hosts = {f"{port.t0}:{port.t0_port}" for host in session.topology.hosts for port in host.ports}
    ports = session.fabric_sample()["ports"]
    return sum(int(values["lost"]) for port, values in ports.items() if port not in hosts)


def judge(comparison: Comparison, cells: dict[tuple[str, str], Timing]) -> list[Check]:
    """Return the evidence of every condition, then the expectations, in order."""
    first = comparison.conditions[0].name
    judged = list(_evidence(comparison, cells))
    for each in comparison.expect:
        if each.faster is not None:
            ratio = _ratio(cells[str(each.than), each.at], cells[each.faster, each.at])
            what, wanted, passed = (
                f"{each.than} over {each.faster}, {each.at}",
                f"at least {each.by:g}",
                ratio >= each.by,
            )
        else:
            ratio = _ratio(cells[str(each.slowdown), each.at], cells[str(each.slowdown), first])
            what = f"{each.slowdown}: {each.at} over {first}"
            if each.at_most is not None:
                wanted, passed = f"at most {each.at_most:g}", ratio <= each.at_most
            else:
                wanted, passed = f"at least {each.at_least:g}", ratio >= float(each.at_least or 0)
        judged.append(Check(what, wanted, f"{ratio:.2f}", passed))
    return judged


def _evidence(comparison: Comparison, cells: dict[tuple[str, str], Timing]) -> Iterator[Check]:
    first = comparison.conditions[0].name
    for condition in comparison.conditions:
        if condition.evidence is None:
            continue
        for variant in comparison.variants:
            cell = cells[variant.name, condition.name]
            what = f"evidence of {condition.name}, {variant.name}"
            if condition.evidence.lost is not None:
                wanted = condition.evidence.lost
                yield Check(
                    f"{what}: packets the links dropped", f"at least {wanted}", str(cell.lost), cell.lost >= wanted
                )
            if condition.evidence.slower is not None:
                ratio = _ratio(cell, cells[variant.name, first])
                text = f"at least {condition.evidence.slower:g}"
                yield Check(f"{what}: slower", text, f"{ratio:.2f}", ratio >= condition.evidence.slower)


def _ratio(slow: Timing, fast: Timing) -> float:
    """Return slow over fast; NaN, which passes no expectation, when there is nothing to compare with."""
    return math.nan if math.isinf(fast.seconds) else slow.seconds / fast.seconds
