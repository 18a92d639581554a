"""Scenarios of the suite: a lab, flows, what fails, and what is known about the result beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mrc_topo.schema import Lab
from mrclab.runs.experiment import ExperimentStep

#: One NIC's rate in all scenarios, and the delay of a link: those of uet-htsim when nothing else is asked for.
NIC_BPS = 100_000_000_000
DELAY_NS = 1_000
MTU = 4096
#: A port carries this much in a base round trip of eight links (9.6 us): it trims from there on.
BDP_BYTES = 120_000
#: Flows of this many bytes are long: their start and end are a few percent of their time.
LONG_BYTES = 2000 * MTU
#: Marking begins and is certain at these shares of it.
ECN_LOW, ECN_HIGH = 0.2, 0.8
#: Trimmed headers wait in a queue of their own. In uet-htsim it holds two base round trips of headers of 64 bytes; ours
#: have 138, so this is as many headers. The lab's default holds fewer than 64 senders send at once.
CONTROL_LIMIT = 2 * BDP_BYTES * 138 // 64


def mark_bytes(port_bps: int) -> tuple[int, int]:
    """Return the bytes in a queue from which on marking begins, and is certain."""
    bdp = BDP_BYTES * port_bps // NIC_BPS
    return max(round(bdp * ECN_LOW), MTU), max(round(bdp * ECN_HIGH), 4 * MTU)


class Backend(StrEnum):
    """What ran a scenario."""

    PACKETS = "packets"
    FLUID = "fluid"
    HTSIM = "htsim"

    @property
    def label(self) -> str:
        """Its name on pages."""
        return "flow model" if self is Backend.FLUID else self.value


class Quantity(StrEnum):
    """What is compared, with its unit."""

    GOODPUT = "goodput, Gb/s"
    STEADY = "steady goodput, Gb/s"
    P50 = "FCT P50, us"
    P99 = "FCT P99, us"
    JAIN = "Jain's index"
    TRIMMED = "trimmed, % of packets"
    MARKED = "marked, % of packets"
    AGAIN = "sent again, % of packets"

    @property
    def label(self) -> str:
        """Its name on pages, with its unit."""
        return _TITLES.get(self, self.value)


_TITLES = {
    Quantity.P50: "median flow completion time, µs",
    Quantity.P99: "its 99 % quantile, µs",
    Quantity.JAIN: "Jain's index of fairness (1: all equal)",
}

#: What a fluid model has no notion of.
OF_PACKETS = frozenset({Quantity.TRIMMED, Quantity.MARKED, Quantity.AGAIN})
#: What differs relatively; shares of packets differ by percentage points.
RELATIVE = frozenset({Quantity.GOODPUT, Quantity.STEADY, Quantity.P50, Quantity.P99, Quantity.JAIN})


@dataclass(frozen=True)
class FlowSpec:
    """A flow between two hosts: payload bytes, and when it starts, ns."""

    source: int
    target: int
    bytes: int
    start_ns: int = 0


@dataclass(frozen=True)
class Failure:
    """An element that fails at a time, for a time (None: to the end), `count` times, as often as it lasts twice.

    `loss`: not dead, but loses this share of its packets. `of_t1`: the element is a T1. Times are ns.
    """

    element: str
    at_ns: int = 0
    lasts_ns: int | None = None
    count: int = 1
    loss: float = 0.0
    of_t1: bool = False

    def steps(self) -> list[ExperimentStep]:
        """Return the steps of an experiment; what shows the failure is that the fabric lost packets to it."""
        made = []
        for turn in range(self.count):
            begin = self.at_ns + 2 * turn * (self.lasts_ns or 0)
            fail: dict[str, Any] = {"at": begin / 1e9, "fail": self.element, "evidence": {"dropped": 1}}
            if self.loss:
                fail |= {"kind": "impair", "settings": {"loss": self.loss}, "loss": 0.0}
            made.append(ExperimentStep.model_validate(fail))
            if self.lasts_ns is not None:
                end = (begin + self.lasts_ns) / 1e9
                made.append(ExperimentStep.model_validate({"at": end, "restore": self.element}))
        return made


@dataclass(frozen=True)
class ScenarioFabric:
    """A fabric whose NICs have the same rate whatever the number of planes, in two tiers, or in three.

    `pods`: with more than one, each has as many of the T0s, `t1s` T1s in a plane, and `t1_uplinks` from each of these
    to T2s; a T2 has a link to each pod.
    `slow_t1s`: this many T1s of each plane have links of a quarter of the rate (as uet-htsim's `-failed`).
    `slow_plane`: the links of plane 0 between switches have a tenth. `far_ns`: host links of odd hosts take this many
    ns more. Without `trims` queues drop what they would have trimmed. `all_evs`: a queue pair has half as many EVs, and
    all of them are active.
    """

    t0s: int = 4
    per_t0: int = 4
    t1s: int = 4
    planes: int = 1
    pods: int = 1
    t1_uplinks: int = 0
    slow_t1s: int = 0
    slow_plane: bool = False
    far_ns: int = 0
    last_hop_marks: bool = False
    trims: bool = True
    all_evs: bool = False

    @property
    def hosts(self) -> int:
        """All hosts."""
        return self.t0s * self.per_t0

    @property
    def port_bps(self) -> int:
        """The rate of a port of a NIC, and of a link between switches."""
        return NIC_BPS // self.planes

    @property
    def hosts_per_pod(self) -> int:
        """The hosts of a pod; all in two tiers."""
        return self.hosts // self.pods

    @property
    def tiers(self) -> int:
        """2 or 3."""
        return 2 if self.pods == 1 else 3

    def share(self, plane: int, t1: int) -> float:
        """Return the rate of the links of a T1, as a share of what they should have."""
        if t1 < self.slow_t1s:
            return 0.25
        return 0.1 if self.slow_plane and plane == 0 else 1.0

    def lab(self, name: str, seed: int, policies: Mapping[str, str], cc: Mapping[str, Any]) -> Lab:
        """Return the lab file of this fabric."""
        link = {"rate": self.port_bps, "delay": DELAY_NS}
        overrides: dict[str, dict[str, int]] = {}
        for plane in range(self.planes):
            for t0 in range(self.t0s):
                for t1 in range(self.t1s):
                    if (share := self.share(plane, t1)) < 1:
                        rate = round(self.port_bps * share)
                        overrides[f"p{plane}-t0.{t0}--p{plane}-t1.{t1}"] = {"rate": rate}
            for host in range(1, self.hosts, 2) if self.far_ns else ():
                overrides[f"h{host}:{plane}"] = {"delay": DELAY_NS + self.far_ns}
        bdp = BDP_BYTES // self.planes
        low, high = mark_bytes(self.port_bps)
        each = -(-64 // self.planes)
        trim = max(bdp, 5 * MTU)
        limit = 4 * max(bdp, 8 * MTU) if self.trims else trim
        given = {
            "name": name, **self._shape(), "links": {"host": link, "fabric": link},
            "path_mtu": MTU, "clock": "virtual", "payload": "length", "seed": seed, "overrides": overrides,
            "queues": {
                "limit": limit, "control_limit": CONTROL_LIMIT,
                "trim": {"threshold": trim} if self.trims else None,
                "ecn": {"kmin": low, "kmax": high, "last_hop": self.last_hop_marks},
            },
            "ev": {
                "size": (1 if self.all_evs else 2) * each * self.planes, "active": each * self.planes,
                "probe_interval": "100us", "probe_timeout": "200us",
            },
            "reliability": {"timeout": 8}, "policies": dict(policies), "cc": dict(cc),
        }  # fmt: skip
        return Lab.model_validate(given)

    def _shape(self) -> dict[str, Any]:
        """Return the keys of a lab file that give switches, hosts and links.

        A Clos of labs has two tiers, so three are a graph: its links have the names that `mrclab scale` gives them.
        """
        if self.pods == 1:
            return {
                "planes": self.planes, "t0_per_plane": self.t0s, "t1_per_plane": self.t1s, "hosts": self.hosts,
                "hosts_per_t0": self.per_t0,
            }  # fmt: skip
        t0_per_pod, switches, links = self.t0s // self.pods, [], []
        for plane in range(self.planes):
            sizes = (self.t0s, self.pods * self.t1s, self.t1s * self.t1_uplinks)
            t0s, t1s, t2s = ([f"p{plane}-t{tier}.{index}" for index in range(size)] for tier, size in enumerate(sizes))
            switches += t0s + t1s + t2s
            links += [[f"h{host}:{plane}", t0s[host // self.per_t0]] for host in range(self.hosts)]
            for index, t1 in enumerate(t1s):
                pod, own = divmod(index, self.t1s)
                links += [[t0, t1] for t0 in t0s[pod * t0_per_pod : (pod + 1) * t0_per_pod]]
                links += [[t1, t2] for t2 in t2s[own * self.t1_uplinks : (own + 1) * self.t1_uplinks]]
        graph = {
            "kind": "graph", "switches": switches, "hosts": [f"h{host}" for host in range(self.hosts)], "links": links,
            "paths": {"limit": self.t1s * self.t1_uplinks},
        }  # fmt: skip
        return {"topology": graph}


@dataclass(frozen=True)
class Scenario:
    """A scenario of the suite.

    Args:
        flows: by seed.
        both_ways: every host that receives also sends, so that SACKs share its link with data.
        fluid: whether the fluid model has what the scenario is about.
        htsim: whether uet-htsim has it: one plane, two tiers, no failure while it runs.
        cost: seconds of a core for one seed, roughly.
    """

    name: str
    title: str
    fabric: ScenarioFabric
    flows: Callable[[int], list[FlowSpec]]
    failures: Sequence[Failure] = ()
    both_ways: bool = False
    fluid: bool = True
    htsim: bool = False
    cost: float = 3.0
