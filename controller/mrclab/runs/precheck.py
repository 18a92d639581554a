"""Checks of an experiment, or a workload, before a lab is built for it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import psutil

from mrc_host import policy
from mrc_host.node.host import CommandError, HostNode
from mrc_host.proto.limits import ConfigError
from mrc_host.workloads import WORKLOADS, WorkloadError
from mrc_topo.base.document import printable
from mrc_topo.topology import Topology, UnknownElement
from mrc_topo.units import format_size
from mrclab.lab import describe
from mrclab.lab import policies as own
from mrclab.lab.faults import kinds
from mrclab.lab.faults.action import FailureError
from mrclab.lab.management import denylist
from mrclab.lab.requested import LabRequest
from mrclab.runs.experiment import Experiment, ExperimentError, ProfileSpec, Workload
from mrclab.runs.workload import fitted

DEFAULT = "default"


def check_workload(
    workload: Workload,
    topology: Topology,
    transport: str,
    profiles: Sequence[ProfileSpec],
    where: str,
    *,
    memory: bool = True,
    crosses: bool = False,
) -> None:
    """Check hosts, parameters, memory (unless it is False) and profiles; `where` begins the error. Only a workload that
    `crosses` tenants may write from one to another.

    Raises:
        ExperimentError: it cannot run on this lab.
    """
    known = [host.name for host in topology.hosts]
    names = workload.hosts or known
    for name in names:
        if name not in known:
            text = f"no host '{printable(name)}' in lab '{topology.lab.name}'; it has: {', '.join(known)}"
            raise ExperimentError(f"{where}: workload.hosts: {text}"[:600])
    try:
        kind = WORKLOADS[workload.name]
        params = fitted(topology, workload.name, workload.params, names)
        complete = kind.complete(params)
        needed = kind.plan(len(names), complete) * len(names)
    except WorkloadError as error:
        raise ExperimentError(f"{where}: {error}") from error
    free = psutil.virtual_memory().available
    if memory and needed > free and topology.lab.payload != "length":
        text = f"{format_size(needed)} for {len(names)} hosts' regions, this machine has {format_size(free)} free"
        raise ExperimentError(f"{where}: workload {workload.name} needs {text}; use smaller messages or fewer hosts")
    if not crosses:
        check_tenants(topology, names, lambda rank: kind.peers(rank, len(names), complete), f"{where}: workload.hosts")
    _check_profiles({"ev": workload.ev_profile, "cc": workload.cc_profile}, topology, transport, profiles, where)


def check_tenants(topology: Topology, names: Sequence[str], peers: Callable[[int], Iterable[int]], where: str) -> None:
    """Check that hosts write to others of their tenant only; `peers` gives the ranks that a rank writes to.

    Raises:
        ExperimentError: two of them are not of one tenant.
    """
    tenant_of = [topology.host(name).segment for name in names] if topology.lab.tenants else []
    for rank in range(len(tenant_of)):
        for peer in peers(rank):
            if tenant_of[peer] is not tenant_of[rank]:
                text = f"{names[rank]} and {names[peer]} are not of one tenant, so nothing gets from one to the other"
                raise ExperimentError(f"{where}: {text}; name hosts of one (--hosts)")


def print_notes(workload: Workload) -> None:
    """Print to stderr what of a checked workload's files a run does not use, a line each."""
    kind = WORKLOADS[workload.name]
    for text in kind.notes(kind.complete(workload.params)):
        print(f"note: {printable(text)}", file=sys.stderr, flush=True)


def check_policies(topology: Topology, where: str) -> None:
    """Check that the policies of a lab exist and can be loaded; this executes their files as the run will.

    Raises:
        ExperimentError: one cannot.
        PolicyRefused: others can change one; none has been run then.
    """
    own.check_files(topology)
    for kind, reference in topology.lab.policies.named.items():
        try:
            denylist.load(reference) if kind == "localiser" else policy.load(reference, kind)
        except ConfigError as error:
            raise ExperimentError(f"{where}: policies.{kind}: {error}") from error


def _check_profiles(
    used: Mapping[str, str], topology: Topology, transport: str, profiles: Sequence[ProfileSpec], where: str
) -> None:
    """Check profiles by creating them on one host of the lab, as the run will do on all. Raises ExperimentError."""
    if not profiles and all(name == DEFAULT for name in used.values()):
        return
    config = describe.host_config(topology, topology.hosts[0], "virtual", transport)
    node = HostNode(config, random.Random(0))
    if node.controller is None:
        raise ExperimentError(f"{where}: profiles are of MRC; the transport is {transport}")
    for index, profile in enumerate(profiles):
        which = {"kind": profile.kind, "name": profile.name}
        try:
            node.command("profile_create", {**which, "settings": profile.settings}, 0)
            for state in ("OFFLINE", "ONLINE"):
                node.command("profile_state", {**which, "state": state}, 0)
        except CommandError as error:
            reason = printable(str(error).rpartition(f"host {node.name}: ")[2])
            raise ExperimentError(f"{where}: profiles.{index}: {reason}") from error
    try:
        node.controller.profiles.online(used["ev"], used["cc"])
    except ValueError as error:
        raise ExperimentError(f"{where}: workload: {error}") from error


def requested_lab(experiment: Experiment, *, trust_code: bool = False, clock: str | None = None) -> LabRequest:
    """Return an experiment's lab, with what the experiment chooses itself; checked with a `clock` (`LabRequest.of`).

    Raises:
        LabError: there is no such lab.
    """
    return LabRequest.of(
        experiment.lab,
        experiment.transport,
        switch=experiment.switch,
        compiler=experiment.compiler,
        policies=experiment.policies,
        payload=experiment.payload,
        trust_code=trust_code,
        clock=clock,
    )


def check(experiment: Experiment, topology: Topology) -> None:
    """Check every step against the lab before anything runs.

    Raises:
        ExperimentError: a workload that cannot run there, or a step that cannot be done.
    """
    where = f"experiment {experiment.name}"
    check_policies(topology, where)
    crosses = experiment.expect.denied is not None
    check_workload(experiment.workload, topology, experiment.transport, experiment.profiles, where, crosses=crosses)
    check_steps(experiment, topology)


def check_steps(experiment: Experiment, topology: Topology) -> None:
    """Check that every step can be done on this lab.

    Raises:
        ExperimentError: one cannot.
    """
    for _, action in experiment.actions():
        try:
            kinds.check(topology, action)
        except (UnknownElement, FailureError) as error:
            raise ExperimentError(f"experiment {experiment.name}: {action.describe()}: {error}") from error
