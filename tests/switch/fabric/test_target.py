"""What the target does around the program, after simple_switch.md and p4-target.md, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4lite.switch.fabric.fabric import CloneSession, Fabric, FabricError, FabricSwitch
from p4lite.switch.fabric.values import LinkSettings, NotificationKind, Replica
from support.switch.hand_program import HandProgram, Op, Stamp, packet

IT_INGRESS_CLONE, IT_EGRESS_CLONE, IT_RECIRC, IT_REPLICATION, IT_RESUBMIT = 1, 2, 4, 5, 6


class Bed:
    """One switch with ports 1-4 and the hand-written program."""

    def __init__(self, **options: object) -> None:
        self.fabric = Fabric("virtual", seed=1)
        self.switch: FabricSwitch = self.fabric.add_switch(7, **options)  # type: ignore[arg-type]
        self.switch.load(HandProgram())  # type: ignore[arg-type]
        for number in range(1, 5):
            self.switch.add_port(number)

    def send(self, frame: bytes, port: int = 1) -> list[tuple[int, bytes]]:
        """Inject now, run 1 ms; what came out as (port, frame)."""
        now = self.fabric.now_ns
        self.fabric.inject(self.switch.port(port), frame, now)
        return [(out, data) for _, _, out, data in self.fabric.run_until(now + 10**6)]


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_unicast_metadata(bed: Bed) -> None:
    bed.fabric.run_until(5_000_000)
    [(port, data)] = bed.send(packet(Op.FORWARD, 3, size=120), port=2)
    stamp = Stamp.of(data)
    assert port == 3
    assert len(data) == 120
    assert (stamp.instance_type, stamp.ingress_port, stamp.egress_port) == (0, 2, 3)
    assert stamp.egress_spec == 0  # drop port + 1 in 9 bits
    assert stamp.packet_length == 120
    assert stamp.enq_timestamp == 5000  # µs
    assert stamp.kept == 0x5A


def test_drop_in_ingress_and_egress(bed: Bed) -> None:
    assert bed.send(packet(Op.DROP)) == []
    assert bed.send(packet(Op.EGRESS_DROP)) == []
    assert bed.send(packet(Op.FORWARD, 1, size=50)[:20]) == []  # parser error: the program drops
    stats = bed.switch.stats()
    assert (stats.drops["ingress"], stats.drops["egress"], stats.parser_errors) == (2, 1, 1)


def test_switch_with_its_own_drop_port_drops_what_goes_there() -> None:
    bed = Bed(drop_port=100)
    assert bed.send(packet(Op.DROP)) == []
    assert bed.send(packet(Op.FORWARD, 100)) == []
    assert bed.switch.stats().drops["ingress"] == 2


def test_multicast_copies_and_rid(bed: Bed) -> None:
    bed.switch.set_multicast_group(9, [Replica(3, 30), Replica(1, 10), Replica(1, 11)])
    out = bed.send(packet(Op.MULTICAST, 9))
    assert [(port, Stamp.of(data).egress_rid) for port, data in out] == [(3, 30), (1, 10), (1, 11)]
    assert {Stamp.of(data).instance_type for _, data in out} == {IT_REPLICATION}
    assert {Stamp.of(data).ingress_port for _, data in out} == {1}
    bed.switch.delete_multicast_group(9)
    assert bed.send(packet(Op.MULTICAST, 9)) == []
    assert bed.switch.stats().drops["mcast_group"] == 1


def test_ingress_clone_is_the_original_packet(bed: Bed) -> None:
    bed.switch.set_clone_session(5, CloneSession(port=4))
    out = dict(bed.send(packet(Op.CLONE, 2, second=5)))
    assert set(out) == {2, 4}
    clone, original = Stamp.of(out[4]), Stamp.of(out[2])
    assert out[2][39] == 0xEE
    assert out[4][39] == 0  # parsed again from the bytes that came in
    assert clone.instance_type == IT_INGRESS_CLONE
    assert clone.kept == 0x5A  # the field list
    assert clone.ingress_port == 0  # not in the field list
    assert original.instance_type == 0


def test_clone_goes_out_although_the_original_is_dropped(bed: Bed) -> None:
    bed.switch.set_clone_session(5, CloneSession(port=4))
    assert [port for port, _ in bed.send(packet(Op.CLONE_AND_DROP, second=5))] == [4]


def test_clone_to_group_replicas_and_port_with_truncation(bed: Bed) -> None:
    bed.switch.set_multicast_group(2, [Replica(1, 1), Replica(2, 2)])
    bed.switch.set_clone_session(6, CloneSession(port=4, mcast_group=2, replicas=(Replica(3, 3),), truncate_bytes=60))
    out = bed.send(packet(Op.CLONE_AND_DROP, second=6))
    assert [(port, Stamp.of(data).egress_rid, len(data)) for port, data in out] == [
        (1, 1, 60),
        (2, 2, 60),
        (3, 3, 60),
        (4, 0, 60),
    ]


def test_unknown_clone_session(bed: Bed) -> None:
    assert [port for port, _ in bed.send(packet(Op.CLONE, 2, second=77))] == [2]
    assert bed.switch.stats().drops["clone_session"] == 1


def test_egress_clone_keeps_headers_and_skips_the_parser(bed: Bed) -> None:
    bed.switch.set_clone_session(5, CloneSession(port=4))
    out = dict(bed.send(packet(Op.EGRESS_CLONE, 2, second=5)))
    clone = Stamp.of(out[4])
    assert (clone.instance_type, clone.kept, clone.ingress_port) == (IT_EGRESS_CLONE, 0x5A, 0)
    assert Stamp.of(out[2]).instance_type == 0
    assert bed.switch.stats().ingress == 1


def test_resubmit_keeps_the_field_list(bed: Bed) -> None:
    [(port, data)] = bed.send(packet(Op.RESUBMIT, 3))
    stats = bed.switch.stats()
    assert port == 3
    assert Stamp.of(data).kept == 0x5A
    assert (stats.resubmits, stats.ingress, stats.received) == (1, 2, 1)
    assert Stamp.of(data).instance_type == 0  # unicast resets it


def test_recirculate_parses_the_deparsed_packet(bed: Bed) -> None:
    [(port, data)] = bed.send(packet(Op.RECIRCULATE, 3))
    assert port == 3
    assert Stamp.of(data).rounds == 1
    assert Stamp.of(data).packet_length == 100
    assert bed.switch.stats().recirculations == 1


@pytest.mark.parametrize("op", [Op.RESUBMIT_FOREVER, Op.RECIRCULATE_FOREVER])
def test_endless_loops_end(op: Op) -> None:
    bed = Bed(loop_limit=10)
    assert bed.send(packet(op, 3)) == []
    stats = bed.switch.stats()
    assert stats.drops["loop_limit"] == 1
    assert stats.ingress == 11


def test_endless_egress_clones_end() -> None:
    bed = Bed(loop_limit=10)
    bed.switch.set_clone_session(5, CloneSession(port=4))
    assert len(bed.send(packet(Op.CLONE_FOREVER, 2, second=5))) == 11
    assert bed.switch.stats().drops["loop_limit"] == 1


def test_truncate(bed: Bed) -> None:
    assert len(bed.send(packet(Op.TRUNCATE, 2, second=50))[0][1]) == 50
    assert Stamp.of(bed.send(packet(Op.TRUNCATE, 2, second=50))[0][1]).packet_length == 100
    assert len(bed.send(packet(Op.TRUNCATE, 2, second=200))[0][1]) == 100


def test_headers_may_shrink_and_grow(bed: Bed) -> None:
    frame = packet(Op.SHRINK, 2, fill=7)
    assert bed.send(frame) == [(2, frame[40:])]
    grown = bed.send(packet(Op.GROW, 2, fill=7))[0][1]
    assert grown[40:440] == b"\xaa" * 400
    assert grown[440:] == b"\x07" * 60
    assert bed.send(packet(Op.GROW, 2, size=65500)) == []
    assert bed.switch.stats().drops["too_long"] == 1


def test_priority_beyond_the_queues_is_dropped() -> None:
    bed = Bed(priority_queues=2)
    assert Stamp.of(bed.send(packet(Op.FORWARD, 2, priority=1))[0][1]).qid == 1
    assert bed.send(packet(Op.FORWARD, 2, priority=2)) == []
    assert bed.switch.stats().drops["priority"] == 1


def test_port_that_leads_nowhere(bed: Bed) -> None:
    assert bed.send(packet(Op.FORWARD, 200)) == []
    bed.switch.set_clone_session(1, CloneSession(port=70000))
    assert bed.send(packet(Op.CLONE_AND_DROP, second=1)) == []
    assert bed.switch.stats().drops["no_port"] == 1


def test_digest_packet_in_and_packet_out() -> None:
    bed = Bed(cpu_port=64)
    fd_before = bed.fabric.notifications()
    assert fd_before == []
    bed.send(packet(Op.DIGEST, 2))
    bed.send(packet(Op.FORWARD, 64, fill=3))
    digest, packet_in = bed.fabric.notifications(timeout_s=1)
    assert (digest.kind, digest.ident, digest.data) == (
        NotificationKind.DIGEST,
        1,
        bytes([Op.DIGEST, 2, 0, 1]),
    )
    assert (packet_in.kind, packet_in.device_id, packet_in.ident) == (NotificationKind.PACKET_IN, 7, 64)
    assert packet_in.data[40:] == b"\x03" * 60
    bed.switch.packet_out(packet(Op.FORWARD, 2))
    [(_, _, port, data)] = bed.fabric.run_until(bed.fabric.now_ns)
    assert (port, Stamp.of(data).ingress_port) == (2, 64)


def test_a_closed_fabric_answers_with_errors() -> None:
    bed = Bed()
    bed.fabric.close()
    bed.fabric.close()
    assert bed.fabric.notifications() == []
    for call in (
        bed.switch.stats,
        lambda: bed.switch.add_port(9),
        lambda: bed.fabric.now_ns,
        lambda: bed.fabric.run_until(5),
    ):
        with pytest.raises(FabricError, match="closed"):
            call()


def test_queue_depth_is_packets_of_the_own_queue() -> None:
    bed = Bed(priority_queues=2)
    bed.switch.port(2).set_link(outgoing=LinkSettings(rate_bps=8 * 10**6))  # a byte takes 1 µs
    for priority in (0, 0, 0, 1):
        bed.fabric.inject(bed.switch.port(1), packet(Op.FORWARD, 2, priority=priority), 0)
    out = bed.fabric.run_until(10**6)
    stamps = [Stamp.of(data) for *_, data in out]
    assert [(s.qid, s.enq_qdepth, s.deq_qdepth, s.deq_timedelta) for s in stamps] == [
        (0, 0, 0, 0),
        (1, 0, 0, 100),
        (0, 0, 1, 200),
        (0, 1, 0, 300),
    ]
    assert [t for t, *_ in out] == [100_000, 200_000, 300_000, 400_000]


def test_freeze_stop_restart(bed: Bed) -> None:
    port = bed.switch.port(2)
    port.set_link(outgoing=LinkSettings(rate_bps=8 * 10**6))
    bed.switch.set_multicast_group(1, [Replica(2)])
    for _ in range(3):
        bed.fabric.inject(bed.switch.port(1), packet(Op.FORWARD, 2), 0)
    bed.fabric.run_until(50_000)
    bed.switch.set_state("frozen")
    assert len(bed.send(packet(Op.FORWARD, 3))) == 1  # what was under way; nothing of the rest, nor the new one
    assert port.stats().queues[0].depth_packets == 2
    bed.switch.set_state("running")
    assert len(bed.fabric.run_until(bed.fabric.now_ns + 10**6)) == 2
    for _ in range(3):
        bed.fabric.inject(bed.switch.port(1), packet(Op.FORWARD, 2), bed.fabric.now_ns)
    bed.fabric.run_until(bed.fabric.now_ns + 1000)
    bed.switch.set_state("stopped")
    assert len(bed.send(packet(Op.FORWARD, 3))) == 1
    assert bed.switch.stats().drops["flushed"] == 2
    assert bed.switch.port(1).stats().drops["not_running"] == 2
    bed.switch.restart()
    assert bed.switch.multicast_groups() == {}
    assert len(bed.send(packet(Op.FORWARD, 3))) == 1
    assert bed.send(packet(Op.MULTICAST, 1)) == []


def test_another_program_at_run_time(bed: Bed) -> None:
    bed.switch.port(2).set_link(outgoing=LinkSettings(rate_bps=8 * 10**6))
    old = bed.switch.instance
    for _ in range(5):
        bed.fabric.inject(bed.switch.port(1), packet(Op.FORWARD, 2), 0)
    bed.fabric.run_until(1000)
    bed.switch.load(HandProgram())  # type: ignore[arg-type]
    assert bed.switch.instance is not old
    assert bed.switch.stats().drops["flushed"] == 4
    assert len(bed.send(packet(Op.FORWARD, 2))) == 2
    bed.switch.unload()
    assert bed.send(packet(Op.FORWARD, 2)) == []
    assert bed.switch.stats().drops["no_program"] == 1
    with pytest.raises(FabricError, match="no program"):
        _ = bed.switch.instance


def test_clear_errors(bed: Bed, tmp_path: Path) -> None:
    fabric, switch = bed.fabric, bed.switch
    for pattern, call in [
        ("device_id 7 is in use by s7", lambda: fabric.add_switch(7)),
        ("priority_queues=9", lambda: fabric.add_switch(8, priority_queues=9)),
        ("CPU port and drop port", lambda: fabric.add_switch(8, cpu_port=511)),
        ("no switch with device_id 3 .there are: 7", lambda: fabric.switch(3)),
        ("port 1 is in use", lambda: switch.add_port(1)),
        ("port 511: not a port number", lambda: switch.add_port(511)),
        ("no port 9 .there are: 1, 2, 3, 4", lambda: switch.port(9)),
        ("interfaces need the real clock", lambda: switch.add_port(9, interface="lo")),
        ("linked to itself", lambda: fabric.link(switch.port(1), switch.port(1))),
        ("probability", lambda: switch.port(1).set_link(outgoing=LinkSettings(loss=1.5))),
        ("rate_bps=-1", lambda: switch.port(1).set_link(outgoing=LinkSettings(rate_bps=-1))),
        ("no state 'asleep'", lambda: switch.set_state("asleep")),  # type: ignore[arg-type]
        ("needs a CPU port", lambda: switch.packet_out(b"")),
        ("must be 1-65535", lambda: switch.set_multicast_group(0, [])),
        ("no multicast group 3", lambda: switch.delete_multicast_group(3)),
        ("must be 0-32767", lambda: switch.set_clone_session(40000, CloneSession(port=1))),
        ("no clone session 3", lambda: switch.delete_clone_session(3)),
        ("cannot write the capture", lambda: switch.port(1).capture(tmp_path / "no" / "x.pcapng")),
        ("cannot write the trace", lambda: fabric.trace(tmp_path / "no" / "trace")),
        ("only a fabric on the real clock", fabric.start),
        ("more than 65536", lambda: fabric.inject(switch.port(1), bytes(65537))),
        ("nothing to send", lambda: switch.port(1).generate([], 5, interval_ns=1)),
    ]:
        with pytest.raises(FabricError, match=pattern):
            call()
    fabric.run_until(1000)
    with pytest.raises(FabricError, match="1000 ns already"):
        fabric.run_until(10)
    with pytest.raises(FabricError, match="10 ns is past"):
        fabric.inject(switch.port(1), b"", 10)
    assert 9 not in switch.ports
    with pytest.raises(FabricError, match="no clock"):
        Fabric("sundial")  # type: ignore[arg-type]
