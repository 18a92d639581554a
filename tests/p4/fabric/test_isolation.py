"""Tenants on fabric.p4: a host reaches those of its own tenant and no other, whatever uSIDs and addresses it forges."""

from __future__ import annotations

import random

import pytest

from mrc_topo import addressing, rules
from mrc_topo.addressing import Tier
from mrc_topo.labfile import parse_lab
from mrc_topo.modes import RoutingMode
from mrc_topo.paths import Paths, Srv6Path
from mrc_topo.topology import HostPort, Topology
from p4lite.switch.runtime.loader import LoadedProgram
from support.p4.fabric_bed import LabBed, lab_frame
from support.p4.mrc_frames import Frame, mrc_write, read

SECOND_NS = 10**9
SRV6 = [RoutingMode.SRV6_USID, RoutingMode.SRV6_SRH]
PLACES = [*((mode, place) for mode in SRV6 for place in ("host", "t0")), (RoutingMode.ECMP, "host")]


def lab(mode: RoutingMode, place: str) -> Topology:
    """Two tenants at the same T0s, and two hosts in none."""
    return parse_lab(
        "name: a\nplanes: 2\nt0_per_plane: 2\nt1_per_plane: 2\nhosts: 6\nhosts_per_t0: 3\n"
        f"routing: {{mode: {mode.value}}}\ntenants:\n"
        f"  blue: {{hosts: [h0, h3], addresses: '2001:db8:b::/48', decapsulation: {place}}}\n"
        f"  red: {{hosts: [h1, h4], addresses: '2001:db8:c::/48', decapsulation: {place}}}\n"
    )


@pytest.mark.parametrize(("mode", "place"), PLACES)
def test_packets_arrive_within_a_tenant_and_nowhere_else(
    mode: RoutingMode, place: str, fabric_p4: LoadedProgram
) -> None:
    topology = lab(mode, place)
    paths, bed = Paths(topology), LabBed(topology, fabric_p4)
    denied = 0
    for source in topology.hosts:
        for target in topology.hosts:
            for path in paths.all_paths(source.index, target.index) if source is not target else ():
                frame = lab_frame(topology, source.index, target.index, paths.ev_of_path(path, 7))
                bed.send(topology.host_port(source.index, path.plane), bytes(frame))
                arrived = bed.run(SECOND_NS)
                if source.segment is not target.segment:
                    assert arrived == []
                    denied += 1
                    continue
                [(port, received)] = arrived
                assert (port.host, port.plane) == (target.index, path.plane)
                decapsulated = place == "t0" and source.segment.number > 0
                assert (received[14:] != read(received).inner) is (bool(frame.outer) and not decapsulated)
                assert read(received).inner[40:] == frame.inner[40:]
                assert read(received).inner[:7] == frame.inner[:7]
    assert bed.drops() == {"tenant_denied": denied}
    assert rules.check_routes(topology) > denied


def _forged(topology: Topology, sender: HostPort, rng: random.Random) -> Frame:
    """Return a packet with addresses and uSIDs of anybody, in a carrier, a segment list or without either."""
    lab = topology.lab
    planes, t0s, t1s = range(lab.planes), range(lab.t0_per_plane), range(lab.t1_per_plane)
    usids = [addressing.usid(plane, Tier.T0, index) for plane in planes for index in t0s]
    usids += [addressing.usid(plane, Tier.T1, index) for plane in planes for index in t1s]
    ends = [port.usid for host in topology.hosts for port in host.ports]
    ends += [addressing.tenant_usid(plane, tenant) for plane in planes for tenant in range(4)]
    addresses = list(topology.by_address)
    inner = mrc_write(rng.choice(addresses), rng.choice(addresses), rng.getrandbits(32))
    if rng.random() < 0.2:
        return inner

    def carrier() -> bytes:
        if rng.random() < 0.5:
            return addressing.carrier((*rng.choices(usids, k=rng.randrange(5)), rng.choice(ends)))
        target = rng.choice(topology.hosts)
        usids_there = topology.path(sender.host, target.index, sender.plane, rng.choice(t1s)).usids
        return addressing.carrier((*usids_there[:-1], rng.choice([usids_there[-1], rng.choice(ends)])))

    segments = tuple(rng.choice([carrier(), rng.choice(addresses)]) for _ in range(rng.choice([0, 0, 1, 2])))
    others = [*addresses, bytes(16), bytes.fromhex("fe80" + "00" * 13 + "01")]
    source = rng.choice([sender.address, rng.choice(others)])
    return inner.encapsulated(Srv6Path(carrier(), segments, source))


@pytest.mark.parametrize("place", ["host", "t0"])
def test_no_forged_packet_reaches_another_tenant(place: str, fabric_p4: LoadedProgram) -> None:
    """5,000 packets; those that arrive at all do so at hosts of the sender's own tenant."""
    topology = lab(RoutingMode.SRV6_USID, place)
    bed, rng = LabBed(topology, fabric_p4), random.Random(58)
    arrived = 0
    for _ in range(5000):
        source = rng.choice(topology.hosts)
        sender = rng.choice(source.ports)
        bed.send(sender, bytes(_forged(topology, sender, rng)))
        for port, _ in bed.run(SECOND_NS):
            arrived += 1
            assert topology.hosts[port.host].segment is source.segment
    assert arrived > 100
    assert bed.drops()["tenant_denied"] > 100


@pytest.mark.parametrize("place", ["host", "t0"])
def test_forged_usids_of_another_tenant_are_counted_where_they_are_denied(place: str, fabric_p4: LoadedProgram) -> None:
    """With its own source a packet gets as far as the other's T0, with the other's source not into the fabric."""
    topology = lab(RoutingMode.SRV6_USID, place)
    bed = LabBed(topology, fabric_p4)
    attacker, victim, friend = (topology.hosts[index] for index in (1, 3, 0))
    route = Paths(topology).srv6(topology.path(attacker.index, victim.index, 0, 1))
    inner = mrc_write(attacker.address, victim.address, 0)
    bed.send(attacker.ports[0], bytes(inner.encapsulated(route)))
    assert bed.run(SECOND_NS) == []
    assert bed.counter("p0-t0.1", "drops", rules.TENANT_DENIED) == 1
    forged = route._replace(source=friend.ports[0].address)
    bed.send(attacker.ports[0], bytes(mrc_write(friend.address, victim.address, 0).encapsulated(forged)))
    assert bed.run(SECOND_NS) == []
    assert bed.counter("p0-t0.0", "drops", rules.TENANT_DENIED) == 1
    assert bed.drops() == {"tenant_denied": 2}


def test_a_tenants_table_serves_its_own_sources_only(fabric_p4: LoadedProgram) -> None:
    """Even for a destination that they may reach."""
    topology = lab(RoutingMode.SRV6_USID, "t0")
    bed = LabBed(topology, fabric_p4)
    inner = mrc_write(topology.hosts[1].address, topology.hosts[4].address, 0)
    usids = topology.path(1, 4, 0, 0).usids
    for tenant in (1, 2):
        carrier = addressing.carrier((*usids[:-1], addressing.tenant_usid(0, tenant)))
        source = topology.hosts[1].ports[0]
        bed.send(source, bytes(inner.encapsulated(Srv6Path(carrier, (), source.address))))
    assert [port.host for port, _ in bed.run(SECOND_NS)] == [4]
    assert bed.drops() == {"tenant_denied": 1}


@pytest.mark.parametrize("mode", SRV6)
def test_what_the_fabric_did_to_the_outer_header_is_in_the_inner_one(
    mode: RoutingMode, fabric_p4: LoadedProgram
) -> None:
    """Marks and trims at a switch before the T0 that takes the outer header off."""
    topology = lab(mode, "t0")
    bed = LabBed(topology, fabric_p4)
    frame = lab_frame(topology, 0, 3, 0xC000, payload=256)
    marked = bytearray(bytes(frame))
    marked[15] |= 0x30  # CE in the outer header
    trimmed = bytearray(bytes(frame)[: -256 - 4])
    word = int.from_bytes(trimmed[14:16], "big") & ~(63 << 6) | rules.DSCP_TRIMMED << 6
    trimmed[14:16] = word.to_bytes(2, "big")
    trimmed[18:20] = (len(trimmed) - 54).to_bytes(2, "big")
    for sent in (marked, trimmed):
        bed.send(topology.host_port(0, 0), bytes(sent))
    (_, first), (_, second) = bed.run(SECOND_NS)
    one, two = sorted((read(first), read(second)), key=lambda each: -each.length)
    assert (one.ecn, one.dscp) == (3, 4)
    assert one.payload_length == one.udp_length
    assert two.dscp == rules.DSCP_TRIMMED
    assert two.payload_length == two.length - 54
    assert two.udp_length == one.udp_length


def test_the_switches_count_denials_only_in_labs_with_tenants() -> None:
    for text, tables in (("", 0), ("tenants: {blue: {hosts: [h0], addresses: '2001:db8::/32'}}", 3)):
        topology = parse_lab(f"name: a\nhosts: 8\n{text}")
        entries = rules.all_entries(topology)["p0-t0.0"]
        assert len({entry.table for entry in entries} & set(rules.ISOLATION)) == tables
