"""EV <-> path <-> uSID stack, followed through the table entries, for labs of every shape and mode."""

from __future__ import annotations

import zlib
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_topo import addressing, ev, rules
from mrc_topo.addressing import Tier
from mrc_topo.labfile import load_lab
from mrc_topo.modes import RoutingMode
from mrc_topo.paths import Paths, Srv6Path
from mrc_topo.rules import PacketTracer, WalkError, check_routes
from mrc_topo.topology import Path, PathError, Topology
from topo.strategies import topologies

SRV6 = (RoutingMode.SRV6_USID, RoutingMode.SRV6_SRH)


def pair(data: st.DataObject, topology: Topology) -> tuple[int, int]:
    hosts = st.integers(0, topology.lab.hosts - 1)
    return data.draw(hosts, label="src"), data.draw(hosts, label="dst")


@given(topologies())
@settings(max_examples=40)
def test_every_path_reaches_its_destination_by_the_tables(topology: Topology) -> None:
    hosts = topology.lab.hosts
    assert check_routes(topology) >= hosts * (hosts - 1) * topology.lab.planes


@given(topologies(SRV6), st.data())
def test_every_ev_of_a_profile_reaches_its_destination(topology: Topology, data: st.DataObject) -> None:
    paths, walker = Paths(topology), PacketTracer(topology)
    src, dst = pair(data, topology)
    resolve = paths.resolver(src)
    profile = paths.profile(src, dst)
    assert [len(plane) for plane in profile] == [topology.lab.ev.size // topology.lab.planes] * topology.lab.planes
    for plane, values in enumerate(profile):
        assert len(set(values)) == len(values)
        for value in values:
            route = resolve(value, topology.hosts[dst].address)
            taken = walker.srv6(src, plane, route)
            path = paths.path_of_ev(src, dst, value)
            assert path is not None
            assert taken.host == topology.hosts[dst].name
            assert taken.links == path.links
            assert route.source == topology.host_port(src, plane).address
            assert paths.path_of_srv6(src, route) == path


@given(topologies((*SRV6, RoutingMode.STRUCTURED_EV)), st.integers(0, ev.SALTS - 1), st.data())
def test_path_to_ev_and_back(topology: Topology, salt: int, data: st.DataObject) -> None:
    paths = Paths(topology)
    src, dst = pair(data, topology)
    values = set()
    for path in paths.all_paths(src, dst):
        value = paths.ev_of_path(path, salt)
        assert paths.path_of_ev(src, dst, value) == path
        assert ev.plane_of(value) == path.plane
        assert value & 0xFFFF >= 0xC000
        values.add(value)
    assert len(values) == len(paths.all_paths(src, dst))


@given(topologies((RoutingMode.ECMP,)), st.data())
def test_an_ev_that_hashes_to_a_path_is_found(topology: Topology, data: st.DataObject) -> None:
    paths, walker = Paths(topology), PacketTracer(topology)
    src, dst = pair(data, topology)
    for path in paths.all_paths(src, dst):
        value = paths.ev_of_path(path, data.draw(st.integers(0, ev.SALTS - 1)))
        assert walker.plain(src, path.plane, topology.hosts[dst].address, value).links == path.links


@given(topologies(), st.data())
def test_an_element_is_crossed_by_the_evs_it_says(topology: Topology, data: st.DataObject) -> None:
    """Checked against walks through the tables, not against the code that says it."""
    paths, walker = Paths(topology), PacketTracer(topology)
    mode = topology.lab.routing.mode
    src, dst = pair(data, topology)
    address = topology.hosts[dst].address
    values = list(chain.from_iterable(paths.profile(src, dst)))
    ways: dict[int, list[tuple[str, ...]]] = {}
    for value in values:
        plane = ev.plane_of(value)
        if mode in SRV6:
            ways[value] = [walker.srv6(src, plane, paths.resolver(src)(value, address)).links]
        elif mode is RoutingMode.SPRAY:
            ways[value] = [
                walker.plain(src, plane, address, value, sprayed_to=t1).links
                for t1 in range(max(1, topology.lab.t1_per_plane))
            ]
        else:
            ways[value] = [walker.plain(src, plane, address, value).links]
    for link in topology.links.values():
        expected = [value for value in values if any(link.name in way for way in ways[value])]
        assert list(paths.evs_crossing(link, src, dst, values)) == expected
    for switch in topology.switches:
        own = {link.name for link in switch.links.values()}
        expected = [value for value in values if any(len(own & set(way)) > 1 for way in ways[value])]
        if src == dst:  # the way to oneself crosses the port's link twice, a set shows it once
            expected = [value for value in values if any(own & set(way) for way in ways[value])]
        assert list(paths.evs_crossing(switch, src, dst, values)) == expected


@given(topologies(SRV6), st.data())
def test_probes_come_back(topology: Topology, data: st.DataObject) -> None:
    paths, walker = Paths(topology), PacketTracer(topology)
    host = data.draw(st.integers(0, topology.lab.hosts - 1))
    for plane in range(topology.lab.planes):
        port = addressing.host_port_name(host, plane)
        near = walker.srv6(host, plane, paths.probe(host, plane))
        assert (near.host, near.links) == (f"h{host}", (port, port))
        for t1 in range(topology.lab.t1_per_plane):
            far = walker.srv6(host, plane, paths.probe(host, plane, t1))
            up = addressing.fabric_link_name(plane, topology.t0_of(host), t1)
            assert (far.host, far.links) == (f"h{host}", (port, up, up, port))


def test_example_of_the_topology_page_is_the_computed_path() -> None:
    """The example of docs/topology.md."""
    topology = load_lab("default")
    paths = Paths(topology)
    path = paths.path(0, 3, 2, 1)
    assert path.links == ("h0:2", "p2-t0.0--p2-t1.1", "p2-t0.1--p2-t1.1", "h3:2")
    assert [f"{entry:04x}" for entry in path.usids] == ["2400", "2801", "2401", "2c01"]
    assert addressing.text(paths.srv6(path).destination) == "fd4d:5243:2400:2801:2401:2c01::"
    assert f"{paths.ev_of_path(path, 5):08x}" == "2001c005"
    assert addressing.text(topology.hosts[3].address) == "fd4d:5248:1::2"
    assert addressing.text(topology.host_port(3, 2).address) == "fd4d:5248:1:3::2"


def test_bad_stacks_and_evs() -> None:
    topology = load_lab("default")
    paths = Paths(topology)
    with pytest.raises(PathError, match="no T1 9 in plane 0"):
        paths.path_of_ev(0, 7, ev.make_ev(0, 9, 0))
    with pytest.raises(PathError, match="no plane 5"):
        paths.path_of_ev(0, 7, ev.make_ev(5, 0, 0))
    with pytest.raises(PathError, match="no hosts 0 and 8"):
        paths.path(0, 8, 0, 0)
    with pytest.raises(PathError, match="no host has the address"):
        paths.resolver(0)(0xC000, bytes(16))
    for usids, words in [
        ((0x0400, 0x1800, 0x0401, 0x0C00), "different planes"),
        ((0x0400, 0x0401, 0x0C00), "no path host to host"),
        ((0x0402, 0x0800, 0x0401, 0x0C00), "begin at the source's T0"),
        ((0x0400, 0x0123), "not a uSID"),
    ]:
        with pytest.raises(PathError, match=words):
            paths.path_of_srv6(0, Srv6Path(addressing.carrier(usids)))
    with pytest.raises(PathError, match="outside the locator block"):
        paths.path_of_srv6(0, Srv6Path(bytes(16)))
    walker = PacketTracer(topology)
    with pytest.raises(WalkError, match="no route"):
        walker.srv6(0, 0, Srv6Path(addressing.carrier((0x0400, 0x0809))))
    with pytest.raises(WalkError, match="the path ends here"):
        walker.srv6(0, 0, Srv6Path(addressing.carrier((0x0400,))))
    with pytest.raises(WalkError, match="no route to"):
        PacketTracer(load_lab("ecmp")).plain(0, 0, addressing.host_address(0, 9), 0xC000)


def test_profiles_differ_between_pairs_and_qps_and_spread_over_paths() -> None:
    topology = load_lab("default")
    paths = Paths(topology)
    assert paths.profile(0, 7) == paths.profile(0, 7)
    assert len({paths.profile(0, 7), paths.profile(1, 7), paths.profile(0, 7, qp=1)}) == 3
    for values in paths.profile(0, 7):
        hops = [ev.hop_of(value) for value in values]
        assert hops.count(0) == hops.count(1) == 16


def test_generated_fields_describe_the_same_layout() -> None:
    fields = ev.generated_fields(RoutingMode.STRUCTURED_EV, 3)
    assert [entry.width for entry in fields] == [4, 12, 16]
    assert fields[0].plane
    assert (fields[1].minimum, fields[1].maximum, fields[1].mask) == (0, 2, 0b11)
    assert fields[2].init == 0xC000
    assert ev.generated_fields(RoutingMode.ECMP, 3)[1].mask == 0
    assert ev.generated_fields(RoutingMode.STRUCTURED_EV, 1)[1].mask == 0  # one T1: nothing to choose


def test_ecmp_hash_is_crc32_of_the_documented_fields() -> None:
    src, dst = addressing.host_address(0, 0), addressing.host_address(3, 1)
    data = bytes.fromhex("00000001") + src + dst + bytes.fromhex("00002001c00512b711")
    assert ev.ecmp_uplink(1, src, dst, 0x2001, (0xC005, 4791), 17, 1 << 32) == zlib.crc32(data)


def test_usids_are_unique_and_parse_back() -> None:
    seen = set()
    for plane in range(16):
        for tier in Tier:
            for index in (0, 1, 1023):
                value = addressing.usid(plane, tier, index)
                assert addressing.parse_usid(value) == (plane, tier, index)
                seen.add(value)
    assert len(seen) == 16 * 3 * 3
    assert 0 not in seen
    with pytest.raises(ValueError, match="no uSID for plane 16"):
        addressing.usid(16, Tier.T0, 0)
    with pytest.raises(ValueError, match="do not fit"):
        addressing.carrier((0x0400,) * 7)
    assert addressing.parse_carrier(addressing.carrier((0x0400,) * 6)) == (0x0400,) * 6
    with pytest.raises(ValueError, match="after the end"):
        addressing.parse_carrier(bytes.fromhex("fd4d5243040000000401" + "0000" * 3))


@given(topologies())
def test_numbers_and_addresses_are_unique(topology: Topology) -> None:
    ports = [port for host in topology.hosts for port in host.ports]
    assert len({port.mac for port in ports} | {port.gateway_mac for port in ports}) == 2 * len(ports)
    addresses = {port.address for port in ports} | {host.address for host in topology.hosts}
    assert len(addresses) == len(ports) + len(topology.hosts)
    ids = sorted(switch.device_id for switch in topology.switches)
    assert ids == list(range(1, len(topology.switches) + 1))
    for switch in topology.switches:
        assert len({switch.usid} | {port.usid for port in ports if port.t0 == switch.name}) == 1 + sum(
            port.t0 == switch.name for port in ports
        )
        for port, link in switch.links.items():
            far = link.other(switch.name)
            assert link.other(far.node).port == port
            name = addressing.switch_interface(switch.plane, switch.tier, switch.index, port)
            assert len(name) <= 15
    graph = topology.graph
    assert set(graph) == {host.name for host in topology.hosts} | {switch.name for switch in topology.switches}
    assert graph.number_of_edges() == len(topology.links)
    assert all(link.name in graph[link.low.node][link.high.node] for link in topology.links.values())


@given(topologies())
def test_table_entries_are_sane(topology: Topology) -> None:
    for switch in topology.switches:
        entries = rules.switch_entries(topology, switch)
        keys = [(entry.table, entry.match) for entry in entries]
        assert len(set(keys)) == len(keys)
        for entry in entries:
            assert entry.default == (entry.table == rules.UPLINK_CHOICE)
            assert entry.params.get("port", 1) in switch.links
        settings = {entry.match[0].value: entry.params for entry in entries if entry.table == rules.PORTS}
        assert set(settings) == set(switch.links)
        for port, params in settings.items():
            to_host = switch.links[port].is_host_link
            assert (params["mark_min"] == rules.NEVER) == to_host
            assert params["trim_dscp"] == (16 if to_host else 12)


def test_names_find_their_elements() -> None:
    topology = load_lab("default")
    assert topology.element("h3:2") is topology.links["h3:2"]
    assert topology.element("p0-t1.0--p0-t0.1") is topology.links["p0-t0.1--p0-t1.0"]
    assert topology.element("h3") is topology.hosts[3]
    assert topology.element("p2-t1.1") is topology.switch("p2-t1.1")
    with pytest.raises(LookupError, match=r"called 'p0-t0.1--p0-t1.7'; near ones: p0-t0.1--p0-t1"):
        topology.element("p0-t0.1--p0-t1.7")
    with pytest.raises(LookupError, match="no host 'h8'"):
        topology.host(8)
    with pytest.raises(LookupError, match="no switch 'x'"):
        topology.switch("x")


def test_base_rtt_by_hand() -> None:
    """4 links of 20 Mb/s and 100 us: each way 4 delays, and 4 times the frame."""
    paths = Paths(load_lab("default"))
    expected = 8 * 100_000 + 4 * (4262 * 8 * 50) + 4 * (150 * 8 * 50)
    assert paths.base_rtt_ns(4262) == expected


def test_path_objects_are_hashable_data() -> None:
    path = Paths(load_lab("tiny")).path(0, 1, 0, None)
    assert isinstance(path, Path)
    assert path.hop is None
    assert path.switches == ("p0-t0.0",)
    assert len({path, path}) == 1
