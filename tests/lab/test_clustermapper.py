"""Localisation from probe answers alone: every single failure of a lab is named, and pairs of failures too."""

from __future__ import annotations

import itertools
import random

import pytest

from mrc_topo.addressing import Tier, fabric_link_name, switch_name
from mrc_topo.labfile import parse_lab
from mrc_topo.topology import Topology
from mrclab.lab.management.clustermapper import DEAD, HEALTHY, LOSSY, Probed, grade, locate

LAB = "{name: probe, planes: 2, t0_per_plane: 3, t1_per_plane: 2, hosts: 6, hosts_per_t0: 2, ev: {size: 16, active: 8}}"


@pytest.fixture(scope="module")
def topology() -> Topology:
    return parse_lab(LAB)


def answers(topology: Topology, broken: dict[str, float], rng: random.Random) -> dict[str, list[Probed]]:
    """Return what probes see when each crossing of a broken element loses a probe with the given probability."""
    views = {}
    for host in topology.hosts:
        view = []
        for plane in range(topology.lab.planes):
            t0 = host.ports[plane].t0
            for t1 in (None, *range(topology.lab.t1_per_plane)):
                crossed = [host.ports[plane].name, t0]
                if t1 is not None:
                    crossed += [fabric_link_name(plane, host.t0, t1), switch_name(plane, Tier.T1, t1)]
                history = [int(not any(rng.random() < broken.get(name, 0.0) for name in crossed)) for _ in range(20)]
                target = t0 if t1 is None else switch_name(plane, Tier.T1, t1)
                view.append(Probed(target=target, port=plane, history=history))
        views[host.name] = view
    return views


def elements(topology: Topology) -> list[str]:
    return [*topology.links, *(switch.name for switch in topology.switches)]


def test_every_single_failure_is_named_exactly(topology: Topology, seed: int) -> None:
    rng = random.Random(seed)
    assert locate(topology, answers(topology, {}, rng)) == []
    for name in elements(topology):
        found = locate(topology, answers(topology, {name: 1.0}, rng))
        assert [(finding.element, finding.state) for finding in found] == [(name, "dead")]
        assert found[0].witnesses


def test_pairs_in_different_planes_are_both_named(topology: Topology, seed: int) -> None:
    rng = random.Random(seed)
    by_plane = [[name for name in elements(topology) if f"p{plane}-" in name] for plane in range(2)]
    for first, second in itertools.product(*by_plane):
        found = {finding.element for finding in locate(topology, answers(topology, {first: 1.0, second: 1.0}, rng))}
        assert found == {first, second}


def test_a_lossy_link_is_called_lossy(topology: Topology, seed: int) -> None:
    rng = random.Random(seed)
    found = locate(topology, answers(topology, {"p0-t0.1--p0-t1.0": 0.5}, rng))
    assert [(finding.element, finding.state) for finding in found] == [("p0-t0.1--p0-t1.0", "lossy")]


def test_hosts_that_are_silent_are_left_out(topology: Topology, seed: int) -> None:
    views = answers(topology, {"p1-t0.2--p1-t1.1": 1.0}, random.Random(seed))
    for name in ("h0", "h4"):
        del views[name]
    assert [finding.element for finding in locate(topology, views)] == ["p1-t0.2--p1-t1.1"]


GRADES = [
    ([], HEALTHY),
    ([0], HEALTHY),
    ([1] * 9 + [0], HEALTHY),
    ([0, 0] + [1] * 10, HEALTHY),
    ([0, 1, 0, 1] * 3, LOSSY),
    ([1] * 8 + [0, 0], DEAD),
    ([0, 0], DEAD),
]


@pytest.mark.parametrize(("history", "expected"), GRADES)
def test_grades(history: list[int], expected: int) -> None:
    assert grade(history) == expected
