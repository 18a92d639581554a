"""Labs on several machines: what the extra `mrc_machines` does for the core, which has labs on one machine only."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, ClassVar, Protocol

from mrclab import extras
from mrclab.lab.records.rundir import Progress, RunDir

if TYPE_CHECKING:
    from mrc_topo.topology import Topology
    from mrclab.lab.requested import LabRequest
    from mrclab.lab.session.real import RealSession


class SeveralMachines(Protocol):
    """The functions that the extra contributes to the group `mrclab.machines`."""

    def up(self, wanted: LabRequest, progress: Progress) -> None:
        """Bring a lab up on all its machines; errors as `lifecycle.up`."""

    def warnings(self, topology: Topology) -> list[str]:
        """Return warnings for the user about the network between the machines of a lab that is up."""

    def session_of(self, name: str, *, fresh: bool) -> RealSession:
        """Open a session on a lab that is up on several machines; errors as `RealSession`."""


class SliceOfLab(Protocol):
    """The part of a lab that `lifecycle.up` starts instead of a whole one.

    `daemon`: the module that holds it, with the arguments of `mrclab.lab.daemon`; `descriptors`: what that inherits;
    `clock_ahead_ns`: how far the slice's monotonic clock is ahead of this machine's.
    """

    daemon: ClassVar[str]

    @property
    def descriptors(self) -> tuple[int, ...]: ...

    @property
    def clock_ahead_ns(self) -> int: ...

    def save(self, folder: pathlib.Path, uid: int, gid: int) -> None:
        """Save what the daemon reads, which runs as this user, into the lab's folder."""


def machines_of(lab: str) -> SeveralMachines:
    """Return the extra for a lab on several machines.

    Raises:
        UsageError: it is not here; the text says how to get it.
    """
    found: SeveralMachines = extras.need(*extras.MACHINES, f"lab '{lab}', which is on several machines,")
    return found


def session_of(name: str, *, fresh: bool = False) -> RealSession:
    """Open a session on the lab of a name, on one machine or on several; errors as `RealSession` and `machines_of`."""
    # This imports gRPC and NumPy, which commands without a session do not need.
    from mrclab.lab.session.real import RealSession

    if RunDir(name).read().machines:
        return machines_of(name).session_of(name, fresh=fresh)
    return RealSession(name, fresh=fresh)
