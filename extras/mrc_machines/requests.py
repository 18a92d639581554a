"""Requests of a session to the part of a lab on one machine, through the part's own socket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mrc_topo.base.rpc import Done, Request
from mrclab.lab.session.fidelity import Fidelity
from mrclab.lab.session.real import AgentProcess


@dataclass(frozen=True)
class SliceFidelity:
    """The answer about a slice's fidelity, as `Session.fidelity`."""

    fidelity: Fidelity


@dataclass(frozen=True)
class MeasureFidelity(Request[SliceFidelity], verb="fidelity"):
    """Measure how late the slice's processes were."""


@dataclass(frozen=True)
class SliceAgents:
    """The answer about a slice's agents, as `RealSession.agents`."""

    agents: list[AgentProcess]


@dataclass(frozen=True)
class ListAgents(Request[SliceAgents], verb="agents"):
    """List the processes of the slice's agents."""


@dataclass(frozen=True)
class SignalSent:
    """The answer to `SignalProcess`; `done` says whether there is such a process."""

    done: bool


@dataclass(frozen=True)
class SignalProcess(Request[SignalSent], verb="strike"):
    """Send a signal to a process of the slice that is not an agent."""

    role: str
    number: int


@dataclass(frozen=True)
class SetCarrier(Request[Done], verb="carrier"):
    """Set or clear the carrier of a host's port."""

    host: str
    port: int
    up: bool


@dataclass(frozen=True)
class ControlAgent(Request[Done], verb="agent"):
    """Freeze, thaw, kill or restart the agent of a host."""

    host: str
    action: Literal["freeze", "thaw", "kill", "restart"]
