"""Which machine carries which part of a lab: everything is on one, and both ends of a tunnel say the same of it."""

from __future__ import annotations

import collections
import ipaddress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_topo.labfile import LabError, parse_lab
from mrc_topo.placement import Placement
from mrc_topo.topology import Topology
from topo.strategies import topologies

LAB = "name: a\nplanes: 2\nt0_per_plane: 2\nt1_per_plane: 2\nhosts: 4\nhosts_per_t0: 2\nmachines:\n"
M1 = "  m1: {address: 10.8.0.1, hosts: [h0..h1], switches: [p*-t0.0, p0-t1.*]}\n"
M2 = "  m2: {address: 10.8.0.2, hosts: [h2, h3], switches: ['p[01]-t0.1', p1-t1.0, p1-t1.1]}\n"
SOME = "  m2: {address: 10.8.0.2, %s}\n"

# (the machines, line, key, words that the message must have)
BAD: list[tuple[str, int, str, str]] = [
    (M1, 7, "machines", "h2, h3 are on no machine; add to the hosts of one"),
    (M1 + SOME % "hosts: [h2..h3]", 7, "machines", "p0-t0.1, p1-t0.1, p1-t1.0 and 1 more are on no machine"),
    (M1 + SOME % "hosts: [h1]", 9, "machines.m2.hosts.0", "h1 is on machine m1 already; place it once"),
    (
        M1 + SOME % "hosts: [h2, h9]",
        9,
        "machines.m2.hosts.1",
        "'h9' is not one of the lab's hosts; it has h0, h1, h2, h3",
    ),
    (M1 + SOME % "hosts: [h2..h4]", 9, "machines.m2.hosts.0", "there is no h4"),
    (M1 + SOME % "hosts: [h3..h2]", 9, "machines.m2.hosts.0", "ends before it begins"),
    (
        M1 + SOME % "switches: ['p2-*']",
        9,
        "machines.m2.switches.0",
        "not one of the lab's switches; it has p0-t0.0, p0-",
    ),
    (M1 + M2 + "  m3: {address: 10.8.0.3}", 10, "machines.m3", "no host and no switch is here"),
    (M1 + M2.replace("10.8.0.2", "'fd00::2'"), 9, "machines.m2.address", "fd00::2 and 10.8.0.1 of machine m1 are not"),
    (
        M1 + M2.replace("10.8.0.2", "10.8.0.1"),
        9,
        "machines.m2.port_base",
        "ports 47000 to 47003 of 10.8.0.1 are machine",
    ),
    (M1 + M2.replace("m2: {", "m2: {port_base: 65535, "), 9, "machines.m2.port_base", "lower it to 65532 at most"),
    (M1 + M2.replace("m2: {", "m2: {port_base: 80, "), 9, "machines.m2.port_base", "greater than or equal to 1024"),
    (M1 + M2.replace("10.8.0.2", "there"), 9, "machines.m2.address", "'there' is not an IP address"),
    (M1 + M2.replace("10.8.0.2", "0.0.0.0"), 9, "machines.m2.address", "not an address of one machine"),
    (M1 + M2.replace("10.8.0.2", "'fe80::1%eth0'"), 9, "machines.m2.address", "not an address of one machine"),
    (M1 + M2.replace("m2: {", "m2: {ssh: -oProxyCommand=x, "), 9, "machines.m2.ssh", "a host as ssh knows it"),
    (M1 + M2.replace("m2: {", "m2: {ssh: 'a b', "), 9, "machines.m2.ssh", "a host as ssh knows it"),
    (M1 + M2.replace("m2: {", "m2: {shh: a, "), 9, "machines.m2.shh", "did you mean 'ssh'"),
    (M1 + M2.replace("m2:", "M2:"), 9, "machines.M2", "the name of a machine has small letters"),
    (M1 + M2.replace("m2:", "h3:"), 9, "machines.h3", "not that of a host"),
    (M1 + M2.replace("m2:", "labd:"), 9, "machines.labd", "not that of a host, nor machine, lab, labd"),
]


@pytest.mark.parametrize(("machines", "line", "key", "words"), BAD, ids=[each[3][:30] for each in BAD])
def test_what_cannot_be_is_told_with_its_place(machines: str, line: int, key: str, words: str) -> None:
    with pytest.raises(LabError) as caught:
        parse_lab(LAB + machines, "some.yaml")
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"some.yaml:{line}: {key}: ")
    assert words in caught.value.problems[0]


def test_a_lab_on_two_machines_by_hand() -> None:
    topology = parse_lab(LAB + M1 + M2)
    placement = Placement(topology)
    assert [host.name for host in placement.hosts("m2")] == ["h2", "h3"]
    assert [switch.name for switch in placement.switches("m1")] == ["p0-t0.0", "p0-t1.0", "p0-t1.1", "p1-t0.0"]
    assert list(placement.tunnels) == ["p0-t0.1--p0-t1.0", "p0-t0.1--p0-t1.1", "p1-t0.0--p1-t1.0", "p1-t0.0--p1-t1.1"]
    first = placement.tunnels["p0-t0.1--p0-t1.0"]
    assert (first.low.machine, first.low.local, first.low.peer) == ("m2", "10.8.0.2:47000", "10.8.0.1:47000")
    assert placement.ends("m1")["p1-t0.0--p1-t1.1"].local == "10.8.0.1:47003"


def test_a_lab_without_machines_is_whole() -> None:
    assert not Placement(parse_lab("name: a")).machines


@st.composite
def placed(draw: st.DrawFn) -> Topology:
    """Return a lab whose hosts and switches are anywhere."""
    document: dict[str, Any] = draw(topologies()).lab.model_dump(mode="json")
    plain = parse_lab(yaml.safe_dump(document))
    version = draw(st.sampled_from(("10.8.0.%d", "fd00::%d")))
    names = ["one", "two", "three"][: draw(st.integers(1, 3))]
    machines: dict[str, dict[str, Any]] = {
        name: {"address": version % (1 + index), "port_base": 2000 * (1 + index), "hosts": [], "switches": []}
        for index, name in enumerate(names)
    }
    for kind, elements in (("hosts", plain.hosts), ("switches", plain.switches)):
        for element in elements:
            machines[draw(st.sampled_from(names))][kind].append(element.name)
    document["machines"] = {name: each for name, each in machines.items() if each["hosts"] or each["switches"]}
    return parse_lab(yaml.safe_dump(document, sort_keys=False))


@given(placed())
@settings(max_examples=30)
def test_everything_is_somewhere_once_and_the_ends_of_tunnels_agree(topology: Topology) -> None:
    placement = Placement(topology)
    hosts = [host.name for machine in placement.machines for host in placement.hosts(machine)]
    switches = [switch.name for machine in placement.machines for switch in placement.switches(machine)]
    assert sorted(hosts) == sorted(host.name for host in topology.hosts)
    assert sorted(switches) == sorted(switch.name for switch in topology.switches)
    for name, link in topology.links.items():
        low, high = (placement.machine_of[end.node] for end in (link.low, link.high))
        assert (name in placement.tunnels) is (low != high)
        if low != high:
            tunnel = placement.tunnels[name]
            assert (tunnel.low.machine, tunnel.high.machine) == (low, high)
            assert (tunnel.low.local, tunnel.low.peer) == (tunnel.high.peer, tunnel.high.local)
            assert (tunnel.low.end, tunnel.low.peer_end) == (tunnel.high.peer_end, tunnel.high.end)
            assert tunnel.at(high) is tunnel.high
    ends = [end for each in placement.tunnels.values() for end in (each.low, each.high)]
    assert max(collections.Counter(end.local for end in ends).values(), default=1) == 1
    assert max(collections.Counter(end.end for end in ends).values(), default=1) == 1
    for end in ends:
        address, _, port = end.local.rpartition(":")
        assert ipaddress.ip_address(address.strip("[]")) == ipaddress.ip_address(
            placement.machines[end.machine].address
        )
        assert int(port) in range(placement.machines[end.machine].port_base, 65536)
