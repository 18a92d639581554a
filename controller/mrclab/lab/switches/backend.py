"""Forwarding processes behind the fabric's wires, one per switch: common to BMv2 and the Linux kernel.

It lives in the lab's daemon, which is the parent of these processes and the only one that can start them again.
"""

from __future__ import annotations

import abc
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mrc_topo.base.rpc import Done, Request, Verbs
from mrc_topo.topology import Switch, Topology, UnknownElement
from mrclab.lab.hosts.hostnet import HostNet
from mrclab.lab.records.record import LabFolder, LabRecord
from mrclab.lab.records.rundir import RunError

#: The socket on which the daemon serves the verbs of this module.
COMMANDS = "labd"
RUNNING, FROZEN, STOPPED = "running", "frozen", "stopped"


@dataclass(frozen=True)
class CheckSwitch(Request[Done], verb="check"):
    """Check that a switch is alive; the refusal for a dead one says how it died."""

    switch: str


@dataclass(frozen=True)
class SwitchModeResult:
    """The answer to `HoldSwitch`; `fresh`: the switch now runs without program and tables."""

    fresh: bool


@dataclass(frozen=True)
class HoldSwitch(Request[SwitchModeResult], verb="hold"):
    """Bring a switch into a state."""

    switch: str
    state: Literal["running", "frozen", "stopped"]


@dataclass(frozen=True)
class RestartSwitch(Request[Done], verb="restart"):
    """Restart a switch as after a reboot."""

    switch: str


@dataclass(frozen=True)
class SizeQueue(Request[Done], verb="rate"):
    """Size the data queue of a port for the rate of its link; 0: the link has no rate."""

    switch: str
    port: int
    rate_bps: int


def dead_switch(name: str, how: str, lab: str) -> str:
    """Return the error for commands to a switch whose process has died."""
    return f"switch {name} is dead, its process {how}: nothing can be done to it; `mrclab down {lab}`, and up again"


class ProcessSupervisor(Protocol):
    """The daemon, which is the parent of these processes."""

    topology: Topology
    folder: LabFolder
    net: HostNet
    record: LabRecord

    def spawn(self, role: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process that writes into the log of its role; its exit is recorded for the lab."""

    def signal(self, role: str, number: int) -> None:
        """Send a signal to a process."""

    def end_unrecorded(self, role: str) -> None:
        """End a process at once without recording its exit."""

    def check_alive(self, role: str) -> Callable[[], None]:
        """Raise RunError when a process has died."""

    def write(self) -> None:
        """Record the present state."""


class ForwardingBackend(abc.ABC):
    """The switches behind the wires."""

    #: Whether each switch is a P4Runtime server at its role's address.
    p4runtime: bool

    def __init__(self, house: ProcessSupervisor) -> None:
        self.house = house

    @abc.abstractmethod
    def start(self) -> None:
        """Start all switches and set their queues.

        Raises:
            RunError: a switch does not start.
        """

    @abc.abstractmethod
    def hold(self, switch: Switch, state: str) -> bool:
        """Bring a switch into a state (running, frozen, stopped); return whether it now runs without program and
        tables."""

    @abc.abstractmethod
    def restart(self, switch: Switch) -> None:
        """Restart a switch as after a reboot, without what it had learnt."""

    @abc.abstractmethod
    def set_rate(self, switch: Switch, port: int, rate_bps: int) -> None:
        """Size the data queue of a port for the rate of its link (0: it has none)."""

    def verbs(self) -> Verbs:
        """Return the requests to the daemon's socket that this backend serves."""
        verbs = Verbs()
        verbs.add(CheckSwitch, self._check)
        verbs.add(HoldSwitch, self._hold)
        verbs.add(RestartSwitch, self._restart)
        verbs.add(SizeQueue, self._rate)
        return verbs

    def _switch(self, name: str) -> Switch:
        """Return a switch by its name. Raise an error if its process is dead; it is not restarted."""
        try:
            switch = self.house.topology.switch(name)
        except UnknownElement as error:
            raise RunError(str(error)) from error
        try:
            self.house.check_alive(switch.name)()
        except RunError as error:
            death = next((each.how for each in self.house.record.deaths if each.role == switch.name), error)
            raise RunError(dead_switch(switch.name, str(death), self.house.topology.lab.name)) from error
        return switch

    def _check(self, request: CheckSwitch, now: int) -> Done:
        self._switch(request.switch)
        return Done()

    def _hold(self, request: HoldSwitch, now: int) -> SwitchModeResult:
        switch = self._switch(request.switch)
        fresh = self.hold(switch, request.state)
        if request.state == RUNNING:
            self.house.record.held.pop(switch.name, None)
        else:
            self.house.record.held[switch.name] = request.state
        self.house.write()
        return SwitchModeResult(fresh)

    def _restart(self, request: RestartSwitch, now: int) -> Done:
        switch = self._switch(request.switch)
        self.restart(switch)
        self.house.record.held.pop(switch.name, None)
        self.house.write()
        return Done()

    def _rate(self, request: SizeQueue, now: int) -> Done:
        switch = self._switch(request.switch)
        if request.port not in switch.links:
            raise RunError(f"{switch.name} has no port {request.port}")
        self.set_rate(switch, request.port, request.rate_bps)
        return Done()
