"""Tenants of a lab file: who is in which, which addresses and uSIDs follow, and what is refused where."""

from __future__ import annotations

import ipaddress
import pathlib
import re

import pytest
from typer.testing import CliRunner

from mrc_topo import addressing
from mrc_topo.labfile import LabError, builtin_labs, parse_lab
from mrc_topo.paths import Paths
from mrc_topo.tenants import COMMON, Decapsulation
from mrc_topo.topology import PathError, Topology
from mrclab.cli.app import app

LAB = "name: a\nplanes: 2\nt0_per_plane: 2\nt1_per_plane: 2\nhosts: 8\nhosts_per_t0: 4\n"
BLUE = "  blue: {hosts: [h0, 'h[45]'], addresses: '2001:db8:b::/48', decapsulation: t0}\n"
RED = "  red: {hosts: [h1..h2], addresses: '2001:db8:c::/48', max_wnd: 16KiB}\n"

# (the tenants, line, key, words that the message must have)
BAD = [
    (BLUE + RED.replace("h1..h2", "h5"), 9, "tenants.red.hosts.0", "h5 is in tenant blue already"),
    (BLUE + RED.replace("c::/48", "b:7::/64"), 9, "tenants.red.addresses", "overlaps 2001:db8:b::/48 of tenant blue"),
    (RED.replace("2001:db8:c::/48", "fd4d:5248:1::/48"), 8, "tenants.red.addresses", "of the hosts in no tenant"),
    (RED.replace("h1..h2", "rack*"), 8, "tenants.red.hosts.0", "'rack*' is no host of the lab"),
    (RED.replace("h1..h2", "h1, h9"), 8, "tenants.red.hosts.1", "'h9' is no host of the lab"),
    (RED.replace("h1..h2", "h6..h8"), 8, "tenants.red.hosts.0", "there is no h8"),
    (RED.replace("red:", "none:"), 8, "tenants.none", "hosts in no tenant"),
    (RED.replace("2001:db8:c::/48", "::/16"), 8, "tenants.red.addresses", "::/16 is not for hosts"),
    (RED.replace("2001:db8:c::/48", "2001:db8:c::/16"), 8, "tenants.red.addresses", "has bits behind it"),
    (RED.replace("h1..h2", ""), 8, "tenants.red.hosts", "at least 1 item"),
    (RED.replace("2001:db8:c::/48", "10.0.0.0/8"), 8, "tenants.red.addresses", "not an IPv6 prefix"),
    (RED.replace("c::/48", "c::1/48"), 8, "tenants.red.addresses", "not an IPv6 prefix"),
    (RED.replace("c::/48", "c::/65"), 8, "tenants.red.addresses", "16 to 64 bits"),
    (RED.replace("2001:db8:c::/48", "fd4d:5243:1::/48"), 8, "tenants.red.addresses", "not for hosts"),
    (RED.replace("2001:db8:c::/48", "fe80::/64"), 8, "tenants.red.addresses", "not for hosts"),
    (RED.replace("red", "Red"), 8, "tenants.Red", "a tenant's name has small letters"),
    (BLUE + "routing: {mode: ecmp}\n", 8, "tenants.blue.decapsulation", "have no outer header"),
]


def lab(tenants: str = BLUE + RED, rest: str = "") -> Topology:
    return parse_lab(f"{LAB}{rest}tenants:\n{tenants}")


@pytest.mark.parametrize(("tenants", "line", "key", "words"), BAD)
def test_a_wrong_tenant_is_refused_with_its_place(tenants: str, line: int, key: str, words: str) -> None:
    with pytest.raises(LabError) as refused:
        parse_lab(f"{LAB}tenants:\n{tenants}", "my.yaml")
    [problem] = refused.value.problems
    assert problem.startswith(f"my.yaml:{line}: {key}: ")
    assert words in problem


def test_hosts_are_in_the_tenant_that_names_them() -> None:
    found = [host.segment for host in lab().hosts]
    assert [each.name for each in found] == ["blue", "red", "red", "", "blue", "blue", "", ""]
    assert [each.number for each in found] == [1, 2, 2, 0, 1, 1, 0, 0]
    assert found[3] == COMMON
    assert (found[0].decapsulation, found[1].decapsulation) == (Decapsulation.T0, Decapsulation.HOST)
    assert found[1].max_wnd == 16384


def test_addresses_follow_from_the_plan_of_the_tenant() -> None:
    h5, h2 = lab().hosts[5], lab().hosts[2]
    assert addressing.text(h5.address) == "2001:db8:b:1::2"
    assert [addressing.text(port.address) for port in h5.ports] == ["2001:db8:b:1:1::2", "2001:db8:b:1:2::2"]
    assert addressing.text(h2.address) == "2001:db8:c::3"


@pytest.mark.parametrize("bits", [16, 33, 48, 64])
def test_no_two_addresses_of_a_plan_are_the_same_or_outside_it(bits: int) -> None:
    prefix = ipaddress.IPv6Network((0x2001_0DB8 << 96, bits), strict=False)
    plan = addressing.AddressPlan(int(prefix.network_address), bits)
    numbers = [(t0, slot) for t0 in (0, 1, 1023) for slot in (0, 1, 509)]
    found = [plan.host(*each) for each in numbers]
    found += [plan.port(plane, *each) for each in numbers for plane in (0, 15)]
    assert len(set(found)) == len(found)
    for address, (t0, _) in zip(found, numbers, strict=False):
        assert ipaddress.IPv6Address(address) in prefix
        assert ipaddress.IPv6Address(address) in ipaddress.IPv6Network((plan.t0(t0), bits + 16))


def test_the_hosts_in_no_tenant_have_the_addresses_of_a_lab_without_tenants() -> None:
    plain, with_tenants = parse_lab(LAB), lab()
    assert with_tenants.hosts[3] == plain.hosts[3]
    assert with_tenants.hosts[6].ports == plain.hosts[6].ports


def test_a_path_ends_in_the_table_of_a_tenant_whose_t0_decapsulates() -> None:
    found = lab()
    assert [f"{each:04x}" for each in found.path(0, 5, 1, 0).usids] == ["1400", "1800", "1401", "1e01"]
    assert [f"{each:04x}" for each in found.path(1, 2, 1, None).usids] == ["1400", "1c02"]
    with pytest.raises(PathError, match="the uSIDs end in a tenant's table"):
        Paths(found).path_of_srv6(0, Paths(found).srv6(found.path(0, 5, 1, 0)))
    # A probe comes back as it left.
    assert f"{found.probe_path(5, 1).usids[-1]:04x}" == "1c01"


def test_a_usid_of_a_tenant_is_never_that_of_a_port() -> None:
    tenants = {addressing.tenant_usid(0, number) for number in range(1, addressing.MAX_TENANTS + 1)}
    slots = range(addressing.MAX_PORT)
    assert not tenants & {addressing.usid(0, addressing.Tier.HOST, slot) for slot in slots}
    assert len(tenants) == addressing.MAX_TENANTS


def test_a_graph_has_tenants_too() -> None:
    ring = builtin_labs()["ring"].read_text()
    found = parse_lab(ring + "tenants:\n" + BLUE.replace("h0, 'h[45]'", "'h[12]'"))
    assert [host.segment.name for host in found.hosts] == ["", "blue", "blue", ""]
    assert found.path(1, 2, 0, 0).usids[-1] == addressing.tenant_usid(0, 1)


def test_a_table_of_a_tenant_has_one_port_for_a_host() -> None:
    shared = "name: a\ntopology: {switches: [s0], hosts: [h0, h1], links: [[h0, s0], [h0, s0], [h1, s0], [h1, s0]]}\n"
    with pytest.raises(LabError, match=r"yaml:5: tenants.blue.decapsulation: two ports of h0 are at one switch"):
        parse_lab(
            shared + "tenants:\n  blue:\n    decapsulation: t0\n    hosts: [h0]\n    addresses: 2001:db8::/32\n",
            "a.yaml",
        )


def test_topo_show_names_tenants_only_where_there_are_some(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "a.yaml"
    for text, shown in ((f"{LAB}tenants:\n{BLUE}", True), (LAB, False)):
        file.write_text(text)
        output = CliRunner().invoke(app, ["topo", "show", str(file)]).output
        assert ("tenant" in output) is shown
    assert not shown


EMULATOR = """\
name: 2p-4x8
description: 2-plane Clos, 4 spines per plane, 8 leaves per plane
planes: 2
spines_per_plane: 4
leaves_per_plane: 8
tenants:
  - green
  - yellow
images: {sonic: docker-sonic-vs:latest}
clab: {topology_name: sonic-docker-2p-4x8}
"""


def test_a_topology_of_the_srv6_emulator_is_a_lab_with_a_host_of_each_tenant_at_each_leaf() -> None:
    topology = parse_lab(EMULATOR, "topo.yaml")
    lab = topology.lab
    assert (lab.name, lab.planes, lab.t0_per_plane, lab.t1_per_plane, lab.hosts) == ("lab-2p-4x8", 2, 8, 4, 16)
    assert [topology.t0_of(host.index) for host in topology.hosts] == [index // 2 for index in range(16)]
    assert [lab.segments[host.name].name for host in topology.hosts] == ["green", "yellow"] * 8
    assert [lab.segments[name].decapsulation for name in ("h0", "h1")] == [Decapsulation.T0, Decapsulation.HOST]
    first = [addressing.text(topology.host(name).ports[0].address) for name in ("h0", "h1")]
    assert [each[:14] for each in first] == ["2001:db8:bbbb:", "2001:db8:cccc:"]
    assert [note for note in topology.notes if "clab, images" in note]


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ("planes: 2", "planes: 0", "topo.yaml:3: planes"),
        ("leaves_per_plane: 8", "leaves_per_plane: many", "topo.yaml:5: leaves_per_plane"),
        ("  - yellow", "  - green", "topo.yaml:6: tenants"),
        ("planes: 2", "plains: 2", "topo.yaml:3: plains"),
    ],
)
def test_a_wrong_topology_of_the_srv6_emulator_is_refused_with_its_line(before: str, after: str, place: str) -> None:
    with pytest.raises(LabError, match=re.escape(place)):
        parse_lab(EMULATOR.replace(before, after, 1), "topo.yaml")
