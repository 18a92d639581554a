"""A workload on its hosts: what runs, the queue pairs between its ranks before it starts, and how all end together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mrc_lab.session.base import Session
from mrc_topo import addressing

#: Carries a verb to a host by name.
Ask = Callable[..., dict[str, Any]]


@dataclass
class WorkloadSpec:
    """What runs: a workload's name and parameters, on all hosts or on those named, for some iterations or time.

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


def set_up(session: Session, job: str, spec: WorkloadSpec, names: Sequence[str]) -> None:
    """Regions and queue pairs of a job on these hosts, in the order of their ranks; then each is told its peers'.

    Raises:
        HostError: one refuses, or is gone; what the others have made `finish` takes away.
    """
    hosts = [session.hosts[name] for name in names]
    addresses = [addressing.text(session.topology.host(name).address) for name in names]
    attributes = [
        host.request(
            "prepare",
            job=job,
            workload=spec.workload,
            params=dict(spec.params),
            rank=rank,
            names=list(names),
            addresses=addresses,
            qps_per_peer=spec.qps_per_peer,
            ev_profile=spec.ev_profile,
            cc_profile=spec.cc_profile,
        )
        for rank, host in enumerate(hosts)
    ]
    for rank, host in enumerate(hosts):
        mine = {int(peer) for peer in attributes[rank]["qps"]}
        peers = {
            str(peer): {
                "region": attributes[peer]["region"],
                "qps": {str(rank): attributes[peer]["qps"][str(rank)]},
            }
            for peer in mine
        }
        host.request("connect", job=job, peers=peers)


def stop_together(ask: Ask, job: str, names: Sequence[str]) -> None:
    """Lets every rank stop after the same iteration, of which none is past.

    The ranks go on while they are asked one after another: none may stop before all have answered.
    """
    begun = [ask(name, "wind_down", job=job).get("begun", 0) for name in names]
    for name in names:
        ask(name, "stop_after", job=job, iterations=max(begun))
