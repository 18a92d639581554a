"""The fabric of a cluster as arrays: its shape, the capacities of its links, and what of it is dead.

Links between T0 and T1 are `[plane, T0, T1]`, NIC ports `[plane, NIC]`; NIC n is below T0 `n // per_t0` of every plane,
as in a lab. Each has two directions: `up` is away from the NIC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mrc_topo import addressing
from mrc_topo.addressing import Tier

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_SWITCH = re.compile(r"p(\d+)-t([01])\.(\d+)")
_LINK = re.compile(r"p(\d+)-t0\.(\d+)--p(\d+)-t1\.(\d+)")
_PORT = re.compile(r"h(\d+):(\d+)")
_PLANE = re.compile(r"p(\d+)")
#: Places of an element in the arrays of its class.
Place = tuple[int | slice, ...]
#: What rounding leaves of a sum of logarithms.
NOTHING = 1e-9


class UnknownElement(ValueError):
    """A name that no element of the fabric has; the text lists the names."""


@dataclass(frozen=True)
class FabricShape:
    """Sizes and rates (bits per second of one direction)."""

    planes: int
    t0s: int
    t1s: int
    nics: int
    per_t0: int
    port_bps: float
    fabric_bps: float

    @property
    def paths(self) -> int:
        """Between NICs of two T0s."""
        return self.planes * self.t1s

    @property
    def links(self) -> int:
        """Between T0s and T1s, both directions as one."""
        return self.planes * self.t0s * self.t1s

    @property
    def nic_bps(self) -> float:
        """All ports of a NIC."""
        return self.planes * self.port_bps


@dataclass(frozen=True, order=True)
class Harm:
    """What a failure does to an element: it loses this share of its packets, or keeps this share of its rate; if
    neither, it is dead."""

    loss: float = 0.0
    rate: float = 1.0

    @property
    def kills(self) -> bool:
        """Return whether nothing passes any more."""
        return self.loss == 0.0 and self.rate == 1.0


DEAD = Harm()


class Fabric:
    """The state of a shape's elements: `links`, `t0s`, `t1s` and `ports` count the failures of each, so that failures
    may overlap. `grey` and `slow` sum the logarithms of what losses and lower rates leave."""

    def __init__(self, shape: FabricShape) -> None:
        self.shape = shape
        planes = shape.planes
        self.links = np.zeros((planes, shape.t0s, shape.t1s), np.int32)
        self.t0s = np.zeros((planes, shape.t0s), np.int32)
        self.t1s = np.zeros((planes, shape.t1s), np.int32)
        self.ports = np.zeros((planes, shape.nics), np.int32)
        self.grey = self._sums()
        self.slow = self._sums()
        self.t0_of = (np.arange(shape.nics) // shape.per_t0).astype(np.int32)

    def dead_links(self) -> Bools:
        """Return which links between T0 and T1 carry nothing, because the link or the switch at an end is dead."""
        return (self.links > 0) | (self.t0s > 0)[:, :, None] | (self.t1s > 0)[:, None, :]

    def dead_ports(self) -> Bools:
        """Return which NIC ports carry nothing."""
        return (self.ports > 0) | (self.t0s > 0)[:, self.t0_of]

    def _sums(self) -> dict[str, Floats]:
        return {kind: np.zeros(getattr(self, kind).shape) for kind in ("links", "ports", "t0s", "t1s")}

    def losses(self) -> tuple[Floats, Floats]:
        """Return the shares of packets that links between T0 and T1, and NIC ports, lose in each direction.

        A T0's losses count at the ports below it. A path crosses two links of a T1, so each has half of its losses.
        """
        grey = self.grey
        links = grey["links"] + grey["t1s"][:, None, :] / 2
        ports = grey["ports"] + grey["t0s"][:, self.t0_of]
        return -np.expm1(-np.where(links > NOTHING, links, 0)), -np.expm1(-np.where(ports > NOTHING, ports, 0))

    def rates(self) -> tuple[Floats, Floats] | None:
        """Return the shares of their rates that links between T0 and T1, and NIC ports, have left; None: all of it."""
        slow = self.slow
        if not any((each > NOTHING).any() for each in slow.values()):
            return None
        # A switch that forwards more slowly is one whose links do.
        links = slow["links"] + slow["t0s"][:, :, None] + slow["t1s"][:, None, :]
        ports = slow["ports"] + slow["t0s"][:, self.t0_of]
        return np.exp(-np.where(links > NOTHING, links, 0)), np.exp(-np.where(ports > NOTHING, ports, 0))

    def change(self, name: str, by: int, lanes: int | None = None, harm: Harm = DEAD) -> None:
        """Add (+1) or remove (-1) one failure of an element by name.

        Raises:
            UnknownElement: there is none.
        """
        kind, place = self.find(name, lanes)
        if harm.loss:
            self.grey[kind][place] -= by * np.log1p(-harm.loss)
        if harm.rate < 1:
            self.slow[kind][place] -= by * np.log(harm.rate)
        if harm.kills:
            getattr(self, kind)[place] += by

    def find(self, name: str, lanes: int | None = None) -> tuple[str, Place]:
        """Return the class of an element and its places there. `p0`: all links between switches of plane 0; `lanes`:
        not a T0, but as many of its ports to NICs.

        Raises:
            UnknownElement: there is none.
        """
        shape = self.shape
        if found := _LINK.fullmatch(name):
            plane, t0, other, t1 = map(int, found.groups())
            if plane == other and plane < shape.planes and t0 < shape.t0s and t1 < shape.t1s:
                return "links", (plane, t0, t1)
        elif found := _SWITCH.fullmatch(name):
            plane, tier, index = map(int, found.groups())
            if plane < shape.planes and index < (shape.t1s if tier else shape.t0s):
                if lanes is not None and tier == 0:
                    first = index * shape.per_t0
                    return "ports", (plane, slice(first, min(first + lanes, shape.nics)))
                return "t1s" if tier else "t0s", (plane, index)
        elif found := _PORT.fullmatch(name):
            nic, plane = map(int, found.groups())
            if nic < shape.nics and plane < shape.planes:
                return "ports", (plane, nic)
        elif (found := _PLANE.fullmatch(name)) and int(found[1]) < shape.planes:
            return "links", (int(found[1]),)
        last = f"p{shape.planes - 1}"
        raise UnknownElement(
            f"nothing is called '{name[:60]}'; the last of each kind: {last}, {last}-t0.{shape.t0s - 1}, "
            f"{last}-t1.{shape.t1s - 1}, h{shape.nics - 1}:{shape.planes - 1}, "
            f"{last}-t0.{shape.t0s - 1}--{last}-t1.{shape.t1s - 1}"
        )

    def name(self, kind: str, number: int) -> str:
        """Return the element of a class (`links`, `ports`, `t0s`, `t1s`) with this number, of `count(kind)`."""
        shape = self.shape
        if kind == "links":
            plane, rest = divmod(number, shape.t0s * shape.t1s)
            return addressing.fabric_link_name(plane, *divmod(rest, shape.t1s))
        if kind == "ports":
            nic, plane = divmod(number, shape.planes)
            return addressing.host_port_name(nic, plane)
        tier = Tier.T0 if kind == "t0s" else Tier.T1
        return addressing.switch_name(*_split(number, self.count(kind) // shape.planes, tier))

    def count(self, kind: str) -> int:
        """Return the number of elements of a class."""
        shape = self.shape
        each = {"links": shape.t0s * shape.t1s, "ports": shape.nics, "t0s": shape.t0s, "t1s": shape.t1s}
        return shape.planes * each[kind]


def _split(number: int, each: int, tier: Tier) -> tuple[int, Tier, int]:
    plane, index = divmod(number, each)
    return plane, tier, index
