"""A slice of a lab on several machines: what the daemon of a slice needs beside the lab file."""

from __future__ import annotations

import json
import os
import pathlib
import select
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar

from mrc_topo.base.files import write_whole
from mrc_topo.placement import Placement
from mrclab.lab.describe import FabricPlan
from p4lite.switch.description import TunnelDescription

PART = "part.json"
KEY = "tunnel.key"


@dataclass(frozen=True)
class LabSlice:
    """The slice of a lab on this machine. `sockets`: descriptors of the tunnels' sockets by link, opened in the
    machine's own network namespace; `lifeline`: the reading end of a pipe that ends when the process that commands the
    slice is gone; `clock_ahead_ns`: how far the lab's monotonic clock is ahead of this machine's; `key`: that of the
    tunnels (hexadecimal digits), which a slice that was loaded does not have."""

    machine: str
    sockets: Mapping[str, int]
    lifeline: int
    clock_ahead_ns: int = 0
    key: str = field(default="", repr=False)

    daemon: ClassVar[str] = "mrc_machines.daemon"

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All descriptors that the daemon inherits."""
        return (*self.sockets.values(), self.lifeline)

    def save(self, folder: pathlib.Path, uid: int, gid: int) -> None:
        """Save the slice and the key of the tunnels, a file each, for the daemon, which runs as this user."""
        for name, text in ((PART, json.dumps(asdict(replace(self, key="")))), (KEY, self.key)):
            write_whole(folder / name, text)
            os.chmod(folder / name, 0o600)
            os.chown(folder / name, uid, gid)

    @classmethod
    def load(cls, folder: pathlib.Path) -> LabSlice:
        """Load the slice in this folder."""
        part = cls(**json.loads((folder / PART).read_text(encoding="utf-8")))
        for each in part.descriptors:
            os.set_inheritable(each, False)
        return part

    def commander_gone(self) -> bool:
        """Return whether the process that commands the slice is gone."""
        return bool(select.select([self.lifeline], [], [], 0)[0])

    def wired(self, plan: FabricPlan, placement: Placement) -> FabricPlan:
        """Return a plan of the hosts' interfaces, extended by the placement: interfaces of the switches on this
        machine, tunnels and relays."""
        here = {switch.name for switch in placement.switches(self.machine)}
        tunnels: dict[tuple[str, int], TunnelDescription] = {}
        relays: dict[str, TunnelDescription] = {}
        relayed_here = relayed(placement, self.machine)
        for link, end in placement.ends(self.machine).items():
            ends = placement.topology.links[link]
            tunnel = TunnelDescription(end.local, end.peer, KEY, end.end, end.peer_end, self.sockets[link])
            if link in relayed_here:
                relays[plan.interfaces[ends.high.node, ends.high.port]] = tunnel
            else:
                place = next(each for each in (ends.low, ends.high) if each.node in here)
                tunnels[place.node, place.port] = tunnel
        local = {place: name for place, name in plan.interfaces.items() if place[0] in here}
        return replace(plan, interfaces=local, tunnels=tunnels, relays=relays)


def relayed(placement: Placement, machine: str) -> list[str]:
    """Return the links between hosts on a machine and T0s on others, in the order of the relay's ports."""
    links = placement.topology.links
    return [
        name
        for name in placement.ends(machine)
        if links[name].is_host_link and placement.machine_of[links[name].low.node] == machine
    ]
