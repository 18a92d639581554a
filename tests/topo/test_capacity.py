"""What is left of a host's capacity; against maximum flows: tests/lab/test_faults_properties.py."""

from __future__ import annotations

import pathlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo import addressing
from mrc_topo.addressing import Tier
from mrc_topo.capacity import Capacity, fair_share
from mrc_topo.graph_topology import build_topology
from mrc_topo.labfile import load_lab
from mrc_topo.schema import Lab
from mrc_topo.topology import Link, Switch, Topology
from mrclab import Lab as Running
from mrclab.lab import describe
from topo.strategies import topologies


def dead(*elements: Link | Switch) -> dict[tuple[str, str], float]:
    links = [link for each in elements for link in (each.links.values() if isinstance(each, Switch) else [each])]
    return {(link.name, way): 0.0 for link in links for way in ("up", "down")}


@given(topologies(), st.data())
def test_loss_of_an_element_costs_what_a_count_of_paths_says(topology: Topology, data: st.DataObject) -> None:
    """With equal rates everywhere, against a plain count of what is left of each plane."""
    lab = topology.lab
    capacity = Capacity(topology)
    host = data.draw(st.integers(0, lab.hosts - 1))

    def lost(*elements: Link | Switch) -> float:
        return capacity.lost(host, dead(*elements))  # type: ignore[arg-type]

    neighbours = len(topology.hosts_of(topology.t0_of(host)))
    t0 = topology.switch(addressing.switch_name(0, Tier.T0, topology.t0_of(host)))
    port = topology.links[topology.host_port(host, 0).name]
    assert lost(t0) == lost(port) == lost(t0, port) == pytest.approx(1 / lab.planes)
    assert lost() == 0.0
    for t1 in range(lab.t1_per_plane):
        left = min(1.0, (lab.t1_per_plane - 1) / neighbours)
        whole = min(1.0, lab.t1_per_plane / neighbours)
        expected = (1 - left / whole) / lab.planes if lab.t0_per_plane > 1 else 0.0
        spine = topology.switch(addressing.switch_name(0, Tier.T1, t1))
        link = topology.links[addressing.fabric_link_name(0, topology.t0_of(host), t1)]
        assert lost(spine) == pytest.approx(expected)
        assert lost(link) == lost(spine, link) == pytest.approx(expected)
        for other in spine.links.values():  # no T0 can be reached better than its own uplinks allow
            assert lost(other) == pytest.approx(expected)
    for other in topology.links.values():
        if other.is_host_link and other.low.node != topology.hosts[host].name:
            assert lost(other) == 0.0


def test_two_uplinks_that_meet_nowhere() -> None:
    """Either alone costs half a plane, both cost all of it: nothing is left from one T0 to the other."""
    topology = load_lab("default")
    capacity = Capacity(topology)
    first, second = topology.links["p0-t0.0--p0-t1.0"], topology.links["p0-t0.1--p0-t1.1"]
    assert capacity.worst_lost(dead(first)) == pytest.approx(1 / 8)  # type: ignore[arg-type]
    assert capacity.worst_lost(dead(first, second)) == pytest.approx(1 / 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overrides", "host", "expected"),
    [
        ({}, 0, (80e6, 80e6)),
        ({"h0:1": {"rate": "5Mbps"}}, 0, (20e6, 65e6)),
        ({"h0:1": {"rate": "5Mbps"}}, 1, (80e6, 80e6)),
        # Two hosts share what their T0 has in plane 2: 2 and 20 Mb/s.
        ({"p2-t0.0--p2-t1.0": {"rate": "2Mbps"}}, 1, (44e6, 71e6)),
    ],
)
def test_equal_planes_reach_what_the_slowest_has(
    overrides: dict[str, object], host: int, expected: tuple[float, float]
) -> None:
    topology = build_topology(Lab.model_validate({"name": "x", "overrides": overrides}))
    assert Capacity(topology).sprayed(host) == expected
    told = " ".join(describe.warnings(topology, "virtual", "mrc"))
    assert (f"{expected[0] / 1e6:g} of {expected[1] / 1e6:g} Mb/s" in told) is (expected[0] < expected[1])
    assert describe.warnings(topology, "virtual", "roce") == []


@pytest.mark.parametrize(("rate_mbps", "exact"), [(1, False), (2, False), (5, True), (12, True)])
def test_the_share_that_unequal_planes_reach_is_what_a_run_has(rate_mbps: int, exact: bool) -> None:
    """A plane that takes longer for a packet than the others wait, four packets of theirs, gives a bound only."""
    with Running("tiny", overrides={"h0:1": {"rate": f"{rate_mbps}Mbps"}}) as lab:
        (told,) = describe.warnings(lab.topology, "virtual", "mrc")
        result = lab.run("write_bw", duration="700ms", hosts=["h0", "h2"])
    (least,) = re.findall(r"([\d.]+) of", told)
    # A packet of 1024 bytes is 1150 on the link, and the first round trips fill the window.
    reached = result.goodput / 1e6 * 1150 / 1024
    assert (" at least " not in told) is exact
    assert reached > 0.9 * float(least)
    if exact:
        assert reached < 1.1 * float(least)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6), st.floats(0, 400))
def test_fair_shares_use_the_flow_up(limits: list[float], flow: float) -> None:
    level = fair_share(flow, limits)
    assert sum(min(level, each) for each in limits) == pytest.approx(min(flow, sum(limits)), abs=1e-6)


def test_the_report_names_unequal_planes(tmp_path: pathlib.Path) -> None:
    for transport, named in (("mrc", 1), ("roce", 0)):
        with Running("tiny", overrides={"h0:1": {"rate": "5Mbps"}}, transport=transport) as lab:
            lab.run("all_to_all", duration="100ms").report(tmp_path / "r.html")
        assert (tmp_path / "r.html").read_text(encoding="utf-8").count("h0 reaches 10 of 25 Mb/s") == named
