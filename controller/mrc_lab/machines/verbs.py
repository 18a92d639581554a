"""What a session asks of the part of a lab on one machine, through the part's own socket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mrc_common.rpc import Done, Request
from mrc_lab.session.fidelity import Fidelity
from mrc_lab.session.real import AgentProcess


@dataclass(frozen=True)
class SliceFidelity:
    """As `Session.fidelity`, of the part."""

    fidelity: Fidelity


@dataclass(frozen=True)
class MeasureFidelity(Request[SliceFidelity], verb="fidelity"):
    """How late the part's processes were."""


@dataclass(frozen=True)
class SliceAgents:
    """As `RealSession.agents`, of the part."""

    agents: list[AgentProcess]


@dataclass(frozen=True)
class ListAgents(Request[SliceAgents], verb="agents"):
    """The processes of the part's agents."""


@dataclass(frozen=True)
class SignalSent:
    """`done`: there is such a process."""

    done: bool


@dataclass(frozen=True)
class SignalProcess(Request[SignalSent], verb="strike"):
    """Send a signal to a process of the part that is not an agent."""

    role: str
    number: int


@dataclass(frozen=True)
class SetCarrier(Request[Done], verb="carrier"):
    """Take the carrier off a host's port, or give it back."""

    host: str
    port: int
    up: bool


@dataclass(frozen=True)
class ControlAgent(Request[Done], verb="agent"):
    """Freeze, thaw, kill or restart the agent of a host."""

    host: str
    action: Literal["freeze", "thaw", "kill", "restart"]
