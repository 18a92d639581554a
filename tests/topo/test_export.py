"""Labs in the formats of other tools: each command of the containerlab topology is run, and packets cross it."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import pathlib
import re
import shlex
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

import networkx as nx
import pytest
import yaml

from mrc_topo import addressing, export, rules
from mrc_topo.labfile import builtin_labs, load_lab, parse_lab
from mrc_topo.topology import Host, HostPort, Topology
from mrclab.cli import app as cli
from mrclab.lab.switches import forwarders
from support.namespaces import run

SMALL = [name for name in builtin_labs() if name not in ("thousand", "training-128", "training-64")]


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["mrclab", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize("name", SMALL)
def test_containerlab_names_each_interface_once(name: str) -> None:
    topology = load_lab(name)
    document = export.document(topology)
    nodes = document["topology"]["nodes"]
    assert set(nodes) == {host.name for host in topology.hosts} | {switch.name for switch in topology.switches}
    assert all(re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9-._|]*", each) for each in nodes)
    ends = [end for link in document["topology"]["links"] for end in link["endpoints"]]
    assert len(set(ends)) == len(ends) == 2 * len(topology.links)
    for end in ends:
        node, _, interface = end.partition(":")
        assert any(f" {interface} " in command for command in nodes[node]["exec"]), end
    assert all(link["mtu"] >= 1280 for link in document["topology"]["links"])


@contextlib.contextmanager
def containers(topology: Topology) -> Iterator[str]:
    """Give the prefix of namespaces that stand in for containers: what containerlab would execute in each is executed
    there."""
    try:
        forwarders.check_kernel()
    except forwarders.ReferencePartMissing as error:
        pytest.skip(str(error))
    document = export.document(topology)["topology"]
    prefix = f"clab{os.getpid() % 100000}-"
    try:
        for node in document["nodes"]:
            run("ip", "netns", "add", prefix + node)
            run("ip", "-n", prefix + node, "link", "set", "lo", "up")
        for number, link in enumerate(document["links"]):
            (one, first), (two, second) = (end.split(":") for end in link["endpoints"])
            names = ("one", f"c{number}", "two", f"d{number}")
            run("ip", "link", "add", names[1], "type", "veth", "peer", "name", names[3])
            for made, node, interface in ((names[1], one, first), (names[3], two, second)):
                run("ip", "link", "set", made, "netns", prefix + node)
                run("ip", "-n", prefix + node, "link", "set", made, "name", interface, "mtu", str(link["mtu"]))
        for node, content in document["nodes"].items():
            for command in content["exec"]:
                run("ip", "netns", "exec", prefix + node, *shlex.split(command))
        yield prefix
    finally:
        for node in document["nodes"]:
            run("ip", "netns", "del", prefix + node, check=False)


def ping(prefix: str, one: Host, two: Host, wait_s: int) -> bool:
    addresses = ("-I", addressing.text(one.address), addressing.text(two.address))
    inside = ("ip", "netns", "exec", prefix + one.name)
    return " 1 received" in run(*inside, "ping", "-6", "-c", "1", "-W", str(wait_s), *addresses, check=False)


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "dual-tor"])
def test_hosts_of_the_containerlab_topology_reach_each_other(name: str) -> None:
    topology = load_lab(name)
    with containers(topology) as prefix:
        for one, two in itertools.permutations(topology.hosts, 2):
            assert ping(prefix, one, two, 5)
        # Where packets went shows that the paths of both planes are used: addresses alone would take one plane.
        for port in topology.hosts[0].ports:
            crossed = run("ip", "-n", prefix + port.t0, "-s", "-j", "link", "show")
            assert sum(each["stats64"]["rx"]["packets"] for each in json.loads(crossed)) > 0


FORGER = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
    out.bind((sys.argv[1], 0x86DD))
    for frame in sys.argv[2:]:
        out.send(bytes.fromhex(frame))
"""


def echo(sender: HostPort, source: bytes, target: bytes, outer: bytes, carrier: bytes) -> str:
    """Return an echo request in SRv6 as a frame in hexadecimal digits."""
    data = bytes.fromhex("80000000") + b"forged!!"
    pseudo = source + target + struct.pack("!II", len(data), 58) + data
    total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
    total = (total & 0xFFFF) + (total >> 16)
    data = data[:2] + struct.pack("!H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + data[4:]
    inner = struct.pack("!IHBB", 6 << 28, len(data), 58, 64) + source + target + data
    packet = struct.pack("!IHBB", 6 << 28, len(inner), 41, 64) + outer + carrier + inner
    macs = sender.gateway_mac.to_bytes(6, "big") + sender.mac.to_bytes(6, "big")
    return (macs + bytes.fromhex("86dd") + packet).hex()


def inside(prefix: str, node: str, *command: str) -> str:
    return run("ip", "netns", "exec", prefix + node, *command)


def echoes(prefix: str, host: Host) -> int:
    """Return how many echo requests a host has received."""
    found = re.search(r"Icmp6InEchos\s+(\d+)", inside(prefix, host.name, "cat", "/proc/net/snmp6"))
    assert found is not None
    return int(found[1])


def denied(prefix: str, topology: Topology) -> int:
    """Return how many packets all switches have denied."""
    nodes = [switch.name for switch in topology.switches if switch.tier is addressing.Tier.T0]
    shown = [inside(prefix, node, "ip", "-s", "-j", "link", "show", export.DENIED) for node in nodes]
    return sum(json.loads(each)[0]["stats64"]["rx"]["dropped"] for each in shown)


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.parametrize("place", ["host", "t0"])
def test_no_forged_packet_gets_from_a_tenant_to_another_through_the_kernel(place: str) -> None:
    """Ordinary packets first, then those with each other's uSIDs, tables and sources."""
    topology = parse_lab(
        "name: a\nplanes: 1\nt0_per_plane: 2\nt1_per_plane: 1\nhosts: 6\nhosts_per_t0: 3\ntenants:\n"
        f"  blue: {{hosts: [h0, h3], addresses: '2001:db8:b::/48', decapsulation: {place}}}\n"
        f"  red: {{hosts: [h1, h4], addresses: '2001:db8:c::/48', decapsulation: {place}}}\n"
    )
    with containers(topology) as prefix:
        crossing = 0
        for one, two in itertools.permutations(topology.hosts, 2):
            same = one.segment is two.segment
            if same or one.index == 1:
                crossing += not same
                assert ping(prefix, one, two, 5 if same else 1) is same
        assert denied(prefix, topology) == crossing
        before = [echoes(prefix, host) for host in topology.hosts]
        attacker, frames, friends = topology.hosts[1], [], 0
        port = attacker.ports[0]
        for target, inner in itertools.product(topology.hosts, repeat=2):
            if target is attacker or inner is attacker:
                continue
            usids = topology.path(1, target.index, 0, 0).usids
            for last in {usids[-1], addressing.tenant_usid(0, 1), addressing.tenant_usid(0, 2)}:
                carrier = addressing.carrier((*usids[:-1], last))
                for source in (port, topology.hosts[0].ports[0], topology.hosts[2].ports[0]):
                    frames.append(echo(port, source.address, inner.address, source.address, carrier))
                    friends += source is port
        inside(prefix, attacker.name, sys.executable, "-c", FORGER, "eth1", *frames)
        time.sleep(1)
        grown = [echoes(prefix, host) - first for host, first in zip(topology.hosts, before, strict=True)]
        assert [count > 0 for count in grown] == [False, False, False, False, True, False]
        # Each packet with another's source, and those with the own one that lead to others' ports and tables.
        assert denied(prefix, topology) - crossing >= len(frames) - friends


@pytest.mark.parametrize("name", SMALL)
def test_sonic_has_a_route_for_each_entry_of_the_program(name: str) -> None:
    topology = load_lab(name)
    for switch, tables in export.documents(topology).items():
        entries = rules.switch_entries(topology, topology.switch(switch))
        wanted = [each for each in entries if each.table in (rules.USID_ROUTES, rules.HOST_ROUTES)]
        assert len(tables["STATIC_ROUTE"]) == len(wanted)
        ports = tables["PORT"]
        for route in tables["STATIC_ROUTE"].values():
            if route.get("blackhole") != "true":
                assert set(route["ifname"].split(",")) <= set(ports)
                assert len(route["ifname"].split(",")) == len(route["nexthop"].split(","))
        (sid,) = tables["SRV6_MY_SIDS"]
        assert sid.split("|")[0] in tables["SRV6_MY_LOCATORS"]


TENANTS = (
    "name: a\nplanes: 1\nt0_per_plane: 2\nt1_per_plane: 2\nhosts: 6\nhosts_per_t0: 3\ntenants:\n"
    "  blue: {hosts: [h0, h1, h4], addresses: '2001:db8:b::/48', decapsulation: t0}\n"
    "  red: {hosts: [h2], addresses: '2001:db8:c::/48'}\n"
)


def test_sonic_has_a_vrf_where_a_tenant_is_decapsulated_and_acls_at_all_its_ports() -> None:
    made = export.documents(parse_lab(TENANTS))
    t0, far, t1 = made["p0-t0.0"], made["p0-t0.1"], made["p0-t1.0"]
    assert t0["VRF"] == far["VRF"] == {"Vrf-blue": {}}
    assert not {"VRF", "ACL_TABLE", "ACL_RULE"} & set(t1)
    bound = {name: row.get("vrf_name") for name, row in t0["INTERFACE"].items()}
    assert bound == {"Ethernet0": "Vrf-blue", "Ethernet1": "Vrf-blue", **dict.fromkeys(list(bound)[2:])}
    assert t0["SRV6_MY_SIDS"]["MRC|fd4d:5243:400:e01::/64"]["decap_vrf"] == "Vrf-blue"
    routes = {key: row for key, row in t0["STATIC_ROUTE"].items() if key.startswith("Vrf-blue|")}
    assert {key.partition("|")[2]: (row["ifname"], row.get("nexthop-vrf")) for key, row in routes.items()} == {
        "2001:db8:b::1/128": ("Ethernet0", "Vrf-blue"),
        "2001:db8:b:0:1::1/128": ("Ethernet0", "Vrf-blue"),
        "2001:db8:b::2/128": ("Ethernet1", "Vrf-blue"),
        "2001:db8:b:0:1::2/128": ("Ethernet1", "Vrf-blue"),
        "2001:db8:b::/64": ("", None),
        "2001:db8:b:1::/64": ("Ethernet3,Ethernet4", "default,default"),
    }
    ports = {table: row["ports"] for table, row in t0["ACL_TABLE"].items()}
    assert ports["TENANT_1_INGRESS"] == ports["TENANT_1_EGRESS"] == ["Ethernet0", "Ethernet1"]
    assert ports["TENANT_2_INGRESS"] == ports["TENANT_2_EGRESS"] == ["Ethernet2"]
    assert t0["ACL_RULE"]["TENANT_2_EGRESS|OWN"]["SRC_IPV6"] == "2001:db8:c::/48"
    assert t0["ACL_RULE"]["TENANT_2_EGRESS|TENANT_DENIED"]["PACKET_ACTION"] == "DROP"
    assert "2001:db8:c::/48" not in {key.partition("|")[2] for key in routes}


def acl_passes(tables: dict[str, Any], port: str, source: str, destination: str) -> bool:
    """Return what the first rule that matches, by priority, says of a packet that comes in at a port."""
    for name, table in tables["ACL_TABLE"].items():
        if table["stage"] != "ingress" or port not in table["ports"]:
            continue
        rows = [row for key, row in tables["ACL_RULE"].items() if key.startswith(f"{name}|")]
        for row in sorted(rows, key=lambda row: -int(row["PRIORITY"])):
            wanted = (row.get("SRC_IPV6", "::/0"), source), (row.get("DST_IPV6", "::/0"), destination)
            if all(ipaddress.IPv6Address(each) in ipaddress.IPv6Network(prefix) for prefix, each in wanted):
                if row["PACKET_ACTION"] == "DROP":
                    return False
                break
    return True


@pytest.mark.parametrize(
    ("port", "source", "destination", "passes"),
    [
        ("Ethernet3", "2001:db8:b:1::2", "fd4d:5243:400:e01::", True),  # blue's own, from another T0
        ("Ethernet3", "2001:db8:c::1", "fd4d:5243:400:e01::", False),  # red opens blue's table, from another T0
        ("Ethernet3", "2001:db8:c::1", "fd4d:5243:400:203::", True),  # red's own, to its port
        ("Ethernet0", "2001:db8:b::1", "fd4d:5243:400:e01::", True),  # blue's own, here
        ("Ethernet2", "2001:db8:c::1", "fd4d:5243:400:e01::", False),  # red opens blue's table, here
        ("Ethernet2", "2001:db8:c::1", "fd4d:5243:400:400:e01::", False),  # the same behind a second look-up
        ("Ethernet2", "2001:db8:b::1", "fd4d:5243:401:400::", False),  # red with blue's source
        ("Ethernet2", "2001:db8:c::1", "fd4d:5243:800:401::", True),  # red's own, on its way
    ],
)
def test_sonic_opens_a_tenants_table_for_its_own_sources_only(
    port: str, source: str, destination: str, passes: bool
) -> None:
    assert acl_passes(export.documents(parse_lab(TENANTS))["p0-t0.0"], port, source, destination) is passes


#: The leaves of SONiC's YANG models that are used, with what each takes (sonic-net/sonic-buildimage, November 2025).
LEAVES: dict[str, dict[str, str]] = {
    "SRV6_MY_LOCATORS": {
        "prefix": r"[0-9a-f:]+", "block_len": r"\d+", "node_len": r"\d+", "func_len": r"\d+", "arg_len": r"\d+",
    },
    "SRV6_MY_SIDS": {"action": "uN|uDT46", "decap_vrf": r"Vrf-[a-z0-9-]{1,11}", "decap_dscp_mode": "uniform|pipe"},
    "STATIC_ROUTE": {
        "nexthop": r"[0-9a-f:,]+", "ifname": r"(Ethernet\d+,?)*", "blackhole": "true|false",
        "nexthop-vrf": r"Vrf-[a-z0-9-]{1,11}|default(,default)*",
    },
    "ACL_RULE": {
        "PRIORITY": r"\d+", "SRC_IPV6": r"[0-9a-f:]+/\d+", "DST_IPV6": r"[0-9a-f:]+/\d+", "IP_TYPE": "IPV6ANY",
        "PACKET_ACTION": "FORWARD|DROP",
    },
    "INTERFACE": {"ipv6_use_link_local_only": "enable", "vrf_name": r"Vrf-[a-z0-9-]{1,11}"},
    "SWITCH_TRIMMING": {"size": r"\d+", "dscp_value": r"[0-9]|[1-5]\d|6[0-3]", "queue_index": r"\d+"},
    "WRED_PROFILE": {
        "ecn": "ecn_all", "wred_green_enable": "true|false", "green_min_threshold": r"\d+",
        "green_max_threshold": r"\d+", "green_drop_probability": r"\d|[1-9]\d|100",
    },
    "BUFFER_PROFILE": {
        "pool": r"[\w]+", "size": r"\d+", "static_th": r"\d+", "packet_discard_action": "drop|trim",
    },
    "NEIGH": {"family": "IPv4|IPv6", "neigh": r"([0-9a-f]{2}:){5}[0-9a-f]{2}"},
}  # fmt: skip


@pytest.mark.parametrize("name", [*SMALL, "tenants"])
def test_sonic_uses_only_what_its_models_have(name: str) -> None:
    topology = parse_lab(TENANTS) if name == "tenants" else load_lab(name)
    for tables in export.documents(topology).values():
        for table, leaves in LEAVES.items():
            for row in tables.get(table, {}).values():
                assert set(row) <= set(leaves), (table, row)
                assert all(re.fullmatch(leaves[leaf], value) for leaf, value in row.items()), (table, row)
        profiles = tables.get("WRED_PROFILE", {})
        assert all(re.fullmatch(r"[a-zA-Z0-9][-a-zA-Z0-9_]{0,31}", each) for each in profiles)
        assert all(int(row["green_max_threshold"]) >= int(row["green_min_threshold"]) for row in profiles.values())
        for queue in tables["QUEUE"].values():
            assert queue.get("wred_profile", next(iter(profiles), None)) in (*profiles, None)
            assert queue["scheduler"] in tables["SCHEDULER"]
        assert {row["profile"] for row in tables["BUFFER_QUEUE"].values()} <= set(tables["BUFFER_PROFILE"])


def test_sonic_marks_and_trims_as_the_lab_does() -> None:
    topology = load_lab("default")
    tables = export.documents(topology)["p0-t0.0"]
    link = topology.links["p0-t0.0--p0-t1.0"]
    queue = link.queue
    assert link.marks is not None
    assert queue.trim is not None
    uplink = f"Ethernet{topology.uplink_number(0) - 1}"
    profile = tables["WRED_PROFILE"][tables["QUEUE"][f"{uplink}|0"]["wred_profile"]]
    assert (profile["green_min_threshold"], profile["green_max_threshold"]) == (
        str(link.marks.kmin),
        str(link.marks.kmax),
    )
    # MRC's packets are not marked at the last hop.
    assert "wred_profile" not in tables["QUEUE"]["Ethernet0|0"]
    buffer = tables["BUFFER_PROFILE"][tables["BUFFER_QUEUE"][f"{uplink}|0"]["profile"]]
    assert (buffer["static_th"], buffer["packet_discard_action"]) == (str(queue.trim.threshold), "trim")
    assert tables["SWITCH_TRIMMING"]["GLOBAL"]["dscp_value"] == str(rules.DSCP_TRIMMED)
    assert tables["DSCP_TO_TC_MAP"]["mrclab"][str(rules.DSCP_TRIMMED)] == "7"


def test_the_command_writes_each_format(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "tiny.clab.yml"
    assert call(monkeypatch, "export", "containerlab", "tiny", "-o", str(place), "--image", "mine:1") == 0
    made: dict[str, Any] = yaml.safe_load(place.read_text(encoding="utf-8"))
    assert made["topology"]["kinds"] == {"linux": {"image": "mine:1"}}
    assert call(monkeypatch, "export", "sonic", "tiny", "-o", str(tmp_path / "switches")) == 0
    assert len(list((tmp_path / "switches").glob("p?-t?.?.json"))) == 8
    assert call(monkeypatch, "export", "json", "tiny", "-o", str(tmp_path / "g.json")) == 0
    graph = nx.node_link_graph(json.loads((tmp_path / "g.json").read_text(encoding="utf-8")), edges="links")
    assert nx.utils.graphs_equal(nx.MultiGraph(graph.edges), nx.MultiGraph(load_lab("tiny").graph.edges))
    assert graph.nodes["h3"]["ports"][1]["usid"] == "1c01"


def test_an_image_belongs_to_containerlab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "export", "json", "tiny", "--image", "x") == 2
    assert "--image is for containerlab" in capsys.readouterr().err
    assert call(monkeypatch, "export", "yaml", "tiny") == 2
