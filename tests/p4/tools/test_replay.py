"""A copy of a served switch does with packets what the switch does, and tells what changed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from p4lite.messages import p4runtime_pb2
from p4lite.switch.targetapi.client import TargetClient
from p4lite_tools.replay import ReplayError, copy_switch, read_snapshot
from p4lite_tools.trace import Recorder
from support.switch.p4rt import INSERT, MODIFY, Bench, Controller, control_config, ethernet, ipv4


@pytest.fixture
def served() -> Iterator[tuple[Bench, Controller]]:
    """Yield a switch with an entry of each kind."""
    bench = Bench()
    with Controller(bench.address) as controller:
        controller.arbitrate()
        controller.set_pipeline(control_config())
        _fill(controller)
        yield bench, controller
    bench.close()


def _fill(controller: Controller) -> None:
    group = p4runtime_pb2.Entity()
    group.packet_replication_engine_entry.multicast_group_entry.multicast_group_id = 5
    for port in (3, 4):
        group.packet_replication_engine_entry.multicast_group_entry.replicas.add(egress_port=port, instance=1)
    session = p4runtime_pb2.Entity()
    session.packet_replication_engine_entry.clone_session_entry.session_id = 9
    session.packet_replication_engine_entry.clone_session_entry.replicas.add(egress_port=4, instance=1)
    default = controller.entry("l2", None, "forward", [b"\x03"], is_default_action=True)
    controller.write((INSERT, group), (INSERT, session), (MODIFY, default))
    controller.write(
        (INSERT, controller.entry("l2", {"hdr.ethernet.dst": b"\x02"}, "forward", [b"\x02"])),
        (INSERT, controller.entry("l2", {"hdr.ethernet.dst": b"\x07"}, "flood", [b"\x05"])),
        (INSERT, controller.entry("acl", {"source": (b"\x0a\0\0\0", b"\xff\0\0\0")}, "mirror", [b"\x09"], priority=7)),
        (INSERT, controller.entry("acl", {"source": (b"\x0a\0\0\x02", b"\xff\xff\xff\xff")}, "drop", [], priority=8)),
    )


FRAMES = (ethernet(2), ethernet(7), ethernet(9), ipv4(), ipv4(src=0x0A000009), ipv4(src=0x0B000001))


def test_copy_does_what_the_switch_does(served: tuple[Bench, Controller]) -> None:
    bench, _ = served
    with TargetClient(bench.address) as target:
        target.write_register(1, "I.seen", 2, 41)
    snapshot = read_snapshot(bench.address, 1)
    recorder = Recorder()
    with copy_switch(snapshot, observers=[recorder]) as copy:
        assert copy.registers["seen"][2] == 41
        sent: list[Any] = []
        for frame in FRAMES:
            want = sorted(bench.send(1, frame))
            sent += want
            assert sorted(copy.send(1, frame)) == want
            assert recorder.take()
    assert {port for port, _ in sent} == {2, 3, 4}


def test_changes_meanwhile_are_named(served: tuple[Bench, Controller]) -> None:
    bench, controller = served
    before = read_snapshot(bench.address, 1)
    assert before.changed(read_snapshot(bench.address, 1)) == []
    with TargetClient(bench.address) as target:
        target.write_register(1, "I.seen", 0, 1)
    controller.write((INSERT, controller.entry("l2", {"hdr.ethernet.dst": b"\x08"}, "forward", [b"\x02"])))
    assert before.changed(read_snapshot(bench.address, 1)) == ["table entries, groups or sessions", "register I.seen"]


def test_switch_without_a_program_is_refused() -> None:
    bench = Bench()
    try:
        with pytest.raises(ReplayError, match="device 1"):
            read_snapshot(bench.address, 1)
    finally:
        bench.close()
