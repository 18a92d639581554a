"""Failures and bad links drawn from the seed of a run: without the seed they cannot be known."""

from __future__ import annotations

import random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mrc_topo.addressing import Tier
from mrc_topo.base.document import Model
from mrc_topo.topology import Topology
from mrclab.results.expectation import Evidence
from mrclab.runs.experiment import ExperimentStep

Kind = Literal["host_link", "fabric_link", "t0", "t1"]


#: The lowest and the highest value; the seed draws between them.
Range = tuple[Annotated[float, Field(ge=0, le=1_000_000)], Annotated[float, Field(ge=0, le=1_000_000)]]


class RandomLink(Model):
    """A link between two switches that is bad for the whole run. Values that the seed draws from the ranges replace the
    lab's own: `loss` (probability), `rate_mbps`, `delay_ms`."""

    loss: Range | None = None
    rate_mbps: Range | None = None
    delay_ms: Range | None = None

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        ranges = {name: found for name in type(self).model_fields if (found := getattr(self, name)) is not None}
        if not ranges:
            raise ValueError("a link is bad by loss, rate_mbps or delay_ms; give one")
        for name, (low, high) in ranges.items():
            if low > high:
                raise ValueError(f"{name}: from {low:g} to {high:g}; the lower one comes first")
        return self

    def override(self, rng: random.Random) -> dict[str, str | float]:
        """Draw a value for each property that has limits, in the form of a lab file's `overrides`."""
        given = (("loss", self.loss, 4, ""), ("rate", self.rate_mbps, 1, "Mbps"), ("delay", self.delay_ms, 2, "ms"))
        drawn: dict[str, str | float] = {}
        for key, limits, digits, unit in given:
            if limits is not None:
                value = round(rng.uniform(*limits), digits)
                drawn[key] = f"{value}{unit}" if unit else value
        return drawn


def overrides(links: list[RandomLink], topology: Topology, seed: int) -> dict[str, dict[str, str | float]]:
    """Return the settings of the links, by name, as `overrides` of a lab file; each is of another link of the lab.

    Raises:
        ValueError: the lab has fewer links between switches.
    """
    rng = random.Random(f"links {seed}")
    names = sorted(link.name for link in topology.links.values() if not link.is_host_link)
    if len(names) < len(links):
        raise ValueError(f"lab '{topology.lab.name}' has {len(names)} links between switches, fewer than `links`")
    return {name: link.override(rng) for name, link in zip(rng.sample(names, len(links)), links, strict=True)}


class RandomFailures(Model):
    """`count` failures, one after another: the first `first` seconds after the beginning, then one every `every`
    seconds, each restored after half of that time. No kind of element fails twice before all kinds have failed.

    Links go down, switches freeze. Only faults that hosts can distinguish are drawn: a T0 that several hosts share, a
    T1 of several T0s, a link of a host with such a T0; and no fault that disconnects the workload's hosts.
    """

    count: Annotated[int, Field(ge=1, le=20)]
    first: Annotated[float, Field(gt=0)] = 0.5
    every: Annotated[float, Field(gt=0)] = 1.0
    kinds: Annotated[list[Kind], Field(min_length=1)] = ["host_link", "fabric_link", "t0", "t1"]

    def steps(self, topology: Topology, hosts: list[str], seed: int) -> list[ExperimentStep]:
        """Return the steps of a schedule, in the form of an experiment file.

        Args:
            hosts: those of the workload.

        Raises:
            ValueError: the lab has no element of some kind to draw.
        """
        rng = random.Random(f"drawn {seed}")
        elements = _elements(topology, hosts)
        steps: list[ExperimentStep] = []
        kinds: list[Kind] = []
        for number in range(self.count):
            kinds = kinds or rng.sample(self.kinds, len(self.kinds))
            kind = kinds.pop()
            if not elements[kind]:
                raise ValueError(f"lab '{topology.lab.name}' has no {kind} that can be drawn")
            name = rng.choice(elements[kind])
            at = round(self.first + number * self.every, 6)
            how = "freeze" if kind in ("t0", "t1") else "link_down"
            steps.append(ExperimentStep(at=at, fail=name, kind=how, evidence=Evidence(carried=0.99)))
            steps.append(ExperimentStep(at=round(at + self.every / 2, 6), restore=name))
        return steps


def _elements(topology: Topology, hosts: list[str]) -> dict[Kind, list[str]]:
    lab = topology.lab
    shared = {t0 for t0 in range(lab.t0_per_plane) if len(topology.hosts_of(t0)) > 1}
    found: dict[Kind, list[str]] = {"host_link": [], "fabric_link": [], "t0": [], "t1": []}
    alone = set(hosts) if lab.planes == 1 else set()
    cut = {host.ports[0].t0 for host in topology.hosts if host.name in alone}
    for t0 in sorted(shared):
        for host in topology.hosts_of(t0):
            found["host_link"] += [port.name for port in host.ports if host.name not in alone]
    for switch in topology.switches:
        if switch.tier is Tier.T0 and switch.index in shared and switch.name not in cut:
            found["t0"].append(switch.name)
        if switch.tier is Tier.T1 and lab.t0_per_plane > 1 and (lab.t1_per_plane > 1 or lab.planes > 1):
            found["t1"].append(switch.name)
    for link in topology.links.values():
        if not link.is_host_link and (lab.t1_per_plane > 1 or lab.planes > 1):
            found["fabric_link"].append(link.name)
    return found
