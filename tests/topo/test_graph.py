"""Graphs in the place of a Clos: shapes, paths, EVs, probes and capacity, and what is refused."""

from __future__ import annotations

import re
from itertools import chain, pairwise
from typing import Any

import networkx as nx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_topo.capacity import Capacity
from mrc_topo.labfile import LabError, at_rate, load_lab, parse_lab
from mrc_topo.paths import Paths
from mrc_topo.rules import PacketTracer, check_routes
from mrc_topo.topology import PathError, Topology
from topo.strategies import graphs

RING = load_lab("ring")
DUAL = load_lab("dual-tor")


def lab(**changes: Any) -> str:
    """Return a lab file with two switches and two hosts; `changes` are of `topology`, or with `lab_` of the lab."""
    spec: dict[str, Any] = {
        "switches": ["s0", "s1"], "hosts": ["a", "b"], "links": [["a", "s0"], ["b", "s1"], ["s0", "s1"]],
    }  # fmt: skip
    document: dict[str, Any] = {"name": "drawn"}
    for key, value in changes.items():
        (document if key.startswith("lab_") else spec)[key.removeprefix("lab_")] = value
    return yaml.safe_dump({**document, "topology": spec}, sort_keys=False)


# --- properties ----------------------------------------------------------------------------------------


@given(graphs(), st.data())
@settings(max_examples=40, deadline=None)
def test_every_ev_takes_a_real_path_that_ends_at_the_destination(topology: Topology, data: st.DataObject) -> None:
    paths, tracer, graph = Paths(topology), PacketTracer(topology), nx.Graph(topology.graph)
    hosts = st.integers(0, topology.lab.hosts - 1)
    src, dst = data.draw(st.tuples(hosts, hosts).filter(lambda pair: pair[0] != pair[1]))
    assert topology.lab.topology is not None
    longer = topology.lab.topology.paths.extra_hops
    trunks = graph.subgraph(switch.name for switch in topology.switches)
    resolve = paths.resolver(src)
    for plane, values in enumerate(paths.profile(src, dst)):
        start, end = topology.host_port(src, plane), topology.host_port(dst, plane)
        most = nx.shortest_path_length(trunks, start.t0, end.t0) + 1 + longer
        taken = set()
        for value in values:
            path = paths.path_of_ev(src, dst, value)
            assert path is not None
            assert (path.switches[0], path.switches[-1]) == (start.t0, end.t0)
            assert all(graph.has_edge(*pair) for pair in pairwise(path.switches))
            assert len(set(path.switches)) == len(path.switches) <= most
            route = resolve(value, topology.hosts[dst].address)
            packet = tracer.srv6(src, plane, route)
            assert (packet.host, packet.links) == (topology.hosts[dst].name, path.links)
            assert paths.path_of_srv6(src, route) == path
            assert paths.path_of_ev(src, dst, paths.ev_of_path(path, 7)) == path
            back = paths.path(dst, src, plane, path.hop)
            assert back.switches == path.switches[::-1], "acknowledgements have the same paths"
            taken.add(path)
        assert taken == set(paths.all_paths(src, dst, plane)), "the profile is spread over all paths"


@given(graphs())
@settings(max_examples=20, deadline=None)
def test_packets_without_an_ev_reach_every_address_of_every_host(topology: Topology) -> None:
    tracer = PacketTracer(topology)
    for src in topology.hosts:
        for dst in topology.hosts:
            if src != dst:
                for plane, port in enumerate(dst.ports):
                    assert tracer.plain(src.index, plane, port.address, 0).host == dst.name
                    assert tracer.plain(src.index, plane, dst.address, 0).host == dst.name


@given(graphs())
@settings(max_examples=20, deadline=None)
def test_probes_come_back_to_their_port_over_the_links_that_they_name(topology: Topology) -> None:
    tracer, paths = PacketTracer(topology), Paths(topology)
    for host in topology.hosts:
        probes = topology.probe_paths(host.index)
        assert len({(each.plane, each.target) for each in probes}) == len(probes)
        for each in probes:
            port = host.ports[each.plane]
            packet = tracer.srv6(host.index, each.plane, paths.srv6_of(host.index, each))
            assert packet.host == host.name
            assert packet.links == (port.name, *each.links, *each.links[::-1], port.name)
            assert each.target == (each.links or each.switches)[-1]
    used = {name for one in topology.hosts for two in topology.hosts for each in paths.all_paths(one.index, two.index)
            for name in each.links[1:-1] if len(each.switches) <= 5}  # fmt: skip
    probed = {each.target for host in topology.hosts for each in topology.probe_paths(host.index)}
    assert used <= probed


@given(graphs(), st.data())
@settings(max_examples=20, deadline=None)
def test_evs_that_cross_a_link_are_those_whose_paths_have_it(topology: Topology, data: st.DataObject) -> None:
    paths = Paths(topology)
    element = topology.element(data.draw(st.sampled_from(sorted(topology.links))))
    values = tuple(chain.from_iterable(paths.profile(0, 1)))
    crossing = paths.evs_crossing(element, 0, 1, values)
    assert set(crossing) == {each for each in values if element.name in paths.path_of_ev(0, 1, each).links}
    lost = Capacity(topology).lost(0, {(element.name, way): 0.0 for way in ("up", "down")})
    assert 0 <= lost <= 1
    ours = not element.is_host_link or element.low.node == "h0"
    if ours and set(crossing) == set(values) and len(topology.hosts) == 2:
        assert lost == 1


# --- shapes --------------------------------------------------------------------------------------------


def test_planes_are_the_ports_of_hosts_and_components_that_share_only_hosts_need_no_numbers() -> None:
    links = [["a", "x1"], ["b", "y0"], ["a", "x0"], ["y0", "x0"], ["b", "x1"]]
    topology = parse_lab(lab(switches=["x0", "y0", "x1"], links=links))
    assert topology.lab.planes == 2
    assert {switch.name: switch.plane for switch in topology.switches} == {"x0": 0, "y0": 0, "x1": 1}
    assert [port.t0 for port in topology.hosts[0].ports] == ["x0", "x1"]
    assert [each.switches for each in Paths(topology).all_paths(0, 1)] == [("x0", "y0"), ("x1",)]


def test_ports_that_the_file_gives_are_kept_and_the_others_are_the_free_ones() -> None:
    topology = parse_lab(lab(links=[["a", "s0:2"], ["b:0", "s1"], ["s1", "s0"]]))
    assert {port: topology.switch("s0").peer(port).node for port in topology.switch("s0").links} == {1: "s1", 2: "a"}
    assert list(topology.links) == ["a:0", "b:0", "s1--s0"]
    assert topology.element("s0--s1").name == "s1--s0"


def test_links_have_rates_of_their_own() -> None:
    wire = {"ends": ["s0", "s1"], "rate": "5Mbps", "delay": "1ms", "loss": 0.1}
    link = parse_lab(lab(links=[["a", "s0"], ["b", "s1"], wire])).links["s0--s1"]
    assert (link.spec.rate, link.spec.delay, link.loss) == (5_000_000, 1_000_000, 0.1)
    assert link.queue.limit < RING.lab.queues.limit * 2


def test_a_lab_that_was_written_out_is_the_same() -> None:
    for topology in (RING, DUAL):
        for text in (topology.lab.model_dump_json(), topology.lab.model_dump_json(exclude_unset=True)):
            assert parse_lab(text).lab == topology.lab


def test_among_many_equal_paths_those_chosen_leave_by_all_links() -> None:
    middle = [f"m{at}" for at in range(8)]
    links = [["a", "s0"], ["b", "s1"], *([end, each] for each in middle for end in ("s0", "s1"))]
    topology = parse_lab(lab(switches=["s0", "s1", *middle], links=links, paths={"limit": 4}))
    assert [each.switches[1] for each in Paths(topology).all_paths(0, 1)] == ["m0", "m2", "m4", "m6"]


def test_long_paths_need_a_segment_routing_header() -> None:
    line = [f"s{at}" for at in range(11)]
    links = [["a", "s0"], ["b", "s10"], *map(list, pairwise(line))]
    text = lab(switches=line, links=links, lab_routing={"mode": "srv6_srh"})
    assert check_routes(parse_lab(text)) == 2
    assert len(Paths(parse_lab(text)).srv6(Paths(parse_lab(text)).path(0, 1, 0)).segments) == 1
    with pytest.raises(LabError, match=r"from a:0 to b:0 has 11 switches, .* hold 5 .* use routing.mode srv6_srh"):
        parse_lab(text.replace("srv6_srh", "srv6_usid"))
    links[1:2] = [["b", "s11"], ["s10", "s11"]]
    with pytest.raises(LabError, match=r"has 12 switches, and .* hold 11 and the host port; add links$"):
        parse_lab(lab(switches=[*line, "s11"], links=links, lab_routing={"mode": "srv6_srh"}))


def test_evs_of_one_profile_lead_to_hosts_with_fewer_paths() -> None:
    paths = Paths(RING)
    assert RING.hops == 2
    same = parse_lab(lab(hosts=["a", "b", "c"], links=[["a", "s0"], ["b", "s1"], ["c", "s0"], ["s0", "s1"]]))
    assert Paths(same).path(0, 2, 0, 0).hop is None
    with pytest.raises(PathError, match="no path 2; hosts of the lab have up to 2"):
        paths.path(0, 1, 0, 2)


def test_capacity_counts_what_is_left_round_the_ring_and_at_the_other_port() -> None:
    ring, dual = Capacity(RING), Capacity(DUAL)
    assert ring.lost(0, {("s0--s1", "up"): 0.0, ("s0--s1", "down"): 0.0}) == pytest.approx(0.0)
    assert dual.lost(0, {("h0:1", "up"): 0.0}) == pytest.approx(0.5)
    assert dual.lost(0, {("tor-a--spine1", "up"): 0.0}) == pytest.approx(0.25)
    assert dual.lost(2, {("tor-a--spine1", "down"): 0.0}) == pytest.approx(0.25)


# --- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"switches": ["s0", "s1", "s 2"]}, r":6: topology.switches.2: 's 2' is no name of a node; use letters"),
        ({"hosts": ["a", "x--y"]}, r"topology.hosts.1: 'x--y' is no name"),
        ({"hosts": ["a", "b/../c"]}, r"topology.hosts.1: 'b/../c' is no name"),
        ({"hosts": ["a", "a.b"]}, r"topology.hosts.1: 'a.b' is no name"),
        ({"hosts": ["a", "labd"]}, r"topology.hosts.1: 'labd' names another part"),
        ({"switches": ["s0", "x.fabric"]}, r"topology.switches.1: 'x.fabric' names another part"),
        ({"hosts": ["a", "plane-0"]}, r"topology.hosts.1: 'plane-0' names another part"),
        ({"hosts": ["a", "s0"]}, r"topology.hosts.1: 's0' is given twice"),
        ({"switches": ["s0", "s0"]}, r"topology.switches.1: 's0' is given twice"),
        ({"hosts": []}, r"topology.hosts: the graph has no hosts; name them"),
        ({"links": [["a", "s0"], ["b", "s9"]]}, r":12: topology.links.1: 's9' is no end of a link"),
        ({"links": [["a:x", "s0"]]}, r"topology.links.0: 'a:x' is no end of a link"),
        ({"links": [["a", "s0", "s1"]]}, r"topology.links.0.ends: .*at most 2 items"),
        ({"links": [["s0", "s0"]]}, r"topology.links.0: s0 is linked to itself"),
        ({"links": [["a", "b"]]}, r"topology.links.0: a and b are both hosts; put a switch between them"),
        ({"links": [["s0", "s1"], ["s1", "s0"]]}, r"topology.links.1: s1 and s0 have a link already"),
        ({"links": [["a:0", "s0"], ["a:0", "s1"]]}, r"topology.links.1: NIC port 0 of a has a link already"),
        ({"links": [["a:16", "s0"]]}, r"topology.links.0: a has no NIC port 16; give 0 to 15"),
        ({"links": [["a", "s0:511"]]}, r"topology.links.0: s0 has no port 511; give 1 to 510"),
        ({"links": [["a:1", "s0"], ["b", "s1"], ["s0", "s1"]]}, r"topology.hosts.0: the NIC ports of a are \[1\]"),
        ({"links": [["a", "s0"], ["s0", "s1"]]}, r"topology.hosts.1: b has no link; connect it"),
        ({"links": [["a", "s0"], ["a", "s1"], ["b", "s1"], ["s0", "s1"]]}, r"hosts.1: b has 1 NIC port, a has 2"),
        ({"links": [["a", "s0"], ["b", "s1"]]}, r"hosts.1: a:0 and b:0 are not connected"),
        ({"switches": ["s0", "s1", "s2"]}, r"topology.switches.2: no host is connected to s2"),
        ({"links": [{"ends": ["a", "s0"], "rate": "fast"}]}, r"topology.links.0.rate: 'fast' is not a rate"),
        ({"links": [{"ends": ["a", "s0"], "color": "red"}]}, r"topology.links.0.color: unknown key"),
        ({"kind": "torus"}, r"topology.kind: input should be 'graph'"),
        ({"roles": {"h*": "host"}}, r"topology.roles: is about the nodes of a file"),
        ({"lab_planes": 3}, r"planes: topology makes it 1; leave it out"),
        ({"lab_hosts_per_t0": 3}, r"hosts_per_t0: is of a Clos; leave it out beside topology"),
        ({"lab_routing": {"mode": "ecmp"}}, r"routing: only source routes lead through a graph"),
        ({"lab_radix": 2, "links": [["a", "s0"], ["b", "s0"], ["s0", "s1"]]}, r"switches.0: s0 has 3 links, the radix"),
        ({"paths": {"extra_hops": 10}}, r"topology.paths.extra_hops: .*less than or equal to 9"),
    ],
)  # fmt: skip
def test_bad_graphs_are_refused_with_place_and_remedy(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(LabError, match=says):
        parse_lab(lab(**changes), "my.yaml")


@pytest.mark.parametrize(
    ("links", "remedy", "added"),
    [
        # One part of the fabric: any switch serves, and one that the host does not have yet is named.
        (
            [["a", "s0"], ["b", "s0"], ["b", "s1"], ["s0", "s1"], ["s1", "s2"]],
            "give a a further link, such as a--s1, or take one of the links of b away: b--s0, b--s1",
            [["a", "s1"]],
        ),
        # Two parts that share only hosts: the host has no link to the second one.
        (
            [["b", "s1"], ["b", "s2"], ["a", "s0"], ["s0", "s1"]],
            "give a a further link, such as a--s2, or take one of the links of b away: b--s1, b--s2",
            [["a", "s2"]],
        ),
        (
            [["a", "s0"], ["a", "s1"], ["a", "s2"], ["b", "s1"]],
            "give b 2 further links, such as b--s0 and b--s2, or take 2 of the links of a away: a--s0, a--s1, a--s2",
            [["b", "s0"], ["b", "s2"]],
        ),
    ],
)
def test_a_host_with_too_few_links_is_refused_with_links_that_help(
    links: list[list[str]], remedy: str, added: list[list[str]]
) -> None:
    names = ["s0", "s1", "s2"]
    with pytest.raises(LabError, match=re.escape(remedy)):
        parse_lab(lab(switches=names, links=links))
    assert parse_lab(lab(switches=names, links=[*links, *added])).lab.planes == 1 + len(added)


def test_a_search_that_would_take_minutes_is_refused() -> None:
    names = [f"s{at}" for at in range(64)]
    links = [[f"h{at}", name] for at, name in enumerate(names)] + [["s0", name] for name in names[1:]]
    hosts = [f"h{at}" for at in range(64)]
    with pytest.raises(LabError, match=r"topology.paths: 2080 pairs .* up to 64 paths .* lower limit to 31"):
        parse_lab(lab(switches=names, hosts=hosts, links=links, paths={"limit": 64, "extra_hops": 1}))


def test_queues_of_links_follow_the_transport_and_a_common_rate() -> None:
    own = {"ends": ["s0", "s1"], "rate": "10Mbps", "queue": {"limit": "32KiB", "trim": None, "pfc": {}}}
    topology = parse_lab(lab(links=[["a", "s0"], ["b", "s1"], own], lab_queues={"pfc": {}}))
    assert topology.for_transport("mrc").links["s0--s1"].queue.pfc is None
    roce = topology.for_transport("roce").links["s0--s1"].queue
    assert roce.pfc is not None
    assert roce.ecn is not None
    assert roce.ecn.last_hop
    faster = at_rate(topology.lab, 40_000_000)
    assert faster["topology"]["links"][2]["rate"] == 20_000_000
    assert faster["topology"]["links"][2]["queue"]["limit"] == 65536
    assert topology.for_transport("mrc").for_transport("mrc").lab == topology.for_transport("mrc").lab
    own["queue"] = {"credits": {"buffer": 64}}
    with pytest.raises(LabError, match=r"topology.links.2.queue.credits.buffer \(64\) has no room"):
        parse_lab(lab(links=[["a", "s0"], ["b", "s1"], own], lab_queues={"credits": {}}))
