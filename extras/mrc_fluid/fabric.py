"""The fabric of a cluster as arrays: its shape, the capacities of its links, and what of it is dead.

Links between T0 and T1 are `[plane, T0, T1 of its pod]`, those between T1 and T2 `[plane, pod, uplink]`, and NIC ports
`[plane, NIC]`. NIC n is below T0 `n // per_t0` of every plane, as in a lab; T0 n is in pod `n // t0_per_pod`. Each link
has two directions: `up` is away from the NIC. Two tiers are one pod without uplinks.

T1 number t of a pod has the uplinks `t * uplinks` to `(t + 1) * uplinks - 1` of the pod, and uplink u leads to T2
`u // parallel` of the plane. So a T1 meets the T1s of its own number in other pods, as in a folded Clos.

A path is a number that all T0s understand: below `t1s` it turns at that T1 of the pod; `t1s + u` goes up on uplink u,
turns at its T2, and comes down on uplink u of the other pod. Each T0 has one half of a path: the links from it to where
the path turns. So what two ends have to do with a path is `[plane, T0, path]` for each of them, and in two tiers that
is the link itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mrc_fluid.schema import CLASSES
from mrc_topo import addressing
from mrc_topo.addressing import Tier

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_SWITCH = re.compile(r"p(\d+)-t([012])\.(\d+)")
_LINK = re.compile(r"p(\d+)-t0\.(\d+)--p(\d+)-t1\.(\d+)")
_UPPER = re.compile(r"p(\d+)-t1\.(\d+)--p(\d+)-t2\.(\d+)(?::(\d+))?")
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
    """Sizes and rates (bits per second of one direction).

    `t1s`: of a pod, each of which has `uplinks`, `parallel` of them to the same T2. Two tiers: one pod, no uplinks.
    """

    planes: int
    t0s: int
    t1s: int
    nics: int
    per_t0: int
    port_bps: float
    fabric_bps: float
    t0_per_pod: int = 0
    uplinks: int = 0
    parallel: int = 1

    @property
    def pods(self) -> int:
        """Of a plane."""
        return -(-self.t0s // self.t0_per_pod) if self.uplinks else 1

    @property
    def pod_uplinks(self) -> int:
        """Of all T1s of a pod in a plane."""
        return self.t1s * self.uplinks

    @property
    def all_t1s(self) -> int:
        """T1s of a plane."""
        return self.pods * self.t1s

    @property
    def t2s(self) -> int:
        """Of a plane."""
        return self.pod_uplinks // self.parallel

    @property
    def paths(self) -> int:
        """Between NICs of two T0s, which are in different pods if there are several."""
        return self.planes * (self.t1s if self.pods == 1 else self.pod_uplinks)

    @property
    def numbers(self) -> int:
        """Of paths of a plane, within a pod and between pods."""
        return self.t1s + self.pod_uplinks

    @property
    def links(self) -> int:
        """Between T0s and T1s, both directions as one."""
        return self.planes * self.t0s * self.t1s

    @property
    def upper_links(self) -> int:
        """Between T1s and T2s, as `links`."""
        return self.planes * self.pods * self.pod_uplinks

    @property
    def nic_bps(self) -> float:
        """All ports of a NIC."""
        return self.planes * self.port_bps

    @cached_property
    def pod_of(self) -> Ints:
        """The pod of each T0."""
        return np.arange(self.t0s) // self.t0_per_pod if self.uplinks else np.zeros(self.t0s, np.int64)

    def lower(self, number: int) -> tuple[int, ...]:
        """Return the size of an array of T0-T1 links of this many planes."""
        return number, self.t0s, self.t1s

    def upper(self, number: int) -> tuple[int, ...]:
        """Return the size of an array of T1-T2 links of this many planes."""
        return number, self.pods, self.pod_uplinks

    def halves(self, links: NDArray[Any], upper: NDArray[Any], by: np.ufunc) -> NDArray[Any]:
        """Return `[plane, T0, path]`: what is known of a half of a path, from what is known of its links by this
        function of two."""
        if not self.uplinks:
            return links
        made = np.empty((len(links), self.t0s, self.numbers), links.dtype)
        made[..., : self.t1s] = links
        far = made[..., self.t1s :].reshape(len(links), self.t0s, self.t1s, self.uplinks)
        above = upper.reshape(len(links), self.pods, 1, self.t1s, self.uplinks)
        for pod in range(self.pods):
            mine = slice(pod * self.t0_per_pod, (pod + 1) * self.t0_per_pod)
            by(links[:, mine, :, None], above[:, pod], out=far[:, mine])
        return made

    def links_of(self, halves: Floats) -> tuple[Floats, Floats]:
        """Return what T0-T1 links and T1-T2 links carry of what halves of paths carry."""
        if not self.uplinks:
            return halves, np.zeros(self.upper(len(halves)))
        far = halves[..., self.t1s :]
        links = halves[..., : self.t1s] + far.reshape(len(halves), self.t0s, self.t1s, self.uplinks).sum(axis=3)
        return links, self.by_pod(far)

    def by_pod(self, values: Floats) -> Floats:
        """Return the sums over the T0s of each pod: `[plane, T0, ...]` to `[plane, pod, ...]`."""
        if self.pods == 1:
            whole: Floats = values.sum(axis=1, keepdims=True)
            return whole
        found: Floats = np.add.reduceat(values, np.arange(0, self.t0s, self.t0_per_pod), axis=1)
        return found


class ByElement(NamedTuple):
    """What is known of each link between switches, in either direction, and of each NIC port."""

    links: NDArray[Any]
    upper: NDArray[Any]
    ports: NDArray[Any]

    def plane(self, number: int) -> ByElement:
        """Return what is known of a plane, as the only one."""
        return ByElement(*(part[number : number + 1] for part in self))


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
    """The state of a shape's elements: for each of a class (`CLASSES`) the number of failures, so that failures may
    overlap. `grey` and `slow` sum the logarithms of what losses and lower rates leave."""

    def __init__(self, shape: FabricShape) -> None:
        self.shape = shape
        planes = shape.planes
        self.links = np.zeros(shape.lower(planes), np.int32)
        self.upper_links = np.zeros(shape.upper(planes), np.int32)
        self.t0s = np.zeros((planes, shape.t0s), np.int32)
        self.t1s = np.zeros((planes, shape.all_t1s), np.int32)
        self.t2s = np.zeros((planes, shape.t2s), np.int32)
        self.ports = np.zeros((planes, shape.nics), np.int32)
        self.grey = self._sums()
        self.slow = self._sums()
        self.t0_of = (np.arange(shape.nics) // shape.per_t0).astype(np.int32)

    def dead(self) -> ByElement:
        """Return what carries nothing, because it or a switch at an end is dead."""
        return ByElement(self.dead_links(), self.dead_upper(), self.dead_ports())

    def dead_links(self) -> Bools:
        """Return which links between T0 and T1 carry nothing."""
        t1s, _ = self._at_links(self.t1s > 0)
        found: Bools = (self.links > 0) | (self.t0s > 0)[:, :, None] | t1s
        return found

    def dead_upper(self) -> Bools:
        """Return which links between T1 and T2 carry nothing."""
        _, t1s = self._at_links(self.t1s > 0)
        found: Bools = (self.upper_links > 0) | t1s | self._at_t2s(self.t2s > 0)
        return found

    def dead_ports(self) -> Bools:
        """Return which NIC ports carry nothing."""
        return (self.ports > 0) | (self.t0s > 0)[:, self.t0_of]

    def dead_paths(self) -> Bools:
        """Return which halves of paths carry nothing."""
        return self.shape.halves(self.dead_links(), self.dead_upper(), np.logical_or)

    def _at_links(self, t1s: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what is known of T1s at each of their links, down and up."""
        shape = self.shape
        pods = t1s.reshape(shape.planes, shape.pods, shape.t1s)
        return pods[:, shape.pod_of], np.repeat(pods, shape.uplinks, axis=2)

    def _at_t2s(self, t2s: NDArray[Any]) -> NDArray[Any]:
        """Return what is known of T2s at each of their links."""
        return np.repeat(t2s, self.shape.parallel, axis=1)[:, None, :]

    def _sums(self) -> dict[str, Floats]:
        return {kind: np.zeros(getattr(self, kind).shape) for kind in CLASSES}

    def losses(self) -> ByElement:
        """Return the shares of packets that elements lose in each direction.

        A T0's losses count at the ports below it. A path crosses two links of a T1 or T2, so each has half of its
        losses.
        """
        grey = self.grey
        down, up = self._at_links(grey["t1s"] / 2)
        links, upper = grey["links"] + down, grey["upper_links"] + up + self._at_t2s(grey["t2s"] / 2)
        ports = grey["ports"] + grey["t0s"][:, self.t0_of]
        return ByElement(*(-np.expm1(-np.where(each > NOTHING, each, 0)) for each in (links, upper, ports)))

    def rates(self) -> ByElement | None:
        """Return the shares of their rates that elements have left; None: all of it."""
        slow = self.slow
        if not any((each > NOTHING).any() for each in slow.values()):
            return None
        # A switch that forwards more slowly is one whose links do.
        down, up = self._at_links(slow["t1s"])
        links = slow["links"] + slow["t0s"][:, :, None] + down
        upper = slow["upper_links"] + up + self._at_t2s(slow["t2s"])
        ports = slow["ports"] + slow["t0s"][:, self.t0_of]
        return ByElement(*(np.exp(-np.where(each > NOTHING, each, 0)) for each in (links, upper, ports)))

    def change(self, name: str, by: int, lanes: int | None = None, harm: Harm = DEAD) -> None:
        """Add (+1) or remove (-1) one failure of an element by name.

        Raises:
            UnknownElement: there is none.
        """
        for kind, place in self.find(name, lanes):
            if harm.loss:
                self.grey[kind][place] -= by * np.log1p(-harm.loss)
            if harm.rate < 1:
                self.slow[kind][place] -= by * np.log(harm.rate)
            if harm.kills:
                getattr(self, kind)[place] += by

    def find(self, name: str, lanes: int | None = None) -> list[tuple[str, Place]]:
        """Return the classes of an element and its places there. `p0`: all links between switches of plane 0; a T1 and
        a T2: all links between them; `lanes`: not a T0, but as many of its ports to NICs.

        Raises:
            UnknownElement: there is none.
        """
        shape = self.shape
        found: list[tuple[str, Place]] = []
        if match := _LINK.fullmatch(name):
            found = self._link(*map(int, match.groups()))
        elif match := _UPPER.fullmatch(name):
            plane, t1, other, t2 = map(int, match.groups()[:4])
            found = self._upper((plane, t1), (other, t2), None if match[5] is None else int(match[5]))
        elif match := _SWITCH.fullmatch(name):
            plane, tier, index = map(int, match.groups())
            if plane < shape.planes and index < (shape.t0s, shape.all_t1s, shape.t2s)[tier]:
                found = [(f"t{tier}s", (plane, index))]
                if lanes is not None and tier == 0:
                    first = index * shape.per_t0
                    found = [("ports", (plane, slice(first, min(first + lanes, shape.nics))))]
        elif match := _PORT.fullmatch(name):
            nic, plane = map(int, match.groups())
            if nic < shape.nics and plane < shape.planes:
                found = [("ports", (plane, nic))]
        elif (match := _PLANE.fullmatch(name)) and int(match[1]) < shape.planes:
            found = [("links", (int(match[1]),)), ("upper_links", (int(match[1]),))]
        if found:
            return found
        kinds = [kind for kind in CLASSES if self.count(kind)]
        last = ", ".join([f"p{shape.planes - 1}", *(self.name(kind, self.count(kind) - 1) for kind in kinds)])
        raise UnknownElement(f"nothing is called '{name[:60]}'; the last of each kind: {last}")

    def _link(self, plane: int, t0: int, other: int, t1: int) -> list[tuple[str, Place]]:
        shape = self.shape
        if plane != other or plane >= shape.planes or t0 >= shape.t0s:
            return []
        pod, own = divmod(t1, shape.t1s)
        return [("links", (plane, t0, own))] if pod == shape.pod_of[t0] else []

    def _upper(self, below: tuple[int, int], above: tuple[int, int], single: int | None) -> list[tuple[str, Place]]:
        """Return the places of the links between a T1 and a T2 (plane and number), or of a single one."""
        shape, (plane, t1), (other, t2) = self.shape, below, above
        if plane != other or plane >= shape.planes or t1 >= shape.all_t1s or t2 >= shape.t2s:
            return []
        pod, own = divmod(t1, shape.t1s)
        first = t2 * shape.parallel
        if first // shape.uplinks != own or (single or 0) >= shape.parallel:
            return []
        if single is None:
            return [("upper_links", (plane, pod, slice(first, first + shape.parallel)))]
        return [("upper_links", (plane, pod, first + single))]

    def name(self, kind: str, number: int) -> str:
        """Return the element of a class (`CLASSES`) with this number, of `count(kind)`."""
        shape = self.shape
        if kind == "ports":
            nic, plane = divmod(number, shape.planes)
            return addressing.host_port_name(nic, plane)
        plane, rest = divmod(number, self.count(kind) // shape.planes)
        if kind == "links":
            t0, own = divmod(rest, shape.t1s)
            return addressing.fabric_link_name(plane, t0, int(shape.pod_of[t0]) * shape.t1s + own)
        if kind == "upper_links":
            pod, uplink = divmod(rest, shape.pod_uplinks)
            t1 = addressing.switch_name(plane, Tier.T1, pod * shape.t1s + uplink // shape.uplinks)
            t2, single = divmod(uplink, shape.parallel)
            return f"{t1}--{_t2_name(plane, t2)}" + (f":{single}" if shape.parallel > 1 else "")
        if kind == "t2s":
            return _t2_name(plane, rest)
        return addressing.switch_name(plane, Tier.T0 if kind == "t0s" else Tier.T1, rest)

    def count(self, kind: str) -> int:
        """Return the number of elements of a class."""
        return int(getattr(self, kind).size)


def _t2_name(plane: int, index: int) -> str:
    """Return the name of a T2, which no lab has, in the form of `addressing.switch_name`."""
    return f"p{plane}-t2.{index}"
