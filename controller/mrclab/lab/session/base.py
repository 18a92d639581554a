"""A running lab as experiments see it, the same on the real and the virtual clock."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from mrc_host.answers import HostStatistics
from mrc_topo import rules
from mrc_topo.topology import Topology
from mrclab.lab.faults.fabric import FabricControl
from mrclab.lab.faults.ledger import FaultLedger
from mrclab.lab.hosts.hostclient import HostControl
from mrclab.lab.processes.process import ProcessExit, StoppedProcess
from mrclab.lab.session import counters
from mrclab.lab.session.fidelity import Fidelity
from mrclab.lab.switches.program import FabricProgram, ProgramDocument
from p4lite.switch.targetapi.values import DeviceSample, DeviceStats

if TYPE_CHECKING:
    from p4lite.api.values import Control


@dataclass(frozen=True)
class LabCounts:
    """Both books of a lab at one moment: what hosts and what switches have counted, by name.

    `unread`: by host and port, packets that arrived at a host whose agent has not read them; `program`: the counters of
    the switches' program; `crossing`: by link to another machine, packets that went into its tunnel and have not come
    out of it. A host that does not answer has None.
    """

    t_ns: int
    hosts: Mapping[str, HostStatistics | None]
    unread: Mapping[str, Sequence[int]]
    fabric: Mapping[str, DeviceStats]
    program: Mapping[str, int]
    crossing: Mapping[str, int] = field(default_factory=dict)


class LabFabric(FabricControl, counters.StatsSource, counters.SampleSource, counters.CounterSource, Protocol):
    """A fabric that can fail, and whose counters can be read."""


class Session(abc.ABC):
    """A lab that is up.

    `topology`: the lab's elements; `hosts`: its hosts by name, in order; `fabric`: links, switches and their counters;
    `failures`: the failures in force; `denied`: elements on the denylist. Times are ns of the session's clock, which
    the hosts share.
    """

    clock: ClassVar[str]
    topology: Topology
    hosts: Mapping[str, HostControl]
    fabric: LabFabric
    failures: FaultLedger
    denied: set[str]
    #: Whether links between switches are veth pairs: a port then counts what it loses of both directions.
    veth_links = False

    @property
    @abc.abstractmethod
    def program(self) -> FabricProgram:
        """The program of the lab's switches."""

    @abc.abstractmethod
    def now_ns(self) -> int:
        """Return the time of the session's clock in ns."""

    @abc.abstractmethod
    def advance(self, seconds: float) -> None:
        """Let time pass: wait on the real clock, simulate on the virtual one."""

    @abc.abstractmethod
    def set_carrier(self, host: str, port: int, up: bool) -> None:
        """Set or clear the carrier of a NIC port; the host sees the change as a NIC would."""

    @abc.abstractmethod
    def p4runtime_address(self, switch: str) -> str:
        """Return the gRPC address on which a switch listens for controllers."""

    def control(self, switch: str) -> Control | None:
        """Return the operations on the tables and arrays of a switch's program; None where they are P4Runtime's."""
        return None

    @abc.abstractmethod
    def freeze_agent(self, host: str) -> None:
        """Stop a host's agent with SIGSTOP until `thaw_agent`; send it no request meanwhile.

        Raises:
            HostError: the agent is gone.
        """

    @abc.abstractmethod
    def thaw_agent(self, host: str) -> None:
        """Continue a frozen agent. Raises as `freeze_agent`."""

    @abc.abstractmethod
    def kill_agent(self, host: str) -> None:
        """Kill a host's agent (SIGKILL). Raises as `freeze_agent`."""

    @abc.abstractmethod
    def restart_agent(self, host: str) -> None:
        """Start a host's agent again after `kill_agent`, without any of its earlier state.

        Raises:
            HostError: the agent does not come up.
        """

    def signal_process(self, role: str, number: int) -> bool:
        """Send a signal to a process of the lab other than an agent; return whether there is such a process."""
        return False

    def stats(self) -> dict[int, DeviceStats]:
        """Return the statistics of all switches at this moment, by device id."""
        return self.fabric.stats()

    def unread(self) -> Mapping[str, Sequence[int]]:
        """Return by host and port how many packets arrived that the agent has not read: it was frozen or killed."""
        return {name: [0] * self.topology.lab.planes for name in self.hosts}

    def crossing(self) -> Mapping[str, int]:
        """Return by link how many packets went into its tunnel to another machine and have not come out: those lost on
        the way, and those on it."""
        return {}

    def samples(self, counted: Iterable[str] = ()) -> dict[int, DeviceSample]:
        """Return a live view's data of all switches, by device id: `some_drops` are those of `counters.FAILURE_DROPS`,
        `counted` are counters of the program that are added up."""
        return self.fabric.samples(rules.DATA_PRIORITY, counters.FAILURE_DROPS, counted)

    def fabric_sample(self) -> counters.FabricSample:
        """Return counters of the fabric at this moment, per port."""
        return counters.sample(self.topology, self.fabric)

    def program_counters(self) -> dict[str, int]:
        """Return the P4 program's counts since the start, over all switches: marked, trimmed, dropped by reason; of a
        lab's own program also all its counters by their full names."""
        found = counters.program_counters(self.topology, self.fabric, self.counter_names())
        if self.topology.lab.program is not None:
            found |= counters.own_counters(self.topology, self.fabric, self.program.names)
        return found

    def counter_names(self) -> Mapping[str, str]:
        """Return the program's names of the counters of `rules.COUNTERS` that it has."""
        return self.program.counters

    def program_document(self) -> ProgramDocument:
        """See `FabricProgram.document`."""
        return self.program.document()

    @contextlib.contextmanager
    def changing_denied(self) -> Iterator[None]:
        """Lock the lab's recorded denylist for as long as the context lasts, then record it."""
        yield

    def denied_now(self) -> set[str]:
        """Return the elements on the denylist at present, from all sources."""
        return self.denied

    def deaths(self) -> list[ProcessExit]:
        """Return the exits in the lab since the session began, oldest first; in a simulation there are none."""
        return []

    def frozen(self) -> list[StoppedProcess]:
        """Return the lab's processes that a signal has stopped; a call to one of them blocks until it continues."""
        return []

    @abc.abstractmethod
    def fidelity(self) -> Fidelity:
        """Return how well fabric and hosts kept up since `reset_fidelity`."""

    @abc.abstractmethod
    def reset_fidelity(self) -> None:
        """Restart the measurement of fidelity."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release the lab; a real one stays up."""


S = TypeVar("S", bound=Session)


@contextlib.contextmanager
def closing(session: S) -> Iterator[S]:
    """Close the session at the end."""
    try:
        yield session
    finally:
        session.close()
