"""Holds a slice of a lab on several machines, as `mrclab.lab.daemon` holds a whole lab, with the same arguments."""

from __future__ import annotations

import sys

from mrc_machines.lab_slice import LabSlice
from mrc_topo.placement import Placement
from mrc_topo.topology import Host, Switch
from mrclab.lab import daemon
from mrclab.lab.describe import FabricPlan


class SliceDaemon(daemon.Daemon):
    """One slice from start to end. It also ends when the process that commands it is gone."""

    def elements(self) -> tuple[list[Host], list[Switch]]:
        self.part = LabSlice.load(self.folder.path)
        self.inherited = tuple(self.part.sockets.values())
        self.placement = Placement(self.topology)
        return self.placement.hosts(self.part.machine), self.placement.switches(self.part.machine)

    def wired(self, plan: FabricPlan) -> FabricPlan:
        return self.part.wired(plan, self.placement)

    def abandoned(self) -> str:
        return "the coordinator of this slice of a lab is gone" if self.part.commander_gone() else ""


if __name__ == "__main__":
    sys.exit(daemon.main(sys.argv[1:], SliceDaemon))
