"""A workload on its hosts: what runs, the queue pairs between its ranks before it starts, and how all end together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from mrc_host.requests import ConnectJob, PrepareJob, RankAttributes, StopJobAfter, WindDownJob
from mrc_host.workloads import WORKLOADS
from mrc_host.workloads.base import Surroundings
from mrc_topo import addressing
from mrc_topo.base.rpc import Request
from mrc_topo.topology import Topology
from mrclab.lab.session.base import Session

A = TypeVar("A")


class Ask(Protocol):
    """Carries a request to a host by name; None if the host is gone."""

    def __call__(self, name: str, request: Request[A], /) -> A | None: ...


@dataclass
class WorkloadSpec:
    """A workload's name and parameters, on all hosts or on those named, for some iterations or time.

    `ev_profile` and `cc_profile` name ONLINE profiles of the hosts' node controllers.
    """

    workload: str
    params: dict[str, Any] = field(default_factory=dict)
    hosts: list[str] | None = None
    duration_s: float | None = None
    limit_s: float = 120.0
    qps_per_peer: int = 1
    ev_profile: str = "default"
    cc_profile: str = "default"


def fitted(topology: Topology, workload: str, params: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a workload's parameters as its ranks on these hosts of a lab get them."""
    lab = topology.lab
    racks = [topology.t0_of(topology.host(name).index) for name in names]
    found = Surroundings(lab.host_rate_bps, racks, lab.seed, lab.payload == "length")
    return WORKLOADS[workload].fitted(params, found)


def set_up(session: Session, job: str, spec: WorkloadSpec, names: Sequence[str]) -> None:
    """Create the regions and queue pairs of a job on these hosts, in the order of their ranks, and connect them.

    Raises:
        HostError: a host refuses, or is gone; `finish` removes what the others have made.
    """
    hosts = [session.hosts[name] for name in names]
    addresses = [addressing.text(session.topology.host(name).address) for name in names]
    params = fitted(session.topology, spec.workload, spec.params, names)
    attributes = [
        host.ask(
            PrepareJob(
                job,
                spec.workload,
                params,
                rank,
                list(names),
                addresses,
                spec.qps_per_peer,
                spec.ev_profile,
                spec.cc_profile,
            )
        )
        for rank, host in enumerate(hosts)
    ]
    for rank, host in enumerate(hosts):
        peers = {
            peer: RankAttributes(attributes[peer].region, {rank: attributes[peer].qps[rank]})
            for peer in attributes[rank].qps
        }
        host.ask(ConnectJob(job, peers))


def stop_together(ask: Ask, job: str, names: Sequence[str]) -> None:
    """Let every rank stop after the same iteration, of which none is past.

    The ranks go on while they are asked one after another: none may stop before all have answered.
    """
    answers = [ask(name, WindDownJob(job)) for name in names]
    last = max(0 if answer is None else answer.begun for answer in answers)
    for name in names:
        ask(name, StopJobAfter(job, last))
