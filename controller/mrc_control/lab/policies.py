"""Policies that a lab file or an experiment names: which hold, and where their code may run (docs/security.md)."""

from __future__ import annotations

from mrc_control.lab.rundir import RunError
from mrc_topo.schema import PoliciesSpec
from mrc_topo.topology import Topology

#: What the hosts' agents run; the localiser is the controller's.
HOST_KINDS = ("congestion", "ev", "loss")


class PolicyRefused(RunError):
    """Policies cannot be used as asked; the text says what to do."""


def chosen(topology: Topology, given: PoliciesSpec | None) -> Topology:
    """The lab with other policies than its file names; None, or a kind that is not given: as there."""
    if given is None or not given.named:
        return topology
    policies = topology.lab.policies.model_copy(update=given.named)
    return Topology(topology.lab.model_copy(update={"policies": policies}))


def check(topology: Topology, clock: str, transport: str) -> None:
    """Checks that a lab's policies may run on this clock, under this transport.

    Raises:
        PolicyRefused: they may not.
    """
    named = topology.lab.policies.named
    hosts = [kind for kind in HOST_KINDS if kind in named]
    if hosts and transport != "mrc":
        raise PolicyRefused(f"policies.{hosts[0]} is of MRC; the transport is {transport}: leave it out")
    if named and clock != "virtual":
        raise PolicyRefused(
            f"policies.{next(iter(named))}: {next(iter(named.values()))}: on the real clock agents are root in their "
            "namespaces and run no code that a file names; use --clock virtual"
        )
