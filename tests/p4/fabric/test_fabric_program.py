"""fabric.p4: its STF tests, its tables against the rules, and whole labs of it, by every compiler at hand."""

from __future__ import annotations

import pathlib
import re
from collections import Counter

import pytest

from mrc_topo import addressing, ev, rules
from mrc_topo.labfile import builtin_labs, load_lab
from mrc_topo.modes import RoutingMode, SprayKind
from mrc_topo.paths import Paths
from mrc_topo.topology import Topology
from p4lite.switch.fabric.values import QueueLimits
from p4lite.switch.runtime.loader import LoadedProgram
from p4lite_tools.stf.engine import run_stf
from p4lite_tools.stf.parse import parse_stf
from support.p4.fabric_bed import COMPILERS, SOURCE, LabBed, compiled, lab_frame
from support.p4.mrc_frames import mrc_write, other_packet, read

STF = sorted(pathlib.Path(__file__).parent.glob("*.stf"))
SECOND_NS = 10**9


def tiny(mode: RoutingMode = RoutingMode.SRV6_USID, spray: SprayKind = SprayKind.RANDOM, **changes: object) -> Topology:
    """Lab `tiny` with another routing mode."""
    lab = load_lab("tiny").lab
    data = lab.model_dump() | {"routing": {"mode": mode, "spray": spray}} | changes
    return Topology(type(lab).model_validate(data))


@pytest.mark.parametrize("path", STF, ids=lambda path: path.stem)
def test_stf(path: pathlib.Path, fabric_p4: LoadedProgram) -> None:
    result = run_stf(fabric_p4, parse_stf(path.read_text(), path.name), path.name, priority_queues=8)
    assert result.failures == []
    assert result.packets_in > 0


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", sorted(builtin_labs()))
def test_rules_use_the_programs_tables(compiler: str, name: str) -> None:
    """Names, keys, widths and parameters of every entry, against the P4Info."""
    loaded = compiled(compiler)
    if loaded is None:
        pytest.skip(f"{compiler} is not installed")
    info = loaded.p4info
    assert info is not None
    actions = {action.preamble.name: action for action in info.actions}
    tables = {table.preamble.name: table for table in info.tables}
    by_id = {action.preamble.id: action.preamble.name for action in info.actions}
    for entries in rules.all_entries(load_lab(name)).values():
        for entry in entries:
            table, action = tables[entry.table], actions[entry.action]
            assert entry.action in {by_id[reference.id] for reference in table.action_refs}
            widths = {param.name: param.bitwidth for param in action.params}
            assert set(widths) == set(entry.params)
            assert all(0 <= value < 1 << widths[name] for name, value in entry.params.items())
            fields = {field.name: field for field in table.match_fields}
            if entry.default:
                assert len(table.match_fields) == 0
                continue
            assert set(fields) == {match.field for match in entry.match}
            for match in entry.match:
                field = fields[match.field]
                assert 0 <= match.value < 1 << field.bitwidth
                kind = field.MatchType.Name(field.match_type)
                assert kind == ("EXACT" if match.prefix_length is None else "LPM")
                if match.prefix_length is not None:
                    assert match.value % (1 << field.bitwidth - match.prefix_length) == 0
    for table_name, table in tables.items():
        most = max(
            sum(entry.table == table_name for entry in entries)
            for entries in rules.all_entries(load_lab(name)).values()
        )
        assert most <= table.size
    counters = {counter.preamble.name: counter.size for counter in info.counters}
    assert set(rules.COUNTERS.values()) <= set(counters)
    assert counters[rules.COUNTERS["ev_packets"]] == ev.EV_COUNTERS
    assert counters[rules.COUNTERS["drops"]] > max(rules.DROP_REASONS)


def test_drop_reasons_are_those_of_the_source() -> None:
    text = SOURCE.read_text()
    found = {int(number): name.lower() for name, number in re.findall(r"DROP_(\w+) = (\d+);", text)}
    assert found.pop(0) == "none"
    assert found == rules.DROP_REASONS


@pytest.mark.parametrize("mode", [mode for mode in RoutingMode if mode is not RoutingMode.SPRAY])
def test_every_path_of_a_lab_carries_its_packets(mode: RoutingMode, fabric_p4: LoadedProgram) -> None:
    """Sent with the EV of the path; seen at the right host port, and at every switch on the way."""
    topology = tiny(mode)
    paths, bed = Paths(topology), LabBed(topology, fabric_p4)
    for src in range(4):
        for dst in range(4):
            for path in paths.all_paths(src, dst) if src != dst else ():
                value = paths.ev_of_path(path, src * 4 + dst)
                before = {s.name: bed.counter(s.name, "ev_packets", ev.counter_index(value)) for s in topology.switches}
                frame = lab_frame(topology, src, dst, value)
                bed.send(topology.host_port(src, path.plane), bytes(frame))
                [(port, received)] = bed.run(SECOND_NS)
                assert (port.host, port.plane) == (dst, path.plane)
                assert received[:6] == port.mac.to_bytes(6, "big")
                assert received[6:12] == port.gateway_mac.to_bytes(6, "big")
                seen = read(received)
                assert seen.hop_limit == 64 - len(path.switches)
                if seen.inner is not received[14:] and frame.outer:
                    assert seen.inner == frame.inner
                    assert addressing.parse_carrier(seen.destination) == (port.usid,)
                crossed = {
                    name
                    for name, count in before.items()
                    if bed.counter(name, "ev_packets", ev.counter_index(value)) > count
                }
                assert crossed == set(path.switches)
    assert bed.drops() == {}


def test_probes_return_to_their_sender(fabric_p4: LoadedProgram) -> None:
    topology = tiny()
    paths, bed = Paths(topology), LabBed(topology, fabric_p4)
    for host in topology.hosts:
        for port in host.ports:
            for t1 in (None, 0, 1):
                inner = mrc_write(host.address, host.address, 0xC000)
                bed.send(port, bytes(inner.encapsulated(paths.probe(host.index, port.plane, t1))))
                [(back, frame)] = bed.run(SECOND_NS)
                assert back is port
                assert read(frame).inner == inner.inner
    assert bed.drops() == {}


@pytest.mark.parametrize("mode", list(RoutingMode))
def test_ping_between_hosts_in_every_mode(mode: RoutingMode, fabric_p4: LoadedProgram) -> None:
    topology = tiny(mode)
    bed = LabBed(topology, fabric_p4)
    for src in topology.hosts:
        for dst in topology.hosts:
            for plane in range(2) if src is not dst else ():
                for target in (dst.address, dst.ports[plane].address):
                    echo = other_packet(src.ports[plane].address, target, 58, bytes.fromhex("8000000000010001"))
                    bed.send(src.ports[plane], bytes(echo))
                    [(port, _)] = bed.run(SECOND_NS)
                    assert (port.host, port.plane) == (dst.index, plane)
    stray = other_packet(topology.hosts[0].address, topology.hosts[3].ports[1].address, 58, bytes(8))
    bed.send(topology.host_port(0, 0), bytes(stray))
    assert bed.run(SECOND_NS) == []
    assert bed.drops() == {"no_route": 1}


@pytest.mark.parametrize("kind", list(SprayKind))
def test_spraying_uses_all_uplinks(kind: SprayKind, fabric_p4: LoadedProgram) -> None:
    """600 packets over 3 uplinks, one at a time: random within 5 sigma of a third, round robin exactly."""
    topology = tiny(RoutingMode.SPRAY, kind, t1_per_plane=3)
    bed = LabBed(topology, fabric_p4)
    frame = bytes(lab_frame(topology, 0, 2, ev.make_ev(0, 0, 7)))
    for _ in range(600):
        bed.send(topology.host_port(0, 0), frame)
        assert len(bed.run(20_000_000)) == 1
    taken = [bed.counter("p0-t0.0", "port_tx", topology.uplink_number(t1)) for t1 in range(3)]
    assert sum(taken) == 600
    if kind is SprayKind.ROUND_ROBIN:
        assert taken == [200, 200, 200]
    else:
        assert all(abs(count - 200) < 5 * (600 * 2 / 9) ** 0.5 for count in taken)


def test_shortest_of_two_avoids_a_long_queue(fabric_p4: LoadedProgram) -> None:
    """With a full queue on one of two uplinks, it is taken only when both draws name it: one time in four."""
    topology = tiny(RoutingMode.SPRAY, SprayKind.SHORTEST_OF_TWO)
    bed = LabBed(topology, fabric_p4)
    instance = bed.switch("p0-t0.0").instance
    frame = bytes(lab_frame(topology, 0, 2, ev.make_ev(0, 0, 7), dscp=46))
    instance.register_write("queue_in", topology.uplink_number(0), 9000)
    for _ in range(400):
        bed.send(topology.host_port(0, 0), frame)
        bed.run(10_000_000)
    taken = bed.counter("p0-t0.0", "port_tx", topology.uplink_number(0))
    assert abs(taken - 100) < 5 * (400 * 3 / 16) ** 0.5


def adaptive(flowlet: str, t1: int = 3) -> Topology:
    return tiny(t1_per_plane=t1, routing={"mode": "ecmp", "adaptive": {"flowlet": flowlet}})


@pytest.mark.parametrize("best", [0, 1, 2])
def test_adaptive_routing_takes_the_uplink_with_the_fewest_bytes(best: int, fabric_p4: LoadedProgram) -> None:
    topology = adaptive("0s")
    bed = LabBed(topology, fabric_p4)
    instance = bed.switch("p0-t0.0").instance
    for t1 in range(3):
        instance.register_write("queue_in", topology.uplink_number(t1), 5000 if t1 == best else 6000 + t1)
    # In the control queue, so that what it does to the data queues' counts is nothing.
    frame = bytes(lab_frame(topology, 0, 2, ev.make_ev(0, 0, 7), dscp=46))
    for _ in range(50):
        bed.send(topology.host_port(0, 0), frame)
        bed.run(10_000_000)
    taken = [bed.counter("p0-t0.0", "port_tx", topology.uplink_number(t1)) for t1 in range(3)]
    assert taken == [50 if t1 == best else 0 for t1 in range(3)]


def test_adaptive_routing_among_equals_is_random(fabric_p4: LoadedProgram) -> None:
    topology = adaptive("0s", 16)
    bed = LabBed(topology, fabric_p4)
    frame = bytes(lab_frame(topology, 0, 2, ev.make_ev(0, 0, 7), dscp=46))
    for _ in range(640):
        bed.send(topology.host_port(0, 0), frame)
        bed.run(2_000_000)
    taken = [bed.counter("p0-t0.0", "port_tx", topology.uplink_number(t1)) for t1 in range(16)]
    assert sum(taken) == 640
    assert all(abs(count - 40) < 5 * (640 * 15 / 256) ** 0.5 for count in taken)


def test_a_flow_keeps_its_uplink_while_it_sends(fabric_p4: LoadedProgram) -> None:
    topology = adaptive("5ms")
    bed = LabBed(topology, fabric_p4)
    instance = bed.switch("p0-t0.0").instance
    frames = [bytes(lab_frame(topology, 0, 2, ev.make_ev(0, 0, n), dscp=46)) for n in (7, 8)]

    def send(frame: bytes, after_ns: int) -> int:
        before = [bed.counter("p0-t0.0", "port_tx", topology.uplink_number(t1)) for t1 in range(3)]
        bed.send(topology.host_port(0, 0), frame)
        bed.run(after_ns)
        after = [bed.counter("p0-t0.0", "port_tx", topology.uplink_number(t1)) for t1 in range(3)]
        return [new - old for new, old in zip(after, before, strict=True)].index(1)

    bed.run(10_000_000)
    first = send(frames[0], 4_000_000)
    instance.register_write("queue_in", topology.uplink_number(first), 9000)
    assert {send(frames[0], 4_000_000) for _ in range(20)} == {first}
    assert send(frames[1], 4_000_000) != first  # another flow
    bed.run(5_000_000)
    assert send(frames[0], 4_000_000) != first


@pytest.mark.parametrize("narrow", [False, True])
def test_marking_probability_rises_between_kmin_and_kmax(narrow: bool, fabric_p4: LoadedProgram) -> None:
    """`narrow`: a range of one byte, with which an end that is off by one shows."""
    queues = load_lab("tiny").lab.queues.model_dump()
    topology = tiny(queues=queues | {"ecn": {"kmin": 10_000, "kmax": 10_001}}) if narrow else tiny()
    bed = LabBed(topology, fabric_p4)
    instance = bed.switch("p0-t0.0").instance
    uplink = topology.uplink_number(0)
    ecn = topology.switch("p0-t0.0").links[uplink].marks
    assert ecn is not None
    frame = bytes(lab_frame(topology, 0, 2, ev.make_ev(0, 0, 7)))
    for share in (0.0, 1.0) if narrow else (0.0, 0.25, 0.5, 0.75, 1.0):
        marked = 0
        for _ in range(300):
            instance.register_write("queue_out", uplink, 0)
            instance.register_write("queue_in", uplink, ecn.kmin + int(share * (ecn.kmax - ecn.kmin)))
            bed.send(topology.host_port(0, 0), frame)
            [(_, received)] = bed.run(20_000_000)
            marked += read(received).ecn == 3
        assert abs(marked - 300 * share) <= 5 * (300 * share * (1 - share)) ** 0.5
        assert bed.waiting("p0-t0.0", uplink) == 0
    # A packet that another switch has marked is not counted a second time.
    counted = bed.counter("p0-t0.0", "marked", uplink)
    instance.register_write("queue_in", uplink, instance.register_read("queue_out", uplink) + ecn.kmax)
    bed.send(topology.host_port(0, 0), bytes(lab_frame(topology, 0, 2, ev.make_ev(0, 0, 7), ecn=3)))
    [(_, received)] = bed.run(20_000_000)
    assert (read(received).ecn, bed.counter("p0-t0.0", "marked", uplink)) == (3, counted)


def test_what_the_traffic_manager_loses_is_forgotten(fabric_p4: LoadedProgram) -> None:
    """Three hosts send to the fourth, whose queue holds eight packets; then one goes on, and it is never empty."""
    topology = tiny()
    paths, bed = Paths(topology), LabBed(topology, fabric_p4)
    last = topology.host_port(3, 0)
    port = bed.switch(last.t0).port(last.t0_port)
    port.set_queue(QueueLimits(packets=8))
    for src, count in ((0, 400), (1, 40), (2, 40)):
        value = paths.profile(src, 3)[0][0]
        for psn in range(count):
            frame = lab_frame(topology, src, 3, value, payload=1024, psn=psn, dscp=0)
            bed.send(topology.host_port(src, 0), bytes(frame))
    busy = 0
    for _ in range(180):
        bed.run(1_000_000)
        stats = port.stats().queues[rules.DATA_PRIORITY]
        # Of what came when it was full, no more than since the last departure.
        assert stats.depth_bytes <= bed.waiting(last.t0, last.t0_port) <= stats.depth_bytes + 8 * 1200
        if bed.fabric.now_ns > 80_000_000 and stats.depth_packets:
            busy += 1
            assert bed.waiting(last.t0, last.t0_port) == stats.depth_bytes
    assert port.stats().drops["queue_full"] > 20
    assert busy > 20


@pytest.mark.parametrize("mode", [RoutingMode.SRV6_USID, RoutingMode.SRV6_SRH, RoutingMode.ECMP])
def test_occupancy_is_exact_and_incast_is_trimmed_not_lost(mode: RoutingMode, fabric_p4: LoadedProgram) -> None:
    """Three hosts send 60 full packets each to the fourth at once, on one plane.

    The registers equal the traffic manager's own count at every millisecond; nothing is lost; what the receiver's
    port cut says TRIMMED_LASTHOP and its original length; the queue never exceeds its limit.
    """
    topology = tiny(mode)
    paths, bed = Paths(topology), LabBed(topology, fabric_p4)
    sent = {}
    for src in (0, 1, 2):
        values = paths.profile(src, 3)[0]
        for index in range(60):
            psn = src << 16 | index
            frame = lab_frame(topology, src, 3, values[index % len(values)], payload=1024, psn=psn)
            sent[psn] = frame
            bed.send(topology.host_port(src, 0), bytes(frame))
    received = []
    queues = [(each.name, port) for each in topology.switches for port in each.links]
    for _ in range(200):
        received += bed.run(1_000_000)
        for name, port in queues:
            data = bed.switch(name).port(port).stats().queues[rules.DATA_PRIORITY]
            assert bed.waiting(name, port) == data.depth_bytes
            assert data.max_bytes <= topology.lab.queues.limit
    kinds = Counter(read(frame).dscp for _, frame in received)
    assert {port.name for port, _ in received} == {"h3:0"}
    assert {read(frame).psn for _, frame in received} == set(sent)
    assert len(received) == len(sent)
    assert kinds[16] > 50
    assert kinds[4] > 50
    lasthop = topology.host_port(3, 0)
    assert kinds[16] == bed.counter(lasthop.t0, "trimmed", lasthop.t0_port)
    for _, packet in received:
        seen = read(packet)
        original = sent[seen.psn]
        assert seen.payload_length == seen.length - 54
        if seen.dscp == 4:
            assert seen.inner[40:] == original.inner[40:]
        else:
            assert seen.udp_length == len(original.inner) - 40
            assert len(seen.inner) == 40 + 8 + 12 + 4 + 4 + 16
            assert original.inner[40:].startswith(seen.inner[40:])
    assert bed.drops() == {}


@pytest.mark.parametrize("payload", [64, 1024])
def test_a_stopped_switch_forwards_again_afterwards(payload: int, fabric_p4: LoadedProgram) -> None:
    """Stopped in mid-incast, with its queue above the trim threshold: the bytes that it lost do not count for ever."""
    topology = tiny()
    paths, bed = Paths(topology), LabBed(topology, fabric_p4)
    receiver = topology.host_port(3, 0)

    def burst() -> None:
        for src in (0, 1, 2):
            for index in range(200_000 // (payload + 150)):
                value = paths.profile(src, 3)[0][index % 16]
                bed.send(topology.host_port(src, 0), bytes(lab_frame(topology, src, 3, value, payload=payload)))

    burst()
    trim = topology.lab.queues.trim
    assert trim is not None
    while bed.waiting(receiver.t0, receiver.t0_port) <= trim.threshold:
        bed.run(1_000_000)
    bed.switch(receiver.t0).set_state("stopped")
    bed.run(SECOND_NS)
    bed.switch(receiver.t0).set_state("running")
    lost = bed.waiting(receiver.t0, receiver.t0_port)
    assert lost > trim.threshold
    burst()
    received = bed.run(SECOND_NS)
    data = bed.switch(receiver.t0).port(receiver.t0_port).stats().queues[rules.DATA_PRIORITY]
    assert sum(len(frame) for _, frame in received if read(frame).dscp == 4) > trim.threshold
    assert bed.waiting(receiver.t0, receiver.t0_port) == data.depth_bytes == 0


def test_a_source_route_that_loops_ends_by_its_hop_limit(fabric_p4: LoadedProgram) -> None:
    topology = tiny()
    bed = LabBed(topology, fabric_p4)
    up, down = addressing.usid(0, addressing.Tier.T1, 0), addressing.usid(0, addressing.Tier.T0, 0)
    inner = mrc_write(topology.hosts[0].address, topology.hosts[2].address, 0xC000)
    route = Paths(topology).probe(0, 0)._replace(destination=addressing.carrier((down, up, down, up, down, up)))
    frame = bytearray(bytes(inner.encapsulated(route)))
    frame[14 + 7] = 4
    bed.send(topology.host_port(0, 0), bytes(frame))
    assert bed.run(SECOND_NS) == []
    assert bed.drops() == {"hop_limit": 1}
